"""Program of one MoE layer on many dies: dispatch of tokens to experts, and combine as weighted sums.

Dies are the cores of the program. Each has tokens of its own and some experts, one after the other: die d has experts d s to
(d + 1) s - 1. Every token goes to its experts as a copy each (all-to-all with a size for each pair), experts multiply (SwiGLU),
and results go back to where their tokens are. The destinations are known when the program is written, from a router.
The analytical time of both exchanges is `cost_models.die_exchange_model.all_to_all_cost` with the shares of `traffic`.

Source: [zhang2026] sections III-F, IV and V-C: dispatch and combine between dies; one copy for each expert.
"""

from typing import NamedTuple

import numpy as np

from dse.evaluators.kernels.gemm.tiling import CoreMesh
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


class TokenCopies(NamedTuple):
    """Destinations of token copies; dies are numbered row by row, with `each` experts per die.

    Attributes:
        counts: copies from each die to each expert, shape (dies, experts).
        packed: where each copy is on its die, in the order of experts, shape (dies, tokens, copies of a token).
        begin: the first copy for each expert there, shape (dies, experts).
        into: where they go in the expert's rows, in the order of the dies that they are from, shape (dies, experts).
        each: experts of a die.
    """

    counts: Array
    packed: Array
    begin: Array
    into: Array
    each: int

    @property
    def traffic(self) -> Array:
        """Token copies from each die to each die, shape (dies, dies); combine uses the transpose. [-]"""
        dies = len(self.counts)
        return np.asarray(self.counts.reshape(dies, dies, self.each).sum(axis=2))

    def rows(self, place: int) -> int:
        """Rows of every die for its expert at `place`: the most token copies that any of these gets. [-]"""
        return max(int(self.counts[:, place :: self.each].sum(axis=0).max()), 1)


def token_copies(choices: Array, experts: int) -> TokenCopies:
    """Destinations of token copies, from the experts chosen by each token.

    Args:
        choices: experts of each token, shape (dies, tokens, copies of a token).
        experts: how many, a multiple of the dies.

    >>> token_copies(np.array([[[0, 1]], [[1, 0]]]), 2).traffic.tolist()
    [[1, 1], [1, 1]]
    """
    dies = len(choices)
    chosen = choices.reshape(dies, -1)
    counts = np.stack([np.bincount(row, minlength=experts) for row in chosen])
    order = np.argsort(chosen, axis=1, kind="stable")
    packed = np.empty_like(order)
    np.put_along_axis(packed, order, np.arange(chosen.shape[1])[None], axis=1)
    before = np.cumsum(counts, axis=1) - counts
    return TokenCopies(counts, packed.reshape(choices.shape), before, np.cumsum(counts, axis=0) - counts, experts // dies)


def dispatch_round(mesh: CoreMesh, copies: TokenCopies) -> Round:
    """Round of the dispatch: copies go from ``packed`` to ``in0``, ``in1``, ..., one buffer per expert."""
    return Round(tuple(_sends(mesh, copies, place) for place in range(copies.each)))


def combine_round(mesh: CoreMesh, copies: TokenCopies) -> Round:
    """Round of the combine: results go from ``out0``, ``out1``, ... back to ``returned``."""
    return Round(tuple(_back(_sends(mesh, copies, place), place) for place in range(copies.each)))


def build_program(
    mesh: CoreMesh, copies: TokenCopies, weights: Array, width: int, hidden: int, dtype: str = "float32", topology: str = "mesh"
) -> Program:
    """Program of an MoE layer, from the tokens ``x`` of every die to their sums ``y``.

    Args:
        mesh: dies.
        copies: where copies go.
        weights: of each copy, shape (dies, tokens, copies of a token).
        width, hidden: of a token, and of an expert.
        dtype: number format.
        topology: of the network between dies.
    """
    tokens, many = copies.packed.shape[1:]
    core_index, token = np.arange(len(copies.packed))[:, None], np.repeat(np.arange(tokens), many)[None]
    own, place = _cores(core_index, mesh), copies.packed.reshape(len(copies.packed), -1)
    given = np.zeros((len(copies.packed), tokens * many))
    np.put_along_axis(given, place, weights.reshape(given.shape), axis=1)
    experts = [str(number) for number in range(copies.each)]
    rounds = (
        Round((SendInstruction("x", own, own, token, token + 1, at=place, into="packed"),)),
        dispatch_round(mesh, copies),
        Round(
            tuple(
                MultiplyInstruction(f"in{e}", f"W_{kind}{e}", f"{kind}{e}", "ck,kn->cn")
                for e in experts
                for kind in ("gate", "up")
            )
        ),
        Round(tuple(VectorInstruction("gate", (f"gate{e}", f"up{e}"), f"act{e}") for e in experts)),
        Round(tuple(MultiplyInstruction(f"act{e}", f"W_down{e}", f"out{e}", "ck,kn->cn") for e in experts)),
        combine_round(mesh, copies),
        Round((VectorInstruction("scale", ("returned",), "scaled", given.reshape(mesh.rows, mesh.cols, -1, 1)),)),
        Round((SendInstruction("scaled", own, own, place, place + 1, at=token, into="y", combine="sum"),)),
    )
    return Program(mesh.rows, mesh.cols, buffers(copies, width, hidden, dtype), (rounds,), topology)


def buffers(copies: TokenCopies, width: int, hidden: int, dtype: str) -> tuple[Buffer, ...]:
    """Buffers of a die: tokens, copies and results, and weights and rows of each of its experts."""
    tokens, many = copies.packed.shape[1:]
    held = [Buffer(name, (tokens, width), dtype) for name in ("x", "y")]
    held += [Buffer(name, (tokens * many, width), dtype) for name in ("packed", "returned", "scaled")]
    for e in range(copies.each):
        rows = copies.rows(e)
        held += [Buffer(f"{name}{e}", (rows, width), dtype) for name in ("in", "out")]
        held += [Buffer(f"{name}{e}", (rows, hidden), dtype) for name in ("gate", "up", "act")]
        held += [Buffer(f"W_{name}{e}", (width, hidden), dtype) for name in ("gate", "up")]
        held.append(Buffer(f"W_down{e}", (hidden, width), dtype))
    return tuple(held)


def scatter_operands(mesh: CoreMesh, copies: TokenCopies, x: Array, gate: Array, up: Array, down: Array) -> Tiles:
    """Tokens of every die and weights of all experts, as blocks of the dies."""
    tiles = {"x": x.reshape(mesh.rows, mesh.cols, *x.shape[1:])}
    for name, weights in (("gate", gate), ("up", up), ("down", down)):
        own = weights.reshape(mesh.rows, mesh.cols, copies.each, *weights.shape[1:])
        tiles |= {f"W_{name}{e}": own[:, :, e] for e in range(copies.each)}
    return tiles


def gather_result(tiles: Tiles) -> Array:
    """Weighted sums of every die's tokens, shape (dies, tokens, width)."""
    return tiles["y"].reshape(-1, *tiles["y"].shape[2:])


def _sends(mesh: CoreMesh, copies: TokenCopies, place: int) -> SendInstruction:
    """Copies for the expert at a place of every die; pairs without any are left out."""
    source, target = np.nonzero(copies.counts[:, place :: copies.each])
    expert = target * copies.each + place
    start, count = copies.begin[source, expert], copies.counts[source, expert]
    ends = _cores(source, mesh), _cores(target, mesh)
    return SendInstruction("packed", *ends, start, start + count, at=copies.into[source, expert], into=f"in{place}")


def _back(sent: SendInstruction, place: int) -> SendInstruction:
    assert sent.at is not None
    count = sent.stop - sent.start
    return SendInstruction(f"out{place}", sent.target, sent.source, sent.at, sent.at + count, at=sent.start, into="returned")


def _cores(die: Array, mesh: CoreMesh) -> CoreIndex:
    return CoreIndex(die // mesh.cols, die % mesh.cols)
