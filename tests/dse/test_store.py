"""What is stored stays, on each database, whatever happens to the driver and to the store."""

import getpass
import json
import os
import platform
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

import dse.execution.provenance
from dse.evaluators import PHYSICS_VERSION
from dse.search.samplers import Ask
from dse.space.errors import DesignError
from dse.space.former_words import current_metric
from dse.store.database import mask_passwords
from dse.store.store import DesignResult, ResultContext, Store
from dse.store.tables import SCHEMA
from tests.dse.conftest import PASSWORD, Server
from tests.dse.toy import searched, toy
from tests.marks import slow_if

CONTEXT = ResultContext("w" * 32, "analytical", 1)
RESULT = DesignResult("d" * 32, {"chip.cores": 3}, {"tpot": 0.1}, "chip.hbm.capacity", 2.0, 1.0, 0.5)
BASE = ("b", "{}")


def test_what_is_appended_is_read_back(place: str) -> None:
    store = Store(place)
    ask = Ask(0, {"chip.cores": 3}, {"params": {}, "trial": {}, "study": {}})
    odd = DesignResult(
        "e" * 32, {"chip.cores": 1e-300, "a": "it's \u00b5 \U0001f600"}, {"x": 0.1 + 0.2}, error="\0 \ud800 \n 'quoted'"
    )
    store.append("s", CONTEXT, BASE, [(ask, RESULT.key)], [RESULT, odd])
    store.close()
    again = Store(place, create=False)
    results = again.results(CONTEXT)
    assert results[RESULT.key] == RESULT
    assert (results[odd.key].values, results[odd.key].metrics) == (odd.values, odd.metrics)
    assert results[odd.key].error == "\\0 \\ud800 \n 'quoted'"
    assert again.asks("s", 1) == [(ask, RESULT.key)]
    assert again.ask_count("s", 1) == 1
    assert again.bases(CONTEXT) == {RESULT.key: {}, odd.key: {}}
    assert again.of_other_physics(ResultContext("w" * 32, "analytical", 2)) == {1: 2}
    again.close()


def test_a_result_that_is_stored_stays(place: str) -> None:
    store = Store(place)
    store.append("s", CONTEXT, BASE, [], [RESULT])
    store.append("t", CONTEXT, BASE, [], [DesignResult(RESULT.key, {}, {"tpot": 9.0})])
    assert store.results(CONTEXT)[RESULT.key] == RESULT
    store.close()


def test_runs_are_kept_with_how_they_ended(place: str) -> None:
    store = Store(place)
    first = store.begin("s", {"a": "1"}, {"seed": 3})
    store.end(first, "done", {"results": 4})
    second = store.begin("s", {"a": "2"}, {})
    assert second != first
    assert store.identity("s") == {"a": "1"}
    assert store.identity("t") is None
    done, running = store.runs("s")
    assert (done["state"], running["state"]) == ("done", "running")
    assert done["facts"].items() >= {"seed": 3, "results": 4, "pid": os.getpid()}.items()
    store.close()


def test_a_study_that_has_just_ended_may_begin_again(place: str) -> None:
    """A server may still hold the lock of a session that was closed a moment ago."""
    store = Store(place)
    for turn in range(20):
        store.end(store.begin("s", {"a": str(turn)}, {}), "done", {})
    assert len(store.runs("s")) == 20
    store.close()


def test_many_that_make_one_store_at_once_agree(place: str) -> None:
    def made(begin: float) -> int:
        """A process that makes the store at a moment; it ends with 0 where it could."""
        child = os.fork()
        if not child:
            try:
                time.sleep(max(0.0, begin - time.monotonic()))
                Store(place).close()
                os._exit(0)
            finally:
                os._exit(1)
        return child

    begin = time.monotonic() + 0.1
    assert [os.waitpid(child, 0)[1] for child in [made(begin) for _ in range(6)]] == [0] * 6
    Store(place, create=False).close()


def test_a_store_that_another_is_writing_to_is_waited_for(tmp_path: Path) -> None:
    """Another makes the same file and has not come as far as that its readers need not wait."""
    path = tmp_path / "s.sqlite"
    Store(str(path)).close()
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("PRAGMA journal_mode=DELETE")
        other.execute("BEGIN IMMEDIATE")
        after = threading.Timer(0.2, other.execute, ("COMMIT",))
        after.start()
        Store(str(path)).close()
        after.join()
    with closing(sqlite3.connect(path)) as later:
        assert later.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_studies_that_store_the_same_designs_in_another_order_do_not_block_each_other(postgres: Server) -> None:
    """A study that waits for another's design holds none yet that the other may want."""
    place = postgres.url()
    first, second = (DesignResult(letter * 32, {}, {"tpot": 1.0}) for letter in "12")
    with closing(Store(place)) as ours, closing(Store(place)) as theirs, ThreadPoolExecutor(1) as pool:
        ours.append("s", CONTEXT, BASE, [], [DesignResult("0" * 32, {}, {})])
        with postgres.connection(place.rpartition("/")[2]) as looking, theirs._write_connection() as other:
            copy = "INSERT INTO results SELECT '{}', workload, fidelity, physics, base, values, metrics, limit_address, need, "
            copy += "have, seconds, error, version FROM results WHERE design = repeat('0', 32)"
            other.execute(sql.text(copy.format(first.key)))
            appended = pool.submit(ours.append, "s", CONTEXT, BASE, [], [second, first])
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while not looking.execute(waiting).fetchone()[0]:
                time.sleep(0.01)
            other.execute(sql.text(copy.format(second.key)))
        appended.result(60)
        assert ours.result_count(CONTEXT) == 3


def test_another_schema_is_refused_with_both_numbers(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    Store(str(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE about SET value = '99'")
    with pytest.raises(DesignError, match=f"schema 99, this version reads up to {SCHEMA}"):
        Store(str(path))


STORES = sorted((Path(__file__).parent / "stores").glob("schema*.sql"))
"""A small store of every schema there was, as `sqlite3 FILE .dump` writes it; 24 asks of the tests' study on a grid of 64."""


def test_there_is_an_old_store_of_every_schema() -> None:
    assert [path.stem for path in STORES] == [f"schema{number}" for number in range(1, SCHEMA + 1)]


@pytest.mark.parametrize("old", STORES, ids=lambda path: path.stem)
def test_an_old_store_is_read_and_gone_on_with(old: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(old.read_text())
        stored = connection.execute(
            'SELECT design, "values", metrics, limit_address, need, have, seconds, error FROM results'
        ).fetchall()
        ((workload, fidelity, physics),) = connection.execute("SELECT DISTINCT workload, fidelity, physics FROM results")
    assert len(stored) > 10
    context = ResultContext(workload, fidelity, physics)
    with closing(Store(str(path), create=False)) as store:
        asks, results = store.asks("toy", physics), store.results(context)
        metrics = [{current_metric(name): value for name, value in json.loads(row[2]).items()} for row in stored]
        assert results == {
            row[0]: DesignResult(row[0], json.loads(row[1]), now, *row[3:]) for row, now in zip(stored, metrics, strict=True)
        }
        assert [ask.number for ask, _ in asks] == list(range(24))
        assert {key for _, key in asks} <= set(results)
        assert store.bases(context).keys() == results.keys()
        (run,) = store.runs("toy")
        assert (run["state"], run["facts"]["results"]) == ("done", 24)
        assert store.identity("toy")["fidelity"] == "analytical"  # type: ignore[index]
    with closing(Store(str(path))) as store:
        number = store.begin("toy", {}, {})
        new = DesignResult("n" * 32, {}, {"tpot": 1.0})
        store.append("toy", context, BASE, [(replace(asks[0][0], number=24), new.key)], [new])
        store.end(number, "done", {})
    with closing(Store(str(path), create=False)) as store:
        assert store.results(context) == results | {new.key: new}
        assert store.ask_count("toy", physics) == 25


# --- two drivers


def words(folder: Path, place: str, *overrides: str) -> list[str]:
    at = [f"store='{place}'", f"run_dir={folder}"]
    return ["run", "study=quickstart", "name=toy", "screen.run=false", "search=random", "search.budget=32", *at, *overrides]


def started(folder: Path, place: str) -> subprocess.Popen[str]:
    """A driver in a process of its own that runs for minutes, once it has stored results."""
    command = [sys.executable, "-m", "dse.main", *words(folder, place, "search.budget=1000000")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(3000):  # on a machine that does much else
        assert process.poll() is None, process.communicate()
        if asked(place) > 80:
            os.setpriority(os.PRIO_PROCESS, process.pid, 19)  # it goes on, and what is tested beside it comes first
            return process
        time.sleep(0.1)
    raise AssertionError("it stored nothing")


def asked(place: str) -> int:
    try:
        with closing(Store(place, create=False)) as store:
            return store.ask_count("toy", PHYSICS_VERSION)
    except DesignError:
        return 0


def test_a_study_is_read_by_its_store_where_it_never_ran(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Any
) -> None:
    code, _, err = typed(*words(tmp_path / "there", place, "name=quickstart"))
    assert code == 0, err
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    more = [f"store='{place}'", "screen.run=false", "search=random", "search.budget=32"]
    code, out, err = typed("show", "--full", "quickstart", *more)
    assert code == 0, err
    assert "32 designs" in out
    for line in (
        ["report", "quickstart", *more, "--out", "r.html"],
        ["export", "quickstart", *more, "--to=csv", "--out=r.csv"],
    ):
        code, _, err = typed(*line)
        assert code == 0, err
    assert len(Path("r.csv").read_text().splitlines()) == 33
    assert {path.name for path in Path().iterdir()} == {"r.html", "r.csv", "r.csv.units.json"}
    assert typed("show", "--full", "quickstart")[0] == 0


@slow_if(lambda place, end: place == "postgresql" or end == signal.SIGKILL)
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_second_driver_is_told_who_runs_the_study_and_goes_on_when_that_has_ended(
    place: str, tmp_path: Path, end: signal.Signals, typed: Any
) -> None:
    first = started(tmp_path, place)
    code, _, err = typed(*words(tmp_path, place))
    line = err.strip().splitlines()[-1]
    assert code == 2
    assert f"study 'toy' is being run by {getpass.getuser()} on {socket.gethostname()}, process {first.pid}, since 20" in line
    assert "name=NEW" in line
    assert typed(*words(tmp_path / "b", place, "name=beside"))[0] == 0
    first.send_signal(end)
    first.communicate(timeout=60)
    for _ in range(100):  # a server hears of a killed client a moment later
        code, _, err = typed(*words(tmp_path, place))
        if code == 0:
            break
        time.sleep(0.1)
    assert code == 0, err
    with closing(Store(place, create=False)) as store:
        assert [run["state"] for run in store.runs("toy")] == ["killed" if end == signal.SIGKILL else "interrupted", "done"]


@slow_if(lambda place: place == "sqlite")
def test_show_report_and_export_work_while_a_driver_runs(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)  # no file keeps it
    running = started(tmp_path / "runs/toy", place)
    try:
        for line in ("show toy", "list", "report toy", "export toy --to csv"):
            code, out, err = typed(*line.split())
            assert code == 0, err
            assert "running" in out or line.split()[0] in ("report", "export")
        assert running.poll() is None
        assert len((tmp_path / "runs/toy/toy.csv").read_text().splitlines()) > 64
    finally:
        running.kill()
        running.communicate()


def test_a_run_notes_with_what_where_by_whom_and_for_how_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert typed(*words(Path("runs/toy"), "toy.sqlite", "seed=3"))[0] == 0
    with closing(Store("toy.sqlite", create=False)) as store:
        ((run),) = store.runs("toy")
    facts = run["facts"]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    assert facts["git"].removesuffix("-dirty") == head.stdout.strip()
    assert facts["versions"] == {"python": platform.python_version()} | {
        name: version(name) for name in ("optuna", "ray", "numpy")
    }
    assert facts["config"]["search"]["budget"] == 32
    assert facts["config"]["chip"]
    assert (facts["seed"], facts["results"], facts["version"]) == (3, 32, version("mesh-dse"))
    assert facts["wall_seconds"] > 0
    assert facts["cpu_seconds"] > 0
    assert (facts["user"], facts["host"], facts["pid"]) == (getpass.getuser(), socket.gethostname(), os.getpid())
    code, out, err = typed("show", "--full", "toy")
    assert code == 0, err
    shown = " ".join(out.split())
    for text in (
        "done",
        " wall",
        " cpu",
        "32 designs",
        "seed 3",
        f"process {os.getpid()}",
        *map(str, facts["versions"].values()),
    ):
        assert text in shown
    assert facts["git"] in shown


def test_a_checkout_with_changes_is_noted_as_such_and_a_foreign_one_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.strip()

    code = tmp_path / "loop.py"
    code.write_text("a = 1\n")
    git("init", "-q")
    monkeypatch.setattr(dse.execution.provenance, "__file__", str(code))
    assert dse.execution.provenance._git_commit() == ""  # there, and not of the repository
    git("add", "loop.py")
    git("commit", "-q", "-m", "first")
    git("tag", "v1")
    assert dse.execution.provenance._git_commit() == git("rev-parse", "HEAD")
    code.write_text("a = 2\n")
    assert dse.execution.provenance._git_commit() == git("rev-parse", "HEAD") + "-dirty"
    monkeypatch.setenv("PATH", "")
    assert dse.execution.provenance._git_commit() == ""


def test_a_killed_study_goes_on_as_an_uninterrupted_one(place: str, tmp_path: Path) -> None:
    whole = searched(toy(tmp_path / "whole"))
    part = toy(tmp_path / "part", f"store='{place}'")
    child = os.fork()
    if not child:
        append, left = Store.append, [4]

        def dying(*arguments: Any) -> None:
            append(*arguments)
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            Store.append = dying  # type: ignore[method-assign]
            searched(part)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert 0 < asked(place) < 240
    assert searched(part) == whole


# --- faults


def test_passwords_are_not_shown() -> None:
    assert mask_passwords("store=postgresql+psycopg://me:se@cret@h/db x") == "store=postgresql+psycopg://me:***@h/db x"
    assert mask_passwords("postgresql://me@h/db?password=secret&x=1") == "postgresql://me@h/db?password=***&x=1"
    assert mask_passwords("a: b@c") == "a: b@c"


def test_a_study_that_was_only_screened_is_reported_and_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its results are blocks of the screen; no database is there."""
    monkeypatch.chdir(tmp_path)
    import dse

    words = ("search=none", "screen.limit=1024")
    dse.run("quickstart", *words)
    for store in (tmp_path / "runs/quickstart").glob("*.sqlite*"):
        store.unlink()
    assert dse.load("quickstart", *words).report().exists()
    from dse.commands.export import export_study

    assert export_study("quickstart", "csv", str(tmp_path / "out.csv"), *words) == 0


@pytest.mark.parametrize("host", ["", "elsewhere"])
def test_a_run_goes_on_while_its_driver_holds_the_study_whatever_its_machine(place: str, host: str) -> None:
    with closing(Store(place)) as reader:
        driver = Store(place)
        driver.begin("toy", {}, {"host": host} if host else {})
        assert [run["state"] for run in reader.runs("toy")] == ["running"]
        driver.close()
        unseen = host and not place.startswith("postgresql")  # all drivers of a server see its locks
        for _ in range(100):  # a server gives up a client's locks a moment after it has gone
            (run,) = reader.runs("toy")
            if run["state"] != "running":
                break
            time.sleep(0.1)
        assert run["state"] == ("lost" if unseen else "killed")
        assert [run["state"] for run in reader.runs("another")] == []


@pytest.mark.parametrize("url", ["postgresql://h/d?user=me&\udcf0=1", "postgresql://h/\udce9d", "postgresql://\udcff@h/d"])
def test_a_url_of_bytes_that_are_no_text_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(DesignError, match="a URL of other characters than UTF-8"):
        Store(url, create=False)
