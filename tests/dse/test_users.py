"""Who runs it: somebody whose home cannot be written, a number without a name, somebody whose folders are named as ours."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dse

OWN = ("USER", "LOGNAME", "LNAME", "USERNAME", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
"""What tells who somebody is, and where there is a place of theirs."""

NOBODY = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]
READS = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
"""Has them read where root alone may, as the interpreter can be there; what they may write is what anybody may."""


def ran(folder: Path, command: list[str]) -> str:
    """Output of a command of somebody without a home, in a folder."""
    environment = {name: value for name, value in os.environ.items() if name not in OWN}
    environment["HOME"] = "/dev/null/home"  # which nobody can make, root neither
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done.stdout


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "dse.main", *words]


@pytest.fixture(scope="session")
def nobody() -> list[str]:
    """What has a command run by a user that the system has no entry of."""
    if os.geteuid() or not shutil.which("setpriv"):
        pytest.skip("only root can be somebody else, by setpriv")
    starts = [sys.executable, "-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"]
    for prefix in (NOBODY, [*NOBODY, *READS]):
        if not subprocess.run([*prefix, *starts], check=False, capture_output=True).returncode:
            return prefix
    pytest.skip("the interpreter is where other users cannot read")


@pytest.fixture
def theirs(nobody: list[str]) -> Iterator[Path]:
    """A folder that they can write; they cannot write the sources, nor a home."""
    folder = Path(tempfile.mkdtemp(prefix="dse-nobody-"))
    os.chown(folder, 12345, 12345)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a command says in an empty folder."""
    return ran(tmp_path_factory.mktemp("elsewhere"), command("evaluate", "--json"))


def test_a_home_that_cannot_be_written_is_not_needed(evaluated: str) -> None:
    assert '"feasible": true' in evaluated


@pytest.mark.slow
def test_a_user_without_a_name_and_a_home_runs_a_study(nobody: list[str], theirs: Path) -> None:
    """With workers of each kind, in one process."""
    ran(theirs, [*nobody, sys.executable, "-c", RUNS])
    assert all((theirs / f"runs/{workers}/report.html").exists() for workers in ("serial", "ray"))
    assert [path.name for path in theirs.iterdir()] == ["runs"]


RUNS = """
import dse
for workers in ("serial", "ray"):
    tiny = ("screen.run=false", "search=random", "search.budget=2", "workers.count=1")
    dse.run("quickstart", *tiny, f"name={workers}", f"workers={workers}")
"""


def test_a_tilde_that_stands_for_nobody_is_a_file_that_is_not_there(typed: Any) -> None:
    code, _, err = typed("evaluate", "--full", "model.from_hf=~no_such_user/config.json")
    assert code == 2
    assert err.startswith("dse: model.from_hf: no file '~no_such_user/config.json'")


@pytest.fixture
def named_alike(tmp_path: Path) -> Path:
    """A folder of a user's with packages that are called as folders of ours are, and a script."""
    for name in ("conf", "space", "evaluators", "studies"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"MINE = {name!r}\n")
    for name in ("config", "chip/npu_dse", "model/llama3_8b"):
        path = tmp_path / "conf" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text("somebody: else\n")
    (tmp_path / "script.py").write_text(
        "import conf, evaluators, space, studies\n"
        "import dse\n"
        "print(conf.MINE, space.MINE, evaluators.MINE, studies.MINE, dse.evaluate().metrics['tpot'])\n"
    )
    return tmp_path


def test_a_script_beside_folders_named_as_ours_has_both(named_alike: Path) -> None:
    tpot = dse.evaluate().metrics["tpot"]
    assert ran(named_alike, [sys.executable, "script.py"]) == f"conf space evaluators studies {tpot}\n"


def test_a_command_beside_folders_named_as_ours_finds_ours(named_alike: Path, evaluated: str) -> None:
    assert ran(named_alike, command("evaluate", "--json")) == evaluated
