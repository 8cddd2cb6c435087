"""Designs with a stated density of broken cores: text for answers, and refusals.

What repair costs in time is in `machine.mesh_fabric`, and in silicon and money in `silicon`.
"""

from dataclasses import replace

from dse.evaluators.calls.submesh import SUBMESH_MARK
from dse.evaluators.silicon import area, price
from dse.evaluators.silicon.core_repair import has_stated_breaks, row_repair, settle_detours
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.units import format_quantity

BREAKS = "chip.die.broken_density"


def refuse_broken_cores(design: Design, fidelity: str) -> None:
    """Refuse a design and a fidelity that would ignore its density of broken cores.

    Raises:
        DesignError: with what to write instead.
    """
    chip = design.chip
    if chip.die is None or chip.die.broken_density is None:
        return
    if not has_stated_breaks(chip) or chip.router is not None or chip.areas is not None:
        raise DesignError(
            f"{BREAKS}: rows of spare cores replace cores of a mesh with a process node, which this chip is not; leave it out"
        )
    if fidelity.partition(SUBMESH_MARK)[0] == "cycles":
        raise DesignError(
            f"{BREAKS}: routers simulate broken cores at their places: set these by chip.faults, or use fidelity=events"
        )
    if chip.faults not in (None, "none"):
        raise DesignError(f"{BREAKS}: broken cores are stated by chip.faults as well; use one of both: chip.faults=none")
    if chip.die_link is not None:
        raise DesignError(f"{BREAKS}: broken cores are replaced within one die; leave out chip.die_link or {BREAKS}")
    if getattr(chip.noc, "topology", "mesh") != "mesh":
        raise DesignError(f"{BREAKS}: rows of a {chip.noc.topology} have no end for spare cores; use chip.noc.topology=mesh")


def repair_text(design: Design) -> str:
    """Text on broken cores of a mesh: their number, time of detours, and prices of dies.

    Empty string without a stated density.
    """
    if not has_stated_breaks(design.chip):
        return ""
    chip = settle_detours(design.chip)
    repair = row_repair(chip)
    hop = chip.die.detour_hops * chip.noc.hop_cycles / chip.clock
    breaks = f"{float(repair.broken):.3g} broken cores expected, {float(repair.row_hops):.3g} on the worst row"
    share = f"{float(repair.spare):.0f} spare cores a row repair {100 * float(repair.repairable):.4g} % of dies"
    time = f"up to {float(chip.die.detour_hops):.3g} hops more a message, {format_quantity(float(hop), 's', 3)}"
    without = replace_leaves(chip, {"die.built_cores": 0.0})
    without = replace(without, die=replace(without.die, broken_density=None))
    prices = f"dies without spare cores {_dies_price(without)}, with them {_dies_price(chip)}"
    return f"{breaks}; {share}; {time}; {prices}"


def _dies_price(chip: Chip) -> str:
    """Price of a chip's good dies, yield and price per area as text."""
    whole, good = float(area.total_area(chip)), float(price.die_yield(chip))
    usd = float(price.price_by_part(chip)["dies"])
    return f"{usd:.4g} USD, {usd / whole:.3g} USD/mm2 at a yield of {good:.3g}"
