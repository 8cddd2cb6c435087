"""How far areas and powers of chips that exist come out, and that the nodes' files have what was fitted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.silicon import area
from dse.studies.silicon import fit
from dse.studies.silicon.finding import slowed_share

NODES = sorted(path.stem for path in fit.NODES.glob("n*.yaml"))


def test_a_die_that_is_left_out_is_off_by_12_per_cent_at_the_median_and_30_at_worst() -> None:
    _, dies = fit.areas()
    off = np.abs([die.left_out for die in dies])
    assert len({die.name for die in dies}) == len(dies) >= 8
    assert np.median(off) <= 0.12
    assert off.max() <= 0.30


def test_powers_are_within_30_per_cent_of_rated_ones() -> None:
    constants, _ = fit.areas()
    _, powers = fit.energies(constants)
    assert max(abs(power.fitted) for power in powers) <= 0.30
    assert sum(abs(power.left_out) <= 0.30 for power in powers) >= len(powers) - 1  # all but an H100


def test_files_of_nodes_have_what_was_fitted() -> None:
    constants, _ = fit.areas()
    mac, _ = fit.energies(constants)
    for node in NODES:
        tech = fit.chip_of(f"chip=a100 technology@chip.technology={node}").technology
        for name, value in (constants | {fit.ENERGY: mac}).items():
            assert getattr(tech, name) == pytest.approx(value * fit.factor(tech, fit.LIKE[name]), rel=2e-3), (node, name)


@settings(max_examples=25)
@given(st.sampled_from(["a100", "h100", "b200", "mi300x", "ascend910b", "dojo", "wse3", "groq"]), st.data())
def test_the_area_of_a_die_is_linear_in_what_is_fitted(name: str, data: st.DataObject) -> None:
    chip = fit.chip_of(f"chip={name}")
    values = {known: prior.value * data.draw(st.floats(0.1, 10.0)) for known, prior in fit.AREAS.items()}
    bare, per = fit.of_die(chip)
    assert area.die_area(fit.with_constants(chip, values)) == pytest.approx(bare + per @ list(values.values()))


def test_the_fit_finds_constants_that_made_the_areas() -> None:
    """With dies that are what some constants make of them, and hardly a pull, these come back."""
    true = np.array([prior.value for prior in fit.AREAS.values()]) * np.array([1.3, 0.8, 1.5, 0.7, 1.2])
    made = [(bare + per @ true, bare, per) for bare, per in (fit.of_die(row.chip) for row in fit.rows("die_mm2"))]
    pulled = fit.fit_areas(made)
    assert np.all(np.abs(pulled / true - 1) < 0.5)  # drawn to priors
    fit_free = [(area_, bare, per) for area_, bare, per in made for _ in range(4000)]
    assert fit.fit_areas(fit_free) == pytest.approx(true, rel=0.02)


def test_a_chip_above_its_rated_power_is_slowed_until_it_takes_that() -> None:
    chip = fit.chip_of("chip=rtx4090")
    assert slowed_share(chip) == 1.0 or 0.5 < slowed_share(chip) < 1.0
    less = fit.replace_leaves(chip, {"power": chip.power / 2})
    assert slowed_share(less) < slowed_share(chip)
