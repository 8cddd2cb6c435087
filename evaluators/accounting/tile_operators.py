"""A chip of tiles that runs one operator at a time: work, memory, limits and breakdown rows."""

from collections.abc import Callable, Iterable
from typing import Any

from dse.evaluators.accounting.breakdown import BreakdownRow, excess_by_cause, merge_rows
from dse.evaluators.accounting.memory_contents import MemoryContents, core_memory_contents
from dse.evaluators.accounting.phase import PhaseCost
from dse.evaluators.accounting.remedies import Lever, advise
from dse.evaluators.calls.call import CallBlock
from dse.evaluators.calls.submesh import parse_fidelity
from dse.evaluators.cost_models import analytical_attention as closed_attention
from dse.evaluators.cost_models import analytical_block_loop as closed_walked
from dse.evaluators.cost_models import analytical_rows as closed_streamed
from dse.evaluators.cost_models import analytical_summa as closed_summa
from dse.evaluators.cost_models import die_exchange_jobs as crossings
from dse.evaluators.cost_models import jobs, row_pieces
from dse.evaluators.cost_models.cached_job import uncached_job
from dse.evaluators.cost_models.call_cost import CallCost, TimedBlock
from dse.evaluators.cost_models.job_sequence import JobSequence
from dse.evaluators.cost_models.submesh_jobs import job_on_submesh
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.kernels.attention import find_dataflow
from dse.evaluators.kernels.gemm.summa_diagonal import buffers
from dse.evaluators.layouts.cache_memory import layer_caches, sum_layer_caches
from dse.evaluators.layouts.live_activations import live_values
from dse.evaluators.layouts.model_weights import model_weight_bytes
from dse.evaluators.layouts.tensor_formats import value_bytes
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import DTYPES
from dse.space.array_math import maximum
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.fields import leaf_at
from dse.space.limits import (
    Infeasibility,
    Limit,
    divides_limit,
    divides_rows,
    split_limit,
    split_remedy_text,
    suggest_nearest_side,
)
from dse.space.mapping import BYTES_BY_FORMAT, FormatPlan, Mapping
from dse.space.model import Model
from dse.space.parameter_counts import mtp_layers

JOB_TYPES = {
    "products": closed_summa.SummaJob,
    "attention": closed_attention.AttentionJob,
    "rows": closed_streamed.RowJob | closed_walked.BlockLoopJob,
}
"""Of operators, and their jobs."""


def no_bytes(nbytes: Any) -> float:
    """No bytes beside those of a kind of operator."""
    return 0.0


def sum_blocks(parts: list[TimedBlock]) -> tuple[Any, Activity, float]:
    """Seconds, activity and useful operations summed over blocks."""
    seconds: Any = 0.0
    flop = 0.0
    runs: dict[int, tuple[float, CallCost]] = {}
    for part in parts:
        for call, cost, taken in zip(part.block.calls, part.costs, part.durations, strict=True):
            seconds = seconds + part.block.times * taken
            count, _ = runs.get(id(call.job), (0.0, cost))
            runs[id(call.job)] = count + part.block.times, cost
            flop += part.block.times * call.flop
    activity = Activity()
    for count, cost in runs.values():  # operators that are alike have one and the same job
        assert cost.activity is not None
        activity = activity + cost.activity * count
    return seconds, activity, flop


def local_memory_by_kind(blocks: Iterable[CallBlock]) -> list[tuple[str, Any]]:
    """Local memory of one tile in use, by kind of operator, independent of time. [B]"""
    each = {
        id(job): (times, job) for block in blocks for call in block.calls for times, job in _counted(uncached_job(call.job))
    }
    return [
        (name, largest_value(_nbytes(job) * (times > 0) for times, job in each.values() if isinstance(job, kind)))
        for name, kind in JOB_TYPES.items()
    ]


def _counted(job: Any) -> tuple[tuple[Any, Any], ...]:
    """Jobs of a sequence in order, with their numbers."""
    return job.counted_jobs if isinstance(job, JobSequence) else ((1.0, job),)


def jobs_in_order(job: Any) -> tuple[Any, ...]:
    """Jobs of a sequence of jobs, in order."""
    return tuple(job for _, job in _counted(job))


def largest_value(values: Iterable[Any]) -> Any:
    """Largest of some values, 0 if there are none; broadcasts over designs."""
    largest: Any = 0.0
    for value in values:
        largest = maximum(largest, value)
    return largest


def hbm_bytes_by_use(
    model: Model, at: StepCounts, cached: Any, sequences: float, precision: FormatPlan
) -> tuple[tuple[str, float], ...]:
    """Main memory in use: weights, caches, states and activations between operators. [B]

    Args:
        model, at: of a step.
        cached: positions that caches have of all requests, by reach of the model.
        sequences: that have states.
        precision: formats.
    """
    parts, itemsize = transformer_segments(model, at), BYTES_BY_FORMAT[precision.activations]
    activations = max(float(live_values(part, model.hidden)) for part in parts)
    drafted = mtp_layers(model)[0].name if at.guesses else None
    caches = layer_caches(model, value_bytes(precision), cached, sequences)
    kv, states = sum_layer_caches(caches, lambda layer: layer.times + at.guesses * (layer.name == drafted))
    stored = model_weight_bytes(model, precision, at.guesses)
    nbytes = (("weights", stored), ("KV cache", kv), ("activations", activations * itemsize))
    return nbytes + ((("states", states),) if states else ())


def local_memory_contents(
    chip: Chip, phase: str, kinds: Iterable[tuple[str, Any]], ahead: Callable[[Any], Any] = no_bytes
) -> list[MemoryContents]:
    """Contents of a tile's local memory in a phase, while each kind of operator runs. [B]

    Args:
        chip: of tiles.
        phase: its name.
        kinds: bytes of a tile by kind of operator.
        ahead: from the bytes of a kind to those that are read ahead beside them.
    """
    return [core_memory_contents(chip, ((f"{name} in {phase}", nbytes),), ahead(nbytes)) for name, nbytes in kinds]


def group_limits(chip: Chip, mapping: Mapping) -> list[Limit]:
    """Limits of tile groups, which divide the mesh."""
    limits = []
    for name, plan in (("prefill", mapping.prefill), ("decode", mapping.decode)):
        where = f"mapping.{name}"
        if find_dataflow(plan.attention.dataflow).grouped:
            limits.append(divides_rows(f"{where}.attention.rows", plan.attention.rows, chip.mesh.rows))
            limits.append(divides_limit(f"{where}.attention.cols", plan.attention.cols, chip.mesh.cols))
        limits.append(divides_rows(f"{where}.gemm.rows", plan.gemm.rows, chip.mesh.rows))
        limits.append(split_limit(f"{where}.gemm.split_k", plan.gemm.split_k, plan.gemm.rows, chip.mesh.rows))
    return limits


def tile_levers(worst: Infeasibility, design: Design) -> tuple[Lever, ...]:
    """What to change where local memory, main memory or tile groups violate a limit."""
    address = worst.limit
    if address.startswith("mapping."):
        side = address.split(".")[-1]
        leaf = leaf_at(design, address)
        if side == "split_k":
            rows = leaf_at(design, address.replace(side, "rows"))
            return advise(split_remedy_text(leaf, rows, leaf_at(design, "chip.mesh.rows")))
        return advise(suggest_nearest_side(side, leaf, leaf_at(design, f"chip.mesh.{side}")))
    if address == "chip.tile.sram":
        return advise("tilings that are left open (0) are chosen to fit")
    (weights, *_) = (value for name, value in worst.parts if name == "weights")
    if weights > worst.have:
        return advise("not even the weights fit: use smaller number formats (mapping.precision), or more memory")
    return advise("use fewer or shorter requests at a time")


def breakdown_rows(phase: PhaseCost, fidelity: str) -> list[BreakdownRow]:
    """Breakdown rows of one phase by freed resource; repetitions of an operator are one row."""
    word, side = parse_fidelity(fidelity)
    rows: dict[tuple[str, str], BreakdownRow] = {}
    for block in phase.timed:
        for call, cost, taken, ahead in zip(block.block.calls, block.costs, block.durations, block.resident, strict=True):
            job, turns_ = job_on_submesh(call.job, side) if side else (call.job, 1.0)
            times = block.block.times * turns_
            parts = {name: times * float(value) for name, value in reversed(jobs.time_by_resource(word, job).items())}
            saved = 0.0 if ahead is None else block.block.times * float(cost.engines - taken)
            for name in ("hbm", "l2"):  # what was read ahead is not waited for
                less = min(saved, parts.get(name, 0.0))
                saved, parts[name] = saved - less, parts.get(name, 0.0) - less
            parts = {name: value for name, value in parts.items() if value}
            priced = jobs.job_cost(word, job).activity
            left = crossings.sent_bytes(job) if isinstance(job, crossings.DieExchangeJob) else priced.sent_bytes
            nbytes, sent = (phase.dies * times * float(amount) for amount in (priced.memory_bytes, left))
            shape = " x ".join(f"{float(size):.0f}" for size in call.shape) + row_pieces.describe_row_pieces(
                uncached_job(call.job)
            )
            share = 0.0 if ahead is None else float(ahead)
            bound = max(parts, key=lambda name: parts[name])
            flop = phase.dies * phase.useful_share * block.block.times * call.flop
            again = phase.dies * phase.useful_share * block.block.times * call.repeated
            excess = None if side else _excess(job, priced, flop, again, phase.dies * times)
            done = sum(parts.values())
            row = BreakdownRow(phase.name, call.part, call.name, shape, flop, nbytes, share, bound, done, parts, sent, excess)
            key = row.segment, row.operator
            rows[key] = merge_rows(rows[key], row) if key in rows else row
    return list(rows.values())


def _excess(job: Any, done: Activity, flop: float, repeated: float, times: float) -> dict[str, float]:
    """What engines execute beside useful operations; of attention with a mask what is padded is masked as well.

    Vector engines that do useful work have an instruction or more for two operations.
    """
    executed = 2.0 * times * float(done.macs if done.macs or not flop else done.elements)
    masked = any(
        isinstance(job, closed_attention.AttentionJob) and job.shape.causal for job in jobs_in_order(uncached_job(job))
    )
    return excess_by_cause(executed, flop, masked=(executed - flop) * masked, repeated=repeated)


def _nbytes(job: Any) -> Any:
    if isinstance(job, closed_streamed.RowJob):
        return closed_streamed.local_bytes(job)
    if isinstance(job, closed_walked.BlockLoopJob):
        return job.walk.nbytes
    if isinstance(job, closed_attention.AttentionJob):
        return sum(slot.nbytes for slot in closed_attention.job_buffers(job)) * 1.0
    return sum(slot.nbytes for slot in buffers(job.part, DTYPES[job.itemsize], job.weights)) * 1.0
