"""The closed reader on a mesh of tiles: one pass of some tokens through the model on a pipeline of groups of tiles.

A product takes its engines' time or that of its weights from HBM, whichever is longer, and what of its messages is not behind
them. Leaves broadcast over entries of a workload and over designs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from evaluators.counts import Activity
from evaluators.graph.operators import Attention, MatMul, Operator, Part
from evaluators.graph.reside import Resident, heads_here, width
from evaluators.graph.shard import SOFTMAX
from evaluators.graph.step import Step
from evaluators.graph.transformer import transformer
from evaluators.kernels.gemm.tiling import Shape
from evaluators.kernels.partition import partition
from evaluators.kernels.partition.placement import grid, sides_of, step
from evaluators.machine.engine import Engines, engines
from evaluators.machine.fabric import Fabric, tile_fabric
from space.chip import MainMemory, TileChip
from space.elementwise import ceil_div, maximum
from space.mapping import BYTES, Precision, TileMapping, TilePlan
from space.model import Model


class Prices(NamedTuple):
    """How a reader prices what a pass is made of.

    Attributes:
        product: seconds of a product on a group, and those of its engines, of (partition, shape, placement, cores, fabric,
            engines, bytes of a value).
        memory: seconds of some bytes of a core from its channel, of (bytes, contiguous bytes at a time, memory).
    """

    product: Callable[[str, Shape, str, Any, Fabric, Engines, float], tuple[Any, Any]]
    memory: Callable[[Any, Any, MainMemory], Any]


BLOCK_TOKENS = 16
"""Tokens of the KV cache that are side by side in memory."""


class Task(NamedTuple):
    """One operator on one core of a group, once; leaves broadcast.

    Attributes:
        part, name: where it stands.
        times: how often it runs in a pass through all layers.
        shape: (m, k, n) of the whole group.
        matrix, vector: that the engines work. [s]
        memory: that HBM takes for what does not stay in the local memory. [s]
        network: of messages that nothing hides. [s]
        flop: of the whole group.
        nbytes: from HBM, of the whole group. [B]
        activity: of the whole group.
    """

    part: str
    name: str
    times: float
    shape: tuple[Any, Any, Any]
    matrix: Any
    vector: Any
    memory: Any
    network: Any
    flop: Any
    nbytes: Any
    activity: Activity

    @property
    def seconds(self) -> Any:
        """On the critical path."""
        return maximum(self.matrix + self.vector, self.memory) + self.network


class Pass(NamedTuple):
    """One pass of some tokens through all stages.

    Attributes:
        tasks: of all layers and the head.
        hop: from a stage to the next. [s]
        hops: of a pass: stages less one.
        stage: of the slowest stage. [s]
        activity: of all cores of the pipeline.
    """

    tasks: tuple[Task, ...]
    hop: Any
    hops: Any
    stage: Any
    activity: Activity

    @property
    def seconds(self) -> Any:
        """Through all stages."""
        return sum(task.seconds * task.times for task in self.tasks) + self.hop * self.hops


def _product_price(
    name: str, shape: Shape, placement: str, cores: Any, fabric: Fabric, of: Engines, nbytes: float
) -> tuple[Any, Any]:
    found: tuple[Any, Any] = partition(name).cost(shape, placement, cores, fabric, of, nbytes)
    return found


def _memory_price(nbytes: Any, block: Any, hbm: MainMemory) -> Any:
    return nbytes / (hbm.bandwidth * hbm.achieved) + hbm.latency * (nbytes > 0)


PRICES = Prices(_product_price, _memory_price)
"""Closed forms of products; bandwidth and the share of it that long blocks reach, and one latency."""


def passed(
    model: Model, at: Step, chip: TileChip, plan: TilePlan, mapping: TileMapping, held: Resident, priced: Prices = PRICES
) -> Pass:
    """A pass of the tokens of a step."""
    on = _On(chip, plan, mapping.precision, model, tile_fabric(chip), engines(chip), held, priced)
    parts = transformer(model, at)
    tasks = tuple(_task(part, operator, at, on) for part in parts for operator in part.operators)
    nbytes = at.tokens * model.hidden * BYTES[mapping.precision.activations]
    hop = _between(nbytes, on)
    layers = sum(task.seconds * task.times for task in tasks if task.part not in ("embedding", "head")) / model.layers
    ends = sum(task.seconds * task.times for task in tasks if task.part in ("embedding", "head"))
    full = ceil_div(model.layers * 1.0, plan.pp)
    last = model.layers - (plan.pp - 1) * full
    stage = maximum(full * layers, maximum(last, 0.0) * layers + ends) + hop
    activity = Activity(sent_bytes=nbytes * (plan.pp - 1), hop_bytes=nbytes * (plan.pp - 1))
    for task in tasks:
        activity = activity + task.activity * task.times
    return Pass(tasks, hop, plan.pp - 1.0, stage, activity)


class _On(NamedTuple):
    """Where operators run."""

    chip: TileChip
    plan: TilePlan
    precision: Precision
    model: Model
    fabric: Fabric
    engines: Engines
    held: Resident
    priced: Prices


def _task(part: Part, operator: Operator, at: Step, on: _On) -> Task:
    if isinstance(operator, MatMul):
        return _product(part, operator, on)
    if isinstance(operator, Attention):
        return _attention(part, operator, at, on)
    count = operator.rows * width(operator.dim)
    vector = on.engines.instruction(count * operator.operations / on.plan.tp, 0.0, 0.0)
    shape = (operator.rows, 1, width(operator.dim))
    return _done(part, operator, shape, 0.0, vector, 0.0, 0.0, 0.0, 0.0, Activity(elements=count * float(operator.operations)))


def _product(part: Part, of: MatMul, on: _On) -> Task:
    k, n = width(of.k), width(of.n)
    copies, plan, act = of.copies, on.plan, BYTES[on.precision.activations]
    shape = Shape(of.m / copies, k, n)
    seconds, busy = on.priced.product(plan.partition, shape, plan.placement, plan.tp, on.fabric, on.engines, float(act))
    stored = copies * k * n * float(BYTES[on.precision.weights])
    # everyone has all weights where only the input is divided
    stored = stored * (plan.tp if plan.partition == "input_only" else 1.0)
    nbytes = stored * (1 - on.held.weights_here) * ceil_div(part.rows, on.held.block)
    flop = 2.0 * of.m * k * n
    way = partition(plan.partition)
    rings, members = grid(plan.placement, plan.tp, divided=way.DIVIDED)
    moved = way.moved(shape, rings, members) * plan.tp * copies * act
    activity = Activity(macs=flop / 2, sent_bytes=moved, hop_bytes=moved, memory_bytes=nbytes)
    memory = on.priced.memory(nbytes / plan.tp, nbytes / plan.tp / copies, on.chip.hbm)
    # sums wait for the product; weights that go round come in beside it, and beside their own stream from memory
    behind = busy * copies if plan.partition == "k" else maximum(busy * copies, memory)
    network = maximum(copies * seconds - behind, 0.0)
    return _done(part, of, (of.m, k, n), copies * busy, 0.0, memory, network, flop, nbytes, activity)


def _attention(part: Part, of: Attention, at: Step, on: _On) -> Task:
    heads, rows = heads_here(on.model, on.plan)
    requests, context = at.requests, at.pairs / maximum(at.tokens, 1.0)
    queries = ceil_div(at.tokens / requests, rows) if at.phase == "prefill" else 1.0
    here = requests if at.phase == "prefill" else ceil_div(requests, rows)
    group = of.heads.units / of.kv_heads.units
    together = maximum(heads / group, 1.0) * here
    act = float(BYTES[on.precision.activations])
    scores = on.engines.started(group * queries, of.qk_dim, context, act)
    values = on.engines.started(group * queries, context, of.v_dim, act)
    count = together * group * queries * context
    vector = on.engines.instruction(count * SOFTMAX, count, 0.0)
    kv = float(of.kv_dim * BYTES[on.precision.kv])
    # the cache is read, and what is new is written
    nbytes = (at.positions + at.tokens) * of.kv_heads.units * kv * (1 - on.held.kv_here)
    share = maximum(of.kv_heads.units / on.plan.tp, 1.0) / of.kv_heads.units if on.plan.partition == "k" else 1.0 / on.plan.tp
    pairs = at.pairs * of.heads.units
    flop = pairs * 2.0 * (of.qk_dim + of.v_dim)
    network: Any = 0.0
    if on.plan.partition != "k" and at.phase == "prefill":
        # rows are divided, and every row attends to all keys and values
        slice_ = ceil_div(at.tokens, rows) * of.kv_heads.units * kv
        network = (on.plan.tp - 1) * step(on.plan.placement, on.plan.tp, 1, slice_, on.fabric)
    activity = Activity(macs=flop / 2, elements=pairs * SOFTMAX, memory_bytes=nbytes)
    memory = on.priced.memory(nbytes * share, BLOCK_TOKENS * of.kv_heads.units * share * kv, on.chip.hbm)
    shape = (at.tokens, of.qk_dim, context)
    return _done(part, of, shape, together * (scores + values), vector, memory, network, flop, nbytes, activity)


def _done(part: Part, of: Operator, *rest: Any) -> Task:
    return Task(part.name, of.name, float(part.times), *rest)


def _between(nbytes: Any, on: _On) -> Any:
    """Time of activations from a group to the next one, over all links of the side that they share. [s]"""
    links = sides_of(on.plan.placement, on.plan.tp)[1]
    stream = ceil_div(nbytes / links, on.fabric.word_bytes) * on.fabric.pace
    rows = sides_of(on.plan.placement, on.plan.tp)[0]
    moved = on.fabric.post + 2 * on.fabric.ramp + rows * on.fabric.hop * (1 + 2 * on.fabric.locked) + stream * rows
    return moved * (on.plan.pp > 1)
