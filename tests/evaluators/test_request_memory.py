"""What requests have in memory where layers differ: bytes by a plain count, capacities, transfers, and prefixes with states."""

import json
from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.accounting.serving_instances import pipelines, regions, whole_chip
from dse.evaluators.accounting.serving_instances import tensor_parallel as devices
from dse.evaluators.accounting.serving_instances.pipeline_fleet import pipeline_pools
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.serving.iteration_time import constant_time
from dse.evaluators.serving.kv_memory import (
    KvMemory,
    RequestMemory,
    paged_memory,
    prefix_cache_sizes,
    two_level_memory,
    two_level_paged_memory,
)
from dse.evaluators.serving.scheduling_policy import POLICIES
from dse.evaluators.serving.simulator import InstancePool, simulate_serving
from dse.evaluators.serving.simulator_state import KvTransfer
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.layers import expand_order
from dse.space.mapping import BYTES_BY_FORMAT
from dse.space.model import LayerKind, Model, RecurrentMixing, SparseIndexer
from dse.space.requests import make_requests
from dse.space.workload import ServingLoad, Workload
from tests.samples import asked, load_of

SERVING = ("workload=serving", "model=qwen3_1b7", "workload.requests=20")
DELTA = RecurrentMixing(rule="delta", heads=16, key_heads=8, key_dim=64, value_dim=64, conv=4)


def of_kinds(model: Model, order: str, **kinds: LayerKind) -> Model:
    return replace(model, order=order, kinds=tuple(kinds.items()))


def asking(model: Model, *overrides: str) -> tuple[Design, Workload]:
    """A design, and its load asked of a model."""
    question = asked(*SERVING, *overrides)
    case = question.workload.cases[0]
    assert isinstance(case, ServingLoad)
    return question.base, replace(question.workload, cases=(replace(case, model=model),))


def columns(model: Model, *overrides: str) -> dict[str, float]:
    design, workload = asking(model, *overrides)
    return {name: float(column[0]) for name, column in evaluate(stack_designs([design]), workload).columns.items()}


@st.composite
def models(draw: st.DrawFn, *, states: bool = True) -> Model:
    """Layers of one to three kinds, in any order; the first with keys of its own."""
    base = load_of(*SERVING)[1].model
    kinds = {
        "near": LayerKind(window=draw(st.integers(1, 3000))),
        "chunks": LayerKind(chunk=draw(st.integers(1, 3000)), kv_heads=draw(st.sampled_from([1, 2, 8]))),
        "all": LayerKind(head_dim=draw(st.sampled_from([64, 128]))),
        "wide": LayerKind(window=draw(st.integers(1, 500)), kv_heads=4),
    }
    if states:
        rule, conv = draw(st.sampled_from(["delta", "ssd"])), draw(st.sampled_from([0, 4]))
        kinds["state"] = LayerKind(recurrence=replace(DELTA, rule=rule, conv=conv))
        kinds["picks"] = LayerKind(indexer=SparseIndexer(heads=4, dim=32, top=64))
    names = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=3, unique=True))
    times = draw(st.lists(st.integers(1, 5), min_size=len(names), max_size=len(names)))
    order = ", ".join(f"{count} {name}" for count, name in zip(times, names, strict=True))
    return replace(of_kinds(base, order, **{name: kinds[name] for name in names}), layers=sum(times))


def counted(model: Model, positions: int, *, kv: float, others: float, indexes: int) -> float:
    """Bytes of a request, layer by layer: of values that are cached `kv`, of those that convolutions keep `others`, of states
    four; keys of an indexer are there so many times.
    """
    kinds, total = dict(model.kinds), 0.0
    for name in expand_order(model.order, tuple(kinds), model.layers):
        kind = kinds[name]
        if kind.recurrence is not None:
            state = kind.recurrence
            total += 4 * state.heads * state.key_dim * state.value_dim
            mixed = 2 * state.key_heads * state.key_dim + state.heads * state.value_dim
            total += others * max(state.conv - 1, 0) * mixed
            continue
        kept = min(positions, kind.window or positions, kind.chunk or positions)
        total += kept * 2 * kv * (kind.kv_heads or model.kv_heads) * (kind.head_dim or model.head_dim)
        total += 0 if kind.indexer is None else positions * kv * indexes * kind.indexer.dim
    return total


ROOMS = {
    "die": ((), lambda design, load: devices.TensorParallelServing().instances(design, load, "analytical")[0].room),
    "tiles": (("chip=tile_gh200", "mapping=flat_serving"), whole_chip._request_memory),
    "pipelines": (
        ("chip=npu64", "mapping.both.tp=4", "mapping.both.pp=1", "mapping.both.partition=mn"),
        lambda design, load: pipeline_pools(design, load)[0].room.times(4),
    ),
    "wafer": (("chip=wse2",), regions._wafer_request),
}
"""By layout, what a request has on all that share a model."""


@pytest.mark.sampled
@pytest.mark.parametrize("layout", ROOMS)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_bytes_of_a_request_are_those_of_its_layers_one_by_one(layout: str, data: st.DataObject) -> None:
    words, room_in = ROOMS[layout]
    tp = ("mapping.both.tp=1",) if layout == "die" else ()
    model = data.draw(models(states=layout != "wafer"))
    design, workload = asking(model, *tp, *words)
    room, precision = room_in(design, workload.cases[0]), design.mapping.precision
    indexes = 4 if layout == "pipelines" else 1  # each core of a group has all
    for positions in (1, data.draw(st.integers(1, 5000)), 40_000):
        bytes_of = {"kv": BYTES_BY_FORMAT[precision.kv], "others": BYTES_BY_FORMAT[precision.activations], "indexes": indexes}
        assert float(room.request_bytes(positions)) == pytest.approx(counted(model, positions, **bytes_of), rel=1e-9)


@st.composite
def rooms(draw: st.DrawFn) -> RequestMemory:
    """Of whole bytes."""
    nbytes = st.integers(1, 300).map(lambda count: 64.0 * count)
    windows = draw(st.dictionaries(st.integers(1, 4000), nbytes, max_size=3))
    growing, fixed = draw(st.one_of(st.just(0.0), nbytes)), draw(st.one_of(st.just(0.0), st.floats(1.0, 1e6)))
    return RequestMemory(growing if windows or fixed else 64.0, fixed, tuple(sorted(windows.items())))


def capacity(memory: KvMemory, positions: int) -> int:
    """Requests of so many positions that there are blocks for."""
    return memory.blocks // max(memory.blocks_needed(positions), 1)


@given(rooms(), st.floats(1e7, 1e9), st.integers(1, 64), st.integers(1, 20_000))
def test_blocks_of_a_request_hold_it_and_no_more_than_steps_and_one_block_more(
    room: RequestMemory, free: float, block: int, positions: int
) -> None:
    memory = paged_memory(free, room, block=block)
    size = free / memory.blocks if room.windows or not room.growing else block * room.growing
    steps = -(-positions // block) * block
    most = sum(nbytes * min(steps, -(-window // block) * block) for window, nbytes in room.windows)
    taken = memory.blocks_needed(positions) * size
    assert taken >= room.request_bytes(positions) * (1 - 1e-9)
    # blocks of windows are as small as all their steps allow, so that what is fixed is rounded up by less than one
    assert taken <= (room.growing * steps + most + room.fixed + size) * (1 + 2 / memory.blocks)
    assert memory.longest == 0 or memory.blocks_needed(memory.longest) <= memory.blocks
    assert memory.blocks_needed(memory.longest + 1) > memory.blocks or memory.longest >= 1 << 39


@given(rooms(), st.floats(1e7, 1e9), st.integers(1, 64), st.integers(1, 20_000))
def test_windows_fit_at_least_as_many_requests_as_full_attention(
    room: RequestMemory, free: float, block: int, positions: int
) -> None:
    near = room._replace(fixed=0.0)
    full = RequestMemory(near.position)
    if not full.growing:
        return
    assert capacity(paged_memory(free, near, block=block), positions) >= capacity(
        paged_memory(free, full, block=block), positions
    )
    buffers = [two_level_memory(free, free * 100, memory, longest=positions, block=block).buffers for memory in (near, full)]
    assert buffers[0] >= buffers[1]


@given(rooms(), st.floats(0.0, 1e8), st.floats(1e7, 1e10), st.integers(1, 64), st.integers(1, 20_000))
def test_pages_of_two_memories_hold_what_one_of_both_sizes_does(
    room: RequestMemory, sram: float, hbm: float, block: int, positions: int
) -> None:
    two, memory = (
        two_level_paged_memory(sram, hbm, room, longest=positions, block=block),
        paged_memory(sram + hbm, room, block=block),
    )
    assert two.longest >= positions
    fits = two.blocks_needed(positions) <= memory.blocks
    assert (two.blocks + two.pages <= memory.blocks) or not fits or memory.blocks == 1
    assert two.blocks + two.pages >= memory.blocks - 1  # each memory rounds down by itself


@given(st.floats(1.0, 1e6), st.floats(1e7, 1e9), st.integers(1, 10**9))
def test_states_alone_fit_as_often_whatever_the_length(fixed: float, free: float, positions: int) -> None:
    memory = paged_memory(free, RequestMemory(0.0, fixed))
    assert capacity(memory, positions) == capacity(memory, 1) == int(free // fixed)
    assert memory.longest > 10**9


@pytest.mark.sampled
@settings(max_examples=30, deadline=None)
@given(models(), st.sampled_from([1, 2, 4]), st.integers(1, 9000), st.booleans())
def test_dies_with_layers_that_differ_serve_all_within_their_memory(model: Model, tp: int, prompt: int, apart: bool) -> None:
    words = ("workload.arrivals=offline", f"workload.prompt={prompt}", "workload.output=40", "chip.hbm.capacity=6 GB")
    found_columns = columns(model, *words, f"mapping.both.tp={tp}", f"mapping.serving.prefill_instances={int(apart)}")
    if not found_columns:
        return  # no room for a request alone
    assert 0 <= found_columns["kv_utilisation_mean"] <= found_columns["kv_utilisation_peak"] * (1 + 1e-9) <= 1 + 1e-9
    assert found_columns["throughput"] > 0


@pytest.mark.parametrize("layout", ["die", "tiles", "pipelines"])
def test_a_model_of_states_takes_the_same_memory_whatever_the_length(layout: str) -> None:
    words, room_in = ROOMS[layout]
    model = of_kinds(load_of(*SERVING)[1].model, "28 state", state=LayerKind(recurrence=DELTA))
    nbytes = []
    for prompt in (300, 9000):
        design, workload = asking(model, *words, f"workload.prompt={prompt}")
        room = room_in(design, workload.cases[0])
        assert room.growing == 0
        assert not room.windows
        nbytes.append(room.request_bytes(prompt))
    assert nbytes[0] == nbytes[1] > 0


def test_a_model_of_states_holds_as_many_long_requests_as_short_ones() -> None:
    """All at once, with memory taken for their last tokens: as many run as there is room for."""
    model = of_kinds(load_of(*SERVING)[1].model, "28 state", state=LayerKind(recurrence=DELTA))
    words = ("mapping.both.tp=1", "workload.arrivals=offline", "workload.output=8", "mapping.serving.policy=static")
    for kinds, alike in ((model, True), (load_of(*SERVING)[1].model, False)):
        peaks = []
        for prompt in (600, 6000):
            # beside the weights and activations of the longest prompt
            design, workload = asking(kinds, *words, "workload.requests=60", f"workload.prompt={prompt}")
            load = workload.cases[0]
            room = devices.TensorParallelServing().instances(design, load, "analytical")[0]  # type: ignore[arg-type]
            used = float(design.chip.hbm.capacity) - room.free
            small = replace_leaves(design, {"chip.hbm.capacity": used + 20 * room.room.request_bytes(608)})
            played = evaluate(stack_designs([small]), workload)
            peaks.append(float(played.columns["kv_utilisation_peak"][0]) * 20 if played.feasible[0] else 0.0)
        assert (peaks[0] == peaks[1] == 20) is alike


@pytest.mark.parametrize("chip", [("mapping.serving.prefill_instances=1",), ("chip=npu64", "mapping.serving.prefill_cores=32")])
def test_caches_on_their_way_are_as_long_as_what_a_request_has(chip: tuple[str, ...]) -> None:
    base, words = load_of(*SERVING)[1].model, (*chip, "workload.prompt=4000", "workload.rate=0.1 Hz")
    near = of_kinds(base, "28 near", near=LayerKind(window=1000))

    def sent(model: Model) -> float:
        design, workload = asking(model, *words)
        load = workload.cases[0]
        assert isinstance(load, ServingLoad)
        if not chip[0].startswith("chip"):
            return float(devices.TensorParallelServing().kv_path(design, load).seconds.request_bytes(4000))
        run = pipelines._serve_load(design, load, pipeline_pools(design, load), "analytical", 0)[0]
        assert run["sending"] == pytest.approx(run.transfer.seconds(4000))
        return float(run.transfer.seconds(4000))

    # messages take turns with their handshakes, too
    assert 0.25 * (1 - 1e-9) <= sent(near) / sent(base) < 0.28


def test_only_what_is_kept_of_states_is_reused(tmp_path: Path) -> None:
    """Two prompts with the first 6 blocks alike: keys and values of all of them, states at a snapshot alone."""
    trace = tmp_path / "trace.jsonl"
    asked_for = [list(range(7)), [*range(6), 9], [*range(6), 11], list(range(7))]
    trace.write_text(
        "".join(
            json.dumps({"timestamp": 60_000 * at, "input_length": 7 * 512, "output_length": 2, "hash_ids": hashes}) + "\n"
            for at, hashes in enumerate(asked_for)
        )
    )
    words = (f"workload.trace={trace}", "workload.arrivals=trace", "mapping.serving.prefix_cache_share=0.3")
    base = load_of(*SERVING)[1].model
    mixed = of_kinds(base, "7 (3 state, all)", state=LayerKind(recurrence=DELTA), all=LayerKind())

    def reused(model: Model, **changes: object) -> float:
        design, workload = asking(model, *words)
        assert design.mapping.serving is not None
        serving = replace(design.mapping.serving, **changes)
        made = replace(design, mapping=replace(design.mapping, serving=serving))
        return float(evaluate(stack_designs([made]), workload).columns["prefix_hit_rate"][0]) * 4 * 7 * 512

    assert reused(base) == pytest.approx(2 * 6 * 512 + 7 * 512 - 1)
    # a snapshot at the end of a prompt is of all 7 blocks, of which the last token is to be computed again
    assert reused(mixed) == 0
    assert reused(mixed, state_snapshot_tokens=1024) == pytest.approx(3 * 6 * 512)
    assert reused(mixed, state_snapshot_tokens=2048) == pytest.approx(3 * 4 * 512)


def test_a_follow_up_reuses_the_state_at_the_end_of_the_prompt_before() -> None:
    """Block hashes of a conversation: the second prompt is the first and more."""
    many = make_requests([(24, 1), (40, 1)], [0.0, 100.0])
    many = replace(many, starts=np.array([0, 3, 8]), hashes=np.arange(3).tolist() + np.arange(5).tolist(), block=8)
    many = replace(many, hashes=np.array(many.hashes, np.int32))
    pool = InstancePool(constant_time(1.0), POLICIES["chunked_prefill"], KvMemory(100), prefix=20, snapshot=2)
    assert simulate_serving(many, [pool])["hit"].tolist() == [0, 24]
    assert simulate_serving(many, [replace(pool, prefix=2)])["hit"].tolist() == [
        0,
        0,
    ]  # no room for a snapshot beside its block


@given(rooms(), st.floats(0, 1e9), st.integers(1, 1024), st.integers(0, 5000))
def test_what_is_remembered_fits(room: RequestMemory, free: float, block: int, every: int) -> None:
    cache_sizes = prefix_cache_sizes(free, room, block, every)
    entry = block * room.position
    unit = entry or room.fixed
    assert cache_sizes.prefix * unit <= free
    assert cache_sizes.entry * unit == entry
    assert cache_sizes.snapshot == ceil(room.fixed / unit)
    assert cache_sizes.every * block >= every


def test_snapshots_of_no_states_are_refused() -> None:
    with pytest.raises(DesignError, match=r"mapping\.serving\.state_snapshot_tokens: Qwen3-1\.7B has no recurrent states"):
        asked(*SERVING, "mapping.serving.state_snapshot_tokens=512")


SHARING = ("mapping.serving.prefix_cache=shared", "workload.arrivals=trace")


def test_prefixes_in_the_pool_are_shared_in_a_design(tmp_path: Path) -> None:
    """The second prompt finds five of six blocks, since its last token has to be computed; a follow-up finds all six."""
    trace = tmp_path / "trace.jsonl"
    rows = [(0, 6 * 512, list(range(6))), (60_000, 6 * 512, list(range(6))), (120_000, 7 * 512, list(range(7)))]
    trace.write_text(
        "".join(
            json.dumps({"timestamp": at, "input_length": tokens, "output_length": 2, "hash_ids": hashes}) + "\n"
            for at, tokens, hashes in rows
        )
    )

    def answered(*words: str) -> dict[str, float]:
        design, workload = asking(load_of(*SERVING)[1].model, f"workload.trace={trace}", *SHARING, *words)
        evaluation = evaluate(stack_designs([design]), workload)
        assert explain_infeasibility(design, workload) is None
        return {name: float(values[0]) for name, values in evaluation.columns.items()}

    assert answered()["prefix_hit_rate"] == pytest.approx((5 + 6) / 19)
    assert answered("mapping.serving.prefix_cache=reserved")["prefix_hit_rate"] == 0


def test_a_conversation_goes_where_its_cache_is_unless_others_wait_there() -> None:
    """Two conversations in turn on two instances, then a burst of one of them: far more than another has go elsewhere."""
    arrival = [0.0, 0.0, 100.0, 200.0, 300.0, *[400.0] * 6]
    mine = [0, 1, 1, 0, 1, *[0] * 6]
    many = make_requests([(32, 1)] * len(mine), arrival)
    hashes = np.array([block + 4 * conversation for conversation in mine for block in range(4)], np.int32)
    many = replace(many, starts=np.arange(len(mine) + 1) * 4, hashes=hashes, block=8)
    pool = InstancePool(constant_time(1.0), POLICIES["chunked_prefill"], KvMemory(100, 8), instances=2, pooled=True)
    moving = KvTransfer(0.0, 0.0, 1, True, apart=2)
    run = simulate_serving(many, [pool], transfer=moving, routing="cache_aware")
    assert run["instance"].tolist() == [0, 1, 1, 0, 1, 0, 0, 0, 1, 0, 1]
    assert run["hit"].tolist() == [0, 0, 24, 24, 24, 24, 24, 24, 0, 24, 0]


def test_what_a_pool_cannot_share_is_refused(tmp_path: Path) -> None:
    turns = "workload.sessions={turns: 2, think: 1 s}"
    with pytest.raises(
        DesignError, match=r"mapping\.serving\.prefix_cache: .* has layers that do not keep all positions; set reserved"
    ):
        asked(*SERVING[:1], "model=gpt_oss_120b", *SERVING[2:], turns, "mapping.serving.prefix_cache=shared")
    with pytest.raises(DesignError, match="shared prefix blocks need one memory"):
        InstancePool(constant_time(1.0), POLICIES["chunked_prefill"], KvMemory(100), pooled=True, prefix=1)
    many = replace(make_requests([(24, 1)], [0.0]), starts=np.array([0, 3]), hashes=np.arange(3, dtype=np.int32), block=8)
    with pytest.raises(DesignError, match="blocks of 16 tokens do not divide the 8 tokens of a hash"):
        simulate_serving(many, [InstancePool(constant_time(1.0), POLICIES["chunked_prefill"], KvMemory(100), pooled=True)])
