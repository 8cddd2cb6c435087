"""SUMMA on a mesh of tiles with operands in main memory.

Tiles of the diagonal load blocks and multicast them along their rows and columns.

[zhang2026] section III-E, figure 5a: each tile keeps a block of the output; in every step over K a column of blocks of A is
multicast row-wise and a row of blocks of B column-wise. Were all of B loaded by tiles of one row, their requests would meet on
the same links; those of the diagonal have a column each.

A group is some rows of the mesh with all its columns, and makes the output block by block of its own size: with fewer rows than
the mesh, products of few rows, or several products, share it side by side. Groups work in as few rows as do in as many turns,
those next to the memory; tiles of the other rows are idle, and no group makes a block that another one makes.

Groups of one row may divide the depth instead (split-K): some that follow one another in a column make the same block, each
over its share of K, and the network adds up their blocks at the middle one, which stores the sum. A product of few rows and
columns, as a token's, so has work for all tiles and columns enough for their arrays. The paper has no such split.

B may be of another format than A and the output. Memory, links and local memory have it as it is stored; what engines do not
multiply as it is, each tile expands on its vector engine behind the multicast, beside the product of the chunk before. So links
carry the narrow form, and all tiles of a column expand the same block. The paper has one format.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels import dequantization as expanded
from dse.evaluators.kernels.collective import core_groups as team
from dse.evaluators.kernels.collective import in_network as hardware
from dse.evaluators.kernels.collective.core_groups import BufferRows, MeshGroups
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.memory_channels import ColumnMemory
from dse.evaluators.machine.mesh_fabric import VALUE, MeshFabric, die_period
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import (
    Buffer,
    CoreIndex,
    LoadInstruction,
    Loop,
    MulticastInstruction,
    MultiplyInstruction,
    Program,
    Round,
    StoreInstruction,
    dequantize_instructions,
)
from dse.space.array_math import Array, ceil_div, floor_div, maximum, minimum, remainder, where


class SummaTiling(NamedTuple):
    """Tiling of a SUMMA product; whole numbers, or arrays over designs for the analytical model.

    Attributes:
        m, k, n: rows of A, depth, and columns of B that a tile multiplies at a time.
        rows: of tiles of a group; rows of the mesh that are left over are idle.
        split: groups of one row each among which the depth is divided, likewise. 1 where groups have more.
    """

    m: Any
    k: Any
    n: Any
    rows: Any
    split: Any = 1


class WeightStorage(NamedTuple):
    """Storage of B in a number format other than A's.

    Attributes:
        nbytes: of a value with its share of scales. [B]
        expand: operations of the vector engine that make a value of A's size of it; 0 where it is multiplied as it is.
    """

    nbytes: float
    expand: float = 0.0

    def width(self, itemsize: float) -> float:
        """Bytes of a value of the wider operand, as both are multiplied. [B]"""
        return itemsize if self.expand else max(itemsize, self.nbytes)


class SummaBlocks(NamedTuple):
    """Numbers of blocks, chunks and waves of a SUMMA product; leaves broadcast over designs. [-]

    Attributes:
        down, across: blocks of a group that an output has.
        chunks: steps over K, or over a share of it.
        waves: turns in which groups work on the blocks of all outputs.
    """

    down: Any
    across: Any
    chunks: Any
    waves: Any


def block_counts(shape: GemmShape, part: SummaTiling, mesh: CoreMesh, copies: Any = 1) -> SummaBlocks:
    """Blocks of SUMMA products on a mesh; the last ones are padded.

    Args:
        shape: of a product.
        part, mesh: groups and slices, and the tiles.
        copies: products of that shape, of other matrices each.

    >>> block_counts(GemmShape(4096, 7168, 8192), SummaTiling(128, 128, 128, 32), CoreMesh(32, 32))
    SummaBlocks(down=1, across=2, chunks=56, waves=2)
    >>> block_counts(GemmShape(16, 7168, 8192), SummaTiling(16, 128, 128, 1), CoreMesh(32, 32))
    SummaBlocks(down=1, across=2, chunks=56, waves=1)
    >>> block_counts(GemmShape(16, 7168, 1024), SummaTiling(16, 128, 32, 1, 32), CoreMesh(32, 32))
    SummaBlocks(down=1, across=1, chunks=2, waves=1)
    """
    down, across = ceil_div(shape.m, part.m * part.rows), ceil_div(shape.n, part.n * mesh.cols)
    chunks, waves = ceil_div(ceil_div(shape.k, part.k), part.split), ceil_div(copies * down * across, _teams(part, mesh))
    return SummaBlocks(down, across, chunks, waves)


def _teams(part: SummaTiling, mesh: CoreMesh) -> Any:
    """Blocks of outputs that are made at a time."""
    return floor_div(mesh.rows, part.rows * part.split)


def busy_mesh(shape: GemmShape, part: SummaTiling, mesh: CoreMesh, copies: Any = 1) -> CoreMesh:
    """Tiles that have work: the fewest rows in which groups make all blocks in as many waves.

    >>> busy_mesh(GemmShape(1024, 4096, 4096), SummaTiling(32, 128, 64, 32), CoreMesh(48, 64))
    CoreMesh(rows=32, cols=64)
    """
    return _busy(block_counts(shape, part, mesh, copies), part, mesh, copies)


def _busy(blocks: SummaBlocks, part: SummaTiling, mesh: CoreMesh, copies: Any) -> CoreMesh:
    """Likewise of blocks that are known."""
    return CoreMesh(ceil_div(copies * blocks.down * blocks.across, blocks.waves) * part.rows * part.split, mesh.cols)


def memory_bytes(
    shape: GemmShape, part: SummaTiling, mesh: CoreMesh, itemsize: float, copies: Any = 1, weights: WeightStorage | None = None
) -> Any:
    """Bytes between main memory and tiles of a SUMMA product, padding included. [B]

    A comes once for each block across, B once for each block down, and the output goes once.
    """
    counts, stored = block_counts(shape, part, mesh, copies), weights or WeightStorage(itemsize)
    mesh = _busy(counts, part, mesh, copies)
    m, k, n = part.m * mesh.rows, part.k * counts.chunks, part.n * mesh.cols
    return counts.waves * (
        itemsize * (m * k + floor_div(m, part.split) * n) + stored.nbytes * (k * n * floor_div(mesh.rows, part.rows))
    )


def cost(
    shape: GemmShape,
    part: SummaTiling,
    mesh: CoreMesh,
    fabric: MeshFabric,
    engines: TileEngines,
    memory: ColumnMemory,
    itemsize: float = VALUE,
    copies: Any = 1,
    weights: WeightStorage | None = None,
) -> KernelCost:
    """Time [s] and activity of a SUMMA program; arguments as in `seconds`."""
    taken = seconds(shape, part, mesh, fabric, engines, memory, itemsize, copies, weights)
    return KernelCost(taken, activity(shape, part, mesh, itemsize, copies, weights))


def activity(
    shape: GemmShape,
    part: SummaTiling,
    mesh: CoreMesh,
    itemsize: float = VALUE,
    copies: Any = 1,
    weights: WeightStorage | None = None,
) -> Activity:
    """Activity of a SUMMA program; arguments as in `seconds`."""
    counts = block_counts(shape, part, mesh, copies)
    return _activity(part, _busy(counts, part, mesh, copies), counts, itemsize, weights)


def seconds(
    shape: GemmShape,
    part: SummaTiling,
    mesh: CoreMesh,
    fabric: MeshFabric,
    engines: TileEngines,
    memory: ColumnMemory,
    itemsize: float = VALUE,
    copies: Any = 1,
    weights: WeightStorage | None = None,
) -> Any:
    """Time of a SUMMA program on a mesh of tiles with main memory. [s]

    Loads, multicasts, what is expanded and products are each a chunk ahead of the next, so that the slowest of them sets the
    pace; a tile asks for a chunk when it sends the one before, so that it loads no faster than one in a way to memory and back:

        pace = max(product, expand, words of A and B into a tile, blocks of a channel, way + blocks of a tile)
        turn  = max(chunks x pace, chunks x max(product, expand, words) + stores of a column + sent,
                    sum + stores + way + load + spread + product + (chunks - 2) x pace)
        rest  = max(stores of a group, stores - loads of the other groups)
        tiles = way + load + spread + product + (chunks - 1) x pace + (turns of the groups - 1) x turn + rest
        channels = way + turns x (chunks x blocks of a channel + stores)
                   + max(spread + product - stores of a turn before - (stores - rest), 0)
        t = max(tiles, channels) + sum + way

    with chunks of one turn. Stores go before what is loaded next, all but the chunk that is loaded already: of turns of one
    chunk that is the next turn's, so that two turns take the last of these. Where groups divide the depth, the sum of their
    blocks goes before. Groups have their blocks one after the other, and store likewise: what is left in the end is what the
    last one stores, or what the channel has not had time for since the first one did. What is sent along a column waits until
    what its tiles store has passed. What is sent waits for the store of the turn before, as a tile's messages start one after
    the other: for the sum and for its words too, where one tile stores for all that divide the depth. Blocks of B that a tile
    loads for itself alone do not wait, and are expanded meanwhile.

    Args:
        shape, part, mesh, copies: as of `block_counts`; leaves broadcast over designs.
        fabric, engines, memory: of the machine.
        itemsize: bytes of a value of A and of the output.
        weights: how B is stored; as A where it is None.
    """
    return program_seconds(program_work(shape, part, mesh, fabric, engines, memory, itemsize, copies, weights), memory.crowded)


class SummaWork(NamedTuple):
    """Parts of a SUMMA program that do not depend on the rate of memory; leaves broadcast over designs.

    Attributes:
        waves, chunks: turns of the groups, and chunks of them all.
        product, words: of a chunk: the product; words of A and B into a tile, or what is expanded, whichever is longer. [s]
        loaded, stored: of a channel: by a chunk, and by the blocks of a turn. [B]
        ways, ends: of the first block, and of what is stored. [s]
        spread, sent: from a block's arrival to its product; and from the product before it, where a turn begins. [s]
        own: of a tile of the diagonal by a chunk. [B]
        added: the sum of the blocks of groups that divide the depth. [s]
        share: of all groups that one is.
        crossed: that links of a column have what tiles of a group store, where B is sent along them. [s]
    """

    waves: Any
    chunks: Any
    product: Any
    words: Any
    loaded: Any
    stored: Any
    ways: Any
    spread: Any
    sent: Any
    ends: Any
    own: Any
    added: Any
    share: Any
    crossed: Any


def program_work(
    shape: GemmShape,
    part: SummaTiling,
    mesh: CoreMesh,
    fabric: MeshFabric,
    engines: TileEngines,
    memory: ColumnMemory,
    itemsize: float = VALUE,
    copies: Any = 1,
    weights: WeightStorage | None = None,
    product: Any = None,
) -> SummaWork:
    """Parts of the time of a SUMMA program that do not depend on the rate of memory.

    Arguments as in `seconds`, and the time of a chunk's product if it is known.
    """
    counts, kept = block_counts(shape, part, mesh, copies), weights or WeightStorage(itemsize)
    mesh = _busy(counts, part, mesh, copies)
    a, b, c = _nbytes(part, itemsize, kept)
    expand = _expanded(part, engines, itemsize, kept)
    # tiles that load A and have the same channel; those that load B; those that store
    columns = ceil_div(mesh.cols, memory.count)
    rows = floor_div(mesh.rows, mesh.cols) * columns + minimum(remainder(mesh.rows, mesh.cols), columns)
    # what one tile by itself loads needs no way to others
    a_words, b_words = ceil_div(a, fabric.word_bytes) * (mesh.cols > 1), ceil_div(b, fabric.word_bytes) * (part.rows > 1)
    words = (a_words + b_words) * fabric.pace
    c_stored = part.rows * ceil_div(c, fabric.word_bytes) * fabric.pace
    if fabric.is_divided:
        words = words + a_words * fabric.extra_pace(mesh.cols, fabric.die_cols)
        words = words + b_words * fabric.extra_pace(part.rows, die_period(part.rows, fabric.die_rows))
        c_stored = c_stored + part.rows * ceil_div(c, fabric.word_bytes) * fabric.extra_pace(mesh.rows, fabric.die_rows)
    way = fabric.ramp + fabric.edge_seconds(mesh.rows)
    sent = sum(_spread_seconds(along, part, mesh, fabric) for along in ("row", "column")) + words
    added = where(part.split > 1, _added_seconds(part, c, fabric), 0.0)
    after = added + where(part.split > 1, fabric.post + _sum_words_seconds(part, c, fabric), 0.0)
    return SummaWork(
        counts.waves,
        counts.waves * counts.chunks,
        engines.product_with_start(part.m, part.k, part.n, kept.width(itemsize)) if product is None else product,
        maximum(words, expand) if kept.expand else words,
        rows * a + columns * floor_div(mesh.rows, part.rows) * b,
        columns * floor_div(mesh.rows, part.split) * c,
        2 * way + memory.latency + fabric.post,
        where(part.rows > 1, sent + expand, maximum(sent, expand)),
        after + sent + where(part.rows > 1, expand, 0.0),
        fabric.post + fabric.ramp + fabric.edge_seconds(mesh.rows),
        a + b,
        added,
        part.rows * part.split / mesh.rows,
        where(part.rows > 1, c_stored, 0.0),
    )


def program_seconds(work: SummaWork, byte: Any) -> Any:
    """Time of a SUMMA program, from its work and the channel time per byte under contention [s/B]. [s]

    It does not shrink where times or bytes of the work grow, or the time of a byte, with as many waves and chunks: each is a
    summand or one of a maximum, but for two differences. ``rest`` falls with ``loaded`` by its share of the other groups, and
    ``tiles`` has ``loaded`` as a summand. ``last - hidden`` is max(last - X, 0), where X grows with ``stored`` by at most
    min(waves, 2), and with ``loaded`` by at most 1: no more than the summand before it. Bounds over boxes of tiles rest on it.
    """
    loaded, stored, each = work.loaded * byte, work.stored * byte, work.chunks / work.waves
    busy = maximum(work.product, work.words)
    pace = maximum(maximum(busy, loaded), work.ways + work.own * byte)
    blocked = work.added + stored + work.ways + loaded + work.spread + work.product + maximum(each - 2, 0) * pace
    blocked = blocked / maximum(3 - each, 1)
    turn = maximum(maximum(each * pace, each * busy + work.sent + work.crossed), blocked)
    last, rest = work.spread + work.product, maximum(stored * work.share, stored - loaded * (1 - work.share))
    tiles = work.ways + loaded + last + (each - 1) * pace + (work.waves - 1) * turn + rest
    # what a turn stores goes while the last one multiplies, which has its blocks already, as does what other groups store
    hidden = minimum(minimum(work.waves - 1, 1) * stored + stored - rest, last)
    channels = work.ways + work.waves * (each * loaded + stored) + last - hidden
    return maximum(tiles, channels) + (work.added + work.ends)


def _nbytes(part: SummaTiling, itemsize: float, weights: WeightStorage) -> tuple[Any, Any, Any]:
    """Of a tile's block of A, of B as it is stored, and of the output. [B]"""
    return part.m * part.k * itemsize, part.k * part.n * weights.nbytes, part.m * part.n * itemsize


def _expanded(part: SummaTiling, engines: TileEngines, itemsize: float, weights: WeightStorage) -> Any:
    """Time in which a tile makes wide values of a block of B, one sequence of instructions. [s]"""
    if not weights.expand:
        return 0.0
    return expanded.dequantize_seconds(part.k * part.n, weights.nbytes, weights.expand, itemsize, engines)


def _added_seconds(part: SummaTiling, nbytes: Any, fabric: MeshFabric) -> Any:
    """Time in which the network adds up blocks of groups at the middle one: that of `hardware`, with its root there."""
    hops = floor_div(part.split, 2)
    way = hops * fabric.hop
    if fabric.is_divided:
        way = way + floor_div(hops, die_period(part.split, fabric.die_rows)) * fabric.crossing
    return fabric.post + 2 * fabric.ramp + way + _sum_words_seconds(part, nbytes, fabric)


def _sum_words_seconds(part: SummaTiling, nbytes: Any, fabric: MeshFabric) -> Any:
    """Time of the words of a sum over the rows that divide the depth. [s]"""
    words = ceil_div(nbytes, fabric.word_bytes)
    seconds = words * fabric.pace
    if fabric.is_divided:
        seconds = seconds + words * fabric.extra_pace(part.split, die_period(part.split, fabric.die_rows))
    return seconds


def _activity(
    part: SummaTiling, mesh: CoreMesh, blocks: SummaBlocks, itemsize: float, weights: WeightStorage | None = None
) -> Activity:
    kept = weights or WeightStorage(itemsize)
    a, b, c = _nbytes(part, itemsize, kept)
    chunks, groups = blocks.waves * blocks.chunks, floor_div(mesh.rows, part.rows)
    total = Activity()
    for along, nbytes in (("row", a), ("column", b)):
        total = total + _spread(along, nbytes, part, mesh) * chunks
    stores = floor_div(mesh.rows, part.split)  # of a column
    added = blocks.waves * (mesh.rows - stores) * mesh.cols * c
    sums = where(part.split > 1, blocks.waves * stores * mesh.cols * c, 0.0)  # which routers add up on their way
    total = total + Activity(sent_bytes=added, hop_bytes=added, spread_bytes=sums - added)
    macs = chunks * part.m * part.k * part.n * mesh.rows * mesh.cols
    moved = chunks * (mesh.rows * a + groups * mesh.cols * b) + blocks.waves * stores * mesh.cols * c
    # A is loaded in every row; B by the diagonal, over and over where there are more columns than rows; all tiles store, or one
    # of those that divide the depth
    times, rest = floor_div(mesh.cols, part.rows), remainder(mesh.cols, part.rows)
    up = mesh.cols * part.rows * groups * (groups - 1) / 2
    up = up + groups * (times * part.rows * (part.rows - 1) + rest * (rest - 1)) / 2
    links = chunks * a * mesh.rows * (mesh.rows - 1) / 2 + chunks * b * (groups * mesh.cols * (mesh.rows - 1) - up)
    links = links + blocks.waves * c * mesh.cols * stores * (
        mesh.rows - 1 - part.split * (stores - 1) / 2 - floor_div(part.split, 2)
    )
    elements = chunks * (kept.expand * part.k * part.n) * mesh.rows * mesh.cols
    return total + Activity(macs=macs, elements=elements, memory_bytes=moved, hop_bytes=links)


def _spread(along: str, nbytes: Any, part: SummaTiling, mesh: CoreMesh) -> Activity:
    """A multicast along all rows, or along the columns of all groups, diagonals being their roots."""
    rows = mesh.rows if along == "row" else part.rows
    return hardware.activity(GemmShape(nbytes / VALUE, 1, 1), mesh, pattern="multicast", along=along, rows=rows, cols=mesh.cols)


def _spread_seconds(along: str, part: SummaTiling, mesh: CoreMesh, fabric: MeshFabric) -> Any:
    """Time of its first word."""
    rows = mesh.rows if along == "row" else part.rows
    taken = hardware.seconds(GemmShape(0.0, 1, 1), fabric, pattern="multicast", along=along, rows=rows, cols=mesh.cols)
    return where((mesh.cols if along == "row" else rows) > 1, taken, 0.0)


def buffers(part: SummaTiling, dtype: str, weights: WeightStorage | None = None) -> tuple[Buffer, ...]:
    """Buffers of a tile: blocks that are loaded, blocks that are multiplied, and the output, two of each.

    Where B is expanded, two blocks of what it becomes, and one block of A more, which waits for that. Groups that divide the
    depth have one block of the output more, for the sum.
    """
    packed, wide = weights.nbytes if weights else 0.0, bool(weights and weights.expand)
    buffers = (
        Buffer("a_in", (part.m, part.k), dtype, depth=2),
        Buffer("b_in", (part.k, part.n), dtype, depth=2, packed=packed),
        Buffer("a", (part.m, part.k), dtype, depth=3 if wide else 2),
        Buffer("b", (part.k, part.n), dtype, depth=2, packed=packed),
        Buffer("c", (part.m, part.n), dtype, depth=2),
        Buffer("sum", (part.m * (part.split > 1), part.n), dtype),
    )
    return (*buffers, Buffer("wide", (part.k, part.n), dtype, depth=2)) if wide else buffers


def build_program(
    shape: GemmShape,
    part: SummaTiling,
    mesh: CoreMesh,
    dtype: str = "float16",
    *,
    channels: int,
    copies: int = 1,
    weights: WeightStorage | None = None,
) -> Program:
    """Program of the busy tiles; arguments as in `block_counts`, whole numbers.

    Args:
        shape, part, mesh, copies: as of `block_counts`; the program's mesh is that of `busy_mesh`.
        dtype: of operands and output.
        weights: how B is stored; as A where it is None.
        channels: memory channels, at most one a column; a tile's are those of its column.
    """
    counts = block_counts(shape, part, mesh, copies)
    mesh = _busy(counts, part, mesh, copies)
    rows, cols = np.indices((mesh.rows, mesh.cols))
    row, col, first = np.arange(mesh.rows), np.arange(mesh.cols), np.arange(0, mesh.rows, part.rows)[:, None]
    # rows take turns among columns whatever their group, so that all channels have as much to do
    diagonal = {"a": CoreIndex(row, row % mesh.cols), "b": CoreIndex(first + col % part.rows, col)}
    loads = tuple(
        LoadInstruction(name, f"{name}_in", cores, cores.col * channels // mesh.cols) for name, cores in diagonal.items()
    )
    spreads = tuple(_multicast(name, along, mesh, part) for name, along in (("a", "row"), ("b", "column")))
    wide = dequantize_instructions("b", "wide", weights.expand) if weights and weights.expand else ()

    def build_chunk(combine: str, *, last: bool = False) -> tuple[Round, ...]:
        """Multicasts and products of a chunk, the next one being loaded meanwhile."""
        product = MultiplyInstruction("a", "wide" if wide else "b", "c", combine=combine)
        return Round((*spreads, *(() if last else loads))), *(Round((step,)) for step in wide), Round((product,))

    roots = slice(part.split // 2, None, part.split)
    stored, of_all = ("sum", CoreIndex(rows[roots], cols[roots])) if part.split > 1 else ("c", CoreIndex(rows, cols))
    store: tuple[Round, ...] = (Round((StoreInstruction("c", stored, of_all, of_all.col * channels // mesh.cols),)),)
    if part.split > 1:
        teams = MeshGroups(part.split, mesh.cols, "column", root=part.split // 2)
        store = (*hardware.reduction_rounds(teams, mesh, BufferRows("c", 0, part.m), "sum", into="sum"), *store)

    def build_wave(*, last: bool) -> tuple[tuple[Round, ...], tuple[Round, ...]]:
        """Rounds of the first chunk, and of the last one and the store."""
        begin, end = (
            build_chunk("set", last=last and counts.chunks == 1),
            build_chunk("sum", last=last) if counts.chunks > 1 else (),
        )
        return begin, (*end, *store)

    middle, more = max(counts.chunks - 2, 0), counts.waves - 1
    begin, end = build_wave(last=False)
    turns: tuple[Round | Loop, ...]
    if middle <= more:  # a loop over the turns, or over the chunks of each, whichever is longer
        turns = (Loop((*begin, *build_chunk("sum") * middle, *end), more),) if more else ()
    else:
        turns = (*begin, Loop(build_chunk("sum"), middle), *end) * more
    begin, end = build_wave(last=True)
    final = (*begin, *((Loop(build_chunk("sum"), middle),) if middle else ()), *end)
    return Program(mesh.rows, mesh.cols, buffers(part, dtype, weights), ((Round(loads), *turns, *final),))


def _multicast(name: str, along: str, mesh: CoreMesh, part: SummaTiling) -> MulticastInstruction:
    height, rows = (part.m, mesh.rows) if name == "a" else (part.k, part.rows)
    ends = np.asarray(0), np.asarray(height)
    return MulticastInstruction(
        f"{name}_in", team.group_members(MeshGroups(rows, mesh.cols, along), mesh), *ends, name, at=ends[0]
    )


def scatter_operands(a: Array, b: Array, part: SummaTiling, mesh: CoreMesh) -> dict[str, Array]:
    """Blocks of A and B by stream in loading order, with axes blocks, loading tiles, rows, columns.

    Args:
        a, b: shape (copies, m, k) and (copies, k, n).
        part, mesh: as of the program.
    """
    counts = block_counts(GemmShape(a.shape[1], a.shape[2], b.shape[2]), part, mesh, len(a))
    mesh = _busy(counts, part, mesh, len(a))
    groups = mesh.rows // part.rows
    padded_a = _padded(a, counts.down * part.rows * part.m, part.split * counts.chunks * part.k)
    padded_b = _padded(b, part.split * counts.chunks * part.k, counts.across * mesh.cols * part.n)
    # by copy, block down or across, share of K, chunk of it and tile
    cut_a = padded_a.reshape(-1, counts.down, part.rows, part.m, part.split, counts.chunks, part.k).transpose(
        0, 1, 4, 5, 2, 3, 6
    )
    cut_b = padded_b.reshape(-1, part.split, counts.chunks, part.k, counts.across, mesh.cols, part.n).transpose(
        0, 4, 1, 2, 5, 3, 6
    )
    copy, down, across = _items(counts, groups // part.split, len(a))
    # by turn, team and share in it, which are groups, chunk and tile; chunks first
    of_a, of_b = (
        blocks.reshape(counts.waves, groups, *blocks.shape[3:]).swapaxes(1, 2)
        for blocks in (cut_a[copy, down], cut_b[copy, across])
    )
    return {
        "a": of_a.reshape(counts.waves * counts.chunks, mesh.rows, part.m, part.k),
        "b": of_b.reshape(counts.waves * counts.chunks, groups, mesh.cols, part.k, part.n),
    }


def gather_result(stored: Array, shape: GemmShape, part: SummaTiling, mesh: CoreMesh, copies: int = 1) -> Array:
    """Products, shape (copies, m, n), from the stored blocks of all waves."""
    counts = block_counts(shape, part, mesh, copies)
    groups = _teams(part, _busy(counts, part, mesh, copies))
    blocks = stored.reshape(counts.waves, groups, part.rows, mesh.cols, part.m, part.n).transpose(0, 1, 2, 4, 3, 5)
    out = np.zeros((copies, counts.down, counts.across, part.rows * part.m, mesh.cols * part.n))
    copy, down, across = _items(counts, groups, copies)
    out[copy[::-1], down[::-1], across[::-1]] = blocks.reshape(counts.waves, groups, *out.shape[3:])[::-1]
    whole = out.transpose(0, 1, 3, 2, 4).reshape(copies, counts.down * out.shape[3], -1)
    return whole[:, : shape.m, : shape.n]


def _items(blocks: SummaBlocks, groups: int, copies: int) -> tuple[Array, Array, Array]:
    """Of each group in each turn, its product and the block down and across; the last one again where there is none left."""
    item = np.minimum(np.arange(blocks.waves * groups), copies * blocks.down * blocks.across - 1).reshape(blocks.waves, groups)
    return item // (blocks.down * blocks.across), item // blocks.across % blocks.down, item % blocks.across


def _padded(matrices: Array, rows: int, cols: int) -> Array:
    return np.pad(matrices, ((0, 0), (0, rows - matrices.shape[1]), (0, cols - matrices.shape[2])))
