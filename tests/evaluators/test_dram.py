"""A channel of HBM: latencies to the clock, rates that its constraints allow, and a cycle-accurate reference."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.machine.dram_constants import ClockedTiming, QueueSizes
from dse.evaluators.machine.dram_simulator import SimulatedRequests, simulate_requests
from dse.space.array_math import Array
from tests.evaluators.plain_dram import Plain

# one channel of HBM2 at 1 GHz, whose tRTP the reference's configuration leaves at 5
HBM2 = ClockedTiming(
    cl=14, cwl=4, rcd_read=14, rcd_write=14, rp=14, ras=34, rfc=260, refi=3900, rrd_s=4, rrd_l=6, ccd_s=1, ccd_l=2,
    wtr_s=6, wtr_l=8, faw=30, wr=16, rtp=5, turn=2, burst=2,
)  # fmt: skip
REFERENCE = Path(__file__).parents[3] / "shared" / "validation" / "hbm_reference.csv"


def placed(address: Array) -> Array:
    """64-byte requests, from high to low: row, bank of 16, column of 32."""
    block = address >> 6
    return np.stack([(block >> 5) & 15, (block >> 9) & 32767, block & 31], axis=1)


def reads(
    place: list[tuple[int, int, int]], gap: int = 0, timing: ClockedTiming = HBM2, limit: int = 1 << 60
) -> SimulatedRequests:
    count = len(place)
    return simulate_requests(
        np.array(place), np.zeros(count, bool), np.arange(count) * gap + 10, timing, groups=4, banks=4, limit=limit
    )


def latency(served: SimulatedRequests) -> list[int]:
    return [int(clocks) for clocks in served.finished - served.accepted]


def test_a_read_takes_what_its_row_says() -> None:
    """One clock for the way to its bank's queue; then activate, column access and burst; a conflict precharges first."""
    closed, same_row, conflict = latency(reads([(0, 7, 0), (0, 7, 1), (0, 8, 0)], gap=200))
    assert closed == 1 + 14 + 14 + 2
    assert same_row == 1 + 14 + 2
    assert conflict == 1 + 14 + 14 + 14 + 2


def test_a_read_behind_a_refresh_waits_for_it() -> None:
    served = simulate_requests(np.array([[0, 1, 0]]), np.zeros(1, bool), np.array([3900]), HBM2, groups=4, banks=4)
    assert latency(served) == [260 + 14 + 14 + 2]


@pytest.mark.parametrize(("banks", "rate"), [((0, 4, 8, 12), 1.0), ((0, 1, 2, 3), 0.5)])
def test_bank_groups_must_alternate_to_reach_the_full_rate(banks: tuple[int, ...], rate: float) -> None:
    """Of open rows, with tCCD_L twice the burst and no refresh."""
    timing = HBM2._replace(ccd_s=2, ccd_l=4, refi=1 << 40)
    served = reads([(banks[i % 4], 0, i // 4) for i in range(4000)], timing=timing)
    assert 2 * 4000 / served.clocks == pytest.approx(rate, rel=0.03)


def test_one_row_after_the_other_is_bound_by_four_activates_in_a_window() -> None:
    timing = HBM2._replace(refi=1 << 40)
    served = reads([(i % 16, i // 16, 0) for i in range(4000)], timing=timing)
    assert served.activates == 4000
    assert served.clocks / 1000 == pytest.approx(30, rel=0.01)


@pytest.mark.sampled
@settings(max_examples=60)
@given(st.data())
def test_requests_are_served_as_a_plain_channel_serves_them(data: st.DataObject) -> None:
    """To the clock: when each is accepted and finished, whatever the timing, the queues and the mix."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    groups, banks, count = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 150)))
    rows = data.draw(st.sampled_from([1, 2, 3, 50]))
    place = np.stack([rng.integers(0, groups * banks, count), rng.integers(0, rows, count), rng.integers(0, 4, count)], axis=1)
    write = rng.random(count) < data.draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    arrival = np.sort(rng.integers(0, data.draw(st.sampled_from([1, 300, 2000])), count))
    timing = HBM2._replace(
        **{name: int(rng.integers(low, 30)) for name, low in (("rcd_read", 1), ("rp", 1), ("faw", 4), ("wr", 1))},
        **{name: int(rng.integers(1, 6)) for name in ("ccd_l", "turn", "burst")},
        cwl=int(rng.integers(1, 12)),
        refi=int(rng.choice([400, 900, 3900])),
    )
    queues, limit = QueueSizes(int(rng.choice([9, 32])), int(rng.choice([1, 4, 8]))), int(rng.choice([500, 1 << 60]))
    plain = Plain(place.tolist(), write.tolist(), arrival.tolist(), timing, groups, banks, queues)
    clocks = plain.play(limit)
    served = simulate_requests(place, write, arrival, timing, groups=groups, banks=banks, queues=queues, limit=limit)
    assert served.clocks == clocks
    assert served.accepted.tolist() == plain.accepted
    assert served.finished.tolist() == plain.finished


def test_idle_and_busy_clocks_are_all_clocks_of_the_bus() -> None:
    """Up to the end of the last data, which is written here."""
    rng = np.random.default_rng(2)
    place = np.stack([rng.integers(0, 16, 3000), rng.integers(0, 9, 3000), rng.integers(0, 32, 3000)], axis=1)
    write = rng.random(3000) < 0.3
    served = simulate_requests(place, write, np.sort(rng.integers(0, 20000, 3000)), HBM2, groups=4, banks=4)
    assert served.idle.sum() + 3000 * HBM2.burst == served.clocks - 1 + HBM2.cwl + HBM2.burst


@given(st.data())
def test_every_request_is_served_once(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 120))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    place = np.stack([rng.integers(0, 16, count), rng.integers(0, 3, count), rng.integers(0, 4, count)], axis=1)
    write = rng.random(count) < data.draw(st.sampled_from([0.0, 0.3]))
    arrival = np.sort(rng.integers(0, data.draw(st.integers(1, 5000)), count))
    queues = QueueSizes(data.draw(st.integers(9, 32)), data.draw(st.integers(1, 8)))
    served = simulate_requests(place, write, arrival, HBM2, groups=4, banks=4, queues=queues)
    assert (served.reads, served.writes) == (int((~write).sum()), int(write.sum()))
    assert (served.accepted >= arrival).all()
    assert (np.diff(served.accepted) >= 1).all()
    assert ((served.finished - served.accepted)[~write] >= 14 + 2).all()
    assert served.hits <= served.reads + served.writes
    assert served.hits + served.activates >= served.reads + served.writes


def pattern(name: str, count: int, rng: np.random.Generator) -> Array:
    if name == "sequential":
        return np.arange(count) * 64
    if name == "random":
        return rng.integers(0, 1 << 24, count) * 64
    size = int(name.lstrip("stridechunk"))
    if name.startswith("stride"):
        return np.arange(count) * size
    pieces = size // 64
    start = rng.integers(0, (1 << 30) // size, -(-count // pieces))[:, None] * size
    return (start + np.arange(pieces) * 64).ravel()[:count]


@pytest.mark.skipif(not REFERENCE.exists(), reason="the reference curves are not here")
def test_bandwidth_and_latency_are_those_of_a_cycle_accurate_reference() -> None:
    """Bandwidth within 1 %; latency within 2 % where requests are not offered faster than they can be served, else 6 %."""
    rng = np.random.default_rng(1)
    for row in csv.DictReader(REFERENCE.read_text().splitlines()):
        gap, clocks = int(row["offered_gap_cycles"]), int(row["cycles"])
        count = 60001 if gap else clocks
        write = rng.random(count) < float(row["write_fraction"])
        place = placed(pattern(row["pattern"], count, rng))
        served = simulate_requests(place, write, np.arange(count) * gap, HBM2, groups=4, banks=4, limit=clocks)
        rate = 64 * (served.reads + served.writes) / clocks
        assert rate == pytest.approx(float(row["bytes_per_cycle"]), rel=0.01), row
        read = ~write & (served.finished >= 0) & (served.finished <= clocks)
        mean = float((served.finished - served.accepted)[read].mean())
        overloaded = row["pattern"] == "random" and gap in (3, 5)
        assert mean == pytest.approx(float(row["avg_read_latency_cycles"]), rel=0.06 if overloaded else 0.02), row


def test_tiles_in_step_lose_more_of_a_channel_than_one_stream() -> None:
    """What `hbm.contended_efficiency` of tile32 stands for: tiles ask for blocks of 32 KiB side by side, 4 KiB at a time."""
    rng = np.random.default_rng(0)

    def share(streams: int) -> float:
        start = rng.integers(0, 1 << 15, (streams, 60000 // streams // 512 + 1))[..., None] << 15
        bursts = (start + np.arange(512) * 64).reshape(streams, -1, 64)[:, : 60000 // streams // 64]
        address = bursts.swapaxes(0, 1).ravel()
        served = simulate_requests(
            placed(address), np.zeros(len(address), bool), np.zeros(len(address), int), HBM2, groups=4, banks=4
        )
        return 2 * served.reads / served.clocks

    alone = share(1)
    assert alone == pytest.approx(0.92, abs=0.005)
    assert all(0.90 * alone < share(streams) < 0.95 * alone for streams in (4, 8, 16, 32))
