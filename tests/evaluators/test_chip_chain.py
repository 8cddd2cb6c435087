"""Wafers in a chain that share the layers of a model: identities with one wafer, links, memory, remedies, and served loads."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dse
from dse.analysis.deployments import _device_count, _instance_text
from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.decode_segments import arrays_by_model
from dse.evaluators.accounting.phase import mesh_work
from dse.evaluators.accounting.regions import REGION_LAYOUT, _phase_regions
from dse.evaluators.accounting.serving_instances import regions as service
from dse.evaluators.accounting.serving_runs.kv_transfers import work_of_transfers
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.silicon.energy import chip_link_energy_per_byte, dynamic_energy
from dse.space.chip import ChipChain
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from tests.samples import asked, load_of, metrics

PART = "+part@chip=wafers_ethernet"
SIZES = ("workload.batch=[3]", "workload.prompt=300", "workload.output=20")
MODEL = ("chip=wse3", "model=qwen3_4b", *SIZES)
SERVING = ("chip=wse3", "model=qwen3_4b", "workload=serving", "workload.requests=40", "workload.rate=5 Hz")

sides = st.tuples(st.integers(200, 750), st.integers(200, 750), st.integers(0, 3))


def chained(design: Design, chips: Any, bandwidth: Any = 150e9, latency: Any = 3e-6) -> Design:
    """A design on so many chips in a chain."""
    chain = ChipChain(chips=chips, bandwidth=bandwidth, payload_share=0.95, latency=latency)
    return replace(design, chip=replace(design.chip, chain=chain))


def shaped(drawn: tuple[int, int, int], *words: str) -> tuple[Design, Any]:
    """A design with drawn regions, and its workload."""
    question = asked(*MODEL, *words)
    prefill, decode, regions = drawn
    leaves = {"mapping.prefill.rows": prefill, "mapping.decode.rows": decode, "mapping.decode.regions": regions}
    return replace_leaves(question.base, leaves), question.workload


def columns(design: Design, workload: Any, fidelity: str = "analytical") -> dict[str, float]:
    outcomes = evaluate(stack_designs([design]), workload, fidelity=fidelity)
    return {name: float(values[0]) for name, values in outcomes.columns.items()}


@settings(max_examples=15, deadline=None)
@given(sides, st.integers(0, 7))
def test_one_chip_in_a_chain_is_a_chip_without_one(drawn: tuple[int, int, int], resident: int) -> None:
    design, workload = shaped(drawn)
    design = replace_leaves(design, {"mapping.simulated_layers": resident})
    assert columns(chained(design, 1.0), workload) == pytest.approx(columns(design, workload), rel=0, abs=0, nan_ok=True)


def test_one_chip_in_a_chain_is_a_chip_without_one_in_simulation_and_served() -> None:
    played = ("mapping.both.rows=180", "mapping.simulated_layers=4", "fidelity=events")
    for words in ((*MODEL, *played), SERVING, (*SERVING, "fidelity=steady_state", "mapping.prefill.rows=480")):
        alone, one = (dse.evaluate(*words, *more).metrics for more in ((), (PART, "chip.chain.chips=1")))
        assert dict(one) == pytest.approx(dict(alone), rel=0, abs=0, nan_ok=True)


@settings(max_examples=20, deadline=None)
@given(sides, st.integers(2, 6), st.integers(1, 3))
def test_chips_with_links_that_take_no_time_are_as_fast_as_one_with_all_their_cores(
    drawn: tuple[int, int, int], chips: int, regions: int
) -> None:
    """Where the regions of each chip divide its layers evenly, so that the same layers lie on the same cores."""
    design, workload = shaped(drawn)
    design = replace_leaves(design, {"mapping.prefill.regions": 1, "mapping.decode.regions": regions})
    large = {"chip.mesh.cols": design.chip.mesh.cols * chips * regions, "mapping.prefill.regions": chips}
    large |= {"mapping.decode.regions": chips * regions}
    several, one = chained(design, float(chips), 1e30, 0.0), replace_leaves(design, large)
    (job,) = arrays_by_model(workload)
    for name, place in _phase_regions(several, job.model).items():
        same = _phase_regions(one, job.model)[name]
        assume(place.total == same.count and place.layers == same.layers)
        assume(place.chips * place.count == place.total)
    for a, b in zip(
        REGION_LAYOUT.phases(several, job, "analytical"), REGION_LAYOUT.phases(one, job, "analytical"), strict=True
    ):
        if a.name != "transition":
            assert np.ravel(a.seconds) == pytest.approx(np.ravel(b.seconds), rel=1e-12)
            assert np.ravel(dynamic_energy(mesh_work(a)._replace(boxed_bytes=0.0), design.chip)) == pytest.approx(
                np.ravel(dynamic_energy(mesh_work(b), design.chip)), rel=1e-12
            )


@settings(max_examples=20, deadline=None)
@given(sides, st.integers(2, 9), st.floats(1e9, 1e12), st.floats(0, 1e-3), st.floats(1, 10))
def test_a_link_adds_its_time_and_a_better_one_never_hurts(
    drawn: tuple[int, int, int], chips: int, bandwidth: float, latency: float, more: float
) -> None:
    design, workload = shaped(drawn, "workload.batch=[1]")
    (job,) = arrays_by_model(workload)
    used = float(_phase_regions(chained(design, float(chips)), job.model)["decode"].chips)
    free, slow, wide, near = (
        columns(chained(design, float(chips), *link), workload)
        for link in ((1e30, 0.0), (bandwidth, latency), (bandwidth * more, latency), (bandwidth, latency / more))
    )
    vector = 2 * job.model.hidden / (bandwidth * 0.95)
    assert slow["ttft"] - free["ttft"] == pytest.approx((used - 1) * (latency + 300 * vector), rel=1e-6)
    assert slow["tpot"] - free["tpot"] == pytest.approx((used - 1) * (latency + vector), rel=1e-6)
    for name in ("ttft", "tpot", "latency"):
        assert max(wide[name], near[name]) <= slow[name] * (1 + 1e-12)


@settings(max_examples=15, deadline=None)
@given(sides, st.integers(2, 6), st.integers(1, 40), st.floats(1e7, 1e12), st.floats(1, 10))
def test_a_wider_link_never_hurts_a_batch_and_a_narrow_one_sets_its_pace(
    drawn: tuple[int, int, int], chips: int, batch: int, bandwidth: float, more: float
) -> None:
    design, workload = shaped(drawn, f"workload.batch=[{batch}]")
    (job,) = arrays_by_model(workload)
    slow, wide = (columns(chained(design, float(chips), rate), workload) for rate in (bandwidth, bandwidth * more))
    for name in ("ttft", "tpot", "latency"):
        assert wide[name] <= slow[name] * (1 + 1e-12)
    busy = batch * 300 * 2 * job.model.hidden / (bandwidth * 0.95)
    assert slow["ttft"] >= busy * (1 - 1e-12)
    crawling = columns(chained(design, float(chips), 1e3, 0.0), workload)
    assert crawling["ttft"] == pytest.approx((batch + chips - 2) * 300 * 2 * job.model.hidden / 950, rel=1e-3)


@settings(max_examples=10, deadline=None)
@given(sides, st.integers(2, 9))
def test_energy_of_links_adds_up_and_chips_count_in_area_power_and_price(drawn: tuple[int, int, int], chips: int) -> None:
    design, workload = shaped(drawn)
    (job,) = arrays_by_model(workload)
    several = chained(design, float(chips))
    used = float(_phase_regions(several, job.model)["decode"].chips)
    phases = REGION_LAYOUT.phases(several, job, "analytical")
    linked = [float(np.ravel(mesh_work(phase).boxed_bytes)[0]) for phase in phases]
    tokens = [3 * 300.0, 3 * 19.0, 0.0]
    assert linked == pytest.approx([(used - 1) * count * 2 * job.model.hidden for count in tokens])
    for phase, nbytes in zip(phases, linked, strict=True):
        without = dynamic_energy(mesh_work(phase)._replace(boxed_bytes=0.0), several.chip)
        assert np.ravel(dynamic_energy(mesh_work(phase), several.chip) - without) == pytest.approx(
            nbytes * chip_link_energy_per_byte(several.chip), rel=1e-6, abs=1e-12
        )
    together, two = columns(several, workload), columns(chained(design, 2.0), workload)
    for name in ("system_mm2", "system_price"):
        assert together[name] == pytest.approx(two[name] * chips / 2)
    assert together["system_mm2"] == pytest.approx(chips * together["die_mm2"])
    assert together["rated_energy"] == pytest.approx(chips * 15e3 * together["latency"])


@settings(max_examples=10, deadline=None)
@given(st.floats(150e9, 1e13), st.floats(1.01, 10))
def test_a_wider_link_takes_area_power_and_money(bandwidth: float, more: float) -> None:
    design, workload = shaped((360, 360, 0))
    narrow, wide = (columns(chained(design, 4.0, rate), workload) for rate in (bandwidth, bandwidth * more))
    for name in ("system_mm2", "tdp", "system_price"):
        assert wide[name] > narrow[name]


@settings(max_examples=10, deadline=None)
@given(sides, st.lists(st.integers(1, 50), min_size=2, max_size=6, unique=True))
def test_many_chains_are_judged_as_each_by_itself(drawn: tuple[int, int, int], chips: list[int]) -> None:
    design, workload = shaped(drawn)
    designs = [chained(design, float(count), 1e9 * count) for count in chips]
    together = evaluate(stack_designs(designs), workload)
    for place, single in enumerate(designs):
        for name, value in columns(single, workload).items():
            assert together.columns[name][place] == pytest.approx(value, rel=1e-12, nan_ok=True), name
    for place, single in enumerate(designs):
        assert together.limit[place] == evaluate(stack_designs([single]), workload).limit[0]


@settings(max_examples=8, deadline=None)
@given(sides, st.integers(2, 9), st.integers(1, 8))
def test_rows_add_up_to_the_time_and_name_the_links(drawn: tuple[int, int, int], chips: int, batch: int) -> None:
    design, workload = shaped(drawn, f"workload.batch=[{batch}]")
    design = chained(design, float(chips))
    parts = explain(design, workload.cases[0])
    assert sum(row.seconds for row in parts.rows) == pytest.approx(columns(design, workload)["latency"])
    rows = {row.phase: row for row in parts.rows if row.segment == "chips"}
    assert rows.keys() == {"prefill", "decode"}
    vector = 2 * workload.cases[0].model.hidden / (150e9 * 0.95)
    used = float(_phase_regions(design, workload.cases[0].model)["decode"].chips)
    assert rows["prefill"].seconds == pytest.approx(batch * (used - 1) * (3e-6 + 300 * vector))


def test_memory_says_how_many_chips_would_do_and_that_many_do() -> None:
    for words in (("model=llama3_70b", "workload.batch=[1]"), ("model=llama3_405b", "workload.batch=[1]")):
        lengths = ("chip=wse3", *words, "workload.prompt=1000", "workload.output=100")
        question = asked(*lengths)
        verdict = explain_infeasibility(question.base, question.workload)
        assert verdict is not None
        assert verdict.limit == "chip.core.sram"
        words_said = verdict.remedy.partition("would do: ")[2].split()
        assert words_said[0] == PART
        enough = asked(*lengths, *words_said)
        assert explain_infeasibility(enough.base, enough.workload) is None
        fewer = replace_leaves(enough.base, {"chip.chain.chips": enough.base.chip.chain.chips - 1})
        assert explain_infeasibility(fewer, enough.workload) is not None


def test_a_remedy_undoes_regions_that_are_no_squares() -> None:
    question = asked("chip=wse3", "model=llama3_405b", PART, "mapping.both.rows=100", "mapping.both.cols=90", *SIZES)
    verdict = explain_infeasibility(question.base, question.workload)
    assert verdict is not None
    assert {"mapping.prefill.cols=0", "mapping.decode.cols=0"} <= set(verdict.remedy.split())


def test_an_answer_says_what_a_chain_has_of_the_layers_and_how_many_chips_are_idle() -> None:
    some, most = (dict(dse.evaluate(*MODEL, PART, f"chip.chain.chips={chips}").facts())["chain"] for chips in (4, 25))
    assert some == "4 chips, 9 of 36 layers of Qwen3-4B each at most; 150 GB/s and 3 us from chip to chip"
    assert "25 chips, 2 of 36 layers of Qwen3-4B each at most, 7 idle: they count in area, power and price" in most


def test_what_a_chain_cannot_do_is_refused() -> None:
    edged = asked("chip=wse2_hbm", "model=qwen3_4b", PART, *SIZES)
    verdict = explain_infeasibility(edged.base, edged.workload)
    assert verdict is not None
    assert (verdict.limit, verdict.need, verdict.have) == ("chip.chain.chips", 2, 1)
    assert "chip.chain.chips=1" in verdict.remedy
    with pytest.raises(DesignError, match=r"chip\.chain.chips, whose links carry whole vectors"):
        dse.evaluate(*MODEL, PART, "fidelity=events@16")
    with pytest.raises(DesignError, match="a single product runs on one chip"):
        dse.evaluate("chip=wse3", "workload=gemm", PART)
    with pytest.raises(DesignError, match=r"chip\.chain.chips: 0 is below the minimum, 1"):
        dse.evaluate(*MODEL, PART, "chip.chain.chips=0")
    with pytest.raises(DesignError, match=r"chip\.chain.chips: missing; chips in the chain"):
        dse.evaluate(*MODEL, "+chip.chain.bandwidth='1 TB/s'")
    with pytest.raises(DesignError, match="a mesh of tiles does not read it"):
        dse.evaluate("chip=npu64", "model=qwen3_4b", PART)


def test_caches_of_served_requests_lie_on_all_wafers() -> None:
    """A wafer has its share of a request's bytes, so that a chain has as many positions as its fullest core allows."""
    small = ("chip=wse3", "model=qwen3_1b7", PART, "mapping.prefill.rows=360")
    words = (*small, "workload=serving", "workload.requests=40")
    lengths = ("workload.prompt=1024", "workload.output=256", "workload.batch=[1]")
    for chips in (1, 2, 4, 7):
        design, load = load_of(*words, f"chip.chain.chips={chips}")
        instance = service.RegionServing().instances(design, load, "analytical")[0]
        alone = metrics(*small, f"chip.chain.chips={chips}", *lengths)
        assert instance.free / instance.room.position == pytest.approx(alone["kv_capacity"], rel=0.02)
        assert service.RegionServing().devices_per_cache(design, load) == (chips, chips)
        whole = service._wafer_request(*load_of(*words, "chip.chain.chips=1")).request_bytes(1000)
        assert instance.room.request_bytes(1000) * chips == pytest.approx(whole)


@pytest.mark.parametrize("more", [(), ("mapping.prefill.rows=660",), ("mapping.serving.prefill_instances=1",)])
def test_the_time_of_served_chains_goes_into_kernels_links_or_is_idle(more: tuple[str, ...]) -> None:
    question = asked(*SERVING, PART, "chip.chain.chips=3", *more)
    values = metrics(*SERVING, PART, "chip.chain.chips=3", *more)
    assert values["devices"] == (6 if "mapping.serving.prefill_instances=1" in more else 3)
    assert values["system_mm2"] == pytest.approx(values["devices"] * values["die_mm2"])
    parts = explain(question.base, question.workload.cases[0])
    assert sum(row.seconds for row in parts.rows) == pytest.approx(parts.seconds)
    assert any(row.segment.endswith("chips") for row in parts.rows)


def test_served_chains_are_judged_in_the_steady_state_as_each_by_itself_and_have_a_rate() -> None:
    """The knob of a space: more chips have room for more requests, and take as much longer from the first to the last."""
    words = (*SERVING, PART, "workload.rate=max", "workload.ttft='2 s'", "workload.tpot='50 ms'", "fidelity=steady_state")
    question = asked(*words)
    designs = [replace_leaves(question.base, {"chip.chain.chips": float(chips)}) for chips in (1, 2, 5)]
    together = evaluate(stack_designs(designs), question.workload, fidelity="steady_state")
    for place, design in enumerate(designs):
        alone = evaluate(stack_designs([design]), question.workload, fidelity="steady_state")
        assert together.columns["max_rate"][place] == pytest.approx(alone.columns["max_rate"][0])
        assert together.columns["max_rate"][place] > 0
    assert together.columns["devices"].tolist() == [1, 2, 5]


def test_requests_of_separate_pools_go_by_the_hosts_of_all_wafers() -> None:
    words = (*SERVING, PART, "mapping.serving.prefill_instances=1")
    (one, load), (three, _) = (load_of(*words, f"chip.chain.chips={chips}") for chips in (1, 3))
    serving = service.RegionServing()
    assert serving.kv_path(three, load).seconds.request_bytes(900) == pytest.approx(
        serving.kv_path(one, load).seconds.request_bytes(900) / 3
    )
    far, near = (work_of_transfers(serving.kv_path(design, load), load.requests.prompt) for design in (three, one))
    assert far.memory_bytes == pytest.approx(near.memory_bytes)


def test_deployments_count_all_wafers_of_an_instance() -> None:
    words = (*SERVING, PART, "chip.chain.chips=5", "mapping.serving.instances=2", "mapping.serving.prefill_instances=1")
    design = load_of(*words)[0]
    assert _device_count(design) == service.RegionServing().device_count(design) == 15
    assert _instance_text(design, "mapping.decode.") == " of 5 chips"


def test_a_chain_that_a_chip_lacks_is_said_by_its_part() -> None:
    with pytest.raises(DesignError, match=r"no field 'chip\.chain\.chips'; a part has it: \+part@chip=wafers_ethernet"):
        dse.evaluate(*MODEL, "chip.chain.chips=3")
