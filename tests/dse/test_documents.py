"""Documents are declared once: what a record takes its schema takes, and what it does not the schema refuses."""

import ast
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError, fields
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import jsonschema
import pytest

import dse
from dse.documents import build_schema, document_types
from dse.documents.records import ABSENT, Absent, Document, Record, plain_values, record_schema, record_values
from dse.mcp_server import TOOLS
from dse.space.errors import DesignError
from dse.terminal.json_text import format_json
from tests.house.sources import ROOT, SOURCES

DRAWS = 4
"""Documents of a name that are drawn."""

BROKEN_FIELDS = 12
"""Places of a drawn document that are broken, one at a time."""

DOCUMENTS = document_types()

Path = tuple[str | int, ...]


def alternatives(hint: Any) -> tuple[Any, ...]:
    """Types that a value may have, one after the other."""
    if get_origin(hint) is Annotated:
        return alternatives(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return tuple(inner for member in get_args(hint) for inner in alternatives(member))
    return (hint,)


def draw(hint: Any, source: random.Random) -> Any:
    """A value of a declared type."""
    kind = source.choice(alternatives(hint))
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return source.choice(inner)
    if origin is tuple:
        return tuple(draw(member, source) for member in inner)
    if origin is Sequence:
        return [draw(inner[0], source) for _ in range(source.randint(1, 2))]
    if origin is Mapping:
        return {f"key {number}": draw(inner[1], source) for number in range(source.randint(1, 2))}
    if kind is Absent:
        return ABSENT
    if isinstance(kind, type) and issubclass(kind, Record):
        hints = get_type_hints(kind, include_extras=True)
        return kind(**{field.name: draw(hints[field.name], source) for field in fields(kind)})
    single = {str: "text", int: source.randint(0, 9), float: source.uniform(-9, 9), bool: source.random() < 0.5, NoneType: None}
    return single[kind]


def places(record: Record, path: Path = ()) -> Iterator[tuple[Path, Any, bool]]:
    """Fields of a record and of those in it: the path of each, its declared type, and whether it may be absent."""
    hints = get_type_hints(type(record), include_extras=True)
    for field in fields(record):
        if (value := getattr(record, field.name)) is ABSENT:
            continue
        own = (*path, field.name.removesuffix("_"))
        yield own, hints[field.name], Absent in alternatives(hints[field.name])
        several: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
        for key, inner in [((), value)] + [((key,), inner) for key, inner in several]:
            if isinstance(inner, Record):
                yield from places(inner, (*own, *key))


def wrong(hint: Any) -> Any:
    """A value of a type that is not declared."""
    kinds = alternatives(hint)
    texts = any(kind is str or get_origin(kind) is Literal for kind in kinds)
    lists = any(get_origin(kind) in (Sequence, tuple) for kind in kinds)
    return "text" if not texts else 7.5 if float not in kinds else [] if not lists else {}


def changed(values: Any, path: Path, change: Any) -> Any:
    """A copy of JSON values in which a function changes the object or list that has the last place of a path."""
    copy = json.loads(json.dumps(values))
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return copy


def drawn(name: str) -> Iterator[tuple[random.Random, Document]]:
    for seed in range(DRAWS):
        source = random.Random(f"{name} {seed}")
        yield source, draw(DOCUMENTS[name], source)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_field_that_is_missing_unknown_or_of_another_type_is_refused(name: str) -> None:
    judge = jsonschema.Draft202012Validator(build_schema(name))
    for source, document in drawn(name):
        values = json.loads(format_json(document))
        judge.validate(values)
        everywhere = list(places(document))
        for path, hint, optional in source.sample(everywhere, min(BROKEN_FIELDS, len(everywhere))):
            missing = changed(values, path, lambda holder, key: holder.pop(key))
            assert judge.is_valid(missing) == optional, (name, path)
            unknown = changed(values, path, lambda holder, key: holder.update({f"no {key}": 1}))
            assert not judge.is_valid(unknown), (name, path)
            typed = changed(values, path, lambda holder, key, hint=hint: holder.update({key: wrong(hint)}))
            assert not judge.is_valid(typed), (name, path, wrong(hint))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_keys_stand_in_the_order_of_the_declaration_and_after_the_version(name: str) -> None:
    for _, document in drawn(name):
        values = plain_values(document)
        assert json.loads(format_json(document)) == json.loads(json.dumps(values))
        keys = list(build_schema(name)["properties"])
        assert keys[0] == "schema"
        assert list(values) == [key for key in keys if key in values]


def test_every_document_that_is_declared_has_a_schema_and_is_built_in_one_place() -> None:
    assert {document.__name__ for document in Document.__subclasses__()} == {kind.__name__ for kind in DOCUMENTS.values()}
    called: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                called.setdefault(node.func.id, []).append(str(path.relative_to(ROOT)))
    assert {kind.__name__: len(called.get(kind.__name__, [])) for kind in DOCUMENTS.values()} == {
        kind.__name__: 1 for kind in DOCUMENTS.values()
    }


def test_a_record_refuses_a_field_that_is_missing_unknown_or_set_again() -> None:
    class Latency(Record):
        """Mean latency of some requests."""

        ttft_s: Annotated[float | None, "s"]

    with pytest.raises(TypeError, match="ttft_s"):
        Latency()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="tpot_s"):
        Latency(ttft_s=1.0, tpot_s=1.0)  # type: ignore[call-arg]
    with pytest.raises(FrozenInstanceError):
        Latency(ttft_s=1.0).ttft_s = 2.0  # type: ignore[misc]
    assert record_values(Latency(ttft_s=1.0)) == {"ttft_s": 1.0}
    assert format_json(Latency(ttft_s=float("nan"))) == '{"ttft_s": null}'


@pytest.mark.parametrize("tool", TOOLS)
def test_arguments_of_tools_are_declared_with_examples_of_their_type(tool: str) -> None:
    schema = record_schema(TOOLS[tool].takes)
    for name, value in schema["properties"].items():
        assert value["description"]
        for example in value["examples"]:
            assert isinstance(example, list if value["type"] == "array" else str), name


def test_python_has_the_document_that_json_has(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("chip=npu64", "model=qwen3_1b7", "workload.batch=[1]")
    answer = dse.evaluate(*words)
    document = dse.document(answer)
    assert document.metrics["tpot"].value == answer.metrics["tpot"]
    values = json.loads(format_json(document))
    jsonschema.Draft202012Validator(build_schema("evaluate")).validate(values)
    assert (
        dse.document(dse.explain("chip=npu64", "model=qwen3_1b7", "workload.batch=[1]")).metrics["tpot"]
        == document.metrics["tpot"]
    )
    with pytest.raises(DesignError, match="expected an answer of evaluate"):
        dse.document(3)
