"""Models that ship, for tests that take each through every layout: one of each structure, or with ``MODELS=all`` every one.

Two models are of one structure where their files have the same fields, of each kind of layer too, with the same words in them,
and numbers that divide alike (`SHAPES`): they differ in size. What is read off a file alone is tested of every file.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[1] / "conf/model"
EVERY = sorted(path.stem for path in FOLDER.glob("*.yaml"))
NOTES = {"name", "source", "note", "order"}


SHAPES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "a KV head for each head": lambda fields: fields["kv_heads"] == fields["heads"],
    "an odd vocabulary": lambda fields: fields["vocab"] % 2 == 1,
    "heads that are the hidden size": lambda fields: fields["heads"] * fields["head_dim"] == fields["hidden"],
    "heads that eight divide": lambda fields: fields["heads"] % 8 == 0,
    "KV heads that four divide": lambda fields: fields["kv_heads"] % 4 == 0,
}
"""What numbers have to say of how a model is divided."""


def structure(name: str) -> frozenset[str]:
    """What a model has, sizes apart."""
    values = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return frozenset(_fields(values, "")) | {word for word, holds in SHAPES.items() if holds(values)}


def _fields(node: dict[str, Any], place: str) -> set[str]:
    fields: set[str] = set()
    for key, value in node.items():
        if key in NOTES:
            continue
        if key in ("kinds", "model"):  # names of kinds and of the model are free
            fields |= {field for inner in value.values() for field in _fields(inner, f"{place}{key}.")}
        elif isinstance(value, dict):
            fields |= _fields(value, f"{place}{key}.")
        else:
            fields.add(f"{place}{key}={value}" if isinstance(value, str | bool) or not value else f"{place}{key}")
    return fields


def picked() -> list[str]:
    """The first model of each structure; every one with ``MODELS=all``."""
    if os.environ.get("MODELS") == "all":
        return EVERY
    first: dict[frozenset[str], str] = {}
    for name in EVERY:
        first.setdefault(structure(name), name)
    return sorted(first.values())


MODELS = picked()
