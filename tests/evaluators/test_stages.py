"""Stages of a pipeline: whole layers against parts of them, on drawn lines of operators and on models."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.layouts.stage_boundaries import OperatorLine, StageCuts, cut_whole_layers, operator_line
from dse.space.array_math import Array
from dse.space.mapping import FormatPlan
from dse.space.model import Model
from tests.evaluators.test_tile_serving import SERVING, metrics
from tests.samples import asked

FP16 = FormatPlan(weights="fp16", activations="fp16", kv="fp16")

OPERATORS = 3
"""Of a layer in a drawn line; the second one has the cache."""


@st.composite
def lines(draw: st.DrawFn, *, divisible: bool = True) -> OperatorLine:
    layers = draw(st.integers(1, 6))
    count = layers * OPERATORS + 1
    amounts = st.lists(st.floats(0.1, 10), min_size=count, max_size=count).map(np.array)
    may = np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count))) & divisible
    starts = np.arange(layers + 1) * OPERATORS
    may[starts[:-1] + 1] = False
    return OperatorLine(draw(amounts)[None], draw(amounts), may, draw(amounts), draw(amounts), starts, starts[:-1] + 1)


def whole_layers(line: OperatorLine, stages: int, *, inside: bool = False, value: float = 0.0) -> StageCuts:
    return cut_whole_layers(line, np.array([stages]), np.array([value]), np.array([inside]))


def parts_of_layers(line: OperatorLine, stages: int, value: float) -> StageCuts:
    return whole_layers(line, stages, inside=True, value=value)


def seconds_of(cuts: StageCuts, line: OperatorLine, value: float) -> Array:
    return cuts.seconds(line, np.array([value]))[0]


def carried(line: OperatorLine, places: Array) -> Array:
    """Values of a token that go over each of some places."""
    crossing, result = np.append(line.crossing, 0.0), np.append(line.result, 0.0)
    at = np.floor(places).astype(int)
    return np.asarray(crossing[at] + (places - at) * result[at])


def taken(line: OperatorLine, ends: Array, value: float) -> Array:
    """Of each stage, and of what it sends on."""
    up_to = np.append(0.0, np.cumsum(line.seconds[0]))
    seconds = np.diff(np.interp(ends, np.arange(len(up_to)), up_to))
    seconds[:-1] += value * carried(line, np.asarray(ends[1:-1], float))
    return np.asarray(seconds)


def slowest(line: OperatorLine, ends: Array, value: float) -> float:
    return float(taken(line, ends, value).max())


@given(lines(), st.lists(st.integers(1, 9), min_size=2, max_size=5), st.integers(0, 10**9))
@settings(max_examples=40, deadline=None)
def test_designs_that_are_cut_together_are_what_each_is_by_itself(line: OperatorLine, counts: list[int], seed: int) -> None:
    rng, size = np.random.default_rng(seed), len(counts)
    given_line = line._replace(seconds=rng.uniform(0.1, 10, (size, len(line.weights))))
    value, inside = rng.choice([0.0, 0.01, 1.0], size), rng.random(size) < 0.7
    layers = cut_whole_layers(given_line, np.array(counts), value, inside)
    seconds = layers.seconds(given_line, value)
    for row, count in enumerate(counts):
        own = given_line._replace(seconds=given_line.seconds[row : row + 1])
        single_layers = cut_whole_layers(own, np.array([count]), value[row : row + 1], inside[row : row + 1])
        assert (layers.design_cuts(np.array([row])).ends[0, : count + 1] == single_layers.ends[0]).all()
        assert (layers.of_layer[row] == single_layers.of_layer[0]).all()
        assert [values[row] for values in layers.share] == [values[0] for values in single_layers.share]
        assert layers.carried[row] == single_layers.carried[0]
        assert seconds[row, :count] == pytest.approx(taken(own, single_layers.ends[0], value[row]), rel=1e-9)
        assert not seconds[row, count:].any()
        sent, weights = (
            carried(line, single_layers.ends[0, 1:-1]),
            taken(line._replace(seconds=line.weights[None]), single_layers.ends[0], 0.0),
        )
        assert single_layers.carried[0] == pytest.approx(sent.mean() if count > 1 else 0.0)
        assert single_layers.share.layers[0] == pytest.approx(weights.max() / weights.sum())
        assert single_layers.share.caches[0] == pytest.approx(np.bincount(single_layers.of_layer[0]).max() / len(line.caches))


@pytest.mark.sampled
@given(lines(), st.integers(1, 9), st.sampled_from([0.0, 0.01, 1.0]))
@settings(max_examples=100, deadline=None)
def test_parts_are_never_slower_than_whole_layers_and_leave_nothing_out(line: OperatorLine, stages: int, value: float) -> None:
    whole, parts = whole_layers(line, stages), parts_of_layers(line, stages, value)
    assert seconds_of(parts, line, value).max() <= seconds_of(whole, line, value).max() * (1 + 1e-9)
    for cuts in (whole, parts):
        ends = cuts.ends[0]
        assert seconds_of(cuts, line, 0.0).sum() == pytest.approx(line.seconds.sum())
        assert seconds_of(cuts, line, value).max() == pytest.approx(slowest(line, ends, value))
        assert len(ends) == stages + 1
        assert (np.diff(ends) >= 0).all()
        assert cuts.share.layers * stages >= 1 - 1e-9
        for layer, stage in enumerate(cuts.of_layer[0]):
            place = line.caches[layer]
            assert ends[stage] <= place
            assert place + 1 <= ends[stage + 1]
    for end in parts.ends[0]:
        assert end == int(end) or line.divisible[int(end)]


@pytest.mark.sampled
@given(lines(divisible=False), st.integers(2, 4), st.sampled_from([0.0, 0.5]))
@settings(max_examples=40, deadline=None)
def test_where_nothing_can_be_divided_no_other_cut_is_faster(line: OperatorLine, stages: int, value: float) -> None:
    count = len(line.weights)
    cuts = ([0, *inner, count] for few in range(1, stages + 1) for inner in combinations(range(1, count), few - 1))
    best = min(slowest(line, np.array(ends, float), value) for ends in cuts)
    seconds = seconds_of(parts_of_layers(line, stages, value), line, value).max()
    assert seconds == pytest.approx(min(best, seconds_of(whole_layers(line, stages), line, value).max()), rel=1e-6)


@given(lines(), st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_more_stages_are_never_slower(line: OperatorLine, stages: int) -> None:
    few, more = (seconds_of(parts_of_layers(line, count, 0.1), line, 0.1).max() for count in (stages, stages + 1))
    assert more <= few * (1 + 1e-6)


def by_weights(model: Model) -> OperatorLine:
    """A line whose operators take as long as their weights are many."""
    line = operator_line(model, transformer_segments(model, StepCounts("decode", 4.0, 4.0, 4e3, 4e3)), FP16)
    return line._replace(seconds=line.weights[None])


@pytest.mark.parametrize("name", ["qwen3_8b", "qwen3_30b_a3b", "deepseek_v2_lite"])
def test_a_line_has_one_cache_a_layer_and_the_residual_stream_between_layers(name: str) -> None:
    model = asked("chip=npu64", f"model={name}").workload.cases[0].model  # type: ignore[union-attr]
    line = by_weights(model)
    assert len(line.caches) == model.layers
    assert carried(line, line.layers[1:].astype(float)) == pytest.approx(np.full(model.layers, float(model.hidden)))
    assert line.crossing.min() >= 0


def test_where_layers_divide_evenly_both_are_equal_but_for_the_head() -> None:
    model = asked("chip=npu64", "model=qwen3_8b").workload.cases[0].model  # type: ignore[union-attr]
    small = replace(model, vocab=1)
    line = by_weights(small)
    for stages in (1, 2, 9, 12, 36):
        whole, parts = whole_layers(line, stages), parts_of_layers(line, stages, 0.0)
        assert seconds_of(parts, line, 0.0).max() == pytest.approx(seconds_of(whole, line, 0.0).max(), rel=1e-4)
        assert parts.share.layers == pytest.approx(whole.share.layers, rel=1e-4)
    # 36 layers and a head of 3.2 of them over 32 stages
    line = by_weights(model)
    whole, parts = whole_layers(line, 32), parts_of_layers(line, 32, 0.0)
    head = line.weights[-1] / line.weights[line.layers[0] : line.layers[1]].sum()
    assert seconds_of(whole, line, 0.0).max() / seconds_of(parts, line, 0.0).max() == pytest.approx(
        head / ((36 + head) / 32), rel=1e-3
    )


def test_parts_serve_more_where_the_head_binds() -> None:
    busy = (*SERVING, "workload.arrivals=offline", "mapping.prefill.pp=16")
    whole, parts = (metrics(*busy, f"mapping.prefill.stages={word}") for word in ("layers", "operators"))
    assert parts["throughput"] > 1.2 * whole["throughput"]
    assert parts["sram_used"] <= whole["sram_used"] * (1 + 1e-9)
