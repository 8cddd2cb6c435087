"""Each metric of usage, memory, energy and price is on each layout that serves, simulated and in the steady state."""

from functools import cache

import numpy as np
import pytest

from dse import compare_chips
from dse.evaluators import evaluate
from dse.evaluators.accounting.layout_registry import SERVING_LAYOUTS
from dse.evaluators.accounting.outcomes import Outcomes
from dse.evaluators.evaluation import limits
from dse.space.design import stack_designs
from dse.space.software import software_of
from tests.samples import asked

LOAD = "workload=serving workload.requests=6 workload.prompt=120 workload.output=6 workload.rate=20Hz"
SMALL = "chip.mesh.rows=4 chip.mesh.cols=4 chip.hbm.channels=4"
FEW = "model=qwen3_1b7 model.qwen3_1b7.layers=2"
BATCH = "mapping.serving.max_batch_size=4"

LAYOUTS = {
    "devices": f"chip=h200 {FEW} mapping.both.tp=2",
    "devices, prefill apart": f"chip=h200 {FEW} mapping.both.tp=2 mapping.serving.prefill_instances=1",
    "whole chip": f"chip=tile32 {SMALL} {FEW} {BATCH}",
    "whole chip, prefill apart": f"chip=tile32 {SMALL} {FEW} {BATCH} mapping.serving.prefill_instances=1",
    "regions": "chip=wse2 model=qwen3_1b7",
    "pipelines": "chip=npu64 model=qwen3_1b7",
    "pipelines, prefill apart": "chip=npu64 model=qwen3_1b7 mapping.both.pp=4 mapping.serving.prefill_cores=32",
    "dies of tiles": f"chip=wafer64 chip.dies.rows=1 chip.dies.cols=2 {SMALL} {FEW} {BATCH} mapping.both.ep=1 "
    "mapping.both.tp=2 mapping.serving.max_batched_tokens=256",
    "dies with a cache": "chip=h800_ep chip.dies.rows=2 chip.dies.cols=4 chip.nodes.size=4 model=deepseek_v2_lite "
    "model.deepseek_v2_lite.layers=2 mapping.both.ep=8 "
    "mapping.serving.max_batch_size=16 mapping.serving.max_batched_tokens=1024",
}

USAGE = ("peak_flops", "mfu")
MEMORY = ("hbm_bytes", "hbm_utilisation", "hbm_used")
ENERGY = (
    "energy", "energy_per_token", "power", "peak_power", "tdp", "power_density", "wall_power", "system_price",
    "price_per_mtoken", "capital_per_mtoken", "electricity_per_mtoken",
)  # fmt: skip
KV_POOL = ("kv_capacity", "kv_pool_bytes", "kv_pool_requests", "longest_context")
EVERYWHERE = (*USAGE, *KV_POOL, "devices", *ENERGY)
WITHOUT_MEMORY = ("regions",)
"""Layouts that serve from local memory alone."""

FIDELITIES = ("analytical", "steady_state")


@cache
def outcomes(layout: str, fidelity: str) -> Outcomes:
    question = asked(*LAYOUTS[layout].split(), *LOAD.split())
    return evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).require_compatible()


def value(layout: str, fidelity: str, metric: str) -> float:
    columns = outcomes(layout, fidelity).columns
    return float(columns[metric][0]) if metric in columns else np.nan


def test_every_layout_that_serves_is_asked() -> None:
    softwares = {software_of(asked(*LAYOUTS[layout].split(), "workload=serving").base.mapping) for layout in LAYOUTS}
    assert softwares == set(SERVING_LAYOUTS)


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_served_layout_has_every_metric(layout: str, fidelity: str) -> None:
    assert outcomes(layout, fidelity).feasible[0]
    wanted = EVERYWHERE if layout in WITHOUT_MEMORY else (*EVERYWHERE, *MEMORY)
    assert not [name for name in wanted if not value(layout, fidelity, name) > 0]
    assert not [name for name in ("mfu", "hbm_utilisation") if value(layout, fidelity, name) > 1]


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("layout", WITHOUT_MEMORY)
def test_what_has_no_main_memory_has_no_metrics_of_it(layout: str, fidelity: str) -> None:
    assert not {*MEMORY} & {*outcomes(layout, fidelity).columns}


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout not in WITHOUT_MEMORY])
def test_memory_in_use_is_what_the_limit_needs(layout: str) -> None:
    question = asked(*LAYOUTS[layout].split(), *LOAD.split())
    needs = [
        float(np.max(limit.need)) for limit in limits(question.base, question.workload) if limit.address == "chip.hbm.capacity"
    ]
    assert value(layout, "analytical", "hbm_used") == pytest.approx(max(needs), rel=1e-12)


@pytest.mark.parametrize(("metric", "reason"), [("hbm_utilisation", ", since there is no main memory"), ("relayout_time", "")])
def test_a_metric_that_a_load_cannot_have_is_refused_with_those_that_it_has(metric: str, reason: str) -> None:
    words = (*LAYOUTS["regions"].replace("chip=wse2", "chip=[wse2]").split(), *LOAD.split())
    (side,) = compare_chips(*words, objective=metric)
    assert side.found is None
    assert side.why.startswith(f"--objective: wse2 has no {metric} for this workload{reason}; it has ")
    assert "mfu" in side.why
