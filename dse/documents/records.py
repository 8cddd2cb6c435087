"""Records of documents: each key is declared once, with its type, its unit and its description.

A record is a frozen value with named fields. Its fields, in their order, are the keys of a JSON object: `record_values` gives
the object, `record_schema` its JSON Schema. Text beside a type describes the key, as in ``Annotated[float, "s; mean"]``, and
the docstring of a record describes the object. An ``int`` is a count, 0 or above. A ``float`` may be any; null if not finite.
"""

from collections.abc import Mapping, Sequence
from dataclasses import Field, FrozenInstanceError, dataclass, fields
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, dataclass_transform, get_args, get_origin, get_type_hints

Schema = dict[str, Any]

Scalar = str | float | bool | None
"""A string, a number, a boolean, or null for a number that is not finite."""


class Examples:
    """Examples of values of a field, beside its description."""

    def __init__(self, *values: Any) -> None:
        self.values = values


class Absent(Enum):
    """Value of a field whose key is not in the JSON object."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record:
    """Base of records; a class below it is a frozen dataclass whose fields are given by name.

    A field whose name is a word of Python ends in an underscore, which its key does not have: ``from_`` is ``from``.

    >>> class Latency(Record):
    ...     "Mean latency of one class of requests."
    ...     from_: str
    ...     ttft_s: Annotated[float | None, "s; null without requests"]
    ...     requests: int | Absent = ABSENT
    >>> record_values(Latency(from_="chat", ttft_s=0.2))
    {'from': 'chat', 'ttft_s': 0.2}
    >>> record_schema(Latency)["required"]
    ['from', 'ttft_s']
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        dataclass(kw_only=True, eq=False, repr=False)(cls)  # the rest stands here: made for each class, it takes twice as long

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or name not in self.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


class Document(Record):
    """Base of documents: records that begin with a key ``schema``, which has their name and version.

    Attributes:
        STAMP: name and version.
        COMMAND: what prints it.
    """

    STAMP: ClassVar[str]
    COMMAND: ClassVar[str]


def record_values(record: Record) -> dict[str, Any]:
    """Fields of a record by key, in the order of its declaration; inner records stay as they are."""
    values = {
        field.name.removesuffix("_"): value for field in fields(record) if (value := getattr(record, field.name)) is not ABSENT
    }
    return {"schema": record.STAMP, **values} if isinstance(record, Document) else values


def plain_values(value: Any) -> Any:
    """A value with records in it as dictionaries and lists, as JSON has it."""
    if isinstance(value, Record):
        value = record_values(value)
    if isinstance(value, Mapping):
        return {key: plain_values(inner) for key, inner in value.items()}
    return [plain_values(inner) for inner in value] if isinstance(value, list | tuple) else value


def record_schema(declared: type[Record]) -> Schema:
    """JSON Schema of a record: an object with its keys and no other, described by its docstring."""
    hints = get_type_hints(declared, include_extras=True)
    properties: dict[str, Schema] = {}
    if issubclass(declared, Document):
        properties["schema"] = {"const": declared.STAMP, "description": "which document this is, and its version"}
    required = list(properties)
    for field in fields(declared):
        key, hint = field.name.removesuffix("_"), hints[field.name]
        properties[key] = value_schema(hint)
        if Absent not in _members(hint):
            required.append(key)
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {**schema, "description": record_title(declared)}


def record_title(declared: type[Record]) -> str:
    """First line of a record's docstring, as a phrase.

    >>> record_title(Document)
    'base of documents: records that begin with a key ``schema``, which has their name and version'
    """
    line = (declared.__doc__ or "").partition("\n")[0].removesuffix(".")
    return line if line[1:2].isupper() else line[:1].lower() + line[1:]


def value_schema(hint: Any) -> Schema:
    """JSON Schema of a type that a field is declared with.

    >>> value_schema(Annotated[Sequence[float], "s; of each phase"])
    {'type': 'array', 'items': {'type': 'number'}, 'description': 's; of each phase'}
    """
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Annotated:
        schema = value_schema(inner[0])
        for note in inner[1:]:
            schema |= {"examples": list(note.values)} if isinstance(note, Examples) else {"description": note}
        return schema
    if kind in (Union, UnionType):
        return _choice_schema([member for member in inner if member is not Absent])
    if kind is Literal:
        return {"type": "string", "enum": list(inner)}
    if kind is tuple:
        return {"type": "array", "items": value_schema(inner[0]), "minItems": len(inner), "maxItems": len(inner)}
    if kind is Sequence:
        return {"type": "array", "items": value_schema(inner[0])}
    if kind is Mapping:
        return {"type": "object", "additionalProperties": value_schema(inner[1])}
    return dict(_PLAIN[hint]) if hint in _PLAIN else record_schema(hint)


_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer", "minimum": 0},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
}
"""Schema by type of a single value."""


def _members(hint: Any) -> tuple[Any, ...]:
    """Types that a value may have, of one with a description too."""
    if get_origin(hint) is Annotated:
        return _members(get_args(hint)[0])
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _choice_schema(members: list[Any]) -> Schema:
    """Schema of a value of one of several types."""
    schemas = [value_schema(member) for member in members if member not in get_args(Scalar)]
    if len(schemas) + len(get_args(Scalar)) == len(members):
        schemas.insert(0, {"type": ["string", "number", "boolean", "null"]})
    else:
        schemas = [value_schema(member) for member in members]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
