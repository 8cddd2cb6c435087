"""Facts of a chip's data sheet, used instead of modelled figures while the design is that chip."""

from dataclasses import field, replace
from typing import Any

from dse.space.fields import option_field, quantity_field, record_class
from dse.space.memoize import memoize_by_identity

FACTS = ("die_area", "tdp", "clock", "price")
"""Facts that a data sheet may state."""

STATED_FACTS = ("memory", "transistors", "peak_fp16", "peak_fp8", "peak_int8", "peak_fp4")
"""Facts beside which a design's own leaves stand; no result depends on them, and content keys leave them out."""

PEAK_FORMATS = {"peak_fp16": ("fp16",), "peak_fp8": ("fp8",), "peak_int8": ("int8",), "peak_fp4": ("mxfp4", "nvfp4")}
"""Number formats whose peak a fact states; of fp4 the faster of both kinds of scales."""

NEAR = 1e-9
"""Relative difference up to which two figures of the model are of one part: sums of many designs round differently."""


@record_class
class PublishedFacts:
    """Facts of a data sheet; each holds while the modelled figure equals that of the published chip.

    Of `STATED_FACTS` nothing is modelled: they stand beside the chip's own leaves. Facts that no document gives are absent.
    `given` has the chip as it was given for each fact, by name; `part` is the content key of all of them.
    """

    die_area: Any = quantity_field("mm2", "area of one of the dies with cores", positive=True, absent=True)
    tdp: Any = quantity_field("W", "rated power of the chip", positive=True, absent=True)
    clock: Any = quantity_field("Hz", "highest clock of the chip at its usual supply voltage", positive=True, absent=True)
    price: Any = quantity_field("USD", "price of the chip without its server", positive=True, absent=True)
    memory: Any = quantity_field(
        "B", "main memory of the chip as its driver counts it", positive=True, absent=True, keyed=False
    )
    transistors: Any = quantity_field("1", "transistors of all dies", positive=True, absent=True, keyed=False)
    peak_fp16: Any = quantity_field("op/s", "dense peak of 16 bits", positive=True, absent=True, keyed=False)
    peak_fp8: Any = quantity_field("op/s", "dense peak of fp8", positive=True, absent=True, keyed=False)
    peak_int8: Any = quantity_field("op/s", "dense peak of int8", positive=True, absent=True, keyed=False)
    peak_fp4: Any = quantity_field("op/s", "dense peak of fp4", positive=True, absent=True, keyed=False)
    part: Any = option_field("content key of the published chip; computed, never set", absent=True)
    given: tuple[tuple[str, Any], ...] = field(default=(), compare=False, repr=False)


def is_near(value: Any, other: Any) -> Any:
    """Whether two figures agree closely enough to be of one chip; broadcasts over designs."""
    return abs(value - other) <= NEAR * abs(other)


def is_said(chip: Any, fact: str) -> bool:
    """Whether the data sheet of a chip states a fact."""
    return chip.published is not None and getattr(chip.published, fact) is not None


def given_part(chip: Any, fact: str) -> Any:
    """Chip for which a data sheet fact was stated, without facts; this chip if none is recorded."""
    return dict(chip.published.given).get(fact) or remove_published_facts(chip)


@memoize_by_identity
def remove_published_facts(chip: Any) -> Any:
    """The chip without the facts of its data sheet."""
    return replace(chip, published=None)


@memoize_by_identity
def without_tiers(chip: Any) -> Any:
    """The chip without memory tiers: one beside which tiers are put keeps its data sheet."""
    return chip if chip.tiers is None else replace(chip, tiers=None)
