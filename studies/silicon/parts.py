"""Effects of parts that the peak power leaves out, each alone and all together.

The effects are on chips left out of the fit. A part is decided on all rows at once: it is adopted if it brings left-out
chips nearer, which none of these does.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dse.evaluators.silicon import area
from dse.evaluators.silicon import supply_voltage as supply
from dse.space.array_math import Array
from dse.space.chip import Chip
from dse.space.main_memory import main_memory
from dse.studies.markdown_table import table
from dse.studies.silicon.fit import fit_energy, of_power, rows, with_constants

WIRED = 11.4
"""Energy of a byte of a shared cache with 15 mm of wire at 0.08 pJ per bit and mm instead of 0.02, at N7. [pJ/B]"""

GIGAHERTZ = 1e9


class KnownPart(NamedTuple):
    """A part of the peak power: its addition by chip [W], and the arriving share of the total."""

    name: str
    more: Callable[[Chip], float] = lambda chip: 0.0
    arrives: float = 1.0


def _cache(chip: Chip, byte: float = 1.0) -> float:
    """Of a shared cache at its own bandwidth, not main memory's."""
    if chip.mesh is not None or not chip.l2.size:
        return 0.0
    shared = chip.technology.shared * supply.relative_energy(chip)
    return float((chip.l2.bandwidth * byte - main_memory(chip).bandwidth) * shared)


def _between(chip: Chip) -> float:
    """Of links between the dies of a chip, which its floor plan counts in both directions at both ends."""
    return float(chip.die.die_link_bandwidth / 2 * getattr(chip.technology, chip.die.die_link_reach + "_energy_per_byte"))


def _clocks(chip: Chip) -> float:
    """Of clocks that run whatever is done, by area and clock: 0.03 W/mm2 a GHz."""
    return float(0.03 * area.total_area(chip) * chip.clock / GIGAHERTZ * supply.relative_energy(chip))


def _hot(chip: Chip) -> float:
    """Of leakage of a die at work, twice that of an idle one."""
    return float(chip.technology.static_power_density * area.total_area(chip) * supply.relative_energy(chip))


def _all(chip: Chip) -> float:
    return _cache(chip, WIRED / 4) + _between(chip) + _clocks(chip) + _hot(chip)


PARTS = (
    KnownPart("none"),
    KnownPart("shared caches at their own bandwidth", _cache),
    KnownPart("the same, with wires of 0.08 pJ a bit and mm", lambda chip: _cache(chip, WIRED / 4)),
    KnownPart("links between the dies of a chip", _between),
    KnownPart("clocks, 0.03 W/mm2 a GHz", _clocks),
    KnownPart("leakage of hot dies, as much again as of idle ones", _hot),
    KnownPart("converters of voltage, of which 0.9 arrives", arrives=0.9),
    KnownPart("all of these", _all, 0.9),
)


def left_out(part: KnownPart, constants: dict[str, float]) -> tuple[float, dict[str, float]]:
    """Fitted multiply-add energy at N7 with a part [J], and relative errors of left-out chips."""
    found_rows = rows("tdp")
    bare, per = np.array([_over(row.chip, row.value, part, constants) for row in found_rows]).T
    off = {}
    for at, row in enumerate(found_rows):
        kept = np.arange(len(found_rows)) != at
        off[row.name] = float(bare[at] + per[at] * fit_energy(bare[kept], per[kept]) - 1)
    return fit_energy(bare, per), off


def _over(chip: Chip, rated: float, part: KnownPart, constants: dict[str, float]) -> Array:
    more = np.array([part.more(with_constants(chip, constants)), 0.0])
    return (of_power(chip, constants) + more) / part.arrives / rated


def parts_table(constants: dict[str, float]) -> str:
    """Table of parts and the effect of each."""
    lines = []
    for part in PARTS:
        mac, off = left_out(part, constants)
        size = np.abs(list(off.values()))
        lines.append(
            [part.name, f"{mac * 1e12:.2f} pJ", f"{np.median(size):.1%}", f"{size.max():.1%}", f"{off['H100 SXM']:+.1%}"]
        )
    return table(["part that is added", "multiply-add at N7", "median", "worst", "H100 SXM"], lines)
