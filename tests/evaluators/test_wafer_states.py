"""States, latents and what indexers pick on wafers: what cores hold of them, and what they take and do not take."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.question import Question
from dse.evaluators import METRICS, evaluate, explain
from dse.evaluators.accounting.decode_segments import arrays_by_model
from dse.evaluators.accounting.regions import REGION_LAYOUT, phase_memory
from dse.evaluators.cost_models import READERS
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.graph.operators import MIXING, useful_flop
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.layouts.region_calls import kv_widths
from dse.evaluators.layouts.region_memory import region_core_memory
from dse.evaluators.layouts.regions import Region, region_blocks
from dse.evaluators.layouts.tensor_formats import piece_bytes
from dse.evaluators.machine.machine import mesh_program_machine
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves
from dse.space.layers import attention_reach, indexer_reach, layers, per_reach
from dse.space.model import CompressedAttention, RecurrentMixing, SparseIndexer
from dse.space.workload import Workload
from tests.contract.test_one_transcription import weights
from tests.samples import asked

STATE = "{{recurrence:{{rule:{},heads:16,key_heads:8,key_dim:128,value_dim:128,conv:{}}}}}"
LATENT = "{latent:{q_rank:768,kv_rank:512,nope_dim:128,rope_dim:64,v_dim:128}}"
PICKED = "{latent:{q_rank:768,kv_rank:512,nope_dim:128,rope_dim:64,v_dim:128},indexer:{heads:16,dim:64,top:256}}"
SPARSE = (
    "{head_dim:128,kv_heads:1,qk_norm:false,window:128,compressed:{ratio:4,q_rank:512,o_rank:512,groups:4},"
    "indexer:{heads:16,dim:64,top:64}}"
)
HEAVY = "{head_dim:128,kv_heads:1,qk_norm:false,window:128,compressed:{ratio:128,q_rank:512,o_rank:512,groups:4}}"
RULES = ("delta", "channel_delta", "ssd", "linear")
SMALL = ("workload.prompt=96", "workload.output=8", "mapping.prefill.rows=24", "mapping.decode.rows=32")


def of_kinds(order: str, *words: str, conv: int = 4, **kinds: str) -> Question:
    """A model of 28 layers, of some kinds beside full attention, on a wafer."""
    kinds_text = ",".join(
        f"{name}:{kind.replace('CONV', str(conv))}" for name, kind in ({"full": "{}"} | kinds).items() if name in order
    )
    return asked(
        "chip=wse2", "model=qwen3_1b7", f"+model.qwen3_1b7.order='{order}'", f"+model.qwen3_1b7.kinds={{{kinds_text}}}",
        "model.max_position=65536", "workload.batch=[1]", "workload.prompt=2048", "workload.output=128", *words,
    )  # fmt: skip


def state(rule: str = "delta", conv: int = 4) -> str:
    return STATE.format(rule, conv)


@cache
def of_any() -> Question:
    """A model on a wafer."""
    return asked("chip=wse2", "model=qwen3_1b7", "workload.batch=[1]", "workload.prompt=64", "workload.output=8")


def columns(question: Question, **options: str) -> dict[str, float]:
    columns = evaluate(stack_designs([question.base]), question.workload, **options).columns
    return {name: float(column[0]) for name, column in columns.items()}


def seconds(instance: Question, phase: str, *names: str) -> float:
    """Of some kernels of a phase."""
    rows = explain(instance.base, instance.workload.cases[0]).rows
    return sum(row.seconds for row in rows if row.phase == phase and row.operator in names)


def core(question: Question, mesh: CoreMesh, *, scores: bool = False, **counts: Any) -> Any:
    """What a core of a region of all layers holds."""
    model = question.workload.cases[0].model
    return region_core_memory(
        model, Region(mesh, 1.0, model.layers, model.layers, 1.0, model.layers), question.base.mapping, scores=scores, **counts
    )[0]


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 9), st.booleans(), st.sampled_from([0, 4]))
@settings(max_examples=25, deadline=None)
def test_states_are_single_precision_evenly_over_the_rows_of_their_columns(
    rows: int, cols: int, sequences: int, scores: bool, conv: int
) -> None:
    kinds = of_kinds("7 (3 state, full)", state=state(conv=conv))
    values, mixed = -(-16 * 128 // cols), -(-(2 * 8 * 128 + 16 * 128) // cols)
    state_bytes = 4 * -(-128 * values // rows) + 2 * 3 * mixed * (conv > 0)
    found_core = core(kinds, CoreMesh(rows, cols), scores=scores, tokens=1.0, cached=0.0, sequences=float(sequences))
    assert found_core.states == pytest.approx(sequences * 21 * state_bytes, rel=1e-12)
    assert found_core.per_sequence * sequences == pytest.approx(found_core.states, rel=1e-12)


def test_all_cores_together_hold_each_state_once() -> None:
    kinds = of_kinds("7 (3 state, full)", state=state(conv=0))
    assert core(kinds, CoreMesh(64, 32), tokens=1.0, cached=0.0).states * 64 * 32 == 21 * 16 * 128 * 128 * 4


def test_a_batch_has_a_state_for_each_request() -> None:
    words = ("mapping.both.rows=360", "mapping.both.regions=1")
    single, many = (of_kinds("28 state", *words, f"workload.batch=[{n}]", state=state()) for n in (1, 8))
    used = [columns(question)["sram_used"] for question in (single, many)]
    per = core(single, CoreMesh(360, 360), tokens=1.0, cached=0.0).per_sequence
    assert used[1] == pytest.approx(used[0] + 7 * per, abs=1.0)


@pytest.mark.parametrize("rule", ["delta", "channel_delta", "ssd", "linear"])
def test_a_token_of_states_takes_as_long_whatever_came_before(rule: str) -> None:
    short, long = (of_kinds("28 state", f"workload.prompt={n}", state=state(rule)) for n in (512, 30000))
    assert columns(short)["tpot"] == pytest.approx(columns(long)["tpot"], rel=1e-12)
    kinds = of_kinds("7 (3 state, full)", "workload.prompt=30000", state=state(rule))
    assert columns(kinds)["tpot"] > columns(of_kinds("7 (3 state, full)", state=state(rule)))["tpot"]


def ordered(question: Question, order: str) -> Workload:
    """The case of a question, of a model of the same kinds in another order."""
    (case,), names = question.workload.cases, order.replace(",", "").split()
    kinds = tuple((name, kind) for name, kind in case.model.kinds if name in names)
    return Workload("", (replace(case, model=replace(case.model, order=order, kinds=kinds)),))


@pytest.mark.sampled
@pytest.mark.parametrize("rule", ["delta", "channel_delta", "ssd", "linear"])
@pytest.mark.parametrize(("states", "prompt"), [(1, 100), (13, 2000), (27, 9000)])
def test_a_hybrid_is_between_its_pure_forms(rule: str, states: int, prompt: int) -> None:
    kinds = of_kinds("27 state, full", f"workload.prompt={prompt}", "mapping.both.regions=1", state=state(rule))
    metrics = []
    for order in ("28 full", f"{states} state, {28 - states} full", "28 state"):
        outcome = evaluate(stack_designs([kinds.base]), ordered(kinds, order)).columns
        ends = seconds(replace(kinds, workload=ordered(kinds, order)), "decode", "head", "final_norm")
        metrics.append({"ttft": outcome["ttft"][0], "tpot": outcome["tpot"][0], "ends": ends})
    assert metrics[0]["ends"] == metrics[2]["ends"]
    for name in ("ttft", "tpot"):
        low, high = sorted((metrics[0][name], metrics[2][name]))
        assert low * (1 - 1e-9) <= metrics[1][name] <= high * (1 + 1e-9), name
        share = states / 28
        assert metrics[1][name] == pytest.approx((1 - share) * metrics[0][name] + share * metrics[2][name], rel=1e-9), name


@pytest.mark.sampled
@given(
    st.sampled_from(RULES), st.sampled_from([1, 2, 8]), st.integers(1, 9), st.integers(1, 300), st.integers(1, 300),
    st.sampled_from([1, 16, 64, 256]), st.integers(1, 3000), st.sampled_from(["prefill", "decode"]), st.integers(1, 700),
    st.integers(1, 700),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_products_of_states_of_any_shape_are_those_of_the_graph_or_more(
    rule: str, shared: int, heads: int, key: int, value: int, chunk: int, tokens: int, phase: str, rows: int, cols: int
) -> None:
    question = of_any()
    dims = {"key_heads": heads, "key_dim": key, "value_dim": value}
    recurrence = RecurrentMixing(rule=rule, heads=shared * heads, **dims, conv=4, chunk=chunk)
    model = replace(question.workload.cases[0].model, recurrence=recurrence)
    tokens = max(tokens, chunk)  # the graph counts shorter prompts as a share of a chunk
    at = StepCounts(phase, float(tokens), 1.0 if phase == "prefill" else float(tokens), 0.0, 0.0)
    (part, *_) = (part for part in transformer_segments(model, at) if part.kind == MIXING)
    (block,) = (
        block
        for block in region_blocks(model, at, Region(CoreMesh(rows, cols), 1.0, 28, 28, 1.0, 28), question.base.mapping)
        if block.name == part.name
    )
    assert sum(call.flop for call in block.calls) == pytest.approx(sum(map(useful_flop, part.operators)), rel=1e-9)
    machine = mesh_program_machine(question.base.chip)
    for call in block.calls:
        kernel = call.kernel
        assert kernel is not None
        if kernel.algorithm == "meshgemm":  # a projection, on sides that may have little in common
            continue
        done = READERS["analytical"].kernel(kernel, machine)
        assert done.seconds >= 0
        assert done.activity.elements >= 0
        if call.flop:
            work = done.activity.macs + done.activity.elements
            assert 2 * work * kernel.times * kernel.copies >= call.flop * (1 - 1e-9), call.name


def test_rules_that_correct_nothing_have_a_shorter_chain() -> None:
    taken = {rule: columns(of_kinds("28 state", state=state(rule)))["ttft"] for rule in ("delta", "ssd")}
    assert taken["ssd"] < taken["delta"]


@pytest.mark.slow
@given(st.integers(1, 20000), st.integers(1, 20000))
@settings(max_examples=15, deadline=None)
def test_a_longer_prompt_never_has_a_shorter_chain(first_length: int, other: int) -> None:
    kinds = [of_kinds("28 state", f"workload.prompt={max(n, 2)}", state=state()) for n in sorted((first_length, other))]
    names = ("state_read_keys", "state_correct", "state_decay_sum")
    assert seconds(kinds[0], "prefill", *names) <= seconds(kinds[1], "prefill", *names) * 1.5


@pytest.mark.parametrize(
    ("order", "kinds"),
    [
        ("7 (3 state, full)", {"state": state()}),
        ("28 state", {"state": state("channel_delta")}),
        ("28 state", {"state": state("ssd")}),
        ("28 latent", {"latent": LATENT}),
        ("28 full", {"full": "{v_dim:64}"}),
    ],
)
def test_kernels_played_are_near_their_closed_forms(order: str, kinds: dict[str, str]) -> None:
    given_kinds = of_kinds(order, *SMALL, **kinds)
    closed, played = columns(given_kinds), columns(given_kinds, fidelity="events")
    for name in ("ttft", "tpot", "energy"):
        assert closed[name] == pytest.approx(played[name], rel=0.1), name


@pytest.mark.parametrize(("order", "kinds"), [("28 sparse", {"sparse": SPARSE}), ("28 heavy", {"heavy": HEAVY})])
def test_compressed_attention_played_is_near_its_closed_form(order: str, kinds: dict[str, str]) -> None:
    given_kinds = of_kinds(order, *SMALL, "workload.prompt=384", **kinds)
    closed, played = columns(given_kinds), columns(given_kinds, fidelity="events")
    for name in ("ttft", "tpot", "energy"):
        assert closed[name] == pytest.approx(played[name], rel=0.1), name
    each = (explain(given_kinds.base, given_kinds.workload.cases[0], fidelity=word).rows for word in ("analytical", "events"))
    for row, other in zip(*each, strict=True):
        assert row.seconds == pytest.approx(other.seconds, rel=0.15), row.operator


@pytest.mark.sampled
@pytest.mark.parametrize(("order", "kinds"), [("7 (3 state, full)", {"state": state()}), ("28 picked", {"picked": PICKED})])
def test_each_kernel_played_is_near_its_closed_form(order: str, kinds: dict[str, str]) -> None:
    given_kinds = of_kinds(order, *SMALL, **kinds)
    closed, played = (
        explain(given_kinds.base, given_kinds.workload.cases[0], fidelity=word).rows for word in ("analytical", "events")
    )
    for row, other in zip(closed, played, strict=True):
        assert row.seconds == pytest.approx(other.seconds, rel=0.15), row.operator


@pytest.mark.parametrize(("order", "kinds"), [("7 (3 state, full)", {"state": state()}), ("28 picked", {"picked": PICKED})])
def test_weights_from_the_edge_are_read_once_a_step(order: str, kinds: dict[str, str]) -> None:
    words = ("chip=wse2_hbm", "mapping=waferllm_prefetch", "chip.core.sram='6 KiB'", "workload.prompt=512", "workload.output=8")
    given_kinds = of_kinds(order, *words, **kinds)
    (job,) = arrays_by_model(given_kinds.workload)
    parts = [
        part for part in transformer_segments(job.model, StepCounts("decode", 1.0, 1.0, 1.0, 1.0)) if part.name != "embedding"
    ]
    read = 2 * weights(parts) * max(float(part.away) for part in phase_memory(given_kinds.base, job, "decode"))
    decode = REGION_LAYOUT.phases(given_kinds.base, job, "analytical")[1]
    assert decode.activity is not None
    assert np.max(decode.activity.memory_bytes) == pytest.approx(read * float(np.sum(job.steps)), rel=1e-9)
    assert read > 0


def varied(base: Design) -> list[Design]:
    rng, designs = np.random.default_rng(4), []
    for _ in range(8):
        sides = {"mapping.prefill.rows": int(rng.integers(3, 751)), "mapping.decode.rows": int(rng.integers(3, 751))}
        designs.append(replace_leaves(base, {**sides, "mapping.decode.cols": int(rng.choice([0, 120, 360]))}))
    return designs


KINDS = [("7 (3 state, full)", {"state": state()}), ("28 latent", {"latent": LATENT}), ("28 picked", {"picked": PICKED})]
KINDS += [("9 (2 sparse, heavy), full", {"sparse": SPARSE, "heavy": HEAVY})]


@pytest.mark.sampled
@pytest.mark.parametrize(("order", "kinds"), KINDS)
@pytest.mark.parametrize("batch", ["[1]", "[3,8]"])
def test_a_batch_of_designs_is_its_singles(order: str, kinds: dict[str, str], batch: str) -> None:
    given_kinds = of_kinds(order, f"workload.batch={batch}", **kinds)
    designs = varied(given_kinds.base)
    many = evaluate(stack_designs(designs), given_kinds.workload)
    for row, design in enumerate(designs):
        evaluation = evaluate(stack_designs([design]), given_kinds.workload)
        for name in METRICS:
            assert many.columns[name][row] == pytest.approx(evaluation.columns[name][0], rel=1e-12, nan_ok=True), name
        assert many.limit[row] == evaluation.limit[0]


@pytest.mark.parametrize(("order", "kinds"), KINDS)
def test_the_breakdown_sums_to_the_total(order: str, kinds: dict[str, str]) -> None:
    given_kinds = of_kinds(order, "workload.batch=[4]", **kinds)
    parts = explain(given_kinds.base, given_kinds.workload.cases[0])
    assert parts.seconds == pytest.approx(columns(given_kinds)["latency"], rel=1e-9)


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 5000))
@settings(max_examples=20, deadline=None)
def test_a_latent_lies_over_the_rows_once_for_all_heads(rows: int, cols: int, tokens: int) -> None:
    kinds = of_kinds("28 latent", latent=LATENT)
    found_core = core(kinds, CoreMesh(rows, cols), tokens=1.0, cached=-1.0, across=float(tokens))
    assert found_core.kv == pytest.approx(28 * 2 * -(-576 // rows) * tokens, rel=1e-12)


def test_latents_leave_room_for_more_tokens_than_heads_do() -> None:
    latent, heads = (of_kinds(order, latent=LATENT) for order in ("28 latent", "28 full"))
    assert columns(latent)["kv_capacity"] > 1.5 * columns(heads)["kv_capacity"]


def test_narrower_values_take_less_of_all() -> None:
    wide, narrow = (of_kinds("28 full", full=kind) for kind in ("{}", "{v_dim:64}"))
    before, after = columns(wide), columns(narrow)
    for name in ("ttft", "tpot", "sram_used"):
        assert after[name] < before[name], name
    assert after["kv_capacity"] > before["kv_capacity"]


def test_attention_to_what_is_picked_takes_no_longer_where_more_is_cached() -> None:
    names = ("scores", "softmax", "values")
    short, long = (of_kinds("28 picked", f"workload.prompt={n}", picked=PICKED) for n in (1000, 20000))
    assert seconds(short, "decode", *names) == pytest.approx(seconds(long, "decode", *names), rel=1e-9)
    assert seconds(short, "decode", "index_scores") < seconds(long, "decode", "index_scores")
    dense = of_kinds("28 latent", "workload.prompt=20000", latent=LATENT)
    assert seconds(long, "decode", *names) < seconds(dense, "decode", *names)


SERVING = ("workload=serving", "workload.requests=40")


@pytest.mark.parametrize(("order", "kinds"), KINDS)
def test_wafers_serve_them(order: str, kinds: dict[str, str]) -> None:
    kinds_text = ",".join(f"{name}:{kind}" for name, kind in ({"full": "{}"} | kinds).items() if name in order)
    words = ("chip=wse2", "model=qwen3_1b7", f"+model.qwen3_1b7.order='{order}'", f"+model.qwen3_1b7.kinds={{{kinds_text}}}")
    question = asked(*words, *SERVING)
    assert explain_infeasibility(question.base, question.workload) is None
    assert columns(question)["throughput"] > 0


@given(
    st.integers(1, 9), st.integers(1, 4), st.integers(1, 300), st.integers(1, 400), st.integers(0, 3).map(lambda n: 4**n),
    st.integers(1, 300), st.integers(1, 3000), st.booleans(), st.sampled_from(["prefill", "decode"]), st.integers(4, 40),
    st.integers(4, 40),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_products_of_compressed_attention_of_any_shape_are_those_of_the_graph_or_more(
    heads: int,
    groups: int,
    row: int,
    rank: int,
    ratio: int,
    window: int,
    tokens: int,
    picks: bool,
    phase: str,
    rows: int,
    cols: int,
) -> None:
    question, how = of_any(), {"q_rank": rank, "o_rank": rank, "groups": groups}
    index = SparseIndexer(heads=heads, dim=row, top=max(tokens // 3, 1)) if picks else None
    kept = CompressedAttention(ratio=ratio, **how)
    sizes = {"heads": heads * groups, "kv_heads": 1, "head_dim": row, "window": window}
    model = replace(question.workload.cases[0].model, compressed=kept, indexer=index, qk_norm=False, **sizes)
    pairs = per_reach(
        model, lambda reach: float(reach.count_pairs(tokens) if phase == "prefill" else reach.seen_positions(tokens))
    )
    count = float(tokens) if phase == "prefill" else 1.0
    at = StepCounts(phase, count, 1.0, pairs, pairs if phase == "decode" else 0.0)
    (part, *_) = (part for part in transformer_segments(model, at) if part.kind == MIXING)
    (block, *_) = region_blocks(model, at, Region(CoreMesh(rows, cols), 1.0, 28, 28, 1.0, 28), question.base.mapping, 0.0)
    assert sum(call.flop for call in block.calls) == pytest.approx(sum(map(useful_flop, part.operators)), rel=1e-9)
    machine = mesh_program_machine(question.base.chip)
    for call in block.calls:
        assert call.kernel is not None
        cost = READERS["analytical"].kernel(call.kernel, machine)
        done = 2 * cost.activity.macs * call.kernel.times * call.kernel.copies if call.kernel.kind in ("gemm", "gemv") else 0.0
        assert call.flop <= done * (1 + 1e-9) or call.kernel.kind not in ("gemm", "gemv"), call.name


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 5000))
@settings(max_examples=20, deadline=None)
def test_compressed_entries_are_kept_once_for_all_heads(rows: int, cols: int, tokens: int) -> None:
    """Rows of a window and of entries over the cores' rows, and keys of the index; positions over the columns."""
    for name, kind in (("sparse", SPARSE), ("heavy", HEAVY)):
        kinds = of_kinds(f"28 {name}", **{name: kind})
        model = kinds.workload.cases[0].model
        near = float(attention_reach(layers(model).mixings[0].of).kept_positions(tokens))
        far = float(indexer_reach(layers(model).mixings[0].of).kept_positions(tokens))
        across = per_reach(model, lambda reach: reach.kept_positions(float(tokens)))
        found_core = core(kinds, CoreMesh(rows, cols), tokens=1.0, cached=across, across=across)
        index = 2 * -(-64 // rows) * far if name == "sparse" else 0.0
        assert float(np.ravel(found_core.kv)[0]) == pytest.approx(28 * (2 * -(-128 // rows) * near + index), rel=1e-9), name


@given(
    st.sampled_from(["full", "latent", "picked"]), st.sampled_from(["fp16", "int8", "mxfp4", "nvfp4"]), st.integers(2, 200),
    st.integers(2, 200), st.integers(1, 5),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_caches_are_shifted_in_their_formats(kind: str, word: str, rows: int, cols: int, requests: int) -> None:
    """What a core sends of a position are the bytes that it holds of it, in whole 16-bit values."""
    kinds = of_kinds(f"28 {kind}", **({"latent": LATENT, "picked": PICKED, "full": "{}"} if kind != "full" else {}))
    model, mapping = kinds.workload.cases[0].model, kinds.base.mapping
    leaves = replace_leaves(mapping, {"precision.kv": word, "precision.index": word})
    at = StepCounts(
        "decode",
        float(requests),
        float(requests),
        *[per_reach(model, lambda reach: requests * reach.seen_positions(900.0))] * 2,
    )
    (block, *_) = region_blocks(model, at, Region(CoreMesh(rows, cols), 1.0, 28, 28, 1.0, 28), leaves, 0.0)
    shifts = {call.name: call.kernel for call in block.calls if call.kernel is not None and call.kernel.kind == "kv"}
    assert set(shifts) == ({"kv_cache", "index_cache"} if kind == "picked" else {"kv_cache"})
    values = {"full": sum(kv_widths(model, mapping.kv_heads)), "latent": 576, "picked": 576}[kind]
    lines = cols if kind == "full" else rows
    wanted = {"kv_cache": piece_bytes(word, -(-values // lines)), "index_cache": piece_bytes(word, -(-64 // lines))}
    for name, kernel in shifts.items():
        assert requests * kernel.shape.k / lines == requests * -(-wanted[name] // 2), name
