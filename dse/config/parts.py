"""Parts of a chip chosen by name, as ``technology@chip.technology=n3``, and those that its own file does not choose."""

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from dse.config.strangers import CONF


def parts_of(choices: Mapping[str, object]) -> dict[str, str]:
    """The parts of a chip among what is chosen by group: a name by group and place, as ``technology@chip.technology: n3``."""
    return {group: str(name) for group, name in choices.items() if re.search(r"@chip(\.|$)", group)}


def other_parts(choices: Mapping[str, object]) -> dict[str, str]:
    """Those that the file of the chip does not choose; all, where no such chip ships."""
    own = _own(str(choices.get("chip", "")))
    return {group: name for group, name in parts_of(choices).items() if own.get(group) != name}


@lru_cache(maxsize=256)
def _own(chip: str) -> Mapping[str, str]:
    """What the file of a chip that ships chooses, by group and place; the last one counts, as in Hydra."""
    import yaml

    path = CONF / "chip" / f"{chip}.yaml"
    if not re.fullmatch(r"\w+", chip) or not path.is_file():
        return MappingProxyType({})
    found: dict[str, str] = {}
    for entry in yaml.safe_load(path.read_text()).get("defaults", []):
        if isinstance(entry, str):
            found |= {} if entry == "_self_" else _own(entry)
            continue
        ((words, name),) = entry.items()
        group, place = words.removeprefix("override ").strip().lstrip("/").split("@")
        found[f"{group}@chip" if place == "_here_" else f"{group}@chip.{place}"] = name
    return MappingProxyType(found)
