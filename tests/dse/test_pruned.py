"""Screens that leave out what bounds keep off the front find the front of screens that evaluate every design."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dse.commands.notebook_api import find_study
from dse.evaluators.accounting.serving_instances.design_parts import single_rows
from dse.evaluators.accounting.serving_runs import metric_bounds as optimistic
from dse.evaluators.serving.steady_state import request_mix
from dse.evaluators.workloads.serving import instance_layout, serving_layout
from dse.execution import screen_block as block
from dse.execution.bound_pruning import BEATEN, LIMITS
from dse.execution.screen import ScreenResult, encode_rows, load_stored_screen, run_screen, screen_left_out_text
from dse.execution.study import Study
from dse.report.caveats import find_discarded_rows_caveats
from tests.samples import AT_ONE_RATE

CHIPS = "chips=[npu_whole,tile_gh200,wafer64,npu_dse]"
"""Layouts whose designs take long, and dies."""


def of(folder: Path, *words: str, chips: str = CHIPS, limit: int = 32) -> Study:
    """A small screen of the machines of four papers."""
    given = (chips, f"screen.limit={limit}", "seed=11", "workers.kind=serial", f"run_dir={folder}")
    return find_study("mesh_llm", *AT_ONE_RATE, *given, *words)


def same(mine: ScreenResult, its: ScreenResult, study: Study) -> None:
    """Asserts that two fronts are one; metrics that nobody asks for are there or not."""
    names = [*(knob.address for knob in study.question.space.knobs), *block.requested_metrics(study), "limit", "excess"]
    pd.testing.assert_frame_equal(mine.front[names], its.front[names])


def screened(study: Study) -> ScreenResult:
    return run_screen(study, lambda done, total, size: None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, ScreenResult]:
    """Every design evaluated."""
    study = of(tmp_path_factory.mktemp("whole"))
    return study, screened(study)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few designs are evaluated before others are left out."""
    monkeypatch.setattr(block, "FIRST", 4)
    monkeypatch.setattr(block, "MORE", 1)


@pytest.mark.sampled
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "words", [(), ("~objectives.energy_per_token", "~objectives.tbt_p99"), ("~constraints.slo_attainment",)]
)
def test_the_front_is_that_of_a_screen_of_every_design(whole: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    study = of(tmp_path / "all", "screen.keep=front", *words)
    every = screened(study) if words else whole[1]
    study = of(tmp_path / "some", "screen.keep=front", "screen.prune=true", *words)
    result = screened(study)
    same(result, every, study)
    out = sum(result.pruned.values())
    assert result.pruned[LIMITS] > 0
    assert result.pruned[BEATEN] > 0
    assert result.rows == every.rows == result.evaluated + out
    assert every.feasible - result.pruned[BEATEN] <= result.feasible <= every.feasible
    # what is stored says the same, and nothing is evaluated again
    for again in (load_stored_screen(study), screened(study)):
        assert again is not None
        assert (again.rows, again.evaluated, again.pruned, again.feasible) == (result.rows, 0, result.pruned, result.feasible)
        same(again, result, study)
    assert "may be feasible or not" in screen_left_out_text(result)
    assert screen_left_out_text(result) in find_discarded_rows_caveats(study, result)[0].text


@pytest.mark.usefixtures("small")
def test_a_screen_that_ends_early_goes_on_with_the_same_front(whole: Any, tmp_path: Path) -> None:
    study = of(tmp_path, "screen.keep=front", "screen.prune=true")

    def until(done: int, total: int, size: int) -> None:
        if done > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_screen(study, until)
    before = load_stored_screen(study)
    assert before is not None
    assert 0 < before.rows < 32
    result = screened(study)
    assert result.evaluated == result.rows - before.rows - sum(result.pruned.values())
    same(result, whole[1], study)


@pytest.mark.usefixtures("small")
def test_workers_find_what_one_process_does_and_go_on_where_it_ended(whole: Any, tmp_path: Path) -> None:
    """Bounds in parts as well as evaluations, on workers that stay from round to round."""
    alone = screened(of(tmp_path / "alone", "screen.keep=front", "screen.prune=true"))
    study = of(tmp_path / "shared", "screen.keep=front", "screen.prune=true", "workers.kind=ray", "workers.count=2")
    rows: list[int] = []

    def until(done: int, total: int, size: int) -> None:
        rows.append(done)
        if done > 28:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_screen(study, until)
    assert min(rows) < 28, "bounds have left out some, and say so"
    before = load_stored_screen(study)
    assert before is not None
    assert before.rows > 0
    result = screened(study)
    same(result, whole[1], study)
    same(result, alone, study)
    assert result.evaluated == result.rows - before.rows - sum(result.pruned.values())
    assert result.pruned == alone.pruned


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, ScreenResult]:
    """Pipelines and wafers, every design evaluated; one request a second is too much for most of them."""
    study = of(tmp_path_factory.mktemp("others"), chips="chips=[npu64,wse2]", limit=256)
    return study, screened(study)


@pytest.mark.parametrize("screens", ["whole", "others"])
def test_no_design_is_better_than_its_bounds(screens: str, request: pytest.FixtureRequest) -> None:
    """Nor does one that breaks a limit which needs no price keep all of them."""
    study, result = request.getfixturevalue(screens)
    space, workload = study.question.space, study.question.workload
    rows = pd.concat([file.read_table().to_pandas() for file in result.blocks])
    for priced in (False, True):
        row = rows[rows["limit"].isna()] if priced else rows
        every = {*optimistic.LOWER_BOUNDED, *optimistic.UPPER_BOUNDED}
        bounds = optimistic.metric_bounds(serving_layout, space.stack(encode_rows(space, row)), workload, every, priced=priced)
        keeps = row["limit"].isna().to_numpy()
        assert not (bounds.broken & keeps).any()
        compared = 0
        for columns, sign in ((bounds.low, 1), (bounds.high, -1)):
            for name in set(columns) & set(row):
                known = keeps & row[name].notna().to_numpy()
                mine, its = columns[name][known], row[name].to_numpy()[known]
                assert (sign * mine <= sign * its + 1e-9 * np.abs(its)).all(), name
                compared += len(its)
        assert compared > 100
    assert (bounds.low["tpot"][keeps] > 0).all()


@pytest.mark.parametrize("screens", ["whole", "others"])
def test_bounds_leave_out_most_of_what_is_not_served_in_time(screens: str, request: pytest.FixtureRequest) -> None:
    """Of designs that keep limits and not their constraint; prices say more than peaks."""
    study, result = request.getfixturevalue(screens)
    space, workload = study.question.space, study.question.workload
    rows = pd.concat([file.read_table().to_pandas() for file in result.blocks])
    rows = rows[rows["limit"].isna() & (rows["slo_attainment"] < 0.9)]
    kept = []
    for priced in (False, True):
        bounds = optimistic.metric_bounds(
            serving_layout, space.stack(encode_rows(space, rows)), workload, ["slo_attainment"], priced=priced
        )
        kept.append(int((bounds.high["slo_attainment"] >= 0.9).sum()))
    assert kept[1] <= kept[0] <= len(rows)
    assert kept[1] < 0.6 * len(rows)


@pytest.mark.parametrize("chip", ["npu_whole", "tile_gh200", "wafer64"])
def test_more_requests_take_no_less_than_one(whole: Any, chip: str) -> None:
    """What the price of one request's next token is a bound of."""
    study, result = whole
    space, load = study.question.space, study.question.workload.cases[0]
    rows = pd.concat([file.read_table().to_pandas() for file in result.blocks])
    rows = rows[rows["limit"].isna() & (rows["chip"] == chip)].iloc[:4]
    context, looked = max(1.0, request_mix(load.requests).context), 0
    for _, group in space.stack(encode_rows(space, rows)).groups:
        for _, design in single_rows(group):
            service = instance_layout(design)
            price = service.instances(design, load, "analytical")[-1].pricing
            counts = np.array([1.0, 2.0, 3.0, 5.0, 16.0, 64.0])
            nothing = np.zeros(len(counts))
            seconds = np.ravel(price(nothing, nothing, counts, np.full(len(counts), context), nothing))
            step_seconds = float(np.squeeze(service.decode_step_seconds(design, load, context)))
            assert seconds[0] == pytest.approx(step_seconds, rel=1e-9)
            assert (seconds >= step_seconds * (1 - 1e-9)).all()
            looked += 1
    assert looked
