"""What --json prints keeps to the published schemas, and what a version of a schema says stays as it is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dse.schemas import DOCUMENTS, published, stamp
from tests.dse import fingerprints

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checked(name: str, text: str) -> Any:
    """A document that keeps to its schema, read as the standard of JSON has it."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    data = json.loads(text, parse_constant=refuse)
    jsonschema.Draft202012Validator(published(name)).validate(data)
    assert data["schema"] == stamp(name)
    return data


QUESTIONS = [
    "",
    "chip=a100 model=qwen2_7b mapping.prefill.tp=2",
    "chip=a100 model=llama3_405b",
    "model=[qwen3_1b7,qwen3_8b] workload.batch=[1,8]",
    "chip=wse2 workload.batch=[1]",
    "chip=wse2 workload=gemm",
    "chip=wse2 workload=gemv fidelity=events workload.shapes=[1x1024x1024]",
    "chip=wse2 workload=gemm fidelity=cycles@8",
    "chip=npu64 model=qwen3_1b7 workload.batch=[4]",
    "chip=tile32 workload=attention",
    "chip=a100 workload=gemv mapping=sglang",
    "chip=h200 workload=serving model=qwen3_1b7 workload.requests=50",
]

INFEASIBLE = ("chip=a100 model=llama3_405b", "chip=wse2 workload.batch=[1]")


@pytest.mark.parametrize("line", QUESTIONS)
def test_evaluate_keeps_to_its_schema(line: str, typed: Typed) -> None:
    code, out, err = typed("evaluate", "--json", *line.split())
    assert code == 0, err
    said = checked("evaluate", out)
    assert said["feasible"] == (line not in INFEASIBLE)
    assert (said["infeasible"] is None) == said["feasible"]
    assert (said["part"] is not None) == ("@" in line)
    assert all(("rows_skipped" in case) == ("serving" in line) for case in said["cases"])


def test_list_keeps_to_its_schema(here: Path, typed: Typed) -> None:
    (here / "runs/broken").mkdir(parents=True)
    (here / "runs/broken/results.sqlite").write_text("no database")
    quick = ("screen.limit=16", "search.budget=4", "verify=none")
    assert typed("run", "study=quickstart", *quick)[0] == 0
    code, out, _ = typed("list", "--json")
    assert code == 0
    found = {one["name"]: one for one in checked("list", out)["studies"]}
    assert found["quickstart"]["ran"] == {"state": "done", "searched": 4, "refused": None}
    assert found["waferllm_gemv"]["ran"] is None
    assert not found["broken"]["defined"]
    assert found["broken"]["ran"]["refused"]


def test_an_error_prints_no_document(typed: Typed) -> None:
    code, out, err = typed("evaluate", "--json", "chip.l2.sise=64")
    assert (code, out) == (2, "")
    assert "did you mean 'size'" in err


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_is_one_and_says_what_its_document_is(name: str, typed: Typed) -> None:
    code, out, _ = typed("schema", name)
    assert code == 0
    schema = json.loads(out)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["description"]
    assert stamp(name) in typed("schema")[1]


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

    found = list(objects(published(name)))
    assert found
    for one in found:
        assert (
            one["additionalProperties"] is False
            or "type" in one["additionalProperties"]
            or "anyOf" in one["additionalProperties"]
        )
        assert ("properties" in one) == (one["additionalProperties"] is False)


def test_a_misspelt_document_is_one_line(typed: Typed) -> None:
    code, out, err = typed("schema", "evalute")
    assert (code, out) == (2, "")
    assert "did you mean 'evaluate'" in err


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_version_stays_as_it_is(name: str) -> None:
    stored = fingerprints.stored()
    what = f"{stamp(name)} is not what it was: raise its version in dse/schemas, then python -m tests.dse.fingerprints"
    assert stored.get(stamp(name)) == fingerprints.of(name), what


def test_a_changed_key_changes_the_fingerprint_and_a_changed_description_does_not() -> None:
    _, _, body = DOCUMENTS["list"]
    inner = body["properties"]["studies"]
    same = {**body, "properties": {"studies": {**inner, "description": "other words"}}}
    typed = {**body, "properties": {"studies": {**inner, "type": "object"}}}
    more = {**body, "properties": {**body["properties"], "more": {"type": "string"}}}
    assert fingerprints.shape(same) == fingerprints.shape(body)
    assert fingerprints.shape(typed) != fingerprints.shape(body) != fingerprints.shape(more)
