"""Program of experts that each lie on one core of a group.

Tokens go around the ring to all cores, and sums of outputs come back.

Layouts evaluate this: the slices of `ring_collectives.allgather_rounds` before the first product, and of
`ring_collectives.reduce_scatter_rounds` after the last. Each core takes the rows that its experts are asked for, multiplies
(SwiGLU), weighs, and sums; who goes where is known when it is written. Where the inner dimension is divided all cores have all
tokens, and sums come to all of them: `inner`.
"""

import numpy as np

from dse.evaluators.kernels.partition.group_placement import GroupRings, group_sides, place_group
from dse.evaluators.kernels.partition.input_only import gather_blocks as of_cores
from dse.evaluators.kernels.partition.input_only import scatter_blocks
from dse.evaluators.kernels.partition.ring_collectives import allgather_rounds, reduce_scatter_rounds
from dse.evaluators.program.kernel_ir import (
    Buffer,
    CoreIndex,
    MultiplyInstruction,
    Program,
    Round,
    SendInstruction,
    Tiles,
    VectorInstruction,
)
from dse.space.array_math import Array


def build_program(
    placement: str, cores: int, choices: Array, weights: Array, width: int, hidden: int, dtype: str = "float32", *,
    inner: bool = False,
) -> Program:  # fmt: skip
    """Program of an MoE layer on a group: ``x``, a slice of tokens per core (or all), becomes ``y``.

    Args:
        placement, cores: of the group; experts are dealt to cores in turn.
        choices, weights: of each token, the experts that it goes to, and what each counts; shape (tokens, copies). Tokens are a
            multiple of the cores.
        width, hidden: of a token, and of an expert.
        dtype: number format.
        inner: whether all cores have all tokens, and get all sums.
    """
    group, tokens = place_group(placement, cores), len(choices)
    rows = tokens // cores
    assignments = _asked(choices, cores)
    before = () if inner else allgather_rounds(group, "x", rows)
    after = (*reduce_scatter_rounds(group, "y", rows), *(allgather_rounds(group, "y", rows) if inner else ()))
    middle: list[Round] = []
    slots = [Buffer(name, (tokens, width), dtype, depth=2) for name in ("x", "y")]
    for place, (expert, token) in enumerate(assignments):
        most = max(1, *(len(token_rows) for token_rows in token))
        core = np.repeat(np.arange(cores), [len(token_rows) for token_rows in token])
        core_index = CoreIndex(group.row.ravel()[core], group.col.ravel()[core])
        flat = np.concatenate(token).astype(int)
        at = np.concatenate([np.arange(len(token_rows)) for token_rows in token]).astype(int)
        given = np.zeros((cores, most, 1))
        given[core, at, 0] = _weight(choices, weights, np.repeat(expert, [len(token_rows) for token_rows in token]), flat)
        names = [f"{name}{place}" for name in ("in", "gate", "up", "act", "out")]
        into, gate, up, act, out = names
        middle += [
            Round((SendInstruction("x", core_index, core_index, flat, flat + 1, at=at, into=into),)),
            Round(tuple(MultiplyInstruction(into, f"W_{kind}", kind, "ck,kn->cn", combine="set") for kind in (gate, up))),
            Round((VectorInstruction("gate", (gate, up), act),)),
            Round((MultiplyInstruction(act, f"W_down{place}", out, "ck,kn->cn", combine="set"),)),
            Round((VectorInstruction("scale", (out,), f"scaled{place}", scatter_blocks(given, group, placement)),)),
            Round((SendInstruction(f"scaled{place}", core_index, core_index, at, at + 1, at=flat, into="y", combine="sum"),)),
        ]
        slots += [Buffer(name, (most, width), dtype) for name in (into, out, f"scaled{place}")]
        slots += [Buffer(name, (most, hidden), dtype) for name in (gate, up, act)]
        slots += [Buffer(f"W_{name}", (width, hidden), dtype) for name in (gate, up)]
        slots.append(Buffer(f"W_down{place}", (hidden, width), dtype))
    return Program(*group_sides(placement, cores), tuple(slots), ((*before, *middle, *after),))


def scatter_operands(
    placement: str, cores: int, x: Array, gate: Array, up: Array, down: Array, *, inner: bool = False
) -> Tiles:
    """Tokens, shape (tokens, width), and weights of all experts, as blocks of the cores."""
    group, rows = place_group(placement, cores), len(x) // cores
    own = np.zeros((cores, *x.shape), x.dtype)
    for core in range(cores):
        span = slice(None) if inner else slice(core * rows, (core + 1) * rows)
        own[core, span] = x[span]
    tiles = {"x": scatter_blocks(own, group, placement)}
    for name, weights in (("gate", gate), ("up", up), ("down", down)):
        for number in range(-(-len(weights) // cores)):
            held = weights[np.minimum(number * cores + np.arange(cores), len(weights) - 1)]
            tiles[f"W_{name}{number}"] = scatter_blocks(held, group, placement)
    return tiles


def gather_result(tiles: Tiles, placement: str, cores: int) -> Array:
    """Sums of every token, each from the core that it belongs to, shape (tokens, width)."""
    rings: GroupRings = place_group(placement, cores)
    output = of_cores(tiles["y"], rings)
    rows = output.shape[1] // cores
    return np.concatenate([output[core, core * rows : (core + 1) * rows] for core in range(cores)])


def _asked(choices: Array, cores: int) -> list[tuple[Array, list[Array]]]:
    """By place on a core: the expert that each core has there, and the tokens that go to it."""
    count = int(choices.max()) + 1
    assignments = []
    for first in range(0, count, cores):
        expert = first + np.arange(cores)
        assignments.append((expert, [np.flatnonzero((choices == expert_id).any(axis=1)) for expert_id in expert]))
    return assignments


def _weight(choices: Array, weights: Array, expert: Array, token: Array) -> Array:
    """What each copy of a token counts at an expert."""
    return np.asarray(np.sum(weights[token] * (choices[token] == expert[:, None]), axis=1))
