"""Partial sums of a group by ring, K-tree or rings of two levels: each computes the product and takes what its form says."""

from dataclasses import replace
from itertools import product as combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate, explain
from dse.evaluators.calls.call import CallProduct, CoreGroupSplit
from dse.evaluators.cost_models import READERS
from dse.evaluators.cost_models import call_cost as price
from dse.evaluators.cost_models.event_simulator import simulate_events
from dse.evaluators.kernels.gemm.tiling import GemmShape
from dse.evaluators.kernels.partition import split_k as k
from dse.evaluators.kernels.partition.group_placement import ring_grid
from dse.evaluators.machine.machine import tile_core_machine
from dse.evaluators.program.activity_counts import count_activity
from dse.evaluators.program.kernel_ir import Program, Round, SendInstruction
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.mapping import AUTO, PLACEMENTS, TILE_SUMS
from dse.studies.fidelity_gap.kernels import preset
from dse.testing.functional_simulator import run_program as by_numbers
from tests.evaluators.test_partition import ENGINES, LOCKED, WORMHOLE
from tests.samples import asked, typed

OTHERS = tuple(name for name in TILE_SUMS if name != "ring")
CORES = (1, 2, 3, 4, 6, 7, 8, 16)
SHORT = ("workload.prompt=1024", "workload.output=256")
KTREE = ("mapping=npu_ktree", "mapping.both.allreduce.algorithm=ktree", "mapping.both.allreduce.ktree_k=2")


def computed(sums: str, placement: str, cores: int, phases: int, shape: GemmShape, program: Program | None = None) -> bool:
    rng = np.random.default_rng(cores)
    a, w = (rng.normal(size=size).astype(np.float32) for size in ((shape.m, shape.k), (shape.k, shape.n)))
    program = program or k.build_program(shape, placement, cores, sums=sums, phases=phases)
    try:
        outputs = k.gather_result(by_numbers(program, k.scatter_operands(a, w, placement, cores)), placement, cores, shape)
    except ValueError:
        return False
    return bool(np.allclose(outputs, a @ w, atol=1e-3))


@pytest.mark.sampled
@given(
    st.sampled_from(OTHERS), st.sampled_from(PLACEMENTS), st.sampled_from(CORES), st.integers(1, 5),
    st.integers(1, 20), st.integers(1, 20), st.integers(1, 20),
)  # fmt: skip
@settings(max_examples=120, deadline=None)
def test_every_core_has_the_product(sums: str, placement: str, cores: int, phases: int, m: int, depth: int, n: int) -> None:
    assert computed(sums, placement, cores, phases, GemmShape(m, depth, n))


@pytest.mark.parametrize(("sums", "placement"), list(combinations(OTHERS, PLACEMENTS)))
def test_a_wrong_destination_is_noticed(sums: str, placement: str) -> None:
    shape = GemmShape(8, 16, 16)
    program = k.build_program(shape, placement, 8, sums=sums, phases=2)
    (rounds,) = program.strands
    which = next(
        i for i, turn in enumerate(rounds) if any(isinstance(step, SendInstruction) and not step.into for step in turn.steps)
    )
    (send,) = rounds[which].steps
    assert isinstance(send, SendInstruction)
    wrong = replace(send, target=send.source)
    assert not computed(
        sums, placement, 8, 2, shape, replace(program, strands=((*rounds[:which], Round((wrong,)), *rounds[which + 1 :]),))
    )


@pytest.mark.sampled
@pytest.mark.parametrize(("sums", "placement"), list(combinations(TILE_SUMS, PLACEMENTS)))
@pytest.mark.parametrize("cores", CORES)
def test_all_send_as_many_bytes(sums: str, placement: str, cores: int) -> None:
    shape = GemmShape(16, 2 * cores, 3 * cores * cores)
    counted = count_activity(k.build_program(shape, placement, cores, sums=sums, phases=2))
    divided = sums == "two_level"
    assert counted.sent_bytes / 4 / cores == pytest.approx(k.values_sent(shape, *ring_grid(placement, cores, divided=divided)))


@pytest.mark.parametrize("fabric", [WORMHOLE, LOCKED], ids=["wormhole", "locked"])
@pytest.mark.parametrize(("cores", "phases"), [(1, 1), (2, 1), (4, 1), (4, 2), (9, 2), (16, 2), (16, 4)])
@pytest.mark.parametrize("placement", ["linear_seq", "linear_interleave"])
def test_the_closed_form_of_a_tree_of_equal_groups_on_a_line_is_the_program_played(
    placement: str, cores: int, phases: int, fabric: Any
) -> None:
    shape = GemmShape(16, 8 * cores, 64)
    closed, _ = k.cost(shape, placement, cores, fabric, ENGINES, 4, sums="ktree", phases=phases)
    played = simulate_events(k.build_program(shape, placement, cores, sums="ktree", phases=phases), fabric, engines=ENGINES)
    assert played.seconds == pytest.approx(closed, rel=0.02)


@pytest.mark.sampled
@pytest.mark.parametrize("fabric", [WORMHOLE, LOCKED], ids=["wormhole", "locked"])
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("cores", CORES)
def test_sums_in_turns_are_the_program_played(placement: str, cores: int, fabric: Any) -> None:
    """Interleaved messages on locked routes get out of step, as without turns."""
    rng = np.random.default_rng(cores)
    for _ in range(3):
        shape = GemmShape(
            cores * int(rng.integers(1, 40)), cores * int(rng.integers(1, 40)), cores**2 * int(rng.integers(1, 8))
        )
        closed, engines = k.cost(shape, placement, cores, fabric, ENGINES, 4, sums="overlapped_ring")
        played = simulate_events(k.build_program(shape, placement, cores, sums="overlapped_ring"), fabric, engines=ENGINES)
        assert played.engine_seconds == pytest.approx(engines)
        apart = fabric is LOCKED and (placement == "linear_interleave" or (placement in ("ring", "mesh") and cores % 2))
        assert played.seconds == pytest.approx(closed, rel=0.1 if apart else 0.03)


def test_sums_in_turns_hide_behind_products_or_products_behind_them() -> None:
    rng = np.random.default_rng(2)
    for _ in range(100):
        shape = GemmShape(*(int(size) for size in (rng.integers(1, 500), 16 * rng.integers(1, 50), 256 * rng.integers(1, 20))))
        turns, product = k.cost(shape, "ring", 16, WORMHOLE, ENGINES, 4, sums="overlapped_ring")
        part = k.cost(replace(shape, n=shape.n // 16), "ring", 16, WORMHOLE, ENGINES, 4)[0] - product / 16
        assert turns == pytest.approx(max(product + part, 16 * part + product / 16))


@given(st.sampled_from((1, 2, 4, 16)), st.integers(1, 60), *(st.floats(0.01, 9.0) for _ in range(3)))
def test_sums_in_turns_hide_behind_what_reads_of_the_next_turn_take(
    cores: int, n: int, product: float, sums: float, reads: float
) -> None:
    turns = -(-n // -(-n // cores))

    def seconds(each: float) -> float:
        return each + (turns - 1) * max(each, sums) + sums

    group_split = CoreGroupSplit("k", "ring", cores, "overlapped_ring")
    _, shown = price._messages(group_split, CallProduct(1.0, 1, 1, n), seconds(product), turns * product)
    assert shown is not None
    assert shown(reads * turns) + turns * max(product, reads) == pytest.approx(seconds(max(product, reads)))


@pytest.mark.parametrize("model", ["deepseek_v2_lite", "qwen3_30b_a3b"])
def test_quicker_engines_never_make_prompts_slower(model: str) -> None:
    """Experts whose weights take longer than their products: sums go round beside the weights of the next turn."""
    question = asked("chip=npu64", f"model={model}", "workload.batch=1", "workload.prompt=2048", "workload.output=8")
    leaves = [replace_leaves(question.base, {"chip.tile.vector.lanes": 4096.0 * 2**more}) for more in range(4)]
    ttft = evaluate(stack_designs(leaves), question.workload).columns["ttft"]
    assert np.all(np.diff(ttft) <= 1e-12)


def test_nine_of_ten_random_sums_cost_what_events_say() -> None:
    """Of K-trees and two levels, placements and routings, on 2 to 16 cores; the product itself apart."""
    rng, gaps = np.random.default_rng(5), []
    core_machines = {name: tile_core_machine(preset(name)) for name in ("npu64", "npu256")}
    for _ in range(200):
        machine = core_machines[str(rng.choice(list(core_machines)))]
        machine = machine._replace(fabric=machine.fabric._replace(locked=float(rng.integers(2))))  # type: ignore[union-attr]
        cores, phases = int(rng.integers(2, 17)), int(rng.integers(1, 5))
        m, depth, n = (int(side) for side in np.exp(rng.uniform(0, np.log(16384), 3)))
        group = CoreGroupSplit("k", str(rng.choice(PLACEMENTS)), cores, str(rng.choice(OTHERS)), phases)
        given_ = (group, CallProduct(1.0, m, max(depth, cores), n), machine, 2.0)
        cost, events = (np.subtract(*READERS[reader].product(*given_)) for reader in ("analytical", "events"))
        gaps.append(abs(cost / events - 1))
    assert np.mean(np.array(gaps) <= 0.1) >= 0.9
    assert np.median(gaps) < 0.01


@pytest.mark.parametrize("sums", OTHERS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_batch_is_its_singles(sums: str, placement: str) -> None:
    rng = np.random.default_rng(1)
    cores, phases = rng.choice([1.0, 2.0, 4.0, 8.0, 16.0], size=20), rng.choice([1.0, 2.0, 3.0], size=20)
    m, depth, n = (rng.integers(1, 4000, size=20).astype(float) for _ in range(3))
    many = k.cost(GemmShape(m, depth, n), placement, cores, LOCKED, ENGINES, 2, sums=sums, phases=phases)
    for i in range(20):
        cost = k.cost(GemmShape(m[i], depth[i], n[i]), placement, cores[i], LOCKED, ENGINES, 2, sums=sums, phases=phases[i])
        assert [float(value[i]) for value in many] == pytest.approx([float(value) for value in cost])


def test_each_product_has_the_quickest_sums_and_events_play_them() -> None:
    machine, rng, chosen = tile_core_machine(preset("npu64")), np.random.default_rng(4), set()
    for _ in range(8):
        m, depth, n = (np.exp(rng.uniform(0, np.log(400), 3)) // 1 for _ in range(3))
        cores, phases = rng.choice([1.0, 2.0, 4.0, 9.0, 16.0], 3), float(rng.integers(1, 4))
        group, product = (
            CoreGroupSplit("k", str(rng.choice(PLACEMENTS)), cores, AUTO, phases),
            CallProduct(1.0, m, np.maximum(depth, cores), n),
        )
        by = [READERS["analytical"].product(group._replace(sums=name), product, machine, 2.0)[0] for name in TILE_SUMS]
        cost, events = (READERS[name].product(group, product, machine, 2.0)[0] for name in ("analytical", "events"))
        assert np.array_equal(cost, np.minimum.reduce(by))
        for place, which in enumerate(np.argmin(by, axis=0)):
            single_group = group._replace(sums=TILE_SUMS[which], cores=cores[place])
            alone = CallProduct(1.0, *(float(side[place]) for side in product[1:]))
            assert READERS["events"].product(single_group, alone, machine, 2.0)[0] == events[place]
            chosen.add(single_group.sums)
    assert chosen >= {"ring", "ktree"}


def test_the_breakdown_says_what_adds_up_and_no_word_is_quicker() -> None:
    sizes = ("workload.batch=[1]", "workload.prompt=64", "workload.output=8", "chip.noc.word_bytes='960 B'")
    question = asked("chip=npu64", "model=qwen3_1b7", *KTREE, *sizes, "mapping.both.tp=16", "mapping.both.placement=mesh")
    designs = [
        replace_leaves(question.base, {f"mapping.{phase}.allreduce.algorithm": name for phase in ("prefill", "decode")} | trees)
        for name in (*TILE_SUMS, AUTO)
        for trees in [{f"mapping.{phase}.allreduce.ktree_k": 2 for phase in ("prefill", "decode")}]
    ]
    *single, auto = evaluate(stack_designs(designs), question.workload).columns["tpot"]
    assert auto < min(single)
    rows = explain(designs[-1], question.workload.cases[0]).rows
    chosen = {row.shape.partition(" by ")[2] for row in rows if row.operator in ("down", "head")}
    assert chosen == {"ktree", "overlapped_ring"}


def test_designs_with_several_trees_are_together_as_each_alone() -> None:
    sizes = ("workload.batch=[1,4]", "workload.prompt=64", "workload.output=8")
    question = asked("chip=npu64", "model=qwen3_1b7", *KTREE, *sizes)
    rng, designs = np.random.default_rng(2), []
    for _ in range(12):
        knobs = {"tp": int(rng.choice([2, 4, 8])), "pp": 4, "allreduce.algorithm": str(rng.choice([*TILE_SUMS, AUTO]))}
        knobs["allreduce.ktree_k"] = int(rng.choice([1, 2, 3]))
        designs.append(
            replace_leaves(
                question.base, {f"mapping.{p}.{name}": value for p in ("prefill", "decode") for name, value in knobs.items()}
            )
        )
    for fidelity in ("analytical", "events"):
        together = evaluate(stack_designs(designs), question.workload, fidelity=fidelity).columns["latency"]
        alone = [
            evaluate(stack_designs([design]), question.workload, fidelity=fidelity).columns["latency"][0] for design in designs
        ]
        assert together == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (
            ("mapping.both.partition=mn",),
            r"mapping\.both\.allreduce\.algorithm: has no effect with mapping\.prefill\.partition=mn",
        ),
        (("mapping.both.experts=whole", "model=qwen3_30b_a3b"), "mapping.both.allreduce.algorithm: experts=whole supports"),
        (("mapping.both.allreduce.ktree_k=null",), "mapping.both.allreduce.ktree_k: missing"),
        (
            ("mapping.both.allreduce.algorithm=two_level",),
            "mapping.prefill.allreduce.ktree_k: has no effect with two_level",
        ),
        (("mapping.both.allreduce.algorithm=k_tree",), "no option 'k_tree'; did you mean 'ktree'"),
    ],
)
def test_sums_that_nothing_adds_up_so_are_refused_by_name(overrides: tuple[str, ...], why: str) -> None:
    def answered() -> None:
        question = asked("chip=npu64", "model=qwen3_1b7", *KTREE, *overrides)
        typed(question)

    with pytest.raises(DesignError, match=why):
        answered()


def test_a_tree_that_the_mapping_s_file_says_is_refused_where_there_are_no_sums() -> None:
    question = asked("chip=npu64", "model=qwen3_1b7", "mapping=npu_ktree", "mapping.both.partition=mn")
    with pytest.raises(DesignError, match=r"mapping\.both\.allreduce: partition mn has no sums over a whole group"):
        typed(question)


def test_a_space_may_have_the_phases_of_a_tree_beside_other_sums() -> None:
    question = asked(
        "chip=npu64", "model=qwen3_1b7", *KTREE, "mapping.both.allreduce.algorithm=ring",
        "+space.mapping.both.allreduce.algorithm=choice(ring,ktree)", "+space.mapping.both.allreduce.ktree_k=choice(1,2)",
    )  # fmt: skip
    assert question.space.combinations == 4


def test_a_tree_pays_for_short_vectors_on_wide_links() -> None:
    """On a mesh of 64 cores whose links carry 480 GB/s, a token's sums are all way and no words."""
    wide = ("chip.noc.word_bytes='960 B'", "mapping.both.tp=64", "mapping.both.pp=1", "mapping.both.placement=mesh")
    question = asked("chip=npu64", "model=qwen3_4b", *KTREE, "workload.batch=[1]", *wide, *SHORT)
    ring, levels, tree = (
        evaluate(
            stack_designs([replace_leaves(question.base, {"mapping.decode.allreduce.algorithm": name})]), question.workload
        ).columns["tpot"][0]
        for name in ("ring", "two_level", "ktree")
    )
    assert tree < levels < ring
    assert tree < 0.65 * ring
