"""Leaves that follow knobs, wherever a design is shown: the page, files, and the line that gives it again."""

import contextlib
import json
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dse
from dse.commands.explain import explain_overrides
from dse.commands.explain_output import tied_leaves_record
from dse.commands.export import export_study
from dse.config.compose import compose, find_study_folder
from dse.config.tied_leaves import build_space_with_ties, parse_ties
from dse.execution.result_frame import report_order
from dse.execution.study import build_study
from dse.explanations import dominance as whynot
from dse.explanations.neighbours import evaluate_points
from dse.report.payload import report_payload
from dse.space.design import Design, design_key
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.knobs import ChoiceKnob, Space
from tests.dse.test_report_page import browser, opened
from tests.samples import AT_ONE_RATE, asked

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
report:
  points: {mine: {chip: npu64, mapping.both.tp: 4}, theirs: {chip: npu_dse, mapping.both.tp: 4}, usual: {mapping.both.tp: 4}}
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("square")
    (folder / "studies/square").mkdir(parents=True)
    (folder / "studies/square/study.yaml").write_text(STUDY)
    with contextlib.chdir(folder):
        return dse.run("square")


@pytest.fixture
def square(ran: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(ran.study.run_dir.parents[1])
    return ran


@pytest.mark.slow
def test_the_line_of_a_page_gives_the_design_again(square: Any, opened: Callable[..., Any]) -> None:
    part = square.part()
    page = opened(part)
    rows = report_order(part.study, part.frame)
    rows = rows[rows["feasible"]]
    assert set(rows["chip"]) == {"npu64", "npu_dse"}
    for place, row in rows.iterrows():
        line = shlex.split(page.evaluate(f"evaluateLine({place})"))[2:]
        evaluation = dse.evaluate(line)
        assert evaluation.metrics["tpot"] == pytest.approx(row["tpot"], rel=1e-6)
        assert not evaluation.untied
        assert design_key(evaluation.design).startswith(row["design"])


def test_a_page_has_a_column_of_what_follows(square: Any) -> None:
    data = report_payload([square.part()])
    kinds = {column["name"]: column["kind"] for column in data["columns"]}
    assert (kinds["chip.mesh.cols"], kinds["chip.mesh.rows"]) == ("tied", "knob")
    (study,) = data["studies"]
    leaves = {tie["address"]: tie["overrides"] for tie in study["tied"]}
    assert leaves["mapping.both.pp"] == ["mapping.prefill.pp", "mapping.decode.pp"]
    assert all(address in kinds for address in leaves)


def test_a_file_has_what_follows_and_where_it_comes_from(square: Any, tmp_path: Path) -> None:
    assert export_study("square", "csv", str(tmp_path / "square.csv")) == 0
    import pandas as pd

    result = pd.read_csv(tmp_path / "square.csv", comment="#")
    mine = result[result["chip"] == "npu64"]
    np.testing.assert_array_equal(mine["chip.mesh.cols"], mine["chip.mesh.rows"])
    np.testing.assert_array_equal(mine["chip.hbm.channels"], mine["chip.mesh.rows"] ** 2)
    np.testing.assert_array_equal(mine["mapping.both.pp"], 4 * mine["mapping.both.tp"])
    assert result[result["chip"] == "npu_dse"]["chip.mesh.cols"].isna().all()
    about = json.loads((tmp_path / "square.csv.units.json").read_text())
    assert about["chip.hbm.channels"] == {"unit": "1", "definition": "follows knobs: chip.mesh.rows * chip.mesh.cols"}


def test_a_design_that_is_not_tied_as_its_study_has_it_says_so(square: Any) -> None:
    words = ("study=square", "chips=[npu64]", "chip.mesh.rows=4")
    loose = dse.evaluate(*words)
    assert ("not tied", "chip.mesh.cols is 8; tied to chip.mesh.rows it would be 4") in loose.facts()
    tight = dse.evaluate(*words, "chip.mesh.cols=4", "chip.hbm.channels=16", "mapping.both.pp=16")
    assert not tight.untied


MORE = "chip.hbm.channels=32"
TYPED = {
    "": ("chip.mesh.cols=16", "chip.hbm.channels=256", "mapping.both.pp=16"),
    MORE: ("chip.mesh.cols=16", "mapping.both.pp=16"),
}
"""What a side alone leaves to be tied, and where a leaf that is tied is typed as well."""


@pytest.mark.sampled
@pytest.mark.parametrize("more", TYPED)
def test_a_design_that_a_side_alone_names_is_judged_as_the_space_has_it(square: Any, more: str) -> None:
    own = ["chips=[npu64]", "chip.mesh.rows=16", *filter(None, [more])]
    wanted = dse.evaluate("study=square", *own, *TYPED[more])
    stands, why = square.whynot(own), explain_overrides("study=square", *own)
    assert stands.point.metrics == pytest.approx(wanted.metrics)
    assert why.design == stands.space.base == wanted.design
    assert set(stands.outside) == ({"chip.hbm.channels"} if more else set())
    for change in why.changes:  # a step moves what follows it, and leaves what was typed
        mesh = change.step.design.chip.mesh
        assert mesh.cols == mesh.rows
        assert change.step.design.chip.hbm.channels == (32 if more else mesh.rows**2)
    shown = {"chip.mesh.cols", "mapping.prefill.pp", "mapping.decode.pp"} | ({"chip.hbm.channels"} - {more.partition("=")[0]})
    assert set(tied_leaves_record(why.space, why.values, why.design)) == shown


def test_changes_on_the_way_move_what_follows_them(square: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leaf that was typed stays until the rest is as the study has it; from there on it follows as well."""
    tried: list[Design] = []

    def seen(designs: Any, *more: Any, **how: Any) -> Any:
        tried.extend(designs)
        return evaluate_points(designs, *more, **how)

    monkeypatch.setattr(whynot, "evaluate_points", seen)
    path = square.whynot("chips=[npu64]", "chip.mesh.rows=12", "mapping.both.tp=2", "chip.mesh.cols=10").path
    assert {whynot.OUTSIDE, "chip.mesh.rows"} <= {hop.knob for hop in path}
    meshes = [(design.chip.mesh.rows, design.chip.mesh.cols, design.chip.hbm.channels) for design in tried]
    assert all(cols in (10, rows) and channels == rows * cols for rows, cols, channels in meshes)
    assert {cols == 10 for _, cols, _ in meshes} == {True, False}


@cache
def _square() -> Space:
    base = asked("chip=npu64", "model=qwen3_4b", "workload.batch=[4]").base
    knobs = (ChoiceKnob("chip.mesh.rows", (4, 8, 16)),)
    follows = {"chip.hbm.channels": {"tied": "chip.mesh.rows * chip.mesh.cols"}, "chip.mesh.cols": {"tied": "chip.mesh.rows"}}
    return Space(base, knobs, parse_ties(follows, {"": base}, knobs)[""])


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_what_is_typed_stays_and_the_rest_follows(data: st.DataObject) -> None:
    side = _square()
    rows, cols, channels = (data.draw(st.integers(1, 40)) for _ in range(3))
    typed = data.draw(st.sets(st.sampled_from(["chip.mesh.rows", "chip.mesh.cols", "chip.hbm.channels", "chip.clock"])))
    design = replace_leaves(side.base, {"chip.mesh.rows": rows, "chip.mesh.cols": cols, "chip.hbm.channels": channels})
    space = build_space_with_ties(design, side.knobs, side.tied, typed)
    mesh = space.base.chip.mesh
    assert mesh.rows == rows
    assert mesh.cols == (cols if "chip.mesh.cols" in typed else rows)
    assert space.base.chip.hbm.channels == (channels if "chip.hbm.channels" in typed else rows * mesh.cols)
    assert space.with_ties(space.base) == space.base


@pytest.mark.sampled
@pytest.mark.parametrize(("chip", "points"), [("npu64", {"mine", "usual"}), ("npu_dse", {"theirs"})])
def test_a_study_is_narrowed_to_some_of_its_chips(square: Any, chip: str, points: set[str]) -> None:
    """What is of that chip stays as it is, and what only others have is left out."""
    config = compose(["study=square", f"chips=[{chip}]"])
    study = build_study(config, find_study_folder(config))
    assert {name: space.key for name, space in study.question.space.spaces.items()} == {  # type: ignore[union-attr]
        chip: square.study.question.space.spaces[chip].key
    }
    assert set(study.points) == points


@pytest.mark.parametrize(("chips", "why"), [("npu46", "the study is of npu64, npu_dse"), ("a100", "a100 is none of them")])
def test_a_chip_that_is_none_of_the_study_s_is_told_which_are(square: Any, chips: str, why: str) -> None:
    with pytest.raises(DesignError, match=why):
        build_study(compose(["study=square", f"chips=[{chips}]"]), square.study.run_dir.parents[1] / "studies/square")


def test_a_study_of_several_is_asked_for_one_of_its_chips() -> None:
    """With all that its space gives a sense, and without what only other chips have."""
    evaluation = dse.evaluate(
        "study=mesh_llm", *AT_ONE_RATE, "chips=[npu64]", "mapping.both.tp=8", "mapping.both.pp=8", "workload.requests=20"
    )
    assert evaluation.infeasible is None
    assert not evaluation.untied
