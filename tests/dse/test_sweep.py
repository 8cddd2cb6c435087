"""A sweep without a study: every combination of some settings, as single evaluations would have it."""

import csv
import json
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

import dse
from dse.analysis import sweep as sweeps
from dse.analysis.sweep import sweep
from dse.documents import build_schema
from dse.main import main
from dse.space.errors import DesignError

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dse", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return run


def test_each_combination_is_what_evaluate_says_of_it() -> None:
    words = ("model=llama3_8b", "workload.batch=[4]")
    found = sweep([*words, "chip=[h100,h200]", "mapping.both.tp=1,2", "chip.l2.size=tag(MB, choice(40,50))"], "tpot")
    assert len(found.designs) == 8
    assert [design.metrics["tpot"] for design in found.designs] == sorted(d.metrics["tpot"] for d in found.designs)
    for design in found.designs:
        values = design.values
        alone = dse.evaluate(
            *words,
            f"chip={values['chip']}",
            f"mapping.both.tp={values['mapping.both.tp']}",
            f"chip.l2.size='{values['chip.l2.size'] / 1e6:g} MB'",
        )
        assert design.metrics == pytest.approx(dict(alone.metrics))


def test_workloads_and_formats_are_swept_too() -> None:
    found = sweep(["chip=h100", "model=llama3_8b,qwen3_8b", "workload.batch=[1,[2,4]]", "mapping.precision.weights=fp16,fp8"])
    frame = found.frame()
    assert len(frame) == 8
    assert set(frame["workload.batch"]) == {1, "[2,4]"}
    assert frame.attrs["units"]["tpot"] == "s"
    assert frame.attrs["objective"] == found.objective == "throughput"
    assert frame["throughput"].is_monotonic_decreasing
    alone = dse.evaluate("chip=h100", "model=qwen3_8b", "workload.batch=[2,4]", "mapping.precision.weights=fp8")
    row = frame[
        (frame["model"] == "qwen3_8b") & (frame["workload.batch"] == "[2,4]") & (frame["mapping.precision.weights"] == "fp8")
    ]
    assert row["throughput"].item() == pytest.approx(alone.metrics["throughput"])


def test_infeasible_combinations_come_last_with_their_limit() -> None:
    found = sweep(["chip=[h100,wse2]", "model=llama3_70b", "workload.batch=[1]", "mapping.both.tp=[1,4]"])
    assert [design.feasible for design in found.designs] == [True, False, False, False]
    assert found.refusals["chip.hbm.capacity"] == 1
    assert max(found.refusals.values()) == 2
    assert next(iter(found.refusals)).startswith("no field 'mapping.both.tp'")
    assert all(not design.metrics and design.why for design in found.designs if not design.feasible)


def test_processes_give_what_this_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["chip=[h100,h200]", "model=llama3_8b", "mapping.both.tp=[1,2,4]", "chip.l2.size=tag(MB, range(30,60,5))"]
    alone = sweep(words, "tpot")
    asked_of: list[int] = []
    beside = sweeps.map_beside_this_process

    def counted(work: object, values: list[object]) -> list[object]:
        asked_of.append(len(values))
        return beside(work, values)  # type: ignore[arg-type]

    monkeypatch.setattr(sweeps, "repays_start", lambda *given: True)
    monkeypatch.setattr(sweeps, "cpu_count", lambda: 2)
    monkeypatch.setattr(sweeps, "map_beside_this_process", counted)
    assert sweep(words, "tpot") == alone
    assert asked_of == [2]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["chip=h100"], "no setting has several values; write a list"),
        (["chip=[h100,h20x]"], "did you mean 'h20'"),
        (["chip=h100", "mapping.both.tq=[1,2]"], "no field 'mapping.both.tq'; did you mean 'tp'"),
        (["chip=h100", "mapping.both.tp=[1,x]"], "mapping.both.tp: 'x' is not a number"),
        (["chip=h100", "chip.l2.size=interval(1,2)"], "an interval has no steps"),
        (["chip=h100", "mapping.both.tp=[1,2]", "mapping.both.tp=[2,4]"], "is swept twice"),
        (["chip=h100,h200", "chip=a100"], "chip is swept and set to one value"),
        (["chip=h100", "mapping.both.tp=[2,2]"], "has 2 twice"),
        (["chip=h100", "space.chip.cores=[1,2]"], "belongs to a study"),
        (["chip=h100", "+space.chip.cores=[1,2]"], "belongs to a study"),
        (["chip=h100", "mapping.both.tp=range(1,30000)"], "of 20,000 at most"),
        (["chip=h100", "mapping.both.tp=[1,2]", "workload.bach=[1]"], "did you mean 'batch'"),
    ],
)
def test_what_cannot_be_swept_is_refused_by_name(words: list[str], hint: str) -> None:
    with pytest.raises(DesignError, match=hint.replace("(", r"\(")):
        sweep(words)


@pytest.mark.parametrize(
    ("objective", "hint"), [("tpt", "did you mean 'tpot'"), ("slo_attainment", "belongs to served requests")]
)
def test_an_objective_that_no_design_has_is_refused(objective: str, hint: str) -> None:
    with pytest.raises(DesignError, match=hint):
        sweep(["chip=h100", "mapping.both.tp=[1,2]"], objective)


def test_a_sweep_without_a_feasible_combination_ends_with_3_and_writes_no_page(typed: Typed, tmp_path: Path) -> None:
    code, out, _ = typed("sweep", "chip=h100", "model=llama3_70b", "mapping.both.tp=[1,2]")
    assert code == 3
    assert "2 combinations, 0 feasible" in out
    assert not (tmp_path / "runs").exists()


def test_the_first_screen_is_short_and_the_files_have_all(typed: Typed, tmp_path: Path) -> None:
    words = ("chip=[h100,h200,wse2]", "model=llama3_70b,llama3_8b", "workload.batch=[1,4,512]", "mapping.both.tp=[1,2,4]")
    code, out, err = typed("sweep", *words, "--objective", "tpot", "--out", "all.csv")
    assert not code
    lines = out.splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    assert lines[0] == "54 combinations, 21 feasible; least tpot first"
    assert "chip.hbm.capacity, as chip=" in out
    rows = list(csv.DictReader((tmp_path / "all.csv").read_text().splitlines()))
    assert len(rows) == 54
    assert sum(row["feasible"] == "True" for row in rows) == 21
    assert "time per output token" in (tmp_path / "runs/sweep/sweep.html").read_text()
    assert "wrote   runs/sweep/sweep.html" in err
    code, full, _ = typed("sweep", *words, "--full")
    assert not code
    assert len(full.splitlines()) > 25


def test_the_document_is_as_declared(typed: Typed) -> None:
    code, out, _ = typed("sweep", "--json", "chip=[h100,wse2]", "mapping.both.tp=[1,2]", "chip.hbm.capacity='40 GB','80 GB'")
    assert not code
    document = json.loads(out)
    jsonschema.Draft202012Validator(build_schema("sweep")).validate(document)
    assert document["swept"]["chip.hbm.capacity"] == ["40 GB", "80 GB"]
    assert document["designs"][0]["knobs"]["chip.hbm.capacity"]["unit"] == "B"
    assert sum(document["refused_by"].values()) == sum(not design["feasible"] for design in document["designs"])


def test_a_wrong_file_is_refused_before_any_work(typed: Typed, tmp_path: Path) -> None:
    code, out, err = typed("sweep", "chip=[h100,h200]", "--out", "all.xlsx")
    assert code == 2
    assert "ends in .csv" in err
    assert not out
    assert not list(tmp_path.iterdir())


def test_a_page_is_not_written_over_a_folder(typed: Typed, tmp_path: Path) -> None:
    code, _, err = typed("sweep", "chip=h100", "model=llama3_8b", "mapping.both.tp=[1,2]", "--page", str(tmp_path))
    assert code == 2
    assert "is a folder; name a file for the page" in err


def test_open_shows_the_page_or_says_where_it_is(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    class Browser:
        def open(self, address: str) -> bool:
            opened.append(address)
            return True

    monkeypatch.setattr("webbrowser.get", Browser)
    words = ("sweep", "chip=h100", "model=llama3_8b", "mapping.both.tp=[1,2]", "--open")
    assert typed(*words)[0] == 0
    assert opened == [(tmp_path / "runs/sweep/sweep.html").resolve().as_uri()]

    def no_browser() -> Browser:
        raise webbrowser.Error("none")

    monkeypatch.setattr("webbrowser.get", no_browser)
    code, _, err = typed(*words)
    assert not code
    assert f"no browser here; the page is {tmp_path}/runs/sweep/sweep.html" in "".join(err.splitlines())
