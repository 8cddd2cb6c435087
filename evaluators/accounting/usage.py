"""Usage of matrix engines and main memory in some time, for batches and served loads on every layout.

A layout says how much was done and what its engines and channels can do; the shares are written here alone.
"""

from typing import Any

import numpy as np

from dse.space.array_math import divisor, where

USAGE_METRICS = ("peak_flops", "mfu", "hbm_bytes", "hbm_utilisation")
"""Metrics of usage, in the order in which they are computed."""


def usage_of_time(flop: Any, memory_bytes: Any, seconds: Any, peak_flops: Any, memory_bandwidth: Any) -> dict[str, Any]:
    """Metrics of the usage of all engines and all of main memory in some time.

        mfu = F / (P t),   hbm_utilisation = B / (W t)

    Engines and channels count while they wait, and those of idle chips count too. All arguments broadcast over cases and
    designs. NaN stands for a value that is not known or does not exist, as bytes without main memory; metrics that depend
    on it are NaN. A share of no time, or of a rate of 0, is NaN.

    Args:
        flop: F, useful operations of products: 2 m k n for tokens that are served, without padding, repetition or masked
            pairs. [FLOP]
        memory_bytes: B, read from and written to main memory of all chips. [B]
        seconds: t. [s]
        peak_flops: P, of the matrix engines of all chips, at the number formats of activations and weights. [FLOP/s]
        memory_bandwidth: W, of the memory channels of all chips. [B/s]

    Returns:
        `USAGE_METRICS` by name.

    >>> usage_of_time(6e12, 1e12, 2.0, 4e12, 1e12)
    {'peak_flops': 4000000000000.0, 'mfu': 0.75, 'hbm_bytes': 1000000000000.0, 'hbm_utilisation': 0.5}
    >>> usage_of_time(6e12, np.nan, np.array([2.0, 3.0]), 4e12, np.nan)["mfu"].tolist()
    [0.75, 0.5]
    """
    return {
        "peak_flops": peak_flops,
        "mfu": _share(flop, peak_flops * seconds),
        "hbm_bytes": memory_bytes,
        "hbm_utilisation": _share(memory_bytes, memory_bandwidth * seconds),
    }


def _share(part: Any, most: Any) -> Any:
    """Part of the most that is possible; NaN where nothing is."""
    return where(most > 0, part / divisor(most), np.nan)
