"""Efficiency of strided reads from main memory, as a formula."""

from typing import Any

from dse.space.array_math import where


def strided_efficiency(piece: Any, stride: Any, bandwidth: Any, gap: Any, waste: Any) -> Any:
    """Share of the bandwidth that a strided read reaches. [-]

    A row of `stride` bytes is read in pieces, one for each reader. Of the bytes that a reader skips, a share is fetched all
    the same, and each row costs a gap:

        efficiency = 1                                                               where piece >= stride
                     1 / (1 + waste * (stride / piece - 1) + gap * bandwidth / stride)  elsewhere

    Args:
        piece: contiguous bytes. [B]
        stride: bytes from one piece to the next. [B]
        bandwidth: of a contiguous stream. [B/s]
        gap: time lost on each row. [s]
        waste: share of the skipped bytes that is fetched. [-]

    Source:
        Ours, after [yuzuguler2025] section 4: reads are continuous with one local KV head and strided with more, and the
        excess time of table 1 at two and at four local heads is nearly the same for each row of the cache.

    >>> strided_efficiency(128, 128, 1e12, 1e-9, 0.5), round(strided_efficiency(128, 256, 1e12, 1e-9, 0.5), 3)
    (1.0, 0.185)
    """
    return where(piece >= stride, 1.0, 1 / (1 + waste * (stride / piece - 1) + gap * bandwidth / stride))
