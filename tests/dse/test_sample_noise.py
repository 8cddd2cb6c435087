"""Margins to constraints against sample noise: intervals hold what lasts, and marks and headers say what is there."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dse.commands.notebook_api import StoredStudy, find_study
from dse.commands.run_study import run_study
from dse.commands.study_output import describe_load, print_sample, print_study
from dse.config.compose import compose
from dse.evaluators.serving.closed_loop import saturated_rate
from dse.evaluators.serving.iteration_time import linear_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import Deployment, InstancePool, ServingRun
from dse.execution.study import MetricConstraint, Study, build_study
from dse.execution.verify_streams import other_streams, stream_context
from dse.explanations.sample_noise import (
    LONG,
    STREAMS,
    STUDENT,
    BoundMargin,
    DesignSample,
    FrontSample,
    fixed_rate_text,
    is_sampled,
    list_streams,
    sample_front,
    standard_error,
)
from dse.report.payload import report_payload
from dse.space.errors import DesignError
from dse.space.requests import Requests, make_requests
from dse.space.workload import ServingLoad, workload_of_stream
from dse.store.store import Store

DEPLOYMENT = Deployment(
    (InstancePool(linear_time(2e-3, 3e-5, 1e-8, 4e-4), make_policy("prefill_first"), KvMemory(1 << 22), 1, batch=32),),
    None,
    "least_loaded",
)
"""One instance, whose iterations take longer with tokens and requests."""

SHORT, MANY = 150, 40
"""Requests of a short stream, and short streams."""


def draw(count: int, seed: int, rate: float) -> Requests:
    """Random requests of lognormal lengths that arrive at random."""
    rng = np.random.default_rng((5, seed))
    prompt, output = (np.clip(rng.lognormal(mean, 0.8, count), 1, 2000).astype(int) for mean in (5.0, 1.5))
    return make_requests(
        np.stack([prompt, output], 1), np.concatenate([[0.0], np.cumsum(rng.exponential(1 / rate, count - 1))])
    )


def measure(served: ServingRun, slo: float) -> tuple[float, ...]:
    """Attainment of a bound on TTFT, its 90th percentile, and mean TPOT."""
    ttft, requests = served["first"] - served.requests.arrival, served.requests
    tpot = (served["completed"] - served["first"])[requests.output > 1] / (requests.output[requests.output > 1] - 1)
    return float((ttft <= slo).mean()), float(np.percentile(ttft, 90, method="inverted_cdf")), float(tpot.mean())


@pytest.fixture(scope="module")
def rate() -> float:
    return 0.6 * float(saturated_rate(DEPLOYMENT, draw(4000, 0, 1.0)))


@pytest.mark.parametrize(("is_drawn", "least"), [(True, 0.85), (False, 0.75)])
def test_most_intervals_of_short_streams_hold_what_a_long_one_has(rate: float, is_drawn: bool, least: float) -> None:
    """Streams that are resampled from 150 requests know less than those that are drawn again, and hold it less often."""
    names = ("slo_attainment", "ttft_p90", "tpot")
    last = DEPLOYMENT.serve(draw(40_000, 10**6, rate))
    slo = float(np.quantile(last["first"] - last.requests.arrival, 0.88))
    truth = measure(last, slo)

    def measure_stream(load: ServingLoad | None) -> tuple[float, ...]:
        assert load is not None
        return measure(DEPLOYMENT.serve(load.requests), slo)

    held = np.zeros(len(names))
    for number in range(MANY):
        again = (lambda count, seed, rate, of=number: draw(count, 10_000 + 100 * of + seed, rate)) if is_drawn else None
        load = ServingLoad("", None, draw(SHORT, 1000 + number, rate), 1.0, 1.0, said=rate, draw=again)  # type: ignore[arg-type]
        values = np.array([measure_stream(load.other_stream(stream)) for stream in range(STREAMS)])
        longer = measure_stream(load.other_stream(STREAMS, LONG * SHORT))
        for at, name in enumerate(names):
            error = standard_error(name, values[:, at], SHORT, longer[at])
            held[at] += abs(values[0, at] - truth[at]) <= STUDENT * error
    assert ((held / MANY >= least) & (held / MANY <= 1.0)).all(), held / MANY


def test_more_requests_have_smaller_errors(rate: float) -> None:
    def error(count: int) -> float:
        again = lambda count, seed, rate: draw(count, 70 + seed, rate)  # noqa: E731
        load = ServingLoad("", None, draw(count, 3, rate), 1.0, 1.0, said=rate, draw=again)  # type: ignore[arg-type]
        streams = [load.other_stream(number) for number in range(STREAMS)]
        runs = [measure(DEPLOYMENT.serve(stream.requests), 1.0) for stream in streams if stream is not None]
        return standard_error("tpot", np.array([tpot for *_, tpot in runs]), count)

    assert error(6400) < error(400) / 2


def test_a_resampled_stream_has_the_requests_of_the_first_in_blocks() -> None:
    requests = make_requests([(row + 1, 1) for row in range(100)], draw(100, 1, 2.0).arrival)
    stream = requests.resample_blocks(250, seed=4)
    assert len(stream) == 250
    follow = np.mean(np.diff(stream.prompt) % 100 == 1)
    assert 0.88 <= follow <= 0.96  # blocks of ten
    gaps = np.diff(requests.arrival)
    assert np.isin(np.round(np.diff(stream.arrival), 9), np.round([*gaps, gaps.mean()], 9)).all()
    assert (stream.arrival == requests.resample_blocks(250, seed=4).arrival).all()
    assert (stream.arrival != requests.resample_blocks(250, seed=5).arrival).any()


def test_copies_of_a_request_share_no_prefix() -> None:
    starts, hashes = np.arange(0, 41, 2), np.repeat(np.arange(20), 2) * 2 + np.tile([0, 1], 20)
    requests = Requests(np.arange(20.0), np.full(20, 8), np.full(20, 2), starts=starts, hashes=hashes.astype(np.int32), block=4)
    assert requests.reusable == 0.0
    stream = requests.resample_blocks(60, seed=1)
    assert len(stream.hashes) == 120
    assert stream.reusable == 0.0


def test_turns_of_sessions_are_not_resampled() -> None:
    columns = {"before": np.array([-1, 0]), "think": np.zeros(2), "turns": np.arange(2)}
    sessions = Requests(np.arange(2.0), np.full(2, 8), np.full(2, 2), **columns)  # type: ignore[arg-type]
    with pytest.raises(DesignError, match="turns of sessions cannot be resampled"):
        sessions.resample_blocks(4, seed=1)
    assert ServingLoad("", None, sessions, 1.0, 1.0).other_stream(1) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("relation", "value", "error", "verdict"),
    [
        ("<=", 0.19, 0.01, "kept"),
        ("<=", 0.2, 0.01, "within noise"),
        ("<=", 0.23, 0.01, "within noise"),
        ("<=", 0.25, 0.01, "broken"),
        (">=", 0.25, 0.01, "kept"),
        (">=", 0.19, 0.01, "broken"),
        ("<=", 0.22, 0.0, "kept"),
        ("<=", 0.23, 0.0, "broken"),
        ("<=", 0.21, float("nan"), "kept"),
        ("<=", 0.23, float("nan"), "broken"),
    ],
)
def test_a_verdict_follows_from_margin_and_error(relation: str, value: float, error: float, verdict: str) -> None:
    margin = BoundMargin(MetricConstraint("tbt_p99", relation, 0.22), value, error)
    assert margin.verdict == verdict
    assert margin.record().verdict == verdict
    assert verdict in margin.text()


def noisy_sample() -> FrontSample:
    bound = MetricConstraint("tbt_p99", "<=", 0.22)
    near, far = (BoundMargin(bound, value, 0.006) for value in (0.219, 0.1))
    designs = {"aa": DesignSample(0.98, (near,), True), "bb": DesignSample(0.04, (far,), True)}
    return FrontSample("at 1 request/s on one system each", 150, designs)


def test_a_front_says_its_load_and_its_marks(capsys: pytest.CaptureFixture[str]) -> None:
    print_sample(noisy_sample())
    text = capsys.readouterr().out
    assert "at 1 request/s on one system each; designs differ in how much of them that uses: 4 to 98 % on the front" in text
    assert "1 of 2 designs of the front is within noise of a constraint (95 %, 8 streams of 150 requests" in text
    assert "aa: tbt_p99 219 ms (+-14.2 ms; bound 220 ms: within noise)" in text
    assert "bb: " not in text


def test_a_design_without_time_is_counted() -> None:
    sample = noisy_sample()
    more = FrontSample(sample.rate, 150, {**sample.designs, "cc": DesignSample(0.5, (), False)})
    assert more.noise_text.endswith("1 more were not looked at, for lack of time")


SERVED = (
    "name=served",
    "chip=npu_dse",
    "model=qwen3_1b7",
    "workload=serving",
    "workload.prompt=256",
    "workload.output=16",
    "workload.requests=60",
    "workload.rate='700 Hz'",
    "+space.chip.clock='tag(GHz, choice(0.4,0.8,1.6))'",
    "+objectives.system_mm2=min",
    "+objectives.energy_per_token=min",
    "+constraints.ttft_p90='<= 1 s'",
    "fidelity=steady_state",
    "search=none",
    "verify=next",
    "verify.designs=2",
    "verify.off_front=0",
    "verify.seeds=3",
    "workers=serial",
    "seed=3",
)


def served(folder: Path, *words: str) -> Study:
    """A small study of a die that serves requests at a rate."""
    return build_study(compose([*SERVED, f"run_dir={folder}", *words]), folder)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, str]:
    """The study after a run, and what the run said."""
    study = served(tmp_path_factory.mktemp("served"))
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dse.commands.run_study.say", said.append)
        assert run_study(study) == 0
    return study, "\n".join(said)


def test_a_run_begins_with_the_rate_that_all_designs_have(ran: tuple[Study, str]) -> None:
    first = "at 700 requests/s on one system each; designs differ in how much of them that uses (offered_load)"
    assert f"load: {first}; workload.rate=max compares them at the largest rate of each" in ran[1]


def test_load_and_noise_of_a_stored_front_are_shown(ran: tuple[Study, str], capsys: pytest.CaptureFixture[str]) -> None:
    stored = StoredStudy(ran[0])
    sample = stored.front_sample()
    assert sample is not None
    assert sample.load_range is not None
    assert print_study(ran[0], stored.runs(), sample, stored.frame) == 0
    text = capsys.readouterr().out
    assert "load         at 700 requests/s on one system each; designs differ in how much of them that uses: " in text
    assert "noise        0 of 2 designs of the front are within noise of a constraint" in text
    front = stored.front()
    assert list(sample.designs) == list(front["design"])
    loads = {name: one.load for name, one in sample.designs.items()}
    assert all(loads[row["design"]] == pytest.approx(row["offered_load"]) for row in front.to_dict("records"))


def test_a_design_next_to_its_bound_is_within_noise_and_one_far_from_it_is_not(ran: tuple[Study, str]) -> None:
    study = ran[0]
    frame = StoredStudy(study).frame()
    value = float(frame.loc[frame["front"], "ttft_p90"].iloc[0])
    near = replace(study, bounds=(MetricConstraint("ttft_p90", "<=", 1.001 * value),))
    sample = sample_front(near, frame)
    first = next(iter(sample.designs.values()))
    assert first.is_evaluated
    assert [margin.sigmas < 1 for margin in first.noisy] == [True]
    assert not sample_front(study, frame).noisy


def test_what_was_worked_out_is_kept_and_not_worked_out_again(ran: tuple[Study, str]) -> None:
    study, known = ran[0], {}
    frame = StoredStudy(study).frame()
    first = sample_front(study, frame, known.get, known.__setitem__)
    assert len(known) == 2
    again = sample_front(study, frame, known.get, seconds=0.0)
    assert again == first


def test_report_and_json_have_load_and_margins(ran: tuple[Study, str]) -> None:
    study = ran[0]
    payload = report_payload([StoredStudy(study).part()])
    (record,) = payload["studies"]
    assert record["sample"]["rate"] == "at 700 requests/s on one system each"
    assert {row: [margin["verdict"] for margin in margins] for row, margins in record["sample"]["margins"].items()} == {
        "0": ["kept"],
        "1": ["kept"],
    }
    assert "offered_load" in [column["name"] for column in payload["columns"]]


def test_verified_designs_are_simulated_with_other_streams(ran: tuple[Study, str]) -> None:
    study = ran[0]
    verification = StoredStudy(study).verification()
    assert verification is not None
    assert [(verdict.simulated, verdict.kept) for verdict in verification.verdicts] == [(3, 3), (3, 3)]
    assert verification.verdict_text == "2 of 2 designs keep their constraints in all 3 streams of requests at analytical"
    (first, second), values = other_streams(study), []
    with closing(Store(study.store)) as store:
        for workload in (study.question.workload, first, second):
            results = store.results(stream_context(workload, "analytical"))
            values.append([result.metrics["ttft_p90"] for result in results.values()])
    assert len({*map(tuple, values)}) == 3


def test_a_design_that_breaks_a_bound_in_some_streams_is_named(ran: tuple[Study, str]) -> None:
    study = ran[0]
    with closing(Store(study.store)) as store:
        context = study.context_at("analytical")
        value = max(result.metrics["ttft_p90"] for result in store.results(context).values())
    strict = replace(study, bounds=(MetricConstraint("ttft_p90", "<=", 0.5 * value),))
    verification = StoredStudy(strict).verification()
    assert verification is None or not verification.verdicts or verification.broken_verdicts


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["workload.rate='2 Hz'"], "at 2 requests/s on one system each"),
        (["workload.rate='1 Hz'"], "at 1 request/s on one system each"),
        (["workload.rate=[1 Hz,2 Hz,4 Hz]"], "at 1, 2 and 4 requests/s on one system each"),
        (["workload.rate=max", "fidelity=analytical", "verify.seeds=1"], ""),
        (["workload.arrivals=offline", "fidelity=analytical", "verify=none"], ""),
    ],
)
def test_only_fixed_rates_are_told(tmp_path: Path, words: list[str], text: str) -> None:
    study = served(tmp_path, *words)
    assert fixed_rate_text(study.question.workload) == text
    assert bool(describe_load(study)) == bool(text)


def test_batches_say_nothing_of_a_rate(tmp_path: Path) -> None:
    study = find_study("quickstart", f"run_dir={tmp_path}")
    assert not describe_load(study)
    assert not is_sampled(study.question.workload)
    assert list_streams(study.question.workload) == []
    assert workload_of_stream(study.question.workload, 1) is None


def test_several_seeds_need_several_streams(tmp_path: Path) -> None:
    with pytest.raises(DesignError, match=r"verify\.seeds: 5, but this workload has one stream of requests; set 1 for batches"):
        find_study("quickstart", "verify.seeds=5", f"run_dir={tmp_path}")
    with pytest.raises(DesignError, match=r"verify\.seeds: 0 is below the minimum, 1"):
        served(tmp_path, "verify.seeds=0")
