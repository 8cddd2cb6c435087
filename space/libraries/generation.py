"""Constants of a library's attention of single queries; for what they mean see ``evaluators/kernels/library/generation.py``."""

from dse.space.elementwise import Number
from dse.space.fields import quantity, record, whole


@record
class Generation:
    """One library's attention of decode steps: parts of caches that cores share out, and merge."""

    start: Number = quantity("s", "start of a kernel and its end, whatever its size")
    hbm: Number = quantity("1", "share of the memory's bandwidth that a long cache reaches", high=1.0, positive=True)
    ramp: Number = quantity("s", "that reads beyond what the cache of the die keeps take longer to start")
    kept: Number = quantity("1", "caches of the die of whose bytes two thirds come from memory, at 1024 keys", positive=True)
    knee: Number = quantity("1", "how sharply what exceeds that comes from memory: 1 as of random places", low=0.5, high=8.0)
    length: Number = quantity(
        "1", "by which power of a request's keys the cache keeps more of them, where queries are together", high=0.9
    )
    merge: Number = quantity("s", "for each doubling of the parts of 256 keys of a cache, which are merged in the end")
    unit: Number = quantity("s", "of a core for a request and KV head whose queries are together, however few keys it has")
    alone: Number = quantity("s", "likewise for a query by itself, the only one of its KV head or one of more than a tile has")
    cached: Number = quantity(
        "1",
        "share of the die's cache bandwidth at which queries that are not together read keys again",
        high=1.0,
        positive=True,
    )
    sharpness: Number = quantity("1", "q of (compute^q + memory^q)^(1/q): 1 where neither hides the other", low=1.0, high=50.0)
    shared: int = whole("queries of a KV head that a tile has together")
