"""How much of an exact front a search finds: on a part of the study's grid, and as the study's figures say."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dse.studies.search_quality import __main__ as study
from dse.studies.search_quality.replay import SPACES, Table, closed_front, grid, search_rows

PART = ("space.chip.cores='range(100,601,100)'", "space.chip.l2.size='tag(MB, range(8,257,32))'")


@pytest.mark.slow
def test_local_finds_the_front_of_a_part_of_preserves_grid(tmp_path: Path) -> None:
    """The share that it must not fall below is below what these seeds give, far above NSGA-II's and chance."""
    whole = grid("PRESERVE", tmp_path, *PART)
    rows = whole.rows()
    budget = whole.size // 100
    shares = [whole.share(search_rows(whole, rows, "local", seed, budget, [])) for seed in (50, 51, 52)]
    chance = whole.share(search_rows(whole, rows, "random", 50, budget, []))
    assert np.mean(shares) > 0.97 > 0.9 > chance


def test_a_search_from_the_exact_front_has_all_of_it_at_once(tmp_path: Path) -> None:
    whole = grid("PRESERVE", tmp_path, *PART)
    rows = whole.rows()
    exact = closed_front(whole)
    order = search_rows(whole, rows, "local", 0, len(exact), exact)
    assert whole.share(order) == pytest.approx(1.0)
    assert whole.share(order[:1]) < 1.0


def test_a_grid_is_evaluated_once_and_told_with_its_limits(tmp_path: Path) -> None:
    few = ("space.mapping.rows='choice(8,16)'", "space.mapping.cols='choice(8,16)'", "~space.chip.mesh.cols")
    whole = grid("product", tmp_path, *few)
    again = grid("product", tmp_path, *few)
    assert (whole.objectives == again.objectives).all()
    assert len(list(tmp_path.glob("*.npz"))) == 1
    table = Table(whole, whole.rows())
    space = whole.study.question.space
    values = [space.row(whole.columns, row) for row in range(whole.size)]
    table.submit([(str(row), values_of_row, space.design_at(values_of_row)) for row, values_of_row in enumerate(values)])
    results = table.collect()
    assert [bool(result.limit) for result in results] == (whole.limit >= 0).tolist()
    assert {bool(result.limit) for result in results} == {True, False}
    assert table.order == list(range(whole.size))


def test_what_the_study_says_is_what_comes_out(tmp_path: Path) -> None:
    """All evaluations of one search, on the shipped physics."""
    text = pd.read_csv(study.HERE / "shares.csv")
    assert set(text["space"]) == set(SPACES)
    whole = grid("pipelines", tmp_path)
    for sampler in ("local", "optuna nsga2"):
        first = text[(text["space"] == "pipelines") & (text["sampler"] == sampler)].iloc[0]
        assert whole.size == first["designs"]
        order = search_rows(whole, whole.rows(), sampler, int(first["seed"]), int(first["budget"]), [])
        assert whole.share(order) == pytest.approx(first["share"], abs=1e-3)


def test_some_rows_are_measured_and_the_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {}
    for file in study.FILES:
        lines = (study.HERE / file).read_text().splitlines()
        before[file] = [line for line in lines if not line.startswith("pipelines,random,")]
        (tmp_path / file).write_text("\n".join(before[file]) + "\n")
    monkeypatch.setattr(study, "HERE", tmp_path)
    monkeypatch.setattr(study, "write", lambda names: None)
    study.main(tmp_path, ["pipelines:random"], seeds=2)
    for file, count in (("shares.csv", 2), ("curves.csv", study.STEPS)):
        now = (tmp_path / file).read_text().splitlines()
        mine = [line for line in now if line.startswith("pipelines,random,")]
        assert len(mine) == count
        assert sorted(set(now) - set(mine)) == sorted(before[file])
    with pytest.raises(SystemExit, match="pipelines:chance: GRID:SAMPLER"):
        study.main(tmp_path, ["pipelines:chance"])


def test_a_sampler_is_measured_on_all_grids_by_a_star(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}
    monkeypatch.setattr(study, "HERE", tmp_path)
    monkeypatch.setattr(
        study, "_measured", lambda name, wanted, folder, seeds, held: asked.update({name: (wanted, list(seeds))})
    )
    monkeypatch.setattr(study, "write", lambda names: None)
    monkeypatch.setattr(study, "draw_figure", lambda path: "")
    for file, columns in study.FILES.items():
        (tmp_path / file).write_text(",".join(columns) + "\n")
    study.main(tmp_path, ["*:local", "dies:tpe"], seeds=3)
    assert asked == {name: (["local", "tpe"] if name == "dies" else ["local"], [700, 701, 702]) for name in SPACES}


@pytest.mark.slow
def test_optuna_by_itself_learns_of_designs_without_objectives(tmp_path: Path) -> None:
    """Three of four designs that do not fit have none on this grid; trials that fail teach it nothing, and it asks again."""
    whole = grid("dies", tmp_path)
    order = search_rows(whole, whole.rows(), "optuna tpe", 100, 105, [])
    assert np.isnan(whole.objectives[order]).any(axis=1).mean() < 0.5 < len(set(order.tolist())) / len(order)
