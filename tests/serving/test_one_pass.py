"""Prompts and decodes in one iteration: products of both once, and what has a form for each by itself."""

from functools import cache
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from dse.evaluators.accounting.serving_instances import multi_die as many_dies
from dse.evaluators.accounting.serving_instances import whole_chip
from dse.evaluators.accounting.serving_instances.pipeline_fleet import pipeline_pools
from dse.evaluators.accounting.serving_instances.pipeline_pools import iteration_time_function
from dse.evaluators.accounting.serving_instances.tensor_parallel import _iteration_seconds
from dse.evaluators.cost_models import READERS
from dse.evaluators.graph.operators import MatMulOp, Segment, repeated_flop, useful_flop
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.layouts.micro_batches import IterationWork
from dse.evaluators.layouts.residency import BLOCK
from dse.evaluators.workloads.serving import serving_layout
from dse.space.fields import replace_leaves
from dse.space.model import Model
from tests.samples import asked, load_of

MODELS = ("deepseek_v2_lite", "deepseek_v3", "deepseek_v32", "kimi_k2", "qwen3_next_80b_a3b", "nemotron3_nano", "qwen3_8b")
COUNTS = st.tuples(
    st.integers(1, 4), st.integers(1, 900), st.integers(0, 4000), st.integers(1, 64), st.integers(1, 6000), st.integers(0, 2)
)
"""Prompts, new tokens of each, positions before these, requests that decode, positions that each reads, tokens guessed."""


@cache
def model_of(name: str) -> Model:
    return asked(f"model={name}").workload.cases[0].model


def parts_of(name: str, *counts: int) -> tuple[Segment, ...]:
    prompts, own, past, decodes, context, guesses = counts
    phase = "prefill" if prompts else "decode"
    work = IterationWork(model_of(name), phase, phase, prompts, own, past, decodes, float(context), guesses)
    return transformer_segments(model_of(name), work.step())


def size(operator: MatMulOp) -> int:
    """Values of a matrix."""
    return operator.k.units * operator.k.width * operator.n.units * operator.n.width


def total(parts: tuple[Segment, ...], useful_flop: Any) -> float:
    return sum(part.times * float(useful_flop(operator)) for part in parts for operator in part.operators)


@given(st.sampled_from(MODELS), COUNTS)
@settings(max_examples=150)
def test_an_iteration_is_asked_for_what_its_prompts_and_its_decodes_are(name: str, counts: tuple[int, ...]) -> None:
    """Useful operations are the sum; no product is there twice, and none stores or reads more matrices than both apart."""
    prompts, own, past, decodes, context, guesses = counts
    both, first, then = (
        parts_of(name, *counts_of_part)
        for counts_of_part in (counts, (prompts, own, past, 0, 1, guesses), (0, 0, 0, decodes, context, guesses))
    )
    assert total(both, useful_flop) == pytest.approx(total(first, useful_flop) + total(then, useful_flop), rel=1e-9)
    kept = [
        total(parts, lambda operator: operator.stored * size(operator) if isinstance(operator, MatMulOp) else 0)
        for parts in (both, first)
    ]
    assert kept[0] == kept[1]
    for part, operator, other in zip(both, first, then, strict=True):
        names = [operator.name for operator in part.operators]
        assert len(set(names)) == len(names)
        each = {
            (operator.name): operator for operator in (*operator.operators, *other.operators) if isinstance(operator, MatMulOp)
        }
        for given_operator in part.operators:
            if isinstance(given_operator, MatMulOp):
                apart = [
                    float(by.copies)
                    for by in (*operator.operators, *other.operators)
                    if by.name == given_operator.name and isinstance(by, MatMulOp)
                ]
                assert max(apart) <= given_operator.copies <= sum(apart) + 1e-9
                assert each.pop(given_operator.name)
        assert not each


@given(st.sampled_from(MODELS), st.lists(st.integers(1, 700), min_size=1, max_size=5))
@settings(max_examples=60)
def test_chunks_of_a_prompt_are_asked_together_for_what_the_prompt_is(name: str, chunks: list[int]) -> None:
    """But for their last tokens' head: what is before a chunk is expanded again, which is no useful work."""
    ends = np.cumsum(chunks).tolist()
    each = [parts_of(name, 1, chunk, end - chunk, 0, 1, 0)[:-1] for end, chunk in zip(ends, chunks, strict=True)]
    whole = parts_of(name, 1, ends[-1], 0, 0, 1, 0)[:-1]
    assert sum(total(part, useful_flop) for part in each) == pytest.approx(total(whole, useful_flop), rel=1e-9)
    before = sum(end - chunk for end, chunk in zip(ends, chunks, strict=True))
    row = total(whole, lambda operator: size(operator) if operator.name == "kv_up" else 0)
    assert sum(total(part, repeated_flop) for part in each) == pytest.approx(2.0 * before * row)
    assert not total(whole, repeated_flop)


SMALL = ("deepseek_v2_lite", "qwen3_next_80b_a3b", "nemotron3_nano", "qwen3_8b")
SERVED = ("workload=serving", "workload.speculation=none")

PADDED = 0.08
"""More that tiles take where a few decodes need slices of their own, beside prompts that fill those that there are."""

TILES = ("chip=tile_gh200", "chip.mesh.rows=8", "chip.mesh.cols=8", "chip.hbm.channels=16", "chip.hbm.capacity=4 TB")
DIES = ("chip.dies.rows=2", "chip.dies.cols=4")
CHIPS = {
    "devices": ("chip=h100",),
    "tiles": TILES,
    "dies": (*DIES, "chip=h800_ep", "chip.nodes.size=4"),
    "dies of tiles": (*DIES, "chip=wafer64", "chip.mesh.rows=8", "chip.mesh.cols=8", "chip.hbm.channels=8"),
    "pipelines": ("chip=npu64", "chip.hbm.capacity=4 TB"),
}
SPLITS = {
    "devices": ("mapping.both.tp=2",),
    "tiles": (),
    "dies": ("mapping.both.tp=2", "mapping.both.ep=4"),
    "dies of tiles": ("mapping.both.tp=2", "mapping.both.ep=4"),
    "pipelines": ("mapping.both.tp=4", "mapping.both.pp=2"),
}


@cache
def pricing(layout: str, model: str) -> Any:
    """Seconds of iterations of (prompt, prompt_context, decodes, context), numbers or arrays of shape (iterations,)."""
    experts = layout.startswith("dies") and model_of(model).experts is None
    plan = ("mapping.both.tp=2", "mapping.both.ep=1") if experts else SPLITS[layout]
    design, load = load_of(*CHIPS[layout], *plan, f"model={model}", *SERVED)

    def pricing(*made_of: Any) -> Any:
        counts = tuple(np.atleast_1d(np.asarray(count, float)) for count in made_of)
        if layout == "devices":
            return _iteration_seconds(design, load, replace_leaves(design.mapping.decode, {"tp": 2}), *counts)[:, 0]
        if layout.startswith("dies"):
            (pool,) = many_dies.die_pools(design, load)
            each = zip(*counts, np.zeros(len(counts[0])), strict=True)
            return np.array([many_dies._run_iteration(design, load, pool, work, "analytical").seconds for work in each])
        if layout == "tiles":
            return whole_chip.WholeChipServing().instances(design, load, "analytical")[0].pricing(*counts, np.zeros(1))
        (given_pool,) = pipeline_pools(design, load)
        columns = (count[:, None] for count in (*counts, np.zeros(1)))
        return np.ravel(iteration_time_function(load, given_pool, READERS["analytical"], None, 1.0)(*columns))

    return pricing


@pytest.mark.parametrize("layout", CHIPS)
@given(st.sampled_from(SMALL), COUNTS)
@settings(max_examples=15, deadline=None)
def test_an_iteration_takes_no_longer_than_its_prompts_and_then_its_decodes(
    layout: str, model: str, counts: tuple[int, ...]
) -> None:
    """Nor a shorter time than the longer of both; many at a time are as each by itself, whatever is with them."""
    _, own, past, decodes, context, _ = counts
    given_pricing, ahead = pricing(layout, model), past + (own + 1) / 2
    made_of = (own, ahead, 0, 0), (0, 0, decodes, context), (own, ahead, decodes, context)
    prompt, tokens, both = alone = [float(given_pricing(*counts_of_part)[0]) for counts_of_part in made_of]
    parts, together = (-(-tokens_of_part // BLOCK) for tokens_of_part in (own, own + decodes))
    if layout == "pipelines" and together > parts:  # cores go over weights once more, as for each block of the prompt
        tokens = max(tokens, prompt / parts)
    padded = PADDED if layout == "tiles" else 1e-9
    assert max(prompt, tokens) * (1 - 1e-9) <= both <= (prompt + tokens) * (1 + padded)
    assert given_pricing(*np.array(made_of).T).tolist() == pytest.approx(alone, rel=1e-12)


LAYOUTS = ("devices", "tiles", "dies", "dies of tiles", "wafers")


@pytest.mark.parametrize("layout", LAYOUTS)
@given(st.integers(1, 600), st.integers(0, 3000), st.integers(0, 9))
@settings(max_examples=5, deadline=None)
def test_what_was_expanded_before_is_repetition(layout: str, own: int, past: int, decodes: int) -> None:
    words = ("chip=wse2",) if layout == "wafers" else (*CHIPS[layout], *SPLITS[layout])
    design, load = load_of(*words, "model=deepseek_v2_lite", *SERVED)
    decodes *= not layout.startswith("dies")  # rows of these are shares of all that the fullest copy of attention does
    made_of = (float(own), past + (own + 1) / 2, float(decodes), 300.0, 0.0)
    rows = serving_layout(design).iteration_rows(design, load, 0, 1.0, made_of, "analytical")
    ups = [row for row in rows if row.operator == "kv_up"]
    each = 2 * 512 * 16 * (128 + 128) * 27
    assert sum(row.flop for row in ups) == pytest.approx(own * each)
    assert sum((row.excess or {}).get("repetition", 0.0) for row in ups) == pytest.approx(past * each)


@pytest.mark.parametrize(("layout", "near"), [("dies", 1e-9), ("dies of tiles", 0.01)])
@pytest.mark.parametrize("model", ["deepseek_v2_lite", "nemotron3_nano"])
def test_an_iteration_that_is_played_takes_what_the_closed_form_says(layout: str, near: float, model: str) -> None:
    words = "chip.dies.rows=1", *(("chip.mesh.rows=4", "chip.mesh.cols=4", "chip.hbm.channels=4") if "tiles" in layout else ())
    design, load = load_of(*CHIPS[layout], *words, "mapping.both.ep=4", f"model={model}", *SERVED)
    (pool,) = many_dies.die_pools(design, load)
    made_of = (1024.0, 512.5, 8.0, 600.0, 0.0)
    closed, played = (many_dies._run_iteration(design, load, pool, made_of, word).seconds for word in ("analytical", "events"))
    assert played == pytest.approx(closed, rel=near)
