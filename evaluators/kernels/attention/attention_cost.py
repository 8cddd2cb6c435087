"""Time of attention on groups of tiles by the analytical model; leaves broadcast over designs.

Blocking, an item takes what its rounds take one after the other:

    load(Q, K) + spread(Q) + sum over blocks of keys [spread(K) + max(Q K^T, load(V)) + softmax + spread(V) + max(P V, load(K))]
    + divide + sums(O)

but for what is `hidden`: keys of a next block are spread while those of the group that heard of values last multiply these, and
tiles that are no root of a row load an item's first keys while outputs before it are summed.

With two strands the time is that of what is busiest (the matrix engine, the vector engine, a memory channel), or of one
strand's items one after the other, and what nothing is beside: the first loads, and what comes after the last product; of an
odd number of items, all of the last one. Strands whose weights take longer than products go in step: each multiplies values
after the other one has, and before either goes on with its next keys, so that a block but the last takes two P V.
`LoadWaits` says what loads are beside, `work_left` what a busy channel leaves.

Where keys are split, the merge of `split_kv_merge` follows. Where two blocks of queries share keys and values, `paired_queries`
has the time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels import dequantization as expanded
from dse.evaluators.kernels.attention import channel_contention as served
from dse.evaluators.kernels.attention import paired_queries as paired
from dse.evaluators.kernels.attention import split_kv_merge as merge
from dse.evaluators.kernels.attention.attention_shape import (
    NUMBER_BYTES,
    SAME_AS_ACTIVATIONS,
    AttentionShape,
    AttentionTiling,
    BlockCounts,
    KvStorage,
    block_counts,
    busy_tiles,
)
from dse.evaluators.kernels.attention.block_schedule import key_blocks_loaded, key_blocks_passed
from dse.evaluators.kernels.attention.block_vector_times import STATISTIC, time_block_vectors
from dse.evaluators.kernels.attention.dataflow import Dataflow, is_paired, tiling_of_pairs
from dse.evaluators.kernels.attention.paired_queries import PAIRED, PairedBlockTimes
from dse.evaluators.kernels.attention.split_kv_merge import WIDE, MergePlan
from dse.evaluators.kernels.attention.time_parts import (
    ItemTimes,
    LoadWaits,
    SplitKvTimes,
    first_values_wait,
    split_kv_seconds,
    work_left,
)
from dse.evaluators.kernels.collective import TEAMS
from dse.evaluators.kernels.collective.core_groups import AGAIN
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.memory_channels import ColumnMemory
from dse.evaluators.machine.mesh_fabric import VALUE, MeshFabric
from dse.evaluators.program.activity import Activity
from dse.space.array_math import ceil_div, floor_div, maximum, minimum, remainder, where

ROUNDING_MARGIN = 1 - 1e-9
"""Of a bound that is worked out in another order than what it bounds: far more than both round."""


OperandBytes = tuple[Any, Any, Any, Any]


class AttentionTask(NamedTuple):
    """Attention of one shape by one dataflow and tiling on a mesh; leaves broadcast over designs.

    Attributes:
        of: the dataflow.
        shape, tiling, mesh: sizes; a causal mask's blocks are counted.
        itemsize: bytes of an operand's value.
        pace: time of keys and values that were selected over that of ones that follow one another.
        kv: how keys and values are stored.
    """

    of: Dataflow
    shape: AttentionShape
    tiling: AttentionTiling
    mesh: CoreMesh
    itemsize: float = VALUE
    pace: Any = 1.0
    kv: KvStorage = SAME_AS_ACTIVATIONS

    @property
    def counts(self) -> BlockCounts:
        """Numbers of groups, blocks, items and waves of this attention. [-]"""
        return block_counts(self.shape, self.in_turns, self.mesh)

    @property
    def in_turns(self) -> AttentionTiling:
        """Tiling as waves count it: two paired blocks of queries are one of twice the size."""
        return tiling_of_pairs(self.of, self.shape, self.tiling)

    @property
    def paired_blocks(self) -> Any:
        """Blocks of queries of one item: 2 where they share keys and values, else 1. [-]"""
        return where(is_paired(self.of, self.shape, self.tiling), 2, 1) if self.of.paired else 1

    @property
    def width(self) -> Any:
        """Columns of queries: those of keys, and those of latent values. [-]"""
        return self.shape.key_dim + self.shape.v * (1 if self.shape.latent else 0)

    @property
    def blocks(self) -> tuple[Any, Any]:
        """Blocks of keys of an item, mean over items, and those of them with a causal mask. [-]"""
        waves_ = self.counts.waves
        blocks, masked = key_blocks_passed(self.shape, self.in_turns, self.mesh)
        return blocks / waves_, masked / waves_

    @property
    def nbytes(self) -> OperandBytes:
        """Bytes of one tile's slices of Q, K, V and O. [B]"""
        m, n, each, kv = self.tiling.queries, self.tiling.keys, self.itemsize, self.kv.value_bytes(self.itemsize)
        outputs = m * self.shape.v * where(self.partial, WIDE, each)
        return m * self.width * each, n * self.shape.key_dim * kv, n * self.shape.v * kv, outputs

    @property
    def numbers(self) -> Any:
        """Bytes of the row numbers that select a slice of keys. [B]"""
        return self.tiling.keys * NUMBER_BYTES * where(self.shape.piece > 0, 1.0, 0.0) if self.shape.has_selected_rows else 0.0

    @property
    def partial(self) -> Any:
        """Whether the keys of an item are split into parts whose outputs a merge adds up."""
        return self.of.split and self.counts.parts > 1

    @property
    def merge(self) -> MergePlan:
        """Plan of the merge that adds up the partial outputs of split keys."""
        return merge.plan_merge(self.shape, self.tiling, self.mesh)

    @property
    def stored_bytes(self) -> Any:
        """Bytes that a row of a group's tiles stores per item; with split keys also maxima and sums. [B]"""
        outputs = self.nbytes[3]
        return outputs + where(self.partial, 2 * self.tiling.queries * STATISTIC, 0.0) if self.of.split else outputs


class TileMachine(NamedTuple):
    """Parts of a tile chip that attention time depends on: network, engines of a tile, memory."""

    fabric: MeshFabric
    engines: TileEngines
    memory: ColumnMemory


class ItemCounts(NamedTuple):
    """Counts and sizes of an average item that do not depend on the machine, as in `AttentionTask`."""

    counts: BlockCounts
    blocks: Any
    masked: Any
    nbytes: OperandBytes


class ItemWork(NamedTuple):
    """Counts of an average item, and the times of its tiles without memory; leaves broadcast over designs.

    Attributes:
        counts: as of `AttentionTask`.
        blocks, nbytes: as of `AttentionTask`.
        product, result: Q K^T and P V of a block of keys. [s]
        spread, combined, vector, behind, sent, softmax, divided, statistics, outputs: as of `ItemTimes`.
    """

    counts: BlockCounts
    blocks: Any
    nbytes: OperandBytes
    product: Any
    result: Any
    spread: Any
    combined: Any
    vector: Any
    behind: Any
    sent: Any
    softmax: Any
    divided: Any
    statistics: Any
    outputs: Any
    spread_queries: Any
    spread_keys: Any
    spread_values: Any


def attention_cost(task: AttentionTask, machine: TileMachine) -> KernelCost:
    """Time [s] and activity of attention on groups of tiles."""
    return KernelCost(attention_seconds(task, machine), attention_activity(task))


def attention_seconds(task: AttentionTask, machine: TileMachine, work: ItemWork | None = None) -> Any:
    """Time of attention on groups of tiles; with a known `work` only memory is evaluated. [s]

    Of keys and values that are stored apart it does not shrink where times of products, vector instructions, messages or bytes
    grow, with one tiling and as many channels, so that bounds over boxes of tiles rest on it. Most parts are summands or of
    maxima. What is subtracted comes back in the same sum:

        blocks max(load - product, 0) + blocks product = blocks max(load, product), of values; of keys likewise
        late + max(queued - late, 0) = max(late, queued)
        spread + behind, of which `behind` has subtracted what `spread` has
        spread(V) + wait(K) + spread(K) - min(spread(V), wait(K) + spread(K)) = max(spread(V), wait(K) + spread(K)), `hidden`
        loads(K) + sums(O) - min(loads(K), sums(O)) = max(loads(K), sums(O)), the rest of `hidden`
        waves x channel + left, of which `left` has subtracted the last values
        together (keys + rows queries) crowded - max(keys, queries) (crowded - byte), where together x rows is at least 1

    Others do not, of which a box (`TileEngines.least`) has a lower bound. `again` is left out, since it shrinks where products
    are longer. So are the weights of a last item that no product is beside. What is behind keys, queries and results is behind
    them whole. `queued` is subtracted from what is left of a block with the rate of the channel's own time. That is no less
    than that of a block alone, so that waves x channel grows by more. Where roots of multicasts send for longer than an item
    takes, `behind` is left out.
    """
    work = work or item_work(task, *machine[:2])
    return _seconds(task, _spent(task, machine, work), work)


def own_bytes(task: AttentionTask) -> Any:
    """Bytes between memory and tiles for queries and outputs, with partial outputs written and read. [B]"""
    merged = merge.merge_activity(task.merge, task.mesh, task.itemsize).memory_bytes if task.of.split else 0.0
    items = task.paired_blocks * task.counts.items
    return items * task.tiling.rows * (task.nbytes[0] + task.stored_bytes) + where(task.partial, merged, 0.0)


def exchange_seconds(task: AttentionTask, machine: TileMachine) -> Any:
    """Attention time saved if exchanges between tiles took no time. [s]"""
    work = item_work(task, *machine[:2])
    spent = _spent(task, machine, work)
    free = _free(spent, dict.fromkeys(("combined", "statistics", "outputs", "spread", "hidden", "behind", "sent"), 0.0))
    return _seconds(task, spent, work) - _seconds(task, free, work)


def time_by_resource(task: AttentionTask, machine: TileMachine) -> dict[str, Any]:
    """Attention time by resource of `TIME_PARTS`, saved by freeing each in turn; the rest is products. [s]"""
    seconds, before = {}, attention_seconds(task, machine)
    machine = machine._replace(fabric=machine.fabric._replace(stage=0.0))
    work = item_work(task, *machine[:2])
    spent = _spent(task, machine, work)
    free: tuple[dict[str, Any], ...] = (
        {},
        {"combined": 0.0, "statistics": 0.0, "outputs": 0.0},
        {"spread": 0.0, "hidden": 0.0, "behind": 0.0, "sent": 0.0},
        dict.fromkeys(("hbm", "opening", "channel", "ends", "late", "away", "queued", "first_word", "last_values"), 0.0)
        | {"turns": SplitKvTimes(), "apart": _apart(task, machine, idle=True)},
        {"vector": 0.0, "softmax": 0.0, "divided": 0.0, "apart": 0.0},
    )
    for name, fields in zip(TIME_PARTS, free, strict=False):
        spent = _free(spent, fields)
        after = _seconds(task, spent, work)
        seconds[name], before = before - after, after
    return seconds | {TIME_PARTS[-1]: before}


def _free(spent: ItemTimes, fields: dict[str, Any]) -> ItemTimes:
    """With some of it for nothing."""
    pair = spent.pair and spent.pair._replace(**{name: 0.0 for field in fields for name in PAIRED.get(field, ())})
    return spent._replace(**fields, pair=pair)


TIME_PARTS = ("synchronisation", "reduction", "multicast", "hbm", "vector", "matrix")
"""What takes time: stages of software; statistics and outputs, and statistics on their way back; operands; memory; engines."""


def item_counts(task: AttentionTask) -> ItemCounts:
    """Counts of one item of a group, mean over items."""
    return ItemCounts(task.counts, *task.blocks, task.nbytes)


def item_work(
    task: AttentionTask, fabric: MeshFabric, engines: TileEngines, given_counts: ItemCounts | None = None
) -> ItemWork:
    """Time parts of one item of a group, mean over items; `given_counts` may give its known counts."""
    counts, blocks, masked, nbytes = given_counts or item_counts(task)
    spread, statistics, outputs, behind, sent, queries, keys, values = _exchanges(task, fabric, blocks, nbytes)
    weights, scaled, divided = _vectors(task, engines, blocks, masked)
    vector, turns_ = weights + scaled + divided, maximum(blocks, 1.0)
    product, result = _products(task, engines)
    combined = blocks * statistics + outputs
    if task.of.strands > 1:  # sums of the first weights go while these multiply values, unless values are spread after them
        hidden = statistics / 2 if engines.least is not None else minimum(statistics / 2, result)
        combined = combined - where(task.tiling.rows > 1, 0.0, hidden)
    return ItemWork(
        counts, blocks, nbytes, product, result, spread, combined, vector, behind, sent, weights / turns_, divided,
        statistics, outputs, queries, keys, values,
    )  # fmt: skip


def bound_inputs(tiling: AttentionTiling, given_counts: ItemCounts) -> tuple[Any, Any]:
    """Inputs of the lower bound: sequential blocks of keys [-], bytes from and to memory of all tiles [B]."""
    (q_bytes, k_bytes, v_bytes, o_bytes), counts = given_counts.nbytes, given_counts.counts
    each = tiling.rows * (q_bytes + o_bytes) + tiling.cols * given_counts.blocks * (k_bytes + v_bytes)
    return counts.waves * given_counts.blocks, counts.items * each


def time_lower_bound(task: AttentionTask, engines: TileEngines, memory: ColumnMemory) -> tuple[Any, Any]:
    """Lower bounds on the time of one block of keys [s] and of one byte from memory [s/B].

    A candidate takes the former for each block of keys in turn, or the latter for all bytes, as they come evenly over all
    channels. [s], [s/B]
    """
    byte = minimum(memory.byte, memory.crowded) * minimum(task.pace, 1.0) / memory.count
    return sum(_products(task, engines)) * ROUNDING_MARGIN, byte * ROUNDING_MARGIN


def _spent(task: AttentionTask, machine: TileMachine, work: ItemWork) -> ItemTimes:
    """What one item of a group costs, on average."""
    hbm, opening, channel, ends, turns_, late, away, queued, first_word, last_values, hidden = _memory(task, machine, work)
    matrix = work.blocks * (work.product + work.result)
    pair = _pair(task, machine, work, channel) if np.any(task.paired_blocks == 2) else None
    return ItemTimes(
        hbm, opening, work.spread, work.combined, work.vector, matrix, channel, ends, turns_, _apart(task, machine), late, away,
        work.behind, work.sent, queued, pair, machine.engines.least is not None, first_word, last_values, work.softmax,
        work.divided, work.statistics, work.outputs, hidden,
    )  # fmt: skip


def _apart(task: AttentionTask, machine: TileMachine, *, idle: bool = False) -> Any:
    """Time of the pass that puts parts together; with idle, where memory takes none."""
    if not np.any(task.partial):
        return 0.0
    taken = merge.merge_seconds(
        task.merge, task.mesh, machine.fabric, machine.engines, None if idle else machine.memory, task.itemsize
    )
    return where(task.partial, taken, 0.0)


def _seconds(task: AttentionTask, spent: ItemTimes, work: ItemWork) -> Any:
    waves_ = work.counts.waves
    if spent.pair is not None:
        two_heads = _seconds(task, spent._replace(pair=None), work)
        return where(
            task.paired_blocks == 2, paired.paired_seconds(spent.pair, waves_, work.blocks, latent=task.shape.latent), two_heads
        )
    left = spent.first_word + maximum(
        work_left(spent, work.product, work.result, latent=task.shape.latent, blocking=task.of.strands == 1) - spent.queued, 0.0
    )
    channels = waves_ * spent.channel + left + spent.away
    if task.of.strands == 1:
        items = waves_ * maximum(spent.seconds, spent.sent) + spent.behind
        if spent.of_box:  # longer messages may leave the last tile less behind, but not by more than each item grows
            items = maximum(waves_ * spent.seconds + spent.behind, waves_ * spent.sent)
        items = items + spent.late + spent.ends
        whole = served.overlapped_seconds(items, channels)
        return where(task.partial, split_kv_seconds(spent, waves_, left), whole) + spent.apart if task.of.split else whole
    item, odd = spent.seconds - spent.opening, remainder(waves_, 2)
    # of the last two items one's weights are computed beside the other's products; a last one alone has nothing beside
    last = spent.spread + spent.vector - maximum(work.blocks, 1.0) * spent.softmax + spent.outputs
    if not spent.of_box:  # less where products are longer, which may be beside longer vector instructions
        last = last + maximum(spent.softmax + spent.statistics - work.result, 0.0)
    engines = (waves_ - odd) * maximum(spent.matrix, spent.vector) + where(odd > 0, item, last)
    # in step, products of values of one strand go before the other one's next scores
    alone = ceil_div(waves_, 2) * item + (waves_ - odd) / 2 * (maximum(work.blocks, 1.0) - 1) * work.result
    tiles = minimum(maximum(engines, alone), waves_ * item) + spent.opening + spent.late + spent.ends + spent.behind
    return served.overlapped_seconds(tiles, channels, served.AHEAD) + spent.apart


def _products(task: AttentionTask, engines: TileEngines) -> tuple[Any, Any]:
    """Time of Q K^T and of P V of a block of keys."""
    shape, m, n, each = task.shape, task.tiling.queries, task.tiling.keys, task.kv.multiplied_bytes(task.itemsize)
    product = 0.0 if shape.bare else engines.product_with_start(m, shape.key_dim, n, each)
    if shape.latent:
        product = product + engines.product_with_start(m, shape.v, n, each)
    return product, engines.product_with_start(m, n, shape.v, each)


def _vectors(task: AttentionTask, engines: TileEngines, blocks: Any, masked: Any) -> tuple[Any, Any, Any]:
    """Time of an item's vector instructions, algorithm 2 lines 11 to 28: of blocks of keys, queries and outputs."""
    softmax, again, mask, scaled, divided = time_block_vectors(task.shape, task.tiling, task.itemsize, task.partial, engines)
    return blocks * (softmax + sum(_expanded(task, engines))) + (blocks - 1) * again + masked * mask, scaled, divided


def _expanded(task: AttentionTask, engines: TileEngines) -> tuple[Any, Any]:
    """Time in which a tile makes of a block of keys, and of one of values, what it multiplies; a sequence each."""
    if not task.kv.expand:
        return 0.0, 0.0
    keys, values = (task.tiling.keys * columns for columns in (task.shape.key_dim, task.shape.v))
    how: tuple[Any, ...] = (task.kv.nbytes, task.kv.expand, task.itemsize, engines)
    return 0.0 if task.shape.bare else expanded.dequantize_seconds(keys, *how), expanded.dequantize_seconds(values, *how)


def _exchanges(task: AttentionTask, fabric: MeshFabric, blocks: Any, nbytes: OperandBytes) -> tuple[Any, ...]:
    """Time of an item's multicasts; then `statistics`, `outputs`, `behind` and `sent` of `ItemTimes`; of Q, K and V."""
    queries, keys, values, statistics, outputs, behind, sent = _exchange_times(task, fabric, nbytes)
    return queries + blocks * (keys + values), 2 * statistics, outputs, behind, blocks * sent, queries, keys, values


def _exchange_times(task: AttentionTask, fabric: MeshFabric, nbytes: OperandBytes) -> tuple[Any, Any, Any, Any, Any, Any, Any]:
    """Of queries, keys and values; of maxima, or sums, there and back; of outputs; `behind`, and `sent` of a block, of
    `ItemTimes`.

    Tiles go on when they have heard. Keys and values take until those have them from which others come, on the diagonal; what
    comes back of a maximum takes until the next sum begins with those that have heard first. The others are behind, once.
    """
    q_bytes, k_bytes, v_bytes, o_bytes = nbytes
    rows, cols = task.tiling.rows, task.tiling.cols
    collective = TEAMS[task.of.collective]

    def time_collective(pattern: str, along: str, nbytes: Any) -> Any:
        shape, sides = GemmShape(nbytes / VALUE, 1, 1), {"along": along, "rows": rows, "cols": cols}
        if pattern == "lead":
            taken = collective.multicast_lead_time(shape, fabric, time_turn, **sides)
        elif pattern == "send":
            taken = collective.multicast_send_time(shape, fabric, **sides)
        else:
            taken = collective.seconds(shape, fabric, pattern=pattern, **sides)
        return where(((cols if along == "row" else rows) > 1) & (nbytes > 0), taken, 0.0)

    def time_turn() -> Any:
        """Time of a message of a sum along rows."""
        return time_collective("reduce", "row", task.tiling.queries * STATISTIC) / maximum(cols - 1.0, 1.0)

    keys, values = (time_collective("lead", "column", nbytes) for nbytes in (k_bytes, v_bytes))
    statistics = time_collective(AGAIN, "row", task.tiling.queries * STATISTIC)
    last = time_collective("multicast", "column", v_bytes) - values
    sent = sum(time_collective("send", "column", nbytes) for nbytes in (k_bytes, v_bytes))
    queries = time_collective("multicast", "row", q_bytes)
    return queries, keys, values, statistics, time_collective("reduce", "row", o_bytes), last, sent


def _pair(task: AttentionTask, machine: TileMachine, work: ItemWork, channel: Any) -> PairedBlockTimes:
    """What two blocks of queries that share keys and values cost."""
    q_bytes, k_bytes, v_bytes, o_bytes = work.nbytes
    queries, keys, values, statistics, outputs, *_ = _exchange_times(task, machine.fabric, work.nbytes)
    softmax, again, mask, scaled, divided = time_block_vectors(
        task.shape, task.tiling, task.itemsize, task.partial, machine.engines
    )
    blocks = maximum(work.blocks, 1.0)
    masked = task.blocks[1] / blocks
    load, load_seconds = _loading(task, machine, work)
    keys_made, values_made = _expanded(task, machine.engines)
    rows = served.diagonal_rows_served(task.tiling, task.mesh, machine.memory.count)
    return PairedBlockTimes(
        product=work.product,
        result=work.result,
        softmax=softmax + again * (blocks - 1) / blocks + masked * mask,
        scaled=scaled,
        divided=divided,
        statistics=2 * statistics,
        outputs=outputs,
        spread_queries=queries,
        spread_keys=keys,
        spread_values=values,
        load_queries=load(2 * rows * q_bytes),
        load_keys=0.0 if task.shape.bare else load(k_bytes),
        load_values=load(v_bytes),
        channel=channel,
        stored=load_seconds + 2 * rows * o_bytes * machine.memory.byte,
        queued=paired.queued_seconds(
            load(2 * rows * o_bytes) - load(0.0 * o_bytes),
            2 * rows * o_bytes,
            rows,
            machine.memory.byte,
            of_box=machine.engines.least is not None,
        ),
        way=load_seconds + load(0.0 * o_bytes),
        idle=load(0.0 * o_bytes),
        last_values=load(v_bytes) - load(0.0 * o_bytes),
        expand_keys=keys_made,
        expand_values=values_made,
    )


def _loading(task: AttentionTask, machine: TileMachine, work: ItemWork) -> tuple[Callable[[Any], Any], Any]:
    """Time until blocks of so many bytes have come to as many groups as go together; until what is stored has gone."""
    mesh, fabric, memory = busy_tiles(work.counts, task.tiling, task.mesh), machine.fabric, machine.memory
    columns = served.mean_columns_served(work.counts, task.tiling, mesh, memory.count)
    way = fabric.ramp + fabric.edge_seconds(mesh.rows)

    def time_load(nbytes: Any) -> Any:
        return (
            2 * way + memory.latency + fabric.post + columns * nbytes * memory.crowded - nbytes * (memory.crowded - memory.byte)
        )

    return time_load, fabric.post + way


def _memory(
    task: AttentionTask, machine: TileMachine, work: ItemWork
) -> tuple[Any, Any, Any, Any, SplitKvTimes, Any, Any, Any, Any, Any, Any]:
    """Fields `hbm`, `opening`, `channel`, `ends`, `turns`, `late`, `away`, `queued`, `first_word`, `last_values` and
    `hidden` of `ItemTimes`.
    """
    shape, tiling, fabric, memory, counts = task.shape, task.tiling, machine.fabric, machine.memory, work.counts
    mesh = busy_tiles(counts, tiling, task.mesh)
    (q_bytes, k_bytes, v_bytes, o_bytes), blocks, product, result = work.nbytes, work.blocks, work.product, work.result
    numbers = task.numbers
    k_bytes, v_bytes = k_bytes * task.pace, v_bytes * task.pace + numbers
    o_bytes = task.stored_bytes if task.of.split else o_bytes
    columns, rows = (
        served.mean_columns_served(counts, tiling, mesh, memory.count),
        served.diagonal_rows_served(tiling, mesh, memory.count),
    )
    way = fabric.ramp + fabric.edge_seconds(mesh.rows)
    stored = rows * o_bytes * memory.byte
    # groups drift apart until none waits for another; the tiles of a group that have one channel hold each other back
    together = where(tiling.rows * tiling.cols > 1, minimum(ceil_div(mesh.cols, memory.count), tiling.cols), 1.0)

    def time_load(keys: Any, queries: Any = 0.0) -> Any:
        """Of as many groups as go together; the first block is served alone, others as they wait."""
        waiting = together * (keys + rows * queries) * memory.crowded - maximum(keys, queries) * (memory.crowded - memory.byte)
        return 2 * way + memory.latency + fabric.post + waiting

    hidden: Any = 0.0
    if shape.latent:
        opening = time_load(numbers + 0.0 * k_bytes, q_bytes)
        waited = blocks * time_load(k_bytes + v_bytes)
        if task.kv.expand and task.of.strands > 1:  # what is expanded leaves its room to the next block, beside products
            waited = waited - (blocks - 1) * minimum(time_load(k_bytes + v_bytes), product + result)
    else:
        opening = time_load(k_bytes, q_bytes)
        opening = opening + where(shape.piece > 0, time_load(numbers), 0.0) if shape.has_selected_rows else opening
        meanwhile, weights = (together - 1) * k_bytes * memory.byte, work.softmax + work.statistics
        waits = LoadWaits(blocks, product, weights, result, work.spread_queries, work.spread_keys, time_load(0.0), meanwhile)
        keys, alone = time_load(k_bytes), task.of.strands == 1
        waited = waits.seconds(keys, time_load(v_bytes), blocking=alone, of_box=machine.engines.least is not None)
        if alone:
            hidden = waits.hidden_spread(keys, work.spread_values)
            hidden = hidden + _early_keys(task, work, together, k_bytes * memory.crowded)
    nbytes = task.paired_blocks * rows * (q_bytes + o_bytes) + blocks * (k_bytes + v_bytes)

    def time_channel(columns: Any) -> Any:
        return columns * nbytes * where(columns * rows > 1, memory.crowded, memory.byte)

    turns_ = SplitKvTimes()
    if task.of.split:
        full, last = (
            served.max_columns_served(tiles, tiling, mesh, memory.count)
            for tiles in (counts.groups, served.last_wave_items(counts))
        )
        first = where(counts.waves > 1, full, last) - 1
        opened = first * (q_bytes + (0.0 if shape.latent else k_bytes)) * memory.crowded
        turns_ = SplitKvTimes(time_channel(full), time_channel(last), maximum(last * stored, opened), fabric.post + way)
    # who is served last is behind by what others load, and, from one item to the next, by what they store before; a first block
    # of values waits for all that, and holds up who was served first, where products are shorter
    others = maximum(columns - together, 0.0)
    before, beside = others * rows * q_bytes * memory.crowded, others * k_bytes * memory.crowded
    if shape.latent:  # keys, values too, are asked for when queries are there: others' queries come while that is on its way
        beside = maximum(beside + others * v_bytes * memory.crowded - minimum(before, time_load(0.0)), 0.0)
    first = before + beside
    # of a box not counted: it is less where products are longer
    uncounted = shape.latent or task.of.strands > 1 or machine.engines.least is not None
    sizes = first + others * stored, together * v_bytes * memory.crowded, others / together
    again = 0.0 if uncounted else first_values_wait(*sizes, product)
    flight = minimum(counts.waves, task.of.strands)
    late = first + maximum(where(counts.waves > task.of.strands, others * stored, 0.0), (counts.waves - 1) * again)
    away = fabric.post + way
    ends = away + maximum(maximum(columns - together, 0.0) * stored - late, 0.0)
    queued = maximum(flight * columns - 1, 0.0) * stored
    if machine.engines.least is not None:  # of a box as on the channel itself: both are less together where memory is faster
        queued = maximum(flight * columns - 1, 0.0) * rows * o_bytes * where(columns * rows > 1, memory.crowded, memory.byte)
    alike = columns * flight * flight / maximum(work.blocks * counts.waves, 1.0)
    last_values = maximum(alike, 1.0) * v_bytes * memory.byte
    hbm, first_word = opening + together * stored + waited, time_load(0.0)
    return hbm, opening, time_channel(columns), ends, turns_, late, away, queued, first_word, last_values, hidden


def _early_keys(task: AttentionTask, work: ItemWork, together: Any, seconds: Any) -> Any:
    """Time that loads of first keys are beside sums of outputs, mean over items: of tiles that are no root. [s]"""
    early = (together - minimum(together, task.tiling.rows)) * seconds
    return (1 - 1 / work.counts.waves) * minimum(early, work.outputs)


def attention_activity(task: AttentionTask) -> Activity:
    """Activity of the attention program: multiply-adds, vector elements, and bytes by kind."""
    shape, tiling, counts = task.shape, task.tiling, task.counts
    mesh = busy_tiles(counts, tiling, task.mesh)
    blocks, masked = key_blocks_passed(shape, task.in_turns, task.mesh)
    m, n, waves_, each = tiling.queries, tiling.keys, counts.waves, task.paired_blocks
    q_bytes, k_bytes, v_bytes, o_bytes = task.nbytes
    tiles, later = mesh.rows * mesh.cols, blocks - waves_
    divided = where(task.partial, 0.0, waves_)
    instructions = (
        ((3 + shape.capped) * blocks + masked) * m * n
        + 3 * later * m
        + (later + divided) * m * shape.v
        + waves_ * m * task.width
    )
    made, total = task.kv.expand * blocks * n * (shape.key_dim + shape.v), Activity()
    for pattern, along, nbytes, times in (
        ("multicast", "row", q_bytes, each * waves_),
        ("multicast", "column", k_bytes + v_bytes, blocks),
        ("allreduce", "row", 2 * m * STATISTIC, each * blocks),
        ("reduce", "row", o_bytes, each * waves_),
    ):
        total = total + _team(task, mesh, pattern, along, nbytes) * times
    came = key_blocks_loaded(shape, task.in_turns, task.mesh) * tiling.cols * (k_bytes + v_bytes + task.numbers)
    moved = each * counts.items * tiling.rows * (q_bytes + task.stored_bytes)
    # queries are loaded in every row alike; keys in the rows of the diagonal
    times, rest = floor_div(tiling.cols, tiling.rows), remainder(tiling.cols, tiling.rows)
    up = (times * tiling.rows * (tiling.rows - 1) + rest * (rest - 1)) / (2 * tiling.cols)
    hops = moved * (mesh.rows - 1) / 2 + came * (mesh.rows - 1 - (mesh.rows - tiling.rows) / 2 - up)
    macs = each * tiles * blocks * m * n * (shape.qk + shape.v)
    total = total + Activity(
        macs=macs, elements=tiles * (each * instructions + made), memory_bytes=came + moved, hop_bytes=hops
    )
    return (
        total + merge.merge_activity(task.merge, task.mesh, task.itemsize) * where(task.partial, 1.0, 0.0)
        if task.of.split
        else total
    )


def _team(task: AttentionTask, mesh: CoreMesh, pattern: str, along: str, nbytes: Any) -> Activity:
    """A collective along the rows or columns of all groups, the diagonal being their roots."""
    team: Activity = TEAMS[task.of.collective].activity(
        GemmShape(nbytes / VALUE, 1, 1),
        mesh,
        pattern=pattern,
        along=along,
        rows=task.tiling.rows,
        cols=task.tiling.cols,
    )
    return team
