"""Caches that go layer by layer behind prefill: the recurrence against a link that is played part by part, and in words."""

import shlex
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.accuracy.validate import compose_question
from dse.config.question import Question
from dse.evaluators import evaluate
from dse.evaluators.accounting.serving_runs.steady_state_run import steady_state_columns
from dse.evaluators.serving.iteration_time import linear_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.run_statistics import SloTargets, run_statistics
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import Deployment, InstancePool
from dse.evaluators.serving.simulator_state import KvTransfer
from dse.evaluators.serving.steady_state_solver import solve_deployment
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.lazy_metrics import compute_all
from dse.space.requests import make_requests

PRICE = linear_time(0.5, prefill_token=0.125, decode_request=0.25)


def _apart(transfer: KvTransfer, chunk: int = 0, instances: int = 1) -> Deployment:
    first = make_policy("chunked_prefill", tokens=chunk, by_chunk=False) if chunk else make_policy("prefill_first")
    pools = (
        InstancePool(PRICE, first, KvMemory(1 << 16), instances, batch=8),
        InstancePool(PRICE, make_policy("orca"), KvMemory(1 << 16), instances, batch=64),
    )
    return Deployment(pools, transfer, "least_loaded")


def _played(chunks: list[tuple[float, float, float]], layers: int, busy: float) -> float:
    """When a link that is busy until then has sent parts, each after those before it and after its layer is computed."""
    free = busy
    for start, end, taken in chunks:
        for layer in range(layers):
            free = max(free, start + (end - start) * (layer + 1) / layers) + taken / layers
    return free


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 60), st.integers(1, 9), st.sampled_from([0, 1, 7, 100]), st.floats(1e-4, 2.0), st.floats(0, 0.5),
    st.integers(1, 3),
)  # fmt: skip
def test_a_cache_is_there_when_a_link_that_is_played_has_sent_it(
    prompt: int, layers: int, chunk: int, per_token: float, latency: float, many: int
) -> None:
    """Several prompts at once, one channel: each chunk of each is as many parts as layers."""
    deployment = _apart(KvTransfer(per_token, latency, 1, True, layers=layers), chunk)
    served_run = deployment.serve(make_requests([(prompt, 2)] * many, np.zeros(many)), log=1000)
    log = served_run.log[served_run.log["instance"] == 0]
    busy = 0.0
    order = np.argsort(served_run["first"], kind="stable")
    spans: dict[int, list[tuple[float, float, float]]] = {r: [] for r in range(many)}
    left = dict.fromkeys(range(many), prompt)
    for entry in log:  # first come, first served: an iteration's tokens are those of the first prompts that have some left
        tokens = int(entry["prompt"])
        for r in range(many):
            part = min(tokens, left[r])
            if part:
                spans[r].append((float(entry["start"]), float(entry["end"]), per_token * part))
                left[r], tokens = left[r] - part, tokens - part
    for r in order.tolist():
        busy = _played(spans[r], layers, busy)
        assert served_run["ready"][r] == pytest.approx(busy + latency, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.integers(1, 80), st.floats(1e-4, 2.0))
def test_what_is_exposed_is_the_last_layer_or_what_the_link_has_not_caught_up_with(
    prompt: int, layers: int, per_token: float
) -> None:
    sent, taken = per_token * prompt, 0.5 + 0.125 * prompt
    whole = _apart(KvTransfer(per_token, 0.0, 1, True)).serve(make_requests([(prompt, 2)], [0.0]))
    by_layer = _apart(KvTransfer(per_token, 0.0, 1, True, layers=layers)).serve(make_requests([(prompt, 2)], [0.0]))
    assert whole["ready"][0] - whole["first"][0] == pytest.approx(sent)
    left = max(sent / layers, sent - taken * (layers - 1) / layers)
    assert by_layer["ready"][0] - by_layer["first"][0] == pytest.approx(left)
    assert by_layer["first"][0] == whole["first"][0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_by_layer_is_never_later_than_whole_where_caches_have_a_channel_each(seed: int, layers: int) -> None:
    rng = np.random.default_rng(seed)
    requests = make_requests(rng.integers(1, 60, (20, 2)), np.cumsum(rng.exponential(20, 20)))
    sent = KvTransfer(float(rng.uniform(0.001, 0.5)), 0.0, 20, True)
    whole, parts = (_apart(sent._replace(layers=n)).serve(requests) for n in (0, layers))
    several = requests.output > 1
    assert (parts["ready"][several] <= whole["ready"][several] + 1e-9).all()


def test_what_finds_no_room_when_its_prompt_is_done_goes_whole() -> None:
    deployment = _apart(KvTransfer(1.0, 0.0, 1, True, layers=4))
    full = replace(deployment.pools[1], batch=1)
    served_run = deployment._replace(pools=(deployment.pools[0], full)).serve(make_requests([(8, 40), (8, 2)], [0.0, 0.0]))
    first, second = served_run["ready"]
    assert first - served_run["first"][0] < 8
    assert second == served_run["completed"][0] + 8


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 900), st.sampled_from([0, 100]), st.integers(1, 60), st.floats(1e-4, 0.5))
def test_the_steady_state_says_the_same_of_a_request_alone(prompt: int, chunk: int, layers: int, per_token: float) -> None:
    deployment = _apart(KvTransfer(per_token, 0.25, 1, True, layers=layers), chunk)
    requests = make_requests([(prompt, 9)] * 3, 1e6 * np.arange(3))
    loop, steady = (
        run_statistics(deployment.serve(requests), SloTargets()),
        compute_all(steady_state_columns(solve_deployment(deployment, requests), requests)),
    )
    # chunks count as equal there
    assert steady["tpot"] == pytest.approx(loop["tpot"], rel=1e-5 if not chunk or prompt % chunk == 0 else 0.3)


def _asked(words: str) -> Question:
    more = ("workload=serving", "workload.requests=40", "workload.prompt=2000", "workload.output=30", "workload.rate=4 Hz")
    return compose_question((*more, *shlex.split(words))).question


LINES = {
    "dies": "chip=h200 model=llama3_8b mapping.serving.prefill_instances=1",
    "tiles": "chip=npu64 model=qwen3_4b mapping.both.tp=4 mapping.both.pp=4 mapping.serving.prefill_cores=32",
    "many dies": "chip=h800_ep model=qwen3_30b_a3b mapping.both.ep=8 mapping.both.dp=1 mapping.serving.prefill_instances=1",
    "wafers": "chip=wse2 model=llama3_8b mapping.serving.prefill_instances=1",
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", LINES)
def test_by_layer_takes_less_between_prefill_and_decode(name: str) -> None:
    columns = []
    for word in ("whole", "layerwise"):
        question = _asked(f"{LINES[name]} mapping.serving.kv_transfer={word}")
        columns.append(evaluate(stack_designs([question.base]), question.workload).columns)
    assert columns[1]["ttft"][0] == pytest.approx(columns[0]["ttft"][0])
    assert columns[1]["tpot"][0] < columns[0]["tpot"][0]


@pytest.mark.parametrize(
    "words", ["chip=h200 model=llama3_8b", "chip=npu64 model=qwen3_4b mapping.both.tp=4 mapping.both.pp=4"]
)
def test_where_nothing_is_sent_the_word_is_refused(words: str) -> None:
    with pytest.raises(DesignError, match=r"mapping\.serving\.kv_transfer: has no effect"):
        _asked(f"{words} mapping.serving.kv_transfer=layerwise")
