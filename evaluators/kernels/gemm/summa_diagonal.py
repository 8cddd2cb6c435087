"""SUMMA on a mesh of tiles whose operands are in memory: the diagonal loads, and what it loads goes along its row and column.

[zhang2026] section III-E, figure 5a: each tile keeps a block of the output; in every step over K a column of blocks of A is
multicast row-wise and a row of blocks of B column-wise. Were all of B loaded by tiles of one row, their requests would meet on
the same links; those of the diagonal have a column each. The output is made block of the mesh by block of the mesh.
"""

from typing import Any, NamedTuple

import numpy as np

from evaluators.counts import Activity
from evaluators.kernels.collective import hardware, team
from evaluators.kernels.collective.team import Groups
from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm.tiling import Mesh, Shape
from evaluators.machine.channels import ColumnMemory
from evaluators.machine.engine import Engines
from evaluators.machine.fabric import VALUE, Fabric
from evaluators.rounds import Cores, Load, Loop, Multicast, Multiply, Program, Round, Slot, Store
from space.elementwise import Array, ceil_div, maximum, where


class Blocks(NamedTuple):
    """How often what is done; leaves broadcast over designs.

    Attributes:
        down, across: blocks of the mesh that the output has.
        chunks: steps over K.
    """

    down: Any
    across: Any
    chunks: Any

    @property
    def waves(self) -> Any:
        """Blocks of the output, one after the other."""
        return self.down * self.across


def cut(shape: Shape, part: Shape, mesh: Mesh) -> Blocks:
    """Blocks of a product on a mesh, the last ones padded.

    Args:
        shape: of the product.
        part: of what a tile multiplies at a time: rows of A, of K, and columns of B.
        mesh: of tiles.

    >>> cut(Shape(4096, 7168, 8192), Shape(128, 128, 128), Mesh(32, 32))
    Blocks(down=1, across=2, chunks=56)
    """
    return Blocks(ceil_div(shape.m, part.m * mesh.rows), ceil_div(shape.n, part.n * mesh.cols), ceil_div(shape.k, part.k))


def memory_bytes(shape: Shape, part: Shape, mesh: Mesh, itemsize: float) -> Any:
    """Bytes between memory and tiles: A once for each block across, B once for each block down, the output once; padded."""
    of = cut(shape, part, mesh)
    m, k, n = part.m * mesh.rows, part.k * of.chunks, part.n * mesh.cols
    return of.waves * itemsize * (m * k + k * n + m * n)


def cost(
    shape: Shape, part: Shape, mesh: Mesh, fabric: Fabric, engines: Engines, memory: ColumnMemory, itemsize: float = VALUE
) -> Cost:
    """Time and activity of the program.

    Loads, multicasts and products are each a chunk ahead of the next, so that the slowest of them sets the pace:

        t = load + spread + chunks x max(product, blocks of a channel, words of A and B into a tile)
            + (blocks of the output - 1) max(stores + load + spread - product, 0) + stores

    Args:
        shape, part, mesh: as of `cut`; leaves broadcast over designs.
        fabric, engines, memory: of the machine.
        itemsize: bytes of a value.
    """
    of = cut(shape, part, mesh)
    a, b, c = (x * y * itemsize for x, y in ((part.m, part.k), (part.k, part.n), (part.m, part.n)))
    product = engines.started(part.m, part.k, part.n, itemsize)
    # tiles that load A and have the same channel; those that load B; those that store
    columns, rows = ceil_div(mesh.cols, memory.count), ceil_div(mesh.rows, memory.count)
    loaded = (rows * a + columns * b) * memory.crowded
    words = (ceil_div(a, fabric.word_bytes) + ceil_div(b, fabric.word_bytes)) * fabric.pace
    stored = columns * mesh.rows * c * memory.crowded
    ways = 2 * (fabric.ramp + (mesh.rows - 1) * fabric.hop) + memory.latency + fabric.post
    spread = sum(_spread(along, nbytes, mesh, fabric).seconds for along, nbytes in (("row", a), ("column", b)))
    chunks = of.waves * of.chunks
    busiest = chunks * maximum(maximum(product, words), loaded)
    # what is stored goes before what is loaded next, all but the chunk that is loaded already
    blocked = (of.waves - 1) * maximum(stored + ways + loaded + spread - product, 0.0)
    ends = fabric.post + fabric.ramp + (mesh.rows - 1) * fabric.hop + stored
    return Cost(ways + loaded + spread + busiest + blocked + ends, _activity(shape, part, mesh, of, itemsize))


def _activity(shape: Shape, part: Shape, mesh: Mesh, of: Blocks, itemsize: float) -> Activity:
    a, b, c = (x * y * itemsize for x, y in ((part.m, part.k), (part.k, part.n), (part.m, part.n)))
    chunks = of.waves * of.chunks
    total = Activity()
    for along, nbytes in (("row", a), ("column", b)):
        total = total + _spread(along, nbytes, mesh, _FREE).activity * chunks
    macs = chunks * part.m * part.k * part.n * mesh.rows * mesh.cols
    moved = memory_bytes(shape, part, mesh, itemsize)
    # A is loaded in every row; B by the diagonal, over and over where there are more columns than rows; all tiles store
    times, rest = mesh.cols // mesh.rows, mesh.cols % mesh.rows
    up = times * mesh.rows * (mesh.rows - 1) / 2 + rest * (rest - 1) / 2
    links = chunks * a * mesh.rows * (mesh.rows - 1) / 2 + chunks * b * (mesh.cols * (mesh.rows - 1) - up)
    links = links + of.waves * c * mesh.cols * mesh.rows * (mesh.rows - 1) / 2
    return total + Activity(macs=macs, memory_bytes=moved, hop_bytes=links)


def _spread(along: str, nbytes: Any, mesh: Mesh, fabric: Fabric) -> Cost:
    """A multicast along all rows or columns, the diagonal being their roots."""
    of = hardware.cost(
        Shape(nbytes / VALUE, 1, 1), mesh, fabric, pattern="multicast", along=along, rows=mesh.rows, cols=mesh.cols
    )
    alone = (mesh.cols if along == "row" else mesh.rows) > 1
    return Cost(where(alone, of.seconds, 0.0), of.activity)


_FREE = Fabric(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, word_bytes=1.0)
"""A network that counts."""


def slots(part: Shape, dtype: str) -> tuple[Slot, ...]:
    """What a tile holds: blocks that it loads, blocks that it multiplies, and the output, two of each; leaves broadcast."""
    return (
        Slot("a_in", (part.m, part.k), dtype, depth=2),
        Slot("b_in", (part.k, part.n), dtype, depth=2),
        Slot("a", (part.m, part.k), dtype, depth=2),
        Slot("b", (part.k, part.n), dtype, depth=2),
        Slot("c", (part.m, part.n), dtype, depth=2),
    )


def steps(shape: Shape, part: Shape, mesh: Mesh, dtype: str = "float16", *, channels: int) -> Program:
    """The program of all tiles; arguments as of `cut`, whole numbers.

    Args:
        dtype: of operands and output.
        channels: memory channels, at most one a column; a tile's are those of its column.
    """
    of, (rows, cols) = cut(shape, part, mesh), np.indices((mesh.rows, mesh.cols))
    row, col = np.arange(mesh.rows), np.arange(mesh.cols)
    diagonal = {"a": Cores(row, row % mesh.cols), "b": Cores(col % mesh.rows, col)}
    loads = tuple(Load(name, f"{name}_in", cores, cores.col * channels // mesh.cols) for name, cores in diagonal.items())
    spreads = tuple(_multicast(name, along, mesh, part) for name, along in (("a", "row"), ("b", "column")))

    def chunk(combine: str, *, last: bool = False) -> tuple[Round, ...]:
        """Multicasts and products of a chunk, the next one being loaded meanwhile."""
        return Round((*spreads, *(() if last else loads))), Round((Multiply("a", "b", "c", combine=combine),))

    store = Round((Store("c", "c", Cores(rows, cols), cols * channels // mesh.cols),))
    strand: list[Round | Loop] = [Round(loads)]
    for wave in range(of.waves):
        last = wave == of.waves - 1
        strand += chunk("set", last=last and of.chunks == 1)
        strand += [Loop(chunk("sum"), of.chunks - 2)] if of.chunks > 2 else []
        strand += chunk("sum", last=last) if of.chunks > 1 else ()
        strand.append(store)
    return Program(mesh.rows, mesh.cols, slots(part, dtype), (tuple(strand),))


def _multicast(name: str, along: str, mesh: Mesh, part: Shape) -> Multicast:
    height = part.m if name == "a" else part.k
    ends = np.asarray(0), np.asarray(height)
    return Multicast(f"{name}_in", team.members(Groups(mesh.rows, mesh.cols, along), mesh), *ends, name, at=ends[0])


def place(a: Array, b: Array, part: Shape, mesh: Mesh) -> dict[str, Array]:
    """Blocks by stream, in the order in which they are loaded, shape (blocks, tiles of the diagonal, rows, columns)."""
    of = cut(Shape(a.shape[0], a.shape[1], b.shape[1]), part, mesh)
    padded_a = _padded(a, of.down * mesh.rows * part.m, of.chunks * part.k)
    padded_b = _padded(b, of.chunks * part.k, of.across * mesh.cols * part.n)
    cut_a = padded_a.reshape(of.down, mesh.rows, part.m, of.chunks, part.k).transpose(0, 3, 1, 2, 4)
    cut_b = padded_b.reshape(of.chunks, part.k, of.across, mesh.cols, part.n).transpose(2, 0, 3, 1, 4)
    return {
        "a": np.repeat(cut_a[:, None], of.across, axis=1).reshape(-1, *cut_a.shape[2:]),
        "b": np.tile(cut_b, (of.down, 1, 1, 1, 1)).reshape(-1, *cut_b.shape[2:]),
    }


def result(stored: Array, shape: Shape, part: Shape, mesh: Mesh) -> Array:
    """The product, from the blocks that were stored, shape (blocks, rows, cols, rows of a part, columns of a part)."""
    of = cut(shape, part, mesh)
    whole = stored.reshape(of.down, of.across, mesh.rows, mesh.cols, part.m, part.n).transpose(0, 2, 4, 1, 3, 5)
    return whole.reshape(of.down * mesh.rows * part.m, -1)[: shape.m, : shape.n]


def _padded(matrix: Array, rows: int, cols: int) -> Array:
    return np.pad(matrix, ((0, rows - matrix.shape[0]), (0, cols - matrix.shape[1])))
