"""What --json prints keeps to the published schemas, and what a version of a schema says stays as it is."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import dse
from dse.accuracy.validate import COLUMNS
from dse.documents import build_schema, document_types
from dse.terminal.json_text import format_json
from tests.calibrate.rows import CHIP, SAMPLE
from tests.dse import fingerprints
from tests.dse.toy import design_ids
from tests.marks import slow_if

Typed = Callable[..., tuple[int, str, str]]

DOCUMENTS = document_types()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checked(name: str, text: str) -> Any:
    """A document that keeps to its schema, read as the standard of JSON has it."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    data = json.loads(text, parse_constant=refuse)
    jsonschema.Draft202012Validator(build_schema(name)).validate(data)
    assert data["schema"] == DOCUMENTS[name].STAMP
    return data


QUESTIONS = [
    "",
    "chip=a100 model=qwen2_7b mapping.prefill.tp=2",
    "chip=a100 model=llama3_405b mapping.both.tp=8",
    "model=[qwen3_1b7,qwen3_8b] workload.batch=[1,8]",
    "chip=wse2 workload.batch=[1]",
    "chip=wse2 workload=gemm",
    "chip=wse2 workload=gemv fidelity=events workload.shapes=[1x1024x1024]",
    "chip=wse2 workload=gemm fidelity=cycles@8",
    "chip=npu64 model=qwen3_1b7 workload.batch=[4]",
    "chip=tile32 workload=attention",
    "chip=h800_ep chip.dies.rows=1 mapping.both.ep=8 model=qwen3_30b_a3b workload.batch=[8] mapping.both.experts.redundant=8",
    "chip=a100 workload=gemv mapping=sglang",
    "chip=h200 workload=serving model=qwen3_1b7 workload.requests=50 mapping.serving.kv_blocks=2588 "
    "workload.slo_classes=[{name:a,share:0.5},{name:b,share:0.5,priority:1}]",
]

INFEASIBLE = ("chip=a100 model=llama3_405b mapping.both.tp=8", "chip=wse2 workload.batch=[1]")


@pytest.mark.sampled
@pytest.mark.parametrize("line", QUESTIONS)
def test_evaluate_keeps_to_its_schema(line: str, typed: Typed) -> None:
    code, out, err = typed("evaluate", "--json", *line.split())
    assert code == (3 if line in INFEASIBLE else 0), err
    document = checked("evaluate", out)
    assert document["feasible"] == (line not in INFEASIBLE)
    assert (document["infeasible"] is None) == document["feasible"]
    assert (document["part"] is not None) == ("@" in line)
    assert all(("rows_skipped" in case) == ("serving" in line) for case in document["cases"])
    assert sum(document["memory_bytes"].values()) == pytest.approx(
        document["metrics"]["hbm_used"]["value"] if "_ep" in line else 0.0
    )
    assert all(case.get("kv_memory", []) == [] for case in document["cases"]) == ("serving.kv_blocks" not in line)
    assert [
        sum(slo_class["requests"] for slo_class in case.get("classes", [])) for case in document["cases"] if "classes" in line
    ] in ([], [50])
    assert bool(document["models"]) == (not any(alone in line for alone in ("workload=gem", "workload=attention")))


def test_the_answers_to_a_shortlist_keep_to_its_schema(folder: Path, typed: Typed) -> None:
    (folder / "list.yaml").write_text("designs: {a: [chip=a100], '#7': [study=quickstart, chip.cores=240]}")
    code, out, err = typed("evaluate", "--json", "--from", "list.yaml")
    assert code == 0, err
    assert list(checked("shortlist", out)["designs"]) == ["a", "#7"]


def test_leaves_that_could_be_tied_keep_to_the_schema(typed: Typed) -> None:
    code, out, err = typed("evaluate", "--json", "study=mesh_llm", "chips=[npu64]", "chip.mesh.rows=4", "chip.mesh.cols=8")
    assert code == 3, err  # so few cores do not hold it
    assert checked("evaluate", out)["not_tied"]


def test_list_keeps_to_its_schema(folder: Path, typed: Typed) -> None:
    (folder / "runs/broken").mkdir(parents=True)
    (folder / "runs/broken/results.sqlite").write_text("no database")
    quick = ("screen.limit=16", "search.budget=4", "verify=none")
    assert typed("run", "study=quickstart", *quick)[0] == 0
    code, out, _ = typed("list", "--json")
    assert code == 0
    studies = {study["name"]: study for study in checked("list", out)["studies"]}
    assert studies["quickstart"]["ran"] == {"state": "done", "searched": 4, "refused": None}
    assert studies["waferllm_gemv"]["ran"] is None
    assert not studies["broken"]["defined"]
    assert studies["broken"]["ran"]["refused"]


SIDES = ("model=qwen3_1b7", "workload.batch=[1]", "precision={weights: fp16, activations: fp16, kv: fp16}")


def test_compare_keeps_to_its_schema_where_a_chip_cannot_be_asked(typed: Typed) -> None:
    code, out, err = typed("compare", "--json", "chip=[a100,wse2,hbm3]", *SIDES)
    assert code == 0, err
    sides = checked("compare", out)["chips"]
    assert [bool(side["why_not"]) for side in sides] == [False, False, True]
    assert sides[2]["metrics"] == {}


LOAD = (
    "devices=1", "workload.prompt=700", "workload.output=60", "workload.requests=100", "workload.ttft='1 s'",
    "workload.tpot='60 ms'", "disaggregated=false", "space=empty", "+space.mapping.both.tp='choice(1,2)'",
    "mapping.serving.max_batch_size=16", "mapping.serving.max_batched_tokens=512",
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "served"),
    [("chip=h200 model=llama3_8b", [True]), ("chip=[rtx4090,h200] model=llama3_70b by=price", [True, False])],
)
def test_capacity_keeps_to_its_schema(words: str, served: list[bool], typed: Typed) -> None:
    more = ("mapping.precision.weights=fp8",) if "70b" in words else ()
    if len(served) == 1:
        more = (*more, "workload.slo_classes=[{name: chat, share: 0.7}, {name: batch, share: 0.3, ttft: 1.2 s}]")
    code, out, err = typed("capacity", "--json", *words.split(), *LOAD, *more)
    assert code == 0, err
    sides = checked("capacity", out)["chips"]
    assert [side["best"] is not None for side in sides] == served
    assert [not side["why_not"] for side in sides] == served
    assert [len(side["bounds"]["classes"]) for side in sides] == ([2] if len(served) == 1 else [0, 0])


SEVERAL = """
defaults: [{override /model: qwen3_1b7}, {override /search: none}]
chips: [a100, npu64, wse2]
precision: {weights: fp16, activations: fp16, kv: fp16}
space: {mapping: {both: {tp: "choice(1, 2)"}, decode: {rows: "choice(300, 400)"}}}
workload: {batch: [1], prompt: [256], output: [64]}
objectives: {throughput_per_system_mm2: max, tpot: min}
verify: {fidelity: none}
"""

RUNS = {
    "quickstart": ("study=quickstart", "screen.limit=48", "search=random", "search.budget=12", "verify=none"),
    "impossible": ("study=quickstart", "name=impossible", "+constraints.tpot='<= 1 us'", "screen.limit=48", "search=none"),
    "several": ("study=several", "screen.limit=48"),
}
ASKED = {
    "quickstart": (["chip.cores=300"], ["mapping.both.tp=8", "mapping.both.prefetch=none"], ["chip=ascend910b"]),
    "impossible": (["chip.cores=300"], ["mapping.both.tp=8"]),
    "several": (["chips=[a100]", "mapping.both.tp=1"], ["chips=[wse2]", "mapping.decode.rows=300"]),
}
"""By study: designs of somebody's, as overrides."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which three studies ran: one with a front, one of which nothing is feasible, one of several chips."""
    folder = tmp_path_factory.mktemp("schemas")
    (folder / "studies/several").mkdir(parents=True)
    (folder / "studies/several/study.yaml").write_text(SEVERAL)
    with contextlib.chdir(folder):
        for study, *words in RUNS.values():
            dse.run(study.removeprefix("study="), *words, "workers=serial")
    return folder


@slow_if(lambda study: study != "impossible")
@pytest.mark.parametrize("study", RUNS)
def test_explain_of_a_study_keeps_to_its_schema(study: str, ran: Path, monkeypatch: pytest.MonkeyPatch, typed: Typed) -> None:
    monkeypatch.chdir(ran)
    code, out, err = typed("explain", "--json", study)
    assert code == 0, err
    assert bool(checked("front", out)["designs"]) == (study != "impossible")
    loaded = dse.load(study)
    assert json.loads(format_json(dse.document(loaded)))["designs"] == json.loads(out)["designs"]
    first = design_ids(loaded)[0]
    code, out, err = typed("explain", "--json", study, "--design", first)
    assert code == 0, err
    assert checked("explain", out)["feasible"] == (study != "impossible")


@slow_if(lambda words: "chips=[a100]" in words)
@pytest.mark.sampled
@pytest.mark.parametrize(("study", "words"), [(study, words) for study, all_of in ASKED.items() for words in all_of])
def test_a_design_of_the_users_keeps_to_its_schemas(
    study: str, words: list[str], ran: Path, monkeypatch: pytest.MonkeyPatch, typed: Typed
) -> None:
    monkeypatch.chdir(ran)
    for command in ("explain", "whynot"):
        if "chip=" in words[0] and command == "explain":
            continue
        code, out, err = typed(command, "--json", study, *words)
        assert code == 0, err
        assert checked(command, out)["name"] == " ".join(words)


ALONE = [
    "chip=npu64 model=qwen3_1b7 workload.batch=[1]",
    "chip=a100 model=llama3_405b mapping.both.tp=8",
    "chip=wse2 workload=gemv",
]


@pytest.mark.parametrize("line", ALONE)
def test_explain_without_a_study_keeps_to_its_schema(line: str, typed: Typed) -> None:
    code, out, err = typed("explain", "--json", *line.split())
    assert code == 0, err
    checked("explain", out)


def test_validate_keeps_to_its_schemas(folder: Path, typed: Typed) -> None:
    rows = ["a,b,workload.batch=[1],,tpot,1..2,ms,check,", "c,d,model=llama3_405b chip.hbm.capacity='1 GB',,tpot,1,ms,report,"]
    (folder / "mine.csv").write_text("\n".join([",".join(COLUMNS), *rows, ""]))
    code, out, err = typed("validate", "--json", "mine.csv")
    assert code == 0, err
    assert [row["fits"] for row in checked("validate", out)["files"]["mine.csv"]] == [True, False]
    code, out, err = typed("validate", "--json", "npusim_fig12")
    assert checked("validation", out)["page"] == "runs/validation/validation.html"


def test_calibrate_keeps_to_its_schema(typed: Typed) -> None:
    words = ("fit=[mapping.stack.hbm_efficiency,chip.network.nodes.bandwidth]", "folds=2")
    code, out, err = typed("calibrate", "--json", str(SAMPLE), *CHIP, "inference_engine=none", *words)
    assert code == 0, err
    constants = checked("calibrate", out)["constants"]
    assert "no row depends on it" in constants[1]["determined"]


def test_an_error_prints_no_document(typed: Typed) -> None:
    code, out, err = typed("evaluate", "--json", "chip.l2.sise=64")
    assert (code, out) == (2, "")
    assert "did you mean 'size'" in err


@pytest.mark.sampled
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_is_one_and_says_what_its_document_is(name: str, typed: Typed) -> None:
    code, out, _ = typed("schema", name)
    assert code == 0
    schema = json.loads(out)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["description"]
    assert DOCUMENTS[name].STAMP in typed("schema")[1]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_key_that_no_schema_has_is_refused(name: str) -> None:
    """Of every object, however deep: either its keys are closed, or all its values are of one kind."""

    def objects(node: Any) -> Any:
        if isinstance(node, dict):
            if node.get("type") == "object":
                yield node
            for value in node.values():
                yield from objects(value)
        elif isinstance(node, list):
            for value in node:
                yield from objects(value)

    found_objects = list(objects(build_schema(name)))
    assert found_objects
    for schema in found_objects:
        assert (
            schema["additionalProperties"] is False
            or "type" in schema["additionalProperties"]
            or "anyOf" in schema["additionalProperties"]
        )
        assert ("properties" in schema) == (schema["additionalProperties"] is False)


def test_a_misspelt_document_is_one_line(typed: Typed) -> None:
    code, out, err = typed("schema", "evalute")
    assert (code, out) == (2, "")
    assert "did you mean 'evaluate'" in err


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_version_stays_as_it_is(name: str) -> None:
    stored = fingerprints.stored()
    stamp = DOCUMENTS[name].STAMP
    what = f"{stamp} is not what it was: raise its version in dse/documents, then python -m tests.dse.fingerprints"
    assert stored.get(stamp) == fingerprints.of(name), what


def test_a_changed_key_changes_the_fingerprint_and_a_changed_description_does_not() -> None:
    body = build_schema("list")
    inner = body["properties"]["studies"]
    same = {**body, "properties": {**body["properties"], "studies": {**inner, "description": "other words"}}}
    typed = {**body, "properties": {**body["properties"], "studies": {**inner, "type": "object"}}}
    more = {**body, "properties": {**body["properties"], "more": {"type": "string"}}}
    assert fingerprints.shape(same) == fingerprints.shape(body)
    assert fingerprints.shape(typed) != fingerprints.shape(body) != fingerprints.shape(more)
