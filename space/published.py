"""What a data sheet says of a chip as it is sold: it counts over the model's own figures while a design is that part."""

from dataclasses import field, replace
from typing import Any

from dse.space.fields import option_field, quantity_field, record_class
from dse.space.memoize import memoize_by_identity

FACTS = ("die_area", "tdp", "clock", "price")
"""What may be said of a part."""

NEAR = 1e-9
"""Relative difference up to which two figures of the model are of one part: sums of many designs round differently."""


@record_class
class PublishedFacts:
    """Facts of a data sheet; each holds while the model's own figure is that of the part as it was given.

    `given` has the chip as it was given for each fact, by name; `part` is the content key of all of them.
    """

    die_area: Any = quantity_field("mm2", "area of one of the dies with cores", positive=True, absent=True)
    tdp: Any = quantity_field("W", "power that the chip is rated for", positive=True, absent=True)
    clock: Any = quantity_field("Hz", "highest clock that the chip reaches at its usual supply", positive=True, absent=True)
    price: Any = quantity_field("USD", "price of the chip as it is sold, without its server", positive=True, absent=True)
    part: Any = option_field("content key of the part that the facts are of; worked out, never set", absent=True)
    given: tuple[tuple[str, Any], ...] = field(default=(), compare=False, repr=False)


def is_near(one: Any, other: Any) -> Any:
    """Whether two figures are of one part, broadcasts over designs."""
    return abs(one - other) <= NEAR * abs(other)


def is_said(chip: Any, fact: str) -> bool:
    """Whether a data sheet says a fact of a chip."""
    return chip.published is not None and getattr(chip.published, fact) is not None


def given_part(chip: Any, fact: str) -> Any:
    """The chip of which a fact was given, as the model has it: without facts. The chip itself where nobody says."""
    return dict(chip.published.given).get(fact) or as_modelled(chip)


@memoize_by_identity
def as_modelled(chip: Any) -> Any:
    """A chip without what a data sheet says of it."""
    return replace(chip, published=None)
