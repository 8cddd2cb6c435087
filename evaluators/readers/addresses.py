"""Where blocks of a program lie behind the memory channels of a mesh, and the bursts that they are asked for in.

Tensors that several cores read have one place, which a kernel's layout gives by rows; what only one core loads or stores lies
in the order in which it does, core after core behind each channel. All begin at pages.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dse.evaluators.machine.channels import BURST
from dse.evaluators.program.counts import every_step, tile_bytes
from dse.evaluators.program.rounds import Load, Program, Store
from dse.evaluators.readers.timing import Machine, channels_of, flat
from dse.space.elementwise import Array


class Burst(NamedTuple):
    """A part of the block of each core of a step.

    Attributes:
        nbytes: of it. [B]
        address: of its first byte behind the core's channel, shape (cores,). [B]
        piece: bytes that lie side by side, 0 for all of them. [B]
    """

    nbytes: int
    address: Array
    piece: int


class Addresses:
    """Of the blocks of a program, as they are loaded and stored; without banks each is one burst at no place."""

    def __init__(self, program: Program, on: Machine) -> None:
        of = on.banks
        self._of, self._slots, self._cols = of, on.slots, program.cols
        self._base: dict[str, Array] = {}
        self._times: dict[str, Array] = {}
        self._rows = {} if of is None else of.rows()
        if of is None:
            return
        cores, end, stretch = (
            program.rows * program.cols,
            np.zeros(len(channels_of(on).row), np.int64),
            max(int(of.memory.granularity), BURST),
        )
        counts: dict[str, Array] = {}
        homes: dict[str, Array] = {}
        sizes: dict[str, int] = {}
        for step, times in every_step(program):
            if isinstance(step, Load | Store):
                name, at = self._name(step), self._cores(step)
                counts.setdefault(name, np.zeros(cores, np.int64))[at] += times
                homes.setdefault(name, np.zeros(cores, np.int64))[at] = flat(step.channel, step.cores.shape)
                sizes[name] = int(tile_bytes(on.slots[step.slot]))
        for name, count in counts.items():
            self._times[name] = np.zeros(cores, np.int64)
            if name in self._rows:
                tensor, rows = self._rows[name]
                if tensor not in self._base:
                    whole = (int(rows.max()) + 1) * sizes[name]
                    self._base[tensor] = np.full(cores, -(-int(end.max()) // stretch) * stretch, np.int64)
                    end[:] = self._base[tensor][0] + whole
                self._base[name] = self._base[tensor]
                continue
            self._base[name] = np.zeros(cores, np.int64)
            for channel in np.unique(homes[name][count > 0]):
                here = np.flatnonzero((homes[name] == channel) & (count > 0))
                room: Array = -(-count[here] * sizes[name] // stretch) * stretch
                start = -(-end[channel] // stretch) * stretch
                self._base[name][here] = start + np.cumsum(room) - room
                end[channel] = start + room.sum()

    def _name(self, step: Load | Store) -> str:
        return ("" if isinstance(step, Load) else "to ") + step.stream

    def _cores(self, step: Load | Store) -> Array:
        row, col = (flat(axis, step.cores.shape).astype(int) for axis in (step.cores.row, step.cores.col))
        at: Array = row * self._cols + col
        return at

    def bursts(self, step: Load | Store) -> Iterator[Burst]:
        """The next block of each core of a step, which is in pieces where it is made of rows that were selected."""
        at, slot = self._cores(step), self._slots[step.slot]
        nbytes = int(tile_bytes(slot))
        if self._of is None:
            yield Burst(nbytes, np.zeros(len(at), np.int64), 0)
            return
        name = self._name(step)
        times, row = self._times[name], max(int(nbytes // slot.shape[0]), 1)
        if name in self._rows:
            address = self._base[name][at] + self._rows[name][1][times[at[0]]].reshape(-1) * row
        else:
            address = self._base[name][at] + times[at] * nbytes
        times[at] += 1
        piece = row if isinstance(step, Load) and step.rows and row < BURST else 0
        access = int(self._of.memory.access)
        most = max(BURST // (-(-piece // access) * access), 1) * piece if piece else BURST
        for start in range(0, nbytes, most):
            yield Burst(min(most, nbytes - start), address + start, piece)
