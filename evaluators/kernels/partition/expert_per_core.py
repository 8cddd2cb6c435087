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
    of, tokens = place_group(placement, cores), len(choices)
    rows = tokens // cores
    asked = _asked(choices, cores)
    before = () if inner else allgather_rounds(of, "x", rows)
    after = (*reduce_scatter_rounds(of, "y", rows), *(allgather_rounds(of, "y", rows) if inner else ()))
    middle: list[Round] = []
    slots = [Buffer(name, (tokens, width), dtype, depth=2) for name in ("x", "y")]
    for place, (expert, token) in enumerate(asked):
        most = max(1, *(len(some) for some in token))
        core = np.repeat(np.arange(cores), [len(some) for some in token])
        here = CoreIndex(of.row.ravel()[core], of.col.ravel()[core])
        flat = np.concatenate(token).astype(int)
        at = np.concatenate([np.arange(len(some)) for some in token]).astype(int)
        given = np.zeros((cores, most, 1))
        given[core, at, 0] = _weight(choices, weights, np.repeat(expert, [len(some) for some in token]), flat)
        names = [f"{name}{place}" for name in ("in", "gate", "up", "act", "out")]
        into, gate, up, act, out = names
        middle += [
            Round((SendInstruction("x", here, here, flat, flat + 1, at=at, into=into),)),
            Round(tuple(MultiplyInstruction(into, f"W_{kind}", kind, "ck,kn->cn", combine="set") for kind in (gate, up))),
            Round((VectorInstruction("gate", (gate, up), act),)),
            Round((MultiplyInstruction(act, f"W_down{place}", out, "ck,kn->cn", combine="set"),)),
            Round((VectorInstruction("scale", (out,), f"scaled{place}", scatter_blocks(given, of, placement)),)),
            Round((SendInstruction(f"scaled{place}", here, here, at, at + 1, at=flat, into="y", combine="sum"),)),
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
    of, rows = place_group(placement, cores), len(x) // cores
    own = np.zeros((cores, *x.shape), x.dtype)
    for core in range(cores):
        some = slice(None) if inner else slice(core * rows, (core + 1) * rows)
        own[core, some] = x[some]
    tiles = {"x": scatter_blocks(own, of, placement)}
    for name, weights in (("gate", gate), ("up", up), ("down", down)):
        for number in range(-(-len(weights) // cores)):
            held = weights[np.minimum(number * cores + np.arange(cores), len(weights) - 1)]
            tiles[f"W_{name}{number}"] = scatter_blocks(held, of, placement)
    return tiles


def gather_result(tiles: Tiles, placement: str, cores: int) -> Array:
    """Sums of every token, each from the core that it belongs to, shape (tokens, width)."""
    of: GroupRings = place_group(placement, cores)
    found = of_cores(tiles["y"], of)
    rows = found.shape[1] // cores
    return np.concatenate([found[core, core * rows : (core + 1) * rows] for core in range(cores)])


def _asked(choices: Array, cores: int) -> list[tuple[Array, list[Array]]]:
    """By place on a core: the expert that each core has there, and the tokens that go to it."""
    count = int(choices.max()) + 1
    found = []
    for first in range(0, count, cores):
        expert = first + np.arange(cores)
        found.append((expert, [np.flatnonzero((choices == one).any(axis=1)) for one in expert]))
    return found


def _weight(choices: Array, weights: Array, expert: Array, token: Array) -> Array:
    """What each copy of a token counts at an expert."""
    return np.asarray(np.sum(weights[token] * (choices[token] == expert[:, None]), axis=1))
