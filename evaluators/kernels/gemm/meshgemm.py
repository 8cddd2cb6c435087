"""MeshGEMM: compute and shift on an interleaved ring, on which no neighbour is more than two hops away.

[he2025] section 5.2 and algorithm 1. Two hops are the least possible: on a line, a circle of one-hop neighbours cannot close.
"""

from functools import lru_cache

import numpy as np

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm import shift
from dse.evaluators.kernels.gemm.shift import place, products, result, slots
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.rounds import Program
from dse.space.elementwise import Array

__all__ = [
    "LEAST",
    "WAIT",
    "at_once",
    "cost",
    "interleave",
    "interleaved",
    "paths",
    "place",
    "products",
    "result",
    "slots",
    "steps",
]

WAIT = "slots"
"""[he2025] section 7.2: interleaving lets MeshGEMM "as much as possible, overlap communication with computation"."""

LEAST = 3
"""Cores of a line that INTERLEAVE needs."""


def paths(mesh: Mesh) -> int:
    """Routing paths of a core: two neighbours in row and column, and one message that passes through in each."""
    return 4 + 2


def at_once(mesh: Mesh) -> int:
    """Routing paths of a core at a time: all of them, set once."""
    return paths(mesh)


def interleave(places: int) -> tuple[Array, Array]:
    """Whom each place of a line sends to and receives from, [he2025] algorithm 1.

    Returns:
        send, receive: places, shape (places,).

    >>> interleave(5)[0].tolist(), interleave(5)[1].tolist()
    ([2, 0, 4, 1, 3], [1, 3, 0, 4, 2])
    """
    index = np.arange(places)
    up, down = np.minimum(index + 2, places - 1), np.maximum(index - 2, 0)
    even = index % 2 == 0
    send, receive = np.where(even, up, down), np.where(even, down, up)
    receive[0] = min(1, places - 1)
    if places % 2 == 0:
        receive[-1] = max(places - 2, 0)
    else:
        send[-1] = max(places - 2, 0)
    return send, receive


@lru_cache(maxsize=4096)
def interleaved(places: int) -> Array:
    """The order of the ring: the place on the line of each logical position, every place's follower one position back.

    >>> interleaved(5).tolist()
    [1, 3, 4, 2, 0]
    """
    send, _ = interleave(places)
    ring = [0]
    while len(ring) < places:
        ring.append(int(send[ring[-1]]))
    return np.array(ring[::-1])


def cost(shape: Shape, mesh: Mesh, fabric: Fabric) -> Cost:
    """The closed form: two hops whatever the mesh."""
    return shift.cost(shape, mesh, fabric, order=interleaved, reach=2, leave=2, overlapped=True)


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32") -> Program:
    """The program."""
    return shift.steps(shape, mesh, order=interleaved(mesh.chunks), wait=WAIT, dtype=dtype)
