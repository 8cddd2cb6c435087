"""The one door: designs and a workload in, outcomes out; pure, and the same for one design as for a hundred thousand."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from evaluators import breakdown
from evaluators.closed import Rates, SegmentTimes, rates, timeline
from evaluators.graph.operators import Part, Segment
from evaluators.graph.shard import Footprint, footprint, segments
from evaluators.graph.step import Step, decode, prefill, stacked
from evaluators.graph.transformer import transformer
from evaluators.kernels.collective import allreduce
from evaluators.metrics import LIMITS, METRICS, Outcomes, empty, mean
from evaluators.silicon import area
from space.design import Design, Designs
from space.elementwise import maximum
from space.errors import DesignError, nearest
from space.limits import Infeasible, Limit
from space.mapping import Plan, Precision
from space.model import Model
from space.workload import Case, Workload

PHYSICS = 1
"""Version of the physics: raised by hand whenever a golden result changes, so that stored results are not mixed."""

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
    output_tokens: Any
    decode_steps: Any
    positions: Any
    longest: Any


def evaluate(designs: Designs, workload: Workload, *, fidelity: str = "closed", cases: bool = False) -> Outcomes:
    """The metrics of designs under a workload.

    Args:
        designs: many, grouped by structure.
        workload: what is asked of them.
        fidelity: a word of `FIDELITIES`.
        cases: also keep the metrics of each case.

    Raises:
        DesignError: an unknown fidelity or algorithm name. Infeasible designs are answered, not raised.
    """
    if fidelity not in FIDELITIES:
        raise DesignError(f"fidelity: no reader {fidelity!r}; {nearest(fidelity, FIDELITIES)}")
    outcomes = empty(len(designs))
    if cases:
        shape = (len(workload.cases), len(designs))
        outcomes.cases.update({name: np.empty(shape) for name in (*METRICS, "fits")})
    for rows, design in designs.groups:
        _fill(outcomes, rows, design, workload)
    return outcomes


def explain(design: Design, case: Case, *, decode_at: str = "mean", fidelity: str = "closed") -> breakdown.Breakdown:
    """Where the time of one design goes, operator by operator, for one case."""
    if fidelity not in FIDELITIES:
        raise DesignError(f"fidelity: no reader {fidelity!r}; {nearest(fidelity, FIDELITIES)}")
    job = _job(case.model, ((0, case),), decode_at)
    phases = {}
    rate = rates(design.chip, design.mapping.precision)
    for name, phase, plan in _plans(job, design):
        phases[name] = (phase.weights, _timeline(design, phase, plan, rate))
    return breakdown.breakdown(design, case, phases, area.parts(design.chip))


def limits(design: Design, workload: Workload) -> list[Limit]:
    """Every limit of a design under a workload, itemised; leaves broadcast over designs."""
    found = []
    for job in _jobs(workload):
        found += _limits(_footprint(job, design), design)
    return found


def infeasible(design: Design, workload: Workload) -> Infeasible | None:
    """What binds one design most, itemised; None where every limit holds."""
    worst: Infeasible | None = None
    for limit in limits(design, workload):
        row = int(np.argmax(limit.need))
        parts = tuple((name, _pick(value, row)) for name, value in limit.parts)
        verdict = Infeasible(limit.address, _pick(limit.need, row), _pick(limit.have, row), limit.unit, parts)
        if verdict.excess > (worst.excess if worst else 0.0):
            worst = verdict
    return worst


def _pick(value: Any, row: int) -> float:
    flat = np.ravel(value)
    return float(flat[row] if len(flat) > 1 else flat[0])


def _fill(outcomes: Outcomes, rows: Any, design: Design, workload: Workload) -> None:
    total: dict[str, Any] = dict.fromkeys(METRICS, 0.0)
    die = area.die(design.chip)
    system = die * maximum(design.mapping.prefill.tp, design.mapping.decode.tp)
    worst: Any = 0.0
    for job in _jobs(workload):
        held = _footprint(job, design)
        found = _limits(held, design)
        values = _metrics(job, design, die, system, held)
        if outcomes.cases:
            cases = np.asarray(job.rows)[:, None]
            for name, value in values.items():
                outcomes.cases[name][cases, rows] = value
            outcomes.cases["fits"][cases, rows] = found[0].need <= found[0].have
        for name, value in values.items():
            if name == "hbm_used":
                total[name] = maximum(total[name], value.max(axis=0) if _many(job, value) else value)
            else:
                total[name] = total[name] + (mean(value) if _many(job, value) else value) * (
                    len(job.rows) / len(workload.cases)
                )
        for limit in found:
            worst = _bind(outcomes, rows, limit, worst)
    for name, value in total.items():
        outcomes.columns[name][rows] = value


def _many(job: _Job, value: Any) -> bool:
    return len(job.rows) > 1 and isinstance(value, np.ndarray) and value.ndim == 2


def _bind(outcomes: Outcomes, rows: Any, limit: Limit, worst: Any) -> Any:
    """Writes a limit where it exceeds more than what binds so far; returns the largest excess."""
    need = limit.need.max(axis=0) if isinstance(limit.need, np.ndarray) and limit.need.ndim == 2 else limit.need
    excess = need / limit.have - 1
    beyond = excess > worst
    if not (beyond.any() if isinstance(beyond, np.ndarray) else beyond):
        return worst
    over = np.broadcast_to(beyond, rows.shape)
    where = rows[over]
    outcomes.limit[where] = LIMITS.index(limit.address)
    outcomes.need[where] = np.broadcast_to(need, rows.shape)[over]
    outcomes.have[where] = np.broadcast_to(limit.have, rows.shape)[over]
    return maximum(worst, excess)


def _metrics(job: _Job, design: Design, die: Any, system: Any, held: Footprint) -> dict[str, Any]:
    times = {}
    rate = rates(design.chip, design.mapping.precision)
    for name, phase, plan in _plans(job, design):
        seconds: Any = 0.0
        for timed in _timeline(design, phase, plan, rate):
            seconds = seconds + timed.seconds * timed.segment.times
        times[name] = phase.per_case(seconds)
    ttft, decoding = times["prefill"], times["decode"]
    latency = ttft + decoding
    throughput, decode_throughput = job.output_tokens / latency, job.output_tokens / decoding
    return {
        "throughput": throughput,
        "decode_throughput": decode_throughput,
        "ttft": ttft,
        "tpot": decoding / job.decode_steps,
        "latency": latency,
        "die_mm2": die,
        "system_mm2": system,
        "throughput_per_die_mm2": throughput / die,
        "throughput_per_system_mm2": throughput / system,
        "decode_throughput_per_die_mm2": decode_throughput / die,
        "decode_throughput_per_system_mm2": decode_throughput / system,
        "attention_layer": held.attention_layer,
        "ffn_layer": held.ffn_layer,
        "hbm_used": held.total,
    }


def _limits(held: Footprint, design: Design) -> list[Limit]:
    chip, mapping = design.chip, design.mapping
    tp = mapping.prefill.tp
    parts = (("weights", held.weights), ("KV cache", held.kv), ("activations", held.activations))
    ports = allreduce(mapping.prefill.allreduce).ports(tp)
    if mapping.decode.allreduce != mapping.prefill.allreduce:
        ports = maximum(ports, allreduce(mapping.decode.allreduce).ports(tp))
    apart = (maximum(tp, mapping.decode.tp), -maximum(-tp, -mapping.decode.tp))
    return [
        Limit("chip.hbm.capacity", held.total, chip.hbm.capacity, "B", parts),
        Limit("chip.network.ports", ports, chip.network.ports, "1"),
        # one pool of devices serves both phases, so both have the same parallelism
        Limit("mapping.decode.tp", apart[0], apart[1], "1"),
    ]


def _footprint(job: _Job, design: Design) -> Footprint:
    tp, precision = design.mapping.prefill.tp, design.mapping.precision
    return _held(job, tp, precision) if isinstance(tp, np.ndarray) else _held_by_one(job, tp, precision)


def _held(job: _Job, tp: Any, precision: Precision) -> Footprint:
    return footprint(job.decode.parts, job.model, tp, precision, positions=job.positions, tokens=job.longest)


_held_by_one = lru_cache(maxsize=1024)(_held)


def _plans(job: _Job, design: Design) -> tuple[tuple[str, _Phase, Plan], ...]:
    return ("prefill", job.prefill, design.mapping.prefill), ("decode", job.decode, design.mapping.decode)


def _timeline(design: Design, phase: _Phase, plan: Plan, rate: Rates) -> list[SegmentTimes]:
    precision = design.mapping.precision
    cut = segments(phase.parts, plan.tp, precision) if isinstance(plan.tp, np.ndarray) else _cut(phase, plan.tp, precision)
    return timeline(cut, design.chip, plan, rate)


@lru_cache(maxsize=1024)
def _cut(phase: _Phase, tp: float, precision: Precision) -> tuple[Segment, ...]:
    return segments(phase.parts, tp, precision)


@lru_cache(maxsize=16)
def _jobs(workload: Workload) -> tuple[_Job, ...]:
    by_model: dict[Model, list[tuple[int, Case]]] = {}
    for row, case in enumerate(workload.cases):
        by_model.setdefault(case.model, []).append((row, case))
    return tuple(_job(model, tuple(cases), workload.decode_at) for model, cases in by_model.items())


def _job(model: Model, cases: tuple[tuple[int, Case], ...], decode_at: str) -> _Job:
    prefills = [[(1.0, prefill(case))] for _, case in cases]
    decodes = [decode(case, decode_at) for _, case in cases]

    def column(values: list[float]) -> Any:
        return values[0] if len(values) == 1 else np.array(values)[:, None]

    return _Job(
        model,
        tuple(row for row, _ in cases),
        _phase(model, prefills),
        _phase(model, decodes),
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
