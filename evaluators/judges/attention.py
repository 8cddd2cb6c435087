"""Designs of meshes of tiles on attention by itself: metrics, limits and the breakdown of a workload."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from dse.evaluators.account.breakdown import Breakdown, Row, beyond
from dse.evaluators.account.metrics import Judged
from dse.evaluators.account.power import alone
from dse.evaluators.choices.per_design import one_by_one
from dse.evaluators.kernels.attention import attention
from dse.evaluators.kernels.attention.shape import Heads, Tiling
from dse.evaluators.layouts.formats import itemsize_of
from dse.evaluators.machine.fabric import VALUE
from dse.evaluators.readers import closed_attention
from dse.evaluators.readers.closed_attention import Job, job, machine, proposed, slots, tiled
from dse.evaluators.readers.events_attention import CYCLES, EVENTS
from dse.evaluators.silicon import area
from dse.evaluators.silicon.energy import dynamic
from dse.space.chip import Chip, memory_channels, memory_of
from dse.space.design import Design
from dse.space.elementwise import column
from dse.space.errors import DesignError
from dse.space.later import later
from dse.space.limits import Infeasible, Limit, divides, nearest_side
from dse.space.mapping import AttentionPlan
from dse.space.workload import Attention, Workload

READERS: dict[str, Any] = {"closed": closed_attention, "events": EVENTS, "cycles": CYCLES}
FIDELITIES = tuple(READERS)

SIZES = ("batch", "heads", "kv_heads", "queries", "keys", "qk", "v", "window")
"""Numbers of a case that make its shape."""

SHOWN = {"q": "Q", "c": "Q", "k": "K", "v": "V", "s": "scores", "o": "O", "arriving": "arriving", "merge": "merging"}
"""Names of slots in what a limit itemises; the others are statistics."""


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits of cases alike; leaves of shape (cases, designs), or floats for one of each."""
    cases = cast(tuple[Attention, ...], workload.cases)
    found = []
    for kind in dict.fromkeys(case.subject for case in cases):
        rows = tuple(row for row, case in enumerate(cases) if case.subject == kind)
        alike = tuple(cases[row] for row in rows)
        asked = tiling(design, *alike)
        job = _job(design, alike, asked)
        metrics = (
            _metrics(job, closed_attention) if fidelity == "closed" else one_by_one(design, alike, _alone(READERS[fidelity]))
        )
        found.append(Judged(rows, metrics, _limits(job, asked)))
    return found


def explain(design: Design, case: Attention, decode_at: str, fidelity: str) -> Breakdown:
    """Where the time of attention goes: what falls away when exchanges, memory and vectors are free, one after the other."""
    job, reader = job_for(design, case), READERS[fidelity]
    parts = {name: float(value) for name, value in reader.split(job).items()}
    activity = reader.price(job).activity
    t, shape = job.tiling, job.shape
    groups = f"{t.rows:.0f} x {t.cols:.0f} tiles, {t.queries:.0f} x {t.keys:.0f} a tile"
    groups += f", keys in {t.splits:.0f}" if job.of.split else ""
    useful, executed = 2.0 * float(shape.macs), 2.0 * float(activity.macs)
    work = {"matrix": (useful, 0.0), "hbm": (0.0, float(activity.memory_bytes))}
    # what is padded under a mask is masked as well
    excess = {"matrix": beyond(executed, useful, masked=(executed - useful) * shape.causal)}
    rows = tuple(
        Row(
            "attention",
            _mapping(design).dataflow,
            name,
            groups,
            *work.get(name, (0.0, 0.0)),
            0.0,
            name,
            seconds,
            {name: seconds},
            excess=excess.get(name, {}),
        )
        for name, seconds in reversed(parts.items())
        if seconds
    )
    places = np.cumsum([0.0, *(row.seconds for row in rows)])
    bars = [(row.operator, row.operator, float(a), float(b)) for row, a, b in zip(rows, places[:-1], places[1:], strict=True)]
    blocks = {name: float(value) for name, value in area.parts(_chip(design)).items()}
    return Breakdown(rows, sum(row.seconds for row in rows), blocks, {"attention": {_mapping(design).dataflow: bars}})


def job_for(design: Design, *cases: Attention) -> Job:
    """Cases alike as the chip is asked for them, with group and slice that the mapping leaves open."""
    return _job(design, cases, tiling(design, *cases))


def tiling(design: Design, *cases: Attention) -> Tiling:
    """Group and slice of cases alike, those that the mapping leaves open included."""
    mapping = _mapping(design)
    return tiled(attention(mapping.dataflow), heads(*cases), _chip(design), mapping, itemsize(design))


def itemsize(design: Design) -> float:
    """Bytes of operands, scores and outputs: 2 where the mapping has no number formats.

    Raises:
        DesignError: formats of other sizes side by side.
    """
    return VALUE if design.mapping.precision is None else itemsize_of(design.mapping)


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict with what would do."""
    chip = _chip(design)
    if worst.limit in ("mapping.rows", "mapping.cols"):
        side = worst.limit.split(".")[1]
        return replace(worst, remedy=nearest_side(side, getattr(_mapping(design), side), getattr(chip.mesh, side)))
    if worst.limit != "chip.tile.sram":
        return replace(worst, remedy="fewer sequences at a time would do")
    (case, *_), of = cast(tuple[Attention, ...], workload.cases), attention(_mapping(design).dataflow)
    shape = heads(case)
    each = itemsize(design)
    suited = proposed(of, shape, chip, itemsize=each)
    need = sum(held.nbytes for held in slots(Job(of, shape, suited, chip, each)))
    slice_ = f"mapping.queries={suited.queries:.0f} mapping.keys={suited.keys:.0f}"
    if need > worst.have:
        return replace(worst, remedy=f"no slice of heads of {case.qk} + {case.v} columns fits, not even {slice_}")
    return replace(worst, remedy=f"a slice that fits: {slice_}")


def _alone(reader: Any) -> Callable[[Design, Attention], dict[str, Any]]:
    return lambda design, case: _metrics(job_for(design, case), reader)


def _metrics(job: Job, reader: Any) -> dict[str, Any]:
    chip, (_, engines) = job.chip, machine(job.chip, job.of)
    cost = reader.price(job)
    seconds, shape, tiling = cost.seconds, job.shape, job.tiling
    peak = chip.mesh.rows * chip.mesh.cols * engines.matrix.rows * engines.matrix.cols * chip.clock
    here = engines.product(tiling.queries, shape.key_dim, tiling.keys, job.itemsize)
    here = here + engines.product(tiling.queries, tiling.keys, shape.v, job.itemsize)
    here = here + (engines.product(tiling.queries, shape.v, tiling.keys, job.itemsize) if shape.latent else 0.0)
    rate = tiling.queries * tiling.keys * (shape.qk + shape.v) / (engines.matrix.rows * engines.matrix.cols * chip.clock)
    spent = alone(chip, lambda: dynamic(cost.activity, chip, job.itemsize), seconds)
    return {
        "latency": seconds,
        "cycles": seconds * chip.clock,
        "peak": 2.0 * peak,
        "utilisation": shape.macs / (peak * seconds),
        "utilisation_per_system_mm2": shape.macs / (peak * seconds) / area.total(chip),
        "engine_utilisation": rate / here,
        "communication_share": reader.communication(job, seconds) / seconds,
        "hbm_bytes": cost.activity.memory_bytes,
        "hbm_utilisation": cost.activity.memory_bytes / (seconds * memory_channels(chip) * chip.hbm.channel_bandwidth),
        "sram_used": sum(held.nbytes for held in slots(job)),
        "die_mm2": area.die(chip),
        "system_mm2": area.total(chip),
        **spent,
        **later(("energy_per_token",), lambda: {"energy_per_token": spent["energy"]() / (shape.batch * shape.queries)}),
    }


def _job(design: Design, cases: tuple[Attention, ...], cut: Tiling) -> Job:
    return job(attention(_mapping(design).dataflow), heads(*cases), cut, _chip(design), itemsize(design))


def heads(*cases: Attention) -> Heads:
    """What cases alike compute."""
    if any(case.decodes for case in cases):
        raise DesignError(
            "workload.decodes: tiles do not mix prompts and decodes in a call; leave it out, or ask dies, as chip=h100"
        )
    values = {name: column([getattr(case, name) for case in cases]) for name in SIZES}
    return Heads(**values, causal=cases[0].causal, latent=cases[0].latent)


def _limits(job: Job, asked: Tiling) -> list[Limit]:
    chip, shape = job.chip, job.shape
    held: dict[str, Any] = {}
    for slot in slots(job):
        name = SHOWN.get(slot.name.split(".")[-1], "statistics")
        held[name] = held.get(name, 0.0) + slot.nbytes * 1.0
    stored = {
        "queries and outputs": shape.batch * shape.heads * shape.queries * (shape.qk + shape.v) * job.itemsize,
        "KV cache": shape.problems * shape.keys * (shape.key_dim + shape.v) * job.itemsize,
        **({"partial outputs": closed_attention.partial_bytes(job)} if job.of.split else {}),
    }
    return [
        Limit("chip.tile.sram", sum(held.values()), chip.tile.sram, "B", tuple(held.items())),
        Limit("chip.hbm.capacity", sum(stored.values()), memory_of(chip), "B", tuple(stored.items())),
        divides("mapping.rows", asked.rows, chip.mesh.rows),
        divides("mapping.cols", asked.cols, chip.mesh.cols),
    ]


def _chip(design: Design) -> Chip:
    return design.chip


def _mapping(design: Design) -> AttentionPlan:
    plan: AttentionPlan = design.mapping.kernel
    return plan
