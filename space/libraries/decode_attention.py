"""Constants of a library's decode attention kernel.

Their meaning for time is in ``evaluators/kernels/library/decode_attention.py``.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import integer_field, option_field, quantity_field, ranges, record_class

WIDER = ("alone", "tiles")
"""Queries of a KV head that are more than a tile."""


@record_class
class DecodeAttentionConstants:
    """Fitted constants of one library's decode attention, whose KV cache parts are split over cores."""

    start: Number = quantity_field("s", "start of a kernel and its end, whatever its size")
    hbm: Number = quantity_field("1", "share of the memory's bandwidth that a long cache reaches", high=1.0, positive=True)
    ramp: Number = quantity_field("s", "that reads beyond what the cache of the die keeps take longer to start")
    kept: Number = quantity_field(
        "1", "caches of the die of whose bytes two thirds come from memory, at 1024 keys", positive=True
    )
    knee: Number = quantity_field(
        "1", "how sharply what exceeds that comes from memory: 1 as of random places", low=0.5, high=8.0
    )
    length: Number = quantity_field(
        "1", "by which power of a request's keys the cache keeps more of them, where queries are together", high=0.9
    )
    merge: Number = quantity_field("s", "for each part of a request's cache: partial results are merged one after the other")
    unit: Number = quantity_field(
        "s", "of a core for each part of the cache of a request and KV head whose queries are together"
    )
    walk: Number = quantity_field("s", "of a core for each key that a query by itself has, or one of more than a tile has")
    join: Number = quantity_field(
        "s", "of joining the parts of queries by themselves, where half of the cores have one or more"
    )
    cached: Number = quantity_field(
        "1",
        "share of the die's cache bandwidth at which queries that are not together read keys again",
        high=1.0,
        positive=True,
    )
    sharpness: Number = quantity_field(
        "1", "q of (compute^q + memory^q)^(1/q): 1 where neither hides the other", low=1.0, high=50.0
    )
    shared: int = integer_field("queries of a KV head that a tile has together")
    wider: str = option_field("queries of a KV head beyond a tile: each by itself, or in further tiles", WIDER)
    fewest: int = integer_field("queries of a KV head from which on they are a tile; fewer are each by itself")
    part: int = integer_field("keys of the smallest part of a cache, where queries are together")
    waves: Number = quantity_field(
        "1", "parts a core, of all requests together, beyond which caches are not cut", positive=True
    )
    full: Any = quantity_field(
        "1", "parts up to which a cache is cut in full, and beyond which into the root of so many times these; absent: always",
        low=1.0, absent=True,
    )  # fmt: skip
    most: int = integer_field("parts of a request's cache at most")
    block: int = integer_field("keys of the smallest part of a cache for a query by itself")
    measured_ranges: Any = ranges()
