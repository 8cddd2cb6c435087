"""Choice of the partition of each operator in pipelines, by the least time of a phase.

Plans differ in how attention is divided and in the partitions that products may have. Each plan fixes the memory of a
core; the partitions of least time then follow from the time of each operator under each partition and of collecting its
result on all cores (`layouts.partition_costs`). The choice is exact, except for the effect of partitions on core
memory, for which it is repeated once, and for prefetching. One partition for all operators is among the plans, so none
of these is faster. Each case and design gets the fitting plan of least analytical time. Where copies of all weights do
not fit, the copies that save most time per byte are kept (`accounting.weight_copies`). Where both phases are open,
caches stay as prefill divides them; weights follow each phase's partitions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dse.evaluators.accounting.decode_segments import reduce_per_case, spread_over_entries
from dse.evaluators.accounting.forward_passes import StagedPass
from dse.evaluators.accounting.weight_copies import COPIED, Seconds, choose_copies
from dse.evaluators.calls.algorithm_candidates import select_values
from dse.evaluators.calls.call import CallBlock, CallProduct, CoreGroupSplit
from dse.evaluators.cost_models.call_cost import CostModel
from dse.evaluators.cost_models.fastest_algorithm import map_partitions
from dse.evaluators.graph.operators import MatMulOp, Segment
from dse.evaluators.graph.transformer import END_SEGMENTS
from dse.evaluators.layouts.model_weights import product_bytes
from dse.evaluators.layouts.operator_partitions import (
    SLICE_LAYOUTS,
    Name,
    PartitionChoice,
    gather_exchange,
    partition_rules,
    partitioned_blocks,
    uniform_partition,
)
from dse.evaluators.layouts.partition_costs import partition_choice, partition_cost_factors
from dse.evaluators.layouts.residency import CoreResidency
from dse.evaluators.machine.machine import HardwareModel
from dse.evaluators.tuning.variable_elimination import minimise_factors
from dse.space.array_math import Array, ceil_div
from dse.space.mapping import AUTO, BYTES_BY_FORMAT, DIVISIONS, FormatPlan, PipelinePlan
from dse.space.model import Model

P = TypeVar("P", bound=PipelinePlan)


class CountingPlan(NamedTuple):
    """Partitions that products may have, and the partition by which core memory is counted.

    Attributes:
        counted: that partition: of heads or rows of caches, and of rows of activations.
        words: partitions of products.
    """

    counted: str
    words: tuple[str, ...]

    @property
    def heads(self) -> bool:
        """Whether attention divides heads under the counted partition."""
        return self.counted == "k"


def counting_plans(words: tuple[str, ...]) -> tuple[CountingPlan, ...]:
    """Plans that combine several of the offered partitions.

    Attention divides heads or rows, and each core has its share of weights or may have all of some; with rows alone, a core has
    rows of activations alone, else a block of tokens may be whole.
    """
    shared = tuple(word for word in words if word != "input_only")
    several = (CountingPlan(counted, word_set) for word_set in (shared, words) for counted in ("k", "mn_k"))
    return (*several, CountingPlan("mn", ("mn", "input_only")))


class PartitionedPhase(NamedTuple):
    """One phase of a design as a function of its partitions.

    Attributes:
        model, plan, precision: what is divided, and how.
        parts, order: of a step, and their names from the embedding to the head.
        by_word: blocks of a step by partition that is offered, but for what goes to all.
        held: core memory, from the partition of all products, and from weights copied to each core [B].
        passed: an analytical forward pass, and seconds of the phase of each case, from blocks and core memory.
        fits: whether the core memory of a partition fits.
        runs, starts, entries: steps of each entry, where cases begin, and how many there are.
        machine, closed: the group's machine, and the analytical cost model.
    """

    model: Model
    plan: PipelinePlan
    precision: FormatPlan
    parts: tuple[Segment, ...]
    order: tuple[str, ...]
    by_word: dict[str, tuple[CallBlock, ...]]
    held: Callable[[str, Any], CoreResidency]
    passed: Callable[[tuple[CallBlock, ...], CoreResidency], tuple[StagedPass, Any]]
    fits: Callable[[str, CoreResidency], Any]
    runs: Any
    starts: Array
    entries: int
    machine: HardwareModel
    closed: CostModel


class TriedPlan(NamedTuple):
    """A tried plan: its partitions, core memory and time.

    Attributes:
        of: partitions.
        counted: partition by which core memory is counted.
        held, everywhere: core memory, and weights copied to each core [B].
        seconds: time of each case, infinite where it does not fit.
    """

    of: PartitionChoice
    counted: str
    held: CoreResidency
    everywhere: Any
    seconds: Any


class ChosenPartitions(NamedTuple):
    """The partition of each operator of a phase, and what decides how much a core holds.

    Leaves have shape (cases, designs), or are numbers.

    Attributes:
        of: partitions of operators.
        counted: the partition as which the memory of a core is counted, a place in `DIVISIONS`.
        everywhere: weights of which each core has all. [B]
    """

    of: PartitionChoice
    counted: Any
    everywhere: Any

    def map_leaves(self, function: Callable[[Any], Any]) -> "ChosenPartitions":
        """Chosen partitions whose leaves are a function of these leaves."""
        choice = PartitionChoice(*({name: function(value) for name, value in kind.items()} for kind in self.of))
        return ChosenPartitions(choice, function(self.counted), function(self.everywhere))

    def needed_words(self) -> set[str]:
        """Partitions that some operator has, and that of sums, whose options all products keep."""
        return {"k", *(DIVISIONS[int(place)] for leaf in self.of.words.values() for place in np.unique(leaf))}


def remember_products(model: CostModel) -> CostModel:
    """Cost model that computes each product of a group once, where passes have calls in common.

    All calls are of one machine.
    """
    known: dict[tuple[Any, ...], tuple[Any, tuple[Any, Any]]] = {}

    def product_seconds(group: CoreGroupSplit, product: CallProduct, machine: HardwareModel, width: float) -> tuple[Any, Any]:
        if group.partition == AUTO:
            return map_partitions(group, lambda way: product_seconds(way, product, machine, width))
        operands = *group[:5], *product[1:], width
        key = tuple(id(value) if isinstance(value, np.ndarray) else (value,) for value in operands)
        if key not in known:  # arrays are kept, so that no other takes their place
            known[key] = operands, model.product(group, product, machine, width)
        return known[key][1]

    return model._replace(product=product_seconds)


def choose_partitions(phases: Sequence[PartitionedPhase]) -> list[ChosenPartitions]:
    """Partitions of least time of each open phase, with caches divided equally in all phases."""
    tried = [list(_try_plans(phase)) for phase in phases]
    by_heads, by_rows = ([_least_seconds(plans, heads=heads) for plans in tried] for heads in (True, False))
    rows = sum(seconds for seconds, _ in by_rows) < sum(seconds for seconds, _ in by_heads)
    partitions = []
    for plans, (_, head_index), (_, other) in zip(tried, by_heads, by_rows, strict=True):
        which = _plain_number(np.where(rows, other, head_index))
        choice = PartitionChoice(
            *(
                {name: select_values([plan.of[kind][name] for plan in plans], which) for name in plans[0].of.words}
                for kind in range(3)
            )
        )
        counted = select_values([DIVISIONS.index(plan.counted) for plan in plans], which)
        partitions.append(ChosenPartitions(choice, counted, select_values([plan.everywhere for plan in plans], which)))
    return partitions


def partitioned_phase(phase: PartitionedPhase, chosen: ChosenPartitions) -> tuple[tuple[CallBlock, ...], CoreResidency]:
    """Blocks of a phase by the partitions that are chosen, and what a core holds with them."""
    words = [int(place) for place in np.unique(chosen.counted)]
    held = [phase.held(DIVISIONS[word], chosen.everywhere) for word in words]
    which = _plain_number(np.searchsorted(words, chosen.counted)) if len(words) > 1 else 0
    return _entry_blocks(phase, chosen.of), select_values(held, which)


def fastest_plan(phase: PartitionedPhase) -> TriedPlan:
    """Plan of least time of one case and design; the first plan if none fits."""
    best = min(_try_plans(phase), key=lambda plan: float(np.squeeze(plan.seconds)))
    return best._replace(
        of=PartitionChoice(*({name: _plain_number(value) for name, value in kind.items()} for kind in best.of))
    )


def plan_with_partition(plan: P, word: str) -> P:
    """Plan with one partition for all products; the reduction is kept where products have partial sums."""
    return replace(plan, partition=word, allreduce=plan.allreduce if word == "k" else None)


def _try_plans(phase: PartitionedPhase) -> Iterator[TriedPlan]:
    """Plans with one partition for all, that of sums first as the fallback; then plans with several."""
    words = tuple(phase.by_word)
    for word in sorted(words, key=lambda word: word != "k"):
        partition = uniform_partition(phase.parts, word, phase.plan)
        yield _plan_with_blocks(phase, partition, _entry_blocks(phase, partition), phase.held(word, 0.0), word)
    gather, known = _gather_seconds(phase), set[bytes]()
    priced: dict[str, tuple[CoreResidency, Seconds] | None] = {}
    for frame in counting_plans(words):
        if frame.counted not in priced:
            priced[frame.counted] = _price_words(phase, frame.counted, words, priced.values())
        if (known_prices := priced[frame.counted]) is None:
            continue
        held, seconds = known_prices
        copies = "input_only" in frame.words
        partition = first = _fastest_words(phase, frame, seconds, gather)
        plan = _make_plan(phase, frame, partition)
        yield from _new_plans(plan, known)
        if copies and not _reads_alike(plan.held, held):  # words change what cores hold, and with it what operators take
            partition = _fastest_words(phase, frame, _operator_seconds(phase, plan.held, frame.words), gather)
            if _plan_content(frame.counted, partition) != _plan_content(frame.counted, plan.of):
                plan = _make_plan(phase, frame, partition)
                yield from _new_plans(plan, known)
        if copies and np.any(np.isinf(plan.seconds)):
            yield from _ration_copies(phase, frame, seconds, gather, first, np.isinf(plan.seconds))


def _price_words(
    phase: PartitionedPhase, counted: str, words: Sequence[str], known: Iterable[tuple[CoreResidency, Seconds] | None]
) -> tuple[CoreResidency, Seconds] | None:
    """Core memory without copies, and the time of each operator with it; None if no case and design fits."""
    empty = phase.held(counted, 0.0)
    if not np.any(phase.fits(counted, empty)):  # copies take more
        return None
    for held, seconds in filter(None, known):
        if _reads_alike(held, empty):
            return empty, seconds
    return empty, _operator_seconds(phase, empty, words)


def _new_plans(plan: TriedPlan, known: set[bytes]) -> Iterator[TriedPlan]:
    """A plan of which none like it was tried before: of equal ones the first counts."""
    content = _plan_content(plan.counted, plan.of)
    if content not in known:
        known.add(content)
        yield plan


def _plan_content(counted: str, choice: PartitionChoice) -> bytes:
    """Content of a plan, equal for equal plans."""
    values = [np.asarray(value) for kind in choice for value in kind.values()]
    return b"|".join([f"{counted} {[value.shape for value in values]}".encode(), *(value.tobytes() for value in values)])


SIZES = ("activations", "kv", "weights", "slices", "states")
"""Parts of a core's memory that decide whether it fits, but not how long a forward pass takes."""


def _reads_alike(residency: CoreResidency, other: CoreResidency) -> bool:
    """Whether two core memories lead to equal reads."""
    return all(
        np.array_equal(getattr(residency, name), getattr(other, name)) for name in residency._fields if name not in SIZES
    )


def _ration_copies(
    phase: PartitionedPhase, frame: CountingPlan, seconds: Seconds, gather: Seconds, rest: PartitionChoice, full: Array
) -> Iterator[TriedPlan]:
    """Plans with the copies that have room, of cases and designs where some have none, but all would without copies.

    Others have the words that `rest` says, those of least time by the same seconds.
    """
    weights = _product_weights(phase)

    def fits(everywhere: Any) -> Any:
        return phase.fits(frame.counted, phase.held(frame.counted, everywhere))

    def solved(seconds: Seconds, gather: Seconds) -> tuple[PartitionChoice, Any]:
        words = _fastest_words(phase, frame, seconds, gather)
        return words, _choice_cost(words, seconds, gather)

    where = full & fits(0.0)
    if not np.any(where):
        return
    for last in (False, True):
        copies = choose_copies(solved, seconds, gather, weights, fits, where)
        plan = _make_plan(phase, frame, PartitionChoice(*map(partial(_set_values, where=where), rest, copies)))
        yield plan._replace(seconds=np.where(where, plan.seconds, np.inf))
        if not last:  # copies change what cores hold, and with it what operators take
            seconds = _operator_seconds(phase, plan.held, frame.words)
            rest = _fastest_words(phase, frame, seconds, gather)


def _set_values(values: Mapping[Name, Any], changes: Mapping[Name, Any], *, where: Array) -> dict[Name, Any]:
    """Values with some of them replaced where a mask is set."""
    arrays = {name: np.array(np.broadcast_to(value, where.shape)) for name, value in values.items()}
    for name, value in arrays.items():
        value[where] = changes[name]
    return arrays


def _make_plan(phase: PartitionedPhase, frame: CountingPlan, choice: PartitionChoice) -> TriedPlan:
    everywhere = _copied_weights(_product_weights(phase), choice)
    held = phase.held(frame.counted, everywhere)
    return _plan_with_blocks(phase, choice, _entry_blocks(phase, choice), held, frame.counted, everywhere)


def _plan_with_blocks(
    phase: PartitionedPhase,
    choice: PartitionChoice,
    blocks: tuple[CallBlock, ...],
    held: CoreResidency,
    counted: str,
    everywhere: Any = 0.0,
) -> TriedPlan:
    fits = np.asarray(phase.fits(counted, held))
    seconds = np.where(fits, phase.passed(blocks, held)[1], np.inf) if fits.any() else np.full(fits.shape, np.inf)
    return TriedPlan(choice, counted, held, everywhere, seconds)


def _least_seconds(plans: Sequence[TriedPlan], *, heads: bool) -> tuple[Any, Any]:
    """The least seconds of those that divide attention in one way, and the place of the first that has them."""
    places = np.array([place for place, plan in enumerate(plans) if (plan.counted == "k") == heads])
    seconds = np.stack(np.broadcast_arrays(*(plans[place].seconds for place in places)))
    return seconds.min(axis=0), places[seconds.argmin(axis=0)]


def _operator_seconds(phase: PartitionedPhase, held: CoreResidency, words: Sequence[str]) -> Seconds:
    """Of each operator by each partition, in all steps of each case."""
    found_seconds: dict[Name, dict[int, Any]] = {}
    for word in words:
        for block in phase.passed(phase.by_word[word], held)[0].timed:
            for call, seconds in zip(block.block.calls, block.durations, strict=True):
                by = found_seconds.setdefault((call.part, call.name), {})
                place = DIVISIONS.index(word)
                by[place] = by.get(place, 0.0) + _of_cases(phase, seconds * block.block.times)
    return found_seconds


def _fastest_words(phase: PartitionedPhase, frame: CountingPlan, seconds: Seconds, gather: Seconds) -> PartitionChoice:
    """Partitions of least time, of a counting plan."""
    by = partition_rules(phase.plan, heads=frame.heads)
    costs = partition_cost_factors(phase.parts, phase.order, frame.words, seconds, gather, by)
    return partition_choice(phase.parts, frame.words, minimise_factors(list(costs)), by)


def _gather_seconds(phase: PartitionedPhase) -> Seconds:
    """Of what each operator leaves to all cores, by place in `CUTS`, in all steps of each case."""
    size = float(BYTES_BY_FORMAT[phase.precision.activations])
    return {
        (part.name, operator.name): {
            which: _of_cases(
                phase,
                part.times
                * phase.closed.exchange(gather_exchange(part, operator, phase.plan, size, which), phase.machine, 0.0),
            )
            for which in range(len(SLICE_LAYOUTS))
        }
        for part in phase.parts
        for operator in part.operators
    }


def _choice_cost(choice: PartitionChoice, seconds: Seconds, gather: Seconds) -> Any:
    """Seconds of operators and of what goes to all cores."""
    total: Any = 0.0
    for name, by in gather.items():
        total = total + sum(np.where(choice.words[name] == word, value, 0.0) for word, value in seconds[name].items())
        total = total + choice.gathered[name] * sum((choice.cuts[name] == which) * value for which, value in by.items())
    return total


def _product_weights(phase: PartitionedPhase) -> dict[Name, Any]:
    """Weights of each product in the fullest stage, the largest of the model first. [B]"""
    sizes, model, pp = {}, phase.model, phase.plan.pp
    layers = ceil_div(model.layers * 1.0, pp) / model.layers
    for part in phase.parts:
        share = 1 / pp if part.name in END_SEGMENTS else layers * part.times
        for operator in part.operators:
            if isinstance(operator, MatMulOp):
                size = product_bytes(replace(part, operators=(operator,)), phase.precision)
                sizes[part.name, operator.name] = size * part.times, size * share
    return {name: share for name, (_, share) in sorted(sizes.items(), key=lambda item: -item[1][0])}


def _copied_weights(weights: Mapping[Name, Any], choice: PartitionChoice) -> Any:
    """Of the weights of the fullest stage, those that each core has all of. [B]"""
    return sum(((choice.words[name] == COPIED) * value for name, value in weights.items()), 0.0)


def _entry_blocks(phase: PartitionedPhase, choice: PartitionChoice) -> tuple[CallBlock, ...]:
    """Calls of entries, with the partitions of each entry's case."""
    choice = PartitionChoice(
        *({name: _plain_number(_of_entries(phase, value)) for name, value in kind.items()} for kind in choice)
    )
    return partitioned_blocks(
        phase.parts, phase.by_word, choice, phase.plan, float(BYTES_BY_FORMAT[phase.precision.activations])
    )


def _of_cases(phase: PartitionedPhase, seconds: Any) -> Any:
    return reduce_per_case(np.add, seconds * phase.runs, phase.starts)


def _of_entries(phase: PartitionedPhase, values: Any) -> Any:
    """Values per case, repeated for each entry of the case."""
    return spread_over_entries(values, phase.starts, phase.entries)


def _plain_number(value: Any) -> Any:
    """A number where all entries have the same."""
    if not isinstance(value, np.ndarray):
        return value
    return value.flat[0].item() if np.all(value == value.flat[0]) else value
