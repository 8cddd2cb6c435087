"""What others wrote runs no code: files of studies and chips, stored runs, rows of published figures.

Every attack would write the canary if it ran (the one that is trusted does), or would show the secret.
"""

import json
import string
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dse
from dse.accuracy.validate import COLUMNS
from dse.config.compose import compose
from dse.config.untrusted_files import SHIPPED_CONF, SHIPPED_STUDIES, check_stored_overrides, read_untrusted_yaml
from dse.space.errors import DesignError
from dse.store.store import Store

OPENS = "{_target_: builtins.open, file: canary, mode: w}"
LOGS = "{version: 1, formatters: {x: {'()': builtins.open, file: canary, mode: w}}}"
LINE = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
ALIASES = LINE + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9))
LINKS = "a0: {x: 1, y: 1}\n" + "".join(f"a{i}: {{x: '${{a{i - 1}}}', y: '${{a{i - 1}}}'}}\n" for i in range(1, 40))

FILES = {
    "callback": (f"hydra: {{callbacks: {{x: {OPENS}}}}}\n", "hydra"),
    "quoted": (f'"\\x68ydra": {{callbacks: {{x: {OPENS}}}}}\n', "hydra"),
    "alias as a key": (f"a: &a hydra\n*a : {{callbacks: {{x: {OPENS}}}}}\n", "hydra"),
    "logging": (f"hydra: {{job_logging: {LOGS}}}\n", "hydra"),
    "search path": ("hydra: {searchpath: [file://elsewhere]}\n", "hydra"),
    "global chip": (f"# @package _global_\nhydra: {{callbacks: {{x: {OPENS}}}}}\n", "hydra"),
    "package": ("# @package hydra.job_logging\nformatters: {x: {'()': builtins.open, file: canary}}\n", "@package hydra"),
    "cut package": ("\n" * 496 + "# @package hydrant\nverbose: true\n", "@package hydra"),
    "target": (f"cores: {OPENS}\n", "_target_"),
    "merged target": ("a: &a {_target_: builtins.open, file: canary, mode: w}\ncores: {<<: *a}\n", "_target_"),
    "launcher": ("defaults:\n  - override /hydra/launcher: joblib\n", "hydra/launcher"),
    "logger": ("defaults: [/hydra/job_logging@hydra.hydra_logging: default]\n", "hydra"),
    "package of an entry": ("defaults: ['/chip@hydra.callbacks.x: npu_dse']\n", "hydra.callbacks"),
    "file outside": ("defaults: [/../../../../../../etc/passwd]\n", "defaults"),
    "file of the root": ("defaults: ['//etc/passwd']\n", "defaults"),
    "choice outside": ("defaults: [{/technology: ../../../x}]\n", "defaults"),
    "chosen by a field": ("defaults: [{/technology: '${name}'}]\n", "defaults"),
    "environment": ("cores: ${oc.env:SECRET}\n", "cores"),
    "environment in a text": ("question: 'is it ${oc.env:SECRET}?'\n", "question"),
    "environment in a list": ("workload: {batch: ['${oc.decode:${oc.env:SECRET}}']}\n", "workload.batch"),
    "environment as a key": ("'${oc.env:SECRET}': 1\n", "oc.env"),
    "half an interpolation": ("question: '${oc.${x}:SECRET}'\n", "question"),
    "two in a text": ("question: '${seed}${seed}'\n", "question"),
    "aliases": (ALIASES, "values"),
    "an alias of itself": ("a: &a {b: *a}\n", "values"),
    "depth": (f"a: {'[' * 500}\n", "YAML"),
    "size": (f"a: {'x' * 300_000}\n", "KiB"),
    "Python": ("a: !!python/object/apply:builtins.open [canary, w]\n", "python"),
    "a group as a key": ("? {a: 1}\n: 2\n", "key"),
}


def check(answer: tuple[int, str, str], words: str) -> None:
    """A refusal in one line that names what it refuses; nothing ran, and nothing leaked."""
    code, out, err = answer
    assert code == 2
    assert not Path("canary").exists()
    assert "tell nobody" not in out + err
    assert len(err.splitlines()) == 1
    assert words in err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET", "tell nobody")
    return tmp_path


def study(folder: Path, text: str, name: str = "evil") -> Path:
    path = folder / "studies" / name / "study.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("attack", FILES)
def test_a_strangers_study_is_refused_by_file_and_key(attack: str, folder: Path, typed: Any) -> None:
    text, words = FILES[attack]
    path = study(folder, text)
    answer = typed("run", "study=evil")
    check(answer, words)
    assert str(path) in answer[2] or attack == "Python"
    assert not (folder / "runs").exists()


@pytest.mark.parametrize("attack", FILES)
def test_a_strangers_chip_is_refused_by_file_and_key(attack: str, folder: Path, typed: Any) -> None:
    text, words = FILES[attack]
    path = folder / "own/chip/mine.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text if "defaults" in text or "@package" in text else f"defaults: [npu_dse, _self_]\n{text}")
    answer = typed("evaluate", "--full", "--config-dir", "own", "chip=mine")
    check(answer, words)
    assert str(path) in answer[2] or attack == "Python"


def test_interpolations_that_multiply_are_refused(folder: Path, typed: Any) -> None:
    study(folder, LINKS)
    check(typed("run", "study=evil"), "values")


def test_a_cluster_is_typed(folder: Path, typed: Any) -> None:
    """What it answers with would run here."""
    study(folder, "ray: {address: 'ray://x:1'}\n")
    check(typed("run", "study=evil"), "ray.address")
    assert compose(["study=evil", "ray.address=y:1"])["ray"]["address"] == "y:1"


def test_a_neighbour_that_is_not_asked_for_is_no_hindrance(folder: Path) -> None:
    study(folder, FILES["callback"][0])
    study(folder, "defaults: [{override /chip: ascend910b}]\n", "good")
    assert compose(["study=good"])["choices"]["chip"] == "ascend910b"


@pytest.mark.parametrize("line", ["evaluate --trust study=evil", "show evil --trust"])
def test_what_is_trusted_runs(line: str, folder: Path, typed: Any) -> None:
    """So that the canary is one."""
    study(folder, FILES["callback"][0])
    typed(*line.split())
    assert Path("canary").exists()


def test_a_notebook_is_refused_as_well(folder: Path) -> None:
    study(folder, FILES["callback"][0])
    with pytest.raises(DesignError, match="hydra"):
        dse.evaluate("study=evil")
    with pytest.raises(DesignError, match="hydra"):
        dse.load("evil")
    assert not Path("canary").exists()


def test_a_search_path_on_the_command_line_is_checked(folder: Path, typed: Any) -> None:
    path = folder / "own/chip/mine.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(f"# @package _global_\n{FILES['callback'][0]}")
    for flag in ("-cd=own", "--config-d=own", "hydra.searchpath=[own]", "+hydra.searchpath=[file://own]"):
        check(typed("evaluate", "--full", flag, "chip=mine"), "hydra")
    check(typed("evaluate", "--full", f"chip=../../../../../../../..{folder}/own/chip/mine"), "outside of its group")
    for flag in ("--config-path", "-cp", "--config-name", "-cn"):
        check(typed("evaluate", "--full", flag, "own"), "--config-dir")


def test_files_of_ours_pass() -> None:
    for path in [*SHIPPED_CONF.glob("*/*.yaml"), *SHIPPED_STUDIES.glob("*/study.yaml")]:
        assert read_untrusted_yaml(path, trust=False)


WORDS = [
    "--config-dir=own",
    "-cd",
    "--multirun",
    "+hydra.callbacks.x._target_=builtins.open",
    "hydra.job_logging.version=2",
    "++hydra.run.dir=x",
    "~hydra.run",
    "hydra/launcher=joblib",
    "+hydra/callbacks=x",
    "+chip@hydra.callbacks.x=npu_dse",
    "+chip@_global_.hydra=npu_dse",
    "chip@chip:hydra=a100",
    "hydra=x",
    "+chip._target_=builtins.open",
    "+chip={_target_: builtins.open, file: canary}",
    "+chip.x=[{'_target_': builtins.open}]",
    "question=${oc.env:SECRET}",
    "question='${oc.env:SECRET}'",
    "question=$\\{oc.env:SECRET}",
    'question="a ${oc.env:SECRET}"',
    "+${oc.env:SECRET}=1",
    "chip=../../x",
    "chip='../../x'",
    "model=[llama3_8b,../../x]",
    "chip=/etc/passwd",
    "+../../x@_global_=study",
]


@pytest.mark.parametrize("word", WORDS)
def test_a_stored_override_is_data(word: str) -> None:
    with pytest.raises(DesignError, match=r"^runs/x, override .*--trust$"):
        check_stored_overrides(["study=quickstart", word], "runs/x")


@pytest.mark.parametrize("command", ["show", "report", "export", "report --follow"])
def test_opening_a_strangers_run_runs_nothing(command: str, folder: Path, typed: Any) -> None:
    attack = ["--config-dir=.", "+hydra.callbacks.x._target_=builtins.open"]
    attack += ["+hydra.callbacks.x.file=canary", "+hydra.callbacks.x.mode=w"]
    for words in (attack, attack[1:]):
        place = folder / "runs/quickstart/results.sqlite"
        with closing(Store(str(place))) as store:
            run = store.begin("quickstart", {}, {"overrides": ["study=quickstart", *words]})
            store.end(run, "done", {})
        check(typed(*command.split(), "quickstart"), f"{place}, override {words[0].partition('=')[0].lstrip('+')}")


def test_rows_of_published_figures_are_data(folder: Path, typed: Any) -> None:
    row = "a,b,--config-dir=. +hydra.callbacks.x._target_=builtins.open,,tpot,1,s,report,"
    Path("theirs.csv").write_text(f"{','.join(COLUMNS)}\n{row}\n")
    check(typed("validate", "theirs.csv"), "override --config-dir")


ESCAPE = "\x1b]0;title\x07\x1b[31m[link=http://x]\u202e"


@pytest.mark.parametrize("command", ["show", "list", "report"])
def test_a_store_sends_nothing_to_the_terminal(command: str, folder: Path, typed: Any) -> None:
    study(folder, f"question: {json.dumps(ESCAPE)}\nobjectives: {{tpot: min}}\n", "quickstart")
    for name in ("quickstart", "other"):
        with closing(Store(str(folder / f"runs/{name}/results.sqlite"))) as store:
            facts = {
                "overrides": ["study=quickstart"],
                "user": ESCAPE,
                "command": f"{ESCAPE} x://me:sesame@host",
                "results": ESCAPE,
            }
            store.end(store.begin(name, {}, facts), f"done{ESCAPE}", {"version": ESCAPE})
    _, out, err = typed(command, *(["quickstart"] if command != "list" else []))
    assert "[link=http://x]" in out + err or command == "report"
    assert not [letter for letter in out + err if not letter.isprintable() and letter != "\n"]
    assert "sesame" not in out + err


def test_no_password_of_a_warm_start_is_stored(folder: Path) -> None:
    from dse.execution.provenance import run_provenance
    from tests.dse.toy import toy

    url = "postgresql://me:open@host/db"
    study = toy(folder, f"search.warm_start=['{url}']", "ray.address='ray://me:open@host:1'")
    assert study.search.warm_start == (url,)
    assert "open@" not in json.dumps([run_provenance(study), study.identity()])


NAMES = st.sampled_from(["hydra", "_target_", "chip", "run", "x", "_global_", "", "hydra_", "Hydra"])
KEYS = st.lists(st.tuples(NAMES, st.sampled_from([".", "/", "@", ":", ""])), min_size=1, max_size=4)
VALUES = st.lists(st.sampled_from([*"}\\'\"[]{:, /x", "${", "oc.env:SECRET", "_target_", "..", "seed"]), max_size=6)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    sign=st.sampled_from(["", "+", "++", "~", "-", "--"]),
    key=KEYS,
    value=st.one_of(VALUES.map("".join), st.text(string.printable, max_size=9)),
)
def test_no_stored_override_gets_at_hydra_or_the_environment(
    sign: str, key: list[tuple[str, str]], value: str, monkeypatch_session: pytest.MonkeyPatch
) -> None:
    """Whatever passes, Hydra reads as a value of a field that is none of its own, and nothing of the environment."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import GrammarParseError, InterpolationKeyError, InterpolationResolutionError

    word = sign + "".join(name + sep for name, sep in key) + f"={value}"
    try:
        (word,) = check_stored_overrides([word], "x")
        read = OverridesParser.create().parse_override(word)
        config = OmegaConf.create({"seed": 0, "x": read.value()})
        container = OmegaConf.to_container(config, resolve=True)
    except (DesignError, HydraException, InterpolationKeyError, InterpolationResolutionError, GrammarParseError):
        return
    assert not read.is_hydra_override()
    assert "hydra" not in f"{read.key_or_group}@{read.package}".replace("hydra_", "").split(".")
    assert "tell nobody" not in str(container)
    assert "_target_" not in json.dumps(container, default=str)


@pytest.fixture(scope="module")
def monkeypatch_session() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET", "tell nobody")
        yield patch


@pytest.mark.parametrize(
    ("line", "address", "reason"),
    [
        ("run_dir: /tmp/anywhere", "run_dir", "outside"),
        ("run_dir: runs/../../x", "run_dir", "outside"),
        ("store: /tmp/results.sqlite", "store", "outside"),
        ("store: sqlite:////tmp/results.sqlite", "store", "outside"),
        ("store: postgresql://me:secret@host/results", "store", "server"),
        ("screen: {folder: 's3://bucket/folder'}", "screen.folder", "server"),
        ("screen: {folder: ../elsewhere}", "screen.folder", "outside"),
    ],
)
def test_a_file_names_no_place_outside_of_the_folder(
    line: str, address: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever types the same place, or trusts the file, has it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies" / "evil").mkdir(parents=True)
    (tmp_path / "studies" / "evil" / "study.yaml").write_text(f"question: ''\n{line}\n")
    with pytest.raises(DesignError, match=f"^{address}: .*{reason}.*--trust") as refused:
        compose(["study=evil"])
    assert "secret" not in str(refused.value)
    value = "here" if reason == "outside" else "postgresql://me@host/results"
    assert compose(["study=evil", f"{address}={value}"])["name"] == "evil"
    assert compose(["study=evil"], trust=True)["name"] == "evil"


@pytest.mark.parametrize("line", ["run_dir: there/x", "store: results.sqlite", "store: sqlite:///results.sqlite"])
def test_a_file_names_places_within_the_folder(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies" / "mine").mkdir(parents=True)
    (tmp_path / "studies" / "mine" / "study.yaml").write_text(f"question: ''\n{line}\n")
    assert compose(["study=mine"])["name"] == "mine"
