"""Every registered collective computes what it says, and moves what its closed form says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.kernels.collective import ALLREDUCE
from evaluators.machine.link import Links
from evaluators.numeric import play
from evaluators.rounds import Program, activity

PEERS = (1, 2, 3, 4, 5, 7, 8, 16)


def summed(name: str, rows: int, peers: int, program: Program | None = None) -> bool:
    x = np.random.default_rng(peers).normal(size=(1, peers, rows, 1)).astype(np.float32)
    out = play(program or ALLREDUCE[name].steps(rows, peers), {"x": x})["x"]
    return bool(np.allclose(out, x.sum(axis=1, keepdims=True), atol=1e-4))


@pytest.mark.parametrize("peers", PEERS)
@pytest.mark.parametrize("name", ALLREDUCE)
def test_every_peer_ends_with_the_sum(name: str, peers: int) -> None:
    assert summed(name, 24, peers)


@given(st.sampled_from(sorted(ALLREDUCE)), st.integers(1, 40), st.integers(1, 12))
def test_vectors_that_do_not_divide_are_summed_as_well(name: str, rows: int, peers: int) -> None:
    assert summed(name, rows, peers)


@given(st.sampled_from(sorted(ALLREDUCE)), st.integers(1, 40), st.integers(1, 12))
def test_the_closed_form_counts_the_bytes_of_the_steps(name: str, rows: int, peers: int) -> None:
    kernel = ALLREDUCE[name]
    links = Links(float(peers), 1e9, 1e-6, "hop")
    assert activity(kernel.steps(rows, peers)).sent_bytes == pytest.approx(kernel.cost(4 * rows, links).activity.sent_bytes)


@pytest.mark.parametrize("name", ALLREDUCE)
def test_a_wrong_destination_is_noticed(name: str) -> None:
    program = ALLREDUCE[name].steps(24, 5)
    (first, *rest), *others = program.strands
    send = first.steps[0]
    target = replace(send.target, col=np.roll(send.target.col, 1))
    wrong = replace(program, strands=((replace(first, steps=(replace(send, target=target),)), *rest), *others))
    assert not summed(name, 24, 5, wrong)


@pytest.mark.parametrize("name", ALLREDUCE)
def test_the_closed_form_is_the_rounds_of_the_steps(name: str) -> None:
    """Each round takes a hop and its largest slice; strands run side by side on links of their own."""
    rows, peers, bandwidth, hop = 240, 6, 1e9, 1e-6
    program = ALLREDUCE[name].steps(rows, peers)
    times = [
        sum(hop + 4 * max(float((send.stop - send.start).max()) for send in turn.steps) / bandwidth for turn in strand)
        for strand in program.strands
    ]
    links = Links(float(peers), bandwidth, hop, "hop")
    assert ALLREDUCE[name].cost(4.0 * rows, links).seconds == pytest.approx(max(times))


@pytest.mark.parametrize("latency_per", ["hop", "collective"])
@pytest.mark.parametrize("name", ALLREDUCE)
def test_one_peer_needs_no_time(name: str, latency_per: str) -> None:
    assert ALLREDUCE[name].cost(1e6, Links(1.0, 1e9, 1e-6, latency_per)).seconds == 0.0


@pytest.mark.parametrize("name", ALLREDUCE)
def test_a_batch_is_its_singles(name: str) -> None:
    peers = np.array([1.0, 2.0, 5.0, 32.0])
    batch = ALLREDUCE[name].cost(1e6, Links(peers, 1e9, 1e-6, "collective")).seconds
    singles = [ALLREDUCE[name].cost(1e6, Links(p, 1e9, 1e-6, "collective")).seconds for p in peers.tolist()]
    assert batch.tolist() == singles


def test_a_slot_that_is_sent_and_received_needs_two_versions() -> None:
    program = ALLREDUCE["ring"].steps(8, 2)
    shallow = replace(program, slots=tuple(replace(slot, depth=1) for slot in program.slots))
    with pytest.raises(ValueError, match="depth 2"):
        play(shallow, {"x": np.zeros((1, 2, 8, 1), np.float32)})
