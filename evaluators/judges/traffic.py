"""Networks on packets by themselves: metrics, limits and the breakdown of a workload.

Under ``closed`` packets meet nobody, and a network accepts what its busiest link, or its busiest core, can carry. Under
``cycles`` routers are played.
"""

from functools import lru_cache
from typing import Any, cast

import numpy as np

from dse.evaluators.account.breakdown import Breakdown, Row
from dse.evaluators.account.metrics import Judged
from dse.evaluators.machine import traffic
from dse.evaluators.machine.detour import detours
from dse.evaluators.machine.flows import Flows, flows
from dse.evaluators.machine.traffic import SATURATED, STABLE, Measured, empty
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.fields import leaves, replaced
from dse.space.limits import Infeasible, Limit
from dse.space.mapping import TrafficPlan
from dse.space.network import faults, stages
from dse.space.workload import Asked, Traffic, Workload

FIDELITIES = ("closed", "cycles")


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits, pattern by pattern; leaves of shape (cases, designs), or floats for one of each."""
    cases = cast(tuple[Traffic, ...], workload.cases)
    found = []
    for row, case in enumerate(cases):
        values = _metrics(design, case, fidelity)
        found.append(Judged((row,), values, _limits(design, case)))
    return found


def explain(design: Design, case: Asked, decode_at: str, fidelity: str) -> Breakdown:
    """The latency of a packet: the way, its own flits, and what it waited for."""
    case, chip = cast(Traffic, case), _chip(design)
    cycle, t = 1 / float(chip.clock), stages(chip.router)
    found = {name: float(value) for name, value in _metrics(design, case, fidelity).items()}
    parts = {
        "routers": found["hops"] * float(t.hop - chip.router.link) * cycle,
        "links": (found["hops"] * float(chip.router.link) + 1 + float(chip.router.link)) * cycle,
        "flits": float(empty(chip.router, case, 0.0) - 1 - chip.router.link) * cycle,
    }
    seconds = found["packet_latency"] * cycle
    parts["contention"] = max(seconds - sum(parts.values()), 0.0)
    bound = max(parts, key=lambda name: parts[name])
    row = Row("packet", case.pattern, case.label, _mapping(design).order, 0.0, 0.0, 0.0, bound, seconds, parts)
    return Breakdown((row,), seconds, {}, {"packet": {case.label: [("network", case.label, 0.0, seconds)]}})


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict as it is."""
    return worst


def _metrics(design: Design, case: Traffic, fidelity: str) -> dict[str, Any]:
    """Of one case, for each design; of those that a limit refuses, as if the mesh were square and spots in its corner."""
    wide = max((len(value) for _, value, _ in leaves(design) if isinstance(value, np.ndarray)), default=1)
    found = [_one(_picked(design, row), case, fidelity) for row in range(wide)]
    names = {name: None for one in found for name in one}  # those that a limit refuses have fewer
    values = {name: np.array([[one.get(name, np.nan) for one in found]]) for name in names}
    return values if wide > 1 else {name: float(value[0, 0]) for name, value in values.items()}


def _one(design: Design, case: Traffic, fidelity: str) -> dict[str, float]:
    if any(limit.need > limit.have for limit in _limits(design, case)):
        return dict.fromkeys(("packet_latency", "packet_latency_p50", "packet_latency_p99", "hops", "accepted"), np.nan)
    measured = _played(design, case) if fidelity == "cycles" else _free(design, case)
    found = _measures(measured)
    if faults(_chip(design)):
        asked = _asked(design, case)
        found |= {"detoured": asked.around, "detour_links": asked.extra}
    return found


def _measures(measured: Measured) -> dict[str, float]:
    return {
        "packet_latency": measured.latency,
        "packet_latency_p50": measured.p50,
        "packet_latency_p99": measured.p99,
        "hops": measured.hops,
        "accepted": measured.accepted,
        "traffic_verdict": float(measured.verdict),
    }


@lru_cache(maxsize=256)
def _played(design: Design, case: Traffic) -> Measured:
    chip = _chip(design)
    return traffic.measure(chip.router, int(chip.mesh.rows), int(chip.mesh.cols), _mapping(design).order, case, faults(chip))


def _free(design: Design, case: Traffic) -> Measured:
    """Packets that meet nobody, and the busiest link or core."""
    router, asked = _chip(design).router, _asked(design, case)
    wide = np.repeat([float(router.flit_x), float(router.flit_y)], 2)
    share = max(asked.arriving, float((asked.loads.max(axis=(1, 2)) * wide).max()))
    latencies = empty(router, case, np.arange(1, len(asked.links) + 1.0))
    below = np.cumsum(asked.links) / asked.links.sum()
    p50, p99 = (float(latencies[np.searchsorted(below, at)]) for at in (0.5, 0.99))
    mean = float((latencies * asked.links).sum() / asked.links.sum())
    verdict = SATURATED if case.rate * share > 1 else STABLE
    return Measured(mean, p50, p99, asked.hops, float(min(case.rate, 1 / share)), verdict, 0, 0)


def _asked(design: Design, case: Traffic) -> Flows:
    chip, order = _chip(design), _mapping(design).order
    rows, cols, broken = int(chip.mesh.rows), int(chip.mesh.cols), faults(chip)
    ways = detours(rows, cols, broken, order, vcs=int(chip.router.vcs)) if broken else None
    return flows(case, rows, cols, order, broken, ways)


def _limits(design: Design, case: Traffic) -> list[Limit]:
    mesh = _chip(design).mesh
    nodes = mesh.rows * mesh.cols * 1.0
    square = case.pattern == "transpose"
    spots = max(case.spots, default=-1) + 1.0 if case.spots else float(case.middle)
    return [
        Limit("workload.traffic", spots, nodes, "1"),
        Limit("chip.mesh.rows", mesh.cols * 1.0 if square else 2.0 if case.middle == 4 else 1.0, mesh.rows * 1.0, "1"),
        Limit("chip.mesh.cols", mesh.rows * 1.0 if square else 2.0 if case.middle == 4 else 1.0, mesh.cols * 1.0, "1"),
    ]


def _picked(design: Design, row: int) -> Design:
    arrays = {address: float(value[row]) for address, value, _ in leaves(design) if isinstance(value, np.ndarray)}
    return replaced(design, arrays) if arrays else design


def _chip(design: Design) -> Chip:
    return design.chip


def _mapping(design: Design) -> TrafficPlan:
    plan: TrafficPlan = design.mapping.kernel
    return plan
