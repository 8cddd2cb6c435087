"""Power over time adds up to energy, and its most is the peak: of batches, of kernels, and of iterations as they come."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dse
from dse.analysis.chrome_trace import write_trace
from dse.evaluators import evaluate
from dse.evaluators.accounting.power_profile import PowerProfile, idle_power, profile_of_intervals
from dse.evaluators.accounting.serving_runs import run_metrics as served
from dse.evaluators.evaluation import power_over_time
from dse.evaluators.workloads import serving
from dse.space.design import stack_designs
from tests.samples import asked

BATCHES = {
    "devices": ("chip=h100", "model=llama3_8b", "mapping.both.tp=2"),
    "pipelines": ("chip=npu64", "model=qwen3_1b7"),
    "regions": ("chip=wse2", "model=qwen3_1b7"),
    "dies": ("chip=h800_ep", "model=deepseek_v3"),
}
KERNELS = (("chip=tile32", "workload=attention"), ("chip=h100", "workload=gemm"), ("chip=wse2", "workload=gemv"))
LOADS = {
    "devices": ("chip=h100", "model=llama3_8b", "mapping.both.tp=1"),
    "stages": ("chip=npu64", "model=qwen3_1b7", "mapping.both.pp=3"),
    "apart": ("chip=npu64", "model=qwen3_1b7", "mapping.serving.prefill_cores=32"),
}


def answered(*words: str, fidelity: str = "analytical") -> tuple[PowerProfile | None, dict[str, float]]:
    """Power over time of the only case, and metrics."""
    question = asked(*words)
    columns = evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns
    profile = power_over_time(
        question.base, question.workload.cases[0], decode_context=question.workload.decode_context, fidelity=fidelity
    )
    return profile, {name: float(column[0]) for name, column in columns.items()}


@pytest.mark.parametrize("layout", BATCHES)
@settings(max_examples=2, deadline=None)
@given(prompt=st.integers(64, 2000), output=st.integers(2, 200), batch=st.integers(1, 4))
def test_a_batch_spends_its_energy_phase_by_phase(layout: str, prompt: int, output: int, batch: int) -> None:
    sizes = (f"workload.prompt={prompt}", f"workload.output={output}", f"workload.batch=[{batch}]")
    profile, metrics = answered(*BATCHES[layout], *sizes)
    assert profile is not None
    assert profile.names in (("prefill", "decode"), ("prefill", "transition", "decode"))
    assert profile.energy == pytest.approx(metrics["energy"], rel=1e-6)
    assert profile.peak == pytest.approx(metrics["peak_power"], rel=1e-9)
    assert profile.mean == pytest.approx(metrics["power"], rel=1e-9)


@pytest.mark.parametrize("words", KERNELS)
def test_a_kernel_by_itself_takes_its_mean(words: tuple[str, ...]) -> None:
    profile, metrics = answered(*words)
    assert profile is not None
    assert profile.energy == pytest.approx(metrics["energy"], rel=1e-9)


@cache
def load(layout: str, rate: float) -> tuple[PowerProfile | None, dict[str, float]]:
    words = ("workload=serving", "workload.requests=60", "workload.prompt=300", "workload.output=20")
    return answered(*LOADS[layout], *words, f"workload.rate={rate} Hz")


@pytest.mark.parametrize("rate", [2.0, 60.0])
@pytest.mark.parametrize("layout", LOADS)
def test_iterations_of_a_load_spend_its_energy_and_stay_below_its_peak(layout: str, rate: float) -> None:
    profile, metrics = load(layout, rate)
    assert profile is not None
    assert profile.energy == pytest.approx(metrics["energy"], rel=0.02)  # which mean iterations spend
    assert (
        metrics["power"] < profile.peak <= metrics["peak_power"] * 1.005
    )  # that the busiest ones take, of those that are kept


def test_chips_that_wait_take_what_they_take_idle() -> None:
    profile, _ = load("devices", 2.0)
    assert profile is not None
    assert profile.watts.min() == pytest.approx(idle_power(asked(*LOADS["devices"]).base.chip), rel=1e-9)


def test_a_longer_run_is_drawn_as_far_as_iterations_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = load("devices", 60.0)
    monkeypatch.setattr(served, "LOGGED_ITERATIONS", 50)
    part, _ = load.__wrapped__("devices", 60.0)
    assert whole is not None
    assert part is not None
    size = len(part.watts)
    assert size < len(whole.watts)
    assert part.instants.tolist() == whole.instants[: size + 1].tolist()
    assert part.watts == pytest.approx(whole.watts[:size], rel=1e-12)


def test_what_has_no_time_line_has_none() -> None:
    assert answered("chip=mesh8", "workload=traffic")[0] is None
    question = asked(*LOADS["devices"], "workload=serving", "workload.requests=20", "workload.rate=2 Hz")
    assert serving.case_power_profile(question.base, question.workload.cases[0], "mean", "steady_state") is None


SPANS = st.lists(st.tuples(st.floats(-1, 9), st.floats(0, 9), st.floats(0, 100)), max_size=8)


@given(SPANS, st.floats(0, 10), st.floats(0.1, 8))
def test_what_overlaps_adds_up(spans: list[tuple[float, float, float]], rest: float, last: float) -> None:
    starts, lengths, watts = np.array(spans).reshape(-1, 3).T
    profile = profile_of_intervals(starts, starts + lengths, watts, rest, 0.0, last)
    inside = np.clip(starts + lengths, 0.0, last) - np.clip(starts, 0.0, last)
    assert profile.energy == pytest.approx(float(np.sum(inside * watts)) + rest * last, rel=1e-9, abs=1e-9)
    assert profile.watts.min() >= rest


def test_a_counter_of_a_trace_holds_each_power_until_the_next(tmp_path: Path) -> None:
    evaluation = dse.evaluate(*BATCHES["regions"], "workload.batch=[1]", "workload.prompt=128", "workload.output=8")
    write_trace(evaluation.breakdown, evaluation.profile, tmp_path / "step.json")
    every = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    events = [event for event in every if event["pid"] == len(evaluation.breakdown.segments)]
    samples = [(event["ts"] / 1e6, event["args"]["W"]) for event in events if event["ph"] == "C"]
    instants, watts = np.array(samples).T
    assert float(np.sum(np.diff(instants) * watts[:-1])) == pytest.approx(evaluation.metrics["energy"], rel=1e-6)
    assert [event["name"] for event in events if event["ph"] == "X"] == ["prefill", "transition", "decode"]
