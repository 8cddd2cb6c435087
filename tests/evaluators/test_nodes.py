"""Dies in nodes: what crosses them pays for it, more of anything never hurts, and energy is power x time x dies."""

from dataclasses import replace as with_fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.validate import compare, measured
from evaluators import evaluate, explain
from space.design import Design, stacked
from space.fields import at, replaced
from space.workload import Product, Workload
from tests.samples import asked

CHIP = ("chip=a100", "workload.batch=[1]", "workload.prompt=512", "workload.output=8")
BETTER = (
    "chip.core.achieved",
    "chip.hbm.achieved",
    "chip.network.achieved",
    "chip.network.bandwidth",
    "chip.network.nodes.bandwidth",
)
WORSE = ("chip.network.latency", "chip.network.nodes.latency", "chip.network.call", "chip.operator_overhead")
counts = st.sampled_from([1, 2, 7, 8, 9, 12, 16, 32])


def gpus(count: int, **changes: object) -> Design:
    both = {f"mapping.{phase}.tp": count for phase in ("prefill", "decode")}
    return replaced(asked(*CHIP).base, both | changes)


def seconds(*designs: Design, metric: str = "latency") -> list[float]:
    column: list[float] = evaluate(stacked(designs), asked(*CHIP).workload).columns[metric].tolist()
    return column


def alone(design: Design) -> Design:
    """The design with all of its dies in one node, which has no network of its own."""
    return replaced(design, {"chip.network": with_fields(design.chip.network, nodes=None)})  # type: ignore[union-attr]


@given(st.integers(1, 8))
def test_one_node_is_one_level(count: int) -> None:
    assert seconds(gpus(count)) == seconds(alone(gpus(count)))


@pytest.mark.parametrize("count", [9, 16, 32])
def test_dies_beyond_a_node_pay_for_crossing_it(count: int) -> None:
    crossing, inside = seconds(gpus(count), alone(gpus(count)), metric="decode_rate")
    assert crossing < inside


def test_a_node_that_holds_them_all_is_not_crossed() -> None:
    assert seconds(gpus(16, **{"chip.network.nodes.size": 16})) == seconds(alone(gpus(16)))


@given(counts, st.sampled_from(BETTER), st.floats(0.05, 1.0))
def test_more_of_a_resource_never_hurts(count: int, address: str, share: float) -> None:
    least, most = (gpus(count, **{address: value * _at(address)}) for value in (share / 2, share))
    assert seconds(most)[0] <= seconds(least)[0]


@given(counts, st.sampled_from(WORSE), st.floats(1.0, 10.0))
def test_later_starts_never_help(count: int, address: str, times: float) -> None:
    assert seconds(gpus(count))[0] <= seconds(gpus(count, **{address: times * _at(address)}))[0]


@given(st.lists(st.tuples(counts, st.sampled_from([1, 4, 8])), min_size=2, max_size=6))
@settings(deadline=None)
def test_a_batch_is_its_singles(sizes: list[tuple[int, int]]) -> None:
    designs = [gpus(count, **{"chip.network.nodes.size": size}) for count, size in sizes]
    assert seconds(*designs) == pytest.approx([seconds(design)[0] for design in designs], rel=1e-12)


@given(counts)
def test_the_breakdown_sums_to_the_total(count: int) -> None:
    assert explain(gpus(count), asked(*CHIP).workload.cases[0]).seconds == pytest.approx(seconds(gpus(count))[0], rel=1e-9)


@given(counts)
def test_energy_is_power_times_time_times_dies(count: int) -> None:
    (energy,), (latency,) = (seconds(gpus(count), metric=name) for name in ("energy", "latency"))
    assert energy == pytest.approx(400 * count * latency)


def test_ports_join_the_dies_of_a_node_only() -> None:
    outcomes = evaluate(
        stacked([gpus(16, **{"mapping.prefill.allreduce": "full_mesh", "chip.network.ports": ports}) for ports in (6, 7)]),
        asked(*CHIP).workload,
    )
    assert outcomes.need.tolist() == [7, 0]


def seconds_of_a_product(design: Design, side: int) -> float:
    products = Workload("gemv", (Product("", "gemv", 1, side, side),))
    return float(evaluate(stacked([design]), products).columns["latency"][0])


@given(counts)
def test_a_product_by_itself_is_its_share_of_the_stream_and_the_sums(count: int) -> None:
    design = gpus(count)
    free = replaced(design, dict.fromkeys(WORSE, 0.0))
    side = 16384
    peak = 2.039e12 * free.chip.hbm.achieved  # type: ignore[union-attr]
    stream = 2 * side * -(-side // count) / peak
    assert seconds_of_a_product(free, side) >= stream
    started = seconds_of_a_product(design, side)
    chip = design.chip
    starts = chip.operator_overhead + (count > 1) * (chip.network.call + chip.network.latency)  # type: ignore[union-attr]
    starts += (count > 8) * chip.network.nodes.latency  # type: ignore[union-attr]
    assert started == pytest.approx(seconds_of_a_product(free, side) + starts)


def test_a_product_may_be_compared_over_two_chips(tmp_path: Path) -> None:
    gemv = "workload=gemv workload.shapes=[1x4096x4096]"
    design = f"chip=a100 mapping=sglang {gemv} mapping.prefill.tp=2"
    baseline = f"chip=wse2 {gemv} mapping.rows=64"
    path = tmp_path / "published.csv"
    path.write_text(
        f"id,where,overrides,baseline,metric,value,unit,role,note\nx,here,{design},{baseline},power_energy,1,ratio,check,\n"
    )
    (row,) = compare(path)
    both = [measured(tuple(overrides.split()), "power_energy") for overrides in (design, baseline)]
    assert row.simulated == both[0] / both[1]  # type: ignore[operator]


def test_the_breakdown_of_a_product_on_dies_adds_up() -> None:
    case = Product("", "gemm", 512, 4096, 4096)
    parts = explain(gpus(16), case)
    total = evaluate(stacked([gpus(16)]), Workload("gemm", (case,))).columns["latency"][0]
    assert sum(row.seconds for row in parts.rows) == pytest.approx(total)


def _at(address: str) -> float:
    return float(at(asked(*CHIP).base, address))
