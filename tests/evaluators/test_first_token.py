"""Which phase the first token of a static batch comes from, and batches that have no decode."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.evaluation import explain, limits, power_over_time
from dse.evaluators.graph.step_counts import decode_steps
from dse.space.workload import BatchCase, decode_segments
from tests.samples import asked, metrics

DECODE = "workload.first_token=decode"

CHIPS = {
    "h200": ("model=qwen3_1b7",),
    "npu64": ("model=qwen3_1b7",),
    "tile32": ("model=qwen3_1b7",),
    "wse2": ("model=qwen3_1b7", "mapping.prefill.rows=480"),
    "wse2_hbm": ("model=qwen3_1b7", "mapping.prefill.rows=480"),
    "h800_ep": ("model=deepseek_v2_lite", "mapping.both.ep=8", "mapping.both.pp=2", "workload.speculation=none"),
    "wafer64": ("model=deepseek_v2_lite", "mapping.both.ep=8", "mapping.both.pp=2", "workload.speculation=none"),
}
"""A chip of each layout, and one with main memory at the edge."""

REQUESTS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 90), st.integers(1, 40)), min_size=1, max_size=4).map(tuple)


def words(chip: str, output: int, *more: str) -> tuple[str, ...]:
    return (f"chip={chip}", *CHIPS[chip], "workload.batch=[4]", "workload.prompt=300", f"workload.output={output}", *more)


@given(REQUESTS, st.sampled_from(["mean", "last"]))
def test_steps_of_a_batch_are_those_of_one_token_less_by_decode(requests: tuple[tuple[int, int, int], ...], at: str) -> None:
    model = asked("model=mistral_7b", "workload.batch=[1]").workload.cases[0].model
    less = tuple((n, prompt, output - 1) for n, prompt, output in requests if output > 1)
    case = BatchCase("", model, requests)
    assert case.decode_tokens == case.output_tokens - case.batch
    if less:
        assert decode_steps(case, at) == decode_steps(BatchCase("", model, less, first_token="decode"), at)
    else:
        assert [tokens for *_, tokens in decode_segments(case)] == [case.decode_steps] == [0]
        ((times, step),) = decode_steps(case, at)
        assert (times, step.positions) == (0.0, sum(n * (prompt + 1) for n, prompt, _ in requests))


@pytest.mark.parametrize("chip", CHIPS)
def test_a_batch_takes_what_one_token_less_takes_by_decode_and_gives_one_more(chip: str) -> None:
    own, less = metrics(*words(chip, 10)), metrics(*words(chip, 9, DECODE))
    for name in ("ttft", "tpot", "latency", "energy", "decode_throughput", "prefill_throughput", "peak_power"):
        assert own[name] == pytest.approx(less[name], rel=1e-12), name
    assert own["throughput"] == pytest.approx(4 * 10 / own["latency"], rel=1e-12)
    assert own["decode_throughput"] == pytest.approx(4 / own["tpot"], rel=1e-12)
    assert own["energy_per_token"] == pytest.approx(less["energy_per_token"] * 9 / 10, rel=1e-12)
    assert own["latency"] == pytest.approx(own["ttft"] + 9 * own["tpot"] + own.get("relayout_time", 0.0), rel=1e-12)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_batch_of_one_output_token_has_no_decode(chip: str) -> None:
    question, values = asked(*words(chip, 1)), metrics(*words(chip, 1))
    case = question.workload.cases[0]
    assert values["latency"] == values["ttft"] == pytest.approx(metrics(*words(chip, 2))["ttft"], rel=1e-3)
    assert values["throughput"] == pytest.approx(4 / values["ttft"], rel=1e-12)
    for name in ("tpot", "decode_throughput", "tokens_per_s_per_user"):
        assert np.isnan(values[name])
    for name in ("energy", "energy_per_token", "power", "peak_power", "price_per_mtoken", "mfu"):
        assert values[name] > 0
    parts = explain(question.base, case)
    assert {row.phase for row in parts.rows} == {"prefill"}
    assert parts.seconds == sum(row.seconds for row in parts.rows) == pytest.approx(values["latency"], rel=1e-9)
    profile = power_over_time(question.base, case)
    assert profile is not None
    assert profile.energy == pytest.approx(values["energy"], rel=1e-9)
    later = limits(question.base, asked(*words(chip, 2)).workload)
    assert [limit.address for limit in limits(question.base, question.workload)] == [limit.address for limit in later]


@pytest.mark.parametrize("chip", CHIPS)
@settings(max_examples=3, deadline=None)
@given(st.integers(2, 30))
def test_metrics_of_decode_are_means_over_cases_that_have_one(chip: str, output: int) -> None:
    mixed = metrics(*words(chip, 1)[:-1], f"workload.output=[1,{output}]")
    one, several = metrics(*words(chip, 1)), metrics(*words(chip, output))
    for name in ("tpot", "decode_throughput"):
        assert mixed[name] == pytest.approx(several[name], rel=1e-12)
    assert mixed["latency"] == pytest.approx((one["latency"] + several["latency"]) / 2, rel=1e-12)
