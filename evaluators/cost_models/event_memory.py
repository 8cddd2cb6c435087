"""Event-driven simulation of blocks between cores and memory channels."""

from collections.abc import Container, Sequence

import numpy as np

from dse.evaluators.cost_models.event_state import PendingBlocks, RoundWaits, SimulatorState
from dse.evaluators.cost_models.simulation_timing import SimulatedMachine, required_channels
from dse.evaluators.cost_models.task_places import crossing_seconds
from dse.evaluators.machine import noc_simulator as noc
from dse.evaluators.machine import round_timing as waits
from dse.evaluators.machine.memory_channels import MeshChannels
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity_counts import buffer_bytes
from dse.evaluators.program.kernel_ir import LoadInstruction, StoreInstruction
from dse.space.array_math import Array


def run_loads(
    turn: RoundWaits,
    state: SimulatorState,
    ready: dict[str, Array],
    free: dict[str, Array],
    machine: SimulatedMachine,
    rows: slice,
) -> None:
    """Run the loads of a round: channels serve requests in order of arrival, whatever their instruction."""
    parts, columns, static = state.of_step(turn, lambda: _requests(turn.loads, state, machine))
    ask_times, blocks = np.empty(len(static)), static.copy()
    for step, mine, (row, col, _) in parts:
        waits.request_times(row, col, free[step.slot], state.dma, ask_times[mine])
        if step.rows:
            ask_times[mine] = np.maximum(ask_times[mine], ready[step.rows][row, col])
            noc.note_read(row, col, ask_times[mine], state.read[step.rows])
    order = np.argsort(ask_times + columns[-1], kind="stable")
    waits.request_blocks(
        order, *columns, ask_times, state.dma, state.memory, state.pauses, required_channels(machine), machine.fabric,
        state.depths,
        state.every_ready, state.every_read, blocks,
    )  # fmt: skip
    for step, mine, _ in parts:
        state.coming[step.slot, rows.start] = PendingBlocks(blocks[mine], (rows.start, rows.stop))


LoadPart = tuple[LoadInstruction, slice, tuple[Array, Array, Array]]
"""A step, which blocks are its own, and their cores and channels."""


def _requests(
    steps: Sequence[LoadInstruction], state: SimulatorState, machine: SimulatedMachine
) -> tuple[list[LoadPart], tuple[Array, ...], Array]:
    """Steps; row, column, channel, words, bytes and way of the blocks of all; and what `PendingBlocks` has of them."""
    parts, columns, start = list[LoadPart](), list[tuple[Array, ...]](), 0
    memory = required_channels(machine)
    for step in steps:
        places = row, col, channel = state.transfers(step)
        away = channel_seconds(memory, channel, row, col, machine.fabric)
        nbytes, count = float(buffer_bytes(machine.slots[step.slot])), len(places[0])
        words, paced = np.full(count, np.ceil(nbytes / machine.fabric.word_bytes)), np.full(count, nbytes * step.pace)
        parts.append((step, slice(start, start := start + count), places))
        columns.append((*places, words, paced, away, np.full(count, float(state.number[step.slot]))))
    *requests, numbers = (np.concatenate(column) for column in zip(*columns, strict=True))
    return parts, tuple(requests), np.stack([*requests[:4], numbers, np.zeros(start)], axis=1)


def channel_seconds(memory: MeshChannels, channel: Array, row: Array, col: Array, fabric: MeshFabric) -> Array:
    """Time of a first word over the links between cores and their memory channels. [s]"""
    home = memory.row[channel], memory.col[channel]
    hops = np.abs(home[0] - row) + np.abs(home[1] - col)
    seconds: Array = hops * fabric.hop + crossing_seconds((*home, row, col), fabric)
    return seconds


def run_store(step: StoreInstruction, state: SimulatorState, ready: dict[str, Array], machine: SimulatedMachine) -> None:
    """Run a store: channels serve blocks in order of arrival."""
    row, col, channel = state.transfers(step)
    memory, nbytes, end = required_channels(machine), buffer_bytes(machine.slots[step.slot]), np.empty(len(row))
    words = float(-(-nbytes // machine.fabric.word_bytes))
    ask_times = np.maximum(ready[step.slot][row, col], state.dma[row, col])
    order = np.argsort(ask_times + channel_seconds(memory, channel, row, col, machine.fabric), kind="stable")
    noc.store_blocks(
        row[order], col[order], channel[order], words, nbytes, ask_times[order], state.dma, state.ramps, state.lanes,
        state.memory,
        state.pauses, memory, machine.fabric, end,
    )  # fmt: skip
    noc.note_read(row[order], col[order], end, state.read[step.slot])


def deliver_until(
    state: SimulatorState, machine: SimulatedMachine, until: float = np.inf, wanted: Container[tuple[str, int]] = ()
) -> None:
    """Deliver blocks that leave their channels until a time, or are wanted, to their cores."""
    going = [(key, delivery) for key, delivery in state.coming.items() if delivery.soonest <= until or key in wanted]
    due = list[Array]()
    for key, delivery in going:
        now = delivery.blocks if key in wanted else delivery.take_until(until)
        if len(now):
            due.append(now)
            if delivery.rows not in state.touched:
                state.touched.append(delivery.rows)
        if key in wanted or not len(delivery.blocks):
            del state.coming[key]
    if due:
        blocks = due[0] if len(due) == 1 else np.concatenate(due)
        blocks = blocks[np.argsort(blocks[:, 5], kind="stable")]
        waits.deliver_blocks(blocks, state.every_ready, state.ramps, state.lanes, required_channels(machine), machine.fabric)
