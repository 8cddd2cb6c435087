"""Models from graphs: ONNX, saved programs of `torch.export`, or operators in YAML.

Blocks that are those of known models have the same record as a model of a family, so that all layouts divide them. Others are
lists of operators, which layouts of devices divide. Values of weights are never read.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dse.space.errors import DesignError

Entry = dict[str, Any]

ENDINGS = {
    ".onnx": "ONNX",
    ".pt2": "a program that torch.export saved",
    ".yaml": "operators in YAML",
    ".yml": "operators in YAML",
}
"""Files that are read, by the end of their names."""

ADDRESS = "model.from_graph"


def read_graph_entries(paths: Any, folder: Path, declared: Mapping[str, Any]) -> dict[str, Entry]:
    """Read the models of some graph files into the form of a configuration, named after their files.

    Args:
        paths: one path or a list; relative to here, or to `folder`.
        folder: of the study that asks.
        declared: what a graph does not say, as far as it is set: layers, vocab and max_position.

    Raises:
        DesignError: a file is missing, cut, of another kind or version, or holds a graph that is no model.
    """
    entries: dict[str, Entry] = {}
    for path in paths if isinstance(paths, list) else [paths]:
        if not isinstance(path, str) or not path:
            raise DesignError(f"{ADDRESS}: {path!r} is not a path; write {ADDRESS}=MODEL.onnx")
        entry = graph_fields(_find_file(path, folder), declared)
        key = base = re.sub(r"\W+", "_", entry["name"]).strip("_").lower() or "model"
        while key in entries:
            key = f"{base}_{len(entries) + 1}"
        entries[key] = entry
    if not entries:
        raise DesignError(f"{ADDRESS}: an empty list; write {ADDRESS}=MODEL.onnx")
    return entries


def graph_fields(path: Path, declared: Mapping[str, Any]) -> Entry:
    """Fields of the model in a graph file, as in `conf/model/*.yaml`.

    Raises:
        DesignError: naming the file and what is wrong with it.
    """
    where, ending = f"{ADDRESS}: {path}", path.suffix.lower()
    if ending not in ENDINGS:
        kinds = ", ".join(f"{end} ({text})" for end, text in ENDINGS.items() if end != ".yml")
        raise DesignError(f"{where}: no kind of graph ends so; valid: {kinds}")
    from dse.model_graphs.layers_of_graph import graph_model

    if ending == ".onnx":
        from dse.model_graphs.onnx_file import read_onnx as read
    elif ending == ".pt2":
        from dse.model_graphs.exported_program import read_exported_program as read
    else:
        from dse.model_graphs.paper_form import read_paper_form as read
    graph = read(path, where)
    graph.declared |= {key: value for key, value in declared.items() if value is not None}
    return graph_model(graph)


def _find_file(text: str, folder: Path) -> Path:
    given = Path(os.path.expanduser(text))
    for path in (given, folder / given):
        if path.is_file():
            return path
    raise DesignError(f"{ADDRESS}: no file {text!r} here or in {folder}; give an .onnx, .pt2 or .yaml file")
