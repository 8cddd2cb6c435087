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
    for stream, then in pairwise(order):
        follows.setdefault(stream, set()).add(kinds[then])
    streams = {kind: _stream(kind) for kind in dict.fromkeys(kinds.values())}
    yield from (CostFactor((name,), np.zeros(len(RESIDUAL_LAYOUTS))) for name in streams.values())
    for part in parts:
        takes = operator_inputs(part)
        needed = {need for needs in takes.values() for need in needs}
        for operator in part.operators:
            partitions = operator_partitions(operator, allowed, by)
            free = by.apart and isinstance(operator, AttentionOp)
            variable, left = _variable(part.name, operator.name), _left(part.name, operator.name)
            yield CostFactor((variable,), _column([seconds[part.name, operator.name][word] for word, _, _ in partitions]))
            yield CostFactor(
                (variable, left),
                _leaving(partitions, gather[part.name, operator.name], free=free),
                _possible_layouts(tuple(leaves for _, _, leaves in partitions), free=free),
            )
            needed_layouts = tuple(needs for _, needs, _ in partitions)
            if not free:
                for need in takes[operator.name]:
                    yield CostFactor((_left(part.name, need), variable), *_finding(DATA_LAYOUTS, needed_layouts))
                if not takes[operator.name]:
                    yield CostFactor((streams[kinds[part.name]], variable), *_finding(RESIDUAL_LAYOUTS, needed_layouts))
            if operator.name not in needed:
                for kind in sorted(follows.get(part.name, ())):
                    yield CostFactor((left, streams[kind]), *_finding(DATA_LAYOUTS, RESIDUAL_LAYOUTS))


def partition_choice(
    parts: Sequence[Segment], allowed: Sequence[str], choices: Mapping[str, Array], by: PartitionRules
) -> PartitionChoice:
    """Partition choice from an assignment of the variables of `partition_cost_factors`."""
    words, gathered, cuts = {}, {}, {}
    for part in parts:
        for operator in part.operators:
            partitions = operator_partitions(operator, allowed, by)
            which, left = choices[_variable(part.name, operator.name)], choices[_left(part.name, operator.name)]
            leaves = np.array([DATA_LAYOUTS.index(state) for _, _, state in partitions])[which]
            name = part.name, operator.name
            words[name] = np.array([word for word, _, _ in partitions])[which]
            gathered[name] = (left == DATA_LAYOUTS.index("all")) & (leaves != DATA_LAYOUTS.index("all"))
            cuts[name] = np.array([cut_index(state) for state in DATA_LAYOUTS])[leaves]
    return PartitionChoice(words, gathered, cuts)


def _column(values: Sequence[Any]) -> Array:
    return np.stack(np.broadcast_arrays(*(np.asarray(value, float) for value in values)))


def _leaving(operator_partitions: Sequence[tuple[int, str, str]], gather: Mapping[int, Any], *, free: bool) -> Array:
    """By how an operator is divided and what others find of it: nothing, the way to all, or what cannot be."""
    costs = np.full(
        (len(operator_partitions), len(DATA_LAYOUTS), *np.broadcast_shapes(*(np.shape(value) for value in gather.values()))),
        np.inf,
    )
    for row, (_, _, leaves) in zip(costs, operator_partitions, strict=True):
        if free:
            row[EVERYWHERE] = 0.0
        elif leaves != "dealt":
            row[EVERYWHERE] = gather[cut_index(leaves)]
        row[DATA_LAYOUTS.index(leaves)] = 0.0
    return costs


@lru_cache(maxsize=256)
def _possible_layouts(leaves: tuple[str, ...], *, free: bool) -> Array:
    """Whether others may find a layout, by partition of an operator and layout."""
    everywhere = np.array([free or layout != "dealt" for layout in leaves])
    possible = np.array([[layout == left for left in DATA_LAYOUTS] for layout in leaves])
    possible[:, EVERYWHERE] |= everywhere
    return possible


@lru_cache(maxsize=256)
def _finding(layouts: tuple[str, ...], needs: tuple[str, ...]) -> tuple[Array, Array]:
    """By what there is and what is needed: nothing, or what cannot be; and whether it can be."""
    possible = np.array([[layout in ACCEPTED_LAYOUTS[need] for need in needs] for layout in layouts])
    return np.where(possible, 0.0, np.inf), possible


def _variable(part: str, operator: str) -> str:
    return f"{part}/{operator}"


def _left(part: str, operator: str) -> str:
    return f"{part}/{operator} left"


def _stream(kind: str) -> str:
    return f"into {kind}"
