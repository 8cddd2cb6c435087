"""Layouts by the software that runs them; this is the one place that names the classes of a layout."""

from importlib import import_module
from typing import NamedTuple, TypeVar

from dse.space.software import (
    DEVICES,
    MANY_DIES,
    PIPELINES,
    POOLED_DIES,
    REGIONS,
    SERVED_DEVICES,
    SERVED_DIES,
    SERVED_PIPELINES,
    SERVED_POOLED_DIES,
    SERVED_REGIONS,
    SERVED_WHOLE_CHIP,
    WHOLE_CHIP,
)


class LayoutPlaces(NamedTuple):
    """Where a layout stands: ``module:class`` of `accounting`, for batches and for serving loads.

    Attributes:
        batch: class for batches, a `layout.Layout`.
        served_software: software of the same layout that serves.
        serving: class for serving loads, a `serving_layout.ServingLayout`.
    """

    batch: str
    served_software: str
    serving: str


LAYOUTS: dict[str, LayoutPlaces] = {
    DEVICES: LayoutPlaces(
        "tensor_parallel:TensorParallelLayout", SERVED_DEVICES, "serving_instances.tensor_parallel:TensorParallelServing"
    ),
    REGIONS: LayoutPlaces("regions:RegionLayout", SERVED_REGIONS, "serving_instances.regions:RegionServing"),
    PIPELINES: LayoutPlaces("pipelines:PipelineLayout", SERVED_PIPELINES, "serving_instances.pipelines:PipelineServing"),
    WHOLE_CHIP: LayoutPlaces("whole_chip:WholeChipLayout", SERVED_WHOLE_CHIP, "serving_instances.whole_chip:WholeChipServing"),
    MANY_DIES: LayoutPlaces("tile_dies:TileDiesLayout", SERVED_DIES, "serving_instances.multi_die:MultiDieServing"),
    POOLED_DIES: LayoutPlaces(
        "shared_cache_dies:SharedCacheDiesLayout", SERVED_POOLED_DIES, "serving_instances.multi_die:MultiDieServing"
    ),
}
"""Layouts by the software that runs batches; modules are imported at first use."""

BATCH_LAYOUTS = {software: places.batch for software, places in LAYOUTS.items()}
"""Classes for batches by software."""

SERVING_LAYOUTS = {places.served_software: places.serving for places in LAYOUTS.values()}
"""Classes for serving loads by software."""

Kind = TypeVar("Kind")


def load_layout(place: str, kind: type[Kind]) -> Kind:
    """Layout of a class that is given by its place.

    Args:
        place: ``module:class``, the module below `accounting`.
        kind: abstract class whose methods it must have.

    Raises:
        TypeError: it is of another kind, or lacks methods, with their names.
    """
    module, _, name = place.partition(":")
    layout_class = vars(import_module(f"dse.evaluators.accounting.{module}"))[name]
    if not (isinstance(layout_class, type) and issubclass(layout_class, kind)):
        raise TypeError(f"layout {place} is no {kind.__name__}; derive its class from that")
    missing = sorted(getattr(layout_class, "__abstractmethods__", ()))
    if missing:
        raise TypeError(f"layout {place} lacks {', '.join(missing)}, which each {kind.__name__} has")
    layout: Kind = layout_class()
    return layout
