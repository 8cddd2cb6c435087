import json

import pytest

from evaluators import PHYSICS
from tests.contract.golden import PATH, QUESTIONS, results


def test_results_are_those_of_this_physics_version() -> None:
    """If this fails because the physics got better, raise PHYSICS and write the golden set again."""
    golden = json.loads(PATH.read_text())
    assert golden["physics"] == PHYSICS
    for question, now, then in zip(QUESTIONS, results(), golden["results"], strict=True):
        for name, value in then.items():
            assert now[name] == pytest.approx(value, rel=1e-9), (question, name)
