"""Event-driven simulator: runs a program on links, ramps and engines that can be busy.

Its result is the time at which everything has finished.

A step starts when the versions that it reads are there, its engine or ramp is free, the links of its route are free when its
first word comes to them, and the version that it overwrites has been read (`depth` versions back).

Strands share engines and links: the next round is that of the strand which can start first. Where blocks come
from memory, bands of rows are strands (`cost_models.row_bands`).

Repetition is jumped: when two consecutive bodies of a loop, or two stretches of a few (`cost_models.loop_repetition`), move
every time that they touch by the same amount, the remaining ones do as well, since times are only ever added and compared;
then the rest is a multiplication, exactly. With several strands a body is what all of them run until the first one is where
it was.
"""

from operator import attrgetter
from typing import Any

import numpy as np

from dse.evaluators.cost_models.event_memory import deliver_until, run_loads, run_store
from dse.evaluators.cost_models.event_state import InstructionWaits, RoundWaits, SimulatorState
from dse.evaluators.cost_models.loop_repetition import LoopRepetition
from dse.evaluators.cost_models.row_bands import share_equal_rounds, split_into_bands
from dse.evaluators.cost_models.simulation_timing import (
    SimulatedMachine,
    SimulationResult,
    engine_busy_seconds,
    memory_link_activity,
)
from dse.evaluators.cost_models.task_floor import is_circuit_switched, play_circuits
from dse.evaluators.cost_models.wave_repetition import WaveRepetition, part_keys
from dse.evaluators.machine import link_contention as meeting
from dse.evaluators.machine import noc_simulator as noc
from dse.evaluators.machine import round_timing as waits
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.memory_channels import ChannelBanks, MeshChannels, check_within, is_on_last_row
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.malloc_settings import keep_freed_memory
from dse.evaluators.program.activity_counts import count_activity
from dse.evaluators.program.kernel_ir import (
    Loop,
    MulticastInstruction,
    MultiplyInstruction,
    Program,
    ReduceInstruction,
    Round,
    SendInstruction,
    StoreInstruction,
    VectorInstruction,
    buffers_read,
    is_in_place,
)
from dse.space.array_math import Array
from dse.space.errors import DesignError
from dse.space.noc_router import NO_FAULTS, MeshFaults

LARGE = 65_536
"""Cores from which on arrays of their times are so large that the kernel would clear them anew for every round."""


def simulate_events(
    program: Program,
    fabric: MeshFabric,
    *,
    engines: TileEngines | None = None,
    memory: MeshChannels | None = None,
    banks: ChannelBanks | None = None,
    jump: bool = True,
    faults: MeshFaults = NO_FAULTS,
) -> SimulationResult:
    """Simulate a program by events on a network and engines; returns its time and activity.

    Args:
        program: instructions of every core.
        fabric: times of the network and cores.
        engines: of each core, side by side; without them one engine does everything by vector instructions.
        memory: channels from which the program loads and to which it stores.
        banks: what is behind each of these, which gives the rate of blocks there.
        jump: whether repetition may be jumped; the answer is the same, later.
        faults: none; only the cycle-level simulator supports faults.

    Raises:
        DesignError: there are faults.
    """
    if faults:
        raise DesignError("chip.faults: fidelity=events cannot route around faults; use fidelity=cycles or chip.faults=none")
    if banks is not None and banks.paced is not None:
        memory = banks.paced()
    if program.rows * program.cols >= LARGE:
        keep_freed_memory()
    program = share_equal_rounds(program)
    check_within(memory, program.rows, program.cols)
    fabric = fabric.plain.on_last_rows(program.rows) if is_on_last_row(memory, program.rows) else fabric.plain
    machine = SimulatedMachine(fabric, engines, memory, {slot.name: slot for slot in program.slots})
    if is_circuit_switched(program, machine):
        return play_circuits(program, machine)
    strands = [_Strand(parts, rows) for rows, parts in split_into_bands(program)]
    state = SimulatorState.initial_state(program, machine, in_bands=len(strands) > len(program.strands))
    watch, again = LoopRepetition(), WaveRepetition()
    alive = [strand for strand in strands if not strand.done]
    while alive:
        if jump and alive[0].begins:
            waves, moved, parts = again.repeated_waves(alive, state.arrays, state.pending_key)
            if waves:
                _leap(waves, moved, parts, alive, state)
        for strand in alive:
            if strand.soonest is None:
                strand.known = strand.known or state.turn(strand.round, strand.rows)
                strand.soonest = state.find_earliest_start(strand.known, strand.rows)
        strand = min(alive, key=EARLIEST_START)
        _play_round(strand, state, machine)
        strand.advance()
        state.forget(alive, strand.rows)
        over = strand.done
        if jump and strand is alive[0] and all(strand.loop for strand in alive):
            turns, moved = watch.repeated_turns(alive, state)
            if turns:
                _jump(turns, moved, alive, state)
                over = True
        if over:
            alive = [strand for strand in alive if not strand.done]
    deliver_until(state, machine)
    done = max(float(times.max()) for times in (*state.ready.values(), state.engine, state.vector, state.memory))
    return SimulationResult(
        done,
        count_activity(program) + memory_link_activity(program, machine),
        *engine_busy_seconds(program, machine),
        state.played,
        dict(state.ready),
    )


EARLIEST_START = attrgetter("soonest")


class _Strand:
    """Where a strand is on some rows: its part, the turn of the loop, the round of the body.

    Attributes:
        round: the next one.
        loop: the one that it is in.
        done: whether nothing is left.
        known: what the next round waits for, once somebody has asked.
        soonest: when the next round can start; kept until something moves on its rows.
    """

    round: Round
    loop: Loop | None
    known: RoundWaits | None
    soonest: tuple[float, float] | None

    def __init__(self, parts: tuple[Round | Loop, ...], rows: slice) -> None:
        self._row_parts, self.rows = parts, rows
        self.part = self.turn = self.place = 0
        self.keys = part_keys(parts)
        self._arrive()

    @property
    def begins(self) -> bool:
        """Whether a loop is what comes next."""
        return not (self.turn or self.place) and self.loop is not None

    @property
    def phase_key(self) -> tuple[int, int]:
        """What two moments of a repetition have in common."""
        return self.part, self.place

    def advance(self, turns: int | None = None) -> None:
        """To the next round, or over some turns of the loop."""
        loop = self.loop
        if turns is None and loop is not None and self.place + 1 < len(loop.body):
            self.place += 1
            self.round = loop.body[self.place]
            self.known = self.soonest = None
            return
        if turns is not None:
            self.turn += turns
        elif loop is None:
            self.part += 1
        else:
            self.place += 1
            if self.place == len(loop.body):
                self.place, self.turn = 0, self.turn + 1
        if loop is not None and self.turn == loop.times:
            self.part, self.turn, self.place = self.part + 1, 0, 0
        self._arrive()

    def leap(self, parts: int) -> None:
        """Over some parts."""
        self.part += parts
        self._arrive()

    def _arrive(self) -> None:
        """At the next part that has a round."""
        part: Round | Loop | None = None
        while self.part < len(self._row_parts):
            part = self._row_parts[self.part]
            if not isinstance(part, Loop) or (part.times and part.body):
                break
            self.part += 1
        self.known = self.soonest = None
        self.done = self.part == len(self._row_parts)
        self.loop = None if self.done or not isinstance(part, Loop) else part
        if not self.done and part is not None:
            self.round = part.body[self.place] if isinstance(part, Loop) else part


def _jump(turns: int, moved: list[Array], alive: list[_Strand], state: SimulatorState) -> None:
    """Over all turns that every strand has left, as many at a time."""
    left = min(strand.loop.times - strand.turn - (strand.place > 0) for strand in alive if strand.loop is not None) // turns
    state.move(moved, left)
    for strand in alive:
        strand.advance(left * turns)


def _leap(waves: int, moved: list[Array], parts: list[int], alive: list[_Strand], state: SimulatorState) -> None:
    """Over some waves, of so many parts of each strand."""
    state.move(moved, waves)
    for strand, count in zip(alive, parts, strict=True):
        strand.leap(waves * count)


def _play_round(strand: _Strand, state: SimulatorState, machine: SimulatedMachine) -> None:
    turn, rows = strand.round, strand.rows
    state.played += 1
    known = strand.known or state.turn(turn, rows)
    if state.coming and strand.soonest is not None:
        deliver_until(state, machine, strand.soonest[0], known.blocks)
    if known.works and turn.wait == "slots":
        _worked(turn.steps[0], known.waits[0], state, machine, rows)
        return
    # every step of a round reads, and overwrites, what was there before it
    alone = len(turn.steps) == 1
    ready, free = state.ready, state.free
    if not alone:
        ready = {name: ready[name].copy() if name in known.written else ready[name] for name in known.read}
        free = {name: free[name].copy() for name in known.written}
    for step, wait in zip(turn.steps, known.waits, strict=True):
        if isinstance(step, MultiplyInstruction | VectorInstruction):
            _work(step, wait, state, machine, rows, ready)
        elif isinstance(step, SendInstruction):
            _send(step, state, ready, free, machine)
        elif isinstance(step, MulticastInstruction):
            _multicast(step, state, ready, free, machine)
        elif isinstance(step, ReduceInstruction):
            _reduce(step, state, ready, free, machine)
        elif isinstance(step, StoreInstruction):
            run_store(step, state, ready, machine)
    if known.loads:
        run_loads(known, state, ready, free, machine, rows)
    if turn.wait != "slots":
        deliver_until(state, machine, 0.0, [(name, rows.start) for name in state.ready])
        _synchronise(turn.wait, state, rows)


def _worked(step: Any, wait: InstructionWaits, state: SimulatorState, machine: SimulatedMachine, rows: slice) -> None:
    """Engines of some rows work on what they hold, all that a round does."""
    summed, seconds = isinstance(step, MultiplyInstruction) and step.combine == "sum", state.seconds(step, machine)
    out, age, ready, read = wait.writes[0], wait.ages[0], state.every_ready, state.every_read
    waits.run_engines(ready, read, wait.reads, out, age, summed, wait.engine, seconds, rows.start, rows.stop)


def _work(
    step: MultiplyInstruction | VectorInstruction,
    wait: InstructionWaits,
    state: SimulatorState,
    machine: SimulatedMachine,
    rows: slice,
    before: dict[str, Array],
) -> None:
    """Engines of some rows work on what they hold, which is as it was `before` other steps of a round."""
    summed, seconds = isinstance(step, MultiplyInstruction) and step.combine == "sum", state.seconds(step, machine)
    into, names = state.ready[step.out][rows], buffers_read(step)
    end = np.maximum(wait.engine[rows], state.read[step.out][-1, rows])
    for times in (*(before[name][rows] for name in names), *((into,) if summed else ())):
        np.maximum(end, times, out=end)
    end += seconds
    wait.engine[rows] = into[:] = end
    for name in names:
        np.maximum(state.read[name][0, rows], end, out=state.read[name][0, rows])


def _send(
    step: SendInstruction, state: SimulatorState, ready: dict[str, Array], free: dict[str, Array], machine: SimulatedMachine
) -> None:
    into = step.into or step.slot
    sr, sc, tr, tc, words, values, meet = state.pairs(step, machine)
    end = np.empty(len(sr))
    parts = is_in_place(step, machine.slots[step.slot])
    over = np.zeros_like(free[into]) if parts else free[into]
    if state.topology == "full":
        if step.via not in ("router", "core"):
            raise ValueError(f"a message via {step.via} has no core on its way where every pair is linked; use router or core")
        noc.carry_direct_messages(
            sr, sc, tr, tc, words, machine.fabric.stage if step.via == "core" else 0.0, ready[step.slot], over, state.dma,
            state.links, machine.fabric, end, state.read[step.slot][0],
        )  # fmt: skip
    else:
        ends, read = (sr, sc, tr, tc, words), state.read[step.slot][0]
        torus, starts = state.topology == "torus", (ready[step.slot], over, state.dma, state.ramps)
        if step.via == "relay":
            noc.relay_messages(*ends, torus, *starts, machine.fabric, end, read)
        elif step.via in ("shared", "answer"):
            noc.load_shared_values(
                *ends,
                values,
                step.combine == "set",
                machine.fabric.load_cost(step.via),
                torus,
                *starts,
                machine.fabric,
                end,
                read,
            )
        else:
            send = (
                noc.carry_locked_messages
                if machine.fabric.locked > 0
                else meeting.carry_contending_messages
                if meet
                else noc.carry_messages
            )
            send(
                *ends,
                machine.fabric.stage if step.via == "core" else 0.0,
                torus,
                *starts,
                state.links,
                machine.fabric,
                end,
                read,
            )
    if step.combine != "set" and machine.fabric.combine:
        noc.combine_arrivals(tr, tc, values, state.ready[into], state.vector, machine.fabric, end)
    noc.note_written(tr, tc, end, state.ready[into], state.read[into][:1] if parts else state.read[into])


def _multicast(
    step: MulticastInstruction,
    state: SimulatorState,
    ready: dict[str, Array],
    free: dict[str, Array],
    machine: SimulatedMachine,
) -> None:
    row, col, words = state.groups(step, machine)
    end, left = np.empty(row.shape), np.empty(len(row))
    noc.carry_multicasts(
        row, col, words, step.via == "core", state.topology == "torus", ready[step.slot],
        free[step.into], state.dma, state.ramps, state.links, machine.fabric, end, left,
    )  # fmt: skip
    noc.note_read(row[:, 0].copy(), col[:, 0].copy(), left, state.read[step.slot])
    noc.note_written(row.ravel(), col.ravel(), end.ravel(), state.ready[step.into], state.read[step.into])


def _reduce(
    step: ReduceInstruction, state: SimulatorState, ready: dict[str, Array], free: dict[str, Array], machine: SimulatedMachine
) -> None:
    row, col, words = state.groups(step, machine)
    left, end = np.empty(row.shape), np.empty(len(row))
    if step.via == "router":
        noc.carry_reductions(
            row, col, words, state.topology == "torus", ready[step.slot], free[step.into], state.dma, state.ramps, state.links,
            machine.fabric, left, end,
        )  # fmt: skip
    else:
        order = np.argsort(row + col, axis=1, kind="stable")
        noc.carry_software_reductions(
            row, col, order, words, ready[step.slot], free[step.into], state.ramps, state.links, machine.fabric, left, end
        )
    noc.note_read(row.ravel(), col.ravel(), left.ravel(), state.read[step.slot])
    noc.note_written(row[:, 0].copy(), col[:, 0].copy(), end, state.ready[step.into], state.read[step.into])


def _synchronise(wait: str, state: SimulatorState, rows: slice) -> None:
    done = np.maximum(state.engine, state.vector)[rows]
    for times in state.ready.values():
        np.maximum(done, times[rows], out=done)
    line = done if wait == "core" else done.max()
    if wait == "line":
        line = np.maximum(done.max(axis=1, keepdims=True), done.max(axis=0, keepdims=True))
    for times in (*state.ready.values(), state.engine, state.vector, state.dma):
        np.maximum(times[rows], line, out=times[rows])
