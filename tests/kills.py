"""Kills a study again and again and looks whether anything is lost: python -m tests.kills [--count N] [--seed S] [--ray SHARE]

A small study with screen, search, verification and report is killed by the system (SIGKILL) while it starts, imports its
libraries, screens, searches, verifies, writes its report and exports, as often in each and at an even moment of it. After
every kill the store is read: every row is sound, and what had been committed is there. Several kills hit one folder, one
after the other; then the study is run to its end, and its asks, its front and its export are those of a study that was
left alone. Ends with what a kill cost and with status 1 where something was lost.

Children are forked from this process once it has run the study itself, so that a kill pays for no import.
"""

import argparse
import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sql

import dse.commands.export
import dse.commands.run_study
import dse.main
import dse.report.study_page
from dse.config.compose import compose
from dse.space.former_words import stored_fidelity
from dse.store.integrity import find_file_faults
from dse.store.store import Store
from dse.store.tables import ASKS, CHECKED, RESULTS, checksummed_columns

NAME = "kills"
RUN = [
    *("run", "study=waferllm_gemm", f"name={NAME}", "workload.shapes=[60x96x48,64x64x64]", "report.lines=[]"),
    *("space.mapping.rows=range(8,41,1)", "search=nsga2", "search.budget=60", "search.window=4", "search.population=8"),
    *("verify=next", "verify.designs=6"),
]
SERIAL, RAY = "workers=serial", ("workers=ray", "workers.count=2")
EXPORT = ("export", NAME, "--to", "csv")

STAGES = ("start", "import", "screen", "search", "verify", "report", "export")
"""In the order of a run, so that a study that is killed in each in turn has work left for all."""

WITHIN = {
    "screen": "_run_screen_stage",
    "search": "_run_search_stage",
    "verify": "_run_verify_stage",
    "report": "write_report",
}
"""What the driver calls in a stage."""


@dataclass
class Ended:
    """How a child ended.

    Attributes:
        status: as `os.waitpid` has it.
        seconds: of each stage it was in, by the wall.
        committed: results and asks that it had stored.
        said: what it printed.
    """

    status: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)
    said: str = ""


@dataclass
class Held:
    """What a store holds: keys of results and numbers of asks, with their contents."""

    rows: dict[str, Any]

    @staticmethod
    def of(folder: Path) -> "Held":
        """Raises AssertionError where a row is not sound."""
        path = folder / "runs" / NAME / "results.sqlite"
        if not path.exists():
            return Held({})
        rows: dict[str, Any] = {}
        with closing(sql.create_engine(f"sqlite:///{path}").connect()) as connection:
            tables = sql.inspect(connection).get_table_names()
            if not tables:
                return Held({})
            assert find_file_faults(connection) == ("", True), find_file_faults(connection)
            for table in (RESULTS, ASKS):
                kept = [column for column in checksummed_columns(table) if column.name not in ("seconds", "version")]
                for row in connection.execute(sql.select(*kept)):
                    key = row.design + row.fidelity if table is RESULTS else f"ask {row.number}"
                    rows[key] = tuple(row)
        from dse.store.integrity import read_checked_rows

        with contextlib.closing(Store(str(path), create=False)) as store, store._read_connection() as connection:
            for table in CHECKED:
                assert not read_checked_rows(connection, table, {}, file=True, checked=True).damaged, table.name
        return Held(rows)


def child(folder: Path, line: tuple[str, ...] | list[str], stop: tuple[str, float] | None) -> Ended:
    """Runs a command in a fork of this process; kills it so many seconds into a stage, or leaves it alone."""
    out, into = os.pipe()
    fork = os.fork()
    if not fork:
        os.close(out)
        _run(folder, list(line), into)
    os.close(into)
    ended, stage, since = Ended(), "start", time.monotonic()
    os.set_blocking(out, False)
    rest = b""
    while True:
        with contextlib.suppress(BlockingIOError):
            got = os.read(out, 65536)
            if not got:
                break
            *lines, rest = (rest + got).split(b"\n")
            for text in lines:
                what, _, name = text.decode().partition(" ")
                if what == "stage":
                    ended.seconds[stage] = ended.seconds.get(stage, 0.0) + time.monotonic() - since
                    stage, since = name, time.monotonic()
                else:
                    ended.committed.add(name)
        if stop is not None and stage == stop[0] and time.monotonic() - since > stop[1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(fork, signal.SIGKILL)
        time.sleep(0.001)
    os.close(out)
    _, ended.status = os.waitpid(fork, 0)
    ended.seconds[stage] = ended.seconds.get(stage, 0.0) + time.monotonic() - since
    ended.said = (folder / "said.txt").read_text(errors="replace") if (folder / "said.txt").exists() else ""
    return ended


def _run(folder: Path, line: list[str], into: int) -> None:
    """In the child: tells each stage when it is entered, and each row when it is committed."""
    try:
        os.chdir(folder)
        file = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        for stage, name in WITHIN.items():
            setattr(dse.commands.run_study, name, _telling(stage, getattr(dse.commands.run_study, name), into))
        dse.commands.export.export_study = _telling("export", dse.commands.export.export_study, into)
        append = Store.append

        def appended(store: Store, study: str, context: Any, base: Any, asks: Any, results: Any) -> None:
            append(store, study, context, base, asks, results)
            keys = [result.key + stored_fidelity(context.fidelity) for result in results]
            rows = [f"ask {ask.number}" for ask, _ in asks] + keys
            os.write(into, "".join(f"committed {row}\n" for row in rows).encode())

        Store.append = appended  # type: ignore[method-assign]
        sys.argv = ["dse", *line]
        code = 1
        try:
            dse.main.main()
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)
    finally:
        os._exit(1)


def _telling(stage: str, does: Any, into: int) -> Any:
    def reporting(*arguments: Any, **options: Any) -> Any:
        os.write(into, f"stage {stage}\n".encode())
        return does(*arguments, **options)

    return reporting


def warmed(folder: Path) -> None:
    """Runs the study here, so that children find what is imported and compiled as it is needed."""
    with (
        contextlib.chdir(folder),
        open(os.devnull, "w") as nothing,
        contextlib.redirect_stderr(nothing),
        contextlib.redirect_stdout(nothing),
    ):
        dse.commands.run_study.run_config(compose([*RUN[1:], SERIAL]))
        dse.commands.export.export_study(NAME, "csv", "")


def killed_while_importing(folder: Path, chance: random.Random, seconds: float) -> None:
    """A process of its own, killed before it does anything, or at the latest when it starts."""
    line = [sys.executable, "-m", "dse.main", *RUN, SERIAL]
    process = subprocess.Popen(line, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(chance.random() * seconds)
    process.kill()
    process.wait()


def lost(folder: Path, before: Held, ended: Ended | None) -> tuple[Held, list[str]]:
    """What the store holds after a kill, and what it should hold and does not."""
    try:
        now = Held.of(folder)
    except Exception as error:
        return before, [f"the store cannot be read: {type(error).__name__}: {error}"]
    gone = [key for key, row in before.rows.items() if now.rows.get(key) != row]
    gone += [key for key in (ended.committed if ended else ()) if key not in now.rows]
    wrong = [f"{len(gone)} rows are lost, such as {gone[0]}"] if gone else []
    for block in folder.glob(f"runs/{NAME}/screen/*/block-*.parquet"):
        if f".{zlib.crc32(block.read_bytes()):08x}." not in block.name:
            wrong.append(f"{block.name} is not whole")
    report = folder / f"runs/{NAME}/report.html"
    if report.exists() and not report.read_text().rstrip().endswith("</html>"):
        wrong.append("the report is not whole")
    return now, wrong


def outcome(folder: Path) -> tuple[Any, ...]:
    """What a study came to: its asks and results, and its export."""
    return Held.of(folder).rows, (folder / f"runs/{NAME}/{NAME}.csv").read_text()


def finished(folder: Path, how: tuple[str, ...]) -> dict[str, float]:
    """Runs the study to its end, unless it is there already, and exports it; seconds of its stages."""
    seconds: dict[str, float] = {}
    for line in ([*RUN, *how], EXPORT) if how else (EXPORT,):
        ended = child(folder, line, None)
        assert ended.status == 0, ended.said
        seconds = {**ended.seconds, **seconds}
    assert not list(folder.rglob("*.draft")), list(folder.rglob("*.draft"))
    return seconds


def chains(count: int, seed: int, ray: float) -> Iterator[tuple[str, list[str]]]:
    """Kills, each with its stage and with what was lost by it."""
    with tempfile.TemporaryDirectory() as top:
        warmed(Path(top))
        whole = Path(top) / "whole"
        whole.mkdir()
        seconds = {(SERIAL,): finished(whole, (SERIAL,))}
        begun = time.monotonic()
        subprocess.run([sys.executable, "-c", "import dse.main, dse.commands.run_study"], check=True)
        importing = time.monotonic() - begun
        expected = outcome(whole)
        left = count
        while left > 0:
            chance = random.Random(f"{seed} {left}")
            how = RAY if chance.random() < ray else (SERIAL,)
            folder = Path(tempfile.mkdtemp(dir=top))
            if how not in seconds:
                seconds[how] = finished(folder, how)
                folder = Path(tempfile.mkdtemp(dir=top))
            held = Held({})
            done = min(left, len(STAGES))
            for stage in STAGES[:done]:
                ended = None
                if stage == "import":
                    killed_while_importing(folder, chance, importing)
                else:
                    if stage == "export":
                        ended = child(folder, [*RUN, *how], None)
                        assert ended.status == 0, ended.said
                    line = EXPORT if stage == "export" else [*RUN, *how]
                    ended = child(folder, line, (stage, chance.random() * seconds[how].get(stage, 0.0)))
                held, wrong = lost(folder, held, ended)
                if ended and not os.WIFSIGNALED(ended.status) and ended.status:
                    wrong.append(f"it ended by itself: {ended.said[-2000:]}")
                yield stage, wrong
                left -= 1
            finished(folder, how if "export" not in STAGES[:done] else ())
            if (found_outcome := outcome(folder)) != expected:
                yield "end", [f"not what a study that is left alone comes to: {different(found_outcome, expected)}"]


def different(outcome: tuple[Any, ...], expected: tuple[Any, ...]) -> str:
    """Where two outcomes differ, with the first row that does."""
    mine, theirs = outcome[0], expected[0]
    rows = [key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key)]
    first = f", such as {rows[0]}: {mine.get(rows[0])}, not {theirs.get(rows[0])}" if rows else ""
    return f"{len(rows)} rows{first}; export {'same' if outcome[1] == expected[1] else 'different'}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill a study again and again; see that nothing is lost.")
    parser.add_argument("--count", type=int, default=1000, help="kills")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--ray", type=float, default=0.05, help="share of folders whose workers are Ray's")
    options = parser.parse_args()
    stages: dict[str, int] = {}
    faulty = 0
    for stage, wrong in chains(options.count, options.seed, options.ray):
        stages[stage] = stages.get(stage, 0) + 1
        faulty += bool(wrong)
        for mistake in wrong:
            print(f"{stage}: {mistake}", flush=True)
    spent = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    stages.pop("end", None)
    print(", ".join(f"{stage} {many}" for stage, many in stages.items()))
    print(f"{options.count} kills, {faulty} that lost something; {spent / options.count:.2f} CPU s a kill")
    sys.exit(1 if faulty else 0)


if __name__ == "__main__":
    main()
