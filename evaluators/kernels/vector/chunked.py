"""States of recurrent layers through prompts, chunk by chunk: products of tokens, and a state that stays with its tile.

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

from dse.evaluators.kernels.vector.recurrent import Recurrence
from dse.evaluators.kernels.vector.streamed import Call
from dse.evaluators.kernels.vector.walked import Product, Walk, Work, held

HEADS, VALUES = "ckh,kvh->cvh", "cdh,dvh->cvh"
"""Products of what each head has of keys, or of a square of tokens."""


def chunks(of: Recurrence, heads: Any, values: Any, dtype: str) -> Walk:
    """Chunks of a prompt, one after the other.

    Args:
        of: the layer.
        heads: with the same keys that are together.
        values: of each.
        dtype: of operands; states, decays and steps are in FP32.
    """
    c, k, delta, apart = of.chunk, of.key_dim, of.rule.endswith("delta"), of.rule == "channel_delta"
    decay, square = (c, k if apart else 1, heads), (c, c, heads)
    token, key, state = (c, values, heads), (c, k, heads), (k, values, heads)
    wide: dict[str, tuple[Any, ...]] = {"start": state, "state": state, "g": decay, "b": decay, "e": decay}
    wide |= {"beta": (c, 1, heads)} if of.rule != "linear" else {}
    sides: dict[str, tuple[Any, ...]] = {"q": (c, k, 1), "k": (c, k, 1), "v": token, "out": token, "p": square, "kb": key}
    sides |= {"u": token} if of.rule != "linear" else {}
    sides |= {"qe": key, "kn": key} if apart else {"both": (c, c, 1)}
    if delta:
        sides |= {"a": square, "a2": square, "t": square, "x": token}
        wide |= {} if apart else {"be": (c, 1, heads)}
    loads = ("q", "k", "v", "g", *(("beta",) if of.rule != "linear" else ()))
    # of decays one version is enough: they are summed before anything else is done
    moving = (*(name for name in loads if name != "g"), "out")
    slots = (*held(sides, dtype, (), moving), *held(wide, "float32", (), moving))
    start = (Call("scale", ("start",), "state", given=1.0),)
    body = (*_squares(of), *_values(of), *_after(of))
    return Walk(("start",), start, loads, body, ("out",), (), ("state",), slots)


def _squares(of: Recurrence) -> Iterator[Work]:
    """Decays; products of keys, and of queries and keys, of two tokens. What is not needed any more makes room."""
    apart, delta = of.rule == "channel_delta", of.rule.endswith("delta")
    yield Call("cumulated", ("g",), "b")
    yield Call("exponentials", ("b",), "e", given=0.0)
    if apart:
        yield Call("divide", ("k", "e"), "kn")
        yield Call("scale", ("k", "e"), "kb")
        yield Product("kb", "kn", "a", "ckh,dkh->cdh")
        yield Call("scale", ("q", "e"), "qe")
        yield Product("qe", "kn", "p", "ckh,dkh->cdh")
        yield Call("lower", ("p",), "p")
        yield Call("scale", ("kb", "beta"), "kb")
    else:
        yield Call("decays", ("b",), "p")
        if delta:
            yield Product("k", "k", "both", "cki,dki->cdi")
            yield Call("scale", ("both", "p"), "a")
            yield Call("scale", ("beta", "e"), "be")
            yield Call("scale", ("k", "be"), "kb")
        yield Product("q", "k", "both", "cki,dki->cdi")
        yield Call("scale", ("both", "p"), "p")
    if delta:
        yield Call("under", ("a", "beta"), "a")


def _values(of: Recurrence) -> Iterator[Work]:
    """What is written for each token."""
    if of.rule == "ssd":
        yield Call("scale", ("v", "beta"), "u")
    if not of.rule.endswith("delta"):
        return
    yield Call("diagonal", ("a",), "t")
    power, other, size = "a", "a2", 2
    while size < of.chunk:
        yield Product(power, power, other, "cdh,deh->ceh")
        yield Product("t", other, "t", "cdh,deh->ceh", "sum")
        power, other, size = other, power, 2 * size
    yield Product("kb", "state", "u", HEADS)
    yield Call("scale", ("v", "beta"), "x")
    yield Call("less", ("x", "u"), "x")
    yield Product("t", "x", "u", VALUES)


def _after(of: Recurrence) -> Iterator[Work]:
    """Outputs, and the state after the chunk."""
    written = "v" if of.rule == "linear" else "u"
    if of.rule == "channel_delta":
        yield Product("qe", "state", "out", HEADS)
    else:
        yield Product("q", "state", "out", "cki,kvh->cvh")
        yield Call("scale", ("out", "e"), "out")
    yield Product("p", written, "out", VALUES, "sum")
    yield Call("left", ("b",), "e")
    yield Call("scale", ("k", "e"), "kb")
    yield Call("ebbed", ("state", "b"), "state")
    yield Product("kb", written, "state", "ckh,cvh->kvh", "sum")
