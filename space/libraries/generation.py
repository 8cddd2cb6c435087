"""Constants of a library's attention of single queries; for what they mean see ``evaluators/kernels/library/generation.py``."""

from dse.space.elementwise import Number
from dse.space.fields import quantity, record, whole


@record
class Generation:
    """One library's attention of decode steps: parts of caches that cores share out, and merge."""

    start: Number = quantity("s", "start of a kernel and its end, whatever its size")
    hbm: Number = quantity("1", "share of the memory's bandwidth that a long cache reaches", high=1.0, positive=True)
    ramp: Number = quantity("s", "that reads beyond what the cache of the die keeps take longer to start")
    kept: Number = quantity("1", "caches of the die whose bytes fill two thirds of the ramp", positive=True)
    merge: Number = quantity("s", "for each doubling of the parts of 256 keys of a cache, which are merged in the end")
    unit: Number = quantity("s", "of a core for a request and KV head, however few keys it has")
    cached: Number = quantity(
        "1",
        "share of the die's cache bandwidth at which queries that are not together read keys again",
        high=1.0,
        positive=True,
    )
    sharpness: Number = quantity("1", "q of (compute^q + memory^q)^(1/q): 1 where neither hides the other", low=1.0, high=50.0)
    shared: int = whole("queries of a KV head that a tile has together")
