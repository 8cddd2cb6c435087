"""Designs of meshes of cores: metrics, limits and the breakdown of a workload.

Both phases run on regions of the mesh, each with its share of the layers. Requests of a batch follow one another through the
regions: with one request one region works at a time, with as many as there are regions all do.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from evaluators import closed_mesh, events_mesh
from evaluators.breakdown import Breakdown, Row
from evaluators.closed_mesh import Phase, Price
from evaluators.counts import Activity
from evaluators.graph import lay
from evaluators.graph.lay import Held, Kernel, Region
from evaluators.graph.part import cut, kernel_on
from evaluators.job import Job, job_of, jobs, per_case, reduced
from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm import GEMM, gemm
from evaluators.kernels.gemm.tiling import MOST_CHUNKS, Mesh
from evaluators.kernels.gemv import GEMV, gemv
from evaluators.kernels.kv import KV, kv
from evaluators.machine.fabric import Fabric
from evaluators.metrics import METRICS, Judged, energies, of_batch
from evaluators.silicon import area
from evaluators.silicon.energy import mesh_energy
from space.chip import MeshChip, TileChip
from space.design import Design
from space.elementwise import Array, ceil_div, maximum, minimum, where
from space.errors import DesignError, chosen
from space.fields import replaced
from space.limits import Infeasible, Limit
from space.mapping import BYTES, MeshMapping, MeshPlan, ProductMapping
from space.model import Model, parameters
from space.network import NO_FAULTS, Faults, faults, within
from space.workload import Case, Workload

PRICES: dict[str, Price] = {"closed": closed_mesh.price, "events": events_mesh.price, "cycles": events_mesh.through_routers}
FIDELITIES = ("closed", "events")
"""Of models, whose meshes are too large to be played flit by flit."""

IN_PART = tuple(PRICES)
"""Of models whose kernels are played on a part of their mesh each."""

SMALLER = "each kernel on a part of its mesh, whose cores keep their tiles; times are of parts, nothing moves between phases"
"""What becomes of a model there, for people."""


def prices(fidelity: str) -> Price:
    """What kernels take by a reader, each on a part of its mesh where the fidelity names one."""
    word, side = cut(fidelity)
    return (lambda kernel, on: PRICES[word](kernel_on(kernel, side), on)) if side else PRICES[word]


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits, model by model; leaves of shape (cases, designs), or floats for one of each.

    Raises:
        DesignError: a number format that has no kernels on a mesh, or an algorithm that is not registered.
    """
    mapping = _mapping(design)
    for phase, plan in closed_mesh.plans(mapping):
        chosen(GEMM, plan.gemm, f"mapping.{phase}.gemm")
        chosen(GEMV, plan.gemv, f"mapping.{phase}.gemv")
    chosen(KV, mapping.kv, "mapping.kv")
    return [_judged(design, job, fidelity) for job in jobs(workload)]


def _judged(design: Design, job: Job, fidelity: str) -> Judged:
    limits = _limits(design, job)
    if job.model.latent is not None:
        die = area.mesh_die(_chip(design))
        return Judged(job.rows, dict.fromkeys(METRICS, np.nan) | {"die_mm2": die, "system_mm2": die}, limits)
    return Judged(job.rows, _metrics(design, job, fidelity), limits)


def explain(design: Design, case: Case, decode_at: str, fidelity: str) -> Breakdown:
    """Where the time of one design goes, kernel by kernel, for one case; no rows for a model that has no layout."""
    if case.model.latent is not None:
        return Breakdown((), 0.0, {name: float(value) for name, value in area.mesh_parts(_chip(design)).items()}, {})
    job = job_of(case.model, ((0, case),), decode_at)
    passes = _passes(design, job, prices(fidelity))
    on = closed_mesh.fabric(_chip(design))
    rows: list[Row] = []
    bars: dict[str, dict[str, list[tuple[str, str, float, float]]]] = {}
    for name, of, weights, seconds in passes:
        rows += _rows(name, of, weights, seconds, on, fidelity)
        bars[name] = _bars(of)
    moved = _transition(design, job, on, fidelity)
    if np.any(moved.seconds):
        value = float(np.max(moved.seconds))
        nbytes = float(np.max(moved.activity.sent_bytes))
        rows.append(Row("transition", "layouts", "reshuffle", "", 0.0, nbytes, 0.0, "words", value, {"words": value}))
    parts = {name: float(value) for name, value in area.mesh_parts(_chip(design)).items()}
    return Breakdown(tuple(rows), sum(row.seconds for row in rows), parts, bars)


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict with what would do for each phase that breaks a limit."""
    if worst.limit == "model.latent":
        return replace(worst, remedy="latent attention (MLA) runs on a die with a cache, as in chip=npu_dse")
    texts = []
    for phase, plan in closed_mesh.plans(_mapping(design)):

        def limits(changes: dict[str, Any], phase: str = phase) -> list[Limit]:
            trial = replaced(design, changes)
            return [limit for job in jobs(workload) for limit in _limits(trial, job, only=phase)]

        if all(np.all(limit.need <= limit.have) for limit in limits({})):
            continue
        texts.append(remedy(phase, limits, f"mapping.{phase}", plan, _chip(design)))
    return replace(worst, remedy=", ".join(texts))


LARGER = 16
"""How many times the side of a chip is tried, where nothing of the chip's own size would do."""

DEEPEST = 64
"""Phases of a K-tree that are tried from; with 2 cores a group, enough for any mesh."""


def remedy(
    what: str, limits: Callable[[dict[str, Any]], list[Limit]], where: str, plan: MeshPlan | ProductMapping, chip: MeshChip
) -> str:
    """In words, the smallest square mesh of a chip on which some limits hold; else a shallower tree, or a larger chip.

    Args:
        what: that would do.
        limits: of a design with leaves changed, by address, to arrays.
        where: the address of the plan.
        plan: as it is.
        chip: as it is.
    """
    rows, cols, depth = f"{where}.rows", f"{where}.cols", f"{where}.ktree_k"
    most = int(min(chip.mesh.rows, chip.mesh.cols))
    side = _first(np.arange(1.0, most + 1), lambda sides: limits({rows: sides, cols: 0}))
    if side:
        return f"{what} would do on {side} x {side} cores"
    if plan.gemv == "ktree":
        phases = _first(np.arange(min(float(plan.ktree_k), DEEPEST), 0.0, -1.0), lambda phases: limits({depth: phases}))
        if phases:
            return f"{what} would do with {depth}={phases}"
    larger = np.arange(most + 10.0, LARGER * most, 10.0)
    side = _first(larger, lambda sides: limits({rows: sides, cols: 0, "chip.mesh.rows": sides, "chip.mesh.cols": sides}))
    return f"no square mesh of this chip would do for {what}" + (f", one of {side} x {side} cores would" if side else "")


def _first(values: Array, limits: Callable[[Array], list[Limit]]) -> int:
    """The first of some values with which limits hold; 0 where there is none."""
    fits = np.ones(len(values), dtype=bool)
    for limit in limits(values):
        holds = np.asarray(limit.need <= limit.have)
        fits &= holds.all(axis=0) if holds.ndim == 2 else holds
    return int(values[fits][0]) if fits.any() else 0


def _metrics(design: Design, job: Job, fidelity: str) -> dict[str, Any]:
    chip, mapping = _chip(design), _mapping(design)
    on = closed_mesh.fabric(chip)
    (_, _, _, ttft), (_, _, _, decoding) = passes = _passes(design, job, prices(fidelity))
    moved = _transition(design, job, on, fidelity)
    latency = ttft + moved.seconds + decoding
    die = area.mesh_die(chip)
    activity = moved.activity
    for name, of, weights, _ in passes:
        starts = job.prompt_starts if name == "prefill" else job.step_starts
        activity = activity + per_case(of.activity * weights, starts)
    energy = mesh_energy(activity, chip, latency)
    regions = _regions(design, job.model)
    prefilling, decoding_ = (_held(design, job, phase, regions[phase]) for phase in ("prefill", "decode"))
    room = [
        maximum(chip.core.sram - of.total + of.kv, 0.0) // maximum(of.per_token, 1.0)
        for of in decoding_
        if np.any(of.per_token)
    ]
    return {
        **of_batch(job, ttft, decoding, latency, die, die),
        "transition": moved.seconds,
        "sram_used": maximum(_most(prefilling), _most(decoding_)),
        "kv_capacity": kv(mapping.kv).capacity(regions["decode"].mesh.rows, minimum(room[0], room[-1])),
        **energies(chip.power, ttft, decoding, latency, job.prompt_tokens, job.output_tokens),
        "energy": energy,
        "energy_per_token": energy / job.output_tokens,
    }


def _passes(design: Design, job: Job, priced: Price) -> tuple[tuple[str, Phase, Any, Any], ...]:
    """By phase: one pass of each entry, how many there are of it, and the time of each case."""
    mapping, on = _mapping(design), closed_mesh.fabric(_chip(design))
    regions = _regions(design, job.model)

    place, plan = regions["prefill"], mapping.prefill
    mesh = laid(place.mesh)
    kernels = lay.prefill(job.model, job.prompts, mesh, plan, mapping)
    first = closed_mesh.phase(kernels, job.model, place, mapping, on, priced)
    fill = reduced(np.maximum, first.seconds - first.stage, job.prompt_starts)
    ttft = reduced(np.add, job.copies * first.stage, job.prompt_starts) + fill

    place, plan = regions["decode"], mapping.decode
    turns = minimum(job.requests, place.count)
    together = ceil_div(job.requests, turns)
    mesh = laid(place.mesh)
    kernels = lay.decode(job.model, together, job.context, job.generated, mesh, plan, mapping)
    token = closed_mesh.phase(kernels, job.model, place, mapping, on, priced)
    step = maximum(token.seconds, turns * token.stage)
    decoding = reduced(np.add, job.steps * step, job.step_starts)
    return ("prefill", first, job.copies, ttft), ("decode", token, job.steps * turns, decoding)


def laid(mesh: Mesh) -> Mesh:
    """The mesh that is priced: one that would take too many chunks (a limit) counts as a square."""
    return Mesh(mesh.rows, where(_chunks(mesh) > MOST_CHUNKS, mesh.rows, mesh.cols)) if mesh.rows is not mesh.cols else mesh


def chunk_limit(address: str, chunks: Any) -> Limit:
    """That the sides of a mesh have enough in common."""
    return Limit(address, chunks, float(MOST_CHUNKS), "1", (("least common multiple of rows and columns", chunks),))


def _chunks(mesh: Mesh) -> Any:
    return mesh.chunks * 1.0


def _transition(design: Design, job: Job, on: Fabric, fidelity: str) -> Cost:
    """From one phase's layout to the other's; none on a part, which has no other phase beside it."""
    if cut(fidelity)[1]:
        return Cost(0.0, Activity())
    chip, mapping = _chip(design), _mapping(design)
    regions = _regions(design, job.model)
    resident = where(mapping.resident_layers == 0, 1.0, mapping.resident_layers / job.model.layers)
    values = parameters(job.model) * resident + job.prompt_tokens * job.model.layers * 2 * lay.width(
        job.model, mapping.kv_heads
    )
    return closed_mesh.transition(values, regions["prefill"], regions["decode"], chip, on)


def _regions(design: Design, model: Model) -> dict[str, Region]:
    chip, mapping = _chip(design), _mapping(design)
    layers = where(mapping.resident_layers == 0, model.layers * 1.0, minimum(mapping.resident_layers * 1.0, model.layers))
    return {name: lay.region(plan, chip.mesh.rows, chip.mesh.cols, layers) for name, plan in closed_mesh.plans(mapping)}


def _most(regions: tuple[Held, Held]) -> Any:
    """Bytes of the fullest core."""
    return maximum(regions[0].total, regions[1].total)


def _held(design: Design, job: Job, phase: str, place: Region) -> tuple[Held, Held]:
    mapping = _mapping(design)
    if phase == "prefill":
        longest = reduced(np.maximum, job.prompts, job.prompt_starts)
        cached = ceil_div(job.prompt_tokens, place.mesh.rows)
        return lay.held(job.model, place, mapping, tokens=longest, cached=cached, scores=True)
    return lay.held(job.model, place, mapping, tokens=1.0, cached=_fullest(job, mapping, place), scores=False)


def _fullest(job: Job, mapping: MeshMapping, place: Region) -> Any:
    """Tokens on the row that has most when the last one is generated, of all requests."""
    generated = job.cached - job.prompt_tokens
    return kv(mapping.kv).fullest(job.cached, generated, place.mesh.rows)


def _limits(design: Design, job: Job, only: str = "") -> list[Limit]:
    chip, mapping = _chip(design), _mapping(design)
    for address, word in (("weights", mapping.precision.weights), ("kv", mapping.precision.kv)):
        if BYTES[word] != 2:
            raise DesignError(f"mapping.precision.{address}: {word} has no kernels on a mesh of cores; valid: bf16, fp16")
    if job.model.latent is not None:
        return [Limit("model.latent", 1.0, 0.0, "layout")]
    regions = _regions(design, job.model)
    found = []
    for name, plan in closed_mesh.plans(mapping):
        if only and name != only:
            continue
        place = regions[name]
        mesh = place.mesh
        for which, items in zip(("", ", last region"), _held(design, job, name, place), strict=True):
            parts = (
                (f"{name} weights{which}", items.weights),
                ("KV cache", items.kv),
                ("activations", items.activations),
                ("buffers", items.buffers),
            )
            found.append(Limit("chip.core.sram", items.total, chip.core.sram, "B", parts))
        found.append(Limit("chip.mesh.rows", mesh.rows, chip.mesh.rows, "1"))
        found.append(Limit("chip.mesh.cols", mesh.cols, chip.mesh.cols, "1"))
        room = (chip.mesh.rows // mesh.rows) * (chip.mesh.cols // mesh.cols)
        found.append(Limit(f"mapping.{name}.regions", maximum(plan.regions, 1), maximum(room, 1.0), "1"))
        least = plan.ktree_k if plan.gemv == "ktree" else 1
        if name == "prefill":
            least = maximum(least, gemm(plan.gemm).LEAST)
        found.append(Limit(f"mapping.{name}.rows", least, minimum(mesh.rows, mesh.cols), "1"))
        found.append(Limit("chip.noc.paths", _paths(name, plan, mesh), chip.noc.paths, "1"))
        if name == "prefill":
            found.append(chunk_limit("mapping.prefill.cols", _chunks(mesh)))
    return found


def _paths(phase: str, plan: MeshPlan, mesh: Mesh) -> Any:
    """Routing paths that a core is part of at a time."""
    tree = gemv(plan.gemv).at_once(mesh, plan.ktree_k)
    return maximum(tree, gemm(plan.gemm).at_once(mesh)) if phase == "prefill" else tree


def _rows(phase: str, of: Phase, weights: Any, seconds: Any, on: Fabric, fidelity: str) -> list[Row]:
    """Kernels of one phase, and what pipelining of a batch takes off or adds, as a row of its own; they add up to its time."""
    rows = []
    for kernel, runs, _ in of.items:
        split = spent(kernel, on, fidelity)
        parts = {name: float(np.sum(weights * runs * value)) for name, value in split.items()}
        total = sum(parts.values())
        if not total:
            continue
        cost = prices(fidelity)(kernel, on).activity
        flop, nbytes = (
            float(np.sum(weights * runs * value))
            for value in (2.0 * cost.macs * kernel.copies, cost.sent_bytes * kernel.copies)
        )
        bound = max(parts, key=lambda name: parts[name])
        shape = _shape(kernel_on(kernel, cut(fidelity)[1]))
        rows.append(Row(phase, kernel.part, kernel.name, shape, flop, nbytes, 0.0, bound, total, parts))
    gap = float(np.sum(seconds)) - sum(row.seconds for row in rows)
    if abs(gap) > 1e-9 * float(np.sum(seconds)):
        rows.append(Row(phase, "regions", "overlap of requests", "", 0.0, 0.0, 0.0, "overlap", gap, {"overlap": gap}))
    return rows


TINY = 1e-30
"""A time to divide by where there is none. [s]"""

SPENT = (
    ("hops", ("hop", "ramp")),
    ("stages", ("stage",)),
    ("words", ("word", "copy")),
    ("starts", ("launch", "post", "call")),
)


def spent(kernel: Kernel, on: Fabric, fidelity: str, kinds: Sequence[tuple[str, tuple[str, ...]]] = SPENT) -> dict[str, Any]:
    """The time of a kernel by what it goes into: what falls away when that is free, in turn; the rest is products.

    Nothing of a router is free where it is played cycle by cycle: there it is what events say, and what flits wait for beyond,
    or lose on ways round what is broken.
    """
    word, side = cut(fidelity)
    kernel, priced = kernel_on(kernel, side), PRICES[word]
    if word == "cycles":
        found = spent(kernel._replace(faults=NO_FAULTS), on, "events", kinds)
        return found | {"contention": priced(kernel, on).seconds - sum(found.values())}
    found, before = {}, priced(kernel, on).seconds
    for name, fields in kinds:
        on = on._replace(**dict.fromkeys(fields, 0.0))
        after = priced(kernel, on).seconds
        found[name], before = before - after, after
    return found | {"products": before}


def broken_of(chip: MeshChip | TileChip, mesh: Mesh) -> Faults:
    """What is broken of the cores that a kernel is on; a chip with faults is evaluated by itself."""
    if chip.faults == "none":
        return NO_FAULTS
    return within(faults(chip), int(chip.mesh.cols), int(mesh.rows), int(mesh.cols))


def _shape(kernel: Kernel) -> str:
    m, k, n = (float(np.ravel(value)[0]) for value in (kernel.shape.m, kernel.shape.k, kernel.shape.n))
    on = f"{float(np.ravel(kernel.mesh.rows)[0]):.0f} x {float(np.ravel(kernel.mesh.cols)[0]):.0f} cores"
    return f"{m:.0f} x {k:.0f} x {n:.0f} on {on}" if kernel.kind in ("gemm", "gemv") else f"{m:.0f} x {k:.0f} on {on}"


def _bars(of: Phase) -> dict[str, list[tuple[str, str, float, float]]]:
    bars: dict[str, list[tuple[str, str, float, float]]] = {}
    for kernel, runs, seconds in of.items:
        if not np.any(runs):
            continue
        line = bars.setdefault(kernel.part, [])
        start = line[-1][3] if line else 0.0
        line.append(("compute", kernel.name, start, start + float(np.ravel(kernel.times * seconds)[0])))
    return bars


def _chip(design: Design) -> MeshChip:
    return cast(MeshChip, design.chip)


def _mapping(design: Design) -> MeshMapping:
    return cast(MeshMapping, design.mapping)
