"""Compiled search for the row block of each of many designs of a row kernel.

It loops over designs and candidate blocks.

What is tried and what it takes is `analytical_rows`'s; times are those of `row_kernels.row_seconds`, compiled.
"""

from typing import Any, NamedTuple

from dse.evaluators.kernels.vector import row_kernels as streamed
from dse.evaluators.kernels.vector.row_kernels import RowWaves, RowWork
from dse.evaluators.machine.compile_cache import compiled_loop, inlined_function
from dse.evaluators.machine.compiled_math import closed_form
from dse.evaluators.machine.memory_channels import ColumnMemory
from dse.space.array_math import ceil_div, maximum, minimum

_timed = closed_form(streamed.row_seconds)

RATE_COLUMNS = (
    "rows", "cols", "sram", "hop", "post", "ramp", "count", "latency", "byte", "crowded", "lanes", "special", "bandwidth",
    "start", "clock", "die_rows", "crossing",
)  # fmt: skip
"""Columns of what a design is: its mesh, tile, fabric, memory and engines; `start` is of a sequence of instructions [s]."""

MAX_INPUTS = 8
"""Slots that an instruction reads or writes at most: those beyond its own are -1."""


class MeshSides(NamedTuple):
    """Rows and columns of a mesh of tiles. [-]"""

    rows: Any
    cols: Any


class FabricTimes(NamedTuple):
    """Times of a network that a program without exchanges uses [s], and rows of tiles on a die."""

    hop: Any
    post: Any
    ramp: Any
    die_rows: Any
    crossing: Any


@inlined_function
def _size(slot: Any, rows: float) -> Any:
    """Values of a slot, beside its first axis: a number for each row of the block, or once, or of rows before it too."""
    return slot[1] * (slot[2] * rows + slot[3])


@inlined_function
def _nbytes(slot: Any, rows: float) -> Any:
    return slot[0] * (_size(slot, rows) * slot[4])


@inlined_function
def _sum(slots: Any, names: Any, rows: float) -> Any:
    total = 0.0
    for name in names:
        if name >= 0:
            total += _nbytes(slots[name], rows)
    return total


@inlined_function
def _vector(slots: Any, calls: Any, names: Any, rows: float, rate: Any) -> Any:
    """Time of the instructions of a block. [s]"""
    total = 0.0
    for at in range(len(calls)):
        operations, specials, begins = calls[at, 0], calls[at, 1], calls[at, 2]
        first, out = slots[names[at, 0]], slots[names[at, 1]]
        count = maximum(first[0] * _size(first, rows), out[0] * _size(out, rows))
        moved = _sum(slots, names[at, 2:], rows)
        busy = maximum(count * operations / rate[10], count * specials / rate[11])
        total = total + maximum(busy, moved / rate[12]) / rate[14] + (rate[13] if begins > 0 else 0.0)
    return total


@compiled_loop
def choose_row_blocks(
    rates: Any, rows: Any, room: Any, waves: Any, whole: bool, slots: Any, calls: Any, names: Any, moved: Any, groups: int,
    best: Any,
) -> None:  # fmt: skip
    """Write the fastest row block that fits each design to `best`.

    If none fits, take the one that needs the least memory; of equals, the first.

    Args:
        rates: columns of `RATE_COLUMNS`, shape (designs, columns).
        rows: rows of each number of slices that is tried, shape (slices,).
        room: local memory with blocks of no row, and of one. [B], shape (slices, 2)
        waves: turns that are tried, whatever the slices, shape (waves,).
        whole: whether a tile has all its rows at once.
        slots: by slot, entries along its first axis, entries along those between and, along its last one, how many for each row
            and how many beside them; and bytes of a value. Shape (slices, slots, 5)
        calls: of instructions, operations and special ones of an element, and 1 where a sequence begins, shape (calls, 3).
        names: of each, the first slot that it reads, the one that it writes, and all these, shape (calls, 2 + INPUTS).
        moved: slots that are loaded, stored, and loaded by the first group, -1 beyond them, shape (3, names).
        groups: of instructions.
        best: to be written: time [s], which number of slices, and rows of a block. Shape (3, designs)
    """
    for design in range(len(rates)):
        rate = rates[design]
        mesh, way, memory = (
            MeshSides(rate[0], rate[1]),
            FabricTimes(rate[3], rate[4], rate[5], rate[15], rate[16]),
            ColumnMemory(rate[6], rate[7], rate[8], rate[9]),
        )
        excess = least = float("inf")
        for cut in range(len(rows)):
            row, empty, more = rows[cut], room[cut, 0], room[cut, 1] - room[cut, 0]
            fits, before = maximum((rate[2] - empty) // more, 1.0), 0.0
            for wave in waves:
                per_wave = ceil_div(row, mesh.rows * mesh.cols * wave)
                if not whole:
                    per_wave = minimum(per_wave, fits)
                if per_wave == before:
                    continue  # the very same once more
                before = per_wave
                over = maximum((empty + more * per_wave) / rate[2] - 1, 0.0)
                if over > excess:
                    continue
                blocks = ceil_div(row, per_wave)
                turns = RowWaves(blocks, ceil_div(blocks, mesh.rows * mesh.cols))
                loaded, stored, first = (
                    _sum(slots[cut], moved[0], per_wave), _sum(slots[cut], moved[1], per_wave),
                    _sum(slots[cut], moved[2], per_wave)
                )  # fmt: skip
                vector = _vector(slots[cut], calls, names, per_wave, rate)
                seconds = _timed(groups, RowWork(turns, vector, loaded, stored, first), mesh, way, memory)
                if over < excess or seconds < least:
                    excess, least = over, seconds
                    best[0, design], best[1, design], best[2, design] = seconds, cut, per_wave
