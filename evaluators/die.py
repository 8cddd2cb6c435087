"""Designs of dies with a cache and off-die memory, joined by links: metrics, limits and the breakdown of a workload."""

from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, cast

import numpy as np

from evaluators import breakdown
from evaluators.closed import Rates, SegmentTimes, rates, timeline
from evaluators.graph.operators import Part, Segment
from evaluators.graph.shard import Footprint, footprint, segments
from evaluators.graph.step import Step, decode, prefill, stacked
from evaluators.graph.transformer import transformer
from evaluators.kernels.collective import allreduce
from evaluators.machine.link import spread
from evaluators.metrics import Judged, energies, of_batch
from evaluators.silicon import area
from space.chip import Chip
from space.design import Design
from space.elementwise import column, maximum
from space.limits import Infeasible, Limit
from space.mapping import Mapping, Plan, Precision
from space.model import Model
from space.workload import Case, Workload, by_model

FIDELITIES = ("closed",)


@dataclass(frozen=True, eq=False)
class _Phase:
    """One phase of all cases of a model: its steps stacked, how often each runs, and where each case's steps begin."""

    parts: tuple[Part, ...]
    weights: Any
    starts: Any

    def per_case(self, seconds: Any) -> Any:
        """Time of each case from the time of each step: shape (cases, designs), or a float for one of each."""
        if isinstance(self.weights, float):
            return self.weights * seconds
        weighted = self.weights * seconds
        return weighted if len(self.starts) == len(weighted) else np.add.reduceat(weighted, self.starts, axis=0)


@dataclass(frozen=True, eq=False)
class _Job:
    """The cases of a workload that share a model."""

    model: Model
    rows: tuple[int, ...]
    prefill: _Phase
    decode: _Phase
    prompt_tokens: Any
    output_tokens: Any
    decode_steps: Any
    positions: Any
    longest: Any


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits, model by model; leaves of shape (cases, designs), or floats for one of each."""
    die = area.die(_chip(design))
    system = die * maximum(_mapping(design).prefill.tp, _mapping(design).decode.tp)
    found = []
    for job in _jobs(workload):
        held = _footprint(job, design)
        found.append(Judged(job.rows, _metrics(job, design, die, system, held), _limits(held, design)))
    return found


def explain(design: Design, case: Case, decode_at: str, fidelity: str) -> breakdown.Breakdown:
    """Where the time of one design goes, operator by operator, for one case."""
    job = _job(case.model, ((0, case),), decode_at)
    phases = {}
    rate = rates(_chip(design), _mapping(design).precision)
    for name, phase, plan in _plans(job, design):
        phases[name] = (phase.weights, _timeline(design, name, phase, plan, rate))
    return breakdown.breakdown(rate, phases, area.parts(_chip(design)))


def port_limit(chip: Chip, *plans: Plan) -> Limit:
    """Ports that the allreduces of some plans need; they join the dies of a node."""
    nodes, needs = chip.network.nodes, []
    for plan in plans:
        peers = plan.tp if nodes is None else spread(plan.tp, nodes.size)[1]
        needs.append(allreduce(plan.allreduce).ports(peers))
    return Limit("chip.network.ports", reduce(maximum, needs), chip.network.ports, "1")


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict as it is."""
    return worst


def _metrics(job: _Job, design: Design, die: Any, system: Any, held: Footprint) -> dict[str, Any]:
    times = {}
    rate = rates(_chip(design), _mapping(design).precision)
    for name, phase, plan in _plans(job, design):
        seconds: Any = 0.0
        for timed in _timeline(design, name, phase, plan, rate):
            seconds = seconds + timed.seconds * timed.segment.times
        times[name] = phase.per_case(seconds)
    ttft, decoding = times["prefill"], times["decode"]
    latency = ttft + decoding
    values = {
        **of_batch(job, ttft, decoding, latency, die, system),
        "attention_layer": held.attention_layer,
        "ffn_layer": held.ffn_layer,
        "hbm_used": held.total,
    }
    if not np.any(_chip(design).power == 0):
        dies = maximum(_mapping(design).prefill.tp, _mapping(design).decode.tp)
        values |= energies(_chip(design).power * dies, ttft, decoding, latency, job.prompt_tokens, job.output_tokens)
    return values


def _limits(held: Footprint, design: Design) -> list[Limit]:
    chip, mapping = _chip(design), _mapping(design)
    tp = mapping.prefill.tp
    parts = (("weights", held.weights), ("KV cache", held.kv), ("activations", held.activations))
    apart = (maximum(tp, mapping.decode.tp), -maximum(-tp, -mapping.decode.tp))
    return [
        Limit("chip.hbm.capacity", held.total, chip.hbm.capacity, "B", parts),
        port_limit(chip, mapping.prefill, mapping.decode),
        # one pool of devices serves both phases, so both have the same parallelism
        Limit("mapping.decode.tp", apart[0], apart[1], "1"),
    ]


def _footprint(job: _Job, design: Design) -> Footprint:
    tp, precision = _mapping(design).prefill.tp, _mapping(design).precision
    return _held(job, tp, precision) if isinstance(tp, np.ndarray) else _held_by_one(job, tp, precision)


def _held(job: _Job, tp: Any, precision: Precision) -> Footprint:
    return footprint(job.decode.parts, job.model, tp, precision, positions=job.positions, tokens=job.longest)


_held_by_one = lru_cache(maxsize=1024)(_held)


def _plans(job: _Job, design: Design) -> tuple[tuple[str, _Phase, Plan], ...]:
    return ("prefill", job.prefill, _mapping(design).prefill), ("decode", job.decode, _mapping(design).decode)


def _timeline(design: Design, name: str, phase: _Phase, plan: Plan, rate: Rates) -> list[SegmentTimes]:
    precision = _mapping(design).precision
    cut = segments(phase.parts, plan.tp, precision) if isinstance(plan.tp, np.ndarray) else _cut(phase, plan.tp, precision)
    # decode steps launch the same kernels on the same shapes and are recorded once; prompts differ in length [sglang2025]
    return timeline(cut, _chip(design), plan, rate, recorded=name == "decode")


@lru_cache(maxsize=1024)
def _cut(phase: _Phase, tp: float, precision: Precision) -> tuple[Segment, ...]:
    return segments(phase.parts, tp, precision)


@lru_cache(maxsize=16)
def _jobs(workload: Workload) -> tuple[_Job, ...]:
    return tuple(_job(model, cases, workload.decode_at) for model, cases in by_model(workload).items())


def _job(model: Model, cases: tuple[tuple[int, Case], ...], decode_at: str) -> _Job:
    prefills = [[(1.0, prefill(case))] for _, case in cases]
    decodes = [decode(case, decode_at) for _, case in cases]

    return _Job(
        model,
        tuple(row for row, _ in cases),
        _phase(model, prefills),
        _phase(model, decodes),
        column([float(case.prompt_tokens) for _, case in cases]),
        column([float(case.output_tokens) for _, case in cases]),
        column([float(case.decode_steps) for _, case in cases]),
        column([float(sum(n * (prompt + output) for n, prompt, output in case.requests)) for _, case in cases]),
        column([float(max(prompt for _, prompt, _ in case.requests)) for _, case in cases]),
    )


def _phase(model: Model, steps: list[list[tuple[float, Step]]]) -> _Phase:
    flat = [pair for case in steps for pair in case]
    parts = transformer(model, stacked([step for _, step in flat]))
    if len(flat) == 1:
        return _Phase(parts, flat[0][0], None)
    starts = np.cumsum([0, *(len(case) for case in steps[:-1])])
    return _Phase(parts, np.array([[weight] for weight, _ in flat]), starts)


def _chip(design: Design) -> Chip:
    return cast(Chip, design.chip)


def _mapping(design: Design) -> Mapping:
    return cast(Mapping, design.mapping)
