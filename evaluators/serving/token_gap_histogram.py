"""Histogram of token gaps, compiled: from 2^-40 s to 2^40 s, each octave in equal bins."""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dse.evaluators.machine.compile_cache import compiled_inlined

PER_OCTAVE, OCTAVES = 512, 80
"""Parts of an octave, a power of two; octaves."""

BELOW = 52 - 9
"""Bits of a number that its place leaves out: of 52 of its mantissa all but the `PER_OCTAVE` = 2^9 parts."""

FIRST = (1022 - OCTAVES // 2) * PER_OCTAVE
"""The place of the least one, from that of 0."""


@compiled_inlined
def gap_bin(gaps, gap):
    """Histogram bin of a token gap; gap 0, of tokens made together, is in the first bin."""
    place = (np.float64(gap).view(np.int64) >> BELOW) - FIRST  # exponents come before mantissas, which go up evenly
    return min(max(place, 0), len(gaps) - 1)


@compiled_inlined
def count_gap(gaps, gap, times):
    """Count equal token gaps in the histogram."""
    entry = gaps[gap_bin(gaps, gap)]
    entry.count += times
    entry.seconds += times * gap
