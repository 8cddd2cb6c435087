"""Single-kernel cases of a die from the fields of a workload: MoE experts and elementwise operators."""

from collections.abc import Sequence
from itertools import product
from typing import Any

from dse.config.record_parser import parse_value
from dse.config.workload_fields import read_whole_numbers, refuse_unknown_fields
from dse.space.errors import DesignError, suggest_nearest
from dse.space.workload import DISTRIBUTIONS, OPERATIONS, ElementwiseCase, ExpertsCase


def read_expert_cases(spec: dict[str, Any], seed: int) -> Sequence[ExpertsCase]:
    """Experts of one layer, one case for each number of tokens.

    Args:
        spec: the workload's fields.
        seed: of draws.

    Raises:
        DesignError: a field that is missing, unknown, or that contradicts another.
    """
    sizes = ("tokens", "hidden", "intermediate", "experts", "top_k", "ep")
    refuse_unknown_fields(spec, (*sizes, "distribution", "exponent"), "workload: experts as a single kernel have ")
    name = str(spec.get("distribution"))
    if name not in DISTRIBUTIONS:
        raise DesignError(f"workload.distribution: no option {name!r}; {suggest_nearest(name, DISTRIBUTIONS)}")
    exponent = 0.0
    if name == "power_law":
        exponent = parse_value(spec.get("exponent"), "1", "workload.exponent")
        if exponent <= 1:
            raise DesignError(f"workload.exponent: {exponent:g} is not above 1, which a power law has")
    elif spec.get("exponent") is not None:
        raise DesignError("workload.exponent: balanced rows have none; remove it, or set distribution=power_law")
    expert_cases = []
    for tokens, hidden, inner, experts, top_k, ep in product(*(read_whole_numbers(spec, key) for key in sizes)):
        if top_k > experts:
            raise DesignError(f"workload.top_k: a token goes to {top_k} of {experts} experts")
        if experts % ep:
            raise DesignError(f"workload.ep: {ep} devices do not divide {experts} experts")
        where = f" on one of {ep}" if ep > 1 else ""
        label = f"{tokens} tokens to {top_k} of {experts} experts {hidden} x {inner}{where}, {name}"
        expert_cases.append(ExpertsCase(label, tokens, hidden, inner, experts, top_k, ep, name, exponent, seed))
    return expert_cases


def read_elementwise_cases(spec: dict[str, Any]) -> Sequence[ElementwiseCase]:
    """Elementwise operators, one case for each number of rows and columns.

    Args:
        spec: the workload's fields.

    Raises:
        DesignError: a field that is missing or unknown.
    """
    refuse_unknown_fields(spec, ("operator", "rows", "columns"), "workload: an operator on elements has ")
    sort = str(spec["operator"])
    if sort not in OPERATIONS:
        raise DesignError(f"workload.operator: no option {sort!r}; {suggest_nearest(sort, OPERATIONS)}")
    sizes = product(read_whole_numbers(spec, "rows"), read_whole_numbers(spec, "columns"))
    return [ElementwiseCase(f"{sort} {rows} x {columns}", sort, rows, columns) for rows, columns in sizes]
