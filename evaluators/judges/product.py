"""Designs of meshes on products of matrices by themselves: metrics, limits and the breakdown of a workload.

Operands are in the memories of the cores, which are those of a wafer, or tiles with engines of their own.
"""

from dataclasses import replace
from typing import Any, cast

import numpy as np

from dse.evaluators.account.breakdown import Breakdown, Row, beyond
from dse.evaluators.account.metrics import Judged
from dse.evaluators.account.power import alone
from dse.evaluators.account.regions import chunk_limit, laid, smaller_mesh
from dse.evaluators.choices.per_design import one_by_one
from dse.evaluators.kernels.gemm import GEMM, gemm
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.kernels.gemv import GEMV
from dse.evaluators.kernels.registry import module_of
from dse.evaluators.layouts import regions
from dse.evaluators.machine.broken import broken_of
from dse.evaluators.machine.machine import Machine, of_mesh, of_tiles
from dse.evaluators.passes.call import Kernel
from dse.evaluators.readers import READERS, closed
from dse.evaluators.readers.attribution import spent
from dse.evaluators.silicon import area
from dse.evaluators.silicon.energy import dynamic
from dse.space.design import Design
from dse.space.elementwise import column, maximum, minimum
from dse.space.errors import DesignError, chosen
from dse.space.fields import replaced
from dse.space.limits import Infeasible, Limit
from dse.space.mapping import ProductPlan
from dse.space.workload import Product, Workload

__all__ = ["FIDELITIES", "bounds", "explain", "judged", "least", "remedied"]

FIDELITIES = tuple(READERS)

ON_TILES = ("cannon", "ladder", "meshgemm", "meshgemm_v", "summa", "t10")
"""Algorithms whose closed form holds on tiles, whose DMA engines send beside products: within 10 % of events."""

ON_LOCKED = ("summa", "t10")
"""Those of them whose messages do not meet on a line, which circuits hold both ways."""

COMMUNICATION = ("hop", "ramp", "stage", "word", "copy", "post")
"""Times of a fabric that only messages take."""


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits of all products; leaves of shape (cases, designs), or floats for one of each."""
    products = cast(tuple[Product, ...], workload.cases)
    kernel = _kernel(design, products)
    _refuse_closed(design, kernel, fidelity)
    rows = tuple(range(len(products)))
    if design.chip.tile is not None and fidelity != "closed":  # engines are played design by design
        metrics = one_by_one(design, products, lambda one, case: _metrics(one, (case,), _kernel(one, (case,)), fidelity))
    else:
        metrics = _metrics(design, products, kernel, fidelity)
    return [Judged(rows, metrics, _limits(design, kernel))]


def bounds(design: Design, workload: Workload) -> list[Limit]:
    """Limits alone, of all products."""
    return _limits(design, _kernel(design, cast(tuple[Product, ...], workload.cases)))


def explain(design: Design, case: Product, decode_at: str, fidelity: str) -> Breakdown:
    """Where the time of a product goes: into local products, and into communication that is not behind them."""
    chip, kernel, on = design.chip, _kernel(design, (case,)), _machine(design)
    _refuse_closed(design, kernel, fidelity)
    cost = READERS[fidelity].kernel(kernel, on)
    parts = {name: float(value) for name, value in spent(kernel, on, fidelity).items()}
    multiplying = float(_multiplying(kernel, on))
    starts = multiplying - parts["products"]
    inside = {"products": parts.pop("products"), "starts": starts}
    parts["starts"] -= starts
    shape = f"{case.m} x {case.k} x {case.n} on {int(kernel.mesh.rows)} x {int(kernel.mesh.cols)} cores"
    flop, sent = 2.0 * case.m * case.k * case.n, float(cost.activity.sent_bytes)
    excess = beyond(2.0 * float(cost.activity.macs), flop)
    seconds = sum(parts.values())
    rows = (
        Row(
            case.kind,
            kernel.algorithm,
            "local products",
            shape,
            flop,
            0.0,
            0.0,
            _largest(inside),
            multiplying,
            inside,
            0.0,
            excess,
        ),
        Row(case.kind, kernel.algorithm, "communication", "", 0.0, 0.0, 0.0, _largest(parts), seconds, parts, sent, {}),
    )
    places = np.cumsum([0.0, *(row.seconds for row in rows)])
    streams = zip(("compute", "communication"), rows, places[:-1], places[1:], strict=True)
    bars = [(stream, row.operator, float(start), float(end)) for stream, row, start, end in streams]
    blocks = {name: float(value) for name, value in area.parts(chip).items()}
    return Breakdown(rows, sum(row.seconds for row in rows), blocks, {case.kind: {kernel.algorithm: bars}})


def least(mapping: ProductPlan, kind: str) -> Any:
    """Cores of a line that the algorithm of a product needs."""
    if kind == "gemm":
        return gemm(mapping.gemm).LEAST
    return mapping.ktree_k if mapping.gemv == "ktree" else 1


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict with what would do."""
    products = cast(tuple[Product, ...], workload.cases)

    def limits(changes: dict[str, Any]) -> list[Limit]:
        trial = replaced(design, changes)
        return _limits(trial, _kernel(trial, products))

    what = "the " + products[0].kind.upper()
    return replace(worst, remedy=smaller_mesh(what, limits, "mapping", _mapping(design), design.chip))


def _refuse_closed(design: Design, kernel: Kernel, fidelity: str) -> None:
    """Refuses algorithms on tiles whose closed form does not hold there.

    Raises:
        DesignError: one of them under ``closed``; readers that play programs have all.
    """
    if design.chip.tile is None or fidelity != "closed":
        return
    locked = design.chip.noc.routing == "locked"
    known = ON_LOCKED if locked else ON_TILES
    if kernel.algorithm not in known:
        where = "tiles whose routes are locked" if locked else "tiles"
        raise DesignError(
            f"mapping.gemm: the closed form of {kernel.algorithm} does not hold on {where}; say fidelity=events, or one of "
            + ", ".join(known)
        )


def _metrics(design: Design, products: tuple[Product, ...], kernel: Kernel, fidelity: str) -> dict[str, Any]:
    chip, on = design.chip, _machine(design)
    assert on.fabric is not None
    cost = READERS[fidelity].kernel(kernel, on)
    seconds, multiplying = cost.seconds, _multiplying(kernel, on)
    cores = kernel.mesh.rows * kernel.mesh.cols * 1.0
    rated = {} if chip.power is None else {"power_energy": chip.power * seconds}
    return rated | {
        **alone(chip, lambda: dynamic(cost.activity, chip), seconds),
        "latency": seconds,
        "cycles": seconds * chip.clock,
        "communication": (seconds - multiplying) * chip.clock,
        "efficiency": multiplying / seconds,
        "utilisation": kernel.shape.m * kernel.shape.k * kernel.shape.n * on.fabric.mac / (cores * seconds),
        "cores": cores,
        "die_mm2": area.die(chip),
        "system_mm2": area.total(chip),
        "sram_used": _held(kernel)[0],
    }


def _machine(design: Design) -> Machine:
    return of_mesh(design.chip) if design.chip.tile is None else of_tiles(design.chip)


def _multiplying(kernel: Kernel, on: Machine) -> Any:
    """Time of the local products of a core, where their data are there; it is the same whoever plays them."""
    assert on.fabric is not None
    starts = gemm(kernel.algorithm).products(kernel.mesh) if kernel.kind == "gemm" else 1
    free = on.fabric._replace(**dict.fromkeys((*COMMUNICATION, "launch"), 0.0))
    return closed.kernel(kernel, on._replace(fabric=free)).seconds + starts * on.fabric.launch


def _kernel(design: Design, products: tuple[Product, ...]) -> Kernel:
    mapping, kind = _mapping(design), products[0].kind

    shape = Shape(*(column([float(getattr(product, size)) for product in products]) for size in ("m", "k", "n")))
    options = {} if kind == "gemm" else {"broadcast": mapping.sums == "all", "phases": mapping.ktree_k}
    algorithm = mapping.gemm if kind == "gemm" else mapping.gemv
    chosen(GEMM if kind == "gemm" else GEMV, algorithm, f"mapping.{kind}")
    mesh = laid(regions.square(mapping))
    if kind == "gemv" and design.chip.tile is not None:
        raise DesignError("workload.kernel: mapping=product has no vector-matrix products (gemv) on tiles; use mapping=summa")
    broken = broken_of(design.chip, mesh.rows, mesh.cols)
    return Kernel(kind, kind, kind, algorithm, shape, mesh, options, faults=broken)


def _held(kernel: Kernel) -> tuple[Any, tuple[tuple[str, Any], ...]]:
    """Bytes of one core, and of each of its tiles."""
    of = module_of(kernel.kind, kernel.algorithm)
    parts = tuple((f"tile {slot.name}", slot.nbytes * 1.0) for slot in of.slots(kernel.shape, kernel.mesh, "float16"))
    return sum((value for _, value in parts), 0.0), parts


def _limits(design: Design, kernel: Kernel) -> list[Limit]:
    chip, mapping, of = design.chip, _mapping(design), module_of(kernel.kind, kernel.algorithm)
    mesh: Mesh = regions.square(mapping)
    total, parts = _held(kernel)
    if kernel.kind == "gemm":
        paths, chunks = of.at_once(mesh), of.products(mesh)
    else:
        paths, chunks = of.at_once(mesh, mapping.ktree_k), 1
    if chip.tile is None:
        local = Limit("chip.core.sram", total, chip.core.sram, "B", parts)
    else:
        local = Limit("chip.tile.sram", total, chip.tile.sram, "B", parts)
    # tiles' routers have routes of their own, no paths that are set up
    routes = [] if chip.tile is not None else [Limit("chip.noc.paths", paths, chip.noc.paths, "1")]
    return [
        local,
        Limit("chip.mesh.rows", mesh.rows, chip.mesh.rows, "1"),
        Limit("chip.mesh.cols", mesh.cols, chip.mesh.cols, "1"),
        Limit("mapping.rows", least(mapping, kernel.kind), minimum(mesh.rows, mesh.cols), "1"),
        *routes,
        chunk_limit("mapping.cols", maximum(chunks * 1.0, 1.0)),
    ]


def _largest(parts: dict[str, float]) -> str:
    return max(parts, key=lambda name: parts[name])


def _mapping(design: Design) -> ProductPlan:
    plan: ProductPlan = design.mapping.kernel
    return plan
