"""FlatAttention on the groups of a pipeline of NPU cores, beside TP and PP."""

from typing import Any

import numpy as np
import pytest

from dse.config.question import Question
from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.decode_segments import arrays_by_model
from dse.evaluators.accounting.layout import layout_of
from dse.evaluators.cost_models.call_cost import TimedBlock
from dse.evaluators.evaluation import explain_infeasibility, limits
from dse.evaluators.kernels.attention import ATTENTION
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.mapping import PARTITIONS
from tests.samples import asked, typed

SIZES = ("workload.batch=[3,8]", "workload.prompt=256", "workload.output=6")
FEW = ("model.qwen3_1b7.layers=2", "mapping.both.pp=2")


def question(*more: str, model: str = "qwen3_1b7") -> Question:
    return asked("chip=npu64", f"model={model}", "mapping=npu_flat_attention", *SIZES, *more)


def said(design: Design, **knobs: Any) -> Design:
    return replace_leaves(design, {f"mapping.{phase}.{name.replace('__', '.')}": value for name, value in knobs.items()
                             for phase in ("prefill", "decode")})  # fmt: skip


def attention_of(asked_: Question, fidelity: str = "analytical") -> dict[str, tuple[TimedBlock, int]]:
    """The block of attention by phase, and the place of attention itself."""
    (job,) = arrays_by_model(asked_.workload)
    attention = {}
    for phase in layout_of(asked_.base).phases(asked_.base, job, fidelity, detailed=True):
        timed_block = next(timed_block for timed_block in phase.timed if timed_block.block.name == "attention")
        attention[phase.name] = (
            timed_block,
            next(place for place, call in enumerate(timed_block.block.calls) if call.name == "attention"),
        )
    return attention


@pytest.mark.sampled
@pytest.mark.parametrize("model", ["qwen3_4b", "mistral_7b", "deepseek_v2_lite"])
def test_it_does_the_same_useful_work_and_takes_the_cache_once(model: str) -> None:
    flat, plain = (
        asked("chip=npu64", f"model={model}", f"mapping={mapping}", "mapping.both.tp=8", "mapping.sram_kv_share=0", *SIZES)
        for mapping in ("npu_flat_attention", "npu")
    )
    for phase, (block, place) in attention_of(flat).items():
        other, index = attention_of(plain)[phase]
        assert np.allclose(block.block.calls[place].flop, other.block.calls[index].flop)
        cost = block.costs[place]
        assert cost.activity is not None
        assert np.all(2 * cost.activity.macs >= block.block.calls[place].flop * (1 - 1e-9))
        if phase == "decode":  # the cache, the new token written apart, and queries and outputs
            assert np.all(cost.activity.memory_bytes >= other.block.calls[index].nbytes - block.block.calls[place].nbytes)
            assert np.all(cost.activity.memory_bytes <= 1.5 * other.block.calls[index].nbytes)


@pytest.mark.sampled
@pytest.mark.parametrize("dataflow", ATTENTION)
@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_dataflow_is_priced_beside_every_partition(dataflow: str, partition: str) -> None:
    asked_ = question(*FEW)
    design = said(asked_.base, attention__dataflow=dataflow, partition=partition)
    outcome = evaluate(stack_designs([design]), asked_.workload)
    assert outcome.columns["latency"][0] > 0
    assert outcome.columns["energy_per_token"][0] > 0
    assert outcome.feasible[0]


def test_a_batch_is_its_designs_one_by_one() -> None:
    rng, asked_ = np.random.default_rng(3), question(*FEW)
    designs = []
    for _ in range(12):
        knobs = {"tp": int(rng.choice([1, 4, 16])), "pp": 2, "attention__dataflow": str(rng.choice(list(ATTENTION)))}
        single_design = said(asked_.base, **knobs, partition=str(rng.choice(PARTITIONS)))
        designs.append(
            replace_leaves(
                single_design, {"chip.noc.word_bytes": float(rng.choice([32, 256])), "chip.clock": rng.uniform(4e8, 8e8)}
            )
        )
    together = evaluate(stack_designs(designs), asked_.workload, cases=True)
    for place, design in enumerate(designs):
        alone = evaluate(stack_designs([design]), asked_.workload, cases=True)
        for name, column in alone.columns.items():
            assert together.columns[name][place] == pytest.approx(column[0], rel=1e-12, nan_ok=True), name
        assert together.cases["latency"][:, place] == pytest.approx(alone.cases["latency"][:, 0], rel=1e-12)


@pytest.mark.parametrize("fidelity", ["analytical", "events"])
def test_rows_add_up_to_the_latency(fidelity: str) -> None:
    asked_ = question(*FEW, "mapping.both.tp=8")
    latency = evaluate(stack_designs([asked_.base]), asked_.workload, fidelity=fidelity, cases=True).cases["latency"]
    for case, wanted in zip(asked_.workload.cases, latency, strict=True):
        explanation = explain(asked_.base, case, fidelity=fidelity)
        assert explanation.seconds == pytest.approx(wanted[0], rel=1e-9)
        rows = [row for row in explanation.rows if row.operator == "attention"]
        assert {row.phase for row in rows} == {"prefill", "decode"}
        assert all(len(row.parts) > 1 and row.flop > 0 and row.nbytes > 0 for row in rows)
        assert all(sum(row.parts.values()) == pytest.approx(row.seconds, rel=1e-6) for row in explanation.rows)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("word", "placement", "most"),
    [("480 B", "linear_seq", 1.2), ("480 B", "mesh", 1.5), ("32 B", "linear_seq", 1.3), ("32 B", "mesh", 2.1)],
)
@pytest.mark.parametrize("dataflow", ["flash2", "flat_tree", "flat_async"])
def test_events_play_what_the_closed_form_says(dataflow: str, word: str, placement: str, most: float) -> None:
    """As near as attention by itself on a mesh of NPU cores.

    Narrow links bind it, and in several rows the closed form has all blocks of a column on one of them, where events know which
    come from the core that asks. Two strands of small groups (`flat_async`) meet at engines: it is up to 24 % below.
    """
    words = (
        f"mapping.both.attention.dataflow={dataflow}",
        f"mapping.both.placement={placement}",
        f"chip.noc.word_bytes='{word}'",
    )
    asked_ = question(*FEW, "mapping.both.tp=4", *words)
    closed, events = attention_of(asked_), attention_of(asked_, "events")
    for phase, (block, place) in closed.items():
        gap = block.costs[place].engines / events[phase][0].costs[place].engines
        assert np.all((gap > 0.75) & (gap < most)), (phase, gap)


def test_slices_are_in_local_memory_and_the_cache_is_not() -> None:
    """Slices take the room of activations that are not there with them, and what they need beyond is counted."""
    asked_ = question("mapping.both.tp=8")
    for queries, beyond in ((16, False), (4096, True)):
        sliced = said(asked_.base, attention__rows=1, attention__cols=1, attention__queries=queries, attention__keys=256)
        prefill = {limit.address: limit for limit in reversed(limits(sliced, asked_.workload))}
        assert [name for name, _ in prefill["chip.tile.sram"].parts] == ["activations", "slices of attention beyond"]
        assert np.all((dict(prefill["chip.tile.sram"].parts)["slices of attention beyond"] > 0) == beyond)
        assert np.all(dict(prefill["chip.hbm.capacity"].parts)["KV cache"] > 0)
    large = said(asked_.base, attention__rows=1, attention__cols=1, attention__queries=4096, attention__keys=8192)
    assert not evaluate(stack_designs([large]), asked_.workload).feasible[0]


def test_cores_share_heads_that_are_fewer_than_them() -> None:
    """With KV heads divided, sixteen cores have two copies of eight; a group has one."""
    flat, plain = (
        asked("chip=npu64", "model=qwen3_4b", f"mapping={mapping}", "mapping.both.tp=16", "mapping.sram_kv_share=0", *SIZES)
        for mapping in ("npu_flat_attention", "npu")
    )
    kv = [
        max(
            float(np.max(dict(limit.parts)["KV cache"]))
            for limit in limits(question.base, question.workload)
            if "hbm" in limit.address
        )
        for question in (flat, plain)
    ]
    assert kv[0] == pytest.approx(kv[1] / 2)


def test_latent_caches_are_shared_out_where_heads_would_each_take_all() -> None:
    """On links as wide as memory, MLA's decode on sixteen cores takes less than two thirds: each reads a sixteenth."""
    sizes = ("mapping.both.tp=16", "mapping.both.pp=4", "mapping.both.placement=mesh", "chip.noc.word_bytes='480 B'",
             "mapping.sram_kv_share=0", "workload.batch=[4]", "workload.prompt=32000", "workload.output=64")  # fmt: skip
    tpot = [
        evaluate(stack_designs([question.base]), question.workload).columns["tpot"][0]
        for question in (
            asked("chip=npu64", "model=deepseek_v2_lite", f"mapping={m}", *sizes) for m in ("npu_flat_attention", "npu")
        )
    ]
    assert tpot[0] < 0.6 * tpot[1]


def test_only_decode_may_have_it_and_prefetching_goes_beside_it() -> None:
    asked_ = asked(
        "chip=npu64", "model=qwen3_8b", "mapping=npu_prefetch", "mapping.sram_kv_share=0",
        "mapping.both.tp=16", "mapping.both.pp=4",
        "+mapping.decode.attention={dataflow: flat_tree, rows: 0, cols: 0, queries: 0, keys: 0}", *SIZES,
    )  # fmt: skip
    none = said(asked_.base, prefetch__policy="none")
    tpot = evaluate(stack_designs([asked_.base, none]), asked_.workload).columns["tpot"]
    assert tpot[0] < tpot[1]
    assert explain(asked_.base, asked_.workload.cases[0]).seconds > 0


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (("mapping.sram_kv_share=0.5",), "mapping.sram_kv_share: attention on groups .* set 0"),
        (("mapping.precision.kv=int8",), "mapping.precision.kv: .* of one size, got int8 and fp16"),
        (("mapping.both.attention.dataflow=flat_asink",), "no .*'flat_asink'; did you mean 'flat_async'"),
    ],
)
def test_what_attention_on_groups_cannot_do_is_refused_by_name(overrides: tuple[str, ...], why: str) -> None:
    asked_ = question(*overrides)
    with pytest.raises(DesignError, match=why):
        typed(asked_)


def test_services_refuse_it_by_name() -> None:
    with pytest.raises(DesignError, match=r"mapping.decode.attention: attention on groups supports static batches"):
        asked("chip=npu64", "model=qwen3_1b7", "workload=serving", "+mapping.decode.attention.dataflow=flat_hw")


def test_groups_that_do_not_divide_the_pipeline_s_are_a_limit_that_says_which_do() -> None:
    for words, rows, cols in ((("mapping.both.tp=8", "mapping.both.attention.rows=3"), 2, 4),
                              (("mapping.both.tp=16", "mapping.decode.attention.cols=8"), 4, 4)):  # fmt: skip
        asked_ = question("mapping.both.placement=mesh", "mapping.both.pp=2", *words)
        worst = explain_infeasibility(asked_.base, asked_.workload)
        assert worst is not None
        each = {2: "1 or 2", 4: "1, 2 or 4"}
        assert worst.remedy == f"rows {each[rows]} and columns {each[cols]} divide a group of {rows} x {cols} cores"


def test_a_space_moves_dataflows_and_groups() -> None:
    asked_ = question(
        *FEW,
        "+space.mapping.both.attention.dataflow=choice(flash2,flat_async)",
        "+space.mapping.both.attention.rows=choice(0,1)",
    )
    columns = asked_.space.grid(0, 4)
    assert np.isfinite(evaluate(asked_.space.stack(columns), asked_.workload).columns["tpot"]).all()
