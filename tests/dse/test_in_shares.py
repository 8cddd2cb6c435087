"""Designs in shares, evaluated by several processes: the same answers, whatever happens to a process."""

import os
from functools import partial

import pytest

from dse.commands.api import study_of
from dse.running import beside as processes
from dse.running.beside import beside
from dse.running.workers import Crew
from dse.search.samplers import Uniform
from dse.space.design import Design, stacked
from dse.space.machines import machine_of
from dse.why import in_shares
from dse.why.in_shares import points_in_shares, shares
from dse.why.moves import Goal, points, quick
from dse.why.why import goal_of

DESIGNS = 24


@pytest.fixture(scope="module")
def asked() -> tuple[list[Design], Goal]:
    """Random designs of all kinds of chips that serve a load, some of them twice, and what they are judged by."""
    study = study_of("mesh_llm", "workload.requests=20")
    space, goal = study.question.space, goal_of(study)
    sampler = Uniform(space, 5)
    designs = [space.at(sampler.ask(number, None).values) for number in range(DESIGNS)]
    return [*designs, *designs[:3]], quick(goal, space.base)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 50])
def test_each_design_is_in_one_share(asked: tuple[list[Design], Goal], count: int) -> None:
    different = list(dict.fromkeys(asked[0]))
    parts = shares(different, count)
    assert sorted(map(different.index, (design for part in parts for design in part))) == list(range(len(different)))
    assert all(parts)
    assert len(parts) <= count
    structures = [len(stacked(part).groups) for part in parts]
    assert structures == sorted(structures, reverse=True)
    whole = [{machine_of(design.chip) for design in part} for part in parts]
    assert sum(map(len, whole)) == len(set.union(*whole)) or count > 1


def test_shares_of_a_kind_that_is_alone_are_even(asked: tuple[list[Design], Goal]) -> None:
    kinds: dict[str, list[Design]] = {}
    for design in dict.fromkeys(asked[0]):
        kinds.setdefault(machine_of(design.chip), []).append(design)
    alike = max(kinds.values(), key=lambda some: len(stacked(some).groups))
    first, *others = (len(stacked(part).groups) for part in shares(alike, 2))
    assert first - sum(others) <= 1


def test_shares_come_out_as_all_at_once(asked: tuple[list[Design], Goal], monkeypatch: pytest.MonkeyPatch) -> None:
    designs, goal = asked
    monkeypatch.setattr(in_shares, "START", 0.0)
    monkeypatch.setattr(in_shares, "EACH_SECOND", 1)
    monkeypatch.setattr(in_shares, "cpus", lambda: 2)
    used = list[int]()
    monkeypatch.setattr(in_shares, "beside", lambda work, parts: used.append(len(parts)) or beside(work, parts))
    found = points_in_shares(designs, goal, Crew("auto"))
    assert used == [2]
    here = points(designs, goal)
    for one, other in zip(found, here, strict=True):
        assert one is not None
        assert other is not None
        assert one.why == other.why
        assert one.metrics == pytest.approx(other.metrics, rel=1e-9)
    assert points_in_shares(designs, goal, Crew("auto", 1)) == here
    assert points_in_shares(designs, goal, Crew()) == here
    assert used == [2]
    assert None in points_in_shares(designs, goal, Crew("auto"), seconds=0.05)
    assert used == [2, 2]


def elsewhere(values: list[int], here: int) -> list[int]:
    """Squares, some of them printed; fails where a value is negative, in any other process than one."""
    print(values[:3])
    if min(values) < 0 and os.getpid() != here:
        raise ValueError
    return [value * value for value in values]


def test_what_a_process_fails_at_is_done_here() -> None:
    work = partial(elsewhere, here=os.getpid())
    assert beside(work, [[1, 2], [3], [-4]]) == [[1, 4], [9], [16]]


def test_large_shares_and_answers_do_not_wait_for_each_other() -> None:
    values = list(range(200_000))
    assert beside(partial(elsewhere, here=0), [[1], values]) == [[1], [value * value for value in values]]


def test_no_process_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = list[object]()
    start = processes._asked
    monkeypatch.setattr(processes, "_asked", lambda work, share: kept.append(start(work, share)) or kept[-1])
    with pytest.raises(ZeroDivisionError):
        beside(partial(divided, by=0), [1, 2])
    assert len(kept) == 1
    assert kept[0].poll() is not None


def divided(value: int, by: int) -> float:
    """A value by another."""
    return value / by
