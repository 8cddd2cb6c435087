"""Merge of the files that Hydra lists, as plain dictionaries, in half of the time of Hydra's merge.

Hydra composes whatever this merge does not support, and refuses what is wrong.
"""

import pickle
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dse.config.hydra_internals import ListedFile

Plain = dict[Any, Any]


class NeedsHydraError(Exception):
    """A merge that this module does not support and Hydra has to do."""


def merge_defaults(words: list[str]) -> tuple[Any, dict[str, Any]] | None:
    """Configuration and chosen presets of some overrides; None if Hydra has to compose it."""
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from dse.config.hydra_internals import list_defaults
    from dse.config.hydra_sources import ParsedConfigSource, register_sources

    register_sources()
    try:
        listed = list_defaults(words, ParsedConfigSource.scheme())
        if listed.sets_values:
            return None
        lower_names: Plain = {}
        for file in listed.files:
            merge_over(lower_names, _pack_values(file))
        config = _create_config(lower_names)
    except (HydraException, OmegaConfBaseException, NeedsHydraError):
        return None
    OmegaConf.set_struct(config, True)
    return config, listed.choices


def _pack_values(file: "ListedFile") -> Plain:
    """The values of a file below the addresses of its package."""
    from omegaconf import OmegaConf

    from dse.config.hydra_internals import split_package
    from dse.config.hydra_sources import ParsedConfig
    from dse.config.renamed_addresses import rename_content

    loaded: Any = file.loaded
    plain = isinstance(loaded, ParsedConfig)
    document: Any = pickle.loads(loaded.values) if plain else OmegaConf.to_container(loaded.config, resolve=False)
    if not isinstance(document, dict) or (not file.primary and "hydra" in document):
        raise NeedsHydraError
    document.pop("hydra", None)
    for key in reversed(split_package(file.package)):
        document = {key: document}
    return dict(document) if plain else rename_content(document)


GROUPS: dict[bytes, bytes] = {}
"""Groups of values as OmegaConf has them, by what they say, both pickled: to make one takes four times as long as a copy."""

MAX_ENTRIES = 4096
"""Groups that are kept; the oldest goes."""


def _create_config(values: Plain) -> Any:
    """What OmegaConf makes of values."""
    from omegaconf import OmegaConf, flag_override

    config: Any = OmegaConf.create({})
    with flag_override(config, "no_deepcopy_set_nodes", True):
        for key, value in values.items():
            if isinstance(value, dict):
                pickled = pickle.dumps(value)
                if pickled not in GROUPS:
                    if len(GROUPS) >= MAX_ENTRIES:
                        GROUPS.pop(next(iter(GROUPS)))
                    GROUPS[pickled] = pickle.dumps(OmegaConf.create(value))
                value = pickle.loads(GROUPS[pickled])
            config[key] = value
    return config


def merge_over(below: Plain, above: Plain) -> None:
    """Put values over existing ones; a value that is still required, ``???``, replaces nothing.

    Raises:
        NeedsHydraError: a group or a list over what refers to another value, or one over the other.
    """
    for key, value in above.items():
        old = below.get(key)
        missing, several = value == "???", isinstance(value, dict | list)
        if isinstance(value, dict) and isinstance(old, dict):
            merge_over(old, value)
        elif ((missing or several) and isinstance(old, str) and "${" in old) or (
            several and isinstance(old, dict | list) and type(value) is not type(old)
        ):
            raise NeedsHydraError
        elif key not in below or not missing:
            below[key] = value
