"""A memory: every byte has a place and comes once; what binds blocked the bus; large transfers cost what playing them gives."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators.machine import memory_system as hbm
from dse.evaluators.machine.random_access import random_piece_slowdown
from dse.space.dram import HASHES, ORDERS, MemorySystem, capacity_bytes, check_memory, pseudo_channel_count
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from tests.samples import asked as question_of
from tests.samples import memory, metrics

GENERATIONS = ("hbm2", "hbm2_legacy", "hbm2e", "hbm3", "hbm3e", "hbm4")
STACKS = ("hbm2", "hbm2e", "hbm3", "hbm3e", "hbm4")


def small(name: str = "hbm3", **changes: Any) -> MemorySystem:
    """Four channels."""
    return memory(name, **{"channels": 2, "pseudo": 2, **changes})


def sequential(memory: MemorySystem, requests: int, size: int = 64, **given: Any) -> hbm.MemoryReport:
    return hbm.simulate_memory(memory, np.arange(requests) * size, size, **{"write": False, **given})


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("hashed", HASHES)
def test_every_address_has_its_own_place(order: str, hashed: str) -> None:
    memory = small(rows=8, order=order, hashed=hashed)
    channel, at = hbm.map_addresses(memory, np.arange(0, int(capacity_bytes(memory)), int(memory.access)))
    banks, columns = memory.groups * memory.banks, memory.row / memory.access
    number = ((channel * banks + at[:, 0]) * memory.rows + at[:, 1]) * columns + at[:, 2]
    assert sorted(number) == list(range(int(capacity_bytes(memory) / memory.access)))


@pytest.mark.parametrize("name", GENERATIONS)
def test_unloaded_latencies_are_exact(name: str) -> None:
    """A clock to the bank's queue; RCD, CL and burst for a closed row, CL and burst for an open one."""
    given_memory = memory(name)
    t, cycle = given_memory.timing, 1 / given_memory.clock
    report = hbm.simulate_memory(given_memory, np.array([0, 0]), int(given_memory.access), False, np.array([0.0, 200 * cycle]))
    closed, opened = np.rint(report.latencies / cycle)
    assert closed == 1 + t.rcd_read + t.cl + t.burst
    assert opened == 1 + t.cl + t.burst
    assert [hbm.idle_read_latency(given_memory, row_open=state) for state in (False, True)] == pytest.approx(
        report.latencies.tolist()
    )


@pytest.mark.parametrize("name", STACKS)
def test_a_stream_in_one_bank_group_has_half_the_rate(name: str) -> None:
    """Of open rows; interleaved over groups and banks within 3 % of the peak less refresh."""
    given_memory = memory(name, stacks=1, channels=1, pseudo=1, refresh="all")
    lost = given_memory.timing.rfc / given_memory.timing.refi
    number, group = np.arange(2**15), int(given_memory.banks * given_memory.row / given_memory.access)
    single = number // group * group * int(given_memory.groups) + number % group
    for order, which, rate in (("row_group_bank_column", single, 0.5), ("row_column_bank_group", number, 1.0)):
        report = hbm.simulate_memory(
            replace_leaves(given_memory, {"order": order}), which * int(given_memory.access), int(given_memory.access), False
        )
        assert report.share == pytest.approx(rate * (1 - lost), rel=0.03)
        assert report.bound_text == ("group" if rate < 1 else "bandwidth")


def test_busy_and_idle_time_make_up_all_time() -> None:
    memory = small()
    report = hbm.simulate_memory(memory, np.random.default_rng(0).integers(0, 2**20, 5000) * 64, 64, np.arange(5000) % 3 == 0)
    assert report.share + sum(report.idle.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("what", "given_"),
    [
        ("bandwidth", {}),
        ("activates", {"address": "random"}),
        ("channels", {"address": "one channel"}),
        ("row", {"address": "one bank"}),
        ("group", {"order": "row_group_bank_column"}),
        ("turn", {"write": "half"}),
        ("window", {"window": 4}),
        ("load", {"gap": 1e-6}),
    ],
)
def test_what_binds_is_what_blocked_the_bus(what: str, given_: dict[str, Any]) -> None:
    changes = {key: value for key, value in given_.items() if key in ("order", "refresh") or key.startswith("timing")}
    memory, count = small(**changes), 8000
    rng, rows = np.random.default_rng(1), pseudo_channel_count(memory) * int(memory.groups * memory.banks * memory.row)
    address = {
        "random": rng.integers(0, 2**22, count) * 64,
        "one channel": np.arange(count) * 256 * pseudo_channel_count(memory),
        "one bank": (np.arange(count) // 4 * rows + np.arange(count) % 4 * int(memory.granularity))
        % int(capacity_bytes(memory)),
    }.get(given_.get("address", ""), np.arange(count) * 64)
    write = rng.random(count) < 0.5 if "write" in given_ else False
    arrival = np.arange(count) * given_.get("gap", 0.0)
    assert (
        hbm.simulate_memory(memory, address, 64, write, arrival, windows=np.array([given_.get("window", 0)])).bound_text == what
    )


@st.composite
def asked(draw: st.DrawFn) -> dict[str, Any]:
    count = draw(st.integers(1, 150))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    requesters = draw(st.integers(1, 3))
    return {
        "address": rng.integers(0, draw(st.sampled_from([2**10, 2**16, 2**24])), count),
        "nbytes": rng.integers(1, draw(st.sampled_from([2, 65, 3000])), count),
        "write": rng.random(count) < draw(st.sampled_from([0.0, 0.3, 1.0])),
        "arrival": np.sort(rng.random(count)) * draw(st.sampled_from([0.0, 1e-7, 1e-4])),
        "windows": rng.choice([0, 1, 7, 64], requesters),
        "requester": rng.integers(0, requesters, count),
    }


@pytest.mark.sampled
@given(asked(), st.sampled_from(GENERATIONS), st.sampled_from(sorted(ORDERS)), st.sampled_from(HASHES))
def test_requests_go_through_their_phases_and_never_beat_the_peak(
    given_: dict[str, Any], name: str, order: str, hashed: str
) -> None:
    given_memory = memory(name, order=order, hashed=hashed)
    report, again = (hbm.simulate_memory(given_memory, **given_) for _ in range(2))
    assert report.nbytes == given_["nbytes"].sum()
    assert 0 < report.share <= 1
    cycle = 1 / given_memory.clock
    assert (report.begin_request >= given_["arrival"] - 1e-15).all()
    for before, after in (
        ("begin_request", "end_request"),
        ("begin_request", "begin_response"),
        ("end_request", "end_response"),
    ):
        assert (getattr(report, before) <= getattr(report, after) + 1e-15).all()
    assert (report.latencies >= (given_memory.timing.cl + given_memory.timing.burst) * cycle * (1 - 1e-9)).all()
    assert (report.end_response <= report.seconds + given_["arrival"].min() + 1e-15)[~given_["write"]].all()
    assert (report.end_response == again.end_response).all()
    assert all(share >= 0 for share in report.idle.values())


@pytest.mark.sampled
@given(asked())
def test_a_window_is_never_exceeded(given_: dict[str, Any]) -> None:
    """Of requests of one burst, so that those outstanding can be counted from their stamps."""
    memory = small()
    given_ = {**given_, "nbytes": 1}
    report = hbm.simulate_memory(memory, **given_)
    for number, window in enumerate(given_["windows"]):
        mine = given_["requester"] == number
        begin, end = np.sort(report.begin_request[mine]), np.sort(report.end_response[mine])
        if window:
            assert (begin[window:] >= end[: max(0, len(end) - window)] - 1e-15).all()


@pytest.mark.sampled
@pytest.mark.parametrize("name", STACKS)
def test_a_larger_window_and_more_channels_never_slow_a_sequential_stream(name: str) -> None:
    """But for 1 %: another window meets refreshes in another phase."""
    times = [sequential(memory(name, channels=4), 20000, windows=np.array([w])).seconds for w in (1, 4, 16, 64, 256, 1024)]
    assert all(after <= 1.01 * before for before, after in itertools.pairwise(times))
    times = [sequential(memory(name, channels=c), 20000).seconds for c in (1, 2, 4, 8)]
    assert times == sorted(times, reverse=True)


def test_banks_are_refreshed_one_by_one() -> None:
    """A bank that is read all the time loses what its refreshes take, and all others nothing."""
    given_memory = memory("hbm3", stacks=1, channels=1, pseudo=1)
    report = hbm.simulate_memory(given_memory, np.arange(20000) % 8 * 128, 32, False)
    assert report.idle["refresh"] == pytest.approx(given_memory.timing.rfc_bank / given_memory.timing.refi, rel=0.35)
    assert sequential(given_memory, 20000).idle["refresh"] < 0.01


@pytest.mark.sampled
@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("size", [32, 5000, 1 << 20, 64 << 20])
def test_a_large_transfer_is_priced_as_played(name: str, size: int) -> None:
    given_memory = memory(name)
    starts = np.arange(0, size, int(given_memory.granularity))
    played = hbm.simulate_memory(given_memory, starts, np.minimum(int(given_memory.granularity), size - starts), False).seconds
    assert hbm.transfer_seconds(given_memory, size) == pytest.approx(played, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"timing_ras": 10}, "timing.ras"),
        ({"timing_burst": 0}, "timing.burst"),
        ({"timing_cl": -1}, "timing.cl"),
        ({"timing_ccd_l": 1}, "timing.ccd_l"),
        ({"timing_rtw": 3}, "timing.rtw"),
        ({"timing_refi": 100}, "timing.refi"),
        ({"timing_faw": 1}, "timing.faw"),
        ({"timing_rfc_bank": 0}, "timing.rfc_bank"),
        ({"channels": 0}, "channels"),
        ({"channels": -4}, "channels"),
        ({"groups": 3}, "groups"),
        ({"banks": 32}, "banks"),
        ({"row": 1000.0}, "row"),
        ({"granularity": 16.0}, "granularity"),
        ({"order": "column_first"}, "order"),
        ({"hashed": "sha"}, "hashed"),
        ({"channels": 3, "hashed": "all"}, "hashed"),
        ({"controller_queue": 0}, "controller.queue"),
    ],
)
def test_a_memory_that_makes_no_sense_is_refused_by_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(DesignError, match=rf"^memory\.{field}: ") as refused:
        check_memory(memory("hbm3", **changes))
    assert "\n" not in str(refused.value)


def test_requests_beyond_the_end_are_refused() -> None:
    with pytest.raises(DesignError, match="ends at"):
        hbm.simulate_memory(memory("hbm2"), np.array([2**40]), 64, False)


@pytest.mark.parametrize("name", STACKS)
def test_pieces_at_random_places_cost_what_the_formula_says(name: str) -> None:
    given_memory, pieces = memory(name), (32, 64, 128, 256, 288, 512, 576, 656, 1024, 1152, 4096, 0)
    assert [random_piece_slowdown(given_memory, piece) for piece in pieces] == pytest.approx(
        [hbm.random_access_slowdown(given_memory, piece) for piece in pieces], rel=0.13
    )


def test_rows_of_latent_keys_cost_little_and_index_keys_by_themselves_much() -> None:
    """1,152 B is a row of 512 + 64 values of 16 bits, 132 B one of 128 of 8 bits and its scale."""
    given_memory = memory("hbm4")
    assert hbm.random_access_slowdown(given_memory, 1152) < 1.08
    assert hbm.random_access_slowdown(given_memory, 656) < 1.15
    assert hbm.random_access_slowdown(given_memory, 132) > 1.5


@pytest.mark.slow
@pytest.mark.parametrize("words", [("chip=tile_gh200", "model=qwen3_1b7"), ("chip=npu64", "model=qwen3_4b")], ids=" ".join)
def test_a_stack_of_hbm3_in_the_place_of_a_meshs_memory_reads_at_its_own_rate(words: tuple[str, ...]) -> None:
    less = ("workload.batch=[1]", "workload.prompt=64", "workload.output=8")
    stack = ("+part@chip.hbm=hbm3_stack", "memory@chip.hbm.banks=hbm3", "dram@chip.dram=hbm3")
    hbm = question_of(*words, *less, *stack).base.chip.hbm
    assert hbm.channels * hbm.channel_bandwidth == pytest.approx(819.2e9)
    assert (hbm.banks.channels * hbm.banks.stacks, hbm.place) == (hbm.channels, "south")
    slower, twice = (metrics(*words, *less, *stack, *more)["tpot"] for more in ((), ("chip.hbm.channels=32",)))
    assert metrics(*words, *less)["tpot"] < twice <= slower <= 2 * twice
