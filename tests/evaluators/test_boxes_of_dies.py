"""Dies of tiles in boxes, tokens that go by boxes or from the nearest die, and shared experts among others."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate, explain
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.graph.expert_loads import busiest_core_load, experts_per_token, rows_per_core
from dse.evaluators.layouts.multi_die import DieSplit, _near
from dse.evaluators.machine.die_network import die_routes, place_groups
from dse.space.design import stack_designs
from dse.space.model import ExpertLayers
from tests.samples import asked

SMALL = (
    "model=deepseek_v2_lite",
    "workload.batch=[64]",
    "workload.prompt=64",
    "workload.output=2",
    "workload.expert_load=even",
)
TWO = ("chip=wafer64", "chip.dies.rows=4", "chip.dies.cols=4", *SMALL, "mapping.both.pp=1", "mapping.both.ep=16")
BOXES = "+chip.nodes={size: 8, bandwidth: 50 GB/s, latency: 3 us, exchange_start: 2 us}"


def metrics(*words: str, fidelity: str = "analytical") -> dict[str, float]:
    question = asked(*words)
    columns = evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns
    return {name: float(column[0]) for name, column in columns.items()}


def test_a_box_of_whole_rows_is_a_mesh() -> None:
    alone, boxed = die_routes(2, 4, "mesh"), die_routes(4, 4, "mesh", 8)
    assert boxed.hops.reshape(16, 16)[:8, :8].tolist() == alone.hops.reshape(8, 8).tolist()
    assert boxed.hops.reshape(16, 16)[8:, 8:].tolist() == alone.hops.reshape(8, 8).tolist()
    assert not boxed.hops.reshape(16, 16)[:8, 8:].any()


@pytest.mark.parametrize("exchange", ["direct", "hierarchical"])
def test_systems_in_boxes_are_played(exchange: str) -> None:
    tiny = ("chip.mesh.rows=4", "chip.mesh.cols=4", "chip.hbm.channels=4", "model.deepseek_v2_lite.layers=2")
    words = (*TWO, *tiny, BOXES, "mapping.both.placement=linear", f"mapping.both.all_to_all={exchange}")
    question = asked(*words)
    rows = {word: explain(question.base, question.workload.cases[0], fidelity=word).rows for word in ("analytical", "events")}
    sent = {word: sum(r.seconds for r in row if "d2d" in r.parts) for word, row in rows.items()}
    assert sent["analytical"] == pytest.approx(sent["events"], rel=0.15)


def test_one_copy_a_box_is_quicker_where_the_network_between_is_slow() -> None:
    words = (*TWO, BOXES, "chip.nodes.bandwidth=2 GB/s", "mapping.both.placement=linear")
    assert metrics(*words, "mapping.both.all_to_all=hierarchical")["tpot"] < metrics(*words)["tpot"]


def test_a_network_between_boxes_costs_area_energy_and_money() -> None:
    plain, boxed = metrics(*TWO, "mapping.both.placement=linear"), metrics(*TWO, BOXES, "mapping.both.placement=linear")
    assert boxed["system_price"] > plain["system_price"]
    assert boxed["tdp"] > plain["tdp"]
    wide = metrics(*TWO, BOXES, "chip.nodes.bandwidth=200 GB/s", "mapping.both.placement=linear")
    assert wide["die_mm2"] > plain["die_mm2"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("mapping.both.all_to_all=hierarchical",), "the chip has none"),
        (("mapping.both.all_to_all=nearest_replica",), "tp and ep above 1"),
        (
            (
                "chip.dies.rows=3",
                BOXES.replace("8", "4"),
                "mapping.both.all_to_all=hierarchical",
                "mapping.both.ep=4",
                "mapping.both.placement=interleave",
            ),
            "equally many dies in each node",
        ),
        (("mapping.both.experts.shared_copies=1",), "66 experts"),
    ],
)
def test_refusals_say_what_would_do(words: tuple[str, ...], message: str) -> None:
    question = asked(*TWO, *words)
    verdict = str(explain_infeasibility(question.base, question.workload))
    assert message in verdict


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_entwined_copies_are_at_the_same_place_of_every_part(tp: int) -> None:
    at = place_groups("entwine", 4, 8, 2, 16, tp)
    assert sorted(at.ravel().tolist()) == list(range(32))
    row, col = np.divmod(at.reshape(2, 16 // tp, tp), 8)
    for part in range(tp):  # a part has one die of each copy, side by side
        high, wide = np.ptp(row[0, :, part]) + 1, np.ptp(col[0, :, part]) + 1
        assert high * wide == 16 // tp


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**6))
@settings(max_examples=30)
def test_near_tokens_reach_the_same_experts(tp: int, copies: int, seed: int) -> None:
    """Each die gets of each copy what it would get without, and from one die that is in its part of the group."""
    ep = tp * copies
    shares = np.random.default_rng(seed).dirichlet(np.ones(ep), size=ep)
    near_tokens = _near(shares, DieSplit(tp, 1, ep, 1, ep, 0, 1, near=True))
    np.testing.assert_allclose(near_tokens.reshape(copies, tp, ep).sum(axis=1), shares.reshape(copies, tp, ep).sum(axis=1))
    source, target = np.nonzero(near_tokens)
    assert (source % tp == target % tp).all()


def test_near_tokens_make_hot_links_cooler_where_copies_are_entwined() -> None:
    words = (*TWO, "mapping.both.tp=4", "chip.d2d.bandwidth=20 GB/s", "workload.batch=[256]")

    def dispatch(*more: str) -> float:
        question = asked(*words, *more)
        return sum(row.seconds for row in explain(question.base, question.workload.cases[0]).rows if row.operator == "dispatch")

    near = ("mapping.both.all_to_all=nearest_replica", "mapping.both.placement=entwine")
    assert dispatch(*near) < 0.75 * dispatch("mapping.both.placement=blocks")


LOADS = st.builds(
    ExpertLayers,
    count=st.integers(4, 32),
    top_k=st.integers(1, 4),
    intermediate=st.just(8),
    shared=st.integers(1, 2),
    skew=st.sampled_from([0.0, 0.5]),
    load=st.sampled_from(["even", "expected", "sampled"]),
)


@given(LOADS, st.integers(1, 6), st.integers(1, 8), st.integers(0, 3))
@settings(max_examples=60)
def test_dies_with_shared_experts_get_all_rows_once(experts: ExpertLayers, shared: int, cores: int, redundant: int) -> None:
    tokens = 512.0
    parts = rows_per_core(experts, tokens, cores, redundant, shared)
    assert parts is not None
    assert parts.sum() == pytest.approx(1.0)
    rows, read = busiest_core_load(experts, tokens, float(cores), redundant, shared)
    mean = tokens * experts_per_token(experts, shared) / cores
    assert rows >= mean * (1 - 1e-9)
    assert rows <= tokens * experts_per_token(experts, shared) * (1 + 1e-9)
    assert 0 < read <= experts.count + redundant + experts.shared * shared
    if experts.load != "expected":  # which adds what the busiest is expected to have beyond its mean
        assert rows == pytest.approx(tokens * experts_per_token(experts, shared) * parts.max(), rel=1e-6)


def test_shared_experts_among_others_do_the_same_work() -> None:
    words = (*TWO, "workload.speculation=none", "mapping.both.placement=linear")
    usual, placed_ = asked(*words), asked(*words, "mapping.both.experts.shared_copies=8")
    flop = [sum(row.flop for row in explain(question.base, question.workload.cases[0]).rows) for question in (usual, placed_)]
    assert flop[0] == pytest.approx(flop[1])
    names = {row.operator for row in explain(placed_.base, placed_.workload.cases[0]).rows}
    assert not names & {"shared_gate", "shared_up", "shared_down"}
    before, after = (explain(question.base, question.workload.cases[0]).memory for question in (usual, placed_))
    assert after["weights of shared experts"] == pytest.approx(before["weights of shared experts"] * 8 / 16)


def test_memory_of_a_die_adds_up() -> None:
    question = asked(*TWO)
    memory = explain(question.base, question.workload.cases[0]).memory
    assert sum(memory.values()) == pytest.approx(metrics(*TWO)["hbm_used"])
