"""Conversations: what a turn's prompt has, and what of it a pool that forgets nothing reuses."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.accuracy.validate import compose_question
from dse.config.question import Question
from dse.evaluators import METRICS, evaluate
from dse.evaluators.evaluation import results_by_class_and_turn
from dse.evaluators.serving.iteration_time import constant_time, linear_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.run_statistics import LOAD_STATUSES, offered_load, queue_growth, run_statistics, turn_results
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import Deployment, InstancePool, simulate_serving
from dse.evaluators.serving.traces import read_trace
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.requests import Requests
from dse.space.sessions import make_sessions

pytestmark = pytest.mark.usefixtures("flat_stack")


@st.composite
def talks(draw: st.DrawFn) -> Requests:
    return make_sessions(
        draw(st.integers(1, 6)), draw(st.sampled_from([1.0, 2.5, 6.0])), rate=draw(st.sampled_from([1e-6, 0.1])), think=1e6,
        system=draw(st.integers(0, 60)), question=draw(st.sampled_from([1.0, 20.0])), answer=draw(st.sampled_from([1.0, 50.0])),
        block=16, seed=draw(st.integers(0, 1000)),
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(talks())
def test_hashes_are_of_whole_blocks_of_prompt_and_answer(many: Requests) -> None:
    assert many.arrival[0] == 0
    assert (np.diff(many.arrival) >= 0).all()
    assert (many.spans == np.diff(many.starts) * 16).all()
    assert (many.spans <= many.total).all()
    assert (many.spans > many.prompt - 16).all()


@settings(max_examples=60, deadline=None)
@given(talks())
def test_answers_are_reused_by_the_next_turn(many: Requests) -> None:
    """One instance with room for all, and time to think: leading blocks that were computed before, never all of a prompt."""
    nobody = np.zeros(0, np.int32)
    spaced = replace(many, arrival=np.arange(len(many)) * 1e4, before=nobody, think=nobody, turns=nobody)
    pool = InstancePool(
        constant_time(1e-3), make_policy("chunked_prefill", tokens=4096), KvMemory(1 << 20, 4, spare=0.0), pooled=True
    )
    run = simulate_serving(spaced, [pool])
    before: set[int] = set()
    for r in range(len(many)):
        mine = many.hashes[many.starts[r] : many.starts[r + 1]].tolist()
        known = next((place for place, block in enumerate(mine) if block not in before), len(mine))
        assert run["hit"][r] == min(known, (many.prompt[r] - 1) // 16) * 16
        # the last token of an answer is never computed
        before |= set(mine[: (many.total[r] - 1) // 16])


def _pool(seed: int) -> InstancePool:
    rng = np.random.default_rng(seed)
    price = linear_time(*(float(value) for value in 10 ** rng.uniform((-3, -6, -9, -5, -8), (-2, -4, -7, -3, -6))))
    rule = make_policy(str(rng.choice(["chunked_prefill", "orca", "prefill_first"])))
    return InstancePool(
        price, rule, KvMemory(1 << 20, 4, spare=0.0), int(rng.integers(1, 3)), batch=16, pooled=bool(rng.integers(2))
    )


@settings(max_examples=60, deadline=None)
@given(talks(), st.integers(1, 9), st.floats(0.1, 10.0))
def test_a_turn_stands_below_the_answer_it_waits_for_however_sessions_begin(many: Requests, users: int, factor: float) -> None:
    lengths = sorted(zip(many.turns.tolist(), many.prompt.tolist(), many.output.tolist(), strict=True))
    for requests in (
        many,
        many.scale_times(factor),
        many.with_arrivals("poisson", rate=2.0, seed=3),
        many.as_closed_loop(users),
        many.at_once(),
    ):
        assert sorted(zip(requests.turns.tolist(), requests.prompt.tolist(), requests.output.tolist(), strict=True)) == lengths
        turn = np.flatnonzero(requests.before >= 0)
        assert (requests.before[turn] < turn).all()
        assert (requests.arrival[turn] == requests.arrival[requests.before[turn]] + requests.think[turn]).all()
        assert (np.diff(requests.arrival) >= 0).all()
        own = np.flatnonzero(requests.turns > 0)
        before = requests.before[own]
        assert (requests.turns[own] == requests.turns[before] + 1).all()
        assert (
            requests.prompt[own] > requests.prompt[before] + requests.output[before]
        ).all()  # all that was said, and a question
        asked_of_both = min(len(requests), 5)
        assert requests.first_requests(asked_of_both).before.max() < asked_of_both
    closed = many.as_closed_loop(users)
    assert (closed.before < 0).sum() == closed.population == min(users, int((many.turns == 0).sum()))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 12), st.sampled_from([0.0, 0.1, 5.0]))
def test_a_closed_population_is_never_backlogged_and_keeps_its_bounds(seed: int, users: int, think: float) -> None:
    """Users in turn ask no faster than each alone, nor than instances that always have work."""
    many = make_sessions(
        40, 3.0, rate=1.0, think=think, system=20, question=30.0, answer=20.0, block=16, seed=seed, cv=0.5, spread="geometric"
    )
    pool = replace(_pool(seed), instances=1, pooled=False)
    deployment = Deployment((pool,), None, "least_loaded")
    served_run = deployment.serve(many.as_closed_loop(users))
    verdict = LOAD_STATUSES[int(run_statistics(served_run)["load_status"])]
    assert verdict in ("stable", "saturated", "too short to say")
    assert queue_growth(served_run) == 0
    alone = deployment.serve(many.as_closed_loop(1))
    took, took_alone = ((run["completed"] - run.requests.arrival).mean() for run in (served_run, alone))
    assert took >= took_alone * (1 - 1e-9)
    load = offered_load(served_run)
    assert load == pytest.approx(users * offered_load(alone), rel=0.2)  # sessions begin in another order
    assert (verdict == "saturated") == (load > 1) or verdict == "too short to say"


def test_the_load_of_a_population_is_where_the_bounds_on_its_rate_meet() -> None:
    """One at a time, an instance serves a second in 1 s; users think 9 s: the tenth is the first that has to wait."""
    many = make_sessions(
        300, 4.0, rate=1.0, think=9.0, system=0, question=8.0, answer=1.0, block=16, seed=1, cv=0, spread="equal"
    )
    pool = InstancePool(constant_time(1.0), make_policy("orca"), KvMemory(1 << 20), batch=1)
    for users, load in ((5, 0.5), (10, 1.0), (20, 2.0)):
        run = simulate_serving(many.as_closed_loop(users), [pool])
        assert offered_load(run) == pytest.approx(load, rel=0.01)
        answered = float((run["completed"] - run.requests.arrival)[100:-100].mean())
        assert answered == pytest.approx(max(1.0, users * 1.0 - 9.0), rel=0.02)


def test_sessions_that_come_faster_than_they_are_served_are_overloaded() -> None:
    many = make_sessions(400, 4.0, rate=1.0, think=5.0, system=0, question=8.0, answer=4.0, block=16, seed=1)
    deployment = Deployment(
        (InstancePool(constant_time(1.0), make_policy("orca"), KvMemory(1 << 20), batch=1),), None, "least_loaded"
    )
    verdicts = []
    for rate in (0.1, 0.6):  # a request takes 4 s
        served_run = deployment.serve(many.with_arrivals("poisson", rate=rate, seed=2))
        verdicts.append(LOAD_STATUSES[int(run_statistics(served_run)["load_status"])])
        assert offered_load(served_run) == pytest.approx(4 * rate, rel=0.25)
    assert verdicts == ["stable", "overloaded"]


def test_turns_are_told_apart_by_their_places() -> None:
    many = make_sessions(50, 6.0, rate=1.0, think=1.0, system=64, question=20.0, answer=30.0, block=16, seed=4)
    run = simulate_serving(
        many,
        [
            InstancePool(
                constant_time(1e-3), make_policy("chunked_prefill", tokens=4096), KvMemory(1 << 20, 4, spare=0.0), pooled=True
            )
        ],
    )
    results = turn_results(run)
    assert [turn_result.name for turn_result in results][:4] == ["1", "2", "3-4", "5-8"]
    assert sum(turn_result.requests for turn_result in results) == len(many)
    reused = sum(turn_result.reused * turn_result.prompt * turn_result.requests for turn_result in results)
    assert reused == pytest.approx(float(run["hit"].sum()))
    assert results[0].reused < results[1].reused < results[2].reused  # of the first, the system's prompt alone
    third = (many.turns == 2) | (many.turns == 3)
    assert results[2].ttft == pytest.approx(float((run["first"] - run.requests.arrival)[third].mean()))
    assert (
        turn_results(
            simulate_serving(replace(many, before=many.before[:0], think=many.think[:0], turns=many.turns[:0]), run.pools)
        )
        == []
    )


def _line(**more: object) -> str:
    return json.dumps({"arrival_time_ns": 0} | more)


def test_sessions_of_a_file_wait_for_their_answers(tmp_path: Path) -> None:
    path = tmp_path / "agents.jsonl"
    ids = list(range(48))
    path.write_text(
        "\n".join(
            [
                _line(session_id="a", sub_requests=[
                    {"input_toks": 32, "output_toks": 16, "tool_duration_ns": 2_000_000_000, "input_tok_ids": ids[:32],
                     "output_tok_ids": ids[32:]},
                    {"input_toks": 50, "output_toks": 3, "tool_duration_ns": 0, "input_tok_ids": [*ids, 7, 7]},
                    {"input_toks": 60, "output_toks": 5},
                ]),
                _line(input_toks=9, output_toks=1, arrival_time_ns=1_000_000_000),
                _line(session_id="b", arrival_time_ns=1_500_000_000, sub_requests=[{"input_toks": 70, "output_toks": 2}]),
            ]
        )
    )  # fmt: skip
    many = read_trace(path)
    assert many.prompt.tolist() == [32, 9, 70, 50, 60]
    assert many.before.tolist() == [-1, -1, -1, 0, 3]
    assert many.think.tolist() == [0, 0, 0, 2, 0]
    assert many.turns.tolist() == [0, 0, 0, 1, 2]
    assert many.rows.tolist() == [1, 2, 3, 1, 1]
    pool = InstancePool(constant_time(0.5), make_policy("orca"), KvMemory(1 << 20, 16, spare=0.0), pooled=True)
    run = simulate_serving(many, [pool])
    assert run.requests.arrival[3] == run["completed"][0] + 2
    assert run.requests.arrival[4] == run["completed"][3]
    assert run["hit"][3] == 32  # the answer's last token is never computed


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (_line(sub_requests=[]), r"row 1, column sub_requests: \[\] is not a list of requests"),
        (_line(sub_requests=[{"input_toks": 3, "output_toks": 0}]), "row 1, request 1 of its session, column output_toks: 0"),
        (
            _line(
                sub_requests=[{"input_toks": 3, "output_toks": 1, "tool_duration_ns": -1}, {"input_toks": 3, "output_toks": 1}]
            ),
            "row 1, request 1 of its session, column tool_duration_ns: -1 is not a time of 0 or more",
        ),
    ],
)
def test_sessions_that_are_none_are_refused_with_their_place(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "agents.jsonl"
    path.write_text(line)
    with pytest.raises(DesignError, match=message):
        read_trace(path)


def _asked(words: str) -> Question:
    more = ("chip=h200", "model=llama3_8b", "model.max_position=131072", "workload=serving", "workload.requests=60")
    return compose_question((*more, "workload.prompt=100", "workload.output=30", *shlex.split(words))).question


def test_sessions_are_asked_for_in_words() -> None:
    question = _asked(
        "'workload.sessions={turns: 4, think: 2 s, system: 64}' mapping.serving.prefix_cache=shared workload.rate='8 Hz'"
    )
    (load,) = question.workload.cases
    assert len(load.requests) == 60
    assert load.requests.rate == pytest.approx(8, rel=0.6)
    columns = evaluate(stack_designs([question.base]), question.workload, fidelity="analytical").columns
    assert columns["prefix_hit_rate"][0] > 0.3
    assert sum(result.requests for result in results_by_class_and_turn(question.base, load, "analytical")[1]) == 60
    several = _asked("'workload.sessions={turns: 4, think: 0 s}' workload.arrivals=closed_loop 'workload.users=[1,8]'")
    cases = evaluate(stack_designs([several.base]), several.workload, fidelity="analytical", cases=True).cases
    assert cases["request_throughput"][1, 0] > 2 * cases["request_throughput"][0, 0]
    assert cases["offered_load"][1, 0] == pytest.approx(8 * cases["offered_load"][0, 0])
    assert METRICS["load_status"].words == LOAD_STATUSES


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("'workload.sessions={turns: 4}'", r"workload\.sessions\.think: missing; time from an answer to the next turn"),
        ("'workload.sessions={turns: 4, think: 2 s, sistem: 3}'", "did you mean 'system'"),
        ("'workload.sessions={turns: 0.5, think: 2 s}'", r"workload\.sessions\.turns: 0\.5 is below the minimum, 1"),
        ("'workload.sessions={turns: 4, think: 2 s, spread: even}'", r"workload\.sessions\.spread: no option 'even'"),
        ("workload.arrivals=closed_loop workload.users=3", "closed_loop needs sessions; set workload.sessions="),
        ("'workload.sessions={turns: 4, think: 2 s}' workload.arrivals=closed_loop", "arrivals=closed_loop needs"),
        ("'workload.sessions={turns: 4, think: 2 s}' workload.arrivals=closed_loop workload.users=999", "999 of"),
        ("'workload.sessions={turns: 4, think: 2 s}' workload.users=2", "needs arrivals=closed_loop"),
        ("'workload.sessions={turns: 4, think: 2 s}' workload.arrivals=closed_loop workload.rate=max", "loop has no rate"),
        ("'workload.sessions={turns: 4, think: 2 s}' workload.trace=x.csv", "leave one of trace and sessions out"),
    ],
)  # fmt: skip
def test_sessions_that_make_no_sense_are_refused_in_one_line(words: str, message: str) -> None:
    with pytest.raises(DesignError, match=message):
        _asked(words)


def test_the_steady_state_leaves_sessions_to_the_loop() -> None:
    question = _asked("'workload.sessions={turns: 4, think: 2 s}'")
    with pytest.raises(DesignError, match="session turns need a simulation"):
        evaluate(stack_designs([question.base]), question.workload, fidelity="steady_state")


def test_conversations_that_cannot_be_are_refused() -> None:
    with pytest.raises(DesignError, match="sessions: 0 sessions, 8 system tokens"):
        make_sessions(0, 2.0, rate=1.0, think=1.0, system=8, question=2.0, answer=2.0, block=16, seed=0)
    with pytest.raises(DesignError, match=r"0\.5 turns"):
        make_sessions(1, 0.5, rate=1.0, think=1.0, system=8, question=2.0, answer=2.0, block=16, seed=0)
