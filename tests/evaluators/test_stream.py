"""Requests to a memory through the front door: what is refused, and how bandwidth as a formula and as played compare."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.kernel_workloads import memory_stream as alone
from dse.evaluators.accounting.kernel_workloads.memory_stream import request_addresses
from dse.evaluators.accounting.power_profile import idle_power
from dse.space.design import stack_designs
from dse.space.dram import pseudo_channel_count
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.workload import MemoryStreamCase
from tests.agreement.streams import compared
from tests.samples import asked

SMALL = ("chip=hbm3", "workload=stream", "chip.memory.channels=2", "workload.requests=500")


def metrics(*overrides: str, fidelity: str = "events") -> dict[str, float]:
    question = asked(*SMALL, *overrides)
    columns = evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns
    return {name: float(column[0]) for name, column in columns.items() if column[0] == column[0]}


@pytest.mark.parametrize("pattern", ["sequential", "random", "stride1024", "chunk256"])
@pytest.mark.parametrize("window", [0, 8])
def test_the_formula_is_near_what_is_played(pattern: str, window: int) -> None:
    chosen = (f"workload.patterns=[{pattern}]", f"mapping.window={window}")
    assert metrics(*chosen, fidelity="analytical")["achieved_bandwidth"] == pytest.approx(
        metrics(*chosen)["achieved_bandwidth"], rel=0.2
    )


def test_the_formula_is_near_what_is_played_on_random_memories() -> None:
    """Of 500 of them 85 % of reads are within 15 %: python -m tests.agreement.streams 500."""
    ratios = np.array([comparison.ratio for comparison in compared(32, seed=1, requests=200)])
    assert (np.abs(ratios - 1) < 0.15).mean() > 0.6
    assert np.median(ratios) == pytest.approx(1, abs=0.06)


@pytest.mark.parametrize(("pattern", "share"), [("sequential", 0.9213), ("random", 0.2462), ("stride1024", 0.4922)])
def test_the_formula_is_near_the_reference(pattern: str, share: float) -> None:
    """Shares of the peak that a cycle-accurate simulator of DRAM gives: studies/hbm_patterns/published.csv."""
    question = asked("chip=hbm2_legacy", "workload=stream", f"workload.patterns=[{pattern}]", "workload.requests=20000")
    share_simulated = evaluate(stack_designs([question.base]), question.workload).columns["bandwidth_efficiency"][0]
    assert share_simulated == pytest.approx(share, rel=0.05)


def test_one_request_at_a_time_takes_its_latency_in_both() -> None:
    chosen = ("workload.gap='1 us'", "workload.patterns=[sequential]", "workload.request='32 B'")
    roof, played = metrics(*chosen, fidelity="analytical"), metrics(*chosen)
    assert played["latency"] == pytest.approx(roof["latency"], rel=1e-3)
    assert played["idle_load"] > 0.9


def test_many_designs_are_answered_as_each_alone() -> None:
    question = asked(*SMALL, "workload.patterns=[sequential,random]")
    designs = [replace_leaves(question.base, {"mapping.window": window}) for window in (0, 4, 64)]
    for fidelity in ("analytical", "events"):
        many = evaluate(stack_designs(designs), question.workload, fidelity=fidelity).columns
        for row, design in enumerate(designs):
            columns = evaluate(stack_designs([design]), question.workload, fidelity=fidelity).columns
            for name in ("achieved_bandwidth", "read_latency", "bandwidth_efficiency"):
                assert many[name][row] == pytest.approx(columns[name][0], rel=1e-12)


@pytest.mark.slow
def test_random_designs_of_the_study_stay_below_their_peak() -> None:
    question = asked("chip=hbm2", "workload=stream", "space=hbm_patterns")
    designs = question.space.stack(question.space.sample(np.random.default_rng(1).random((10_000, 3))))
    shares = evaluate(designs, question.workload).columns["bandwidth_efficiency"]
    assert ((shares > 0) & (shares <= 1)).all()


@pytest.mark.parametrize("fidelity", ["analytical", "events"])
def test_the_breakdown_sums_to_the_time(fidelity: str) -> None:
    question = asked(*SMALL, "workload.writes=[0.33]")
    parts = explain(question.base, question.workload.cases[0], fidelity=fidelity)
    total = evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns["latency"][0]
    assert sum(parts.by_bound().values()) == pytest.approx(total)


ON_TILES = ("chip=tile32", "workload=stream", "mapping=stream", "workload.requests=200")


def tiles(*overrides: str, fidelity: str = "events") -> dict[str, float]:
    question = asked(*ON_TILES, *overrides)
    columns = evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns
    return {name: float(column[0]) for name, column in columns.items() if column[0] == column[0]}


@pytest.mark.sampled
@pytest.mark.parametrize("place", ["south", "north", "west", "east"])
@pytest.mark.parametrize(("requesters", "writes", "window"), [(1, 0, 0), (32, 1, 0), (64, 0.5, 16), (1024, 0, 8)])
def test_requests_of_tiles_take_what_links_and_memory_let_through(
    place: str, requesters: int, writes: float, window: int
) -> None:
    chosen = (
        f"chip.hbm.channel_side={place}", f"mapping.requesters={requesters}", f"workload.writes=[{writes}]",
        f"mapping.window={window}", "workload.patterns=[random]",
    )  # fmt: skip
    near = 0.25 if writes in (0, 1) else 0.5  # reads and writes that share links wait for one another
    assert tiles(*chosen, fidelity="analytical")["achieved_bandwidth"] == pytest.approx(
        tiles(*chosen)["achieved_bandwidth"], rel=near
    )


def test_a_tile_by_itself_is_bound_by_its_port_and_reaches_it() -> None:
    question = asked(*ON_TILES)
    explanation = explain(question.base, question.workload.cases[0], fidelity="events")
    assert explanation.rows[0].bound == "noc"
    assert explain(question.base, question.workload.cases[0]).rows[0].bound == "noc"
    assert sum(explanation.by_bound().values()) == pytest.approx(explanation.seconds)
    assert tiles()["achieved_bandwidth"] == pytest.approx(128 * 965e6, rel=0.02)
    wide = ("chip.noc.word_bytes='64 KiB'", "workload.patterns=[random]", "workload.requests=2000")
    assert tiles(*wide)["idle_noc"] < 0.01


def test_wider_links_never_slow_requests_of_tiles() -> None:
    given = ("mapping.requesters=64", "mapping.window=32", "workload.patterns=[random]")
    times = [tiles(*given, f"chip.noc.word_bytes='{width} B'")["latency"] for width in (32, 128, 512, 4096)]
    assert all(after <= before * 1.005 for before, after in pairwise(times))


def test_on_links_that_take_no_time_tiles_are_as_a_memory_by_itself() -> None:
    free = ("chip.noc.word_bytes='1 TiB'", "chip.noc.hop_cycles='0 cycle'", "chip.noc.ramp_cycles='0 cycle'")
    given = ("workload.patterns=[random]", "workload.writes=[0.3]", "workload.requests=200", "mapping.window=64")
    alone = asked("chip=hbm4", "workload=stream", *given)
    columns = evaluate(stack_designs([alone.base]), alone.workload, fidelity="events").columns
    found_tiles = tiles(*free, *given)
    for name in ("latency", "achieved_bandwidth", "read_latency", "row_hit_rate", "idle_row", "idle_window"):
        assert found_tiles[name] == pytest.approx(float(columns[name][0]), rel=2e-3)


def test_more_requesters_than_tiles_are_infeasible() -> None:
    question = asked(*ON_TILES, "chip.mesh.rows=4", "chip.mesh.cols=4", "mapping.requesters=17")
    assert not evaluate(stack_designs([question.base]), question.workload).feasible[0]


def test_memories_that_no_link_leads_to_are_refused() -> None:
    with pytest.raises(DesignError, match=r"hbm\.channel_side: at core, each core has its own memory"):
        asked("chip=npu64", "workload=stream", "mapping=stream")
    with pytest.raises(DesignError, match=r"hbm\.banks: requests are simulated on banks"):
        asked(*ON_TILES, "chip.hbm.banks=null")


@given(
    st.sampled_from(["sequential", "random", "stride", "chunk"]),
    st.integers(1, 64),
    st.sampled_from([1, 32, 64, 100]),
    st.integers(1, 500),
    st.integers(0, 3),
)
def test_addresses_stay_in_their_part(pattern: str, steps: int, request: int, count: int, part: int) -> None:
    span = 64 * 100 * 64
    stream = MemoryStreamCase("", pattern, steps * request, 0.0, request, 0.0, span, count, 0)
    at = request_addresses(stream, count, part, span)
    assert len(at) == count
    assert (at >= part * span).all()
    assert (at + request <= (part + 1) * span).all()
    if pattern == "sequential":
        assert (np.diff(at) == request).all() or stream.step != request


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "workload.patterns=[zigzag]",
            "workload.patterns: no option 'zigzag'; valid: random, sequential; or strideN or chunkN",
        ),
        ("workload.patterns=[stride]", "workload.patterns: no option 'stride'"),
        ("workload.patterns=[sequential4]", "workload.patterns: no option 'sequential4'; did you mean 'sequential'"),
        ("workload.patterns=[chunk100]", "workload.patterns: 'chunk100' is not a whole number of requests"),
        ("workload.patterns=[]", "workload.patterns"),
        ("workload.writes=[1.5]", "workload.writes: 1.5 is above the maximum, 1"),
        ("workload.request=64", "workload.request: 64 has no unit"),
        ("workload.request='0 B'", "workload.request"),
        ("workload.gap='-1 ns'", "workload.gap"),
        ("workload.requests=0", "workload.requests: 0 is below the minimum, 1"),
        ("workload.span='32 B'", "workload.span"),
        ("mapping.window=-1", "mapping.window: -1 is below"),
        ("chip.memory.timing.ras='10 cycle'", "chip.memory.timing.ras: 10 cycles are less than 31"),
        ("chip.memory.groups=3", "chip.memory.groups: 3 is not a power of two"),
        ("chip.memory.channels=0", "chip.memory.channels: 0 is below"),
        ("chip.memory.order=zigzag", "chip.memory.order: no option 'zigzag'"),
        (
            "chip=wse2",
            "workload: nothing runs streams of memory requests on this chip, which runs models, products, served requests; "
            "try chip=hbm3",
        ),
    ],
)
def test_bad_input_is_refused_by_field(override: str, message: str) -> None:
    with pytest.raises(DesignError) as refused:
        asked("chip=hbm3", "workload=stream", override)
    assert str(refused.value).startswith(message)


def test_a_memory_has_no_other_workload() -> None:
    with pytest.raises(DesignError, match="which runs streams"):
        asked("chip=hbm3", "mapping=stream")


def test_a_span_beyond_the_memory_is_infeasible() -> None:
    question = asked(*SMALL, "workload.span='1 TiB'")
    outcomes = evaluate(stack_designs([question.base]), question.workload, fidelity="events")
    assert not outcomes.feasible[0]
    assert outcomes.columns["achieved_bandwidth"][0] > 0


@pytest.mark.parametrize("refresh", ["all", "bank"])
@pytest.mark.parametrize("fidelity", ["analytical", "events"])
def test_a_memory_that_a_knob_moved_out_of_what_makes_sense_is_refused(refresh: str, fidelity: str) -> None:
    """As a file with it is; played, its refreshes would never end. With as many cycles as it takes, they do."""
    question = asked("chip=hbm3", "workload=stream", "workload.requests=50", "workload.patterns=[random]")
    t = question.base.chip.memory.timing  # type: ignore[union-attr]
    least = 2 * (2 + t.ras + t.rp)  # more than two a bank
    for refi in (4, least - 1, least):
        changes = {"refresh": refresh, "timing.refi": refi, "timing.rfc": 2, "timing.rfc_bank": 2}
        design = replace_leaves(question.base, {f"chip.memory.{name}": value for name, value in changes.items()})
        if refi < least:
            with pytest.raises(DesignError, match=r"memory\.timing\.refi: "):
                evaluate(stack_designs([design]), question.workload, fidelity=fidelity)
        else:
            assert evaluate(stack_designs([design]), question.workload, fidelity=fidelity).columns["achieved_bandwidth"][0] > 0


@pytest.mark.parametrize("refresh", ["all", "bank"])
def test_idle_rounds_of_refreshes_are_passed_over(refresh: str) -> None:
    """A requester far away leaves channels idle for thousands of refreshes between its requests, which take no time to play."""
    question = asked("chip=hbm3", "workload=stream", "workload.requests=300", "workload.patterns=[random]", "mapping.window=1")
    near, far = (
        replace_leaves(question.base, {"chip.memory.refresh": refresh, "chip.memory.controller.path": path})
        for path in (1e-8, 1e-3)
    )
    soon, late = (evaluate(stack_designs([design]), question.workload).columns["latency"][0] for design in (near, far))
    assert late > 300 * 1e-3 * 0.9
    assert soon < 1e-3
    with pytest.raises(DesignError, match=r"path: .* is above the maximum"):
        asked("chip=hbm3", "workload=stream", "chip.memory.controller.path=10 ms")


def test_bytes_of_a_stream_on_tiles_have_an_energy_however_they_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    question = asked("chip=tile32", "workload=stream", "workload.requests=50", "workload.patterns=[sequential]")
    designs, spent = stack_designs([replace_leaves(question.base, {"mapping.requesters": count}) for count in (4, 64)]), []
    (stream,) = question.workload.cases
    assert isinstance(stream, MemoryStreamCase)
    chip = question.base.chip
    moved = float(stream.requests * stream.request * pseudo_channel_count(chip.hbm.banks))
    played = SimpleNamespace(seconds=1e-5, bandwidth=1.0, share=1.0, latencies=[], row_hits=1.0, idle={})
    monkeypatch.setattr(alone, "_memory_report", lambda design, stream: played)
    for fidelity in ("analytical", "events"):
        columns = evaluate(designs, question.workload, fidelity=fidelity).columns
        spent.append(columns["energy"] - idle_power(chip) * columns["latency"])
    assert spent[0] == pytest.approx(spent[1], rel=1e-9)
    assert (spent[0] > moved * chip.dram.energy_per_byte).all()
