"""A few steps of the random walk over the union of all knobs; `python -m tests.walk` takes 10,000."""

from tests.walk import walked


def test_samples_of_all_knobs_are_refused_infeasible_or_have_every_metric() -> None:
    walk = walked(150, seed=7)
    assert not walk.faults
    assert walk.answers["feasible"] > 30
    assert walk.answers["infeasible"] > 15
