"""What a user types, and what comes back: one clear line and status 2 for what can be mended, nothing written."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import dse
from dse.accuracy.validate import COLUMNS
from dse.commands.cli_options import COMMANDS, known_flags
from dse.config.compose import compose
from dse.main import main
from dse.space.errors import DesignError
from dse.space.fields import leaf_at
from tests.samples import asked as question

QUICK = ("study=quickstart", "screen.limit=256", "search.budget=48")


def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["dse", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


@pytest.mark.parametrize(("field", "value"), [("tp", 16), ("placement", "mesh")])
def test_what_is_said_of_both_phases_is_said_of_each(field: str, value: Any) -> None:
    plain, both = question("chip=npu64"), question("chip=npu64", f"mapping.both.{field}={value}")
    each = question("chip=npu64", *(f"mapping.{phase}.{field}={value}" for phase in ("prefill", "decode")))
    assert both.base == each.base != plain.base
    for phase in ("prefill", "decode"):
        assert leaf_at(both.base, f"mapping.{phase}.{field}") == value != leaf_at(plain.base, f"mapping.{phase}.{field}")


MISTAKES = [
    ("evaluate h100 llama3_8b", "'h100' is no override; did you mean chip=h100?"),
    ("evaluate chip = h100", "without spaces around the ="),
    ("evaluate --chip h100", "no flag '--chip'; settings have no dashes: chip=VALUE"),
    ("evaluate chip=h100 full=true", "full is a flag and no setting: --full"),
    ("evaluate chip=h100 --engine-args '--tensor-parallel-size two'", "no flag '--tensor-parallel-size two'"),
    ("evaluate model=meta-llama/Llama-3-8B", "did you mean 'llama3_8b'"),
    ("evaluate chip=h100 chip.hbm.capacity=80", "as in '80 GB'"),
    ("explain h100", "no study 'h100'; did you mean chip=h100?"),
    ("compare chip=[h100,h200] objective=tpot", "objective is a flag and no setting: --objective tpot"),
    ("compare chip=[h100,h200] workload.batch=16k", "compare: workload.batch: '16k' is not a number"),
    ("compare chip=[h100,h200] --out .", "compare --out: . is a folder; name a file in it, as in --out compare.html"),
    ("capacity chip=h200 device=4", "no setting 'device'; did you mean devices=?"),
    ("capacity chip=h200 --devices 4", "no flag '--devices'; settings have no dashes: devices=VALUE"),
    ("capacity h200 devices=4", "got h200; did you mean chip=h200?"),
    ("fleet chip=h100 day=sinusoid", "day is a flag and no setting: --day sinusoid"),
    ("run study=quickstat", "did you mean 'quickstart'"),
    ("run", "dse run quickstart"),
    ("rn", "did you mean 'run'"),
    ("evaluate chip=npu_dsee", "did you mean 'npu_dse'"),
    ("evaluate model=[llama3_8b,llama9]", "model: no option 'llama9'"),
    ("evaluate chip=parts/x", "chip: no option 'parts/x'; valid: a100"),
    ("run study=quickstart screen=null", "screen: null is not a group of fields"),
    ("evaluate model.from_hf=nowhere/config.json", "model.from_hf: no file 'nowhere/config.json' here or in"),
    ("evaluate model.from_hf=nowhere model=qwen3_8b", "set by name and by model.from_hf"),
    ("evaluate model.from_hf=[]", "model.from_hf: an empty list"),
    ("evaluate model.from_hf=", "model.from_hf: '' is not a path"),
    ("evaluate model.from_fh=nowhere", "did you mean 'from_hf'"),
    ('evaluate "model.from_hf=it\'s (a) {odd}, = path"', 'no file "it\'s (a) {odd}, = path"'),
    (f"evaluate model.from_hf={__file__}", "test_command_line.py: not JSON"),
    ("run study=waferllm_sram model=qwen3_1b7 workload.prompt=[1000000]", "no design of this study is possible: "),
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
    ("evaluate chip=wse2 mapping.prefill.row=3", "mapping.prefill: no field 'mapping.prefill.row'; did you mean 'rows'"),
    ("evaluate chip=wse2 chip.core.srm=3", "did you mean 'sram'"),
    ("evaluate chip=wse2 chip.cores=3", "chip: no field 'chip.cores'; did you mean 'core'"),
    ("evaluate chip=wse2 chip.core.sram.size=3", "no field 'chip.core.sram.size'; chip.core.sram is a value"),
    ("evaluate chip=wse2 mapping.decode.gemv=ktre", "mapping.decode.gemv: no option 'ktre'; did you mean 'ktree'"),
    ("evaluate chip=wse2 workload=gemm mapping.row=3", "did you mean 'rows'"),
    ("evaluate chip=wse2 workload=gemm workload.shape=3", "did you mean 'shapes'"),
    ("evaluate mapping=waferllm", "as chip=wse2"),
    ("run study=waferllm_gemm mapping.row=3", "did you mean 'rows'"),
    ("run study=waferllm_gemm space.mapping.row='range(1,3)'", "did you mean 'mapping.rows'"),
    ("run study=waferllm_gemm fidelity=events", "add search=nsga2 or search=random"),
    ("evaluate --foo", "--foo"),
    ("evaluate foo=1", "no field 'foo'"),
    ("evaluate chip=a100 batch=[4]", "config: no field 'batch'; did you mean workload.batch?"),
    ("evaluate chip=a100 rate=4", "config: no field 'rate'; workload.rate belongs to workload=serving"),
    ("evaluate chip=a100 workload.keys=[4]", "workload: no field 'workload.keys'; workload.keys belongs to workload=attention"),
    ("evaluate chip=a100 cores=4", "config: no field 'cores'; did you mean chip.cores?"),
    ("evaluate chip=a100 mapping.tp=4", "mapping: no field 'mapping.tp'; did you mean mapping.both.tp?"),
    ("evaluate chip=a100 mapping.both=4", "mapping: no field 'mapping.both'; valid: decode"),
    ("evaluate chip=a100 devices=8", "mapping.both.tp sets the number of devices"),
    ("evaluate chip=a100 +foo=1", "no field 'foo'; did you mean 'pools'? valid: chip"),
    ("run study=quickstart ++objectivs=1", "did you mean 'objectives'"),
    ("compare chip=[a100] +worklod.batch=[1]", "did you mean 'workload'"),
    ("capacity chip=h200 devices=1 +foo.bar=1", "no field 'foo'"),
    ("explain chip=a100 +foo=1", "no field 'foo'"),
    ("run study=quickstart 'objectives={ttft: min}'", "add one with +objectives.NAME=VALUE"),
    ("run study=quickstart constraints.ttft=4", "constraints.ttft: '4' is no bound"),
    ("run study=quickstart objectives.tpot=up", "objectives.tpot: no direction 'up'"),
    ("run study=quickstart +objectives.foo=max", "objectives: no metric 'foo'; valid: accepted"),
    ("run study=quickstart objectives.ttft=min", "objectives: this study has no 'ttft'; +objectives.ttft=... adds it"),
    ("run study=quickstart constraints.tpot='<= 1 s'", "constraints.tpot=... adds it; it has ttft"),
    ("run study=quickstart metrics.mine=ttft", "metrics: this study has no 'mine'; +metrics.mine=... adds it"),
    ("evaluate chip.cores='5 GB'", "chip.cores: '5 GB' is a quantity of GB, expected a plain number"),
    ("run study=quickstart space.chip.cores=choice()", "'choice()' is not a sweep: empty choice is not legal"),
    ("evaluate chip.cores=many", "chip.cores: 'many' is not a number; write a number, as in '8'"),
    ("run study=quickstart search.sampler=foo", "search.sampler: no option 'foo'"),
    ("run study=quickstart search.budget=-1", "search.budget: -1"),
    ("run study=quickstart seed=a", "seed: 'a'"),
    ("run study=quickstart space.chip.cores=range(5,5)", "range leaves out its end"),
    ("run study=quickstart space.chip.cores=[]", "space.chip.cores: has no value to choose from"),
    ("run study=quickstart +space.chip.foo=choice(1,2)", "no field 'chip.foo'"),
    (
        "run study=quickstart chip=npu64",
        "has 2 of the 6 knobs of this space, such as chip.cores; choose a chip or a study that fits",
    ),
    ("run study=quickstart chip=wse2", "has none of the 6 knobs of this space, such as chip.cores"),
    ("run study=quickstart report.lines=4", "report.lines"),
    ("run study=quickstart report.bars=[{x:chip.foo}]", "report.bars: no field 'chip.foo'"),
    ("run study=quickstart report.bars=[{x:chip.cores,of:opertor}]", "did you mean 'operator'"),
    ("run study=quickstart objectives=3", "objectives: 3"),
    ("run study=quickstart name=[3]", "name: [3]"),
    ("run study=quickstart name=../x", "name: '../x'"),
    ("run study=quickstart name=-x", "name: '-x' cannot name a folder"),
    ("run study=quickstart \"name='a\nb'\"", "name: 'a\\nb' cannot name a folder"),
    ("run study=quickstart \"name='\x1b[2J'\"", "name: '\\x1b[2J' cannot name a folder"),
    ("run study=quickstart search.warm_start='postgresql://me:open@host/db'", "'postgresql://me:***@host/db' is not a list"),
    ("validate none.csv", "no file none.csv"),
    ("show nostudy", "no study 'nostudy'"),
    ("export quickstart --to foo", "no format 'foo'"),
    ("export quickstart", "run it first"),
    ("report quickstart", "run it first"),
    ("report quickstart --follow", "run it first"),
    ("report", "expected the names of one or more studies"),
    ("report quickstart --out", "takes a file"),
    ("report quickstart --folow", "no flag '--folow'"),
    ("list --foo", "no flag '--foo'"),
    ("evaluate --jsn", "evaluate: no flag '--jsn'; did you mean '--json'?"),
    ("evaluate chip=wse2 --config-dri mine workload=gemv", "did you mean '--config-dir'"),
    ("run --cgf job study=quickstart", "did you mean '--cfg'"),
    ("run study=quickstart --json", "run: no flag '--json'"),
    ("export quickstart --too csv", "did you mean '--to'"),
    ("evaluate --trace", "evaluate --trace: takes a file, as in --trace step.json"),
    ("explain quickstart --design=", "explain --design: takes ID, as in --design 1f3a09c27b"),
    ("evaluate --cfg", "evaluate --cfg: takes WHAT, as in --cfg job"),
    ("list here", "list: no kind 'here'; valid: "),
    ("list chips h100 h200", "list: expected a kind and a word, got chips h100 h200"),
    ("show a b", "expected the name of a study"),
    ("--vesion", "did you mean '--version'"),
    ("help evalute", "did you mean 'evaluate'"),
]


@pytest.mark.sampled
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


def test_a_word_that_removes_a_setting_is_no_name_of_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = typed(monkeypatch, capsys, "run", "quickstart", "~objectives.tpot", "search.gap=abc")
    assert code == 2
    assert err.startswith("dse: search.gap: ")


def test_an_objective_that_the_workload_does_not_have_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = typed(monkeypatch, capsys, "run", "study=waferllm_gemm", "+objectives.tpot=min")
    assert code == 2
    assert "objectives.tpot: this kind of chip or workload has no tpot; it has latency" in err.splitlines()[-1]


def without_time(screen: str) -> str:
    """The end of a run without when it was and how long it took."""
    return " ".join(re.sub(r"^state .*?;", "", screen, flags=re.M | re.S).split())


def test_a_study_runs_resumes_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = typed(monkeypatch, capsys, "run", *QUICK)
    assert code == 0
    assert "front" in out
    page = (tmp_path / "runs/quickstart/report.html").read_text()
    assert "throughput per system mm" in page
    code, again, err = typed(monkeypatch, capsys, "run", *QUICK)
    assert "going on from 48 proposed designs" in err
    assert err.splitlines()[-3].strip() == "report: being written"
    assert without_time(again) == without_time(out)
    code, out, err = typed(monkeypatch, capsys, "list")
    assert "done, 48 searched" in " ".join(out.split())
    code, out, err = typed(monkeypatch, capsys, "show", "quickstart")
    assert "with ttft <= 4 s" in out
    code, out, err = typed(monkeypatch, capsys, "report", "quickstart")
    assert code == 0
    assert err.splitlines()[-1].strip().startswith("report ")


def test_a_study_without_results_has_an_empty_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert dse.load("quickstart").front().empty


@pytest.mark.slow
def test_a_study_is_searched_in_several_ways_and_shows_what_all_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first = ("run", *QUICK, "screen.run=false", "search=local")
    typed(monkeypatch, capsys, *first)
    alone = set(dse.load("quickstart").frame()["search_order"])
    for other in ("search=tpe", "search.window=8", "seed=0", "search.warm_start=[quickstart]"):
        code, _, err = typed(monkeypatch, capsys, *first, "search.budget=16", other)
        assert code == 0, err
    assert "their results are used" in err
    both = dse.load("quickstart").frame()
    code, _, err = typed(monkeypatch, capsys, *first)
    assert "going on from 48 proposed designs" in err
    assert alone < set(both["search_order"])
    assert len(both) == len(dse.load("quickstart").frame())


def test_a_study_of_another_space_is_refused_by_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    typed(monkeypatch, capsys, "run", *QUICK)
    code, _, err = typed(monkeypatch, capsys, "run", *QUICK, "chip.hbm.capacity=32 GB")
    assert code == 2
    assert "chip.hbm.capacity=64 GB, now 32 GB" in err
    assert "name=NEW" in err


def test_a_study_of_a_downloaded_model_notices_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parent / "hf/qwen3_8b.json").read_text()
    (tmp_path / "mine.json").write_text(text)
    mine = (*QUICK, "model.from_hf=mine.json")
    assert typed(monkeypatch, capsys, "run", *mine)[0] == 0
    code, _, err = typed(monkeypatch, capsys, "run", *mine)
    assert code == 0
    assert "going on from 48 proposed designs" in err
    (tmp_path / "mine.json").write_text(text.replace("12288", "12289"))
    code, _, err = typed(monkeypatch, capsys, "run", *mine)
    assert code == 2
    assert "model.mine.ffn_intermediate=12288, now 12289" in err


def test_evaluate_says_what_model_it_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "[red]mine").mkdir()
    (tmp_path / "[red]mine/config.json").write_text((Path(__file__).parent / "hf/deepseek_v3.json").read_text())
    _, out, _ = typed(monkeypatch, capsys, "evaluate", "--full", "model.from_hf=./[red]mine", "mapping.precision.kv=bf16")
    shown = " ".join(out.split())
    assert "[red]mine: 671 billion parameters, 37.55 billion of them active, 70.27 kB of KV cache a token in bf16" in shown
    assert "published in fp8_128x128 (mapping.precision.weights=fp8_128x128); parameters without its 1 multi-token" in " ".join(
        shown.split()
    )


def test_evaluate_prints_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    _, out, _ = typed(monkeypatch, capsys, "evaluate", "--json", "mapping.prefill.tp=4")
    answer = json.loads(out)
    total = sum(row["seconds"] for row in answer["operators"])
    assert answer["metrics"]["latency"]["value"] == pytest.approx(total)
    assert not list(tmp_path.iterdir())


def strict(text: str) -> Any:
    """Reads JSON as its standard has it: without NaN and Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


DESIGNS = ["chip=npu_dse", "chip=wse2 workload.batch=[1]", "chip=wse2 workload=gemm", "chip=a100 workload=gemv mapping=sglang"]


@pytest.mark.parametrize("line", DESIGNS)
def test_evaluate_json_is_json_and_has_the_metrics_of_its_chip(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _, out, _ = typed(monkeypatch, capsys, "evaluate", "--json", *line.split(), "--trace", "step.json")
    metrics = dse.evaluate(*line.split()).metrics
    assert strict(out)["metrics"].keys() == metrics.keys()
    assert strict(Path("step.json").read_text())["traceEvents"]


@pytest.mark.parametrize("what", ["sram_used", "peak(sram_used)"])
def test_validate_names_the_row_whose_chip_lacks_the_metric(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text(f"{','.join(COLUMNS)}\na,b,chip=npu_dse space=l2,,{what},1,B,report,\n")
    code, out, err = typed(monkeypatch, capsys, "validate", "--json", "mine.csv")
    assert (code, out) == (2, "")
    assert err == "dse: mine.csv, row 2 (a): metric: this kind of chip or workload has no sram_used\n"


def test_validate_prints_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    rows = ["a,b,workload.batch=[1],,tpot,1,ms,report,", "c,d,model=llama3_405b chip.hbm.capacity='1 GB',,tpot,1,ms,report,"]
    Path("mine.csv").write_text("\n".join([",".join(COLUMNS), *rows, ""]))
    code, out, _ = typed(monkeypatch, capsys, "validate", "--json", "mine.csv")
    assert code == 0
    assert [row["fits"] for row in strict(out)["files"]["mine.csv"]] == [True, False]


def test_a_trace_covers_the_first_step_of_each_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    typed(monkeypatch, capsys, "evaluate", "--trace", "step.json", "mapping.prefill.tp=4")
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {"prefill", "decode", "compute", "communication", "prefetch", "all chips", "phases"}
    for pid in (0, 1):
        for tid in (0, 1, 2):
            bars = sorted((e["ts"], e["dur"]) for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (pid, tid))
            assert all(a + d <= b * (1 + 1e-9) for (a, d), (b, _) in pairwise(bars))


WRONG_CHIPS = {
    "circle": ("cores: ${chip.l2.banks}\nl2: {banks: '${chip.cores}'}", "from chip.l2.banks from chip.cores); set one of them"),
    "itself": ("cores: ${chip.cores}", "chip.cores: takes its value from itself"),
    "nowhere": (
        "cores: ${chip.l2.sizes}",
        "chip.cores: takes the value of chip.l2.sizes, which is not there; did you mean 'size'?",
    ),
    "elsewhere": (
        "hbm: {capacity: '${chip.l3.size}'}",
        "chip.hbm.capacity: takes the value of chip.l3.size, which is not there",
    ),
    "list": ("cores: [1, 2]", "chip/mine: a list in the place of a constant or of a group of fields"),
    "twice": ("cores: 4\ncores: 5", "mine.yaml, line 3: cores is set twice; remove one of them"),
}


@pytest.mark.parametrize("wrong", WRONG_CHIPS)
def test_a_chip_whose_fields_are_tied_wrong_is_refused_by_address(wrong: str, tmp_path: Path) -> None:
    text, says = WRONG_CHIPS[wrong]
    (tmp_path / "chip").mkdir()
    (tmp_path / "chip/mine.yaml").write_text(f"defaults: [npu_dse, _self_]\n{text}\n")
    with pytest.raises(DesignError, match=re.escape(says)):
        compose([f"--config-dir={tmp_path}", "chip=mine"])


@pytest.mark.parametrize(
    ("text", "says"),
    [("# nothing yet", "chip: has no parts; start from"), ("cores: 512", "chip: has only cores; start from")],
)
def test_a_chip_without_parts_is_refused(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "chip").mkdir()
    (tmp_path / "chip/mine.yaml").write_text(f"{text}\n")
    code, _, err = typed(monkeypatch, capsys, "evaluate", f"--config-dir={tmp_path}", "chip=mine")
    assert code
    assert f"{says} a shipped file" in err


def test_a_chip_that_starts_from_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "chip").mkdir()
    (tmp_path / "chip/mine.yaml").write_text("defaults: [other, _self_]\ncores: 4\n")
    (tmp_path / "chip/other.yaml").write_text("defaults: [mine, _self_]\ncores: 5\n")
    with pytest.raises(DesignError, match="files include each other"):
        compose([f"--config-dir={tmp_path}", "chip=mine"])


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
    assert "prefetch_share: 1.0" in capsys.readouterr().out


def test_the_shell_completes_studies(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COMP_LINE", "dse run study=quick")
    _, out, _ = typed(monkeypatch, capsys, "-sc", "query=bash")
    assert out.split() == ["study=quickstart"]


@pytest.mark.slow
def test_ctrl_c_stores_what_is_finished(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dse.main", "run", "study=quickstart", "screen.limit=256", "search.budget=100000"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    store = tmp_path / "runs/quickstart/results.sqlite"
    for _ in range(1200):  # seconds where the machine is free
        if store.exists() and store.with_name("results.sqlite-wal").exists() and asked(tmp_path) > 64:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "the same command goes on from here" in err
    assert asked(tmp_path) > 64


def test_one_design_is_not_said_to_be_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("screen.limit=1", "search=qmc", "search.budget=1", "workers=serial")
    code, _, err = typed(monkeypatch, capsys, "run", "study=quickstart", *words)
    assert not code
    assert "screen: 1 design, " in err
    assert "search: 1 design proposed, 1 different" in err


def asked(folder: Path) -> int:
    import sqlite3

    try:
        with sqlite3.connect(folder / "runs/quickstart/results.sqlite") as connection:
            return int(connection.execute("SELECT count(*) FROM asks").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


@pytest.mark.parametrize("line", ["run study=quick", "run stud", "show quick", "evaluate --js", "expo"])
def test_the_shell_completes_what_the_parser_knows(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMP_LINE", f"dse {line}")
    monkeypatch.delenv("COLUMNS", raising=False)
    code, out, _ = typed(monkeypatch, capsys, "-sc", "query=bash")
    assert not code
    assert all(word.startswith(line.split()[-1]) for word in out.split())
    assert out.split()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_its_flags_and_three_examples(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = typed(monkeypatch, capsys, name, "--help")
    assert not code
    examples = out.partition("examples:")[2].replace(" \\\n", " ").strip().splitlines()
    assert len(examples) == 3
    assert all(f"dse {name}" in line for line in examples)
    assert all(flag.does.split()[0] in out and flag.names[-1] in out for flag in COMMANDS[name].flags)
    assert all(flag.default for flag in COMMANDS[name].flags if flag.value)
    assert max(map(len, out.splitlines())) <= 80


def test_the_overview_has_each_command_once_in_its_group(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = typed(monkeypatch, capsys, "--help")
    assert max(map(len, out.splitlines())) <= 80
    assert [line.split(":")[0] for line in out.splitlines() if line.partition(":")[0] in ("ask", "search", "trust", "out")] == [
        *("ask", "search", "trust", "out")
    ]
    assert all(out.count(f"\n  dse {name} ") == 1 for name in COMMANDS)


@pytest.mark.parametrize("words", [["--help"], ["evaluate", "--help"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    heavy = ("numpy", "hydra", "optuna", "pandas", "plotly", "ray", "sqlalchemy", "rich")
    code = (
        f"import sys; sys.argv = {['dse', *words]!r}\n"
        "import dse.main\n"
        "try:\n    dse.main.main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ).stdout
    assert out.strip().splitlines()[-1] == "[]"


def test_a_notebook_gets_the_breakdown_of_the_reader_that_it_asked_for() -> None:
    evaluation = dse.evaluate(
        "chip=hbm3", "workload=stream", "workload.requests=50", "workload.patterns=[random]", "fidelity=events"
    )
    assert evaluation.breakdown.seconds == pytest.approx(evaluation.metrics["latency"])


def test_a_field_of_both_phases_is_set_in_one_word(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As verdicts advise, and as knobs are named."""
    overrides = ("chip=npu64", "model=qwen3_4b", "workload.batch=[4]", "mapping.both.pp=8")
    once = dse.evaluate(*overrides, "mapping.both.tp=8", "mapping.both.partition=mn")
    each = [f"mapping.{phase}.{field}" for phase in ("prefill", "decode") for field in ("tp=8", "partition=mn")]
    assert once.metrics == dse.evaluate(*overrides, *each).metrics
    assert once.design.mapping.decode.tp == 8  # type: ignore[union-attr]
    _, _, err = typed(monkeypatch, capsys, "evaluate", *overrides, "mapping.both.pt=8")
    assert "mapping.prefill.pt" in err


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_flag_stands_once_in_a_command(name: str) -> None:
    """argparse ends with a trace where a command has a flag twice."""
    names = [word for flag in known_flags(name) for word in flag.names]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("place", ["taken", "taken/below"])
def test_a_file_in_the_place_of_a_folder_is_refused_before_any_work(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").touch()
    monkeypatch.setattr(sys, "argv", ["dse", "evaluate", "chip=h100", "--to", "vllm", "--out", place])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    assert "taken is a file; name a folder" in err
