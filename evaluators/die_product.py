"""Designs of dies on products of matrices by themselves: metrics, limits and the breakdown of a workload.

The inner dimension is divided between the devices of the decode plan, and an allreduce sums what they have.
"""

from typing import Any, cast

import numpy as np

from evaluators import breakdown
from evaluators.closed import SegmentTimes, rates, timeline
from evaluators.die import port_limit
from evaluators.graph.operators import Dim, MatMul, Segment, Work
from evaluators.graph.shard import work
from evaluators.metrics import Judged
from evaluators.silicon import area
from space.chip import Chip
from space.design import Design
from space.fields import replaced
from space.limits import Infeasible, Limit
from space.mapping import BYTES, Mapping
from space.workload import Product, Workload

FIDELITIES = ("closed",)


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits, product by product; leaves of shape (designs,), or floats."""
    products = cast(tuple[Product, ...], workload.cases)
    return [Judged((row,), _metrics(design, product), _limits(design, product)) for row, product in enumerate(products)]


def explain(design: Design, case: Product, decode_at: str, fidelity: str) -> breakdown.Breakdown:
    """Where the time of a product goes: into the share of one device, and into the allreduce."""
    chip, mapping = _parts(design)
    phases = {case.kind: (1.0, _timed(design, case))}
    return breakdown.breakdown(rates(chip, mapping.precision), phases, area.parts(chip))


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict as it is."""
    return worst


def _metrics(design: Design, product: Product) -> dict[str, Any]:
    chip, mapping = _parts(design)
    multiplying, sums = (segment.seconds for segment in _timed(design, product))
    seconds, dies, die = multiplying + sums, mapping.decode.tp, area.die(chip)
    ideal = 2.0 * product.m * product.k * product.n * rates(chip, mapping.precision).matrix * chip.core.achieved
    values = {
        "latency": seconds,
        "efficiency": multiplying / seconds,
        "utilisation": ideal / (dies * seconds),
        "die_mm2": die,
        "system_mm2": die * dies,
        "hbm_used": _limits(design, product)[0].need,
    }
    if not np.any(chip.power == 0):
        values |= dict.fromkeys(("energy", "power_energy"), chip.power * dies * seconds)
    return values


def _limits(design: Design, product: Product) -> list[Limit]:
    chip, mapping = _parts(design)
    share = _work(design, product)
    parts = (("weights", share.weight_bytes), ("activations", share.activation_bytes))
    held = share.weight_bytes + share.activation_bytes
    return [Limit("chip.hbm.capacity", held, chip.hbm.capacity, "B", parts), port_limit(chip, mapping.decode)]


def _timed(design: Design, product: Product) -> list[SegmentTimes]:
    """What one device multiplies, and the allreduce after it, which the host starts."""
    chip, mapping = _parts(design)
    precision = mapping.precision
    multiply = Segment("product", None, (_work(design, product),), (0,), 1)
    sums = Segment("sums", float(product.m * product.n * BYTES[precision.activations]), (), (), 1)
    plan = replaced(mapping.decode, {"prefetch": "none"})
    return timeline((multiply, sums), chip, plan, rates(chip, precision), recorded=False)


def _work(design: Design, product: Product) -> Work:
    _, mapping = _parts(design)
    one = MatMul(product.kind, (), float(product.m), Dim(product.k, split=True), Dim(product.n))
    return work(one, mapping.decode.tp, mapping.precision)


def _parts(design: Design) -> tuple[Chip, Mapping]:
    return cast(Chip, design.chip), cast(Mapping, design.mapping)
