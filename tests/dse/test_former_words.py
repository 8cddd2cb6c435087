"""Former names of metrics, words of fidelities and options of `dse capacity` work at every door, and are shown nowhere."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dse
from dse.accuracy.validate import COLUMNS, compare_file, present_metrics
from dse.analysis.capacity import parse_query
from dse.commands.notebook_api import find_study
from dse.commands.run_study import run_study
from dse.config.compose import compose
from dse.config.metric_expressions import parse_metric_expressions
from dse.config.renamed_words import FORMER_CHOICES, FORMER_OPTIONS, rename_query_words
from dse.evaluators import METRICS, evaluate, explain
from dse.evaluators.accounting.metrics import SHIPPED, Metric, _by_present_names, find_metric
from dse.evaluators.evaluation import FIDELITIES
from dse.execution import screen
from dse.execution.result_frame import MetricFrame
from dse.execution.study import build_study
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.former_words import (
    FIDELITY_SETTINGS,
    FORMER_FIDELITIES,
    FORMER_METRICS,
    SAID,
    STORED_FIDELITIES,
    STORED_METRICS,
    MetricValues,
    current_fidelity,
    note_renamed,
    rename_stored_metrics,
    stored_fidelity,
    stored_metric,
)
from dse.store.block_files import read_block, write_block
from dse.store.storage_folders import StorageFolder
from dse.store.store import ResultContext, Store
from tests.samples import asked

SMALL = ("chip=npu_dse", "model=qwen3_1b7", "workload.batch=[4]", "workload.prompt=64", "workload.output=8")
STUDY = (
    *SMALL,
    "+objectives.throughput=max",
    "search=nsga2",
    "search.budget=4",
    "search.window=2",
    "search.population=2",
    "verify=none",
    "workers=serial",
)

each_metric = pytest.mark.parametrize(("former", "present"), FORMER_METRICS.items())
each_fidelity = pytest.mark.parametrize(("former", "present"), FORMER_FIDELITIES.items())


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(SAID, raising=False)
    monkeypatch.chdir(tmp_path)


def test_every_new_word_is_there_and_no_former_one_is() -> None:
    assert set(FORMER_METRICS.values()) <= SHIPPED.keys()
    assert not FORMER_METRICS.keys() & SHIPPED.keys()
    assert set(FORMER_FIDELITIES.values()) <= set(FIDELITIES)
    assert not FORMER_FIDELITIES.keys() & set(FIDELITIES)
    assert len(STORED_METRICS) == len(FORMER_METRICS)
    assert len(STORED_FIDELITIES) == len(FORMER_FIDELITIES)


@each_metric
def test_a_metric_by_its_former_name_is_that_metric(former: str, present: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert find_metric(former) is METRICS[present]
    assert capsys.readouterr().err == f"{former} is now {present}\n"
    assert stored_metric(present) == former


def test_objectives_constraints_and_pictures_by_former_names_are_those_by_present_ones() -> None:
    def composed(names: list[str]) -> dict[str, Any]:
        words = [f"+objectives.{name}={METRICS[find_present(name)].better}" for name in names]
        words += [f"+constraints.{name}='>= 1 {METRICS[find_present(name)].unit}'" for name in names]
        words += ["report.lines=[" + ",".join(f"{{x: mapping.both.tp, y: {name}}}" for name in names) + "]"]
        config = compose(["name=x", "+space.mapping.both.tp='choice(1,2)'", *words])
        return {key: config[key] for key in ("objectives", "constraints", "report")}

    assert composed(list(FORMER_METRICS)) == composed(list(FORMER_METRICS.values()))


def find_present(name: str) -> str:
    """The present name, without a notice."""
    return FORMER_METRICS.get(name, name)


@each_metric
def test_a_study_file_with_a_former_name_is_changed_by_either_name(former: str, present: str) -> None:
    Path("studies/old").mkdir(parents=True)
    bound = f'">= 2 {METRICS[present].unit}"'
    Path("studies/old/study.yaml").write_text(f"objectives: {{{former}: max}}\nconstraints: {{{former}: {bound}}}\n")
    for name in (former, present):
        config = compose(["study=old", f"objectives.{name}=min", f"constraints.{name}='>= 1 {METRICS[present].unit}'"])
        assert config["objectives"] == {present: "min"}
        assert config["constraints"] == {present: f">= 1 {METRICS[present].unit}"}
        both = compose(["study=old", f"++objectives={{{name}: min, ttft: min}}"])["objectives"]
        assert both == {present: "min", "ttft": "min"}
        assert compose(["study=old", f"~objectives.{name}"])["objectives"] == {}


def test_two_names_of_one_metric_are_refused() -> None:
    Path("studies/twice").mkdir(parents=True)
    Path("studies/twice/study.yaml").write_text("objectives: {utilisation: max, mfu: max}\n")
    for words in (
        ["study=twice"],
        ["+objectives.utilisation=max", "+objectives.mfu=max"],
        ["+constraints.utilisation='>= 0.1'", "+constraints.mfu='>= 0.1'"],
        ["+objectives={utilisation: max, mfu: max}"],
    ):
        with pytest.raises(DesignError, match="utilisation and mfu are two names of one metric; set one of them"):
            compose(words)


@pytest.mark.parametrize("setting", FIDELITY_SETTINGS)
@each_fidelity
def test_a_fidelity_by_its_former_word_is_that_fidelity(setting: str, former: str, present: str) -> None:
    composed = [compose([f"{setting}={word}"]) for word in (former, present)]
    for config in composed:
        config.pop("overrides")
    assert composed[0] == composed[1]
    assert stored_fidelity(present) == former
    assert current_fidelity(f"{former}@8") == f"{present}@8"


@pytest.mark.parametrize("words", [("chip=h100", "workload=serving", "workload.requests=40"), SMALL])
def test_python_answers_to_former_words(words: tuple[str, ...]) -> None:
    of = asked(*words)
    now, before = (evaluate(stack_designs([of.base]), of.workload, fidelity=word) for word in ("analytical", "closed"))
    assert list(now.columns) == list(before.columns)
    for name, column in now.columns.items():
        np.testing.assert_array_equal(column, before.columns[stored_metric(name)])
    case, at = of.workload.cases[0], of.workload.decode_context
    assert explain(of.base, case, decode_context=at, fidelity="closed") == explain(of.base, case, decode_context=at)


def test_an_answer_by_former_words_is_that_by_present_ones() -> None:
    found = dse.evaluate(*SMALL, "fidelity=closed")
    assert found.fidelity == "analytical"
    assert dict(found.metrics) == dict(dse.evaluate(*SMALL, "fidelity=analytical").metrics)
    assert found.metrics["decode_rate"] == found.metrics["tokens_per_s_per_user"]
    assert "decode_rate" in found.metrics
    assert "decode_rate" not in list(found.metrics)


def test_expressions_of_former_names() -> None:
    (now,) = parse_metric_expressions({"metrics": {"mine": "tokens_per_s_per_user / wall_power"}}).values()
    (before,) = parse_metric_expressions({"metrics": {"mine": "decode_rate / plug_power"}}).values()
    assert (before.text, before.inputs, before.unit) == (now.text, now.inputs, now.unit)
    with pytest.raises(DesignError, match="is the former name of peak_flops"):
        parse_metric_expressions({"metrics": {"peak": "ttft / tpot"}})


def test_a_package_may_read_former_names(capsys: pytest.CaptureFixture[str]) -> None:
    made = _by_present_names(Metric("1", "max", "x", needs=("utilisation", "tpot"), worth=lambda of, _: of["utilisation"] * 2))
    assert made.needs == ("mfu", "tpot")
    assert made.worth is not None
    assert made.worth({"mfu": 0.25, "tpot": 1.0}, None) == 0.5  # type: ignore[arg-type]
    assert capsys.readouterr().err == "utilisation is now mfu\n"


def test_tables_answer_to_former_names() -> None:
    frame = MetricFrame({"mfu": [0.5, 0.25], "tpot": [1.0, 2.0]})
    assert frame["utilisation"].tolist() == frame["mfu"].tolist()
    assert frame[frame["tpot"] > 1][["utilisation", "tpot"]].to_numpy().tolist() == [[0.25, 2.0]]
    assert list(frame.columns) == ["mfu", "tpot"]
    values = MetricValues({"mfu": 0.5})
    assert (values.get("utilisation"), values.get("peak"), values.get("peak", 1.0)) == (0.5, None, 1.0)


def test_published_figures_by_former_names(tmp_path: Path) -> None:
    head, words = ",".join(COLUMNS), " ".join(SMALL)
    space = f"{words} +space.mapping.both.tp=choice(1,2)"
    cells = [(words, "{}"), (space, "peak({})"), (words, '"ratio(mapping.precision.kv=fp16, {})"')]
    files = {}
    for name in ("decode_rate", "tokens_per_s_per_user"):
        rows = [f'r{place},here,"{of}",,{cell.format(name)},1,,report,' for place, (of, cell) in enumerate(cells)]
        files[name] = tmp_path / f"{name}.csv"
        files[name].write_text("\n".join([head, *rows]) + "\n")
    before, now = (list(compare_file(path)) for path in files.values())
    assert [replace(row.record(), seconds=0.0) for row in before] == [replace(row.record(), seconds=0.0) for row in now]
    assert [row.simulated for row in now] != [None] * 3
    assert present_metrics("peak(peak)") == "peak(peak_flops)"


# --- what is stored


def test_a_store_of_former_words_is_read_and_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((Path(__file__).parent / "stores" / "schema2.sql").read_text())
        workload, word, physics, text = connection.execute(
            "SELECT workload, fidelity, physics, metrics FROM results"
        ).fetchone()
    assert word == "closed"
    assert "decode_rate" in json.loads(text)
    with closing(Store(str(path))) as store:
        results = store.results(ResultContext(workload, "analytical", physics))
        assert len(results) == store.result_count(ResultContext(workload, "analytical", physics)) > 10
        names = {name for result in results.values() for name in result.metrics}
        assert "tokens_per_s_per_user" in names
        assert not names & FORMER_METRICS.keys()
        identity = store.identity("toy")
        assert identity is not None
        assert identity["fidelity"] == "analytical"
        assert store.search("toy", identity) == "toy"
        assert store.search("toy", identity | {"search.promote": "analytical"}) == "toy:promote=closed"
        store.begin("toy", {}, {})
        store.append("toy", ResultContext(workload, "steady_state", physics), ("b", "{}"), [], list(results.values()))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT DISTINCT fidelity FROM results").fetchall() == [("closed",), ("steady",)]


def test_blocks_of_a_screen_have_present_names(tmp_path: Path) -> None:
    place = StorageFolder(str(tmp_path / "screen"))
    table = pa.table({"mapping.tp": [1, 2], **{name: [0.5, 1.0] for name in FORMER_METRICS}, "limit": [None, None]})
    table = table.replace_schema_metadata({"feasible": "2"})
    written = write_block(table, place, 0)
    read = read_block(place.list_files(), 0)
    assert read is not None
    assert read.table.column_names == ["mapping.tp", *FORMER_METRICS.values(), "limit"]
    assert read.table.schema.metadata == {b"feasible": b"2"}
    assert written.file.read_table(["mfu", "mapping.tp"]).column_names == ["mapping.tp", "mfu"]
    assert rename_stored_metrics({"tpot": 1.0, "peak": 2.0}) == {"tpot": 1.0, "peak_flops": 2.0}


def test_the_key_of_a_screen_is_made_of_former_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys: list[list[tuple[str, Any]]] = []
    real = screen.key_of_leaves
    monkeypatch.setattr(screen, "key_of_leaves", lambda rows: keys.append(list(rows)) or real(keys[-1]))
    common = (
        "chip=h100", "model=llama3_8b", "workload=serving", "screen.keep=front", "verify=none",
        "+space.mapping.serving.batch='choice(8,16)'", f"run_dir={tmp_path}", "name=keyed",
    )  # fmt: skip
    now = (
        "fidelity=steady_state", "+objectives.per_watt=max", "+objectives.mfu=max", "+constraints.wall_power='<= 2 kW'",
        "+metrics.per_watt='throughput / wall_power'",
    )  # fmt: skip
    before = (
        "fidelity=steady", "+objectives.per_watt=max", "+objectives.utilisation=max", "+constraints.plug_power='<= 2 kW'",
        "+metrics.per_watt='throughput / plug_power'",
    )  # fmt: skip
    for words in (now, before):
        screen._screen_plan(build_study(compose([*common, *words]), tmp_path))
    assert keys[0] == keys[1]
    content = dict(keys[0])
    assert content["metrics"] == "per_watt, plug_power, utilisation"
    assert content["per_watt"] == "throughput / plug_power"
    assert content["fidelity"] == "steady"
    assert content["front"] == "per_watt max, utilisation max, plug_power <= 2 kW"


@pytest.mark.parametrize(("screened", "said"), [(True, "2 of them stored before"), (False, "going on from")])
def test_a_study_by_former_words_goes_on_by_present_ones(
    screened: bool, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("studies/renamed").mkdir(parents=True)
    Path("studies/renamed/study.yaml").write_text("space: {mapping.both.tp: 'choice(1, 2)'}\n")
    objectives = (("+objectives.decode_rate=max", "fidelity=closed"), ("+objectives.tokens_per_s_per_user=max",))
    for words in objectives:
        run_study(find_study("renamed", *STUDY, *words, f"run_dir={tmp_path}/run", f"screen.run={str(screened).lower()}"))
    text = capsys.readouterr().err
    assert text.count(said) == 1, text


# --- options of dse capacity


@pytest.mark.parametrize(
    ("former", "present"),
    [(f"{old}={value}", f"{new}={value}") for (old, new), value in zip(FORMER_OPTIONS.items(), ("false", "95"), strict=True)]
    + [(f"{option}={old}", f"{option}={new}") for option, words in FORMER_CHOICES.items() for old, new in words.items()],
)
def test_an_option_of_a_capacity_by_its_former_word(former: str, present: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["chip=h200", "devices=2", "model=llama3_8b"]
    assert parse_query([*words, former]) == parse_query([*words, present])
    old, new = former.partition("=")[0], present.partition("=")[0]
    assert capsys.readouterr().err == (f"{former} is now {present}\n" if old == new else f"{old}= is now {new}=\n")


def test_two_names_of_one_option_of_a_capacity_are_refused() -> None:
    with pytest.raises(DesignError, match="apart and disaggregated are two names of one option; set one of them"):
        rename_query_words(["apart=false", "disaggregated=false"])


# --- what is shown


def test_a_notice_is_printed_once_in_a_process_tree(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        note_renamed("closed", "analytical")
    assert capsys.readouterr().err == "closed is now analytical\n"
    code = "from dse.space.former_words import note_renamed as n; n('closed', 'analytical'); n('peak', 'peak_flops')"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert child.stderr == "peak is now peak_flops\n"


def test_json_has_present_words_alone(typed: Any) -> None:
    status, out, err = typed("evaluate", "--json", *SMALL, "fidelity=closed", "+objectives.utilisation=max")
    assert status == 0
    document = json.loads(out)
    assert document["fidelity"] == "analytical"
    assert not FORMER_METRICS.keys() & document["metrics"].keys()
    assert err.splitlines().count("closed is now analytical") == 1
    assert " is now " not in out


@pytest.mark.parametrize("words", [("list", "--json"), ("list", "metrics"), ("capacity", "--help")])
def test_lists_and_help_have_present_words_alone(words: tuple[str, ...], typed: Any) -> None:
    _, out, _ = typed(*words)
    shown = {*out.replace('"', " ").replace(",", " ").replace(":", " ").split()}
    distinct = FORMER_METRICS.keys() - {
        "peak",
        "bandwidth",
        "accepted",
        "communication",
        "efficiency",
        "transition",
        "utilisation",
    }
    assert not shown & (distinct - {"recomputed", "yielded"})
    assert not shown & {"apart=false", "ffn=apart", "by=dollars", "percentile=90"}


def test_answers_in_python_have_their_former_attributes() -> None:
    evaluation = dse.evaluate(*SMALL)
    assert evaluation.about() == evaluation.facts()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'abuot'"):
        _ = evaluation.abuot  # type: ignore[attr-defined]
