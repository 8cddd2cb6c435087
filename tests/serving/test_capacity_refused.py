"""What `dse capacity` cannot be asked, or nothing keeps: one line says why, and what is nearest."""

import random
import time

import pytest

from dse.analysis import capacity as asked_of
from dse.analysis import deployments
from dse.analysis.capacity import find_capacity
from dse.analysis.capacity_bounds import compute_rate_bound
from dse.commands.capacity_output import capacity_record
from dse.space.errors import DesignError

pytestmark = pytest.mark.usefixtures("flat_stack")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["devices=4"], "name a chip"),
        (["chip=h200"], "set devices=16 for their maximum rate"),
        (["chip=h200", "devices=4", "rate='1 Hz'"], "expected devices or rate, got both"),
        (["chip=h200", "devices=none"], "devices: 'none' is not a number; write a number"),
        (["chip=[h200,h200]", "devices=1"], "is listed twice"),
        (["chip=h200", "devices=1", "slo_percentile=0"], "slo_percentile: 0 is below the minimum, 1"),
        (["chip=h200", "devices=1", "slo_percentile=99%"], "slo_percentile: 0.99 is below the minimum, 1"),
        (["chip=h200", "devices=1", "apart=maybe"], "no option 'maybe'; valid: false, true"),
        (
            ["chip=h200", "devices=2", "disaggregated=false", "mapping.serving.prefill_instances=1"],
            "disaggregated: false excludes",
        ),
        (["chip=h200", "devices=1", "by=weight"], "valid: devices, price"),
        (["chip=h200", "devices=1", "workload.arrivals=offline"], "have no rate"),
        (["chip=h200", "devices=1", "workload.arrivals=closed_loop"], "closed_loop needs sessions"),
        (["chip=h200", "devices=1", "workload.arrivals=closed_loop", "workload.users=3"], "searches the most users"),
        (["chip=h200", "rate=5 Hz", "workload.arrivals=closed_loop"], "set devices=N"),
        (["chip=h200", "devices=1", "workload=static"], "choose workload=serving"),
        (["chip=[h200,h100]", "devices=1", "workload.tpot='1 us'"], "h200: no deployment .*; h100: no deployment"),
        (["chip=h200", "devices=1", "workload.tpot='1 us'"], "a request alone takes"),
        (["chip=h200", "devices=1", "workload.requests=1"], "a rate needs at least 2 requests, got 1"),
        (["chip=h200", "devices=1", "workload.ttft='0 s'"], "workload.ttft: must be above 0"),
        (
            ["chip=h200", "devices=2", "model=deepseek_v3"],
            r"none of \d+ deployments .*; the nearest needs 343.1 GB of chip.hbm.capacity, has 141 GB",
        ),
    ],
)
def test_what_cannot_be_asked_is_said(words: list[str], message: str) -> None:
    with pytest.raises(DesignError, match=message):
        find_capacity(["workload.requests=50", *words] if "workload=static" not in words else words)


def test_a_rate_that_no_devices_serve_is_refused_before_anything_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what all deployments of a cell may serve; a rate that 65,536 devices might serve is played."""
    played = []
    monkeypatch.setattr(asked_of, "_find_best_side", lambda *_, **__: played.append(1) or pytest.fail("played"))
    words = ["chip=h200", "workload.prompt=1000", "workload.output=100", "workload.ttft='1 s'", "workload.tpot='50 ms'"]
    with pytest.raises(
        DesignError, match=r"h200: 1e\+08 requests/s need more than 65,536 devices, which serve [\d.e+]+ requests/s at most"
    ):
        find_capacity([*words, "rate='1e8 Hz'"])
    assert not played
    with pytest.raises(pytest.fail.Exception, match="played"):
        find_capacity([*words, "rate='1e5 Hz'"])


def test_a_rate_that_no_devices_serve_is_no_bound_that_nobody_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where so many requests are said: a request alone keeps the bounds, and the line has the nearest rate instead."""
    monkeypatch.setattr(asked_of, "MAX_SEARCHED_DEVICES", 2)
    words = ["chip=h200", "model=qwen3_32b", "workload.requests=200", "workload.output=20", "workload.ttft='300 ms'"]
    with pytest.raises(
        DesignError,
        match=r"^capacity: h200: 1e\+06 requests/s need more than 2 devices, which serve [\d.]+ requests/s at most$",
    ):
        find_capacity([*words, "workload.tpot='50 ms'", "rate='1e6 Hz'"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rate='1e6 Hz'", "mapping.serving.instances=4"], r"1e\+06 .* the given 4 instances.* [\d.]+ requests/s at most$"),
        (["rate='1e6 Hz'", "mapping.serving.prefill_instances=3"], "the given 3 prefill instances"),
        (["devices=65536", "mapping.serving.instances=1000"], "1,000 instances serve .* too many to simulate; set 1/6 of them"),
        (["devices=16", "workload.requests=1000000000000"], "at most 2,000,000, which take about a gigabyte"),
    ],
)  # fmt: skip
def test_what_nothing_serves_is_said_without_a_look_at_all_devices(words: list[str], message: str) -> None:
    """Instances given are all that there are; what helps them is looked at, in a few seconds of CPU."""
    usual = ["chip=h200", "model=qwen3_32b", "workload.prompt=4000", "workload.output=500"]
    begin = time.process_time()
    with pytest.raises(DesignError, match=message):
        find_capacity([*usual, "workload.ttft='2 s'", "workload.tpot='50 ms'", *words])
    assert time.process_time() - begin < 15  # 97 and more, were all of 65,536 devices looked at


def test_a_rate_that_no_engines_serve_is_refused_before_any_split_of_dies_is_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits of dies with pools apart take a minute to price; the line has what their engines serve at most."""
    priced = []
    monkeypatch.setattr(asked_of, "_find_best_side", lambda *_, **__: pytest.fail("played"))
    plain = deployments.make_pools
    monkeypatch.setattr(deployments, "make_pools", lambda *given: priced.append(given[0].mapping.serving) or plain(*given))
    words = ["chip=h800_ep", "model=deepseek_v3", "workload.prompt=4000", "workload.output=500", "workload.ttft='2 s'"]
    message = r"1e\+06 requests/s need more than the given 4 instances, which serve [\d.]+ requests/s at most$"
    with pytest.raises(DesignError, match=message):
        find_capacity([*words, "workload.tpot='50 ms'", "rate='1e6 Hz'", "mapping.serving.instances=4"])
    assert not any(serving.prefill_instances for serving in priced)


@pytest.mark.parametrize(("chip", "apart"), [("h800_ep", True), ("h200_ep", False)])
def test_engines_serve_no_less_than_prices_say(chip: str, apart: bool) -> None:
    words = [f"chip={chip}", "model=qwen3_30b_a3b", "workload.prompt=3000", "workload.output=50", "workload.requests=40000"]
    query = asked_of.parse_query([*words, "mapping.both.ep=8", "devices=64", "workload.ttft='100 ms'", "workload.tpot='50 ms'"])
    kinds, bounds, knobs = asked_of.build_chip_query(chip, query, trust=False)
    candidates, _ = deployments.find_candidates(kinds, bounds, knobs, 64, apart=apart, every=True)
    assert candidates
    for deployment in candidates:
        stages = int(deployment.design.mapping.prefill.pp)
        assert (
            deployment.most
            <= compute_rate_bound(deployment.design, deployment.load, bounds, stages, apart=deployment.apart)
            < 1000 * deployment.most
        )


@pytest.mark.parametrize("seed", range(8))
def test_every_deployment_of_a_space_fits_or_is_counted(seed: int) -> None:
    """What the search takes and what it counts as left out, by limits and by reasons, add up to all that a space has."""
    rng = random.Random(seed)
    words = [f"chip={rng.choice(('h100', 'h200', 'a100'))}", f"model={rng.choice(('llama3_8b', 'qwen3_32b', 'llama3_70b'))}"]
    words += [f"workload.prompt={rng.choice((50, 2000, 6000))}", "workload.output=100", "workload.ttft='2 s'"]
    devices, apart = rng.randint(1, 17), rng.random() < 0.7
    query = asked_of.parse_query([*words, f"devices={devices}", "workload.tpot='50 ms'", "workload.requests=100"])
    kinds, bounds, knobs = asked_of.build_chip_query(words[0].partition("=")[2], query, trust=False)
    plans = len(list(deployments._deployment_plans(kinds, knobs, devices, apart=apart)))
    candidates, refused = deployments.find_candidates(kinds, bounds, knobs, devices, apart=apart)
    every, broken = deployments.find_candidates(kinds, bounds, knobs, devices, apart=apart, every=True)
    assert len(candidates) + sum(refused.values()) == len(every) + sum(broken.values()) == plans
    assert {why: count for why, count in refused.items() if why not in deployments.REASONS} == broken
    assert all(count > 0 for count in refused.values())


def test_reasons_that_break_no_limit_are_told() -> None:
    words = ["chip=h200", "model=llama3_8b", "devices=4", "workload.prompt=6000", "workload.output=50", "workload.ttft='2 s'"]
    (side,) = asked_of.find_capacity([*words, "workload.tpot='50 ms'", "workload.requests=200"])
    assert set(deployments.REASONS) & set(side.refused)
    (record,) = capacity_record([side]).chips
    for why in set(deployments.REASONS) & set(side.refused):
        assert f"{why} {side.refused[why]}" in record.looked_at.left_out


def test_instances_that_are_said_are_no_cell_of_several() -> None:
    usual = ["chip=h200", "model=qwen3_32b", "workload.prompt=4000", "workload.output=50", "workload.ttft='2 s'"]
    (side,) = find_capacity(
        [*usual, "workload.tpot='50 ms'", "devices=512", "disaggregated=false", "mapping.serving.instances=2"]
    )
    assert side.cells == 1
    assert side.best is not None
    assert side.best.candidate.values["mapping.serving.instances"] == 2
