"""Collectives in which every core sends to every other one directly, in order of core number.

Where every pair has a link, all messages go at the same time. On a mesh or torus they share links, and the analytical model
gives the least time of the ramps and of the busiest link.
"""

from typing import Any

import numpy as np

from dse.evaluators.kernels.collective import core_slices as exchange
from dse.evaluators.kernels.collective.core_slices import pattern_stages, slice_elements
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, Program, Round, SendInstruction, Tiles
from dse.space.array_math import Array, ceil_div, maximum, where


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, *, pattern: str, topology: str = "mesh") -> KernelCost:
    """Time until every core has finished [s], and activity; a lower bound unless all pairs are linked.

    With n = cores - 1 messages of w words from each core, through at most c on one link,

        t = post + 2 ramp + hop + stage + max((n - 1) post + w          every pair linked, copies by a DMA engine
                                              max(n w, c w)             mesh or torus: ramps, the busiest link

    and where messages lock their ways, as long as those over the busiest channel, either way, take one after the other;
    and what comes is summed one after the other.

    Args:
        shape: m elements of 2 bytes on each core, as a whole vector.
        mesh, fabric: leaves broadcast over designs.
        pattern: an option of `space.workload.DIE_EXCHANGES`.
        topology: topology of the network.

    Source:
        [chan2007] section 5, direct exchange on a fully connected network; [luczynski2024] contention as a lower bound.

    >>> on = MeshFabric(1, 0, 1, 0, 0, 2, 0, 0, 0, 0, 0, word_bytes=4)
    >>> for name in ("full", "torus", "mesh"):
    ...     print(cost(GemmShape(80, 1, 1), CoreMesh(1, 8), on, pattern="allgather", topology=name).seconds)
    10.0
    55.0
    85.0
    """
    cores, each = mesh.rows * mesh.cols, slice_elements(shape, mesh)
    others = cores - 1.0
    nbytes = 2.0 * each
    words = ceil_div(nbytes, fabric.word_bytes)
    stream = words * fabric.pace
    begin = words * fabric.copy + fabric.post
    way = fabric.post + 2 * fabric.ramp + fabric.hop + fabric.stage
    if topology == "full":
        later = (others - 1) * begin
        first, last = way + stream, way + later + stream
    else:
        later = (others - 1) * maximum(stream, begin)
        first, last = way + stream, way + maximum(later + stream, _busiest(mesh, topology) * words * fabric.word)
        if np.any(fabric.locked):
            locked = fabric.post + fabric.stage + _circuits(mesh, topology, stream, fabric)
            last = where(fabric.locked > 0, locked, last)
    add = where(fabric.combine == 0, 0.0, fabric.call + each * fabric.combine)
    times = {"allgather": last, "all_to_all": last, "reduce_scatter": maximum(first + others * add, last + add)}
    each_way = Activity(sent_bytes=nbytes * cores * others, hop_bytes=nbytes * _all_hops(mesh, topology))
    done = pattern_stages(pattern, topology)
    seconds = sum((times[part] for part in done), 0.0)
    return KernelCost(where(cores > 1, seconds, 0.0), each_way * (len(done) * 1.0))


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str, *, pattern: str, topology: str = "mesh") -> Program:
    """Program of a direct exchange: one round per stage of the pattern."""
    cores = mesh.rows * mesh.cols
    shift, number = np.indices((cores, cores)).reshape(2, -1)
    other = (number + shift) % cores
    rounds = []
    for part in pattern_stages(pattern, topology):
        apart = slice(None) if part == "all_to_all" else shift > 0
        source, target = (CoreIndex(at[apart] // mesh.cols, at[apart] % mesh.cols) for at in (number, other))
        block_index = number[apart] if part == "allgather" else other[apart]
        if part == "all_to_all":
            sent = SendInstruction("x", source, target, block_index, block_index + 1, at=number, into="y", via="core")
        else:
            sent = SendInstruction(
                "x",
                source,
                target,
                block_index,
                block_index + 1,
                combine="sum" if part == "reduce_scatter" else "set",
                via="core",
            )
        if cores > 1 or part == "all_to_all":
            rounds.append(Round((sent,)))
    return Program(mesh.rows, mesh.cols, buffers(shape, mesh, dtype, pattern=pattern), (tuple(rounds),), topology)


def buffers(shape: GemmShape, mesh: CoreMesh, dtype: str, *, pattern: str) -> tuple[Buffer, ...]:
    """Buffers of a core: the slices that it sends and those that it receives."""
    slices = (mesh.rows * mesh.cols, slice_elements(shape, mesh))
    if pattern == "all_to_all":
        return Buffer("x", slices, dtype), Buffer("y", slices, dtype)
    return (Buffer("x", slices, dtype, depth=2),)


def scatter_operands(shape: GemmShape, mesh: CoreMesh, x: Array, *, pattern: str, topology: str = "mesh") -> Tiles:
    """Vectors of all cores, shape (rows, cols, m), as blocks of the cores."""
    return {"x": exchange.scatter_slices(shape, mesh, x, pattern)}


def gather_result(shape: GemmShape, mesh: CoreMesh, tiles: Tiles, *, pattern: str, topology: str = "mesh") -> Array:
    """Result of all cores, shape (rows, cols, m), with slices in order of their cores."""
    return exchange.gather_slices(shape, mesh, tiles, "y" if pattern == "all_to_all" else "x")


def _busiest(mesh: CoreMesh, topology: str) -> Any:
    """Messages on the link that most of them cross, one from each core to each other one."""

    def count_line_messages(places: Any, lines: Any) -> Any:
        half = places // 2
        return lines * (half * (half + 1) // 2 if topology == "torus" else half * (places - half))

    return maximum(count_line_messages(mesh.cols, mesh.rows), count_line_messages(mesh.rows, mesh.cols)) * 1.0


def _circuits(mesh: CoreMesh, topology: str, stream: Any, fabric: MeshFabric) -> Any:
    """Time of all messages that lock the channel which most of them cross, in its middle: each crosses half its line. [s]"""

    def sum_line_circuits(places: Any, lines: Any) -> Any:
        count = lines * (places // 2) * (places - places // 2) * 2.0
        far = places / 2 + (lines**2 - 1.0) / (3 * lines)
        return count * (3 * (2 * fabric.ramp + far * fabric.hop) + stream)

    circuits = maximum(sum_line_circuits(mesh.cols, mesh.rows), sum_line_circuits(mesh.rows, mesh.cols))
    return circuits / 2 if topology == "torus" else circuits


def _all_hops(mesh: CoreMesh, topology: str) -> Any:
    """Links that these cross together."""
    cores = mesh.rows * mesh.cols
    if topology == "full":
        return cores * (cores - 1.0)

    def count_line_hops(places: Any, lines: Any) -> Any:
        apart = places * (places**2 // 4) if topology == "torus" else places * (places**2 - 1) // 3
        return lines**2 * apart * 1.0

    return count_line_hops(mesh.cols, mesh.rows) + count_line_hops(mesh.rows, mesh.cols)
