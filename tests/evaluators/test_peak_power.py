"""The most power of a served load: of its busiest iterations, as many as are under way at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.accounting.serving_instances import tensor_parallel as devices
from dse.evaluators.accounting.serving_runs import peak_power as peak
from dse.evaluators.silicon import energy
from dse.space.design import stack_designs
from tests.samples import asked, load_of

LOAD = ("workload=serving", "workload.requests=20", "workload.prompt=400", "workload.output=30")
LAYOUTS = {
    "devices": ("chip=h100", "model=llama3_8b", "mapping.both.tp=1"),
    "instances": ("chip=h100", "model=llama3_8b", "mapping.both.tp=1", "mapping.serving.prefill_instances=1"),
    "pipelines": ("chip=npu64", "model=qwen3_1b7"),
    "pipelines apart": ("chip=npu64", "model=qwen3_1b7", "mapping.serving.prefill_cores=32"),
    "regions": ("chip=wse2", "model=qwen3_1b7"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("fidelity", ["analytical", "steady_state"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_peak_lies_between_the_mean_and_what_chips_take_at_full_use(layout: str, fidelity: str) -> None:
    question = asked(*LAYOUTS[layout], *LOAD, "workload.rate=2 Hz")
    metrics = {
        name: float(column[0])
        for name, column in evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns.items()
    }
    assert metrics["power"] <= metrics["peak_power"] <= metrics["tdp"] * metrics["devices"]


def test_a_chip_that_is_seldom_busy_has_the_peak_of_one_that_works() -> None:
    """Chunks of one prompt by itself: idle time moves the mean alone."""
    seldom, often = (
        evaluate(stack_designs([question.base]), question.workload).columns
        for question in (
            asked(*LAYOUTS["devices"], *LOAD, "workload.arrivals=constant", f"workload.rate={rate} Hz") for rate in (0.1, 1)
        )
    )
    assert often["power"][0] > seldom["power"][0]
    assert often["peak_power"][0] == pytest.approx(seldom["peak_power"][0], rel=1e-9)


@pytest.mark.parametrize("policy", ["chunked_prefill", "orca", "prefill_first"])
def test_no_iteration_of_a_run_takes_much_more_than_those_that_are_kept(policy: str) -> None:
    words = (*LAYOUTS["devices"], "workload=serving", "workload.requests=60", "workload.rate=8 Hz", "workload.prompt=2000")
    design, load = load_of(*words, "workload.output=60", f"mapping.serving.policy={policy}")
    run, _ = devices.TensorParallelServing()._run(design, load, "analytical", 10_000)
    assert run is not None
    assert len(run.log) == run.total["iterations"]
    most = float(
        np.squeeze(
            peak.peak_power(
                peak.concurrency_of_run(run),
                lambda pool, made_of: devices.TensorParallelServing().iteration_power(
                    design, load, pool, made_of, "analytical"
                ),
            )
        )
    )
    for kind in (run.log["prompt"] > 0, run.log["prompt"] == 0):
        each = devices.TensorParallelServing().iteration_power(
            design, load, 0, peak.composition_columns(run.log[kind]), "analytical"
        )
        assert each.max() <= most * 1.02
    assert most <= energy.peak_design_power(design.chip)


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 10), st.floats(1, 100), st.floats(1, 100))
def test_as_many_iterations_of_the_kind_that_takes_more_as_there_may_be(
    prompts: int, decodes: int, most: int, first: float, then: float
) -> None:
    most = min(max(most, prompts, decodes), prompts + decodes)
    made = (np.ones((1, 1)),), (np.zeros((1, 1)),)
    concurrency = peak.PoolConcurrency(
        peak.IterationKind(made[0], float(prompts)), peak.IterationKind(made[1], float(decodes)), float(most)
    )
    peak_power = peak.peak_power(
        [concurrency, concurrency], lambda pool, made_of: np.array([[first if made_of[0].any() else then]])
    )
    each = max(a * first + b * then for a in range(prompts + 1) for b in range(decodes + 1) if a + b <= most)
    assert float(np.squeeze(peak_power)) == pytest.approx(2 * each)
