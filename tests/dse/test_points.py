"""Points that a study names: their values, what is refused, asked first, and marked in the report."""

from pathlib import Path

import pytest
import yaml

from dse.commands.notebook_api import StoredStudy, find_study
from dse.commands.run_study import run_study
from dse.config.compose import CONF, compose
from dse.config.named_points import find_rows_of_points
from dse.execution.result_frame import knob_values, report_order
from dse.explanations.design_from_overrides import build_design_from_overrides
from dse.report.payload import report_payload
from dse.space.errors import CONFIGURATION_FIELDS as FIELDS
from dse.space.errors import DesignError
from tests.dse.toy import toy

POINTS = (
    "+report.points.usual={chip.cores: 440}",
    "+report.points.other={chip.cores: 200, mapping.both.tp: 2}",
)


def test_a_point_has_the_values_of_its_base_and_those_said(tmp_path: Path) -> None:
    study = find_study("mesh_llm", f"run_dir={tmp_path}")
    tiles = study.points["FlatAttention"]
    assert study.question.space.design_at(tiles) == study.question.space.spaces["tile_gh200"].base  # type: ignore[union-attr]
    npu = study.question.space.design_at(study.points["NpuSim"])
    assert (npu.chip.mesh.rows, npu.chip.mesh.cols, npu.chip.tile.sram, npu.mapping.decode.pp) == (8, 8, 32e6, 8)


@pytest.mark.parametrize(
    ("points", "why"),
    [
        ("{chip.core: 200}", "report.points.a: no knob 'chip.core'; did you mean 'chip.cores'"),
        ("{chip.cores: 201}", "report.points.a: chip.cores is 201 there, which is none of its values"),
        ("{mapping.both.tp: 2}", "report.points.a: chip.cores is 435 there, which is none of its values"),
        ("{chip.cores: 200, chip.l2.size: 1}", "report.points.a: chip.l2.size is 1 there, outside 8e.06 to 2.56e.08"),
        ("3", "report.points.a: 3 is no values by knob"),
    ],
)
def test_a_point_outside_the_space_is_refused(tmp_path: Path, points: str, why: str) -> None:
    with pytest.raises(DesignError, match=why):
        toy(tmp_path, f"+report.points.a={points}")


def test_points_are_asked_first_and_marked(tmp_path: Path) -> None:
    wanted_study = toy(tmp_path, "search=random", "search.budget=12", *POINTS)
    run_study(wanted_study)
    loaded = StoredStudy(wanted_study)
    study, again = report_payload([loaded.part()] * 2)["studies"]
    frame = report_order(wanted_study, loaded.part().frame)
    assert [row - again["start"] for _, row in again["points"]] == [row for _, row in study["points"]]
    assert [name for name, _ in study["points"]] == ["usual", "other"]
    for (name, row), number in zip(study["points"], (0, 1), strict=True):
        assert knob_values(wanted_study, frame.iloc[row]) == wanted_study.points[name]
        assert frame.iloc[row]["search_order"] == number
    assert (
        find_rows_of_points(
            wanted_study.points, wanted_study.question.space, frame[frame["search_order"] > 0].reset_index(drop=True)
        )["usual"]
        is None
    )


def test_a_chip_is_named_over_a_study_of_several(tmp_path: Path) -> None:
    """With the mapping that the study gives it; and though a leaf is read only where a knob of the study gives it a sense."""
    study = find_study("mesh_llm", f"run_dir={tmp_path}")
    typed = build_design_from_overrides(study, ["chips=[npu64]", "mapping.both.tp=8", "mapping.both.pp=8"], "whynot")
    assert typed.space.base.mapping.decode.tp == 8
    assert typed.space.base.mapping.decode.prefetch is not None
    assert typed.space.tied
    other = build_design_from_overrides(
        study, ["chips=[npu64]", "chip.mesh.cols=4"], "whynot"
    )  # tied otherwise than the study's
    assert {leaf.address for leaf in typed.space.tied} - {leaf.address for leaf in other.space.tied} == {"chip.mesh.cols"}
    assert other.space.base.chip.hbm.channels == 4 * other.space.base.chip.mesh.rows  # what is tied to it follows


def test_a_study_called_as_a_field_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("chips", "mine"):
        folder = tmp_path / "studies" / name
        folder.mkdir(parents=True)
        (folder / "study.yaml").write_text("objectives: {tpot: min}\n")
    monkeypatch.chdir(tmp_path)
    for name in ("chips", "mine"):
        with pytest.raises(DesignError, match="a study called 'chips', a field of every study; rename it"):
            compose([f"study={name}"])


def test_fields_are_those_of_the_configuration() -> None:
    config = yaml.safe_load((CONF / "config.yaml").read_text())
    groups = {key for entry in config["defaults"] if isinstance(entry, dict) for key in entry if " " not in key}
    assert set(FIELDS) == (set(config) | groups) - {"defaults", "hydra"}
