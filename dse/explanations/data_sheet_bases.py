"""The design that a step is compared with, where the step leaves facts of a data sheet behind."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dse.evaluators.silicon.published import HOLDS
from dse.explanations.kept_answers import NOTHING_KEPT, KeptAnswers
from dse.explanations.neighbours import DesignOutcome, StudyGoal, evaluate_points
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.neighbourhood import Neighbour
from dse.space.published import FACTS, is_said, remove_published_facts


def facts_in_use(chip: Chip) -> frozenset[str]:
    """Names of the facts of a data sheet that count for a chip in the place of modelled figures."""
    return frozenset(name for name in FACTS if is_said(chip, name) and HOLDS[name](chip))


def comparable_outcomes(
    design: Design,
    outcome: DesignOutcome,
    steps: Sequence[Neighbour],
    goal: StudyGoal,
    kept: KeptAnswers = NOTHING_KEPT,
) -> Mapping[Neighbour, tuple[DesignOutcome, frozenset[str]]]:
    """Outcome with which each step of a setting is compared, and the facts that the step leaves behind.

    Area, power and price of a step that is no longer the chip as sold are modelled. They are compared with what the model makes
    of the chip as sold. Steps to another chip, which has a data sheet of its own, are compared with the design as it is, and so
    are all steps where the model finds that the chip as sold violates a limit.

    Args:
        design: a design of scalars.
        outcome: of the design.
        steps: from the design.
        goal: whose metrics are compared.
        kept: where outcomes may be known already, and where new ones go.
    """
    facts = facts_in_use(design.chip)
    moved = [step for step in steps if facts and step.knob.startswith("chip.")]
    lost = dict.fromkeys(steps, frozenset[str]()) | {step: facts - facts_in_use(step.design.chip) for step in moved}
    different = [names for names in dict.fromkeys(lost.values()) if names]
    bases = evaluate_points([_without_facts(design, names, facts) for names in different], goal, kept=kept)
    known = {names: base for names, base in zip(different, bases, strict=True) if base is not None and base.metrics}
    return {step: (known[names], names) if names in known else (outcome, frozenset()) for step, names in lost.items()}


def _without_facts(design: Design, names: frozenset[str], facts: frozenset[str]) -> Design:
    """A design of which some facts of its chip's data sheet do not count."""
    if names == facts:
        return replace(design, chip=remove_published_facts(design.chip))
    published = replace(design.chip.published, **dict.fromkeys(names))
    return replace(design, chip=replace(design.chip, published=published))
