"""Networks on packets by themselves: metrics, limits and the breakdown of a workload.

Under ``closed`` packets meet nobody, and a network accepts what its busiest link, or its busiest core, can carry. Under
``cycles`` routers are played.
"""

from functools import lru_cache
from typing import Any, cast

import numpy as np

from evaluators.breakdown import Breakdown, Row
from evaluators.machine import traffic
from evaluators.machine.detour import detours
from evaluators.machine.traffic import SATURATED, STABLE, Measured
from evaluators.metrics import Judged
from space.design import Design
from space.elementwise import Array, ceil_div, minimum, where
from space.fields import leaves, replaced
from space.limits import Infeasible, Limit
from space.mapping import TrafficMapping
from space.network import Faults, NetworkChip, faults, stages
from space.workload import Asked, Traffic, Workload

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
        "flits": float(_tail(design, case)) * cycle,
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
    values = {name: np.array([[one[name] for one in found]]) for name in found[0]}
    return values if wide > 1 else {name: float(value[0, 0]) for name, value in values.items()}


def _one(design: Design, case: Traffic, fidelity: str) -> dict[str, float]:
    if any(limit.need > limit.have for limit in _limits(design, case)):
        return dict.fromkeys(("packet_latency", "packet_latency_p50", "packet_latency_p99", "hops", "accepted"), np.nan)
    measured = _played(design, case) if fidelity == "cycles" else _free(design, case)
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
    chip, t = _chip(design), stages(_chip(design).router)
    rows, cols = int(chip.mesh.rows), int(chip.mesh.cols)
    broken, wide = faults(chip), (float(chip.router.flit_x), float(chip.router.flit_y))
    order = _mapping(design).order
    share, hops = _detours(case, rows, cols, broken, wide) if broken else _flows(case, rows, cols, order, wide)
    ways, counts = np.unique(hops, return_counts=True)
    latencies = ways * float(t.hop) + 1 + float(chip.router.link) + _tail(design, case)
    below = np.cumsum(counts) / counts.sum()
    p50, p99 = (float(latencies[np.searchsorted(below, at)]) for at in (0.5, 0.99))
    mean = float((latencies * counts).sum() / counts.sum())
    verdict = SATURATED if case.rate * share > 1 else STABLE
    return Measured(mean, p50, p99, float(hops.mean()), float(min(case.rate, 1 / share)), verdict, 0, 0)


def _tail(design: Design, case: Traffic) -> Any:
    """Cycles from a packet's first flit to its last: a link that is narrow paces it, or credits that come too late."""
    router = _chip(design).router
    turn = stages(router).after + stages(router).back
    narrow = np.maximum(router.flit_x, router.flit_y)
    bursts = ceil_div(case.flits, router.depth) - 1
    return minimum(where(router.depth < turn, bursts * (turn - router.depth), 0.0), 1e9) + (case.flits - 1) * narrow


def _flows(case: Traffic, rows: int, cols: int, order: str, wide: tuple[float, float]) -> tuple[float, Array]:
    """Flits that cross the busiest link or core for each that a node makes, weighed by their time; routers of each way."""
    nodes = rows * cols
    found = traffic.targets(case, rows, cols)
    to = found if found.shape[1] else np.tile(np.arange(nodes), (nodes, 1))
    weight = 1 / to.shape[1]
    (r0, c0), (r1, c1) = np.divmod(np.arange(nodes)[:, None] + 0 * to, cols), np.divmod(to, cols)
    along, down = (r0, c1) if order == "xy" else (r1, c0)
    loads = [np.bincount(to.ravel(), minlength=nodes).max() * weight]
    for line, a, b, length, width in ((along, c0, c1, cols, wide[0]), (down, r0, r1, rows, wide[1])):
        change = np.zeros((2, max(rows, cols), length + 1))
        low, high, way = np.minimum(a, b), np.maximum(a, b), (b < a).astype(int)
        np.add.at(change, (way, line, low), weight)
        np.add.at(change, (way, line, high), -weight)
        loads.append(np.cumsum(change, axis=2).max() * width)
    return float(max(loads)), (np.abs(r0 - r1) + np.abs(c0 - c1) + 1).ravel()


def _detours(case: Traffic, rows: int, cols: int, broken: Faults, wide: tuple[float, float]) -> tuple[float, Array]:
    """The same round what is broken, link by link."""
    nodes, ports = rows * cols, detours(rows, cols, broken).table
    to, sends = traffic.healthy(traffic.targets(case, rows, cols), nodes, broken)
    to = to if to.shape[1] else np.tile(np.arange(nodes), (nodes, 1))
    at, target, weight = np.repeat(np.flatnonzero(sends), to.shape[1]), to[sends].ravel(), 1 / to.shape[1]
    loads, hops = np.zeros((nodes, 4)), np.ones(len(at), int)
    arrived = np.bincount(target, minlength=nodes).max() * weight
    while (going := at != target).any():
        port = ports[at[going], target[going]]
        np.add.at(loads, (at[going], port), weight)
        at[going] += np.array([1, -1, cols, -cols])[port]
        hops += going
    return float(max(arrived, loads[:, :2].max() * wide[0], loads[:, 2:].max() * wide[1])), hops


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


def _chip(design: Design) -> NetworkChip:
    return cast(NetworkChip, design.chip)


def _mapping(design: Design) -> TrafficMapping:
    return cast(TrafficMapping, design.mapping)
