"""Designs that differ in how their instances serve are played one by one; what they use is worked out at once, to the bit."""

import numpy as np
import pytest

from dse.evaluators import evaluate
from dse.evaluators.accounting.serving_instances import design_count
from dse.evaluators.accounting.serving_runs import run_metrics as served
from dse.evaluators.accounting.serving_runs import simulated_designs as at_once
from dse.evaluators.evaluation import find_worst_limits
from dse.evaluators.workloads.serving import serving_layout
from dse.space.design import stack_designs
from dse.space.fields import replace_leaves
from tests.samples import asked

SERVED = (
    "chip=h200",
    "model=llama3_8b",
    "mapping.precision.weights=bf16",
    "mapping.precision.activations=bf16",
    "mapping.precision.kv=bf16",
    "mapping=serving",
    "workload=serving",
    "workload.rate='30 Hz'",
    "workload.requests=60",
)


def _designs(rng: np.random.Generator, count: int) -> list[dict[str, object]]:
    """Some have pools of two kinds, some memories of their own; the first ones come twice."""
    drawn = [
        {
            "mapping.serving.instances": int(rng.integers(1, 4)),
            "mapping.serving.prefill_instances": int(rng.choice([0, 0, 2])),
            "mapping.serving.max_batch_size": int(rng.choice([2, 8, 64])),
            "mapping.serving.max_batched_tokens": int(rng.choice([0, 256, 2048])),
            "mapping.serving.policy": str(rng.choice(["chunked_prefill", "prefill_first"])),
            "chip.hbm.bandwidth": float(rng.choice([2e12, 4.8e12])),
        }
        for _ in range(count)
    ]
    return [*drawn, *drawn[:2]]


@pytest.mark.parametrize("output", [1, 40])
def test_many_designs_are_worth_what_each_is_alone(output: int) -> None:
    """With one token to a request, instances that decode have nothing to do."""
    question = asked(*SERVED, "workload.prompt=400", f"workload.output={output}")
    designs = [replace_leaves(question.base, design) for design in _designs(np.random.default_rng(3), 12)]
    many = evaluate(stack_designs(designs), question.workload)
    assert many.feasible.all()
    for row, design in enumerate(designs):
        alone = evaluate(stack_designs([design]), question.workload)
        for name, column in alone.columns.items():
            assert many.columns[name][row].tobytes() == column[0].tobytes(), (name, row)


def test_designs_at_once_differ_in_how_they_serve_alone() -> None:
    question = asked(*SERVED)
    rng = np.random.default_rng(4)
    rates, many = rng.choice([1e12, 2e12, 3e12], 30), rng.integers(1, 5, 30)
    pools = rng.choice([0.0, 1.0], 30)
    design = replace_leaves(
        question.base,
        {"chip.hbm.bandwidth": rates, "mapping.serving.instances": many, "mapping.serving.prefill_instances": pools},
    )
    rows = []
    for selected_rows, part in at_once.rows_by_serving(design):
        assert len(set(rates[selected_rows])) == len(set(pools[selected_rows])) == 1
        assert design_count(part) == (len(selected_rows) if len(selected_rows) > 1 else 0)
        rows += selected_rows.tolist()
    assert sorted(rows) == list(range(30))


@pytest.mark.parametrize("pools", [0, 2])
def test_designs_of_other_budgets_have_room_for_their_own_chunks(pools: int) -> None:
    """Limits of several at once are those of each, and a chunk's activations are what they differ in."""
    pooled = f"mapping.serving.prefill_instances={pools}"
    question = asked(*SERVED, "inference_engine=none", "workload.prompt=4000", "workload.output=4", pooled)
    address = "mapping.serving.prefill_max_batched_tokens" if pools else "mapping.serving.max_batched_tokens"
    settings = {
        "mapping.serving.policy": "chunked_prefill",
        "mapping.serving.prefill_policy": "chunked_prefill",
        "mapping.serving.max_batched_tokens": 128,
    }
    designs = [replace_leaves(question.base, {**settings, address: tokens}) for tokens in (256, 2048, 256, 512)]
    many = evaluate(stack_designs(designs), question.workload)
    limits = find_worst_limits(stack_designs(designs), question.workload)
    of_memory = set[float]()
    for row, design in enumerate(designs):
        alone, mine = (
            evaluate(stack_designs([design]), question.workload),
            find_worst_limits(stack_designs([design]), question.workload),
        )
        assert (limits.limit[row], limits.need[row], limits.have[row]) == (mine.limit[0], mine.need[0], mine.have[0])
        for name, column in alone.columns.items():
            assert many.columns[name][row].tobytes() == column[0].tobytes(), (name, row)
        (capacity, *_) = serving_layout(design).limits(design, question.workload.cases[0])
        of_memory.add(float(capacity.need))
    assert len(of_memory) == 3


def test_errors_of_tables_are_worked_out_at_once_when_somebody_asks() -> None:
    question = asked(*SERVED, "workload.prompt=400", "workload.output=40")
    designs = stack_designs(
        [replace_leaves(question.base, {"mapping.serving.max_batch_size": batch}) for batch in (2, 8, 64, 8)]
    )
    served.ERRORS.forget()
    quick = evaluate(designs, question.workload, metrics=["ttft"])
    assert "iteration_time_error" not in quick.columns
    assert "iteration_time_error" in quick.left
    assert not served.ERRORS
    (errors,) = evaluate(designs, question.workload).columns["iteration_time_error"].reshape(1, -1)
    assert len(served.ERRORS) == 3  # two have the same table
    assert errors[1] == errors[3]
    assert len(set(errors.tolist())) == 3
