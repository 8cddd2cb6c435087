"""Kernels of every kind on random machines: a few draws of the survey, which says how far readers are from one another."""

import pytest

from tests.agreement.survey import surveyed

MOST = {"team": 1e-6, "exchange": 0.15, "between dies": 0.06, "wafer vector": 0.08, "tile product": 0.1}
"""How far closed forms of kinds are from events at most; direct exchanges that lock their ways are the farthest."""


@pytest.mark.parametrize("kind", MOST)
def test_closed_forms_of_any_kernel_are_near_its_program_played(kind: str) -> None:
    assert all(abs(sample.gap) < MOST[kind] for sample in surveyed([kind], 5, 0, ("analytical", "events")))


@pytest.mark.parametrize(("kind", "most"), [("memory product", 0.16), ("memory vector", 0.12), ("attention", 0.17)])
def test_closed_forms_over_several_dies_are_near_their_programs_played(kind: str, most: float) -> None:
    assert all(abs(sample.gap) < most for sample in surveyed([kind], 4, 0, ("analytical", "events"), dies=True))


@pytest.mark.parametrize("kind", ["memory product", "team"])
def test_events_over_several_dies_are_near_what_routers_say(kind: str) -> None:
    assert all(abs(sample.gap) < 0.12 for sample in surveyed([kind], 4, 0, ("events", "cycles"), dies=True))


def test_one_token_products_take_what_routers_say() -> None:
    """Of tiles that alone load a block, too, which ask for the next one when it has come."""
    gaps = [abs(sample.gap) for sample in surveyed(["memory vector"], 4, 0, ("events", "cycles"))]
    assert max(gaps) < 0.12
