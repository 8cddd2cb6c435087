"""Time of attention on groups of tiles, in closed form; leaves broadcast over designs.

Blocking, an item takes what its rounds take one after the other:

    load(Q, K) + spread(Q) + sum over blocks of keys [spread(K) + max(Q K^T, load(V)) + softmax + spread(V) + max(P V, load(K))]
    + divide + sums(O)

With two strands the time is that of what is busiest (the matrix engine, the vector engine, a memory channel), or of one
strand's items one after the other, and what nothing is beside: the first loads, and what comes after the last product.
"""

from typing import Any, NamedTuple

from evaluators.counts import Activity
from evaluators.kernels.attention.dataflow import Dataflow, waves
from evaluators.kernels.attention.shape import Heads, Tiling, cut
from evaluators.kernels.collective import TEAMS
from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm.tiling import Mesh, Shape
from evaluators.kernels.table import tabulated
from evaluators.machine.engine import Engines
from evaluators.machine.fabric import VALUE, Fabric
from evaluators.rounds import FUNCTIONS
from space.elementwise import ceil_div, maximum, where

STATISTIC = 4.0
"""Bytes of a maximum or sum of a row."""


class Memory(NamedTuple):
    """Channels below the columns of a mesh.

    Attributes:
        count: how many.
        latency: from a request at the channel to its first word. [s]
        byte, crowded: of a block alone, and of one that waits for others. [s/B]
    """

    count: Any
    latency: Any
    byte: Any
    crowded: Any


class Spent(NamedTuple):
    """Seconds of one item on the critical path of a tile that blocks, by what they go into.

    Attributes:
        hbm: waiting for blocks, of which `opening` is for the first ones.
        spread, combined: multicasts of operands; sums, maxima and their way back.
        vector, matrix: that engines work.
        channel: that the busiest channel works for as many items as it serves at a time.
        ends: after the last item.
    """

    hbm: Any
    opening: Any
    spread: Any
    combined: Any
    vector: Any
    matrix: Any
    channel: Any
    ends: Any

    @property
    def seconds(self) -> Any:
        """Of the item."""
        return self.hbm + self.spread + self.combined + self.vector + self.matrix


def cost(
    of: Dataflow,
    shape: Heads,
    tiling: Tiling,
    mesh: Mesh,
    fabric: Fabric,
    engines: Engines,
    memory: Memory,
    itemsize: float = 2.0,
) -> Cost:
    """Time and activity; arguments as of `item`."""
    spent = item(of, shape, tiling, mesh, fabric, engines, memory, itemsize)
    return Cost(_seconds(of, shape, tiling, mesh, spent), _activity(of, shape, tiling, mesh, itemsize))


def exchange(
    of: Dataflow,
    shape: Heads,
    tiling: Tiling,
    mesh: Mesh,
    fabric: Fabric,
    engines: Engines,
    memory: Memory,
    itemsize: float = 2.0,
) -> Any:
    """Time that falls away where tiles exchange for nothing. [s]"""
    spent = item(of, shape, tiling, mesh, fabric, engines, memory, itemsize)
    at = (of, shape, tiling, mesh)
    return _seconds(*at, spent) - _seconds(*at, spent._replace(combined=0.0, spread=0.0))


def split(
    of: Dataflow,
    shape: Heads,
    tiling: Tiling,
    mesh: Mesh,
    fabric: Fabric,
    engines: Engines,
    memory: Memory,
    itemsize: float = 2.0,
) -> dict[str, Any]:
    """The time by what it goes into: what falls away when that is free, in turn; the rest is products. Words are `PARTS`."""
    at = (of, shape, tiling, mesh)
    found, before = {}, _seconds(*at, item(*at, fabric, engines, memory, itemsize))
    spent = item(*at, fabric._replace(stage=0.0), engines, memory, itemsize)
    free: tuple[dict[str, Any], ...] = (
        {},
        {"combined": 0.0},
        {"spread": 0.0},
        dict.fromkeys(("hbm", "opening", "channel", "ends"), 0.0),
        {"vector": 0.0},
    )
    for name, fields in zip(PARTS, free, strict=False):
        spent = spent._replace(**fields)
        after = _seconds(*at, spent)
        found[name], before = before - after, after
    return found | {PARTS[-1]: before}


PARTS = ("synchronisation", "reduction", "multicast", "hbm", "vector", "matrix")
"""What takes time: stages of software; statistics and outputs, and statistics on their way back; operands; memory; engines."""


def _seconds(of: Dataflow, shape: Heads, tiling: Tiling, mesh: Mesh, spent: Spent) -> Any:
    waves_ = cut(shape, tiling, mesh).waves
    if of.strands == 1:
        return maximum(waves_ * spent.seconds, waves_ * spent.channel) + spent.ends
    beside = spent.spread + spent.combined + spent.vector
    busiest = maximum(maximum(spent.matrix, spent.vector), spent.channel)
    alone = ceil_div(waves_, 2) * (beside + spent.matrix)
    blocks = _blocks(shape, tiling, mesh)[0] / waves_
    return maximum(waves_ * busiest + beside / maximum(blocks, 1.0), alone) + spent.opening + spent.ends


def item(
    of: Dataflow, shape: Heads, tiling: Tiling, mesh: Mesh, fabric: Fabric, engines: Engines, memory: Memory, itemsize: float
) -> Spent:
    """What one item of a group costs, on average.

    Args:
        of: the dataflow.
        shape, tiling, mesh: sizes; a causal mask's blocks are counted.
        fabric, engines, memory: of the machine.
        itemsize: bytes of an operand's value.
    """
    m, n, width = tiling.queries, tiling.keys, shape.key_dim + shape.v * (1 if shape.latent else 0)
    blocks, masked = (total / cut(shape, tiling, mesh).waves for total in _blocks(shape, tiling, mesh))
    later = blocks - 1

    def vector(function: str, elements: Any, moved: Any) -> Any:
        what = FUNCTIONS[function]
        busy = engines.instruction(elements * what.operations, elements * what.specials, moved)
        return busy + engines.vector.call / engines.clock

    def team(pattern: str, along: str, elements: Any) -> Any:
        seconds = _team(of, mesh, tiling, fabric, pattern, along, elements).seconds
        return where((tiling.cols if along == "row" else tiling.rows) > 1, seconds, 0.0)

    values = itemsize / VALUE  # collectives count in values of two bytes
    scores, outputs = m * n, m * shape.v
    product = engines.started(m, shape.key_dim, n, itemsize)
    if shape.latent:
        product = product + engines.started(m, shape.v, n, itemsize)
    result = engines.started(m, n, shape.v, itemsize)
    statistic = m * STATISTIC
    combined = team("allreduce", "row", m * STATISTIC / VALUE)
    softmax = (
        vector("largest", scores, scores * itemsize + statistic)
        + vector("exponentials", scores, 2 * scores * itemsize + statistic)
        + vector("total", scores, scores * itemsize + statistic)
    )
    again = (
        vector("larger", m, 3 * statistic)
        + vector("exponentials", m, 3 * statistic)
        + vector("decayed", m, 4 * statistic)
        + vector("scale", outputs, 2 * outputs * itemsize + statistic)
    )
    mask = vector("mask", scores, 2 * scores * itemsize)
    scaled = vector("scale", m * width, 2 * m * width * itemsize) * (2 if shape.latent else 1)
    divided = vector("divide", outputs, 2 * outputs * itemsize + statistic)
    q_bytes, k_bytes, v_bytes = m * width * itemsize, n * shape.key_dim * itemsize, n * shape.v * itemsize
    counts = cut(shape, tiling, mesh)
    # groups that a channel serves at a time: those in a column of groups, or fewer where some have no item
    columns = maximum(ceil_div(mesh.cols, memory.count) * counts.items / counts.waves / (mesh.cols // tiling.cols), 1.0)
    rows = ceil_div(tiling.rows, tiling.cols)  # of a group, whose queries one tile loads
    ways = 2 * (fabric.ramp + (mesh.rows - 1) * fabric.hop) + memory.latency + fabric.post
    stored = rows * outputs * itemsize * memory.byte

    # tiles by themselves drift apart until none waits for another; the tiles of a group hold each other back
    together = where(tiling.rows * tiling.cols > 1, columns, 1.0)

    def load(keys: Any, queries: Any = 0.0) -> Any:
        """Of as many groups as go together; the first block is served alone, others as they wait."""
        return (
            ways + together * (keys + rows * queries) * memory.crowded - maximum(keys, queries) * (memory.crowded - memory.byte)
        )

    def waited(nbytes: Any, behind: Any) -> Any:
        return maximum(load(nbytes) - behind, 0.0)

    if shape.latent:
        opening = load(0.0 * k_bytes, q_bytes)
        hbm = opening + stored + blocks * load(k_bytes + v_bytes)
    else:
        opening = load(k_bytes, q_bytes)
        hbm = opening + stored + blocks * waited(v_bytes, product) + later * waited(k_bytes, result)
    spread = team("multicast", "row", m * width * values) + blocks * (
        team("multicast", "column", n * shape.key_dim * values) + team("multicast", "column", n * shape.v * values)
    )
    nbytes = columns * (rows * (q_bytes + outputs * itemsize) + blocks * (k_bytes + v_bytes))
    return Spent(
        hbm=hbm,
        opening=opening,
        spread=spread,
        combined=2 * blocks * combined + team("reduce", "row", outputs * values),
        vector=blocks * softmax + later * again + masked * mask + scaled + divided,
        matrix=blocks * (product + result),
        channel=nbytes * where(columns * rows > 1, memory.crowded, memory.byte),
        ends=fabric.post + fabric.ramp + (mesh.rows - 1) * fabric.hop + columns * stored,
    )


def _activity(of: Dataflow, shape: Heads, tiling: Tiling, mesh: Mesh, itemsize: float) -> Activity:
    """What the steps count: groups without an item in the last turn multiply and exchange as well, but load nothing."""
    counts, (blocks, masked) = cut(shape, tiling, mesh), _blocks(shape, tiling, mesh)
    m, n, waves_ = tiling.queries, tiling.keys, counts.waves
    width = shape.key_dim + shape.v * (1 if shape.latent else 0)
    tiles, later = mesh.rows * mesh.cols, blocks - waves_
    instructions = (3 * blocks + masked) * m * n + 3 * later * m + (later + waves_) * m * shape.v + waves_ * m * width
    values = itemsize / VALUE
    total = Activity()
    for pattern, along, elements, times in (
        ("multicast", "row", m * width * values, waves_),
        ("multicast", "column", n * (shape.key_dim + shape.v) * values, blocks),
        ("allreduce", "row", 2 * m * STATISTIC / VALUE, blocks),
        ("reduce", "row", m * shape.v * values, waves_),
    ):
        total = total + _exchanged(of, mesh, tiling, pattern, along, elements) * times
    loaded = _loads(shape, tiling, mesh) * tiling.cols * n * (shape.key_dim + shape.v) * itemsize
    moved = counts.items * tiling.rows * m * itemsize * (width + shape.v)
    # queries are loaded in every row alike; keys in the rows of the diagonal
    times, rest = tiling.cols // tiling.rows, tiling.cols % tiling.rows
    up = (times * tiling.rows * (tiling.rows - 1) + rest * (rest - 1)) / (2 * tiling.cols)
    hops = moved * (mesh.rows - 1) / 2 + loaded * (mesh.rows - 1 - (mesh.rows - tiling.rows) / 2 - up)
    of_memory = Activity(
        macs=tiles * blocks * m * n * (shape.qk + shape.v), elements=tiles * instructions, memory_bytes=loaded + moved
    )
    return total + of_memory + Activity(hop_bytes=hops)


def _exchanged(of: Dataflow, mesh: Mesh, tiling: Tiling, pattern: str, along: str, elements: Any) -> Activity:
    return _team(of, mesh, tiling, _FREE, pattern, along, elements).activity


def _team(of: Dataflow, mesh: Mesh, tiling: Tiling, fabric: Fabric, pattern: str, along: str, elements: Any) -> Cost:
    """A collective along the rows or columns of all groups, the diagonal being their roots."""
    found: Cost = TEAMS[of.collective].cost(
        Shape(elements, 1, 1), mesh, fabric, pattern=pattern, along=along, rows=tiling.rows, cols=tiling.cols
    )
    return found


_FREE = Fabric(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, word_bytes=1.0)
"""A network that counts."""


def _blocks(shape: Heads, tiling: Tiling, mesh: Mesh) -> tuple[Any, Any]:
    """Blocks of keys of all waves, and those of them that are masked."""
    counts = cut(shape, tiling, mesh)
    if not shape.causal:
        whole = shape.keys // (tiling.cols * tiling.keys)
        return counts.waves * counts.inner, counts.waves * (counts.inner - whole)
    keys = _keys(shape, tiling, mesh)
    return _causal(*keys), _masked(*keys)


def _loads(shape: Heads, tiling: Tiling, mesh: Mesh) -> Any:
    """Blocks of keys that groups load, all together."""
    counts = cut(shape, tiling, mesh)
    return _loaded(*_keys(shape, tiling, mesh)) if shape.causal else counts.items * counts.inner


def _keys(shape: Heads, tiling: Tiling, mesh: Mesh) -> tuple[Any, ...]:
    sizes = (shape.problems, shape.shared, shape.queries, shape.keys)
    return (*sizes, tiling.rows, tiling.cols, tiling.queries, tiling.keys, mesh.rows, mesh.cols)


@tabulated
def _causal(*keys: int) -> float:
    return float(sum(wave.inner for wave in _waves(*keys)))


@tabulated
def _masked(*keys: int) -> float:
    return float(sum(wave.inner - wave.plain for wave in _waves(*keys)))


@tabulated
def _loaded(*keys: int) -> float:
    return float(sum(wave.inner * wave.active for wave in _waves(*keys)))


def _waves(problems: int, shared: int, queries: int, keys: int, *rest: int) -> Any:
    rows, cols, m, n, *sides = rest
    return waves(Heads(problems, shared, 1, queries, keys, 1, 1, causal=True), Tiling(rows, cols, m, n), Mesh(*sides))
