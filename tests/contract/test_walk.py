"""A few steps of the random walk over the union of all knobs; `python -m tests.walk` takes 10,000."""

from tests.walk import walked


def test_samples_of_all_knobs_are_refused_infeasible_or_have_every_metric() -> None:
    found = walked(150, seed=7)
    assert not found.faults
    assert found.answers["feasible"] > 30
    assert found.answers["infeasible"] > 15
