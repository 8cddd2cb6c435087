"""Allreduces of any tensor-parallel group of dies with a cache: K-trees and two levels of rings."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.question import Question
from dse.evaluators import evaluate, explain
from dse.evaluators.calls.call import LeadingCollective
from dse.evaluators.cost_models import event_simulator as events
from dse.evaluators.cost_models.analytical_collectives import die_allreduce_seconds
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.kernels.collective import allreduce_seconds, find_allreduce, ports_needed
from dse.evaluators.kernels.collective import hierarchical as two_level
from dse.evaluators.kernels.gemm.tiling import near_square
from dse.evaluators.kernels.gemv.ktree import phase_groups
from dse.evaluators.machine.device_links import DeviceGroupLinks, split_into_nodes
from dse.evaluators.machine.machine import shared_cache_machine
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity_counts import count_activity
from dse.evaluators.program.kernel_ir import Program, SendInstruction
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.testing.functional_simulator import run_program
from tests.samples import asked

pytestmark = pytest.mark.usefixtures("flat_stack")

SWEPT = ("ring", "ktree", "two_level")
PEERS, PHASES = st.integers(1, 40), st.integers(1, 8)
SMALL = ("model=qwen3_1b7", "workload.batch=[4]", "workload.prompt=128", "workload.output=4", "mapping.both.prefetch=none")
CHIPS = ("a100", "h100", "ascend910b", "npu_dse", "mi300x", "tpu_v5p")
HOPS = ("chip.network.latency_per=hop", "chip.network.latency=2us", "chip.network.ports=40")


def partners(program: Program) -> int:
    """Other dies that one exchanges with, of the die that has most."""
    partners_of_die: dict[int, set[int]] = {0: set()}
    for strand in program.strands:
        for turn in strand:
            for send in (step for step in turn.steps if isinstance(step, SendInstruction)):
                for source, other in zip(send.source.col.tolist(), send.target.col.tolist(), strict=True):
                    partners_of_die.setdefault(source, set()).add(other)
                    partners_of_die.setdefault(other, set()).add(source)
    return max(map(len, partners_of_die.values()))


def levels(peers: int) -> int:
    return (peers - 1).bit_length()


@given(PEERS, PHASES, st.integers(1, 50))
@settings(max_examples=60)
def test_a_tree_of_any_phases_adds_up_all_vectors(peers: int, phases: int, rows: int) -> None:
    x = np.random.default_rng(peers).normal(size=(1, peers, rows, 1))
    sums = run_program(find_allreduce("ktree", phases).build_program(rows, peers), {"x": x.astype(np.float32)})["x"]
    assert np.allclose(sums, x.sum(axis=1, keepdims=True), atol=1e-4)


@given(st.integers(1, 4), st.integers(1, 9), PHASES, st.integers(1, 50))
@settings(max_examples=40)
def test_a_tree_in_nodes_and_between_them_adds_up_all_vectors(nodes: int, members: int, phases: int, rows: int) -> None:
    x = np.random.default_rng(rows).normal(size=(nodes, members, rows, 1))
    sums = run_program(
        two_level.build_program(find_allreduce("ktree", phases), rows, nodes, members), {"x": x.astype(np.float32)}
    )["x"]
    assert np.allclose(sums, x.sum(axis=(0, 1), keepdims=True), atol=1e-4)


@given(st.sampled_from(["ktree", "two_level"]), PEERS, PHASES, st.integers(1, 20), st.floats(1e8, 1e12), st.floats(0.0, 1e-4))
@settings(max_examples=80)
def test_the_closed_form_is_the_program_played(
    name: str, peers: int, phases: int, share: int, bandwidth: float, hop: float
) -> None:
    """Every pair that exchanges has a link, so that no message waits for another."""
    none = dict.fromkeys(("stage", "copy", "post", "ramp", "launch", "call", "mac", "operation", "special"), 0.0)
    rows, fabric = share * peers, MeshFabric(hop=hop, word=4 / bandwidth, word_bytes=4, **none)
    kernel = find_allreduce(name, phases)
    cost, program = (
        kernel.cost(4.0 * rows, DeviceGroupLinks(float(peers), bandwidth, hop, "hop")),
        kernel.build_program(rows, peers),
    )
    assert cost.seconds == pytest.approx(events.simulate_events(program, fabric).seconds, rel=1e-9)
    assert cost.activity.sent_bytes == pytest.approx(count_activity(program).sent_bytes)
    assert ports_needed(name, peers, phases=phases) >= partners(program)


@given(st.integers(1, 300), st.integers(0, 4), st.floats(0.0, 1e9), st.sampled_from(["hop", "collective"]))
@settings(max_examples=80)
def test_a_binary_tree_is_the_tree_of_as_many_phases_and_of_more(peers: int, more: int, nbytes: float, per: str) -> None:
    """Of a power of two dies; of others the binary tree's last level is short, and sends at once."""
    links, phases = DeviceGroupLinks(float(peers), 1e9, 1e-6, per), max(levels(peers), 1) + more
    ktree, tree = find_allreduce("ktree", phases).cost(nbytes, links), find_allreduce("tree").cost(nbytes, links)
    assert ktree.activity == tree.activity
    assert tree.seconds <= ktree.seconds
    assert tree.seconds == ktree.seconds or peers & (peers - 1)
    assert ports_needed("ktree", peers, phases=phases) == ports_needed("tree", peers)


def one_after_another(program: Program, stream: float, hop: float) -> float:
    """Time of a tree whose dies each send one message at a time, and take one: a stream holds the ports of both ends."""
    ready, sending, taking = (np.zeros(program.cols) for _ in range(3))
    (strand,) = program.strands
    for turn in strand:
        came = ready.copy()
        for send in (step for step in turn.steps if isinstance(step, SendInstruction)):
            pairs = zip(send.source.col.tolist(), send.target.col.tolist(), strict=True)
            for source, target in sorted(pairs, key=lambda pair: ready[pair[0]]):
                end = max(ready[source], sending[source], taking[target]) + stream
                sending[source] = taking[target] = end
                came[target] = max(came[target], end + hop)
        ready = came
    return float(ready.max())


@given(PEERS, PHASES, st.floats(1.0, 1e8), st.floats(0.0, 1e-4))
@settings(max_examples=80)
def test_messages_of_a_tree_share_the_port_of_its_root(peers: int, phases: int, nbytes: float, hop: float) -> None:
    """As they do between nodes; groups that end early go on, which the closed form does not count."""
    kernel, links = find_allreduce("ktree", phases), DeviceGroupLinks(float(peers), 1e9, hop, "hop", ports=1)
    played, closed = one_after_another(kernel.build_program(1, peers), nbytes / 1e9, hop), kernel.cost(nbytes, links).seconds
    if all(len({len(group) for group, _ in level}) == 1 for level in phase_groups(peers, phases)):
        assert closed == pytest.approx(played, rel=1e-9)
    assert played * (1 - 1e-9) <= closed <= 1.5 * played


@given(PEERS, PHASES, st.integers(1, 8))
@settings(max_examples=60)
def test_fewer_ports_take_no_less_and_a_port_for_each_takes_no_more(peers: int, phases: int, few: int) -> None:
    kernel, links = find_allreduce("ktree", phases), DeviceGroupLinks(float(peers), 1e9, 1e-6, "hop")
    whole, shared, less = (kernel.cost(1e6, links._replace(ports=count)).seconds for count in (peers, few + 1, few))
    assert whole == kernel.cost(1e6, links).seconds <= shared <= less


@given(PEERS, PHASES)
@settings(max_examples=60)
def test_a_tree_needs_a_link_for_each_partner_of_its_busiest_die(peers: int, phases: int) -> None:
    assert ports_needed("ktree", peers, phases=phases) == partners(find_allreduce("ktree", phases).build_program(4, peers))
    assert ports_needed("ktree", peers, phases=1) == peers - 1


@given(PEERS, st.floats(1.0, 1e9), st.floats(0.0, 1e-4))
@settings(max_examples=60)
def test_two_levels_take_no_longer_than_a_ring_and_send_as_much(peers: int, nbytes: float, latency: float) -> None:
    links = DeviceGroupLinks(float(peers), 1e9, latency, "hop")
    grid, ring = (find_allreduce(name).cost(nbytes, links) for name in ("two_level", "ring"))
    rows, cols = near_square(peers)
    assert grid.activity == ring.activity
    assert ring.seconds - grid.seconds == pytest.approx(2 * latency * (peers + 1 - rows - cols), abs=1e-12)
    assert ports_needed("two_level", peers) == (4 if rows > 1 else ports_needed("ring", peers))


@given(st.integers(2, 64), st.floats(1.0, 1e9), st.sampled_from(["hop", "collective"]))
def test_across_nodes_two_levels_are_a_ring_s(dies: int, nbytes: float, per: str) -> None:
    nodes, members = split_into_nodes(float(dies), 8)
    within, between = DeviceGroupLinks(members, 1e11, 1e-6, per), DeviceGroupLinks(nodes, 1e10, 1e-5, per)
    grid, ring = (allreduce_seconds(name, nbytes, within, between) for name in ("two_level", "ring"))
    if nodes > 1:
        assert grid == ring
        assert ports_needed("two_level", members, nodes) == ports_needed("ring", members)
    else:
        assert grid == find_allreduce("two_level").cost(nbytes, within).seconds


@given(st.integers(2, 6), st.integers(1, 3), st.floats(1.0, 1e8))
@settings(max_examples=30)
def test_trees_across_nodes_share_what_leaves_a_node(nodes: int, phases: int, nbytes: float) -> None:
    """The root of a node has the whole vector, and all of the node's bandwidth."""
    question = asked("chip=ascend910b", *SMALL, *HOPS, "mapping.both.tp=16", "mapping.both.allreduce=ktree")
    machine, network = shared_cache_machine(question.base.chip, question.base.mapping), question.base.chip.network
    assert network is not None
    assert network.nodes is not None
    achieved, size = question.base.mapping.stack.network_efficiency, network.nodes.size
    allreduce_seconds = die_allreduce_seconds(
        LeadingCollective("ktree", size * nodes, nbytes, recorded=True, phases=phases), machine
    )
    inside = DeviceGroupLinks(size, network.bandwidth * achieved, network.latency, "hop")
    outside = DeviceGroupLinks(float(nodes), network.nodes.bandwidth * achieved, network.nodes.latency, "hop", ports=1)
    tree = find_allreduce("ktree", phases)
    assert allreduce_seconds == pytest.approx(tree.cost(nbytes, inside).seconds + tree.cost(nbytes, outside).seconds)
    if phases == 1:
        apart = 2 * (network.nodes.latency + (nodes - 1) * nbytes / (network.nodes.bandwidth * achieved))
        assert allreduce_seconds - tree.cost(nbytes, inside).seconds == pytest.approx(apart, rel=1e-6)


def named(chip: str, *words: str) -> Question:
    return asked(f"chip={chip}", *SMALL, *HOPS, *words)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_step_pays_for_its_allreduces_what_their_formula_says(chip: str) -> None:
    """In one node, of a vector of all tokens of a decode step."""
    question = named(chip, "mapping.both.tp=4", "mapping.both.allreduce=ktree", "mapping.both.ktree_k=1")
    network, stack = question.base.chip.network, question.base.mapping.stack
    assert network is not None
    case = question.workload.cases[0]
    times = 2 * 28 * 3  # layers, and tokens but the first, which is of prefill
    nbytes = 4 * 2048 * (1 if question.base.mapping.precision.activations == "int8" else 2)
    bandwidth = network.bandwidth * stack.network_efficiency
    for phases in (1, 2, 3):
        design = replace_leaves(question.base, {"mapping.decode.ktree_k": phases})
        rows = explain(design, case).rows
        spent = sum(row.seconds for row in rows if row.operator == "allreduce" and row.phase == "decode")
        links = DeviceGroupLinks(4.0, bandwidth, network.latency, "hop")
        assert spent == pytest.approx(times * find_allreduce("ktree", phases).cost(float(nbytes), links).seconds)


@pytest.mark.parametrize("chip", CHIPS)
def test_phases_and_words_of_a_batch_are_those_of_its_singles(chip: str) -> None:
    question = named(chip, "mapping.both.allreduce=ktree", "mapping.both.ktree_k=1")
    plans = [(tp, word, k) for tp in (1, 2, 6, 8, 16) for word in ("ktree", "two_level", "ring") for k in (None, 1, 2)]
    designs = [
        replace_leaves(
            question.base,
            {
                f"mapping.{phase}.{leaf}": value
                for phase in ("prefill", "decode")
                for leaf, value in zip(("tp", "allreduce", "ktree_k"), plan, strict=True)
            },
        )
        for plan in plans
    ]
    together = evaluate(stack_designs(designs), question.workload)
    for row, design in enumerate(designs):
        evaluation = evaluate(stack_designs([design]), question.workload)
        assert evaluation.feasible[0] == together.feasible[row]
        assert together.columns["tpot"][row] == pytest.approx(evaluation.columns["tpot"][0], rel=1e-12, nan_ok=True)
    times = {plan: together.columns["tpot"][row] for row, plan in enumerate(plans)}
    assert times[8, "ktree", None] == times[8, "ktree", 2] > times[8, "ktree", 1]
    assert times[8, "ring", None] == times[8, "ring", 2] > times[8, "two_level", None]


@pytest.mark.parametrize(
    ("words", "need"),
    [
        (("chip=ascend910b", "mapping.both.allreduce=ktree", "mapping.both.ktree_k=1", "chip.network.ports=6"), 7),
        (("chip=ascend910b", "mapping.both.allreduce=ktree", "mapping.both.ktree_k=3", "chip.network.ports=2"), 3),
        (("chip=a100", "mapping.both.allreduce=two_level"), 4),
    ],
)
def test_links_that_a_die_does_not_have_are_refused_and_enough_are_not(words: tuple[str, ...], need: int) -> None:
    question = asked(*words, *SMALL, "mapping.both.tp=8")
    worst = explain_infeasibility(question.base, question.workload)
    assert worst is not None
    assert (worst.limit, worst.need) == ("chip.network.ports", need)
    assert explain_infeasibility(replace_leaves(question.base, {"chip.network.ports": need}), question.workload) is None


def test_a_tree_of_too_few_phases_for_the_ports_says_how_many_would_do() -> None:
    words = ("mapping.decode.allreduce=ktree", "mapping.decode.ktree_k=1", "chip.network.ports=4", "mapping.both.tp=8")
    question = asked("chip=ascend910b", *SMALL, *words)
    worst = explain_infeasibility(question.base, question.workload)
    assert worst is not None
    assert worst.remedy == "use a K-tree of 2 phases: mapping.decode.ktree_k=2"
    assert explain_infeasibility(replace_leaves(question.base, {"mapping.decode.ktree_k": 2}), question.workload) is None


@pytest.mark.parametrize("word", ["ring", "tree", "two_level", "library"])
def test_phases_are_read_beside_a_tree_alone(word: str) -> None:
    with pytest.raises(DesignError, match=rf"ktree_k: has no effect with {word}"):
        asked("chip=a100", *SMALL, f"mapping.both.allreduce={word}", "mapping.both.ktree_k=2")


def test_a_space_has_phases_for_trees_alone() -> None:
    words = (f"+space.mapping.both.allreduce=choice({','.join(SWEPT)})", "+space.mapping.both.ktree_k=choice(1,2,3)")
    question = asked("chip=ascend910b", *SMALL, "mapping.both.allreduce=ktree", "mapping.both.ktree_k=2", *words)
    assert question.space is not None
    points = [
        dict(zip(("mapping.both.allreduce", "mapping.both.ktree_k"), pair, strict=True)) for pair in product(SWEPT, (1, 2, 3))
    ]
    assert len({question.space.key_at(values) for values in points}) == 5
