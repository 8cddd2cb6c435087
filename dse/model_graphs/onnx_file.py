"""Operators and shapes of ONNX files; values of weights are skipped.

The only source that imports the `onnx` package, which parses what is left of a file and infers shapes.
"""

import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dse.model_graphs.graph import INPUT, WEIGHT, GraphNode, GraphTensor, ModelGraph, Shape
from dse.model_graphs.sizes import Size, parse_size
from dse.space.errors import DesignError

MAX_KEPT_BYTES = 1 << 26
"""Bytes of a file without values of weights; a model of 80 layers has some megabytes."""

MAX_VALUE_BYTES = 1 << 10
"""Bytes of values that are kept, as those of shapes."""

MAX_SIZE = 1 << 40
"""Values of a dimension of a tensor."""

MAX_FIELDS = 4_000_000
"""Fields of a file, some seconds of reading; those of a model of 80 layers are some hundred thousand."""

MAX_DEPTH = 16
"""Messages in messages of a file."""

Schema = Mapping[int, Any]
KEPT = None
TENSOR: Schema = {1: KEPT, 2: KEPT, 8: KEPT}
VALUE_FIELDS = (4, 5, 6, 7, 9, 10, 11)
"""Fields of a tensor with values, by type."""

ATTRIBUTE: dict[int, Any] = {1: KEPT, 2: KEPT, 3: KEPT, 4: KEPT, 5: TENSOR, 7: KEPT, 8: KEPT, 9: KEPT, 10: TENSOR, 20: KEPT}
NODE: Schema = {1: KEPT, 2: KEPT, 3: KEPT, 4: KEPT, 5: ATTRIBUTE, 7: KEPT}
GRAPH: Schema = {1: NODE, 2: KEPT, 5: TENSOR, 11: KEPT, 12: KEPT, 13: KEPT}
MODEL: Schema = {1: KEPT, 2: KEPT, 3: KEPT, 7: GRAPH, 8: KEPT}
"""Fields of onnx.proto3 that are read, by number; graphs inside of operators are left out."""

INTEGER_TYPES = (2, 3, 4, 5, 6, 7, 9, 12, 13)


def read_onnx(path: Path, where: str) -> ModelGraph:
    """Graph of an ONNX file, without values of weights.

    Raises:
        DesignError: no ONNX file, a cut one, one that is too large without its weights, or `onnx` is not installed.
    """
    try:
        import onnx
    except ImportError:
        raise DesignError(f"{where}: ONNX files need the package onnx; pip install 'mesh-dse[graph]'") from None
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            kept = bytes(_Reader(content, where).copy_message(0, len(content), MODEL, 0))
    except DesignError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error  # without the path
        raise DesignError(f"{where}: cannot be read: {reason}; give a file that torch.onnx.export wrote") from None
    try:
        model = onnx.ModelProto.FromString(kept)
        if not model.graph.node:
            raise DesignError(f"{where}: no operators in it; give a file that torch.onnx.export wrote")
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except DesignError:
        raise
    except Exception as error:  # the package raises errors of its parser and of its C++ code
        reason = " ".join(str(error).split())[:80]
        raise DesignError(f"{where}: no ONNX model ({reason}); give a file that torch.onnx.export wrote") from None
    return _model_graph(
        graph, path.stem, where, f"ONNX, {model.producer_name or 'no producer'} {model.producer_version}".strip()
    )


class _Reader:
    """Copies messages of a file field by field, without the values of large tensors."""

    def __init__(self, content: Any, where: str) -> None:
        self._content, self._where, self._left = content, where, MAX_KEPT_BYTES
        self._fields_left = MAX_FIELDS

    def copy_message(self, start: int, end: int, schema: Schema, depth: int) -> bytearray:
        """A message without the fields that its schema does not have."""
        if depth > MAX_DEPTH:
            raise self._cut("messages in messages")
        copied, most = bytearray(), MAX_VALUE_BYTES
        for number, begins, body, stops in self._fields(start, end):
            inner = schema.get(number, "left out")
            if schema is TENSOR and number in VALUE_FIELDS and stops - body <= most:
                inner, most = KEPT, most - (stops - body)
            if inner == "left out":
                continue
            if inner is KEPT:
                self._keep(stops - begins)
                copied += self._content[begins:stops]
            else:
                message = self.copy_message(body, stops, inner, depth + 1)
                copied += _varint((number << 3) | 2) + _varint(len(message)) + message
        return copied

    def _keep(self, nbytes: int) -> None:
        self._left -= nbytes
        if self._left < 0:
            raise DesignError(
                f"{self._where}: over {MAX_KEPT_BYTES >> 20} MB besides the values of weights; export one layer of the model"
            )

    def _fields(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Number of each field, where its tag, its body and what follows begin."""
        place = start
        while place < end:
            tag, body = self._number(place, end)
            kind = tag & 7
            self._fields_left -= 1
            if self._fields_left < 0:
                raise DesignError(f"{self._where}: over {MAX_FIELDS:,} fields; export one layer of the model")
            if not tag >> 3:
                raise self._cut("a field of number 0")
            if kind == 2:
                size, body = self._number(body, end)
                stops = body + size
            elif kind == 0:
                _, stops = self._number(body, end)
            elif kind in (1, 5):
                stops = body + (8 if kind == 1 else 4)
            else:
                raise self._cut(f"no field of kind {kind}")
            if stops > end:
                raise self._cut("a field goes beyond the end")
            yield tag >> 3, place, body, stops
            place = stops

    def _number(self, place: int, end: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 70, 7):
            if place >= end:
                raise self._cut("it ends in a number")
            byte = self._content[place]
            place += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, place
        raise self._cut("a number of more than ten bytes")

    def _cut(self, what: str) -> DesignError:
        return DesignError(f"{self._where}: no ONNX file, or a cut one ({what}); export it again")


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _model_graph(graph: Any, name: str, where: str, source: str) -> ModelGraph:
    tensors: dict[str, GraphTensor] = {}
    for entry in (*graph.value_info, *graph.output, *graph.input):
        tensors[_text(entry.name)] = _tensor(entry)
    for entry in graph.initializer:
        if any(not 0 <= size < MAX_SIZE for size in entry.dims):
            raise DesignError(f"{where}: {_text(entry.name)[:40]!r} has a size of no tensor; export it again")
        shape = tuple(Size.constant(size) for size in entry.dims)
        number = _whole_number(entry)
        tensors[_text(entry.name)] = GraphTensor(shape, WEIGHT, entry.data_type in INTEGER_TYPES, number=number)
    stored = {_text(entry.name) for entry in graph.initializer}
    inputs = [_text(entry.name) for entry in graph.input if _text(entry.name) not in stored]
    for entry in inputs:
        tensors[entry].kind = INPUT
    nodes = []
    for place, entry in enumerate(graph.node):
        outputs = tuple(filter(None, map(_text, entry.output)))
        for output in outputs:
            tensors.setdefault(output, GraphTensor(None))
        title = _text(entry.name) or (outputs[0] if outputs else f"node {place}")
        nodes.append(GraphNode(title, _text(entry.op_type), tuple(map(_text, entry.input)), outputs, _attributes(entry)))
    return ModelGraph(where, name, tensors, nodes, tuple(inputs), tuple(_text(entry.name) for entry in graph.output), source)


def _text(value: Any) -> str:
    """A name; of damaged files those are bytes that are no text."""
    return value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")


def _tensor(entry: Any) -> GraphTensor:
    kind = entry.type.tensor_type
    shape: Shape | None = None
    if kind.HasField("shape"):
        shape = tuple(_size(dim) for dim in kind.shape.dim)
    return GraphTensor(shape, integer=kind.elem_type in INTEGER_TYPES)


def _size(dim: Any) -> Size | None:
    if dim.HasField("dim_value"):
        return Size.constant(dim.dim_value) if 0 <= dim.dim_value < MAX_SIZE else None
    text = _text(dim.dim_param)
    if not text or text.startswith("unk__"):
        return None
    return parse_size(text) if not text.isidentifier() else Size.symbol(text)


def _whole_number(entry: Any) -> int | None:
    """Value of a tensor of one whole number; None of others."""
    size = 1
    for dim in entry.dims:
        size *= dim
    if size != 1 or entry.data_type not in (6, 7):
        return None
    if entry.raw_data:
        return int.from_bytes(entry.raw_data, "little", signed=True)
    values = entry.int64_data or entry.int32_data
    return int(values[0]) if values else None


def _attributes(entry: Any) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for attribute in entry.attribute:
        if attribute.type == 2:
            attributes[_text(attribute.name)] = attribute.i
        elif attribute.type == 3:
            attributes[_text(attribute.name)] = attribute.s.decode("utf-8", "replace")
        elif attribute.type == 7:
            attributes[_text(attribute.name)] = tuple(attribute.ints)
    return attributes
