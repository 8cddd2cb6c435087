"""A study is named alike for all commands, and its stored results can be deleted and renamed."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import dse
from dse.commands.cli_options import COMMANDS
from dse.main import main
from dse.store.store import Store

QUICK = ("screen.limit=16", "search=qmc", "search.budget=2", "workers=serial")


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    dse.run("quickstart", *QUICK)
    return tmp_path


def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["dse", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def test_a_renamed_study_answers_to_its_new_name_alone(
    ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dse.load("quickstart", *QUICK).frame()
    capsys.readouterr()
    assert typed(monkeypatch, capsys, "rename", "study=quickstart", "first-try", "--yes")[0] == 0
    after = dse.load("first-try").frame()
    assert after["design"].tolist() == before["design"].tolist()
    assert not (ran / "runs/quickstart").exists()
    code, out, _ = typed(monkeypatch, capsys, "show", "study=first-try")
    assert not code
    assert (code, out) == typed(monkeypatch, capsys, "show", "first-try")[:2]
    code, _, err = typed(monkeypatch, capsys, "show", "first-tri")
    assert code == 2
    assert "did you mean 'first-try'" in err


def test_deleted_results_are_gone_and_others_stay(
    ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = ran / "shared.sqlite"
    for name in ("one", "two"):
        dse.run("quickstart", *QUICK, f"store={shared}", f"name={name}")
    capsys.readouterr()
    code, _, err = typed(monkeypatch, capsys, "delete", "one")
    assert code == 2
    assert err.strip().startswith("dse: delete: no terminal to ask on; add --yes to delete runs/one")
    assert typed(monkeypatch, capsys, "delete", "one", "--yes")[0] == 0
    assert not (ran / "runs/one").exists()
    with closing(Store(str(shared), create=False)) as store:
        assert not store.runs("one")
        assert len(store.runs("two")) == 1
    assert len(dse.load("two").frame())
    assert typed(monkeypatch, capsys, "delete", "quickstart", "--yes")[0] == 0
    code, _, err = typed(monkeypatch, capsys, "delete", "quickstart", "--yes")
    assert code == 2
    assert "valid: two" in err


@pytest.mark.parametrize("words", [("delete", "quickstart", "--yes"), ("rename", "quickstart", "other", "--yes")])
def test_a_study_that_runs_is_left_alone(
    words: tuple[str, ...], ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    hold = (
        "import sys; from pathlib import Path; from dse.store.study_lock import FileLock\n"
        "assert FileLock(Path('runs/quickstart/results.sqlite')).take('quickstart')\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "held\n"
        code, _, err = typed(monkeypatch, capsys, *words)
        driver.communicate()
    assert code == 2
    assert "study 'quickstart' is running" in err
    assert (ran / "runs/quickstart/results.sqlite").exists()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("rename", "quickstart", "waferllm_gemv"), "is the name of a study with a definition"),
        (("rename", "quickstart", "../x"), "is no name of a study"),
        (("rename", "quickstart", "quickstart"), "with a definition"),
        (("rename", "quickstart"), "expected a study that ran here and a new name"),
        (("delete",), "expected the name of one study"),
        (("delete", "waferllm_gemv", "--yes"), "has no results in runs"),
    ],
)
def test_names_that_cannot_be_are_refused_in_a_line(
    words: tuple[str, ...], hint: str, ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    code, out, err = typed(monkeypatch, capsys, *words)
    assert code == 2
    assert not out
    assert hint in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.studies])
def test_each_command_that_takes_a_study_takes_it_in_both_forms(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    more = {"figure": ["pareto"], "rename": ["new"], "evaluate": ["--design", "none"], "run": ["search.budget=-1"]}
    forms = [typed(monkeypatch, capsys, name, word, *more.get(name, [])) for word in ("quickstart", "study=quickstart")]
    assert forms[0][0] == forms[1][0]
    assert forms[0][2] == forms[1][2]
