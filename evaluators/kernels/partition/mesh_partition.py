"""GEMM algorithms of a mesh as partitions of a product over a group.

The rows and columns of the group divide input, weights and output.

A core of row r and column c of the group has block (r, c) of the input, of the weights and of the output, as cores of the
two-dimensional partition have of its input: what one of them leaves the next one finds. Which block of rows lies on which row
is a name, as weights may lie in any order. Where sides of the group differ, a core's block is cut further, so that along the
inner dimension there are as many chunks as the sides' least common multiple (`kernels.gemm.tiling`).
"""

from collections import Counter, defaultdict
from functools import lru_cache
from itertools import pairwise
from math import prod
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.gemm import cannon, meshgemm, summa
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape, matrix_blocks
from dse.evaluators.kernels.partition.group_placement import conflicting_routes, group_sides, group_sides_by_design
from dse.evaluators.kernels.tabulated_counts import tabulate
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.mesh_fabric import VALUE, MeshFabric
from dse.evaluators.program.kernel_ir import DTYPES, Loop, Program, SendInstruction
from dse.evaluators.program.routes import route_cores
from dse.space.array_math import Array, ceil_div, maximum, where

KERNELS: tuple[ModuleType, ...] = (meshgemm, cannon, summa)

FREE_FABRIC = MeshFabric(*(0.0,) * 11, word_bytes=1.0)
"""A network that takes no time, for counts alone."""


class MeshPartition(NamedTuple):
    """Partition of a product by a GEMM algorithm of `kernels.gemm`.

    Attributes:
        of: the algorithm.
        shifts: whether chunks are shifted around rings behind an alignment; else they are multicast.
    """

    of: ModuleType
    shifts: bool
    IS_TWO_DIMENSIONAL: bool = True

    def values_per_core(self, shape: GemmShape, rings: Any, members: Any) -> tuple[Any, Any, Any]:
        """Values of input, weights and output on one core, with their buffers. [-]"""
        slots = self.of.buffers(shape, CoreMesh(rings, members), "float16")
        a, w, c = (
            sum(prod(slot.shape) * slot.depth for slot in slots if slot.name.startswith(name)) for name in ("a", "b", "c")
        )
        return a, w, c

    def values_sent(self, shape: GemmShape, rings: Any, members: Any) -> Any:
        """Values that a core sends or forwards, counted once per link. [-]"""
        done = self.of.cost(shape, CoreMesh(rings, members), FREE_FABRIC).activity
        return done.hop_bytes / VALUE / (rings * members)

    def cost(
        self, shape: GemmShape, placement: str, cores: Any, fabric: MeshFabric, engines: TileEngines, nbytes: float
    ) -> tuple[Any, Any]:
        """Time of the program, and of its products on a core. [s], [s]

        Chunks that are shifted: an alignment, then a product and a shift for each but the last, side by side where shifts wait
        for slots alone, else one after the other:

            t = align + (N - 1) step + product,  step = max(product, shift) or product + shift

        Chunks that are multicast: as on a wafer (`kernels.gemm.summa`).
        """
        mesh = CoreMesh(*group_sides_by_design(placement, cores))
        slots = {slot.name: slot for slot in self.of.buffers(shape, mesh, DTYPES[nbytes])}
        (m, k), n = slots["a"].shape[-2:], slots["b"].shape[-1]
        product_seconds = engines.product(m, k, n, nbytes)
        if not self.shifts:
            given_fabric = fabric._replace(
                mac=product_seconds / maximum(m * k * n, 1.0), call=0.0, launch=engines.matrix.start / engines.clock,
                word_bytes=fabric.word_bytes * VALUE / nbytes,
            )  # fmt: skip
            chunks = self.of.local_product_count(mesh) * 1.0
            return self.of.cost(shape, mesh, given_fabric).seconds, chunks * (product_seconds + given_fabric.launch)
        product = product_seconds * slots["c"].shape[0] + engines.matrix.start / engines.clock
        a, w = (ceil_div(size * nbytes, fabric.word_bytes) * fabric.pace for size in (m * k, k * n))
        align, shift = (_round(self.of, mesh, (a, w), fabric, aligned=aligned) for aligned in (True, False))
        step = maximum(product, shift) if self.of.BARRIER == "slots" else product + shift
        return align + (mesh.chunks - 1) * step + product, mesh.chunks * product

    def build_program(self, shape: GemmShape, placement: str, cores: int, dtype: str = "float32") -> Program:
        """Program of one product on the mesh of a group."""
        program: Program = self.of.build_program(shape, CoreMesh(*group_sides(placement, cores)), dtype)
        return program

    def scatter_operands(self, a: Array, w: Array, placement: str, cores: int) -> dict[str, Array]:
        """Blocks of input and weights of the cores, shape (rows, cols, ...)."""
        mesh = CoreMesh(*group_sides(placement, cores))
        rows, inner, cols = self._lines(mesh)
        a, w = _spread(_spread(a, rows, 0), inner, 1), _spread(_spread(w, inner, 0), cols, 1)
        tiles: dict[str, Array] = self.of.scatter_operands(GemmShape(a.shape[0], a.shape[1], w.shape[1]), mesh, a, w)
        return tiles

    def gather_result(self, tiles: dict[str, Array], placement: str, cores: int, shape: GemmShape) -> Array:
        """Product, shape (m, n), from the blocks of the cores."""
        mesh = CoreMesh(*group_sides(placement, cores))
        rows, inner, cols = self._lines(mesh)
        whole = GemmShape(rows.list_places(shape.m), inner.list_places(shape.k), cols.list_places(shape.n))
        return _gathered(_gathered(self.of.gather_result(whole, mesh, tiles), shape.m, rows, 0), shape.n, cols, 1)

    def _lines(self, mesh: CoreMesh) -> tuple["_Lines", "_Lines", "_Lines"]:
        """How rows, the inner dimension and columns are cut."""
        rows, cols = (mesh.per_row, mesh.per_col) if self.shifts else (1, 1)
        return _Lines(mesh.rows, rows), _Lines(mesh.cols, mesh.per_col), _Lines(mesh.cols, cols)


class _Lines(NamedTuple):
    """A dimension over lines of cores, each of whose blocks is cut in equal parts.

    Attributes:
        over: lines.
        parts: of a block.
    """

    over: int
    parts: int

    def list_places(self, size: int) -> int:
        """Places of all lines, for a dimension of some size."""
        return int(ceil_div(ceil_div(size, self.over), self.parts) * self.parts * self.over)


def _spread(matrix: Array, to: _Lines, axis: int) -> Array:
    """A matrix with each block padded by itself."""
    lines = np.moveaxis(matrix, axis, 0)
    cut = matrix_blocks(lines, to.over, 1)[:, 0]
    more = to.list_places(len(lines)) // to.over - cut.shape[1]
    return np.moveaxis(np.pad(cut, ((0, 0), (0, more), (0, 0))).reshape(-1, lines.shape[1]), 0, axis)


def _gathered(matrix: Array, size: int, given_lines: _Lines, axis: int) -> Array:
    """What `_spread` was given."""
    lines = np.moveaxis(matrix, axis, 0)
    cut = lines.reshape(given_lines.over, -1, lines.shape[1])[:, : ceil_div(size, given_lines.over)]
    return np.moveaxis(cut.reshape(-1, lines.shape[1])[:size], 0, axis)


class OperandTraffic(NamedTuple):
    """Numbers of messages of one operand in a round, on links, channels and cores.

    Attributes:
        out: of the core that sends most.
        turns: of the busiest link.
        circuits: of the busiest channel, both ways, or ramp, where routes are locked.
        ways: links of these, end to end.
        reach: links of the longest message.
    """

    out: Any
    turns: Any
    circuits: Any
    ways: Any
    reach: Any


def _round(module: ModuleType, mesh: CoreMesh, words: tuple[Any, Any], fabric: MeshFabric, *, aligned: bool) -> Any:
    """Time of a round of messages of chunks of both operands, which share a core's ramp; each has links of its own. [s]

    Words take the busiest ramp or link. In the alignment, whose messages go any way, an operand waits for its links, and then
    for its ramp behind the other. A locked route is set up there and back, messages that meet take turns, and in shifts
    those of one operand all come before those of the other.

    Args:
        module: the algorithm.
        mesh: of the group.
        words: of a chunk of each operand, one after the other. [s]
        fabric: network of the mesh.
        aligned: whether the round is the alignment.
    """
    key = KERNELS.index(module), mesh.rows, mesh.cols, aligned * 1
    a, b = (
        OperandTraffic(*(_busy(number, operand, *key) for number in range(len(OperandTraffic._fields)))) for operand in (0, 1)
    )
    of_a, of_b = words
    ramp = maximum(a.out * of_a + b.out * of_b, (a.out + b.out - 1) * fabric.post)
    if aligned:
        links = maximum(a.turns * of_a + b.out * of_b, a.out * of_a + b.turns * of_b)
    else:
        links = maximum(a.turns * of_a, b.turns * of_b)
    free = maximum(ramp, links) + 2 * fabric.ramp + maximum(a.reach, b.reach) * fabric.hop
    first_seconds, other = (
        traffic.circuits * (6 * fabric.ramp + each) + 3 * traffic.ways * fabric.hop for traffic, each in ((a, of_a), (b, of_b))
    )
    locked = maximum(first_seconds + b.out * of_b, a.out * of_a + other) if aligned else first_seconds + other
    moves = a.out + b.out > 0
    return where(moves, fabric.post + where(fabric.locked > 0, locked, free), 0.0)


@tabulate
def _busy(number: int, operand: int, which: int, rows: int, cols: int, aligned: int) -> float:
    return float(_counted(which, rows, cols)[1 - aligned][operand][number])


@lru_cache(maxsize=1024)
def _counted(which: int, rows: int, cols: int) -> tuple[tuple[OperandTraffic, OperandTraffic], ...]:
    """Of the alignment and of a shift, messages of both operands."""
    mesh = CoreMesh(rows, cols)
    program = KERNELS[which].build_program(GemmShape(mesh.chunks, mesh.chunks, mesh.chunks), mesh)
    align, shifts, *_ = program.strands[0]
    assert isinstance(shifts, Loop)
    rounds = align.steps, [step for turn in shifts.body for step in turn.steps]
    a, b = (
        tuple(
            _messages([step for step in steps if isinstance(step, SendInstruction) and step.slot == slot]) for steps in rounds
        )
        for slot in ("a", "b")
    )
    return tuple(zip(a, b, strict=True))


def _messages(sends: list[SendInstruction]) -> OperandTraffic:
    routes = []
    for send in sends:
        ends = np.broadcast_arrays(send.source.row, send.source.col, send.target.row, send.target.col)
        for r, c, to_r, to_c in zip(*(end.ravel().tolist() for end in ends), strict=True):
            if (r, c) != (to_r, to_c):
                routes.append(list(pairwise(route_cores((r, c), (to_r, to_c)))))
    if not routes:
        return OperandTraffic(0, 0, 0, 0, 0)
    links, from_core = Counter(link for route in routes for link in route), defaultdict(list)
    for route in routes:
        from_core[route[0][0]].append(len(route))
    circuits, ways = max((len(lengths), sum(lengths)) for lengths in (*conflicting_routes(routes), *from_core.values()))
    return OperandTraffic(max(map(len, from_core.values())), max(links.values()), circuits, ways, max(map(len, routes)))
