"""The vocabulary in which kernels say what they do, one grammar on one screen; readers play it.

    Program(slots, strands)      strands run side by side; a strand is a list of rounds
    Round(steps)                 a simultaneous assignment: every step reads what the cores held before it
    Send(source, target, ...)    a slice of a slot goes from core to core; the target sets or sums it
    Cores(row, col)              integer arrays that broadcast: a set of cores, never an object per core
    Slot(name, shape, dtype)     a tile that every core holds

A new word needs two kernels that want it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from space.elementwise import Array

COMBINE = ("set", "sum")


@dataclass(frozen=True, slots=True)
class Cores:
    """Cores of the mesh by row and column, integer arrays that broadcast together."""

    row: Array
    col: Array


@dataclass(frozen=True, slots=True)
class Slot:
    """A tile that every core holds.

    Attributes:
        name: how steps refer to it.
        shape: of one core's tile.
        dtype: number format, as NumPy names it.
        depth: versions held at a time; one that is both sent and received in a round needs 2.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    depth: int = 1

    @property
    def nbytes(self) -> int:
        """Bytes of one core's memory that the slot takes."""
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize * self.depth


@dataclass(frozen=True, slots=True)
class Send:
    """Rows `start` to `stop` of a slot go from each source to the target in the same place.

    Attributes:
        slot: name of the slot.
        source, target: equally shaped sets of cores.
        start, stop: per pair of cores, along the slot's first axis.
        combine: what the target does with what arrives, a word of `COMBINE`.
    """

    slot: str
    source: Cores
    target: Cores
    start: Array
    stop: Array
    combine: str = "set"


@dataclass(frozen=True, slots=True)
class Round:
    """Steps that all read the state before the round."""

    steps: tuple[Send, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """What every core of a `rows` x `cols` mesh does."""

    rows: int
    cols: int
    slots: tuple[Slot, ...]
    strands: tuple[tuple[Round, ...], ...]


@dataclass(frozen=True, slots=True)
class Activity:
    """What a program moves, independent of who plays it; leaves are floats or arrays over designs."""

    sent_bytes: Any = 0.0


def activity(program: Program) -> Activity:
    """Counted from the steps."""
    width = {slot.name: np.dtype(slot.dtype).itemsize * int(np.prod(slot.shape[1:])) for slot in program.slots}
    sent = 0.0
    for strand in program.strands:
        for turn in strand:
            sent += sum(float(np.sum(send.stop - send.start)) * width[send.slot] for send in turn.steps)
    return Activity(sent_bytes=sent)
