"""Published number formats of a model: whether a design has them, and whether it would fit with them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dse.config.published_formats import common_formats, published_text
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
    formats = common_formats(models)
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


def describe_published_formats(design: Design, models: Mapping[str, Any]) -> str:
    """Text on whether a design has the published formats of its models; empty string for 16 bits.

    Args:
        design: as it is evaluated.
        models: entries of a configuration.
    """
    formats, precision = common_formats(models), design.mapping.precision
    if not formats or precision is None:
        return ""
    own = {name: str(getattr(precision, name) or precision.weights) for name in formats}
    if own == formats:
        return f"in its published {published_text(formats)}"
    return f"published in {published_text(formats)}, here in {published_text(own)}"
