"""Tables of a store, and the checksum that shows whether a row is intact.

Version 1 had no checksums: its rows are read as they are, and get theirs when the store is first written to again.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import sqlalchemy as sql

SCHEMA = 2
"""Version of the tables; raised when they change."""

CHECKED_SINCE = 2
"""The first version whose rows have checksums."""

TABLES = sql.MetaData()


def _make_table(name: str, *columns: sql.Column[Any]) -> sql.Table:
    return sql.Table(name, TABLES, *columns, sql.Column("checksum", sql.BigInteger, nullable=False, server_default="0"))


ABOUT = sql.Table("about", TABLES, sql.Column("key", sql.String, primary_key=True), sql.Column("value", sql.Text))
RESULTS = _make_table(
    "results",
    sql.Column("design", sql.String(32), primary_key=True),
    sql.Column("workload", sql.String(32), primary_key=True),
    sql.Column("fidelity", sql.String(16), primary_key=True),
    sql.Column("physics", sql.Integer, primary_key=True),
    sql.Column("base", sql.String(32), nullable=False),
    sql.Column("values", sql.Text, nullable=False),
    sql.Column("metrics", sql.Text, nullable=False),
    sql.Column("limit_address", sql.String, nullable=False),
    sql.Column("need", sql.Float, nullable=False),
    sql.Column("have", sql.Float, nullable=False),
    sql.Column("seconds", sql.Float, nullable=False),
    sql.Column("error", sql.Text, nullable=False),
    sql.Column("version", sql.String, nullable=False),
)
BASES = _make_table("bases", sql.Column("base", sql.String(32), primary_key=True), sql.Column("design", sql.Text))
STUDIES = _make_table(
    "studies", sql.Column("study", sql.String, primary_key=True), sql.Column("identity", sql.Text, nullable=False)
)
ASKS = _make_table(
    "asks",
    sql.Column("study", sql.String, primary_key=True),
    sql.Column("physics", sql.Integer, primary_key=True),
    sql.Column("number", sql.Integer, primary_key=True),
    sql.Column("design", sql.String(32), nullable=False),
    sql.Column("values", sql.Text, nullable=False),
    sql.Column("marks", sql.Text, nullable=False),
)
RUNS = _make_table(
    "runs",
    sql.Column("id", sql.Integer, primary_key=True, autoincrement=True),
    sql.Column("study", sql.String, nullable=False),
    sql.Column("started", sql.String, nullable=False),
    sql.Column("ended", sql.String),
    sql.Column("state", sql.String, nullable=False),
    sql.Column("facts", sql.Text, nullable=False),
)
CHECKED = (RESULTS, BASES, STUDIES, ASKS, RUNS)
"""Tables whose rows have checksums."""
EXPLANATIONS = _make_table(
    "explanations",
    sql.Column("design", sql.String(32), primary_key=True),
    sql.Column("workload", sql.String(32), primary_key=True),
    sql.Column("fidelity", sql.String(16), primary_key=True),
    sql.Column("physics", sql.Integer, primary_key=True),
    sql.Column("question", sql.String, primary_key=True),
    sql.Column("answer", sql.Text, nullable=False),
    sql.Column("version", sql.String, nullable=False),
)
"""Answers of explanations. A store of an earlier version lacks the table until the first answer; damaged rows are left out and
replaced, since an answer can be computed again."""


def checksummed_columns(table: sql.Table) -> list[sql.Column[Any]]:
    """Columns under the checksum: all but itself and numbers that the database chooses."""
    return [column for column in table.columns if column.name not in ("id", "checksum")]


def row_checksum(values: Sequence[Any]) -> int:
    """Checksum of a row's contents, in the order of its columns; -1 for contents that are no valid row.

    >>> row_checksum(("toy", 1, 0.5)) == row_checksum(("toy", 1, 0.5000001))
    False
    """
    try:
        return zlib.crc32(orjson.dumps(values))
    except TypeError:  # text turned into bytes, or into what is no UTF-8
        return -1


def add_checksum(table: sql.Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its checksum, with floats as a database returns them.

    A database has no whole numbers and no -0 among floats.
    """
    cells = {}
    for column in checksummed_columns(table):
        value = row.get(column.name)
        cells[column.name] = float(value) + 0.0 if isinstance(column.type, sql.Float) and value is not None else value
    return {**row, **cells, "checksum": row_checksum(tuple(cells.values()))}
