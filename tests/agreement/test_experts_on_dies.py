"""A layer of experts over dies: what is timed is what is computed, and what it sends is what the formula counts."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models import event_simulator as events
from dse.evaluators.cost_models.die_exchange_model import all_to_all_cost
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.machine.die_network import DieNetworkLevel, place_groups
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity_counts import count_activity
from dse.evaluators.program.kernel_ir import CoreIndex, Program, SendInstruction
from dse.space.array_math import Array
from dse.testing import moe_layer_program as exchange_v
from dse.testing.functional_simulator import run_program
from dse.testing.moe_layer_program import TokenCopies


class Layer(NamedTuple):
    """Tokens, where they go, and weights of experts."""

    mesh: CoreMesh
    of: TokenCopies
    x: Array
    choices: Array
    weights: Array
    gate: Array
    up: Array
    down: Array

    def program(self, topology: str = "mesh") -> Program:
        width, hidden = self.gate.shape[1:]
        return exchange_v.build_program(self.mesh, self.of, self.weights, width, hidden, "float64", topology)

    def computed(self, program: Program) -> Array:
        tiles = exchange_v.scatter_operands(self.mesh, self.of, self.x, self.gate, self.up, self.down)
        return exchange_v.gather_result(run_program(program, tiles))

    def expected(self) -> Array:
        """Token by token."""
        result = np.zeros_like(self.x)
        for die, token, copy in np.ndindex(self.choices.shape):
            x, expert = self.x[die, token], self.choices[die, token, copy]
            gate, up = x @ self.gate[expert], x @ self.up[expert]
            result[die, token] += self.weights[die, token, copy] * ((gate / (1 + np.exp(-gate)) * up) @ self.down[expert])
        return result


def layer(rows: int, cols: int, each: int, tokens: int, copies: int, seed: int) -> Layer:
    """Random tokens, whose router wants some experts more than others, none twice for a token."""
    rng, dies, width, hidden = np.random.default_rng(seed), rows * cols, 5, 4
    experts = dies * each
    scores = rng.normal(size=(dies, tokens, experts)) + rng.normal(size=experts)
    choices = np.argsort(-scores, axis=2)[:, :, : min(copies, experts)]
    weights = np.exp(np.take_along_axis(scores, choices, axis=2))
    weights /= weights.sum(axis=2, keepdims=True)
    sizes = ((dies, tokens, width), (experts, width, hidden), (experts, width, hidden), (experts, hidden, width))
    x, gate, up, down = (rng.normal(size=size) for size in sizes)
    return Layer(CoreMesh(rows, cols), exchange_v.token_copies(choices, experts), x, choices, weights, gate, up, down)


LAYERS = st.builds(
    layer, st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 6), st.integers(1, 4), st.integers(0, 10**6)
)


@given(LAYERS, st.sampled_from(["mesh", "torus", "full"]))
@settings(max_examples=25)
def test_tokens_come_to_their_experts_and_back(layer: Layer, topology: str) -> None:
    np.testing.assert_allclose(layer.computed(layer.program(topology)), layer.expected(), rtol=1e-9, atol=1e-12)


@given(LAYERS, st.integers(1, 3))
@settings(max_examples=15)
def test_shared_experts_among_others_give_every_token_theirs(layer: Layer, shared: int) -> None:
    """Copies of one more expert on some dies, which all tokens go to in turn, beside their routed ones."""
    dies, tokens, _ = layer.choices.shape
    experts = len(layer.gate)
    more = dies * -(-shared // dies)  # so that dies share out all of them; those beyond the copies get nothing
    numbers = np.arange(dies * tokens).reshape(dies, tokens, 1) % shared + experts
    choices = np.concatenate([layer.choices, numbers], axis=2)
    weights = np.concatenate([layer.weights, np.ones(numbers.shape)], axis=2)
    rng = np.random.default_rng(shared)
    own = [rng.normal(size=matrix.shape[1:]) for matrix in (layer.gate, layer.up, layer.down)]
    every = [
        np.concatenate([matrix, np.tile(it, (more, 1, 1))])
        for matrix, it in zip((layer.gate, layer.up, layer.down), own, strict=True)
    ]
    placed_ = Layer(layer.mesh, exchange_v.token_copies(choices, experts + more), layer.x, choices, weights, *every)
    gate, up = layer.x @ own[0], layer.x @ own[1]
    expected = layer.expected() + (gate / (1 + np.exp(-gate)) * up) @ own[2]
    np.testing.assert_allclose(placed_.computed(placed_.program()), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("turn", [1, 5], ids=["dispatch", "combine"])
@given(st.integers(0, 10**6), st.integers(0, 10**6))
@settings(max_examples=15)
def test_one_wrong_destination_is_seen(turn: int, seed: int, pair: int) -> None:
    given_layer = layer(2, 3, 2, 4, 2, seed)
    program = given_layer.program()
    (rounds,) = program.strands
    sent = rounds[turn].steps[0]
    assert isinstance(sent, SendInstruction)
    col = sent.target.col.copy()
    col[pair % len(col)] = (col[pair % len(col)] + 1) % 3
    wrong = replace(sent, target=CoreIndex(sent.target.row, col))
    turns = list(rounds)
    turns[turn] = replace(rounds[turn], steps=(wrong, *rounds[turn].steps[1:]))
    broken = replace(program, strands=(tuple(turns),))
    assert not np.allclose(given_layer.computed(broken), given_layer.expected())


@pytest.mark.parametrize("topology", ["mesh", "torus", "full"])
@given(LAYERS)
@settings(max_examples=15)
def test_what_the_program_sends_is_what_the_formula_counts(topology: str, layer: Layer) -> None:
    program, row = layer.program(topology), 8.0 * layer.x.shape[2]
    mesh, dies = layer.mesh, layer.mesh.rows * layer.mesh.cols
    level, at = (
        DieNetworkLevel(mesh.rows, mesh.cols, topology, dies, 1e12, 256e-9),
        place_groups("linear", mesh.rows, mesh.cols, 1, dies),
    )
    dispatched, back = (
        all_to_all_cost(level, at, row, shares.astype(float)) for shares in (layer.of.traffic, layer.of.traffic.T)
    )
    counted = count_activity(program)
    assert counted.sent_bytes == pytest.approx(dispatched.sent_bytes + back.sent_bytes)
    assert counted.hop_bytes == pytest.approx(dispatched.hop_bytes + back.hop_bytes)
    for turn, closed in (
        (exchange_v.dispatch_round(mesh, layer.of), dispatched),
        (exchange_v.combine_round(mesh, layer.of), back),
    ):
        assert count_activity(replace(program, strands=((turn,),))).hop_bytes == pytest.approx(closed.hop_bytes)


@given(LAYERS)
@settings(max_examples=10)
def test_no_layer_is_played_faster_than_its_busiest_link(layer: Layer) -> None:
    """Dies as cores of a program: the reader of programs carries messages that have a size each."""
    program, row = layer.program(), 8.0 * layer.x.shape[2]
    mesh, dies = layer.mesh, layer.mesh.rows * layer.mesh.cols
    free = dict.fromkeys(("stage", "copy", "post", "ramp", "launch", "call", "mac", "operation", "special"), 0.0)
    played = events.simulate_events(program, MeshFabric(hop=256e-9, word=8e-12, word_bytes=8, apart=1.0, **free)).seconds
    level, at = (
        DieNetworkLevel(mesh.rows, mesh.cols, "mesh", 4, 1e12, 256e-9),
        place_groups("linear", mesh.rows, mesh.cols, 1, dies),
    )
    dispatched, back = (
        all_to_all_cost(level, at, row, shares.astype(float)) for shares in (layer.of.traffic, layer.of.traffic.T)
    )
    assert played >= (dispatched.links + back.links) * (1 - 1e-9)


def test_a_layer_whose_tokens_all_want_one_expert_is_bound_by_its_die() -> None:
    token_copies = exchange_v.token_copies(np.zeros((4, 8, 1), int), 4)
    assert token_copies.traffic.tolist() == [[8, 0, 0, 0]] * 4
    level, at = DieNetworkLevel(2, 2, "mesh", 4, 1e12, 0.0), place_groups("linear", 2, 2, 1, 4)
    cost = all_to_all_cost(level, at, 1e6, token_copies.traffic.astype(float))
    assert (cost.link[1], cost.busiest) == (0, 16e6)  # from the die below and the one across
