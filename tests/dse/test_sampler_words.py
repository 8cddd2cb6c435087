"""Words of a search that do not go together are refused in a line."""

import sys

import pytest

from dse.commands.notebook_api import find_study
from dse.search.botorch_search import MISSING
from dse.search.optuna_samplers import make_sampler
from dse.space.errors import DesignError


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("search=tpe", "search.sampler=nsga2"),
            "search: two samplers, search=tpe and search.sampler=nsga2; remove one of them",
        ),
        (("search.sampler=tpee",), "search.sampler: no option 'tpee'; did you mean 'tpe'?"),
        (("search=botorch", "search.promote=analytical"), "search.promote: "),
    ],
)
def test_two_samplers_words_at_once_are_refused(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(DesignError) as refusal:
        find_study("quickstart", *words)
    assert str(refusal.value).startswith(says)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "words",
    [("search=nsga2", "search.population=30"), ("search=auto", "search.sampler=tpe"), ("search=tpe", "search.sampler=tpe")],
)
def test_words_that_go_together_are_taken(words: tuple[str, ...]) -> None:
    assert find_study("quickstart", *words).search.sampler in ("nsga2", "tpe")


def test_botorch_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna_integration", None)
    space = find_study("quickstart").question.space
    with pytest.raises(DesignError) as refusal:
        make_sampler("botorch", space, ["max", "min"], seed=0, population=8)
    assert str(refusal.value) == MISSING
    assert "pip install 'mesh-dse[botorch]'" in MISSING
