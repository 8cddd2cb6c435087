"""Rows of one study in a store: removal and a new name.

Results of designs are shared by studies, and stay.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import orjson
import sqlalchemy as sql

from dse.space.errors import DesignError
from dse.store.database import connect_engine, report_database_errors
from dse.store.study_lock import FileLock, ServerLock
from dse.store.tables import ASKS, RUNS, STUDIES, add_checksum

OWN = (ASKS, RUNS, STUDIES)
"""Tables whose rows belong to a study."""


@contextlib.contextmanager
def hold_study(place: str, study: str) -> Iterator[sql.Engine]:
    """The database of a study, which nobody runs meanwhile.

    Args:
        place: of the store: a file or a URL.
        study: name.

    Raises:
        DesignError: a run holds the study, or the store cannot be opened.
    """
    engine, path, shown = connect_engine(place, create=False)
    lock = ServerLock(engine) if path is None else FileLock(Path(path))
    try:
        with report_database_errors(shown):
            if not lock.take(study):
                raise DesignError(f"study {study!r} is running; stop that run or wait until it ends, then try again")
            yield engine
    finally:
        lock.release()
        engine.dispose()


def delete_study_rows(engine: sql.Engine, study: str) -> None:
    """Remove the runs, the searches and the identity of a study."""
    with engine.begin() as connection:
        for table in OWN:
            connection.execute(sql.delete(table).where(_is_of(table, study)))


def list_studies(engine: sql.Engine) -> list[str]:
    """Names of the studies of a store, in order."""
    with engine.connect() as connection:
        return sorted(connection.execute(sql.select(STUDIES.c.study)).scalars())


def rename_study_rows(engine: sql.Engine, study: str, new: str) -> None:
    """Give a study another name: in its identity, its searches, and the overrides of its runs.

    Raises:
        DesignError: the store has a study of that name.
    """
    if new in list_studies(engine):
        raise DesignError(f"rename: the store has a study {new!r}; choose another name")
    with engine.begin() as connection:
        for table in OWN:
            rows = connection.execute(sql.select(table).where(_is_of(table, study))).all()
            connection.execute(sql.delete(table).where(_is_of(table, study)))
            for row in rows:
                values = {**row._mapping, "study": new + row.study[len(study) :]}
                if table is RUNS:
                    values["facts"] = _facts_with_name(row.facts, new)
                connection.execute(sql.insert(table), add_checksum(table, values))


def _facts_with_name(facts: str, new: str) -> str:
    """Facts of a run whose overrides name the study as it is called now."""
    record = orjson.loads(facts)
    if isinstance(record, dict) and isinstance(record.get("overrides"), list):
        others = [word for word in record["overrides"] if not str(word).startswith("name=")]
        record["overrides"] = [*others, f"name={new}"]
    return orjson.dumps(record).decode()


def _is_of(table: sql.Table, study: str) -> sql.ColumnElement[bool]:
    """Condition of the rows of a study; a search's name is that of the study, a colon and its settings."""
    return (table.c.study == study) | table.c.study.startswith(f"{study}:", autoescape=True)
