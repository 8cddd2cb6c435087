"""What can go wrong with a design, as an evaluator that does it: for marked designs only, else it evaluates as usual."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dse.execution.workers import Batch, Evaluate
from dse.store.store import DesignResult


def _raise() -> None:
    raise ZeroDivisionError("a fault of this design")


def _hang() -> None:
    time.sleep(3600)


def _eat() -> None:
    np.ones(2**27)  # 1 GiB, touched


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


FAULTS: dict[str, Callable[[], None]] = {"raise": _raise, "hang": _hang, "eat": _eat, "die": _die}


@dataclass(frozen=True)
class Faulty:
    """Does something to whoever evaluates a marked design; with `once`, a file, only the first time."""

    evaluate: Evaluate
    fault: str
    marked: frozenset[str]
    once: Path | None = None

    def __call__(self, batch: Batch) -> list[DesignResult]:
        if any(key in self.marked for key, _, _ in batch) and not (self.once and self.once.exists()):
            if self.once:
                self.once.touch()
            FAULTS[self.fault]()
        return self.evaluate(batch)


@dataclass(frozen=True)
class Slow:
    """Takes its time for every design."""

    evaluate: Evaluate
    seconds: float

    def __call__(self, batch: Batch) -> list[DesignResult]:
        time.sleep(self.seconds * len(batch))
        return self.evaluate(batch)
