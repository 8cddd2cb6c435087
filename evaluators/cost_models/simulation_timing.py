"""Machine on which simulators run a program, and the result of a simulation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.memory_channels import ChannelBanks, MeshChannels
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.activity_counts import (
    buffer_bytes,
    count_elements,
    count_macs,
    count_vector_instructions,
    iterate_instructions,
    matrix_products,
)
from dse.evaluators.program.kernel_ir import (
    FUNCTIONS,
    Buffer,
    CoreIndex,
    LoadInstruction,
    MulticastInstruction,
    MultiplyInstruction,
    Program,
    ReduceInstruction,
    SendInstruction,
    StoreInstruction,
    VectorInstruction,
)
from dse.evaluators.program.routes import hop_distance
from dse.space.array_math import Array
from dse.space.noc_router import NO_FAULTS, MeshFaults


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Result of a simulated program: its time, activity, and times of engines and buffers.

    Attributes:
        seconds: until the last core is done.
        activity: as counted from the steps, the links that bytes cross from and to memory included.
        engine_seconds: that a core's engine for products worked, each as long as the others. [s]
        vector_seconds: that its engine for vectors did; where one does both, none of its own. [s]
        played: rounds that were simulated; the others were jumped.
        ready: when each core's slots are as the program leaves them, by slot, shape (rows, cols). [s]
    """

    seconds: float
    activity: Activity
    engine_seconds: float
    vector_seconds: float
    played: int
    ready: dict[str, Array]

    @property
    def utilisation(self) -> float:
        """Share of the time for which matrix engines work. [-]"""
        return self.engine_seconds / self.seconds if self.seconds else 0.0


def add_results(timings: Sequence[SimulationResult]) -> SimulationResult:
    """Result of programs in sequence; each begins when the one before has finished on all cores."""
    *before, last = timings
    start = sum(timing.seconds for timing in before)
    activity = sum((timing.activity for timing in timings), Activity())
    return SimulationResult(
        start + last.seconds,
        activity,
        sum(timing.engine_seconds for timing in timings),
        sum(timing.vector_seconds for timing in timings),
        sum(timing.played for timing in timings),
        {name: start + ready for name, ready in last.ready.items()},
    )


@dataclass(frozen=True)
class SimulatedMachine:
    """Machine on which a program runs, and the program's buffers by name."""

    fabric: MeshFabric
    engines: TileEngines | None
    memory: MeshChannels | None
    slots: dict[str, Buffer]
    faults: MeshFaults = NO_FAULTS
    banks: ChannelBanks | None = None


def engine_seconds(step: MultiplyInstruction | VectorInstruction, machine: SimulatedMachine) -> float:
    """Time for which an instruction takes a core's engine. [s]"""
    fabric, engines, slots = machine.fabric, machine.engines, machine.slots
    if isinstance(step, MultiplyInstruction):
        if engines is None:
            return float(
                fabric.launch + count_vector_instructions(step, slots) * fabric.call + count_macs(step, slots) * fabric.mac
            )
        copies, m, k, n = matrix_products(step, slots)
        width = max(slots[step.a].itemsize, slots[step.b].packed)
        return float(engines.matrix.start / engines.clock + copies * engines.product(m, k, n, width))
    function, count = FUNCTIONS[step.function], count_elements(step, slots)
    if engines is None:
        return float(fabric.call + count * (function.operations * fabric.operation + function.specials * fabric.special))
    moved = sum(buffer_bytes(slots[name]) for name in (*step.inputs, step.out))
    busy = engines.instruction(count * function.operations, count * function.specials, moved)
    return float(busy if step.joined else engines.vector.start / engines.clock + busy)


def engine_busy_seconds(program: Program, machine: SimulatedMachine) -> tuple[float, float]:
    """Time for which matrix engines (or single engines), and vector engines, work in all. [s], [s]"""
    spent = {MultiplyInstruction: 0.0, VectorInstruction: 0.0}
    for step, times in iterate_instructions(program):
        if isinstance(step, MultiplyInstruction | VectorInstruction):
            spent[type(step)] += times * engine_seconds(step, machine)
    if machine.engines is None:
        return spent[MultiplyInstruction] + spent[VectorInstruction], 0.0
    return spent[MultiplyInstruction], spent[VectorInstruction]


def memory_link_activity(program: Program, machine: SimulatedMachine) -> Activity:
    """Activity of links between memory and cores; these do not use the wraps of a torus."""
    hops, mesh = 0.0, replace(program, topology="mesh")
    for step, times in iterate_instructions(program):
        if isinstance(step, LoadInstruction | StoreInstruction):
            channel = np.broadcast_to(step.channel, step.cores.shape)
            at = CoreIndex(required_channels(machine).row[channel], required_channels(machine).col[channel])
            hops += times * float(np.sum(hop_distance(step.cores, at, mesh))) * buffer_bytes(machine.slots[step.slot])
    return Activity(hop_bytes=hops)


def required_channels(machine: SimulatedMachine) -> MeshChannels:
    """Memory channels of a machine, which must have some."""
    if machine.memory is None:
        raise ValueError("the program loads from memory channels, but its machine has none")
    return machine.memory


def flat_positions(axis: Array, shape: tuple[int, ...]) -> Array:
    """Coordinates along one axis, core by core."""
    whole = axis if axis.shape == shape else np.broadcast_to(axis, shape)
    return np.ascontiguousarray(whole.ravel(), dtype=np.int32)


def message_words(
    step: SendInstruction | MulticastInstruction | ReduceInstruction, machine: SimulatedMachine, shape: tuple[int, ...]
) -> Array:
    """Words of each message of an instruction. [-]"""
    nbytes = np.broadcast_to((step.stop - step.start) * machine.slots[step.slot].row_bytes, shape).ravel()
    return np.asarray(np.ceil(nbytes / machine.fabric.word_bytes))
