"""Where the stages of a pipeline begin and end: at whole layers, or anywhere between operators and inside products.

A model is a line of operators, layer after layer; a stage is a stretch of it. A product that lies on two stages is divided by
columns of its weights: both have its input, and what the first has computed goes along. How long operators take is told.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.graph.operators import Attention, Index, MatMul, Operator, Part, Recur
from dse.evaluators.layouts.residency import Share, nbytes, width
from dse.evaluators.machine.compile_cache import cached_njit
from dse.space.elementwise import Array
from dse.space.layers import layers
from dse.space.mapping import Precision
from dse.space.model import Model

compiled = cached_njit(error_model="numpy", nogil=True, _nrt=False)

STEPS = 30
"""Of the bisection for the slowest stage: its time is found to a part in 2^30."""


class Line(NamedTuple):
    """Operators in order; arrays of shape (operators,) unless said.

    Attributes:
        seconds: of each.
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

    def carried(self, places: Array) -> Array:
        """Values of a token that go over each of some places."""
        crossing, result = np.append(self.crossing, 0.0), np.append(self.result, 0.0)
        at = np.floor(places).astype(int)
        found: Array = crossing[at] + (places - at) * result[at]
        return found


class Stages(NamedTuple):
    """The stages of a pipeline.

    Attributes:
        ends: places on the line where each begins, and where the last one ends; shape (stages + 1,).
        carried: values of a token from one stage to the next, on average.
        of_layer: the stage that has the keys and values of each layer.
        share: what the fullest stage has.

    Of one design, or `stacked` of several.
    """

    ends: Any
    carried: Any
    of_layer: tuple[Any, ...]
    share: Share

    def seconds(self, line: Line, value: float) -> Array:
        """Of each stage, and of what it sends on, at some seconds a value; shape (stages,)."""
        found = _between(line.seconds, self.ends)
        found[:-1] += value * line.carried(self.ends[1:-1])
        return found


def stacked(each: Sequence[Stages]) -> Stages:
    """Stages of several designs: numbers of shape (designs,), what is in sequence one after the other."""
    carried = np.array([of.carried for of in each])
    share = Share(*(np.array(values) for values in zip(*(of.share for of in each), strict=True)))
    return Stages(tuple(of.ends for of in each), carried, tuple(of.of_layer for of in each), share)


def line_of(
    model: Model, parts: tuple[Part, ...], precision: Precision, seconds: Mapping[tuple[str, str], float] = MappingProxyType({})
) -> Line:
    """The operators of a step in the order of its layers.

    Args:
        model, parts: of the step.
        precision: formats of weights.
        seconds: of an operator once, by part and name; nothing for what is not there.
    """
    (line,) = lines_of(model, parts, precision, seconds, 1)
    return line


def lines_of(
    model: Model, parts: tuple[Part, ...], precision: Precision, seconds: Mapping[tuple[str, str], Any], designs: int
) -> list[Line]:
    """As `line_of`, of several designs of whose operators only the seconds differ: numbers, or of shape (designs,)."""
    names, each, line = _ordered(model, parts, precision)
    taken = np.empty((designs, len(names)))
    for place, name in enumerate(names):
        taken[:, place] = seconds.get(name, 0.0)
    return [line._replace(seconds=row) for row in taken[:, each]]


@lru_cache(maxsize=64)
def _ordered(model: Model, parts: tuple[Part, ...], precision: Precision) -> tuple[list[tuple[str, str]], Array, Line]:
    """Operators by part and name, which of them each place of the line has, and the line, whose seconds are none."""
    named = {part.name: part for part in parts}
    names = [(part.name, operator.name) for part in parts for operator in part.operators]
    rows = [row for part in parts for row in _rows(part, model.hidden, precision)]
    first = dict(zip(named, np.cumsum([0, *(len(part.operators) for part in parts)]).tolist(), strict=False))
    reads = {
        name: next((place for place, one in enumerate(part.operators) if isinstance(one, Attention | Recur)), 0)
        for name, part in named.items()
    }

    def of(name: str) -> range:
        return range(first[name], first[name] + len(named[name].operators))

    order, starts, caches = [*of("embedding")], list[int](), list[int]()
    for mixes, feeds in layers(model).line:
        starts.append(len(order))
        caches.append(len(order) + reads[mixes or feeds])
        for name in filter(None, (mixes, feeds)):
            order += of(name)
    starts.append(len(order))
    order += of("head")
    each = np.array(order)
    weights, divisible, crossing, result = np.array(rows, float)[each].T
    line = Line(np.zeros(len(each)), weights, divisible > 0, crossing, result, np.array(starts), np.array(caches))
    return names, each, line


def whole_layers(line: Line, stages: int) -> Stages:
    """As many layers on each stage; the last ones have what is left, and the very last one the head."""
    count = len(line.caches)
    starts = np.minimum(np.arange(1, stages) * -(-count // stages), count)
    return _stages(line, np.concatenate([[0], line.layers[starts], [len(line.seconds)]]))


def parts_of_layers(line: Line, stages: int, value: float) -> Stages:
    """Stages of which the slowest one takes least, with what it sends on; never more than with whole layers.

    Filled as far as they go within a time, which bisection makes as short as can be.

    Args:
        line: of a step that is typical.
        stages: how many.
        value: to send a value of each token to the next stage. [s]
    """
    best = whole_layers(line, stages)
    most = float(best.seconds(line, value).max())
    done = np.append(0.0, np.cumsum(line.seconds))
    sending, slope = value * line.crossing, np.maximum(line.seconds + value * line.result, 1e-30)
    tried, ends = np.zeros(stages + 1), np.zeros(stages + 1)
    found = _bisected(done, line.divisible, sending, slope, most, tried, ends)
    return _stages(line, ends) if found else best


@compiled
def _bisected(done, divisible, sending, slope, most, tried, ends):  # type: ignore[no-untyped-def]
    """Whether stages take less than a time, and then their ends, for the least that is found; arguments as of `_filled`."""
    least, found = 0.0, False
    for _ in range(STEPS):
        bound = (least + most) / 2
        if _filled(done, divisible, sending, slope, bound, tried):
            most, found = bound, True
            for place in range(len(ends)):
                ends[place] = tried[place]
        else:
            least = bound
    return found


@compiled
def _filled(done, divisible, sending, slope, bound, ends):  # type: ignore[no-untyped-def]
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
        first = int(start)
        before = done[count] if first >= count else (done[first + 1] - done[first]) * (start - first) + done[first]
        if done[count] - before <= bound:
            ends[stage:] = count
            return True
        best, here = start, first
        while here < count and done[here] <= before + bound:
            spare = bound - (done[here] - before) - sending[here]
            if spare >= 0:
                # up to an operator, or into a product as far as it and what it adds to be sent leave time for
                into = here + (min(spare / slope[here], 1 - 1e-9) if divisible[here] else 0.0)
                best = max(best, into)
            here += 1
        if best <= start:
            return False
        ends[stage] = best
    return False


def _stages(line: Line, ends: Array) -> Stages:
    weights = _between(line.weights, ends)
    of_layer = np.searchsorted(ends[1:-1], line.caches, side="right")
    caches = float(np.bincount(of_layer).max()) / len(of_layer)
    fullest = float(weights.max() / weights.sum())
    carried = line.carried(ends[1:-1])
    return Stages(
        ends, float(carried.mean()) if len(carried) else 0.0, tuple(of_layer.tolist()), Share(fullest, fullest, caches)
    )


def _rows(part: Part, hidden: float, precision: Precision) -> list[tuple[float, bool, float, float]]:
    """Weights, whether it may be divided, crossing and result of each operator of a part, once."""
    rows = []
    for operator, (crossing, result) in zip(part.operators, _carried(part, hidden), strict=True):
        stored = nbytes(replace(part, operators=(operator,)), precision)
        rows.append((stored, isinstance(operator, MatMul), crossing, result))
    return rows


def _between(amounts: Array, ends: Array) -> Array:
    """Of the operators between each end and the next."""
    up_to = np.append(0.0, np.cumsum(amounts))
    return np.diff(np.interp(ends, np.arange(len(up_to)), up_to))


def _carried(part: Part, hidden: float) -> Iterator[tuple[float, float]]:
    """Of each operator: values of a token that cross its beginning, and those that it adds."""
    if part.name == "embedding":
        yield 0.0, 0.0
        return
    needed = {need for operator in part.operators for need in operator.needs}
    for place, operator in enumerate(part.operators):
        later = {need for following in part.operators[place:] for need in following.needs}
        live = sum(_result(part, earlier) for earlier in part.operators[:place] if earlier.name in later)
        # the head needs the residual stream for its norm alone
        stream = hidden if part.name != "head" or not place else 0.0
        yield stream + live, _result(part, operator) if operator.name in needed else 0.0


def _result(part: Part, operator: Operator) -> float:
    """Values of a token that an operator makes; the rows of an operator may be several a token."""
    if isinstance(operator, Attention):
        return float(operator.heads.units * operator.v_dim)
    if isinstance(operator, Recur):
        return float(operator.heads.units * operator.value_dim)
    if isinstance(operator, Index):
        return float(operator.top // operator.block)
    rows, dim = (operator.m, operator.n) if isinstance(operator, MatMul) else (operator.rows, operator.dim)
    return float(width(dim) * rows / part.rows)
