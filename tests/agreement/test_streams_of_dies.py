"""What cores of a die read side by side: where it lies, that it is all there, and what it costs beside a rate."""

from math import inf
from typing import Any

import numpy as np
import pytest

import dse
from dse.evaluators.calls.call import ONCE, CallProduct, KernelCall
from dse.evaluators.cost_models import READERS
from dse.evaluators.cost_models.call_cost import call_cost
from dse.evaluators.machine import bank_tables as bank_state
from dse.evaluators.machine import parallel_reads as streams
from dse.evaluators.machine.channel_layout import MemoryRequest
from dse.evaluators.machine.edge_memory import edge_memory
from dse.evaluators.machine.machine import HardwareModel
from dse.evaluators.machine.memory_channels import LONG_READ
from dse.evaluators.machine.shared_cache_die import DieCache, PooledEngines, RatedMemory
from dse.evaluators.machine.simulated_channels import reached_share
from dse.space.dram import ORDERS, MemorySystem, peak_bandwidth, pseudo_channel_count
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.main_memory import main_memory
from tests.samples import asked, memory

BANKS = ("+memory@chip.hbm.banks=hbm3", "chip.hbm.banks.stacks=5")

MODEL = (
    "chip=h100", "stack=ideal", "model=qwen3_1b7", "workload.batch=[16]", "workload.prompt=512", "workload.output=4",
    "mapping.both.tp=1",
)  # fmt: skip


def die(memory: MemorySystem, count: float, cores: int, achieved: float) -> HardwareModel:
    """A die whose engines take no time, with so many of the pseudo-channels of a memory."""
    bandwidth = count * float(peak_bandwidth(memory) / pseudo_channel_count(memory))
    rated = RatedMemory(1 / (bandwidth * achieved), bandwidth * achieved, 0.0, 0.0, None, memory, bandwidth, cores)
    return HardwareModel(PooledEngines(0.0, 0.0, 1.0), rated, DieCache(0.0, 1e9, 1e9, 1e9), 0.0, None, None, 0.0)


def product(k: int, n: int) -> KernelCall:
    return KernelCall(
        "ffn", "up", (), 1.0, (1, k, n), (CallProduct(ONCE, 1.0, k, n),), width=2.0, reads="weights", fetch=2.0 * k * n
    )


def seconds(machine: HardwareModel, call: KernelCall, word: str) -> float:
    return float(call_cost(call, machine, READERS[word]).read)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(3))
def test_one_long_stream_that_meets_nobody_takes_what_the_closed_form_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given_memory = memory(str(rng.choice(["hbm2", "hbm3", "hbm4"])))
    machine = die(given_memory, float(rng.integers(16, 200)), 1, float(rng.uniform(0.5, 0.85)))
    call = product(int(rng.integers(1000, 9000)), int(rng.integers(1000, 9000)))
    closed, events, cycles = (seconds(machine, call, word) for word in ("analytical", "events", "cycles"))
    assert closed == events == cycles == pytest.approx(call.fetch * machine.memory.byte)


def test_cores_that_begin_in_the_same_bank_lose_most_of_the_bandwidth_and_hashed_ones_do_not() -> None:
    """Tiles of 1 MiB over 64 channels; a stream by itself has what it has elsewhere."""
    plain, hashed = (memory("hbm3", hashed=word) for word in ("none", "bank"))
    call = product(8192, 8192)  # 128 MiB
    alone, side_by_side, spread = (
        seconds(die(memory, 64, cores, 1.0), call, "cycles") for memory, cores in ((plain, 1), (plain, 128), (hashed, 128))
    )
    assert alone < 1.05 * seconds(die(plain, 64, 1, 1.0), call, "analytical")
    assert side_by_side > 3 * alone
    assert spread < side_by_side / 2


@pytest.mark.parametrize("seed", range(4))
def test_all_bytes_of_a_matrix_are_asked_for_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given_memory, cores, pages = (
        memory("hbm3", channels=int(rng.integers(1, 40))),
        int(rng.integers(1, 50)),
        int(rng.integers(1, 9)),
    )
    what = streams.parallel_reads(cores, float(cores * pages * 4096 - rng.integers(0, 4096)), 0.0, 0.0)
    bursts, by = streams.read_bursts(given_memory, what, what.tile, int(pseudo_channel_count(given_memory)))
    assert sorted(bursts.tolist()) == list(range(0, cores * pages * 4096, int(given_memory.access)))
    assert (np.bincount(by) * int(given_memory.access) == what.tile).all()


@pytest.mark.parametrize("seed", range(4))
def test_heads_of_a_block_read_all_of_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given_memory, heads, piece = memory("hbm3"), int(rng.choice([1, 2, 4, 8])), int(rng.choice([64, 128, 256, 512]))
    cores, blocks = heads * int(rng.integers(1, 5)), int(rng.integers(1, 4))
    what = streams.parallel_reads(cores, 1e9, float(piece), float(heads * piece))
    bursts, by = streams.read_bursts(
        given_memory, what, blocks * streams.TOKENS * piece, int(pseudo_channel_count(given_memory))
    )
    block = streams.TOKENS * heads * piece
    for first in range(0, cores, heads):
        mine = np.sort(bursts[(by >= first) & (by < first + heads)])
        assert len(mine) * int(given_memory.access) == blocks * block
        assert set(mine // block * block) == {at for at in mine.tolist() if at % block == 0}


def test_some_channels_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    given_memory, what = (
        memory("hbm3"),
        [streams.parallel_reads(40, 4e6, 0.0, 0.0), streams.parallel_reads(40, 1e9, 256.0, 1024.0)],
    )
    paces = [streams._pace(given_memory, 32, paces) for paces in what]
    monkeypatch.setattr(streams, "CHANNELS", 32)
    assert [streams._pace.__wrapped__(given_memory, 32, paces) for paces in what] == pytest.approx(paces, rel=0.05)


GAP = 0.3
"""Between tables and bursts: tiles of powers of two, and those of other sizes whose rows others leave open, differ most."""


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(6))
def test_tables_are_near_bursts(seed: int) -> None:
    """Rows filled first, or neighbours in other bank groups; with all banks before a row again they may be 2.3 times off."""
    rng = np.random.default_rng(seed)
    order, hashed = str(rng.choice(["row_group_bank_column", "row_bank_column_group"])), str(rng.choice(["none", "bank"]))
    given_memory = memory(str(rng.choice(["hbm3", "hbm4"])), order=order, hashed=hashed)
    piece, heads = float(rng.choice([128, 256])), int(rng.choice([1, 2, 8]))
    given: Any = (
        (float(rng.integers(10**6, 10**8)), 0.0, 0.0), (1e9, piece, piece * heads), (1e9, float(rng.choice([512, 1024])), inf)
    )[seed % 3]  # fmt: skip
    count, cores, request = float(rng.integers(60, 190)), int(rng.integers(20, 150)), MemoryRequest(*given)
    by_tables, by_bursts = (
        play(given_memory, count, cores, request)
        for play in (bank_state.parallel_read_slowdown, streams.simulate_parallel_slowdown)
    )
    assert by_tables == pytest.approx(by_bursts, rel=GAP)


def test_a_model_on_a_die_takes_longer_by_banks_and_its_breakdown_adds_up() -> None:
    closed, *played = (dse.evaluate(*MODEL, *(BANKS if word != "analytical" else ()), f"fidelity={word}") for word in READERS)
    for evaluation in played:
        assert evaluation.metrics["tpot"] > 1.02 * closed.metrics["tpot"]
        assert sum(row.seconds for row in evaluation.breakdown.rows) == pytest.approx(evaluation.metrics["latency"])


def test_banks_that_move_less_than_is_said_of_a_die_are_not_played_and_the_answer_says_so() -> None:
    closed = dse.evaluate(*MODEL)
    paced = dse.evaluate(*MODEL, BANKS[0], "fidelity=cycles")
    assert paced.metrics["latency"] == closed.metrics["latency"]
    assert "one rate" in dict(paced.facts())["memory"]
    assert "memory" not in dict(closed.facts())


def test_banks_of_a_die_are_asked_for_where_something_plays_them_and_noted_where_nothing_does() -> None:
    with pytest.raises(DesignError, match="whose banks are not set; add "):
        dse.evaluate(*MODEL, "fidelity=cycles")
    (noted,) = (note for note in dse.evaluate(*MODEL, *BANKS).without_effect if note.address == "chip.hbm.banks")
    assert str(noted).startswith("chip.hbm.banks has no effect here")


@pytest.mark.sampled
@pytest.mark.parametrize("order", ORDERS)
def test_a_stream_at_the_edge_of_a_wafer_has_what_its_banks_give(order: str) -> None:
    """By the formula, a share of what is said of it; by tables what long reads of a channel are played with."""
    chip = replace_leaves(asked("chip=wse2_hbm").base.chip, {"noc.word_bytes": 1e6})  # links are no limit
    banked = replace_leaves(chip, {"hbm.banks": memory("hbm3", order=order)})
    simulated_byte, formula = (edge_memory(chip, 8, 8, 1.0).byte for chip in (chip, banked))
    tables = edge_memory(banked, 8, 8, 1.0, reached_share(main_memory(banked))).byte
    bandwidth = chip.hbm.channels * chip.hbm.channel_bandwidth
    assert edge_memory(chip, 8, 8, 1.0, reached_share(main_memory(chip))).byte == simulated_byte
    assert tables * bandwidth == pytest.approx(bank_state.request_slowdown(banked.hbm.banks, 2.0, LONG_READ))
    assert formula == pytest.approx(tables, rel=0.1)
    assert (formula > 1.2 * simulated_byte) == (order == "row_group_bank_column")
