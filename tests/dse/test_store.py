import sqlite3
from pathlib import Path

import pytest

from dse.samplers import Ask
from dse.store import Context, Result, Store
from space.errors import DesignError

CONTEXT = Context("w" * 32, "closed", 1)
RESULT = Result("d" * 32, {"chip.cores": 3}, {"tpot": 0.1}, "chip.hbm.capacity", 2.0, 1.0, 0.5)


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "s.sqlite"))
    ask = Ask(0, {"chip.cores": 3}, {"params": {}, "trial": {}, "study": {}})
    store.append("s", CONTEXT, ("b", "{}"), [(ask, RESULT.key)], [RESULT])
    again = Store(str(tmp_path / "s.sqlite"))
    assert again.results(CONTEXT) == {RESULT.key: RESULT}
    assert again.asks("s", 1) == [(ask, RESULT.key)]


def test_a_result_that_is_stored_stays(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "s.sqlite"))
    store.append("s", CONTEXT, ("b", "{}"), [], [RESULT])
    store.append("t", CONTEXT, ("b", "{}"), [], [Result(RESULT.key, {}, {"tpot": 9.0})])
    assert store.results(CONTEXT)[RESULT.key] == RESULT


def test_another_schema_is_refused_with_both_numbers(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    Store(str(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE about SET value = '99'")
    with pytest.raises(DesignError, match="schema 99, this version reads 1"):
        Store(str(path))


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(DesignError, match="not a database"):
        Store(str(path))
