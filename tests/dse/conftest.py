"""Commands as typed, and a PostgreSQL server of the tests' own, on a free port, in a folder that goes with it.

The server needs Debian's `postgresql`, or another whose programs are in the path. Without it its tests are skipped at a desk,
and fail in CI.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import dse.main

USER, PASSWORD = "dse", "open sesame/@:"
NUMBERS = count()


@dataclass
class Server:
    """One that runs; `url` makes a new database in it."""

    programs: Path
    folder: Path
    port: int
    owner: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [self.programs / "postgres", "-D", self.folder / "data", "-p", str(self.port), "-h", "127.0.0.1"]
        command += ["-k", self.folder, "-c", "fsync=off", "-c", "max_connections=50"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **self.owner)
        for _ in range(600):
            with contextlib.suppress(OSError), self.connection():
                return
            assert self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.05)
        raise AssertionError((self.folder / "log").read_text())

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(2)  # fast: ends what is connected
            self.process.wait(60)
            self.process = None

    @contextlib.contextmanager
    def connection(self, name: str = "postgres") -> Iterator[Any]:
        import psycopg

        try:
            session = psycopg.connect(
                host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, dbname=name, autocommit=True
            )
        except psycopg.OperationalError as error:
            raise OSError(error) from None
        with session:
            yield session

    def address(self, name: str, password: str = PASSWORD) -> str:
        from urllib.parse import quote

        return f"postgresql://{USER}:{quote(password, safe='')}@127.0.0.1:{self.port}/{name}"

    def url(self) -> str:
        name = f"study{next(NUMBERS)}"
        with self.connection() as session:
            session.execute(f"CREATE DATABASE {name}")
        return self.address(name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    executable = shutil.which("postgres")
    places = [Path(executable).parent] if executable else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not places:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no PostgreSQL here; apt-get install postgresql")
    # it refuses to run as root; its own user comes with the package
    owner = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="dse-postgres-"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(places[-1], folder, port, owner)
    try:
        (folder / "password").write_text(PASSWORD)
        if owner:
            shutil.chown(folder, "postgres", "postgres")
            shutil.chown(folder / "password", "postgres", "postgres")
        command = [server.programs / "initdb", "-D", folder / "data", "-U", USER, "-A", "scram-sha-256", "-E", "UTF8"]
        command += ["--locale=C", "--no-sync", f"--pwfile={folder / 'password'}"]
        subprocess.run(command, check=True, capture_output=True, cwd=folder, **owner)
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where to store, on each database."""
    if request.param == "sqlite":
        return str(tmp_path / "s.sqlite")
    server: Server = request.getfixturevalue("postgres")
    return server.url()


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Types a command; returns its exit status, output and complaints."""

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dse", *arguments])
        with pytest.raises(SystemExit) as end:
            dse.main.main()
        return int(end.value.code or 0), *capsys.readouterr()

    return command
