"""Commands that are told to end: one line, the state of the run as it is, no traceback and no file half written."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dse.store.store import Store
from tests.dse.test_store import asked, words
from tests.marks import slow_if

COMMAND = (sys.executable, "-m", "dse.main")


def begun(folder: Path, *overrides: str) -> subprocess.Popen[str]:
    line = [*COMMAND, *words(folder, str(folder / "s.sqlite"), "search.budget=1000000", *overrides)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def states(folder: Path) -> list[str]:
    with closing(Store(str(folder / "s.sqlite"), create=False)) as store:
        return [run["state"] for run in store.runs("toy")]


@slow_if(lambda number: number == signal.SIGTERM)
@pytest.mark.parametrize(
    ("number", "again"),
    [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGHUP, False)],
    ids=["Ctrl-C", "SIGTERM", "SIGTERM twice", "a terminal that is closed"],
)
def test_a_run_that_is_told_to_end_does_so_without_a_traceback(tmp_path: Path, number: signal.Signals, again: bool) -> None:
    process = begun(tmp_path)
    for _ in range(1200):
        if asked(str(tmp_path / "s.sqlite")) > 80:
            break
        time.sleep(0.1)
    process.send_signal(number)
    if again:
        time.sleep(0.02)
        process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    assert "what is finished is stored" in err or (again and "ended at once; what was stored stays" in err)
    assert states(tmp_path)[0] in (("interrupted", "killed") if again else ("interrupted",))


def test_a_run_that_is_interrupted_within_a_transaction_notes_how_it_ended(tmp_path: Path) -> None:
    with closing(Store(str(tmp_path / "s.sqlite"))) as store:
        number = store.begin("toy", {}, {})
        with contextlib.suppress(KeyboardInterrupt), store._write_connection() as connection:
            connection.invalidate()
            (tmp_path / "other").write_text("takes the number of the file that is gone")
            raise KeyboardInterrupt
        store.end(number, "interrupted", {})
    assert states(tmp_path) == ["interrupted"]


@pytest.mark.parametrize("delay", [0.0, 0.5])
def test_ctrl_c_while_libraries_are_imported_is_one_line(tmp_path: Path, delay: float) -> None:
    process = begun(tmp_path)
    while "numpy" not in Path(f"/proc/{process.pid}/maps").read_text():  # before that, the signal is the interpreter's
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err


WATCHED = """
import os, sys
from dse.terminal.exit_watcher import ExitWatcher
watcher = ExitWatcher("ended from outside")
if sys.argv[1] == "analytical":
    watcher.close()
os._exit(1)
"""


def test_a_process_that_a_library_ends_still_has_a_last_line() -> None:
    for how, line in (("ended", "ended from outside\n"), ("analytical", "")):
        done = subprocess.run([sys.executable, "-c", WATCHED, how], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (1, line)


INTERRUPTED = """
import builtins, os, signal, sys
imported = builtins.__import__

def interrupting(name, *how):
    if name == sys.argv[1]:
        os.kill(os.getpid(), getattr(signal, sys.argv[2]))
    return imported(name, *how)

signal.signal(signal.SIGINT, signal.default_int_handler)
from dse.__main__ import main
builtins.__import__ = interrupting
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("name", ["dse.main", "dse.commands.cli_options", "dse.terminal.signals", "difflib"])
def test_a_signal_before_the_command_has_begun_is_one_line(name: str, number: signal.Signals) -> None:
    line = [sys.executable, "-c", INTERRUPTED, name, number.name]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 128 + number
    assert done.stderr.split("\n") == ["", "dse: stopped; what was stored stays", ""]


def test_the_command_starts_where_signals_are_caught_first() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"dse": "dse.__main__:main"}
    completed_run = subprocess.run(
        [sys.executable, "-m", "dse", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert completed_run.stdout.startswith("mesh-dse ")
    asked_for = "import sys; before = set(sys.modules); import dse.__main__; print(*set(sys.modules) - before)"
    first = subprocess.run([sys.executable, "-c", asked_for], capture_output=True, text=True, timeout=60, check=True)
    assert {name for name in first.stdout.split() if name.startswith("dse")} == {"dse", "dse.__main__"}


def test_a_run_is_done_once_its_report_is_written_and_a_full_disk_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Any
) -> None:
    write_text = Path.write_text

    def full(path: Path, *text: Any, **how: Any) -> int:
        if "report" not in path.name:
            return write_text(path, *text, **how)
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    line = words(tmp_path, str(tmp_path / "s.sqlite"))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        code, _, err = typed(*line)
    assert code == 2
    assert f"dse: {tmp_path / 'report.html'}: No space left on device; free some space" in err
    assert [path.name for path in tmp_path.iterdir() if "report" in path.name] == []
    assert states(tmp_path) == ["failed"]
    assert typed(*line)[0] == 0
    assert states(tmp_path) == ["failed", "done"]


def test_a_timeline_that_a_full_disk_cuts_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Any) -> None:
    def full(path: Path, *text: Any, **how: Any) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    file = tmp_path / "step.json"
    code, _, err = typed("evaluate", "--full", "workload.batch=[1]", "--trace", str(file))
    assert code == 2
    assert f"dse: --trace {file}: No space left on device; name a file" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_locale_of_plain_ascii_in_a_folder_that_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "zürich-東京"
    folder.mkdir()
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    run = ["run", "study=quickstart", "screen.run=false", "search=random", "search.budget=16"]
    done = subprocess.run(
        [*COMMAND, *run], cwd=folder, env={**os.environ, **plain}, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    both = [*COMMAND[:1], "-c", SHOWN_AND_EXPORTED]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(both, cwd=folder, env=ascii_only, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert (folder / "runs/quickstart/quickstart.csv").exists()


SHOWN_AND_EXPORTED = """
import sys
from dse.main import main
for words in ("show quickstart", "export quickstart --to csv"):
    sys.argv = ["dse", *words.split()]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""
