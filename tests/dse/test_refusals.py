"""What is refused is named by its address, with what would do: each refusal's advice is followed here, and then it runs."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from dse.build import Question
from dse.evaluators import FIDELITIES, evaluate, fidelities
from dse.space.chip import Cache
from dse.space.design import Design, stacked
from dse.space.errors import DesignError
from dse.space.fields import replaced
from dse.space.kinds import CASES, KINDS, PLURALS
from tests.samples import asked


def cached() -> tuple[Question, Design]:
    here = asked("chip=tile_gh200", "mapping=flat_prefetch")
    chip = replace(here.base.chip, l2=Cache(size=1e8, bandwidth=1e13))
    return replace(here, base=replaced(here.base, {"chip": chip, **UNREAD})), replaced(here.base, UNREAD)


def ahead() -> tuple[Question, Design]:
    here = asked("chip=tile_gh200", "mapping=flat_prefetch")
    return here, replaced(here.base, UNREAD)


def edged() -> tuple[Question, Design]:
    here = asked("chip=wse2_hbm")
    return here, replaced(here.base, {"chip.hbm": None})


UNREAD = {"mapping.prefill.prefetch": None, "mapping.decode.prefetch": None}
IN_THE_WAY: dict[str, Callable[[], tuple[Question, Design]]] = {
    "chip.l2": cached,
    "mapping.prefill.prefetch.policy=partial and mapping.decode.prefetch.policy=partial": ahead,
    "chip.hbm": edged,
}
"""Designs with what only the closed form prices, by its address, and the same without it."""


@pytest.mark.parametrize("address", IN_THE_WAY)
def test_what_keeps_a_reader_from_a_design_is_named_and_without_it_the_reader_plays(address: str) -> None:
    here, without = IN_THE_WAY[address]()
    for fidelity in {*fidelities(without, here.workload)} - {*fidelities(here.base, here.workload)}:
        with pytest.raises(DesignError, match=rf"fidelity: {fidelity} .*because of {re.escape(address)}.*; valid: closed$"):
            evaluate(stacked([here.base]), here.workload, fidelity=fidelity)
    assert "events" in fidelities(without, here.workload)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("chip=tile32", "workload=serving"), "ask for batches, workload=static"),
        (("chip=a100",), "this chip is a die with a cache"),
        (("chip=mesh8", "workload=traffic"), "does not play traffic patterns"),
        (("chip=hbm3", "workload=stream"), "this chip is a memory by itself"),
    ],
    ids=lambda words: words[0],
)
def test_a_reader_that_a_design_has_not_is_refused_with_those_that_it_has(words: tuple[str, ...], said: str) -> None:
    here = asked(*words)
    known = fidelities(here.base, here.workload)
    for fidelity in set(FIDELITIES) - set(known):
        with pytest.raises(DesignError, match=f"fidelity: {fidelity} .*; valid: {', '.join(known)}$") as refused:
            evaluate(stacked([here.base]), here.workload, fidelity=fidelity)
        assert said in str(refused.value) or fidelity == "steady"


def test_every_kind_of_case_has_a_name_for_people() -> None:
    assert {*PLURALS} == {*CASES.values()} | {case for _, case in KINDS}
