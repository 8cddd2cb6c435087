"""Products of matrices in the memories of a mesh's cores, which are those of a wafer, or tiles with engines of their own."""

from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Any

import numpy as np

from dse.evaluators.accounting.breakdown import BreakdownRow, excess_by_cause
from dse.evaluators.accounting.kernel_workloads import (
    KernelOutcome,
    TimelineSpans,
    largest_item,
    merge_items,
    mesh_outcome,
    refuse_grouped_products,
    sequential_bars,
)
from dse.evaluators.accounting.regions import chunk_limit, evaluated_mesh, smallest_mesh_text
from dse.evaluators.calls.algorithm_candidates import kernel_with_algorithm, select_values
from dse.evaluators.calls.call import AlgorithmCandidate, MeshKernel
from dse.evaluators.calls.submesh import submesh_share, submesh_sides
from dse.evaluators.cost_models import READERS
from dse.evaluators.cost_models import analytical as closed
from dse.evaluators.cost_models import fastest_algorithm as rivals
from dse.evaluators.cost_models.kernel_attribution import time_by_cause as attributed
from dse.evaluators.kernels import gemm as gemms
from dse.evaluators.kernels import gemv as gemvs
from dse.evaluators.kernels.gemm import GEMM, find_gemm
from dse.evaluators.kernels.gemm.tiling import GemmShape
from dse.evaluators.kernels.gemv import GEMV
from dse.evaluators.kernels.registry import kernel_module
from dse.evaluators.layouts import regions
from dse.evaluators.machine.kernel_faults import faults_of_kernel
from dse.evaluators.machine.machine import HardwareModel, mesh_program_machine, tile_core_machine
from dse.space.array_math import as_column, maximum, minimum
from dse.space.design import Design
from dse.space.errors import DesignError, choose_option
from dse.space.fields import replace_leaves
from dse.space.limits import Infeasibility, Limit
from dse.space.mapping import AUTO, PARTITIONS, MeshProductPlan
from dse.space.workload import ProductCase

FIDELITIES = tuple(READERS)
STACKED = WHOLE = True

SUBMESH_TEXT = "matrices shrink with the mesh"

TILE_ALGORITHMS = ("cannon", "ladder", "meshgemm", "meshgemm_v", "summa", "t10")
"""Algorithms whose closed form holds on tiles, whose DMA engines send beside products: within 10 % of events."""

LOCKED_ALGORITHMS = ("summa", "t10")
"""Those of them whose messages do not meet on a line, which circuits hold both ways."""

COMMUNICATION_TIMES = ("hop", "ramp", "stage", "word", "copy", "post")
"""Times of a fabric that only messages take."""


def needs_single_designs(design: Design, fidelity: str) -> bool:
    """Readers that play programs walk many by themselves, but engines of tiles have numbers for them."""
    return design.chip.tile is not None and fidelity != "closed"


def prepare_case(design: Design, cases: tuple[ProductCase, ...]) -> MeshKernel:
    """Products as one kernel on the cores that the mapping says."""
    refuse_grouped_products(cases)
    mapping, kind = _mapping(design), cases[0].kind
    shape = GemmShape(*(as_column([float(getattr(case, size)) for case in cases]) for size in ("m", "k", "n")))
    options = {} if kind == "gemm" else {"broadcast": mapping.gemv_result == "all", "phases": mapping.ktree_k}
    algorithm = _word(mapping, kind)
    if algorithm in PARTITIONS:
        raise DesignError(
            f"mapping.{kind}: {algorithm} divides the products of a model over groups of NPU cores (mapping=npu "
            f"mapping.both.partition={algorithm}); one product by itself takes {', '.join(_words(design, kind))} or auto"
        )
    if algorithm != AUTO:
        choose_option(GEMM if kind == "gemm" else GEMV, algorithm, f"mapping.{kind}")
    mesh = evaluated_mesh(regions.core_mesh(mapping))
    if kind == "gemv" and design.chip.tile is not None:
        raise DesignError("workload.kernel: mapping=product has no vector-matrix products (gemv) on tiles; use mapping=summa")
    faults = faults_of_kernel(design.chip, mesh.rows, mesh.cols)
    of = MeshKernel(kind, kind, kind, algorithm, shape, mesh, options, faults=faults)
    if algorithm != AUTO:
        return of
    some = [kernel_with_algorithm(of, word) for word in _words(design, kind)]
    return of._replace(rivals=tuple(AlgorithmCandidate(one.algorithm, _fits(_limits(design, one))) for one in some))


def _words(design: Design, kind: str) -> tuple[str, ...]:
    """What a word that is left open may be: on tiles, algorithms whose closed form holds there."""
    words = gemms.GEMM_CANDIDATES if kind == "gemm" else gemvs.GEMV_CANDIDATES
    return words if design.chip.tile is None else tuple(word for word in words if word in _known(design))


def _fits(limits: list[Limit]) -> Any:
    return reduce(and_, (limit.need <= limit.have for limit in limits))


def limits(design: Design, asked: MeshKernel) -> list[Limit]:
    """Memory of a core, sides of the mesh, routing paths, and chunks of a mesh that is no square; of what is chosen."""
    if not asked.rivals:
        return _limits(design, asked)
    best = rivals.fastest_index(asked, _machine(design), closed.kernel_cost)
    each = [_limits(design, kernel_with_algorithm(asked, rival.word)) for rival in asked.rivals]
    if not isinstance(best, np.ndarray):
        return each[best]
    plain = [[limit._replace(parts=()) for limit in some] for some in each]  # whose slots are others
    return [select_values(some, best) for some in zip(*plain, strict=True)]


def _limits(design: Design, asked: MeshKernel) -> list[Limit]:
    """Of an algorithm."""
    chip, mapping, of = design.chip, _mapping(design), kernel_module(asked.kind, asked.algorithm)
    mesh = regions.core_mesh(mapping)
    held = merge_items([(f"tile {slot.name}", slot.nbytes) for slot in of.buffers(asked.shape, asked.mesh, "float16")])
    if asked.kind == "gemm":
        paths, chunks = of.concurrent_paths(mesh), of.local_product_count(mesh)
    else:
        paths, chunks = of.concurrent_paths(mesh, mapping.ktree_k), 1
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


def kernel_outcome(design: Design, asked: MeshKernel, fidelity: str) -> KernelOutcome:
    """Of the cores of the mapping; energy by the power of a data sheet, where the chip has one."""
    _refuse_closed(design, asked, fidelity)
    chip, on = design.chip, _machine(design)
    assert on.fabric is not None
    cost = READERS[fidelity].kernel(asked, on)
    multiplying = rivals.map_choices(asked, on, closed.kernel_cost, lambda one: _multiplying(one, on))
    seconds, cores = cost.seconds, asked.mesh.rows * asked.mesh.cols * 1.0
    own = {
        "communication": (seconds - multiplying) * chip.clock,
        "efficiency": multiplying / seconds,
        "utilisation": asked.shape.m * asked.shape.k * asked.shape.n * on.fabric.mac / (cores * seconds),
        "cores": cores,
    }
    return mesh_outcome(chip, cost, own | ({} if chip.power is None else {"power_energy": chip.power * seconds}))


def kernel_breakdown(
    design: Design, case: ProductCase, asked: MeshKernel, fidelity: str
) -> tuple[list[BreakdownRow], TimelineSpans]:
    """Local products, and communication that is not behind them."""
    _refuse_closed(design, asked, fidelity)
    on = _machine(design)
    (asked,) = rivals.kernels_by_choice(asked, on, closed.kernel_cost)
    activity = READERS[fidelity].kernel(asked, on).activity
    parts = {name: float(value) for name, value in attributed(asked, on, fidelity).items()}
    multiplying = float(_multiplying(asked, on))
    starts = multiplying - parts["products"]
    inside = {"products": parts.pop("products"), "starts": starts}
    parts["starts"] -= starts
    shape = f"{case.m} x {case.k} x {case.n} on {int(asked.mesh.rows)} x {int(asked.mesh.cols)} cores"
    flop, kind = 2.0 * case.m * case.k * case.n, (case.kind, asked.algorithm)
    excess, sent = excess_by_cause(2.0 * float(activity.macs), flop), float(activity.sent_bytes)
    rows = [
        BreakdownRow(*kind, "local products", shape, flop, 0.0, 0.0, largest_item(inside), multiplying, inside, 0.0, excess),
        BreakdownRow(*kind, "communication", "", 0.0, 0.0, 0.0, largest_item(parts), sum(parts.values()), parts, sent, {}),
    ]
    return rows, sequential_bars(rows, ("compute", "communication"))


def remedy_text(worst: Infeasibility, design: Design, cases: tuple[ProductCase, ...]) -> str:
    """In words, what would do."""

    def all_limits(changes: dict[str, Any]) -> list[Limit]:
        trial = replace_leaves(design, changes)
        return limits(trial, prepare_case(trial, cases))

    return smallest_mesh_text("the " + cases[0].kind.upper(), all_limits, "mapping", _mapping(design), design.chip)


def shrink_to_submesh(design: Design, case: ProductCase, side: int) -> tuple[Design, ProductCase]:
    """On fewer cores, whose number the mapping says, by the algorithm that the whole mesh has."""
    (kernel,) = rivals.kernels_by_choice(prepare_case(design, (case,)), _machine(design), closed.kernel_cost)
    mapping = _mapping(design)
    whole = int(mapping.rows), int(mapping.cols or mapping.rows)
    rows, cols = submesh_sides(*whole, side, _least(kernel.algorithm, mapping))
    m = case.m if case.kind == "gemv" else submesh_share(case.m, whole[0], rows)
    along = (whole[0], rows) if case.kind == "gemv" else (whole[1], cols)
    smaller = replace(case, m=m, k=submesh_share(case.k, *along), n=submesh_share(case.n, whole[1], cols))
    word = {} if _word(mapping, case.kind) != AUTO else {f"mapping.{case.kind}": kernel.algorithm}
    return replace_leaves(design, {"mapping.rows": rows, "mapping.cols": cols} | word), smaller


def _word(mapping: MeshProductPlan, kind: str) -> str:
    return mapping.gemm if kind == "gemm" else mapping.gemv


def _least(algorithm: str, mapping: MeshProductPlan) -> Any:
    """Cores of a line that an algorithm needs."""
    if algorithm in GEMM:
        return find_gemm(algorithm).MIN_SIDE
    return mapping.ktree_k if algorithm == "ktree" else 1


def _known(design: Design) -> tuple[str, ...]:
    """Algorithms whose closed form holds on tiles."""
    return LOCKED_ALGORITHMS if design.chip.noc.routing == "locked" else TILE_ALGORITHMS


def _refuse_closed(design: Design, kernel: MeshKernel, fidelity: str) -> None:
    """Refuses algorithms on tiles whose closed form does not hold there.

    Raises:
        DesignError: one of them under ``closed``; readers that play programs have all.
    """
    if design.chip.tile is None or fidelity != "closed" or kernel.rivals:
        return
    known = _known(design)
    if kernel.algorithm not in known:
        where = "tiles whose routes are locked" if known is LOCKED_ALGORITHMS else "tiles"
        raise DesignError(
            f"mapping.gemm: the closed form of {kernel.algorithm} does not hold on {where}; say fidelity=events, or one of "
            + ", ".join(known)
        )


def _machine(design: Design) -> HardwareModel:
    return mesh_program_machine(design.chip) if design.chip.tile is None else tile_core_machine(design.chip)


def _multiplying(kernel: MeshKernel, on: HardwareModel) -> Any:
    """Time of the local products of a core, where their data are there; it is the same whoever plays them."""
    assert on.fabric is not None
    starts = find_gemm(kernel.algorithm).local_product_count(kernel.mesh) if kernel.kind == "gemm" else 1
    free = on.fabric._replace(**dict.fromkeys((*COMMUNICATION_TIMES, "launch"), 0.0))
    return closed.kernel_cost(kernel, on._replace(fabric=free)).seconds + starts * on.fabric.launch


def _mapping(design: Design) -> MeshProductPlan:
    plan: MeshProductPlan = design.mapping.kernel
    return plan
