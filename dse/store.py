"""Results that outlive a run, and the one room of SQL. SQLite by default, PostgreSQL by URL, the same statements.

The store is the truth: a result is here, committed, before a sampler is told, and a design that is here is not evaluated
again. One transaction holds the asks and the results of one round, so that a killed run leaves whole rounds only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sql

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

    Raises:
        DesignError: the database cannot be opened, is damaged, or was written with another schema.
    """

    def __init__(self, url: str) -> None:
        self.url = url if "://" in url else f"sqlite:///{Path(url).resolve()}"
        try:
            self._engine = sql.create_engine(self.url)
        except (sql.exc.ArgumentError, sql.exc.NoSuchModuleError, ImportError) as error:
            raise DesignError(
                f"store: {self.url}: {error}; write a file's path, or postgresql+psycopg://USER@HOST/NAME"
            ) from None
        if self._engine.dialect.name == "sqlite":
            folder = Path(self._engine.url.database or "").parent
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise DesignError(
                    f"store: {folder}: {error.strerror}; choose another place with store=PATH or run_dir=DIR"
                ) from None
            sql.event.listen(self._engine, "connect", _durable)
        with self._told():
            _tables.create_all(self._engine)
            self._check_schema()

    def identity(self, study: str) -> dict[str, Any] | None:
        """What the study was when it was first run; None where it never was."""
        with self._told(), self._engine.connect() as connection:
            row = connection.execute(sql.select(_studies.c.identity).where(_studies.c.study == study)).first()
        return orjson.loads(row[0]) if row else None

    def begin(self, study: str, identity: dict[str, Any], facts: dict[str, Any]) -> int:
        """Notes a run of a study; returns its number."""
        with self._told(), self._engine.begin() as connection:
            if connection.execute(sql.select(_studies.c.study).where(_studies.c.study == study)).first() is None:
                connection.execute(sql.insert(_studies), {"study": study, "identity": _text(identity)})
            run = {"study": study, "started": _now(), "state": "running", "facts": _text(facts)}
            return int(connection.execute(sql.insert(_runs), run).inserted_primary_key[0])  # type: ignore[index]

    def end(self, run: int, state: str, facts: dict[str, Any]) -> None:
        """Notes how a run ended."""
        with self._told(), self._engine.begin() as connection:
            row = connection.execute(sql.select(_runs.c.facts).where(_runs.c.id == run)).first()
            known = orjson.loads(row[0]) if row else {}
            values = {"ended": _now(), "state": state, "facts": _text(known | facts)}
            connection.execute(sql.update(_runs).where(_runs.c.id == run).values(**values))

    def runs(self, study: str) -> list[dict[str, Any]]:
        """The runs of a study, oldest first."""
        with self._told(), self._engine.connect() as connection:
            rows = connection.execute(sql.select(_runs).where(_runs.c.study == study).order_by(_runs.c.id)).mappings().all()
        return [{**row, "facts": orjson.loads(row["facts"])} for row in rows]

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
        with self._told(), self._engine.begin() as connection:
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
                        "error": result.error,
                        "version": version(),
                    }
                    for result in results
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
        with self._told(), self._engine.connect() as connection:
            rows = connection.execute(query).all()
        return [(Ask(number, orjson.loads(values), orjson.loads(marks)), key) for number, values, marks, key in rows]

    def asked(self, study: str, physics: int) -> int:
        """How many asks a study has."""
        query = sql.select(sql.func.count()).where(_asks.c.study == study, _asks.c.physics == physics)
        with self._told(), self._engine.connect() as connection:
            return int(connection.execute(query).scalar_one())

    def results(self, context: Context) -> dict[str, Result]:
        """All results of a context, by design key; those of any study."""
        columns = ("design", "values", "metrics", "limit_address", "need", "have", "seconds", "error")
        query = sql.select(*(_results.c[name] for name in columns)).where(
            _results.c.workload == context.workload,
            _results.c.fidelity == context.fidelity,
            _results.c.physics == context.physics,
        )
        with self._told(), self._engine.connect() as connection:
            rows = connection.execute(query).all()
        loads = orjson.loads
        return {row[0]: Result(row[0], loads(row[1]), loads(row[2]), *row[3:]) for row in rows}

    def bases(self, context: Context) -> dict[str, dict[str, Any]]:
        """Of every result of a context, by design key, all leaves of the design that its values change."""
        query = (
            sql.select(_results.c.design, _results.c.base)
            .where(_results.c.workload == context.workload, _results.c.fidelity == context.fidelity)
            .where(_results.c.physics == context.physics)
        )
        with self._told(), self._engine.connect() as connection:
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
        with self._told(), self._engine.connect() as connection:
            return {int(physics): int(count) for physics, count in connection.execute(query).all()}

    def close(self) -> None:
        """Lets go of the database."""
        self._engine.dispose()

    def _check_schema(self) -> None:
        with self._engine.begin() as connection:
            row = connection.execute(sql.select(_about.c.value).where(_about.c.key == "schema")).first()
            if row is None:
                connection.execute(sql.insert(_about), {"key": "schema", "value": str(SCHEMA)})
            elif int(row[0]) != SCHEMA:
                raise DesignError(
                    f"store: {self.url} was written with schema {row[0]}, this version reads {SCHEMA}; "
                    "run again with store=PATH, or read it with the version that wrote it"
                )

    def _insert_new(self, connection: sql.Connection, table: sql.Table, rows: Iterable[dict[str, Any]]) -> None:
        if self._engine.dialect.name == "sqlite":
            from sqlalchemy.dialects.sqlite import insert
        else:
            from sqlalchemy.dialects.postgresql import insert  # type: ignore[assignment]
        connection.execute(insert(table).on_conflict_do_nothing(), list(rows))

    def _told(self) -> "_Told":
        return _Told(self.url)


class _Told:
    """Turns what a database reports into one line for the user."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, sql.exc.SQLAlchemyError):
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise DesignError(f"store: {self._url}: {reason}; choose another with store=PATH or store=URL") from error


def _text(value: Any) -> str:
    return orjson.dumps(value).decode()


def _durable(connection: Any, record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA busy_timeout=10000")
    cursor.close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
