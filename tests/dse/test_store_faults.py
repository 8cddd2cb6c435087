"""A fault of the place where results go: one line that says what to do, status 2, nothing damaged; then the run goes on."""

import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dse.evaluators import PHYSICS_VERSION
from dse.space.errors import DesignError
from dse.store.store import DesignResult, ResultContext, Store
from tests.dse.conftest import PASSWORD, Server
from tests.dse.test_store import BASE, CONTEXT, words
from tests.marks import slow_if


def one_line(code: int, err: str) -> str:
    assert code == 2, err
    (line,) = (line for line in err.strip().splitlines() if line.startswith("dse: "))
    assert err.strip().endswith(line)
    return line


def designs(place: str, name: str = "toy") -> list[str]:
    with closing(Store(place, create=False)) as store:
        return [key for _, key in store.asks(name, PHYSICS_VERSION)]


def sound(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return bool(connection.execute("PRAGMA integrity_check").fetchone() == ("ok",))


# --- no room


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(options, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a disk here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_one_line_and_the_run_goes_on_when_there_is_room(small_disk: Path, tmp_path: Path, typed: Any) -> None:
    place, options = str(small_disk / "s.sqlite"), ("search.budget=600", "workers=serial")
    assert typed(*words(tmp_path / "whole", str(tmp_path / "whole.sqlite"), *options))[0] == 0
    code, _, err = typed(*words(tmp_path / "run", place, *options))
    assert "free some space" in one_line(code, err)
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert sound(Path(place))
    assert 0 < len(designs(place)) < 600
    assert typed(*words(tmp_path / "run", place, *options))[0] == 0
    assert designs(place) == designs(str(tmp_path / "whole.sqlite"))


@slow_if(lambda screen: screen == "true")
@pytest.mark.parametrize("screen", ["false", "true"])
def test_a_file_that_may_not_grow_is_one_line(tmp_path: Path, screen: str, typed: Any) -> None:
    """The same without the right to mount: the system refuses to write beyond a size."""
    line = words(
        tmp_path,
        str(tmp_path / "s.sqlite"),
        f"screen.run={screen}",
        "screen.limit=65536",
        "search.budget=1000",
        "workers=serial",
    )
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    try:
        code, _, err = typed(*line)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert "free some space" in one_line(code, err)
    assert sound(tmp_path / "s.sqlite")
    assert not list(tmp_path.rglob("*.draft"))
    assert typed(*line)[0] == 0
    assert len(designs(str(tmp_path / "s.sqlite"))) == 1000


# --- no right to write


def as_nobody(action: Callable[[], None]) -> str:
    """Runs it in a child that has no rights but everybody's; returns what it printed."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            try:
                action()
                text = "nothing"
            except DesignError as error:
                text = f"dse: {error}"
            except BaseException as error:
                text = repr(error)
            os.write(into, text.encode())
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out) as file:
        text = file.read()
    os.waitpid(child, 0)
    return text


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that others may look into."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
        Path(folder).chmod(0o755)


def test_a_read_only_folder_is_one_line_and_is_read(open_folder: Path) -> None:
    path = open_folder / "s.sqlite"
    with closing(Store(str(path))) as store:
        store.append("s", CONTEXT, BASE, [], [DesignResult("d", {}, {"tpot": 1.0})])
    path.chmod(0o644)
    open_folder.chmod(0o555)

    def write() -> None:
        with closing(Store(str(path))) as store:
            store.begin("s", {}, {})

    def read() -> None:
        with closing(Store(str(path), create=False)) as store:
            assert list(store.results(CONTEXT)) == ["d"]

    before = path.read_bytes()
    for action in (write, lambda: Store(str(open_folder / "new.sqlite")), lambda: Store(str(open_folder / "sub/new.sqlite"))):
        output = as_nobody(action)
        assert output.startswith("dse: store: "), output
        assert "choose a place that can be written with store=PATH or run_dir=DIR" in output
    assert as_nobody(read) == "nothing"
    assert path.read_bytes() == before
    assert [file.name for file in open_folder.iterdir()] == ["s.sqlite"]


@pytest.mark.parametrize("below", ["", "/sub/s.sqlite"], ids=["a folder", "a file for a folder"])
def test_a_path_that_is_no_file_is_one_line(tmp_path: Path, below: str, typed: Any) -> None:
    (tmp_path / "file").write_text("mine")
    place = str(tmp_path) if not below else f"{tmp_path}/file{below}"
    line = one_line(*typed(*words(tmp_path / "run", place))[::2])
    assert "name a file in it" in line or "choose a place that can be written" in line
    assert (tmp_path / "file").read_text() == "mine"


# --- damage


def filled(path: Path) -> bytes:
    rows = [DesignResult(f"{i:032}", {"k": "v" * 200}, {"m": 1.0}) for i in range(200)]
    with closing(Store(str(path))) as store:
        store.append("toy", ResultContext("w" * 32, "analytical", 1), BASE, [], rows)
    return path.read_bytes()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda good: good[: len(good) // 2 // 4096 * 4096],
    "cut within a page": lambda good: good[: len(good) // 2 + 77],
    "cut within the header": lambda good: good[:60],
    "another header": lambda good: b"not a database, " * 7 + good[112:],
    "zeros in the middle": lambda good: good[:40960] + bytes(8192) + good[49152:],
    "garbage in the middle": lambda good: good[:40960] + random.Random(1).randbytes(8192) + good[49152:],
    "garbage at the end": lambda good: good[:-4096] + random.Random(1).randbytes(4096),
    "a text": lambda good: b"this is no database" * 1000,
}


@pytest.mark.sampled
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_one_line_and_left_as_it_is(tmp_path: Path, damage: str, typed: Any) -> None:
    path = tmp_path / "s.sqlite"
    good = filled(path)
    path.write_bytes(DAMAGES[damage](good))
    line = one_line(*typed(*words(tmp_path / "run", str(path)))[::2])
    assert "the file is damaged and was left as it is: restore a copy" in line
    assert path.read_bytes() == DAMAGES[damage](good)
    path.write_bytes(good)
    assert typed(*words(tmp_path / "run", str(path)))[0] == 0
    assert len(designs(str(path))) == 32


def test_a_row_that_is_not_as_it_was_written_is_told_and_left_out(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    import sqlalchemy as sql

    with closing(Store(place)) as store:
        store.append("s", CONTEXT, BASE, [], [DesignResult("d", {}, {"tpot": 1.0}), DesignResult("e", {}, {"tpot": 1.0})])
        with store._write_connection() as connection:
            connection.execute(sql.text("UPDATE results SET metrics = '{\"tpot\": 1.' WHERE design = 'd'"))
        assert list(store.results(CONTEXT)) == ["e"]
        assert "1 damaged row of results; left out" in capsys.readouterr().err
        store.begin("s", {}, {})
        assert list(store.results(CONTEXT)) == ["e"]
        store.append("s", CONTEXT, BASE, [], [DesignResult("d", {}, {"tpot": 1.0})])
        assert set(store.results(CONTEXT)) == {"d", "e"}


@pytest.mark.parametrize("table", ["songs (id INTEGER)", "about (id INTEGER)", "about (key TEXT, value TEXT)"])
def test_a_database_of_something_else_is_left_as_it_is(tmp_path: Path, table: str, typed: Any) -> None:
    path = tmp_path / "s.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE {table}")
    before = path.read_bytes()
    line = one_line(*typed(*words(tmp_path / "run", str(path)))[::2])
    assert f"a database of another program (tables {table.split()[0]})" in line
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["s.sqlite"]


# --- PostgreSQL


def test_what_a_server_refuses_is_one_line(postgres: Server, tmp_path: Path, typed: Any) -> None:
    url = postgres.url()
    name = url.rpartition("/")[2]
    with postgres.connection() as session:
        session.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    with postgres.connection(name) as session:
        session.execute("REVOKE ALL ON SCHEMA public FROM public")
    for place, hint in (
        (postgres.address(name, "wrong"), "correct USER and the password"),
        (url.replace("//dse:", "//nobody:"), "correct USER and the password"),
        (postgres.address("nowhere"), "make it with createdb"),
        (f"postgresql://guest:guest@127.0.0.1:{postgres.port}/{name}", "this user may not write there"),
        (url.replace(f":{postgres.port}", ":1"), "is the server running there?"),
        (url.replace("127.0.0.1", "nowhere.invalid"), "correct HOST and PORT"),
    ):
        line = one_line(*typed(*words(tmp_path / "run", place))[::2])
        assert hint in line
        assert "wrong" not in line
        assert "sesame" not in line


def test_a_server_that_stops_is_one_line_and_the_run_goes_on_when_it_is_back(
    postgres: Server, tmp_path: Path, typed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = postgres.url()
    append, left = Store.append, [3]

    def stopping(*arguments: Any) -> None:
        left[0] -= 1
        if not left[0]:
            postgres.stop()
        append(*arguments)

    monkeypatch.setattr(Store, "append", stopping)
    try:
        line = one_line(*typed(*words(tmp_path / "run", place, "search.budget=200"))[::2])
    finally:
        postgres.start()
    assert "is the server running there?" in line
    assert 0 < len(designs(place)) < 200
    assert typed(*words(tmp_path / "run", place, "search.budget=200"))[0] == 0
    assert len(designs(place)) == 200
    with closing(Store(place, create=False)) as store:
        assert [run["state"] for run in store.runs("toy")] == ["killed", "done"]


def test_passwords_are_not_kept_with_runs(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    place = postgres.url()
    _, out, err = typed(*words(Path("runs/toy"), place))
    with closing(Store(place, create=False)) as store:
        assert "sesame" not in f"{out} {err} {store.runs('toy')}"
    note = tmp_path / "runs/toy/store.url"
    assert "sesame" not in note.read_text()
    assert "sesame" not in (tmp_path / "runs/toy/report.html").read_text()
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    code, out, err = typed("show", "--full", "toy")
    assert code == 0, err
    assert "done" in out
