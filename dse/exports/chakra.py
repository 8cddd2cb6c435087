"""Chakra execution traces: nodes of each rank with their dependencies, as protocol buffers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dse.exports.export_files import TraceSchema
from dse.exports.protobuf_wire import (
    decode_fields,
    decode_packed,
    delimit_message,
    encode_field,
    encode_packed,
    read_messages,
)
from dse.space.errors import DesignError
from dse.terminal.atomic_files import write_atomically
from dse.terminal.json_text import format_json

SCHEMA = TraceSchema(
    "Chakra execution trace", "github.com/mlcommons/chakra", "f5124d7", "schema/protobuf/et_def.proto, ChakraProtoMsg"
)
READER_SCHEMA = TraceSchema(
    "names and types of attributes that ASTRA-sim reads", "github.com/astra-sim/chakra", "b8d2e8b", "et_feeder_node.cpp"
)
SCHEMAS = (SCHEMA, READER_SCHEMA)

VERSION = "0.0.4"
"""Version in the metadata of a trace."""

NODE_TYPES = {
    "MEM_LOAD_NODE": 2,
    "MEM_STORE_NODE": 3,
    "COMP_NODE": 4,
    "COMM_SEND_NODE": 5,
    "COMM_RECV_NODE": 6,
    "COMM_COLL_NODE": 7,
}
"""Kinds of nodes with their numbers in ``NodeType`` of the schema."""

COLLECTIVES = {"allreduce": 0, "allgather": 2, "multicast": 5, "all_to_all": 6, "reduce_scatter": 7, "barrier": 9}
"""Numbers of ``CollectiveCommType`` by our names."""

FIELD_OF_KIND = {"double": 3, "int32": 7, "int64": 9, "uint64": 13, "bool": 27, "bool_list": 28, "string": 29}
"""Fields of ``AttributeProto`` by kind of value."""

ATTRIBUTE_KINDS = {
    "is_cpu_op": "bool",
    "num_ops": "int64",
    "tensor_size": "uint64",
    "comm_type": "int64",
    "comm_size": "int64",
    "comm_src": "int32",
    "comm_dst": "int32",
    "comm_tag": "int32",
    "involved_dim": "bool_list",
    "pg_name": "string",
    "duration_ns": "double",
}
"""Attributes of nodes with the kinds of their values; ``duration_ns`` is ours, since the schema's durations are whole us."""


@dataclass(slots=True)
class TraceNode:
    """One node of a rank's trace.

    Attributes:
        number: of the node in its rank, from 1.
        name: short text.
        kind: a name of `NODE_TYPES`.
        needs: numbers of nodes of the same rank that are done before.
        seconds: duration; 0 of what another simulator decides. [s]
        attributes: values by names of `ATTRIBUTE_KINDS`.
    """

    number: int
    name: str
    kind: str
    needs: Sequence[int] = ()
    seconds: float = 0.0
    attributes: Mapping[str, Any] = field(default_factory=dict)


def encode_node(node: TraceNode) -> bytes:
    """Message of a node, as a protocol buffer.

    The duration is in whole microseconds, at least 1 where there is any, and exactly in an attribute.
    """
    micros = max(round(node.seconds * 1e6), 1) if node.seconds > 0 else 0
    attributes: dict[str, Any] = {"is_cpu_op": False, **node.attributes}
    if node.seconds > 0:
        attributes["duration_ns"] = node.seconds * 1e9
    return b"".join((
        encode_field(1, node.number),
        encode_field(2, node.name),
        encode_field(3, NODE_TYPES[node.kind]),
        encode_packed(5, list(node.needs)),
        encode_field(7, micros) if micros else b"",
        *(encode_field(10, _encode_attribute(name, value)) for name, value in attributes.items()),
    ))  # fmt: skip


def _encode_attribute(name: str, value: Any) -> bytes:
    kind = ATTRIBUTE_KINDS[name]
    if kind == "bool_list":
        content: Any = encode_packed(1, [int(each) for each in value])
    else:
        content = {"double": float, "string": str}.get(kind, int)(value)
    return encode_field(1, name) + encode_field(FIELD_OF_KIND[kind], content)


def write_rank_files(folder: Path, name: str, ranks: Sequence[Iterable[TraceNode]], about: Mapping[str, str]) -> None:
    """Write one file ``NAME.RANK.et`` for each rank, with metadata in front of its nodes.

    Args:
        folder: of the files, which exists.
        name: first part of their names.
        ranks: nodes of each rank.
        about: texts for the metadata.
    """
    texts = {"schema": SCHEMA.text, **about}
    attributes = b"".join(
        encode_field(2, encode_field(1, key) + encode_field(FIELD_OF_KIND["string"], text)) for key, text in texts.items()
    )
    head = delimit_message(encode_field(1, VERSION) + attributes)
    for rank, nodes in enumerate(ranks):
        with write_atomically(folder / f"{name}.{rank}.et") as place, place.open("wb") as file:
            file.write(head)
            file.writelines(delimit_message(encode_node(node)) for node in nodes)


def write_groups(folder: Path, name: str, groups: Mapping[str, Sequence[int]]) -> None:
    """Write the ranks of each named group of a trace, as ASTRA-sim's communicator groups."""
    with write_atomically(folder / f"{name}.groups.json") as place:
        place.write_text(format_json({key: list(ranks) for key, ranks in groups.items()}, indent=1) + "\n")


def read_rank_file(path: Path) -> list[TraceNode]:
    """Nodes of a rank's file, after a check of its metadata.

    Raises:
        DesignError: the file cannot be read, is cut, or is no Chakra trace.
    """
    messages = read_messages(path)
    head = dict(decode_fields(next(messages, b""), str(path)))
    if not isinstance(head.get(1), bytes):
        raise DesignError(f"{path}: no metadata with a version at the beginning; the file is no Chakra execution trace")
    return [_decode_node(message, path) for message in messages]


def _decode_node(message: bytes, path: Path) -> TraceNode:
    kinds = {number: kind for kind, number in NODE_TYPES.items()}
    node, micros = TraceNode(0, "", "COMP_NODE"), 0
    attributes: dict[str, Any] = {}
    for number, value in decode_fields(message, str(path)):
        if number == 1:
            node.number = value
        elif number == 2:
            node.name = value.decode(errors="replace")
        elif number == 3:
            if value not in kinds:
                raise DesignError(f"{path}: node {node.number} has type {value}, which is none of those known here")
            node.kind = kinds[value]
        elif number == 5:
            node.needs = decode_packed(value, str(path)) if isinstance(value, bytes) else [*node.needs, value]
        elif number == 7:
            micros = value
        elif number == 10:
            attributes.update([_decode_attribute(value, path)])
    node.attributes = attributes
    node.seconds = float(attributes.get("duration_ns", micros * 1e3)) * 1e-9
    return node


def _decode_attribute(content: bytes, path: Path) -> tuple[str, Any]:
    name = ""
    value: Any = None
    kinds = {number: kind for kind, number in FIELD_OF_KIND.items()}
    for number, each in decode_fields(content, str(path)):
        if number == 1:
            name = each.decode(errors="replace")
        elif kinds.get(number) == "bool_list":
            value = [bool(bit) for _, packed in decode_fields(each, str(path)) for bit in decode_packed(packed, str(path))]
        elif isinstance(each, bytes):
            value = each.decode(errors="replace")
        else:
            value = bool(each) if kinds.get(number) == "bool" else each
    return name, value
