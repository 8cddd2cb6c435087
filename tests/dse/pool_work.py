"""What workers of the pool do in its tests; nothing heavy is imported here, as each worker imports it."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dse.execution.pool import dispatch
from dse.space.errors import DesignError


def squares(values: Sequence[int], marked: int = -1, fault: str = "", log: Path | None = None, times: int = 1000) -> list[int]:
    """Squares of a batch; a marked value does something instead, so many times."""
    if log is not None and marked in values:
        with log.open("a") as file:
            file.write(f"{len(values)}\n")
        times -= len(log.read_text().splitlines()) - 1
    if marked in values and times > 0:
        if fault == "raise":
            raise ZeroDivisionError("a fault of this item")
        if fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "hang":
            time.sleep(20)
        if fault == "eat":
            np.ones(2**27)  # 1 GiB, touched
    return [value * value for value in values]


def square(value: int) -> int:
    return value * value


def refuse_three(value: int) -> int:
    if value == 3:
        raise DesignError("part 3: no")
    return value


def die_at_three(value: int) -> int:
    return squares([value], 3, "die")[0]


def types(values: Sequence[Any]) -> list[str]:
    return [type(value).__name__ for value in values]


def who(seconds: float) -> tuple[int, int]:
    """Process and thread, after a time."""
    time.sleep(seconds)
    return os.getpid(), threading.get_ident()


def fragile(values: Sequence[int], folder: Path, deaths: dict[int, int]) -> list[int]:
    """Squares; some values kill their worker so many times before they are answered."""
    for value in values:
        marks = len(list(folder.glob(f"{value} *")))
        if marks < deaths.get(value, 0):
            (folder / f"{value} {marks}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return [value * value for value in values]


def note_and_sleep(folder: str) -> None:
    """Leave the numbers of this process and of one that it starts in a session of its own, and hang."""
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    (Path(folder) / f"{os.getpid()}").touch()
    (Path(folder) / f"{other.pid}").touch()
    time.sleep(600)


def where(seconds: float) -> str:
    """Machine of a cluster, after a time."""
    import ray

    time.sleep(seconds)
    return str(ray.get_runtime_context().get_node_id())


class Unreadable:
    """Cannot be read by another process, as a design of code that is older there."""

    def __reduce__(self) -> Any:
        return getattr, (int, "field_of_a_newer_version")


def unreadable(values: Sequence[int], marked: int) -> list[Any]:
    """Squares, but a result that nobody can read of one value."""
    return [Unreadable() if value == marked else value * value for value in values]


def fork_and_die(value: int) -> int:
    """Leave a process that holds all that this one has open, and end."""
    if value == 1:
        if not os.fork():
            time.sleep(600)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def wait_for_others(folder: str, process_id: int) -> int:
    """The process; one of that number waits until another one has begun, and then takes longer than any start may."""
    if os.getpid() == process_id:
        while not list(Path(folder).iterdir()):
            time.sleep(0.01)
        dispatch.START_LIMIT_S = 0.0
    else:
        (Path(folder) / f"{os.getpid()}").touch()
    return os.getpid()


def elsewhere(values: list[int], process_id: int) -> list[int]:
    """Squares, some of them printed; fails where a value is negative, in any other process than one."""
    print(values[:3])
    if min(values) < 0 and os.getpid() != process_id:
        raise ValueError
    return [value * value for value in values]


def divided(value: int, by: int) -> float:
    """A value by another."""
    return value / by
