"""Movement of the second operand of blockwise products along columns of cores.

Each block passes every core of its column, on the route of the GEMM algorithm.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.gemm.meshgemm import interleaved_order
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.kernel_ir import CoreIndex, SendInstruction
from dse.space.array_math import Array, ceil_div, maximum, minimum, where


class ColumnShift(NamedTuple):
    """Time of one shift of the second operand along a column, and whether products overlap it.

    Attributes:
        engine: that the engine spends beside the product. [s]
        shift: until the next tile is there. [s]
        overlapped: whether the product goes beside it.
    """

    engine: Any
    shift: Any
    overlapped: bool


def ring_order(gemm: str, rows: int) -> Array:
    """Ring of a column: the place of each logical position."""
    return interleaved_order(rows) if gemm == "meshgemm" else np.arange(rows)


def block_owners(mesh: CoreMesh) -> tuple[Array, Array]:
    """Column that owns each block of N, and the block's place there."""
    per = ceil_div(mesh.rows, mesh.cols)
    block = np.arange(mesh.rows)
    return block // per, block % per


def column_shift(gemm: str, rows: Any, words: Any, values: Any, fabric: MeshFabric) -> ColumnShift:
    """Time of one shift along a column of `rows` cores, for `words` words or `values` values."""
    moves = where(rows > 1, 1.0, 0.0)
    if gemm == "t10":
        launch = fabric.launch + fabric.stage + 2 * fabric.ramp + fabric.hop + words * fabric.pace
        return ColumnShift(0.0, (rows - 1) * launch, False)
    if gemm == "ladder":
        return ColumnShift(0.0, owners_send_time(rows, values, fabric) / rows, False)
    reach = 2.0 if gemm == "meshgemm" else rows - 1.0
    engine = moves * (fabric.post + words * fabric.copy)
    shift = moves * (fabric.post + words * fabric.pace + 2 * fabric.ramp + reach * fabric.hop)
    return ColumnShift(engine, shift, gemm == "meshgemm")


def owners_send_time(side: Any, values: Any, fabric: MeshFabric) -> Any:
    """Time in which all owners of a line send, one after the other. [s]

    Each owner serves the other cores in the order of their places.

    The last core's load ends `served` times the others and its own way after the owner began; the first core's, which is as far
    away as the owner's place, ends later where ways take longer than serving:

        t = sum over owners o < n - 1 of max((n - 1) served + way (n - 1 - o), served + way o) + that of the last owner

    Args:
        side: cores of the line, n.
        values: that each of them loads.
        fabric: with `served`, and a hop there and back of each value as the way.
    """
    last, served, way = side - 1.0, fabric.load_cost(), 2 * values * fabric.hop
    # from which owner on the first core ends last, of those that are not at the end themselves
    least = where(way > 0, (last + (last - 1) * served / maximum(way, 1e-30)) / 2, last)
    first = minimum(np.floor(maximum(least, 0.0)) + 1, last)
    count = last - first
    more = count * (way * (first - 1) - (last - 1) * served)
    before = last * last * served + way * last * (last + 1) / 2
    end = maximum(served + way * last, last * served + way)
    return where(last > 0, before + more + end + side * values * 4 * fabric.ramp, 0.0)


def free_shifts(gemm: str) -> int:
    """Shifts of a column that move nothing. [-]"""
    return 0 if gemm == "ladder" else 1


def column_messages(gemm: str, rows: Any) -> tuple[Any, Any]:
    """Messages of a column over all shifts, and links that they cross. [-]"""
    if gemm == "ladder":
        return rows * (rows - 1.0), rows * (rows - 1.0) * (rows + 1.0) / 3
    # one shift less than products; any ring of N cores in line crosses 2 (N - 1) links a turn
    return (rows - 1.0) * rows, (rows - 1.0) * 2 * (rows - 1.0)


def shift_messages(
    gemm: str, mesh: CoreMesh, step: int, position: Array, ring: Array
) -> tuple[tuple[SendInstruction, ...], ...]:
    """Messages of one shift of B: before its product, during it, and after it."""
    row, col = np.arange(mesh.rows)[:, None], np.arange(mesh.cols)[None, :]
    whole = np.asarray(0), np.asarray(1)
    if gemm == "ladder":
        owner = CoreIndex(block_of_row(gemm, ring, position, step)[row], col)
        return (SendInstruction("own", owner, CoreIndex(row, col), *whole, into="b", via="shared"),), (), ()
    if step + 1 == mesh.rows:
        return (), (), ()
    target = CoreIndex(ring[(position - 1) % mesh.rows][row], col)
    send = SendInstruction("b", CoreIndex(row, col), target, *whole, via="relay" if gemm == "t10" else "router")
    return ((), (send,), ()) if gemm == "meshgemm" else ((), (), (send,))


def block_of_row(gemm: str, ring: Array, position: Array, step: int) -> Array:
    """Block that each row of cores multiplies in a step: its own first on a ring, else the same. [-]"""
    if gemm == "ladder":
        return np.full_like(ring, step)
    return np.asarray(ring[(position + step) % len(ring)])


def members(mesh: CoreMesh, roots: Array) -> Array:
    """Columns of each row's cores, shape (rows, cols), with the root first.

    They are as narrow as they can be: a program on a wafer has half a million of them for every step.

    >>> members(CoreMesh(2, 4), np.array([2, 0])).tolist()
    [[2, 0, 1, 3], [0, 1, 2, 3]]
    """
    kind = np.min_scalar_type(-mesh.cols)
    place, root = np.arange(mesh.cols, dtype=kind), roots[:, None].astype(kind)
    others = np.where(place <= root, place - 1, place)
    return np.where(place == 0, root, others)
