"""Experts that are whole on a core: what comes back to tokens is what NumPy says, and messages take what is priced."""

from dataclasses import replace

import numpy as np
import pytest

from dse.evaluators.cost_models.event_simulator import simulate_events
from dse.evaluators.evaluation import limits
from dse.evaluators.kernels.partition import ring_collectives as ring
from dse.evaluators.program.activity_counts import count_activity
from dse.evaluators.program.kernel_ir import Program, Round, SendInstruction
from dse.space.array_math import Array
from dse.space.mapping import BYTES_BY_FORMAT, PLACEMENTS
from dse.space.parameter_counts import ffn_parameter_count
from dse.testing import expert_per_core as whole_experts
from dse.testing.functional_simulator import run_program as by_numbers
from tests.evaluators.test_partition import WORMHOLE
from tests.samples import asked


class Layer:
    """Tokens, where they go, and weights, of random sizes."""

    def __init__(self, seed: int, *, inner: bool) -> None:
        rng = np.random.default_rng(seed)
        self.placement, self.cores, self.inner = str(rng.choice(PLACEMENTS)), int(rng.choice([2, 3, 4, 6, 8, 9])), inner
        experts, tokens, self.width, self.hidden = (
            self.cores * int(rng.integers(1, 3)),
            self.cores * int(rng.integers(1, 4)),
            6,
            5,
        )
        self.choices = np.stack([rng.permutation(experts)[: int(min(experts, 2))] for _ in range(tokens)])
        self.choices[0, 0], self.choices[0, 1] = experts - 1, 0
        self.weights = rng.random(self.choices.shape)
        self.x = rng.normal(size=(tokens, self.width)).astype(np.float32)
        shapes = ((experts, self.width, self.hidden),) * 2 + ((experts, self.hidden, self.width),)
        self.gate, self.up, self.down = (rng.normal(size=shape).astype(np.float32) for shape in shapes)

    @property
    def program(self) -> Program:
        at = (self.placement, self.cores, self.choices, self.weights, self.width, self.hidden)
        return whole_experts.build_program(*at, inner=self.inner)

    def played(self, program: Program) -> Array:
        held = whole_experts.scatter_operands(
            self.placement, self.cores, self.x, self.gate, self.up, self.down, inner=self.inner
        )
        return whole_experts.gather_result(by_numbers(program, held), self.placement, self.cores)

    @property
    def right(self) -> Array:
        right = np.zeros_like(self.x)
        for token, (experts, weights) in enumerate(zip(self.choices, self.weights, strict=True)):
            for expert, weight in zip(experts, weights, strict=True):
                gate = self.x[token] @ self.gate[expert]
                right[token] += weight * ((gate / (1 + np.exp(-gate)) * (self.x[token] @ self.up[expert])) @ self.down[expert])
        return right


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_tokens_get_what_their_experts_say(seed: int, inner: bool) -> None:
    layer = Layer(seed, inner=inner)
    assert np.allclose(layer.played(layer.program), layer.right, atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_a_wrong_destination_is_noticed(seed: int) -> None:
    layer = Layer(seed, inner=False)
    first, *others = layer.program.strands[0]
    assert isinstance(first, Round)
    (send,) = first.steps
    assert isinstance(send, SendInstruction)
    wrong = replace(send, target=send.source)  # to itself
    program = replace(layer.program, strands=((Round((wrong,)), *others),))
    assert not np.allclose(layer.played(program), layer.right, atol=1e-4)


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_messages_are_those_that_are_priced(seed: int, inner: bool) -> None:
    """Each way around the group moves a slice of every core to all others, and takes what the closed form says."""
    layer = Layer(seed, inner=inner)
    turns = layer.program.strands[0]
    sent = tuple(
        turn
        for turn in turns
        if isinstance(turn, Round) and isinstance(turn.steps[0], SendInstruction) and around(turn.steps[0])
    )
    slice_ = len(layer.x) // layer.cores * layer.width * 4
    assert count_activity(replace(layer.program, strands=(sent,))).sent_bytes == 2 * (layer.cores - 1) * layer.cores * slice_
    # products stand between both ways
    halves = (replace(layer.program, strands=(part,)) for part in (sent[: len(sent) // 2], sent[len(sent) // 2 :]))
    priced = 2 * ring.ring_seconds(layer.placement, layer.cores, float(slice_), WORMHOLE)
    assert sum(simulate_events(half, WORMHOLE).seconds for half in halves) == pytest.approx(priced, rel=0.15)


def around(send: SendInstruction) -> bool:
    """Whether a step leaves its core."""
    return bool(((send.source.row != send.target.row) | (send.source.col != send.target.col)).any())


@pytest.mark.parametrize("tp", [4, 6, 8, 16, 64])
def test_the_fullest_core_holds_whole_experts(tp: int) -> None:
    """One at least: of 8 experts on 16 cores an eighth, not a sixteenth."""
    words = (
        "chip=npu64",
        "mapping=npu",
        "model=mixtral_8x7b",
        f"mapping.both.tp={tp}",
        "mapping.both.pp=1",
        "workload.batch=[1]",
    )
    held = {}
    for expert_partition in ("divided", "whole"):
        question = asked(
            *words, "mapping.both.partition=mn", f"mapping.both.experts={expert_partition}", "chip.hbm.capacity='8 TB'"
        )
        held[expert_partition] = max(
            dict(limit.parts).get("weights", 0.0) for limit in limits(question.base, question.workload)
        )
    model, byte = question.workload.cases[0].model, BYTES_BY_FORMAT[question.base.mapping.precision.weights]
    routed = 32 * 8 * ffn_parameter_count(model, model.experts.intermediate) * byte
    assert held["whole"] - held["divided"] == pytest.approx(routed * (-(-8 // tp) / 8 - 1 / tp), rel=1e-9, abs=1.0)
