"""Designs of dies on experts of one layer, or an operator on elements, by themselves: metrics, limits and the breakdown.

The columns of experts, or of elements, are divided between the devices of the decode plan; what they then exchange is left out.
"""

from typing import Any, cast

import numpy as np

from dse.evaluators.account.breakdown import Breakdown, bars, rows
from dse.evaluators.account.devices import done_in
from dse.evaluators.account.metrics import Judged, rated
from dse.evaluators.account.power import alone
from dse.evaluators.graph.apportioned import share
from dse.evaluators.graph.operators import Dim, Elementwise, MatMul, Operator, Part
from dse.evaluators.graph.words import GATE, NORM, ROPE
from dse.evaluators.layouts.devices import call
from dse.evaluators.machine.machine import of_die
from dse.evaluators.machine.pooled import pooled
from dse.evaluators.passes.call import Block, alike, breadth_first
from dse.evaluators.readers.closed import READER
from dse.evaluators.readers.price import Timed, timed
from dse.evaluators.silicon import area
from dse.evaluators.silicon.energy import of_pool
from dse.space.design import Design
from dse.space.limits import Infeasible, Limit
from dse.space.workload import Mixture, Operation, Workload

FIDELITIES = ("closed",)

NAMES = {
    "norm": "norm",
    "gate": "activation",
    "rotate": "rope",
    "copy": "copy",
    "gather": "embedding",
    "softmax": "softmax",
}
"""Operators on elements by what is asked: their names in a graph, which say the sort of a library's pass."""

COUNTS = {"norm": NORM, "gate": GATE, "rotate": ROPE, "copy": (0, 2), "gather": (0, 2), "softmax": (4, 2)}
"""Their operations an element, and reads plus writes of it."""


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits, case by case; leaves of shape (designs,), or floats."""
    cases = cast(tuple[Mixture | Operation, ...], workload.cases)
    return [Judged((row,), _metrics(design, case), _limits(design, case)) for row, case in enumerate(cases)]


def explain(design: Design, case: Mixture | Operation, decode_at: str, fidelity: str) -> Breakdown:
    """Where the time of one device goes."""
    found = _timed(design, case)
    of_rows = tuple(rows(case.subject, 1.0, [found], of_die(design.chip, design.mapping), dies=design.mapping.decode.tp))
    areas = {name: float(value) for name, value in area.parts(design.chip).items()}
    spans = {case.subject: {found.block.name: bars(found)}}
    return Breakdown(of_rows, sum(row.seconds for row in of_rows), areas, spans)


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict as it is."""
    return worst


def _metrics(design: Design, case: Mixture | Operation) -> dict[str, Any]:
    chip, mapping = design.chip, design.mapping
    of = _timed(design, case)
    seconds, dies, die = of.seconds, mapping.decode.tp, area.die(chip)
    peak = pooled(chip, mapping)[0].matrix * mapping.stack.matrix_achieved
    ideal = sum((one.flop * one.pace for one in of.block.calls), 0.0) * peak
    values = {
        "latency": seconds,
        "utilisation": ideal / (dies * seconds),
        "die_mm2": die,
        "system_mm2": area.total(chip) * dies,
        "hbm_used": _limits(design, case)[0].need,
    }
    power = rated(chip.power)
    if not np.all(np.isnan(power)):
        values["power_energy"] = power * dies * seconds

    def dynamic() -> Any:
        return of_pool(done_in((of.block,), 0.0, pooled(chip, mapping)[1]), chip) * dies

    return values | alone(chip, dynamic, seconds, chips=dies)


def _limits(design: Design, case: Mixture | Operation) -> list[Limit]:
    calls = _timed(design, case).block.calls
    stored = 1.0 if isinstance(case, Operation) else case.experts / case.ep / _read(case)[1]
    parts = (
        ("weights", sum((of.fetch * stored for of in calls), 0.0)),
        ("activations", sum((of.local for of in calls), 0.0)),
    )
    return [Limit("chip.hbm.capacity", parts[0][1] + parts[1][1], design.chip.hbm.capacity, "B", parts)]


def _timed(design: Design, case: Mixture | Operation) -> Timed:
    """What one device does."""
    chip, mapping = design.chip, design.mapping
    part = _experts(case) if isinstance(case, Mixture) else _elements(case)
    calls = tuple(call(part, of, mapping.decode.tp, mapping.precision, chip.core.rates) for of in part.operators)
    block = Block(case.subject, calls, alike(calls), breadth_first(calls), 1.0)
    return timed([block], of_die(chip, mapping), READER)[0]


def _read(case: Mixture) -> tuple[float, float]:
    """Rows, and experts that have any, of the device that has most rows."""
    of = case
    return share(of.tokens, of.experts, of.top_k, of.ep, of.distribution, of.exponent, of.seed)


def _experts(case: Mixture) -> Part:
    """Two products into experts, what is between them, and one out of them."""
    m, touched = _read(case)
    inner, outer = Dim(case.intermediate, split=True), Dim(case.hidden)
    operators: tuple[Operator, ...] = (
        MatMul("experts_gate", (), m, outer, inner, touched),
        MatMul("experts_up", (), m, outer, inner, touched),
        Elementwise("experts_activation", ("experts_gate", "experts_up"), m, inner, *GATE),
        MatMul("experts_down", ("experts_activation",), m, inner, outer, touched),
    )
    return Part("experts", m, operators, 1)


def _elements(case: Operation) -> Part:
    of = Elementwise(NAMES[case.sort], (), float(case.rows), Dim(case.columns, split=True), *COUNTS[case.sort])
    return Part("elements", float(case.rows), (of,), 1)
