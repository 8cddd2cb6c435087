"""How a model runs on chips: parallelism, algorithms, prefetching and number formats.

Prefill and decode have each their own plan; where the same devices serve both, a limit holds the parallelism equal.
"""

from space.elementwise import Number
from space.fields import quantity, record, whole, word

BYTES = {"int8": 1, "fp8": 1, "bf16": 2, "fp16": 2, "fp32": 4}
"""Number formats and their size. [B]"""

PREFETCH = ("none", "whole", "partial")
"""What is prefetched during a collective (PRESERVE, algorithm 1): nothing; operators that fit the budget whole;
or also the part that still fits of the first one that does not."""


@record
class Plan:
    """The mapping of one phase."""

    tp: Number = whole("tensor parallelism: devices that share every layer")
    allreduce: str = word("allreduce algorithm between devices")
    prefetch: str = word("policy for weights and KV cache during collectives", PREFETCH)
    prefetch_cap: Number = quantity("1", "share of L2 that prefetched data may take, 0 to 1", high=1.0)


@record
class Precision:
    """Number formats."""

    weights: str = word("format of weights", tuple(BYTES))
    activations: str = word("format of activations", tuple(BYTES))
    kv: str = word("format of the KV cache", tuple(BYTES))


@record
class Mapping:
    """Software on the chip."""

    prefill: Plan
    decode: Plan
    precision: Precision
