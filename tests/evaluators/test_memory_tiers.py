"""Memory tiers of devices: identities with main memory alone, placement, reads, energy, silicon, served loads, and refusals."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.analysis.placement_facts import placement_facts
from dse.evaluators import evaluate
from dse.evaluators.accounting.memory_placement import place_contents
from dse.evaluators.calls.call import KernelCall
from dse.evaluators.evaluation import explain, explain_infeasibility, limits
from dse.evaluators.graph.expert_loads import expert_probabilities, expert_read_shares
from dse.evaluators.machine.tiered_reads import EXPERTS, KV, WEIGHTS, TieredReads
from dse.evaluators.silicon import area
from dse.evaluators.silicon.energy import peak_design_power, static_power
from dse.evaluators.silicon.price import price_by_part
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.memory_tiers import CONTENTS, TIERS, MemoryTier, MemoryTiers, PlacementPlan
from dse.space.model import ExpertLayers
from dse.space.workload import Workload
from tests.samples import asked

EVERYTHING = {"weights": "second", "kv": "second", "experts": "second"}
ON_MAIN = dict.fromkeys(EVERYTHING, "main")

TIMES = ("ttft", "tpot", "throughput", "latency", "hbm_bytes", "hbm_utilisation", "mfu")

MODELS = ("llama3_8b", "mixtral_8x7b")
SIZES = ("workload.batch=[3]", "workload.prompt=300", "workload.output=20")
SERVED = ("workload=serving", "workload.requests=30", "workload.rate=4 Hz", "fidelity=steady_state")
BOX = ("chip=h200", "+part@chip=node_nvlink4", "model=deepseek_v2_lite", "mapping.both.ep=8")


def question_of(*words: str) -> tuple[Design, Workload]:
    """A design, and what is asked of it."""
    question = asked(*words)
    return question.base, question.workload


def tiered(design: Design, tiers: int = 1, placed: dict[str, Any] | None = None, **leaves: Any) -> Design:
    """A design with tiers like its main memory, by way of the host, of which `leaves` change all; and with contents placed."""
    memory = design.chip.hbm
    own = {"capacity": memory.capacity * 8, "bandwidth": memory.bandwidth, "devices": design.chip.dram, "attachment": "host"}
    parts = {name: MemoryTier(**(own | leaves)) for name in TIERS[:tiers]}
    plan = None if placed is None else PlacementPlan(**placed)
    chip = replace(design.chip, tiers=MemoryTiers(**parts))
    return replace(design, chip=chip, mapping=replace(design.mapping, memory_placement=plan))


def metrics(design: Design, workload: Workload, fidelity: str = "analytical") -> dict[str, float]:
    """All metrics of one design."""
    outcomes = evaluate(stack_designs([design]), workload, fidelity=fidelity).require_compatible()
    return {name: float(column[0]) for name, column in outcomes.columns.items()}


@pytest.mark.parametrize("tiers", [1, 3])
@pytest.mark.parametrize("placed", [None, ON_MAIN])
@pytest.mark.parametrize(
    ("words", "fidelity"),
    [
        (("chip=h200", "model=mixtral_8x7b", *SIZES), "analytical"),
        (("chip=npu_dse", "model=llama3_8b", "mapping.both.tp=4", "mapping.both.prefetch=partial", *SIZES), "analytical"),
        ((*BOX, *SIZES), "analytical"),
        (("chip=h200", "model=llama3_8b", *SERVED), "steady_state"),
        ((*BOX, *SERVED), "steady_state"),
    ],
)
def test_a_tier_in_which_nothing_is_placed_changes_no_time(
    words: tuple[str, ...], fidelity: str, placed: dict[str, Any] | None, tiers: int
) -> None:
    design, workload = question_of(*words)
    slow = {} if tiers == 1 else {"bandwidth": 1e10}
    plain, beside = metrics(design, workload, fidelity), metrics(tiered(design, tiers, placed, **slow), workload, fidelity)
    assert {name: beside[name] for name in TIMES if name in plain} == {name: plain[name] for name in TIMES if name in plain}
    rooms = {name for name in plain if name.startswith("kv_")}
    if placed is None and "kv_pool_bytes" not in plain:  # by the rule, more of a batch's caches would go to the tier
        rooms.remove("kv_capacity")
        assert beside["kv_capacity"] > plain["kv_capacity"]
    assert {name: beside[name] for name in rooms} == {name: plain[name] for name in rooms}
    assert beside["system_price"] > plain["system_price"]


@pytest.mark.parametrize(
    ("words", "fidelity"),
    [
        (("chip=h200", "model=mixtral_8x7b", "workload.expert_load=sampled", *SIZES), "analytical"),
        (("chip=npu_dse", "model=llama3_8b", "mapping.both.tp=4", "mapping.both.prefetch=partial", *SIZES), "analytical"),
        ((*BOX, *SIZES), "analytical"),
        (("chip=h200", "model=llama3_8b", *SERVED), "steady_state"),
        ((*BOX, *SERVED), "steady_state"),
    ],
)
def test_everything_in_a_tier_as_fast_as_main_memory_takes_as_long(words: tuple[str, ...], fidelity: str) -> None:
    design, workload = question_of(*words)
    plain, moved = metrics(design, workload, fidelity), metrics(tiered(design, 1, EVERYTHING), workload, fidelity)
    for name in ("ttft", "tpot", "throughput"):
        assert moved[name] == pytest.approx(plain[name], rel=1e-12), name
    # what a tier of equal devices reads takes as much energy, so that only devices that wait take more
    assert moved["hbm_bytes"] < plain["hbm_bytes"]
    waits = static_power(tiered(design).chip) - static_power(design.chip)
    if fidelity == "analytical":
        chips = moved["system_price"] / sum(price_by_part(tiered(design).chip).values())
        assert moved["energy"] == pytest.approx(plain["energy"] + round(chips) * waits * plain["latency"], rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(MODELS),
    shares=st.tuples(*[st.floats(0.0, 1.0)] * 3),
    bandwidths=st.lists(st.floats(1e10, 1e13), min_size=1, max_size=3),
    batch=st.integers(1, 64),
)
def test_more_bandwidth_of_a_tier_and_a_better_share_never_hurt(
    name: str, shares: tuple[float, ...], bandwidths: list[float], batch: int
) -> None:
    design, workload = question_of("chip=h200", f"model={name}", f"workload.batch=[{batch}]", *SIZES[1:])
    placed = EVERYTHING | {f"{content}_main_share": share for content, share in zip(EVERYTHING, shares, strict=True)}
    seconds = [metrics(tiered(design, 1, placed, bandwidth=speed), workload)["latency"] for speed in sorted(bandwidths)]
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in pairwise(seconds))
    # with the share of each memory that makes both streams end together, no share of weights is better
    fast, speed = design.chip.hbm.bandwidth, bandwidths[0]
    best = {f"{content}_main_share": fast / (fast + speed) for content in EVERYTHING}
    at_best = metrics(tiered(design, 1, EVERYTHING | best, bandwidth=speed), workload)["latency"]
    assert at_best <= metrics(tiered(design, 1, placed, bandwidth=speed), workload)["latency"] * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_reads_are_those_of_numpy(data: st.DataObject) -> None:
    """The slowest stream by its bytes over its bandwidth, with the largest latency of a memory that has a share."""
    memories = data.draw(st.integers(2, 4))
    draw = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    bandwidths, latencies = draw.uniform(1e9, 1e12, memories), draw.uniform(0, 1e-6, memories)
    shares = draw.dirichlet(np.ones(memories)) * draw.integers(0, 2, memories)
    reads = TieredReads(
        tuple(bandwidths[0] / bandwidths), tuple(latencies), (0.0,) * memories, ((WEIGHTS, tuple(shares)), (KV, (1.0,)))
    )
    nbytes = draw.uniform(1, 1e9)
    call = KernelCall("attention", "q_proj", (), 1.0, (1.0, 1, 1), reads="weights", fetch=nbytes)
    slowdown, latency = reads.slowdown(call)
    assert slowdown * nbytes / bandwidths[0] == pytest.approx(np.max(shares * nbytes / bandwidths), rel=1e-12)
    assert latency == np.max(np.where(shares > 0, latencies, 0.0))
    assert reads.slowdown(call._replace(reads="activations")) == (1.0, 0.0)
    assert reads.slowdown(call._replace(name="experts_up")) == (1.0, 0.0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 4))
def test_the_rule_fills_memories_in_order(seed: int, tiers: int, designs: int) -> None:
    """Shares add up to one; no memory but the last holds too much, and what is hot moves out last."""
    base, _ = question_of("chip=h200", "model=llama3_8b", *SIZES)
    draw = np.random.default_rng(seed)
    design = tiered(base, tiers, capacity=draw.uniform(1e9, 1e11, designs))
    nbytes = {content: draw.uniform(0, 1e11, designs) * draw.integers(0, 2) for content in CONTENTS}
    room = draw.uniform(1e9, 1e11, designs)
    placement = place_contents(design.chip, design.mapping, room, nbytes)
    for content in CONTENTS:
        np.testing.assert_allclose(sum(placement.shares[content]), 1.0, rtol=1e-12)
    left = np.array(placement.rooms_left())
    assert (left[:-1] >= -1.0).all()
    np.testing.assert_allclose(sum(left), sum(placement.rooms) - sum(nbytes.values()), rtol=1e-9, atol=1.0)
    for hot, cold in ((WEIGHTS, KV), (KV, EXPERTS)):
        moved, held = nbytes[hot] * (1 - placement.shares[hot][0]), nbytes[cold] * placement.shares[cold][0]
        assert (np.minimum(moved, held) < 1.0).all()
    for row in range(designs):
        sizes = {f"tiers.{name}.capacity": float(design.chip.tiers.second.capacity[row]) for name in TIERS[:tiers]}
        own = {content: float(np.broadcast_to(value, designs)[row]) for content, value in nbytes.items()}
        one = place_contents(replace_leaves(design.chip, sizes), design.mapping, float(room[row]), own)
        for content in CONTENTS:
            np.testing.assert_array_equal(
                one.shares[content], [np.broadcast_to(share, designs)[row] for share in placement.shares[content]]
            )


def test_several_designs_are_one_by_one() -> None:
    base, workload = question_of("chip=h200", "model=mixtral_8x7b", "workload.batch=[3,16]", *SIZES[1:])
    designs = [
        replace_leaves(
            tiered(base, 2, {"experts": "second", "experts_main_share": 0.3}),
            {"chip.tiers.second.bandwidth": speed, "mapping.prefill.tp": tp, "mapping.decode.tp": tp},
        )
        for speed, tp in ((2e11, 1), (4e11, 2), (9e11, 4))
    ]
    together = evaluate(stack_designs(designs), workload)
    for row, design in enumerate(designs):
        for name, value in metrics(design, workload).items():
            np.testing.assert_allclose(together.columns[name][row], value, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("words", [("chip=h200", "model=mixtral_8x7b", *SIZES), (*BOX, *SIZES)])
def test_rows_of_a_breakdown_add_up(words: tuple[str, ...]) -> None:
    base, workload = question_of(*words)
    for placed in (EVERYTHING, {"experts": "second", "experts_main_share": 0.5}):
        design = tiered(base, 1, placed, bandwidth=2e11, latency=1e-6)
        broken = explain(design, workload.cases[0])
        assert sum(row.seconds for row in broken.rows) == pytest.approx(broken.seconds, rel=1e-9)
        assert broken.seconds == pytest.approx(metrics(design, workload)["latency"], rel=1e-9)


def test_energy_moves_with_the_bytes() -> None:
    base, workload = question_of("chip=h200", "model=llama3_8b", *SIZES)
    main = metrics(tiered(base, 1, ON_MAIN), workload)
    dear = replace(base.chip.dram, energy_per_byte=3 * base.chip.dram.energy_per_byte)
    moved = metrics(tiered(base, 1, EVERYTHING, devices=dear), workload)
    nbytes = main["hbm_bytes"] - moved["hbm_bytes"]
    assert nbytes > 0.9 * main["hbm_bytes"]
    assert moved["energy"] - main["energy"] == pytest.approx(2 * base.chip.dram.energy_per_byte * nbytes, rel=1e-9)


def test_silicon_counts_each_tier_by_hand() -> None:
    base, _ = question_of("chip=h200", "model=llama3_8b", *SIZES)
    base = replace(base, chip=replace(base.chip, published=None))  # facts that would hide its own area
    plain, tier = base.chip, {"capacity": 1e11, "bandwidth": 3e11}
    at_die, lanes, host = (
        tiered(base, 1, attachment=place, lanes=16 * (place == "lanes"), link_energy_per_byte=5e-11, **tier).chip
        for place in ("die", "lanes", "host")
    )
    devices = plain.dram
    count = tier["bandwidth"] / devices.device_bandwidth
    assert area.tier_edge_length(at_die) == pytest.approx(count * devices.edge_length)
    assert area.tier_edge_length(lanes) == area.tier_edge_length(host) == 0
    blocks = [area.area_by_block(chip) for chip in (at_die, lanes, host)]
    sizes = [block.get(area.TIER_BLOCK, 0.0) for block in blocks]
    assert sizes[:2] == pytest.approx([count * devices.phy_area, 16 * plain.technology.pcie_lane])
    assert sizes[2] == 0
    for chip, joules in ((at_die, devices.energy_per_byte), (lanes, devices.energy_per_byte + 5e-11)):
        waiting = static_power(chip) - static_power(plain)
        assert peak_design_power(chip) - peak_design_power(plain) - waiting == pytest.approx(tier["bandwidth"] * joules)
    assert static_power(host) - static_power(plain) == pytest.approx(count * devices.idle_power)
    dearer = price_by_part(host)["memory"] - price_by_part(plain)["memory"]
    assert dearer == pytest.approx(price_by_part(plain)["memory"] / plain.hbm.capacity * tier["capacity"])


@settings(max_examples=30, deadline=None)
@given(
    st.integers(2, 40),
    st.integers(1, 8),
    st.floats(0.1, 1.5),
    st.integers(1, 200),
    st.lists(st.floats(0, 1), min_size=2, max_size=4),
)
def test_reads_of_popular_experts_are_their_sum(count: int, top: int, skew: float, tokens: int, parts: list[float]) -> None:
    """The most popular experts are in the first memory: their chances of being chosen, added up expert by expert."""
    experts = ExpertLayers(count=count, top_k=min(top, count), intermediate=1, skew=skew)
    cuts = [int(part * count) for part in np.cumsum(parts) / max(sum(parts), 1e-9)]
    cuts[-1] = count
    shares = tuple(np.diff([0, *cuts]) / count)
    chances = 1 - (1 - expert_probabilities(experts)) ** tokens
    expected = [chances[low:high].sum() / chances.sum() for low, high in zip([0, *cuts], cuts, strict=False)]
    np.testing.assert_allclose(expert_read_shares(experts, float(tokens), shares), expected, rtol=1e-9, atol=1e-12)
    many = expert_read_shares(experts, np.array([[float(tokens)], [1.0]]), tuple(np.full((1, 1), share) for share in shares))
    np.testing.assert_allclose([share[0, 0] for share in many], expected, rtol=1e-9, atol=1e-12)


def test_popular_experts_in_main_memory_are_read_more_often() -> None:
    """With some experts more popular than others, main memory has a larger part of the reads than of the bytes."""
    placed, nbytes = {"experts": "second", "experts_main_share": 0.5}, list[float]()
    for skew in (0.0, 1.2):
        base, workload = question_of("chip=h200", "model=mixtral_8x7b", f"+model.mixtral_8x7b.experts.skew={skew}", *SIZES)
        both, main = (metrics(tiered(base, 1, where, bandwidth=1e12), workload) for where in (placed, ON_MAIN))
        nbytes.append(both["hbm_bytes"] / main["hbm_bytes"])
    assert nbytes[0] < nbytes[1] < 1


def test_a_full_tier_says_so() -> None:
    base, workload = question_of("chip=h200", "model=llama3_8b", *SIZES)
    small = tiered(base, 1, EVERYTHING, capacity=1e9)
    reason = explain_infeasibility(small, workload)
    assert reason is not None
    assert "chip.tiers.second.capacity" in str(reason)
    found = {limit.address: limit for limit in limits(small, workload)}
    tier = found["chip.tiers.second.capacity"]
    assert float(tier.need) == pytest.approx(sum(float(value) for _, value in tier.parts))
    (memories,) = placement_facts(tiered(base), workload)
    assert "second: nothing is placed in it; +mapping.memory_placement.kv=second would" in memories[1]


def test_kv_caches_in_a_tier_have_its_room() -> None:
    design, workload = question_of("chip=h200", "model=llama3_8b", *SERVED)
    room = 2e12
    plain, moved = (
        metrics(tiered(design, 1, placed, capacity=room), workload, "steady_state") for placed in (ON_MAIN, {"kv": "second"})
    )
    assert moved["kv_pool_bytes"] == pytest.approx(room, rel=1e-5)
    assert moved["kv_pool_requests"] / plain["kv_pool_requests"] == pytest.approx(room / plain["kv_pool_bytes"], rel=0.01)
    # spread over both memories in proportion to their room, both are full
    share = plain["kv_pool_bytes"] / (plain["kv_pool_bytes"] + room)
    both = {"kv": "second", "kv_main_share": share}
    spread = metrics(tiered(design, 1, both, capacity=room), workload, "steady_state")
    assert spread["kv_pool_bytes"] == pytest.approx(room + plain["kv_pool_bytes"], rel=1e-5)


def test_a_batch_has_kv_room_in_tiers_which_are_no_local_memory() -> None:
    base, workload = question_of("chip=h200", "model=llama3_8b", *SIZES)
    alone = metrics(base, workload)
    tokens = 3 * (300 + 19)
    per_token = (alone["hbm_used"] - metrics(tiered(base, 1, {"kv": "second"}), workload)["hbm_used"]) / tokens
    room = 1e12
    by_rule = metrics(tiered(base, 1, capacity=room), workload)
    assert by_rule["kv_capacity"] == pytest.approx(alone["kv_capacity"] + room / per_token, rel=1e-6)
    in_tier = metrics(tiered(base, 1, {"kv": "second"}, capacity=room), workload)
    assert in_tier["kv_capacity"] == pytest.approx(room / per_token, rel=1e-6)
    assert metrics(tiered(base, 1, {"kv": "main"}), workload)["kv_capacity"] == pytest.approx(alone["kv_capacity"])
    halves = metrics(tiered(base, 1, {"kv": "second", "kv_main_share": 0.5}, capacity=room), workload)
    assert halves["kv_capacity"] == pytest.approx(2 * min(alone["kv_capacity"], room / per_token), rel=1e-6)
    for design in (tiered(base), tiered(base, 2, {"kv": "third"})):
        assert metrics(design, workload).keys() == alone.keys()  # a device has no local memory, so no sram_used


def test_weights_that_main_memory_has_no_room_for_are_served_from_a_tier() -> None:
    design, workload = question_of("chip=h200", "model=mixtral_8x7b", *SERVED)
    small = replace_leaves(design, {"chip.hbm.capacity": 4e10})
    assert explain_infeasibility(small, workload) is not None
    served, whole = (metrics(tiered(each, 1, bandwidth=3e11), workload, "steady_state") for each in (small, design))
    assert served["tpot"] > whole["tpot"]
    simulated = metrics(tiered(small, 1, bandwidth=3e11), workload)
    assert simulated["tpot"] == pytest.approx(served["tpot"], rel=0.1)


def test_prefixes_in_a_tier_are_those_of_a_host() -> None:
    words = (
        "chip=h200", "model=llama3_8b", "model.max_position=131072", "workload=serving", "workload.requests=100",
        "workload.prompt=400", "workload.output=30", "workload.sessions={turns: 8, think: 30 s}", "workload.rate=6 Hz",
        "mapping.both.tp=1", "mapping.serving.prefix_cache=shared", "mapping.serving.kv_blocks=1200",
        "mapping.serving.block_size=16",
    )  # fmt: skip
    design, workload = question_of(*words)
    host = {"mapping.serving.host_kv_capacity": 2e10, "mapping.serving.host_bandwidth": 4e9}
    hosted = metrics(replace_leaves(design, host), workload)
    tier = tiered(design, 1, {"prefixes": "second"}, capacity=2e10, bandwidth=4e9)
    kept = metrics(tier, workload)
    assert hosted["prefix_host_hit_rate"] > 0
    for name in ("ttft", "tpot", "prefix_hit_rate", "prefix_host_hit_rate", "throughput"):
        assert kept[name] == hosted[name], name


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("+mapping.memory_placement.kv=second",), "has no effect, since the chip has main memory only"),
        (("+part@chip.tiers=tier_host", "+mapping.memory_placement.kv=third"), "the chip has no third memory"),
        (("+part@chip.tiers=tier_host", "~chip.tiers.second.bandwidth"), r"chip\.tiers\.second\.bandwidth: missing"),
        (("+part@chip.tiers=tier_cxl", "chip.tiers.second.lanes=0"), r"chip\.tiers\.second\.lanes: must be above 0"),
        (("+part@chip.tiers=tier_host", "~dram@chip.tiers.second.devices"), r"chip\.tiers\.second\.devices: missing"),
        (
            ("+part@chip.tiers=tier_host", "+mapping.memory_placement.prefixes=second"),
            "prefixes: has no effect on static batches",
        ),
        (
            (
                "+part@chip.tiers=tier_host", "workload=serving", "workload.sessions={turns: 2, think: 30 s}",
                "workload.prompt=400", "mapping.serving.prefix_cache=reserved", "+mapping.memory_placement.prefixes=second",
            ),
            "has no effect with mapping.serving.prefix_cache=reserved",
        ),
        (("+part@chip.tiers=tier_host", "workload=gemm", "+mapping.memory_placement.kv=second"), "a single kernel"),
        (("+part@chip.tiers=tier_host", "mapping.both.pp=2", "mapping.both.tp=1"), "pipeline stages"),
    ],
)  # fmt: skip
def test_what_nothing_reads_is_refused(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(DesignError, match=why):
        metrics(*question_of("chip=h200", "model=llama3_8b", *words))


def test_machines_without_devices_refuse_tiers_by_name() -> None:
    with pytest.raises(DesignError, match=r"chip\.tiers: a mesh of tiles does not read it"):
        asked("chip=tile32", "model=llama3_8b", "+part@chip.tiers=tier_host")


def test_stacked_memory_fits_above_the_dies_or_says_so() -> None:
    """Devices by bandwidth or capacity, whichever needs more; no die edge, and a limit of area."""
    words = ("chip=h200", "dram@chip.dram=stacked", "model=llama3_8b", *SIZES, "chip.hbm.capacity=60 GB")
    base, workload = question_of(*words, "chip.hbm.bandwidth=20 TB/s")
    chip = replace(base.chip, published=None)
    devices = chip.dram
    by_bandwidth, by_capacity = 20e12 / devices.device_bandwidth, 60e9 / devices.device_capacity
    assert area.memory_device_count(chip) == pytest.approx(max(by_bandwidth, by_capacity))
    assert area.memory_edge_length(chip) == 0
    found = {limit.address: limit for limit in limits(replace(base, chip=chip), workload)}
    assert float(found["chip.dram.footprint"].need) == pytest.approx(max(by_bandwidth, by_capacity) * devices.footprint)
    assert float(found["chip.dram.footprint"].have) == pytest.approx(float(area.total_area(chip)))
    large, _ = question_of(*words[:-1], "chip.hbm.capacity=900 GB", "chip.hbm.bandwidth=20 TB/s")
    assert "chip.dram.footprint" in str(explain_infeasibility(large, workload))
