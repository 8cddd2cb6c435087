"""Blocks between cores and memory channels, as the events reader plays them."""

from collections.abc import Sequence

import numpy as np

from dse.evaluators.machine import noc, waits
from dse.evaluators.program.counts import tile_bytes
from dse.evaluators.program.rounds import Load, Store
from dse.evaluators.readers.events_state import Coming, State
from dse.evaluators.readers.timing import Machine, channels_of
from dse.space.elementwise import Array


def load(steps: list[Load], state: State, ready: dict[str, Array], free: dict[str, Array], on: Machine, rows: slice) -> None:
    """Whose request is there first is served first, whichever step it is of."""
    parts = []
    for step in steps:
        row, col, channel = state.transfers(step)
        nbytes, count = float(tile_bytes(on.slots[step.slot])), len(row)
        asked = np.empty(count)
        waits.asked(row, col, free[step.slot], state.dma, asked)
        if step.rows:
            asked = np.maximum(asked, ready[step.rows][row, col])
            noc.has_read(row, col, asked, state.read[step.rows])
        words, paced = np.ceil(nbytes / on.fabric.word_bytes), nbytes * step.pace
        parts.append((row, col, channel, np.full(count, words), np.full(count, paced), asked))
    columns = parts[0] if len(parts) == 1 else tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))
    row, col, channel, words, *_ = columns
    first, soonest = np.empty(len(row)), np.empty(len(row))
    waits.requested(*columns, state.dma, state.memory, channels_of(on), on.fabric, first, soonest)
    start = 0
    for step, (row, *_) in zip(steps, parts, strict=True):
        mine = slice(start, start := start + len(row))
        blocks = np.empty((6, len(row)))
        blocks[:4] = row, col[mine], channel[mine], words[mine]
        blocks[4], blocks[5] = state.number[step.slot], first[mine]
        state.coming[step.slot, rows.start] = Coming(blocks)
        noc.has_written(row, col[mine], soonest[mine], state.ready[step.slot], state.read[step.slot])


def store(step: Store, state: State, ready: dict[str, Array], on: Machine) -> None:
    """Blocks go to their channels, whose request is there first before others."""
    row, col, channel = state.transfers(step)
    memory, nbytes, end = channels_of(on), tile_bytes(on.slots[step.slot]), np.empty(len(row))
    words = float(-(-nbytes // on.fabric.word_bytes))
    asked = np.maximum(ready[step.slot][row, col], state.dma[row, col])
    away = np.abs(memory.row[channel] - row) + np.abs(memory.col[channel] - col)
    order = np.argsort(asked + away * on.fabric.hop, kind="stable")
    noc.stores(
        row[order], col[order], channel[order], words, nbytes, asked[order], state.dma, state.ramps, state.lanes, state.memory,
        memory, on.fabric, end,
    )  # fmt: skip
    noc.has_read(row[order], col[order], end, state.read[step.slot])


def deliver(state: State, on: Machine, until: float = np.inf, wanted: Sequence[tuple[str, int]] = ()) -> None:
    """Blocks that leave their channels until some time, or are wanted, by slot and band, come to their cores."""
    due = list[Array]()
    for key, of in [(key, of) for key, of in state.coming.items() if of.soonest <= until or key in wanted]:
        now, later = (of, None) if key in wanted else of.parted(until)
        if now is not None:
            due.append(now.blocks)
            state.touched.append((int(now.blocks[0].min()), int(now.blocks[0].max()) + 1))
        if later is None:
            del state.coming[key]
        else:
            state.coming[key] = later
    if due:
        blocks = due[0] if len(due) == 1 else np.concatenate(due, axis=1)
        waits.arrived(blocks, state.every_ready, state.ramps, state.lanes, channels_of(on), on.fabric)
