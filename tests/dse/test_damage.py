"""A store or a block of a screen of which a bit has flipped: told or harmless, and after another run as if it had not."""

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dse.evaluators import PHYSICS_VERSION
from dse.execution.screen import load_stored_screen, run_screen
from dse.execution.study import Study
from dse.space.errors import DesignError
from dse.store.store import Store
from dse.store.tables import CHECKED
from tests.dse.toy import searched, toy

BUDGET = "search.budget=40"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A store that a search has filled, and what the search found."""
    folder = tmp_path_factory.mktemp("whole")
    results = searched(toy(folder, BUDGET))
    return folder / "results.sqlite", results


def looked_at(study: Study) -> tuple[Any, Any]:
    with closing(Store(study.store, create=False)) as store:
        return store.results(study.context), store.asks(study.name, PHYSICS_VERSION)


def cells(path: Path) -> list[tuple[str, int, str]]:
    """Every cell of every table with checksums: table, row, column."""
    with closing(sqlite3.connect(path)) as connection:
        return [
            (table.name, number, column.name)
            for table in CHECKED
            for (number,) in connection.execute(f"SELECT rowid FROM {table.name}")
            for column in table.columns
            if column.name != "id"
        ]


def flip_a_cell(path: Path, chance: random.Random) -> None:
    """One bit of one cell, whatever the column's type makes of it."""
    table, number, column = chance.choice(cells(path))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (value,) = connection.execute(f'SELECT "{column}" FROM {table} WHERE rowid = ?', (number,)).fetchone()
        if isinstance(value, str):
            text = bytearray(value.encode() or b"\0")
            text[chance.randrange(len(text))] ^= 1 << chance.randrange(8)
            connection.execute(f'UPDATE {table} SET "{column}" = CAST(? AS TEXT) WHERE rowid = ?', (bytes(text), number))
        elif value is not None:
            other = value * 2 + 1 if isinstance(value, float) else value ^ 1 << chance.randrange(30)
            connection.execute(f'UPDATE OR REPLACE {table} SET "{column}" = ? WHERE rowid = ?', (other, number))


def flip_the_file(path: Path, chance: random.Random) -> None:
    """One bit anywhere: rows, keys, indexes, pages, the schema."""
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


@pytest.mark.sampled
@pytest.mark.parametrize("flip", [flip_a_cell, flip_the_file])
@pytest.mark.parametrize("seed", range(12))
def test_a_flipped_bit_is_told_or_harmless_and_gone_after_another_run(
    flip: Callable[[Path, random.Random], None],
    seed: int,
    whole: tuple[Path, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, results = whole
    shutil.copy(source, tmp_path / "results.sqlite")
    study = toy(tmp_path, BUDGET)
    sound = looked_at(study)
    flip(tmp_path / "results.sqlite", random.Random(seed))
    capsys.readouterr()
    try:
        read = looked_at(study)
        assert read == sound or "damaged" in capsys.readouterr().err
        assert searched(study) == results
        assert looked_at(study)[1] == sound[1]
        report = capsys.readouterr().err
        looked_at(study)
        assert "damaged" not in capsys.readouterr().err, report  # it is mended
    except DesignError as error:  # the file as a whole cannot be trusted: its rows are left for the user to recover
        if flip is flip_a_cell or not str(error).startswith("store: "):
            raise


def test_results_whose_rows_are_gone_are_evaluated_again(whole: tuple[Path, Any], tmp_path: Path) -> None:
    source, results = whole
    shutil.copy(source, tmp_path / "results.sqlite")
    with closing(sqlite3.connect(tmp_path / "results.sqlite")) as connection:
        connection.execute("DELETE FROM results WHERE rowid % 3 = 0")
        connection.commit()
    assert searched(toy(tmp_path, BUDGET)) == results


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(6))
def test_a_flipped_bit_in_a_block_of_a_screen_is_told_and_evaluated_again(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = toy(tmp_path, "screen.run=true", "screen.limit=64")
    first = run_screen(study, lambda done, total, size: None)
    (file,) = first.blocks
    flip_the_file(Path(str(file)), random.Random(seed))
    assert load_stored_screen(study) is None
    assert "damaged; left out" in capsys.readouterr().err
    again = run_screen(study, lambda done, total, size: None)
    assert (again.evaluated, again.front.equals(first.front)) == (first.rows, True)


def test_a_store_that_is_removed_while_a_study_runs_is_noticed_at_the_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = toy(tmp_path / "runs", BUDGET)
    append, left = Store.append, [2]

    def removed(*arguments: Any) -> None:
        left[0] -= 1
        if not left[0]:
            shutil.rmtree(tmp_path / "runs")
        append(*arguments)

    monkeypatch.setattr(Store, "append", removed)
    with pytest.raises(DesignError, match="was removed or replaced while study 'toy' ran"):
        searched(study)


@pytest.mark.parametrize("command", ["show", "export", "report", "explain"])
@pytest.mark.parametrize("column", ["metrics", "need", "seconds"])
def test_every_command_that_reads_a_store_tells_that_its_rows_were_changed(
    command: str, column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert typed("run", "study=quickstart", "screen.run=false", "search=random", "search.budget=2", "workers=serial")[0] == 0
    with closing(sqlite3.connect("runs/quickstart/results.sqlite", isolation_level=None)) as connection:
        connection.execute(f"""UPDATE results SET "{column}" = replace("{column}", '.', '1.')""")
    _, _, err = typed(command, "quickstart")
    assert "damaged row" in err
