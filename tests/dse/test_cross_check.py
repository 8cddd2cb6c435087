"""The study of other simulators: its tables are what its commands give, and rows from outside are read or refused."""

import csv
from pathlib import Path

import pytest

from dse.space.errors import DesignError
from dse.studies.cross_check import __main__ as command
from dse.studies.cross_check import finding, outside_rows
from dse.studies.cross_check.cases import CASES, find_case, last_moments, runs_of, seconds_by_fidelity, write_exports
from dse.studies.cross_check.engines import NEAR, REDMULE_MACS, read_engine_rows, redmule_macs
from dse.studies.cross_check.outside_rows import OutsideRow, read_outside_rows
from dse.studies.cross_check.references import POINTS, read_memory, read_settings, replay, replay_trace

HERE = Path(command.__file__).parent
POINT_TOLERANCE = 0.033
"""Largest gap of a replayed point, as the study's page says."""


def table_of(name: str) -> list[dict[str, str]]:
    with (HERE / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_has_every_export_once() -> None:
    wanted = [(case.name, target) for case in CASES for target in case.targets]
    assert [(row["case"], row["simulator"]) for row in table_of("cases")] == wanted


@pytest.mark.parametrize("name", ["ktree", "ep_exchange", "all_to_all"])
def test_a_row_is_what_its_kernel_gives(name: str, tmp_path: Path) -> None:
    case = find_case(name)
    (run,) = runs_of(case)
    times, cycle = seconds_by_fidelity(case), float(run.fabric.cycle)
    totals = {target: entries for _, target, entries in write_exports(tmp_path, (name,))}
    rows = [row for row in table_of("cases") if row["case"] == name]
    for row in rows:
        assert [float(row[word]) for word in times] == pytest.approx([seconds / cycle for seconds in times.values()], abs=0.06)
        assert float(row["ours"]) == pytest.approx(last_moments(run)[0], abs=0.06)
        (entry,) = totals[row["simulator"]]
        assert int(row["count"]) == entry.get("packets", entry.get("nodes"))
        assert (tmp_path / name / row["simulator"] / "summary.json").exists()
    booksim = next(row for row in rows if row["simulator"] == "booksim")
    files = (tmp_path / name / "booksim" / f"{run.name}.{ending}" for ending in ("cfg", "trace"))
    assert float(booksim["replayed"]) == pytest.approx(replay_trace(*files, run), abs=0.06)
    assert float(booksim["volume"]) == run.activity.hop_bytes


def test_every_reference_point_is_there_and_near() -> None:
    rows = table_of("points")
    told = {(row["simulator"], row["point"]) for row in rows}
    for simulator, path in POINTS.items():
        with path.open(newline="") as file:
            assert {(simulator, row["id"]) for row in csv.DictReader(file)} <= told
    for row in rows:
        assert float(row["replayed"]) == pytest.approx(float(row["reference"]), rel=POINT_TOLERANCE), row["point"]


TRAFFIC = "chip=mesh8 workload=traffic workload.traffic=[transpose] workload.flits=[5] workload.rates=[0.1]"
STREAM = "chip=hbm2_legacy workload=stream workload.patterns=[stride1024] workload.requests=24608"


@pytest.mark.parametrize(
    ("simulator", "point", "words"), [("booksim", "n-t5-4a-0.1", TRAFFIC), ("dramsim3", "d-stride1024-share", STREAM)]
)
def test_a_point_is_replayed_from_its_files(simulator: str, point: str, words: str) -> None:
    row = next(row for row in table_of("points") if row["point"] == point)
    assert replay(simulator, words.split())[row["metric"]] == pytest.approx(float(row["replayed"]), rel=1e-5)


def test_another_memory_in_the_file_gives_another_memory(tmp_path: Path) -> None:
    from dse.config.compose import compose
    from dse.exports.export_program import export_question

    export_question(compose(["chip=hbm2_legacy", "workload=stream", "workload.requests=10"]), "dramsim3", tmp_path, 100)
    told = read_settings(tmp_path / "stream.ini")
    assert read_memory(told).timing.faw == 30
    assert read_memory(told | {"tFAW": "31", "rows": "16384"}).timing.faw == 31
    assert read_memory(told | {"rows": "16384"}).rows == 16384


def rows_file(folder: Path, text: str) -> Path:
    (folder / "mine.csv").write_text(text)
    return folder


def test_rows_from_outside_stand_in_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_outside_rows(tmp_path / "none") == []
    rows = read_outside_rows(rows_file(tmp_path, "case,simulator,version,cycles\nall_to_all,booksim,28f4329,1000\n"))
    assert rows == [OutsideRow("all_to_all", "booksim", "28f4329", 1000.0)]
    monkeypatch.setattr(finding, "read_outside_rows", lambda: rows)
    ours = next(float(row["ours"]) for row in table_of("cases") if row["case"] == "all_to_all")
    assert f"| all_to_all | booksim 28f4329 | 1,000 | {ours:,.0f} | {ours / 1000 - 1:+.1%} |" in finding.finding()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("case,cycles\na,1\n", "expected the columns case, simulator, version, cycles"),
        ("", "expected the columns"),
        ("case,simulator,version,cycles\nnone,booksim,1,5\n", "line 2: no case 'none'"),
        ("case,simulator,version,cycles\nktree,dramsim3,1,5\n", "ktree has no export for 'dramsim3'"),
        ("case,simulator,version,cycles\nktree,booksim,1,nan\n", "cycles must be a number above 0, got 'nan'"),
        ("case,simulator,version,cycles\nktree,booksim,1,-3\n", "cycles must be a number above 0, got '-3'"),
        ("case,simulator,version,cycles\nktree,booksim\n", "cycles must be a number above 0"),
    ],
)
def test_rows_that_make_no_sense_are_refused_in_one_line(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(DesignError) as refused:
        read_outside_rows(rows_file(tmp_path, text))
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_rows_in_another_encoding_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_bytes("case,simulator,version,cycles\nktree,booksim,ü,5\n".encode("utf-16"))
    with pytest.raises(DesignError, match=r"no CSV file in UTF-8|expected the columns"):
        read_outside_rows(tmp_path)
    (tmp_path / "mine.csv").write_text("x" * (outside_rows.MAX_BYTES + 1))
    with pytest.raises(DesignError, match="larger than 1,000,000 B"):
        read_outside_rows(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["run"], "expected no arguments, or: export FOLDER"),
        (["export"], "expected"),
        (["export", "x", "ktre"], "no case ktre"),
    ],
)
def test_the_command_of_the_study_refuses_in_one_line(arguments: list[str], why: str) -> None:
    with pytest.raises(DesignError, match=why):
        command.main(arguments)


def test_systolic_arrays_are_as_near_as_the_page_says() -> None:
    rows = read_engine_rows()
    assert len(rows) == 60
    assert all(row.own_cycles("tile") == row.cycles for row in rows if row.dataflow in ("weight", "input"))
    output = [row for row in rows if row.dataflow == "output"]
    assert all(0.04 < row.gap("tile") < 0.74 for row in output)
    assert sum(abs(row.gap("hidden")) <= NEAR for row in output) >= 12


def test_pipelined_elements_have_the_published_rate() -> None:
    assert redmule_macs() == pytest.approx(REDMULE_MACS, rel=NEAR)
