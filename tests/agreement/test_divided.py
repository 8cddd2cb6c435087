"""Products divided over a group: what closed forms say of random ones is near what events do."""

import numpy as np

from dse.studies.fidelity_gap.divided import NEAR, sample_products


def test_nine_of_ten_divided_products_cost_what_events_say() -> None:
    """Of all partitions, placements and routings, on 2 to 16 cores; those where messages move, by themselves."""
    gaps = np.array([abs(comparison.gap) for comparison in sample_products(150, seed=17)])
    assert np.mean(gaps <= NEAR) >= 0.9
    assert np.median(gaps) < 0.01
