"""Rows of a store: what a checksum is of, what a result is of, and asks before the first that is missing."""

from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sql

from dse.search.samplers import Ask
from dse.store.store import DesignResult, ResultContext, Store
from dse.store.tables import CHECKED, add_checksum

CONTEXT = ResultContext("load", "analytical", 7)
BASE = ("base", "{}")


@pytest.mark.parametrize("table", CHECKED, ids=lambda table: table.name)
def test_another_value_of_any_column_has_another_checksum(table: sql.Table) -> None:
    row = {
        column.name: "text" if isinstance(column.type, sql.String) else 1.5 if isinstance(column.type, sql.Float) else 1
        for column in table.columns
    }
    sound = add_checksum(table, row)["checksum"]
    for column in table.columns:
        if column.name not in ("checksum", "id"):  # the database chooses the number of a run
            value = row[column.name]
            other = {**row, column.name: value + "s" if isinstance(value, str) else value + 1}  # type: ignore[operator]
            assert add_checksum(table, other)["checksum"] != sound, column.name


def test_a_result_is_of_its_load_fidelity_and_physics(tmp_path: Path) -> None:
    contexts = [CONTEXT, ResultContext("other", "analytical", 7), ResultContext("load", "events", 7)]
    contexts.append(ResultContext("load", "analytical", 8))
    with closing(Store(str(tmp_path / "results.sqlite"))) as store:
        for number, context in enumerate(contexts):
            store.append("toy", context, BASE, [], [DesignResult("key", {}, {"tpot": number + 1.0})])
        for number, context in enumerate(contexts):
            for known in (store.results(context), store.find_results(context, ["key"])):
                assert {key: result.metrics for key, result in known.items()} == {"key": {"tpot": number + 1.0}}


def test_asks_behind_one_that_is_missing_are_asked_again(tmp_path: Path) -> None:
    with closing(Store(str(tmp_path / "results.sqlite"))) as store:
        store.begin("toy", {}, {})
        asks = [(Ask(number, {"chip.cores": number}), f"key{number}") for number in (0, 1, 3, 4)]
        store.append("toy", CONTEXT, BASE, asks, [])
        assert store.asks("toy", CONTEXT.physics) == asks[:2]
        assert store.ask_count("toy", CONTEXT.physics) == 2
        assert store.asks("toy", CONTEXT.physics) == asks[:2]
