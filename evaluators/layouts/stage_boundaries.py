"""Boundaries of pipeline stages: at whole layers, between operators, or inside products.

A model is a line of operators, layer after layer; a stage is a stretch of it. A product that lies on two stages is divided by
columns of its weights: both have its input, and what the first has computed goes along. The times of operators are given.
"""

# mypy: disable-error-code="no-untyped-def"

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.graph.operators import AttentionOp, MatMulOp, RecurrenceOp, Segment
from dse.evaluators.layouts.live_activations import carried_values
from dse.evaluators.layouts.model_weights import product_bytes
from dse.evaluators.layouts.residency import StageShares
from dse.evaluators.machine.compile_cache import compiled_part, compiled_without_gil
from dse.space.array_math import Array
from dse.space.layers import layers
from dse.space.mapping import FormatPlan
from dse.space.model import Model

BISECTION_STEPS = 30
"""Of the bisection for the slowest stage: its time is found to a part in 2^30."""


class OperatorLine(NamedTuple):
    """Operators of a step in order; arrays of shape (operators,) unless stated.

    Attributes:
        seconds: of each, of each design, shape (designs, operators).
        weights: of each. [B]
        divisible: whether it may lie on two stages.
        crossing: values of a token that go from what is before an operator to it and to what is after it.
        result: values of a token that it adds to those when it is done; what goes into the residual stream adds none.
        layers: where each layer begins, and the head; shape (layers + 1,).
        caches: where each layer reads its keys and values; shape (layers,).
    """

    seconds: Array
    weights: Array
    divisible: Array
    crossing: Array
    result: Array
    layers: Array
    caches: Array


class StageCuts(NamedTuple):
    """Stage boundaries of pipelines, for each design.

    Attributes:
        counts: how many, shape (designs,).
        ends: places on the line where each begins, and where the last one ends; 0 beyond. Shape (designs, most stages + 1).
        carried: values of a token from one stage to the next, on average.
        of_layer: the stage that has the keys and values of each layer, shape (designs, layers).
        share: what the fullest stage has.
    """

    counts: Array
    ends: Array
    carried: Any
    of_layer: Array
    share: StageShares

    def design_cuts(self, rows: Array) -> "StageCuts":
        """Stage boundaries of a subset of the designs."""
        share = StageShares(*(values[rows] for values in self.share))
        return StageCuts(self.counts[rows], self.ends[rows], self.carried[rows], self.of_layer[rows], share)

    @property
    def plain(self) -> "StageCuts":
        """Stage boundaries of a single design, with numbers instead of arrays over designs."""
        if len(self.counts) > 1:
            return self
        return self._replace(carried=self.carried.item(), share=StageShares(*(values.item() for values in self.share)))

    def seconds(self, line: OperatorLine, value: Array) -> Array:
        """Time of each stage and of its message, shape (designs, most stages); 0 for missing stages. [s]"""
        seconds, done = np.zeros((len(self.counts), self.ends.shape[1] - 1)), np.zeros(len(line.weights) + 1)
        _each_taken(line, self.counts, self.ends, value, done, seconds)
        return seconds


def operator_line(
    model: Model,
    parts: tuple[Segment, ...],
    precision: FormatPlan,
    seconds: Mapping[tuple[str, str], Any] = MappingProxyType({}),
    designs: int = 1,
) -> OperatorLine:
    """Operators of a step in the order of the model's layers.

    Args:
        model, parts: of the step.
        precision: formats of weights.
        seconds: of an operator once, by part and name, a number or of shape (designs,); nothing for what is not there.
        designs: how many.
    """
    names, each, line = _ordered(model, parts, precision)
    taken = np.empty((designs, len(names)))
    for place, name in enumerate(names):
        taken[:, place] = seconds.get(name, 0.0)
    return line._replace(seconds=taken[:, each])


@lru_cache(maxsize=64)
def _ordered(
    model: Model, parts: tuple[Segment, ...], precision: FormatPlan
) -> tuple[list[tuple[str, str]], Array, OperatorLine]:
    """Operators by part and name, which of them each place of the line has, and the line, whose seconds are none."""
    named = {part.name: part for part in parts}
    names = [(part.name, operator.name) for part in parts for operator in part.operators]
    rows = [row for part in parts for row in _rows(part, model.hidden, precision)]
    first = dict(zip(named, np.cumsum([0, *(len(part.operators) for part in parts)]).tolist(), strict=False))
    reads = {
        name: next(
            (place for place, operator in enumerate(part.operators) if isinstance(operator, AttentionOp | RecurrenceOp)), 0
        )
        for name, part in named.items()
    }

    def positions(name: str) -> range:
        return range(first[name], first[name] + len(named[name].operators))

    order, starts, caches = [*positions("embedding")], list[int](), list[int]()
    for mixes, feeds in layers(model).line:
        starts.append(len(order))
        caches.append(len(order) + reads[mixes or feeds])
        for name in filter(None, (mixes, feeds)):
            order += positions(name)
    starts.append(len(order))
    order += positions("head")
    each = np.array(order)
    weights, divisible, crossing, result = np.array(rows, float)[each].T.copy()
    line = OperatorLine(np.zeros((1, len(each))), weights, divisible > 0, crossing, result, np.array(starts), np.array(caches))
    return names, each, line


def cut_whole_layers(line: OperatorLine, stages: Array, value: Array, inside: Array) -> StageCuts:
    """Stage boundaries at whole layers, or inside layers where the slowest stage is then faster.

    Of whole layers each stage has as many; the last ones have what is left, and the very last one the head. Of parts of layers
    the slowest stage takes least, with what it sends on; never more than with whole layers. Stages are filled as far as they go
    within a time, which bisection makes as short as can be.

    Args:
        line: of a step that is typical, seconds of each design.
        stages: how many.
        value: to send a value of each token to the next stage. [s]
        inside: whether layers are divided.

    All but the line are of shape (designs,).
    """
    size, most, count = len(stages), int(stages.max()) + 1, len(line.weights)
    ends, of_layer, cuts = np.zeros((size, most)), np.zeros((size, len(line.caches)), np.int64), np.zeros((3, size))
    _each_cut(line, stages, value, inside, np.zeros((3, count + 1)), np.zeros((2, most)), ends, of_layer, cuts)
    carried, fullest, caches = cuts
    return StageCuts(stages, ends, carried, of_layer, StageShares(fullest, fullest, caches))


@compiled_without_gil
def _each_cut(line, stages, value, inside, room, tried, ends, of_layer, summary):
    """What `cut_whole_layers` finds of each design: ends, the stage of each layer, and values sent on, the fullest stage and
    its caches.

    Args:
        line, stages, value, inside: as of `cut_whole_layers`.
        room, tried: to work in, shapes (3, operators + 1) and (2, most stages + 1).
        ends, of_layer, found: written, shapes (designs, most stages + 1), (designs, layers) and (3, designs).
    """
    done, sending, slope = room
    count, layers = len(line.weights), len(line.caches)
    for row in range(len(stages)):
        many = stages[row]
        mine, taken = ends[row, : many + 1], tried[0, :many]
        for stage in range(1, many):
            mine[stage] = line.layers[min(stage * -(-layers // many), layers)]
        mine[many] = count
        if inside[row]:
            _summed(line.seconds[row], done)
            _taken(line, done, mine, value[row], taken)
            for place in range(count):
                sending[place] = value[row] * line.crossing[place]
                slope[place] = max(line.seconds[row, place] + value[row] * line.result[place], 1e-30)
            most = taken[0]
            for stage in range(1, many):
                most = max(most, taken[stage])
            _bisected(done, line.divisible, sending, slope, most, tried[1, : many + 1], mine)
        _summed(line.weights, done)
        sent = fullest = whole = 0.0
        for stage in range(many):
            weights = _up_to(done, mine[stage + 1]) - _up_to(done, mine[stage])
            fullest, whole = max(fullest, weights), whole + weights
            if stage > 0:
                sent += _carried_over(line, mine[stage])
        stage = stage_layers = most_here = 0
        for layer in range(layers):
            while stage < many - 1 and mine[stage + 1] <= line.caches[layer]:
                stage, stage_layers = stage + 1, 0
            of_layer[row, layer] = stage
            stage_layers += 1
            most_here = max(most_here, stage_layers)
        summary[0, row] = sent / (many - 1) if many > 1 else 0.0
        summary[1, row], summary[2, row] = fullest / whole, most_here / layers


@compiled_without_gil
def _each_taken(line, stages, ends, value, done, seconds):
    """Seconds of stages, as `StageCuts.seconds` has them, of each design; `done` is to work in, shape (operators + 1,)."""
    for row in range(len(stages)):
        _summed(line.seconds[row], done)
        _taken(line, done, ends[row, : stages[row] + 1], value[row], seconds[row])


@compiled_part
def _taken(line, done, ends, value, seconds):
    """Seconds of each stage, and of what it sends on, at some seconds a value."""
    for stage in range(len(ends) - 1):
        seconds[stage] = _up_to(done, ends[stage + 1]) - _up_to(done, ends[stage])
        if stage < len(ends) - 2:
            seconds[stage] += value * _carried_over(line, ends[stage + 1])


@compiled_part
def _summed(amounts, sums):
    """Of the operators before each one and of all."""
    sums[0] = 0.0
    for place in range(len(amounts)):
        sums[place + 1] = sums[place] + amounts[place]


@compiled_part
def _up_to(done, end):
    """Of the operators before a place, of sums as of `_summed`."""
    first, count = int(end), len(done) - 1
    return done[count] if first >= count else (done[first + 1] - done[first]) * (end - first) + done[first]


@compiled_part
def _carried_over(line, end):
    """Values of a token that go over a place."""
    at = int(end)
    return line.crossing[at] + (end - at) * line.result[at] if at < len(line.crossing) else 0.0


@compiled_part
def _bisected(done, divisible, sending, slope, most, tried, ends):
    """Ends of stages that take less than a time, for the least that is found, if any is; arguments as of `_filled`."""
    least = 0.0
    for _ in range(BISECTION_STEPS):
        bound = (least + most) / 2
        if _filled(done, divisible, sending, slope, bound, tried):
            most = bound
            for place in range(len(ends)):
                ends[place] = tried[place]
        else:
            least = bound


@compiled_part
def _filled(done, divisible, sending, slope, bound, ends):
    """Whether stages that each go as far as a time lets them come to the last operator: `ends`, but for the first one.

    Args:
        done: seconds of the operators before each one and of all, shape (operators + 1,).
        divisible, sending, slope: of each operator, shape (operators,); the last two are seconds to send what crosses its
            beginning, and to compute it and to send its result.
        bound: the time. [s]
        ends: written, shape (stages + 1,).
    """
    count = len(divisible)
    for stage in range(1, len(ends)):
        start = ends[stage - 1]
        first, before = int(start), _up_to(done, start)
        if done[count] - before <= bound:
            ends[stage:] = count
            return True
        # what ends beyond what one that begins before it does, ends last: the last one that there is time for
        position, beyond = first, count
        while beyond - position > 1:
            middle = (position + beyond) // 2
            if done[middle] <= before + bound:
                position = middle
            else:
                beyond = middle
        best = start
        while position >= first:
            spare = bound - (done[position] - before) - sending[position]
            if spare >= 0:
                # up to an operator, or into a product as far as it and what it adds to be sent leave time for
                best = position + (min(spare / slope[position], 1 - 1e-9) if divisible[position] else 0.0)
                break
            position -= 1
        if best <= start:
            return False
        ends[stage] = best
    return False


def _rows(part: Segment, hidden: float, precision: FormatPlan) -> list[tuple[float, bool, float, float]]:
    """Weights, whether it may be divided, crossing and result of each operator of a part, once."""
    rows = []
    for operator, (crossing, result) in zip(part.operators, carried_values(part, hidden), strict=True):
        stored = product_bytes(replace(part, operators=(operator,)), precision)
        rows.append((stored, isinstance(operator, MatMulOp), crossing / part.rows, result / part.rows))
    return rows
