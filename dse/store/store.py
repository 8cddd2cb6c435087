"""Results that outlive a run. SQLite by default, PostgreSQL by URL, the same statements.

The store is the truth: a result is here, committed, before a sampler is told, and a design that is here is not evaluated
again. One transaction holds the asks and the results of one round, so that a killed run leaves whole rounds only. A row that
is not as it was written (`dse/store/integrity.py`) is told and left out; whoever runs the study takes it away and evaluates it
again.
"""

import contextlib
import getpass
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sql
from rich.markup import escape

from dse.search.samplers import Ask
from dse.space.aliases import EVERY, current_address, machine_of_leaves, rename_stored_values, rename_study_record
from dse.space.errors import DesignError
from dse.space.multi_chip_space import CHIP_KNOB
from dse.store.database import DAMAGED, connect_engine, database_errors, enable_write_ahead
from dse.store.integrity import add_checksums, file_faults, read_checked_rows, rebuild_table
from dse.store.study_lock import FileLock, ServerLock, lock_number
from dse.store.tables import ABOUT, ASKS, BASES, CHECKED, CHECKED_SINCE, RESULTS, RUNS, SCHEMA, STUDIES, TABLES, with_checksum
from dse.terminal.progress import say_once

SEARCH = "search."
"""What begins the settings of a search in the identity of a study; a colon, which no name of a study has, ends its name."""


@dataclass(frozen=True, slots=True)
class ResultContext:
    """What a result is a result of, beside its design."""

    workload: str
    fidelity: str
    physics: int


@dataclass(frozen=True, slots=True)
class DesignResult:
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
        self._engine, self._path, self.place = connect_engine(place, create=create)
        server = None if self._path else ServerLock(self._engine)
        self._server = server
        self._hold: FileLock | ServerLock = server or FileLock(Path(str(self._path)))
        self._schema = SCHEMA
        self._mine = ""
        """The study that is held."""
        self._looked = False
        """Whether the pages of the file were looked at."""
        self._files: list[int | None] = []
        """Of a run, which files it writes to."""
        try:
            self._open(create=create)
        except BaseException:
            self._engine.dispose()
            raise

    def identity(self, study: str) -> dict[str, Any] | None:
        """What the study was when it was first run; None where it never was."""
        rows = self._rows(STUDIES, study=study)
        return rename_study_record(orjson.loads(rows[0].identity)) if rows else None

    def search(self, study: str, identity: Mapping[str, Any]) -> str:
        """What the asks of a search are kept under: the study's name, and the settings that are not those it was begun with.

        A study is searched in several ways, each a sequence of asks of its own; their results are one another's.
        """
        first = self.identity(study) or identity
        settings = sorted(key for key in first.keys() | identity.keys() if key.startswith(SEARCH))
        other = [f"{key.removeprefix(SEARCH)}={identity.get(key)}" for key in settings if first.get(key) != identity.get(key)]
        return f"{study}:{','.join(other)}" if other else study

    def searches(self, study: str, physics: int) -> list[str]:
        """What the asks of a study are kept under, that of the search it was begun with first; as `search` names them."""
        ours = (ASKS.c.study == study) | ASKS.c.study.startswith(f"{study}:", autoescape=True)
        query = sql.select(ASKS.c.study).distinct().where(ours, ASKS.c.physics == physics)
        with self._reading() as connection:
            return sorted(connection.execute(query).scalars())

    def begin(self, study: str, identity: dict[str, Any], facts: dict[str, Any]) -> int:
        """Notes a run of a study, and holds the study until the run's end, `close` or the end of the process.

        Returns:
            The run's number.

        Raises:
            DesignError: another driver runs the study (the message says who, where and since when), or the store is damaged.
        """
        with database_errors(self.place):
            mine = self._hold.take(study)
        if not mine:
            raise DesignError(self._held_by(study))
        self._mine = study
        try:
            self._check_pages()
            known = self.identity(study) is not None
            left = [run for run in self._rows(RUNS, study=study) if run.state == "running"]
            with self._writing() as connection:
                if not known:
                    connection.execute(
                        sql.insert(STUDIES), with_checksum(STUDIES, {"study": study, "identity": _text(identity)})
                    )
                for run in left:  # who holds the study knows that no other run of it goes on
                    _change(connection, {**run._mapping, "state": "killed"})
                new = {"study": study, "started": _now(), "state": "running", "facts": _text(host_record() | facts)}
                number = int(connection.execute(sql.insert(RUNS), with_checksum(RUNS, new)).inserted_primary_key[0])  # type: ignore[index]
            self._files = self._inodes()
            return number
        except BaseException:
            self._release()
            raise

    def end(self, run: int, state: str, facts: dict[str, Any]) -> None:
        """Notes how a run ended, and lets go of its study."""
        try:
            rows = self._rows(RUNS, id=run)
            with self._writing() as connection:
                for row in rows:
                    known = orjson.loads(row.facts)
                    _change(connection, {**row._mapping, "ended": _now(), "state": state, "facts": _text(known | facts)})
        finally:
            self._release()

    def ended(self, run: int, state: str, facts: dict[str, Any]) -> list[dict[str, Any]]:
        """The runs of the study that is held, as they will be once a run has ended so."""
        ends = {"ended": _now(), "state": state}
        return [{**one, **ends, "facts": one["facts"] | facts} if one["id"] == run else one for one in self._runs(self._mine)]

    def runs(self, study: str) -> list[dict[str, Any]]:
        """The runs of a study, oldest first.

        Of one that could not say how it ended, the state is "killed"; or "lost" where it was run on another machine, which
        does not hold this file: it was killed there, or this is a copy of the file and it goes on.
        """
        runs = self._runs(study)
        going = [run["id"] for run in runs if run["state"] == "running"]
        with database_errors(self.place):
            if not going or self._hold.taken(study):
                return runs
        runs = self._runs(study)  # again, as one may have ended between the two looks
        for run in runs:
            if run["id"] in going and run["state"] == "running":
                here = self._server or run["facts"].get("host") == host_record()["host"]
                run["state"] = "killed" if here else "lost"
        return runs

    def append(
        self,
        study: str,
        context: ResultContext,
        base: tuple[str, str],
        asks: Sequence[tuple[Ask, str]],
        results: Sequence[DesignResult],
    ) -> None:
        """One round in one transaction: asks with the keys of their designs, and results; rows that exist already stay."""
        from dse import version

        if not asks and not results:
            return
        with self._writing() as connection:
            if results:
                self._insert_new(connection, BASES, [{"base": base[0], "design": base[1]}])
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
                self._insert_new(connection, RESULTS, rows)
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
                self._insert_new(connection, ASKS, rows)

    def note_base(self, base: tuple[str, str]) -> None:
        """Key and text of a design that values of results change, where it is not noted yet."""
        if not any(row.base == base[0] for row in self._rows(BASES)):
            with self._writing() as connection:
                self._insert_new(connection, BASES, [{"base": base[0], "design": base[1]}])

    def asks(self, study: str, physics: int) -> list[tuple[Ask, str]]:
        """The asks of a study with the keys of their designs, in order; for who runs it, those before the first damaged one.

        An ask depends on all before it, so the others are asked again; their results are stored.
        """
        rows = sorted(self._rows(ASKS, study=study, physics=physics), key=lambda row: row.number)
        if study.partition(":")[0] == self._mine:
            whole = next((place for place, row in enumerate(rows) if row.number != place), len(rows))
            if whole < len(rows):
                with self._writing() as connection:
                    of = (ASKS.c.study == study, ASKS.c.physics == physics)
                    connection.execute(sql.delete(ASKS).where(*of, ASKS.c.number >= whole))
            rows = rows[:whole]
        machine = machine_of_leaves(self.identity(study.partition(":")[0]) or ())
        return [
            (Ask(row.number, rename_stored_values(orjson.loads(row[4]), machine), _marks(row.marks, machine)), row.design)
            for row in rows
        ]

    def asked(self, study: str, physics: int) -> int:
        """How many asks a study has, those of all its searches."""
        ours = (ASKS.c.study == study) | ASKS.c.study.startswith(f"{study}:", autoescape=True)
        query = sql.select(sql.func.count()).where(ours, ASKS.c.physics == physics)
        with self._reading() as connection:
            return int(connection.execute(query).scalar_one())

    def results(self, context: ResultContext) -> dict[str, DesignResult]:
        """All results of a context, by design key; those of any study."""
        loads = orjson.loads
        found, machines = {}, {key: machine_of_leaves(design) for key, design in self._bases().items()}
        for row in self._rows(RESULTS, workload=context.workload, fidelity=context.fidelity, physics=context.physics):
            design, _, _, _, base, values, metrics, limit, need, have, seconds, error = row[:12]
            machine = machines.get(base, EVERY)
            knobs = rename_stored_values(loads(values), machine)
            binding = current_address(limit, machine)
            found[design] = DesignResult(design, knobs, loads(metrics), binding, need, have, seconds, error)
        return found

    def counted(self, context: ResultContext) -> int:
        """How many results of a context there are."""
        query = sql.select(sql.func.count()).where(
            RESULTS.c.workload == context.workload,
            RESULTS.c.fidelity == context.fidelity,
            RESULTS.c.physics == context.physics,
        )
        with self._reading() as connection:
            return int(connection.execute(query).scalar_one())

    def bases(self, context: ResultContext) -> dict[str, dict[str, Any]]:
        """Of results of a context, by design key, all leaves of the design that its values change, where they are known."""
        texts = {key: _leaves(text) for key, text in self._bases().items()}
        rows = self._rows(RESULTS, workload=context.workload, fidelity=context.fidelity, physics=context.physics)
        return {row.design: _base(texts[row.base], row[5]) for row in rows if row.base in texts}

    def _bases(self) -> dict[str, dict[str, Any]]:
        return {row.base: orjson.loads(row.design) for row in self._rows(BASES)}

    def of_other_physics(self, context: ResultContext) -> dict[int, int]:
        """Results of the same workload and fidelity under other versions of the physics, counted by version."""
        query = (
            sql.select(RESULTS.c.physics, sql.func.count())
            .where(RESULTS.c.workload == context.workload, RESULTS.c.fidelity == context.fidelity)
            .where(RESULTS.c.physics != context.physics)
            .group_by(RESULTS.c.physics)
        )
        with self._reading() as connection:
            return {int(physics): int(count) for physics, count in connection.execute(query).all()}

    def check_rows(self) -> None:
        """Tell the user which tables have damaged rows, whichever of them a command reads."""
        for table in CHECKED:
            self._rows(table)

    def close(self) -> None:
        """Lets go of the database, and of the study that is held."""
        self._release()
        self._engine.dispose()

    def _release(self) -> None:
        self._hold.release()
        self._mine, self._files = "", []

    def _runs(self, study: str) -> list[dict[str, Any]]:
        rows = sorted(self._rows(RUNS, study=study), key=lambda row: row.id)
        return [{**row._mapping, "facts": orjson.loads(row.facts)} for row in rows]

    def _rows(self, table: sql.Table, **where: Any) -> list[Any]:
        """The sound rows of a table that match; who runs a study takes damaged ones away."""
        if table in (ASKS, RESULTS):
            self._check_pages()
        with self._reading() as connection:
            found = read_checked_rows(connection, table, where, file=bool(self._path), checked=self._schema >= CHECKED_SINCE)
        if found.damaged:
            self._tell(f"{found.damaged} damaged row{'s' * (found.damaged > 1)} of {table.name}")
            if self._mine:
                with self._writing() as connection:
                    for key in [] if self._path else found.keys:
                        connection.execute(sql.delete(table).where(*(table.c[name] == value for name, value in key.items())))
                    if self._path:
                        connection.execute(sql.text("BEGIN IMMEDIATE"))
                        rebuild_table(connection, table)
        return found.sound

    def _tell(self, what: str) -> None:
        does = (
            "taken away, and what was lost is evaluated again" if self._mine else "left out; a run evaluates again what is lost"
        )
        say_once(f"[yellow]store[/]: {escape(self.place)}: {what}; {does}")

    def _open(self, *, create: bool) -> None:
        with self._reading() as connection:
            found = sql.inspect(connection).get_table_names()
            if found:
                self._check_schema(connection, found)
        if not found and not create:
            raise DesignError(f"store: {self.place}: there are no results in it yet; run a study with store={self.place}")
        if create and (not found or self._schema < SCHEMA):
            with self._writing() as connection:
                connection.execute(
                    sql.text("BEGIN IMMEDIATE" if self._path else f"SELECT pg_advisory_xact_lock({lock_number('')})")
                )
                found = sql.inspect(connection).get_table_names()  # another driver may have been quicker
                if not found:
                    TABLES.create_all(connection)
                    connection.execute(sql.insert(ABOUT), {"key": "schema", "value": str(SCHEMA)})
                else:
                    self._check_schema(connection, found)
                    if self._schema < SCHEMA:
                        add_checksums(connection, self._schema, file=bool(self._path))
            self._schema = SCHEMA
        if create and self._path:
            with self._reading() as connection:
                enable_write_ahead(connection)

    def _check_schema(self, connection: sql.Connection, found: Sequence[str]) -> None:
        columns = {one["name"] for one in sql.inspect(connection).get_columns("about")} if "about" in found else set()
        row = None
        if {"key", "value"} <= columns:
            row = connection.execute(sql.select(ABOUT.c.value).where(ABOUT.c.key == "schema")).first()
        missing = TABLES.tables.keys() - set(found)
        if row is None or missing:
            tables = ", ".join(sorted(found)[:4]) + (", ..." if len(found) > 4 else "")
            raise DesignError(
                f"store: {self.place}: a database of something else (tables {tables}); it is left as it is; "
                "choose another with store=PATH or store=URL"
            )
        if str(row[0]) not in map(str, range(1, SCHEMA + 1)):
            raise DesignError(
                f"store: {self.place} was written with schema {row[0]}, this version reads up to {SCHEMA}; "
                "run again with store=PATH, or read it with the version that wrote it"
            )
        self._schema = int(row[0])

    def _check_pages(self) -> None:
        """Reads a file whole, as a page that is damaged may be one that is written first and read years later."""
        if self._looked or not self._path:
            return
        self._looked = True
        with self._reading() as connection:
            fault, whole = file_faults(connection)
        if fault and not whole:
            raise DesignError(f"store: {self.place}: {fault}; {DAMAGED}")
        if fault:
            self._tell(fault)
            if self._mine:
                with self._writing() as connection:
                    connection.execute(sql.text("BEGIN IMMEDIATE"))
                    for table in (ABOUT, *CHECKED):
                        rebuild_table(connection, table)

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
        with database_errors(self.place), self._engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sql.Connection]:
        """One transaction; in the session that holds the study, so that who has lost the one cannot do the other."""
        try:
            with database_errors(self.place):
                session = self._server.session if self._server else None
                if session is not None:
                    with session.begin():
                        yield session
                else:
                    with self._engine.begin() as connection:
                        yield connection
        except BaseException:  # an interrupted connection is closed, and the last one takes its write-ahead log along
            if self._files and self._inodes()[0] == self._files[0]:
                self._engine.dispose()
                with contextlib.suppress(DesignError), self._reading() as connection:
                    connection.execute(sql.select(ABOUT)).all()
                    self._files = self._inodes()
            raise
        if self._files and self._inodes() != self._files:
            raise DesignError(
                f"store: {self.place} was removed or replaced while study {self._mine!r} ran; nothing more is stored there; "
                "put it back if it was moved, then run the same command again"
            )

    def _inodes(self) -> list[int | None]:
        """Which files a database is in: its own and the one that is written first."""
        if not self._path:
            return []
        found: list[int | None] = []
        for path in (self._path, Path(f"{self._path}-wal")):
            try:
                found.append(path.stat().st_ino)
            except OSError:
                found.append(None)
        return found

    def _insert_new(self, connection: sql.Connection, table: sql.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        if self._path:
            from sqlalchemy.dialects.sqlite import insert
        else:
            from sqlalchemy.dialects.postgresql import insert  # type: ignore[assignment]
        connection.execute(insert(table).on_conflict_do_nothing(), [with_checksum(table, row) for row in rows])


def _change(connection: sql.Connection, run: Mapping[str, Any]) -> None:
    connection.execute(sql.update(RUNS).where(RUNS.c.id == run["id"]).values(**with_checksum(RUNS, run)))


def host_record() -> dict[str, Any]:
    """Who runs this, and where."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a number without a name
        user = str(os.getuid())
    return {"user": user, "host": socket.gethostname(), "pid": os.getpid()}


def _marks(text: str, machine: str) -> dict[str, Any]:
    """What a sampler noted of an ask, its parameters by the addresses and options of now."""
    marks: dict[str, Any] = orjson.loads(text)
    return marks | {"params": rename_stored_values(marks["params"], machine)} if "params" in marks else marks


def _text(value: Any) -> str:
    return orjson.dumps(value).decode()


BY_CHIP = "by chip"
"""The field of a base's text under which those of several chips are, by the value of the knob `chip`."""


def _leaves(text: dict[str, Any]) -> dict[str, Any]:
    """The text of a base, or of those of several chips, by the addresses and options of now."""
    if BY_CHIP in text:
        return {BY_CHIP: {chip: _leaves(leaves) for chip, leaves in text[BY_CHIP].items()}}
    return rename_stored_values(text, machine_of_leaves(text))


def _base(text: dict[str, Any], values: str) -> dict[str, Any]:
    """The leaves of a base; of those of several chips, the one that values choose."""
    if BY_CHIP not in text:
        return text
    leaves: dict[str, Any] = text[BY_CHIP].get(str(orjson.loads(values).get(CHIP_KNOB)), {})
    return leaves


def _plain(text: str) -> str:
    """A text without what PostgreSQL or UTF-8 have no place for."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
