"""Collectives between dies, by name.

Each module has

    PORTS               links a die needs
    cost(nbytes, links) the closed form
    steps(rows, peers)  the program, on a slot ``x`` of `rows` rows a die
"""

from types import ModuleType

from evaluators.kernels.collective import bidirectional_ring, full_mesh, ring
from space.errors import chosen

ALLREDUCE: dict[str, ModuleType] = {
    "ring": ring,
    "bidirectional_ring": bidirectional_ring,
    "full_mesh": full_mesh,
}


def allreduce(name: str) -> ModuleType:
    """The allreduce of a name."""
    return chosen(ALLREDUCE, name, "mapping.both.allreduce")
