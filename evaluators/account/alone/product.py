"""Products of matrices in the memories of a mesh's cores, which are those of a wafer, or tiles with engines of their own."""

from dataclasses import replace
from typing import Any

from dse.evaluators.account.alone import Spans, Spent, in_turn, itemised, largest, on_mesh
from dse.evaluators.account.breakdown import Row, beyond
from dse.evaluators.account.regions import chunk_limit, laid, smaller_mesh
from dse.evaluators.kernels.gemm import GEMM, gemm
from dse.evaluators.kernels.gemm.tiling import Shape
from dse.evaluators.kernels.gemv import GEMV
from dse.evaluators.kernels.registry import module_of
from dse.evaluators.layouts import regions
from dse.evaluators.machine.broken import broken_of
from dse.evaluators.machine.machine import Machine, of_mesh, of_tiles
from dse.evaluators.passes.call import Kernel
from dse.evaluators.passes.part import share, sides
from dse.evaluators.readers import READERS, closed
from dse.evaluators.readers.attribution import spent as attributed
from dse.space.design import Design
from dse.space.elementwise import column, maximum, minimum
from dse.space.errors import DesignError, chosen
from dse.space.fields import replaced
from dse.space.limits import Infeasible, Limit
from dse.space.mapping import ProductPlan
from dse.space.workload import Product

FIDELITIES = tuple(READERS)
STACKED = WHOLE = True

SMALLER = "matrices shrink with the mesh"

ON_TILES = ("cannon", "ladder", "meshgemm", "meshgemm_v", "summa", "t10")
"""Algorithms whose closed form holds on tiles, whose DMA engines send beside products: within 10 % of events."""

ON_LOCKED = ("summa", "t10")
"""Those of them whose messages do not meet on a line, which circuits hold both ways."""

COMMUNICATION = ("hop", "ramp", "stage", "word", "copy", "post")
"""Times of a fabric that only messages take."""


def one_by_one(design: Design, fidelity: str) -> bool:
    """Readers that play programs walk many by themselves, but engines of tiles have numbers for them."""
    return design.chip.tile is not None and fidelity != "closed"


def asked(design: Design, cases: tuple[Product, ...]) -> Kernel:
    """Products as one kernel on the cores that the mapping says."""
    mapping, kind = _mapping(design), cases[0].kind
    shape = Shape(*(column([float(getattr(case, size)) for case in cases]) for size in ("m", "k", "n")))
    options = {} if kind == "gemm" else {"broadcast": mapping.sums == "all", "phases": mapping.ktree_k}
    algorithm = mapping.gemm if kind == "gemm" else mapping.gemv
    chosen(GEMM if kind == "gemm" else GEMV, algorithm, f"mapping.{kind}")
    mesh = laid(regions.square(mapping))
    if kind == "gemv" and design.chip.tile is not None:
        raise DesignError("workload.kernel: mapping=product has no vector-matrix products (gemv) on tiles; use mapping=summa")
    return Kernel(kind, kind, kind, algorithm, shape, mesh, options, faults=broken_of(design.chip, mesh.rows, mesh.cols))


def limits(design: Design, asked: Kernel) -> list[Limit]:
    """Memory of a core, sides of the mesh, routing paths, and chunks of a mesh that is no square."""
    chip, mapping, of = design.chip, _mapping(design), module_of(asked.kind, asked.algorithm)
    mesh = regions.square(mapping)
    held = itemised([(f"tile {slot.name}", slot.nbytes) for slot in of.slots(asked.shape, asked.mesh, "float16")])
    if asked.kind == "gemm":
        paths, chunks = of.at_once(mesh), of.products(mesh)
    else:
        paths, chunks = of.at_once(mesh, mapping.ktree_k), 1
    where, core = ("core", chip.core) if chip.tile is None else ("tile", chip.tile)
    # tiles' routers have routes of their own, no paths that are set up
    routes = [] if chip.tile is not None else [Limit("chip.noc.paths", paths, chip.noc.paths, "1")]
    return [
        Limit(f"chip.{where}.sram", sum(held.values(), 0.0), core.sram, "B", tuple(held.items())),
        Limit("chip.mesh.rows", mesh.rows, chip.mesh.rows, "1"),
        Limit("chip.mesh.cols", mesh.cols, chip.mesh.cols, "1"),
        Limit("mapping.rows", least(mapping, asked.kind), minimum(mesh.rows, mesh.cols), "1"),
        *routes,
        chunk_limit("mapping.cols", maximum(chunks * 1.0, 1.0)),
    ]


def spent(design: Design, asked: Kernel, fidelity: str) -> Spent:
    """Of the cores of the mapping; energy by the power of a data sheet, where the chip has one."""
    _refuse_closed(design, asked, fidelity)
    chip, on = design.chip, _machine(design)
    assert on.fabric is not None
    cost, multiplying = READERS[fidelity].kernel(asked, on), _multiplying(asked, on)
    seconds, cores = cost.seconds, asked.mesh.rows * asked.mesh.cols * 1.0
    own = {
        "communication": (seconds - multiplying) * chip.clock,
        "efficiency": multiplying / seconds,
        "utilisation": asked.shape.m * asked.shape.k * asked.shape.n * on.fabric.mac / (cores * seconds),
        "cores": cores,
    }
    return on_mesh(chip, cost, own | ({} if chip.power is None else {"power_energy": chip.power * seconds}))


def explained(design: Design, case: Product, asked: Kernel, fidelity: str) -> tuple[list[Row], Spans]:
    """Local products, and communication that is not behind them."""
    _refuse_closed(design, asked, fidelity)
    on = _machine(design)
    activity = READERS[fidelity].kernel(asked, on).activity
    parts = {name: float(value) for name, value in attributed(asked, on, fidelity).items()}
    multiplying = float(_multiplying(asked, on))
    starts = multiplying - parts["products"]
    inside = {"products": parts.pop("products"), "starts": starts}
    parts["starts"] -= starts
    shape = f"{case.m} x {case.k} x {case.n} on {int(asked.mesh.rows)} x {int(asked.mesh.cols)} cores"
    flop, kind = 2.0 * case.m * case.k * case.n, (case.kind, asked.algorithm)
    excess, sent = beyond(2.0 * float(activity.macs), flop), float(activity.sent_bytes)
    rows = [
        Row(*kind, "local products", shape, flop, 0.0, 0.0, largest(inside), multiplying, inside, 0.0, excess),
        Row(*kind, "communication", "", 0.0, 0.0, 0.0, largest(parts), sum(parts.values()), parts, sent, {}),
    ]
    return rows, in_turn(rows, ("compute", "communication"))


def remedy(worst: Infeasible, design: Design, cases: tuple[Product, ...]) -> str:
    """In words, what would do."""

    def all_limits(changes: dict[str, Any]) -> list[Limit]:
        trial = replaced(design, changes)
        return limits(trial, asked(trial, cases))

    return smaller_mesh("the " + cases[0].kind.upper(), all_limits, "mapping", _mapping(design), design.chip)


def part(design: Design, case: Product, side: int) -> tuple[Design, Product]:
    """On fewer cores, whose number the mapping says."""
    mapping = _mapping(design)
    whole = int(mapping.rows), int(mapping.cols or mapping.rows)
    rows, cols = sides(*whole, side, least(mapping, case.kind))
    m = case.m if case.kind == "gemv" else share(case.m, whole[0], rows)
    along = (whole[0], rows) if case.kind == "gemv" else (whole[1], cols)
    smaller = replace(case, m=m, k=share(case.k, *along), n=share(case.n, whole[1], cols))
    return replaced(design, {"mapping.rows": rows, "mapping.cols": cols}), smaller


def least(mapping: ProductPlan, kind: str) -> Any:
    """Cores of a line that the algorithm of a product needs."""
    if kind == "gemm":
        return gemm(mapping.gemm).LEAST
    return mapping.ktree_k if mapping.gemv == "ktree" else 1


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


def _machine(design: Design) -> Machine:
    return of_mesh(design.chip) if design.chip.tile is None else of_tiles(design.chip)


def _multiplying(kernel: Kernel, on: Machine) -> Any:
    """Time of the local products of a core, where their data are there; it is the same whoever plays them."""
    assert on.fabric is not None
    starts = gemm(kernel.algorithm).products(kernel.mesh) if kernel.kind == "gemm" else 1
    free = on.fabric._replace(**dict.fromkeys((*COMMUNICATION, "launch"), 0.0))
    return closed.kernel(kernel, on._replace(fabric=free)).seconds + starts * on.fabric.launch


def _mapping(design: Design) -> ProductPlan:
    plan: ProductPlan = design.mapping.kernel
    return plan
