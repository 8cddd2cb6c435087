"""Facts of what is asked: workloads with their settings, spaces with their knobs, and studies."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dse.config.overrides import find_study_paths
from dse.config.untrusted_files import SHIPPED_CONF
from dse.config.yaml_files import listed_defaults, read_document
from dse.reference.entries import Entry, Fact
from dse.reference.presets import first_sentence, preset_entry, preset_names, preset_text, read_preset


def workload_entries() -> list[Entry]:
    """Entries of all workloads, with the kind of machine that runs them."""
    return [preset_entry("workload", name, {"usual mapping": _text(name, "mapping")}) for name in preset_names("workload")]


def _text(workload: str, key: str) -> Fact:
    value = read_preset("workload", workload).values.get(key)
    return Fact(None if value is None else str(value))


def day_entries() -> list[Entry]:
    """Entries of the days whose rates ship."""
    paths = sorted((SHIPPED_CONF / "day").glob("*.csv"))
    return [Entry(path.stem, first_sentence(preset_text(path)), {}, preset_text(path)) for path in paths]


def space_entries() -> list[Entry]:
    """Entries of all spaces, with their knobs."""
    return [preset_entry("space", name, _space_facts(read_preset("space", name).values)) for name in preset_names("space")]


def _space_facts(values: Mapping[str, Any]) -> dict[str, Fact]:
    knobs = list(_knobs(values))
    return {"knobs": Fact(len(knobs), "1"), "addresses": Fact(", ".join(knobs) or None)}


def _knobs(values: Any, address: str = "") -> Iterator[str]:
    """Addresses of what a space moves or ties."""
    for key, value in values.items() if isinstance(values, Mapping) else ():
        own = f"{address}.{key}".lstrip(".")
        if isinstance(value, Mapping) and not {"choice", "values", "tied", "low"} & value.keys():
            yield from _knobs(value, own)
        elif value is not None:
            yield own


def study_entries() -> list[Entry]:
    """Entries of the studies that ship or stand in ./studies."""
    return [_study_entry(name, path) for name, path in find_study_paths().items()]


def _study_entry(name: str, path: Path) -> Entry:
    study = read_document(path)
    chosen = {group.rpartition("/")[2]: choice for group, choice in listed_defaults(study) if group}
    chips = study.get("chips") or [chosen.get("chip", "npu_dse")]
    facts = {
        "chip": Fact(", ".join(map(str, chips))),
        "workload": Fact(_names(chosen.get("workload", "static"))),
        "model": Fact(_names(chosen.get("model", "llama3_8b"))),
        "space": Fact(_names(chosen.get("space", "empty"))),
        "fidelity": Fact(str(study.get("fidelity", "analytical"))),
        "objectives": Fact(", ".join(study.get("objectives") or ()) or None),
        "constraints": Fact(", ".join(f"{key} {bound}" for key, bound in (study.get("constraints") or {}).items()) or None),
    }
    return Entry(name, str(study.get("question") or ""), facts, preset_text(path))


def _names(choice: Any) -> str:
    return ", ".join(map(str, choice)) if isinstance(choice, list) else str(choice)
