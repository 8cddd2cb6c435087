"""Former names of metrics and fidelities in overrides and composed configurations.

The tables are in `dse.space.former_words`. Overrides of objectives and constraints are renamed to what the composed files
have, before Hydra sees them. Values are renamed in what it has composed.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dse.space.errors import DesignError
from dse.space.former_words import (
    FIDELITY_SETTINGS,
    FORMER_METRICS,
    STORED_METRICS,
    current_metric,
    note_renamed,
    read_fidelity,
    read_metric,
    refuse_two_names,
    rename_metrics,
)

GROUPS = ("objectives", "constraints")
"""Settings whose fields are metrics."""

METRIC_OVERRIDE = re.compile(rf"([+~]*)({'|'.join(GROUPS)})(?:\.(\w+)|(?==\s*\{{))(.*)", re.DOTALL)
"""Signs, group, metric where one is set by itself, and the rest."""

FORMER_OPTIONS = {"apart": "disaggregated", "percentile": "slo_percentile"}
"""Present names of options of `dse capacity` by former ones."""

FORMER_CHOICES = {"ffn": {"apart": "disaggregated", "beside": "colocated"}, "by": {"dollars": "price"}}
"""By option of `dse capacity`, present words by former ones."""

KEY = re.compile(r"([{,]\s*)(\w+)(?=\s*:)")
"""A key of a group that an override sets as a whole."""


def may_use_former_metric(words: Sequence[str]) -> bool:
    """Whether an override of objectives or constraints has a renamed metric, by either name."""
    renamed = {*FORMER_METRICS, *STORED_METRICS}
    return any(renamed & set(re.findall(r"\w+", word)) for word in words if METRIC_OVERRIDE.fullmatch(word))


def rename_metric_overrides(words: Sequence[str], config: Mapping[str, Any]) -> tuple[str, ...]:
    """Overrides of objectives and constraints by the names that composed files have.

    A metric that the files lack has its present name.

    Args:
        words: overrides.
        config: composed without the values that they set.

    Raises:
        DesignError: two of them set one metric by two names.
    """
    renamed, typed = [], {group: list[str]() for group in GROUPS}
    for word in words:
        parts = METRIC_OVERRIDE.fullmatch(word)
        if parts is None:
            renamed.append(word)
            continue
        signs, group, name, rest = parts.groups()
        old_by_new = config.get(group)
        known = set(old_by_new) if isinstance(old_by_new, Mapping) else set()
        if name is None:
            typed[group] += [key for _, key in KEY.findall(rest)]
            renamed.append(f"{signs}{group}" + KEY.sub(lambda key, known=known: key[1] + _name(key[2], known), rest))
        else:
            typed[group].append(name)
            present = _name(name, known)
            signs = (
                "++" if signs == "+" and present != name and present in known else signs
            )  # by the other name it may be there
            renamed.append(f"{signs}{group}.{present}{rest}")
    for group, names in typed.items():
        refuse_two_names(names, "overrides" if names else group)
    return tuple(renamed)


def rename_config_words(config: Mapping[str, Any]) -> dict[str, Any]:
    """A composed configuration by present names of metrics and fidelities.

    Raises:
        DesignError: one metric is there by two names.
    """
    config_words = dict(config)
    for group in GROUPS:
        if isinstance(config_words.get(group), Mapping):
            config_words[group] = rename_metrics(config_words[group], group)
    for setting in FIDELITY_SETTINGS:
        group, _, field = setting.rpartition(".")
        present = config_words.get(group) if group else config_words
        if isinstance(present, Mapping) and isinstance(present.get(field), str):
            renamed = {**present, field: read_fidelity(present[field])}
            config_words = {**config_words, group: renamed} if group else renamed
    report = config_words.get("report")
    if isinstance(report, Mapping) and isinstance(report.get("lines"), list):
        config_words["report"] = {**report, "lines": [_line(line) for line in report["lines"]]}
    return config_words


def rename_query_words(words: Sequence[str]) -> tuple[str, ...]:
    """Words of `dse capacity` by the present names of its options and of what these may be.

    Raises:
        DesignError: one option is there by its former name and by its present one.

    >>> rename_query_words(["devices=4", "slo_percentile=95", "by=price", "workload.slo_percentile=95"])
    ('devices=4', 'slo_percentile=95', 'by=price', 'workload.slo_percentile=95')
    """
    renamed, typed = [], {word.partition("=")[0] for word in words}
    for word in words:
        key, mark, value = word.partition("=")
        option = FORMER_OPTIONS.get(key, key)
        if option != key and option in typed:
            raise DesignError(f"capacity: {key} and {option} are two names of one option; set one of them")
        chosen = FORMER_CHOICES.get(option, {}).get(value, value)
        if option != key:
            note_renamed(f"{key}=", f"{option}=")
        elif chosen != value:
            note_renamed(word, f"{option}={chosen}")
        renamed.append(f"{option}{mark}{chosen}")
    return tuple(renamed)


def _name(name: str, known: set[str]) -> str:
    """The name of a metric as the files have it, or the present one."""
    present = current_metric(name)
    if present != name:
        note_renamed(name, present)
    former = STORED_METRICS.get(present, present)
    return former if former in known and present not in known else present


def _line(line: Any) -> Any:
    """A picture of a report by the present name of its metric; what is none is refused later."""
    if not isinstance(line, Mapping) or not isinstance(line.get("y"), str):
        return line
    return {**line, "y": read_metric(line["y"])}
