"""Designs of dies on products of matrices by themselves: metrics, limits and the breakdown of a workload.

The inner dimension is divided between the devices of the decode plan, and an allreduce sums what they have.
"""

from typing import Any, cast

import numpy as np

from dse.evaluators.account.breakdown import Breakdown, bars, rows
from dse.evaluators.account.devices import done_in, port_limit
from dse.evaluators.account.metrics import Judged, rated
from dse.evaluators.account.power import alone
from dse.evaluators.graph.operators import Dim, MatMul, Part
from dse.evaluators.layouts.devices import call
from dse.evaluators.machine.machine import of_die
from dse.evaluators.machine.pooled import pooled
from dse.evaluators.passes.call import Block, Call, Opener
from dse.evaluators.readers.closed import READER
from dse.evaluators.readers.price import Timed, timed
from dse.evaluators.silicon import area
from dse.evaluators.silicon.energy import of_pool
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.limits import Infeasible, Limit
from dse.space.mapping import BYTES, Mapping
from dse.space.workload import Product, Workload

FIDELITIES = ("closed",)


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits, product by product; leaves of shape (designs,), or floats."""
    products = cast(tuple[Product, ...], workload.cases)
    return [Judged((row,), _metrics(design, product), _limits(design, product)) for row, product in enumerate(products)]


def explain(design: Design, case: Product, decode_at: str, fidelity: str) -> Breakdown:
    """Where the time of a product goes: into the share of one device, and into the allreduce."""
    chip, mapping = _parts(design)
    found = _timed(design, case)
    of_rows = tuple(rows(case.kind, 1.0, found, of_die(chip, mapping), dies=mapping.decode.tp))
    areas = {name: float(value) for name, value in area.parts(chip).items()}
    spans = {case.kind: {of.block.name: bars(of) for of in found}}
    return Breakdown(of_rows, sum(row.seconds for row in of_rows), areas, spans)


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict as it is."""
    return worst


def _metrics(design: Design, product: Product) -> dict[str, Any]:
    chip, mapping = _parts(design)
    multiplying, sums = (of.seconds for of in _timed(design, product))
    seconds, dies, die = multiplying + sums, mapping.decode.tp, area.die(chip)
    ideal = 2.0 * product.m * product.k * product.n * _matrix(design, product) * mapping.stack.matrix_achieved
    values = {
        "latency": seconds,
        "efficiency": multiplying / seconds,
        "utilisation": ideal / (dies * seconds),
        "die_mm2": die,
        "system_mm2": area.total(chip) * dies,
        "hbm_used": _limits(design, product)[0].need,
    }
    power = rated(chip.power)
    if not np.all(np.isnan(power)):
        values["power_energy"] = power * dies * seconds

    def dynamic() -> Any:
        blocks = tuple(of.block for of in _timed(design, product))
        return of_pool(done_in(blocks, 0.0, pooled(chip, mapping)[1]), chip) * dies

    return values | alone(chip, dynamic, seconds, chips=dies)


def _limits(design: Design, product: Product) -> list[Limit]:
    chip, mapping = _parts(design)
    share = _call(design, product)
    parts = (("weights", share.fetch), ("activations", share.local))
    held = share.fetch + share.local
    return [Limit("chip.hbm.capacity", held, chip.hbm.capacity, "B", parts), port_limit(chip, mapping.decode)]


def _timed(design: Design, product: Product) -> list[Timed]:
    """What one device multiplies, and the allreduce after it, which the host starts."""
    chip, mapping = _parts(design)
    nbytes = float(product.m * product.n * BYTES[mapping.precision.activations])
    sums = Opener(mapping.decode.allreduce, mapping.decode.tp, nbytes, False)
    blocks = (
        Block("product", (_call(design, product),), (0,), (0,), 1.0),
        Block("sums", (), (), (), 1.0, sums),
    )
    return timed(blocks, of_die(chip, mapping), READER)


def _call(design: Design, product: Product) -> Call:
    chip, mapping = _parts(design)
    one = MatMul(product.kind, (), float(product.m), Dim(product.k, split=True), Dim(product.n))
    return call(Part("product", float(product.m), (one,), 1), one, mapping.decode.tp, mapping.precision, chip.core.rates)


def _matrix(design: Design, product: Product) -> Any:
    """Seconds of an operation of the matrix engines."""
    return pooled(*_parts(design))[0].matrix * _call(design, product).pace


def _parts(design: Design) -> tuple[Chip, Mapping]:
    return design.chip, design.mapping
