"""Connection to a store, a SQLite file or a PostgreSQL database; database errors as one line."""

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import sqlalchemy as sql

from dse.space.errors import DesignError, suggest_nearest
from dse.space.safe_text import mask_passwords


def connect_engine(place: str, *, create: bool) -> tuple[sql.Engine, Path | None, str]:
    """Engine of a database, its file (None of a server), and its name without a password.

    Args:
        place: a file, or a URL of SQLAlchemy's for SQLite or PostgreSQL.
        create: make a file where there is none.

    Raises:
        DesignError: no such place, or one of another kind.
    """
    url = _store_url(place)
    path = Path(url.database or "") if url.drivername.startswith("sqlite") else None
    shown = str(path) if path else url.render_as_string()
    options: dict[str, Any] = {}
    if path:
        url = _file_url(path, shown, create=create)
    elif "connect_timeout" not in url.query:
        options["connect_args"] = {"connect_timeout": 10}
    try:
        made = sql.create_engine(url, **options)
    except ImportError as error:
        raise DesignError(f"store: {shown}: {error}; pip install 'mesh-dse[postgresql]', or write a file's path") from None
    if path:
        sql.event.listen(made, "connect", _make_durable)
    return made, path, shown


def store_exists(place: str) -> bool:
    """Whether there is a store at a place, as far as can be known without a server."""
    url = _store_url(place)
    return not url.drivername.startswith("sqlite") or Path(url.database or "").is_file()


def is_same_store(place: str, other: str) -> bool:
    """Whether two places are one store, whatever the password."""
    return _store_url(place).set(password=None) == _store_url(other).set(password=None)


@contextlib.contextmanager
def report_database_errors(shown: str) -> Iterator[None]:
    """Context that turns database errors into one line for the user."""
    try:
        yield
    except (sql.exc.SQLAlchemyError, sqlite3.DatabaseError, orjson.JSONDecodeError, UnicodeDecodeError) as error:
        origin = getattr(error, "orig", None) or error
        reason = next((line.strip() for line in str(origin).splitlines() if line.strip()), type(origin).__name__)
        code = getattr(origin, "sqlite_errorname", None) or getattr(origin, "sqlstate", None) or ""
        if not isinstance(error, sql.exc.SQLAlchemyError):
            code, reason = "SQLITE_CORRUPT", f"a row of it cannot be read ({reason})"
        remedy = next((remedy for pattern, remedy in REMEDIES if re.search(pattern, f"{code} {reason}")), OTHER)
        raise DesignError(f"store: {shown}: {mask_passwords(reason)}; {remedy}") from error


def enable_write_ahead(connection: sql.Connection) -> None:
    """Set a file to write-ahead logging, so that reads do not wait for writes; kept in the file.

    To change this SQLite reads first and then wants the file alone. It waits for nobody then, as two who do so at once would
    wait for each other; so this is tried again for as long as SQLite waits elsewhere.
    """
    end = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute(sql.text("PRAGMA journal_mode=WAL"))
            return
        except sql.exc.OperationalError as error:
            if getattr(error.orig, "sqlite_errorname", "") != "SQLITE_BUSY" or time.monotonic() > end:
                raise
            time.sleep(0.01)


BUSY_TIMEOUT_S = 10.0
"""How long to wait for a file that another program keeps locked. [s]"""

OTHER = "choose another with store=PATH or store=URL"
DAMAGED = (
    "the file is damaged and was left as it is: restore a copy, or go on with what can be read of it, "
    "sqlite3 FILE .recover | sqlite3 NEW, and store=NEW"
)
WRITABLE = "choose a place that can be written with store=PATH or run_dir=DIR"
REMEDIES = (
    (
        "SQLITE_(FULL|IOERR)|^53100|^58030",
        "is the disk full? free some space and run the same command again: what is stored stays",
    ),
    ("SQLITE_(CORRUPT|NOTADB)|decode to UTF-8", DAMAGED),
    ("SQLITE_(READONLY|CANTOPEN|PERM|AUTH)", WRITABLE),
    ("SQLITE_(BUSY|LOCKED)", "another program keeps it locked; end that one, then run the same command again"),
    ("^42501|^3F000|^25006", "this user may not write there; ask for the right to, or choose another with store=URL"),
    (
        "^28P01|^28000|password|no pg_hba|role .* does not exist",
        "correct USER and the password in store=postgresql://USER:PASSWORD@HOST/NAME, or keep it in ~/.pgpass or PGPASSWORD",
    ),
    ("^3D000|database .* does not exist", "make it with createdb, or correct NAME in store=postgresql://USER@HOST/NAME"),
    (
        "refused|timeout|timed out|resolve|translate|No such file|unreachable|shutting down|starting up|terminat|closed|lost",
        "is the server running there? start it or correct HOST and PORT in store=postgresql://USER@HOST:PORT/NAME, "
        "then run the same command again: what is stored stays",
    ),
)
"""What a database reports, by its code or words, and what to do about it."""


def strip_password(place: str) -> str:
    """URL of a database without its password, for storage in files; a path as it is.

    >>> strip_password("postgresql://me:secret@host/results")
    'postgresql://me@host/results'
    """
    if "://" not in place:
        return place
    url = sql.make_url(place).difference_update_query(["password"])
    return url._replace(password=None).render_as_string(hide_password=False)


def _store_url(place: str) -> sql.URL:
    if "://" not in place:
        return sql.URL.create("sqlite", database=str(Path(place).resolve()))
    example = "write a file's path, or postgresql://USER@HOST/NAME"
    try:
        url = sql.make_url(place)
    except (sql.exc.ArgumentError, ValueError):
        raise DesignError(f"store: {mask_passwords(place)}: not a URL; {example}") from None
    name = url.get_backend_name()
    if name not in ("sqlite", "postgresql"):
        raise DesignError(
            f"store: {mask_passwords(place)}: no database {name!r}; {suggest_nearest(name, ('sqlite', 'postgresql'))}"
        )
    if name == "postgresql":
        try:
            place.encode()
        except UnicodeEncodeError:  # bytes of a command line that are no UTF-8, which a path may have and a URL not
            raise DesignError(f"store: {mask_passwords(place)}: a URL of other characters than UTF-8; {example}") from None
        return url.set(drivername="postgresql+psycopg")
    if url.database in (None, "", ":memory:"):
        raise DesignError(f"store: {place}: names no file, so nothing would stay; {example}")
    return sql.URL.create("sqlite", database=str(Path(str(url.database)).resolve()))


def _file_url(path: Path, place: str, *, create: bool) -> sql.URL:
    if path.is_dir():
        raise DesignError(f"store: {place}: a folder; name a file in it, as in store={path / 'results.sqlite'}")
    if create:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DesignError(f"store: {path.parent}: {error.strerror}; {WRITABLE}") from None
    elif not path.is_file():
        raise DesignError(f"store: {place}: no such file; run a study first, or correct the path")
    query = {"uri": "true", "mode": "rwc" if create else "rw"}
    if not create and not os.access(path.parent, os.W_OK) and not Path(f"{path}-wal").exists():
        query["immutable"] = "1"  # no place for the files by which readers and writers agree, so nobody writes either
    return sql.URL.create("sqlite", database=f"file:{quote(str(path))}", query=query)


def _make_durable(connection: Any, record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_S * 1000:.0f}")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()
