"""Facts of settings by address: unit, values, default, and the machines and workloads that read it."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from dse.reference.entries import Entry, EntryFact
from dse.reference.presets import preset_names, read_preset
from dse.reference.settings import WORD, Setting, declared_settings, default_text, settings_by_address, values_text
from dse.reference.software import workload_name
from dse.space.compatibility import KINDS
from dse.space.machines import MACHINES
from dse.space.required_parts import Parts
from dse.space.software import SOFTWARE
from dse.space.workload_settings import SETTINGS, CombinationSettings
from dse.terminal.plain_names import setting_name

USUAL_PRESET = {"search": "auto", "verify": "none", "workers": "auto"}
"""Preset of each group of a study's settings that is chosen where nobody names one (`conf/config.yaml`)."""


REGISTERED = {
    *("allreduce", "collective", "dataflow", "gemm", "gemm_attention", "gemm_ffn", "gemv", "kv_placement", "policy"),
    "prefill_policy",
}
"""Settings whose options a registry has, which installed packages extend, and not their declarations."""


def knob_settings() -> Iterator[Setting]:
    """Settings of chips and mappings, which a study may search."""
    from dse.space.chip import Chip
    from dse.space.mapping import Mapping as Software

    yield from declared_settings(Chip, "chip")
    yield from declared_settings(Software, "mapping")


def workload_settings(name: str) -> list[Setting]:
    """Settings of a workload, with the values of its preset."""
    from dse.config.record_parser import USUAL_CHOICES
    from dse.space.compatibility import case_type_of

    spec = {key: value for key, value in read_preset("workload", name).values.items() if key not in USUAL_CHOICES}
    return list(declared_settings(SETTINGS[case_type_of(spec)], "workload", spec))


def combination_settings() -> list[Setting]:
    """Settings that every workload has."""
    return list(declared_settings(CombinationSettings, "workload"))


def study_settings() -> dict[str, list[Setting]]:
    """Settings of each group of a study, with the values of what is usual."""
    from dse.config.untrusted_files import SHIPPED_CONF
    from dse.config.yaml_files import read_document
    from dse.execution.study_settings import GROUPS

    root = read_document(SHIPPED_CONF / "config.yaml")
    values = {group: root.get(group) or read_preset(group, USUAL_PRESET[group]).values for group in GROUPS}
    return {group: list(declared_settings(record, group, values[group])) for group, record in GROUPS.items()}


def model_settings() -> list[Setting]:
    """Settings of a model; NAME is that of its preset."""
    from dse.space.model import Model

    return list(declared_settings(Model, "model.NAME"))


def knob_entries() -> list[Entry]:
    """Entries of the settings of chips and mappings."""
    return setting_entries(knob_settings())


def other_setting_entries() -> list[Entry]:
    """Entries of the settings of workloads, models and studies."""
    loads = [setting for name in preset_names("workload") for setting in workload_settings(name)]
    groups = [setting for group in study_settings().values() for setting in group]
    return setting_entries([*loads, *combination_settings(), *model_settings(), *groups])


def declared_entries(root: str) -> list[Entry]:
    """Entries of the settings of a chip or a mapping; one address has several where kinds of parts differ."""
    alike: dict[tuple[str, ...], list[Setting]] = {}
    for setting in knob_settings():
        limits = setting.spec.metadata
        if setting.address.startswith(f"{root}."):
            words = (setting.address, str(limits["doc"]), _values(setting), default_text(setting.default))
            alike.setdefault(words, []).append(setting)
    return [_setting_entry(words[0], several) for words, several in alike.items()]


def setting_entries(settings: Iterable[Setting]) -> list[Entry]:
    """Entries of settings, one an address, in their order."""
    return [_setting_entry(address, several) for address, several in settings_by_address(settings).items()]


def _setting_entry(address: str, several: list[Setting]) -> Entry:
    machines, workloads = _readers(address, several)
    facts = {
        "plain name": EntryFact(setting_name(address)),
        "unit": EntryFact(_joined(_unit(setting.spec.metadata) for setting in several)),
        "values": EntryFact(_joined(_values(setting) for setting in several)),
        "default": EntryFact(_joined(default_text(setting.default) for setting in several)),
        "part": EntryFact(_joined(filter(None, (setting.part for setting in several))) or None),
        "machines": EntryFact(", ".join(machines) or None),
        "workloads": EntryFact(", ".join(workloads) or None),
    }
    return Entry(address, _joined(str(setting.spec.metadata["doc"]) for setting in several), facts)


def _values(setting: Setting) -> str:
    """Values of a setting; of one whose options are those of a registry, how to list them."""
    name, text = setting.spec.name, values_text(setting.spec)
    return text.replace(WORD, f"dse list options {name}=") if name in REGISTERED else text.replace(WORD, "text")


def _unit(limits: Mapping[str, Any]) -> str:
    """Unit of a setting; a dash for text and for numbers without one."""
    unit = str(limits.get("unit", ""))
    return "-" if unit in ("", "1") else unit


def _joined(texts: Iterable[str]) -> str:
    return "; or ".join(dict.fromkeys(texts))


def _readers(address: str, several: list[Setting]) -> tuple[list[str], list[str]]:
    """Kinds of machines, and workloads, of which some read a setting of a chip or a mapping."""
    root, part = address.split(".")[:2]
    names = {part, "kernel"} if root == "mapping" else {part}
    machines, workloads = dict[str, None](), dict[str, None]()
    for (machine, case), kind in KINDS.items():
        wholes = [MACHINES[machine]] if root == "chip" else [SOFTWARE[name] for name in kind.software]
        if root in ("chip", "mapping") and any(_reads(whole, names, several) for whole in wholes):
            machines[MACHINES[machine].name.removeprefix("a ")] = None
            workloads |= dict.fromkeys(workload_name(case).split(", "))
    return list(machines), list(workloads)


def _reads(whole: Parts, names: set[str], several: list[Setting]) -> bool:
    """Whether a machine or software reads a part, of one of the kinds that declare a setting."""
    records = {setting.record for setting in several}
    for name in names:
        kind = whole.needs.get(name)
        if kind is not None and not records.isdisjoint(_records_below(kind)):
            return True
        if name in whole.may or (name in whole.needs and kind is None):
            return True
    return False


@cache
def _records_below(kind: type) -> frozenset[type]:
    """A record and the records of its parts."""
    return frozenset(setting.record for setting in declared_settings(kind, "part"))
