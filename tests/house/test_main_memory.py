"""Main memory has one room: whoever reads it asks `space/main_memory.py`, whatever part of a chip states it."""

import ast

import pytest

from dse.space.chip import Chip
from dse.space.fields import fields
from dse.space.main_memory import MEMORY_KINDS, MEMORY_PARTS, TileMemory
from tests.house.sources import SOURCES, parsed, place

ROOM = "space/main_memory.py"

DEVICE_PARTS = ("dram",)
"""Parts of a chip that state devices of main memory."""

OTHER_RECORDS = {"constants", "held", "self"}
"""Names of records that have a field of the same name: library constants, memory in use, and parts of a time."""

MOST_READERS = 1
"""Sources besides the room that read such a part: where a part that has no effect is refused."""

CHANGED_LEAVES = {"channels", "channel_bandwidth", "contended_efficiency", "capacity"}
"""Leaves of main memory of tiles that submeshes, caches and tuning replace or leave out by name."""


def readers(parts: tuple[str, ...]) -> dict[str, list[str]]:
    """Expressions that read one of some parts of a chip, by source; `chip.py` and the room left out."""
    found = {
        place(path): [
            ast.unparse(node)
            for node in ast.walk(parsed(path))
            if isinstance(node, ast.Attribute) and node.attr in parts and last_name(node.value) not in OTHER_RECORDS
        ]
        for path in SOURCES
        if place(path) not in (ROOM, "space/chip.py")
    }
    return {source: expressions for source, expressions in found.items() if expressions}


def last_name(node: ast.AST) -> str:
    """Last name of an expression, as `held` of ``phase.held``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_main_memory_is_read_in_one_room() -> None:
    assert readers(tuple(part for part in MEMORY_PARTS if part != "memory")) == {}


def test_devices_of_main_memory_are_read_in_one_room() -> None:
    found = readers(DEVICE_PARTS)
    assert len(found) <= MOST_READERS, found


def test_records_of_kinds_are_named_where_machines_are_made() -> None:
    """Nothing asks of what kind main memory is."""
    names = {record.__name__ for record in MEMORY_KINDS if record.__name__ != "MemorySystem"}
    users = {
        place(path)
        for path in SOURCES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Name | ast.alias) and (node.id if isinstance(node, ast.Name) else node.name) in names
    }
    assert users <= {ROOM, "space/chip.py", "space/machines.py"}


@pytest.mark.parametrize("record", MEMORY_KINDS, ids=lambda record: record.__name__)
def test_a_kind_is_of_a_part_of_a_chip(record: type) -> None:
    kinds = next(spec.metadata["parts"] for spec in fields(Chip) if spec.name == MEMORY_KINDS[record].part)
    assert record in kinds


@pytest.mark.parametrize(
    "record",
    [record for record, kind in MEMORY_KINDS.items() if record is TileMemory or TileMemory in kind.stands_for.values()],
    ids=lambda record: record.__name__,
)
def test_a_kind_of_tiles_has_leaves_that_others_change(record: type) -> None:
    assert {spec.name for spec in fields(record)} >= CHANGED_LEAVES
