"""Blocks of a core in the channels behind it: formula, tables and bursts agree on random memories, orders, pages and writes."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.machine import bank_tables as bank_state
from dse.evaluators.machine import burst_simulator as bursts
from dse.evaluators.machine import channel_layout as laid
from dse.evaluators.machine.channel_layout import MemoryRequest
from dse.evaluators.machine.memory_system import channel_occupancy
from dse.space.array_math import Array
from dse.space.design import stack_designs
from dse.space.dram import (
    ORDERS,
    MemorySystem,
    capacity_bytes,
    peak_bandwidth,
    pseudo_channel_count,
    pseudo_channels_for_bandwidth,
)
from dse.space.fields import replace_leaves
from tests.samples import asked, memory

MEMORIES, EACH = 5, 6


def drawn(rng: np.random.Generator) -> MemorySystem:
    """A stack of some kind, with another interleaving."""
    order, hashed = str(rng.choice(list(ORDERS))), str(rng.choice(["none", "bank"]))
    granularity = float(rng.choice([128, 256, 512, 1024]))
    return memory(str(rng.choice(["hbm2", "hbm3", "hbm4"])), order=order, hashed=hashed, granularity=granularity)


def blocks(rng: np.random.Generator) -> MemoryRequest:
    """Pages that are read, and a few smaller blocks that are written among them."""
    written = float(rng.choice([0.0, 0.002, 0.01, 0.05]))
    return MemoryRequest(1.0, float(int(2 ** rng.uniform(9, 17))), 0.0, written, float(int(2 ** rng.uniform(7, 11))))


@cache
def paces() -> Array:
    """Of the formula, of tables and of bursts, shape (3, draws); the formula is over a long read of neighbouring groups."""
    rng, samples = np.random.default_rng(3), []
    for _ in range(MEMORIES):
        given_memory = drawn(rng)
        long = bank_state.request_slowdown(memory("hbm2"), 1.0, MemoryRequest(1.0, 1e6))
        for _ in range(EACH):
            count, what = float(rng.choice([1, 2, 4])), blocks(rng)
            samples.append(
                (
                    laid.layout_slowdown(given_memory, count, what) * long,
                    *(float(model.pace(given_memory, count, what)) for model in (bank_state, bursts)),
                )
            )
    return np.array(samples).T


@pytest.mark.slow
@pytest.mark.parametrize(("first_model", "other"), [(0, 1), (1, 2)], ids=["closed against events", "events against cycles"])
def test_nine_in_ten_are_within_15_percent(first_model: int, other: int) -> None:
    found_paces = paces()
    assert np.mean(np.abs(found_paces[first_model] / found_paces[other] - 1) < 0.15) >= 0.9


GROUPED = ("row_group_bank_column", "row_bank_column_group")
"""Orders of address bits: a long block stays in one bank group for four rows, or goes through all groups in turn."""


@pytest.mark.parametrize("kind", ["hbm2", "hbm3", "hbm4"])
@pytest.mark.parametrize("waiting", [8, 16, 32, 64])
def test_a_controller_that_looks_ahead_hides_what_one_bank_group_costs(kind: str, waiting: int) -> None:
    """Bank groups above columns: the formula and what is played agree for every queue; 8 requests nearly double the time."""
    single_memory, every = (replace_leaves(memory(kind, order=order), {"controller.waiting": waiting}) for order in GROUPED)
    size = 1 << 13
    played = [channel_occupancy(memory, (size, size), (1, 0), np.random.default_rng(0)) for memory in (single_memory, every)]
    formula = float(
        laid.random_block_slowdown_model(single_memory, size * float(single_memory.access))
        / laid.random_block_slowdown_model(every, size * float(every.access))
    )
    assert formula == pytest.approx(played[0] / played[1], rel=0.15)
    assert (formula > 1.5) == (waiting < 32)


KNOWN = memory("hbm2")


@pytest.mark.sampled
@given(st.floats(1e9, 1e12), st.floats(1.0, 3.0), st.floats(64, 1e6), st.floats(0, 0.1), st.floats(32, 4096))
@settings(deadline=None)
def test_more_bandwidth_is_never_slower(rate: float, more: float, piece: float, written: float, wrote: float) -> None:
    what = MemoryRequest(1.0, piece, 0.0, written, wrote)
    for slowdown in (laid.layout_slowdown, bank_state.request_slowdown):
        slow, fast = (
            float(slowdown(KNOWN, pseudo_channels_for_bandwidth(KNOWN, bandwidth), what)) / bandwidth
            for bandwidth in (rate, rate * more)
        )
        assert fast <= slow * (1 + 1e-3 * (slowdown is bank_state.request_slowdown))  # tables are played, mixes too


@given(st.floats(32, 1e6), st.floats(1, 4))
def test_a_larger_block_takes_longer_and_its_bytes_do_not(piece: float, more: float) -> None:
    for time in (
        lambda size: laid.random_block_slowdown_model(KNOWN, size),
        lambda size: bank_state.random_block_slowdown(KNOWN, size, write=True),
    ):
        assert time(piece * more) * more >= time(piece) * (1 - 1e-9)
    assert pseudo_channels_for_bandwidth(KNOWN, 0.5 * peak_bandwidth(KNOWN) / pseudo_channel_count(KNOWN)) == 1


@pytest.mark.sampled
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.01, 0.3, 1.0]))
def test_every_stretch_is_in_memory_and_in_one_channel(seed: int, written: float) -> None:
    rng = np.random.default_rng(seed)
    memory, piece, wrote = drawn(rng), int(rng.integers(1, 4000)) * 32, int(rng.integers(1, 40)) * 32
    address, nbytes, write = bursts.block_layout(memory, 1 << 20, piece, written, wrote)
    assert nbytes.min() > 0
    assert address.min() >= 0
    assert (address + nbytes).max() <= capacity_bytes(memory)
    assert (address // memory.granularity == (address + nbytes - 1) // memory.granularity).all()
    assert nbytes[write].sum() == pytest.approx(written * nbytes.sum(), abs=0.5 * (piece + wrote))


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["npu64", "npu256"])
def test_poor_interleaving_costs_whole_models(chip: str) -> None:
    """Bank groups in turn against one after the other, in all readers; pages of the cache beside matrices."""
    step = ("model=qwen3_4b", "workload.batch=[8]", "workload.prompt=512", "workload.output=2", "mapping.sram_kv_share=0")
    latencies = {}
    for order in ("row_bank_column_group", "row_group_bank_column"):
        question = asked(f"chip={chip}", f"chip.hbm.banks.order={order}", *step)
        for fidelity in ("analytical", "events", "cycles"):
            outcome = evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity)
            latencies[order, fidelity] = float(outcome.columns["tpot"][0])
    for fidelity in ("analytical", "events", "cycles"):
        assert 1.1 < latencies["row_group_bank_column", fidelity] / latencies["row_bank_column_group", fidelity] < 2
    for order in ("row_bank_column_group", "row_group_bank_column"):
        assert latencies[order, "analytical"] == pytest.approx(latencies[order, "events"], rel=0.15)
        assert latencies[order, "cycles"] == pytest.approx(latencies[order, "events"], rel=0.05)
