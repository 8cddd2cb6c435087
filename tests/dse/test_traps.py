"""A folder with modules of a stranger's, named as libraries are: no command and no process below one runs them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dse.execution import precompile as beforehand
from dse.execution.pool.choice import map_beside_this_process
from dse.terminal.child_python import import_path

NAMES = ("pickle", "numpy", "dse", "json", "yaml", "numba", "ray", "pandas", "optuna", "queue", "signal", "typing", "torch")
"""What processes of this program import first, a library that it loads when it is there, and this program itself."""

STUDY = """
defaults:
  - override /space: quickstart
  - override /workers: {workers}
question: "of a stranger"
screen: {{run: false}}
search: {{budget: 2}}
workers: {{count: 2}}
objectives: {{throughput: max}}
"""
COMMANDS = (
    ("compare", "chip=[h100,a100]", "workload.batch=[1]", "workload.prompt=64", "workload.output=8"),
    ("list",),
    ("validate", "preserve_table1"),
    ("schema",),
    ("show", "by_serial"),
    ("explain", "by_serial"),
    ("report", "by_serial"),
    ("export", "by_serial", "--to", "csv"),
)
SERVED = ("chip=h100", "workload=serving", "workload.requests=5", "mapping.both.tp=1")
DSE = str(Path(sys.executable).parent / "dse")


@pytest.fixture(scope="module")
def trapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every module that is imported leaves its name in a file."""
    folder = tmp_path_factory.mktemp("trapped")
    for workers in ("serial", "ray"):
        (folder / "studies" / f"by_{workers}").mkdir(parents=True)
        (folder / "studies" / f"by_{workers}" / "study.yaml").write_text(STUDY.format(workers=workers))
    for place in (folder, *(folder / "studies").iterdir()):
        for name in NAMES:
            (place / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write({name!r})\n")
    (folder / ".numba_config.yaml").write_text(f"cache_dir: {folder / 'cache'}\n")
    return folder


def ran(folder: Path, *words: str, text: str | None = None) -> None:
    """Run a command as its console script starts it; fail where it fails, or a stranger's module ran."""
    known: Any = {"cwd": folder, "capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run(words, input=text, check=False, **known)
    assert not (folder / "ran").exists(), f"{' '.join(words)}: ran {(folder / 'ran').read_text()}"
    assert not (folder / "cache").exists()
    assert done.returncode == 0, done.stderr


def test_ray_s_workers_leave_modules_of_the_folder_alone(trapped: Path) -> None:
    ran(trapped, DSE, "run", "study=by_ray", "search=random")


def test_a_process_that_compiles_or_takes_a_share_leaves_modules_of_the_folder_alone(
    trapped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trapped)
    assert map_beside_this_process(str, [1, 2]) == ["1", "2"]
    monkeypatch.setattr(beforehand, "needs_compiling", lambda function: True)
    monkeypatch.setattr(beforehand, "COMMAND", beforehand.COMMAND.replace("compile_simulator()", "pass"))
    beforehand.start_precompile.cache_clear()
    process = beforehand.start_precompile()
    beforehand.start_precompile.cache_clear()
    assert process is None or process.wait() == 0
    assert not (trapped / "ran").exists()


@pytest.mark.parametrize("words", [("evaluate", *SERVED), *COMMANDS], ids=lambda words: words[0])
def test_every_command_leaves_modules_of_the_folder_alone(trapped: Path, run: None, words: tuple[str, ...]) -> None:
    ran(trapped, DSE, *words)


@pytest.fixture(scope="module")
def run(trapped: Path) -> None:
    """A study that has run in the folder."""
    ran(trapped, DSE, "run", "study=by_serial", "search=random")


def test_an_assistants_process_leaves_modules_of_the_folder_alone(trapped: Path) -> None:
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "evaluate", "arguments": {}}},
    ]  # fmt: skip
    ran(trapped, DSE, "mcp", text="".join(json.dumps(request) + "\n" for request in requests))


def test_a_child_looks_in_the_current_folder_only_where_somebody_named_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "/elsewhere"])
    assert import_path() == ["/elsewhere"]
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert import_path() == [str(tmp_path), "/elsewhere"]
