"""Designs of dies on collectives between them by themselves: metrics, limits and the breakdown of a workload.

As many dies as the decode plan has take part. An allreduce is that of the plan; all else is the library's of the stack.
"""

from typing import Any, cast

from dse.evaluators.account.breakdown import Breakdown, Row
from dse.evaluators.account.devices import port_limit
from dse.evaluators.account.metrics import Judged
from dse.evaluators.account.power import alone
from dse.evaluators.kernels.collective import LIBRARY
from dse.evaluators.machine.machine import of_die
from dse.evaluators.passes.call import Opener
from dse.evaluators.readers.closed_collective import by_library, collective
from dse.evaluators.silicon import area
from dse.evaluators.silicon.energy import Pooled, of_pool
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.limits import Infeasible, Limit
from dse.space.workload import EXCHANGES, Collective, Workload

FIDELITIES = ("closed",)


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits, case by case; leaves of shape (designs,), or floats."""
    cases = cast(tuple[Collective, ...], workload.cases)
    return [Judged((row,), _metrics(design, case), _limits(design, case)) for row, case in enumerate(cases)]


def explain(design: Design, case: Collective, decode_at: str, fidelity: str) -> Breakdown:
    """All of its time is the network's."""
    seconds, peers = float(_seconds(design, case)), float(design.mapping.decode.tp)
    dies, parts = f"{peers:.0f} dies", {"network": seconds}
    row = Row(
        case.pattern, case.along, "communication", dies, 0.0, 0.0, 0.0, "network", seconds, parts, peers * _sent(case, peers)
    )
    spans = {case.pattern: {case.along: [("communication", case.pattern, 0.0, seconds)]}}
    areas = {name: float(value) for name, value in area.parts(design.chip).items()}
    return Breakdown((row,), seconds, areas, spans)


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict as it is."""
    return worst


def _metrics(design: Design, case: Collective) -> dict[str, Any]:
    chip, dies, seconds = design.chip, design.mapping.decode.tp, _seconds(design, case)

    def dynamic() -> Any:
        return of_pool(Pooled(linked_bytes=2 * _sent(case, dies)), chip) * dies

    return {
        "latency": seconds,
        "die_mm2": area.die(chip),
        "system_mm2": area.total(chip) * dies,
        **alone(chip, dynamic, seconds, chips=dies),
    }


def _limits(design: Design, case: Collective) -> list[Limit]:
    parts = (("data", case.nbytes),)
    return [
        Limit("chip.hbm.capacity", case.nbytes, design.chip.hbm.capacity, "B", parts),
        port_limit(design.chip, design.mapping.decode),
    ]


def _sent(case: Collective, peers: Any) -> Any:
    """Bytes that a die sends."""
    return (2.0 if case.pattern == "allreduce" else 1.0) * case.nbytes * (1 - 1 / peers)


def _seconds(design: Design, case: Collective) -> Any:
    plan, machine = design.mapping.decode, of_die(design.chip, design.mapping)
    if case.pattern not in EXCHANGES:
        raise DesignError(f"workload.pattern: {case.pattern} is of tiles; between dies it is one of {', '.join(EXCHANGES)}")
    if case.along != "rectangle" or case.rows or case.cols or case.root != 0 or case.combine != "sum":
        raise DesignError(
            "workload.along: all dies of mapping.decode.tp take part, and sum; say workload.along=rectangle workload.root=0 "
            "workload.group=mesh workload.combine=sum"
        )
    if machine.network is None:
        raise DesignError("chip.network: missing; collectives between dies need the network of their chip")
    if case.pattern == "allreduce":
        return collective(Opener(plan.allreduce, plan.tp, case.nbytes, case.recorded), machine)
    if plan.allreduce != LIBRARY:
        raise DesignError(f"mapping.both.allreduce: {case.pattern} between dies is a library's; say library")
    return by_library(case.pattern, case.nbytes, plan.tp, machine, recorded=case.recorded)
