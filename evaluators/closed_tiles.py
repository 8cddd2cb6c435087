"""The closed reader on a mesh of tiles: one pass of some tokens through the model on a pipeline of groups of tiles.

A product takes its engines' time or that of its weights from HBM, whichever is longer, and what of its messages is not behind
them. Leaves broadcast over entries of a workload and over designs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from evaluators.counts import Activity
from evaluators.graph.experts import busiest
from evaluators.graph.operators import Attention, Elementwise, MatMul, Operator, Part
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
from space.elementwise import ceil_div, maximum, minimum
from space.mapping import BYTES, Precision, TilePlan
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


ENDS = ("embedding", "head")
"""Parts that are no layers."""

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
        layers: of the model.
        stages: of the pipeline.
        activity: of all cores of the pipeline.
    """

    tasks: tuple[Task, ...]
    hop: Any
    layers: int
    stages: Any
    activity: Activity

    @property
    def seconds(self) -> Any:
        """Through all stages."""
        return sum(task.seconds * task.times for task in self.tasks) + self.hop * (self.stages - 1.0)

    @property
    def layer(self) -> Any:
        """A layer, on average. [s]"""
        return sum(task.seconds * task.times for task in self.tasks if task.part not in ENDS) / self.layers

    @property
    def ends(self) -> Any:
        """What the last stage does beside its layers. [s]"""
        return sum(task.seconds * task.times for task in self.tasks if task.part in ENDS)

    @property
    def full(self) -> Any:
        """Layers of each stage but the last ones, which have what is left."""
        return ceil_div(self.layers * 1.0, self.stages)

    @property
    def stage(self) -> Any:
        """The slowest stage. [s]"""
        last = maximum(self.layers - (self.stages - 1.0) * self.full, 0.0)
        return maximum(self.full * self.layer, last * self.layer + self.ends) + self.hop


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
    model: Model,
    at: Step,
    chip: TileChip,
    plan: TilePlan,
    precision: Precision,
    held: Resident,
    priced: Prices = PRICES,
    *,
    attending: tuple[Step, ...] = (),
    crowding: Any = 1.0,
    carried: Any = None,
) -> Pass:
    """A pass of the tokens of a step.

    Args:
        model, at: what is computed.
        chip, plan, precision: where, and how it is divided.
        held: what of weights and cache is in the local memories.
        priced: the reader's prices.
        attending: steps that share the pass, such as prompts and decodes, where attention is each one's own.
        crowding: how many times as long others' messages make the way from stage to stage.
        carried: values of a token from stage to stage; None for the residual stream, which is all between layers.
    """
    on = _On(chip, plan, precision, model, tile_fabric(chip), engines(chip), held, priced)
    parts = transformer(model, at)
    tasks = tuple(
        task for part in parts for operator in part.operators for task in _tasks(part, operator, attending or (at,), on)
    )
    nbytes = at.tokens * (model.hidden if carried is None else carried) * BYTES[precision.activations]
    hop = _between(nbytes, on) * crowding
    activity = Activity(sent_bytes=nbytes * (plan.pp - 1), hop_bytes=nbytes * (plan.pp - 1))
    for task in tasks:
        activity = activity + task.activity * task.times
    return Pass(tasks, hop, model.layers, plan.pp, activity)


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


def _tasks(part: Part, operator: Operator, attending: tuple[Step, ...], on: _On) -> list[Task]:
    if isinstance(operator, Attention):
        return [_attention(part, operator, at, on) for at in attending]
    if not isinstance(operator, MatMul):
        return [_elementwise(part, operator, on)]
    routed = operator.stored > 1 and on.plan.experts == "whole"
    return [_experts(part, operator, on) if routed else _product(part, operator, on)]


def _elementwise(part: Part, operator: Elementwise, on: _On) -> Task:
    count = operator.rows * width(operator.dim)
    vector = on.engines.instruction(count * operator.operations / on.plan.tp, 0.0, 0.0)
    shape = (operator.rows, 1, width(operator.dim))
    return _done(part, operator, shape, 0.0, vector, 0.0, 0.0, 0.0, 0.0, Activity(elements=count * float(operator.operations)))


def _product(part: Part, of: MatMul, on: _On) -> Task:
    k, n = width(of.k), width(of.n)
    copies, plan, act = of.copies, on.plan, BYTES[on.precision.activations]
    shape = Shape(of.m / maximum(copies, 1e-9), k, n)
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
    memory = on.priced.memory(nbytes / plan.tp, nbytes / plan.tp / maximum(copies, 1e-9), on.chip.hbm)
    # sums wait for the product; weights that go round come in beside it, and beside their own stream from memory
    behind = busy * copies if plan.partition == "k" else maximum(busy * copies, memory)
    network = maximum(copies * seconds - behind, 0.0)
    return _done(part, of, (of.m, k, n), copies * busy, 0.0, memory, network, flop, nbytes, activity)


def _experts(part: Part, of: MatMul, on: _On) -> Task:
    """A product of experts that are each on one core, as long as on the core that has most rows.

    Where rows are divided, all cores get all rows before the first product, and only their own back after the last; where the
    inner dimension is, all have them, and sum the outputs. Both go around the ring, by the closed form at every fidelity.
    """
    experts, plan, act = on.model.experts, on.plan, float(BYTES[on.precision.activations])
    assert experts is not None
    k, n, cores = width(of.k), width(of.n), plan.tp
    rows, copies = busiest(experts, part.rows, cores)
    busy = copies * on.engines.started(rows / maximum(copies, 1e-9), k, n, act)
    each = k * n * float(BYTES[on.precision.weights]) * (1 - on.held.weights_here) * ceil_div(part.rows, on.held.block)
    memory = on.priced.memory(copies * each, each, on.chip.hbm)
    last, inner = of.k.split, plan.partition == "k"
    turns = (cores - 1) * (last * (1 + inner) + (not inner) * (of.name == "experts_gate"))
    slice_ = ceil_div(part.rows, 1.0 if inner else cores) * ceil_div(n if last else k, cores if inner else 1.0) * act
    network = turns * step(plan.placement, cores, 1, slice_, on.fabric) * (part.rows > 0)
    flop, nbytes, moved = 2.0 * of.m * k * n, of.copies * each, turns * slice_ * cores
    activity = Activity(macs=flop / 2, sent_bytes=moved, hop_bytes=moved, memory_bytes=nbytes)
    return _done(part, of, (of.m, k, n), busy, 0.0, memory, network, flop, nbytes, activity)


def _attention(part: Part, of: Attention, at: Step, on: _On) -> Task:
    heads, rows = heads_here(on.model, on.plan)
    requests, context = at.requests, at.pairs / maximum(at.tokens, 1.0)
    queries = ceil_div(at.tokens / maximum(requests, 1.0), rows) if at.phase == "prefill" else 1.0
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
        network = (on.plan.tp - 1) * step(on.plan.placement, on.plan.tp, 1, slice_, on.fabric) * minimum(requests, 1.0)
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
