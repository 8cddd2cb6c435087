"""Matrix products from main memory on tiles: SUMMA whose diagonal tiles load."""

from dataclasses import replace
from typing import Any

from dse.evaluators.accounting.breakdown import BreakdownRow
from dse.evaluators.accounting.kernel_workloads import KernelOutcome, KernelWorkload, TimelineSpans, refuse_grouped_products
from dse.evaluators.accounting.kernel_workloads.tile_jobs import job_breakdown, job_outcome, memory_limits
from dse.evaluators.accounting.remedies import Lever, advise
from dse.evaluators.cost_models import READERS
from dse.evaluators.cost_models.analytical_summa import SummaJob, propose_summa_job
from dse.evaluators.cost_models.submesh_jobs import MAX_WAVES, summa_on_submesh
from dse.evaluators.kernels.gemm.summa_diagonal import buffers
from dse.evaluators.kernels.gemm.tiling import GemmShape
from dse.evaluators.machine.compute_engines import tile_engines
from dse.space.array_math import as_column
from dse.space.design import Design
from dse.space.fields import replace_leaves
from dse.space.limits import Infeasibility, Limit, divides_rows, split_limit, split_remedy_text, suggest_nearest_side
from dse.space.workload import ProductCase

FIDELITIES = tuple(READERS)

SUBMESH_TEXT = f"rows and columns of the product shrink with the mesh and to {MAX_WAVES} waves, channels with the bytes"

VALUE = 2.0
"""Bytes of a value."""


def prepare_case(design: Design, cases: tuple[ProductCase, ...]) -> SummaJob:
    """One SUMMA job for the products, with open group sides and tilings chosen."""
    refuse_grouped_products(cases)
    shape = GemmShape(*(as_column([getattr(case, size) for case in cases]) for size in ("m", "k", "n")))
    return propose_summa_job(shape, design.chip, design.mapping.kernel)


def limits(design: Design, kernel: SummaJob) -> list[Limit]:
    """Limits of memories, and of tile groups that divide the mesh."""
    shape = kernel.shape
    held = [({"a": "A", "b": "B", "c": "C", "s": "C"}[slot.name[0]], slot.nbytes) for slot in buffers(kernel.part, "float16")]
    stored = {"A": shape.m * shape.k * VALUE, "B": shape.k * shape.n * VALUE, "C": shape.m * shape.n * VALUE}
    given_kernel, rows = design.mapping.kernel, design.chip.mesh.rows
    whole = (
        divides_rows("mapping.rows", given_kernel.rows, rows),
        split_limit("mapping.split_k", given_kernel.split_k, given_kernel.rows, rows),
    )
    return [*memory_limits(kernel, held, stored), *whole]


def kernel_outcome(design: Design, kernel: SummaJob, fidelity: str) -> KernelOutcome:
    """Time, utilisation and energy of a product on all tiles."""
    chip, shape, part = design.chip, kernel.shape, kernel.part
    macs = chip.tile.matrix.rows * chip.tile.matrix.cols * chip.clock
    outcome = job_outcome(kernel, fidelity, {"cores": chip.mesh.rows * chip.mesh.cols * 1.0})
    done, engine_seconds = shape.m * shape.k * shape.n, tile_engines(chip).product(part.m, part.k, part.n, VALUE)
    outcome.metrics["mfu"] = done / (macs * chip.mesh.rows * chip.mesh.cols * outcome.metrics["latency"])
    outcome.metrics["engine_utilisation"] = part.m * part.k * part.n / (macs * engine_seconds)
    return outcome


def kernel_breakdown(
    design: Design, case: ProductCase, kernel: SummaJob, fidelity: str
) -> tuple[list[BreakdownRow], TimelineSpans]:
    """Breakdown rows of a product: multicasts, memory and products."""
    sizes = " x ".join(f"{size:.0f}" for size in (kernel.part.m, kernel.part.k, kernel.part.n))
    among = f", depth by {kernel.part.split:.0f}" if kernel.part.split > 1 else ""
    return job_breakdown(kernel, fidelity, case.kind, "summa", f"{sizes} a tile{among}", 2.0 * case.m * case.k * case.n)


def levers(worst: Infeasibility, design: Design, cases: tuple[ProductCase, ...]) -> tuple[Lever, ...]:
    """What to change where a product on tiles violates a limit."""
    if worst.limit == "mapping.split_k":
        return advise(split_remedy_text(design.mapping.kernel.split_k, design.mapping.kernel.rows, design.chip.mesh.rows))
    if worst.limit == "mapping.rows":
        return advise(suggest_nearest_side("rows", design.mapping.kernel.rows, design.chip.mesh.rows))
    if worst.limit != "chip.tile.sram":
        return advise("use smaller matrices")
    open_ = replace_leaves(design, {f"mapping.{name}": 0.0 for name in ("rows", "m", "k", "n", "split_k")})
    part = prepare_case(open_, cases[:1]).part
    if sum(slot.nbytes for slot in buffers(part, "float16")) > worst.have:
        return advise("not even a tiling of 16 x 16 x 16 fits")
    return advise(
        "a tiling that fits: "
        + " ".join(f"mapping.{name}={getattr(part, name):.0f}" for name in ("rows", "m", "k", "n"))
        + (f" mapping.split_k={part.split:.0f}")
    )


def shrink_to_submesh(design: Design, case: ProductCase, side: int) -> tuple[Design, ProductCase]:
    """A product scaled to a submesh; groups and tilings keep their sizes if they fit."""
    job, _ = summa_on_submesh(prepare_case(design, (case,)), side)
    changes: dict[str, Any] = {f"mapping.{name}": getattr(job.part, name) for name in ("m", "k", "n", "rows")}
    changes["mapping.split_k"] = job.part.split
    return replace(replace_leaves(design, changes), chip=job.chip), replace(case, m=job.shape.m, k=job.shape.k, n=job.shape.n)


WORKLOAD = KernelWorkload(
    fidelities=FIDELITIES,
    stacked=True,
    whole=True,
    prepare_case=prepare_case,
    limits=limits,
    kernel_outcome=kernel_outcome,
    kernel_breakdown=kernel_breakdown,
    levers=levers,
    shrink_to_submesh=shrink_to_submesh,
    submesh_text=SUBMESH_TEXT,
)
