"""Repair of a mesh with broken cores: spare cores of each row, and hops that messages take more.

A broken core moves the cores behind it on its row on by one, so that the mesh that software sees keeps its shape. Its router
passes words on, or what is there in its place, which takes a hop. Redundant links go to the next site and to both beside it on
each neighbouring row, and take a hop like any other link (assumed).
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.silicon import area
from dse.evaluators.silicon.chip_batches import computed_per_batch
from dse.space.array_math import extremes, floor_div, maximum, minimum, where
from dse.space.chip import Chip
from dse.space.memoize import memoize_by_identity

CM2 = 100.0
"""Square millimetres of a square centimetre. [mm2/cm2]"""

BEYOND = 1000.0
"""Broken cores of a row, above twice its spare cores, beyond which more make no difference: none can be repaired. [1]"""

MOST_CHIPS = 0.5
"""Share of chips that spare cores have to repair (assumed: a chip is not built of which more are lost). [1]"""


class RowRepair(NamedTuple):
    """Broken cores of a mesh and their repair by spare cores on each row; leaves broadcast over designs.

    Attributes:
        broken: cores that are broken, as expected. [1]
        spare: cores that a row has beside those in use. [1]
        needed: spare cores of a row with which most chips can be repaired. [1]
        repairable: share of chips on which no row has more broken cores than spare ones. [1]
        row_hops: broken cores on the row that has most, as expected. [1]
        column_hops: hops that a message along a column takes more, at most, as expected. [1]
    """

    broken: Any
    spare: Any
    needed: Any
    repairable: Any
    row_hops: Any
    column_hops: Any

    @property
    def message_hops(self) -> Any:
        """Hops that a message takes more at most, along a row and a column, as expected over chips. [1]"""
        return self.row_hops + self.column_hops


def repair_rows(broken: Any, rows: Any, spare: Any) -> RowRepair:
    """Repair of randomly broken cores, by Poisson's law with the mean m on each row.

    The worst of R rows has sum over k >= 0 of 1 - P(k)^R broken cores, with P the cumulative law. A row with b broken cores
    moves its cores by 0 to b sites. A link between rows that are moved by d sites against each other takes d - 1 hops more, if
    any: at most max(b, b') - 1 for rows with b and b', (R - 1) times the sum over k >= 1 of 1 - P(k)^2 along a column.

    Args:
        broken: expected number on the mesh. [1]
        rows: of cores.
        spare: cores of a row beside those in use.

    >>> repair = repair_rows(47.0, 750.0, 88.0)
    >>> round(repair.row_hops, 2), round(repair.column_hops, 2), repair.needed, round(repair.repairable, 6)
    (1.79, 2.88, 2.0, 1.0)
    >>> repair_rows(0.0, 750.0, 0.0).message_hops
    0.0
    """
    from scipy.special import pdtr  # takes a while: only where cores are broken

    mean = minimum(broken / rows, 2 * spare + BEYOND)  # where all rows have more than can be replaced
    lowest, highest = extremes(mean)
    first = max(int(lowest - 9 * lowest**0.5 - 9), 0)  # fewer or more are broken less often than once in 1e16
    hops = needed = first + 0.0 * mean
    pair_hops = max(first - 1, 0) + 0.0 * mean
    for count in range(first, int(highest + 9 * highest**0.5 + 10)):
        repaired = _all_rows(pdtr(count, mean), rows)
        pair_hops = pair_hops + (1.0 - _all_rows(pdtr(count, mean), 2) if count else 0.0)
        hops = hops + (1.0 - repaired)
        needed = needed + where(repaired < MOST_CHIPS, 1.0, 0.0)
    return RowRepair(broken, spare, needed, _all_rows(pdtr(spare, mean), rows), hops, (rows - 1) * pair_hops)


def _all_rows(share: Any, rows: Any) -> Any:
    """Probability that something is so on each of some rows, as a float or an array over designs. [1]"""
    result = share**rows
    return result if np.ndim(result) else float(result)


@computed_per_batch
def row_repair(chip: Chip) -> RowRepair:
    """Repair of a chip's mesh at its stated density of broken cores; leaves broadcast over designs."""
    rows, used = chip.mesh.rows * 1.0, chip.mesh.rows * chip.mesh.cols
    broken = area.core_area(chip) / CM2 * chip.die.broken_density
    return repair_rows(broken, rows, floor_div(maximum(chip.die.built_cores - used, 0.0), rows))


def has_stated_breaks(chip: Chip) -> bool:
    """Whether a chip is a mesh with a stated density of broken cores."""
    return chip.mesh is not None and chip.die is not None and chip.die.broken_density is not None


@memoize_by_identity
def settle_detours(chip: Chip) -> Chip:
    """Return a chip with the hops that its messages take more around broken cores.

    Parts of its mesh then have those of the whole. A chip without a density of broken cores stays as it is.
    """
    if not has_stated_breaks(chip) or chip.die.detour_hops is not None:
        return chip
    return replace(chip, die=replace(chip.die, detour_hops=row_repair(chip).message_hops))
