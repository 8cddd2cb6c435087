"""The supply of a clock solves the law of a node's transistors, for one clock and for many, however fast."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators.silicon import supply_voltage as supply
from tests.samples import asked

CHIP = asked("chip=a100").base.chip


@given(
    st.lists(st.floats(1e-3, 1e4), min_size=1, max_size=20),
    st.floats(0.0, 0.9),
    st.floats(0.05, 1.0),
    st.floats(0.1, 1.0),
    st.floats(0.5, 2.0),
)
def test_the_supply_makes_transistors_as_fast_as_the_clock(faster, threshold, above, least, most):
    volts = threshold + above
    node = replace(CHIP.technology, threshold_voltage=threshold, nominal_voltage=volts, min_voltage=least, max_voltage=most)
    clocks = np.array(faster) * supply.nominal_clock(CHIP)
    many = supply.supply_voltage(replace(CHIP, technology=node, clock=clocks))
    for clock, voltage, times in zip(clocks, many, faster, strict=True):
        supply_voltage = supply.supply_voltage(replace(CHIP, technology=node, clock=float(clock)))
        assert voltage == pytest.approx(supply_voltage, rel=1e-12)
        lowest = max(least, threshold + supply.ABOVE)
        law = [(voltage - threshold) ** supply.EXPONENT / voltage for voltage in (voltage, volts, lowest)]
        assert voltage >= lowest
        assert law[0] == pytest.approx(max(times * law[1], law[2]), rel=1e-9)
