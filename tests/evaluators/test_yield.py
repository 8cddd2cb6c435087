"""Dies of a wafer and how many of them work, against worked examples of the sources and by other ways to the same number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators.silicon import area, price
from dse.space.fields import replace_leaves
from dse.studies.silicon.fit import chip_of

GH100, DEFECTS = 814.0, 0.11
MANY = 1e9
"""Clustering of defects that do not cluster."""


@pytest.mark.parametrize(("clustering", "share"), [(MANY, 0.408), (10.0, 0.424), (3.0, 0.457), (2.0, 0.477)])
def test_yield_of_a_large_die_is_that_of_the_worked_example(clustering: float, share: float) -> None:
    assert price.negative_binomial_yield(GH100, DEFECTS, clustering) == pytest.approx(share, abs=5e-4)


@pytest.mark.parametrize(("mm2", "dies"), [(814.0, 63.5), (645.0, 83.3), (115.0, 552.0)])
def test_dies_of_a_wafer_are_those_of_the_worked_example(mm2: float, dies: float) -> None:
    assert price.dies_of_wafer(mm2) == pytest.approx(dies, rel=1e-3)


def test_a_die_that_may_lose_cores_is_lost_by_what_is_around_them() -> None:
    """A GA100 that needs 108 of 128 cores works where no defect hits the other 350 mm2: 0.73 at 0.09 defects a cm2."""
    assert price.spare_core_yield(476.0, 0.09, 20.0) == pytest.approx(1.0, abs=1e-9)
    assert price.negative_binomial_yield(350.0, 0.09, MANY) * price.spare_core_yield(476.0, 0.09, 20.0) == pytest.approx(
        0.73, abs=5e-3
    )
    chip = replace_leaves(chip_of("chip=a100"), {"technology.clustering": MANY})
    die_area = area.die_area(chip)
    assert np.exp(-0.09 * die_area / 100) < price.die_yield(replace_leaves(chip, {"die.built_cores": 0})) + 1e-9
    assert 0.73 < price.die_yield(chip) < 0.85  # less of a die is around its cores here


@given(st.floats(1.0, 5000.0), st.floats(0.001, 1.0), st.integers(0, 60))
def test_spared_cores_are_counted_by_poisson(mm2: float, defects: float, spare: int) -> None:
    from scipy.stats import poisson

    mean = mm2 / 100 * defects
    exact = poisson.cdf(spare, mean)
    assert price.spare_core_yield(mm2, defects, float(spare)) == pytest.approx(exact, abs=1e-5)
    both = np.broadcast_to(price.spare_core_yield(mm2, defects, np.array([float(spare), 0.0])), 2)
    assert both == pytest.approx([exact, np.exp(-mean)], abs=1e-5)


@given(st.floats(1.0, 50000.0), st.floats(1.01, 3.0), st.floats(0.01, 1.0), st.floats(0.5, 20.0))
def test_larger_dies_are_fewer_and_work_less_often(mm2: float, more: float, defects: float, clustering: float) -> None:
    assert price.negative_binomial_yield(mm2 * more, defects, clustering) < price.negative_binomial_yield(
        mm2, defects, clustering
    )
    assert price.negative_binomial_yield(mm2, defects, clustering) >= np.exp(-mm2 / 100 * defects)  # clusters hit fewer dies
    assert price.dies_of_wafer(mm2 * more) <= price.dies_of_wafer(mm2)
