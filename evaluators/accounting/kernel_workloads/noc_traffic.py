"""Packet traffic on a network on chip without cores.

At fidelity=analytical, packets do not contend, and the network accepts what its busiest link or core can carry. At
fidelity=cycles, routers are simulated.
"""

from functools import lru_cache

import numpy as np

from dse.evaluators.accounting.breakdown import BreakdownRow
from dse.evaluators.accounting.kernel_workloads import (
    KernelOutcome,
    KernelWorkload,
    TimelineSpans,
    largest_item,
    sequential_bars,
)
from dse.evaluators.machine import traffic_measurement as traffic
from dse.evaluators.machine.fault_routing import fault_routes
from dse.evaluators.machine.traffic_flows import TrafficFlows, traffic_flows
from dse.evaluators.machine.traffic_measurement import SATURATED, STABLE, TrafficResult, zero_load_latency
from dse.evaluators.silicon import energy
from dse.evaluators.silicon import supply_voltage as supply
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.limits import Limit
from dse.space.noc_router import parse_faults, router_cycles
from dse.space.workload import NocTrafficCase

FIDELITIES = ("analytical", "cycles")

SIMULATED_METRICS = ("packet_latency", "packet_latency_p50", "packet_latency_p99", "hops", "accepted_throughput")
"""Metrics that are NaN if a limit is violated."""


def needs_single_designs(design: Design, fidelity: str) -> bool:
    """Whether designs are evaluated one at a time: always, at every fidelity."""
    return True


def prepare_case(design: Design, cases: tuple[NocTrafficCase, ...]) -> NocTrafficCase:
    """The only case of a group; traffic cases are evaluated one at a time."""
    (case,) = cases
    return case


def limits(design: Design, kernel: NocTrafficCase) -> list[Limit]:
    """Limits of hotspot nodes on the mesh, and of mesh sides that a pattern needs."""
    case, mesh = kernel, design.chip.mesh
    square = case.pattern == "transpose"
    least = 2.0 if case.middle == 4 else 1.0
    spots = max(case.spots, default=-1) + 1.0 if case.spots else float(case.middle)
    return [
        Limit("workload.traffic", spots, mesh.rows * mesh.cols * 1.0, "1"),
        Limit("chip.mesh.rows", mesh.cols * 1.0 if square else least, mesh.rows * 1.0, "1"),
        Limit("chip.mesh.cols", mesh.rows * 1.0 if square else least, mesh.cols * 1.0, "1"),
    ]


def kernel_outcome(design: Design, kernel: NocTrafficCase, fidelity: str) -> KernelOutcome:
    """Latency and accepted rate of packets, and power of a network with a process node."""
    if any(limit.need > limit.have for limit in limits(design, kernel)):
        return KernelOutcome(dict.fromkeys(SIMULATED_METRICS, np.nan))
    traffic = simulate_traffic(design, kernel) if fidelity == "cycles" else zero_load_traffic(design, kernel)
    metrics = dict(
        zip(SIMULATED_METRICS, (traffic.latency, traffic.p50, traffic.p99, traffic.hops, traffic.accepted), strict=True)
    )
    metrics["traffic_status"] = float(traffic.verdict)
    if parse_faults(design.chip):
        around = _pattern_flows(design, kernel)
        metrics |= {"detour_share": around.around, "detour_hops": around.extra}
    return KernelOutcome(metrics if design.chip.technology is None else metrics | _network_watts(design.chip, kernel, traffic))


def _network_watts(chip: Chip, case: NocTrafficCase, result: TrafficResult) -> dict[str, float]:
    """Power of the network under a load, and of that what falls to a packet; flits leave their routers once for each link."""
    if chip.router.flit_bytes is None:
        raise DesignError(
            "chip.router.flit_bytes: missing; a network with a process node (chip.technology) needs "
            "it: +chip.router.flit_bytes=16B"
        )
    arriving = result.accepted * float(chip.mesh.rows * chip.mesh.cols * chip.clock)
    crossed = (result.hops - 1) * float(chip.router.flit_bytes)
    taken = crossed * float(chip.technology.hop * supply.relative_energy(chip))
    power = arriving * taken + float(energy.static_power(chip))
    return {"power": power, "peak_power": power, "packet_energy": power * case.flits / arriving}


def kernel_breakdown(
    design: Design, case: NocTrafficCase, kernel: NocTrafficCase, fidelity: str
) -> tuple[list[BreakdownRow], TimelineSpans]:
    """Breakdown rows of packet latency: hops, serialisation of flits, and contention."""
    chip = design.chip
    cycle, t = 1 / float(chip.clock), router_cycles(chip.router)
    metrics = {name: float(value) for name, value in kernel_outcome(design, case, fidelity).metrics.items()}
    parts = {
        "routers": metrics["hops"] * float(t.hop - chip.router.link) * cycle,
        "links": (metrics["hops"] * float(chip.router.link) + 1 + float(chip.router.link)) * cycle,
        "flits": float(zero_load_latency(chip.router, case, 0.0) - 1 - chip.router.link) * cycle,
    }
    seconds = metrics["packet_latency"] * cycle
    parts["contention"] = max(seconds - sum(parts.values()), 0.0)
    order = design.mapping.kernel.order
    row = BreakdownRow("packet", case.pattern, case.label, order, 0.0, 0.0, 0.0, largest_item(parts), seconds, parts)
    return [row], sequential_bars([row], ["network"], case.label)


@lru_cache(maxsize=256)
def simulate_traffic(design: Design, case: NocTrafficCase) -> TrafficResult:
    """Simulate the routers cycle by cycle under the traffic of a case."""
    chip, order = design.chip, design.mapping.kernel.order
    return traffic.measure_traffic(chip.router, int(chip.mesh.rows), int(chip.mesh.cols), order, case, parse_faults(chip))


def zero_load_traffic(design: Design, case: NocTrafficCase) -> TrafficResult:
    """Latency of packets without contention, and the accepted rate of the busiest link or core."""
    router, flows = design.chip.router, _pattern_flows(design, case)
    wide = np.repeat([float(router.flit_x), float(router.flit_y)], 2)
    share = max(flows.arriving, float((flows.loads.max(axis=(1, 2)) * wide).max()))
    latencies = zero_load_latency(router, case, np.arange(1, len(flows.links) + 1.0))
    below = np.cumsum(flows.links) / flows.links.sum()
    p50, p99 = (float(latencies[np.searchsorted(below, at)]) for at in (0.5, 0.99))
    mean = float((latencies * flows.links).sum() / flows.links.sum())
    verdict = SATURATED if case.rate * share > 1 else STABLE
    return TrafficResult(mean, p50, p99, flows.hops, float(min(case.rate, 1 / share)), verdict, 0, 0)


def _pattern_flows(design: Design, case: NocTrafficCase) -> TrafficFlows:
    chip, order = design.chip, design.mapping.kernel.order
    rows, cols, broken = int(chip.mesh.rows), int(chip.mesh.cols), parse_faults(chip)
    ways = fault_routes(rows, cols, broken, order, vcs=int(chip.router.vcs)) if broken else None
    return traffic_flows(case, rows, cols, order, broken, ways)


WORKLOAD = KernelWorkload(
    fidelities=FIDELITIES,
    stacked=False,
    whole=False,
    prepare_case=prepare_case,
    limits=limits,
    kernel_outcome=kernel_outcome,
    kernel_breakdown=kernel_breakdown,
    needs_single_designs=needs_single_designs,
)
