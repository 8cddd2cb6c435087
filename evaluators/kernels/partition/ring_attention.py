"""Ring attention: rows are divided over a group, and blocks of keys and values go around.

Each core keeps a running softmax.

Each core has the queries of its rows, and at first keys and values of the same; it attends to the block that it has, corrects
what it has summed by the new largest score, and sends the block on beside that work. The core has two blocks: the one that it
attends to and sends, and the one that comes. Every row attends to all keys, or rows are dealt out so that each core has as much
to do with one block as with another.
"""

from typing import Any

import numpy as np

from dse.evaluators.kernels.partition.group_placement import buffered_steps, group_sides, place_group, ring_grid
from dse.evaluators.kernels.partition.input_only import gather_blocks, scatter_blocks
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.kernel_ir import (
    Buffer,
    Loop,
    MultiplyInstruction,
    Program,
    Round,
    Tiles,
    VectorInstruction,
)
from dse.space.array_math import Array, maximum

ATTENTION_ROUNDS = (
    Round((MultiplyInstruction("q", "k", "scores", "dr,kd->kr", combine="set"),)),
    Round((VectorInstruction("largest", ("scores",), "here"),)),
    Round((VectorInstruction("larger", ("here", "most"), "now"),)),
    Round(
        (
            VectorInstruction("exponentials", ("scores", "now"), "shares"),
            VectorInstruction("exponentials", ("most", "now"), "ebb"),
        )
    ),
    Round(
        (VectorInstruction("total", ("shares",), "sum"), MultiplyInstruction("shares", "v", "part", "kr,kd->dr", combine="set"))
    ),
    Round(
        (
            VectorInstruction("decayed", ("out", "ebb", "part"), "out"),
            VectorInstruction("decayed", ("all", "ebb", "sum"), "all"),
        )
    ),
    Round((VectorInstruction("larger", ("now", "now"), "most"),)),
)
"""What a core does with a block; slots have keys, or what is of a head, first, and rows of queries last."""


MINUS_INFINITY = -1e30
"""A score below all others."""


def ring_attention_wait(placement: str, cores: Any, nbytes: Any, work: Any, fabric: MeshFabric) -> Any:
    """Time of ring attention beyond its work, in which cores wait for blocks. [s]

        t = rings steps(along, members - 1) + steps(across, rings - 1) - (cores - 1) / cores work

    A core works as long on each block. The next one comes meanwhile, so that the longer of the two counts
    (`group_placement.buffered_steps`); nothing comes beside the last one.

    Args:
        placement, cores: of the group; leaves broadcast over designs.
        nbytes: of a block of keys and values. [B]
        work: of a core on all blocks. [s]
        fabric: network of the mesh.

    Source:
        [liu2023ring] section 3: blocks go on beside the attention to them, which hides their way where it takes longer.
    """
    rings, members = ring_grid(placement, cores)
    arguments, each = (nbytes, fabric, work / cores), (cores - 1) * (work / cores)
    along, across = (buffered_steps(placement, cores, axis, n - 1, *arguments) for axis, n in ((1, members), (0, rings)))
    return maximum(rings * along + across - each, 0.0)


def build_program(placement: str, cores: int, rows: int, qk_dim: int, v_dim: int, dtype: str = "float32") -> Program:
    """Program of one head: ``out`` of every core is the attention of its rows to all keys.

    Args:
        placement, cores: of the group.
        rows: of each core, queries as well as keys and values.
        qk_dim, v_dim: of the head.
        dtype: number format.
    """
    group = place_group(placement, cores)

    def shift_round(axis: int) -> Round:
        return Round(tuple(group.shift(slot, axis, np.asarray(0), np.asarray(rows)) for slot in ("k", "v")))

    turns: list[Round] = []
    for ring in range(group.rings):
        for member in range(group.members):
            turns += ATTENTION_ROUNDS
            if member + 1 < group.members:
                turns.append(shift_round(1))
        if ring + 1 < group.rings:
            turns.append(shift_round(0))
    slots = [
        Buffer("q", (qk_dim, rows), dtype),
        Buffer("k", (rows, qk_dim), dtype, depth=2),
        Buffer("v", (rows, v_dim), dtype, depth=2),
    ]
    slots += [Buffer(name, (rows, rows), dtype) for name in ("scores", "shares")]
    slots += [Buffer(name, (1, rows), dtype) for name in ("here", "most", "now", "ebb", "sum", "all")]
    slots += [Buffer(name, (v_dim, rows), dtype) for name in ("part", "out")]
    last = Round((VectorInstruction("divide", ("out", "all"), "out"),))
    return Program(*group_sides(placement, cores), tuple(slots), ((*turns, last),))


def single_instruction_program(placement: str, cores: int, nbytes: int) -> Program:
    """Program with one instruction per attention block, with as many elements as the block has bytes."""
    group = place_group(placement, cores)
    work = Round((VectorInstruction("larger", ("kv", "kv"), "out"),))

    def shift_round(axis: int) -> Round:
        return Round((group.shift("kv", axis, np.asarray(0), np.asarray(nbytes)),))

    ring = (Loop((work, shift_round(1)), group.members - 1), work)
    between = (*ring, shift_round(0))
    slots = (Buffer("kv", (nbytes, 1), "int8", depth=2), Buffer("out", (1, 1), "int8"))
    return Program(*group_sides(placement, cores), slots, ((*between * (group.rings - 1), *ring),))


def scatter_operands(q: Array, k: Array, v: Array, placement: str, cores: int) -> Tiles:
    """Queries, keys and values of all rows as blocks of the cores, with running maxima at their minimum."""
    group, rows = place_group(placement, cores), len(q) // cores
    parts = {name: tensor.reshape(cores, rows, -1) for name, tensor in (("q", q), ("k", k), ("v", v))}
    tiles = {name: scatter_blocks(part, group, placement) for name, part in parts.items()}
    tiles["q"] = tiles["q"].swapaxes(2, 3)
    return tiles | {"most": np.full((*group_sides(placement, cores), 1, rows), MINUS_INFINITY, q.dtype)}


def gather_result(tiles: Tiles, placement: str, cores: int) -> Array:
    """Attention of all rows, shape (rows, v_dim)."""
    outputs = gather_blocks(tiles["out"], place_group(placement, cores)).swapaxes(1, 2)
    return outputs.reshape(-1, outputs.shape[2])
