"""Findings on silicon: areas, powers and prices of real chips, published, modelled and left out."""

import numpy as np

from dse.accuracy import tolerances as promised
from dse.accuracy.validate import compare_file
from dse.evaluators.silicon import area, energy, price
from dse.space.chip import Chip
from dse.space.fields import replace_leaves
from dse.space.published import remove_published_facts
from dse.studies.markdown_table import table
from dse.studies.silicon.fit import AREAS, HERE, RowResidual, areas, chip_of, energies
from dse.studies.silicon.parts import parts_table

BILLS = {
    "h100": ("H100", (300, 1400, 750, 920)),
    "b200": ("B200", (None, None, None, None, 6400)),
    "mi300x": ("MI300X", (None, None, None, None, 5300)),
}
"""Chips with analysts' prices of their parts: dies, memory, package and test; or only the sum. [USD]"""

BASE_DIE = 370.0
"""Area of a base die of an MI300X. [mm2]"""


FAR = 0.3
"""Relative error from which on a row counts as missed."""


def finding() -> str:
    """Tables of constants, dies, powers, clocks at rated power, and prices."""
    constants, dies = areas()
    mac, powers = energies(constants)
    return "\n\n".join(
        (
            _constants(constants, mac),
            "Areas of dies:\n\n" + _left(dies, "mm2"),
            "Power at full load against rated power:\n\n" + _left(powers, "W"),
            "Parts that power at peak leaves out, and how far off with them are chips that are left out of the fit:\n\n"
            + parts_table(constants),
            "The clock at which a chip takes its rated power, over that of its peak:\n\n" + _clocks(),
            "What parts cost, against what analysts estimate [USD]:\n\n" + _bills(),
            _base_dies(),
            f"Published figures that are missed by more than {FAR:.0%}, whatever their role, and what they are figures of:\n\n"
            + _missed(),
        )
    )


def _constants(constants: dict[str, float], mac: float) -> str:
    rows = [[name, f"{prior.value:.3g}", f"{constants[name]:.3g}", prior.why] for name, prior in AREAS.items()]
    rows.append(["mac", "-", f"{mac:.3g}", "drawn to nothing"])
    return "Six constants of N7 are fitted [mm2, mm2/B, J]:\n\n" + table(["constant", "drawn to", "fitted", "why there"], rows)


def _left(rows: list[RowResidual], unit: str) -> str:
    cells = [[row.name, f"{row.value:.5g} {unit}", f"{row.fitted:+.1%}", f"{row.left_out:+.1%}"] for row in rows]
    off = np.abs([row.left_out for row in rows])
    cells.append([f"{len(rows)}, median and worst", "", "", f"{np.median(off):.1%}, {off.max():.1%}"])
    return table(["chip", "published", "error, fitted on all", "error, fitted on the others"], cells)


def _clocks() -> str:
    rows = []
    for name in ("a100", "h100", "b200", "rtx4090", "mi300x", "groq"):
        chip = remove_published_facts(chip_of(f"chip={name}"))
        rows.append([name, f"{chip.power:.0f} W", f"{slowed_share(chip):.2f}"])
    return table(["chip", "rated", "share of the peak clock"], rows)


def slowed_share(chip: Chip) -> float:
    """Share of its clock at which a shared-cache chip takes its rated power, at most 1, by bisection."""

    def takes(share: float) -> float:
        leaves = replace_leaves(chip, {"clock": chip.clock * share, "core.matrix": chip.core.matrix * share})
        return float(energy.peak_design_power(leaves))

    low, high = 0.0, 1.0
    if takes(high) <= chip.power:
        return high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if takes(middle) <= chip.power else (low, middle)
    return low


def _bills() -> str:
    rows = []
    for name, (called, bills) in BILLS.items():
        parts = price.price_by_part(remove_published_facts(chip_of(f"chip={name}")))
        ours = [float(parts[part]) for part in ("dies", "memory", "package", "test")]
        whole = sum(bill for bill in bills if bill is not None)
        cells = [f"{own:.0f}" + ("" if bill is None else f" ({bill})") for own, bill in zip(ours, bills, strict=False)]
        rows.append([called, *cells, f"{sum(ours):.0f} ({whole})"])
    return table(["chip", "dies", "memory", "package", "test", "all"], rows)


def _missed() -> str:
    lines = []
    for row in compare_file(HERE / "published.csv"):
        if row.error is not None and abs(row.error) > FAR:
            known_miss = promised.find_known_miss("silicon", row.id) or row.note
            lines.append([row.where, row.metric, f"{row.published} {row.unit}", f"{row.error:+.0%}", row.role, known_miss])
    return table(["chip", "figure", "published", "error", "role", "why"], lines)


def _base_dies() -> str:
    chip = remove_published_facts(chip_of("chip=mi300x"))
    whole = float(area.total_area(chip))
    above, below = area.die_counts(chip, whole)
    base_area = (whole - above * float(area.die_area(chip))) / below
    return f"A base die of the MI300X, of {BASE_DIE:.0f} mm2 at 6 nm, comes out at {base_area:.0f} mm2 at 5 nm."
