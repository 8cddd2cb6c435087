"""Integrity of a store: intact and damaged rows, and repair of tables with damaged ones.

Rows of a file are looked at whole and without an index, whatever is requested: a row whose key is damaged would otherwise be
missed without a word, and so would one that an index has lost. A server looks after its pages itself, so of it only the
requested rows are checked.
"""

import re
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sql

from dse.store.tables import ABOUT, CHECKED, CHECKED_SINCE, SCHEMA, add_checksum, checksummed_columns, row_checksum

Row = Mapping[str, Any]

ROWS_ONLY = re.compile(
    r"missing from index|wrong # of entries|non-unique entry|(NULL|NUMERIC|TEXT|BLOB|INT\w*|REAL) value in|Rowid \d+"
)
"""What SQLite says of a file whose rows can all be looked at: indexes and single rows are damaged, and nothing else."""


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """Intact rows of a table, and the number and keys of damaged ones.

    Attributes:
        sound: intact ones, with their columns in the order of the table, or what is read of each.
        damaged: how many are not as they were written; of a file, in the whole table.
        keys: primary keys of damaged ones, as far as they can be read.
    """

    sound: list[Any]
    damaged: int
    keys: Sequence[Row]


def read_checked_rows(
    connection: sql.Connection,
    table: sql.Table,
    where: Row,
    *,
    file: bool,
    checked: bool,
    read: Callable[[Any], Any] | None = None,
) -> CheckedRows:
    """Matching rows of a table, without damaged ones.

    Args:
        connection: to the database.
        table: one of `CHECKED`.
        where: what columns must be equal to.
        file: whether the database is a file.
        checked: whether its rows have checksums.
        read: what is kept of an intact row in its place, as all rows together may take ten times the memory; None for the row.
    """
    columns = [column for column in table.columns if checked or column.name != "checksum"]
    query = sql.select(*columns)
    if not file:
        query = query.where(*(table.c[name] == value for name, value in where.items()))
    places = {column.name: place for place, column in enumerate(columns)}
    wanted = [(places[name], value) for name, value in where.items()] if file else []
    # both leave out what no checksum is of, which stands first and last
    first = len(columns) - 1 - len(checksummed_columns(table))
    unreadable = 0
    good: list[Any] = []
    bad: list[Any] = []

    def take(rows: Iterable[Any]) -> None:
        good.clear()
        bad.clear()
        for row in rows:
            if checked and row_checksum(row[first:-1]) != row[-1]:
                bad.append(row)
            elif all(row[place] == value for place, value in wanted):
                good.append(row if read is None else read(row))

    try:
        take(connection.execute(query))
    except sql.exc.DatabaseError as error:
        if not file or not re.search("decode to UTF-8|malformed", str(error.orig)):
            raise
        sound_rows, unreadable = _one_by_one(connection, table, columns)
        named = namedtuple("named", [column.name for column in columns])  # type: ignore[misc]
        take(named(*row) for row in sound_rows)
    keys = [{column.name: row[places[column.name]] for column in table.primary_key} for row in bad]
    return CheckedRows(good, len(bad) + unreadable, keys)


def find_file_faults(connection: sql.Connection) -> tuple[str, bool]:
    """First fault of a file's pages and indexes, and whether its rows can still all be read.

    Empty string for no fault.
    """
    lines = [" ".join(str(line).split()) for (line,) in connection.execute(sql.text("PRAGMA integrity_check"))]
    if lines == ["ok"]:
        return "", True
    other = [line for line in lines if not ROWS_ONLY.search(line) and not line.startswith("*** in database")]
    return (other or lines)[0], not other


def rebuild_table(connection: sql.Connection, table: sql.Table) -> None:
    """Rebuild a table of a file from its intact rows, with indexes, in the caller's transaction."""
    if table is ABOUT:
        rows = [dict(row) for row in connection.execute(sql.select(ABOUT)).mappings()]
    else:
        names = [column.name for column in table.columns]
        found_rows = read_checked_rows(connection, table, {}, file=True, checked=True).sound
        # a key stands twice where a damaged page has a row twice
        unique = {tuple(row[names.index(column.name)] for column in table.primary_key): row for row in found_rows}
        rows = [dict(zip(names, row, strict=True)) for row in unique.values()]
    connection.execute(sql.text(f'ALTER TABLE "{table.name}" RENAME TO "damaged_{table.name}"'))
    table.create(connection)
    if rows:
        connection.execute(sql.insert(table), rows)
    connection.execute(sql.text(f'DROP TABLE "damaged_{table.name}"'))


def add_checksums(connection: sql.Connection, schema: int, *, file: bool) -> None:
    """Add checksums to rows of an older version, in the caller's transaction."""
    if schema < CHECKED_SINCE:
        for table in CHECKED:
            found_rows = read_checked_rows(connection, table, {}, file=file, checked=False).sound
            connection.execute(sql.text(f'ALTER TABLE "{table.name}" ADD COLUMN checksum BIGINT NOT NULL DEFAULT 0'))
            keys = [column.name for column in table.primary_key]
            change = sql.update(table).where(*(table.c[name] == sql.bindparam(f"key_{name}") for name in keys))
            rows = [add_checksum(table, row._mapping) for row in found_rows]
            for start in range(0, len(rows), 10_000):
                part = rows[start : start + 10_000]
                changes = [{**{f"key_{name}": row[name] for name in keys}, "sum": row["checksum"]} for row in part]
                connection.execute(change.values(checksum=sql.bindparam("sum")), changes)
    connection.execute(sql.update(ABOUT).where(ABOUT.c.key == "schema").values(value=str(SCHEMA)))


def _one_by_one(connection: sql.Connection, table: sql.Table, columns: list[sql.Column[Any]]) -> tuple[list[Any], int]:
    """Rows of a file of which some cannot be read at all, and how many these are."""
    raw: Any = connection.connection.dbapi_connection
    names = ", ".join(f'"{column.name}"' for column in columns)
    rows, unreadable, usual = [], 0, raw.text_factory
    raw.text_factory = lambda text: text.decode(errors="replace")
    try:
        for (number,) in raw.execute(f'SELECT rowid FROM "{table.name}" NOT INDEXED').fetchall():
            try:
                row_read = raw.execute(f'SELECT {names} FROM "{table.name}" WHERE rowid = ?', (number,)).fetchone()
            except raw.DatabaseError:
                row_read = None
            if row_read is None:
                unreadable += 1
            else:
                rows.append(row_read)
    finally:
        raw.text_factory = usual
    return rows, unreadable
