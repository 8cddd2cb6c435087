"""Facts of settings: unit, values, default and readers of each address of a chip, a mapping, a workload, a model or a study."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dse.reference.entries import Entry, Fact
from dse.reference.presets import preset_names, read_preset
from dse.reference.settings import Setting, declared_settings, default_text, settings_by_address, values_text
from dse.space.machines import MACHINES
from dse.space.workload_settings import SETTINGS, CombinationSettings

USUAL_PRESET = {"search": "auto", "verify": "none", "workers": "auto"}
"""Preset of each group of a study's settings that is chosen where nobody names one (`conf/config.yaml`)."""


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


def setting_entries(settings: Iterable[Setting]) -> list[Entry]:
    """Entries of settings, one an address, in their order."""
    return [_setting_entry(address, several) for address, several in settings_by_address(settings).items()]


def _setting_entry(address: str, several: list[Setting]) -> Entry:
    facts = {
        "unit": Fact(_joined(_unit(setting.spec.metadata) for setting in several)),
        "values": Fact(_joined(values_text(setting.spec) for setting in several)),
        "default": Fact(_joined(default_text(setting.default) for setting in several)),
        "read by": Fact(_joined(_readers(address, several)) or None),
    }
    return Entry(address, _joined(str(setting.spec.metadata["doc"]) for setting in several), facts)


def _unit(limits: Mapping[str, Any]) -> str:
    """Unit of a setting; a dash for text and for numbers without one."""
    unit = str(limits.get("unit", ""))
    return "-" if unit in ("", "1") else unit


def _joined(texts: Iterable[str]) -> str:
    return "; or ".join(dict.fromkeys(texts))


def _readers(address: str, several: Iterable[Setting]) -> Iterator[str]:
    """Kinds of machines that read a setting of a chip; records that declare another one."""
    part = address.split(".")[1]
    if address.startswith("chip."):
        for machine in MACHINES.values():
            kind = machine.needs.get(part)
            if part in machine.may or (part in machine.needs and (kind is None or any(_is_below(s, kind) for s in several))):
                yield machine.name.removeprefix("a ")


def _is_below(setting: Setting, kind: type) -> bool:
    """Whether a record or one of its parts declares a setting."""
    return any(other.record is setting.record for other in declared_settings(kind, "part"))
