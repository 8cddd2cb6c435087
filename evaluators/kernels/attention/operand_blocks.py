"""Blocks of queries, keys and values that tiles load, and blocks of outputs that they store."""

from itertools import product

import numpy as np

from dse.evaluators.kernels.attention.attention_shape import (
    AttentionShape,
    AttentionTiling,
    BlockCounts,
    block_counts,
    busy_mesh,
)
from dse.evaluators.kernels.attention.block_schedule import GroupWave, causal_band, list_waves, stream_name
from dse.evaluators.kernels.attention.dataflow import STRAND_PREFIXES, Dataflow, is_paired, strand_prefix, tiling_of_pairs
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.space.array_math import Array


def scatter_qkv(
    q: Array,
    k: Array,
    v: Array,
    dataflow: Dataflow,
    shape: AttentionShape,
    tiling: AttentionTiling,
    mesh: CoreMesh,
    chosen: Array | None = None,
) -> dict[str, Array]:
    """Blocks of Q, K and V by stream in loading order, with axes blocks, groups, members, rows, columns.

    Args:
        q: shape (batch, heads, queries, qk).
        k: shape (batch, kv_heads, keys, qk).
        v: shape (batch, kv_heads, keys, v); the last columns of `k` where latent.
        of, shape, tiling, mesh: as of the program.
        chosen: rows of `k` and `v`, which may have more, that were selected; shape (batch, kv_heads, keys).
    """
    mesh = busy_mesh(shape, tiling_of_pairs(dataflow, shape, tiling), mesh)
    counts = block_counts(shape, tiling, mesh)
    grouped = q.reshape(shape.batch, shape.kv_heads, shape.heads_per_kv, shape.queries, shape.qk).swapaxes(2, 3)
    outer = block_counts(shape, tiling, mesh).outer
    queries = _blocks(grouped.reshape(shape.problems, shape.rows, shape.qk), outer, tiling.rows, tiling.queries)
    if is_paired(dataflow, shape, tiling):
        counts = block_counts(shape, tiling_of_pairs(dataflow, shape, tiling), mesh)
    whole = counts.inner * counts.parts
    if chosen is not None:
        numbers = _blocks(chosen.reshape(shape.problems, shape.keys, 1), whole, tiling.cols, tiling.keys)
        keys, values = (x.reshape(shape.problems, 1, 1, -1, x.shape[-1]) for x in (k, v))  # all of them, whatever the block
    else:
        keys, values = (_padded(x.reshape(shape.problems, shape.keys, -1), whole * tiling.cols * tiling.keys) for x in (k, v))
    operands: dict[str, list[Array]] = {}
    for strand, turns in _turns(dataflow, shape, tiling, mesh):
        for first, wave in turns:
            item = np.arange(first, first + wave.active)
            problem, part, block = _places(item, shape, counts)
            begin = causal_band(shape, tiling_of_pairs(dataflow, shape, tiling), block).first if shape.causal else block * 0
            if is_paired(dataflow, shape, tiling):
                _place_pair(operands, (queries, keys, values), (problem, block, begin), wave, counts, shape, tiling)
                continue
            mine = queries[problem, block]
            q_name, c_name, k_name, v_name = (
                stream_name(strand_prefix(strand, dataflow) + slot, wave, counts) for slot in "qckv"
            )
            operands.setdefault(q_name, []).append(mine[..., : shape.key_dim])
            if shape.latent:
                operands.setdefault(c_name, []).append(mine[..., shape.key_dim :])
            for turn in range(wave.inner):
                at = part * counts.inner + turn
                if chosen is not None:
                    i_name = stream_name(strand_prefix(strand, dataflow) + "i", wave, counts)
                    operands.setdefault(i_name, []).append(numbers[problem, at])
                    mine, others = (_each(x[problem, 0], tiling) for x in (keys, values))
                else:
                    mine, others = (_slices(x, problem, begin, at, tiling) for x in (keys, values))
                operands.setdefault(k_name, []).append(mine[..., : shape.key_dim])
                operands.setdefault(v_name, []).append(others)
    return {key: np.stack(blocks) for key, blocks in operands.items()}


def block_rows(
    dataflow: Dataflow, shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh
) -> dict[str, tuple[str, Array]]:
    """Tensor name of each K and V stream, and the first row of each of its blocks.

    Rows of all keys and values follow one another, problem after problem, as a cache has them; what is selected of them is at
    places of its own.
    """
    if shape.has_selected_rows:
        return {}
    queries = np.broadcast_to(np.zeros((), np.int8), (shape.batch, shape.heads, shape.queries, shape.qk))
    every = np.arange(shape.problems * shape.keys).reshape(shape.batch, shape.kv_heads, shape.keys, 1)
    operands = scatter_qkv(queries, every, every, dataflow, shape, tiling, mesh)
    tensor = {"k": "keys", "v": "keys" if shape.latent else "values"}
    named = ((key, key.split("/")[0].split(".")[-1]) for key in operands)
    return {
        key: (tensor[slot], operands[key][..., 0, 0].reshape(len(operands[key]), -1)) for key, slot in named if slot in tensor
    }


def _place_pair(
    operands: dict[str, list[Array]],
    qkv: tuple[Array, ...],
    at: tuple[Array, ...],
    wave: GroupWave,
    counts: BlockCounts,
    shape: AttentionShape,
    tiling: AttentionTiling,
) -> None:
    """Two blocks of queries of each group, and the keys and values that they share."""
    (queries, keys, values), (problem, pair, begin) = qkv, at
    for strand, p in enumerate(STRAND_PREFIXES):
        mine = queries[problem, 2 * pair + strand]
        operands.setdefault(stream_name(p + "q", wave, counts), []).append(mine[..., : shape.key_dim])
        if shape.latent:
            operands.setdefault(stream_name(p + "c", wave, counts), []).append(mine[..., shape.key_dim :])
    for turn in range(wave.inner):
        k_name, v_name = (stream_name(f"{turn % 2 if shape.latent else 0}.{slot}", wave, counts) for slot in "kv")
        mine, others = (_slices(x, problem, begin, np.array(turn), tiling) for x in (keys, values))
        operands.setdefault(k_name, []).append(mine[..., : shape.key_dim])
        operands.setdefault(v_name, []).append(others)


def gather_output(
    stored: dict[str, Array], dataflow: Dataflow, shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh
) -> Array:
    """Outputs of all heads from the stored blocks of attention with unsplit keys."""
    return rows_to_heads(rows_stored(stored, "o", dataflow, shape, tiling, mesh)[0], shape)


def rows_stored(
    stored: dict[str, Array], slot: str, dataflow: Dataflow, shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh
) -> Array:
    """Stored values of one buffer, shape (parts, problems * queries of a problem, columns)."""
    mesh = busy_mesh(shape, tiling_of_pairs(dataflow, shape, tiling), mesh)
    counts, output = block_counts(shape, tiling_of_pairs(dataflow, shape, tiling), mesh), None
    left = {key: iter(blocks) for key, blocks in stored.items()}
    together = range(2 if is_paired(dataflow, shape, tiling) else 1)
    for (strand, turns), other in product(_turns(dataflow, shape, tiling, mesh), together):
        for first, wave in turns:
            item = np.arange(first, first + wave.active)
            block = next(left[stream_name(strand_prefix(strand + other, dataflow) + slot, wave, counts)]).swapaxes(2, 3)
            if output is None:
                output = np.zeros((counts.parts, shape.problems, counts.outer * len(together), *block.shape[1:]))
            problem, part, place = _places(item, shape, counts)
            output[part, problem, len(together) * place + other] = block
    assert output is not None
    rows = output.reshape(counts.parts, shape.problems, -1, output.shape[-1])[:, :, : shape.rows]
    return rows.reshape(counts.parts, shape.problems * shape.rows, -1)


def rows_to_heads(rows: Array, shape: AttentionShape) -> Array:
    """Outputs of all heads, shape (batch, heads, queries, v), from the rows of all problems."""
    by_query = rows.reshape(shape.batch, shape.kv_heads, shape.queries, shape.heads_per_kv, shape.v).swapaxes(2, 3)
    return by_query.reshape(shape.batch, shape.heads, shape.queries, shape.v)


def _places(item: Array, shape: AttentionShape, counts: BlockCounts) -> tuple[Array, Array, Array]:
    """Problem, part of its keys and block of its queries of each item."""
    return item % shape.problems, item // shape.problems % counts.parts, item // shape.problems // counts.parts


def _each(blocks: Array, tiling: AttentionTiling) -> Array:
    """Of every member of a group, where all have the same."""
    return np.broadcast_to(blocks, (len(blocks), tiling.cols, *blocks.shape[2:]))


def _turns(
    dataflow: Dataflow, shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh
) -> list[tuple[int, list[tuple[int, GroupWave]]]]:
    """By strand, its waves with the first item of each."""
    groups = block_counts(shape, tiling, mesh).groups
    turns = [
        (number * groups, wave) for number, wave in enumerate(list_waves(shape, tiling_of_pairs(dataflow, shape, tiling), mesh))
    ]
    strands = 1 if is_paired(dataflow, shape, tiling) else min(dataflow.strands, len(turns))
    return [(strand, turns[strand::strands]) for strand in range(strands)]


def _slices(x: Array, problem: Array, begin: Array, at: Array, tiling: AttentionTiling) -> Array:
    """Block `at` of some problems' rows from `begin` on, as (problems, members, rows of a slice, columns)."""
    width = tiling.cols * tiling.keys
    rows = (begin + at * width)[:, None] + np.arange(width)
    return np.asarray(x[problem[:, None], rows]).reshape(len(problem), tiling.cols, tiling.keys, x.shape[-1])


def _padded(x: Array, more: int) -> Array:
    """With rows of zeros after those of each problem."""
    return np.pad(x, ((0, 0), (0, more), (0, 0)))


def _blocks(x: Array, blocks: int, members: int, rows: int) -> Array:
    """Rows of each problem, zero-padded, as (problems, blocks, members, rows, columns)."""
    padded = np.zeros((len(x), blocks * members * rows, x.shape[-1]), x.dtype)
    padded[:, : x.shape[1]] = x
    return padded.reshape(len(x), blocks, members, rows, x.shape[-1])
