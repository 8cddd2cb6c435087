"""Designs of meshes of tiles with HBM: metrics, limits and the breakdown of a workload.

The chip is divided into instances of the model, each a pipeline of groups of tiles; requests are shared evenly between them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from evaluators import closed_tiles, played_tiles
from evaluators.breakdown import Breakdown, Row
from evaluators.closed_tiles import Pass, Prices, Task
from evaluators.graph.reside import Resident, resident
from evaluators.graph.step import Step, causal_pairs
from evaluators.graph.transformer import transformer
from evaluators.job import Job, job_of, jobs, per_case, reduced
from evaluators.kernels.partition.placement import sides_of
from evaluators.metrics import Judged, of_batch
from evaluators.silicon import area
from evaluators.silicon.energy import tile_energy
from space.chip import TileChip
from space.design import Design
from space.elementwise import ceil_div, maximum, minimum, where
from space.fields import replaced
from space.limits import Infeasible, Limit
from space.mapping import TileMapping, TilePlan
from space.workload import Case, Workload

PRICES: dict[str, Prices] = {"closed": closed_tiles.PRICES, **played_tiles.PRICES}
FIDELITIES = tuple(PRICES)


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits, model by model; leaves of shape (cases, designs), or floats for one of each."""
    return [Judged(job.rows, _metrics(design, job, PRICES[fidelity]), _limits(design, job)) for job in jobs(workload)]


def explain(design: Design, case: Case, decode_at: str, fidelity: str) -> Breakdown:
    """Where the time of one design goes, operator by operator, for one case."""
    job = job_of(case.model, ((0, case),), decode_at)
    rows: list[Row] = []
    bars: dict[str, dict[str, list[tuple[str, str, float, float]]]] = {}
    for name, of, weights, seconds in _passes(design, job, PRICES[fidelity]):
        rows += _rows(name, of, weights, seconds)
        bars[name] = _bars(of)
    parts = {name: float(value) for name, value in area.tile_parts(_chip(design)).items()}
    return Breakdown(tuple(rows), sum(row.seconds for row in rows), parts, bars)


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict with the smallest parallelism that would do."""
    return smallest(worst, design, lambda trial: [limit for job in jobs(workload) for limit in _limits(trial, job)])


def smallest(worst: Infeasible, design: Design, limits: Callable[[Design], list[Limit]]) -> Infeasible:
    """The verdict with the smallest TP x PP, of both phases, that keeps all limits of a design."""
    chip = _chip(design)
    cores = int(chip.mesh.rows * chip.mesh.cols)
    for count in range(1, cores + 1):
        for tp in (1 << power for power in range(count.bit_length())):
            pp = count // tp
            if pp * tp != count:
                continue
            both = {
                f"mapping.{phase}.{knob}": value for phase in ("prefill", "decode") for knob, value in (("tp", tp), ("pp", pp))
            }
            if all(np.all(limit.need <= limit.have) for limit in limits(replaced(design, both))):
                return replace(worst, remedy=f"TP {tp} x PP {pp} would do: mapping.both.tp={tp} mapping.both.pp={pp}")
    return replace(worst, remedy=f"no TP x PP on {cores} cores would do")


def _metrics(design: Design, job: Job, priced: Prices) -> dict[str, Any]:
    chip = _chip(design)
    (_, first, first_runs, ttft), (_, token, token_runs, decoding) = _passes(design, job, priced)
    latency = ttft + decoding
    die = area.tile_die(chip)
    activity = per_case(first.activity * first_runs, job.prompt_starts) + per_case(token.activity * token_runs, job.step_starts)
    energy = tile_energy(activity, chip, latency)
    held = [_held(design, job, name) for name in ("prefill", "decode")]
    return {
        **of_batch(job, ttft, decoding, latency, die, die),
        "sram_used": maximum(held[0].sram, held[1].sram),
        "hbm_used": maximum(held[0].hbm, held[1].hbm),
        "energy": energy,
        "energy_per_token": energy / job.output_tokens,
    }


def _passes(design: Design, job: Job, priced: Prices) -> tuple[tuple[str, Pass, Any, Any], ...]:
    """By phase: one pass of each entry, how many there are of it on all instances, and the time of each case."""
    chip, mapping = _chip(design), _mapping(design)
    plan = mapping.prefill
    instances = _instances(chip, plan)
    pairs = causal_pairs(job.prompts, job.model.window)
    at = Step("prefill", job.prompts, 1.0 + 0.0 * job.prompts, pairs, 0.0 * job.prompts)
    first = closed_tiles.passed(job.model, at, chip, plan, mapping.precision, _held(design, job, "prefill"), priced)
    fill = reduced(np.maximum, first.seconds - first.stage, job.prompt_starts)
    ttft = reduced(np.add, ceil_div(job.copies, instances) * first.stage, job.prompt_starts) + fill

    plan = mapping.decode
    turns, together = _together(chip, plan, job)
    positions = together * job.context
    at = Step("decode", together, together, positions, positions)
    token = closed_tiles.passed(job.model, at, chip, plan, mapping.precision, _held(design, job, "decode"), priced)
    decoding = reduced(np.add, job.steps * maximum(token.seconds, turns * token.stage), job.step_starts)
    return (
        ("prefill", first, job.copies, ttft),
        ("decode", token, job.steps * ceil_div(job.requests, together), decoding),
    )


def _instances(chip: TileChip, plan: TilePlan) -> Any:
    """How many times the chip has room for a pipeline of groups."""
    return maximum(room(chip, plan) // plan.pp, 1.0)


def room(chip: TileChip, plan: TilePlan) -> Any:
    """How many groups of cores the chip has room for."""
    rows, cols = sides_of(plan.placement, plan.tp)
    return (chip.mesh.rows // rows) * (chip.mesh.cols // cols)


def _together(chip: TileChip, plan: TilePlan, job: Job) -> tuple[Any, Any]:
    """Micro-batches of an instance that decode in turn, as many as stages at most, and requests of each."""
    here = ceil_div(job.requests, _instances(chip, plan))
    turns = minimum(here, plan.pp)
    return turns, ceil_div(here, turns)


def _held(design: Design, job: Job, phase: str) -> Resident:
    chip, mapping = _chip(design), _mapping(design)
    plan = mapping.prefill if phase == "prefill" else mapping.decode
    if phase == "prefill":
        tokens = reduced(np.maximum, job.prompts, job.prompt_starts)
    else:
        tokens = reduced(np.maximum, _together(chip, plan, job)[1], job.step_starts)
    at = Step(phase, tokens, 1.0, tokens, tokens)
    cached = ceil_div(job.cached, _instances(chip, plan))
    return resident(transformer(job.model, at), job.model, plan, mapping, chip.tile.sram, tokens=tokens, cached=cached)


def _limits(design: Design, job: Job) -> list[Limit]:
    chip, mapping = _chip(design), _mapping(design)
    found = []
    for name in ("prefill", "decode"):
        plan = mapping.prefill if name == "prefill" else mapping.decode
        held = _held(design, job, name)
        found += plan_limits(chip, name, plan, held, (1 - held.kv_here) * held.kv, job.model.layers, room(chip, plan))
    return found


def plan_limits(chip: TileChip, name: str, plan: TilePlan, held: Resident, kv: Any, stages: float, groups: Any) -> list[Limit]:
    """Memory and parallelism of a phase.

    Args:
        chip, name, plan: of the phase.
        held: what a core has.
        kv: of the cache in a core's share of HBM. [B]
        stages: into which a model can be divided.
        groups: that there is room for.
    """
    weights = (1 - held.weights_here) * held.weights
    share = chip.hbm.capacity / (chip.mesh.rows * chip.mesh.cols)
    rows, cols = sides_of(plan.placement, plan.tp)
    return [
        Limit("chip.hbm.capacity", weights + kv, share, "B", (("weights", weights), ("KV cache", kv))),
        Limit("chip.tile.sram", held.activations, chip.tile.sram, "B", (("activations", held.activations),)),
        Limit(f"mapping.{name}.tp", maximum(rows / chip.mesh.rows, cols / chip.mesh.cols) * plan.tp, plan.tp, "1"),
        Limit(f"mapping.{name}.pp", plan.pp, minimum(maximum(groups, 1.0), stages * 1.0), "1"),
    ]


def _rows(phase: str, of: Pass, weights: Any, seconds: Any) -> list[Row]:
    """Tasks of one phase, and what instances and pipelining take off or add, as a row of its own; they add up to its time."""
    rows = task_rows(phase, of, weights)
    gap = float(np.sum(seconds)) - sum(row.seconds for row in rows)
    if abs(gap) > 1e-9 * float(np.sum(seconds)):
        rows.append(Row(phase, "stages", "overlap of requests", "", 0.0, 0.0, 0.0, "overlap", gap, {"overlap": gap}))
    return rows


def task_rows(phase: str, of: Pass, weights: Any) -> list[Row]:
    """Tasks of a pass through all stages, so many times, and what goes from stage to stage; they add up to its time."""
    rows = []
    for task in of.tasks:
        parts = {name: float(np.sum(weights * task.times * value)) for name, value in _spent(task).items()}
        total = sum(parts.values())
        if not total:
            continue
        flop, nbytes = (float(np.sum(weights * task.times * value)) for value in (task.flop, task.nbytes))
        bound = max(parts, key=lambda name: parts[name])
        shape = " x ".join(f"{float(np.ravel(size)[0]):.0f}" for size in task.shape)
        rows.append(Row(phase, task.part, task.name, shape, flop, nbytes, 0.0, bound, total, parts))
    value = float(np.sum(weights * of.hop * (of.stages - 1.0)))
    if value:
        rows.append(Row(phase, "stages", "transfer", "", 0.0, 0.0, 0.0, "network", value, {"network": value}))
    return rows


def _spent(task: Task) -> dict[str, Any]:
    """The time of a task by what it goes into: HBM where it takes longer than the engines that it feeds."""
    waits = maximum(task.memory - task.matrix - task.vector, 0.0)
    hidden = where(waits > 0, 1.0, 0.0)
    return {
        "matrix": task.matrix * (1 - hidden),
        "vector": task.vector * (1 - hidden),
        "hbm": (waits + task.matrix + task.vector) * hidden,
        "network": task.network,
    }


def _bars(of: Pass) -> dict[str, list[tuple[str, str, float, float]]]:
    bars: dict[str, list[tuple[str, str, float, float]]] = {}
    for task in of.tasks:
        line = bars.setdefault(task.part, [])
        start = line[-1][3] if line else 0.0
        line.append(("compute", task.name, start, start + float(np.ravel(task.seconds)[0])))
    return bars


def _chip(design: Design) -> TileChip:
    return cast(TileChip, design.chip)


def _mapping(design: Design) -> TileMapping:
    return cast(TileMapping, design.mapping)
