"""Presets of `conf/`: what the head of a file says of it, and its values over those of the files that it starts from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dse.config.merge_defaults import merge_over
from dse.config.untrusted_files import SHIPPED_CONF
from dse.config.yaml_files import listed_defaults, read_document
from dse.reference.entries import Entry, Fact

PACKAGE = "# @package"
"""Beginning of the line by which Hydra puts a file at an address."""


def preset_names(group: str) -> list[str]:
    """Names of the presets of a group, sorted."""
    return sorted(path.stem for path in (SHIPPED_CONF / group).glob("*.yaml"))


def preset_entries(group: str, facts: Mapping[str, Mapping[str, Fact]] | None = None) -> list[Entry]:
    """Entries of the presets of a group, with their facts by name."""
    return [preset_entry(group, name, (facts or {}).get(name, {})) for name in preset_names(group)]


def preset_entry(group: str, name: str, facts: Mapping[str, Fact]) -> Entry:
    """Entry of a preset, by the head of its file."""
    text = preset_text(SHIPPED_CONF / group / f"{name}.yaml")
    return Entry(name, first_sentence(text), facts, text)


def preset_text(path: Path) -> str:
    """What the head of a file says: the comment that it begins with, as one line."""
    lines = []
    for line in path.read_text().splitlines():
        if line.startswith(PACKAGE):
            continue
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(lines)


def first_sentence(text: str) -> str:
    """The first sentence of a text, without its full stop.

    >>> first_sentence("One channel of HBM2, 2.0 Gb/s a pin. Cycles are of 1 ns.")
    'One channel of HBM2, 2.0 Gb/s a pin'
    """
    return text.partition(". ")[0].removesuffix(".")


def preset_values(group: str, name: str) -> dict[str, Any]:
    """Values of a preset over those of the presets that it starts from, without what a command line sets."""
    document = read_document(SHIPPED_CONF / group / f"{name}.yaml")
    values: dict[str, Any] = {}
    own_merged = False
    for place, other in listed_defaults(document):
        if not place and other == "_self_":
            merge_over(values, _own_values(document))
            own_merged = True
            continue
        below, _, package = place.partition("@")
        part = preset_values(below or group, str(other))
        for key in reversed(package.split(".") if package not in ("", "_here_") else []):
            part = {key: part}
        merge_over(values, part)
    if not own_merged:
        merge_over(values, _own_values(document))
    return values


def _own_values(document: Mapping[Any, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "defaults"}
