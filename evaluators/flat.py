"""Designs of meshes of tiles on batches to models, one operator after the other over all tiles ([zhang2026] section III-E).

Products are SUMMA's, attention is FlatAttention's, and the rest is done row by row on the vector engines; every operator takes
its operands from HBM and leaves its result there. A batch is prefilled as a whole, then decoded step by step.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from evaluators import attention as alone
from evaluators import (
    closed_attention,
    closed_streamed,
    closed_summa,
    events_attention,
    events_streamed,
    events_summa,
)
from evaluators.breakdown import Breakdown, Row
from evaluators.counts import Activity
from evaluators.each import each
from evaluators.graph import step
from evaluators.graph.operators import Attention, Elementwise, MatMul, Operator, Part
from evaluators.graph.part import cut
from evaluators.graph.reside import width
from evaluators.graph.routing import routing
from evaluators.graph.step import Step, causal_pairs
from evaluators.graph.transformer import transformer
from evaluators.kernels.attention import attention
from evaluators.kernels.attention.shape import Heads
from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm.summa_diagonal import slots
from evaluators.kernels.gemm.tiling import Shape
from evaluators.kernels.vector import streamed
from evaluators.kernels.vector.streamed import Recipe
from evaluators.metrics import Judged, of_batch
from evaluators.part_jobs import WAVES, Job, job_on
from evaluators.rounds import DTYPES
from evaluators.silicon import area
from evaluators.silicon.energy import tile_energy
from space.chip import TileChip
from space.design import Design
from space.elementwise import ceil_div, maximum
from space.errors import DesignError
from space.limits import Infeasible, Limit, divides, nearest_side
from space.mapping import BYTES, FlatMapping, FlatPlan
from space.model import Model, kv_values, parameters
from space.workload import Case, Workload

READERS: dict[str, dict[type, Any]] = {
    "closed": {
        closed_summa.Job: closed_summa,
        closed_attention.Job: closed_attention,
        closed_streamed.Job: closed_streamed,
    },
    "events": {
        closed_summa.Job: events_summa.EVENTS,
        closed_attention.Job: events_attention.EVENTS,
        closed_streamed.Job: events_streamed.EVENTS,
    },
    "cycles": {
        closed_summa.Job: events_summa.CYCLES,
        closed_attention.Job: events_attention.CYCLES,
        closed_streamed.Job: events_streamed.CYCLES,
    },
}
FIDELITIES = ("closed", "events")
"""Of models, whose meshes are too large to be played flit by flit."""

IN_PART = tuple(READERS)
"""Of models whose operators are played on a part of their mesh each."""

SMALLER = (
    f"each operator on a part of its mesh, at most {WAVES} turns of it, which stand for all; memory channels as many fewer"
)
"""What becomes of a model there, for people."""


class Task(NamedTuple):
    """One operator, once; leaves of `job` broadcast over designs.

    Attributes:
        part, name: where it stands.
        times: how often it runs in a pass through all layers.
        shape: (m, k, n).
        flop: of the model's products, padding and masked pairs apart.
        job: what the chip is asked for.
    """

    part: str
    name: str
    times: int
    shape: tuple[Any, Any, Any]
    flop: float
    job: Job


class Turn(NamedTuple):
    """A pass of some tokens through all layers, and how many there are alike."""

    phase: str
    times: float
    tasks: tuple[Task, ...]


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits, case by case; leaves of shape (designs,), or floats for one."""
    found = []
    for row, case in enumerate(cast(tuple[Case, ...], workload.cases)):
        turns = _turns(design, case, workload.decode_at)
        if fidelity == "closed":
            metrics = _metrics(design, case, turns, fidelity)
        else:
            played = each(design, [case], _alone(workload.decode_at, fidelity))
            metrics = {name: values[0] if isinstance(values, np.ndarray) else values for name, values in played.items()}
        found.append(Judged((row,), metrics, _limits(design, case, turns)))
    return found


def explain(design: Design, case: Case, decode_at: str, fidelity: str) -> Breakdown:
    """Where the time of one design goes, operator by operator, for one case."""
    found: dict[tuple[str, str, str], Row] = {}
    bars: dict[str, dict[str, list[tuple[str, str, float, float]]]] = {}
    for turn in _turns(design, case, decode_at):
        first = turn.phase not in bars
        for task in turn.tasks:
            row = _row(turn, task, fidelity)
            key = row.phase, row.segment, row.operator
            found[key] = _together(found[key], row) if key in found else row
            if first:
                line = bars.setdefault(turn.phase, {}).setdefault(task.part, [])
                start = line[-1][3] if line else 0.0
                line.append(("compute", task.name, start, start + row.seconds / (turn.times * task.times)))
    rows = tuple(found.values())
    parts = {name: float(value) for name, value in area.tile_parts(_chip(design)).items()}
    return Breakdown(rows, sum(row.seconds for row in rows), parts, bars)


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict with what would do."""
    chip, address = _chip(design), worst.limit
    if address.startswith("mapping."):
        side = address.split(".")[-1]
        said = getattr(getattr(getattr(design.mapping, address.split(".")[1]), address.split(".")[2]), side)
        return replace(worst, remedy=nearest_side(side, said, getattr(chip.mesh, side)))
    if address == "chip.tile.sram":
        return replace(worst, remedy="slices that are left open (0) are chosen to fit")
    (weights, *_) = (value for name, value in worst.parts if name == "weights")
    if weights > worst.have:
        return replace(worst, remedy="not even the weights fit: fewer bytes of each (mapping.precision), or more memory")
    return replace(worst, remedy="fewer or shorter requests at a time would do")


def _alone(decode_at: str, fidelity: str) -> Callable[[Design, Case], dict[str, Any]]:
    return lambda design, case: _metrics(design, case, _turns(design, case, decode_at), fidelity)


def _metrics(design: Design, case: Case, turns: list[Turn], fidelity: str) -> dict[str, Any]:
    chip = _chip(design)
    seconds: dict[str, Any] = {"prefill": 0.0, "decode": 0.0}
    activity, flop = Activity(), 0.0
    for turn in turns:
        for task in turn.tasks:
            times, cost = turn.times * task.times, _price(task, fidelity)
            seconds[turn.phase] = seconds[turn.phase] + times * cost.seconds
            activity, flop = activity + cost.activity * times, flop + times * task.flop
    latency = seconds["prefill"] + seconds["decode"]
    die, engine = area.tile_die(chip), chip.tile.matrix
    peak = 2.0 * chip.mesh.rows * chip.mesh.cols * engine.rows * engine.cols * chip.clock
    energy = tile_energy(activity, chip, latency)
    held = [sum(value for _, value in _held(design, case, phase)) for phase in ("prefill", "decode")]
    if cut(fidelity)[1]:  # a part has other shares of memory, and of what is sent
        activity, energy = Activity(memory_bytes=np.nan), np.nan
    return {
        **of_batch(case, seconds["prefill"], seconds["decode"], latency, die, die),
        "peak": peak,
        "utilisation": flop / (peak * latency),
        "hbm_bytes": activity.memory_bytes,
        "hbm_utilisation": activity.memory_bytes / (latency * chip.hbm.channels * chip.hbm.bandwidth),
        "hbm_used": max(held) * 1.0,
        "sram_used": _most(nbytes for *_, nbytes in _filled(turns)),
        "energy": energy,
        "energy_per_token": energy / case.output_tokens,
    }


def _price(task: Task, fidelity: str) -> Cost:
    word, side = cut(fidelity)
    job, turns = job_on(task.job, side)
    found: Cost = READERS[word][type(job)].price(job)
    return Cost(found.seconds * turns, found.activity * turns) if side else found


def _turns(design: Design, case: Case, decode_at: str) -> list[Turn]:
    """The prefill of a case, and the decode steps between two requests' ends."""
    chip, mapping = _chip(design), _mapping(design)
    itemsize, first = _itemsize(mapping), step.prefill(case)
    on = _On(case.model, chip, mapping.prefill, itemsize, {})
    turns = [Turn("prefill", 1.0, tuple(_tasks(first, _alike(case), on)))]
    on = _On(case.model, chip, mapping.decode, itemsize, {})
    for count, at in step.decode(case, decode_at):
        cached = [(int(at.requests), ceil_div(at.positions, at.requests))]
        turns.append(Turn("decode", count, tuple(_tasks(at, cached, on))))
    return turns


class _On(NamedTuple):
    """What is computed and where, and what has been chosen for products already."""

    model: Model
    chip: TileChip
    plan: FlatPlan
    itemsize: float
    known: dict[Any, closed_summa.Job]


def _alike(case: Case) -> list[tuple[int, int]]:
    """How many requests have which prompt."""
    counts: dict[int, int] = {}
    for n, prompt, _ in case.requests:
        counts[prompt] = counts.get(prompt, 0) + n
    return [(n, prompt) for prompt, n in counts.items()]


def _tasks(at: Step, lengths: list[tuple[int, int]], on: _On) -> Iterator[Task]:
    """Operators of a step in turn.

    Args:
        at: what is computed.
        lengths: requests and positions that each attends to.
        on: by which model, and where.
    """
    for part in (routing(on.model, part) for part in transformer(on.model, at)):
        for of in part.operators:
            if isinstance(of, Attention):
                yield from (_attention(part, of, at, *some, on) for some in lengths)
            else:
                yield _product(part, of, on) if isinstance(of, MatMul) else _rows(part, of, on)


def _product(part: Part, of: MatMul, on: _On) -> Task:
    """Products of experts or of heads are of as many rows each; what an expert has is the mean over those that have any."""
    k, n = width(of.k), width(of.n)
    copies = of.apart if of.apart > 1 else ceil_div(of.copies, 1)
    shape = Shape(ceil_div(of.m, 1 if of.apart > 1 else copies), k, n // of.apart)
    if (shape, copies) not in on.known:
        on.known[shape, copies] = closed_summa.proposed(shape, on.chip, on.plan.gemm, copies, on.itemsize)
    return Task(part.name, of.name, part.times, (of.m, k, n), 2.0 * of.m * k * n, on.known[shape, copies])


def _attention(part: Part, of: Attention, at: Step, requests: int, length: int, on: _On) -> Task:
    """Attention of requests alike: of whole prompts, or of one token to what is cached.

    Within a sliding window prompts go in stretches as long as it, each with the stretch before; positions of it that a query
    does not see any more are computed, and count for nothing.
    """
    prefilling, window = at.phase == "prefill", on.model.window
    batch, queries, keys = requests, length if prefilling else 1, length
    if prefilling and window and length > window:
        batch, queries, keys = requests * ceil_div(length, window), window, min(2 * window, length)
    latent = on.model.latent is not None and not prefilling
    shape = Heads(batch, of.heads.units, of.kv_heads.units, queries, keys, of.qk_dim, of.v_dim, prefilling, latent)
    dataflow = attention(on.plan.attention.dataflow)
    sliced = alone.tiled(dataflow, shape, on.chip, on.plan.attention, on.itemsize)
    pairs = requests * (causal_pairs(length, window) if prefilling else at.positions / at.requests)
    flop = 2.0 * pairs * of.heads.units * (of.qk_dim + of.v_dim)
    sizes = (requests * (length if prefilling else 1), of.qk_dim, keys)
    return Task(part.name, of.name, part.times, sizes, flop, alone.job(dataflow, shape, sliced, on.chip, on.itemsize))


def _rows(part: Part, of: Elementwise, on: _On) -> Task:
    recipe, rows, columns = _recipe(of, on.model), of.rows, width(of.dim)
    if of.name == "rope":  # head by head, halves apart
        rows, columns = of.rows * of.dim.units, max(of.dim.width // 2, 1)
    job = closed_streamed.proposed(recipe, ceil_div(rows, 1), columns, on.chip, on.itemsize)
    return Task(part.name, of.name, part.times, (of.rows, 1, width(of.dim)), 0.0, job)


@lru_cache(maxsize=256)
def _known(kind: str, top: int, normed: bool) -> Recipe:
    recipes: dict[str, Callable[[], Recipe]] = {
        "embedding": streamed.copy,
        "norm": streamed.norm,
        "rope": lambda: streamed.rotation(normed=normed),
        "activation": streamed.gate,
        "choice": lambda: streamed.choice(top),
        "combination": lambda: streamed.combination(top),
    }
    return recipes[kind]()


def _recipe(of: Elementwise, model: Model) -> Recipe:
    return _known(of.name.split("_")[-1], model.experts.top_k if model.experts else 1, model.qk_norm)


def _row(turn: Turn, task: Task, fidelity: str) -> Row:
    word, side = cut(fidelity)
    job, turns = job_on(task.job, side)
    times, reader = turn.times * task.times * turns, READERS[word][type(job)]
    parts = {name: times * float(value) for name, value in reversed(reader.split(job).items())}
    parts = {name: value for name, value in parts.items() if value}
    nbytes = times * float(reader.price(job).activity.memory_bytes)
    shape = " x ".join(f"{float(size):.0f}" for size in task.shape)
    bound = max(parts, key=lambda name: parts[name])
    return Row(turn.phase, task.part, task.name, shape, times * task.flop, nbytes, 0.0, bound, sum(parts.values()), parts)


def _together(one: Row, other: Row) -> Row:
    parts = {name: one.parts.get(name, 0.0) + other.parts.get(name, 0.0) for name in {**one.parts, **other.parts}}
    return replace(
        one,
        flop=one.flop + other.flop,
        nbytes=one.nbytes + other.nbytes,
        bound=max(parts, key=lambda name: parts[name]),
        seconds=one.seconds + other.seconds,
        parts=parts,
    )


def _limits(design: Design, case: Case, turns: list[Turn]) -> list[Limit]:
    chip, mapping = _chip(design), _mapping(design)
    found = []
    for phase in ("prefill", "decode"):
        held = _held(design, case, phase)
        found.append(Limit("chip.hbm.capacity", sum(value for _, value in held), chip.hbm.capacity, "B", held))
    for phase, name, nbytes in _filled(turns):
        found.append(Limit("chip.tile.sram", nbytes, chip.tile.sram, "B", ((f"{name} in {phase}", nbytes),)))
    for phase, plan in (("prefill", mapping.prefill), ("decode", mapping.decode)):
        where = f"mapping.{phase}"
        if attention(plan.attention.dataflow).grouped:
            found.append(divides(f"{where}.attention.rows", plan.attention.rows, chip.mesh.rows))
            found.append(divides(f"{where}.attention.cols", plan.attention.cols, chip.mesh.cols))
        found.append(divides(f"{where}.gemm.rows", plan.gemm.rows, chip.mesh.rows))
    return found


def _filled(turns: list[Turn]) -> Iterator[tuple[str, str, Any]]:
    """By phase and kind of operator, local memory of a tile in use. [B]"""
    kinds = (("products", closed_summa.Job), ("attention", closed_attention.Job), ("rows", closed_streamed.Job))
    for phase in ("prefill", "decode"):
        jobs = [task.job for turn in turns if turn.phase == phase for task in turn.tasks]
        for name, kind in kinds:
            yield phase, name, _most(_nbytes(job) for job in jobs if isinstance(job, kind))


def _nbytes(job: Job) -> Any:
    if isinstance(job, closed_streamed.Job):
        return closed_streamed.nbytes(job)
    of = alone.slots(job) if isinstance(job, closed_attention.Job) else slots(job.part, DTYPES[job.itemsize])
    return sum(slot.nbytes for slot in of) * 1.0


def _most(values: Iterator[Any]) -> Any:
    most: Any = 0.0
    for value in values:
        most = maximum(most, value)
    return most


def _held(design: Design, case: Case, phase: str) -> tuple[tuple[str, float], ...]:
    """Bytes in HBM: all weights, the cache at its longest, and what the operators of a part leave for one another."""
    model, itemsize = case.model, _itemsize(_mapping(design))
    at = step.prefill(case) if phase == "prefill" else step.decode(case, "last")[0][1]
    cached = sum(n * (prompt + (output if phase == "decode" else 0)) for n, prompt, output in case.requests)
    activations = max(sum(_left(of) for of in part.operators) for part in transformer(model, at)) + 2 * at.tokens * model.hidden
    return (
        ("weights", parameters(model) * itemsize),
        ("KV cache", cached * kv_values(model) * model.layers * itemsize),
        ("activations", activations * itemsize),
    )


def _left(of: Operator) -> float:
    return float(of.m * width(of.n)) if isinstance(of, MatMul) else 0.0


def _itemsize(mapping: FlatMapping) -> float:
    sizes = {name: BYTES[getattr(mapping.precision, name)] for name in ("weights", "activations", "kv")}
    for name, size in sizes.items():
        if size != sizes["weights"]:
            raise DesignError(
                f"mapping.precision.{name}: {getattr(mapping.precision, name)} beside weights of "
                f"{mapping.precision.weights}; a tile multiplies values of one size: choose formats of as many bytes"
            )
    return float(sizes["weights"])


def _chip(design: Design) -> TileChip:
    return cast(TileChip, design.chip)


def _mapping(design: Design) -> FlatMapping:
    return cast(FlatMapping, design.mapping)
