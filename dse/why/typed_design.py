"""A design that overrides name over what a study starts from, and where it stands there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from dse.config.build import question
from dse.config.compose import compose, folder_of
from dse.config.effects import NoEffect, without_effect
from dse.config.said import refuse_named
from dse.config.spelling import said
from dse.config.ties import tied_over
from dse.running.study import Study, workload_key
from dse.space.chips import CHIP
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.fields import leaves
from dse.space.knobs import Space
from dse.why.stored_design import Stored
from dse.why.why import SECONDS
from dse.why.whynot import WhyNot, why_not

OF_STUDIES = ("objectives", "constraints", "metrics", "space", "search", "screen", "verify", "report")
"""What a study says and no design does."""


@dataclass(frozen=True)
class Typed:
    """A design that somebody named by overrides.

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
        """What was typed."""
        return " ".join(self.words) or "the design as it is configured"


def typed_design(asked: Study, typed: Sequence[str], command: str, *, trust: bool = False) -> Typed:
    """The design that overrides name over a study's own configuration, with the study's knobs.

    Raises:
        DesignError: it is asked something else than the study asks, or the chip of several is not said.
    """
    for word in typed:
        if (root := word.lstrip("+~").partition("=")[0].partition(".")[0]) in OF_STUDIES:
            raise DesignError(
                f"{command}: {word}: {root} {'are' if root[-1] == 's' else 'is'} the study's, not a design's; to ask so, "
                f"dse run study={asked.name} name=NEW {word}"
            )
    several = [str(chosen[CHIP]) for chosen, _ in asked.question.space.each if chosen]
    if len(several) > 1 and not any(word.startswith("chips=") for word in typed):
        raise DesignError(f"{command}: one design of {', '.join(several)}: say whose, as in 'chips=[{several[0]}]'")
    config = compose([*asked.overrides, *typed], trust=trust)
    chips = list(config.get("chips") or ())
    if len(chips) > 1:
        raise DesignError(f"{command}: one design of {', '.join(chips)}: say whose, as in 'chips=[{chips[0]}]'")
    own = question(config, folder_of(config), fewer=True)
    if workload_key(own.workload) != workload_key(asked.question.workload):
        raise DesignError(
            f"{command}: the workload or the model is not the study's, so that nothing compares; leave them as they are"
        )
    refuse_named(own.base, own.workload, typed, asked.overrides)
    if config["fidelity"] != asked.fidelity:
        raise DesignError(f"{command}: study {asked.name} is of fidelity={asked.fidelity}; leave fidelity as it is")
    chip = chips[0] if chips else ""
    spaces = {str(chosen.get(CHIP, "")): space for chosen, space in asked.question.space.each}
    if chip not in spaces:
        raise DesignError(f"{command}: study {asked.name} has no chip {chip!r}; it has {', '.join(spaces)}")
    there = spaces[chip]
    if not chip and config["choices"].get("chip") != asked.config["choices"].get("chip"):
        there = replace(there, tied=())  # a chip of its own has all its leaves from its file
    try:
        space = following(own.base, there, config["overrides"])
    except DesignError as error:
        raise DesignError(f"{command}: a design of another kind has not the study's knobs: {error}") from None
    idle = without_effect("explain", own, {**config, "overrides": list(typed)}, folder_of(config), space.base)
    return Typed(space, chip, tuple(typed), idle)


def following(base: Design, of: Space, words: Sequence[str]) -> Space:
    """The space over a design that overrides name: what is tied in a study follows there, but for leaves that they set.

    Args:
        base: as they name it.
        of: the knobs and ties of the study.
        words: the overrides.

    Raises:
        DesignError: a leaf cannot have the value that it would follow to, or a knob is not of this design.
    """
    addresses = [*of.follows, *(one.address for one in of.tied), *(address for address, _, _ in leaves(base))]
    return tied_over(base, of.knobs, of.tied, said(words, addresses) if of.tied else ())


def not_in(asked: Study, frame: pd.DataFrame, typed: Sequence[str], *, trust: bool = False, seconds: float = SECONDS) -> WhyNot:
    """Where a design that overrides name stands among those of a study.

    Args:
        asked: the study.
        frame: of its designs, as `dse.running.frame.with_front` has it.
        typed: overrides, over what the study starts from.
        trust: whether files that are not ours may run code.
        seconds: what the steps of the way to a better design may take.

    Raises:
        DesignError: it is asked something else than the study asks.
    """
    own = typed_design(asked, typed, "whynot", trust=trust)
    found = why_not(asked, frame, own.space, own.chip, own.name, seconds=seconds)
    return replace(found, without_effect=own.without_effect)


def of_study_not_in(asked: Study, frame: pd.DataFrame, design: Stored, *, seconds: float = SECONDS) -> WhyNot:
    """Where a design of a study stands among the others.

    Args:
        asked: the study.
        frame: of its designs, as `dse.running.frame.with_front` has it.
        design: which.
        seconds: what the steps of the way to a better design may take.
    """
    chip = str(design.values.get(CHIP, ""))
    there = next(space for chosen, space in asked.question.space.each if str(chosen.get(CHIP, "")) == chip)
    space = following(asked.question.space.at(design.values), there, ())
    return why_not(asked, frame, space, chip, design.id, seconds=seconds)
