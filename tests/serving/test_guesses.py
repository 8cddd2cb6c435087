"""Guessed tokens in the loop: laws on random loads, and served requests against batches of the same model."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.analysis.capacity import find_capacity
from dse.evaluators.accounting.serving_instances.tensor_parallel import _step_counts, _timed_iteration
from dse.evaluators.evaluation import limits
from dse.evaluators.graph.step_counts import prefill_step
from dse.evaluators.kernels.library.prefill_attention import MixedBatchAttention, PrefillAttention
from dse.evaluators.serving.iteration_time import linear_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.run_statistics import run_statistics
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import InstancePool, ServingRun, simulate_serving
from dse.evaluators.serving.speculation import uniform_draw
from dse.evaluators.serving.sustained_rate import sustained_rate
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.number_formats import BYTES_BY_FORMAT
from dse.space.parameter_counts import mtp_layers, sequence_memory
from dse.space.requests import make_requests
from dse.space.workload import BatchCase, Speculation
from tests.samples import asked, load_of, metrics
from tests.serving.reference import splitmix
from tests.serving.test_loop import Load, loads, streams

pytestmark = pytest.mark.usefixtures("flat_stack")

whole = st.integers(0, 2**62)


@given(whole, whole, whole, st.integers(0, 30))
def test_draws_are_hashes_by_splitmix(seed: int, request: int, made: int, guess: int) -> None:
    bits = 0
    for word in (seed, request, made, guess):
        bits = splitmix(bits ^ word)
    assert uniform_draw(seed, request, made, guess) == (bits >> 11) / 2**53


def test_splitmix_is_the_published_generator() -> None:
    """Its first numbers from 1234567, as implementations of [steele2014] print them."""
    step = 0x9E3779B97F4A7C15
    assert [splitmix((1234567 + k * step) % 2**64) for k in range(2)] == [6457827717110365317, 3203168211198807973]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 2**20))
def test_draws_are_even_and_do_not_know_their_neighbours(seed: int, request: int) -> None:
    uniform_draws = np.array([[uniform_draw(seed, request, made, guess) for guess in range(4)] for made in range(1000)])
    assert abs(uniform_draws.mean() - 0.5) < 6 * (1 / 12 / uniform_draws.size) ** 0.5
    for draws, other in (
        (uniform_draws[:, 0], uniform_draws[:, 1]),
        (uniform_draws[1:, 0], uniform_draws[:-1, 0]),
        (uniform_draws[1:, 0], uniform_draws[:-1, 1]),
    ):
        assert abs(np.corrcoef(draws, other)[0, 1]) < 6 / len(draws) ** 0.5


def _roomy(load: Load, **changes: object) -> ServingRun:
    """A load on instances whose memory holds all, and whose prompts go whole."""
    pools = [
        replace(
            pool,
            memory=KvMemory(100_000, 8),
            prefix=0,
            policy=make_policy("orca" if pool.policy.mixed else "prefill_first"),
            **changes,
        )
        for pool in load.pools
    ]
    return replace(load, pools=pools).served()


@pytest.mark.sampled
@settings(max_examples=40, deadline=None)
@given(loads(), st.integers(0, 4))
def test_guesses_that_are_never_right_change_nothing(load: Load, guesses: int) -> None:
    """Bit by bit, where the price is the same and memory and budgets have room for them."""
    without, with_them = _roomy(load, guesses=0), _roomy(load, guesses=guesses, acceptance=0.0)
    for name in ("scheduled", "first", "completed"):
        assert with_them[name].tolist() == without[name].tolist()
    assert with_them.total["guessed"] == 0
    assert with_them.state.gaps["count"].tolist() == without.state.gaps["count"].tolist()


@pytest.mark.sampled
@settings(max_examples=40, deadline=None)
@given(streams(), st.integers(1, 4), st.floats(0, 1), st.integers(0, 2**40), st.integers(0, 10**6))
def test_which_guesses_are_right_does_not_depend_on_who_serves(
    requests: object, guesses: int, acceptance: float, seed: int, draw: int
) -> None:
    rng, totals = np.random.default_rng(draw), []
    for _ in range(2):
        rule = make_policy(str(rng.choice(["prefill_first", "orca", "static", "chunked_prefill", "pd_fusion"])))
        pool = InstancePool(
            linear_time(*rng.uniform(0.1, 1, 5)),
            rule,
            KvMemory(100_000, 8),
            int(rng.integers(1, 4)),
            batch=int(rng.integers(1, 9)),
            guesses=guesses,
            acceptance=acceptance,
            seed=seed,
        )
        totals.append(simulate_serving(requests, [pool]).total)  # type: ignore[arg-type]
    assert totals[0]["guessed"] == totals[1]["guessed"]
    assert totals[0]["decoded"] == totals[1]["decoded"]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 5))
def test_guesses_that_are_always_right_are_as_many_tokens_an_iteration(prompt: int, output: int, guesses: int) -> None:
    pool = InstancePool(linear_time(0.5), make_policy("orca"), KvMemory(1000, 8), guesses=guesses, acceptance=1.0)
    run = simulate_serving(make_requests([(prompt, output)], [0.0]), [pool])
    assert run.total["iterations"] == 1 + -(-(output - 1) // (1 + guesses))
    if output > 1:
        assert run_statistics(run)["tpot"] == pytest.approx(0.5 * (run.total["iterations"] - 1) / (output - 1))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.floats(0, 1), st.integers(0, 2**31))
def test_as_many_are_right_as_a_batch_expects(guesses: int, acceptance: float, seed: int) -> None:
    pool = InstancePool(
        linear_time(0.01), make_policy("orca"), KvMemory(1 << 30), batch=64, guesses=guesses, acceptance=acceptance, seed=seed
    )
    requests = make_requests([(8, 2000)] * 20).with_arrivals("poisson", rate=0.001)
    run = simulate_serving(requests, [pool])
    expected = Speculation(guesses, acceptance).expected_tokens
    passes = run.total["decoded"]
    # an iteration's tokens lie between 1 and 1 + guesses; the last one of a request is cut
    assert run_statistics(run)["tokens_per_step"] == pytest.approx(
        expected, abs=6 * guesses / 2 / passes**0.5 + 20 * guesses / passes
    )
    assert sustained_rate(run.deployment, requests, tpot=np.inf).tpot == pytest.approx(0.01 / expected)


def test_a_budget_has_room_for_a_decode_with_its_guesses() -> None:
    with pytest.raises(DesignError, match="3 drafted tokens, and a budget of 3"):
        InstancePool(linear_time(1.0), make_policy("chunked_prefill", tokens=3), KvMemory(10), guesses=3)
    base, load = load_of("workload=serving", "model=glm_45_air", *GUESSED, "mapping.serving.policy=chunked_prefill")
    assert load.guesses == 1
    worst = asked(
        "workload=serving",
        "model=glm_45_air",
        *GUESSED,
        "mapping.serving.policy=chunked_prefill",
        "mapping.serving.max_batched_tokens=1",
    )
    from dse.evaluators.evaluation import find_worst_violation

    refused = find_worst_violation(worst.base, worst.workload)
    assert refused is not None
    assert refused.limit == "mapping.serving.max_batched_tokens"
    assert find_worst_violation(base, worst.workload) is None


GUESSED = ("workload.speculation={tokens: 1, acceptance: 0.7}", "chip.hbm.capacity=4 TB")


@pytest.mark.sampled
@pytest.mark.parametrize("model", ["glm_45_air", "qwen3_next_80b_a3b", "deepseek_v3"])
def test_served_requests_take_what_a_batch_takes(model: str) -> None:
    """Alone, and as many as a batch at once; but for sampling, and for the last iteration of each, which is cut.

    Alone is at fixed times that lie further apart than a request takes: of Poisson arrivals two may meet, however rare.
    """
    words = (f"model={model}", *GUESSED)
    lengths = ("workload.prompt=1024", "workload.output=256")
    served = ("workload=serving", *lengths, *words)
    single_metrics = metrics("workload.batch=[1]", *lengths, *words)
    rare = ("workload.arrivals=constant", "workload.rate=0.001 Hz", "workload.requests=40")
    alone = metrics(*served, *rare, "mapping.serving.policy=orca")
    assert alone["ttft"] + 255 * alone["tpot"] < 1000
    several = metrics("workload.batch=[16]", *lengths, *words)
    fast = ("workload.arrivals=offline", "mapping.serving.policy=static", "mapping.serving.max_batch_size=16")
    together = metrics(*served, "workload.requests=16", *fast)
    for batch, load in ((single_metrics, alone), (several, together)):
        assert load["ttft"] == pytest.approx(batch["ttft"], rel=0.02)
        assert load["tpot"] == pytest.approx(batch["tpot"], rel=0.015)


@pytest.mark.parametrize("model", ["glm_45_air", "qwen3_next_80b_a3b", "deepseek_v32", "step_37_flash"])
@pytest.mark.parametrize("chip", ["chip=h200 mapping.both.tp=1", "chip=npu_dse mapping.both.tp=1", "chip=tile_gh200"])
def test_modules_that_predict_tokens_have_caches_of_their_own(chip: str, model: str) -> None:
    """One layer of the kind of theirs more than a model without."""
    words = (
        *chip.split(),
        f"model={model}",
        "chip.hbm.capacity=40 TB",
        "workload.batch=[8]",
        "workload.prompt=3000",
        "workload.output=90",
    )
    held = {}
    for speculation in ("none", "{tokens: 1, acceptance: 0.7}"):
        question = asked(*words, f"workload.speculation={speculation}")
        found_limits = limits(question.base, question.workload)
        held[speculation] = max(
            float(np.max(dict(limit.parts)["KV cache"])) for limit in found_limits if "KV cache" in dict(limit.parts)
        )
    given_model, formats = question.workload.cases[0].model, question.base.mapping.precision
    mixing, _ = mtp_layers(given_model)
    (memory,) = (growth for growth in sequence_memory(given_model) if growth.layer.name == mixing.name)
    kept, scored = memory.kept_positions(3000 + 90 - 1)  # the last token is not cached
    more = 8 * (
        memory.kv * kept * BYTES_BY_FORMAT[formats.kv] + memory.scores * scored * BYTES_BY_FORMAT[formats.index or formats.kv]
    )
    assert held["{tokens: 1, acceptance: 0.7}"] - held["none"] == pytest.approx(more, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 64), st.integers(1, 3000), st.integers(0, 3))
def test_a_batch_has_as_many_prompts_whatever_is_guessed(batch: int, prompt: int, tokens: int) -> None:
    model = load_of("workload=serving", "model=glm_45_air")[1].model
    guessed = Speculation(tokens, 0.5) if tokens else None
    assert prefill_step(BatchCase("", model, ((batch, prompt, 10),), guessed)).sequences == batch


@pytest.mark.parametrize("seed", range(4))
def test_guesses_beside_prompts_are_not_asked_of_their_kernel(seed: int) -> None:
    """What a library is asked for the prompts of an iteration is the same with guesses; decodes have as many queries more."""
    rng = np.random.default_rng(seed)
    made_of = (*(float(rng.integers(*span)) for span in ((500, 900), (500, 3000), (1, 60), (64, 4000))), 0.0)
    compositions = []
    for speculation in ("none", "{tokens: 1, acceptance: 0.5}"):
        words = ("workload=serving", "chip=h100", "stack=trtllm_h100", "model=glm_45_air", "chip.hbm.capacity=4 TB")
        base, load = load_of(*words, f"workload.speculation={speculation}")
        step = _step_counts(load, "prefill", *(np.atleast_2d(count) for count in made_of[:4]))
        calls = [
            call
            for timed in _timed_iteration(base, load, replace_leaves(base.mapping.prefill, {"tp": 1}), step)
            for call in timed.block.calls
            if call.name == "attention"
        ]
        assert isinstance(calls[0].asked, MixedBatchAttention)
        compositions.append(calls[0].asked)
    plain, guessed = compositions
    for name in PrefillAttention._fields:
        assert np.all(getattr(guessed.prompts, name) == pytest.approx(getattr(plain.prompts, name))), name
    assert (plain.decodes.queries, guessed.decodes.queries) == (1.0, 2.0)
    assert guessed.decodes.keys == plain.decodes.keys + 1


def test_capacity_is_that_of_guesses() -> None:
    words = (
        "chip=h200",
        "model=glm_45_air",
        "devices=2",
        "workload.requests=200",
        "workload.prompt=3000",
        "workload.output=100",
    )
    bounds = ("workload.ttft=300 ms", "workload.tpot=20 ms", "disaggregated=false")
    rates = [
        find_capacity([*words, *bounds, f"workload.speculation={speculation}"])[0].best.rate  # type: ignore[union-attr]
        for speculation in ("none", "{tokens: 1, acceptance: 1.0}")
    ]
    assert rates[0] < rates[1]


def test_software_that_cannot_check_guesses_refuses_them() -> None:
    words = ("workload=serving", "chip=npu64", "mapping=npu_serving", GUESSED[0])
    with pytest.raises(DesignError, match=r"workload\.speculation: this mapping decodes a token at a time"):
        asked(*words)
