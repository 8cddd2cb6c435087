"""The closed reader on a mesh of cores: phases of a model from the closed forms of its kernels, for one design or many."""

from collections.abc import Callable
from typing import Any, NamedTuple

from evaluators.counts import Activity
from evaluators.graph import lay
from evaluators.graph.lay import Kernel, Region
from evaluators.kernels.collective import collective
from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm import gemm
from evaluators.kernels.gemm.tiling import Mesh, Shape
from evaluators.kernels.gemv import gemv
from evaluators.kernels.kv import kv
from evaluators.kernels.move import MOVE
from evaluators.kernels.vector import VECTOR
from evaluators.machine.fabric import Fabric
from space.chip import MeshChip
from space.elementwise import maximum, minimum, where
from space.errors import chosen
from space.mapping import MeshMapping, MeshPlan
from space.model import Model

Price = Callable[[Kernel, Fabric], Cost]


class Phase(NamedTuple):
    """One pass of some tokens through the model; leaves broadcast over designs.

    Attributes:
        seconds: through all regions.
        stage: of the slowest region.
        activity: of all cores.
        items: (kernel, how often it runs, the time of one run).
    """

    seconds: Any
    stage: Any
    activity: Activity
    items: list[tuple[Kernel, Any, Any]]


def fabric(chip: MeshChip) -> Fabric:
    """A chip's constants in seconds."""
    cycle = 1 / chip.clock
    core, noc = chip.core, chip.noc
    return Fabric(
        hop=noc.hop * cycle,
        stage=core.stage * cycle,
        word=noc.word * cycle,
        copy=core.copy * cycle,
        post=core.post * cycle,
        ramp=noc.ramp * cycle,
        launch=core.launch * cycle,
        call=core.call * cycle,
        mac=core.mac * cycle,
        operation=core.operation * cycle,
        special=core.special * cycle,
        word_bytes=noc.word_bytes,
        cycle=cycle,
        vcs=noc.vcs,
        depth=noc.depth,
    )


def kernel_of(kernel: Kernel) -> Any:
    """The module of a kernel."""
    if kernel.kind == "gemm":
        return gemm(kernel.algorithm)
    if kernel.kind == "gemv":
        return gemv(kernel.algorithm)
    if kernel.kind == "collective":
        return collective(kernel.algorithm)
    if kernel.kind == "kv":
        return kv(kernel.algorithm)
    return chosen(VECTOR if kernel.kind == "vector" else MOVE, kernel.algorithm, kernel.kind)


def price(kernel: Kernel, on: Fabric) -> Cost:
    """One run of a kernel, from its closed form."""
    cost: Cost = kernel_of(kernel).cost(kernel.shape, kernel.mesh, on, **kernel.options)
    return cost


def phase(kernels: list[Kernel], model: Model, place: Region, mapping: MeshMapping, on: Fabric, priced: Price = price) -> Phase:
    """A pass through all layers, from one layer of each kind, the way between regions and the head."""
    dense = lay.dense_layers(model)
    scale = where(mapping.resident_layers == 0, 1.0, model.layers / maximum(mapping.resident_layers, 1.0))
    times = {
        "attention": float(model.layers),
        "ffn": float(dense),
        "moe": float(model.layers - dense),
        "region": (place.count - 1) * scale,
        "head": 1.0,
    }
    seconds: dict[str, Any] = dict.fromkeys(times, 0.0)
    activity, items = Activity(), []
    for kernel in kernels:
        cost = priced(kernel, on)
        runs = kernel.times * times[kernel.part]
        items.append((kernel, runs, cost.seconds))
        seconds[kernel.part] = seconds[kernel.part] + cost.seconds * kernel.times
        activity = activity + cost.activity * (runs * kernel.copies)
    total = sum((seconds[part] * times[part] for part in times), 0.0)
    layer = (seconds["attention"] * times["attention"] + seconds["ffn"] * dense + seconds["moe"] * times["moe"]) / model.layers
    rest = maximum(total - (place.count - 1) * scale * (place.layers * layer + seconds["region"]), 0.0)
    stage = where(place.count > 1, maximum(place.layers * layer + seconds["region"], minimum(rest, total)), total)
    return Phase(total, stage, activity, items)


def transition(values: Any, before: Region, after: Region, chip: MeshChip, on: Fabric) -> Cost:
    """Time to move weights and KV cache from one phase's regions to the other's; none where they are the same."""
    source, target = _rectangle(before, chip), _rectangle(after, chip)
    cost = MOVE["reshuffle"].cost(Shape(1.0, 1, values), source, on, into=target)
    same = (before.mesh.rows == after.mesh.rows) * (before.mesh.cols == after.mesh.cols) * (before.count == after.count)
    moved = where(same, 0.0, 1.0)
    return Cost(cost.seconds * moved, cost.activity * moved)


def plans(mapping: MeshMapping) -> tuple[tuple[str, MeshPlan], ...]:
    """Both phases by name."""
    return ("prefill", mapping.prefill), ("decode", mapping.decode)


def _rectangle(place: Region, chip: MeshChip) -> Any:
    """Cores of all regions of a phase, side by side and then below one another."""
    room = maximum(chip.mesh.cols // place.mesh.cols, 1)
    wide = minimum(place.count * 1.0, room)
    return Mesh(place.mesh.rows * -(-place.count // wide), place.mesh.cols * wide)
