"""State of the event-driven simulator: times at which everything is ready and free."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from dse.evaluators.cost_models.simulation_timing import SimulatedMachine, engine_seconds, flat_positions, message_words
from dse.evaluators.machine import link_contention as meeting
from dse.evaluators.machine import round_timing as waits
from dse.evaluators.program.kernel_ir import (
    Instruction,
    LoadInstruction,
    MulticastInstruction,
    MultiplyInstruction,
    Program,
    ReduceInstruction,
    Round,
    SendInstruction,
    StoreInstruction,
    VectorInstruction,
    buffers_read,
    buffers_written,
)
from dse.space.array_math import Array

T = TypeVar("T")

MAX_ENTRIES, MAX_STEPS, MAX_CORES = 1 << 20, 512, 1 << 25
"""Of how many cores, of all steps and rounds, something is kept; of so many steps of larger meshes, but of no more cores in
all, of each of which ten to forty bytes are kept for a step."""


PAUSES = 32
"""Pauses of a memory channel that are known, in which requests go that are there before others that were played."""


class WaitingStrand(Protocol):
    """A strand on some rows of cores, and the time at which it can start, if known."""

    rows: slice
    soonest: tuple[float, float] | None


class PendingBlocks:
    """Blocks requested from channels that do not use links yet.

    Attributes:
        blocks: row, column, channel, words, slot and when the first word may leave of each, shape (blocks, 6).
        rows: the first row of their band and the one after its last.
        soonest: the least of the last.
    """

    __slots__ = ("blocks", "rows", "soonest")

    def __init__(self, blocks: Array, rows: tuple[int, int]) -> None:
        self.blocks, self.rows = blocks, rows
        self.refresh()

    def refresh(self) -> None:
        """Update the earliest departure after times have moved."""
        self.soonest = float(self.blocks[:, 5].min())

    def take_until(self, until: float) -> Array:
        """Blocks that may leave until a time, removed from the pending ones."""
        blocks, early, self.soonest = waits.split_blocks_by_time(self.blocks, until)
        self.blocks = blocks[early:]
        going: Array = blocks[:early]
        return going


class InstructionWaits(NamedTuple):
    """Buffer versions and engine that an instruction waits for, as numbers."""

    reads: Array
    writes: Array
    ages: Array
    engine: Array


class RoundWaits(NamedTuple):
    """Buffers, blocks and engines that a round on some rows waits for, instruction by instruction.

    `works` says that all it does is work of engines, in one step; `loads` are those of its steps.
    """

    waits: tuple[InstructionWaits, ...]
    read: frozenset[str]
    written: frozenset[str]
    blocks: frozenset[tuple[str, int]]
    works: bool
    loads: tuple[LoadInstruction, ...]


@dataclass
class SimulatorState:
    """Times of every core and link: buffers ready, versions read, resources free.

    `every_ready` and `every_read` are of all slots, shape (slots, rows, cols) and (slots, versions, rows, cols), `ready` and
    `read` views of them by slot, `free` of the version of each that is overwritten next, and `depths` how many versions each
    slot has. `engine`, `vector` and `dma` are the engines of a core for products, for all other work and
    for messages; where one does all of it they are the same array. `lanes` are the links as blocks from and to memory have
    them: the same, but for bands, which would find them held by what comes later. `memory` and `pauses` are of channels, as of
    `serve_block`. `coming` has blocks on order by slot and
    first row of a band; they take links once they leave their channels, so that messages which are through before do not wait
    for them. `touched` are rows, the first one and the one after the last, of bands that blocks have come to since strands were
    asked when they can start.
    """

    every_ready: Array
    every_read: Array
    number: dict[str, int]
    ready: dict[str, Array]
    read: dict[str, Array]
    free: dict[str, Array]
    depths: Array
    engine: Array
    vector: Array
    dma: Array
    ramps: Array
    links: Array
    lanes: Array
    memory: Array
    pauses: Array
    topology: str = "mesh"
    known: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    coming: dict[tuple[str, int], PendingBlocks] = field(default_factory=dict)
    touched: list[tuple[int, int]] = field(default_factory=list)
    played: int = 0

    @classmethod
    def initial_state(cls, program: Program, machine: SimulatedMachine, *, in_bands: bool) -> "SimulatorState":
        """State before anything is simulated."""
        shape, cores = (program.rows, program.cols), program.rows * program.cols
        free = -max(shape) * (machine.fabric.hop + machine.fabric.crossing)  # at time 0 at any place of a line
        engine = np.zeros(shape)
        apart = machine.engines is not None
        links = np.full((cores if program.topology == "full" else 4, cores), free)
        ready = np.zeros((len(program.slots), *shape))
        read = np.zeros((len(program.slots), max((slot.depth for slot in program.slots), default=1), *shape))
        return cls(
            ready,
            read,
            {slot.name: number for number, slot in enumerate(program.slots)},
            {slot.name: times for slot, times in zip(program.slots, ready, strict=True)},
            {slot.name: times[: slot.depth] for slot, times in zip(program.slots, read, strict=True)},
            {slot.name: times[slot.depth - 1] for slot, times in zip(program.slots, read, strict=True)},
            np.array([slot.depth for slot in program.slots], np.int64),
            engine,
            np.zeros(shape) if apart else engine,
            np.zeros(shape) if apart else engine,
            np.zeros((2, *shape)),
            links,
            links.copy() if in_bands else links,
            np.zeros(channels := 1 if machine.memory is None else len(machine.memory.row)),
            np.zeros((channels, PAUSES, 2)),
            program.topology,
        )

    def turn(self, turn: Round, rows: slice) -> RoundWaits:
        """Waits of a round on some rows of cores, and of no others."""
        known_waits = self.known.get(id(turn))
        known: RoundWaits = known_waits[1] if known_waits else self.of_step(turn, lambda: self._turn(turn, rows))
        return known

    def _turn(self, turn: Round, rows: slice) -> RoundWaits:
        read, written = (
            frozenset(name for step in turn.steps for name in buffers(step)) for buffers in (buffers_read, buffers_written)
        )
        blocks = frozenset((name, rows.start) for name in read | written)
        works = len(turn.steps) == 1 and isinstance(turn.steps[0], MultiplyInstruction | VectorInstruction)
        loads = tuple(step for step in turn.steps if isinstance(step, LoadInstruction))
        return RoundWaits(tuple(self._waits(step) for step in turn.steps), read, written, blocks, works, loads)

    def _waits(self, step: Instruction) -> InstructionWaits:
        engine = (
            self.engine
            if isinstance(step, MultiplyInstruction)
            else self.vector
            if isinstance(step, VectorInstruction)
            else self.dma
        )
        written = [self.number[name] for name in buffers_written(step)]
        ages = [len(self.read[name]) - 1 for name in buffers_written(step)]
        read = [self.number[name] for name in buffers_read(step)]
        return InstructionWaits(np.array(read, np.int64), np.array(written, np.int64), np.array(ages, np.int64), engine)

    def find_earliest_start(self, known: RoundWaits, rows: slice) -> tuple[float, float]:
        """Earliest start of a round's first instruction, and when all but engines is ready. [s], [s]"""
        ready, read, first, stop = self.every_ready, self.every_read, rows.start, rows.stop
        begin: tuple[float, float] = waits.earliest_start(ready, read, *known.waits[0], first, stop)
        for step in known.waits[1:]:
            begin = min(begin, waits.earliest_start(ready, read, *step, first, stop))
        return begin

    def pairs(self, step: SendInstruction, machine: SimulatedMachine) -> tuple[Any, ...]:
        """Sources, targets, words and values of a send, and whether its messages meet in the network."""

        def list_pairs() -> tuple[Any, ...]:
            shape = np.broadcast_shapes(step.source.shape, step.target.shape, step.start.shape)
            ends = (step.source.row, step.source.col, step.target.row, step.target.col)
            values = np.broadcast_to((step.stop - step.start) * prod(machine.slots[step.slot].shape[1:]), shape).ravel()
            places = tuple(flat_positions(axis, shape) for axis in ends)
            carried = self.topology != "full" and step.via in ("router", "core") and not machine.fabric.locked
            meet = carried and meeting.do_messages_meet(*places, self.topology == "torus", self.engine.shape)
            return (*places, message_words(step, machine, shape), values, meet)

        return self.of_step(step, list_pairs)

    def of_step(self, step: Instruction | Round | RoundWaits, work: Callable[[], T]) -> T:
        """Values computed once for an instruction or round, since loops and waves repeat them."""
        entry = self.known.get(id(step))
        if entry is None:
            if len(self.known) >= max(MAX_ENTRIES // self.engine.size, min(MAX_STEPS, MAX_CORES // self.engine.size), 1):
                self.known.clear()
            entry = self.known[id(step)] = (step, work())
        value: T = entry[1]
        return value

    def seconds(self, step: MultiplyInstruction | VectorInstruction, machine: SimulatedMachine) -> float:
        """Time for which an instruction takes a core's engine. [s]"""
        entry = self.known.get(id(step))
        return float(entry[1] if entry else self.of_step(step, lambda: engine_seconds(step, machine)))

    def groups(self, step: MulticastInstruction | ReduceInstruction, machine: SimulatedMachine) -> tuple[Array, Array, Array]:
        """Member rows and columns, shape (groups, members), and words of each message."""

        def list_groups() -> tuple[Array, Array, Array]:
            if self.topology == "full":
                raise ValueError("groups of cores have no tree where every pair is linked; send to each")
            path, shape = step.path, step.path.shape
            row, col = (flat_positions(axis, shape).reshape(-1, shape[-1]) for axis in (path.row, path.col))
            return row, col, message_words(step, machine, shape[:-1])

        return self.of_step(step, list_groups)

    def transfers(self, step: LoadInstruction | StoreInstruction) -> tuple[Array, Array, Array]:
        """Cores and channels of an instruction's blocks."""

        def list_transfers() -> tuple[Array, Array, Array]:
            shape = step.cores.shape
            return (
                flat_positions(step.cores.row, shape),
                flat_positions(step.cores.col, shape),
                flat_positions(step.channel, shape),
            )

        return self.of_step(step, list_transfers)

    def forget(self, strands: Sequence["WaitingStrand"], rows: slice) -> None:
        """Discard the start times of strands on some rows, or on rows to which blocks have come."""
        moved = [(rows.start, rows.stop), *(band for band in self.touched if band != (rows.start, rows.stop))]
        self.touched = []
        for strand in strands:
            for first, stop in moved:
                if first < strand.rows.stop and stop > strand.rows.start:
                    strand.soonest = None

    def pending_key(self) -> tuple[Any, ...]:
        """Buffers and bands whose blocks are requested."""
        return tuple((name, delivery.blocks[:, :2].tobytes()) for name, delivery in self.coming.items())

    def arrays(self) -> list[Array]:
        """All arrays of times that a round may move, without pauses of channels that are over.

        A pause is, for cores that have sent something, when all of them are busy until it ends.
        """
        begun = self.dma[self.dma > 0]
        self.pauses[self.pauses[:, :, 1] <= (begun.min() if begun.size else 0.0)] = 0.0
        engines = [self.engine] if self.vector is self.engine else [self.engine, self.vector, self.dma]
        coming = (delivery.blocks[:, 5] for delivery in self.coming.values())
        apart = [] if self.lanes is self.links else [self.lanes]
        return [self.every_ready, self.every_read, *engines, self.ramps, self.links, *apart, self.memory, self.pauses, *coming]

    def move(self, moved: Sequence[Array], times: int) -> None:
        """Move all times by the same amounts, a number of times."""
        for array, step in zip(self.arrays(), moved, strict=True):
            array += step * times
        for delivery in self.coming.values():
            delivery.refresh()
