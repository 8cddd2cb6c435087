"""Designs in shares, evaluated by several processes: the same answers, whatever happens to a process."""

import os
from functools import partial
from pathlib import Path

import pytest

from dse.commands.notebook_api import find_study
from dse.execution.pool import dispatch, local_processes
from dse.execution.pool.choice import map_beside_this_process
from dse.execution.pool.local_processes import LocalWorker
from dse.execution.pool.worker_settings import WorkerSettings
from dse.explanations import parallel_evaluation as in_shares
from dse.explanations.explanation import study_goal
from dse.explanations.neighbours import StudyGoal, analytical_goal, evaluate_points
from dse.explanations.parallel_evaluation import evaluate_in_processes, split_designs
from dse.search.samplers import RandomSampler
from dse.space.design import Design, stack_designs
from dse.space.machines import machine_of
from tests.dse.pool_work import divided, elsewhere, wait_for_others
from tests.samples import AT_ONE_RATE

DESIGNS = 12


@pytest.fixture(scope="module")
def designs_and_goal() -> tuple[list[Design], StudyGoal]:
    """Random designs of all kinds of chips that serve a load, some of them twice, and what they are judged by."""
    study = find_study("mesh_llm", *AT_ONE_RATE, "workload.requests=20")
    space, goal = study.question.space, study_goal(study)
    sampler = RandomSampler(space, 5)
    designs = [space.design_at(sampler.ask(number, None).values) for number in range(DESIGNS)]
    return [*designs, *designs[:3]], analytical_goal(goal, space.base)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 50])
def test_each_design_is_in_one_share(designs_and_goal: tuple[list[Design], StudyGoal], count: int) -> None:
    different = list(dict.fromkeys(designs_and_goal[0]))
    parts = split_designs(different, count)
    assert sorted(map(different.index, (design for part in parts for design in part))) == list(range(len(different)))
    assert all(parts)
    assert len(parts) <= count
    structures = [len(stack_designs(part).groups) for part in parts]
    assert structures == sorted(structures, reverse=True)
    whole = [{machine_of(design.chip) for design in part} for part in parts]
    assert sum(map(len, whole)) == len(set.union(*whole)) or count > 1


def test_shares_of_a_kind_that_is_alone_are_even(designs_and_goal: tuple[list[Design], StudyGoal]) -> None:
    kinds: dict[str, list[Design]] = {}
    for design in dict.fromkeys(designs_and_goal[0]):
        kinds.setdefault(machine_of(design.chip), []).append(design)
    alike = max(kinds.values(), key=lambda designs: len(stack_designs(designs).groups))
    first, *others = (len(stack_designs(part).groups) for part in split_designs(alike, 2))
    assert first - sum(others) <= 1


def test_shares_come_out_as_all_at_once(
    designs_and_goal: tuple[list[Design], StudyGoal], monkeypatch: pytest.MonkeyPatch
) -> None:
    designs, goal = designs_and_goal
    monkeypatch.setattr(in_shares, "START_S", 0.0)
    monkeypatch.setattr(in_shares, "DESIGNS_PER_S", 1)
    monkeypatch.setattr(in_shares, "cpu_count", lambda: 2)
    used = list[int]()
    monkeypatch.setattr(
        in_shares,
        "map_beside_this_process",
        lambda work, parts: used.append(len(parts)) or map_beside_this_process(work, parts),
    )
    outcomes = evaluate_in_processes(designs, goal, WorkerSettings("auto"))
    assert used == [2]
    points = evaluate_points(designs, goal)
    for outcome, other in zip(outcomes, points, strict=True):
        assert outcome is not None
        assert other is not None
        assert outcome.violations_text == other.violations_text
        assert outcome.metrics == pytest.approx(other.metrics, rel=1e-9)
    few = [0, 1, 2, 3, 8, 12, len(designs) - 1]  # of three kinds of chips, one of them twice
    some = [designs[place] for place in few]
    for crew in (WorkerSettings("auto", 1), WorkerSettings()):
        assert evaluate_in_processes(some, goal, crew) == [points[place] for place in few]
    assert used == [2]
    assert None in evaluate_in_processes(designs, goal, WorkerSettings("auto"), seconds=0.05)
    assert used == [2, 2]


def test_what_a_process_fails_at_is_done_here() -> None:
    work = partial(elsewhere, process_id=os.getpid())
    assert map_beside_this_process(work, [[1, 2], [3], [-4]]) == [[1, 4], [9], [16]]


def test_large_shares_and_answers_do_not_wait_for_each_other() -> None:
    values = list(range(200_000))
    assert map_beside_this_process(partial(elsewhere, process_id=0), [[1], values]) == [
        [1],
        [value * value for value in values],
    ]


def test_where_processes_end_as_they_start_all_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_processes, "COMMAND", "raise SystemExit('no room')")
    work = partial(elsewhere, process_id=os.getpid())
    assert map_beside_this_process(work, [[1, 2], [3], [-4]]) == [[1, 4], [9], [16]]


def test_what_another_process_has_done_meanwhile_counts_however_long_this_one_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "START_LIMIT_S", 300.0)
    here, other = map_beside_this_process(partial(wait_for_others, process_id=os.getpid()), [str(tmp_path)] * 2)
    assert here == os.getpid()
    assert [str(other)] == [path.name for path in tmp_path.iterdir()]


def test_no_process_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = list[LocalWorker]()
    start = LocalWorker.__init__
    monkeypatch.setattr(LocalWorker, "__init__", lambda worker, *args: kept.append(worker) or start(worker, *args))
    with pytest.raises(ZeroDivisionError):
        map_beside_this_process(partial(divided, by=0), [1, 2])
    assert len(kept) == 1
    assert kept[0].process.poll() is not None
