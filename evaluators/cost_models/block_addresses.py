"""Addresses of a program's blocks behind the memory channels of a mesh, and the bursts that read them.

Tensors that several cores read have one place, which a kernel's layout gives by rows; what only one core loads or stores lies
in the order in which it does, core after core behind each channel. All begin at pages.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dse.evaluators.cost_models.simulation_timing import SimulatedMachine, flat_positions, required_channels
from dse.evaluators.machine.memory_channels import BLOCK_BYTES
from dse.evaluators.program.activity_counts import buffer_bytes, iterate_instructions
from dse.evaluators.program.kernel_ir import LoadInstruction, Program, StoreInstruction
from dse.space.array_math import Array


class BlockBurst(NamedTuple):
    """A part of the block of each core of an instruction, contiguous behind its channel.

    Attributes:
        nbytes: of it. [B]
        address: of its first byte behind the core's channel, shape (cores,). [B]
        piece: bytes that lie side by side, 0 for all of them. [B]
    """

    nbytes: int
    address: Array
    piece: int


class BlockAddresses:
    """Addresses of the blocks that a program loads and stores; without banks, one burst per block."""

    def __init__(self, program: Program, machine: SimulatedMachine) -> None:
        banks = machine.banks
        self._rows_table, self._slots, self._cols = banks, machine.slots, program.cols
        self._base: dict[str, Array] = {}
        self._times: dict[str, Array] = {}
        self._rows = {} if banks is None else banks.rows()
        if banks is None:
            return
        cores, end, stretch = (
            program.rows * program.cols,
            np.zeros(len(required_channels(machine).row), np.int64),
            max(int(banks.memory.granularity), BLOCK_BYTES),
        )
        counts: dict[str, Array] = {}
        homes: dict[str, Array] = {}
        sizes: dict[str, int] = {}
        for step, times in iterate_instructions(program):
            if isinstance(step, LoadInstruction | StoreInstruction):
                name, at = self._name(step), self._cores(step)
                counts.setdefault(name, np.zeros(cores, np.int64))[at] += times
                homes.setdefault(name, np.zeros(cores, np.int64))[at] = flat_positions(step.channel, step.cores.shape)
                sizes[name] = int(buffer_bytes(machine.slots[step.slot]))
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
                indices = np.flatnonzero((homes[name] == channel) & (count > 0))
                room: Array = -(-count[indices] * sizes[name] // stretch) * stretch
                start = -(-end[channel] // stretch) * stretch
                self._base[name][indices] = start + np.cumsum(room) - room
                end[channel] = start + room.sum()

    def _name(self, step: LoadInstruction | StoreInstruction) -> str:
        return ("" if isinstance(step, LoadInstruction) else "to ") + step.stream

    def _cores(self, step: LoadInstruction | StoreInstruction) -> Array:
        row, col = (flat_positions(axis, step.cores.shape).astype(int) for axis in (step.cores.row, step.cores.col))
        at: Array = row * self._cols + col
        return at

    def list_bursts(self, step: LoadInstruction | StoreInstruction) -> Iterator[BlockBurst]:
        """Bursts of the next block of each core of an instruction; selected rows come in pieces."""
        at, slot = self._cores(step), self._slots[step.slot]
        nbytes = int(buffer_bytes(slot))
        if self._rows_table is None:
            yield BlockBurst(nbytes, np.zeros(len(at), np.int64), 0)
            return
        name = self._name(step)
        times, row = self._times[name], max(int(nbytes // slot.shape[0]), 1)
        if name in self._rows:
            address = self._base[name][at] + self._rows[name][1][times[at[0]]].reshape(-1) * row
        else:
            address = self._base[name][at] + times[at] * nbytes
        times[at] += 1
        piece = row if isinstance(step, LoadInstruction) and step.rows and row < BLOCK_BYTES else 0
        access = int(self._rows_table.memory.access)
        most = max(BLOCK_BYTES // (-(-piece // access) * access), 1) * piece if piece else BLOCK_BYTES
        for start in range(0, nbytes, most):
            yield BlockBurst(min(most, nbytes - start), address + start, piece)
