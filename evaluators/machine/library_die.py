"""Die as kernel libraries see it, and the constants of the libraries in its software stack."""

from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple

from dse.space.chip import Chip
from dse.space.main_memory import main_memory
from dse.space.stack import Stack


class LibraryDie(NamedTuple):
    """Peaks and sizes of a die by its data sheet; leaves broadcast over designs.

    Attributes:
        cores: that share out a kernel.
        peak: of the matrix engine of a core on 16 bits. [op/s]
        bandwidth: of main memory. [B/s]
        cache_bandwidth: of the cache, to all cores. [B/s]
        cache: its size. [B]
        vector: of the vector engine of a core. [op/s]
        clock: of cores. [Hz]
    """

    cores: Any
    peak: Any
    bandwidth: Any
    cache_bandwidth: Any
    cache: Any
    vector: Any
    clock: Any


class DieLibraries(NamedTuple):
    """Library kernels of a software stack on a die.

    Attributes:
        die: that runs them.
        parts: kind and constants of each, by the names that the stack has for them.
    """

    die: LibraryDie
    parts: tuple[tuple[str, Any], ...]


ENGINE_PARTS = ("iteration", "moe")
"""Parts of a stack that an inference engine adds to kernels, and that give the time of none."""

LIBRARY_PARTS = tuple(spec.name for spec in fields(Stack) if "parts" in spec.metadata and spec.name not in ENGINE_PARTS)
"""Of library kernels: parts of a stack."""

_parts = attrgetter(*LIBRARY_PARTS)


def die_libraries(chip: Chip, stack: Stack) -> DieLibraries | None:
    """Library kernels of a die under a software stack; None if the stack has none."""
    parts = tuple((kind, part) for kind, part in zip(LIBRARY_PARTS, _parts(stack), strict=True) if part is not None)
    if not parts:
        return None
    return DieLibraries(library_die(chip), parts)


def library_die(chip: Chip) -> LibraryDie:
    """Peaks and sizes of a chip as its library kernels see them."""
    core, l2 = chip.core, chip.l2
    return LibraryDie(chip.cores, core.matrix / 2, main_memory(chip).bandwidth, l2.bandwidth, l2.size, core.vector, chip.clock)
