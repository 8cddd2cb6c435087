"""Models on all tiles of a mesh at a time: turns, what memories hold, limits, and energy from what is done."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from dse.evaluators.account.breakdown import Row
from dse.evaluators.account.phase import Phase
from dse.evaluators.account.stretches import Job, by_case
from dse.evaluators.graph.operators import MatMul, Operator
from dse.evaluators.graph.step import decode, prefill
from dse.evaluators.graph.transformer import transformer
from dse.evaluators.kernels.attention import attention
from dse.evaluators.kernels.gemm.summa_diagonal import slots
from dse.evaluators.layouts.residency import width
from dse.evaluators.layouts.whole_chip import itemsize_of, turns
from dse.evaluators.machine.machine import of_tiles
from dse.evaluators.passes.part import cut
from dse.evaluators.program.counts import Activity
from dse.evaluators.program.rounds import DTYPES
from dse.evaluators.readers import READERS, closed_attention, closed_streamed, closed_summa, jobs, reader_of
from dse.evaluators.readers.part_jobs import WAVES, job_on
from dse.evaluators.readers.price import Cost, Timed, timed
from dse.evaluators.silicon import area
from dse.evaluators.silicon.energy import tile_energy
from dse.space.chip import Chip, memory_channels, memory_of
from dse.space.design import Design
from dse.space.elementwise import maximum
from dse.space.limits import Infeasible, Limit, divides, nearest_side
from dse.space.mapping import Mapping
from dse.space.model import kv_values, parameters

FIDELITIES = ("closed", "events")
"""Of models, whose meshes are too large to be played flit by flit."""

IN_PART = tuple(READERS)
"""Of models whose operators are played on a part of their mesh each."""

SMALLER = (
    f"each operator on a part of its mesh, at most {WAVES} turns of it, which stand for all; memory channels as many fewer"
)
"""What becomes of a model there, for people."""

WAITS = "stages"
"""Where requests that follow one another overlap."""

TOGETHER = by_case
"""Cases that are worked out together: each by itself."""

ALONE = ("events", "cycles")
"""Readers that take one design after another."""


def phases(design: Design, job: Job, fidelity: str, *, detailed: bool = False) -> tuple[Phase, ...]:
    """Prefill and decode of a case, turn by turn. Only detailed ones keep their blocks.

    Raises:
        DesignError: formats of other sizes side by side.
    """
    chip, mapping, (case,) = _chip(design), _mapping(design), job.cases
    machine, reader = of_tiles(chip), reader_of(fidelity)
    found = []
    for name, passes in turns(case, chip, mapping, job.decode_at).items():
        blocks = [block._replace(times=count * block.times) for count, of in passes for block in of]
        parts = timed(blocks, machine, reader)
        seconds, activity, flop = _sums(parts)
        held = (_held(design, job, name), _filled(parts))
        whole = activity if not cut(fidelity)[1] else None  # a part has other shares of memory, and of what is sent
        found.append(Phase(name, machine, tuple(parts) if detailed else (), None, 1.0, None, seconds, held, whole, flop))
    return tuple(found)


def _sums(parts: list[Timed]) -> tuple[Any, Activity, float]:
    """Seconds, activity and useful operations of blocks."""
    seconds: Any = 0.0
    flop = 0.0
    runs: dict[int, tuple[float, Cost]] = {}
    for of in parts:
        for call, cost in zip(of.block.calls, of.costs, strict=True):
            count, _ = runs.get(id(call.job), (0.0, cost))
            runs[id(call.job)] = count + of.block.times, cost
            flop += of.block.times * call.flop
    activity = Activity()
    for count, cost in runs.values():  # operators that are alike have one and the same job
        seconds = seconds + count * cost.engines
        assert cost.activity is not None
        activity = activity + cost.activity * count
    return seconds, activity, flop


def areas(design: Design) -> tuple[Any, Any]:
    """Area of the die, which is all. [mm2]"""
    die = area.tile_die(_chip(design))
    return die, die


def area_parts(design: Design) -> dict[str, Any]:
    """Area by block. [mm2]"""
    return area.tile_parts(_chip(design))


def refused(design: Design, job: Job) -> list[Limit]:
    """Models that have no layout here: there are none."""
    return []


def used(design: Design, job: Job, *phases: Phase) -> dict[str, Any]:
    """Shares of what engines and channels could do, what memories hold, and energy; not a number on a part of the mesh."""
    chip, engine = _chip(design), _chip(design).tile.matrix
    latency = phases[0].seconds + phases[1].seconds
    peak = 2.0 * chip.mesh.rows * chip.mesh.cols * engine.rows * engine.cols * chip.clock
    activity: Activity | None = Activity()
    for phase in phases:
        activity = None if activity is None or phase.activity is None else activity + phase.activity
    energy = np.nan if activity is None else tile_energy(activity, chip, latency)
    nbytes = np.nan if activity is None else activity.memory_bytes
    return {
        "peak": peak,
        "utilisation": sum(phase.flop for phase in phases) / (peak * latency),
        "hbm_bytes": nbytes,
        "hbm_utilisation": nbytes / (latency * memory_channels(chip) * chip.hbm.bandwidth),
        "hbm_used": max(sum(value for _, value in phase.held[0]) for phase in phases) * 1.0,
        "sram_used": _most(nbytes for phase in phases for _, nbytes in phase.held[1]),
        "energy": energy,
        "energy_per_token": energy / job.output_tokens,
    }


def limits(design: Design, job: Job, *phases: Phase) -> list[Limit]:
    """Memories of both phases, and groups of tiles that divide the mesh."""
    chip, mapping = _chip(design), _mapping(design)
    found = []
    for phase in phases:
        held = phase.held[0]
        found.append(Limit("chip.hbm.capacity", sum(value for _, value in held), memory_of(chip), "B", held))
    for phase in phases:
        for name, nbytes in phase.held[1]:
            found.append(Limit("chip.tile.sram", nbytes, chip.tile.sram, "B", ((f"{name} in {phase.name}", nbytes),)))
    for name, plan in (("prefill", mapping.prefill), ("decode", mapping.decode)):
        where = f"mapping.{name}"
        if attention(plan.attention.dataflow).grouped:
            found.append(divides(f"{where}.attention.rows", plan.attention.rows, chip.mesh.rows))
            found.append(divides(f"{where}.attention.cols", plan.attention.cols, chip.mesh.cols))
        found.append(divides(f"{where}.gemm.rows", plan.gemm.rows, chip.mesh.rows))
    return found


def remedy(worst: Infeasible, design: Design, asked: tuple[Job, ...]) -> str:
    """In words, what would do."""
    chip, address = _chip(design), worst.limit
    if address.startswith("mapping."):
        side = address.split(".")[-1]
        said = getattr(getattr(getattr(design.mapping, address.split(".")[1]), address.split(".")[2]), side)
        return nearest_side(side, said, getattr(chip.mesh, side))
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
        for call in of.block.calls:
            job, turns_ = job_on(call.job, side)
            times = of.block.times * turns_
            parts = {name: times * float(value) for name, value in reversed(jobs.split(word, job).items())}
            parts = {name: value for name, value in parts.items() if value}
            nbytes = times * float(jobs.price(word, job).activity.memory_bytes)
            shape = " x ".join(f"{float(size):.0f}" for size in call.shape)
            bound = max(parts, key=lambda name: parts[name])
            flop = of.block.times * turns_ * call.flop
            row = Row(phase.name, call.part, call.name, shape, flop, nbytes, 0.0, bound, sum(parts.values()), parts)
            key = row.segment, row.operator
            found[key] = _together(found[key], row) if key in found else row
    return list(found.values())


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


def _filled(parts: list[Timed]) -> list[tuple[str, Any]]:
    """By kind of operator, local memory of a tile in use. [B]"""
    kinds = (("products", closed_summa.Job), ("attention", closed_attention.Job), ("rows", closed_streamed.Job))
    each = {id(call.job): call.job for of in parts for call in of.block.calls}.values()
    return [(name, _most(_nbytes(job) for job in each if isinstance(job, kind))) for name, kind in kinds]


def _nbytes(job: Any) -> Any:
    if isinstance(job, closed_streamed.Job):
        return closed_streamed.nbytes(job)
    of = closed_attention.slots(job) if isinstance(job, closed_attention.Job) else slots(job.part, DTYPES[job.itemsize])
    return sum(slot.nbytes for slot in of) * 1.0


def _most(values: Iterable[Any]) -> Any:
    most: Any = 0.0
    for value in values:
        most = maximum(most, value)
    return most


def _held(design: Design, job: Job, phase: str) -> tuple[tuple[str, float], ...]:
    """Bytes in HBM: all weights, the cache at its longest, and what the operators of a part leave for one another."""
    (case,), itemsize = job.cases, itemsize_of(_mapping(design))
    model = case.model
    at = prefill(case) if phase == "prefill" else decode(case, "last")[0][1]
    cached = sum(n * (prompt + (output if phase == "decode" else 0)) for n, prompt, output in case.requests)
    activations = max(sum(_left(of) for of in part.operators) for part in transformer(model, at)) + 2 * at.tokens * model.hidden
    return (
        ("weights", parameters(model) * itemsize),
        ("KV cache", cached * kv_values(model) * model.layers * itemsize),
        ("activations", activations * itemsize),
    )


def _left(of: Operator) -> float:
    return float(of.m * width(of.n)) if isinstance(of, MatMul) else 0.0


def _chip(design: Design) -> Chip:
    return design.chip


def _mapping(design: Design) -> Mapping:
    return design.mapping
