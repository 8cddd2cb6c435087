"""What a user types, and what comes back: one clear line and status 2 for what can be mended, nothing written."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from dse.compose import compose
from dse.main import main

QUICK = ("study=quickstart", "screen.limit=256", "search.budget=48")


def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["dse", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


MISTAKES = [
    ("run study=quickstat", "did you mean 'quickstart'"),
    ("run", "dse run study=quickstart"),
    ("rn", "did you mean 'run'"),
    ("evaluate chip=npu_dsee", "did you mean 'npu_dse'"),
    ("evaluate model=[llama3_8b,llama9]", "model: no option 'llama9'"),
    ("evaluate chip.l2.sise=64", "did you mean 'size'"),
    ("evaluate +chip.l2.sise=64", "did you mean 'size'"),
    ("evaluate chip.l2.size=64", "chip.l2.size: 64 has no unit"),
    ("evaluate chip.l2.size='64 us'", "expected one of B"),
    ("evaluate chip.l2.size=null", "chip.l2.size"),
    ("evaluate chip.cores=2.5", "chip.cores: 2.5 is not a whole number"),
    ("evaluate chip.cores=1e400", "not a finite number"),
    ("evaluate mapping.prefill.tp=0", "mapping.prefill.tp: 0 is below"),
    ("evaluate mapping.prefill.prefetch=hole", "did you mean 'whole'"),
    ("evaluate mapping.prefill.allreduce=rng", "did you mean 'ring'"),
    ("evaluate workload.batch=0", "workload.batch: 0"),
    ("evaluate workload.lengths=none.csv", "no file 'none.csv'"),
    ("evaluate fidelity=3", "fidelity"),
    ("evaluate --foo", "--foo"),
    ("evaluate foo=1", "no field 'foo'"),
    ("run study=quickstart constraints.ttft=4", "constraints.ttft: 4 is no bound"),
    ("run study=quickstart objectives.tpot=up", "objectives.tpot: no direction 'up'"),
    ("run study=quickstart +objectives.foo=max", "metric: no option 'foo'"),
    ("run study=quickstart search.sampler=foo", "no sampler 'foo'"),
    ("run study=quickstart search.budget=-1", "search.budget: -1"),
    ("run study=quickstart seed=a", "seed: 'a'"),
    ("run study=quickstart space.chip.cores=range(5,5)", "range leaves out its end"),
    ("run study=quickstart +space.chip.foo=choice(1,2)", "no field 'chip.foo'"),
    ("run study=quickstart report.lines=4", "report.lines"),
    ("run study=quickstart objectives=3", "objectives: 3"),
    ("run study=quickstart name=[3]", "name: [3]"),
    ("run study=quickstart name=../x", "name: '../x'"),
    ("validate none.csv", "no file none.csv"),
    ("show nostudy", "no study 'nostudy'"),
    ("export quickstart --to foo", "no format 'foo'"),
    ("export quickstart", "run it first"),
    ("report quickstart", "run it first"),
    ("report quickstart --follow", "run it first"),
    ("report", "takes the name of a study"),
    ("report quickstart --out", "takes a file"),
    ("report quickstart --folow", "no flag '--folow'"),
    ("list --foo", "no flag '--foo'"),
]


@pytest.mark.parametrize(("line", "hint"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_line_and_writes_nothing(
    line: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = typed(monkeypatch, capsys, *shlex.split(line))
    assert code == 2
    assert hint in err
    assert len(err.strip().splitlines()) == 1
    assert not out
    assert not list(tmp_path.iterdir())


def test_a_study_runs_resumes_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = typed(monkeypatch, capsys, "run", *QUICK)
    assert code == 0
    assert "front" in out
    page = (tmp_path / "runs/quickstart/report.html").read_text()
    assert "throughput_per_system_mm2" in page
    code, again, err = typed(monkeypatch, capsys, "run", *QUICK)
    assert "going on from 48 asked designs" in err
    assert again == out
    code, out, err = typed(monkeypatch, capsys, "list")
    assert "done, 48 searched" in " ".join(out.split())
    code, out, err = typed(monkeypatch, capsys, "show", "quickstart")
    assert "constraints  ttft <= 4 s" in out
    code, out, err = typed(monkeypatch, capsys, "report", "quickstart")
    assert code == 0


@pytest.mark.parametrize("to", ["parquet", "csv", "json", "optuna"])
def test_results_are_exported(
    to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    typed(monkeypatch, capsys, "run", *QUICK)
    code, _, err = typed(monkeypatch, capsys, "export", "quickstart", "--to", to)
    assert code == 0
    assert Path(err.split(" written to ")[1].strip()).stat().st_size > 1000


def test_an_exported_optuna_study_has_the_same_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    import dse

    monkeypatch.chdir(tmp_path)
    loaded = dse.run("quickstart", *QUICK[1:])
    from dse.export import export

    export("quickstart", "optuna", str(tmp_path / "s.journal"))
    study = optuna.load_study(study_name="quickstart", storage=JournalStorage(JournalFileBackend(str(tmp_path / "s.journal"))))
    assert {tuple(trial.values) for trial in study.best_trials} == {
        tuple(row) for row in loaded.front()[list(loaded.study.objectives)].to_numpy()
    }


def test_a_study_of_another_space_is_refused_by_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    typed(monkeypatch, capsys, "run", *QUICK)
    code, _, err = typed(monkeypatch, capsys, "run", *QUICK, "chip.hbm.capacity=32 GB")
    assert code == 2
    assert "chip.hbm.capacity=64 GB, now 32 GB" in err
    assert "name=NEW" in err


def test_evaluate_prints_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    _, out, _ = typed(monkeypatch, capsys, "evaluate", "--json", "mapping.prefill.tp=4")
    answer = json.loads(out)
    total = sum(row["seconds"] for row in answer["operators"])
    assert answer["metrics"]["latency"]["value"] == pytest.approx(total)
    assert not list(tmp_path.iterdir())


def test_a_trace_covers_the_first_step_of_each_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    typed(monkeypatch, capsys, "evaluate", "--trace", "step.json", "mapping.prefill.tp=4")
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {"prefill", "decode", "compute", "communication", "prefetch"}
    for pid in (0, 1):
        for tid in (0, 1, 2):
            bars = sorted((e["ts"], e["dur"]) for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (pid, tid))
            assert all(a + d <= b * (1 + 1e-9) for (a, d), (b, _) in pairwise(bars))


def test_hydras_flags_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "chip").mkdir()
    own = "defaults: [npu_dse, _self_]\ncores: 7\n"
    (tmp_path / "chip/mine.yaml").write_text(own)
    config = compose([f"--config-dir={tmp_path}", "chip=mine"])
    assert config["chip"]["cores"] == 7
    monkeypatch.setattr(sys, "argv", ["dse", "evaluate", "--cfg", "job"])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert "prefetch_cap: 1.0" in capsys.readouterr().out


def test_the_shell_completes_studies(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COMP_LINE", "dse run study=quick")
    _, out, _ = typed(monkeypatch, capsys, "-sc", "query=bash")
    assert out.split() == ["study=quickstart"]


def test_ctrl_c_stores_what_is_finished(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dse.main", "run", "study=quickstart", "screen.limit=256", "search.budget=100000"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    store = tmp_path / "runs/quickstart/results.sqlite"
    for _ in range(300):
        if store.exists() and store.with_name("results.sqlite-wal").exists() and asked(tmp_path) > 64:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the same command goes on from here" in err
    assert asked(tmp_path) > 64


def asked(folder: Path) -> int:
    import sqlite3

    try:
        with sqlite3.connect(folder / "runs/quickstart/results.sqlite") as connection:
            return int(connection.execute("SELECT count(*) FROM asks").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def test_help_imports_nothing_heavy() -> None:
    heavy = ("numpy", "hydra", "optuna", "pandas", "plotly", "ray", "sqlalchemy", "rich")
    code = (
        "import sys; sys.argv = ['dse', '--help']\n"
        "import dse.main\n"
        "try:\n    dse.main.main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ).stdout
    assert out.strip().splitlines()[-1] == "[]"
