"""Every registered collective computes what it says, and moves what its closed form says."""

from dataclasses import replace
from heapq import heappop, heappush

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators.kernels.collective import ALLREDUCE
from dse.evaluators.kernels.collective import hierarchical as two_level
from dse.evaluators.machine.device_links import DeviceGroupLinks
from dse.evaluators.program.activity_counts import count_activity
from dse.evaluators.program.kernel_ir import Program, Round
from dse.testing.functional_simulator import run_program

PEERS = (1, 2, 3, 4, 5, 7, 8, 16)


def summed(name: str, rows: int, peers: int, program: Program | None = None) -> bool:
    x = np.random.default_rng(peers).normal(size=(1, peers, rows, 1)).astype(np.float32)
    out = run_program(program or ALLREDUCE[name].build_program(rows, peers), {"x": x})["x"]
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
    links = DeviceGroupLinks(float(peers), 1e9, 1e-6, "hop")
    assert count_activity(kernel.build_program(rows, peers)).sent_bytes == pytest.approx(
        kernel.cost(4 * rows, links).activity.sent_bytes
    )


@pytest.mark.parametrize("name", ALLREDUCE)
def test_a_wrong_destination_is_noticed(name: str) -> None:
    program = ALLREDUCE[name].build_program(24, 5)
    (first, *rest), *others = program.strands
    send = first.steps[0]
    # to itself: those of a tree may change places
    wrong = replace(program, strands=((replace(first, steps=(replace(send, target=send.source),)), *rest), *others))
    assert not summed(name, 24, 5, wrong)


@pytest.mark.parametrize("name", ALLREDUCE)
@pytest.mark.parametrize("peers", [4, 6, 7])
def test_the_closed_form_is_the_rounds_of_the_steps(name: str, peers: int) -> None:
    """Each round takes a hop and its largest slice; strands run side by side on links of their own.

    Where dies are no power of two a tree's take less than its rounds, which do not wait for one another.
    """
    rows, bandwidth, hop = 840, 1e9, 1e-6
    program = ALLREDUCE[name].build_program(rows, peers)
    times = [
        sum(hop + 4 * max(float((send.stop - send.start).max()) for send in turn.steps) / bandwidth for turn in strand)
        for strand in program.strands
    ]
    links = DeviceGroupLinks(float(peers), bandwidth, hop, "hop")
    sooner = 2 / 3 if name == "tree" and peers > 4 else 1.0
    assert ALLREDUCE[name].cost(4.0 * rows, links).seconds == pytest.approx(sooner * max(times))


@pytest.mark.parametrize("name", ALLREDUCE)
@pytest.mark.parametrize("peers", [2, 3, 5, 8, 13])
def test_no_peer_with_one_port_sends_more_than_that_carries(name: str, peers: int) -> None:
    """What any of them sends or takes in all, by the program; rings and a full mesh keep all ports busy throughout."""
    rows = 21840  # divides by all of these, and by twice as much
    own = np.zeros((2, peers))
    for send in (
        send for strand in ALLREDUCE[name].build_program(rows, peers).strands for turn in strand for send in turn.steps
    ):
        for way, cores in zip(own, (send.source, send.target), strict=True):
            np.add.at(way, cores.col, 4.0 * np.asarray(send.stop - send.start))
    seconds = ALLREDUCE[name].cost(4.0 * rows, DeviceGroupLinks(float(peers), 1.0, 0.0, "hop", ports=1.0)).seconds
    assert seconds >= own.max() * (1 - 1e-12)
    assert name in ("tree", "ktree") or seconds == pytest.approx(own.min(), rel=1e-12)


@pytest.mark.parametrize("ports", [1, 2, 3])
@given(st.integers(2, 70), st.floats(0, 3), st.floats(0.01, 3))
def test_a_tree_with_few_ports_takes_at_most_its_closed_form(ports: int, peers: int, hop: float, message: float) -> None:
    """Vectors go through ports in the order in which they can; with two ports, exactly as long."""

    def through(starts: list[float]) -> list[float]:
        free, ends = [0.0] * ports, []
        for start in starts:
            done = max(heappop(free), start) + message
            heappush(free, done)
            ends.append(done + hop)
        return ends

    def below(die: int) -> list[int]:
        dies = (die + (1 << level) for level in range(7) if die % (2 << level) == 0)
        return [other for other in dies if other < peers]

    def up(die: int) -> float:
        return max(through(sorted(map(up, below(die)))), default=0.0)

    def down(die: int, start: float) -> float:
        to = below(die)[::-1]
        return max([start, *map(down, to, through([start] * len(to)))])

    played = up(0) + down(0, 0.0)
    closed = ALLREDUCE["tree"].cost(message, DeviceGroupLinks(float(peers), 1.0, hop, "hop", ports=float(ports))).seconds
    if ports > 1:
        assert played == pytest.approx(closed, rel=1e-9)
    else:
        root = 2 * ((peers - 1).bit_length() * message + hop)
        assert root * (1 - 1e-9) <= played <= closed * (1 + 1e-9)


@pytest.mark.parametrize("latency_per", ["hop", "collective"])
@pytest.mark.parametrize("name", ALLREDUCE)
def test_one_peer_needs_no_time(name: str, latency_per: str) -> None:
    assert ALLREDUCE[name].cost(1e6, DeviceGroupLinks(1.0, 1e9, 1e-6, latency_per)).seconds == 0.0


@pytest.mark.parametrize("name", ALLREDUCE)
def test_a_batch_is_its_singles(name: str) -> None:
    peers = np.array([1.0, 2.0, 5.0, 32.0])
    batch = ALLREDUCE[name].cost(1e6, DeviceGroupLinks(peers, 1e9, 1e-6, "collective")).seconds
    singles = [ALLREDUCE[name].cost(1e6, DeviceGroupLinks(p, 1e9, 1e-6, "collective")).seconds for p in peers.tolist()]
    assert batch.tolist() == singles


def test_a_slot_that_is_sent_and_received_needs_two_versions() -> None:
    program = ALLREDUCE["ring"].build_program(8, 2)
    shallow = replace(program, slots=tuple(slot._replace(depth=1) for slot in program.slots))
    with pytest.raises(ValueError, match="depth 2"):
        run_program(shallow, {"x": np.zeros((1, 2, 8, 1), np.float32)})


@pytest.mark.sampled
@given(st.sampled_from(sorted(ALLREDUCE)), st.integers(1, 40), st.integers(1, 4), st.integers(1, 5))
def test_every_die_of_every_node_ends_with_the_sum(name: str, rows: int, nodes: int, members: int) -> None:
    x = np.random.default_rng(rows).normal(size=(nodes, members, rows, 1)).astype(np.float32)
    out = run_program(two_level.build_program(ALLREDUCE[name], rows, nodes, members), {"x": x})["x"]
    assert np.allclose(out, x.sum(axis=(0, 1), keepdims=True), atol=1e-4)


@given(st.sampled_from(sorted(ALLREDUCE)), st.integers(1, 40), st.integers(1, 4), st.integers(1, 5))
def test_two_levels_count_the_bytes_of_their_steps(name: str, rows: int, nodes: int, members: int) -> None:
    within, between = (DeviceGroupLinks(float(peers), 1e9, 1e-6, "hop") for peers in (members, nodes))
    counted = count_activity(two_level.build_program(ALLREDUCE[name], rows, nodes, members)).sent_bytes
    assert counted == pytest.approx(two_level.cost(ALLREDUCE[name], 4.0 * rows, within, between).activity.sent_bytes)


@pytest.mark.parametrize("name", ALLREDUCE)
@pytest.mark.parametrize(("nodes", "members"), [(2, 4), (4, 2), (8, 4), (4, 8)])
def test_two_levels_take_the_rounds_of_their_steps(name: str, nodes: int, members: int) -> None:
    """A round takes a hop, inside nodes its largest slice; between them all that any node sends or takes at its bandwidth.

    Strands are side by side: inside nodes on links of their own, between nodes through the same way out.
    """
    rows = 40320
    within, between = (
        DeviceGroupLinks(float(members), 1e9, 1e-6, "hop"),
        DeviceGroupLinks(float(nodes), 1e8, 1e-5, "hop", ports=1.0),
    )
    program = two_level.build_program(ALLREDUCE[name], rows, nodes, members)

    def seconds(turns: tuple[Round, ...]) -> float:
        messages = [send for turn in turns for send in turn.steps if send.source.row.size]
        nbytes = [4.0 * (send.stop - send.start) for send in messages]
        if (messages[0].source.row == messages[0].target.row).all():
            return within.latency + max(float(entry.max()) for entry in nbytes) / within.bandwidth
        ways = np.zeros((2, nodes))
        for send, entry in zip(messages, nbytes, strict=True):
            np.add.at(ways[0], send.source.row, entry)
            np.add.at(ways[1], send.target.row, entry)
        return between.latency + float(ways.max()) / (members * between.bandwidth)

    cost = two_level.cost(ALLREDUCE[name], 4.0 * rows, within, between)
    assert cost.seconds == pytest.approx(sum(map(seconds, zip(*program.strands, strict=True))))


@given(st.sampled_from(sorted(ALLREDUCE)), st.floats(1, 1e9), st.integers(1, 64), st.sampled_from(["hop", "collective"]))
def test_one_node_is_one_level(name: str, nbytes: float, peers: int, latency_per: str) -> None:
    within, between = DeviceGroupLinks(float(peers), 1e9, 1e-6, latency_per), DeviceGroupLinks(1.0, 1e6, 1.0, latency_per)
    assert two_level.cost(ALLREDUCE[name], nbytes, within, between) == ALLREDUCE[name].cost(nbytes, within)
