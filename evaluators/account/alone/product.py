"""Products of matrices in the memories of a mesh's cores, which are those of a wafer, or tiles with engines of their own."""

from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Any

import numpy as np

from dse.evaluators.account.alone import Spans, Spent, in_turn, itemised, largest, on_mesh, refuse_several
from dse.evaluators.account.breakdown import Row, beyond
from dse.evaluators.account.regions import chunk_limit, laid, smaller_mesh
from dse.evaluators.kernels import gemm as gemms
from dse.evaluators.kernels import gemv as gemvs
from dse.evaluators.kernels.gemm import GEMM, gemm
from dse.evaluators.kernels.gemm.tiling import Shape
from dse.evaluators.kernels.gemv import GEMV
from dse.evaluators.kernels.registry import module_of
from dse.evaluators.layouts import regions
from dse.evaluators.machine.broken import broken_of
from dse.evaluators.machine.machine import Machine, of_mesh, of_tiles
from dse.evaluators.passes.call import Kernel, Rival
from dse.evaluators.passes.part import share, sides
from dse.evaluators.passes.rivals import named, picked
from dse.evaluators.readers import READERS, closed, rivals
from dse.evaluators.readers.attribution import spent as attributed
from dse.space.design import Design
from dse.space.elementwise import column, maximum, minimum
from dse.space.errors import DesignError, chosen
from dse.space.fields import replaced
from dse.space.limits import Infeasible, Limit
from dse.space.mapping import AUTO, PARTITIONS, ProductPlan
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
    refuse_several(cases)
    mapping, kind = _mapping(design), cases[0].kind
    shape = Shape(*(column([float(getattr(case, size)) for case in cases]) for size in ("m", "k", "n")))
    options = {} if kind == "gemm" else {"broadcast": mapping.sums == "all", "phases": mapping.ktree_k}
    algorithm = _word(mapping, kind)
    if algorithm in PARTITIONS:
        raise DesignError(
            f"mapping.{kind}: {algorithm} divides the products of a model over groups of NPU cores (mapping=npu "
            f"mapping.both.partition={algorithm}); one product by itself takes {', '.join(_words(design, kind))} or auto"
        )
    if algorithm != AUTO:
        chosen(GEMM if kind == "gemm" else GEMV, algorithm, f"mapping.{kind}")
    mesh = laid(regions.square(mapping))
    if kind == "gemv" and design.chip.tile is not None:
        raise DesignError("workload.kernel: mapping=product has no vector-matrix products (gemv) on tiles; use mapping=summa")
    faults = broken_of(design.chip, mesh.rows, mesh.cols)
    of = Kernel(kind, kind, kind, algorithm, shape, mesh, options, faults=faults)
    if algorithm != AUTO:
        return of
    some = [named(of, word) for word in _words(design, kind)]
    return of._replace(rivals=tuple(Rival(one.algorithm, _fits(_limits(design, one))) for one in some))


def _words(design: Design, kind: str) -> tuple[str, ...]:
    """What a word that is left open may be: on tiles, algorithms whose closed form holds there."""
    words = gemms.RIVALS if kind == "gemm" else gemvs.RIVALS
    return words if design.chip.tile is None else tuple(word for word in words if word in _known(design))


def _fits(limits: list[Limit]) -> Any:
    return reduce(and_, (limit.need <= limit.have for limit in limits))


def limits(design: Design, asked: Kernel) -> list[Limit]:
    """Memory of a core, sides of the mesh, routing paths, and chunks of a mesh that is no square; of what is chosen."""
    if not asked.rivals:
        return _limits(design, asked)
    best = rivals.place(asked, _machine(design), closed.kernel)
    each = [_limits(design, named(asked, rival.word)) for rival in asked.rivals]
    if not isinstance(best, np.ndarray):
        return each[best]
    plain = [[limit._replace(parts=()) for limit in some] for some in each]  # whose slots are others
    return [picked(some, best) for some in zip(*plain, strict=True)]


def _limits(design: Design, asked: Kernel) -> list[Limit]:
    """Of an algorithm."""
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
        Limit("mapping.rows", _least(asked.algorithm, mapping), minimum(mesh.rows, mesh.cols), "1"),
        *routes,
        chunk_limit("mapping.cols", maximum(chunks * 1.0, 1.0)),
    ]


def spent(design: Design, asked: Kernel, fidelity: str) -> Spent:
    """Of the cores of the mapping; energy by the power of a data sheet, where the chip has one."""
    _refuse_closed(design, asked, fidelity)
    chip, on = design.chip, _machine(design)
    assert on.fabric is not None
    cost = READERS[fidelity].kernel(asked, on)
    multiplying = rivals.each(asked, on, closed.kernel, lambda one: _multiplying(one, on))
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
    (asked,) = rivals.settled(asked, on, closed.kernel)
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
    """On fewer cores, whose number the mapping says, by the algorithm that the whole mesh has."""
    (kernel,) = rivals.settled(asked(design, (case,)), _machine(design), closed.kernel)
    mapping = _mapping(design)
    whole = int(mapping.rows), int(mapping.cols or mapping.rows)
    rows, cols = sides(*whole, side, _least(kernel.algorithm, mapping))
    m = case.m if case.kind == "gemv" else share(case.m, whole[0], rows)
    along = (whole[0], rows) if case.kind == "gemv" else (whole[1], cols)
    smaller = replace(case, m=m, k=share(case.k, *along), n=share(case.n, whole[1], cols))
    word = {} if _word(mapping, case.kind) != AUTO else {f"mapping.{case.kind}": kernel.algorithm}
    return replaced(design, {"mapping.rows": rows, "mapping.cols": cols} | word), smaller


def _word(mapping: ProductPlan, kind: str) -> str:
    return mapping.gemm if kind == "gemm" else mapping.gemv


def _least(algorithm: str, mapping: ProductPlan) -> Any:
    """Cores of a line that an algorithm needs."""
    if algorithm in GEMM:
        return gemm(algorithm).LEAST
    return mapping.ktree_k if algorithm == "ktree" else 1


def _known(design: Design) -> tuple[str, ...]:
    """Algorithms whose closed form holds on tiles."""
    return ON_LOCKED if design.chip.noc.routing == "locked" else ON_TILES


def _refuse_closed(design: Design, kernel: Kernel, fidelity: str) -> None:
    """Refuses algorithms on tiles whose closed form does not hold there.

    Raises:
        DesignError: one of them under ``closed``; readers that play programs have all.
    """
    if design.chip.tile is None or fidelity != "closed" or kernel.rivals:
        return
    known = _known(design)
    if kernel.algorithm not in known:
        where = "tiles whose routes are locked" if known is ON_LOCKED else "tiles"
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
