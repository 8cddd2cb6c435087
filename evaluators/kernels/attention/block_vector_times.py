"""Times of the vector instructions of attention on a tile, by blocks of queries and keys."""

from typing import Any

from dse.evaluators.kernels.attention.attention_shape import AttentionShape, AttentionTiling
from dse.evaluators.kernels.attention.split_kv_merge import WIDE
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.program.kernel_ir import FUNCTIONS
from dse.space.array_math import where

STATISTIC = 4.0
"""Bytes of a maximum or sum of a row."""


def time_block_vectors(
    shape: AttentionShape, tiling: AttentionTiling, itemsize: float, partial: Any, engines: TileEngines
) -> tuple[Any, Any, Any, Any, Any]:
    """Times of vector instructions of a block of keys, of a later and a masked one, of Q and of O. [s]

    Instructions between two exchanges are one sequence, which is started once; the scale is in the first of them.
    """
    m, each, statistic = tiling.queries, itemsize, tiling.queries * STATISTIC
    scores, outputs = m * tiling.keys, m * shape.v

    start = engines.vector.start / engines.clock

    def time_vector(function: str, elements: Any, moved: Any) -> Any:
        what = FUNCTIONS[function]
        return engines.instruction(elements * what.operations, elements * what.specials, moved)

    softmax = (
        2 * start
        + time_vector("largest", scores, scores * each + statistic)
        + time_vector("exponentials", scores, 2 * scores * each + statistic)
        + time_vector("total", scores, scores * each + statistic)
        + (time_vector("capped", scores, 2 * scores * each) if shape.capped else 0.0)
    )
    again = (
        start
        + time_vector("larger", m, 3 * statistic)
        + time_vector("exponentials", m, 3 * statistic)
        + time_vector("decayed", m, 4 * statistic)
        + time_vector("scale", outputs, 2 * outputs * where(partial, WIDE, each) + statistic)
    )
    mask = time_vector("mask", scores, 2 * scores * each)
    scaled = sum(time_vector("scale", m * columns, 2 * m * columns * each) for columns in _scaled(shape))
    divided = where(partial, 0.0, start + time_vector("divide", outputs, 2 * outputs * each + statistic))
    return softmax, again, mask, scaled, divided


def _scaled(shape: AttentionShape) -> tuple[Any, ...]:
    """Columns of queries that are scaled together: those that meet what of keys is no values, and the others."""
    return (shape.key_dim, shape.v)[shape.bare :] if shape.latent else (shape.key_dim,)
