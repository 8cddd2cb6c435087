"""The golden set of what is played, whole and on parts of meshes: by messages and resources, flit by flit."""

import pytest

from tests.contract.golden.questions import QUESTIONS, Slow, fidelity
from tests.contract.test_golden import check
from tests.marks import slow_if

PLAYED = [
    (name, question) for name, questions in QUESTIONS.items() for question in questions if fidelity(question) != "analytical"
]


@slow_if(lambda question: isinstance(question, Slow))
@pytest.mark.parametrize(("name", "question"), PLAYED, ids=[question.replace(" ", "-") for _, question in PLAYED])
def test_what_is_played_is_as_in_this_physics_version(name: str, question: str) -> None:
    """If this fails because the physics got better, raise PHYSICS and write the golden set again."""
    check(name, question)
