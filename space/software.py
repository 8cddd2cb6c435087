"""Software that goes with a chip and with what is asked of it, by the parts that a mapping of it has."""

from dse.space.mapping import (
    AttentionPlan,
    CollectivePlan,
    DieCollectivePlan,
    DiesPlan,
    FlatPlan,
    Mapping,
    MeshPlan,
    Plan,
    PooledPlan,
    PoolPlan,
    Precision,
    ProductPlan,
    Serving,
    StreamPlan,
    SummaPlan,
    TilePlan,
    TileServing,
    TrafficPlan,
)
from dse.space.parts import Parts, Wholes
from dse.space.remember import same
from dse.space.stack import Stack

DEVICES, REGIONS, PIPELINES, WHOLE_CHIP, MANY_DIES = "devices", "regions", "pipelines", "whole chip", "many dies"
POOLED_DIES = "pooled dies"
SERVED_DEVICES, SERVED_REGIONS = "served devices", "served regions"
SERVED_PIPELINES, SERVED_WHOLE_CHIP = "served pipelines", "served whole chip"
SERVED_DIES, SERVED_POOLED_DIES = "served many dies", "served pooled dies"
PRODUCT, SUMMA, STREAM, TRAFFIC, ATTENTION, COLLECTIVE = "product", "summa", "stream", "traffic", "attention", "collective"
DIE_COLLECTIVE = "collective of dies"


def _phases(plan: type) -> dict[str, type | None]:
    return {"prefill": plan, "decode": plan, "precision": Precision}


_CACHES = dict.fromkeys(("kv", "kv_heads", "kv_projection", "resident_layers"))

SOFTWARE: dict[str, Parts] = {
    DEVICES: Parts("a model on dies", _phases(Plan) | {"stack": Stack}),
    REGIONS: Parts("a model on regions of a mesh", _phases(MeshPlan) | _CACHES),
    PIPELINES: Parts("a model on pipelines of cores", _phases(TilePlan) | {"sram_kv": None}),
    WHOLE_CHIP: Parts("a model on all tiles at a time", _phases(FlatPlan)),
    MANY_DIES: Parts("a model on many dies of tiles", _phases(DiesPlan)),
    POOLED_DIES: Parts("a model on many dies with a cache", _phases(PooledPlan) | {"stack": Stack}),
    SERVED_DEVICES: Parts("requests served on dies", _phases(Plan) | {"stack": Stack, "serving": Serving}),
    SERVED_REGIONS: Parts("requests served on regions of a mesh", _phases(MeshPlan) | _CACHES | {"serving": Serving}),
    SERVED_PIPELINES: Parts(
        "requests served on pipelines of cores", _phases(PoolPlan) | {"sram_kv": None, "serving": TileServing}
    ),
    SERVED_WHOLE_CHIP: Parts("requests served on all tiles at a time", _phases(FlatPlan) | {"serving": Serving}),
    SERVED_DIES: Parts("requests served on many dies of tiles", _phases(DiesPlan) | {"serving": Serving}),
    SERVED_POOLED_DIES: Parts(
        "requests served on many dies with a cache", _phases(PooledPlan) | {"stack": Stack, "serving": Serving}
    ),
    PRODUCT: Parts("a product by itself", {"kernel": ProductPlan}),
    SUMMA: Parts("a product by itself on tiles", {"kernel": SummaPlan}),
    STREAM: Parts("requests to memory", {"kernel": StreamPlan}),
    TRAFFIC: Parts("traffic by itself", {"kernel": TrafficPlan}),
    ATTENTION: Parts("attention by itself", {"kernel": AttentionPlan}, may=("precision",)),
    COLLECTIVE: Parts("a collective by itself", {"kernel": CollectivePlan}),
    DIE_COLLECTIVE: Parts("a collective between dies by itself", {"kernel": DieCollectivePlan}, may=("stack",)),
}
"""Mappings that something runs by: what of one it reads; nothing reads a part that is in neither list."""

_SOFTWARE = Wholes(Mapping, "mapping", SOFTWARE)

OF_CACHES = (DEVICES, SERVED_DEVICES, POOLED_DIES, SERVED_POOLED_DIES)
"""Software of dies with a cache."""


def _any_stack(of: Parts) -> Parts:
    return of._replace(needs={name: kind for name, kind in of.needs.items() if name != "stack"}, may=(*of.may, "stack"))


_PLANS = Wholes(Mapping, "mapping", {name: _any_stack(of) for name, of in SOFTWARE.items()})


@same
def software_of(mapping: Mapping) -> str:
    """The software that a mapping's parts make: a name of `SOFTWARE`.

    Raises:
        DesignError: a part that is missing from the software that is nearest, or that nothing reads there.
    """
    return _SOFTWARE.of(mapping)


def plans_of(mapping: Mapping) -> str:
    """The same by all parts but the stack, which goes with the chip: what a mapping is for, whatever chip it was put on."""
    return _PLANS.of(mapping)
