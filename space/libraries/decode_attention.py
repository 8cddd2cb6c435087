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

    start: Number = quantity_field("s", "start and end of a kernel, independent of size")
    hbm: Number = quantity_field("1", "share of the memory's bandwidth that a long KV cache reaches", high=1.0, positive=True)
    ramp: Number = quantity_field("s", "additional start of reads beyond what the die's cache holds")
    kept: Number = quantity_field(
        "1",
        "KV caches, in units of the die's cache, at which two thirds of the bytes come from memory, at 1024 keys",
        positive=True,
    )
    knee: Number = quantity_field(
        "1", "sharpness of the transition from the die's cache to memory: 1 as for random places", low=0.5, high=8.0
    )
    length: Number = quantity_field(
        "1", "exponent by which the die's cache holds more of a request's keys, where queries share a tile", high=0.9
    )
    merge: Number = quantity_field("s", "time per part of a request's KV cache: partial results are merged one after the other")
    unit: Number = quantity_field("s", "core time per part of the KV cache of a request and KV head whose queries share a tile")
    walk: Number = quantity_field("s", "core time per key of a single query, or of a query beyond a tile")
    join: Number = quantity_field("s", "time to join the parts of single queries, where half of the cores have at least one")
    cached: Number = quantity_field(
        "1",
        "share of the die's cache bandwidth at which separate queries read keys again",
        high=1.0,
        positive=True,
    )
    sharpness: Number = quantity_field("1", "q of (compute^q + memory^q)^(1/q): 1 for no overlap", low=1.0, high=50.0)
    shared: int = integer_field("queries of a KV head that share a tile")
    wider: str = option_field("queries of a KV head beyond a tile: single, or in further tiles", WIDER)
    fewest: int = integer_field("queries of a KV head from which on they form a tile; fewer are computed singly")
    part: int = integer_field("keys of the smallest part of a KV cache, where queries share a tile")
    waves: Number = quantity_field(
        "1", "parts per core, over all requests, beyond which KV caches are not split", positive=True
    )
    full: Any = quantity_field(
        "1", "parts up to which a KV cache is split fully, and beyond which into the root of so many "
             "times these; always if absent",
        low=1.0, absent=True,
    )  # fmt: skip
    most: int = integer_field("parts of a request's KV cache, at most")
    block: int = integer_field("keys of the smallest part of a KV cache for a single query")
    few: Any = quantity_field(
        "1",
        "parts per core, of all requests and KV heads, below which queries are computed singly; tiles if absent",
        absent=True,
    )
    cut: Any = quantity_field(
        "s", "time to join the parts of single queries whose caches are cut, however few; none if absent", absent=True
    )
    single: Any = quantity_field("s", "core time of a single query, besides its keys; none if absent", absent=True)
    lead: Any = quantity_field(
        "s",
        "time per key of a cache's first keys, before anything overlaps, for heads of 128 columns; none if absent",
        absent=True,
    )
    wide_start: Any = quantity_field(
        "s", "additional start of tiles of heads with more than 128 columns; none if absent", absent=True
    )
    wide_hbm: Any = quantity_field(
        "1", "share of the memory's bandwidth with tiles of heads with more than 128 columns; as `hbm` if absent",
        high=1.0, positive=True, absent=True,
    )  # fmt: skip
    measured_ranges: Any = ranges()
