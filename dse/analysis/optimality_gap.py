"""Optimality gap of auto-tuned settings: time over a bound from each operator's best candidate.

Options that are `auto` (algorithms of products, allreduces) and sizes that are 0 (groups and slices on tiles) are auto-tuned.
Here they are set, one choice after the other; each operator takes the best of the candidates, evaluated alone with the
analytical model, so nothing contends. Of a serving load these are operators of the mean iterations of the mapping's own run, as
often as they occur: other choices would cause other iterations. The sum is a lower bound for all these choices: one choice for
all operators, or contention of messages, only costs more. Candidates that were not evaluated may be better, so a gap states how
many were.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.breakdown import BreakdownRow
from dse.evaluators.cost_models.analytical_summa import DEPTHS, SLICES
from dse.evaluators.evaluation import find_worst_violation
from dse.evaluators.kernels.attention.tiling_candidates import SLICES as BLOCKS
from dse.evaluators.kernels.gemm import GEMM_CANDIDATES as PRODUCTS
from dse.evaluators.kernels.gemv import GEMV_CANDIDATES as SUMS
from dse.evaluators.layouts.operator_partitions import offered_partitions
from dse.space.design import Design, Designs
from dse.space.errors import DesignError
from dse.space.fields import iterate_leaves, leaf_at, replace_leaves
from dse.space.mapping import ALONE, AUTO, DIVISIONS, GROUP_SUMS
from dse.space.units import format_quantity
from dse.space.workload import ServingLoad, Workload, WorkloadCase

if TYPE_CHECKING:
    from dse.evaluators.accounting.serving_runs.run_metrics import MeanIteration

WORDS: Mapping[str, tuple[str, ...]] = {
    "gemm": PRODUCTS,
    "gemm_attention": PRODUCTS,
    "gemm_ffn": PRODUCTS,
    "gemv": SUMS,
    "allreduce": GROUP_SUMS,
    "partition": DIVISIONS,
}
"""What stands for `auto`, by the last word of an address; of partitions, those that a group has."""

RowsOf = Callable[[Design], Sequence[BreakdownRow]]
"""Operators of a design."""

Left = tuple[Mapping[str, Sequence[str]], Sequence[Mapping[str, tuple[int, ...]]]]
"""Words and sizes that are left open, with what may stand for each."""

MAX_COMBINATIONS = 4_096
"""Designs that are evaluated at once."""


@dataclass(frozen=True)
class OptimalityGap:
    """Distance of an auto-tuned mapping from a lower bound on its time.

    Attributes:
        left: addresses that were left to the product.
        seconds: of the design, at its fidelity.
        bound: of each operator at its best, alone, with the analytical model.
        looked: choices that were looked at beside the product's.
        whole: whether these are all combinations of the values that are tried; else groups were, with their slices open.
        served: whether the times are those of a served load's mean iterations, each as often as it comes.
        unlooked: choices that there was no time for.
    """

    left: tuple[str, ...]
    seconds: float
    bound: float
    looked: int
    whole: bool
    served: bool = False
    unlooked: int = 0

    @property
    def gap(self) -> float:
        """Time above the bound, as a share of the bound. [-]"""
        return self.seconds / self.bound - 1

    def __str__(self) -> str:
        kernels: dict[str, list[str]] = {}
        for address in self.left:
            whole, _, name = address.rpartition(".")
            kernels.setdefault(whole, []).append(name)
        left = ", ".join(
            f"{whole}.{names[0]}" if len(names) == 1 else f"{whole} ({', '.join(names)})" for whole, names in kernels.items()
        )
        if not self.looked:
            return f"no other choice keeps all limits, for {left}"
        choices_text = f"all {self.looked:,} choices" if self.whole else f"{self.looked:,} choices, slices open,"
        side = "above" if self.gap > 0 else "below"  # played, operators may take less than by the closed form
        above = f"{abs(self.gap):.2%} {side}" if abs(self.gap) >= 0.5e-4 else "at"
        bound = f"the bound of {format_quantity(self.bound, 's')}{' of mean iterations' if self.served else ''}"
        rest = f"; {self.unlooked:,} more were not looked at, for lack of time" if self.unlooked else ""
        return f"{above} {bound}, each operator with its best candidate; of {choices_text} for {left}{rest}"


def compute_optimality_gap(design: Design, workload: Workload, seconds: float, *, budget: float = inf) -> OptimalityGap | None:
    """Optimality gap of a design for the first case; None if no setting is open or no gap is defined.

    Args:
        design: with leaves that are numbers.
        workload: of the design.
        seconds: what it takes at its fidelity, the sum of its breakdown; of a served load, mean iterations by the closed form
            are asked in its place, since idle time and batches follow from when requests come.
        budget: what choices of kernels among others may take; those that are left then are counted. [CPU s]
    """
    case = workload.cases[0]
    words, sizes = _open_words(design), _open_sizes(design)
    if not (words or sizes) or find_worst_violation(design, Workload("", (case,))) is not None:
        return None
    left = (*words, *(address for part in sizes for address in part))
    if isinstance(case, ServingLoad):
        from dse.evaluators.workloads.serving import mean_iterations

        means = mean_iterations(design, case)
        work = compute_mean_iteration_rows(design, case, means)
        bound, looked, unlooked = _lower_bound(
            design,
            case,
            work,
            (words, sizes),
            lambda design: compute_mean_iteration_rows(design, case, means),
            alike=True,
            budget=budget,
        )
        taken = sum(row.seconds for row in work)
        return OptimalityGap(left, taken, bound, looked, not sizes, served=True, unlooked=unlooked) if work else None
    alone = len(sizes) == 1 and not words and not any(address.count(".") > 1 for address in sizes[0])
    if alone:
        best, looked = _fastest_whole(design, case, sizes[0])
        return OptimalityGap(
            left, seconds, min(best, explain(design, case, decode_context=workload.decode_context).seconds), looked, True
        )
    if not sizes and all(address.count(".") == 1 for address in words):
        best, looked = _each_word(design, case, words)
        return OptimalityGap(left, seconds, best, looked, True)
    own = explain(design, case, decode_context=workload.decode_context).rows
    bound, looked, unlooked = _lower_bound(
        design,
        case,
        own,
        (words, sizes),
        lambda design: explain(design, case, decode_context=workload.decode_context).rows,
        budget=budget,
    )
    return OptimalityGap(left, seconds, bound, looked, not sizes, unlooked=unlooked)


def compute_mean_iteration_rows(design: Design, load: ServingLoad, means: "list[list[MeanIteration]]") -> list[BreakdownRow]:
    """Breakdown rows of mean iterations with the analytical model, one phase per kind of iteration.

    The iterations may be those of another design's run.
    """
    from dse.evaluators.workloads.serving import serving_layout

    service, rows = serving_layout(design), list[BreakdownRow]()
    for number, selected_mean in enumerate(means):
        for mean in selected_mean:
            phase = f"pool {number}, iterations {'with prompts' if mean.prompts else 'of decodes'}"
            iteration_rows = service.iteration_rows(design, load, number, mean.times, mean.composition, "analytical")
            rows += [replace(row, phase=phase) for row in iteration_rows]
    return rows


def _lower_bound(
    design: Design,
    case: WorkloadCase,
    own: Sequence[BreakdownRow],
    left: Left,
    rows_of: RowsOf,
    *,
    alike: bool = False,
    budget: float = inf,
) -> tuple[float, int, int]:
    """Time of the design's operators, each at its best alone, and how many other choices were and were not looked at. [s]

    Args:
        design, case, own: what is certified, and its operators.
        left: to the product.
        rows_of: operators of another design.
        alike: whether instances may do both phases, whose partitions have to be one.
        budget: after which no more choices are looked at. [CPU s]
    """
    rows, looked, unlooked, end = _by_operator(own), 0, 0, time.process_time() + budget
    both = [address for address in left[0] if alike and address.endswith(".partition")]
    every = [dict.fromkeys(both, word) for word in left[0][both[0]]] if len(both) > 1 else []
    for others in (*_one_by_one(*left), *every):
        if time.process_time() > end:
            unlooked += 1
            continue
        leaves = replace_leaves(design, others)
        if find_worst_violation(leaves, Workload("", (case,))) is not None:
            continue
        looked += 1
        operator = _by_operator(rows_of(leaves))
        rows = {
            name: min(taken, operator[name]) for name, taken in rows.items() if name in operator
        }  # what another spares is none
    return float(sum(_overlapped_time(own, phase, rows) for phase in dict.fromkeys(row.phase for row in own))), looked, unlooked


def _open_words(design: Design) -> dict[str, tuple[str, ...]]:
    """Words that are left open, and what may stand for each."""
    words = {}
    for address, value, _ in iterate_leaves(design):
        whole, _, kind = address.removesuffix(".algorithm").rpartition(".")
        if value == AUTO and address.startswith("mapping.") and kind in WORDS:
            words[address] = offered_partitions(leaf_at(design, whole)) if kind == "partition" else WORDS[kind]
    return words


def _open_sizes(design: Design) -> list[dict[str, tuple[int, ...]]]:
    """Groups and slices that are left open, kernel by kernel, and what may stand for each."""
    parts: dict[str, dict[str, Any]] = {}
    for address, value, _ in iterate_leaves(design):
        whole, _, name = address.rpartition(".")
        if address.startswith("mapping."):
            parts.setdefault(whole, {})[name] = value
    sizes = []
    for whole, values in parts.items():
        tried = _tried_sizes(design, values)
        part = {f"{whole}.{name}": sizes for name, sizes in tried.items() if values[name] == 0}
        if part:
            sizes.append(part)
    return sizes


def _tried_sizes(design: Design, values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """What is tried of the sizes of a kernel on tiles; nothing of other software."""
    mesh = design.chip.mesh
    if {"dataflow", "queries", "keys"} <= values.keys():
        blocks = tuple(int(size) for size in BLOCKS)
        grouped = values["dataflow"] not in ALONE["dataflow"]
        groups = {"rows": _side_divisors(mesh.rows), "cols": _side_divisors(mesh.cols)} if grouped else {}
        return groups | {"queries": blocks, "keys": blocks}
    if {"rows", "m", "k", "n"} <= values.keys():
        return {"rows": _side_divisors(mesh.rows), "m": SLICES, "k": DEPTHS, "n": SLICES, "split_k": _side_divisors(mesh.rows)}
    return {}


def _side_divisors(lines: Any) -> tuple[int, ...]:
    return tuple(side for side in range(1, int(lines) + 1) if int(lines) % side == 0)


def _fastest_whole(design: Design, case: WorkloadCase, part: Mapping[str, Sequence[int]]) -> tuple[float, int]:
    """The least time of a kernel by itself over every combination of sizes that keeps all limits, and how many there are."""
    combinations = product(*part.values())
    count, best, workload = prod(map(len, part.values())), np.inf, Workload("", (case,))
    table = np.array(list(combinations), dtype=float)
    for start in range(0, count, MAX_COMBINATIONS):
        selected_table = table[start : start + MAX_COMBINATIONS]
        many = replace_leaves(design, dict(zip(part, selected_table.T, strict=True)))
        evaluation = evaluate(
            Designs(len(selected_table), ((np.arange(len(selected_table)), many),)), workload, metrics=("latency",)
        )
        if evaluation.feasible.any():
            best = min(best, float(evaluation.columns["latency"][evaluation.feasible].min()))
    return best, count


def _each_word(design: Design, case: WorkloadCase, words: Mapping[str, Sequence[str]]) -> tuple[float, int]:
    """The least time of a kernel by itself over every word that keeps all limits and has a closed form; how many there are."""
    best, looked, workload = np.inf, 0, Workload("", (case,))
    for values in product(*words.values()):
        leaves = replace_leaves(design, dict(zip(words, values, strict=True)))
        try:
            evaluation = evaluate(Designs(1, ((np.arange(1), leaves),)), workload, metrics=("latency",))
        except DesignError:  # whose closed form does not hold on this chip
            continue
        looked += 1
        if evaluation.feasible[0]:
            best = min(best, float(evaluation.columns["latency"][0]))
    return best, looked


def _one_by_one(words: Mapping[str, Sequence[str]], sizes: Sequence[Mapping[str, Sequence[int]]]) -> Iterator[dict[str, Any]]:
    """Designs that differ from the product's in one word, or in the groups of one kernel, whose slices stay open."""
    for address, word in words.items():
        yield from ({address: word} for word in word)
    for part in sizes:
        kernel = next(iter(part)).rpartition(".")[0]
        groups = {
            address: sizes for address, sizes in part.items() if address.rpartition(".")[2] in ("rows", "cols", "split_k")
        }
        every = (dict(zip(groups, values, strict=True)) for values in product(*groups.values()) if groups)
        # groups of more rows divide no depth
        yield from (words for words in every if 1 in (words.get(f"{kernel}.split_k", 1), words.get(f"{kernel}.rows", 1)))


def _overlapped_time(own: Sequence[BreakdownRow], phase: str, best: Mapping[tuple[str, str, str, int], float]) -> float:
    """Time of a phase with its operators at their best, of which as large a share overlaps as in the product's mapping. [s]"""
    work = sum(row.seconds for row in own if row.phase == phase and row.seconds > 0)
    elapsed = sum(row.seconds for row in own if row.phase == phase)
    return sum(seconds for names, seconds in best.items() if names[0] == phase) * (elapsed / work if work else 1.0)


def _by_operator(rows: Sequence[BreakdownRow]) -> dict[tuple[str, str, str, int], float]:
    """Seconds of work of each operator; of several with one name, in their order. What requests save by overlap is none."""
    operator: dict[tuple[str, str, str, int], float] = {}
    for row in (row for row in rows if row.seconds > 0):
        names = (row.phase, row.segment, row.operator)
        operator[*names, sum(1 for other in operator if other[:3] == names)] = row.seconds
    return operator
