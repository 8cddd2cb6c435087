"""Energy and power of a memory and of a network by themselves, and of kernels: what is done, and what runs meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.silicon import area, energy
from dse.evaluators.silicon import supply_voltage as supply
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from tests.samples import asked


def found(question, **changes):
    columns = evaluate(stack_designs([replace_leaves(question.base, changes)]), question.workload).columns
    return {name: float(column[0]) for name, column in columns.items()}


@pytest.mark.parametrize("chip", ["hbm2", "hbm3", "hbm4"])
@pytest.mark.parametrize("pattern", ["sequential", "random"])
def test_a_memory_takes_its_bytes_and_its_idle_power(chip, pattern):
    question = asked(f"chip={chip}", "workload=stream", f"workload.patterns=[{pattern}]", "workload.requests=200")
    metrics = found(question)
    nbytes = metrics["achieved_bandwidth"] * metrics["latency"]
    dram = question.base.chip.dram
    assert metrics["energy"] == pytest.approx(
        nbytes * dram.energy_per_byte + area.memory_device_count(question.base.chip) * dram.idle_power * metrics["latency"]
    )
    assert metrics["peak_power"] == metrics["power"] == pytest.approx(metrics["energy"] / metrics["latency"])


def test_a_memory_that_nobody_buys_has_no_energy():
    assert "energy" not in found(asked("chip=hbm3", "workload=stream", "~chip.dram"))


TRAFFIC = ("chip=mesh8", "workload=traffic", "workload.traffic=[uniform]")


@pytest.mark.sampled
@given(st.floats(0.01, 0.15), st.floats(1.0, 64.0), st.sampled_from(["n16", "n7", "n3"]))
def test_what_packets_take_grows_with_their_rate_and_their_bytes(rate, nbytes, node):
    few, many = (asked(*TRAFFIC, f"technology@chip.technology={node}", f"workload.rates=[{rate}]") for rate in (rate, 2 * rate))
    wide = {"chip.router.flit_bytes": nbytes}
    chip = replace_leaves(few.base, wide).chip
    rest = energy.static_power(chip)
    slow, fast = found(few, **wide)["power"], found(many, **wide)["power"]
    assert fast - rest == pytest.approx(2 * (slow - rest))
    links = found(few)["hops"] - 1
    each = links * nbytes * chip.technology.hop * supply.relative_energy(chip)
    assert slow - rest == pytest.approx(rate * 64 * chip.clock * each)
    wider = replace_leaves(few.base, {"chip.router.flit_bytes": 2 * nbytes}).chip
    assert area.total_area(wider) == pytest.approx(2 * area.total_area(chip))


def test_a_packet_takes_its_share_of_the_power():
    question = asked(*TRAFFIC, "workload.rates=[0.1]", "workload.flits=[5]")
    metrics = found(question)
    packets = metrics["accepted_throughput"] * 64 * question.base.chip.clock / 5
    assert metrics["packet_energy"] == pytest.approx(metrics["power"] / packets)


def test_a_network_with_a_node_says_how_wide_it_is():
    assert "power" not in found(asked(*TRAFFIC, "~chip.technology"))
    with pytest.raises(DesignError, match=r"chip\.router\.flit_bytes: missing"):
        found(asked(*TRAFFIC, "~chip.router.flit_bytes"))
