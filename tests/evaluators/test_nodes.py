"""Dies in nodes: what crosses them pays for it, more of anything never hurts, and energy is power x time x dies."""

from dataclasses import replace as with_fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.accuracy.validate import compare_file, simulate_metric
from dse.config.compose import CONF
from dse.evaluators import METRICS, evaluate, explain
from dse.evaluators.calls.call import LeadingCollective
from dse.evaluators.cost_models.analytical_collectives import die_allreduce_seconds
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.machine.machine import shared_cache_machine
from dse.evaluators.silicon import link_wiring as links
from dse.space.design import Design, stack_designs
from dse.space.fields import leaf_at, replace_leaves
from tests.samples import asked

pytestmark = pytest.mark.usefixtures("flat_stack")

CHIP = ("chip=a100", "stack=sglang_he2025", "workload.batch=[1]", "workload.prompt=512", "workload.output=8")
WHOLE = ("workload.group=mesh", "workload.group_axis=rectangle", "workload.root=0")
BETTER = (
    "mapping.stack.matrix_efficiency",
    "mapping.stack.hbm_efficiency",
    "mapping.stack.network_efficiency",
    "chip.network.bandwidth",
    "chip.network.nodes.bandwidth",
)
WORSE = (
    "chip.network.latency",
    "chip.network.nodes.latency",
    "mapping.stack.collective_launch",
    "mapping.stack.inter_node_launch",
    "mapping.stack.operator_launch",
)
counts = st.sampled_from([1, 2, 7, 8, 9, 12, 16, 32])


def gpus(count: int, **changes: object) -> Design:
    both = {f"mapping.{phase}.tp": count for phase in ("prefill", "decode")}
    return replace_leaves(asked(*CHIP).base, both | changes)


@pytest.mark.parametrize("algorithm", ["ring", "bidirectional_ring", "full_mesh", "two_level"])
@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_no_sum_leaves_a_node_faster_than_all_its_adapters_send(algorithm: str, nodes: int) -> None:
    """Each DGX A100 sends 2 (q - 1) / q of 1 MB, a slice through each of eight adapters of 25 GB/s; NVLink is free here."""
    free: dict[str, object] = {"chip.network.bandwidth": 1e30, "chip.network.latency": 0.0, "chip.network.nodes.latency": 0.0}
    ideal: dict[str, object] = {"mapping.stack.network_efficiency": 1.0, "mapping.stack.inter_node_launch": 0.0}
    design = gpus(8 * nodes, **free, **ideal)
    allreduce_seconds = die_allreduce_seconds(
        LeadingCollective(algorithm, 8 * nodes, 1e6, recorded=True), shared_cache_machine(design.chip, design.mapping)
    )
    adapter = 200e9 / 8
    assert allreduce_seconds == pytest.approx(2 * (nodes - 1) / nodes * (1e6 / 8) / adapter, rel=1e-9)


def seconds(*designs: Design, metric: str = "latency") -> list[float]:
    column: list[float] = evaluate(stack_designs(designs), asked(*CHIP).workload).columns[metric].tolist()
    return column


def alone(design: Design) -> Design:
    """The design with all of its dies in one node, which has no network of its own."""
    return replace_leaves(design, {"chip.network": with_fields(design.chip.network, nodes=None)})  # type: ignore[union-attr]


@given(st.integers(1, 8))
def test_one_node_is_one_level(count: int) -> None:
    assert seconds(gpus(count)) == seconds(alone(gpus(count)))


@pytest.mark.parametrize("count", [9, 16, 32])
def test_dies_beyond_a_node_pay_for_crossing_it(count: int) -> None:
    crossing, inside = seconds(gpus(count), alone(gpus(count)), metric="tokens_per_s_per_user")
    assert crossing < inside


@pytest.mark.parametrize(("count", "node"), [(16, 8), (32, 4), (6, 3)])
@pytest.mark.parametrize(("reached", "used"), [(1.0, 1.0), (0.25, 1.0), (0.5, 0.125)])
def test_sums_reach_their_share_of_links_and_of_the_network_between_nodes(
    count: int, node: int, reached: float, used: float
) -> None:
    """By hand, around rings without starts: all bytes inside nodes, and a die's slice of them between nodes."""
    given_gpus = gpus(
        count,
        **dict.fromkeys(("chip.network.latency", "chip.network.nodes.latency", "mapping.stack.inter_node_launch"), 0.0),
        **{
            "chip.network.nodes.size": node,
            "mapping.stack.network_efficiency": reached,
            "mapping.stack.inter_node_efficiency": used,
        },
    )
    network, nbytes, nodes = given_gpus.chip.network, 1e9, count // node
    inside = 2 * (node - 1) / node * nbytes / (reached * network.bandwidth)
    between = 2 * (nodes - 1) / nodes * nbytes / node / (reached * used * network.nodes.bandwidth / node)
    allreduce_seconds = die_allreduce_seconds(
        LeadingCollective("ring", count, nbytes, recorded=True), shared_cache_machine(given_gpus.chip, given_gpus.mapping)
    )
    assert allreduce_seconds == pytest.approx(inside + between, rel=1e-9)


def test_a_node_that_holds_them_all_is_not_crossed() -> None:
    assert seconds(gpus(16, **{"chip.network.nodes.size": 16})) == seconds(alone(gpus(16)))


@given(counts, st.sampled_from(BETTER), st.floats(0.05, 1.0))
def test_more_of_a_resource_never_hurts(count: int, address: str, share: float) -> None:
    least, most = (gpus(count, **{address: value * _at(address)}) for value in (share / 2, share))
    assert seconds(most)[0] <= seconds(least)[0]


@given(counts, st.sampled_from(WORSE), st.floats(1.0, 10.0))
def test_later_starts_never_help(count: int, address: str, times: float) -> None:
    assert seconds(gpus(count))[0] <= seconds(gpus(count, **{address: times * _at(address)}))[0]


@pytest.mark.sampled
@given(st.lists(st.tuples(counts, st.sampled_from([1, 4, 8])), min_size=2, max_size=6))
@settings(deadline=None)
def test_a_batch_is_its_singles(sizes: list[tuple[int, int]]) -> None:
    designs = [gpus(count, **{"chip.network.nodes.size": size}) for count, size in sizes]
    assert seconds(*designs) == pytest.approx([seconds(design)[0] for design in designs], rel=1e-12)


@given(counts)
def test_the_breakdown_sums_to_the_total(count: int) -> None:
    assert explain(gpus(count), asked(*CHIP).workload.cases[0]).seconds == pytest.approx(seconds(gpus(count))[0], rel=1e-9)


@given(counts)
def test_energy_is_power_times_time_times_dies(count: int) -> None:
    (energy,), (latency,) = (seconds(gpus(count), metric=name) for name in ("rated_energy", "latency"))
    assert energy == pytest.approx(400 * count * latency)


WITHOUT_BOXES = {
    "tpu_v5e": "links join chips of a pod of 256",
    "tpu_v5p": "links join chips of a pod of 8,960",
    "tpu_v6e": "links join chips of a pod of 256",
    "tpu_v7x": "links join chips of a pod of 9,216",
    "groq": "links join all chips",
    "groq3_lpu": "links join the chips of a rack",
    "p150": "links join Blackholes alike, whichever host they are in",
    "wormhole": "links join dies of a mesh alike, whichever box they are in",
    "wormhole_galaxy": "links join dies of a mesh alike, whichever box they are in",
    "npu_dse": "no chip that is sold",
}
"""Chips with links to others and no network between boxes, and why."""

PARTS = {
    "a100": "node_nvlink3",
    "h100": "node_nvlink4",
    "h200": "node_nvlink4",
    "b200": "node_nvlink5",
    "mi300x": "node_infinity",
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "chip").glob("*.yaml")))
def test_a_chip_with_links_is_in_boxes_or_says_why_not(name: str) -> None:
    """One more die than a box holds pays for the network between two; with all in one it is not asked."""
    if "network:" not in (text := (CONF / f"chip/{name}.yaml").read_text()) or "network: null" in text:
        return
    question = asked(f"chip={name}", "model=llama3_8b", "workload.batch=[1]", "mapping.both.allreduce=ring")
    base, nodes = question.base, question.base.chip.network.nodes  # type: ignore[union-attr]
    assert (nodes is None) == (name in WITHOUT_BOXES)
    if nodes is None:
        return
    sizes = [{f"mapping.{phase}.tp": nodes.size + more for phase in ("prefill", "decode")} for more in (0, 1)]
    slow = replace_leaves(base, {"chip.network.nodes.bandwidth": 1e9})
    designs = stack_designs([replace_leaves(design, size) for size in sizes for design in (base, slow)])
    inside, same, across, slower = evaluate(designs, question.workload).columns["latency"]
    assert inside == same
    assert across < slower


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "part"), PARTS.items())
def test_boxes_are_the_same_with_the_part_and_without(name: str, part: str) -> None:
    plain, boxed = (asked(f"chip={name}", *words).base.chip for words in ((), (f"+part@chip={part}",)))
    assert plain.network.nodes.size == boxed.nodes.size  # type: ignore[union-attr]
    assert links.node_port_bandwidth(plain) == boxed.nodes.bandwidth


def test_ports_join_the_dies_of_a_node_only() -> None:
    outcomes = evaluate(
        stack_designs(
            [gpus(16, **{"mapping.prefill.allreduce": "full_mesh", "chip.network.ports": ports}) for ports in (6, 7)]
        ),
        asked(*CHIP).workload,
    )
    assert outcomes.need.tolist() == [7, 0]


@given(counts)
def test_a_product_by_itself_pays_every_start(count: int) -> None:
    design = gpus(count)
    product = asked("chip=a100", "stack=sglang_he2025", "mapping=sglang", "workload=gemv")
    free = replace_leaves(design, dict.fromkeys(WORSE, 0.0))
    started, moved = (float(evaluate(stack_designs([each]), product.workload).columns["latency"][0]) for each in (design, free))
    chip = design.chip
    stack = design.mapping.stack
    starts = stack.operator_launch + (count > 1) * (stack.collective_launch + chip.network.latency)  # type: ignore[union-attr]
    assert started == pytest.approx(moved + starts + (count > 8) * (chip.network.nodes.latency + stack.inter_node_launch))  # type: ignore[union-attr]
    assert moved >= 2 * 16384 * -(-16384 // count) / 2.039e12


@pytest.mark.sampled
@given(counts, st.sampled_from(["gemm", "gemv"]))
def test_a_product_is_explained_and_a_batch_is_its_singles(count: int, kind: str) -> None:
    product = asked("chip=a100", "mapping=sglang", f"workload={kind}", "workload.shapes=[64x512x4096,2x4096x512]")
    designs = [gpus(count), gpus(3), gpus(17)]
    many = evaluate(stack_designs(designs), product.workload, cases=True)
    for row, design in enumerate(designs):
        evaluation = evaluate(stack_designs([design]), product.workload, cases=True)
        for name in METRICS:
            assert many.columns[name][row] == pytest.approx(evaluation.columns[name][0], rel=1e-12, nan_ok=True), name
        for place, case in enumerate(product.workload.cases):
            assert explain(design, case).seconds == pytest.approx(evaluation.cases["latency"][place, 0])
    assert (many.cases["mfu"] <= many.cases["compute_share"]).all()


def test_a_ratio_may_be_to_another_chip(tmp_path: Path) -> None:
    wafer = ("chip=wse2", "workload=gemv", "workload.shapes=[1x4096x4096]", "mapping.rows=64")
    gpu = ("chip=a100", "mapping=sglang", "workload=gemv", "workload.shapes=[1x4096x4096]", "mapping.prefill.tp=2")
    path = tmp_path / "published.csv"
    path.write_text(
        "id,where,overrides,baseline,metric,value,unit,role,note\n"
        f'x,here,"{" ".join(gpu)}","{" ".join(wafer)}",rated_energy,1,ratio,check,\n'
    )
    (row,) = compare_file(path)
    energies = [simulate_metric(overrides, "rated_energy", strict=False) for overrides in (gpu, wafer)]
    assert row.simulated == energies[0] / energies[1]  # type: ignore[operator]


def _at(address: str) -> float:
    return float(leaf_at(asked(*CHIP).base, address))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "knobs"),
    [
        (("stack=trtllm_h100", "model=llama3_8b"), ("ring", "library", "full_mesh")),
        (("stack=trtllm_h100", "model=llama3_8b", "workload=serving", "workload.requests=3"), ("ring", "library")),
        (("stack=vllm_allreduce_h100", "model=llama3_8b"), ("ring", "library")),
        (("stack=nccl_h100", "workload=collective", "workload.pattern=all_to_all", *WHOLE), ("library", "ring")),
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_sums_beside_a_library_make_one_design_infeasible(words: tuple[str, ...], knobs: tuple[str, ...]) -> None:
    question = asked("chip=h100", *words, f"mapping.both.allreduce={knobs[0]}", "mapping.both.tp=2")
    plans = [(tp, word) for tp in (1, 2, 16) for word in knobs]
    both = {"tp": 0, "allreduce": 1}
    designs = [
        replace_leaves(
            question.base, {f"mapping.{phase}.{leaf}": plan[at] for phase in ("prefill", "decode") for leaf, at in both.items()}
        )
        for plan in plans
    ]
    together = evaluate(stack_designs(designs), question.workload)
    assert together.refused
    assert together.feasible.any()
    for row, design in enumerate(designs):
        evaluation = evaluate(stack_designs([design]), question.workload)
        assert (evaluation.limit[0], evaluation.need[0], evaluation.have[0]) == (
            together.limit[row],
            together.need[row],
            together.have[row],
        )
        assert evaluation.refused.get(0) == together.refused.get(row)
        assert (explain_infeasibility(design, question.workload) is None) == evaluation.feasible[0] == together.feasible[row]
        if evaluation.feasible[0]:
            assert together.columns["latency"][row] == pytest.approx(evaluation.columns["latency"][0], rel=1e-12, nan_ok=True)
