"""Area, power and money of every chip: what they sum to, what they rise with, and that nothing which buys time is free."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.evaluation import infeasible
from dse.evaluators.silicon import area, energy, price, supply
from dse.space.choices import CONSTANTS, PRICED, choice
from dse.space.design import stacked
from dse.space.fields import at, leaves, replaced
from tests.samples import asked as question_of

POOLS = (
    "a100",
    "h100",
    "h200",
    "gh200",
    "h800",
    "b200",
    "mi250x",
    "mi300x",
    "rtx4090",
    "tpu_v5p",
    "groq",
    "ascend910b",
    "ascend910c",
    "npu_dse",
)
CHIPS = (*POOLS, "npu64", "npu256", "tile32", "tile_gh200", "wse2", "wse3", "dojo", "wafer64")

MANY = ("model=deepseek_v2_lite", "workload.batch=[4096]", "mapping.both.ep=8", "mapping.both.pp=1", "chip.dies.rows=4")
"""What is asked of chips with many dies."""

METRICS = ("latency", "system_mm2", "tdp", "energy", "system_price")


def asked(chip: str, *words: str):
    few = ("model=qwen3_8b", "workload.batch=[32]") if chip == "tile_gh200" else ("model=qwen3_1b7", "workload.batch=[2]")
    of = MANY if chip.startswith("wafer") else few  # little work is done sooner by fewer tiles
    return question_of(f"chip={chip}", *of, "workload.sequence=[512]", *words)


def metrics(design, workload):
    found = evaluate(stacked([design]), workload)
    return {name: float(found.columns[name][0]) for name in METRICS}


@pytest.mark.parametrize("chip", CHIPS)
def test_parts_add_up_to_dies_and_dies_to_the_chip(chip):
    of = asked(chip).base.chip
    whole = area.total(of)
    above, below = area.dies(of, whole)
    assert sum(area.parts(of).values()) == pytest.approx(whole)
    if not below:
        assert area.die(of) * above == pytest.approx(whole)


@pytest.mark.parametrize("chip", CHIPS)
def test_whatever_buys_time_costs_area_power_or_money(chip):
    of = asked(chip)
    before = metrics(of.base, of.workload)
    free = []
    for address, value, spec in leaves(of.base.chip):
        if not isinstance(value, int | float) or isinstance(value, bool) or not choice(address) or not value:
            continue
        for factor in (0.5, 2.0):
            number = value * factor
            if "whole" in spec.metadata and number != int(number):
                continue
            after = metrics(replaced(of.base, {f"chip.{address}": number}), of.workload)
            faster = after["latency"] < before["latency"] * (1 - 1e-9)
            # energy by itself falls with time: what is paid for is area, rated power or money
            dearer = any(after[name] > before[name] * (1 + 1e-12) for name in ("system_mm2", "tdp", "system_price"))
            if faster and not dearer:
                free.append((address, factor))
    assert not free


def test_constants_are_leaves_of_some_chip():
    known = {address for chip in (*CHIPS, "h800_ep") for address, _, _ in leaves(asked(chip).base.chip)}
    assert set(CONSTANTS) <= known
    assert all(any(address.startswith(part) for address in known) for part in PRICED if part not in ("areas.", "base."))


@given(st.floats(0.2e9, 2.5e9), st.floats(1.01, 1.5))
def test_a_faster_clock_needs_a_higher_supply(clock, more):
    chip = asked("a100").base.chip
    slow, fast = (supply.volts(replace(chip, clock=of)) for of in (clock, clock * more))
    assert fast >= slow >= chip.technology.least
    if slow > chip.technology.least:
        assert fast > slow
    assert supply.volts(replace(chip, clock=np.array([clock])))[0] == pytest.approx(slow)


@pytest.mark.parametrize("chip", ["wse2", "npu64", "tile32"])
def test_twice_the_clock_takes_more_energy_for_the_same_work(chip):
    of = asked(chip)
    usual, fast = (
        metrics(replaced(of.base, {"chip.clock": of.base.chip.clock * factor}), of.workload) for factor in (1.5, 3.0)
    )
    assert fast["latency"] < usual["latency"]
    assert fast["tdp"] > 1.9 * usual["tdp"]


def test_a_die_beyond_the_reticle_is_refused_with_the_dies_that_would_do():
    of = asked("npu64", "chip.die.dies=1")
    verdict = infeasible(of.base, of.workload)
    assert verdict is not None
    assert verdict.limit == "chip.die.reticle"
    assert sum(value for _, value in verdict.parts) == pytest.approx(verdict.need)
    count = int(verdict.remedy.split()[0])
    enough = replaced(of.base, {"chip.die.dies": count})
    assert infeasible(enough, of.workload) is None
    wafer = replaced(of.base, {"chip.die.wafer": True})
    assert infeasible(wafer, of.workload) is None or infeasible(wafer, of.workload).limit != "chip.die.reticle"


def test_a_clock_beyond_the_supply_and_heat_are_refused():
    of = asked("a100", "chip.clock=6GHz")
    verdict = infeasible(of.base, of.workload)
    assert verdict is not None
    assert verdict.limit in ("chip.clock", "chip.die.cooling")


@given(st.integers(0, 2**32 - 1))
def test_many_chips_at_once_are_as_one_by_one(seed):
    random = np.random.default_rng(seed)
    of = asked(str(random.choice(CHIPS)))
    found = [
        address
        for address, value, spec in leaves(of.base.chip)
        if isinstance(value, float) and value and choice(address) and "whole" not in spec.metadata
    ]
    picked = random.choice(found, 3, replace=False)
    usual = np.array([float(at(of.base.chip, str(address))) for address in picked])
    designs = [
        replaced(of.base, {f"chip.{address}": float(value) for address, value in zip(picked, row, strict=True)})
        for row in random.uniform(0.6, 1.4, (4, 3)) * usual
    ]
    together = evaluate(stacked(designs), of.workload)
    for row, design in enumerate(designs):
        alone = evaluate(stacked([design]), of.workload)
        for name in (*METRICS, "price_per_mtoken", "peak_power", "die_mm2"):
            assert together.columns[name][row] == pytest.approx(alone.columns[name][0], rel=1e-12)
        assert together.limit[row] == alone.limit[0]


def test_energy_is_what_is_done_and_what_runs_meanwhile():
    of = asked("a100")
    found = evaluate(stacked([of.base]), of.workload).columns
    chips = max(of.base.mapping.prefill.tp, of.base.mapping.decode.tp)
    idle = energy.static(of.base.chip) * chips
    assert found["energy"][0] > idle * found["latency"][0]
    assert found["power"][0] == pytest.approx(found["energy"][0] / found["latency"][0])
    assert found["peak_power"][0] >= found["power"][0]
    assert found["peak_power"][0] <= chips * energy.design_power(of.base.chip)
    parts = found["chips_per_mtoken"][0] + found["electricity_per_mtoken"][0]
    assert found["price_per_mtoken"][0] == pytest.approx(parts)
    assert found["system_price"][0] == pytest.approx(chips * sum(price.parts(of.base.chip).values()))


def test_metrics_that_nobody_asks_for_are_left_out():
    of = asked("a100")
    few = evaluate(stacked([of.base]), of.workload, metrics=("energy",)).columns
    everything = evaluate(stacked([of.base]), of.workload).columns
    assert "price_per_mtoken" not in few
    assert few["energy"][0] == everything["energy"][0]
    assert few["latency"][0] == everything["latency"][0]
