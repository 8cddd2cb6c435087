"""Store of results that outlive a run: SQLite by default, PostgreSQL by URL, the same statements.

The store is the truth: a result is here, committed, before a sampler is told, and a design that is here is not evaluated
again. One transaction holds the asks and the results of one round, so that a killed run leaves whole rounds only. A row that
is not as it was written (`dse/store/integrity.py`) is told and left out; whoever runs the study takes it away and evaluates it
again.
"""

import contextlib
import getpass
import os
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sql
from rich.markup import escape

from dse.search.samplers import Ask
from dse.space.aliases import EVERY, current_address, guess_machine_of_leaves, rename_stored_values, rename_study_record
from dse.space.errors import DesignError
from dse.space.former_words import rename_stored_metrics, rename_study_words, stored_fidelity
from dse.space.multi_chip_space import CHIP_KNOB
from dse.store.database import DAMAGED, connect_engine, enable_write_ahead, report_database_errors
from dse.store.integrity import add_checksums, find_file_faults, read_checked_rows, rebuild_table
from dse.store.metric_row import pack_metrics
from dse.store.study_lock import FileLock, ServerLock, lock_number
from dse.store.tables import (
    ABOUT,
    ASKS,
    BASES,
    CHECKED,
    CHECKED_SINCE,
    EXPLANATIONS,
    RESULTS,
    RUNS,
    SCHEMA,
    STUDIES,
    TABLES,
    add_checksum,
    checksummed_columns,
    row_checksum,
)
from dse.terminal.package_version import version
from dse.terminal.progress import say_once

SEARCH = "search."
"""What begins the settings of a search in the identity of a study; a colon, which no name of a study has, ends its name."""

KEYS_AT_ONCE = 500
"""Designs whose rows one statement names: databases bound its length."""

PROMOTE = "promote"
"""The setting of a search that is a word of a fidelity."""


@dataclass(frozen=True, slots=True)
class ResultContext:
    """Workload key, fidelity and physics version of a stored result."""

    workload: str
    fidelity: str
    physics: int

    @property
    def stored_fidelity(self) -> str:
        """The word of the fidelity in the tables."""
        return stored_fidelity(self.fidelity)


@dataclass(frozen=True, slots=True)
class DesignResult:
    """Result of one design: metrics, or the violated limit or error.

    Attributes:
        key: content key of the design.
        values: by knob, as the study that evaluated it named them.
        metrics: by name; empty where the evaluation failed.
        limit, need, have: the most violated limit, empty string if all hold.
        seconds: spent on it.
        error: why the evaluation failed, "" where it did not.
    """

    key: str
    values: dict[str, Any]
    metrics: Mapping[str, float] = field(default_factory=dict)
    limit: str = ""
    need: float = 0.0
    have: float = 0.0
    seconds: float = 0.0
    error: str = ""


class Store:
    """One database of stored results, in SQLite or PostgreSQL.

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
            self._open_tables(create=create)
        except BaseException:
            self._engine.dispose()
            raise

    def identity(self, study: str) -> dict[str, Any] | None:
        """Settings of the study when it was first run; None if it never ran."""
        rows = self._sound_rows(STUDIES, study=study)
        return rename_study_words(rename_study_record(orjson.loads(rows[0].identity))) if rows else None

    def search(self, study: str, identity: Mapping[str, Any]) -> str:
        """Name of a search: the study's name, and search settings that differ from its first run.

        A study may be searched in several ways, each with its own sequence of asks; they share results.
        """
        first = self.identity(study) or identity
        settings = sorted(key for key in first.keys() | identity.keys() if key.startswith(SEARCH))
        words = ((key.removeprefix(SEARCH), identity.get(key)) for key in settings if first.get(key) != identity.get(key))
        other = [f"{key}={stored_fidelity(str(word)) if key == PROMOTE else word}" for key, word in words]
        return f"{study}:{','.join(other)}" if other else study

    def searches(self, study: str, physics: int) -> list[str]:
        """Names of the searches of a study, the first one first."""
        ours = (ASKS.c.study == study) | ASKS.c.study.startswith(f"{study}:", autoescape=True)
        query = sql.select(ASKS.c.study).distinct().where(ours, ASKS.c.physics == physics)
        with self._read_connection() as connection:
            return sorted(connection.execute(query).scalars())

    def begin(self, study: str, identity: dict[str, Any], facts: dict[str, Any]) -> int:
        """Record a run of a study, and lock the study until the run, the store or the process ends.

        Returns:
            The run's number.

        Raises:
            DesignError: another driver runs the study (the message says who, where and since when), or the store is damaged.
        """
        with report_database_errors(self.place):
            mine = self._hold.take(study)
        if not mine:
            raise DesignError(self._held_by(study))
        self._mine = study
        try:
            self._check_pages()
            known = self.identity(study) is not None
            left = [run for run in self._sound_rows(RUNS, study=study) if run.state == "running"]
            with self._write_connection() as connection:
                if not known:
                    connection.execute(
                        sql.insert(STUDIES), add_checksum(STUDIES, {"study": study, "identity": _json_text(identity)})
                    )
                for run in left:  # who holds the study knows that no other run of it goes on
                    _update_run(connection, {**run._mapping, "state": "killed"})
                new = {"study": study, "started": _time_now(), "state": "running", "facts": _json_text(host_record() | facts)}
                number = int(connection.execute(sql.insert(RUNS), add_checksum(RUNS, new)).inserted_primary_key[0])  # type: ignore[index]
            self._files = self._file_inodes()
            return number
        except BaseException:
            self._release_lock()
            raise

    def end(self, run: int, state: str, facts: dict[str, Any]) -> None:
        """Record how a run ended, and release its study."""
        try:
            rows = self._sound_rows(RUNS, id=run)
            with self._write_connection() as connection:
                for row in rows:
                    known = orjson.loads(row.facts)
                    _update_run(
                        connection, {**row._mapping, "ended": _time_now(), "state": state, "facts": _json_text(known | facts)}
                    )
        finally:
            self._release_lock()

    def runs_after_end(self, run: int, state: str, facts: dict[str, Any]) -> list[dict[str, Any]]:
        """Runs of the locked study as they will be once a run has ended with a state."""
        ends = {"ended": _time_now(), "state": state}
        return [
            {**single_run, **ends, "facts": single_run["facts"] | facts} if single_run["id"] == run else single_run
            for single_run in self._run_records(self._mine)
        ]

    def runs(self, study: str) -> list[dict[str, Any]]:
        """Runs of the study, oldest first.

        Of one that could not say how it ended, the state is "killed"; or "lost" where it was run on another machine, which
        does not hold this file: it was killed there, or this is a copy of the file and it goes on.
        """
        runs = self._run_records(study)
        going = [run["id"] for run in runs if run["state"] == "running"]
        with report_database_errors(self.place):
            if not going or self._hold.is_taken(study):
                return runs
        runs = self._run_records(study)  # again, as one may have ended between the two looks
        for run in runs:
            if run["id"] in going and run["state"] == "running":
                server = self._server or run["facts"].get("host") == host_record()["host"]
                run["state"] = "killed" if server else "lost"
        return runs

    def append(
        self,
        study: str,
        context: ResultContext,
        base: tuple[str, str],
        asks: Sequence[tuple[Ask, str]],
        results: Sequence[DesignResult],
    ) -> None:
        """Store one round in one transaction: asks with design keys, and results; existing rows stay."""
        if not asks and not results:
            return
        with self._write_connection() as connection:
            if results:
                self._insert_new(connection, BASES, [{"base": base[0], "design": base[1]}])
                rows = [
                    {
                        "design": result.key,
                        "workload": context.workload,
                        "fidelity": context.stored_fidelity,
                        "physics": context.physics,
                        "base": base[0],
                        "values": _json_text(result.values),
                        "metrics": _json_text(dict(result.metrics)),
                        "limit_address": result.limit,
                        "need": result.need,
                        "have": result.have,
                        "seconds": result.seconds,
                        "error": _plain_text(result.error),
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
                        "values": _json_text(ask.values),
                        "marks": _json_text(ask.marks),
                    }
                    for ask, key in asks
                ]
                self._insert_new(connection, ASKS, rows)

    def note_base(self, base: tuple[str, str]) -> None:
        """Store the key and text of a base design, unless it is stored already."""
        if not any(row.base == base[0] for row in self._sound_rows(BASES)):
            with self._write_connection() as connection:
                self._insert_new(connection, BASES, [{"base": base[0], "design": base[1]}])

    def asks(self, study: str, physics: int) -> list[tuple[Ask, str]]:
        """Asks of a study with the keys of their designs, in order.

        For the process that runs the study, those before the first damaged one: an ask depends on all before it, so the others
        are asked again; their results are stored.
        """
        machine = guess_machine_of_leaves(self.identity(study.partition(":")[0]) or ())

        def read_ask(row: Any) -> tuple[Ask, str]:
            values = rename_stored_values(orjson.loads(row[4]), machine)
            return Ask(row[2], values, _marks(row[5], machine)), row[3]

        asks = self._sound_rows(ASKS, read_ask, study=study, physics=physics)
        asks.sort(key=lambda ask: ask[0].number)
        if study.partition(":")[0] == self._mine:
            whole = next((place for place, (ask, _) in enumerate(asks) if ask.number != place), len(asks))
            if whole < len(asks):
                with self._write_connection() as connection:
                    condition = (ASKS.c.study == study, ASKS.c.physics == physics)
                    connection.execute(sql.delete(ASKS).where(*condition, ASKS.c.number >= whole))
            asks = asks[:whole]
        return asks

    def ask_count(self, study: str, physics: int) -> int:
        """Number of asks of a study, over all its searches."""
        ours = (ASKS.c.study == study) | ASKS.c.study.startswith(f"{study}:", autoescape=True)
        query = sql.select(sql.func.count()).where(ours, ASKS.c.physics == physics)
        with self._read_connection() as connection:
            return int(connection.execute(query).scalar_one())

    def results(self, context: ResultContext) -> dict[str, DesignResult]:
        """All results of a context by design key, of any study."""
        where = {"workload": context.workload, "fidelity": context.stored_fidelity, "physics": context.physics}
        return {result.key: result for result in self._sound_rows(RESULTS, self._result_reader(), **where)}

    def find_results(self, context: ResultContext, keys: Sequence[str]) -> dict[str, DesignResult]:
        """Results of some designs by key, as far as they are stored."""
        read_result = self._result_reader()
        return {row.design: read_result(row) for row in self._rows_of_designs(RESULTS, context, keys)}

    def find_explanations(self, context: ResultContext, question: str, keys: Sequence[str]) -> dict[str, Any]:
        """Answers to a question on some designs by key, as far as they are stored."""
        rows = self._rows_of_designs(EXPLANATIONS, context, keys, question=question) if self._has_explanations() else []
        return {row.design: orjson.loads(row.answer) for row in rows}

    def keep_explanations(self, context: ResultContext, question: str, answers: Mapping[str, Any]) -> None:
        """Store answers to a question by design key, in place of earlier ones."""
        if not answers:
            return
        about = {"workload": context.workload, "fidelity": context.stored_fidelity, "physics": context.physics}
        rows = [
            {"design": key, **about, "question": question, "answer": _json_text(answers[key]), "version": version()}
            for key in sorted(answers)  # in one order for all, as results are
        ]
        with self._write_connection() as connection:
            EXPLANATIONS.create(connection, checkfirst=True)
            same = [EXPLANATIONS.c[name] == value for name, value in (*about.items(), ("question", question))]
            for start in range(0, len(rows), KEYS_AT_ONCE):
                part = rows[start : start + KEYS_AT_ONCE]
                connection.execute(
                    sql.delete(EXPLANATIONS).where(*same, EXPLANATIONS.c.design.in_([row["design"] for row in part]))
                )
                self._insert_new(connection, EXPLANATIONS, part)

    def remove_explanations(self, context: ResultContext, key: str, others: Collection[str]) -> None:
        """Remove the answers on one design, or another subject, to all questions but some others."""
        if self._has_explanations():
            about = {"workload": context.workload, "fidelity": context.stored_fidelity, "physics": context.physics}
            same = [EXPLANATIONS.c[name] == value for name, value in (*about.items(), ("design", key))]
            with self._write_connection() as connection:
                connection.execute(sql.delete(EXPLANATIONS).where(*same, EXPLANATIONS.c.question.not_in(list(others))))

    def _has_explanations(self) -> bool:
        with self._read_connection() as connection:
            return sql.inspect(connection).has_table(EXPLANATIONS.name)

    def _rows_of_designs(self, table: sql.Table, context: ResultContext, keys: Sequence[str], **where: Any) -> list[Any]:
        """Rows of some designs in a context whose checksums are right; damaged ones are left out without a word."""
        where |= {"workload": context.workload, "fidelity": context.stored_fidelity, "physics": context.physics}
        same, columns = [table.c[name] == value for name, value in where.items()], checksummed_columns(table)
        checked = self._schema >= CHECKED_SINCE or table is EXPLANATIONS
        rows: list[Any] = []
        with self._read_connection() as connection:
            for start in range(0, len(keys), KEYS_AT_ONCE):
                wanted = table.c.design.in_(keys[start : start + KEYS_AT_ONCE])
                rows += connection.execute(sql.select(*columns, *([table.c.checksum] if checked else [])).where(*same, wanted))
        return [row for row in rows if not checked or row_checksum(tuple(row[:-1])) == row[-1]]

    def _result_reader(self) -> Callable[[Any], DesignResult]:
        """What makes a result of a row, by the addresses, options and names of now."""
        loads = orjson.loads
        machines = {key: guess_machine_of_leaves(design) for key, design in self._base_records().items()}

        def read_result(row: Any) -> DesignResult:
            design, _, _, _, base, values, metrics, limit, need, have, seconds, error = row[:12]
            machine = machines.get(base, EVERY)
            knobs = rename_stored_values(loads(values), machine)
            metrics_now = pack_metrics(rename_stored_metrics(loads(metrics)))
            return DesignResult(design, knobs, metrics_now, current_address(limit, machine), need, have, seconds, error)

        return read_result

    def result_count(self, context: ResultContext) -> int:
        """Number of results of a context."""
        query = sql.select(sql.func.count()).where(
            RESULTS.c.workload == context.workload,
            RESULTS.c.fidelity == context.stored_fidelity,
            RESULTS.c.physics == context.physics,
        )
        with self._read_connection() as connection:
            return int(connection.execute(query).scalar_one())

    def bases(self, context: ResultContext) -> dict[str, dict[str, Any]]:
        """All settings of the base design of each result, by design key, if known."""
        texts = {key: _leaves(text) for key, text in self._base_records().items()}
        rows = self._sound_rows(RESULTS, workload=context.workload, fidelity=context.stored_fidelity, physics=context.physics)
        return {row.design: _base_leaves(texts[row.base], row[5]) for row in rows if row.base in texts}

    def _base_records(self) -> dict[str, dict[str, Any]]:
        return {row.base: orjson.loads(row.design) for row in self._sound_rows(BASES)}

    def of_other_physics(self, context: ResultContext) -> dict[int, int]:
        """Number of results of the same workload and fidelity, by other physics version."""
        query = (
            sql.select(RESULTS.c.physics, sql.func.count())
            .where(RESULTS.c.workload == context.workload, RESULTS.c.fidelity == context.stored_fidelity)
            .where(RESULTS.c.physics != context.physics)
            .group_by(RESULTS.c.physics)
        )
        with self._read_connection() as connection:
            return {int(physics): int(count) for physics, count in connection.execute(query).all()}

    def check_rows(self) -> None:
        """Report tables with damaged rows to the user."""
        for table in CHECKED:
            self._sound_rows(table)

    def close(self) -> None:
        """Close the database, and release the locked study."""
        self._release_lock()
        self._engine.dispose()

    def _release_lock(self) -> None:
        self._hold.release()
        self._mine, self._files = "", []

    def _run_records(self, study: str) -> list[dict[str, Any]]:
        rows = sorted(self._sound_rows(RUNS, study=study), key=lambda row: row.id)
        return [{**row._mapping, "facts": orjson.loads(row.facts)} for row in rows]

    def _sound_rows(self, table: sql.Table, read: Callable[[Any], Any] | None = None, **where: Any) -> list[Any]:
        """The sound rows of a table that match, or what is read of each; who runs a study takes damaged ones away."""
        if table in (ASKS, RESULTS):
            self._check_pages()
        with self._read_connection() as connection:
            checked_rows = read_checked_rows(
                connection, table, where, file=bool(self._path), checked=self._schema >= CHECKED_SINCE, read=read
            )
        if checked_rows.damaged:
            self._tell_damage(f"{checked_rows.damaged} damaged row{'s' * (checked_rows.damaged > 1)} of {table.name}")
            if self._mine:
                with self._write_connection() as connection:
                    for key in [] if self._path else checked_rows.keys:
                        connection.execute(sql.delete(table).where(*(table.c[name] == value for name, value in key.items())))
                    if self._path:
                        connection.execute(sql.text("BEGIN IMMEDIATE"))
                        rebuild_table(connection, table)
        return checked_rows.sound

    def _tell_damage(self, what: str) -> None:
        does = "removed, and lost results are evaluated again" if self._mine else "left out; a run evaluates lost results again"
        say_once(f"[yellow]store[/]: {escape(self.place)}: {what}; {does}")

    def _open_tables(self, *, create: bool) -> None:
        with self._read_connection() as connection:
            table_names = sql.inspect(connection).get_table_names()
            if table_names:
                self._check_schema(connection, table_names)
        if not table_names and not create:
            raise DesignError(f"store: {self.place}: has no results yet; run a study with store={self.place}")
        if create and (not table_names or self._schema < SCHEMA):
            with self._write_connection() as connection:
                connection.execute(
                    sql.text("BEGIN IMMEDIATE" if self._path else f"SELECT pg_advisory_xact_lock({lock_number('')})")
                )
                table_names = sql.inspect(connection).get_table_names()  # another driver may have been quicker
                if not table_names:
                    TABLES.create_all(connection)
                    connection.execute(sql.insert(ABOUT), {"key": "schema", "value": str(SCHEMA)})
                else:
                    self._check_schema(connection, table_names)
                    if self._schema < SCHEMA:
                        add_checksums(connection, self._schema, file=bool(self._path))
            self._schema = SCHEMA
        if create and self._path:
            with self._read_connection() as connection:
                enable_write_ahead(connection)

    def _check_schema(self, connection: sql.Connection, table_names: Sequence[str]) -> None:
        columns = (
            {column["name"] for column in sql.inspect(connection).get_columns("about")} if "about" in table_names else set()
        )
        row = None
        if {"key", "value"} <= columns:
            row = connection.execute(sql.select(ABOUT.c.value).where(ABOUT.c.key == "schema")).first()
        missing = TABLES.tables.keys() - {*table_names, EXPLANATIONS.name}
        if row is None or missing:
            tables = ", ".join(sorted(table_names)[:4]) + (", ..." if len(table_names) > 4 else "")
            raise DesignError(
                f"store: {self.place}: a database of another program (tables {tables}), unchanged; "
                "choose another with store=PATH or store=URL"
            )
        if str(row[0]) not in map(str, range(1, SCHEMA + 1)):
            raise DesignError(
                f"store: {self.place} was written with schema {row[0]}, this version reads up to {SCHEMA}; "
                "run again with store=PATH, or read it with the version that wrote it"
            )
        self._schema = int(row[0])

    def _check_pages(self) -> None:
        """Read a file whole, as a page that is damaged may be one that is written first and read years later."""
        if self._looked or not self._path:
            return
        self._looked = True
        with self._read_connection() as connection:
            fault, whole = find_file_faults(connection)
        if fault and not whole:
            raise DesignError(f"store: {self.place}: {fault}; {DAMAGED}")
        if fault:
            self._tell_damage(fault)
            if self._mine:
                with self._write_connection() as connection:
                    connection.execute(sql.text("BEGIN IMMEDIATE"))
                    for table in (ABOUT, *CHECKED):
                        rebuild_table(connection, table)
                    EXPLANATIONS.drop(connection, checkfirst=True)  # whose answers are computed again

    def _held_by(self, study: str) -> str:
        running = [run for run in self.runs(study) if run["state"] == "running"]
        who = "another driver"
        if running:
            facts = running[-1]["facts"]
            since = running[-1]["started"].replace("T", " ").replace("+00:00", " UTC")
            who = f"{facts.get('user', 'somebody')} on {facts.get('host', '?')}, process {facts.get('pid', '?')}, since {since}"
        return (
            f"study {study!r} is being run by {who}; follow it with dse report {study} --follow, wait for it or stop it there, "
            "or run another study with name=NEW"
        )

    @contextlib.contextmanager
    def _read_connection(self) -> Iterator[sql.Connection]:
        with report_database_errors(self.place), self._engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def _write_connection(self) -> Iterator[sql.Connection]:
        """One transaction; in the session that holds the study, so that who has lost the one cannot do the other."""
        try:
            with report_database_errors(self.place):
                session = self._server.session if self._server else None
                if session is not None:
                    with session.begin():
                        yield session
                else:
                    with self._engine.begin() as connection:
                        yield connection
        except BaseException:  # an interrupted connection is closed, and the last one takes its write-ahead log along
            if self._files and self._file_inodes()[0] == self._files[0]:
                self._engine.dispose()
                with contextlib.suppress(DesignError), self._read_connection() as connection:
                    connection.execute(sql.select(ABOUT)).all()
                    self._files = self._file_inodes()
            raise
        if self._files and self._file_inodes() != self._files:
            raise DesignError(
                f"store: {self.place} was removed or replaced while study {self._mine!r} ran; nothing more is stored there; "
                "put it back if it was moved, then run the same command again"
            )

    def _file_inodes(self) -> list[int | None]:
        """Which files a database is in: its own and the one that is written first."""
        if not self._path:
            return []
        inodes: list[int | None] = []
        for path in (self._path, Path(f"{self._path}-wal")):
            try:
                inodes.append(path.stat().st_ino)
            except OSError:
                inodes.append(None)
        return inodes

    def _insert_new(self, connection: sql.Connection, table: sql.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        if self._path:
            from sqlalchemy.dialects.sqlite import insert
        else:
            from sqlalchemy.dialects.postgresql import insert  # type: ignore[assignment]
        connection.execute(insert(table).on_conflict_do_nothing(), [add_checksum(table, row) for row in rows])


def _update_run(connection: sql.Connection, run: Mapping[str, Any]) -> None:
    connection.execute(sql.update(RUNS).where(RUNS.c.id == run["id"]).values(**add_checksum(RUNS, run)))


def host_record() -> dict[str, Any]:
    """User and host of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a number without a name
        user = str(os.getuid())
    return {"user": user, "host": socket.gethostname(), "pid": os.getpid()}


def _marks(text: str, machine: str) -> dict[str, Any]:
    """What a sampler noted of an ask, its parameters by the addresses and options of now."""
    marks: dict[str, Any] = orjson.loads(text)
    return marks | {"params": rename_stored_values(marks["params"], machine)} if "params" in marks else marks


def _json_text(value: Any) -> str:
    return orjson.dumps(value).decode()


BY_CHIP = "by chip"
"""The field of a base's text under which those of several chips are, by the value of the knob `chip`."""


def _leaves(text: dict[str, Any]) -> dict[str, Any]:
    """The text of a base, or of those of several chips, by the addresses and options of now."""
    if BY_CHIP in text:
        return {BY_CHIP: {chip: _leaves(leaves) for chip, leaves in text[BY_CHIP].items()}}
    return rename_stored_values(text, guess_machine_of_leaves(text))


def _base_leaves(text: dict[str, Any], values: str) -> dict[str, Any]:
    """The leaves of a base; of those of several chips, the one that values choose."""
    if BY_CHIP not in text:
        return text
    leaves: dict[str, Any] = text[BY_CHIP].get(str(orjson.loads(values).get(CHIP_KNOB)), {})
    return leaves


def _plain_text(text: str) -> str:
    """A text without what PostgreSQL or UTF-8 have no place for."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


def _time_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
