"""State update of recurrent layers in prefill, chunk by chunk.

Each chunk has products of tokens, and a state that stays with its tile.

An item is a state of a sequence, or those of some heads with the same keys and queries, or some of their values, and its blocks
are the chunks of the prompt, one after the other. With b the sums of logarithms of decays along a chunk, and D(i, j) =
exp(b_i - b_j) for j <= i:

    A = beta_i (k_i k_j) D(i, j) below the diagonal      U = (1 + A)^-1 (beta V - beta exp(b) K S)
    O = exp(b) Q S + ((Q K^T) D) U                       S = exp(b_C) S + (exp(b_C - b) K)^T U

and U = beta V, or V, where nothing is corrected. With decays for each key, these go with K and Q before products, as exp(b) and
exp(-b): what keeps these in range, chunks of chunks, is not done. The inverse is a product of powers, (1 - A)(1 + A^2)(1 + A^4)
and so on, which ends since A has nothing on its diagonal.

Source:
    [yang2024] section 3.3, the gated delta rule's UT transform; [dao2024] section 6, blocks of SSD; [kimi2025] decays for each
    key. Two departures: a tile that has the state corrects values before it inverts, which saves the product of the inverse
    with keys; and it inverts by products, not row by row.
"""

from collections.abc import Iterator
from typing import Any

from dse.evaluators.kernels.vector.block_loop_kernels import BlockLoopKernel, LoopInstruction, ProductInstruction, block_buffers
from dse.evaluators.kernels.vector.recurrent_decode import RecurrenceShape
from dse.evaluators.kernels.vector.row_kernels import RowInstruction

HEADS, VALUES = "ckh,kvh->cvh", "cdh,dvh->cvh"
"""Products of what each head has of keys, or of a square of tokens."""


def prefill_chunks(shape: RecurrenceShape, heads: Any, values: Any, dtype: str) -> BlockLoopKernel:
    """Block loop kernel of the chunks of a prompt, one after the other.

    Args:
        shape: the layer.
        heads: with the same keys that are together.
        values: of each.
        dtype: of operands; states, decays and steps are in FP32.
    """
    c, k, delta, apart = shape.chunk, shape.key_dim, shape.rule.endswith("delta"), shape.rule == "channel_delta"
    decay, square = (c, k if apart else 1, heads), (c, c, heads)
    token, key, state = (c, values, heads), (c, k, heads), (k, values, heads)
    wide: dict[str, tuple[Any, ...]] = {"start": state, "state": state, "g": decay, "b": decay, "e": decay}
    wide |= {"beta": (c, 1, heads)} if shape.rule != "linear" else {}
    sides: dict[str, tuple[Any, ...]] = {"q": (c, k, 1), "k": (c, k, 1), "v": token, "out": token, "p": square, "kb": key}
    sides |= {"u": token} if shape.rule != "linear" else {}
    sides |= {"qe": key, "kn": key} if apart else {"both": (c, c, 1)}
    if delta:
        sides |= {"a": square, "a2": square, "t": square, "x": token}
        wide |= {} if apart else {"be": (c, 1, heads)}
    loads = ("q", "k", "v", "g", *(("beta",) if shape.rule != "linear" else ()))
    # of decays one version is enough: they are summed before anything else is done
    moving = (*(name for name in loads if name != "g"), "out")
    slots = (*block_buffers(sides, dtype, (), moving), *block_buffers(wide, "float32", (), moving))
    start = (RowInstruction("scale", ("start",), "state", given=1.0),)
    body = (*_squares(shape), *_values(shape), *_after(shape))
    return BlockLoopKernel(("start",), start, loads, body, ("out",), (), ("state",), slots)


def _squares(shape: RecurrenceShape) -> Iterator[LoopInstruction]:
    """Decays; products of keys, and of queries and keys, of two tokens. What is not needed any more makes room."""
    apart, delta = shape.rule == "channel_delta", shape.rule.endswith("delta")
    yield RowInstruction("cumulated", ("g",), "b")
    yield RowInstruction("exponentials", ("b",), "e", given=0.0)
    if apart:
        yield RowInstruction("divide", ("k", "e"), "kn")
        yield RowInstruction("scale", ("k", "e"), "kb")
        yield ProductInstruction("kb", "kn", "a", "ckh,dkh->cdh")
        yield RowInstruction("scale", ("q", "e"), "qe")
        yield ProductInstruction("qe", "kn", "p", "ckh,dkh->cdh")
        yield RowInstruction("lower", ("p",), "p")
        yield RowInstruction("scale", ("kb", "beta"), "kb")
    else:
        yield RowInstruction("decays", ("b",), "p")
        if delta:
            yield ProductInstruction("k", "k", "both", "cki,dki->cdi")
            yield RowInstruction("scale", ("both", "p"), "a")
            yield RowInstruction("scale", ("beta", "e"), "be")
            yield RowInstruction("scale", ("k", "be"), "kb")
        yield ProductInstruction("q", "k", "both", "cki,dki->cdi")
        yield RowInstruction("scale", ("both", "p"), "p")
    if delta:
        yield RowInstruction("under", ("a", "beta"), "a")


def _values(shape: RecurrenceShape) -> Iterator[LoopInstruction]:
    """What is written for each token."""
    if shape.rule == "ssd":
        yield RowInstruction("scale", ("v", "beta"), "u")
    if not shape.rule.endswith("delta"):
        return
    yield RowInstruction("diagonal", ("a",), "t")
    power, other, size = "a", "a2", 2
    while size < shape.chunk:
        yield ProductInstruction(power, power, other, "cdh,deh->ceh")
        yield ProductInstruction("t", other, "t", "cdh,deh->ceh", "sum")
        power, other, size = other, power, 2 * size
    yield ProductInstruction("kb", "state", "u", HEADS)
    yield RowInstruction("scale", ("v", "beta"), "x")
    yield RowInstruction("less", ("x", "u"), "x")
    yield ProductInstruction("t", "x", "u", VALUES)


def _after(shape: RecurrenceShape) -> Iterator[LoopInstruction]:
    """Outputs, and the state after the chunk."""
    written = "v" if shape.rule == "linear" else "u"
    if shape.rule == "channel_delta":
        yield ProductInstruction("qe", "state", "out", HEADS)
    else:
        yield ProductInstruction("q", "state", "out", "cki,kvh->cvh")
        yield RowInstruction("scale", ("out", "e"), "out")
    yield ProductInstruction("p", written, "out", VALUES, "sum")
    yield RowInstruction("left", ("b",), "e")
    yield RowInstruction("scale", ("k", "e"), "kb")
    yield RowInstruction("ebbed", ("state", "b"), "state")
    yield ProductInstruction("kb", written, "state", "ckh,cvh->kvh", "sum")
