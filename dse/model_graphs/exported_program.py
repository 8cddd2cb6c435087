"""Programs that `torch.export.save` wrote (.pt2): a zip with a JSON description, read without PyTorch.

Weights stay unread, and nothing of the file is executed or unpickled.
"""

import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dse.model_graphs.graph import INPUT, WEIGHT, GraphNode, GraphTensor, ModelGraph
from dse.model_graphs.sizes import Size, parse_size
from dse.space.errors import DesignError

READ_MAJORS = (8,)
"""Major versions of the schema of ExportedProgram that are read, as PyTorch 2.13 writes it."""

MAX_PROGRAM_BYTES = 1 << 27
"""JSON of a program; two layers come to half a megabyte."""

MAX_SIZE = 1 << 40
"""Values of a dimension of a tensor."""

MAX_ENTRIES = 100_000
"""Files of an archive at most, which bounds what is listed."""

OLD_PROGRAM = "serialized_exported_program.json"
INTEGER_TYPES = (1, 2, 3, 4, 5, 12)
"""Numbers that the schema has for whole numbers and truth values."""

WEIGHT_SPECS = ("parameter", "buffer", "tensor_constant")

Json = Mapping[str, Any]


def read_exported_program(path: Path, where: str) -> ModelGraph:
    """Graph of a saved program.

    Raises:
        DesignError: no such archive, another version of its schema, a cut file, or one that is too large.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if len(archive.namelist()) > MAX_ENTRIES:
                raise DesignError(f"{where}: more than {MAX_ENTRIES:,} files, which no saved program has")
            program = _read_json(archive, _program_name(archive, where), where)
            shared = _shared_storage(archive, where)
    except DesignError:
        raise
    except (
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        OSError,
        EOFError,
        ValueError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())[:80]  # without the path
        raise DesignError(f"{where}: no whole .pt2 archive: {reason}; save the program again with torch.export.save") from None
    _check_version(program, where)
    try:
        return _program_graph(program, path.stem, where, shared)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise DesignError(
            f"{where}: not an ExportedProgram as its schema has it ({type(error).__name__}: {str(error)[:60]}); save it again"
        ) from None


def _program_name(archive: zipfile.ZipFile, where: str) -> str:
    names = archive.namelist()
    programs = [name for name in names if "/models/" in f"/{name}" and name.endswith(".json")]
    programs += [name for name in names if name.rpartition("/")[2] == OLD_PROGRAM]
    if len(programs) != 1:
        has = "no program" if not programs else f"{len(programs)} programs"
        raise DesignError(f"{where}: {has} in the archive; save one with torch.export.save")
    return programs[0]


def _read_json(archive: zipfile.ZipFile, name: str, where: str) -> Any:
    with archive.open(name) as stream:
        content = stream.read(MAX_PROGRAM_BYTES + 1)
    if len(content) > MAX_PROGRAM_BYTES:
        raise DesignError(
            f"{where}: its program takes over {MAX_PROGRAM_BYTES >> 20} MB of JSON; export one layer of the model"
        )
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DesignError(f"{where}: {name} is no JSON: {str(error)[:80]}; save the program again") from None


def _shared_storage(archive: zipfile.ZipFile, where: str) -> dict[str, str]:
    """File with the values of each parameter; names that share one are tied.

    A file for parameters of several shapes holds none of their values, as of models without memory.
    """
    places: dict[str, str] = {}
    shapes: dict[str, set[str]] = {}
    for name in archive.namelist():
        if name.endswith("_weights_config.json"):
            document = _read_json(archive, name, where)
            config = document.get("config") if isinstance(document, dict) else None
            for parameter, entry in (config if isinstance(config, dict) else {}).items():
                if isinstance(entry, dict) and isinstance(entry.get("path_name"), str):
                    places[parameter] = entry["path_name"]
                    sizes = json.dumps((entry.get("tensor_meta") or {}).get("sizes"))
                    shapes.setdefault(entry["path_name"], set()).add(sizes)
    return {parameter: place for parameter, place in places.items() if len(shapes[place]) == 1}


def _check_version(program: Any, where: str) -> None:
    version = program.get("schema_version") if isinstance(program, dict) else None
    if not isinstance(version, dict) or "graph_module" not in program:
        raise DesignError(f"{where}: no ExportedProgram, as torch.export.save writes it")
    if version.get("major") not in READ_MAJORS:
        readable = ", ".join(map(str, READ_MAJORS))
        stated = f"{version.get('major')}.{version.get('minor')}"[:20]
        raise DesignError(f"{where}: schema version {stated}; read are {readable}.x, as of PyTorch 2.13; save it again")


def _program_graph(program: Json, name: str, where: str, shared: Mapping[str, str]) -> ModelGraph:
    module = program["graph_module"]
    graph = module["graph"]
    tensors = {key: _tensor(meta) for key, meta in graph["tensor_values"].items()}
    inputs = []
    for spec in module["signature"]["input_specs"]:
        ((kind, entry),) = spec.items()
        argument = entry.get("arg") or {}
        tensor_name = argument.get("name") or argument.get("as_tensor", {}).get("name")
        if kind in WEIGHT_SPECS and tensor_name in tensors:
            tensors[tensor_name].kind = WEIGHT
            tensors[tensor_name].stored = shared.get(entry.get("parameter_name", ""), "")
        elif kind == "user_input" and tensor_name in tensors:
            tensors[tensor_name].kind = INPUT
            inputs.append(tensor_name)
    outputs = [name for output in graph["outputs"] for name in _tensor_names(output)]
    nodes = [_node(entry, place, where) for place, entry in enumerate(graph["nodes"])]
    source = f".pt2 of PyTorch {str(program.get('torch_version', 'of no version'))[:20]}"
    return ModelGraph(where, name, tensors, nodes, tuple(inputs), tuple(_user_outputs(module, outputs)), source)


def _user_outputs(module: Json, outputs: list[str]) -> list[str]:
    specs = [next(iter(spec)) for spec in module["signature"]["output_specs"]]
    if len(specs) != len(outputs):
        return outputs
    return [name for kind, name in zip(specs, outputs, strict=True) if kind == "user_output"]


def _tensor(meta: Json) -> GraphTensor:
    return GraphTensor(tuple(_size(size) for size in meta["sizes"]), integer=meta["dtype"] in INTEGER_TYPES)


def _size(size: Json) -> Size | None:
    if "as_int" in size:
        return Size.constant(_whole_size(size["as_int"]))
    return parse_size(str(size["as_expr"]["expr_str"]))


def _whole_size(size: Any) -> int:
    """A size of a tensor as a number.

    Raises:
        ValueError: it is none.
    """
    if type(size) is not int or not 0 <= size < MAX_SIZE:
        raise ValueError(f"a tensor with a size of {str(size)[:30]}")
    return size


def _node(entry: Json, place: int, where: str) -> GraphNode:
    target = str(entry["target"])
    inputs: list[str] = []
    numbers: list[int] = []
    for item in entry["inputs"]:
        argument = item["arg"]
        if "as_graph" in argument and "wrap" in target:
            raise DesignError(
                f"{where}: {target.rpartition('.')[2]} has a graph inside; export with torch.no_grad() around torch.export"
            )
        inputs += _tensor_names(argument)
        numbers += [argument["as_int"]] if isinstance(argument.get("as_int"), int) else []
    outputs = [name for output in entry["outputs"] for name in _tensor_names(output)]
    strings = [item["arg"]["as_string"] for item in entry["inputs"] if "as_string" in item["arg"]]
    attributes = {"numbers": tuple(numbers), "equation": strings[0] if strings else ""}
    return GraphNode(outputs[0] if outputs else f"node {place}", target, tuple(inputs), tuple(outputs), attributes)


def _tensor_names(argument: Json) -> Iterator[str]:
    """Names of the tensors of an argument, alone or in a list.

    Raises:
        TypeError: a name is no text.
    """
    tensors = [argument["as_tensor"]] if "as_tensor" in argument else list(argument.get("as_tensors", ()))
    for tensor in tensors:
        if not isinstance(tensor["name"], str):
            raise TypeError(f"a tensor named {str(tensor['name'])[:30]}")
        yield tensor["name"]
    for inner in argument.get("as_optional_tensors", ()):
        yield from _tensor_names(inner)
