"""Facts of a data sheet compared with the model: which hold, and which limits they contradict."""

from typing import NamedTuple

from dse.evaluators.silicon import area, energy, price
from dse.evaluators.silicon import manufacturing_limits as silicon
from dse.evaluators.silicon import supply_voltage as supply
from dse.space.chip import Chip
from dse.space.limits import Limit
from dse.space.main_memory import has_main_memory, main_memory
from dse.space.peaks import peaks
from dse.space.published import FACTS, PEAK_FORMATS, given_part, is_near, is_said, remove_published_facts
from dse.space.units import format_quantity

UNITS = {"die_area": "mm2", "tdp": "W", "clock": "Hz", "price": "USD"}

HOLDS = {
    "die_area": area.is_as_sold,
    "tdp": energy.is_as_rated,
    "clock": supply.is_as_clocked,
    "price": price.is_as_priced,
}
"""Whether a design is still the part, by fact."""

MODELLED = {
    "die_area": area.die_area,
    "tdp": energy.peak_design_power,
    "clock": supply.maximum_clock,
    "price": price.estimate_chip_price,
}
"""What the model makes of a chip without facts, by fact."""


STATED_METRICS = {"die_area": "die_mm2", "tdp": "tdp"}
"""Metrics whose value is a fact of the data sheet itself, where it holds."""


class Fact(NamedTuple):
    """One fact of a data sheet about one design, with the model's figures.

    Attributes:
        name: name of the fact, of `FACTS`.
        value, unit: as the data sheet has it.
        modelled: what the model makes of this design, and of the part as it was given, in `unit`.
        of_part: likewise.
        holds: whether the design is the part in what the fact depends on: the model makes the same of both, and a clock is no
            higher.
    """

    name: str
    value: float
    unit: str
    modelled: float
    of_part: float
    holds: bool

    @property
    def text(self) -> str:
        """The fact as text, with the model's own figure."""
        name, quantity, modelled = (
            self.name.replace("_", " "),
            format_quantity(self.value, self.unit),
            format_quantity(self.modelled, self.unit),
        )
        reaches = "reaches" if self.name == "clock" else "makes"
        if self.holds:
            return f"{name} {quantity}; the model {reaches} {modelled}"
        of_part = format_quantity(self.of_part, self.unit)
        if is_near(self.modelled, self.of_part):
            return f"{name} {quantity} is not used: this design's clock is higher; the model {reaches} {modelled}, which counts"
        return (
            f"{name} {quantity} is not used: the model {reaches} {of_part} for the published chip and "
            f"{modelled} for this design, which counts"
        )


def published_facts(chip: Chip) -> list[Fact]:
    """Facts of the data sheet of one chip; empty list without a data sheet."""
    modelled = remove_published_facts(chip) if chip.published is not None else chip
    facts = []
    for name in (fact for fact in FACTS if is_said(chip, fact)):
        own, of_part = (float(MODELLED[name](chip_part)) for chip_part in (modelled, given_part(chip, name)))
        published_value = float(getattr(chip.published, name))
        facts.append(Fact(name, published_value, UNITS[name], own, of_part, bool(HOLDS[name](chip))))
    return facts


def stated_metrics(chip: Chip) -> set[str]:
    """Metrics of one chip that its data sheet states, so that no model made them."""
    return {STATED_METRICS[fact.name] for fact in published_facts(chip) if fact.holds and fact.name in STATED_METRICS}


STATED_UNITS = {"memory": "B", "peak_fp16": "flop/s", "peak_fp8": "flop/s", "peak_int8": "op/s", "peak_fp4": "flop/s"}
"""Units in which stated facts are told."""

SAME = 0.02
"""Relative difference within which a chip has what its data sheet states: sheets round, and some count GiB as GB."""


def stated_and_own(chip: Chip) -> dict[str, tuple[float, float]]:
    """Memory [B] and peaks [op/s] of a data sheet by fact, each with the design's own; 0 for none."""
    if chip.published is None:
        return {}
    rates = peaks(chip)
    own = {name: max(float(rates.get(word, 0.0)) for word in words) for name, words in PEAK_FORMATS.items()}
    if has_main_memory(chip):
        own["memory"] = float(main_memory(chip).usable_capacity)
    return {name: (float(getattr(chip.published, name)), value) for name, value in own.items() if is_said(chip, name)}


def departures(chip: Chip) -> list[str]:
    """Memory and peaks of a design that are not those which its data sheet states, as text."""
    return [
        f"{name.replace('_', ' ')} {format_quantity(stated, STATED_UNITS[name])}; this design has "
        f"{format_quantity(own, STATED_UNITS[name])}"
        for name, (stated, own) in stated_and_own(chip).items()
        if abs(own - stated) > SAME * stated
    ]


def find_contradicted_limits(chip: Chip) -> list[Limit]:
    """Limits that the model alone finds violated, but facts of the data sheet contradict."""
    if not any(is_said(chip, fact) for fact in FACTS):
        return []
    broken = {limit.address for limit in silicon.exceeded_limits(chip)}
    return [limit for limit in silicon.exceeded_limits(remove_published_facts(chip)) if limit.address not in broken]


def remarks(chip: Chip) -> list[str]:
    """Limits that facts of a data sheet contradict, as text."""
    remarks = []
    for limit in find_contradicted_limits(chip):
        need, have = (format_quantity(float(value), limit.unit) for value in (limit.need, limit.have))
        model = f"{limit.address}: the model needs {need} and has {have}"
        remarks.append(f"{model}; the data sheet contradicts this, so this limit does not apply")
    return remarks
