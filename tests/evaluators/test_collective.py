"""Every registered collective computes what it says, and moves what its closed form says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators.kernels.collective import ALLREDUCE, two_level
from dse.evaluators.machine.link import Links
from dse.evaluators.program.counts import activity
from dse.evaluators.program.rounds import Program, Round
from dse.evaluators.readers.numeric import play

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
    # to itself: those of a tree may change places
    wrong = replace(program, strands=((replace(first, steps=(replace(send, target=send.source),)), *rest), *others))
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
    shallow = replace(program, slots=tuple(slot._replace(depth=1) for slot in program.slots))
    with pytest.raises(ValueError, match="depth 2"):
        play(shallow, {"x": np.zeros((1, 2, 8, 1), np.float32)})


@given(st.sampled_from(sorted(ALLREDUCE)), st.integers(1, 40), st.integers(1, 4), st.integers(1, 5))
def test_every_die_of_every_node_ends_with_the_sum(name: str, rows: int, nodes: int, members: int) -> None:
    x = np.random.default_rng(rows).normal(size=(nodes, members, rows, 1)).astype(np.float32)
    out = play(two_level.steps(ALLREDUCE[name], rows, nodes, members), {"x": x})["x"]
    assert np.allclose(out, x.sum(axis=(0, 1), keepdims=True), atol=1e-4)


@given(st.sampled_from(sorted(ALLREDUCE)), st.integers(1, 40), st.integers(1, 4), st.integers(1, 5))
def test_two_levels_count_the_bytes_of_their_steps(name: str, rows: int, nodes: int, members: int) -> None:
    within, between = (Links(float(peers), 1e9, 1e-6, "hop") for peers in (members, nodes))
    counted = activity(two_level.steps(ALLREDUCE[name], rows, nodes, members)).sent_bytes
    assert counted == pytest.approx(two_level.cost(ALLREDUCE[name], 4.0 * rows, within, between).activity.sent_bytes)


@pytest.mark.parametrize("name", ALLREDUCE)
def test_two_levels_take_the_rounds_of_their_steps(name: str) -> None:
    """As above; a round between nodes goes at their bandwidth and latency, and strands share a die's way out of its node.

    Dies of a node share its bandwidth; where one alone sends, as at the root of a tree, it has all.
    """
    rows, nodes, members = 240, 3, 4
    within, between = Links(float(members), 1e9, 1e-6, "hop"), Links(float(nodes), 1e8, 1e-5, "hop")

    program = two_level.steps(ALLREDUCE[name], rows, nodes, members)

    def seconds(turn: Round) -> float:
        inside = bool((turn.steps[0].source.row == turn.steps[0].target.row).all())
        senders = len({int(die) for send in turn.steps for die in send.source.col.ravel()})
        links, sharers = (within, 1) if inside else (between, len(program.strands) * senders / members)
        return links.latency + 4 * sharers * max(float((send.stop - send.start).max()) for send in turn.steps) / links.bandwidth

    times = [sum(seconds(turn) for turn in strand) for strand in program.strands]
    cost = two_level.cost(ALLREDUCE[name], 4.0 * rows, within, between)
    assert cost.seconds == pytest.approx(max(times))


@given(st.sampled_from(sorted(ALLREDUCE)), st.floats(1, 1e9), st.integers(1, 64), st.sampled_from(["hop", "collective"]))
def test_one_node_is_one_level(name: str, nbytes: float, peers: int, latency_per: str) -> None:
    within, between = Links(float(peers), 1e9, 1e-6, latency_per), Links(1.0, 1e6, 1.0, latency_per)
    assert two_level.cost(ALLREDUCE[name], nbytes, within, between) == ALLREDUCE[name].cost(nbytes, within)
