"""Functional simulation of a decoder layer on a group of cores of a pipeline.

Programs of partitions run products, and exchanges go around the group's rings.

Rows, requests or heads of attention are dealt to cores as the partition says; what a core does of attention by itself, and
operators on elements, is NumPy's. What lies where between two products is what the partition's `gather_result` and
`scatter_operands` say: sums that all cores have, or rows of each.
"""

from collections.abc import Sequence

import numpy as np

from dse.evaluators.calls.call import CallBlock, GroupExchange, KernelCall
from dse.evaluators.graph.expert_loads import core_of_expert
from dse.evaluators.graph.operators import MatMulOp, Segment
from dse.evaluators.kernels.gemm.tiling import GemmShape, join_blocks
from dse.evaluators.kernels.gemm.tiling import matrix_blocks as blocks_of
from dse.evaluators.kernels.partition import find_partition
from dse.evaluators.kernels.partition.group_placement import group_sides, place_group, ring_grid
from dse.evaluators.kernels.partition.input_only import gather_blocks as of_cores
from dse.evaluators.kernels.partition.input_only import scatter_blocks
from dse.evaluators.kernels.partition.ring_collectives import allgather_rounds, reduce_scatter_rounds
from dse.evaluators.layouts.operator_partitions import ROTATIONS, is_gather_call
from dse.evaluators.program.kernel_ir import Buffer, Program
from dse.space.array_math import Array, ceil_div
from dse.testing.functional import tiles
from dse.testing.functional.call_worker import AttentionInputs, CallWorker, KernelFunctions, compute_elementwise
from dse.testing.functional.layer import LayerTensors, as_integer, combine_experts, is_residual, softmax_attention
from dse.testing.functional.tensor_placement import track_layouts
from dse.testing.functional_simulator import in_double_precision, run_program

ITEMSIZE = 2.0
"""Bytes of a value that goes to all cores."""


def compute_layer(blocks: Sequence[CallBlock], layer: LayerTensors, *, heads: bool | None = None) -> Array:
    """Residual stream after the layer, shape (tokens, hidden), with calls run one after the other.

    Args:
        blocks: its calls, each with a partition.
        layer: tensors of the layer.
        heads: whether attention divides heads, not rows; None where one partition is for all, which says so.

    Raises:
        ValueError: something is not there, or not on the core that needs it.
    """
    if heads is None:
        first = next(call.group for block in blocks for call in block.calls if call.group is not None)
        heads = first.partition == "k"
    track_layouts(blocks, layer, heads=heads)
    x = layer.x
    for block in blocks:
        part = layer.find_part(block.calls[0].part)
        if part is None:
            continue
        worker = _Cores(layer, part, block.calls, x, heads=heads)
        for position in block.order:
            worker.run(block.calls[position])
        x = x + worker.residual() if is_residual(part) else x
    return x


class _Cores(CallWorker):
    """A group of cores, where experts may be whole on one of them each."""

    def __init__(self, layer: LayerTensors, part: Segment, calls: tuple[KernelCall, ...], x: Array, *, heads: bool) -> None:
        super().__init__(layer, part, calls, 0, GROUP_KERNELS, x)
        self.rows_divided = not heads
        self.group = next(call.group for call in calls if call.group is not None)
        self.everywhere: Array | None = None
        self.summed = False

    def _experts(self, operator: MatMulOp, call: KernelCall, weights: Array) -> Array:
        if call.exchange is None:
            return super()._experts(operator, call, weights)
        cores, tokens = as_integer(call.exchange.cores), len(self.x)
        owner = core_of_expert(len(weights), cores)[self.routed_tokens.expert]
        if "experts_activation" not in operator.needs:
            (x,) = self.collect_inputs(self.operators["router"])
            if call.exchange.times or self.everywhere is None:
                self.everywhere = exchange_slices(call.exchange, _own(x, cores, divided=bool(call.exchange.times)))
            rows = self.everywhere[owner, self.routed_tokens.token]
            return multiply_by_expert(rows, weights, self.routed_tokens.expert)
        rows = multiply_by_expert(self.get("experts_activation"), weights, self.routed_tokens.expert)
        outputs = np.stack(
            [combine_experts(rows * (owner == core)[:, None], self.routed_tokens, tokens) for core in range(cores)]
        )
        slices = exchange_slices(call.exchange, np.pad(outputs, ((0, 0), (0, -tokens % cores), (0, 0))), sums=True)
        self.summed, each = True, slices.shape[1] // cores
        return np.concatenate([slices[core, core * each : (core + 1) * each] for core in range(cores)])[:tokens]

    def _back(self, name: str) -> Array:
        return self.get(name) if name == "experts_down" and self.summed else super()._back(name)

    def run(self, call: KernelCall) -> None:
        """Its operators; or what one of them has left goes around the rings to all cores."""
        super().run(call)
        if is_gather_call(call):
            name = call.needs[0]
            operator = self.operators[name]
            names = operator.needs if name in ROTATIONS else (name,)
            values = [self._back(name) for name in names]  # experts' results summed up by token
            self.summed = self.summed or name == "experts_down"
            outputs = gather_everywhere(call, np.concatenate(values, axis=1))
            self.done |= zip(
                names, np.split(outputs, np.cumsum([value.shape[1] for value in values])[:-1], axis=1), strict=True
            )
            self.done[name] = self.done[names[0]]

    def _attended(self, call: KernelCall, inputs: AttentionInputs) -> Array:
        """Each core its own heads, or its own rows: those of prompts see keys that came around the group."""
        cores, prompts = as_integer(self.group.cores), inputs.q.shape[1] > 1 or inputs.q.shape[1] == inputs.k.shape[1]
        if call.job is not None:
            return tiles.compute_attention(call._replace(job=call.job.jobs[0]), inputs)
        k, v, heads = inputs.k[:, :, inputs.own], inputs.v[:, :, inputs.own], inputs.q.shape[2]
        each = ceil_div(heads, cores)
        if not self.rows_divided:
            slices = [slice(start, start + each) for start in range(0, heads, each)]
            outputs = [
                softmax_attention(inputs.q[:, :, own], k[:, :, own], v[:, :, own], inputs.scored.of_heads(own))
                for own in slices
            ]
            self._scored(call, outputs[0][1] * each)
            return np.concatenate([out for out, _ in outputs], axis=2)
        if not prompts:
            each = ceil_div(len(inputs.q), cores)
            slices = [slice(start, start + each) for start in range(0, len(inputs.q), each)]
            outputs = [softmax_attention(inputs.q[own], k[own], v[own], inputs.scored) for own in slices]
            self._scored(call, outputs[0][1] * heads)
            return np.concatenate([out for out, _ in outputs])
        return self._around(call, inputs)

    def _scored(self, call: KernelCall, pairs: int) -> None:
        """Refuses more scores on the first core than its products have."""
        first = call.products[0]
        gemm = first.count * first.m * first.n
        if pairs > gemm * (1 + 1e-9):
            raise ValueError(f"call {call.name!r}: {gemm} scores of a core, has {pairs}")

    def _around(self, call: KernelCall, inputs: AttentionInputs) -> Array:
        """Each core has rows of its own, one sequence after the other, and sees what came of the others' keys and values."""
        cores, (sequences, new, heads, _) = as_integer(self.group.cores), inputs.q.shape
        kv = np.concatenate([tensor.reshape(sequences * new, -1) for tensor in (inputs.k, inputs.v)], axis=1)
        own = _own(kv, cores, divided=True)
        kv_slices = own if call.exchange is None else exchange_slices(call.exchange, own)
        outputs, each = np.zeros((*inputs.q.shape[:3], inputs.v.shape[3])), kv_slices.shape[1] // cores
        for core in range(cores):
            k, v = np.split(kv_slices[core, : sequences * new], [inputs.k[0, 0].size], axis=1)
            k, v = k.reshape(inputs.k.shape)[:, :, inputs.own], v.reshape(inputs.v.shape)[:, :, inputs.own]
            out, _ = softmax_attention(inputs.q, k, v, inputs.scored)
            rows = slice(core * each, (core + 1) * each)
            outputs.reshape(sequences * new, heads, -1)[rows] = out.reshape(sequences * new, heads, -1)[rows]
        return outputs


def _own(x: Array, cores: int, divided: bool) -> Array:
    """Rows that cores have, padded to as many for each, shape (cores, rows, columns): their own where they are divided."""
    each = ceil_div(len(x), cores)
    padded = np.pad(x, ((0, cores * each - len(x)), (0, 0)))
    whose = np.repeat(np.arange(cores), each)
    mine = whose == np.arange(cores)[:, None] if divided else np.ones((cores, cores * each), bool)
    return padded * mine[..., None]


def exchange_slices(exchange: GroupExchange, own: Array, *, sums: bool = False) -> Array:
    """Slices of all cores after an exchange.

    Sums go to their owners; if it goes twice, to all cores.
    """
    times, cores = as_integer(exchange.times), as_integer(exchange.cores)
    group, each = place_group(exchange.placement, cores), own.shape[1] // cores
    rounds = reduce_scatter_rounds(group, "x", each) if sums and times else ()
    if times == 2 or (times and not sums):
        rounds = (*rounds, *allgather_rounds(group, "x", each))
    slots = (Buffer("x", own.shape[1:], "float64", depth=2),)
    program = Program(*group_sides(exchange.placement, cores), slots, (rounds,))
    return of_cores(run_program(program, {"x": scatter_blocks(own, group, exchange.placement)})["x"], group)


def gather_everywhere(call: KernelCall, x: Array) -> Array:
    """Result on every core after a gather of a slice from each.

    Raises:
        ValueError: a slice of the call's exchange is none of the result's rows, columns or blocks.
    """
    exchange = call.exchange
    assert exchange is not None
    cores, integer = as_integer(exchange.cores), as_integer(exchange.nbytes / ITEMSIZE)
    rings, members = (as_integer(side) for side in ring_grid(exchange.placement, cores, divided=True))
    for high, wide in ((cores, 1), (1, cores), (rings, members)):
        cut = blocks_of(x, high, wide)
        if cut.shape[2] * cut.shape[3] == integer:
            break
    else:
        raise ValueError(f"call {call.name!r}: sends {integer} values of a core, of {x.shape} on {cores} cores")
    slices = cut.reshape(cores, integer)
    found_slices = exchange_slices(exchange, _own(slices.reshape(-1, 1), cores, divided=True))
    if not np.array_equal(found_slices, np.broadcast_to(found_slices[:1], found_slices.shape)):
        raise ValueError(f"call {call.name!r}: cores differ in what came to all")
    return join_blocks(found_slices[0].reshape(cut.shape), *x.shape)


def multiply_by_expert(rows: Array, weights: Array, expert: Array) -> Array:
    """Products of rows with the matrices of their experts."""
    return np.asarray(np.einsum("rk,rkn->rn", rows, weights[expert]))


def compute_product(call: KernelCall, a: Array, weights: Array) -> Array:
    """Product of a call by its partition's program.

    Raises:
        ValueError: the call's product has another shape.
    """
    (gemm,) = call.products
    if (as_integer(gemm.count * gemm.m), as_integer(gemm.k), as_integer(gemm.n)) != (*a.shape, weights.shape[1]):
        raise ValueError(f"call {call.name!r}: product {gemm}, has {a.shape} and {weights.shape}")
    return _divided(call, a, weights)


def compute_experts(call: KernelCall, a: Array, weights: Array, rows: list[Array]) -> Array:
    """Products of experts by the partition's program, expert by expert."""
    experts = np.zeros((len(a), weights.shape[2]))
    for matrix, places in zip(weights, rows, strict=True):
        if len(places):
            experts[places] = _divided(call, a[places], matrix)
    return experts


def _divided(call: KernelCall, a: Array, weights: Array) -> Array:
    group = call.group
    assert group is not None
    way, cores, shape = (
        find_partition(group.partition),
        as_integer(group.cores),
        GemmShape(len(a), a.shape[1], weights.shape[1]),
    )
    options = group._replace(phases=as_integer(group.phases)).options
    program = in_double_precision(way.build_program(shape, group.placement, cores, "float32", **options))
    outputs: Array = way.gather_result(
        run_program(program, way.scatter_operands(a, weights, group.placement, cores)), group.placement, cores, shape
    )
    return outputs


def _unattended(call: KernelCall, inputs: AttentionInputs) -> Array:
    raise ValueError(f"call {call.name!r}: attention is of the group")


def _absorbed(call: KernelCall, a: Array, weights: Array) -> Array:
    raise ValueError(f"call {call.name!r}: separate products of heads have no numeric form on a group")


GROUP_KERNELS = KernelFunctions(
    compute_product,
    compute_experts,
    _unattended,
    lambda _, operator, inputs, layer: compute_elementwise(operator, inputs, layer),
    _absorbed,
)
