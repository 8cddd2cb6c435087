"""The golden set in closed form: results are those of this physics version, whatever was rearranged."""

from functools import cache
from typing import Any

import pytest

from dse.config.question import Question
from dse.evaluators import PHYSICS_VERSION, evaluate
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import leaf_at, replace_leaves
from dse.space.software import software_of
from tests.contract.draws import words
from tests.contract.golden import answers, differences, read
from tests.contract.golden.questions import QUESTIONS, Slow, cell, cells, fidelity, judge, overrides
from tests.marks import slow_if
from tests.samples import asked

CLOSED = [
    (name, question) for name, questions in QUESTIONS.items() for question in questions if fidelity(question) == "analytical"
]


@cache
def answered(name: str, question: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is answered now, of the designs of the golden set."""
    return answers(question, read(name)["designs"][question])


def check(name: str, question: str) -> None:
    """That a question is answered as before, as far as metrics are recorded, and its own design alone as in the stack."""
    golden, (result, work) = read(name), answered(name, question)
    alone, then = result.pop("alone"), golden["results"][question]
    for section in ("stack", "cases"):  # metrics that have come since are in no golden answer
        result[section] = {name: column for name, column in result[section].items() if name in then[section]}
    lines = differences(then, result, "results")
    lines += differences(golden["work"][question], work, "work")
    first = {metric: column[:1] for metric, column in result["stack"].items()}
    lines += differences(first, {metric: alone.get(metric, [None]) for metric in first}, "alone")
    assert not lines, "\n".join([question, *lines])


@slow_if(lambda question: isinstance(question, Slow))
@pytest.mark.parametrize(("name", "question"), CLOSED, ids=[question.replace(" ", "-") for _, question in CLOSED])
def test_closed_forms_are_those_of_this_physics_version(name: str, question: str) -> None:
    """If this fails because the physics got better, raise PHYSICS and write the golden set again."""
    check(name, question)


def test_golden_answers_are_of_this_physics_version_and_of_these_questions() -> None:
    for name, questions in QUESTIONS.items():
        golden = read(name)
        assert golden["physics"] == PHYSICS_VERSION
        assert [list(golden[section]) for section in ("designs", "results", "work")] == [list(questions)] * 3


def test_every_cell_of_the_registries_has_a_question() -> None:
    asked_ = set()
    for name, questions in QUESTIONS.items():
        for question in questions:
            given_question = asked(*overrides(question))
            assert judge(given_question.base, given_question.workload.cases[0]) == (
                {"models": "batch_inference"}.get(name, name) if name in ("models", "serving") else "kernels"
            )
            asked_.add(cell(given_question.base, given_question.workload.cases[0], fidelity(question)))
    assert asked_ == cells()


def test_every_option_of_each_word_of_a_mapping_is_in_a_stack_in_closed_form_or_is_refused() -> None:
    left: dict[tuple[str, str], set[str]] = {}
    questions: dict[tuple[str, str], Question] = {}
    for name, question in CLOSED:
        given_question = asked(*overrides(question))
        for address, options in words(given_question.base).items():
            questions[software_of(given_question.base.mapping), address] = given_question
            left.setdefault((software_of(given_question.base.mapping), address), set(options))
        for changes in read(name)["designs"][question]:
            for address, option in said(replace_leaves(given_question.base, changes)).items():
                left[software_of(given_question.base.mapping), address].discard(option)
    for (kind, address), missing in left.items():
        given_question = questions[kind, address]
        formats = {other: options for other, options in words(given_question.base).items() if ".precision." in other}
        for option in missing:
            alike = [other for other, options in formats.items() if address in formats and option in options]
            refused = replace_leaves(given_question.base, dict.fromkeys([*alike, address], option))
            with pytest.raises(DesignError):
                evaluate(stack_designs([refused]), given_question.workload).require_compatible()


def said(design: Design) -> dict[str, Any]:
    """The words of a mapping, by address."""

    return {address: leaf_at(design, address) for address in words(design)}


def test_differences_name_the_place_and_both_values() -> None:
    then = {"stack": {"latency": [1.0, None, 3.0]}, "bound": "hbm", "rows": [[1.0], [2.0]]}
    now = {"stack": {"latency": [1.0 + 1e-12, 2.0, 3.0]}, "bound": "l2", "rows": [[1.0]]}
    assert not differences(then, then)
    assert differences(then, now, "q") == [
        "q stack latency[1]: was None, is 2.0",
        "q bound: was 'hbm', is 'l2'",
        "q rows: was [[1.0], [2.0]], is [[1.0]]",
    ]
    assert differences([1.0], [1.0 + 1e-8]) == ["[0]: was 1.0, is 1.00000001"]
    assert differences({"energy": 1.0}, {}) == [" energy: was 1.0, is 'nothing'"]
