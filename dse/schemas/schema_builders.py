"""Builders of JSON Schema elements for documents; each returns a schema as plain values."""

from collections.abc import Mapping, Sequence
from typing import Any

Schema = dict[str, Any]


def text_schema(about: str = "") -> Schema:
    """Schema of a string value, with its description."""
    return _with_description({"type": "string"}, about)


def enum_schema(words: Sequence[str], about: str = "") -> Schema:
    """Schema of a string that is one of several options."""
    return _with_description({"type": "string", "enum": list(words)}, about)


def number_schema(about: str = "") -> Schema:
    """Schema of a finite number, with its description."""
    return _with_description({"type": "number"}, about)


def count_schema(about: str = "") -> Schema:
    """Schema of a whole number, 0 or above."""
    return _with_description({"type": "integer", "minimum": 0}, about)


def boolean_schema(about: str = "") -> Schema:
    """Schema of a boolean value, with its description."""
    return _with_description({"type": "boolean"}, about)


def nullable_schema(schema: Schema, about: str = "") -> Schema:
    """Schema of a value of another schema, or null."""
    return _with_description({"anyOf": [schema, {"type": "null"}]}, about)


def scalar_schema(about: str = "") -> Schema:
    """Schema of a string, a number, a boolean, or null for a number that is not finite."""
    return _with_description({"type": ["string", "number", "boolean", "null"]}, about)


def list_schema(schema: Schema, about: str = "") -> Schema:
    """Schema of a list with elements of one schema."""
    return _with_description({"type": "array", "items": schema}, about)


def pair_schema(schema: Schema, about: str = "") -> Schema:
    """Schema of a list of two elements of one schema."""
    return _with_description({"type": "array", "items": schema, "minItems": 2, "maxItems": 2}, about)


def map_schema(schema: Schema, about: str = "") -> Schema:
    """Schema of an object with any keys and values of one schema."""
    return _with_description({"type": "object", "additionalProperties": schema}, about)


def object_schema(fields: Mapping[str, Schema], about: str = "", *, optional: Sequence[str] = ()) -> Schema:
    """Schema of an object with these keys and no other.

    Args:
        fields: by key.
        about: what it is.
        optional: keys that may be absent.
    """
    required = [key for key in fields if key not in optional]
    schema = {"type": "object", "properties": dict(fields), "required": required, "additionalProperties": False}
    return _with_description(schema, about)


def document_schema(stamp: str, body: Schema) -> Schema:
    """Schema of a document with its name and version."""
    head = {"const": stamp, "description": "which document this is, and its version"}
    return {**body, "properties": {"schema": head, **body["properties"]}, "required": ["schema", *body["required"]]}


def _with_description(schema: Schema, about: str) -> Schema:
    return {**schema, "description": about} if about else schema


MEASURED = object_schema(
    {
        "value": nullable_schema(number_schema(), "null where it is not finite"),
        "unit": text_schema('"" or "1" of what has none'),
    },
    "a value with its unit",
)
"""A value with its unit beside it."""

WITHOUT_EFFECT: Schema = list_schema(
    object_schema(
        {
            "setting": text_schema("as given"),
            "reader": nullable_schema(text_schema("option that uses it, as fidelity=cycles; null if none is known")),
            "text": text_schema("the same in a sentence"),
        }
    ),
    "settings of the user without effect on this answer",
)

METRICS = map_schema(MEASURED, "by metric, those that this kind of chip and workload has; SI units")

FIELD = {
    "anyOf": [
        {"type": ["string", "number", "boolean", "null"]},
        MEASURED,
    ],
    "description": "a value with its unit; a word, or a number without a unit, as it is; null where it does not count",
}
"""A knob's value."""

KNOBS = map_schema(FIELD, "values by address, as overrides name them")

KIND = {
    "chip": text_schema(),
    "software": text_schema("mapping and stack, and the algorithm of a single kernel"),
    "question": text_schema("static, serving, gemm and others"),
    "phase": text_schema("prefill, decode, whole, chip, or the question"),
    "measure": text_schema("time, or a metric"),
    "fidelity": text_schema(),
}
"""Keys of what a measured row, or an answer, is a figure of."""
