"""Indexer of sparse attention: scores of all positions, and positions of the largest scores.

A tile has queries of one sequence, all their index heads, and goes through a part of the keys of the index, one key a position
for all heads:

    score(t, s) = sum over heads h of w(t, h) relu(q(t, h) k(s)),

of which, with blocks of positions, the largest in each counts. What is selected is the work of `build_topk_kernel`: halving the
range of scores until as many are above a threshold as are wanted, one bit of a score at a time.

Source:
    [deepseekai2025] the lightning indexer, section 2. Halving is ours: radix selection of one bit a pass.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dse.evaluators.kernels.vector.block_loop_kernels import BlockLoopKernel, ProductInstruction, block_buffers
from dse.evaluators.kernels.vector.row_kernels import WIDE, RowInstruction, RowKernel
from dse.evaluators.program.kernel_ir import dequantize_instructions
from dse.space.array_math import ceil_div


@dataclass(frozen=True, slots=True)
class IndexerShape:
    """Scores of one sparse-attention indexer; whole numbers, or arrays over designs.

    Attributes:
        heads, dim: of the index.
        sequences, queries, keys: how many, and of each; the last query sees all keys.
        causal: whether a query sees no later key.
        block: positions whose largest score counts for all; 1 where each counts for itself.
        scale: bytes of a key's scale, which one-byte formats have.
        packed, expand: bytes of a key's value with its share of scales, and operations that make of it what is multiplied; 0
            where keys are multiplied as they are.
    """

    heads: int
    dim: int
    sequences: Any
    queries: Any
    keys: Any
    causal: bool = False
    block: int = 1
    scale: int = 0
    packed: float = 0.0
    expand: float = 0.0

    @property
    def pairs(self) -> Any:
        """Pairs of query and key that are scored. [-]"""
        unseen = self.queries * (self.queries - 1) / 2 if self.causal else 0
        return self.sequences * (self.queries * self.keys - unseen)

    @property
    def product_flop(self) -> Any:
        """Operations of products for the scores. [FLOP]

        >>> IndexerShape(64, 128, 1, 1, 1000).product_flop  # 16,384 a position
        16384000
        """
        return 2 * self.pairs * self.heads * self.dim


def score_kernel(shape: IndexerShape, queries: Any, keys: Any, dtype: str) -> BlockLoopKernel:
    """Block loop kernel that scores a block of a sequence's queries against its keys.

    Args:
        shape: the index.
        queries, keys: of a block; keys in whole blocks of positions.
        dtype: of queries and keys; scores have 16 bits, or more where these have.
    """
    wide = "float16" if dtype == "int8" else dtype
    many, each = ceil_div(keys, shape.block), shape.block
    sides: dict[str, tuple[Any, ...]] = {"q": (queries, shape.heads, shape.dim), "k": (each, many, shape.dim)}
    summed: dict[str, tuple[Any, ...]] = {"s": (shape.heads, each, many, queries), "out": (1, each, many, queries)}
    statistics: dict[str, tuple[Any, ...]] = {"w": (shape.heads, 1, 1, queries)}
    widened = (
        tuple(RowInstruction(step.function, step.inputs, step.out) for step in dequantize_instructions("k", "wk", shape.expand))
        if shape.expand
        else ()
    )
    body: tuple[ProductInstruction | RowInstruction, ...] = (
        *widened,
        ProductInstruction("wk" if widened else "k", "q", "s", "pcd,mhd->hpcm"),
        RowInstruction("rectified", ("s", "w"), "s"),
        RowInstruction("total", ("s",), "out"),
    )
    if shape.scale:
        statistics["scale"] = (1, each, many, 1)
        body += (RowInstruction("scale", ("out", "scale"), "out"),)
    after = "out"
    if shape.block > 1:
        summed["peak"], after = (1, 1, many, queries), "peak"
        body += (RowInstruction("peaks", ("out",), "peak"),)
    loads = ("k", *(("scale",) if shape.scale else ()))
    moving = ("q", "w", *loads, after)
    if widened:
        sides["wk"] = sides["k"]
    slots = tuple(
        block_buffer._replace(packed=shape.packed) if block_buffer.name == "k" else block_buffer
        for block_buffer in block_buffers(sides, dtype, (), moving)
    )
    slots += block_buffers(summed, wide, (), moving) + block_buffers(statistics, "float32", (), moving)
    return BlockLoopKernel(("q", "w"), (), loads, body, (after,), (), (), slots)


@lru_cache(maxsize=64)
def build_topk_kernel(top: int, passes: int, *, carried: bool = False, later: bool = False) -> RowKernel:
    """Row kernel that finds the positions of the `top` largest values of each row.

    Args:
        top: how many.
        passes: halvings: bits of a value.
        carried: whether values go along with positions, for a row that is a part of one.
        later: whether values are those of parts, with their positions, `at`.
    """
    calls = [RowInstruction("largest", ("x",), "high"), RowInstruction("smallest", ("x",), "low")]
    for _ in range(passes):
        calls += [
            RowInstruction("middle", ("low", "high"), "half"),
            RowInstruction("above", ("x", "half"), "count"),
            RowInstruction("lifted", ("low", "half", "count"), "low", given=top),
            RowInstruction("lowered", ("high", "half", "count"), "high", given=top),
        ]
    calls.append(RowInstruction("positions", ("x", "low", "high"), "chosen", given=top))
    calls += [RowInstruction("picked", ("x", "chosen"), "values")] if carried else []
    calls += [RowInstruction("picked", ("at", "chosen"), "found")] if later else []
    slots: dict[str, int | tuple[int, ...]] = {"x": WIDE, **dict.fromkeys(("low", "high", "half", "count"), 1), "chosen": top}
    slots |= ({"values": top} if carried else {}) | ({"at": WIDE, "found": top} if later else {})
    stored = (*(("found",) if later else ("chosen",)), *(("values",) if carried else ()))
    loads = ("x", "at") if later else ("x",)
    wide = tuple(name for name in ("low", "high", "half", "count", "chosen", "at", "found") if name in slots)
    return RowKernel(((loads, tuple(calls)),), stored, tuple(slots.items()), False, wide)
