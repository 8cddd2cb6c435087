"""Leaves that follow knobs, wherever a design is shown: the page, files, and the line that gives it again."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dse
from dse.export import export
from dse.frame import ordered
from dse.report.data import payload
from tests.dse.test_report_page import browser, opened

__all__ = ["browser", "opened"]

STUDY = """
chips: [npu64, npu_dse]
formats: own
defaults: [override /model: qwen3_4b, override /search: none]
space:
  chip:
    mesh: {rows: "choice(4, 8, 16)", cols: {tied: chip.mesh.rows}}
    hbm: {channels: {tied: "chip.mesh.rows * chip.mesh.cols", when: {chip: [npu64]}}}
    cores: "choice(200, 435)"
  mapping:
    both:
      tp: "choice(2, 4)"
      pp: {tied: "4 * mapping.both.tp", when: {chip: [npu64]}}
workload: {batch: [4], prompt: [256], output: [32]}
objectives: {throughput_per_system_mm2: max, tpot: min}
"""


@pytest.fixture
def square(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "studies/square").mkdir(parents=True)
    (tmp_path / "studies/square/study.yaml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    return dse.run("square")


def test_the_line_of_a_page_gives_the_design_again(square: Any, opened: Callable[..., Any]) -> None:
    part = square.part()
    page = opened(part)
    rows = ordered(part.study, part.frame)
    rows = rows[rows["feasible"]]
    assert set(rows["chip"]) == {"npu64", "npu_dse"}
    for place, row in rows.iterrows():
        line = shlex.split(page.evaluate(f"evaluateLine({place})"))[2:]
        found = dse.evaluate(line)
        assert found.metrics["tpot"] == pytest.approx(row["tpot"], rel=1e-6)
        assert not found.untied


def test_a_page_has_a_column_of_what_follows(square: Any) -> None:
    data = payload([square.part()])
    kinds = {column["name"]: column["kind"] for column in data["columns"]}
    assert (kinds["chip.mesh.cols"], kinds["chip.mesh.rows"]) == ("tied", "knob")
    (study,) = data["studies"]
    leaves = {one["address"]: one["overrides"] for one in study["tied"]}
    assert leaves["mapping.both.pp"] == ["mapping.prefill.pp", "mapping.decode.pp"]
    assert all(address in kinds for address in leaves)


def test_a_file_has_what_follows_and_where_it_comes_from(square: Any, tmp_path: Path) -> None:
    assert export("square", "csv", str(tmp_path / "square.csv")) == 0
    import pandas as pd

    found = pd.read_csv(tmp_path / "square.csv", comment="#")
    mine = found[found["chip"] == "npu64"]
    np.testing.assert_array_equal(mine["chip.mesh.cols"], mine["chip.mesh.rows"])
    np.testing.assert_array_equal(mine["chip.hbm.channels"], mine["chip.mesh.rows"] ** 2)
    np.testing.assert_array_equal(mine["mapping.both.pp"], 4 * mine["mapping.both.tp"])
    assert found[found["chip"] == "npu_dse"]["chip.mesh.cols"].isna().all()
    about = json.loads((tmp_path / "square.csv.units.json").read_text())
    assert about["chip.hbm.channels"] == {"unit": "1", "definition": "follows knobs: chip.mesh.rows * chip.mesh.cols"}


def test_a_design_that_is_not_tied_as_its_study_has_it_says_so(square: Any) -> None:
    words = ("study=square", "chips=[npu64]", "chip.mesh.rows=4")
    loose = dse.evaluate(*words)
    assert ("not tied", "chip.mesh.cols is 8; tied to chip.mesh.rows it would be 4") in loose.about()
    tight = dse.evaluate(*words, "chip.mesh.cols=4", "chip.hbm.channels=16", "mapping.both.pp=16")
    assert not tight.untied


def test_a_study_of_several_is_asked_for_one_of_its_chips() -> None:
    """With all that its space gives a sense, and without what only other chips have."""
    found = dse.evaluate("study=mesh_llm", "chips=[npu64]", "mapping.both.tp=8", "mapping.both.pp=8", "workload.requests=20")
    assert found.infeasible is None
    assert not found.untied
