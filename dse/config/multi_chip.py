"""Several chips in one configuration: each composed as it would be alone, under its name."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from dse.config.overrides import CommandLine
from dse.config.record_parser import parse_setting
from dse.config.yaml_files import read_document
from dse.space.errors import DesignError, suggest_nearest
from dse.space.fields import list_field, text_field
from dse.space.mapping import FormatPlan

SETTINGS = ("chips", "mappings", "precision", "formats")
"""What a study says of its chips."""

GROUPS = ("chip", "mapping", "choices", "as_given", "pools")
"""What is of each chip in a configuration; the rest is of all."""


def compose_chips(line: CommandLine, compose_one: Callable[[CommandLine], dict[str, Any]]) -> dict[str, Any]:
    """Configuration of a command line; with `chips`, the groups of each chip are under ``chips``.

    Args:
        line: what was typed.
        compose_one: composes a line that names one chip.

    Raises:
        DesignError: a list that is none, or a setting that nothing reads.
    """
    first = compose_one(replace(line, overrides=_shared_settings(line)) if _mentions_chips(line) else line)
    names = _chip_names(first)
    if not names:
        return _single_chip_config(compose_one(line) if _mentions_chips(line) else first)
    for group, instead in (("chip", "name it in chips=[...]"), ("chips", "")):
        if instead and any(override.startswith(f"{group}=") for override in line.overrides):
            raise DesignError(f"{group}: the study is of several chips, {', '.join(names)}; {instead}")
    mappings = _mapping_names(_mappings_of_names(first.get("mappings"), names, line), names)
    configs = {}
    for name in names:
        own = [f"chip={name}", *([f"mapping={mappings[name]}"] if name in mappings else [])]
        try:
            configs[name] = _with_formats(compose_one(replace(line, overrides=(*line.overrides, *own))))
        except DesignError as error:
            own = [chip for place in line.places for chip in list_study_chips(Path(place.partition("://")[2]))]
            more = f"; the study is of {', '.join(own)}" if own and name not in own else ""
            raise DesignError(f"chips: {name}: {error}{more}") from None
    head = next(iter(configs.values()))
    return head | {
        "chips": {name: {group: config[group] for group in GROUPS if group in config} for name, config in configs.items()}
    }


def list_study_chips(folder: Path) -> list[str]:
    """Chips that the study definition in a folder lists; none for a study of one chip."""
    names = read_document(folder / "study.yaml").get("chips")
    return [str(name) for name in names] if isinstance(names, list) else []


def restrict_to_chips(config: Mapping[str, Any], own: Sequence[str]) -> dict[str, Any]:
    """Configuration of a study for some of its chips, without report points of the other chips.

    Args:
        config: with `chips` by name.
        own: the chips that its definition lists, of the first of which points are that say none.
    """
    points = config["report"]["points"]
    if not isinstance(points, Mapping):
        return dict(config)
    kept = {
        name: point
        for name, point in points.items()
        if not isinstance(point, Mapping) or (chip := point.get("chip", own[0])) in config["chips"] or chip not in own
    }
    return {**config, "report": {**config["report"], "points": kept}}


def _mappings_of_names(mappings: Any, names: list[str], line: CommandLine) -> Any:
    """The mappings that a study says, without those of chips that were typed away."""
    fewer = any(word.lstrip("+").startswith("chips=") for word in line.overrides)
    names_mappings = any(word.lstrip("+~").startswith("mappings") for word in line.overrides)
    if not fewer or names_mappings or not isinstance(mappings, Mapping):
        return mappings
    return {chip: mapping for chip, mapping in mappings.items() if chip in names}


def _single_chip_config(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration of one chip, which says nothing of several."""
    if config.get("mappings"):
        raise DesignError("mappings: has no effect without chips=[...]; for one chip set mapping=NAME")
    if config.get("formats", "equal") != "equal":
        raise DesignError("formats: has no effect without chips=[...]; leave it out")
    return _with_formats(config)


def _mentions_chips(line: CommandLine) -> bool:
    """Whether a line, or the study that it names, has a field `chips`."""
    if any(override.lstrip("+").startswith("chips=") for override in line.overrides):
        return True
    return any("chips" in read_document(Path(place.partition("://")[2]) / "study.yaml") for place in line.places)


def _shared_settings(line: CommandLine) -> tuple[str, ...]:
    """The overrides of a line without values of chips and mappings, which the chip that stands for all may not have."""
    kept = {*line.choices.overrides}
    return tuple(
        word
        for word in line.overrides
        if word in kept or word.lstrip("+").partition("=")[0] in SETTINGS or word.lstrip("+~").startswith("pools.")
    )


CHIPS = list_field(
    "chips of one study",
    text_field("a chip", "the name of a chip", pattern=r"[\w-]+"),
    "chips, as in chips=[a100,wse2]",
    absent=True,
)


def _chip_names(config: Mapping[str, Any]) -> list[str]:
    chips = parse_setting(config.get("chips"), CHIPS, "chips") or ()
    if len(set(chips)) < len(chips):
        raise DesignError(f"chips: a name is listed twice in {', '.join(chips)}")
    return [*chips]


def _mapping_names(mappings: Any, names: list[str]) -> dict[str, str]:
    if mappings is None:
        return {}
    if not isinstance(mappings, Mapping) or not all(isinstance(name, str) for name in mappings.values()):
        raise DesignError(f"mappings: {mappings!r} is not a mapping for some chips, as in mappings={{a100: sglang}}")
    for chip, mapping in mappings.items():
        if chip not in names:
            raise DesignError(f"mappings: no chip {chip!r} in this study; {suggest_nearest(str(chip), names)}")
        if not re.fullmatch(r"[\w-]+", mapping):
            raise DesignError(f"mappings.{chip}: {mapping!r} is not the name of a mapping")
    return dict(mappings)


def _with_formats(config: dict[str, Any]) -> dict[str, Any]:
    """With the number formats that `precision` says in the place of the mapping's own."""
    formats = config.get("precision")
    if formats is None:
        return config
    mapping = config["mapping"]
    own = mapping.get("precision")
    if not isinstance(formats, Mapping):
        raise DesignError(f"precision: {formats!r} is not formats by name, as in precision={{weights: fp16, kv: fp16}}")
    if not isinstance(own, Mapping):
        raise DesignError("precision: this mapping has no number formats of its own; leave it out")
    known = [spec.name for spec in fields(FormatPlan)]
    for name in formats:
        if name not in known:
            raise DesignError(f"precision: no field 'precision.{name}'; {suggest_nearest(str(name), known)}")
    return config | {"mapping": mapping | {"precision": {**own, **formats}}}
