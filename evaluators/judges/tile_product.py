"""Designs of meshes of tiles on products of matrices by themselves: metrics, limits and the breakdown of a workload."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from dse.evaluators.account.breakdown import Breakdown, Row, beyond
from dse.evaluators.account.metrics import Judged
from dse.evaluators.account.power import alone
from dse.evaluators.choices.per_design import one_by_one
from dse.evaluators.kernels.gemm.summa_diagonal import slots
from dse.evaluators.kernels.gemm.tiling import Shape
from dse.evaluators.machine.engine import engines
from dse.evaluators.readers import closed_summa
from dse.evaluators.readers.closed_summa import Job, proposed
from dse.evaluators.readers.events_summa import CYCLES, EVENTS
from dse.evaluators.silicon import area
from dse.evaluators.silicon.energy import dynamic
from dse.space.chip import memory_channels, memory_of
from dse.space.design import Design
from dse.space.elementwise import column
from dse.space.fields import replaced
from dse.space.limits import Infeasible, Limit, divides, nearest_side
from dse.space.mapping import SummaPlan
from dse.space.workload import Product, Workload

READERS: dict[str, Any] = {"closed": closed_summa, "events": EVENTS, "cycles": CYCLES}
FIDELITIES = tuple(READERS)

VALUE = 2.0
"""Bytes of a value."""


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits of products; leaves of shape (cases, designs), or floats for one of each."""
    cases = cast(tuple[Product, ...], workload.cases)
    rows, job = tuple(range(len(cases))), job_for(design, *cases)
    metrics = _metrics(job, closed_summa) if fidelity == "closed" else one_by_one(design, cases, _alone(READERS[fidelity]))
    return [Judged(rows, metrics, _limits(job, design.mapping.kernel))]


def explain(design: Design, case: Product, decode_at: str, fidelity: str) -> Breakdown:
    """Where the time of a product goes: what falls away when multicasts and memory are free, one after the other."""
    job, reader = job_for(design, case), READERS[fidelity]
    parts = {name: float(value) for name, value in reversed(reader.split(job).items()) if value}
    sizes = " x ".join(f"{size:.0f}" for size in (job.part.m, job.part.k, job.part.n))
    done, useful = reader.price(job).activity, 2.0 * case.m * case.k * case.n
    work = {"matrix": (useful, 0.0), "hbm": (0.0, float(done.memory_bytes))}
    excess = {"matrix": beyond(2.0 * float(done.macs), useful)}
    rows = tuple(
        Row(
            case.kind, "summa", name, f"{sizes} a tile", *work.get(name, (0.0, 0.0)), 0.0, name, seconds, {name: seconds},
            excess=excess.get(name, {}),
        )
        for name, seconds in parts.items()
    )  # fmt: skip
    places = np.cumsum([0.0, *parts.values()])
    bars = [(name, name, float(a), float(b)) for name, a, b in zip(parts, places[:-1], places[1:], strict=True)]
    blocks = {name: float(value) for name, value in area.parts(job.chip).items()}
    return Breakdown(rows, sum(parts.values()), blocks, {case.kind: {"summa": bars}})


def job_for(design: Design, *cases: Product) -> Job:
    """Products as the chip is asked for them, with groups and slices that the mapping leaves open."""
    shape = Shape(*(column([getattr(case, size) for case in cases]) for size in ("m", "k", "n")))
    return proposed(shape, design.chip, design.mapping.kernel)


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict with what would do."""
    if worst.limit == "mapping.rows":
        return replace(worst, remedy=nearest_side("rows", design.mapping.kernel.rows, design.chip.mesh.rows))
    if worst.limit != "chip.tile.sram":
        return replace(worst, remedy="smaller matrices would do")
    open_ = replaced(design, {f"mapping.{name}": 0.0 for name in ("rows", "m", "k", "n")})
    part = job_for(open_, *cast(tuple[Product, ...], workload.cases[:1])).part
    if sum(slot.nbytes for slot in slots(part, "float16")) > worst.have:
        return replace(worst, remedy="not even a slice of 16 x 16 x 16 fits")
    sizes = " ".join(f"mapping.{name}={getattr(part, name):.0f}" for name in ("rows", "m", "k", "n"))
    return replace(worst, remedy=f"a slice that fits: {sizes}")


def _alone(reader: Any) -> Callable[[Design, Product], dict[str, Any]]:
    return lambda design, case: _metrics(job_for(design, case), reader)


def _metrics(job: Job, reader: Any) -> dict[str, Any]:
    chip, shape, part = job.chip, job.shape, job.part
    cost = reader.price(job)
    seconds, on = cost.seconds, engines(chip)
    macs = chip.tile.matrix.rows * chip.tile.matrix.cols * chip.clock
    return {
        "latency": seconds,
        "cycles": seconds * chip.clock,
        "utilisation": shape.m * shape.k * shape.n / (macs * chip.mesh.rows * chip.mesh.cols * seconds),
        "engine_utilisation": part.m * part.k * part.n / (macs * on.product(part.m, part.k, part.n, VALUE)),
        "cores": chip.mesh.rows * chip.mesh.cols * 1.0,
        "hbm_bytes": cost.activity.memory_bytes,
        "hbm_utilisation": cost.activity.memory_bytes / (seconds * memory_channels(chip) * chip.hbm.channel_bandwidth),
        "sram_used": sum(slot.nbytes for slot in slots(part, "float16")) * 1.0,
        "die_mm2": area.die(chip),
        "system_mm2": area.total(chip),
        **alone(chip, lambda: dynamic(cost.activity, chip), seconds),
    }


def _limits(job: Job, said: SummaPlan) -> list[Limit]:
    chip, shape = job.chip, job.shape
    held: dict[str, Any] = {}
    for slot in slots(job.part, "float16"):
        name = {"a": "A", "b": "B", "c": "C"}[slot.name[0]]
        held[name] = held.get(name, 0.0) + slot.nbytes * 1.0
    stored = {"A": shape.m * shape.k * VALUE, "B": shape.k * shape.n * VALUE, "C": shape.m * shape.n * VALUE}
    return [
        Limit("chip.tile.sram", sum(held.values()), chip.tile.sram, "B", tuple(held.items())),
        Limit("chip.hbm.capacity", sum(stored.values()), memory_of(chip), "B", tuple(stored.items())),
        divides("mapping.rows", said.rows, chip.mesh.rows),
    ]
