"""Cache of composed configurations: one per choice of presets, copied before values are set.

Composing files takes far longer than setting values, and command lines of a study, a table or a test choose the same presets
again and again. Lines that name user folders are composed every time: files come and go there.
"""

import pickle
from pathlib import Path
from typing import Any

from dse.config.merge_defaults import merge_defaults
from dse.config.overrides import CommandLine
from dse.config.untrusted_files import SHIPPED_CONF, SHIPPED_STUDIES

KEPT: dict[tuple[str, ...], tuple[bytes, dict[Path, tuple[int, int]]]] = {}
"""Configurations by the words that choose, with the state of the files that they are of."""

MAX_ENTRIES = 512
"""Configurations that are kept, of some 55 kB each; the oldest goes."""


def compose_cached(typed: CommandLine) -> tuple[Any, dict[str, Any]]:
    """Configuration of a command line, and its chosen presets by group.

    Raises:
        HydraException: what Hydra cannot compose.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    from dse.config.hydra_internals import set_values

    places = [Path(place.partition("://")[2]).resolve() for place in typed.places]
    if typed.trust or typed.sets_hydra:
        return _by_hydra(typed.words)
    parsed = OverridesParser.create().parse_overrides(typed.words)
    if any(override.is_sweep_override() for override in parsed):
        return _by_hydra(typed.words)  # which says why not
    values = [override for override in parsed[1:] if not _chooses_group(override, [SHIPPED_CONF, *places])]
    words = tuple(str(override.input_line) for override in parsed if override not in values)
    if all(place.is_relative_to(SHIPPED_STUDIES) for place in places):
        config, choices = _compose_choices(words)
    elif defaults := merge_defaults(list(words)):
        config, choices = defaults
    else:
        return _by_hydra(typed.words)
    set_values(values, config)
    return config, choices


def _chooses_group(override: Any, places: list[Path]) -> bool:
    """Whether an override chooses a file of a group in one of some places, as Hydra tells it."""
    return not isinstance(override.value(), dict) and any((place / override.key_or_group).is_dir() for place in places)


def _compose_choices(words: tuple[str, ...]) -> tuple[Any, dict[str, Any]]:
    """What some words choose, composed where nobody asked before or a file has changed."""
    from dse.config.hydra_sources import READ
    from dse.config.yaml_files import file_state

    known = KEPT.get(words)
    if known is None or any(file_state(path) != then for path, then in known[1].items()):
        READ.clear()
        choice = merge_defaults(list(words)) or _by_hydra(list(words))
        if len(KEPT) >= MAX_ENTRIES:
            KEPT.pop(next(iter(KEPT)))
        KEPT[words] = pickle.dumps(choice), dict(READ)
        return choice
    copy: tuple[Any, dict[str, Any]] = pickle.loads(known[0])
    return copy


def _by_hydra(words: list[str]) -> tuple[Any, dict[str, Any]]:
    """What `hydra.compose` makes of some words."""
    from omegaconf import OmegaConf, open_dict

    from dse.config.hydra_internals import compose_by_hydra
    from dse.config.hydra_sources import ShippedConfigSource, register_sources

    register_sources()
    config = compose_by_hydra(words, ShippedConfigSource.scheme())
    choices: Any = OmegaConf.to_container(config.hydra.runtime.choices)
    with open_dict(config):
        del config["hydra"]
    return config, choices
