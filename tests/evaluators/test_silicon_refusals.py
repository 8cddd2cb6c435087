"""What cannot be priced is refused in one line that says what to write."""

import re

import pytest

from dse.space.errors import DesignError
from tests.samples import asked


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("chip=a100", "~chip.technology"), "chip.technology: missing"),
        (("chip=npu64", "~chip.economics"), "chip.economics: missing"),
        (("chip=a100", "~chip.technology.wafer_price"), "chip.technology.wafer_price: missing"),
        (("chip=a100", "technology@chip.technology=n2"), "no option 'n2'; did you mean 'n12'?"),
        (("chip=a100", "chip.technology.wafer_price=9000 EUR"), "is in EUR; all prices are in USD"),
        (("chip=a100", "chip.economics.electricity_price=0.5 CNY/kWh"), "is in CNY; all prices are in USD"),
        (("chip=a100", "chip.technology.wafer_price=0 USD"), "chip.technology.wafer_price: must be above 0"),
        (("chip=a100", "chip.technology.defect_density=-0.1 1/cm2"), "below the minimum, 0"),
        (("chip=a100", "chip.technology.clustering=0"), "chip.technology.clustering: must be above 0"),
        (("chip=a100", "chip.economics.assembly_yield=-0.5"), "below the minimum, 0"),
        (("chip=a100", "chip.economics.assembly_yield=1.5"), "above the maximum, 1"),
        (("chip=wafer64", "chip.carrier.bond_yield=0"), "chip.carrier.bond_yield: must be above 0"),
        (
            ("chip=npu64", "+chip.carrier.price=1 USD/mm2", "+chip.carrier.bond_yield=1"),
            "chip.carrier: a mesh of tiles does not read it",
        ),
    ],
)
def test_what_cannot_be_priced_is_refused_in_a_line(words, message):
    with pytest.raises(DesignError, match=re.escape(message)) as refused:
        asked(*words)
    assert "\n" not in str(refused.value)
