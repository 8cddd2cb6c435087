"""Designs of meshes of cores on products of matrices by themselves: metrics, limits and the breakdown of a workload."""

from dataclasses import replace
from typing import Any, cast

import numpy as np

from dse.evaluators.account.breakdown import Breakdown, Row
from dse.evaluators.account.metrics import Judged
from dse.evaluators.account.regions import chunk_limit, laid, smaller_mesh
from dse.evaluators.kernels.gemm import GEMM, gemm
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.kernels.gemv import GEMV
from dse.evaluators.kernels.registry import module_of
from dse.evaluators.layouts import regions
from dse.evaluators.machine.broken import broken_of
from dse.evaluators.machine.fabric import Fabric, mesh_fabric
from dse.evaluators.passes.call import Kernel
from dse.evaluators.readers import READERS, closed
from dse.evaluators.readers.attribution import spent
from dse.evaluators.silicon import area
from dse.evaluators.silicon.energy import mesh_energy
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.elementwise import column, maximum, minimum
from dse.space.errors import chosen
from dse.space.fields import replaced
from dse.space.limits import Infeasible, Limit
from dse.space.mapping import ProductPlan
from dse.space.workload import Product, Workload

__all__ = ["FIDELITIES", "explain", "judged", "least", "remedied"]

FIDELITIES = tuple(READERS)

COMMUNICATION = ("hop", "ramp", "stage", "word", "copy", "post")
"""Times of a fabric that only messages take."""


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits of all products; leaves of shape (cases, designs), or floats for one of each."""
    products = cast(tuple[Product, ...], workload.cases)
    kernel = _kernel(design, products)
    rows = tuple(range(len(products)))
    return [Judged(rows, _metrics(design, products, kernel, fidelity), _limits(design, kernel))]


def explain(design: Design, case: Product, decode_at: str, fidelity: str) -> Breakdown:
    """Where the time of a product goes: into local products, and into communication that is not behind them."""
    chip, kernel = _chip(design), _kernel(design, (case,))
    on, priced = mesh_fabric(chip), READERS[fidelity].kernel
    cost, parts = priced(kernel, on), {name: float(value) for name, value in spent(kernel, on, fidelity).items()}
    multiplying = float(_multiplying(kernel, on))
    starts = multiplying - parts["products"]
    inside = {"products": parts.pop("products"), "starts": starts}
    parts["starts"] -= starts
    shape = f"{case.m} x {case.k} x {case.n} on {int(kernel.mesh.rows)} x {int(kernel.mesh.cols)} cores"
    flop, nbytes = 2.0 * float(cost.activity.macs), float(cost.activity.sent_bytes)
    seconds = sum(parts.values())
    rows = (
        Row(case.kind, kernel.algorithm, "local products", shape, flop, 0.0, 0.0, _largest(inside), multiplying, inside),
        Row(case.kind, kernel.algorithm, "communication", "", 0.0, nbytes, 0.0, _largest(parts), seconds, parts),
    )
    places = np.cumsum([0.0, *(row.seconds for row in rows)])
    streams = zip(("compute", "communication"), rows, places[:-1], places[1:], strict=True)
    bars = [(stream, row.operator, float(start), float(end)) for stream, row, start, end in streams]
    blocks = {name: float(value) for name, value in area.mesh_parts(chip).items()}
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
    return replace(worst, remedy=smaller_mesh(what, limits, "mapping", _mapping(design), _chip(design)))


def _metrics(design: Design, products: tuple[Product, ...], kernel: Kernel, fidelity: str) -> dict[str, Any]:
    chip = _chip(design)
    on = mesh_fabric(chip)
    cost = READERS[fidelity].kernel(kernel, on)
    seconds, multiplying = cost.seconds, _multiplying(kernel, on)
    cores = kernel.mesh.rows * kernel.mesh.cols * 1.0
    return {
        "latency": seconds,
        "cycles": seconds * chip.clock,
        "communication": (seconds - multiplying) * chip.clock,
        "efficiency": multiplying / seconds,
        "utilisation": kernel.shape.m * kernel.shape.k * kernel.shape.n * on.mac / (cores * seconds),
        "cores": cores,
        "die_mm2": area.mesh_die(chip),
        "system_mm2": area.mesh_die(chip),
        "sram_used": _held(kernel)[0],
        "energy": mesh_energy(cost.activity, chip, seconds),
        "power_energy": chip.power * seconds,
    }


def _multiplying(kernel: Kernel, on: Fabric) -> Any:
    """Time of the local products of a core, where their data are there; it is the same whoever plays them."""
    starts = gemm(kernel.algorithm).products(kernel.mesh) if kernel.kind == "gemm" else 1
    free = on._replace(**dict.fromkeys((*COMMUNICATION, "launch"), 0.0))
    return closed.kernel(kernel, free).seconds + starts * on.launch


def _kernel(design: Design, products: tuple[Product, ...]) -> Kernel:
    mapping, kind = _mapping(design), products[0].kind

    shape = Shape(*(column([float(getattr(product, size)) for product in products]) for size in ("m", "k", "n")))
    options = {} if kind == "gemm" else {"broadcast": mapping.sums == "all", "phases": mapping.ktree_k}
    algorithm = mapping.gemm if kind == "gemm" else mapping.gemv
    chosen(GEMM if kind == "gemm" else GEMV, algorithm, f"mapping.{kind}")
    mesh = laid(regions.square(mapping))
    broken = broken_of(_chip(design), mesh.rows, mesh.cols)
    return Kernel(kind, kind, kind, algorithm, shape, mesh, options, faults=broken)


def _held(kernel: Kernel) -> tuple[Any, tuple[tuple[str, Any], ...]]:
    """Bytes of one core, and of each of its tiles."""
    of = module_of(kernel.kind, kernel.algorithm)
    parts = tuple((f"tile {slot.name}", slot.nbytes * 1.0) for slot in of.slots(kernel.shape, kernel.mesh, "float16"))
    return sum((value for _, value in parts), 0.0), parts


def _limits(design: Design, kernel: Kernel) -> list[Limit]:
    chip, mapping, of = _chip(design), _mapping(design), module_of(kernel.kind, kernel.algorithm)
    mesh: Mesh = regions.square(mapping)
    total, parts = _held(kernel)
    if kernel.kind == "gemm":
        paths, chunks = of.at_once(mesh), of.products(mesh)
    else:
        paths, chunks = of.at_once(mesh, mapping.ktree_k), 1
    return [
        Limit("chip.core.sram", total, chip.core.sram, "B", parts),
        Limit("chip.mesh.rows", mesh.rows, chip.mesh.rows, "1"),
        Limit("chip.mesh.cols", mesh.cols, chip.mesh.cols, "1"),
        Limit("mapping.rows", least(mapping, kernel.kind), minimum(mesh.rows, mesh.cols), "1"),
        Limit("chip.noc.paths", paths, chip.noc.paths, "1"),
        chunk_limit("mapping.cols", maximum(chunks * 1.0, 1.0)),
    ]


def _largest(parts: dict[str, float]) -> str:
    return max(parts, key=lambda name: parts[name])


def _chip(design: Design) -> Chip:
    return design.chip


def _mapping(design: Design) -> ProductPlan:
    plan: ProductPlan = design.mapping.kernel
    return plan
