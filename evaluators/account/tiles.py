"""A chip of tiles that works on one operator at a time: what it does and holds, limits, and rows of operators."""

from collections.abc import Iterable
from collections.abc import Mapping as Dict
from typing import Any

from dse.evaluators.account.breakdown import Row, beyond, merged
from dse.evaluators.account.phase import Phase
from dse.evaluators.graph.operators import MatMul, Operator
from dse.evaluators.graph.step import Step
from dse.evaluators.graph.transformer import transformer
from dse.evaluators.kernels.attention import attention
from dse.evaluators.kernels.gemm.summa_diagonal import slots
from dse.evaluators.layouts.formats import apart_bytes, index_of
from dse.evaluators.layouts.residency import width
from dse.evaluators.passes.call import Block
from dse.evaluators.passes.part import cut
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.rounds import DTYPES
from dse.evaluators.readers import (
    closed_attention,
    closed_streamed,
    closed_summa,
    closed_walked,
    crossings,
    jobs,
    row_pieces,
)
from dse.evaluators.readers.cached import asked
from dse.evaluators.readers.in_turn import InTurn
from dse.evaluators.readers.part_jobs import job_on
from dse.evaluators.readers.price import Cost, Timed
from dse.space.chip import Chip, memory_of
from dse.space.design import Design
from dse.space.elementwise import maximum
from dse.space.fields import at
from dse.space.layers import at_reach
from dse.space.limits import Infeasible, Limit, divides, divides_rows, nearest_side, split_remedy, splits
from dse.space.mapping import BYTES, Mapping, Precision
from dse.space.model import Model
from dse.space.parameters import STATE_BYTES, drafting, drafting_parameters, growths, parameters

KINDS = {
    "products": closed_summa.Job,
    "attention": closed_attention.Job,
    "rows": closed_streamed.Job | closed_walked.Job,
}
"""Of operators, and their jobs."""

Held = tuple[tuple[tuple[str, float], ...], list[tuple[str, Any]]]
"""Of a phase, bytes in HBM by what they are for, and in a tile's local memory by kind of operator."""


def sums(parts: list[Timed]) -> tuple[Any, Activity, float]:
    """Seconds, activity and useful operations of blocks."""
    seconds: Any = 0.0
    flop = 0.0
    runs: dict[int, tuple[float, Cost]] = {}
    for of in parts:
        for call, cost, taken in zip(of.block.calls, of.costs, of.durations, strict=True):
            seconds = seconds + of.block.times * taken
            count, _ = runs.get(id(call.job), (0.0, cost))
            runs[id(call.job)] = count + of.block.times, cost
            flop += of.block.times * call.flop
    activity = Activity()
    for count, cost in runs.values():  # operators that are alike have one and the same job
        assert cost.activity is not None
        activity = activity + cost.activity * count
    return seconds, activity, flop


def filled(blocks: Iterable[Block]) -> list[tuple[str, Any]]:
    """By kind of operator, local memory of a tile in use, whatever anything takes. [B]"""
    each = {id(job): (times, job) for block in blocks for call in block.calls for times, job in _counted(asked(call.job))}
    return [
        (name, most(_nbytes(job) * (times > 0) for times, job in each.values() if isinstance(job, kind)))
        for name, kind in KINDS.items()
    ]


def _counted(job: Any) -> tuple[tuple[Any, Any], ...]:
    """Jobs that come one after the other, by themselves, and how often each counts."""
    return job.counted if isinstance(job, InTurn) else ((1.0, job),)


def one_by_one(job: Any) -> tuple[Any, ...]:
    """Jobs that come one after the other, by themselves."""
    return tuple(one for _, one in _counted(job))


def most(values: Iterable[Any]) -> Any:
    """The largest of some values, 0 where there are none; broadcasts over designs."""
    found: Any = 0.0
    for value in values:
        found = maximum(found, value)
    return found


def held(model: Model, at: Step, cached: Any, sequences: float, precision: Precision) -> tuple[tuple[str, float], ...]:
    """Bytes in HBM: all weights, caches and states, and what the operators of a part leave for one another.

    Args:
        model, at: of a step.
        cached: positions that caches have of all requests, by reach of the model.
        sequences: that have states.
        precision: formats.
    """
    parts, itemsize = transformer(model, at), BYTES[precision.activations]
    activations = max(sum(_left(of) for of in part.operators) for part in parts) + 2 * at.tokens * model.hidden
    weights = parameters(model) + at.guesses * drafting_parameters(model)
    drafted = drafting(model)[0] if at.guesses else None
    kv = states = 0.0
    for of in growths(model):
        times = of.layer.times + at.guesses * (drafted is not None and of.layer.name == drafted.name)
        positions, scored = (float(at_reach(cached, reach)) for reach in (of.layer.reach, of.layer.indexed))
        kv += times * (positions * of.kv * BYTES[precision.kv] + scored * of.scores * BYTES[index_of(precision)])
        states += times * sequences * (of.state * STATE_BYTES + of.conv * itemsize)
    stored = weights * BYTES[precision.weights] + apart_bytes(parts, precision)
    found = (("weights", stored), ("KV cache", kv), ("activations", activations * itemsize))
    return found + ((("states", states),) if states else ())


def limits_of(chip: Chip, mapping: Mapping, phases: Dict[str, Held]) -> list[Limit]:
    """Memories of both phases, and groups of tiles that divide the mesh."""
    found = []
    for here, _ in phases.values():
        found.append(Limit("chip.hbm.capacity", sum(value for _, value in here), memory_of(chip), "B", here))
    for phase, (_, kinds) in phases.items():
        for name, nbytes in kinds:
            found.append(Limit("chip.tile.sram", nbytes, chip.tile.sram, "B", ((f"{name} in {phase}", nbytes),)))
    for name, plan in (("prefill", mapping.prefill), ("decode", mapping.decode)):
        where = f"mapping.{name}"
        if attention(plan.attention.dataflow).grouped:
            found.append(divides_rows(f"{where}.attention.rows", plan.attention.rows, chip.mesh.rows))
            found.append(divides(f"{where}.attention.cols", plan.attention.cols, chip.mesh.cols))
        found.append(divides_rows(f"{where}.gemm.rows", plan.gemm.rows, chip.mesh.rows))
        found.append(splits(f"{where}.gemm.split_k", plan.gemm.split_k, plan.gemm.rows, chip.mesh.rows))
    return found


def remedy(worst: Infeasible, design: Design) -> str:
    """In words, what would do."""
    address = worst.limit
    if address.startswith("mapping."):
        side = address.split(".")[-1]
        said = at(design, address)
        if side == "split_k":
            return split_remedy(said, at(design, address.replace(side, "rows")), at(design, "chip.mesh.rows"))
        return nearest_side(side, said, at(design, f"chip.mesh.{side}"))
    if address == "chip.tile.sram":
        return "slices that are left open (0) are chosen to fit"
    (weights, *_) = (value for name, value in worst.parts if name == "weights")
    if weights > worst.have:
        return "not even the weights fit: fewer bytes of each (mapping.precision), or more memory"
    return "fewer or shorter requests at a time would do"


def rows(phase: Phase, fidelity: str) -> list[Row]:
    """Operators of one phase, by what falls away when something is free; turns of an operator are one row."""
    word, side = cut(fidelity)
    found: dict[tuple[str, str], Row] = {}
    for of in phase.timed:
        for call, cost, taken, ahead in zip(of.block.calls, of.costs, of.durations, of.resident, strict=True):
            job, turns_ = job_on(call.job, side) if side else (call.job, 1.0)
            times = of.block.times * turns_
            parts = {name: times * float(value) for name, value in reversed(jobs.split(word, job).items())}
            saved = 0.0 if ahead is None else of.block.times * float(cost.engines - taken)
            for name in ("hbm", "l2"):  # what was read ahead is not waited for
                less = min(saved, parts.get(name, 0.0))
                saved, parts[name] = saved - less, parts.get(name, 0.0) - less
            parts = {name: value for name, value in parts.items() if value}
            priced = jobs.price(word, job).activity
            left = crossings.left(job) if isinstance(job, crossings.Job) else priced.sent_bytes
            nbytes, sent = (phase.dies * times * float(of) for of in (priced.memory_bytes, left))
            shape = " x ".join(f"{float(size):.0f}" for size in call.shape) + row_pieces.shown(asked(call.job))
            share = 0.0 if ahead is None else float(ahead)
            bound = max(parts, key=lambda name: parts[name])
            flop = phase.dies * phase.asked * of.block.times * call.flop
            again = phase.dies * phase.asked * of.block.times * call.repeated
            excess = None if side else _excess(job, priced, flop, again, phase.dies * times)
            done = sum(parts.values())
            row = Row(phase.name, call.part, call.name, shape, flop, nbytes, share, bound, done, parts, sent, excess)
            key = row.segment, row.operator
            found[key] = merged(found[key], row) if key in found else row
    return list(found.values())


def _excess(job: Any, done: Activity, flop: float, repeated: float, times: float) -> dict[str, float]:
    """What engines execute beside useful operations; of attention with a mask what is padded is masked as well.

    Vector engines that do useful work have an instruction or more for two operations.
    """
    executed = 2.0 * times * float(done.macs if done.macs or not flop else done.elements)
    masked = any(isinstance(one, closed_attention.Job) and one.shape.causal for one in one_by_one(asked(job)))
    return beyond(executed, flop, masked=(executed - flop) * masked, repeated=repeated)


def _nbytes(job: Any) -> Any:
    if isinstance(job, closed_streamed.Job):
        return closed_streamed.nbytes(job)
    if isinstance(job, closed_walked.Job):
        return job.walk.nbytes
    if isinstance(job, closed_attention.Job):
        return sum(slot.nbytes for slot in closed_attention.slots(job)) * 1.0
    return sum(slot.nbytes for slot in slots(job.part, DTYPES[job.itemsize], job.weights)) * 1.0


def _left(of: Operator) -> float:
    return float(of.m * width(of.n)) if isinstance(of, MatMul) else 0.0
