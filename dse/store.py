"""Results that outlive a run. SQLite by default, PostgreSQL by URL, the same statements.

The store is the truth: a result is here, committed, before a sampler is told, and a design that is here is not evaluated
again. One transaction holds the asks and the results of one round, so that a killed run leaves whole rounds only.
"""

import contextlib
import getpass
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sql

from dse.database import DAMAGED, engine, told
from dse.hold import FileHold, ServerHold, number
from dse.samplers import Ask
from space.errors import DesignError

SCHEMA = 1
"""Version of the tables; raised when they change."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a result is a result of, beside its design."""

    workload: str
    fidelity: str
    physics: int


@dataclass(frozen=True, slots=True)
class Result:
    """What came out for one design.

    Attributes:
        key: content key of the design.
        values: by knob, as the study that evaluated it named them.
        metrics: by name; empty where the evaluation failed.
        limit, need, have: the limit that binds, "" where all hold.
        seconds: spent on it.
        error: why the evaluation failed, "" where it did not.
    """

    key: str
    values: dict[str, Any]
    metrics: dict[str, float] = field(default_factory=dict)
    limit: str = ""
    need: float = 0.0
    have: float = 0.0
    seconds: float = 0.0
    error: str = ""


_tables = sql.MetaData()
_about = sql.Table("about", _tables, sql.Column("key", sql.String, primary_key=True), sql.Column("value", sql.Text))
_results = sql.Table(
    "results",
    _tables,
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
_bases = sql.Table("bases", _tables, sql.Column("base", sql.String(32), primary_key=True), sql.Column("design", sql.Text))
_studies = sql.Table(
    "studies", _tables, sql.Column("study", sql.String, primary_key=True), sql.Column("identity", sql.Text, nullable=False)
)
_asks = sql.Table(
    "asks",
    _tables,
    sql.Column("study", sql.String, primary_key=True),
    sql.Column("physics", sql.Integer, primary_key=True),
    sql.Column("number", sql.Integer, primary_key=True),
    sql.Column("design", sql.String(32), nullable=False),
    sql.Column("values", sql.Text, nullable=False),
    sql.Column("marks", sql.Text, nullable=False),
)
_runs = sql.Table(
    "runs",
    _tables,
    sql.Column("id", sql.Integer, primary_key=True, autoincrement=True),
    sql.Column("study", sql.String, nullable=False),
    sql.Column("started", sql.String, nullable=False),
    sql.Column("ended", sql.String),
    sql.Column("state", sql.String, nullable=False),
    sql.Column("facts", sql.Text, nullable=False),
)


class Store:
    """One database of results.

    Args:
        place: a file, or a URL of SQLAlchemy's for SQLite or PostgreSQL.
        create: make one where there is none; without it nothing at the place is changed.

    Attributes:
        place: to show people, without a password.

    Raises:
        DesignError: the database cannot be opened, is damaged, is not one of ours, or was written with another schema.
    """

    def __init__(self, place: str, *, create: bool = True) -> None:
        self._engine, self._path, self.place = engine(place, create=create)
        server = None if self._path else ServerHold(self._engine)
        self._server = server
        self._hold: FileHold | ServerHold = server or FileHold(Path(str(self._path)))
        try:
            self._open(create=create)
        except BaseException:
            self._engine.dispose()
            raise

    def identity(self, study: str) -> dict[str, Any] | None:
        """What the study was when it was first run; None where it never was."""
        with self._reading() as connection:
            row = connection.execute(sql.select(_studies.c.identity).where(_studies.c.study == study)).first()
            return orjson.loads(row[0]) if row else None

    def begin(self, study: str, identity: dict[str, Any], facts: dict[str, Any]) -> int:
        """Notes a run of a study, and holds the study until the run's end, `close` or the end of the process.

        Returns:
            The run's number.

        Raises:
            DesignError: another driver runs the study (the message says who, where and since when), or the store is damaged.
        """
        with told(self.place):
            mine = self._hold.take(study)
        if not mine:
            raise DesignError(self._held_by(study))
        try:
            self._check_pages()
            with self._writing() as connection:
                if connection.execute(sql.select(_studies.c.study).where(_studies.c.study == study)).first() is None:
                    connection.execute(sql.insert(_studies), {"study": study, "identity": _text(identity)})
                # who holds the study knows that no other run of it goes on
                left = sql.update(_runs).where(_runs.c.study == study, _runs.c.state == "running")
                connection.execute(left.values(state="killed"))
                run = {"study": study, "started": _now(), "state": "running", "facts": _text(whereabouts() | facts)}
                return int(connection.execute(sql.insert(_runs), run).inserted_primary_key[0])  # type: ignore[index]
        except BaseException:
            self._hold.release()
            raise

    def end(self, run: int, state: str, facts: dict[str, Any]) -> None:
        """Notes how a run ended, and lets go of its study."""
        try:
            with self._writing() as connection:
                row = connection.execute(sql.select(_runs.c.facts).where(_runs.c.id == run)).first()
                known = orjson.loads(row[0]) if row else {}
                values = {"ended": _now(), "state": state, "facts": _text(known | facts)}
                connection.execute(sql.update(_runs).where(_runs.c.id == run).values(**values))
        finally:
            self._hold.release()

    def runs(self, study: str) -> list[dict[str, Any]]:
        """The runs of a study, oldest first.

        Of one that could not say how it ended, the state is "killed"; or "lost" where it was run on another machine, which
        does not hold this file: it was killed there, or this is a copy of the file and it goes on.
        """
        runs = self._runs(study)
        going = [run["id"] for run in runs if run["state"] == "running"]
        with told(self.place):
            if not going or self._hold.taken(study):
                return runs
        runs = self._runs(study)  # again, as one may have ended between the two looks
        for run in runs:
            if run["id"] in going and run["state"] == "running":
                here = self._server or run["facts"].get("host") == whereabouts()["host"]
                run["state"] = "killed" if here else "lost"
        return runs

    def append(
        self,
        study: str,
        context: Context,
        base: tuple[str, str],
        asks: Sequence[tuple[Ask, str]],
        results: Sequence[Result],
    ) -> None:
        """One round in one transaction: asks with the keys of their designs, and results; rows that exist already stay."""
        from dse import version

        if not asks and not results:
            return
        with self._writing() as connection:
            if results:
                self._insert_new(connection, _bases, [{"base": base[0], "design": base[1]}])
                rows = [
                    {
                        "design": result.key,
                        "workload": context.workload,
                        "fidelity": context.fidelity,
                        "physics": context.physics,
                        "base": base[0],
                        "values": _text(result.values),
                        "metrics": _text(result.metrics),
                        "limit_address": result.limit,
                        "need": result.need,
                        "have": result.have,
                        "seconds": result.seconds,
                        "error": _plain(result.error),
                        "version": version(),
                    }
                    # in one order for all, or two studies that evaluate the same designs wait for each other at a server
                    for result in sorted(results, key=lambda result: result.key)
                ]
                self._insert_new(connection, _results, rows)
            if asks:
                rows = [
                    {
                        "study": study,
                        "physics": context.physics,
                        "number": ask.number,
                        "design": key,
                        "values": _text(ask.values),
                        "marks": _text(ask.marks),
                    }
                    for ask, key in asks
                ]
                self._insert_new(connection, _asks, rows)

    def asks(self, study: str, physics: int) -> list[tuple[Ask, str]]:
        """The asks of a study with the keys of their designs, in order."""
        query = sql.select(_asks.c.number, _asks.c["values"], _asks.c.marks, _asks.c.design)
        query = query.where(_asks.c.study == study, _asks.c.physics == physics).order_by(_asks.c.number)
        with self._reading() as connection:
            rows = connection.execute(query).all()
            return [(Ask(number, orjson.loads(values), orjson.loads(marks)), key) for number, values, marks, key in rows]

    def asked(self, study: str, physics: int) -> int:
        """How many asks a study has."""
        query = sql.select(sql.func.count()).where(_asks.c.study == study, _asks.c.physics == physics)
        with self._reading() as connection:
            return int(connection.execute(query).scalar_one())

    def results(self, context: Context) -> dict[str, Result]:
        """All results of a context, by design key; those of any study."""
        columns = ("design", "values", "metrics", "limit_address", "need", "have", "seconds", "error")
        query = sql.select(*(_results.c[name] for name in columns)).where(
            _results.c.workload == context.workload,
            _results.c.fidelity == context.fidelity,
            _results.c.physics == context.physics,
        )
        with self._reading() as connection:
            rows = connection.execute(query).all()
            loads = orjson.loads
            return {row[0]: Result(row[0], loads(row[1]), loads(row[2]), *row[3:]) for row in rows}

    def counted(self, context: Context) -> int:
        """How many results of a context there are."""
        query = sql.select(sql.func.count()).where(
            _results.c.workload == context.workload,
            _results.c.fidelity == context.fidelity,
            _results.c.physics == context.physics,
        )
        with self._reading() as connection:
            return int(connection.execute(query).scalar_one())

    def bases(self, context: Context) -> dict[str, dict[str, Any]]:
        """Of every result of a context, by design key, all leaves of the design that its values change."""
        query = (
            sql.select(_results.c.design, _results.c.base)
            .where(_results.c.workload == context.workload, _results.c.fidelity == context.fidelity)
            .where(_results.c.physics == context.physics)
        )
        with self._reading() as connection:
            texts = {base: orjson.loads(text) for base, text in connection.execute(sql.select(_bases)).all()}
            return {design: texts[base] for design, base in connection.execute(query).all()}

    def of_other_physics(self, context: Context) -> dict[int, int]:
        """Results of the same workload and fidelity under other versions of the physics, counted by version."""
        query = (
            sql.select(_results.c.physics, sql.func.count())
            .where(_results.c.workload == context.workload, _results.c.fidelity == context.fidelity)
            .where(_results.c.physics != context.physics)
            .group_by(_results.c.physics)
        )
        with self._reading() as connection:
            return {int(physics): int(count) for physics, count in connection.execute(query).all()}

    def close(self) -> None:
        """Lets go of the database, and of the study that is held."""
        self._hold.release()
        self._engine.dispose()

    def _runs(self, study: str) -> list[dict[str, Any]]:
        with self._reading() as connection:
            rows = connection.execute(sql.select(_runs).where(_runs.c.study == study).order_by(_runs.c.id)).mappings().all()
            return [{**row, "facts": orjson.loads(row["facts"])} for row in rows]

    def _open(self, *, create: bool) -> None:
        with self._reading() as connection:
            found = sql.inspect(connection).get_table_names()
            if found:
                self._check_schema(connection, found)
        if not found and not create:
            raise DesignError(f"store: {self.place}: there are no results in it yet; run a study with store={self.place}")
        if not found:
            with self._writing() as connection:
                connection.execute(sql.text("BEGIN IMMEDIATE" if self._path else f"SELECT pg_advisory_xact_lock({number('')})"))
                found = sql.inspect(connection).get_table_names()  # another driver may have been quicker
                if not found:
                    _tables.create_all(connection)
                    connection.execute(sql.insert(_about), {"key": "schema", "value": str(SCHEMA)})
                else:
                    self._check_schema(connection, found)
        if create and self._path:  # readers do not wait for writers; kept in the file
            with self._reading() as connection:
                connection.execute(sql.text("PRAGMA journal_mode=WAL"))

    def _check_schema(self, connection: sql.Connection, found: Sequence[str]) -> None:
        columns = {one["name"] for one in sql.inspect(connection).get_columns("about")} if "about" in found else set()
        row = None
        if {"key", "value"} <= columns:
            row = connection.execute(sql.select(_about.c.value).where(_about.c.key == "schema")).first()
        missing = _tables.tables.keys() - set(found)
        if row is None or missing:
            tables = ", ".join(sorted(found)[:4]) + (", ..." if len(found) > 4 else "")
            raise DesignError(
                f"store: {self.place}: a database of something else (tables {tables}); it is left as it is; "
                "choose another with store=PATH or store=URL"
            )
        if str(row[0]) != str(SCHEMA):
            raise DesignError(
                f"store: {self.place} was written with schema {row[0]}, this version reads {SCHEMA}; "
                "run again with store=PATH, or read it with the version that wrote it"
            )

    def _check_pages(self) -> None:
        """Reads a file whole, as a page that is damaged may be one that is written first and read years later."""
        if self._path:
            with self._reading() as connection:
                found = connection.execute(sql.text("PRAGMA quick_check(1)")).scalar_one()
            if found != "ok":
                raise DesignError(f"store: {self.place}: {' '.join(str(found).split())}; {DAMAGED}")

    def _held_by(self, study: str) -> str:
        running = [run for run in self.runs(study) if run["state"] == "running"]
        who = "another driver"
        if running:
            facts = running[-1]["facts"]
            since = running[-1]["started"].replace("T", " ").replace("+00:00", " UTC")
            who = f"{facts.get('user', 'somebody')} on {facts.get('host', '?')}, process {facts.get('pid', '?')}, since {since}"
        return (
            f"study {study!r} is being run by {who}; look on with dse report {study} --follow, wait for it or stop it there, "
            "or run one beside it with name=NEW"
        )

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sql.Connection]:
        with told(self.place), self._engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sql.Connection]:
        """One transaction; in the session that holds the study, so that who has lost the one cannot do the other."""
        with told(self.place):
            session = self._server.session if self._server else None
            if session is not None:
                with session.begin():
                    yield session
            else:
                with self._engine.begin() as connection:
                    yield connection

    def _insert_new(self, connection: sql.Connection, table: sql.Table, rows: Iterable[dict[str, Any]]) -> None:
        if self._path:
            from sqlalchemy.dialects.sqlite import insert
        else:
            from sqlalchemy.dialects.postgresql import insert  # type: ignore[assignment]
        connection.execute(insert(table).on_conflict_do_nothing(), list(rows))


def whereabouts() -> dict[str, Any]:
    """Who runs this, and where."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a number without a name
        user = str(os.getuid())
    return {"user": user, "host": socket.gethostname(), "pid": os.getpid()}


def _text(value: Any) -> str:
    return orjson.dumps(value).decode()


def _plain(text: str) -> str:
    """A text without what PostgreSQL or UTF-8 have no place for."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
