"""Dies on products of matrices by themselves: the inner dimension divided between devices, their sums by an allreduce.

Devices and allreduce are those of the plan for decode.
"""

from typing import Any, cast

import numpy as np

from evaluators import breakdown
from evaluators.closed import SegmentTimes, rates, timeline
from evaluators.graph.operators import Dim, MatMul, Segment
from evaluators.graph.shard import work
from evaluators.kernels.collective import allreduce
from evaluators.machine.link import inside
from evaluators.metrics import Judged
from evaluators.silicon import area
from space.chip import Chip
from space.design import Design
from space.elementwise import ceil_div
from space.fields import replaced
from space.limits import Infeasible, Limit
from space.mapping import BYTES, Mapping
from space.workload import Product, Workload


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits of all products; leaves of shape (cases, designs), or floats for one of each."""
    return [
        Judged((row,), _metrics(design, product), _limits(design, product))
        for row, product in enumerate(cast(tuple[Product, ...], workload.cases))
    ]


def explain(design: Design, case: Product, decode_at: str, fidelity: str) -> breakdown.Breakdown:
    """Where the time of a product goes: the product, and the allreduce of its sums."""
    rate = rates(_chip(design), _mapping(design).precision)
    return breakdown.breakdown(rate, {case.kind: (1.0, _timed(design, case))}, area.parts(_chip(design)))


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict as it is."""
    return worst


def _metrics(design: Design, product: Product) -> dict[str, Any]:
    chip, devices = _chip(design), _mapping(design).decode.tp
    seconds = sum((segment.seconds for segment in _timed(design, product)), 0.0)
    die = area.die(chip)
    values = {"latency": seconds, "die_mm2": die, "system_mm2": die * devices}
    if not np.any(chip.power == 0):
        values["energy"] = values["power_energy"] = chip.power * devices * seconds
    return {name: _row(value) for name, value in values.items()}


def _row(value: Any) -> Any:
    return value[None, :] if isinstance(value, np.ndarray) else value


def _timed(design: Design, product: Product) -> list[SegmentTimes]:
    precision, plan = _mapping(design).precision, replaced(_mapping(design).decode, {"prefetch": "none"})
    one = MatMul(product.kind, (), float(product.m), Dim(product.k, split=True), Dim(product.n))
    local = Segment("product", None, (work(one, plan.tp, precision),), (0,), 1)
    sums = Segment("sums", float(product.m * product.n * BYTES[precision.activations]), (), (), 1)
    return timeline((local, sums), _chip(design), plan, rates(_chip(design), precision), recorded=False)


def _limits(design: Design, product: Product) -> list[Limit]:
    chip, mapping = _chip(design), _mapping(design)
    tp, precision = mapping.decode.tp, mapping.precision
    weights = ceil_div(product.k, tp) * product.n * BYTES[precision.weights] * 1.0
    ends = (product.m * (product.k + product.n)) * BYTES[precision.activations] * 1.0
    parts = (("weights", weights), ("activations", ends))
    ports = allreduce(mapping.decode.allreduce).ports(inside(tp, chip.network))
    return [
        Limit("chip.hbm.capacity", weights + ends, chip.hbm.capacity, "B", parts),
        Limit("chip.network.ports", ports, chip.network.ports, "1"),
    ]


def _chip(design: Design) -> Chip:
    return cast(Chip, design.chip)


def _mapping(design: Design) -> Mapping:
    return cast(Mapping, design.mapping)
