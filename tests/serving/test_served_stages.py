"""Instances of devices in pipeline stages that serve requests."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.question import Question
from dse.evaluators import evaluate
from dse.evaluators.accounting.serving_instances.serving_layout import ServingLayout
from dse.evaluators.evaluation import explain, explain_infeasibility
from dse.evaluators.workloads.serving import serving_layout
from dse.space.design import stack_designs
from dse.space.fields import replace_leaves
from tests.samples import asked, load_of

EXACT = 1e-9

MODELS = ("qwen3_1b7", "llama3_8b", "deepseek_v2_lite", "gemma3_12b")

ALONE = (
    "workload=serving",
    "workload.arrivals=offline",
    "workload.requests=1",
    "mapping.serving.policy=prefill_first",
    "mapping.serving.max_batch_size=1",
    "mapping.serving.max_batched_tokens=4096",
)

LOAD = (
    "workload=serving",
    "workload.requests=40",
    "workload.rate=4 Hz",
    "workload.prompt=200",
    "workload.output=30",
    "mapping.serving.admission=prompt",
)


@pytest.mark.parametrize("name", MODELS)
def test_a_request_alone_takes_what_a_batch_of_one_takes(name: str) -> None:
    """By any degrees, and any lengths."""
    rng = np.random.default_rng(list(map(ord, name)))
    words = "chip=h200", f"model={name}", "mapping.both.tp=2", f"workload.prompt={int(rng.integers(33, 900))}"
    words += (f"workload.output={int(rng.integers(2, 30))}",)
    served, batch = asked(*words, *ALONE), asked(*words, "workload.batch=[1]")
    for tp, pp in ((1, 2), (4, 7), (8, 3), (2, 24), (16, 2)):
        both = [at_degrees(question, tp=tp, pp=pp) for question in (served, batch)]
        assert both[0]["ttft"] == pytest.approx(both[1]["ttft"], rel=EXACT)
        for name_of_metric in ("latency", "energy", "hbm_bytes", "system_mm2"):
            assert both[0][name_of_metric] == pytest.approx(both[1][name_of_metric], rel=EXACT)


def at_degrees(question: Question, **leaves: Any) -> dict[str, float]:
    """Metrics of a question's design with some leaves of both phases."""
    changes = {f"mapping.{phase}.{name}": value for phase in ("prefill", "decode") for name, value in leaves.items()}
    outcomes = evaluate(stack_designs([replace_leaves(question.base, changes)]), question.workload)
    return {name: float(column[0]) for name, column in outcomes.columns.items()}


@pytest.mark.parametrize("words", [(), ("mapping.serving.prefill_instances=1",)])
def test_one_stage_is_what_instances_have_been(words: tuple[str, ...]) -> None:
    question = asked("chip=h200", "model=llama3_8b", "mapping.both.tp=2", *LOAD, *words)
    one, before = (at_degrees(question, pp=count) for count in (1, None))
    assert list(map(repr, one.items())) == list(map(repr, before.items()))


@pytest.mark.parametrize("words", [(), ("mapping.serving.prefill_instances=1",)])
@pytest.mark.parametrize("fidelity", ["analytical", "steady_state"])
def test_stages_are_devices_and_share_memory(words: tuple[str, ...], fidelity: str) -> None:
    question = asked("chip=h200", "model=llama3_8b", "mapping.both.tp=1", "mapping.both.pp=4", *LOAD, *words)
    one = replace_leaves(question.base, {f"mapping.{phase}.pp": 1 for phase in ("prefill", "decode")})
    outcomes = evaluate(stack_designs([question.base, one]), question.workload, fidelity=fidelity).columns
    staged, alone = ({name: float(column[row]) for name, column in outcomes.items()} for row in (0, 1))
    assert staged["devices"] == 4 * alone["devices"]
    assert staged["hbm_used"] < 0.7 * alone["hbm_used"]  # an engine reserves memory on each device
    assert staged["tpot"] > alone["tpot"]  # each token passes all stages, with messages between them
    assert staged["system_price"] == pytest.approx(4 * alone["system_price"])


def test_the_steady_state_is_near_the_simulation() -> None:
    question = asked("chip=h200", "model=llama3_70b", "mapping.both.tp=2", "mapping.both.pp=4", *LOAD, "workload.requests=400")
    run, steady = (
        evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns
        for fidelity in ("analytical", "steady_state")
    )
    for name in ("tpot", "throughput", "ttft"):
        assert float(steady[name][0]) == pytest.approx(float(run[name][0]), rel=0.1)


@pytest.mark.parametrize("fidelity", ["analytical", "steady_state"])
def test_rows_of_a_served_breakdown_add_up(fidelity: str) -> None:
    question = asked("chip=h200", "model=llama3_8b", "mapping.both.tp=2", "mapping.both.pp=3", *LOAD)
    parts = explain(question.base, question.workload.cases[0], fidelity=fidelity)
    assert any(row.operator == "transfer" for row in parts.rows)
    assert sum(row.seconds for row in parts.rows) == pytest.approx(parts.seconds, rel=1e-6)


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(("llama3_8b", "deepseek_v2_lite")), st.integers(1, 8), st.integers(2, 12))
def test_lower_bounds_stay_below(name: str, tp: int, pp: int) -> None:
    design, load = load_of("chip=h200", f"model={name}", "mapping.both.tp=1", *LOAD)
    plans = [f"mapping.{phase}" for phase in ("prefill", "decode")]
    design = replace_leaves(design, {f"{plan}.{leaf}": n for plan in plans for leaf, n in (("tp", tp), ("pp", pp))})
    layout: ServingLayout = serving_layout(design)
    (pool,) = layout.instances(design, load, "analytical")  # type: ignore[attr-defined]
    bounds = layout.work_lower_bounds(design, load)
    assert float(bounds.decode) <= float(pool.pricing(*map(np.array, (0.0, 0.0, 1.0, 100.0, 0.0))))
    assert 500 * float(bounds.prompt) <= float(pool.pricing(*map(np.array, (500.0, 250.5, 0.0, 0.0, 0.0))))
    assert (len(pool.shares), sum(pool.shares)) == (pp, pytest.approx(1.0))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("mapping.both.dp=2",), "replicas that serve are instances"),
        (("mapping.both.pp=2", "mapping.both.microbatches=3"), "mapping.both.microbatches=0"),
        (
            ("mapping.both.pp=2", "mapping.serving.policy=chunked_prefill", "mapping.serving.admission=policy"),
            "mapping.serving.admission=prompt",
        ),
        (("mapping.both.pp=33",), "mapping.both.pp=32 at most"),
        (("mapping.prefill.pp=2", "mapping.decode.pp=4"), "set mapping.both.pp"),
    ],
)
def test_settings_that_cannot_serve_say_what_would_do(words: tuple[str, ...], text: str) -> None:
    question = asked("chip=h200", "model=llama3_8b", "mapping.both.tp=2", *LOAD, *words)
    worst = explain_infeasibility(question.base, question.workload)
    assert worst is not None
    assert text in worst.remedy


def test_a_model_that_memory_does_not_hold_is_told_how_many_stages_would_do() -> None:
    words = "chip=groq", "model=llama2_70b", "mapping.both.tp=8", *LOAD
    question = asked(*words)
    worst = explain_infeasibility(question.base, question.workload)
    assert worst is not None
    stages = int(worst.remedy.split("mapping.both.pp=")[1])
    for count, fits in ((stages, True), (stages - 1, False)):
        question = asked(*words, f"mapping.both.pp={count}")
        assert (explain_infeasibility(question.base, question.workload) is None) == fits
