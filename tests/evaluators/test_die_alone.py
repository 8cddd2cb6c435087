"""Attention and collectives of dies by themselves, and in models: priced by parts of a stack, or by flat rates as before."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.serving_instances.tensor_parallel import TensorParallelServing
from dse.evaluators.kernels.library.node_collectives import NodeGroup, all_to_all_seconds, one_shot_seconds, ring_seconds
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.libraries.node_collectives import AllToAll, OneShotAllreduce, RingCollectives, SwitchAllreduce
from tests.samples import asked, load_of, metrics

share, seconds = st.floats(0.01, 1.0), st.floats(0.0, 1e-4)
a_ring = st.builds(
    RingCollectives,
    start=seconds,
    step=seconds,
    low=share,
    middle_start=seconds,
    middle=share,
    bulk_start=seconds,
    bulk=share,
    switched=st.none() | st.builds(SwitchAllreduce, start=seconds, share=share),
)
lane = st.floats(1e8, 1e11)
an_exchange = st.builds(AllToAll, start=seconds, lane=lane, buffered=seconds, low=share, bulk_start=seconds, bulk=share)
a_short = st.builds(
    OneShotAllreduce,
    start=seconds,
    peer=seconds,
    reach=st.floats(1.0, 1e6),
    second=seconds,
    one=share,
    two=share,
    floor=seconds,
    call=seconds,
)
sizes, peers = st.floats(1.0, 1e9), st.sampled_from([1.0, 2.0, 4.0, 8.0])
PATTERNS = ("allreduce", "allgather", "reduce_scatter")
KERNELS = ("chip=h100", "stack=trtllm_h100")
STACK = (*KERNELS, "mapping.both.allreduce=library")
DISPATCH = "workload.pattern=dispatch"
LIBRARY, RING = (f"mapping.both.allreduce={word}" for word in ("library", "ring"))
BLOCKS = "mapping.precision.weights=fp8_128x128"
COLLECTIVE = ("workload=collective", "workload.group_axis=rectangle", "workload.root=0", "workload.pattern=allreduce")
SMALL = ("model=qwen3_1b7", "workload.batch=[2]", "workload.prompt=96", "workload.output=4")


def every(nbytes: Any, group: NodeGroup, ring: RingCollectives, swap: AllToAll, own: OneShotAllreduce) -> list[Any]:
    seconds = [ring_seconds(pattern, nbytes, group, ring) for pattern in PATTERNS] + [all_to_all_seconds(nbytes, group, swap)]
    return seconds + [one_shot_seconds(nbytes, group, own, seconds[0], recorded=recorded) for recorded in (True, False)]


@given(sizes, peers, st.floats(1.0, 4.0), st.floats(1.0, 4.0), a_ring, an_exchange, a_short)
def test_more_links_and_memory_make_no_collective_slower(
    nbytes: float, dies: float, links: float, memory: float, ring: RingCollectives, swap: AllToAll, own: OneShotAllreduce
) -> None:
    before = every(nbytes, NodeGroup(dies, 3e11, 2e12), ring, swap, own)
    after = every(nbytes, NodeGroup(dies, 3e11 * links, 2e12 * memory), ring, swap, own)
    assert all(b <= a * (1 + 1e-12) for a, b in zip(before, after, strict=True))
    assert dies > 1 or not any(before)
    more = every(1.5 * nbytes, NodeGroup(dies, 3e11, 2e12), ring, swap, own)
    assert all(b >= a * (1 - 1e-12) for a, b in zip(before, more, strict=True))


@given(sizes, a_ring, an_exchange, a_short)
def test_collectives_of_arrays_are_those_of_numbers(
    nbytes: float, ring: RingCollectives, swap: AllToAll, own: OneShotAllreduce
) -> None:
    dies, size = np.array([1.0, 2.0, 8.0]), np.array([[nbytes], [3 * nbytes]])
    together = every(size, NodeGroup(dies, 4e11, 3e12), ring, swap, own)
    for row in range(2):
        for column in range(3):
            alone = every(float(size[row, 0]), NodeGroup(float(dies[column]), 4e11, 3e12), ring, swap, own)
            np.testing.assert_allclose([batch_seconds[row, column] for batch_seconds in together], alone, rtol=1e-12)


@pytest.mark.parametrize(
    "words",
    [("mapping.both.tp=8",), ("mapping.both.tp=2", "mapping.both.prefetch=partial", "mapping.precision.kv=fp8")],
    ids=str,
)
def test_a_breakdown_of_a_whole_stack_adds_up(words: tuple[str, ...]) -> None:
    question = asked(*STACK, *SMALL, *words)
    latency = evaluate(stack_designs([question.base]), question.workload).columns["latency"][0]
    rows = explain(question.base, question.workload.cases[0]).rows
    assert sum(row.seconds for row in rows) == pytest.approx(latency, rel=1e-9)
    for row in rows:
        assert sum(row.parts.values()) == pytest.approx(row.seconds, rel=1e-9)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "words",
    [
        (*STACK, *SMALL),
        (*STACK, "model=deepseek_v2_lite", "workload.batch=[3]", "workload.prompt=70", "workload.output=3"),
        (*KERNELS, "workload=attention", "workload.causal=true", "workload.heads=16"),
        (*STACK, *COLLECTIVE, "workload.bytes=[1MB,3kB]"),
    ],
    ids=str,
)
def test_designs_are_answered_alike_alone_and_together(words: tuple[str, ...]) -> None:
    question = asked(*words)
    random = np.random.default_rng(7)
    drawn = [
        replace_leaves(
            question.base,
            {
                "mapping.prefill.tp": tp,
                "mapping.decode.tp": tp,
                "mapping.stack.prefill_attention.achieved": float(random.uniform(0.3, 1)),
                "mapping.stack.decode_attention.ramp": float(random.uniform(0, 2e-5)),
                "mapping.stack.ring_collectives.start": float(random.uniform(0, 2e-5)),
                "chip.hbm.bandwidth": float(random.uniform(1e12, 4e12)),
            },
        )
        for tp in (1, 2, 8)
    ]
    together = evaluate(stack_designs(drawn), question.workload).columns["latency"]
    alone = [evaluate(stack_designs([design]), question.workload).columns["latency"][0] for design in drawn]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_attention_by_itself_is_attention_in_a_model() -> None:
    model = ("model=llama3_8b", "workload.batch=[3]", "workload.prompt=700", "workload.output=2", "mapping.both.tp=2")
    question = asked(*STACK, *model)
    rows = [row for row in explain(question.base, question.workload.cases[0]).rows if row.operator == "attention"]
    shape = ("workload=attention", "workload.batch=3", "workload.heads=32", "workload.kv_heads=8", "mapping.both.tp=2")
    prompts = metrics(*KERNELS, *shape, "workload.causal=true", "workload.keys=[700]")["latency"]
    steps = metrics(*KERNELS, *shape, "workload.queries=1", "workload.keys=[701]")["latency"]
    for phase, expected in (("prefill", prompts), ("decode", steps)):
        assert sum(row.seconds for row in rows if row.phase == phase) == pytest.approx(32 * expected, rel=1e-9)


def test_a_launch_with_prompts_and_decodes_is_that_of_an_iteration() -> None:
    """Where prompts come in, decodes beside them are priced as tiles, not as steps of their own."""
    words = ("workload.queries=16", "workload.keys=[16]", "workload.batch=1", "workload.heads=32", "workload.kv_heads=8")
    beside = ("workload=attention", "workload.causal=true", *words, "workload.decodes=16", "workload.cached=4096")
    formats = (f"mapping.precision.{tensor}=fp16" for tensor in ("weights", "activations", "kv"))
    vllm = ("chip=rtx4090", "stack=vllm_rtx4090", "mapping.both.tp=1", *formats)
    together = metrics(*vllm, *beside)["latency"]
    assert together == pytest.approx(537e-6, rel=0.18)  # rtx4090_llama31_8b_attention.csv: 16 new tokens, 16 x 4096
    design, load = load_of(*vllm, "model=llama3_8b", "workload=serving", "mapping=serving", "workload.requests=4")
    without = replace_leaves(design, {"mapping.stack.prefill_attention": None})
    first_latency, other = (
        float(
            TensorParallelServing()
            .instances(design, load, "analytical")[0]
            .pricing(*(np.array([n]) for n in (16.0, 8.5, 16.0, 4096.0, 0.0)))[0]
        )
        for design in (design, without)
    )
    flat = metrics(*vllm, *beside, "mapping.stack.prefill_attention=null")["latency"]
    assert first_latency - other == pytest.approx(32 * (together - flat), rel=1e-6)


def test_an_exchange_with_experts_is_a_start_and_what_goes_over_links() -> None:
    """Of eight dies' copies seven eighths leave; results have a start, a share and a width of their own."""
    words = (*COLLECTIVE, "chip=h100", "stack=deepep_h100", LIBRARY)
    design = asked(*words, DISPATCH).base

    def seconds(pattern: str, size: str, tp: int, hidden: int) -> float:
        texts = (f"workload.pattern={pattern}", f"workload.bytes=[{size}]", f"mapping.both.tp={tp}")
        texts = (*texts, f"workload.hidden={hidden}")
        return float(metrics(*words, *texts)["latency"])

    links = design.chip.network.ports * design.chip.network.bandwidth
    stack = design.mapping.stack.moe_all_to_all
    for pattern, value in (("dispatch", 1 + 4 / 128), ("combine", 2)):
        start, share, through = (getattr(stack, f"{pattern}{leaf}") for leaf in ("_start", "", "_token"))
        for tp, hidden in ((2, 7168), (8, 7168), (8, 2048)):
            moved = (1 - 1 / tp) * 1e6 / (share * links)
            assert seconds(pattern, "1MB", tp, hidden) == pytest.approx(start + hidden * value / through + moved, rel=1e-9)


def test_cores_that_send_to_experts_are_a_limit_up_to_the_links() -> None:
    words = (
        *COLLECTIVE,
        "chip=h100",
        "stack=deepep_normal_h100",
        LIBRARY,
        "mapping.both.tp=8",
        "workload.bytes=[1 GB]",
        DISPATCH,
    )
    stack = asked(*words).base.mapping.stack.moe_all_to_all

    def seconds(cores: int) -> float:
        return float(metrics(*words, f"mapping.stack.moe_all_to_all.cores={cores}")["latency"]) - stack.dispatch_start

    assert seconds(8) == pytest.approx(7 / 8 * 1e9 / (8 * stack.dispatch_core), rel=1e-9)
    assert seconds(4) == pytest.approx(2 * seconds(8), rel=1e-9)
    assert seconds(60) == seconds(120) < seconds(8) / 2


@pytest.mark.parametrize("stack", ["tuned", "trtllm_h100", "deepgemm_h800"])
def test_products_by_one_call_are_one_of_as_many_weights(stack: str) -> None:
    """Their engines do what one product of all rows does; weights are read for each."""
    product = ("chip=h100", f"stack={stack}", "workload=gemm", "mapping=tensor_parallel", "mapping.decode.tp=1", BLOCKS)
    product = (*product, "mapping.precision.activations=fp8_1x128")

    def seconds(shape: str) -> float:
        return float(metrics(*product, f"workload.shapes=[{shape}]")["latency"])

    assert seconds("1x128x7168x2048") == seconds("128x7168x2048")
    few, many = seconds("1x4x7168x2048"), seconds("16x4x7168x2048")
    assert 4 * few < many < 16 * few  # memory: 16 weights, one start
    rows = seconds("4x8192x7168x2048")
    assert rows == pytest.approx(seconds("32768x7168x2048"), rel=0.05)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*COLLECTIVE, "chip=h100", "stack=nccl_h100", DISPATCH, LIBRARY), "needs mapping.stack.moe_all_to_all"),
        ((*COLLECTIVE, "chip=h100", "stack=deepep_h100", DISPATCH, RING), "needs a library; use library"),
        ((*COLLECTIVE, "chip=h100", "stack=deepep_h100", DISPATCH, LIBRARY, "workload.recorded=false"), "recorded"),
        ((*COLLECTIVE, "chip=h100", "stack=deepep_h100", DISPATCH, LIBRARY, "mapping.both.tp=16"), "across nodes"),
        (("chip=h800_ep", "model=qwen3_30b_a3b", "stack=deepep_normal_h100"), "no limit of cores"),
        ((*COLLECTIVE, "chip=tile32", "mapping=collective", DISPATCH), "dispatch needs a library"),
        (("chip=tile32", "workload=gemm", "workload.shapes=[4x64x512x512]"), "4 products in one kernel"),
        (("chip=tile_gh200", "workload=gemm", "workload.shapes=[4x64x512x512]"), "4 products in one kernel"),
        (("chip=h100", "workload=gemm", "workload.shapes=[0x64x512x512]"), "nor several of these"),
        ((*COLLECTIVE, "chip=h100", "mapping.both.allreduce=library"), "needs mapping.stack.ring_collectives"),
        ((*COLLECTIVE, "chip=h100", "stack=nccl_h100", RING), "set mapping.both.allreduce=library"),
        ((*COLLECTIVE, "chip=h100", "workload.pattern=reduce"), "workload.pattern"),
        ((*COLLECTIVE[:3], *STACK, "workload.pattern=multicast"), "for tiles only"),
        (("chip=h100", "workload=collective", "workload.pattern=allreduce"), "workload.group_axis"),
        ((*COLLECTIVE, "chip=tile32", "workload.recorded=false"), "workload.recorded"),
        (("chip=tile32", "workload=attention", "workload.causal=true", "workload.decodes=1", "workload.cached=9"), "decodes"),
    ],
    ids=str,
)
def test_what_has_no_price_is_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(DesignError, match=message):
        metrics(*words)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "leaf"),
    [
        ((*STACK, *COLLECTIVE), "prefill_attention.achieved"),
        ((*STACK, *COLLECTIVE), "network_efficiency"),
        ((*STACK, "workload=attention"), "decode_attention.hbm"),
        ((*STACK, "workload=attention"), "hbm_efficiency"),
        ((*STACK, "workload=attention"), "ring_collectives.low"),
        ((*STACK, "model=llama3_8b"), "mla_decode_attention.hbm"),
        ((*STACK, "model=llama3_8b"), "all_to_all.low"),
        (("chip=h100", "stack=trtllm_h100", "workload=gemm", "mapping=tensor_parallel"), "prefill_attention.achieved"),
    ],
    ids=str,
)
def test_knobs_that_nothing_reads_are_refused(words: tuple[str, ...], leaf: str) -> None:
    with pytest.raises(DesignError, match="has no effect"):
        asked(*words, f"+space.mapping.stack.{leaf}=choice(0.1,0.2)")
