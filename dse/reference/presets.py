"""Presets of `conf/`: what the head of a file says of it, and its values over those of the files that it starts from."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dse.config.merge_defaults import merge_over
from dse.config.untrusted_files import SHIPPED_CONF
from dse.config.yaml_files import read_document
from dse.reference.entries import Entry, Fact

PACKAGE = "# @package"
"""Beginning of the line by which Hydra puts a file at an address."""

OVERRIDE = "override "
"""Beginning of an entry of a defaults list that replaces one of the files below."""


class Preset(NamedTuple):
    """A preset over the presets that it starts from.

    Attributes:
        values: plain, as the files have them.
        choices: presets that it starts from, by group and package, as `technology@technology`.
    """

    values: dict[str, Any]
    choices: dict[str, str]


def preset_names(group: str) -> list[str]:
    """Names of the presets of a group, sorted."""
    return sorted(path.stem for path in (SHIPPED_CONF / group).glob("*.yaml"))


def preset_entry(group: str, name: str, facts: Mapping[str, Fact] | None = None) -> Entry:
    """Entry of a preset, by the head of its file."""
    text = preset_text(SHIPPED_CONF / group / f"{name}.yaml")
    return Entry(name, first_sentence(text), facts or {}, text)


def preset_text(path: Path) -> str:
    """What the head of a file says: the comment that it begins with, as one line."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
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


def read_preset(group: str, name: str, replaced: Mapping[str, str] | None = None) -> Preset:
    """A preset with all that it starts from; what only a command line says stays as it is written.

    Args:
        group: folder below `conf/`.
        name: of the preset.
        replaced: choices by group and package that files above make in the place of those of this one.
    """
    document = read_document(SHIPPED_CONF / group / f"{name}.yaml")
    entries = list(_listed(document))
    replaced = {place: other for place, other, is_override in entries if is_override} | dict(replaced or {})
    own = {key: value for key, value in document.items() if key != "defaults"}
    values: dict[str, Any] = {}
    choices: dict[str, str] = {}
    for place, other, is_override in [*entries, *([] if ("", "_self_", False) in entries else [("", "_self_", False)])]:
        if is_override:
            continue
        if not place and other == "_self_":
            merge_over(values, own)
            continue
        below, _, package = place.partition("@")
        chosen = replaced.get(place, other)
        part = read_preset(below or group, chosen, replaced)
        choices |= part.choices | ({place: chosen} if place else {})
        merge_over(values, _at_package(part.values, package))
    return Preset(values, choices)


def _listed(document: Mapping[Any, Any]) -> Iterator[tuple[str, str, bool]]:
    """Entries of a file's defaults list: group with package, name, and whether it replaces one of a file below."""
    for entry in document.get("defaults") or ():
        for place, name in entry.items() if isinstance(entry, Mapping) else [("", entry)]:
            is_override = str(place).startswith(OVERRIDE)
            yield str(place).removeprefix(OVERRIDE).removeprefix("/"), str(name), is_override


def _at_package(values: dict[str, Any], package: str) -> dict[str, Any]:
    """Values of a file below the address that a defaults list puts them at."""
    for key in reversed(package.split(".") if package not in ("", "_here_") else []):
        values = {key: values}
    return values
