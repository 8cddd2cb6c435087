"""Layouts of batches are registered by software, and each has every metric."""

from abc import abstractmethod
from typing import Any

import numpy as np
import pytest

from dse.evaluators import evaluate
from dse.evaluators.accounting import tensor_parallel
from dse.evaluators.accounting.layout import Layout, layout_of, layout_of_software
from dse.evaluators.accounting.layout_registry import BATCH_LAYOUTS, load_layout
from dse.evaluators.accounting.memory_contents import CACHE
from dse.evaluators.accounting.tensor_parallel import TensorParallelLayout
from dse.space.design import stack_designs
from dse.space.fields import iterate_leaves, replace_leaves
from dse.space.software import software_of
from tests.samples import asked, metrics

DIES = "model=deepseek_v2_lite workload.batch=[1024]"
QUESTIONS = {
    "devices": "chip=a100 model=llama3_8b workload.batch=[4] mapping.both.tp=2",
    "pipelines": "chip=npu64 model=qwen3_4b workload.batch=[4]",
    "whole chip": "chip=tile_gh200 model=qwen3_4b workload.batch=[4]",
    "regions": "chip=wse2 model=qwen3_1b7 workload.batch=[1]",
    "regions with main memory": "chip=wse2_hbm model=llama2_13b workload.batch=[2]",
    "dies of tiles": "chip=wafer64 model=deepseek_v2_lite workload.batch=[64] mapping.both.ep=32",
    "dies with a cache": f"chip=h800_ep chip.dies.cols=8 {DIES} mapping.both.ep=8",
}
SIZES = ("workload.prompt=256", "workload.output=16")
EVERYWHERE = (
    "throughput", "ttft", "tpot", "mfu", "peak_flops", "kv_capacity", "energy", "energy_per_token", "power", "peak_power",
    "tdp", "system_price", "price_per_mtoken",
)  # fmt: skip
OF_MEMORY = ("hbm_bytes", "hbm_utilisation", "hbm_used")


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_metric_is_on_every_layout(name: str) -> None:
    values = metrics(*QUESTIONS[name].split(), *SIZES)
    wanted = (*EVERYWHERE, *(OF_MEMORY if name != "regions" else ()))
    assert not [metric for metric in wanted if not np.isfinite(values.get(metric, np.nan))]
    assert 0 < values["mfu"] < 1
    assert ("hbm_bytes" in values) == (name != "regions")
    if "hbm_utilisation" in values:
        assert 0 < values["hbm_utilisation"] <= 1


def test_questions_are_of_all_layouts() -> None:
    assert {software_of(asked(*words.split()).base.mapping) for words in QUESTIONS.values()} == set(BATCH_LAYOUTS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_shares_come_from_the_same_work_and_time(name: str) -> None:
    """mfu x peak x time are the useful operations, hbm_utilisation x bandwidth x time the bytes, of all phases."""
    question = asked(*QUESTIONS[name].split(), *SIZES)
    layout, design = layout_of(question.base), question.base
    (job,) = layout.batch_arrays(question.workload)
    phases = layout.phases(design, job, "analytical")
    values = metrics(*QUESTIONS[name].split(), *SIZES)
    flop = sum(np.sum(phase.useful_flop) for phase in phases)
    assert values["mfu"] * values["peak_flops"] * values["latency"] == pytest.approx(flop, rel=1e-9)
    if "hbm_bytes" in values:
        rate = float(layout.peak_rates(design).memory) * float(np.squeeze(layout.die_count(design)))
        assert values["hbm_bytes"] == pytest.approx(values["hbm_utilisation"] * rate * values["latency"], rel=1e-9)


ONE_MEMORY = ("devices", "whole chip", "dies of tiles", "dies with a cache")


@pytest.mark.parametrize("name", ONE_MEMORY)
def test_twice_the_requests_hold_twice_the_caches_and_the_same_weights(name: str) -> None:
    def contents(*words: str) -> dict[str, float]:
        question = asked(*QUESTIONS[name].split(), *SIZES, *words)
        layout = layout_of(question.base)
        (job,) = layout.batch_arrays(question.workload)
        decode = layout.phases(question.base, job, "analytical")[1]
        (memory,) = (memory for memory in decode.memory if memory.is_main)
        return {part: float(np.squeeze(nbytes)) for part, nbytes in memory.parts}

    batch = int(asked(*QUESTIONS[name].split()).workload.cases[0].batch)
    once, twice = contents(), contents(f"workload.batch=[{2 * batch}]")
    assert twice[CACHE] == pytest.approx(2 * once[CACHE], rel=1e-9)
    weights = [part for part in once if part.startswith("weights")]
    assert weights
    assert {part: twice[part] for part in weights} == {part: once[part] for part in weights}


@pytest.mark.parametrize("name", ONE_MEMORY)
def test_a_memory_that_is_just_full_has_room_for_the_tokens_of_the_batch(name: str) -> None:
    """Of decode, whose last token comes without a place in the cache; an engine's part would grow with the memory."""
    words = (*QUESTIONS[name].split(), *SIZES, *(("inference_engine=none",) if name == "devices" else ()))
    question = asked(*words)
    layout = layout_of(question.base)
    (job,) = layout.batch_arrays(question.workload)
    (memory,) = (part for part in layout.phases(question.base, job, "analytical")[1].memory if part.is_main)
    need = float(np.squeeze(memory.need))
    tokens = (256 + 16 - 1) * question.workload.cases[0].batch
    assert metrics(*words, f"chip.hbm.capacity='{need!r} B'")["kv_capacity"] == pytest.approx(tokens, rel=1e-9)
    assert metrics(*words)["kv_capacity"] > tokens


def test_a_layout_that_lacks_methods_fails_when_it_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Headless(TensorParallelLayout):
        @abstractmethod
        def phases(self, *args: Any, **options: Any) -> Any: ...

    monkeypatch.setattr(tensor_parallel, "Headless", Headless, raising=False)
    with pytest.raises(TypeError, match=r"layout tensor_parallel:Headless lacks phases, which each Layout has"):
        load_layout("tensor_parallel:Headless", Layout)  # type: ignore[type-abstract]
    with pytest.raises(TypeError, match="is no Layout"):
        load_layout("phase:PhaseCost", Layout)  # type: ignore[type-abstract]


@pytest.mark.parametrize("software", BATCH_LAYOUTS)
def test_a_registered_layout_is_complete_and_one_object(software: str) -> None:
    assert layout_of_software(software) is layout_of_software(software)


@pytest.mark.parametrize("name", QUESTIONS)
def test_metrics_of_a_stack_are_those_of_each_design(name: str) -> None:
    """Of designs whose clock and rates by number format differ, which share one structure."""
    question = asked(*QUESTIONS[name].split(), *SIZES)
    numbers = {address: value for address, value, _ in iterate_leaves(question.base) if isinstance(value, float) and value}
    faster = {address: 1.25 * value for address, value in numbers.items() if address.startswith("chip.core.rates.")}
    designs = [question.base, replace_leaves(question.base, {"chip.clock": 0.8 * numbers["chip.clock"], **faster})]
    together = evaluate(stack_designs(designs), question.workload).columns
    for place, design in enumerate(designs):
        alone = evaluate(stack_designs([design]), question.workload).columns
        assert set(alone) == set(together)
        for metric in alone:
            assert together[metric][place] == pytest.approx(alone[metric][0], rel=1e-9, nan_ok=True), metric
