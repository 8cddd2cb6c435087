"""Settings in an inference engine's file: vendors of chips, and defaults of `mapping.serving`.

Settings that are typed, or that a study's file has, come before these; those of a mapping's file come after.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dse.config.overrides import CommandLine
from dse.config.part_presets import find_parts_from_outside
from dse.config.record_parser import parse_value
from dse.config.renamed_addresses import rename_content
from dse.config.yaml_files import read_document
from dse.space.errors import DesignError
from dse.space.machines import MACHINES, POOL, POOLED, guess_machine

ENGINE = "inference_engine"

DEFAULTS, DEFAULTS_BY_MEMORY, DEFAULTS_BY_CHIP = "serving", "serving_by_memory", "serving_by_chip"
"""Settings of `mapping.serving` that an engine's file has, those for devices with at least some memory, and for presets."""

PER_DEVICE = ("max_batch_size", "max_batched_tokens")
"""Settings that an engine takes for each of its ranks: those of an instance of many dies stay the mapping's."""


CHIP_LEAF = "usable_ratio"
"""Leaf of main memory that inference engines alone read: designs without one do not have it."""


def settle_engine(config: Mapping[str, Any], typed: CommandLine) -> dict[str, Any]:
    """Groups of a configuration that its inference engine changes: mapping with one, chip without.

    Raises:
        DesignError: the engine does not run on chips of this vendor, or a setting needs an engine.
    """
    engine = config["mapping"].get(ENGINE)
    if isinstance(engine, Mapping):
        _refuse_other_vendor(engine, config)
        return {"mapping": _with_defaults(config, engine, typed)}
    address = f"chip.hbm.{CHIP_LEAF}"
    if any(word.lstrip("+~").partition("=")[0] in (address, f"space.{address}") for word in typed.overrides):
        raise DesignError(f"{address}: has no effect without an inference engine; set {ENGINE}=NAME, or leave it out")
    given = config.get("as_given")
    return {"chip": _without_driver_memory(config["chip"])} | (
        {"as_given": {**given, "chip": _without_driver_memory(given["chip"])}} if given else {}
    )


def _without_driver_memory(chip: dict[str, Any]) -> dict[str, Any]:
    """A chip without the ratio of main memory that drivers offer to inference engines."""
    memory = chip.get("hbm")
    if not isinstance(memory, Mapping) or CHIP_LEAF not in memory:
        return chip
    return {**chip, "hbm": {name: value for name, value in memory.items() if name != CHIP_LEAF}}


def _with_defaults(config: Mapping[str, Any], engine: Mapping[str, Any], typed: CommandLine) -> dict[str, Any]:
    """Mapping with the defaults of its inference engine, in place of those of the mapping's file."""
    mapping: dict[str, Any] = config["mapping"]
    kinds = (DEFAULTS, DEFAULTS_BY_MEMORY, DEFAULTS_BY_CHIP)
    defaults, by_memory, by_chip = (engine.get(name) or {} for name in kinds)
    mapping = {**mapping, ENGINE: {key: value for key, value in engine.items() if key not in kinds}}
    serving = mapping.get("serving")
    if not isinstance(serving, Mapping) or "instances" not in serving:  # a batch, or pipelines that no engine runs on
        return mapping
    memory = _device_memory(config["chip"])
    for least, further in sorted(
        ((parse_value(size, "B", ENGINE), own) for size, own in by_memory.items()), key=lambda row: row[0]
    ):
        defaults = {**defaults, **(further if memory >= least else {})}
    defaults = {**defaults, **by_chip.get(config["choices"].get("chip"), {})}
    many_dies = "ep" in (mapping.get("decode") or {})
    given = _given_settings(typed)
    taken = {
        name: value
        for name, value in defaults.items()
        if name not in given
        and not (many_dies and name in PER_DEVICE)
        and not (name == "prefix_cache" and _forgets(config, value))
    }
    return {**mapping, "serving": {**serving, **taken}}


def _refuse_other_vendor(engine: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Refuse an engine on a chip that is no shared-cache die, or whose vendor it does not know.

    A chip that states no vendor may run any.
    """
    chip, advice = config["chip"], f"choose another, or {ENGINE}=none"
    vendor, vendors = chip.get("vendor"), str(_plain_value(engine.get("vendors", ""))).split()
    name = config["choices"].get(ENGINE, _plain_value(engine.get("name")))
    which, machine = config["choices"].get("chip", "this chip"), guess_machine(part for part in chip if chip[part] is not None)
    if machine not in (POOL, POOLED):
        if "part@chip" in find_parts_from_outside(config["choices"]):  # which the chip is refused with
            return
        raise DesignError(
            f"{ENGINE}: {name} runs on shared-cache dies, and {which} is {MACHINES[machine].name}; remove {ENGINE}"
        )
    if vendor is not None and str(vendor) not in vendors:
        raise DesignError(f"{ENGINE}: {name} runs on chips of {', '.join(vendors)}, and {which} is of {vendor}; {advice}")


def _plain_value(leaf: Any) -> Any:
    """Value of a leaf that may be written with its source."""
    return leaf.get("value") if isinstance(leaf, Mapping) else leaf


def _device_memory(chip: Mapping[str, Any]) -> float:
    """Main memory of a device by its data sheet; 0 where it states none. [B]"""
    capacity = _plain_value((chip.get("hbm") or {}).get("capacity"))
    return parse_value(capacity, "B", "chip.hbm.capacity") if capacity is not None else 0.0


def _given_settings(typed: CommandLine) -> set[str]:
    """Settings of `mapping.serving` that were typed, or that the file of a study has."""
    given = {word.lstrip("+~").partition("=")[0].removeprefix("mapping.serving.") for word in typed.overrides}
    for place in typed.places:
        group = rename_content(read_document(Path(place.partition("://")[2]) / "study.yaml")).get("mapping")
        serving = group.get("serving") if isinstance(group, dict) else None
        given |= set(serving) if isinstance(serving, dict) else set()
    return given


def _forgets(config: Mapping[str, Any], store: Any) -> bool:
    """Whether prefixes cannot be kept in the pool of KV blocks, since a model does not keep all positions."""
    from dse.config.workloads import read_models
    from dse.space.parameter_counts import keeps_all_positions

    return store == "shared" and not all(map(keeps_all_positions, read_models(config["model"]).values()))
