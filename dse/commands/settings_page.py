"""Page of documentation on the settings of workloads and studies, from their declarations and presets.

python -m dse.commands.settings_page      # writes docs/settings.md in a checkout
"""

from collections.abc import Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any

import yaml

from dse.config.record_parser import USUAL_CHOICES, field_types, record_type
from dse.execution.study_settings import GROUPS
from dse.space.compatibility import case_type_of
from dse.space.workload_settings import SETTINGS, CombinationSettings

CONF = Path(__file__).parents[1] / "conf"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
USUAL_PRESET = {"search": "auto", "verify": "none", "workers": "auto"}
"""Preset of each group of a study's settings that is chosen where nobody names one (`conf/config.yaml`)."""

HEAD = """# Settings of workloads and studies

Written by `python -m dse.commands.settings_page` from the records that check these settings (`space/workload_settings.py`,
`dse/execution/study_settings.py`) and from the presets of `conf/`. A setting is overridden by its address, as in
`workload.batch=[1,32]` or `search.budget=300`; text with a unit is accepted wherever a unit stands. Chips, mappings and
models have their records in `space/`, with the same declarations.
"""


def settings_page() -> str:
    """The whole page, as Markdown."""
    parts = [HEAD, "## Workloads\n"]
    for path in sorted((CONF / "workload").glob("*.yaml")):
        spec = {key: value for key, value in read_preset(path).items() if key not in USUAL_CHOICES}
        kind = SETTINGS[case_type_of(spec)]
        parts.append(f"### `workload={path.stem}`\n\n{_first_line(kind)}\n\n{_table(kind, 'workload', spec)}")
    parts.append(f"### Every workload\n\n{_first_line(CombinationSettings)}\n\n{_table(CombinationSettings, 'workload', {})}")
    root = yaml.safe_load((CONF / "config.yaml").read_text())
    parts.append("## Studies\n")
    for group, kind in GROUPS.items():
        values = root.get(group) or read_preset(CONF / group / f"{USUAL_PRESET[group]}.yaml")
        parts.append(f"### `{group}`\n\n{_first_line(kind)}\n\n{_table(kind, group, values)}")
    return "\n".join(parts)


def read_preset(path: Path) -> dict[str, Any]:
    """Values of a preset over those of the presets of its folder that it starts from."""
    config = yaml.safe_load(path.read_text())
    bases = [read_preset(path.with_name(f"{name}.yaml")) for name in config.pop("defaults", []) if name != "_self_"]
    return {key: value for part in (*bases, config) for key, value in part.items()}


def _first_line(kind: type) -> str:
    return str(kind.__doc__).strip().splitlines()[0]


def _table(kind: type, address: str, values: Mapping[str, Any]) -> str:
    lines = ["| setting | default | values | meaning |", "| --- | --- | --- | --- |"]
    for name, spec, default in _rows(kind, address, values):
        cells = (f"`{name}`", f"`{_yaml_text(default)}`", values_text(spec), str(spec.metadata["doc"]))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _rows(kind: type, address: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Field[Any], Any]]:
    """Declared fields of a record and of those below it, each with its address and the value of its preset."""
    for spec in fields(kind):
        if "computed" in spec.metadata:
            continue
        own, value = f"{address}.{spec.name}", values.get(spec.name, spec.default)
        if (group := record_type(field_types(kind)[spec.name])) is not None and not spec.metadata:
            yield from _rows(group, own, value)
            continue
        yield own, spec, value
        inner = [*spec.metadata.get("parts", ()), spec.metadata.get("list")]
        for part in inner:
            if isinstance(part, type) and is_dataclass(part):
                yield from _rows(part, f"{own}{'' if 'parts' in spec.metadata else '.N'}", {})


def _yaml_text(value: Any) -> str:
    """A value as it is written on the command line; empty for one that must be given."""
    if type(value).__name__ == "_MISSING_TYPE":
        return "-"
    plain = [*value] if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True, width=inf).removesuffix("...\n").strip()


def values_text(spec: Field[Any]) -> str:
    """Values that a field may have: unit and range, or options.

    >>> from dse.execution.study_settings import StopSettings, VerifySettings
    >>> {field.name: values_text(field) for field in fields(StopSettings)}["growth"]
    'number above 0, below 1'
    >>> {field.name: values_text(field) for field in fields(VerifySettings)}["submesh"]
    'whole number from 0'
    """
    limits = spec.metadata
    others = [f"`{word}`" for word in limits.get("words", ())] + (["`null`"] if "absent" in limits else [])
    return ", or ".join([_plain_text(limits), *others])


def _plain_text(limits: Mapping[str, Any]) -> str:
    if "list" in limits:
        inner = limits["list"]
        each = "groups of fields" if isinstance(inner, type) else values_text(inner)
        return f"{'one or a list' if 'single' in limits else 'list'}: {each}"
    if "parts" in limits or "group" in limits:
        return "group of fields"
    if "flag" in limits:
        return "`true`, `false`"
    if "options" in limits:
        form = f", or {limits['form']}" if "form" in limits else ""
        return ", ".join(f"`{option}`" for option in limits["options"]) + form
    if "text" in limits:
        return str(limits["text"])
    several = ", or a list" if "several" in limits else ""
    return f"{_range_text(limits)}{several}"


def _range_text(limits: Mapping[str, Any]) -> str:
    """Unit and range of a number."""
    unit = "" if limits["unit"] == "1" else f" of {limits['unit']}" if "whole" in limits else f" in {limits['unit']}"
    low = limits["above"] if "above" in limits else limits["low"]
    start = "above" if limits.get("positive") or "above" in limits else "from"
    ends = [f"{start} {low:g}"] if isfinite(low) and abs(low) < 2**53 else []
    ends += [f"below {limits['below']:g}"] if "below" in limits else []
    ends += [f"to {limits['high']:g}"] if isfinite(limits.get("high", inf)) else []
    return f"{'whole number' if 'whole' in limits else 'number'}{unit}{' ' if ends else ''}{', '.join(ends)}"


if __name__ == "__main__":
    PAGE.write_text(settings_page())
