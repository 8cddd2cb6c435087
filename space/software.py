"""Software by the parts of its mapping, for each machine and type of case."""

from typing import NamedTuple

from dse.space.machines import DIES, POOL, POOLED, TILES, WAFER
from dse.space.mapping import (
    AttentionPlan,
    DieCollectivePlan,
    FormatPlan,
    Mapping,
    MemoryStreamPlan,
    MeshProductPlan,
    PipelinePlan,
    PipelineServingPlan,
    RegionPlan,
    ServingPipelinePlan,
    SharedCacheDiesPlan,
    TensorParallelPlan,
    TileCollectivePlan,
    TileDiesPlan,
    TileGemmPlan,
    TrafficPlan,
    WholeChipPlan,
)
from dse.space.memoize import memoize_by_identity
from dse.space.required_parts import Parts, WholeKinds
from dse.space.serving_plan import ServingPlan
from dse.space.stack import Stack

DEVICES, REGIONS, PIPELINES, WHOLE_CHIP, MANY_DIES = "devices", "regions", "pipelines", "whole chip", "many dies"
POOLED_DIES = "pooled dies"
SERVED_DEVICES, SERVED_REGIONS = "served devices", "served regions"
SERVED_PIPELINES, SERVED_WHOLE_CHIP = "served pipelines", "served whole chip"
SERVED_DIES, SERVED_POOLED_DIES = "served many dies", "served pooled dies"
PRODUCT, SUMMA, STREAM, TRAFFIC, ATTENTION, COLLECTIVE = "product", "summa", "stream", "traffic", "attention", "collective"
DIE_COLLECTIVE = "collective of dies"


def _phases(plan: type) -> dict[str, type | None]:
    return {"prefill": plan, "decode": plan, "precision": FormatPlan}


_CACHES = dict.fromkeys(("kv_placement", "kv_heads", "kv_projection", "simulated_layers"))


class ModelLayout(NamedTuple):
    """A layout of models: the parts of its mapping, the machine that runs it, and its class.

    Attributes:
        text: what it is, for messages.
        parts: of a mapping, with their kinds.
        machine: that runs it, of `space.machines`.
        layout: ``module:class`` below `evaluators/accounting`, a `Layout` of batches or a `ServingLayout`.
        serves: whether it serves requests; else it runs batches.
        may: parts of a mapping that may be absent.
    """

    text: str
    parts: dict[str, type | None]
    machine: str
    layout: str
    serves: bool = False
    may: tuple[str, ...] = ()


MODEL_LAYOUTS: dict[str, ModelLayout] = {
    DEVICES: ModelLayout(
        "a model on dies",
        _phases(TensorParallelPlan) | {"stack": Stack},
        POOL,
        "tensor_parallel:TensorParallelLayout",
        may=("inference_engine", "memory_placement"),
    ),
    REGIONS: ModelLayout("a model on regions of a mesh", _phases(RegionPlan) | _CACHES, WAFER, "regions:RegionLayout"),
    PIPELINES: ModelLayout(
        "a model on pipelines of cores", _phases(PipelinePlan) | {"sram_kv_share": None}, TILES, "pipelines:PipelineLayout"
    ),
    WHOLE_CHIP: ModelLayout("a model on all tiles at a time", _phases(WholeChipPlan), TILES, "whole_chip:WholeChipLayout"),
    MANY_DIES: ModelLayout("a model on many dies of tiles", _phases(TileDiesPlan), DIES, "tile_dies:TileDiesLayout"),
    POOLED_DIES: ModelLayout(
        "a model on many shared-cache dies",
        _phases(SharedCacheDiesPlan) | {"stack": Stack},
        POOLED,
        "shared_cache_dies:SharedCacheDiesLayout",
        may=("inference_engine", "memory_placement"),
    ),
    SERVED_DEVICES: ModelLayout(
        "requests served on dies",
        _phases(TensorParallelPlan) | {"stack": Stack, "serving": ServingPlan},
        POOL,
        "serving_instances.tensor_parallel:TensorParallelServing",
        serves=True,
        may=("inference_engine", "memory_placement"),
    ),
    SERVED_REGIONS: ModelLayout(
        "requests served on regions of a mesh",
        _phases(RegionPlan) | _CACHES | {"serving": ServingPlan},
        WAFER,
        "serving_instances.regions:RegionServing",
        serves=True,
    ),
    SERVED_PIPELINES: ModelLayout(
        "requests served on pipelines of cores",
        _phases(ServingPipelinePlan) | {"sram_kv_share": None, "serving": PipelineServingPlan},
        TILES,
        "serving_instances.pipelines:PipelineServing",
        serves=True,
    ),
    SERVED_WHOLE_CHIP: ModelLayout(
        "requests served on all tiles at a time",
        _phases(WholeChipPlan) | {"serving": ServingPlan},
        TILES,
        "serving_instances.whole_chip:WholeChipServing",
        serves=True,
    ),
    SERVED_DIES: ModelLayout(
        "requests served on many dies of tiles",
        _phases(TileDiesPlan) | {"serving": ServingPlan},
        DIES,
        "serving_instances.multi_die:MultiDieServing",
        serves=True,
    ),
    SERVED_POOLED_DIES: ModelLayout(
        "requests served on many shared-cache dies",
        _phases(SharedCacheDiesPlan) | {"stack": Stack, "serving": ServingPlan},
        POOLED,
        "serving_instances.multi_die:MultiDieServing",
        serves=True,
        may=("inference_engine", "memory_placement"),
    ),
}
"""Layouts of models; this is the one place that names the parts, the machine and the class of a layout."""


UNLIKE_POOL_LAYOUTS = {
    True: "serving_instances.unlike_pools:JointUnlikePoolsServing",
    False: "serving_instances.unlike_pools:UnlikePoolsServing",
}
"""Classes for pools on unlike chips, each with a layout of its own; by whether both are of devices, and taken together."""


def layouts_on(machine: str, *, serves: bool) -> tuple[str, ...]:
    """Software of the layouts of models that a machine runs, for batches or for serving loads.

    >>> layouts_on("tiles", serves=False)
    ('pipelines', 'whole chip')
    """
    return tuple(name for name, layout in MODEL_LAYOUTS.items() if (layout.machine, layout.serves) == (machine, serves))


SOFTWARE: dict[str, Parts] = {
    **{name: Parts(layout.text, layout.parts, layout.may) for name, layout in MODEL_LAYOUTS.items()},
    PRODUCT: Parts("a single product", {"kernel": MeshProductPlan}),
    SUMMA: Parts("a single product on tiles", {"kernel": TileGemmPlan}),
    STREAM: Parts("requests to memory", {"kernel": MemoryStreamPlan}),
    TRAFFIC: Parts("traffic by itself", {"kernel": TrafficPlan}),
    ATTENTION: Parts("attention by itself", {"kernel": AttentionPlan}, may=("precision",)),
    COLLECTIVE: Parts("a single collective", {"kernel": TileCollectivePlan}),
    DIE_COLLECTIVE: Parts("a single collective between dies", {"kernel": DieCollectivePlan}, may=("stack", "inference_engine")),
}
"""Mappings that something runs by: what of one it reads; nothing reads a part that is in neither list."""

_SOFTWARE = WholeKinds(Mapping, "mapping", SOFTWARE)

OF_CACHES = (DEVICES, SERVED_DEVICES, POOLED_DIES, SERVED_POOLED_DIES)
"""Software of dies with a cache."""


def _any_stack(parts: Parts) -> Parts:
    return parts._replace(
        needs={name: kind for name, kind in parts.needs.items() if name != "stack"},
        may=(*parts.may, "stack", "inference_engine"),
    )


_PLANS = WholeKinds(Mapping, "mapping", {name: _any_stack(parts) for name, parts in SOFTWARE.items()})


@memoize_by_identity
def software_of(mapping: Mapping) -> str:
    """Name of the software that a mapping's parts form, of `SOFTWARE`.

    Raises:
        DesignError: a part that is missing from the software that is nearest, or that nothing reads there.
    """
    return _SOFTWARE.whole_of(mapping)


def software_without_stack(mapping: Mapping) -> str:
    """Name of the software of a mapping, ignoring stack and inference engine, which belong to the chip."""
    return _PLANS.whole_of(mapping)
