"""Published number formats of models, in the place of a mapping's own.

A mapping says `published_formats: true` if it serves models as they are published. Its own formats then count only for models
in 16 bits, or for several models in different formats. Formats that a user, a study's file or a knob sets stay.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from dse.config.renamed_addresses import overridden_leaves
from dse.config.unread_settings import group_in_study_file
from dse.space.compatibility import case_type_of
from dse.space.mapping import FormatPlan
from dse.space.number_formats import FORMATS, FormatRates, formats_of_tensor, relative_rate
from dse.space.workload import BatchCase, ServingLoad

FLAG = "published_formats"
"""Of a mapping: whether models are served as they are published. Of a model: its published formats, by tensor."""

PRECISION = "mapping.precision"

WIDE = "bf16"

OF_WEIGHTS = ("weights", "experts", "attention", "embedding", "head")
"""Formats that one who sets that of weights has decided on."""

TENSORS = tuple(spec.name for spec in fields(FormatPlan))


def with_published_formats(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Configuration of one chip with the published formats of its models, if its mapping serves these.

    Args:
        config: of one chip.
        folder: of its study, whose file may set formats.
    """
    settings, workload = _group(config, "mapping"), _group(config, "workload")
    if FLAG not in settings:
        return config
    rest = {name: value for name, value in settings.items() if name != FLAG}
    own, formats = _group(rest, "precision"), common_formats(config.get("model"))
    runs_models = bool(workload) and case_type_of(workload) in (BatchCase, ServingLoad)
    own = own if {str(own.get(name)) for name in ("weights", "activations")} <= {*FORMATS} else {}
    if settings[FLAG] is not True or not (formats and runs_models and own) or config.get("precision"):
        return {**config, "mapping": rest}
    rates = _group(_group(_group(config, "chip"), "core"), "rates")
    served = _without_given(_with_activations(_all_weights(formats, own), rates), _given_formats(config, folder))
    return {**config, "mapping": {**rest, "precision": {**own, **served}}}


def _group(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A group of fields of a configuration; empty where there is none."""
    value = config.get(name)
    return value if isinstance(value, dict) else {}


def common_formats(models: Any) -> dict[str, str]:
    """The formats that all models of a configuration are published in; none where they differ."""
    named = models.values() if isinstance(models, Mapping) else ()
    entries = [entry.get(FLAG) or {} for entry in named if isinstance(entry, Mapping)]
    return dict(entries[0]) if entries and all(entry == entries[0] for entry in entries) else {}


def published_text(formats: Mapping[str, str]) -> str:
    """Published formats in words, that of weights first.

    >>> published_text({"weights": "fp8", "kv": "fp8"}), published_text({"experts": "mxfp4"})
    ('fp8, kv fp8', 'experts mxfp4')
    """
    return ", ".join(word if name == "weights" else f"{name} {word}" for name, word in formats.items())


def activation_format(weights: str, rates: FormatRates | None) -> str | None:
    """Format of activations for weights of fewer than 16 bits, or None if engines do not multiply these.

    >>> activation_format("fp8_128x128", None), activation_format("fp8", FormatRates(int8=2.0)), activation_format("fp16", None)
    ('fp8_1x128', None, None)
    """
    number_format = FORMATS[weights]
    if number_format.bits >= FORMATS[WIDE].bits or relative_rate(weights, rates) is None:
        return None
    fit = formats_of_tensor("activations")
    alike = (name for name in fit if (FORMATS[name].engine, FORMATS[name].block) == (number_format.engine, number_format.block))
    return weights if weights in fit else next(alike, None)


def _all_weights(formats: Mapping[str, str], own: Mapping[str, Any]) -> dict[str, str]:
    """Published formats with those of 16 bits that a file leaves out beside formats of experts, or of caches, alone."""
    narrow = {name for name in ("weights", "activations") if FORMATS[str(own[name])].bits < FORMATS[WIDE].bits}
    return {**({} if "weights" in formats else dict.fromkeys(sorted(narrow), WIDE)), **formats}


def _with_activations(formats: Mapping[str, str], rates: Mapping[str, Any]) -> dict[str, str]:
    """Published formats with that of activations, where all weights have one that the chip's engines multiply."""
    multiplied = FormatRates(**{name: 1.0 for name, rate in rates.items() if rate is not None}) if rates else None
    activations = activation_format(formats["weights"], multiplied) if "weights" in formats else None
    return {**formats, "activations": activations} if activations else dict(formats)


def _given_formats(config: Mapping[str, Any], folder: Path) -> set[str]:
    """Tensors whose format an override, the file of a study or a knob sets."""
    leaves = [f"{PRECISION}.{name}" for name in TENSORS]
    stated = group_in_study_file(config, folder, "mapping").get("precision")
    typed = overridden_leaves(config.get("overrides", ()), leaves)
    moved = (address for address in config.get("space", ()) if str(address).startswith(PRECISION))
    return {address.removeprefix(f"{PRECISION}.") for address in (*typed, *moved)} | set(stated or ())


def _without_given(formats: Mapping[str, str], given: set[str]) -> dict[str, str]:
    """Published formats without those that somebody sets; with weights go those of all weights, and activations."""
    taken = given | ({*OF_WEIGHTS, "activations"} if "weights" in given else set())
    return {name: word for name, word in formats.items() if name not in taken}
