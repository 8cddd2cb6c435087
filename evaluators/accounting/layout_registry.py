"""Layouts by the software that runs them, which `space/software.py` declares."""

from importlib import import_module
from typing import TypeVar

from dse.space.software import MODEL_LAYOUTS

BATCH_LAYOUTS = {software: layout.layout for software, layout in MODEL_LAYOUTS.items() if not layout.serves}
"""Classes for batches by software; modules are imported at first use."""

SERVING_LAYOUTS = {software: layout.layout for software, layout in MODEL_LAYOUTS.items() if layout.serves}
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
