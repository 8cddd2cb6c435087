"""Functional simulation of a decoder layer on tensor-parallel devices.

Each device runs its calls on its part of the weights; an allreduce's program adds up the results.

Cores of a pool have no program: their products are NumPy's. Between blocks stands the program of the allreduce that the layout
says, on as many peers as it says.
"""

from collections.abc import Sequence

import numpy as np

from dse.evaluators.calls.call import CallBlock, KernelCall, LeadingCollective
from dse.evaluators.graph.operators import IndexerOp
from dse.evaluators.kernels.collective import find_allreduce
from dse.space.array_math import Array
from dse.testing.functional.call_worker import AttentionInputs, CallWorker, KernelFunctions, compute_elementwise
from dse.testing.functional.layer import LayerTensors, as_integer, is_residual, softmax_attention, topk_keys
from dse.testing.functional.recurrent_states import read_states
from dse.testing.functional_simulator import in_double_precision, run_program


def compute_layer(blocks: Sequence[CallBlock], layer: LayerTensors, peers: int, itemsize: float) -> Array:
    """Residual stream after the layer on each device, shape (devices, tokens, hidden).

    Args:
        blocks: of a step, of which those of the layer's parts are done, in order; the collective of whatever comes behind the
            last one too.
        layer: of numbers.
        peers: devices.
        itemsize: bytes of an activation.
    """
    stream, left = np.stack([layer.x] * peers), None
    for block in blocks:
        if left is not None:
            stream = stream + (left if block.opener is None else allreduce_tensors(block.opener, left, itemsize))
            left = None
        part = layer.find_part(block.calls[0].part)
        if part is not None:
            workers = [CallWorker(layer, part, block.calls, place, NUMPY_KERNELS, stream[place]) for place in range(peers)]
            for worker in workers:
                for position in block.order:
                    worker.run(block.calls[position])
            partials = np.stack([worker.residual() for worker in workers])
            left = partials if is_residual(part) else None
    return stream


def allreduce_tensors(collective: LeadingCollective, left: Array, itemsize: float) -> Array:
    """Results of devices after an allreduce; devices that take no part keep theirs.

    Raises:
        ValueError: vectors are not as long as it says.
    """
    peers, rows = as_integer(collective.peers), left[0].size
    if rows * itemsize != collective.nbytes:
        raise ValueError(f"allreduce of {collective.nbytes} B, devices have {rows * itemsize}")
    program = in_double_precision(find_allreduce(collective.algorithm, collective.phases).build_program(rows, peers))
    tensors = left.copy()
    tensors[:peers] = run_program(program, {"x": left[:peers].reshape(1, peers, rows, 1)})["x"].reshape(peers, *left.shape[1:])
    return tensors


def compute_product(call: KernelCall, a: Array, weights: Array) -> Array:
    """Product of a call, checked against the products that the call counts."""
    (gemm,) = call.products
    if (as_integer(gemm.count), *map(as_integer, (gemm.m, gemm.k, gemm.n))) != (1, *a.shape, weights.shape[1]):
        raise ValueError(f"call {call.name!r}: products {gemm}, has {a.shape} and {weights.shape}")
    return a @ weights


def compute_experts(call: KernelCall, a: Array, weights: Array, rows: list[Array]) -> Array:
    """Products of rows with the matrices of their experts, expert by expert."""
    experts = np.zeros((len(a), weights.shape[2]))
    for matrix, places in zip(weights, rows, strict=True):
        experts[places] = a[places] @ matrix
    return experts


def compute_attention(call: KernelCall, inputs: AttentionInputs) -> Array:
    """Attention of a call, checked against the pairs that the call counts."""
    attention, pairs = softmax_attention(
        inputs.q, inputs.k[:, :, inputs.own], inputs.v[:, :, inputs.own], inputs.scored, inputs.picked
    )
    (gemm,) = call.products
    if as_integer(gemm.m) != pairs * inputs.q.shape[2]:
        raise ValueError(f"call {call.name!r}: {gemm.m} scores, has {pairs * inputs.q.shape[2]}")
    return attention


def compute_per_head(call: KernelCall, a: Array, weights: Array) -> Array:
    """Products head by head, checked against the products that the call counts."""
    (gemm,) = call.products
    if (as_integer(gemm.count), *map(as_integer, (gemm.m, gemm.k, gemm.n))) != (
        1,
        *a.shape[1:],
        len(weights) * weights.shape[2],
    ):
        raise ValueError(f"call {call.name!r}: products {gemm}, has {a.shape} and {weights.shape}")
    return a @ weights


def compute_index(call: KernelCall, operator: IndexerOp, q: Array, weights: Array, k: Array) -> Array:
    """Keys that an indexer selects, checked against the scores that the call counts.

    Source:
        [deepseekai2025] eq. 1; scales of weights, which change no order, are left out.
    """
    (gemm,) = call.products
    pairs = len(q) * (q.shape[1] * k.shape[1] - q.shape[1] * (q.shape[1] - 1) // 2)
    if (as_integer(gemm.m), as_integer(gemm.k)) != (pairs * q.shape[2], q.shape[3]):
        raise ValueError(f"call {call.name!r}: {gemm.m} scores of {gemm.k}, has {pairs * q.shape[2]} of {q.shape[3]}")
    return topk_keys(np.einsum("sqh,sqhk->sqk", weights, np.maximum(np.einsum("sqhd,skd->sqhk", q, k), 0.0)), operator.top)


NUMPY_KERNELS = KernelFunctions(
    compute_product,
    compute_experts,
    compute_attention,
    lambda _, operator, inputs, layer: compute_elementwise(operator, inputs, layer),
    compute_per_head,
    read_states,
    compute_index,
)
