"""Presets of chip parts, as ``technology@chip.technology=n3``, that a chip's own file does not choose."""

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from dse.config.untrusted_files import SHIPPED_CONF
from dse.config.yaml_files import listed_defaults, read_document

PRESETS = {
    "MemorySystem": ("memory", "hbm3"),
    "ProcessNode": ("technology", "n5"),
    "DramDevices": ("dram", "hbm3"),
    "DieCrossings": ("die_link", "ucie_advanced"),
    "Economics": ("economics", "datacenter"),
}
"""Groups of files that say all of a part of a chip, by its kind, and one that is usual."""


def find_chosen_parts(choices: Mapping[str, object]) -> dict[str, str]:
    """Presets of chip parts among the choices, by group and place.

    As in ``technology@chip.technology: n3``.
    """
    return {group: str(name) for group, name in choices.items() if re.search(r"@chip(\.|$)", group)}


def find_parts_from_outside(choices: Mapping[str, object]) -> dict[str, str]:
    """Presets of parts that the file of the chip does not choose; all if no such chip ships."""
    own = _own_choices(str(choices.get("chip", "")))
    return {group: name for group, name in find_chosen_parts(choices).items() if own.get(group) != name}


@lru_cache(maxsize=256)
def _own_choices(chip: str) -> Mapping[str, str]:
    """What the file of a chip that ships chooses, by group and place; the last one counts, as in Hydra."""
    if not re.fullmatch(r"\w+", chip):
        return MappingProxyType({})
    presets: dict[str, str] = {}
    for key, name in listed_defaults(read_document(SHIPPED_CONF / "chip" / f"{chip}.yaml")):
        if not key:
            presets |= {} if name == "_self_" else _own_choices(name)
            continue
        group, place = key.split("@")
        presets[f"{group}@chip" if place == "_here_" else f"{group}@chip.{place}"] = name
    return MappingProxyType(presets)


def preset_overrides(kind: str, address: str) -> str:
    """Overrides that set a whole part of a chip at an address; empty string without a preset.

    >>> preset_overrides("MemorySystem", "chip.hbm.banks")
    '+memory@chip.hbm.banks=hbm3 sets all of them (or hbm2, hbm2_legacy, hbm2e, hbm3e, hbm4)'
    """
    if kind not in PRESETS or not address.startswith("chip."):
        return ""
    group, usual = PRESETS[kind]
    others = sorted(path.stem for path in (SHIPPED_CONF / group).glob("*.yaml") if path.stem != usual)
    return f"+{group}@{address}={usual} sets all of them (or {', '.join(others)})"


def find_causing_part(error: str, choices: Mapping[str, object]) -> str:
    """Chosen part preset that caused an error about a chip address; empty string if none did.

    The part sets the address, or makes the chip another machine, which does not read the address or has no such field. Of a
    value that a field cannot have, the preset is no cause.
    """
    if "no field" not in error and "does not read it" not in error:
        return ""
    address = (re.search(r"no field '(chip[\w.]*)'", error) or re.match(r"(chip[\w.]*):", error) or ("", ""))[1]
    for group, name in find_parts_from_outside(choices).items():
        folder, place = group.split("@")
        within = address.removeprefix(place).lstrip(".")
        from_chip = "no field" in error and _says_address("chip", str(choices.get("chip")), address.removeprefix("chip."))
        if folder == "part" and f"{address}.".startswith(f"{place}.") and (from_chip or _says_address("part", name, within)):
            return f"{group}={name} adds it; remove that preset, or choose a chip that supports it"
    made = find_parts_from_outside(choices).get("part@chip", "")
    if made and "does not read it" in error:  # what the chip's own file has
        return f"part@chip={made} changes the kind of chip; remove that preset, or choose a chip that supports it"
    return ""


def parts_with_address(address: str) -> list[str]:
    """Names of the shipped parts of a whole chip that set an address below ``chip``.

    >>> parts_with_address("chain.chips"), parts_with_address("clock")
    (['wafers_ethernet'], [])
    """
    names = sorted(path.stem for path in (SHIPPED_CONF / "part").glob("*.yaml"))
    return [name for name in names if _says_address("part", name, address)]


@lru_cache(maxsize=256)
def _says_address(group: str, preset: str, address: str) -> bool:
    """Whether the file of a preset, or one that it starts from, sets an address."""
    file = read_document(SHIPPED_CONF / group / f"{preset}.yaml")
    at: Any = file
    for name in filter(None, address.split(".")):
        at = at.get(name) if isinstance(at, dict) else None
    bases = (name for key, name in listed_defaults(file) if not key and name != "_self_")
    return at is not None or any(_says_address(group, base, address) for base in bases)
