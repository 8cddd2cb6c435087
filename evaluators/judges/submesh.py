"""Designs on a part of their mesh, for readers to which the whole is too large: cores keep their tiles and the mapping.

A workload becomes as much smaller as that takes, and memory channels as many fewer as leaves each its bytes. Whole models do
not get smaller in this way, a part of a head is none, but each of their kernels by itself (`evaluators.passes.part` and
`evaluators.judges.part_jobs`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dse.evaluators.judges import attention, product, tile_product
from dse.evaluators.kernels.gemm.tiling import Mesh
from dse.evaluators.passes.part import share, sides
from dse.evaluators.readers.part_jobs import WAVES, attention_on, chip_on, divisor, summa_on
from dse.space.design import Design
from dse.space.fields import replaced
from dse.space.software import ATTENTION, COLLECTIVE, PRODUCT, SUMMA, software_of
from dse.space.workload import Asked, Attention, Collective, Product


@dataclass(frozen=True)
class Smaller:
    """How a kind of case gets smaller.

    Attributes:
        part: a design and a case on a mesh of at most so many cores a side.
        said: what becomes of the workload, for people.
    """

    part: Callable[[Design, Any, int], tuple[Design, Asked]]
    said: str


def part(design: Design, case: Asked, side: int) -> tuple[Design, Asked] | None:
    """One design and a case of it on at most `side` x `side` cores; None where that kind of case does not get smaller."""
    known = SMALLER.get((software_of(design.mapping), type(case)))
    return known.part(design, case, side) if known else None


def extent(design: Design) -> tuple[int, int]:
    """Rows and columns of the cores that a design has, or those of them that its product is laid out on."""
    on = design.mapping.kernel if software_of(design.mapping) == PRODUCT else design.chip.mesh
    return int(on.rows), int(on.cols or on.rows)


def _product(design: Design, case: Product, side: int) -> tuple[Design, Asked]:
    """On a mesh of cores, whose sides the mapping says."""
    mapping = design.mapping.kernel
    whole = int(mapping.rows), int(mapping.cols or mapping.rows)
    rows, cols = sides(*whole, side, product.least(mapping, case.kind))
    m = case.m if case.kind == "gemv" else share(case.m, whole[0], rows)
    along = (whole[0], rows) if case.kind == "gemv" else (whole[1], cols)
    smaller = replace(case, m=m, k=share(case.k, *along), n=share(case.n, whole[1], cols))
    return replaced(design, {"mapping.rows": rows, "mapping.cols": cols}), smaller


def _tile_product(design: Design, case: Product, side: int) -> tuple[Design, Asked]:
    job, _ = summa_on(tile_product.job_for(design, case), side)
    changes = {f"mapping.{name}": getattr(job.part, name) for name in ("m", "k", "n", "rows")}
    return replace(replaced(design, changes), chip=job.chip), replace(case, m=job.shape.m, k=job.shape.k, n=job.shape.n)


def _attention(design: Design, case: Attention, side: int) -> tuple[Design, Asked]:
    job, _ = attention_on(attention.job_for(design, case), side)
    names = ("rows", "cols", "queries", "keys", *(("splits",) if job.of.split else ()))
    changes = {f"mapping.{name}": getattr(job.tiling, name) for name in names}
    of = job.shape
    smaller = replace(case, batch=of.batch, heads=of.heads, kv_heads=1, queries=of.queries, keys=of.keys)
    return replace(replaced(design, changes), chip=job.chip), smaller


def _collective(design: Design, case: Collective, side: int) -> tuple[Design, Asked]:
    """As many bytes a tile; groups as they are, or as large as the part."""
    chip = design.chip
    rows, cols = sides(int(chip.mesh.rows), int(chip.mesh.cols), side)
    group = (divisor(whole, said) if said else 0 for whole, said in ((rows, case.rows), (cols, case.cols)))
    high, wide = group
    team = (1 if case.along == "row" else high or rows) * (1 if case.along == "column" else wide or cols)
    root = case.root if isinstance(case.root, str) else min(case.root, team - 1)
    smaller = replace(case, rows=high, cols=wide, root=root)
    return replace(design, chip=chip_on(chip, Mesh(rows, cols), cols / float(chip.mesh.cols))), smaller


SMALLER: dict[tuple[str, type], Smaller] = {
    (PRODUCT, Product): Smaller(_product, "matrices shrink with the mesh"),
    (SUMMA, Product): Smaller(
        _tile_product, f"rows and columns of the product shrink with the mesh and to {WAVES} turns, channels with the bytes"
    ),
    (ATTENTION, Attention): Smaller(
        _attention,
        f"queries and keys shrink with groups of tiles, heads with their number and to {WAVES} turns, channels with the bytes",
    ),
    (COLLECTIVE, Collective): Smaller(_collective, "groups shrink where the mesh is smaller; bytes of a tile stay"),
}
"""By software and kind of case."""
