"""Number formats of stored and multiplied tensors, and the products of two formats."""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.graph.operators import MIXING, Operator, Segment
from dse.evaluators.kernels.attention.attention_shape import SAME_AS_ACTIVATIONS, KvStorage
from dse.space.array_math import maximum
from dse.space.fields import iterate_leaves
from dse.space.limits import IncompatibleOptionsError
from dse.space.mapping import AS_WEIGHTS, FormatPlan, Mapping
from dse.space.number_formats import (
    BYTES_BY_FORMAT,
    CACHED_TENSORS,
    FORMATS,
    TENSORS,
    UNSCALED_FORMATS,
    FormatRates,
    formats_of_tensor,
    relative_rate,
)

WIDE_FORMAT = "bf16"
"""What values become that engines do not multiply as they are, where nothing wider waits for them."""


ROUTING_OPERATORS = ("router", "shared_score")
"""Products that choose or weigh experts, whose weights stay as norms are."""

HEAD_OPERATORS = ("head", "mtp_head")
"""Products of hidden vectors with the head."""


def unquantized_format(precision: FormatPlan) -> str:
    """Number format of what files of fewer bits leave at 16: norms, biases, routers, embedding and head.

    An embedding `as_weights` counts all of these as weights, as papers do.

    >>> unquantized_format(FormatPlan(weights="int4_g128", activations="fp16", kv="fp16"))
    'bf16'
    >>> unquantized_format(FormatPlan(weights="fp16", activations="fp16", kv="fp16"))
    'fp16'
    """
    narrow = FORMATS[precision.weights].bits < FORMATS[WIDE_FORMAT].bits
    return WIDE_FORMAT if narrow and precision.embedding != AS_WEIGHTS else str(precision.weights)


def embedding_format(precision: FormatPlan) -> str:
    """Number format of the embedding table, where it is not the head's as well."""
    return _table_format(precision.embedding, precision)


def head_format(precision: FormatPlan) -> str:
    """Number format of the head, and of a table that the embedding shares with it."""
    return _table_format(precision.head, precision)


def _table_format(option: str | None, precision: FormatPlan) -> str:
    if option is None:
        return unquantized_format(precision)
    return str(precision.weights if option == AS_WEIGHTS else option)


def weight_format(part: Segment, operator: Operator, precision: FormatPlan) -> str:
    """Number format of an operator's weights, from those of experts, attention, head and all others."""
    if operator.name in HEAD_OPERATORS:
        return head_format(precision)
    if operator.name in ROUTING_OPERATORS:
        return unquantized_format(precision)
    own = None
    if operator.name.startswith(("experts_", "shared_")):
        own = precision.experts
    elif part.kind == MIXING:
        own = precision.attention
    return str(own or precision.weights)


def index_format(precision: FormatPlan) -> str:
    """Number format of the keys of a sparse indexer."""
    return str(precision.index or precision.kv)


def weight_bytes(part: Segment, operator: Operator, precision: FormatPlan) -> float:
    """Bytes of one of an operator's weights, with its share of scales. [B]"""
    return BYTES_BY_FORMAT[weight_format(part, operator, precision)]


class ValueBytes(NamedTuple):
    """Bytes per value of weights, KV cache, indexer keys and convolution state, by format. [B]

    Experts and attention have weights of their own, as have embedding and head; `unquantized` are norms, biases and routers.
    """

    weights: float
    kv: float
    indexed: float
    experts: float
    attention: float
    conv: float
    embedding: float
    head: float
    unquantized: float


def value_bytes(precision: FormatPlan) -> ValueBytes:
    """Bytes per value of each tensor in a format plan. [B]"""
    weights, given_precision = BYTES_BY_FORMAT[precision.weights], precision
    experts, attention = (
        BYTES_BY_FORMAT[number_format] if number_format else weights
        for number_format in (given_precision.experts, given_precision.attention)
    )
    return ValueBytes(
        weights,
        BYTES_BY_FORMAT[given_precision.kv],
        BYTES_BY_FORMAT[index_format(given_precision)],
        experts,
        attention,
        BYTES_BY_FORMAT[given_precision.activations],
        BYTES_BY_FORMAT[embedding_format(precision)],
        BYTES_BY_FORMAT[head_format(precision)],
        BYTES_BY_FORMAT[unquantized_format(precision)],
    )


class FormatProduct(NamedTuple):
    """Product of values of two number formats on a matrix engine: width, pace, and conversions.

    Attributes:
        width: bytes of the wider value, as it is multiplied. [B]
        pace: time of an operation over that of one on 16 bits; broadcasts over designs.
        first, second: operations of a vector engine on each value of either, to make of it what is multiplied.
    """

    width: float
    pace: Any
    first: float
    second: float


def format_product(first: str, second: str, rates: FormatRates | None) -> FormatProduct:
    """Product of values of two formats on an engine with some rates: the slower rate counts.

    What the engine does not multiply is expanded: to the other format, if the engine multiplies that and it has more bits (four
    bits to fp8), else to 16 bits, and the other one with it. So is what has scales of blocks beside 16 or 32 bits. Values of 8
    bits with one scale a tensor or channel, which the engine multiplies, go beside wider ones as they are.

    >>> format_product("bf16", "mxfp4", FormatRates(fp8=2.0)), format_product("fp8", "mxfp4", FormatRates(fp8=2.0)).pace
    (FormatProduct(width=2.0, pace=1.0, first=0.0, second=3.0), 0.5)
    >>> (
    ...     format_product("mxfp8", "mxfp4", FormatRates(mxfp8=2.0, mxfp4=4.0)).pace,
    ...     format_product("int8", "fp8", FormatRates(int8=2.0)),
    ... )
    (0.5, FormatProduct(width=2.0, pace=1.0, first=1.0, second=1.0))
    """
    name, other = _as(first, second, rates), _as(second, first, rates)
    if WIDE_FORMAT in (name, other) and (name, other) != (first, second):
        name, other = (WIDE_FORMAT if FORMATS[name].bits < FORMATS[WIDE_FORMAT].bits else name for name in (name, other))
    slower = maximum(1 / relative_rate(name, rates), 1 / relative_rate(other, rates))
    work = [FORMATS[name].expand if made != name else 0.0 for name, made in ((first, name), (second, other))]
    return FormatProduct(max(BYTES_BY_FORMAT[name], BYTES_BY_FORMAT[other]), slower, *work)


def _as(name: str, beside: str, rates: FormatRates | None) -> str:
    """Format in which values are multiplied with values of another format."""
    number_format, other = FORMATS[name], FORMATS[beside]
    if relative_rate(name, rates) is not None and not (number_format.scale and other.bits >= FORMATS[WIDE_FORMAT].bits):
        return name
    return beside if relative_rate(beside, rates) is not None and other.bits > number_format.bits else WIDE_FORMAT


def dequantize_operations(per_value: float, values: Any) -> Any:
    """Vector operations that dequantise an operator's values; None if none are needed."""
    return per_value * values if per_value else None


def dequantize_operations_per_value(name: str) -> float:
    """Vector operations that dequantise a value, where engines multiply plain formats only. [op]

    0 for plain formats.

    >>> dequantize_operations_per_value("int8"), dequantize_operations_per_value("mxfp4")
    (0.0, 3.0)
    """
    return 0.0 if name in UNSCALED_FORMATS else FORMATS[name].expand


def refuse_scaled_activations(precision: FormatPlan) -> None:
    """Refuse activations with block scales where engines multiply plain formats.

    Raises:
        ClashError: activations with such scales.
    """
    if precision.activations not in UNSCALED_FORMATS:
        raise IncompatibleOptionsError(
            f"mapping.precision.activations: {precision.activations} has scales of blocks, but engines of these tiles multiply "
            f"plain formats only; valid: {', '.join(UNSCALED_FORMATS)}",
            "activations",
        )


def piece_bytes(name: str, along: Any, across: Any = 1) -> Any:
    """Bytes of the fullest core's piece of a tensor, with the scales of all blocks that it touches. [B]

    A block whose values lie on several cores has its scale on each of them.

    Args:
        name: of a format.
        along: values of the piece along blocks, which cores share out evenly in order.
        across: those in the other direction, likewise.

    >>> piece_bytes("mxfp4", 32, 2), piece_bytes("mxfp4", 8), piece_bytes("mxfp4", 7), piece_bytes("bf16", 7)
    (34.0, 5.0, 5.5, 14.0)
    """
    number_format = FORMATS[name]
    nbytes = along * across * (number_format.bits / 8)
    return (
        nbytes
        + blocks_touched(along, number_format.block) * blocks_touched(across, number_format.across) * (number_format.scale / 8)
        if number_format.scale
        else nbytes
    )


def blocks_touched(values: Any, block: int) -> Any:
    """Blocks touched by the piece of `values` consecutive values that touches most. [-]

    A piece begins at most block - gcd(values, block) values into a block.

    >>> blocks_touched(7, 32), blocks_touched(8, 32), blocks_touched(48, 32), blocks_touched(np.array([7.0, 33.0]), 32).tolist()
    (2, 1, 2, [2, 2])
    """
    if block == 1:
        return values
    count = np.asarray(values).astype(int)
    blocks = (count + 2 * block - 1 - np.gcd(count, block)) // block
    return blocks if isinstance(values, np.ndarray) else int(blocks)


TABLES = ("embedding", "head")
"""Formats of `FormatPlan` that are of tables of tokens, which a model alone has."""

WEIGHTS = ("weights", "experts", "attention", *TABLES)
"""Formats of `FormatPlan` that are of weights."""


def refuse_unsupported_formats(precision: FormatPlan) -> None:
    """Refuse number formats for which cores of a mesh have no kernels.

    Cores multiply 16 bits, and dequantise what is stored narrower.

    Raises:
        ClashError: activations of other formats, or something wider.
    """
    for address, word, _ in iterate_leaves(precision):
        tensor = address if address in TENSORS else "weights"
        stored = address in (*WEIGHTS, *CACHED_TENSORS)
        valid = [name for name in formats_of_tensor(tensor) if FORMATS[name].bits == 16 or (stored and FORMATS[name].bits < 16)]
        if word not in valid and word != AS_WEIGHTS:
            reason = f"{word} has no kernels on a mesh of cores; valid: {', '.join(valid)}"
            raise IncompatibleOptionsError(f"mapping.precision.{address}: {reason}", address)


def activation_bytes(mapping: Mapping) -> float:
    """Bytes per activation value where all tiles work on one operator. [B]

    Weights and caches may have any format.

    Raises:
        ClashError: activations with scales of blocks.
    """
    return _one_size(mapping, WEIGHTS, "weights and KV may have scales of blocks")


def attention_bytes(mapping: Mapping) -> float:
    """Bytes per value of an attention kernel by itself, where all formats must have one size. [B]

    Raises:
        ClashError: weights of another size, or scales of blocks of anything but keys and values.
    """
    return _one_size(mapping, (), "KV may have scales of blocks, and so may weights of a model")


def kv_storage(precision: FormatPlan) -> KvStorage:
    """Storage of keys and values where all tiles work on one operator.

    >>> kv_storage(FormatPlan(weights="bf16", activations="bf16", kv="mxfp4"))
    KvStorage(nbytes=0.53125, expand=3.0)
    >>> kv_storage(FormatPlan(weights="fp8", activations="bf16", kv="fp16")) == SAME_AS_ACTIVATIONS
    True
    """
    storage = KvStorage(BYTES_BY_FORMAT[precision.kv], dequantize_operations_per_value(precision.kv))
    return SAME_AS_ACTIVATIONS if storage == KvStorage(BYTES_BY_FORMAT[precision.activations]) else storage


class IndexKeyStorage(NamedTuple):
    """Storage of an indexer's keys where all tiles work on one operator.

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


def index_key_storage(precision: FormatPlan, dim: int) -> IndexKeyStorage:
    """Storage of an indexer's keys, of `dim` values each.

    They are multiplied as they are stored, if they have one scale each of a plain format. With several scales each, or of four
    bits, they are dequantised to 16 bits, which queries have then.

    >>> index_key_storage(FormatPlan(weights="bf16", activations="bf16", kv="bf16", index="fp8_1x128"), 128)
    IndexKeyStorage(itemsize=1.0, scale=4, packed=0.0, expand=0.0)
    >>> index_key_storage(FormatPlan(weights="bf16", activations="bf16", kv="bf16", index="mxfp4"), 128)
    IndexKeyStorage(itemsize=2.0, scale=0, packed=0.53125, expand=3.0)
    """
    name = index_format(precision)
    number_format = FORMATS[name]
    if number_format.scale and (number_format.bits != 8 or number_format.block < dim):
        return IndexKeyStorage(BYTES_BY_FORMAT[WIDE_FORMAT], 0, BYTES_BY_FORMAT[name], number_format.expand)
    return IndexKeyStorage(float(number_format.bits // 8), number_format.scale // 8)


def _one_size(mapping: Mapping, free: tuple[str, ...], instead: str) -> float:
    """Bytes of a value; formats but `free` ones and those of caches are plain and of as many."""
    words = {name: word for name, word, _ in iterate_leaves(mapping.precision) if name not in (*free, *TABLES, *CACHED_TENSORS)}
    activations = words["activations"]
    for name, word in words.items():
        if word not in UNSCALED_FORMATS:
            raise IncompatibleOptionsError(
                f"mapping.precision.{name}: {word} has scales of blocks, but tiles that share an operator take plain values; "
                f"valid: {', '.join(UNSCALED_FORMATS)}; {instead}",
                name,
            )
        if name != "combine" and BYTES_BY_FORMAT[word] != BYTES_BY_FORMAT[activations]:
            raise IncompatibleOptionsError(
                f"mapping.precision.{name}: tiles that share an operator need values of one size, got {word} and activations "
                f"of {activations}; choose formats of equal size",
                name, "activations",
            )  # fmt: skip
    return BYTES_BY_FORMAT[activations]


def combine_bytes(precision: FormatPlan) -> float:
    """Bytes per value that experts on other dies return. [B]"""
    return BYTES_BY_FORMAT[precision.combine or precision.activations]
