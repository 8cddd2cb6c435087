"""Models on many dies: stages, micro-batches, exchanges between dies, die memory and limits.

The work of one die is given by a `DieKind`: `accounting.tile_dies` for dies of tiles, `accounting.shared_cache_dies`
for shared-cache dies.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dict
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting import multi_die_limits as dies_limits
from dse.evaluators.accounting.decode_segments import BatchArrays, arrays_by_case
from dse.evaluators.accounting.engine_memory import EngineDemand, engine_limits, engine_memory
from dse.evaluators.accounting.layout import STAGE_WAITS, Layout, only_case
from dse.evaluators.accounting.memory_contents import MemoryContents
from dse.evaluators.accounting.memory_placement import refuse_staged_tiers
from dse.evaluators.accounting.metrics import decode_rate
from dse.evaluators.accounting.multi_die_limits import chip_die_count, phase_split
from dse.evaluators.accounting.multi_die_memory import WEIGHTS, bytes_by_unit
from dse.evaluators.accounting.multi_die_overheads import dies_terms, mean_stage_overheads, pass_overheads
from dse.evaluators.accounting.phase import IterationSchedule, PhaseCost, mesh_work, phase_seconds
from dse.evaluators.accounting.remedies import Lever
from dse.evaluators.calls.call import CallBlock, KernelCall
from dse.evaluators.cost_models import cost_model
from dse.evaluators.cost_models.call_cost import CostModel, TimedBlock, block_timeline
from dse.evaluators.cost_models.die_exchange_jobs import DieGroups, make_die_groups
from dse.evaluators.graph.expert_loads import experts_per_token, parts_reached
from dse.evaluators.graph.operators import Operator, Segment, useful_flop
from dse.evaluators.graph.step_counts import StepCounts, decode_steps, prefill_step
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.layouts.engine_overheads import OverheadTimes
from dse.evaluators.layouts.micro_batches import BatchWork, ReplicaWork
from dse.evaluators.layouts.multi_die import DieExchange, DieSplit, LayerUnit, MicroBatchPass, largest_replica_share
from dse.evaluators.layouts.stage_balance import cut_stages
from dse.evaluators.layouts.tensor_formats import ValueBytes
from dse.evaluators.machine.machine import HardwareModel
from dse.evaluators.program.activity import Activity
from dse.space.array_math import Array, maximum
from dse.space.design import Design
from dse.space.limits import Infeasibility, Limit
from dse.space.mapping import Mapping, MultiDiePlan
from dse.space.memoize import MAX_IDENTITIES, LastUsed, memoize
from dse.space.model import ExpertLayers, Model
from dse.space.workload import BatchCase

WAIT_LABEL = "stages"
"""Where micro-batches wait for the slowest stage."""

HIDDEN_LABEL = "exchanges behind the other half"
"""Time saved where one half of a micro-batch computes while the other exchanges, without waits."""


class UnitWork(NamedTuple):
    """Work of one die in one unit of the model: timed blocks, exchanges between them, and sums.

    `beyond` is the work of an FFN die, where attention and FFN are on different dies.
    """

    steps: tuple[TimedBlock | DieExchange, ...]
    seconds: Any
    activity: Activity
    flop: float
    beyond: "UnitWork | None" = None


Sums = Callable[[list[TimedBlock]], tuple[Any, Activity, float]]
"""Seconds, activity and useful operations of blocks."""

Alone = tuple[tuple[tuple[MicroBatchPass, tuple[UnitWork, ...]], ...], Any]
"""Work of one die in the forward passes of a phase, and further results."""


def equal_pace(design: Design, part: Segment, operator: Operator) -> float:
    """Pace of dies whose engines multiply all formats at one rate."""
    return 1.0


class DieKind(NamedTuple):
    """Functions that give the work, machine and value sizes of one die of a multi-die system.

    Attributes:
        own: work of one die, from a design, an attention replica's work, the division and the fidelity.
        machine: hardware of a die in a phase.
        sizes: bytes of weights and of a cached value.
        reached: share of the links' bandwidth that its software reaches.
        together: whether the analytical model takes several iterations at once.
        pace: time of an operation of a product over one at the formats of `PeakRates.flops`, for an operator.
    """

    own: Callable[[Design, ReplicaWork, DieSplit, str], Alone]
    machine: Callable[[Design, str], HardwareModel]
    sizes: Callable[[Mapping], ValueBytes]
    reached: Callable[[Mapping], Any]
    together: bool = False
    pace: Callable[[Design, Segment, Operator], Any] = equal_pace


class UnitOfPass(NamedTuple):
    """Units of one kind in a forward pass: their number, and the time and activity of one on a die.

    Where FFNs are on dies of their own, activity and useful operations are means over all dies of a stage, `timed`
    is of an attention die, with exchanges, and `beyond` of an FFN die.
    """

    name: str
    times: int
    seconds: Any
    activity: Activity
    flop: float
    timed: list[TimedBlock]
    beyond: tuple[TimedBlock, ...] = ()


class PassWork(NamedTuple):
    """A forward pass of a micro-batch with its units timed, and the transfer to the next stage."""

    of: MicroBatchPass
    units: tuple[UnitOfPass, ...]
    onward: list[TimedBlock]

    def seconds(self, die_split: DieSplit) -> Any:
        """Time of the kernels and exchanges of all parts of the micro-batch through all stages. [s]"""
        onward = (die_split.pp - 1) * die_split.halves * self.onward[0].seconds if self.onward else 0.0
        return onward + sum(unit.times * unit.seconds for unit in self.units)


MemoryItems = tuple[tuple[str, Any], ...]
"""Bytes of a memory by use."""


class MultiDieLayout(Layout):
    """A model on many dies, by stages of layers, replicas of attention and groups of experts.

    Micro-batches pass the stages one after another, and dies exchange tokens between attention and FFNs. Cases are evaluated
    one by one.
    """

    FIDELITIES = ("analytical", "events")
    SINGLE_DESIGN_FIDELITIES = ("events",)
    WAIT_LABEL, GAP_LABEL, HIDDEN_LABEL = WAIT_LABEL, STAGE_WAITS, HIDDEN_LABEL
    batch_arrays = staticmethod(arrays_by_case)

    @property
    @abstractmethod
    def kind(self) -> DieKind:
        """Work, machine and value sizes of one die."""

    def phase_kinds(self, design: Design, case: BatchCase, held: Dict[str, MemoryItems]) -> dict[str, DieKind]:
        """Work of a die in each phase, given the bytes that it holds by use."""
        return dict.fromkeys(held, self.kind)

    @abstractmethod
    def die_contents(self, design: Design, phase: str, items: MemoryItems, slices: Any) -> list[MemoryContents]:
        """Contents of the memories of the fullest die in a phase.

        Args:
            design: of many dies.
            phase: its name.
            items: bytes of main memory by use.
            slices: further results of a die's work, as its kind gives them.
        """

    @abstractmethod
    def activity_energy(self, design: Design, activity: Activity) -> Any:
        """Dynamic energy of an activity of all dies. [J]"""

    def phases(self, design: Design, job: BatchArrays, fidelity: str, *, detailed: bool = False) -> tuple[PhaseCost, ...]:
        """Costs of prefill and decode of a case, micro-batches passing through stages.

        Raises:
            DesignError: formats of other sizes side by side, where a die has values of one size.
        """
        case, kind = only_case(job), self.kind
        splits = [phase_split(design, case, name) for name in ("prefill", "decode")]
        if any(split.pp > 1 or split.attention for split in splits):
            refuse_staged_tiers(design)
        terms = dies_terms(design.mapping)
        both = {
            name: _play_phase(kind, design, case, job.decode_context, name, fidelity, terms.sizes)
            for name in ("prefill", "decode")
        }
        played = {name: passes for name, (passes, _) in both.items()}
        stages = units_per_stage(played["decode"], phase_split(design, case, "decode").pp)
        held = _held_bytes(design, case, stages, played, kind.sizes(design.mapping))
        kinds = self.phase_kinds(design, case, held)
        if design.chip.tiers is not None:  # what a die reads, where it is now
            both = {
                name: _play_phase(kinds[name], design, case, job.decode_context, name, fidelity, terms.sizes) for name in both
            }
        phases = []
        for name, (work, slices) in both.items():
            die_split = phase_split(design, case, name)
            beside = [
                pass_overheads(design.mapping, case.model, step.of.step, die_split, step.seconds(die_split)) for step in work
            ]
            seconds, total, done = _sum_passes(work, stages, die_split, name, beside)
            plain, padded = work, tuple[TimedBlock, ...]()
            if detailed and terms.pads(name):
                plain, _ = _play_phase(kinds[name], design, case, job.decode_context, name, fidelity, ())
                padded = tuple(detailed_blocks(work, die_split))
            flop = _useful_operations(case, name, job.decode_context)
            phases.append(
                PhaseCost(
                    name=name,
                    machine=kinds[name].machine(design, name),
                    seconds=seconds,
                    work=total,
                    flop=partial(_paced_operations, kind, design, case, name, job.decode_context),
                    memory=tuple(self.die_contents(design, name, held[name], slices)),
                    timed=tuple(detailed_blocks(plain, die_split)) if detailed else (),
                    dies=die_split.ranks,
                    useful_share=flop / done if done else 1.0,
                    padded=padded,
                    overheads=mean_stage_overheads(
                        [(step.of.times, each) for step, each in zip(work, beside, strict=True)], die_split
                    ),
                )
            )
        return tuple(phases)

    def structural_limits(self, design: Design, job: BatchArrays, phases: Sequence[PhaseCost]) -> list[Limit]:
        """Limits of dividing a model over many dies of any kind."""
        return [*dies_limits.limits(design, job), *engine_limits(design.mapping, job.model, job.decode.guesses)]

    def phase_energy(self, design: Design, job: BatchArrays, phase: PhaseCost) -> Any:
        """Dynamic energy of a phase on all dies. [J]"""
        return self.activity_energy(design, mesh_work(phase))

    def own_metrics(self, design: Design, job: BatchArrays, phases: Sequence[PhaseCost]) -> dict[str, Any]:
        """Decode throughput of one die."""
        return {"decode_throughput_per_chip": decode_rate(job, phases[1].seconds) / self.die_count(design)}

    def die_count(self, design: Design) -> int:
        """Number of dies that serve a batch."""
        return chip_die_count(design.chip)

    def layout_limits(self, design: Design, job: BatchArrays) -> list[Limit]:
        """Limits of an impossible layout: more ranks than dies, more stages than units, or uneven groups."""
        return dies_limits.layout_limits(design, job)

    def early_limits(self, design: Design, job: BatchArrays) -> list[Limit]:
        """Limits known before any cost is computed: layout, and even spread of requests."""
        return dies_limits.early_limits(design, job)

    def levers(self, worst: Infeasibility, design: Design, arrays: Sequence[BatchArrays]) -> tuple[Lever, ...]:
        """What to change where the division over dies violates a limit."""
        return dies_limits.die_levers(worst, design, arrays)

    def memory_by_use(self, phases: Sequence[PhaseCost]) -> dict[str, float]:
        """Main memory of the fullest die in the fuller phase, by use, for one design. [B]"""
        contents = [memory for phase in phases for memory in phase.memory if memory.is_main]
        fullest = max(contents, key=lambda memory: float(memory.need))
        return {name: float(value) for name, value in fullest.parts}


def _paced_operations(kind: DieKind, design: Design, case: BatchCase, phase: str, decode_context: str) -> Any:
    """Useful operations of a phase on all dies; those in other formats count by the time that they take. [op]"""
    if kind.pace is equal_pace:
        return _useful_operations(case, phase, decode_context)
    steps = _phase_steps(case, phase, decode_context)
    return sum(count * paced_operations(kind, design, case.model, at) for count, at in steps)


def paced_operations(kind: DieKind, design: Design, model: Model, at: StepCounts) -> Any:
    """Useful operations of a step; those in other formats count by the time that they take. [op]"""
    return sum(
        part.times * float(useful_flop(operator)) * kind.pace(design, part, operator)
        for part in transformer_segments(model, at)
        for operator in part.operators
    )


def _phase_steps(case: BatchCase, phase: str, decode_context: str) -> list[tuple[float, StepCounts]]:
    """Steps of a phase, each with how often it runs."""
    return [(1.0, prefill_step(case))] if phase == "prefill" else decode_steps(case, decode_context)


@memoize
def _useful_operations(case: BatchCase, phase: str, decode_context: str) -> float:
    """Useful operations of a phase, on all dies."""
    each = [
        count * part.times * float(useful_flop(operator))
        for count, at in _phase_steps(case, phase, decode_context)
        for part in transformer_segments(case.model, at)
        for operator in part.operators
    ]
    return sum(each, 0.0)


def _play_phase(
    kind: DieKind,
    design: Design,
    case: BatchCase,
    decode_context: str,
    phase: str,
    fidelity: str,
    graph_sizes: tuple[float, ...],
) -> tuple[tuple[PassWork, ...], Any]:
    """Forward passes of a phase, and further results of a die in it; requests padded to the sizes of recorded graphs."""
    die_split = phase_split(design, case, phase)
    work = BatchWork(largest_replica_share(case, die_split.slots), phase, decode_context, graph_sizes)
    return pass_work(kind, design, work, die_split, fidelity)


def pass_work(
    kind: DieKind, design: Design, work: ReplicaWork, die_split: DieSplit, fidelity: str, rows: tuple[int, int] | None = None
) -> tuple[tuple[PassWork, ...], Any]:
    """Forward passes of one attention replica's work, and further results of a die in them.

    Args:
        kind, design, work, fidelity: kind of die, design, work of an attention replica, and fidelity.
        die_split: how the model is divided; all copies of it exchange at the same time.
        rows: of dies, first and how many, that the copies of the model are on; None for all.
    """
    passes, key = list[PassWork](), (id(design), id(work.model), work.plan, die_split, fidelity, rows)
    # what was given is kept too, so that nothing else takes its place
    crossed, *_ = _crossings.find(key) or _crossings.keep(
        key, (_crossing_price(kind, design, work, die_split, fidelity, rows), design, work.model)
    )
    own, slices = kind.own(design, work, die_split.single_die, fidelity)
    for forward_pass, ran in own:
        units = tuple(
            _with_exchanges(unit, of_unit, die_split, crossed) for unit, of_unit in zip(forward_pass.units, ran, strict=True)
        )
        onward = DieExchange("to the next stage", "hand_over", forward_pass.onward)
        passes.append(PassWork(forward_pass, units, [crossed(onward, "stage")] if die_split.pp > 1 else []))
    return tuple(passes), slices


_crossings: LastUsed[Any, tuple[Callable[[DieExchange, str], TimedBlock], Design, Model]] = LastUsed(MAX_IDENTITIES)
"""Of the last designs and phases, who prices what dies exchange."""


def _crossing_price(
    kind: DieKind, design: Design, work: ReplicaWork, die_split: DieSplit, fidelity: str, rows: tuple[int, int] | None
) -> Callable[[DieExchange, str], TimedBlock]:
    """Cached function that times exchanges between dies; arguments as of `pass_work`."""
    mapping, plan = design.mapping, getattr(design.mapping, work.plan)
    where = make_die_groups(
        design.chip, plan.placement, die_split.dp * die_split.pp, die_split.group, die_split.tp, die_split.pp,
        reached=kind.reached(mapping),
        copies=_copies_by_reach(plan, work.model),
        library=None if mapping.stack is None else mapping.stack.moe_all_to_all,
        half=None if mapping.stack is None else mapping.stack.network_half_size,
        rows=rows,
        sums=(plan.allreduce, int(plan.ktree_k)),
        attention=die_split.attention,
    )  # fmt: skip
    return partial(_exchange_block, where=where, reader=cost_model(fidelity), known={})


def _copies_by_reach(plan: MultiDiePlan, model: Model) -> Callable[[int], float] | None:
    """Copies of a token to boxes for each to an expert, where it goes by boxes, by how many of them have experts."""
    experts = model.experts
    if plan.all_to_all != "hierarchical" or experts is None:
        return None
    selected_experts, wanted_experts = experts, experts_per_token(experts, int(plan.experts.shared_copies))
    return lambda boxes: _boxes_reached(selected_experts, boxes, wanted_experts - selected_experts.top_k) / wanted_experts


def _boxes_reached(experts: ExpertLayers, boxes: int, shared: int) -> float:
    """Boxes that a token goes to, also for copies of some shared experts, which are in any of them alike."""
    routed = parts_reached(experts, boxes)
    return boxes - (boxes - routed) * (1 - 1 / boxes) ** shared


def single_die_work(
    passes: Sequence[MicroBatchPass], machine: HardwareModel, reader: CostModel, sums: Sums
) -> tuple[Any, list[TimedBlock]]:
    """Work of one die in forward passes, without its exchanges, and all its timed blocks.

    What takes as long as the die with most rows at its experts is counted as the mean die does it: its calls, not its time.
    """
    found_passes, parts = [], []
    known: dict[int, CallBlock] = {}
    means: dict[int, CallBlock] = {}

    @cache
    def run(block: int) -> TimedBlock:
        timed = block_timeline([known[block]], machine, reader)[0]
        return timed._replace(block=means[block]) if block in means else timed

    for forward_pass in passes:
        units = []
        for unit in forward_pass.units:
            known.update({id(step): step for step in (*unit.steps, *unit.beyond) if isinstance(step, CallBlock)})
            means.update({id(most): mean for most, mean in unit.means})
            steps = [step if isinstance(step, DieExchange) else run(id(step)) for step in unit.steps]
            blocks = [step for step in steps if isinstance(step, TimedBlock)]
            beyond = [run(id(step)) for step in unit.beyond]
            work = UnitWork(tuple(beyond), *sums(beyond)) if beyond else None
            units.append(UnitWork(tuple(steps), *sums(blocks), work))
            parts += blocks + beyond
        found_passes.append((forward_pass, tuple(units)))
    return tuple(found_passes), parts


def _with_exchanges(
    unit: LayerUnit, ran: UnitWork, die_split: DieSplit, cross: Callable[[DieExchange, str], TimedBlock]
) -> UnitOfPass:
    """A unit with its exchanges; with two halves the longer of computation and exchange counts."""
    if die_split.attention:
        return _with_separate_ffn(unit, ran, die_split, cross)
    activity, parts = ran.activity, []
    exchanged: Any = 0.0
    for step in ran.steps:
        if isinstance(step, TimedBlock):
            parts.append(step)
            continue
        crossed = cross(step, unit.name)
        parts.append(crossed)
        exchanged = exchanged + crossed.seconds
        activity = activity + (crossed.costs[0].activity or Activity())
    seconds = ran.seconds + exchanged if die_split.halves == 1 else die_split.halves * maximum(ran.seconds, exchanged)
    return UnitOfPass(unit.name, unit.times, seconds, activity, ran.flop, parts)


def _with_separate_ffn(
    unit: LayerUnit, ran: UnitWork, die_split: DieSplit, cross: Callable[[DieExchange, str], TimedBlock]
) -> UnitOfPass:
    """A unit of which attention and FFN are on dies of their own, of all micro-batches between them.

    What is without an FFN follows one after the other on attention dies.
    """
    activity, parts, taken = Activity(), list[TimedBlock](), {True: 0.0, False: 0.0}
    mine: Any = ran.seconds
    for step in ran.steps:
        if isinstance(step, TimedBlock):
            parts.append(step)
            continue
        crossed = cross(step, unit.name)
        parts.append(crossed)
        activity = activity + (crossed.costs[0].activity or Activity())
        if step.pattern == "all_to_all":
            taken[step.back] = taken[step.back] + crossed.seconds
        else:
            mine = mine + crossed.seconds
    if ran.beyond is None:
        mean = ran.activity * (die_split.attention / die_split.group) + activity
        return UnitOfPass(
            unit.name, unit.times, die_split.halves * mine, mean, ran.flop * die_split.attention / die_split.group, parts
        )
    theirs = ran.beyond
    seconds = pingpong_seconds(die_split.halves, (mine, *taken.values(), theirs.seconds))
    near, far = die_split.attention / die_split.group, die_split.ep / die_split.group
    mean = ran.activity * near + theirs.activity * far + activity
    flop = ran.flop * near + theirs.flop * far
    beyond = tuple(step for step in theirs.steps if isinstance(step, TimedBlock))
    return UnitOfPass(unit.name, unit.times, seconds, mean, flop, parts, beyond)


def pingpong_seconds(micro: int, each: Sequence[Any]) -> Any:
    """Layer time of all micro-batches that alternate between attention dies and FFN dies. [s]

    A micro-batch takes a on attention dies, with exchanges among them, f on those of FFNs, and c and r on its way there and
    back. Each of the four has one micro-batch at a time, and micro-batches follow one another from layer to layer and from
    iteration to iteration, so that m of them take

        max(m max(a, c, f, r), a + c + f + r)

    With one nothing is beside anything else.

    Args:
        micro: m, at least 1. [1]
        each: a, c, f and r. [s]

    Source:
        [zhu2025megascale] section 4.1, equations 1 to 5: there a = f, and three micro-batches hide exchanges of half of it.

    >>> (
    ...     pingpong_seconds(1, (4.0, 1.0, 4.0, 1.0)),
    ...     pingpong_seconds(2, (4.0, 1.0, 4.0, 1.0)),
    ...     pingpong_seconds(3, (4.0, 1.0, 4.0, 1.0)),
    ... )
    (10.0, 10.0, 12.0)
    """
    slowest = each[0]
    for other in each[1:]:
        slowest = maximum(slowest, other)
    seconds = maximum(micro * slowest, sum(each))
    return float(seconds) if np.ndim(seconds) == 0 else seconds


def _exchange_block(
    exchange: DieExchange, part: str, where: DieGroups, reader: CostModel, known: dict[Any, tuple[TimedBlock, Any]]
) -> TimedBlock:
    """An exchange as a block of one call; equal exchanges are timed once."""
    apart = where.boxed is not None or where.routed is not None  # that tokens go otherwise than their results

    def priced() -> TimedBlock:
        job = where.build_job(
            exchange.pattern, exchange.nbytes, exchange.shares, back=exchange.back, each=exchange.each, whole=exchange.whole
        )
        call = KernelCall(part, exchange.name, (), 0.0, (exchange.nbytes, 1, 1), job=job)
        return block_timeline([CallBlock(exchange.name, (call,), (0,), (0,), 1.0)], EMPTY_MACHINE, reader)[0]

    if isinstance(exchange.nbytes, np.ndarray):
        return priced()
    routed = (exchange.back, exchange.each) if apart else ()
    alike = exchange.pattern, exchange.nbytes, id(exchange.shares), exchange.whole, routed
    if alike not in known:
        known[alike] = priced(), exchange.shares
    timed_block, _ = known[alike]  # shares are kept, so that no others take their place
    call = timed_block.block.calls[0]._replace(part=part, name=exchange.name)
    return timed_block._replace(block=timed_block.block._replace(name=exchange.name, calls=(call,)))


EMPTY_MACHINE = HardwareModel(None, None, None, 0.0, None, None, 0.0)
"""What exchanges need of a die."""


def units_per_stage(decode: Sequence[PassWork], stages: int) -> Array:
    """Units on each stage, balanced for decode steps, or for one where none runs.

    Returns:
        Shape (stages, kinds, designs).
    """
    first, runs = decode[0].units, any(step.of.times for step in decode)
    seconds = [
        sum((step.of.times if runs else 1.0) * step.units[kind].seconds for step in decode) for kind in range(len(first))
    ]
    return cut_stages(seconds, [unit.times for unit in first], min(stages, sum(unit.times for unit in first)))


def _sum_passes(
    played: Sequence[PassWork], stages: Array, die_split: DieSplit, phase: str, beside: Sequence[OverheadTimes]
) -> tuple[Any, Activity, float]:
    """Time of all forward passes with what is beside their kernels, and activity of all dies for all micro-batches."""
    seconds: Any = 0.0
    activity, flop = Activity(), 0.0
    for step, overheads in zip(played, beside, strict=True):
        times = step.of.times
        onward = step.onward[0].seconds * die_split.halves if step.onward else 0.0
        seconds = seconds + times * _pace_batches(
            [unit.seconds for unit in step.units], stages, onward, die_split.batches, phase, overheads.iteration_seconds(0.0)
        )
        every = times * die_split.batches * die_split.halves * die_split.dp * die_split.group
        for unit in step.units:
            activity = activity + unit.activity * (every * unit.times)
            flop += unit.flop * (every * unit.times)
        if step.onward:
            activity = activity + exchange_activity(step.onward) * (every * (die_split.pp - 1))
    return seconds, activity, flop


def exchange_activity(blocks: list[TimedBlock]) -> Activity:
    """Activity of one exchange between dies."""
    return blocks[0].costs[0].activity or Activity()


def _pace_batches(seconds: Sequence[Any], stages: Array, onward: Any, batches: int, phase: str, beside: Any = 0.0) -> Any:
    """Time of some micro-batches in flight, each with a time beside its kernels, which stages share evenly.

    A step of decode is over when its slowest stage has had them all, and no sooner than one has passed all stages; prompts fill
    and drain the pipeline.
    """
    own = np.stack(np.broadcast_arrays(*(np.atleast_1d(np.asarray(value, float)) for value in seconds)))
    each = np.sum(stages * own, axis=1) + beside / len(stages)
    slowest = np.maximum(np.max(each[:-1] + onward, axis=0, initial=0.0), each[-1])
    through = each.sum(axis=0) + (len(each) - 1) * onward
    found_seconds = phase_seconds(through, slowest, IterationSchedule(batches, is_ring=phase == "decode"))
    return found_seconds if any(isinstance(value, np.ndarray) for value in (*seconds, onward)) else float(found_seconds[0])


def detailed_blocks(played: Sequence[PassWork], die_split: DieSplit) -> list[TimedBlock]:
    """Timed blocks of all micro-batches on the mean stage, for breakdowns; the rest is waiting."""
    blocks = []
    for step in played:
        every = die_split.halves * step.of.times * die_split.batches / die_split.pp
        for unit in step.units:
            blocks += [_repeat_block(block, every * unit.times) for block in unit.timed]
        blocks += [_repeat_block(block, every * (die_split.pp - 1)) for block in step.onward]
    return blocks


def _repeat_block(block: TimedBlock, times: float) -> TimedBlock:
    return block._replace(block=block.block._replace(times=times * block.block.times))


def _held_bytes(
    design: Design, case: BatchCase, stages: Array, played: Dict[str, tuple[PassWork, ...]], sizes: ValueBytes
) -> dict[str, tuple[tuple[str, Any], ...]]:
    """Bytes in HBM of the fullest die, by what they are for, in both phases; all micro-batches have their caches there."""
    memory_items: dict[str, tuple[tuple[str, Any], ...]] = {}
    for phase, passes in played.items():
        die_split = phase_split(design, case, phase)
        items = bytes_by_unit(case, phase, die_split, sizes, tuple(unit.name for unit in passes[0].units))
        on_stage = np.tensordot(items, stages, (1, 1))
        most = on_stage[:, np.argmax(on_stage.sum(axis=0), axis=0), np.arange(stages.shape[2])]
        of_caches, *of_weights = most if stages.shape[2] > 1 else most[:, 0].tolist()
        memory_items[phase] = (
            *((f"weights of {name}", weights) for name, weights in zip(WEIGHTS, of_weights, strict=True) if np.any(weights)),
            ("KV cache", of_caches),
            *(
                _engine_items(design, case, die_split, sum(of_weights))
                if design.mapping.inference_engine is not None
                else (
                    ("activations", die_split.halves * max(step.of.held for step in passes)),
                    ("dispatched tokens", die_split.halves * max(step.of.received for step in passes)),
                )
            ),
        )
    return memory_items


def _engine_items(design: Design, case: BatchCase, die_split: DieSplit, weights: Any) -> MemoryItems:
    """Bytes of a die beside weights and KV caches by the rule of its inference engine, which starts for this batch. [B]"""
    requests = sum(count for count, _, _ in case.requests) / (die_split.dp * die_split.copies)
    demand = EngineDemand(
        max(prompt for _, prompt, _ in case.requests),
        requests,
        die_split.tp,
        die_split.group * die_split.pp,
        die_split.copies if die_split.ep > 1 else 1,
    )
    return engine_memory(design.chip, design.mapping, case.model, weights, 0.0, demand).parts(design.mapping)
