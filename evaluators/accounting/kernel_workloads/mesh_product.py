"""Matrix products from the local memories of a mesh of wafer cores or tiles, as single kernels."""

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Any

import numpy as np

from dse.evaluators.accounting.breakdown import BreakdownRow, excess_by_cause
from dse.evaluators.accounting.kernel_workloads import (
    KernelOutcome,
    KernelWorkload,
    TimelineSpans,
    largest_item,
    merge_items,
    mesh_outcome,
    refuse_grouped_products,
    sequential_bars,
)
from dse.evaluators.accounting.memory_contents import core_memory_contents, memory_limits
from dse.evaluators.accounting.region_levers import mesh_levers
from dse.evaluators.accounting.regions import chunk_limit, evaluated_mesh
from dse.evaluators.accounting.remedies import Lever, limits_of_changes
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

SUBMESH_TEXT = "matrices shrink with the mesh"

TILE_ALGORITHMS = ("cannon", "ladder", "meshgemm", "meshgemm_v", "summa", "t10")
"""Algorithms with an analytical model on tiles, whose DMA engines send during products: within 10 % of events."""

LOCKED_ALGORITHMS = ("summa", "t10")
"""Those whose messages do not meet on a line, which circuits hold in both directions."""

COMMUNICATION_TIMES = ("hop", "ramp", "stage", "word", "copy", "post")
"""Constants of the network that only messages depend on."""


def needs_single_designs(design: Design, fidelity: str) -> bool:
    """Whether designs are evaluated one at a time: simulated tiles need scalar engine sizes."""
    return design.chip.tile is not None and fidelity != "analytical"


def prepare_case(design: Design, cases: tuple[ProductCase, ...]) -> MeshKernel:
    """One kernel for the products, on the cores that the mapping names."""
    refuse_grouped_products(cases)
    if design.chip.chain is not None:
        raise DesignError(
            "chip.chain: shares layers of models, and a single product runs on one chip; leave it out: ~chip.chain"
        )
    mapping, kind = _product_plan(design), cases[0].kind
    shape = GemmShape(*(as_column([float(getattr(case, size)) for case in cases]) for size in ("m", "k", "n")))
    options = {} if kind == "gemm" else {"broadcast": mapping.gemv_result == "all", "phases": mapping.ktree_k}
    algorithm = _algorithm_word(mapping, kind)
    if algorithm in PARTITIONS:
        raise DesignError(
            f"mapping.{kind}: {algorithm} divides products of a model over groups of NPU cores "
            f"(mapping=npu mapping.both.partition={algorithm}); for a single product choose "
            f"{', '.join(_open_words(design, kind))} or auto"
        )
    if algorithm != AUTO:
        choose_option(GEMM if kind == "gemm" else GEMV, algorithm, f"mapping.{kind}")
    mesh = evaluated_mesh(regions.core_mesh(mapping))
    if kind == "gemv" and design.chip.tile is not None:
        raise DesignError(
            "workload.kernel: mapping=product supports no vector-matrix products (gemv) on tiles; use mapping=summa"
        )
    faults = faults_of_kernel(design.chip, mesh.rows, mesh.cols)
    kernel = MeshKernel(kind, kind, kind, algorithm, shape, mesh, options, faults=faults)
    if algorithm != AUTO:
        return kernel
    kernels = [kernel_with_algorithm(kernel, word) for word in _open_words(design, kind)]
    return kernel._replace(
        rivals=tuple(
            AlgorithmCandidate(kernel.algorithm, _fits_limits(_algorithm_limits(design, kernel))) for kernel in kernels
        )
    )


def _open_words(design: Design, kind: str) -> tuple[str, ...]:
    """Options for an open algorithm: on tiles, those with an analytical model."""
    words = gemms.GEMM_CANDIDATES if kind == "gemm" else gemvs.GEMV_CANDIDATES
    return words if design.chip.tile is None else tuple(word for word in words if word in _known_algorithms(design))


def _fits_limits(limits: list[Limit]) -> Any:
    return reduce(and_, (limit.need <= limit.have for limit in limits))


def limits(design: Design, kernel: MeshKernel) -> list[Limit]:
    """Limits of core memory, mesh sides, routing paths and chunks, for the chosen algorithm."""
    if not kernel.rivals:
        return _algorithm_limits(design, kernel)
    best = rivals.find_fastest_index(kernel, product_machine(design), closed.kernel_cost)
    each = [_algorithm_limits(design, kernel_with_algorithm(kernel, rival.word)) for rival in kernel.rivals]
    if not isinstance(best, np.ndarray):
        return each[best]
    plain = [[limit._replace(parts=()) for limit in limits] for limits in each]  # whose slots are others
    return [select_values(limits, best) for limits in zip(*plain, strict=True)]


def _algorithm_limits(design: Design, kernel: MeshKernel) -> list[Limit]:
    """Of an algorithm."""
    chip, mapping, module = design.chip, _product_plan(design), kernel_module(kernel.kind, kernel.algorithm)
    mesh = regions.core_mesh(mapping)
    held = merge_items([(f"tile {slot.name}", slot.nbytes) for slot in module.buffers(kernel.shape, kernel.mesh, "float16")])
    if kernel.kind == "gemm":
        paths, chunks = module.concurrent_paths(mesh), module.local_product_count(mesh)
    else:
        paths, chunks = module.concurrent_paths(mesh, mapping.ktree_k), 1
    # tiles' routers have routes of their own, no paths that are set up
    routes = [] if chip.tile is not None else [Limit("chip.noc.routing_paths", paths, chip.noc.routing_paths, "1")]
    return [
        *memory_limits([core_memory_contents(chip, tuple(held.items()))]),
        Limit("chip.mesh.rows", mesh.rows, chip.mesh.rows, "1"),
        Limit("chip.mesh.cols", mesh.cols, chip.mesh.cols, "1"),
        Limit("mapping.rows", _least_cores(kernel.algorithm, mapping), minimum(mesh.rows, mesh.cols), "1"),
        *routes,
        chunk_limit("mapping.cols", maximum(chunks * 1.0, 1.0)),
    ]


def kernel_outcome(design: Design, kernel: MeshKernel, fidelity: str) -> KernelOutcome:
    """Time, communication and utilisation of a product; energy from rated power if the chip has one."""
    _refuse_closed(design, kernel, fidelity)
    chip, machine = design.chip, product_machine(design)
    assert machine.fabric is not None
    cost = READERS[fidelity].kernel(kernel, machine)
    multiplying = rivals.map_choices(kernel, machine, closed.kernel_cost, lambda kernel: _multiply_seconds(kernel, machine))
    seconds, cores = cost.seconds, kernel.mesh.rows * kernel.mesh.cols * 1.0
    own = {
        "communication_cycles": (seconds - multiplying) * chip.clock,
        "compute_share": multiplying / seconds,
        "mfu": kernel.shape.m * kernel.shape.k * kernel.shape.n * machine.fabric.mac / (cores * seconds),
        "cores": cores,
    }
    return mesh_outcome(chip, cost, own | ({} if chip.power is None else {"rated_energy": chip.power * seconds}))


def kernel_breakdown(
    design: Design, case: ProductCase, kernel: MeshKernel, fidelity: str
) -> tuple[list[BreakdownRow], TimelineSpans]:
    """Breakdown rows of local products and of communication that is not overlapped."""
    _refuse_closed(design, kernel, fidelity)
    machine = product_machine(design)
    (kernel,) = rivals.kernels_by_choice(kernel, machine, closed.kernel_cost)
    activity = READERS[fidelity].kernel(kernel, machine).activity
    parts = {name: float(value) for name, value in attributed(kernel, machine, fidelity).items()}
    multiplying = float(_multiply_seconds(kernel, machine))
    starts = multiplying - parts["products"]
    inside = {"products": parts.pop("products"), "starts": starts}
    parts["starts"] -= starts
    shape = f"{case.m} x {case.k} x {case.n} on {int(kernel.mesh.rows)} x {int(kernel.mesh.cols)} cores"
    flop, kind = 2.0 * case.m * case.k * case.n, (case.kind, kernel.algorithm)
    excess, sent = excess_by_cause(2.0 * float(activity.macs), flop), float(activity.sent_bytes)
    rows = [
        BreakdownRow(*kind, "local products", shape, flop, 0.0, 0.0, largest_item(inside), multiplying, inside, 0.0, excess),
        BreakdownRow(*kind, "communication", "", 0.0, 0.0, 0.0, largest_item(parts), sum(parts.values()), parts, sent, {}),
    ]
    return rows, sequential_bars(rows, ("compute", "communication"))


def levers(worst: Infeasibility, design: Design, cases: tuple[ProductCase, ...]) -> Iterator[Lever]:
    """The smallest mesh on which the product's limits hold."""
    all_limits = limits_of_changes(design, lambda trial: limits(trial, prepare_case(trial, cases)))
    return mesh_levers("the " + cases[0].kind.upper(), all_limits, "mapping", _product_plan(design), design.chip)


def shrink_to_submesh(design: Design, case: ProductCase, side: int) -> tuple[Design, ProductCase]:
    """A product scaled to fewer cores, with the algorithm of the whole mesh."""
    (kernel,) = rivals.kernels_by_choice(prepare_case(design, (case,)), product_machine(design), closed.kernel_cost)
    mapping = _product_plan(design)
    whole = int(mapping.rows), int(mapping.cols or mapping.rows)
    rows, cols = submesh_sides(*whole, side, _least_cores(kernel.algorithm, mapping))
    m = case.m if case.kind == "gemv" else submesh_share(case.m, whole[0], rows)
    along = (whole[0], rows) if case.kind == "gemv" else (whole[1], cols)
    smaller = replace(case, m=m, k=submesh_share(case.k, *along), n=submesh_share(case.n, whole[1], cols))
    word = {} if _algorithm_word(mapping, case.kind) != AUTO else {f"mapping.{case.kind}": kernel.algorithm}
    return replace_leaves(design, {"mapping.rows": rows, "mapping.cols": cols} | word), smaller


def _algorithm_word(mapping: MeshProductPlan, kind: str) -> str:
    return mapping.gemm if kind == "gemm" else mapping.gemv


def _least_cores(algorithm: str, mapping: MeshProductPlan) -> Any:
    """Cores of a line that an algorithm needs."""
    if algorithm in GEMM:
        return find_gemm(algorithm).MIN_SIDE
    return mapping.ktree_k if algorithm == "ktree" else 1


def _known_algorithms(design: Design) -> tuple[str, ...]:
    """Algorithms that have an analytical model on tiles."""
    return LOCKED_ALGORITHMS if design.chip.noc.routing == "locked" else TILE_ALGORITHMS


def _refuse_closed(design: Design, kernel: MeshKernel, fidelity: str) -> None:
    """Refuse algorithms on tiles that have no analytical model there.

    Raises:
        DesignError: such an algorithm at fidelity=analytical; simulators support all.
    """
    if design.chip.tile is None or fidelity != "analytical" or kernel.rivals:
        return
    known = _known_algorithms(design)
    if kernel.algorithm not in known:
        where = "tiles whose routes are locked" if known is LOCKED_ALGORITHMS else "tiles"
        raise DesignError(
            f"mapping.gemm: {kernel.algorithm} has no analytical model on {where}; use fidelity=events, "
            "or one of " + ", ".join(known)
        )


def product_machine(design: Design) -> HardwareModel:
    """Machine of a product: the mesh of a wafer, or that of tiles with engines of their own."""
    return mesh_program_machine(design.chip) if design.chip.tile is None else tile_core_machine(design.chip)


def _multiply_seconds(kernel: MeshKernel, hardware: HardwareModel) -> Any:
    """Time of the local products of a core with local data; equal at all fidelities."""
    assert hardware.fabric is not None
    starts = find_gemm(kernel.algorithm).local_product_count(kernel.mesh) if kernel.kind == "gemm" else 1
    free = hardware.fabric._replace(**dict.fromkeys((*COMMUNICATION_TIMES, "launch"), 0.0))
    return closed.kernel_cost(kernel, hardware._replace(fabric=free)).seconds + starts * hardware.fabric.launch


def _product_plan(design: Design) -> MeshProductPlan:
    plan: MeshProductPlan = design.mapping.kernel
    return plan


WORKLOAD = KernelWorkload(
    fidelities=FIDELITIES,
    stacked=True,
    whole=True,
    prepare_case=prepare_case,
    limits=limits,
    kernel_outcome=kernel_outcome,
    kernel_breakdown=kernel_breakdown,
    needs_single_designs=needs_single_designs,
    levers=levers,
    shrink_to_submesh=shrink_to_submesh,
    submesh_text=SUBMESH_TEXT,
)
