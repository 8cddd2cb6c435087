"""What many dies are joined on costs money, and more of it the more dies have to hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators.silicon import area, price
from dse.space.fields import replace_leaves
from tests.samples import asked

BASE = asked("chip=wafer64").base
LOST = "lost in joining"


@given(st.integers(1, 12), st.integers(1, 12), st.floats(0.97, 1.0))
def test_what_is_lost_is_what_is_bought_beyond_what_holds(rows, cols, bond):
    chip = replace_leaves(BASE, {"chip.dies.rows": rows, "chip.dies.cols": cols, "chip.carrier.bond_yield": bond}).chip
    parts = price.price_by_part(chip)
    joined = sum(parts[name] for name in ("dies", "memory", "package", "carrier"))
    assert joined + parts[LOST] == pytest.approx(joined / bond ** (rows * cols))
    assert sum(parts.values()) == pytest.approx(price.system_price(chip))


def test_a_carrier_has_the_area_of_dies_and_of_memory_on_it():
    parts, chip = price.price_by_part(BASE.chip), BASE.chip
    beside = area.memory_device_count(chip) * chip.dram.edge_length**2
    assert parts["carrier"] == pytest.approx(chip.carrier.price * (area.total_area(chip) + beside))


def test_without_a_carrier_nothing_is_lost_on_it():
    parts = price.price_by_part(asked("chip=wafer64", "~chip.carrier").base.chip)
    assert {"carrier", LOST}.isdisjoint(parts)


def test_shares_that_hold_are_priced_together_as_one_by_one():
    bonds = np.array([0.97, 0.99, 1.0])
    together = price.system_price(replace_leaves(BASE, {"chip.carrier.bond_yield": bonds}).chip)
    alone = [price.system_price(replace_leaves(BASE, {"chip.carrier.bond_yield": float(bond)}).chip) for bond in bonds]
    assert together == pytest.approx(alone)
    assert np.all(np.diff(together) < 0)


@pytest.mark.parametrize("chip", ["a100", "wse2", "wafer64", "h800_ep"])
def test_the_plug_gives_what_a_chip_and_its_server_take_and_what_supplies_lose(chip):
    given_chip = asked(f"chip={chip}").base.chip
    more = replace_leaves(given_chip, {"economics.host_power": given_chip.economics.host_power + 90.0})
    assert price.wall_power(more) - price.wall_power(given_chip) == pytest.approx(
        90.0 / given_chip.economics.power_supply_efficiency
    )
