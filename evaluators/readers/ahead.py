"""Operators of a chip of tiles in turn, main memory reading ahead while it has nothing else to do.

It reads into a cache in front of it, or where there is none up the columns into what slices leave of local memories; then time
in which links are at work is none to read in either. An operator whose bytes are there in part takes time on a straight line
between that with all of them and with none: no less than it would, since it takes the longest of things that grow with bytes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from dse.evaluators.machine.channels import ahead_byte
from dse.evaluators.machine.machine import Machine
from dse.evaluators.passes.call import Block
from dse.evaluators.passes.prefetch import Window
from dse.evaluators.program.activity import Activity
from dse.evaluators.readers import jobs
from dse.evaluators.readers.cached import Cached
from dse.evaluators.readers.price import Reader, Timed, timed
from dse.evaluators.readers.timeline import schedule
from dse.space.chip import Chip
from dse.space.elementwise import maximum


class Ahead(NamedTuple):
    """What is read ahead: a word of `space.mapping.PREFETCH`, and bytes that there is room for on the chip. [B]"""

    policy: str
    budget: Any


def timed_ahead(blocks: Sequence[Block], machine: Machine, reader: Reader, chip: Chip, ahead: Ahead) -> list[Timed]:
    """Every block of a step on the timeline, with the window that the block which it comes after ends with."""
    found: list[Timed] = []
    windows: list[Window] = []
    for of in timed(blocks, machine, reader):
        after = of.block.after
        one, window = _timed(of, reader, chip, ahead, Window(0.0) if after is None else windows[after])
        found.append(one)
        windows.append(window)
    return found


def _timed(of: Timed, reader: Reader, chip: Chip, ahead: Ahead, window: Window) -> tuple[Timed, Window]:
    byte, resident, durations = ahead_byte(chip), list(of.resident), list(of.durations)
    for place, (call, cost) in enumerate(zip(of.block.calls, of.costs, strict=True)):
        here: Any = 0.0
        if isinstance(call.job, Cached):
            here, window = window.read(call.job.nbytes, byte, ahead.policy, ahead.budget)
            share = here / maximum(call.job.nbytes, 1.0)
            resident[place] = share
            durations[place] = cost.engines - share * (cost.engines - reader.job(call.job.there).seconds)
        moved = jobs.price("closed", call.job).activity  # of all of the chip, whatever part of it is played
        window = window.after(durations[place] - _busy(moved, here, byte, chip), byte, ahead.budget)
    nothing = [None] * len(durations)
    seconds = schedule(0.0, durations, nothing, of.block.order)
    return of._replace(resident=resident, durations=durations, seconds=seconds), window


def _busy(moved: Activity, here: Any, byte: Any, chip: Chip) -> Any:
    """Time in which nothing can be read ahead: that of main memory and, where there is no cache, of links on average. [s]"""
    memory = (moved.memory_bytes - here) * byte
    if chip.l2 is not None:
        return memory
    rows, cols = chip.mesh.rows, chip.mesh.cols
    links = maximum(2 * (rows * (cols - 1) + cols * (rows - 1)), 1.0)
    return memory + moved.hop_bytes / links * (chip.noc.word / (chip.noc.word_bytes * chip.clock))
