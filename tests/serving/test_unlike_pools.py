"""Prefill on chips of another kind: as one kind where both are alike, sums of both pools, and what is refused."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dse
from dse.analysis.capacity import find_capacity
from dse.config.compose import compose
from dse.evaluators import evaluate
from dse.evaluators.accounting.outcomes import Outcomes
from dse.evaluators.accounting.serving_instances.unlike_pools import pool_sides, sent_cache
from dse.evaluators.evaluation import explain, explain_infeasibility
from dse.evaluators.silicon.price import system_price
from dse.execution.study import build_study
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import iterate_leaves, replace_leaves
from tests.samples import asked

LOAD = ("model=llama3_8b", "workload=serving", "workload.requests=60", "workload.prompt=500", "workload.output=40")
APART = (*LOAD, "mapping.serving.prefill_instances=1")
LINK = ("+part@pools.link=pool_link_400g",)
GPUS = ("chip=h100", *APART, "mapping.both.tp=1", "workload.rate=6 Hz")
UNLIKE = (*GPUS, "pools.prefill.chip=b200", "pools.prefill.mapping.both.tp=1", *LINK)

LINK_METRICS = {"energy", "power", "energy_per_token", "price_per_mtoken", "electricity_per_mtoken", "peak_power"}
"""Metrics with the energy of the link, which is a part of its own."""


def _outcomes(design: Design, *words: str, fidelity: str = "analytical") -> Outcomes:
    return evaluate(stack_designs([design]), asked(*words).workload, fidelity=fidelity)


def _numbers(outcomes: Outcomes) -> dict[str, float]:
    return {name: float(column[0]) for name, column in outcomes.columns.items() if column[0] == column[0]}


@settings(max_examples=6, deadline=None)
@given(
    tp=st.tuples(st.sampled_from((1, 2)), st.sampled_from((1, 2, 4))),
    counts=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    batch=st.sampled_from((1, 8, 64)),
    policy=st.sampled_from(("prefill_first", "chunked_prefill", "inflight")),
    fidelity=st.sampled_from(("analytical", "steady_state")),
)
def test_two_pools_of_one_kind_are_the_disaggregated_design(
    tp: tuple[int, int], counts: tuple[int, int], batch: int, policy: str, fidelity: str
) -> None:
    same = ("pools.prefill.chip=h100", *LINK)
    both, one = asked(*GPUS, "pools.prefill.mapping.both.tp=1", *same).base, asked(*GPUS).base
    changes = {
        "mapping.prefill.tp": tp[0],
        "mapping.decode.tp": tp[1],
        "mapping.serving.prefill_instances": counts[0],
        "mapping.serving.instances": counts[1],
        "mapping.serving.max_batch_size": batch,
        "mapping.serving.policy": policy,
    }
    network, stack = one.chip.network, one.mapping.stack
    assume(tp[0] * counts[0] + tp[1] * counts[1] <= network.nodes.size)  # else caches leave their node
    link = {"pools.link.bandwidth": network.bandwidth * stack.network_efficiency, "pools.link.latency": network.latency}
    own = {"pools.prefill.mapping.prefill.tp": tp[0]}
    alike = _numbers(_outcomes(replace_leaves(one, changes), *GPUS, fidelity=fidelity))
    unlike = _numbers(_outcomes(replace_leaves(both, changes | link | own), *GPUS, fidelity=fidelity))
    for name in sorted(alike.keys() & unlike.keys() - LINK_METRICS):
        assert unlike[name] == pytest.approx(alike[name], rel=1e-12), name
    assert alike.keys() - unlike.keys() <= {"tdp", "power_density", "rated_energy"}
    assert unlike["energy"] == pytest.approx(alike["energy"], rel=0.01)


def test_a_wider_link_and_more_prefill_chips_never_hurt() -> None:
    design = asked(*UNLIKE).base
    ttft = [
        _numbers(_outcomes(replace_leaves(design, {"pools.link.bandwidth": wide}), *UNLIKE))["latency"]
        for wide in (1e8, 1e9, 1e10, 1e12)
    ]
    assert ttft == sorted(ttft, reverse=True)
    assert ttft[0] > ttft[-1]
    few, many = (
        _numbers(_outcomes(replace_leaves(design, {"mapping.serving.prefill_instances": count}), *UNLIKE)) for count in (1, 2)
    )
    assert many["ttft"] <= few["ttft"]
    assert many["devices"] == few["devices"] + 1


def test_area_and_price_are_those_of_both_pools() -> None:
    design = replace_leaves(asked(*UNLIKE).base, {"mapping.serving.prefill_instances": 2, "mapping.serving.instances": 3})
    answer = _numbers(_outcomes(design, *UNLIKE))
    first, last = pool_sides(design)
    price = 2 * float(system_price(first.design.chip)) + 3 * float(system_price(last.design.chip))
    assert answer["system_price"] == pytest.approx(price)
    areas = [float(side.layout.die_and_system_area(side.design)[1]) for side in (first, last)]
    assert answer["system_mm2"] == pytest.approx(sum(areas))
    assert answer["energy_per_token"] == pytest.approx(answer["energy"] / (60 * 40))


def test_a_breakdown_has_the_busy_time_of_both_pools() -> None:
    question = asked(*UNLIKE)
    whole = explain(question.base, question.workload.cases[0])
    phases = {row.phase for row in whole.rows}
    assert any(phase.startswith("prefill instance") for phase in phases)
    assert any(phase.startswith("decode instance") for phase in phases)
    assert whole.seconds == pytest.approx(sum(row.seconds for row in whole.rows))
    prices = [float(system_price(side.design.chip)) for side in pool_sides(question.base)]
    assert sum(whole.price.values()) == pytest.approx(sum(prices))
    assert {name.partition(":")[0] for name in (*whole.area, *whole.power, *whole.price)} == {"prefill", "decode"}


def test_a_cache_is_sent_in_the_format_of_the_link() -> None:
    question = asked(*UNLIKE)
    model = question.workload.cases[0].model  # type: ignore[union-attr]
    full = sent_cache(question.base, model)
    narrow = sent_cache(asked(*UNLIKE, "+pools.link.kv=fp8").base, model)
    assert narrow.growing == pytest.approx(full.growing / 2)
    assert full.growing == pytest.approx(2 * 2 * model.layers * model.kv_heads * model.head_dim)


@pytest.mark.parametrize("decode", ["groq model=llama2_7b mapping.both.tp=64", "wse3", "tile_gh200", "a100"])
def test_any_kind_of_chip_decodes_what_another_prefills(decode: str) -> None:
    words = (
        *APART,
        f"chip={decode.split()[0]}",
        *decode.split()[1:],
        "workload.rate=2 Hz",
        "pools.prefill.chip=h100",
        "pools.prefill.mapping.both.tp=1",
        *LINK,
    )
    question = asked(*words)
    steady, loop = (
        _numbers(_outcomes(question.base, *words, fidelity=fidelity)) for fidelity in ("steady_state", "analytical")
    )
    assert steady["tpot"] == pytest.approx(loop["tpot"], rel=0.1)
    assert steady["throughput"] == pytest.approx(loop["throughput"], rel=0.1)
    alone = asked(*(word for word in words if not word.startswith(("pools", "+part"))))
    if decode != "a100":  # prompts on a GPU arrive at another pace than those of such a chip, tokens come at the same
        own = _numbers(_outcomes(alone.base, *words, fidelity="analytical"))
        assert loop["tpot"] == pytest.approx(own["tpot"], rel=0.25)


def test_designs_have_together_what_each_has_alone() -> None:
    question = asked(*UNLIKE)
    designs = [
        replace_leaves(question.base, {"mapping.serving.instances": count, "pools.link.bandwidth": wide})
        for count in (1, 2)
        for wide in (1e9, 5e10)
    ]
    together = evaluate(stack_designs(designs), question.workload, fidelity="steady_state")
    for row, design in enumerate(designs):
        alone = _numbers(_outcomes(design, *UNLIKE, fidelity="steady_state"))
        for name, value in alone.items():
            assert together.columns[name][row] == pytest.approx(value, rel=1e-9, nan_ok=True), name


def test_limits_of_the_prefill_pool_have_its_addresses() -> None:
    words = (*GPUS, "pools.prefill.chip=groq", "pools.prefill.mapping.both.tp=2", *LINK)
    question = asked(*words)
    why = explain_infeasibility(question.base, question.workload)
    assert why is not None
    assert why.limit == "pools.prefill.chip.hbm.capacity"
    none = replace_leaves(asked(*UNLIKE).base, {"mapping.serving.prefill_instances": 0})
    text = str(explain_infeasibility(none, question.workload))
    assert "mapping.serving.prefill_instances=1" in text


def test_addresses_of_the_pool_are_leaves_and_knobs() -> None:
    addresses = {address for address, _, _ in iterate_leaves(asked(*UNLIKE).base)}
    assert {"pools.prefill.chip.hbm.bandwidth", "pools.prefill.mapping.prefill.tp", "pools.link.bandwidth"} <= addresses
    space = asked(*UNLIKE, "+space.pools.prefill.mapping.prefill.tp='choice(1,2)'").space
    assert [knob.address for knob in space.knobs] == ["pools.prefill.mapping.prefill.tp"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((*GPUS, "pools.prefill.chip=b200"), "pools.link: missing"),
        ((*GPUS, *LINK), "pools.prefill.chip: missing"),
        ((*GPUS, "pools.decode.chip=b200"), "pools.decode: .* without this prefix: chip=b200"),
        ((*UNLIKE, "pools.prefill.chip=b20"), "pools.prefill: chip: no option 'b20'; did you mean 'b200'"),
        ((*UNLIKE, "pools.prefill.mapping.both.tq=1"), "pools.prefill: mapping.prefill: no field"),
        ((*UNLIKE, "+pools.link.kv=fp7"), "pools.link.kv: no option 'fp7'"),
        ((*UNLIKE, "+pools.linc.kv=fp8"), "pools.linc: no such field; did you mean 'link'"),
        (("chip=h100", "model=llama3_8b", "pools.prefill.chip=b200", *LINK), "pools: .* set workload=serving"),
        ((*UNLIKE, "pools.prefil.stack=tuned"), "pools.prefil: no such field; did you mean 'prefill'"),
        ((*GPUS, "pools.prefill=b200", *LINK), "pools.prefill: 'b200' is not a group of fields, as in pools.prefill.chip="),
        ((*GPUS, "pools.prefill.chip=b200", "pools.link=pool_link_400g"), r"write \+part@pools.link=pool_link_400g"),
        ((*GPUS, "pools.prefill.chip=b200", "part@pools.link=pool_link_400g"), r"write \+part@pools.link=NAME"),
        ((*UNLIKE, "pools.link.bandwith=1"), "did you mean 'bandwidth'.* kv"),
        ((*UNLIKE, "pools.prefill.model=qwen3_8b"), "pools.prefill.model: both pools have one model; write model=qwen3_8b"),
        ((*UNLIKE, "pools.prefill.fidelity=analytical"), "both pools have one fidelity; write fidelity=analytical"),
        ((*UNLIKE, "pools.prefill.mapping.decode.tp=2"), "only prefills; write pools.prefill.mapping.prefill.tp=2, or mapping"),
        ((*UNLIKE, "pools.prefill.mapping.serving.instances=2"), "of the design; write mapping.serving.instances=2"),
    ],
)
def test_what_makes_no_pool_is_one_line(words: tuple[str, ...], text: str) -> None:
    with pytest.raises(DesignError) as error:
        asked(*words)
    assert re.search(text, str(error.value)), str(error.value)
    assert "\n" not in str(error.value)


def test_what_a_pool_or_its_link_does_not_have_yet_is_added_with_a_plus_or_without() -> None:
    link = ("pools.link.bandwidth='5 GB/s'", "pools.link.latency='1 us'", "pools.link.kv=fp8")
    pool = ("pools.prefill.chip=b200", "pools.prefill.mapping.both.tp=2")
    bare, plus = (asked(*GPUS, *(sign + word for word in (*pool, *link))).base for sign in ("", "+"))
    assert bare == plus
    assert bare.pools is not None
    assert (bare.pools.link.bandwidth, bare.pools.link.kv, bare.pools.prefill.mapping.prefill.tp) == (5e9, "fp8", 2)
    whole = asked(*UNLIKE, "+pools.prefill.memory@chip.hbm.banks=hbm3e", "pools.prefill.chip.hbm.banks.stacks=8").base
    assert whole.pools is not None
    assert whole.pools.prefill.chip.hbm.banks.stacks == 8


def test_several_chips_have_the_same_prefill_pool() -> None:
    words = (*APART, "pools.prefill.chip=b200", "pools.prefill.mapping.both.tp=1", *LINK)
    several = asked(*words, "chips=[h100,h200]", "+space.pools.prefill.mapping.prefill.tp=choice(1,2)").space
    for name, space in several.base_spaces:
        alone = asked(*words, f"chip={name['chip']}").base
        assert alone.pools is not None
        assert space.base == alone


def test_a_run_is_not_continued_with_another_pool_or_link() -> None:
    goal = ("+objectives.tpot=min", "space=empty", "+space.mapping.serving.instances=choice(1,2)")
    chips = (*APART, "pools.prefill.chip=b200", "pools.prefill.mapping.both.tp=1", *LINK, "chips=[h100,h200]")
    for words in (UNLIKE, chips):
        same, again, chip, narrow = (
            build_study(compose([*words, *goal, *more]), Path()).identity()
            for more in ((), (), ("pools.prefill.chip=h200",), ("pools.link.bandwidth='1 GB/s'",))
        )
        assert same == again
        assert same != chip
        assert same != narrow


def test_a_study_says_which_chips_prefill_and_which_decode() -> None:
    goal = ("+objectives.tpot=min", "space=empty", "+space.mapping.serving.instances=choice(1,2)")
    text = build_study(compose([*UNLIKE, *goal]), Path()).pools
    assert text == "b200 (sglang_serving) prefills, h100 decodes; link 50 GB/s a prefill chip"
    assert build_study(compose([*GPUS, *goal]), Path()).pools == ""


def test_pipelines_of_tiles_have_pools_of_their_own() -> None:
    with pytest.raises(DesignError, match=r"pools.prefill.mapping: requests served on pipelines"):
        asked(*GPUS, "pools.prefill.chip=npu256", *LINK)


def test_the_maximum_rate_of_two_pools_is_near_the_simulations() -> None:
    bounds = ("workload.rate=max", "workload.requests=2000", "workload.ttft=1 s", "workload.tpot=30 ms")
    words = (*(word for word in UNLIKE if not word.startswith("workload.r")), *bounds)
    base = asked(*words).base
    rates = [_numbers(_outcomes(base, *words, fidelity=fidelity))["max_rate"] for fidelity in ("steady_state", "analytical")]
    assert rates[0] == pytest.approx(rates[1], rel=0.1)
    assert np.isfinite(rates).all()


def test_a_conversion_takes_time_and_needs_memory() -> None:
    fast = {"pools.link.bandwidth": 1e15}
    same, converted = (
        _numbers(_outcomes(replace_leaves(asked(*words).base, fast), *UNLIKE))
        for words in (UNLIKE, (*UNLIKE, "+pools.link.kv=fp8"))
    )
    assert converted["latency"] > same["latency"]  # which nothing but the conversion takes
    slow = {"pools.link.bandwidth": 1e9}
    wide, half = (
        _numbers(_outcomes(replace_leaves(asked(*words).base, slow), *UNLIKE))
        for words in (UNLIKE, (*UNLIKE, "+pools.link.kv=fp8"))
    )
    assert half["latency"] < wide["latency"]
    words = (*APART, "chip=wse3", "pools.prefill.chip=h100", "pools.prefill.mapping.both.tp=1", *LINK, "+pools.link.kv=fp8")
    question = asked(*words)
    assert "set pools.link.kv=fp16" in str(explain_infeasibility(question.base, question.workload))
    refused = evaluate(stack_designs([question.base]), question.workload, fidelity="steady_state")
    assert str(refused.row_outcome(0)).startswith("needs 2 layout of pools.link.kv")


def test_capacity_counts_devices_of_both_kinds() -> None:
    words = (
        *("chip=h100", "model=llama3_8b", "devices=3", "workload.ttft=1 s", "workload.tpot=30 ms", "workload.requests=400"),
        *("pools.prefill.chip=b200", *LINK, "space=empty", "+space.mapping.both.tp=choice(1, 2)"),
    )
    (side,) = find_capacity(words)
    assert side.best is not None
    assert side.prefill_chip == "b200"
    design = side.best.candidate.design
    counts = design.mapping.serving.prefill_instances, design.mapping.serving.instances
    assert counts[0] >= 1
    assert counts[0] + counts[1] * design.mapping.decode.tp == side.best.candidate.devices <= 3
    with pytest.raises(DesignError, match="sizes pools of devices only"):
        find_capacity(("chip=wse3", *words[1:]))


def test_one_instance_prefills_unless_said() -> None:
    words = tuple(word for word in UNLIKE if "prefill_instances" not in word)
    assert asked(*words).base.mapping.serving.prefill_instances == 1
    assert asked(*words, "mapping.serving.prefill_instances=0").base.mapping.serving.prefill_instances == 0


def test_a_chain_that_prefills_has_a_line() -> None:
    words = ("pools.prefill.chip=wse3", "+pools.prefill.part@chip=wafers_ethernet", *LINK, "fidelity=steady_state")
    lines = dict(dse.evaluate(*GPUS, *words).facts())
    assert lines["chain"].startswith("prefill on 2 chips, 16 of 32 layers")
