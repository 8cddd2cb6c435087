"""The largest iterations of a pool: nothing that is simulated is larger, and full queues reach them."""

import numpy as np
import pytest

from dse.evaluators.accounting.serving_instances.device_memory import largest_iterations
from dse.evaluators.accounting.serving_instances.largest_iteration import LargestIteration, PoolRole, largest_iteration
from dse.evaluators.accounting.serving_runs import run_metrics as served
from dse.evaluators.serving.scheduling_policy import SHIPPED
from dse.evaluators.serving.simulator import ServingRun
from dse.evaluators.workloads.serving import serving_layout
from tests.samples import load_of

DEVICES = ("chip=h200", "model=qwen3_1b7", "workload=serving", "workload.arrivals=offline", "workload.requests=24")


def run(*words: str) -> tuple[ServingRun, list[LargestIteration]]:
    """A run of a load on devices with all its iterations, and the largest iteration of each pool."""
    design, load = load_of(*DEVICES, "workload.prompt=300", "workload.output=40", *words)
    deployment, _ = serving_layout(design).deploy_load(design, load, "analytical")
    return served.run_load(lambda requests: deployment, load, 10_000), largest_iterations(design.mapping, load)


@pytest.mark.parametrize("policy", ["static", "prefill_first", "orca", "inflight", "chunked_prefill"])
@pytest.mark.parametrize("tokens", [0, 700])
def test_no_simulated_iteration_is_larger(policy: str, tokens: int) -> None:
    words = (f"mapping.serving.policy={policy}", "mapping.serving.max_batch_size=10")
    played, (largest,) = run(*words, *((f"mapping.serving.max_batched_tokens={tokens}",) if tokens else ()))
    prompts, decodes = played.log["prompt"], played.log["requests"]
    assert prompts.max() <= largest.prompts
    assert decodes.max() <= largest.decodes == 10
    assert np.max(prompts + decodes) <= largest.tokens
    if policy != "static":  # whose batches are those of one iteration of prompts
        assert decodes.max() == 10
        assert prompts.max() >= min(largest.prompts, 300)


def test_requests_that_a_load_does_not_have_fill_no_iteration() -> None:
    _, (few,) = run("mapping.serving.max_batch_size=64", "workload.requests=5")
    assert few.decodes == 5


def test_a_pool_that_decodes_alone_computes_prompts_again_one_at_a_time() -> None:
    _, load = load_of(*DEVICES, "workload.prompt=300", "workload.output=40")
    decoding = PoolRole(prefills=False)
    assert largest_iteration(SHIPPED["prefill_first"], load, 8, decoding).prompts == 339
    assert largest_iteration(SHIPPED["orca"], load, 8, decoding).prompts == 0  # memory is reserved to the last token
    assert largest_iteration(SHIPPED["prefill_first"], load, 8, PoolRole(decodes=False)).decode_tokens == 0


def test_decodes_count_beside_whole_prompts_where_no_budget_has_them() -> None:
    """Only of requests that have no prompt in the iteration: all prompts at once leave none."""
    _, load = load_of(*DEVICES, "workload.prompt=300", "workload.output=40")
    few, all_of = (largest_iteration(SHIPPED["orca"], load, 8, PoolRole(), (tokens, 0, 0)) for tokens in (600, 0))
    shared = largest_iteration(SHIPPED["inflight"], load, 8, PoolRole(), (600, 0, 0))
    assert (few.beside, all_of.beside, shared.beside) == (6, 0, 0)
