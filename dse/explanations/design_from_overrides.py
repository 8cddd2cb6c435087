"""A design named by overrides over a study's configuration, and its position in the study."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from dse.config.compose import compose, find_study_folder
from dse.config.question import build_question
from dse.config.renamed_addresses import overridden_leaves
from dse.config.setting_effects import NoEffect, find_settings_without_effect
from dse.config.tied_leaves import build_space_with_ties
from dse.config.unread_settings import refuse_unread_overrides
from dse.execution.study import Study, workload_key
from dse.explanations.dominance import PATH_BUDGET_S, DominanceReport, explain_dominance, show_no_dominance
from dse.explanations.explanation import Watch, outcome_of_row, study_goal, watch_nothing
from dse.explanations.stored_design import StoredStudyDesign
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.fields import iterate_leaves
from dse.space.knobs import Space
from dse.space.multi_chip_space import CHIP_KNOB

OF_STUDIES = ("objectives", "constraints", "metrics", "space", "search", "screen", "verify", "report")
"""What a study says and no design does."""


@dataclass(frozen=True)
class OverriddenDesign:
    """One design that the user names by overrides.

    Attributes:
        space: its knobs, with the design as base.
        chip: which of a study's chips it is of; "" of a study of one.
        words: the overrides.
        without_effect: those of them that have none.
    """

    space: Space
    chip: str
    words: tuple[str, ...]
    without_effect: tuple[NoEffect, ...] = ()

    @property
    def name(self) -> str:
        """The overrides as text, or a phrase for the configured design if there are none."""
        return " ".join(self.words) or "the design as it is configured"


def build_design_from_overrides(study: Study, typed: Sequence[str], command: str, *, trust: bool = False) -> OverriddenDesign:
    """Design that overrides name over a study's own configuration, with the study's knobs.

    Raises:
        DesignError: its workload differs from the study's, or its chip is not chosen among several.
    """
    for word in typed:
        if (root := word.lstrip("+~").partition("=")[0].partition(".")[0]) in OF_STUDIES:
            raise DesignError(
                f"{command}: {word}: {root} {'are' if root[-1] == 's' else 'is'} set by the study, not by a design; "
                f"to change it, "
                f"use dse run study={study.name} name=NEW {word}"
            )
    several = [str(chosen[CHIP_KNOB]) for chosen, _ in study.question.space.base_spaces if chosen]
    if len(several) > 1 and not any(word.startswith("chips=") for word in typed):
        raise DesignError(f"{command}: one design of {', '.join(several)}: choose its chip, as in 'chips=[{several[0]}]'")
    config = compose([*study.overrides, *typed], trust=trust)
    chips = list(config.get("chips") or ())
    if len(chips) > 1:
        raise DesignError(f"{command}: one design of {', '.join(chips)}: choose its chip, as in 'chips=[{chips[0]}]'")
    own = build_question(config, find_study_folder(config), fewer=True)
    if workload_key(own.workload) != workload_key(study.question.workload):
        raise DesignError(
            f"{command}: the workload or the model differs from the study's, so designs cannot be compared; remove "
            f"these overrides"
        )
    refuse_unread_overrides(own.base, own.workload, typed, study.overrides)
    if config["fidelity"] != study.fidelity:
        raise DesignError(f"{command}: study {study.name} has fidelity={study.fidelity}; remove the override of fidelity")
    chip = chips[0] if chips else ""
    spaces = {str(chosen.get(CHIP_KNOB, "")): space for chosen, space in study.question.space.base_spaces}
    if chip not in spaces:
        raise DesignError(f"{command}: study {study.name} has no chip {chip!r}; it has {', '.join(spaces)}")
    other_space = spaces[chip]
    if not chip and config["choices"].get("chip") != study.config["choices"].get("chip"):
        other_space = replace(other_space, tied=())  # a chip of its own has all its leaves from its file
    try:
        space = space_with_tied_leaves(own.base, other_space, config["overrides"])
    except DesignError as error:
        raise DesignError(f"{command}: a design of another kind lacks the study's knobs: {error}") from None
    idle = find_settings_without_effect(
        "explain", own, {**config, "overrides": list(typed)}, find_study_folder(config), space.base
    )
    return OverriddenDesign(space, chip, tuple(typed), idle)


def space_with_tied_leaves(base: Design, space: Space, words: Sequence[str]) -> Space:
    """Space over a design named by overrides, with the study's ties except overridden settings.

    Args:
        base: as they name it.
        space: the knobs and ties of the study.
        words: the overrides.

    Raises:
        DesignError: a leaf cannot have the value that it would follow to, or a knob is not of this design.
    """
    addresses = [*space.follows, *(leaf.address for leaf in space.tied), *(address for address, _, _ in iterate_leaves(base))]
    return build_space_with_ties(base, space.knobs, space.tied, overridden_leaves(words, addresses) if space.tied else ())


def explain_dominance_of(
    study: Study,
    frame: pd.DataFrame,
    typed: Sequence[str],
    *,
    trust: bool = False,
    seconds: float = PATH_BUDGET_S,
    show: Callable[[DominanceReport], None] = show_no_dominance,
    watch: Watch = watch_nothing,
) -> DominanceReport:
    """Position of a design that overrides name among those of a study.

    Args:
        study: the study.
        frame: of its designs, as `dse.execution.result_frame.combine_with_front` has it.
        typed: overrides, over what the study starts from.
        trust: whether files that are not ours may run code.
        seconds: what the steps of the way to a better design may take.
        show: takes the report without the way, as soon as it is known.
        watch: shows progress.

    Raises:
        DesignError: its workload differs from the study's.
    """
    own = build_design_from_overrides(study, typed, "whynot", trust=trust)
    dominance = explain_dominance(
        study,
        frame,
        own.space,
        own.chip,
        own.name,
        seconds=seconds,
        show=lambda report: show(replace(report, without_effect=own.without_effect)),
        watch=watch,
    )
    return replace(dominance, without_effect=own.without_effect)


def place_study_design(
    study: Study,
    frame: pd.DataFrame,
    design: StoredStudyDesign,
    *,
    seconds: float = PATH_BUDGET_S,
    show: Callable[[DominanceReport], None] = show_no_dominance,
    watch: Watch = watch_nothing,
) -> DominanceReport:
    """Position of a study's design among the others.

    Args:
        study: the study.
        frame: of its designs, as `dse.execution.result_frame.combine_with_front` has it.
        design: which.
        seconds: what the steps of the way to a better design may take.
        show: takes the report without the way, as soon as it is known.
        watch: shows progress.
    """
    chip = str(design.values.get(CHIP_KNOB, ""))
    other_space = next(space for chosen, space in study.question.space.base_spaces if str(chosen.get(CHIP_KNOB, "")) == chip)
    space = space_with_tied_leaves(study.question.space.design_at(design.values), other_space, ())
    known = outcome_of_row(study_goal(study), frame, design.id)
    return explain_dominance(study, frame, space, chip, design.id, outcome=known, seconds=seconds, show=show, watch=watch)
