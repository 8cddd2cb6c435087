"""Usage of matrix engines and main memory in some time, for batches and served loads on every layout.

A layout says how much was done and what its engines and channels can do; the shares are written here alone.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from dse.space.array_math import divisor, maximum, where
from dse.space.chip import Chip
from dse.space.main_memory import main_memory

MAIN_MEMORY_METRICS = frozenset({"hbm_bytes", "hbm_utilisation", "hbm_used"})
"""Metrics that do not exist without main memory."""

USAGE_METRICS = ("peak_flops", "mfu", "hbm_bytes", "hbm_utilisation")
"""Metrics of usage, in the order in which they are computed."""


class PeakRates(NamedTuple):
    """Peak rates of the engines, memory and links of one chip; leaves broadcast over designs.

    Attributes:
        flops: of its matrix engines, at the number formats of activations and weights. [FLOP/s]
        memory: bandwidth of its memory channels; NaN without main memory. [B/s]
        links: bandwidth of all links of its NoC together; None without a NoC. [B/s]
    """

    flops: Any
    memory: Any
    links: Any | None = None


def mesh_peak_rates(chip: Chip, macs_per_cycle: Any, memory: Any = np.nan) -> PeakRates:
    """Peak rates of a mesh of cores.

    Args:
        chip: with a mesh.
        macs_per_cycle: multiply-adds of one core in a cycle. [1]
        memory: bandwidth of all memory channels; NaN without main memory. [B/s]
    """
    flops = 2.0 * chip.mesh.rows * chip.mesh.cols * (macs_per_cycle * chip.clock)
    return PeakRates(flops, memory, mesh_link_bandwidth(chip))


def tile_peak_rates(chip: Chip) -> PeakRates:
    """Peak rates of all tiles' matrix engines, channels and links of one chip or die."""
    engine = chip.tile.matrix
    return mesh_peak_rates(chip, engine.rows * engine.cols, main_memory(chip).bandwidth)


def fastest_product_rate(chip: Chip) -> Any:
    """Highest rate of products on tiles: of arrays, or of lanes that may multiply if faster. [FLOP/s]"""
    rate = tile_peak_rates(chip).flops
    if chip.tile.gemm_engine == "matrix":
        return rate
    return maximum(rate, mesh_peak_rates(chip, chip.tile.vector.lanes).flops)


def system_peak_rates(rates: PeakRates, chips: Any) -> PeakRates:
    """Peak rates of several equal chips together.

    >>> system_peak_rates(PeakRates(4e12, 1e12), 8.0)
    PeakRates(flops=32000000000000.0, memory=8000000000000.0, links=None)
    """
    return PeakRates(rates.flops * chips, rates.memory * chips, None if rates.links is None else rates.links * chips)


def usage_of_time(flop: Any, memory_bytes: Any, seconds: Any, peak_flops: Any, memory_bandwidth: Any) -> dict[str, Any]:
    """Metrics of the usage of all engines and all of main memory in some time.

        mfu = F / (P t),   hbm_utilisation = B / (W t)

    Engines and channels count while they wait, and those of idle chips count too. All arguments broadcast over cases and
    designs. NaN stands for a value that is not known or does not exist, as bytes without main memory; metrics that depend
    on it are NaN. A share of no time, or of a rate of 0, is NaN.

    Args:
        flop: F, useful operations of products: 2 m k n for tokens that are computed, without padding, repetition on several
            devices, or masked pairs; tokens that speculation rejects count. [FLOP]
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


def link_utilisation(hop_bytes: Any, bandwidth: Any, seconds: Any) -> Any:
    """Bytes times links crossed, over the bandwidth of all links in some time; 0 without links.

    >>> link_utilisation(6e12, 4e12, 2.0), link_utilisation(0.0, 0.0, 2.0)
    (0.75, 0.0)
    """
    return where(bandwidth > 0, hop_bytes / (divisor(bandwidth) * seconds), 0.0)


def absence_reason(names: Collection[str], metrics: Collection[str]) -> str:
    """Why metrics do not exist beside those that do, as text; empty string if it is not known.

    >>> absence_reason(["hbm_used"], ["mfu", "energy"]), absence_reason(["tpot"], ["mfu"])
    (', since there is no main memory', '')
    """
    without = MAIN_MEMORY_METRICS.isdisjoint(metrics) and set(names) <= MAIN_MEMORY_METRICS
    return ", since there is no main memory" if without else ""


def mesh_link_bandwidth(chip: Chip) -> Any:
    """Bandwidth of all links of a chip's mesh together, both directions. [B/s]"""
    rows, cols = chip.mesh.rows * 1.0, chip.mesh.cols * 1.0
    return 2 * (rows * (cols - 1) + cols * (rows - 1)) * (chip.noc.word_bytes * chip.clock / chip.noc.word_cycles)


def _share(part: Any, most: Any) -> Any:
    """Part of the most that is possible; NaN where nothing is."""
    return where(most > 0, part / divisor(most), np.nan)
