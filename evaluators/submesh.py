"""Designs on a part of their mesh, for readers to which the whole is too large: cores keep their tiles and the mapping.

A workload becomes as much smaller as that takes, and memory channels as many fewer as leaves each its bytes. Whole models do
not get smaller in this way, a part of a head is none, but each of their kernels by itself (`evaluators.graph.part`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, cast

from evaluators import attention, product, tile_product
from evaluators.graph.part import share, sides
from evaluators.kernels.attention.shape import Heads, Tiling, cut, memory_bytes
from evaluators.kernels.gemm.tiling import Mesh
from space.chip import MeshChip, TileChip
from space.design import Design
from space.fields import replaced
from space.mapping import ProductMapping
from space.workload import Asked, Attention, Collective, Product

WAVES = 4
"""Turns of groups that attention keeps at most: those after the first few are like one another."""


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
    known = SMALLER.get((type(design.chip), type(case)))
    return known.part(design, case, side) if known else None


def _product(design: Design, case: Product, side: int) -> tuple[Design, Asked]:
    """On a mesh of cores, whose sides the mapping says."""
    mapping = cast(ProductMapping, design.mapping)
    whole = int(mapping.rows), int(mapping.cols or mapping.rows)
    rows, cols = sides(*whole, side, product.least(mapping, case.kind))
    m = case.m if case.kind == "gemv" else share(case.m, whole[0], rows)
    along = (whole[0], rows) if case.kind == "gemv" else (whole[1], cols)
    smaller = replace(case, m=m, k=share(case.k, *along), n=share(case.n, whole[1], cols))
    return replaced(design, {"mapping.rows": rows, "mapping.cols": cols}), smaller


def _tile_product(design: Design, case: Product, side: int) -> tuple[Design, Asked]:
    """On a mesh of tiles: as deep, so that as many blocks come from memory to each tile of the diagonal."""
    chip, piece = cast(TileChip, design.chip), tile_product.piece(design, case)
    whole = int(chip.mesh.rows), int(chip.mesh.cols)
    rows, cols = sides(*whole, side)
    group = _divisor(rows, max(rows * int(piece.rows) // whole[0], 1))
    groups = (rows // group) / (whole[0] // int(piece.rows))  # as many turns of fewer groups
    changes = {f"mapping.{name}": int(getattr(piece, name)) for name in ("m", "k", "n")} | {"mapping.rows": group}
    wide = ceil(share(case.n, whole[1], cols) * groups)
    smaller = replace(case, m=share(case.m, int(piece.rows), group), n=wide)
    return _on(design, rows, cols, cols / whole[1] * groups, changes), smaller


def _attention(design: Design, case: Attention, side: int) -> tuple[Design, Asked]:
    """Groups as they are, or as large as the part: queries and keys of a block shrink with them, heads with their number."""
    chip, tiling, shape = cast(TileChip, design.chip), attention.tiling(design, case), attention.heads(case)
    whole = Mesh(int(chip.mesh.rows), int(chip.mesh.cols))
    here = Mesh(*sides(whole.rows, whole.cols, side))
    rows, cols = _divisor(here.rows, int(tiling.rows)), _divisor(here.cols, int(tiling.cols))
    group = Tiling(rows, cols, tiling.queries, tiling.keys)
    queries, stacked = share(case.queries, int(tiling.rows), rows), share(int(shape.rows), int(tiling.rows), rows)
    before = cut(shape, tiling, whole)
    now = Heads(1, 1, 1, queries, share(case.keys, int(tiling.cols), cols), case.qk, case.v, case.causal, case.latent)
    now = replace(now, heads=max(ceil(stacked / queries), 1))
    of = cut(now, group, here)
    items = min(before.items * of.groups / before.groups, WAVES * of.groups)
    now = replace(now, batch=max(ceil(items / of.outer), 1))
    waves = cut(now, group, here).waves / before.waves
    bytes_ = memory_bytes(now, group, here, 1.0) / memory_bytes(shape, tiling, whole, 1.0)
    changes = {f"mapping.{name}": int(getattr(group, name)) for name in ("rows", "cols", "queries", "keys")}
    smaller = replace(case, batch=now.batch, heads=now.heads, kv_heads=1, queries=now.queries, keys=now.keys)
    return _on(design, here.rows, here.cols, bytes_ / waves, changes), smaller


def _collective(design: Design, case: Collective, side: int) -> tuple[Design, Asked]:
    """As many bytes a tile; groups as they are, or as large as the part."""
    chip = cast(TileChip, design.chip)
    rows, cols = sides(int(chip.mesh.rows), int(chip.mesh.cols), side)
    group = (_divisor(whole, said) if said else 0 for whole, said in ((rows, case.rows), (cols, case.cols)))
    high, wide = group
    team = (1 if case.along == "row" else high or rows) * (1 if case.along == "column" else wide or cols)
    root = case.root if isinstance(case.root, str) else min(case.root, team - 1)
    return _on(design, rows, cols, cols / float(chip.mesh.cols), {}), replace(case, rows=high, cols=wide, root=root)


def _on(design: Design, rows: int, cols: int, memory: float, changes: dict[str, int]) -> Design:
    """On a mesh of other sides, with a share of the memory channels."""
    chip = cast(TileChip, design.chip)
    channels = max(round(float(chip.hbm.channels) * memory), 1)
    return replaced(design, {"chip.mesh.rows": rows, "chip.mesh.cols": cols, "chip.hbm.channels": channels, **changes})


def _divisor(side: int, most: int) -> int:
    return max(count for count in range(1, side + 1) if side % count == 0 and count <= most)


SMALLER: dict[tuple[type, type], Smaller] = {
    (MeshChip, Product): Smaller(_product, "matrices shrink with the mesh"),
    (TileChip, Product): Smaller(_tile_product, "rows and columns of the product, and memory channels, shrink with the mesh"),
    (TileChip, Attention): Smaller(
        _attention,
        f"queries and keys shrink with groups of tiles, heads with their number and to {WAVES} turns, channels with the bytes",
    ),
    (TileChip, Collective): Smaller(_collective, "groups shrink where the mesh is smaller; bytes of a tile stay"),
}
"""By kinds of chip and of case."""
