"""Requests served on many dies: prices are those of batches, few requests cost what they are, caches cross the links."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from dse.evaluators import evaluate, explain, fidelities
from dse.evaluators.accounting.serving_instances import multi_die as many_dies
from dse.evaluators.accounting.serving_instances import multi_die_iterations as die_iterations
from dse.evaluators.accounting.serving_instances.multi_die_iterations import (
    DiePool,
    ReplicaWork,
    die_pools,
    useful_operations_of,
    whole_iteration,
)
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.serving.kv_memory import request_memory
from dse.space.design import Design, stack_designs
from tests.samples import asked, load_of, metrics

pytestmark = pytest.mark.usefixtures("flat_stack")

TILES = ("chip=wafer64", "chip.dies.rows=2", "chip.dies.cols=4", "chip.mesh.rows=8", "chip.mesh.cols=8", "chip.hbm.channels=8")
BOXES = ("chip=h800_ep", "chip.dies.rows=2", "chip.dies.cols=4", "chip.nodes.size=4")
SERVED = ("workload=serving", "workload.requests=24", "workload.rate='30 Hz'", "workload.prompt=256", "workload.output=16")
FEW = ("mapping.serving.max_batch_size=64", "mapping.serving.max_batched_tokens=2048")
MODELS = tuple(f"model={name} model.{name}.layers=3" for name in ("deepseek_v2_lite", "qwen3_1b7", "qwen3_30b_a3b"))
LATENT = tuple(MODELS[0].split())


def split(tp: int, pp: int, ep: int, **others: object) -> tuple[str, ...]:
    return tuple(f"mapping.both.{name}={value}" for name, value in {"tp": tp, "pp": pp, "ep": ep, **others}.items())


def seconds(words: tuple[str, ...], **made_of: float) -> float:
    """Of an iteration of the one pool."""
    design, load = load_of(*words)
    names = ("prompt", "prompt_context", "decodes", "context", "spilled")
    (pool,) = die_pools(design, load)
    pricing = many_dies.iteration_time_function(design, load, pool, "analytical")
    return float(np.squeeze(pricing(*(np.array([made_of.get(name, 0.0)]) for name in names))))


def batch(words: tuple[str, ...], count: int, prompt: int, output: int = 2) -> dict[str, float]:
    lengths = (f"workload.batch=[{count}]", f"workload.prompt={prompt}", f"workload.output={output}")
    return metrics(*words, *lengths, "workload.speculation=none")


@pytest.mark.sampled
@pytest.mark.parametrize("chip", [TILES, BOXES])
@given(
    model=st.sampled_from(MODELS), tp=st.sampled_from([1, 2]), pp=st.sampled_from([1, 2]), ep=st.sampled_from([1, 2, 4]),
    each=st.integers(1, 9), prompt=st.integers(2, 900), overlap=st.sampled_from(["none", "two_batch"]),
)  # fmt: skip
@settings(max_examples=5)
def test_iterations_take_what_steps_of_batches_take(
    chip: tuple[str, ...], model: str, tp: int, pp: int, ep: int, each: int, prompt: int, overlap: str
) -> None:
    """Requests that are spread evenly: one step of decode, and the prompts of a micro-batch."""
    ep = ep if ep > tp and "qwen3_1b7" not in model else 1
    copies = max(tp, ep) // tp * (2 if overlap == "two_batch" else 1)
    split_words = (*model.split(), *split(tp, pp, ep, overlap=overlap))
    count = each * copies
    in_one = batch((*chip, *split_words, "mapping.both.dp=1", "mapping.both.microbatches=1"), count, prompt)
    served = (*chip, *split_words, *SERVED, *FEW)
    found_seconds = seconds(served, prompt=count * prompt, prompt_context=(prompt + 1) / 2)
    assert found_seconds == pytest.approx(in_one["ttft"], rel=1e-9)
    assert seconds(served, decodes=count, context=prompt + 1) == pytest.approx(in_one["tpot"], rel=1e-9)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("model", "split_words", "others"),
    [
        (
            "deepseek_v3",
            split(1, 1, 8),
            ("mapping.both.overlap=two_batch", "workload.speculation={tokens: 1, acceptance: 0.7}"),
        ),
        (
            "deepseek_v2_lite",
            split(2, 2, 4),
            ("+model.deepseek_v2_lite.experts.load=even", "mapping.both.all_to_all=nearest_replica"),
        ),
        ("qwen3_30b_a3b", split(1, 1, 4), ("mapping.both.attention_dies=4", "mapping.both.all_to_all=direct")),
        ("qwen3_30b_a3b", split(1, 1, 8), ("+model.qwen3_30b_a3b.experts.skew=0.8", "mapping.both.all_to_all=hierarchical")),
        ("deepseek_v2_lite", split(1, 1, 8), ("+model.deepseek_v2_lite.experts.load=sampled",)),
        ("gpt_oss_20b", split(4, 2, 1), ()),
        ("qwen3_next_80b_a3b", split(2, 1, 4), ()),
    ],
)
def test_a_table_by_arrays_is_that_of_iterations_one_by_one(
    model: str, split_words: tuple[str, ...], others: tuple[str, ...]
) -> None:
    design, load = load_of(*BOXES, f"model={model}", *split_words, *others, *SERVED, *FEW)
    (pool,) = die_pools(design, load)
    draw = np.random.default_rng(len(model) + len(others))
    tokens, decodes = draw.integers(0, 900, 12), draw.integers(0, 70, 12) * draw.integers(0, 2, 12)
    counts = tokens, np.maximum(tokens / draw.integers(1, 9, 12), 1.0), decodes, draw.integers(1, 900, 12), np.zeros(12)
    alone = die_iterations.part_time_tables(design, load, pool, partial(_one_by_one, design, pool))(*counts)
    seconds = many_dies.iteration_time_function(design, load, pool, "analytical")(*counts)
    np.testing.assert_allclose(seconds, alone, rtol=1e-12)  # powers of arrays and of numbers may differ in their last bit


def _one_by_one(design: Design, pool: DiePool, many: Sequence[ReplicaWork | None]) -> list[float]:
    return [0.0 if work is None else many_dies._run_work(design, pool, "analytical", work).seconds(work[1]) for work in many]


@pytest.mark.parametrize("chip", [TILES, BOXES])
@pytest.mark.parametrize("model", MODELS[::2])
def test_few_requests_take_what_they_are(chip: tuple[str, ...], model: str) -> None:
    """One prompt on four copies of attention: no less than on the one that has it, less than one on each of them."""
    words = (*chip, *model.split(), *split(1, 1, 4), *SERVED, *FEW)
    single_seconds, four = (seconds(words, prompt=n * 512, prompt_context=256.5) for n in (1, 4))
    assert 0.2 * four < single_seconds < four
    rising = [seconds(words, decodes=count, context=300.0) for count in (1, 2, 4, 5, 8, 64)]
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(rising))
    both = seconds(words, prompt=2048, prompt_context=256.5, decodes=8, context=300.0)
    alone = seconds(words, prompt=2048, prompt_context=256.5), seconds(words, decodes=8, context=300.0)
    assert max(alone) < both <= sum(alone) * (1 + 1e-9)


@pytest.mark.parametrize("chip", [TILES, BOXES])
def test_rows_add_up_and_stages_share_the_time(chip: tuple[str, ...]) -> None:
    design, load = load_of(*chip, *LATENT, *split(1, 2, 4), *SERVED, *FEW)
    (instance,) = many_dies.MultiDieServing().instances(design, load, "analytical")
    assert len(instance.shares) == 2
    assert sum(instance.shares) == pytest.approx(1)
    explanation = explain(design, load)
    columns = evaluate(stack_designs([design]), asked(*chip, *LATENT, *split(1, 2, 4), *SERVED, *FEW).workload).columns
    span = 24 / columns["request_throughput"][0]
    assert explanation.seconds == pytest.approx(span, rel=1e-9)
    made_of = (1024.0, 128.5, 8.0, 300.0, 0.0)
    rows = many_dies.MultiDieServing().iteration_rows(design, load, 0, 3.0, made_of, "analytical")
    whole = useful_operations_of(whole_iteration(load, made_of))
    assert sum(row.flop for row in rows) == pytest.approx(3 * whole, rel=1e-9)
    priced = float(np.squeeze(instance.pricing(*(np.array([value]) for value in made_of))))
    assert sum(row.seconds for row in rows) == pytest.approx(3 * priced, rel=1e-3)  # tables have what decodes add for itself
    assert {"dispatch", "combine", "to the next stage"} <= {row.operator for row in rows}


@pytest.mark.sampled
@pytest.mark.parametrize(("chip", "link"), [(TILES, "chip.d2d.bandwidth"), (BOXES, "chip.nodes.bandwidth")])
def test_caches_cross_links_between_dies(chip: tuple[str, ...], link: str) -> None:
    """From instances that prefill on the first row to those that decode on the second; wider links are never slower."""
    words = (*chip, *LATENT, *split(1, 1, 4), *SERVED, "mapping.serving.prefill_instances=1", *FEW)
    slow, usual = (metrics(*words, f"{link}='{gbs} GB/s'") for gbs in (1, 50))
    assert usual["latency"] < slow["latency"]
    design, load = load_of(*words, f"{link}='1 GB/s'")
    path = many_dies.MultiDieServing().kv_path(design, load)
    held, _ = many_dies.MultiDieServing().instances(design, load, "analytical")
    assert path.channels == 4
    # a copy on one die sends its cache by a port of its own where there are boxes; rows of a mesh share their columns' links
    assert path.seconds.request_bytes(256) == pytest.approx(held.room.request_bytes(256) / 1e9, rel=1e-9)
    assert path.latency > 0


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 1), (4, 1), (4, 4), (2, 4)])
def test_what_takes_a_cache_is_sent_what_it_holds(model: str, before: int, after: int) -> None:
    """A cache goes to dies of the network's port each: of dies that all have a latent, or a head, one sends it."""
    parts = "deepseek_v2_lite" in model or "30b" in model
    plans = {"prefill.tp": before, "prefill.ep": 4 if parts else 1, "decode.tp": after, "decode.ep": 4 if parts else 1}
    words = (f"mapping.{name}={value}" for name, value in plans.items())
    design, load = load_of(*BOXES, *model.split(), *words, *SERVED, "mapping.serving.prefill_instances=1", *FEW)
    room = many_dies.MultiDieServing().kv_path(design, load).seconds
    _, pool = die_pools(design, load)
    held = request_memory(load.model, many_dies._tightest_stage(design, load, pool).kv).request_bytes(256)
    port = design.chip.nodes.bandwidth * many_dies.served_die(design).kind.reached(design.mapping)
    leaving = max(after / before, 1.0)  # a die that sends to several shares its port among these
    assert room.request_bytes(256) == pytest.approx(held * leaving / port, rel=1e-9)


REFUSED = {
    "mapping.both.dp=2": "mapping.serving.instances",
    "mapping.both.microbatches=2": "microbatches=0",
    "mapping.serving.instances=3": "reduce mapping.serving.instances",
    "mapping.both.pp=2 mapping.serving.admission=chunk": "mapping.serving.admission=prompt",
    "mapping.both.ep=3": "ep",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_laid_out_says_what_can(words: str) -> None:
    question = asked(*BOXES, *LATENT, *split(1, 1, 4), *SERVED, *words.split())
    worst = explain_infeasibility(question.base, question.workload)
    assert worst is not None
    assert REFUSED[words] in worst.remedy


def test_guesses_have_rows() -> None:
    """More rows a step, fewer steps."""
    words = (*BOXES, "model=deepseek_v3", "model.deepseek_v3.layers=4", *split(1, 1, 8), *SERVED, *FEW)
    plain, guessed = (
        metrics(*words, f"workload.speculation={speculation}") for speculation in ("none", "{tokens: 1, acceptance: 1.0}")
    )
    assert guessed["tpot"] < plain["tpot"]


def test_a_load_on_played_iterations_is_near_that_on_formulas() -> None:
    words = (
        "chip=h800_ep", "chip.dies.rows=2", "chip.dies.cols=4", "chip.nodes.size=4", "model=deepseek_v2_lite",
        "model.deepseek_v2_lite.layers=4", "mapping.both.ep=8", "workload=serving", "workload.requests=6",
        "workload.prompt=300", "workload.output=8",
    )  # fmt: skip
    question = asked(*words)
    assert fidelities(question.base, question.workload) == ("steady_state", "analytical", "events")
    times = [
        evaluate(stack_designs([question.base]), question.workload, fidelity=word).columns["tpot"][0]
        for word in ("analytical", "events")
    ]
    assert times[0] == pytest.approx(times[1], rel=0.1)
    assert times[0] != times[1]
