"""Fastest partition of each operator of a pipeline's group.

Costs are factors of a graph over partitions and layouts.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from dse.evaluators.graph.operators import AttentionOp, Segment
from dse.evaluators.layouts.operator_partitions import (
    ACCEPTED_LAYOUTS,
    DATA_LAYOUTS,
    RESIDUAL_LAYOUTS,
    Name,
    PartitionChoice,
    PartitionRules,
    cut_index,
    operator_inputs,
    operator_partitions,
)
from dse.evaluators.tuning.variable_elimination import CostFactor
from dse.space.array_math import Array

EVERYWHERE = DATA_LAYOUTS.index("all")
"""The layout of which each core has all."""


def partition_cost_factors(
    parts: Sequence[Segment], order: Sequence[str], allowed: Sequence[str], seconds: Mapping[Name, Mapping[int, Any]],
    gather: Mapping[Name, Mapping[int, Any]], by: PartitionRules,
) -> Iterator[CostFactor]:  # fmt: skip
    """Cost factors of operators, and of pairs of operators by their layouts. [s]

    Args:
        parts, order: of a step, and their names from the embedding to the head.
        allowed: partitions of products.
        seconds: of each operator, by place in `DIVISIONS`, times how often it runs.
        gather: of what it leaves to all cores, by place in `SLICE_LAYOUTS`, times how often.
        by: how else operators may be divided.
    """
    kinds = {part.name: part.kind or part.name for part in parts}
    follows: dict[str, set[str]] = {}
    for one, then in pairwise(order):
        follows.setdefault(one, set()).add(kinds[then])
    streams = {kind: _stream(kind) for kind in dict.fromkeys(kinds.values())}
    yield from (CostFactor((name,), np.zeros(len(RESIDUAL_LAYOUTS))) for name in streams.values())
    for part in parts:
        takes = operator_inputs(part)
        needed = {need for needs in takes.values() for need in needs}
        for of in part.operators:
            some = operator_partitions(of, allowed, by)
            free = by.apart and isinstance(of, AttentionOp)
            here, left = _variable(part.name, of.name), _left(part.name, of.name)
            yield CostFactor((here,), _column([seconds[part.name, of.name][word] for word, _, _ in some]))
            yield CostFactor((here, left), _leaving(some, gather[part.name, of.name], free=free))
            if not free:
                for need in takes[of.name]:
                    yield CostFactor(
                        (_left(part.name, need), here), _finding(DATA_LAYOUTS, tuple(needs for _, needs, _ in some))
                    )
                if not takes[of.name]:
                    yield CostFactor(
                        (streams[kinds[part.name]], here), _finding(RESIDUAL_LAYOUTS, tuple(needs for _, needs, _ in some))
                    )
            if of.name not in needed:
                for kind in sorted(follows.get(part.name, ())):
                    yield CostFactor((left, streams[kind]), _finding(DATA_LAYOUTS, RESIDUAL_LAYOUTS))


def partition_choice(
    parts: Sequence[Segment], allowed: Sequence[str], found: Mapping[str, Array], by: PartitionRules
) -> PartitionChoice:
    """Partition choice from an assignment of the variables of `partition_cost_factors`."""
    words, gathered, cuts = {}, {}, {}
    for part in parts:
        for of in part.operators:
            some = operator_partitions(of, allowed, by)
            which, left = found[_variable(part.name, of.name)], found[_left(part.name, of.name)]
            leaves = np.array([DATA_LAYOUTS.index(state) for _, _, state in some])[which]
            name = part.name, of.name
            words[name] = np.array([word for word, _, _ in some])[which]
            gathered[name] = (left == DATA_LAYOUTS.index("all")) & (leaves != DATA_LAYOUTS.index("all"))
            cuts[name] = np.array([cut_index(state) for state in DATA_LAYOUTS])[leaves]
    return PartitionChoice(words, gathered, cuts)


def _column(values: Sequence[Any]) -> Array:
    return np.stack(np.broadcast_arrays(*(np.asarray(value, float) for value in values)))


def _leaving(some: Sequence[tuple[int, str, str]], gather: Mapping[int, Any], *, free: bool) -> Array:
    """By how an operator is divided and what others find of it: nothing, the way to all, or what cannot be."""
    costs = np.full(
        (len(some), len(DATA_LAYOUTS), *np.broadcast_shapes(*(np.shape(value) for value in gather.values()))), np.inf
    )
    for row, (_, _, leaves) in zip(costs, some, strict=True):
        if free:
            row[EVERYWHERE] = 0.0
        elif leaves != "dealt":
            row[EVERYWHERE] = gather[cut_index(leaves)]
        row[DATA_LAYOUTS.index(leaves)] = 0.0
    return costs


@lru_cache(maxsize=256)
def _finding(there: tuple[str, ...], needs: tuple[str, ...]) -> Array:
    """By what there is and what is needed: nothing, or what cannot be."""
    return np.array([[0.0 if one in ACCEPTED_LAYOUTS[need] else np.inf for need in needs] for one in there])


def _variable(part: str, operator: str) -> str:
    return f"{part}/{operator}"


def _left(part: str, operator: str) -> str:
    return f"{part}/{operator} left"


def _stream(kind: str) -> str:
    return f"into {kind}"
