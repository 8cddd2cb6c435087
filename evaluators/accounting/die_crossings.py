"""Designs whose mesh of tiles is on several dies: division, text for answers, and refusals.

Costs of crossings are in `machine.mesh_fabric`, where times are, and in `silicon`.
"""

from dataclasses import replace

from dse.evaluators.calls.submesh import SUBMESH_MARK
from dse.evaluators.kernels.collective import TEAMS
from dse.evaluators.machine.mesh_fabric import tile_fabric
from dse.evaluators.silicon.area import describe_dies, divide_mesh
from dse.evaluators.silicon.core_repair import settle_detours
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.software import ATTENTION, COLLECTIVE, SERVED_WHOLE_CHIP, SOFTWARE, SUMMA, WHOLE_CHIP, software_of

CROSSING_SOFTWARE = (WHOLE_CHIP, SERVED_WHOLE_CHIP, SUMMA, ATTENTION, COLLECTIVE)
"""Software whose messages know the dies of a mesh."""


def with_divided_mesh(design: Design) -> Design:
    """Return the design with the sides of its dies, and hops around its broken cores.

    Both stay whatever of its chip or mesh is evaluated.
    """
    chip = settle_detours(divide_mesh(design.chip))
    return design if chip is design.chip else replace(design, chip=chip)


def crossing_text(design: Design) -> str:
    """Text on the dies of a mesh and what crossings between them take; empty string for one die."""
    text, able = describe_dies(design.chip), software_of(design.mapping) in CROSSING_SOFTWARE
    missing = text and able and design.chip.die_link is None
    return f"{text}: add +die_link@chip.die_link=ucie_advanced" if missing else text


def refuse_crossings(design: Design, fidelity: str) -> None:
    """Refuse a design and a fidelity that would ignore crossings between dies.

    Raises:
        DesignError: with what to write instead.
    """
    chip = design.chip
    if chip.die_link is None or not tile_fabric(divide_mesh(chip)).is_divided:
        return
    found_software = software_of(design.mapping)
    if found_software not in CROSSING_SOFTWARE:
        raise DesignError(
            f"chip.die_link: crossings between dies are not known to {SOFTWARE[found_software].name} yet; use mapping=flat, "
            "or chip.die.dies=1"
        )
    if found_software == COLLECTIVE and design.mapping.kernel.collective not in TEAMS:
        raise DesignError(
            f"chip.die_link: collectives by {design.mapping.kernel.collective} do not know crossings between dies yet; use "
            f"mapping.collective={', '.join(list(TEAMS)[:-1])} or {list(TEAMS)[-1]}, or chip.die.dies=1"
        )
    if chip.noc.topology != "mesh" or chip.noc.routing == "locked":
        raise DesignError(
            f"chip.die_link: dies divide a mesh with free routes, got noc.topology={chip.noc.topology} and "
            f"noc.routing={chip.noc.routing}; use chip.noc.topology=mesh chip.noc.routing=free, or chip.die.dies=1"
        )
    if SUBMESH_MARK in fidelity:
        raise DesignError(
            f"chip.die_link: fidelity={fidelity} simulates a part of the mesh without its dies; use fidelity=events"
        )
    if chip.faults not in (None, "none"):
        raise DesignError("chip.faults: routes around faults do not know crossings between dies yet; use chip.faults=none")
