"""Tables of prices that designs share: the same to the bit whatever was priced before, and whatever comes after the last."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dse.config.compose import compose, find_study_folder
from dse.config.question import build_question
from dse.evaluators.accounting.serving_instances.prompt_table_points import integer_table_points
from dse.evaluators.accounting.serving_runs import run_metrics as served
from dse.evaluators.workloads.serving import deploy_load
from dse.space.fields import replace_leaves
from tests.marks import slow_if

SERVED = [
    ["chip=h200", "mapping=serving", "model=qwen3_32b"],
    ["chip=h100", "stack=vllm_allreduce_h100", "mapping.both.allreduce=library", "mapping=serving", "model=qwen3_8b"],
    ["chip=h200", "mapping=serving", "model=qwen3_30b_a3b"],
    ["chip=tile_gh200", "mapping=flat_serving", "model=llama3_8b"],
]


@slow_if(lambda words: "chip=tile_gh200" in words)
@pytest.mark.sampled
@pytest.mark.parametrize("words", SERVED, ids=lambda words: f"{words[0]}-{words[-1]}")
def test_what_was_priced_before_changes_no_run(words: list[str]) -> None:
    config = compose([*words, "workload=serving", "workload.requests=60"])
    question = build_question({**config, "space": {}}, find_study_folder(config))
    (load,) = question.workload.cases
    rng = np.random.default_rng(7)

    def last(batch: int) -> tuple[list[float], float]:
        run, tables = deploy_load(replace_leaves(question.base, {"mapping.serving.max_batch_size": batch}), load, "analytical")  # type: ignore[arg-type]
        return run.serve(load.requests)["completed"].tolist(), served.table_errors_by_design([tables])[0].mean  # type: ignore[union-attr]

    batches = [int(2 ** rng.uniform(0, 8)) for _ in range(3)]
    alone = []
    for batch in batches:
        served.TABLES.forget()
        served.ERRORS.forget()
        alone.append(last(batch))
    served.TABLES.forget()
    served.ERRORS.forget()
    assert [last(batch) for batch in batches] == alone
    if words[0] != "chip=tile_gh200":  # whose points are where its operators are cut
        assert len(served.TABLES) == 1


@pytest.mark.parametrize("seed", range(20))
def test_points_of_the_largest_table_are_those_of_all(seed: int) -> None:
    """Of tiles and wafers: where budgets and batches are powers of two, what the largest one has is what the others ask for."""
    rng = np.random.default_rng(seed)
    prompts = rng.integers(20, 3000, 3 if seed % 2 else 30)
    load = SimpleNamespace(requests=SimpleNamespace(prompt=prompts), longest=int(prompts.max() + rng.integers(1, 500)))
    sizes = [(int(2 ** rng.integers(1, 14)), int(2 ** rng.integers(0, 10))) for _ in range(6)]
    largest = integer_table_points(load, *(max(each) for each in zip(*sizes, strict=True)))  # type: ignore[arg-type]
    for prompt, batch in sizes:
        for axis, (most, few) in enumerate(zip(largest, integer_table_points(load, prompt, batch), strict=True)):  # type: ignore[arg-type]
            skipped = int((most < few[0]).sum())  # of more prompts at once
            assert skipped == 0 or axis == 1
            assert (most[skipped : skipped + len(few)] == few).all()


def test_a_long_request_after_the_last_changes_none_before_it() -> None:
    config = compose([*SERVED[0], "workload=serving", "workload.requests=60"])
    question = build_question({**config, "space": {}}, find_study_folder(config))
    (load,) = question.workload.cases
    many = load.requests  # type: ignore[union-attr]
    late = replace(
        many,
        arrival=np.append(many.arrival, many.arrival[-1] + 1e4),
        prompt=np.append(many.prompt, 30_000),
        output=np.append(many.output, 9),
    )
    runs = [
        deploy_load(question.base, replace(load, requests=requests), "analytical")[0].serve(requests)
        for requests in (many, late)
    ]  # type: ignore[type-var]
    assert runs[0]["completed"].tolist() == runs[1]["completed"][:-1].tolist()
