"""Models on many shared-cache dies: work of one die, as in `layouts.devices`, and energy."""

from collections.abc import Mapping as Dict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dse.evaluators.accounting import breakdown
from dse.evaluators.accounting.breakdown import BreakdownRow, merge_rows
from dse.evaluators.accounting.device_placement import tier_activity
from dse.evaluators.accounting.device_rates import device_peak_rates, usual_pace
from dse.evaluators.accounting.engine_memory import device_capacity
from dse.evaluators.accounting.memory_contents import CACHE, MemoryContents, main_memory_contents
from dse.evaluators.accounting.memory_placement import MemoryPlacement, memories_contents, place_contents, tiered_reads
from dse.evaluators.accounting.multi_die import Alone, DieKind, MemoryItems, MultiDieLayout, single_die_work
from dse.evaluators.accounting.multi_die_limits import single_die_chip
from dse.evaluators.accounting.multi_die_memory import COPIES
from dse.evaluators.accounting.multi_die_memory import ROUTED as ROUTED_EXPERTS
from dse.evaluators.accounting.phase import PhaseCost
from dse.evaluators.accounting.tensor_parallel import device_activity
from dse.evaluators.accounting.usage import PeakRates
from dse.evaluators.calls.call import CallBlock, equal_call_index, sort_breadth_first
from dse.evaluators.cost_models import cost_model, jobs
from dse.evaluators.cost_models import die_exchange_jobs as crossings
from dse.evaluators.cost_models.call_cost import TimedBlock
from dse.evaluators.graph.operators import Operator, Segment
from dse.evaluators.layouts import tensor_parallel as devices
from dse.evaluators.layouts.attention_requests import RequestsOfReach
from dse.evaluators.layouts.engine_overheads import StepTerms, step_terms
from dse.evaluators.layouts.micro_batches import ReplicaWork
from dse.evaluators.layouts.multi_die import DieContext, DieSplit, micro_batch_passes, unchanged_segment
from dse.evaluators.layouts.tensor_formats import ValueBytes, combine_bytes, value_bytes
from dse.evaluators.machine.machine import HardwareModel, shared_cache_machine
from dse.evaluators.machine.tiered_reads import EXPERTS, KV, WEIGHTS, Shares, TieredReads
from dse.evaluators.program.activity import Activity
from dse.evaluators.silicon.energy import WORD, PooledActivity, pooled_dynamic_energy
from dse.space.design import Design
from dse.space.mapping import BYTES_BY_FORMAT, FormatPlan, Mapping
from dse.space.memoize import memoize
from dse.space.memory_tiers import CONTENTS
from dse.space.model import Model
from dse.space.number_formats import FormatRates
from dse.space.workload import BatchCase


def breakdown_rows(phase: PhaseCost, fidelity: str) -> list[BreakdownRow]:
    """Breakdown rows of one phase: operators, those of two layer kinds together, and what the engine adds."""
    plain, padded = (_call_rows(phase, timed, fidelity) for timed in (phase.timed, phase.padded))
    padding = [breakdown.padding_row(phase.name, plain, padded)] if padded else []
    return [*plain, *padding, *breakdown.overhead_rows(phase.name, 1.0, phase.overheads)]


def _call_rows(phase: PhaseCost, timed: Sequence[TimedBlock], fidelity: str) -> list[BreakdownRow]:
    """Breakdown rows of the calls of some blocks of a phase."""
    rows: dict[tuple[str, str], BreakdownRow] = {}
    for timed_block in timed:
        split, many = (
            partial(jobs.time_by_resource, fidelity),
            {"dies": phase.dies, "useful_times": phase.dies * phase.useful_share},
        )
        for row in breakdown.breakdown_rows(
            phase.name, 1.0, [timed_block], phase.machine, split=split, left=crossings.sent_bytes, **many
        ):
            row = replace(row, segment=timed_block.block.calls[0].part)
            key = row.segment, row.operator
            rows[key] = merge_rows(rows[key], row) if key in rows else row
    return list(rows.values())


def _of_design(tiers: TieredReads | None, design: Design, work: ReplicaWork, die_split: DieSplit, fidelity: str) -> Alone:
    mapping = design.mapping
    passed, formats = mapping.stack.attention_passes, mapping.precision
    rates = design.chip.core.rates
    stack = mapping.stack
    imbalance = None if stack.moe is None else stack.moe.imbalance
    found_design: Alone = _own(
        work, die_split, _machine(tiers, design, work.plan), formats, rates, passed, fidelity, step_terms(stack), imbalance
    )
    return found_design


@memoize
def _own(
    work: ReplicaWork,
    die_split: DieSplit,
    machine: HardwareModel,
    precision: FormatPlan,
    rates: FormatRates | None,
    passed: Any,
    fidelity: str,
    terms: StepTerms,
    imbalance: Any,
) -> Alone:
    """Work of single dies.

    Args:
        work, die_split, machine, precision, rates, fidelity: as they are.
        passed: vector passes over K and V.
        terms: terms of the stack; work is padded already where it says so.
        imbalance: excess rows of the busiest die with experts, as of `DieContext`.
    """

    def cover(part: Segment, attend: RequestsOfReach) -> CallBlock:
        calls = devices.segment_calls(part, 1, precision, rates, terms=terms)
        return CallBlock(part.name, calls, equal_call_index(calls), sort_breadth_first(calls), float(part.times))

    def sums(parts: list[TimedBlock]) -> tuple[Any, Activity, float]:
        blocks = tuple(part.block for part in parts)
        done = device_activity(blocks, passed, machine.cache)
        if machine.tiers is not None:
            done = done.plus(tier_activity(blocks, machine.tiers))
        activity = Activity(
            macs=done.operands / WORD,  # as if of 16 bits
            elements=done.elements,
            memory_bytes=done.memory_bytes,
            cache_bytes=done.shared_bytes,
            tier_energy=done.tier_energy,
        )
        flop = sum((part.block.times * call.flop for part in parts for call in part.block.calls), 0.0)
        return sum(part.seconds * part.block.times for part in parts), activity, flop

    context = DieContext(
        work.model,
        cover,
        float(BYTES_BY_FORMAT[precision.activations]),
        combine_bytes(precision),
        unchanged_segment,
        0.0 if terms.reduction is None else float(BYTES_BY_FORMAT[terms.reduction]),
        imbalance,
        counts_calls=True,
    )
    return single_die_work(micro_batch_passes(work, die_split, context), machine, cost_model(fidelity), sums)[0], ()


def _machine(tiers: TieredReads | None, design: Design, phase: str) -> HardwareModel:
    """What a die computes with: without the cores that forward tokens between boxes, where both go on at a time.

    With `tiers`, memory tiers have shares of what it reads.
    """
    chip, plan, library = single_die_chip(design.chip), getattr(design.mapping, phase), design.mapping.stack.moe_all_to_all
    if library is not None and plan.overlap == "two_batch" and plan.all_to_all == "hierarchical":
        chip = replace(chip, cores=chip.cores - library.cores)
    machine = shared_cache_machine(chip, design.mapping)
    return machine if tiers is None else machine._replace(tiers=tiers)


def _sizes(mapping: Mapping) -> ValueBytes:
    return value_bytes(mapping.precision)


def _reached(mapping: Mapping) -> Any:
    return mapping.stack.network_efficiency


def _pace(design: Design, part: Segment, operator: Operator) -> Any:
    """Pace of an operator's product over that at the usual formats."""
    call = devices.device_call(part, operator, 1, design.mapping.precision, design.chip.core.rates)
    return call.pace / usual_pace(design)


def tiered_kind(tiers: TieredReads | None) -> DieKind:
    """Work of a die whose memory tiers have shares of what it reads; None for main memory only."""
    return DieKind(partial(_of_design, tiers), partial(_machine, tiers), _sizes, _reached, together=True, pace=_pace)


DIE_KIND = tiered_kind(None)


def _done(activity: Activity) -> PooledActivity:
    return PooledActivity(
        activity.macs,
        WORD * activity.macs,
        activity.elements,
        activity.memory_bytes,
        activity.cache_bytes,
        activity.linked_bytes + activity.boxed_bytes,
        activity.tier_energy,
    )


def activity_energy(design: Design, activity: Activity) -> Any:
    """Dynamic energy of an activity on shared-cache dies. [J]"""
    return pooled_dynamic_energy(_done(activity), design.chip)


def memory_capacity(design: Design) -> Any:
    """Main-memory capacity of one die. [B]"""
    return device_capacity(design.chip, design.mapping)


def die_reads(design: Design, shares: Dict[str, Shares], model: Model) -> TieredReads:
    """Reads of contents on one of many dies, which have experts of any popularity."""
    return tiered_reads(design.chip, shares, model)._replace(expert_reads=None)


def _content(name: str) -> str | None:
    """Content that an item of a die's memory belongs to; None for activations and reserves."""
    if name in (f"weights of {ROUTED_EXPERTS}", f"weights of {COPIES}"):
        return EXPERTS
    if name == CACHE:
        return KV
    return WEIGHTS if name.startswith("weights of ") else None


def _place_items(design: Design, items: MemoryItems) -> MemoryPlacement:
    """Placement of what a die holds by use, in main memory beside the rest, and in tiers."""
    nbytes: dict[str, Any] = dict.fromkeys(CONTENTS, 0.0)
    room = memory_capacity(design)
    for name, value in items:
        content = _content(name)
        if content is None:
            room = room - value
        else:
            nbytes[content] = nbytes[content] + value
    return place_contents(design.chip, design.mapping, room, nbytes)


def die_contents(design: Design, phase: str, items: MemoryItems, slices: Any) -> list[MemoryContents]:
    """Contents of a die's main memory, without tiers."""
    return [main_memory_contents(design.chip, items, capacity=memory_capacity(design))]


class SharedCacheDiesLayout(MultiDieLayout):
    """A model on many shared-cache dies."""

    kind = DIE_KIND

    def phase_kinds(self, design: Design, case: BatchCase, held: Dict[str, MemoryItems]) -> dict[str, DieKind]:
        """Work of a die in each phase: with memory tiers, those of its contents in decode."""
        if design.chip.tiers is None:
            return dict.fromkeys(held, DIE_KIND)
        fullest = _place_items(design, held["decode"])  # weights stay where they are in both phases
        return dict.fromkeys(held, tiered_kind(die_reads(design, fullest.shares, case.model)))

    def die_contents(self, design: Design, phase: str, items: MemoryItems, slices: Any) -> list[MemoryContents]:
        """Contents of the memories of a die."""
        if design.chip.tiers is not None:
            beside = tuple((name, value) for name, value in items if _content(name) is None)
            return list(memories_contents(design.chip, _place_items(design, items), beside, memory_capacity(design)))
        return die_contents(design, phase, items, slices)

    def peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of one die with a shared cache."""
        return device_peak_rates(design)

    def activity_energy(self, design: Design, activity: Activity) -> Any:
        """Dynamic energy of an activity of all dies. [J]"""
        return activity_energy(design, activity)

    def breakdown_rows(self, phase: PhaseCost, fidelity: str) -> list[BreakdownRow]:
        """Breakdown rows of one phase; equal operators of two layer kinds are merged."""
        return breakdown_rows(phase, fidelity)
