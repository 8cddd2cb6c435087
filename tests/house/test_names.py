"""New names and docstrings keep the naming rules; what broke them before is listed, and the list only gets shorter."""

import pytest

from tests.house.names import Breach, breaches, exceptions, one_word_share, verb_first_share

RULES = {
    "function-word": "a public name is a noun, or begins with a verb: no bare participle, pronoun, preposition or adverb",
    "local-word": "a parameter or local is called by what it is: no function word",
    "shared-class": "a class has a name that no class of another module has",
    "first-line": "the first line of a docstring has 25 to 100 characters and is understood without the code",
    "old-word": "a message has no word that docs/glossary.md replaces; OLD_WORDS lists what to write instead",
}


@pytest.fixture(scope="module")
def standing() -> set[Breach]:
    return {*breaches()}


@pytest.mark.parametrize("rule", RULES)
def test_no_new_name_breaks_a_rule(rule: str, standing: set[Breach]) -> None:
    new = sorted(standing - {*exceptions()})
    assert not [breach[1:] for breach in new if breach[0] == rule], RULES[rule]


def test_exceptions_that_are_mended_are_removed(standing: set[Breach]) -> None:
    mended = sorted({*exceptions()} - standing)
    assert not mended, "python -m tests.house.names removes them"


def test_exceptions_are_sorted_and_of_known_rules() -> None:
    assert exceptions() == sorted(set(exceptions()))
    assert {rule for rule, *_ in exceptions()} <= RULES.keys()


def test_most_private_functions_and_methods_have_two_words_or_more() -> None:
    assert one_word_share() < 0.55


def test_functions_that_act_begin_with_a_verb() -> None:
    assert verb_first_share() > 0.40
