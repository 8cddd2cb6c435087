"""Results in the formats of others: every value as it was, with its unit, in files that others open."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dse.commands.export
import dse.commands.run_study
import dse.execution.screen
from dse.commands.export import FORMATS, column_units, thin_designs
from dse.commands.notebook_api import StoredStudy
from dse.evaluators import METRICS
from dse.execution.workers import SerialWorkers, make_evaluator
from dse.search.optuna_distributions import distribution_of_values
from dse.search.pareto import front_mask
from dse.space.knobs import ChoiceKnob
from tests.dse.faulty import Faulty
from tests.dse.toy import searched, toy


@pytest.fixture
def loaded(tmp_path: Path) -> StoredStudy:
    """A study with designs that break a limit and one that failed."""
    key = searched(toy(tmp_path / "first", "search.budget=1"))[0][2]
    study = toy(tmp_path / "runs/toy")
    evaluate = make_evaluator(study.question.workload, study.fidelity)
    searched(study, workers=SerialWorkers(Faulty(evaluate, "raise", frozenset((key,)))))
    return StoredStudy(study)


@pytest.fixture
def exported(loaded: StoredStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Any) -> Any:
    monkeypatch.setattr(dse.commands.export, "load", lambda name, **_: loaded)

    def export(to: str) -> Path:
        code, _, err = typed("export", "toy", "--to", to, "--out", str(tmp_path / f"out.{to}"))
        assert code == 0, err
        assert not list(tmp_path.glob(".*"))
        return tmp_path / f"out.{to}"

    return export


def same(found_frame: pd.DataFrame, frame: pd.DataFrame) -> None:
    """To the last bit; a cell without a value is a cell without a value."""
    assert list(found_frame.columns) == list(frame.columns)
    assert len(found_frame) == len(frame)
    for name in frame.columns:
        for new, old in zip(found_frame[name], frame[name], strict=True):
            assert (pd.isna(new) and pd.isna(old)) or new == old, (name, new, old)


def test_the_study_has_what_is_hard_to_export(loaded: StoredStudy) -> None:
    frame = loaded.frame()
    assert frame["error"].notna().sum() == 1
    assert frame["front"].any()
    assert not frame["feasible"].all()
    assert len(frame) > 50


READERS = {
    "parquet": pd.read_parquet,
    "csv": lambda path: pd.read_csv(path, engine="python"),
    "json": lambda path: pd.DataFrame(json.loads(path.read_text())),
}


@pytest.mark.sampled
@pytest.mark.parametrize("to", READERS)
def test_every_value_comes_back_as_it_was(to: str, exported: Any, loaded: StoredStudy) -> None:
    same(READERS[to](exported(to)), loaded.frame())


@pytest.mark.sampled
@pytest.mark.parametrize("to", READERS)
def test_every_column_has_its_unit(to: str, exported: Any, loaded: StoredStudy) -> None:
    path = exported(to)
    if to == "parquet":
        units = {field.name: field.metadata[b"unit"].decode() for field in pq.read_schema(path)}
    else:
        units = {name: about["unit"] for name, about in json.loads(Path(f"{path}.units.json").read_text()).items()}
    assert list(units) == list(loaded.frame().columns)
    assert units["tpot"] == METRICS["tpot"].unit == "s"
    assert units["chip.hbm.bandwidth"] == "B/s"
    assert units["chip.l2.size"] == "B"
    assert units["chip.cores"] == "1"
    assert units["mapping.both.prefetch"] == ""
    frame = loaded.frame()
    plain = [name for name in frame if pd.api.types.is_numeric_dtype(frame[name]) and frame[name].dtype != bool]
    assert {"excess", "search_order", "tpot"} <= set(plain)
    assert not [name for name in plain if not units[name]], "a number has a unit, which is 1 where it has no dimension"


def test_every_column_of_a_screen_is_known_as_well(tmp_path: Path) -> None:
    study = toy(tmp_path, "screen.run=true", "screen.limit=64", "search.budget=16")
    dse.commands.run_study.run_study(study)
    frame = StoredStudy(study).frame()
    assert list(column_units(StoredStudy(study), frame)) == list(frame.columns)
    assert set(frame["stage"]) == {"search", "screen"}


def test_an_export_that_fails_leaves_the_file_that_was_there(
    exported: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, typed: Any
) -> None:
    path = exported("csv")
    before = path.read_bytes()

    def full(loaded: Any, frame: Any, draft: Path) -> None:
        draft.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(FORMATS, "csv", full)
    code, _, err = typed("export", "toy", "--to", "csv", "--out", str(path))
    assert code == 2
    assert "No space left on device; free some space" in err
    assert path.read_bytes() == before
    assert not list(tmp_path.glob(".*"))


def test_the_optuna_study_is_the_same_study(exported: Any, loaded: StoredStudy) -> None:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    study = optuna.load_study(study_name="toy", storage=JournalStorage(JournalFileBackend(str(exported("optuna")))))
    frame, objectives = loaded.frame(), list(loaded.study.objectives)
    assert study.metric_names == objectives
    assert len(study.trials) == len(frame)
    for trial, row in zip(study.trials, frame.to_dict("records"), strict=True):
        given = {knob.address: row[knob.address] for knob in loaded.study.question.space.knobs}
        assert trial.params == {address: value for address, value in given.items() if not pd.isna(value)}
        assert (trial.state.name == "FAIL") == isinstance(row["error"], str)
        assert trial.values is None or trial.values == [row[name] for name in objectives]
        assert trial.state.name == "FAIL" or all(value <= 0 for value in trial.constraints.values()) == row["feasible"]
        for knob in loaded.study.question.space.knobs:
            distribution = trial.distributions.get(knob.address)
            words = isinstance(knob, ChoiceKnob) and knob.words
            assert distribution is None or isinstance(distribution, optuna.distributions.CategoricalDistribution) == words
    front = loaded.front()[objectives].to_numpy()
    assert {tuple(trial.values) for trial in study.best_trials} == {tuple(row) for row in front}
    assert study.user_attrs["unit of tpot"] == "s"
    assert [trial.user_attrs["design"] for trial in study.trials] == loaded.frame()["design"].tolist()


def journal_trials(path: Path) -> list[Any]:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return optuna.load_study(study_name="toy", storage=JournalStorage(JournalFileBackend(str(path)))).trials


def test_many_designs_are_thinned_for_the_dashboard_and_the_output_says_so(
    exported: Any, loaded: StoredStudy, monkeypatch: pytest.MonkeyPatch, typed: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(dse.commands.export, "MAX_TRIALS", 40)
    frame, path = loaded.frame(), tmp_path / "thin.journal"
    code, _, said = typed("export", "toy", "--to", "optuna", "--out", str(path))
    assert code == 0
    assert f"40 of {len(frame)} trials: front and an even sample, written to" in " ".join(said.split())
    trials = journal_trials(path)
    kept = [trial.user_attrs["design"] for trial in trials]
    assert len(kept) == 40
    assert set(frame[frame["front"]]["design"]) <= set(kept)
    assert kept == [design for design in frame["design"] if design in set(kept)]
    assert all(not set(METRICS) & set(trial.user_attrs) for trial in trials)
    _, _, said = typed("export", "toy", "--to", "optuna", "--all", "--out", str(path))
    assert f"{len(frame)} designs written to" in " ".join(said.split())
    assert len(journal_trials(path)) == len(frame)
    assert any("ttft" in trial.user_attrs for trial in journal_trials(path))


def test_all_says_that_it_has_no_effect_on_other_formats(typed: Any) -> None:
    code, _, err = typed("export", "toy", "--to", "csv", "--all")
    assert code == 2
    assert "export --all: has no effect with --to csv, which has all designs anyway; remove it" in " ".join(err.split())


@given(st.integers(1, 60), st.integers(1, 80), st.integers(0, 9))
def test_the_front_stays_whole_and_the_rest_is_even(most: int, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.integers(0, 9, rows).astype(float), "b": rng.integers(0, 9, rows), "n": range(rows)})
    frame.loc[rng.random(rows) < 0.1, "a"] = np.nan
    frame["feasible"] = (rng.random(rows) < 0.7) & frame["a"].notna()
    able = np.flatnonzero(frame["feasible"])
    frame["front"] = False
    frame.loc[able[front_mask(frame[["a", "b"]].to_numpy(dtype=float)[able], ["max", "min"])], "front"] = True
    thin = thin_designs(frame, {"a": "max", "b": "min"}, most)
    assert len(thin) == max(min(most, rows), frame["front"].sum())
    assert set(frame["n"][frame["front"]]) <= set(thin["n"])
    assert thin["n"].is_monotonic_increasing


def test_optunas_dashboard_opens_it(exported: Any, loaded: StoredStudy) -> None:
    program = shutil.which("optuna-dashboard", path=str(Path(sys.executable).parent)) or shutil.which("optuna-dashboard")
    assert program, "pip install 'mesh-dse[test]'"
    path = exported("optuna")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, "--host", "127.0.0.1", "--port", str(port), str(path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        (summary,) = fetched(process, f"http://127.0.0.1:{port}/api/studies")["study_summaries"]
        assert summary["study_name"] == "toy"
        detail = fetched(process, f"http://127.0.0.1:{port}/api/studies/{summary['study_id']}?after=0")
    finally:
        process.terminate()
        process.communicate(timeout=30)
    frame = loaded.frame()
    done = [trial for trial in detail["trials"] if trial["state"] == "Complete"]
    assert len(detail["trials"]) == len(frame)
    assert [trial["values"] for trial in done] == frame[frame["error"].isna()][
        list(loaded.study.objectives)
    ].to_numpy().tolist()
    assert [all(value <= 0 for value in trial["constraints"]) for trial in done] == frame[frame["error"].isna()][
        "feasible"
    ].tolist()
    assert detail["objective_names"] == list(loaded.study.objectives)
    assert {"key": "unit of tpot", "value": "s"} in detail["user_attrs"]


def fetched(process: subprocess.Popen[bytes], url: str) -> Any:
    for _ in range(300):
        assert process.poll() is None, process.communicate()
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError:
            raise
        except OSError:  # it has not begun to listen
            time.sleep(0.1)
    raise AssertionError(f"no answer from {url}")


FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "\r=1")


def test_no_cell_of_a_csv_is_a_formula(tmp_path: Path) -> None:
    """Numbers below zero are numbers still."""
    frame = pd.DataFrame({"=a": FORMULAS, "b": [-1.5] * len(FORMULAS), "c": [-2, *[None] * (len(FORMULAS) - 1)]}, dtype=object)
    FORMATS["csv"](None, frame.astype({"b": float}), tmp_path / "x.csv")  # type: ignore[arg-type]
    result = pd.read_csv(tmp_path / "x.csv")
    assert list(result["'=a"]) == [f"'{cell}".replace("\r", "") for cell in FORMULAS]
    assert set(result["b"]) == {-1.5}
    assert result["c"][0] == -2


def test_results_of_another_store_come_without_the_screen_that_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = toy(tmp_path / "runs/toy", "screen.run=true", "screen.limit=64")
    searched(study, budget=16)
    dse.execution.screen.run_screen(study, lambda done, total, size: None)
    assert set(StoredStudy(study).frame()["stage"]) == {"search", "screen"}
    other = toy(tmp_path / "runs/toy", "screen.run=true", "screen.limit=64", "store=other.sqlite")
    searched(other, budget=16)
    assert set(StoredStudy(other).frame()["stage"]) == {"search"}
    assert not dse.execution.screen.list_stored_block_files(other)


@pytest.mark.parametrize(
    ("values", "kind", "step", "log"),
    [
        ((3,), "IntDistribution", 1, True),
        ((8, 2, 4), "IntDistribution", 1, True),
        ((10, 20, 30), "IntDistribution", 10, False),
        ((0, 1, 5), "IntDistribution", 1, False),
        ((0.25, 0.5, 1.0), "FloatDistribution", None, True),
        ((0.1, 0.2, 0.3), "FloatDistribution", None, False),
        ((0.0, 0.5, 2.0), "FloatDistribution", None, False),
        (("none", "whole"), "CategoricalDistribution", None, None),
    ],
)
def test_numbers_are_exported_as_numbers_with_a_step_or_on_a_log_scale(
    values: tuple[Any, ...], kind: str, step: Any, log: bool | None
) -> None:
    distribution = distribution_of_values(ChoiceKnob("chip.cores", values))
    assert type(distribution).__name__ == kind
    assert all(distribution._contains(distribution.to_internal_repr(value)) for value in values)
    assert log is None or (distribution.log, distribution.step) == (log, step)
