"""Advice on published number formats: what they would change for a design that lacks memory."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dse.evaluators.evaluation import explain_infeasibility
from dse.huggingface.quantization import overrides
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.limits import Infeasibility
from dse.space.workload import Workload


def propose_published_formats(
    why: Infeasibility | None, design: Design, workload: Workload, models: Mapping[str, Any]
) -> Infeasibility | None:
    """An infeasibility with the published formats of its model, if these alone would make it fit.

    Args:
        why: the most violated limit; None if every limit holds.
        models: entries of a configuration; those of files have `published_formats`.
    """
    if why is None or why.unit != "B":
        return why
    formats = _common_formats(models)
    if not formats:
        return why
    try:
        fits = (
            explain_infeasibility(
                replace_leaves(design, {f"mapping.precision.{name}": formats[name] for name in formats}), workload
            )
            is None
        )
    except DesignError:  # formats that kernels of this chip do not have
        return why
    if not fits:
        return why
    remedy = f"published in {', '.join(dict.fromkeys(formats.values()))}, which would fit: {overrides(formats)}"
    return replace(why, remedy="; ".join(filter(None, (remedy, why.remedy))))


def _common_formats(models: Mapping[str, Any]) -> dict[str, str]:
    """The formats that all models of a configuration are published in; none where they differ."""
    entries = [entry.get("published_formats") or {} for entry in models.values() if isinstance(entry, Mapping)]
    return dict(entries[0]) if entries and all(entry == entries[0] for entry in entries) else {}
