"""Transfer of activations from stage to stage of a pipeline of core groups.

Each core of a group sends its part to the core at its place in the next group.

Groups stand in columns, and a pipeline goes down one column and up the next: a group is mostly below or above the one before
it, and beside it where a column ends. All stages send at the same time, as they do when a pipeline is full. Pipelines that
begin where others end use no links of one another, so that one is simulated, with as many turns as any has.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.partition.group_placement import group_sides, group_sides_by_design
from dse.evaluators.kernels.tabulated_counts import tabulate
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, Program, Round, SendInstruction
from dse.space.array_math import Array, ceil_div, maximum, where


class PipelinePlacement(NamedTuple):
    """Placement of one pipeline's groups on a mesh; leaves broadcast over designs.

    Attributes:
        placement, cores: of a group.
        stages: groups of a pipeline.
        pipelines: that stand one after the other.
        high: rows of the mesh.
    """

    placement: str
    cores: Any
    stages: Any
    pipelines: Any
    high: Any


class StageTransferTime(NamedTuple):
    """Time of a message between stages, mean over the stages, and of the slowest stage. [s]"""

    mean: Any
    slowest: Any


def stage_transfer_time(way: PipelinePlacement, nbytes: Any, fabric: MeshFabric) -> StageTransferTime:
    """Time to send some bytes from each group to the next one; 0 for one stage. [s]

    The links between a group of r rows and the next one below are passed by the messages of the r cores of a column, those
    between a group of c columns and the one beside it by those of the c cores of a row, one after the other:

        t = post + 2 ramp + n hop + n words pace,    n = r or c

    A locked route is set up for each of them, there and back: t = post + n (3 (2 ramp + n hop) + words pace).

    Args:
        way: placement of the pipeline.
        nbytes: of all cores of a group together. [B]
        fabric: network of the mesh.
    """
    words = ceil_div(nbytes / way.cores, fabric.word_bytes)
    turns, (rows, cols) = _turning(way), group_sides_by_design(way.placement, way.cores)
    down, has_transfer = _passed(rows, words, fabric), (way.stages > 1) * (nbytes > 0)
    if isinstance(turns, float) and turns == 0:
        return StageTransferTime(down * has_transfer, down * has_transfer)
    beside, hops = _passed(cols, words, fabric), maximum(way.stages - 1.0, 1.0)
    slowest = where(turns > 0, where(turns < hops, maximum(down, beside), beside), down)
    return StageTransferTime((down + (beside - down) * turns / hops) * has_transfer, slowest * has_transfer)


def stage_transfer_program(way: PipelinePlacement, nbytes: int) -> Program:
    """Program: ``x`` of every stage, `nbytes` per core, goes to the next stage; nearest cores send first."""
    at, beside = stage_cores(way)
    (row, col), (to_row, to_col) = np.moveaxis(at[:-1], -1, 0), np.moveaxis(at[1:], -1, 0)
    # places along the way, the farthest ahead first
    along = np.where(np.asarray(beside)[:, None], col * np.sign(to_col - col), row * np.sign(to_row - row))
    order = np.argsort(-along, axis=1, kind="stable").T
    stage = np.arange(way.stages - 1)[None]

    def select_cores(places: tuple[Array, Array]) -> CoreIndex:
        return CoreIndex(*(axis[stage, order] for axis in places))

    sent = SendInstruction("x", select_cores((row, col)), select_cores((to_row, to_col)), np.asarray(0), np.asarray(nbytes))
    rows, cols = (int(at[..., axis].max()) + 1 for axis in (0, 1))
    return Program(rows, cols, (Buffer("x", (nbytes, 1), "int8", depth=2),), ((Round((sent,)),),))


def stage_arrivals(way: PipelinePlacement, ready: Array) -> StageTransferTime:
    """Transfer times from the simulated arrival times of ``x``, shape (rows, cols). [s]"""
    at, _ = stage_cores(way)
    each = ready[at[1:, :, 0], at[1:, :, 1]].max(axis=1)
    return StageTransferTime(float(each.mean()), float(each.max()))


def stage_cores(way: PipelinePlacement) -> tuple[Array, list[bool]]:
    """Cores of each stage, shape (stages, cores, 2), and whether the next stage is in another column."""
    high, wide = group_sides(way.placement, way.cores)
    column = _column(way.high, high)
    begin, _ = _most_turns(column, way.stages, way.pipelines)
    row, col = (axis.ravel() for axis in np.indices((high, wide)))
    cores = []
    for group in range(int(begin), int(begin) + way.stages):
        across, down = divmod(group, column)
        down = column - 1 - down if across % 2 else down
        cores.append(np.stack([down * high + row, across * wide + col], axis=-1))
    at = np.array(cores)
    at[..., 1] -= at[..., 1].min()
    return at, [(group + 1) % column == 0 for group in range(int(begin), int(begin) + way.stages - 1)]


def _passed(count: Any, words: Any, fabric: MeshFabric) -> Any:
    """Of messages of as many cores in a line to those as many places further."""
    way = 2 * fabric.ramp + count * fabric.hop
    taken = count * (3 * way + words * fabric.pace) if fabric.locked else way + count * words * fabric.pace
    return fabric.post + taken


def _turning(way: PipelinePlacement) -> Any:
    rows = group_sides_by_design(way.placement, way.cores)[0]
    return _turns_of(maximum(way.high // rows, 1.0), way.stages, way.pipelines)


def _column(high: int, rows: int) -> int:
    return max(int(high) // rows, 1)


@tabulate
def _turns_of(column: int, stages: int, pipelines: int) -> float:
    return float(_most_turns(column, stages, pipelines)[1])


def _most_turns(column: int, stages: int, pipelines: int) -> tuple[int, int]:
    """The first group of the pipeline that turns most often, and how often, in columns of so many groups.

    >>> _most_turns(8, 4, 16), _most_turns(8, 6, 10), _most_turns(2, 4, 1)
    ((0, 0), (6, 1), (0, 1))
    """
    best = (0, -1)
    for begin in range(0, min(int(pipelines), column) * int(stages), int(stages)):
        turns = (begin + stages - 1) // column - begin // column
        if turns > best[1]:
            best = begin, turns
    return best
