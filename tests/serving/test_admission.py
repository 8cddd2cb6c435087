"""What prompts must have to be taken up, blocks that are given, what engines keep, and measured runs beside the loop's."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.serving.iteration_time import linear_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.scheduling_policy import POLICIES, SchedulingPolicy
from dse.evaluators.serving.simulator import InstancePool, ServingRun, simulate_serving
from dse.evaluators.workloads.serving import kv_memory_by_pool
from dse.space.errors import DesignError
from dse.space.requests import Requests, make_requests
from dse.studies.measured_run import compare_runs, read_run, simulate_run
from tests.samples import asked as posed
from tests.samples import load_of, metrics

pytestmark = pytest.mark.usefixtures("flat_stack")

BY_CHUNK = replace(POLICIES["chunked_prefill"], tokens=8)
RULES = (replace(BY_CHUNK, by_chunk=False), replace(BY_CHUNK, gated=True), BY_CHUNK)
CHIP = ("chip=h100", "model=llama3_8b", "mapping=serving", "mapping.both.tp=1")


def _drawn(seed: int) -> Requests:
    rng = np.random.default_rng(seed)
    return make_requests(rng.integers(1, 60, (20, 2)), np.cumsum(rng.exponential(3.0, 20)))


def _played(requests: Requests, rule: SchedulingPolicy, blocks: int) -> ServingRun:
    return simulate_serving(requests, [InstancePool(linear_time(1.0, 0.25), rule, KvMemory(blocks, 4, spare=0.0))])


@pytest.mark.parametrize("seed", range(5))
def test_where_memory_is_plenty_it_does_not_matter_when_it_is_taken(seed: int) -> None:
    requests = _drawn(seed)
    runs = [_played(requests, rule, 10_000) for rule in RULES]
    assert all(run["completed"].tolist() == runs[0]["completed"].tolist() for run in runs)


@pytest.mark.parametrize("seed", range(5))
def test_blocks_for_the_chunk_never_take_somebody_up_later(seed: int) -> None:
    """A decode holds 25 of 30 blocks; a prompt of 40 begins beside it by chunk, and waits for its end by the other rules."""
    rng = np.random.default_rng(seed)
    requests = make_requests([(97, int(rng.integers(2, 4))), (40, 2)], [0.0, 0.5])
    whole, gate, chunk = (_played(requests, rule, 30)["scheduled"][1] for rule in RULES)
    assert chunk < gate == whole


@pytest.mark.parametrize("seed", range(5))
def test_a_prompt_whose_next_chunk_has_no_room_starts_again(seed: int) -> None:
    """The first keeps growing to the end of memory; who came last gives way, and all are served."""
    output = int(np.random.default_rng(seed).integers(12, 20))
    served = _played(make_requests([(97, output), (40, 2)], [0.0, 0.5]), BY_CHUNK, 30)
    assert served["preempted"].tolist()[0] == 0
    assert served["preempted"].tolist()[1] > 0
    assert served.total["lost"] > 0


def test_a_rule_that_could_never_end_is_refused() -> None:
    with pytest.raises(DesignError, match="one stage"):
        InstancePool(linear_time(1.0), BY_CHUNK, KvMemory(30, 4), shares=(0.5, 0.5))
    with pytest.raises(DesignError, match=r"policy\.by_chunk"):
        replace(POLICIES["orca"], by_chunk=True)
    with pytest.raises(DesignError, match=r"policy\.gated"):
        replace(POLICIES["orca"], gated=True)


def test_fewer_blocks_and_what_the_engine_keeps_make_requests_wait() -> None:
    busy = (*CHIP, "workload=serving", "workload.requests=60", "workload.arrivals=offline")
    roomy, few = metrics(*busy), metrics(*busy, "mapping.serving.kv_blocks=200")
    kept = metrics(*busy, "mapping.serving.reserved_memory=62 GB")
    assert roomy["kv_utilisation_peak"] < few["kv_utilisation_peak"]
    assert roomy["ttft"] < few["ttft"]
    assert roomy["kv_utilisation_peak"] < kept["kv_utilisation_peak"]


DIES = ("chip=h800_ep", "chip.dies.rows=1", "model=qwen3_30b_a3b", "mapping.both.ep=8", "mapping.both.tp=2")


@pytest.mark.parametrize("words", [CHIP, DIES])
def test_what_engines_keep_is_gone_from_each_device(words: tuple[str, ...]) -> None:
    """As if its memory were so much smaller, however many devices of an instance have caches of their own."""
    overrides = (*words, "workload=serving", "workload.requests=5", "mapping.serving.kv_blocks=9000")
    fewer = (("chip.hbm.capacity=80 GB", "mapping.serving.reserved_memory=7 GB"), ("chip.hbm.capacity=73 GB",))
    kept, smaller = (kv_memory_by_pool(*load_of(*overrides, *settings)) for settings in fewer)
    assert kept == smaller
    question = posed(*overrides, "mapping.serving.reserved_memory=79 GB")
    infeasibility = explain_infeasibility(question.base, question.workload)
    assert infeasibility is not None
    assert infeasibility.limit == "mapping.serving.reserved_memory"


@pytest.mark.parametrize(
    ("override", "limit"),
    [
        ("mapping.serving.kv_blocks=10000000", "mapping.serving.kv_blocks"),
        ("mapping.serving.kv_blocks=3", "mapping.serving.kv_blocks"),
        ("mapping.serving.reserved_memory=79 GB", "mapping.serving.reserved_memory"),
    ],
)
def test_blocks_that_are_not_there_or_do_not_do_are_limits(override: str, limit: str) -> None:
    question = posed(*CHIP, "workload=serving", "workload.requests=5", override)
    infeasibility = explain_infeasibility(question.base, question.workload)
    assert infeasibility is not None
    assert infeasibility.limit == limit


def test_a_run_that_the_loop_made_is_measured_as_it_was(tmp_path: Path) -> None:
    words = (*CHIP, "mapping.serving.kv_blocks=400", "mapping.serving.admission=gate")
    rng = np.random.default_rng(3)
    requests = make_requests(rng.integers(1, 900, (30, 2)), np.cumsum(rng.exponential(0.05, 30)))
    run = simulate_run(requests, words)
    path = tmp_path / "run.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "arrival_s", "prompt", "output", "first_token_s", "last_token_s"])
        columns = (requests.arrival, requests.prompt, requests.output, run.first, run.last)
        rows.writerows((number, *row) for number, row in enumerate(zip(*(c.tolist() for c in columns), strict=True)))
    again = read_run(path)
    assert [row.error for row in compare_runs(again, simulate_run(again.requests, words))] == pytest.approx([0.0] * 6, abs=1e-6)
    few = compare_runs(again, simulate_run(again.requests, (*CHIP, "mapping.serving.kv_blocks=150")))
    assert few[0].error > 0


def test_a_measured_run_that_is_broken_names_file_row_and_column(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("arrival_s,prompt,output,first_token_s,last_token_s\n0,5,2,1,2\n1,5,2,,3\n")
    with pytest.raises(DesignError, match=r"run\.csv, row 3, first_token_s"):
        read_run(path)
