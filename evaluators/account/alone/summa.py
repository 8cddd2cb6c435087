"""Products of matrices in the memory of a chip of tiles: SUMMA whose diagonal tiles load."""

from dataclasses import replace
from typing import Any

from dse.evaluators.account.alone import Spans, Spent, refuse_several
from dse.evaluators.account.alone.tile_jobs import memories, taken, told
from dse.evaluators.account.breakdown import Row
from dse.evaluators.kernels.gemm.summa_diagonal import slots
from dse.evaluators.kernels.gemm.tiling import Shape
from dse.evaluators.machine.engine import engines
from dse.evaluators.readers import READERS
from dse.evaluators.readers.closed_summa import Job, proposed
from dse.evaluators.readers.part_jobs import WAVES, summa_on
from dse.space.design import Design
from dse.space.elementwise import column
from dse.space.fields import replaced
from dse.space.limits import Infeasible, Limit, divides_rows, nearest_side, split_remedy, splits
from dse.space.workload import Product

FIDELITIES = tuple(READERS)
STACKED = WHOLE = True

SMALLER = f"rows and columns of the product shrink with the mesh and to {WAVES} turns, channels with the bytes"

VALUE = 2.0
"""Bytes of a value."""


def asked(design: Design, cases: tuple[Product, ...]) -> Job:
    """Products as the chip is asked for them, with groups and slices that the mapping leaves open."""
    refuse_several(cases)
    shape = Shape(*(column([getattr(case, size) for case in cases]) for size in ("m", "k", "n")))
    return proposed(shape, design.chip, design.mapping.kernel)


def limits(design: Design, asked: Job) -> list[Limit]:
    """Memories, and groups of tiles that divide the mesh."""
    shape = asked.shape
    held = [({"a": "A", "b": "B", "c": "C", "s": "C"}[slot.name[0]], slot.nbytes) for slot in slots(asked.part, "float16")]
    stored = {"A": shape.m * shape.k * VALUE, "B": shape.k * shape.n * VALUE, "C": shape.m * shape.n * VALUE}
    said, rows = design.mapping.kernel, design.chip.mesh.rows
    whole = divides_rows("mapping.rows", said.rows, rows), splits("mapping.split_k", said.split_k, said.rows, rows)
    return [*memories(asked, held, stored), *whole]


def spent(design: Design, asked: Job, fidelity: str) -> Spent:
    """Of all tiles."""
    chip, shape, part = design.chip, asked.shape, asked.part
    macs = chip.tile.matrix.rows * chip.tile.matrix.cols * chip.clock
    of = taken(asked, fidelity, {"cores": chip.mesh.rows * chip.mesh.cols * 1.0})
    done, here = shape.m * shape.k * shape.n, engines(chip).product(part.m, part.k, part.n, VALUE)
    of.metrics["utilisation"] = done / (macs * chip.mesh.rows * chip.mesh.cols * of.metrics["latency"])
    of.metrics["engine_utilisation"] = part.m * part.k * part.n / (macs * here)
    return of


def explained(design: Design, case: Product, asked: Job, fidelity: str) -> tuple[list[Row], Spans]:
    """Multicasts, memory and products."""
    sizes = " x ".join(f"{size:.0f}" for size in (asked.part.m, asked.part.k, asked.part.n))
    among = f", depth by {asked.part.split:.0f}" if asked.part.split > 1 else ""
    return told(asked, fidelity, case.kind, "summa", f"{sizes} a tile{among}", 2.0 * case.m * case.k * case.n)


def remedy(worst: Infeasible, design: Design, cases: tuple[Product, ...]) -> str:
    """In words, what would do."""
    if worst.limit == "mapping.split_k":
        return split_remedy(design.mapping.kernel.split_k, design.mapping.kernel.rows, design.chip.mesh.rows)
    if worst.limit == "mapping.rows":
        return nearest_side("rows", design.mapping.kernel.rows, design.chip.mesh.rows)
    if worst.limit != "chip.tile.sram":
        return "smaller matrices would do"
    open_ = replaced(design, {f"mapping.{name}": 0.0 for name in ("rows", "m", "k", "n", "split_k")})
    part = asked(open_, cases[:1]).part
    if sum(slot.nbytes for slot in slots(part, "float16")) > worst.have:
        return "not even a slice of 16 x 16 x 16 fits"
    return (
        "a slice that fits: "
        + " ".join(f"mapping.{name}={getattr(part, name):.0f}" for name in ("rows", "m", "k", "n"))
        + (f" mapping.split_k={part.split:.0f}")
    )


def part(design: Design, case: Product, side: int) -> tuple[Design, Product]:
    """Groups and slices as they are, or as large as the part."""
    job, _ = summa_on(asked(design, (case,)), side)
    changes: dict[str, Any] = {f"mapping.{name}": getattr(job.part, name) for name in ("m", "k", "n", "rows")}
    changes["mapping.split_k"] = job.part.split
    return replace(replaced(design, changes), chip=job.chip), replace(case, m=job.shape.m, k=job.shape.k, n=job.shape.n)
