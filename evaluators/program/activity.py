"""Activity of a program: multiply-adds, elements, bytes, and the links that bytes cross."""

from typing import Any, NamedTuple

from dse.space.array_math import sum_nonzero


class Activity(NamedTuple):
    """Activity of a program on any simulator; leaves are floats or arrays over designs.

    Attributes:
        macs: multiply-adds, padding included.
        sent_bytes: that leave a core, once for each message.
        hop_bytes: bytes times the links they cross on the mesh.
        elements: that vector instructions compute.
        memory_bytes: that come from memory channels or go there.
        cache_bytes: that come from the cache in front of them or go there.
        linked_bytes: bytes times the links between dies that they cross.
        boxed_bytes: bytes times the links of the network between nodes of dies, or between chips of a chain, that they cross.
        spread_bytes: that come to cores beyond those that leave them: a multicast comes to several; of what routers add up on
            its way, one is left.
        tier_energy: of bytes of memory tiers. [J]
    """

    macs: Any = 0.0
    sent_bytes: Any = 0.0
    hop_bytes: Any = 0.0
    elements: Any = 0.0
    memory_bytes: Any = 0.0
    cache_bytes: Any = 0.0
    linked_bytes: Any = 0.0
    boxed_bytes: Any = 0.0
    spread_bytes: Any = 0.0
    tier_energy: Any = 0.0

    def __add__(self, other: "Activity") -> "Activity":  # type: ignore[override]
        return Activity(*(sum_nonzero(both) for both in zip(self, other, strict=True)))

    def __mul__(self, times: Any) -> "Activity":
        return Activity(*(count if isinstance(count, float) and count == 0 else count * times for count in self))


COUNTS = Activity._fields
"""What an activity counts."""
