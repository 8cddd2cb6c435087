"""Collectives among all cores by rings: along each row, then each column; for sums in reverse order.

On a torus the ring of a line is its links; on a mesh it is interleaved, so that no neighbour is more than two hops away and no
two messages share a link ([he2025] section 5.3). A message is a software stage. An exchange of all with all passes on what is
not yet where it belongs, and between rows and columns each core turns what it holds round.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from dse.evaluators.kernels.collective import core_slices as exchange
from dse.evaluators.kernels.collective.core_slices import pattern_stages, slice_elements
from dse.evaluators.kernels.gemm.meshgemm import interleaved_order
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.partition.locked_rings import circuit, longest_chain
from dse.evaluators.kernels.tabulated_counts import tabulate
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, Program, Round, SendInstruction, Tiles, VectorInstruction
from dse.evaluators.program.routes import route_cores
from dse.space.array_math import Array, ceil_div, maximum, minimum, where


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, *, pattern: str, topology: str = "mesh") -> KernelCost:
    """Time until every core has finished [s], and activity; leaves broadcast over designs.

    With p cores in a line and w words for each of them, a line takes

        allgather, reduce_scatter   (p - 1) (post + 2 ramp + stage + w [+ sum]) + hops hop
        all_to_all                  (p - 1) (post + 2 ramp + stage) + p (p - 1) w / 2 + hops hop

    with p - 1 hops on a torus and 2 p - 3 on a mesh, whose ring has two links of one hop; an allreduce is both, one hop less.

    Args:
        shape: m elements of 2 bytes on each core, as a whole vector.
        mesh, fabric: leaves broadcast over designs.
        pattern: an option of `space.workload.DIE_EXCHANGES`.
        topology: topology of the network.

    Source:
        [thakur2005] ring allgather and reduce-scatter; the exchange is a reduce-scatter without sums.

    >>> on = MeshFabric(1, 0, 1, 0, 5, 2, 0, 0, 0, 0, 0, word_bytes=4)
    >>> [
    ...     cost(GemmShape(80, 1, 1), CoreMesh(1, 8), on, pattern="allgather", topology=name).seconds
    ...     for name in ("torus", "mesh")
    ... ]
    [105.0, 111.0]
    """
    each, cores = slice_elements(shape, mesh), mesh.rows * mesh.cols
    seconds: Any = 0.0
    total = Activity()
    for part in pattern_stages(pattern, topology):
        for places, others, lines, width in (
            (mesh.cols, mesh.rows, mesh.rows, 1),
            (mesh.rows, mesh.cols, mesh.cols, mesh.cols),
        ):
            if part == "all_to_all":
                turns, width = _descending(places), others
            else:
                turns = [(1.0, places - 1.0)]
            for slices, times in turns:
                values = slices * width * each
                nbytes = 2.0 * values
                add = (
                    where(fabric.combine == 0, 0.0, fabric.call + values * fabric.combine) if part == "reduce_scatter" else 0.0
                )
                words = ceil_div(nbytes, fabric.word_bytes) * fabric.pace
                seconds = seconds + times * _turn(places, words, add, fabric, shorter=part == "all_to_all")
                total = total + Activity(sent_bytes=nbytes, hop_bytes=0.0) * (times * cores)
                total = total + Activity(hop_bytes=nbytes) * (times * lines * _round_hops(places, topology))
        if part == "all_to_all":
            both = (mesh.rows > 1) * (mesh.cols > 1) * 1.0
            seconds = seconds + both * (fabric.call + each * cores * fabric.operation)
            total = total + Activity(elements=each * cores * cores * both)
    hops = _laps(mesh.rows, topology, pattern) + _laps(mesh.cols, topology, pattern)
    return KernelCost(seconds + where(fabric.locked > 0, 0.0, hops) * fabric.hop, total)


def _turn(places: Any, words: Any, add: Any, fabric: MeshFabric, *, shorter: bool) -> Any:
    """Time of a message of each core of a line and of its combination at the target. [s]

    Locked messages of two hops take turns with those that come the other way, of which there are none between two cores. Cores
    get out of step, but in an exchange, whose messages are shorter from turn to turn, so that who is ahead waits.
    """
    free = fabric.post + 2 * fabric.ramp + fabric.stage + words + add
    far = minimum(places - 1.0, 2.0)
    message = 3 * (2 * fabric.ramp + far * fabric.hop) + words
    circuits, links = (far, far * far) if shorter else (_chain(number, places) for number in (0, 2))
    in_turns = circuits * (6 * fabric.ramp + words) + 3 * links * fabric.hop
    locked = maximum(in_turns, fabric.post + message + fabric.stage + add)
    return where(fabric.locked > 0, locked, free)


@tabulate
def _chain(number: int, places: int) -> float:
    """Circuits of an interleaved line that follow one another in a step, or their links (2), on average once around."""
    order = interleaved_order(places).tolist() if places > 2 else list(range(places))
    if places < 2:
        return 0.0
    onward = [(place + 1) % places for place in range(places)]
    ways = [route_cores((0, order[place]), (0, order[then])) for place, then in enumerate(onward)]
    routes = [list(pairwise(cores)) for cores in ways]
    then: list[tuple[int, ...]] = [(place,) for place in onward]
    alike = [[0] * places] * (places - 1)
    chain = longest_chain([circuit(route) for route in routes], [len(route) for route in routes], then, alike)
    return chain[number] / (places - 1)


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str, *, pattern: str, topology: str = "mesh") -> Program:
    """Program of a collective by rings along rows and columns."""
    rounds: list[Round] = []
    for part in pattern_stages(pattern, topology):
        if part == "allgather":
            rounds += _passed(mesh, topology, "row", 0, "set") + _passed(mesh, topology, "column", 0, "set")
        elif part == "reduce_scatter":
            rounds += _passed(mesh, topology, "column", 1, "sum") + _passed(mesh, topology, "row", 1, "sum")
        elif 1 in (mesh.rows, mesh.cols):
            rounds += _forwarded(mesh, topology, "row" if mesh.rows == 1 else "column", "x")
        else:
            turned = Round((VectorInstruction("turn", ("x",), "y"),))
            rounds += [*_forwarded(mesh, topology, "row", "x"), turned, *_forwarded(mesh, topology, "column", "y")]
    held = buffers(shape, mesh, dtype, pattern=pattern)
    return Program(mesh.rows, mesh.cols, held, (tuple(rounds),), topology)


def buffers(shape: GemmShape, mesh: CoreMesh, dtype: str, *, pattern: str) -> tuple[Buffer, ...]:
    """Buffers of slices: sent and received; for an all-to-all on a rectangle also reordered ones."""
    each, line = slice_elements(shape, mesh), (mesh.rows == 1) | (mesh.cols == 1)
    if pattern != "all_to_all":
        return (Buffer("x", (mesh.rows * mesh.cols, each), dtype, depth=2),)
    if np.all(line):
        return (Buffer("x", (mesh.rows * mesh.cols, 1, each), dtype, depth=2),)
    turned = Buffer("y", (where(line, 0, mesh.rows), mesh.cols, each), dtype, depth=2)
    return Buffer("x", (mesh.cols, mesh.rows, each), dtype, depth=2), turned


def scatter_operands(shape: GemmShape, mesh: CoreMesh, x: Array, *, pattern: str, topology: str = "mesh") -> Tiles:
    """Vectors of all cores, shape (rows, cols, m), as blocks; for an all-to-all ordered by ring distance."""
    slices = exchange.scatter_slices(shape, mesh, x, pattern)
    if pattern != "all_to_all":
        return {"x": slices}
    row, col = (_ahead(side, topology, 1) for side in (mesh.rows, mesh.cols))
    by_core = slices.reshape(mesh.rows, mesh.cols, mesh.rows, mesh.cols, -1)
    at = np.ix_(np.arange(mesh.rows), np.arange(mesh.cols))
    moved = by_core[at[0][..., None, None], at[1][..., None, None], row[:, None, None, :], col[None, :, :, None]]
    return {"x": moved.reshape(mesh.rows, mesh.cols, *buffers(shape, mesh, "float32", pattern=pattern)[0].shape)}


def gather_result(shape: GemmShape, mesh: CoreMesh, tiles: Tiles, *, pattern: str, topology: str = "mesh") -> Array:
    """Result of all cores, shape (rows, cols, m), with slices in order of their cores."""
    if pattern != "all_to_all":
        return exchange.gather_slices(shape, mesh, tiles, "x")
    slot = "x" if 1 in (mesh.rows, mesh.cols) else "y"
    each = tiles[slot].shape[-1]
    got = tiles[slot].reshape(mesh.rows, mesh.cols, mesh.rows, mesh.cols, each)
    row, col = (_ahead(side, topology, -1) for side in (mesh.rows, mesh.cols))
    out = np.empty_like(got)
    cores = np.arange(mesh.rows)[:, None, None, None], np.arange(mesh.cols)[None, :, None, None]
    out[cores[0], cores[1], row[:, None, :, None], col[None, :, None, :]] = got
    return exchange.gather_slices(shape, mesh, {slot: out}, slot)


def _passed(mesh: CoreMesh, topology: str, along: str, lag: int, combine: str) -> list[Round]:
    """Blocks go round the ring of every line: turn by turn a core sends on what it got, its own block first or last."""
    source, target, position, order, line = _ring(mesh, topology, along)
    rounds = []
    for turn in range(len(order) - 1):
        block = order[(position - turn - lag) % len(order)]
        start, width = (line * mesh.cols + block, 1) if along == "row" else (block * mesh.cols, mesh.cols)
        rounds.append(Round((SendInstruction("x", source, target, start, start + width, combine=combine, via="core"),)))
    return rounds


def _forwarded(mesh: CoreMesh, topology: str, along: str, slot: str) -> list[Round]:
    """Slices that have farther to go are sent on; row d of the slot goes d places."""
    source, target, _, order, _ = _ring(mesh, topology, along)
    places = len(order)
    return [
        Round((SendInstruction(slot, source, target, np.asarray(turn), np.asarray(places), at=np.asarray(turn), via="core"),))
        for turn in range(1, places)
    ]


def _ring(mesh: CoreMesh, topology: str, along: str) -> tuple[CoreIndex, CoreIndex, Array, Array, Array]:
    """All cores and the next one of each, their positions on the ring, what place a position is, and their lines."""
    places, lines = (mesh.cols, mesh.rows) if along == "row" else (mesh.rows, mesh.cols)
    order = _order(places, topology)
    line, position = (axis.ravel() for axis in np.indices((lines, places)))
    core, other = order[position], order[(position + 1) % places]
    ends = (
        (CoreIndex(line, core), CoreIndex(line, other)) if along == "row" else (CoreIndex(core, line), CoreIndex(other, line))
    )
    return *ends, position, order, line


def _order(places: int, topology: str) -> Array:
    return interleaved_order(places) if topology == "mesh" and places > 2 else np.arange(places)


def _ahead(places: int, topology: str, way: int) -> Array:
    """For each place, the place so and so far ahead of it (or behind) on the ring, shape (places, places)."""
    order = _order(places, topology)
    position = np.argsort(order)
    return np.asarray(order[(position[:, None] + way * np.arange(places)) % places])


def _descending(places: Any) -> list[tuple[Any, Any]]:
    """Rows that a core sends in each turn of an exchange, and whether there is such a turn."""
    return [(maximum(places - turn, 0) * 1.0, (places > turn) * 1.0) for turn in range(1, int(np.max(places)))]


def _laps(places: Any, topology: str, pattern: str) -> Any:
    """Links of the longest chain of messages: less than a round by one message, of an allreduce less than two by two."""
    if topology != "mesh":
        return (places - 1.0) * len(pattern_stages(pattern, topology))
    once = maximum(2.0 * places - 3, 0.0)  # without one of the two links of one hop
    return 2 * once - (places > 3) if pattern == "allreduce" else once


def _round_hops(places: Any, topology: str) -> Any:
    """Links of the whole ring."""
    return 2.0 * (places - 1) if topology == "mesh" else where(places > 1, places * 1.0, 0.0)
