"""Number formats of what is stored and of what is multiplied: which weights have which, and how two formats meet."""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.graph.operators import MIXING, MatMul, Operator, Part
from dse.evaluators.kernels.attention.shape import AS_OTHERS, Cached
from dse.space.elementwise import maximum
from dse.space.fields import leaves
from dse.space.limits import ClashError
from dse.space.mapping import Mapping, Precision
from dse.space.numbers import BYTES, CACHED, FORMATS, PLAIN, TENSORS, Rates, of_tensor, rate

WIDE = "bf16"
"""What values become that engines do not multiply as they are, where nothing wider waits for them."""


def weights_of(part: Part, operator: Operator, precision: Precision) -> str:
    """The format of an operator's weights: of experts, routed and shared; of attention's projections; or of all others."""
    said = None
    if operator.name.startswith(("experts_", "shared_")):
        said = precision.experts
    elif part.kind == MIXING:
        said = precision.attention
    return str(said or precision.weights)


def index_of(precision: Precision) -> str:
    """The format of the keys of a sparse indexer."""
    return str(precision.index or precision.kv)


def weight_bytes(part: Part, operator: Operator, precision: Precision) -> float:
    """Of one of an operator's weights with its share of scales. [B]"""
    return BYTES[weights_of(part, operator, precision)]


class Sizes(NamedTuple):
    """Bytes of a weight, of a cached value, of one of an indexer's key, of a weight of experts and of attention, and of a value
    that a convolution keeps. [B]
    """

    weights: float
    kv: float
    indexed: float
    experts: float
    attention: float
    conv: float


def sizes(precision: Precision) -> Sizes:
    """Those of some formats."""
    weights, said = BYTES[precision.weights], precision
    experts, attention = (BYTES[of] if of else weights for of in (said.experts, said.attention))
    return Sizes(weights, BYTES[said.kv], BYTES[index_of(said)], experts, attention, BYTES[said.activations])


class Multiplied(NamedTuple):
    """How an engine multiplies values of two formats.

    Attributes:
        width: bytes of the wider value, as it is multiplied. [B]
        pace: time of an operation over that of one on 16 bits; broadcasts over designs.
        first, second: operations of a vector engine on each value of either, to make of it what is multiplied.
    """

    width: float
    pace: Any
    first: float
    second: float


def multiplied(first: str, second: str, rates: Rates | None) -> Multiplied:
    """How an engine with some rates multiplies values of two formats: what both are, at the rate of the slower one.

    What the engine does not multiply is expanded: to the other format, if the engine multiplies that and it has more bits (four
    bits to fp8), else to 16 bits, and the other one with it. So is what has scales of blocks beside 16 or 32 bits. Values of 8
    bits with one scale a tensor or channel, which the engine multiplies, go beside wider ones as they are.

    >>> multiplied("bf16", "mxfp4", Rates(fp8=2.0)), multiplied("fp8", "mxfp4", Rates(fp8=2.0)).pace
    (Multiplied(width=2.0, pace=1.0, first=0.0, second=3.0), 0.5)
    >>> multiplied("mxfp8", "mxfp4", Rates(mxfp8=2.0, mxfp4=4.0)).pace, multiplied("int8", "fp8", Rates(int8=2.0))
    (0.5, Multiplied(width=2.0, pace=1.0, first=1.0, second=1.0))
    """
    one, other = _as(first, second, rates), _as(second, first, rates)
    if WIDE in (one, other) and (one, other) != (first, second):
        one, other = (WIDE if FORMATS[name].bits < FORMATS[WIDE].bits else name for name in (one, other))
    slower = maximum(1 / rate(one, rates), 1 / rate(other, rates))
    work = [FORMATS[name].expand if made != name else 0.0 for name, made in ((first, one), (second, other))]
    return Multiplied(max(BYTES[one], BYTES[other]), slower, *work)


def _as(name: str, beside: str, rates: Rates | None) -> str:
    """What values of a format are multiplied as, beside those of another."""
    of, other = FORMATS[name], FORMATS[beside]
    if rate(name, rates) is not None and not (of.scale and other.bits >= FORMATS[WIDE].bits):
        return name
    return beside if rate(beside, rates) is not None and other.bits > of.bits else WIDE


def expanded(of: float, values: Any) -> Any:
    """Operations of a vector engine to expand values; None where nothing has to be."""
    return of * values if of else None


def expanding(name: str) -> float:
    """Operations on a value where engines multiply plain formats alone, all at one rate: none for those. [op]

    >>> expanding("int8"), expanding("mxfp4")
    (0.0, 3.0)
    """
    return 0.0 if name in PLAIN else FORMATS[name].expand


def plain_activations(precision: Precision) -> None:
    """Refuses activations with scales of blocks, where engines multiply plain formats.

    Raises:
        ClashError: activations with such scales.
    """
    if precision.activations not in PLAIN:
        raise ClashError(
            f"mapping.precision.activations: {precision.activations} has scales of blocks, which no engine of these tiles "
            f"multiplies; valid: {', '.join(PLAIN)}",
            "activations",
        )


def piece_bytes(name: str, along: Any, across: Any = 1) -> Any:
    """Bytes of the piece of a tensor that the fullest core has, with the scales of all blocks that it has a share of. [B]

    A block whose values lie on several cores has its scale on each of them.

    Args:
        name: of a format.
        along: values of the piece along blocks, which cores share out evenly in order.
        across: those in the other direction, likewise.

    >>> piece_bytes("mxfp4", 32, 2), piece_bytes("mxfp4", 8), piece_bytes("mxfp4", 7), piece_bytes("bf16", 7)
    (34.0, 5.0, 5.5, 14.0)
    """
    of = FORMATS[name]
    nbytes = along * across * (of.bits / 8)
    return nbytes + blocks_of(along, of.block) * blocks_of(across, of.across) * (of.scale / 8) if of.scale else nbytes


def blocks_of(values: Any, block: int) -> Any:
    """Blocks that the piece has a share of which has a share of most, of pieces of so many values one after the other.

    A piece begins at most block - gcd(values, block) values into a block.

    >>> blocks_of(7, 32), blocks_of(8, 32), blocks_of(48, 32), blocks_of(np.array([7.0, 33.0]), 32).tolist()
    (2, 1, 2, [2, 2])
    """
    if block == 1:
        return values
    count = np.asarray(values).astype(int)
    found = (count + 2 * block - 1 - np.gcd(count, block)) // block
    return found if isinstance(values, np.ndarray) else int(found)


WEIGHTS = ("weights", "experts", "attention")
"""Formats of `Precision` that are of weights."""


def stored_only(precision: Precision) -> None:
    """Refuses formats that cores of a mesh have no kernels for: they multiply 16 bits, and expand what is stored narrower.

    Raises:
        ClashError: activations of other formats, or something wider.
    """
    for address, word, _ in leaves(precision):
        tensor = address if address in TENSORS else "weights"
        stored = address in (*WEIGHTS, *CACHED)
        valid = [name for name in of_tensor(tensor) if FORMATS[name].bits == 16 or (stored and FORMATS[name].bits < 16)]
        if word not in valid:
            said = f"{word} has no kernels on a mesh of cores; valid: {', '.join(valid)}"
            raise ClashError(f"mapping.precision.{address}: {said}", address)


def itemsize_of(mapping: Mapping) -> float:
    """Bytes of a value of activations where all tiles work on one operator; weights and caches may have any format.

    Raises:
        ClashError: activations with scales of blocks.
    """
    return _one_size(mapping, WEIGHTS, "weights and KV may have such formats")


def itemsize_of_all(mapping: Mapping) -> float:
    """Bytes of a value where there is attention alone, and nothing has weights, whose format has to be as large.

    Raises:
        ClashError: weights of another size, or scales of blocks of anything but keys and values.
    """
    return _one_size(mapping, (), "KV may have such formats, and a model has weights in them too")


def cached_as(precision: Precision) -> Cached:
    """How keys and values are stored and multiplied where all tiles work on one operator.

    >>> cached_as(Precision(weights="bf16", activations="bf16", kv="mxfp4"))
    Cached(nbytes=0.53125, expand=3.0)
    >>> cached_as(Precision(weights="fp8", activations="bf16", kv="fp16")) == AS_OTHERS
    True
    """
    found = Cached(BYTES[precision.kv], expanding(precision.kv))
    return AS_OTHERS if found == Cached(BYTES[precision.activations]) else found


class Keys(NamedTuple):
    """How keys of an indexer are stored and multiplied where all tiles work on one operator.

    Attributes:
        itemsize: bytes of a value of queries and keys, as both are multiplied. [B]
        scale: bytes of the one scale of a key, by which its scores are rescaled. [B]
        packed: bytes of a value with its share of scales, where keys are expanded before they are multiplied; else 0. [B]
        expand: operations of the vector engine on each value then.
    """

    itemsize: float
    scale: int = 0
    packed: float = 0.0
    expand: float = 0.0


def index_keys(precision: Precision, dim: int) -> Keys:
    """Keys of an indexer, of `dim` values each: multiplied as they are stored, if they have one scale each of a plain format;
    with several scales each, or of four bits, expanded to 16 bits, which queries have then.

    >>> index_keys(Precision(weights="bf16", activations="bf16", kv="bf16", index="fp8_1x128"), 128)
    Keys(itemsize=1.0, scale=4, packed=0.0, expand=0.0)
    >>> index_keys(Precision(weights="bf16", activations="bf16", kv="bf16", index="mxfp4"), 128)
    Keys(itemsize=2.0, scale=0, packed=0.53125, expand=3.0)
    """
    name = index_of(precision)
    of = FORMATS[name]
    if of.scale and (of.bits != 8 or of.block < dim):
        return Keys(BYTES[WIDE], 0, BYTES[name], of.expand)
    return Keys(float(of.bits // 8), of.scale // 8)


def _one_size(mapping: Mapping, free: tuple[str, ...], instead: str) -> float:
    """Bytes of a value; formats but `free` ones and those of caches are plain and of as many."""
    said = {name: word for name, word, _ in leaves(mapping.precision) if name not in (*free, *CACHED)}
    activations = said["activations"]
    for name, word in said.items():
        if word not in PLAIN:
            raise ClashError(
                f"mapping.precision.{name}: {word} has scales of blocks, and all tiles on one operator take plain values here; "
                f"valid: {', '.join(PLAIN)}; {instead}",
                name,
            )
        if name != "combine" and BYTES[word] != BYTES[activations]:
            raise ClashError(
                f"mapping.precision.{name}: {word} beside activations of {activations}; tiles on one operator take values of "
                "one size here: choose formats of as many bytes",
                name, "activations",
            )  # fmt: skip
    return BYTES[activations]


def returned_bytes(precision: Precision) -> float:
    """Bytes of a value that experts on other dies send back. [B]"""
    return BYTES[precision.combine or precision.activations]


def apart_bytes(parts: tuple[Part, ...], precision: Precision) -> Any:
    """Bytes of a model's weights beyond what they were if all had the format of most. [B]"""
    usual = BYTES[precision.weights]

    def beyond(part: Part, of: Operator) -> Any:
        if not isinstance(of, MatMul):
            return 0.0
        return (weight_bytes(part, of, precision) - usual) * of.stored * (of.k.units * of.k.width) * (of.n.units * of.n.width)

    return sum(part.times * beyond(part, of) for part in parts for of in part.operators)


def stored_bytes(part: Part, precision: Precision, values: Any) -> Any:
    """Bytes of the weights of a part, of so many values of each operator. [B]

    Args:
        part: whose.
        precision: formats.
        values: of an operator, by it.
    """
    total: Any = 0.0
    for operator in part.operators:
        if isinstance(operator, MatMul):
            total = total + weight_bytes(part, operator, precision) * values(operator)
    return total
