"""What `dse validate` counts of studies: failures by role and tolerance, errors by group, and which of them end it with 1."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dse
from dse.accuracy import residuals
from dse.accuracy import tolerances as promised
from dse.accuracy.validate import COLUMNS, ROLES
from dse.commands import validate_all as validation
from dse.main import main
from dse.report.page_parts import read_page_data, unpack_text
from dse.report.standalone_pages import build_validation_page
from dse.terminal.json_text import format_json

OFF = {"alpha": 0.05, "beta": 0.30}
"""Tolerances of two made studies."""

MODELS = ("chip=npu_dse workload.batch=[1]", "chip=a100 workload.batch=[4] workload.prompt=512 workload.output=64")


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Two studies whose rows are off by known shares, one of them a known miss; the shares by id."""
    draws, made, known = np.random.default_rng(7), {}, []
    for study, tolerance in OFF.items():
        lines = [",".join(COLUMNS)]
        for place in range(9):
            words, metric, unit = (
                MODELS[place % 2],
                ("tpot", "prefill_throughput")[place % 3 == 0],
                ("ms", "token/s")[place % 3 == 0],
            )
            value = dse.evaluate(*words.split()).metrics[metric] * (1e3 if unit == "ms" else 1)
            role, off = ROLES[place % 3], float(draws.uniform(1.2, 1.8) * tolerance * draws.choice([-1, 0.5, 1]))
            name = f"{study}-{place}"
            made[name] = off
            lines.append(f'{name},here,{words},,{metric},{value / (1 + off):.9g},{unit},{role},"a <b> row"')
            if role == "check" and abs(off) > tolerance and not known:
                known.append(f"{study},{name},as was decided")
        (tmp_path / study).mkdir()
        (tmp_path / study / "published.csv").write_text("\n".join([*lines, ""]))
    (tmp_path / "tolerances.csv").write_text("rows,tolerance,why\n*,5 %,first\nbeta/*,30 %,later\n")
    (tmp_path / "misses.csv").write_text("\n".join(["study,id,why", *known, ""]))
    monkeypatch.setattr(promised, "STUDIES", tmp_path)
    monkeypatch.setattr(validation, "STUDIES", tmp_path)
    monkeypatch.setattr(residuals, "FILE", tmp_path / "none.csv")
    for cached in (promised.read_known_misses, promised._read_tolerances, residuals._read_residuals_file):
        cached.cache_clear()
    monkeypatch.chdir(tmp_path)
    yield made
    for cached in (promised.read_known_misses, promised._read_tolerances, residuals._read_residuals_file):
        cached.cache_clear()


def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["dse", "validate", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0), capsys.readouterr().out


def fail(made: dict[str, float], name: str) -> bool:
    return abs(made[name]) > OFF[name.partition("-")[0]]


def test_rows_fail_by_the_tolerance_of_their_study(shipped: dict[str, float]) -> None:
    rows = validation.simulate_rows(validation.list_published_files(()))
    assert {row.row.id: row.fails for row in rows} == {name: fail(shipped, name) for name in shipped}
    assert [row.row.error for row in rows] == pytest.approx([shipped[row.row.id] for row in rows], abs=1e-6)
    for role in ROLES:
        own = [row.row.id for row in rows if row.row.role == role]
        assert validation.count_failures(rows)[role] == (sum(fail(shipped, name) for name in own), len(own))


def test_groups_have_the_errors_of_their_scored_rows(shipped: dict[str, float]) -> None:
    rows = validation.simulate_rows(validation.list_published_files(()))
    found_errors = validation.group_errors(rows)
    assert sum(group.rows for group in found_errors) == len(rows)
    for group in found_errors:
        own = [row for row in rows if row.place == (group.study, group.chip, group.phase)]
        errors = [abs(shipped[row.row.id]) for row in own if row.row.role != "report"]
        errors = errors or [abs(shipped[row.row.id]) for row in own]
        spread = (np.mean(errors), np.quantile(errors, 0.9), max(errors))
        assert (group.mean, group.p90, group.worst) == pytest.approx(spread, abs=1e-6)


def test_a_range_that_holds_is_no_number_without_an_error(shipped: dict[str, float]) -> None:
    """Neither in a group's mean nor in the score of a role."""
    rows = validation.simulate_rows(validation.list_published_files(()))
    ranged = [
        replace(row, row=replace(row.row, published="1..2", error=(0.0, 0.7)[place % 3 == 0])) for place, row in enumerate(rows)
    ]
    assert [group.mean for group in validation.group_errors([*rows, *ranged])] == [
        group.mean for group in validation.group_errors(rows)
    ]
    for group in validation.group_errors(ranged):
        own = [row for row in ranged if row.place == (group.study, group.chip, group.phase)]
        assert (group.mean, group.scored) == (None, 0)
        assert (group.held, group.ranges) == (sum(row.row.error == 0 for row in own), len(own))
    data = validation.validation_record([*rows, *ranged], Path("page.html"))
    assert {role: score.median for role, score in data.scores.items()} == pytest.approx(
        {role: np.median([abs(row.row.error or 0.0) for row in rows if row.row.role == role]) for role in ROLES}
    )


def test_a_check_that_is_said_to_hold_and_fails_ends_it_with_1(
    shipped: dict[str, float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    checks = [name for name in shipped if int(name[-1]) % 3 == ROLES.index("check") and fail(shipped, name)]
    assert len(checks) > 1
    code, out = typed(monkeypatch, capsys)
    assert code == 1
    output = " ".join(out.split())
    assert "as was decided" in output
    for name in checks[1:]:
        assert f"{name}: {shipped[name]:+.1%}, tolerance {OFF[name.partition('-')[0]]:.0%}; expected to hold" in output
    known = [f"{name.partition('-')[0]},{name},as was decided" for name in checks]
    (tmp_path / "misses.csv").write_text("\n".join(["study,id,why", *known, ""]))
    promised.read_known_misses.cache_clear()
    assert typed(monkeypatch, capsys)[0] == 0  # calibration rows and reports that fail are counted


def test_of_one_study_only_its_rows_are_told(
    shipped: dict[str, float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, out = typed(monkeypatch, capsys, "beta", "--json", "--out", "there/page.html")
    data = json.loads(out)
    assert {row["id"] for row in data["rows"]} == {name for name in shipped if name.startswith("beta")}
    assert data["page"] == "there/page.html"
    page = tmp_path / "there/page.html"
    assert all(row["id"] in str(read_page_data(page)) for row in data["rows"])
    assert "a <b> row" not in page.read_text()  # text of a row is no markup


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["betta"], "no file betta, and no study that has published rows; did you mean 'beta'"),
        (["beta", "mine.csv"], "validate: expected files or studies, got beta mine.csv"),
        (["mine.csv", "--out", "page.html"], "validate --out: only studies have a page"),
    ],
)
def test_what_cannot_be_validated_is_one_line(
    words: list[str], line: str, shipped: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["dse", "validate", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert line in capsys.readouterr().err


@pytest.mark.slow
def test_the_page_has_every_row(shipped: dict[str, float]) -> None:
    data = validation.validation_record(validation.simulate_rows(validation.list_published_files(())), Path("page.html"))
    text = build_validation_page(data)
    inner = unpack_text(text.partition('id="data">')[2].partition("</script>")[0])
    assert json.loads(inner)["rows"] == json.loads(format_json(data.rows))
    assert "validationPlots" in text
