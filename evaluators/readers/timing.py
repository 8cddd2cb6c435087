"""What readers that play programs have in common: the machine that a program is played on, and what comes out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dse.evaluators.machine.channels import Behind, Channels
from dse.evaluators.machine.engine import Engines
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.counts import calls, elements, every_step, matrices, products, tile_bytes
from dse.evaluators.program.rounds import (
    FUNCTIONS,
    Cores,
    Load,
    Multicast,
    Multiply,
    Program,
    Reduce,
    Send,
    Slot,
    Store,
    Vector,
)
from dse.evaluators.program.routes import distance
from dse.space.elementwise import Array
from dse.space.network import NO_FAULTS, Faults


@dataclass(frozen=True, slots=True)
class Timing:
    """What came out.

    Attributes:
        seconds: until the last core is done.
        activity: as counted from the steps, the links that bytes cross from and to memory included.
        engine_seconds: that a core's engine for products worked, each as long as the others. [s]
        vector_seconds: that its engine for vectors did; where one does both, none of its own. [s]
        played: rounds that were played; the others were jumped.
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
        """Share of the time that engines for products worked."""
        return self.engine_seconds / self.seconds if self.seconds else 0.0


def one_after_another(timings: Sequence[Timing]) -> Timing:
    """Programs of which each begins when the one before is done everywhere; what is ready is the last one's."""
    *before, last = timings
    start = sum(timing.seconds for timing in before)
    activity = sum((timing.activity for timing in timings), Activity())
    return Timing(
        start + last.seconds,
        activity,
        sum(timing.engine_seconds for timing in timings),
        sum(timing.vector_seconds for timing in timings),
        sum(timing.played for timing in timings),
        {name: start + ready for name, ready in last.ready.items()},
    )


@dataclass(frozen=True)
class Machine:
    """What a program is played on, and its slots by name; faults are for who plays routers."""

    fabric: Fabric
    engines: Engines | None
    memory: Channels | None
    slots: dict[str, Slot]
    faults: Faults = NO_FAULTS
    banks: Behind | None = None


def engine_seconds(step: Multiply | Vector, on: Machine) -> float:
    """That a step takes a core's engine."""
    fabric, engines, slots = on.fabric, on.engines, on.slots
    if isinstance(step, Multiply):
        if engines is None:
            return float(fabric.launch + calls(step, slots) * fabric.call + products(step, slots) * fabric.mac)
        copies, m, k, n = matrices(step, slots)
        width = max(slots[step.a].itemsize, slots[step.b].packed)
        return float(engines.matrix.call / engines.clock + copies * engines.product(m, k, n, width))
    function, count = FUNCTIONS[step.function], elements(step, slots)
    if engines is None:
        return float(fabric.call + count * (function.operations * fabric.operation + function.specials * fabric.special))
    moved = sum(tile_bytes(slots[name]) for name in (*step.inputs, step.out))
    busy = engines.instruction(count * function.operations, count * function.specials, moved)
    return float(busy if step.joined else engines.vector.call / engines.clock + busy)


def worked(program: Program, on: Machine) -> tuple[float, float]:
    """Time that every engine works on all steps: for products, or for everything, and for vectors."""
    spent = {Multiply: 0.0, Vector: 0.0}
    for step, times in every_step(program):
        if isinstance(step, Multiply | Vector):
            spent[type(step)] += times * engine_seconds(step, on)
    if on.engines is None:
        return spent[Multiply] + spent[Vector], 0.0
    return spent[Multiply], spent[Vector]


def crossed(program: Program, on: Machine) -> Activity:
    """Links that bytes cross between memory and cores, which do not go over the edges of a torus."""
    hops, mesh = 0.0, replace(program, topology="mesh")
    for step, times in every_step(program):
        if isinstance(step, Load | Store):
            channel = np.broadcast_to(step.channel, step.cores.shape)
            at = Cores(channels_of(on).row[channel], channels_of(on).col[channel])
            hops += times * float(np.sum(distance(step.cores, at, mesh))) * tile_bytes(on.slots[step.slot])
    return Activity(hop_bytes=hops)


def channels_of(on: Machine) -> Channels:
    """Memory channels of a machine that has to have some."""
    if on.memory is None:
        raise ValueError("the program loads from memory channels, and the machine that it is played on has none")
    return on.memory


def flat(axis: Array, shape: tuple[int, ...]) -> Array:
    """Places along an axis, core by core."""
    whole = axis if axis.shape == shape else np.broadcast_to(axis, shape)
    return np.ascontiguousarray(whole.ravel(), dtype=np.int32)


def words_of(step: Send | Multicast | Reduce, on: Machine, shape: tuple[int, ...]) -> Array:
    """Words of each message of a step."""
    nbytes = np.broadcast_to((step.stop - step.start) * on.slots[step.slot].row_bytes, shape).ravel()
    return np.asarray(np.ceil(nbytes / on.fabric.word_bytes))
