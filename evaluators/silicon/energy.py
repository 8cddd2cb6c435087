"""Energy from what was done and how long it took."""

from typing import Any

from evaluators.rounds import Activity
from evaluators.silicon import area
from space.chip import MeshChip


def mesh_energy(activity: Activity, chip: MeshChip, seconds: Any) -> Any:
    """Dynamic energy of an activity, and static of the whole chip meanwhile. [J], broadcasts over designs."""
    tech = chip.technology
    dynamic = (
        activity.macs * tech.mac
        + activity.elements * tech.element
        + activity.sent_bytes * tech.copy
        + activity.hop_bytes * tech.hop
    )
    return dynamic + tech.static * area.mesh_die(chip) * seconds
