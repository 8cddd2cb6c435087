"""Merge of the files that Hydra lists, as plain dictionaries, in half of the time of Hydra's merge.

Hydra composes whatever this merge does not support, and refuses what is wrong.
"""

import pickle
from typing import Any

Plain = dict[Any, Any]


class NeedsHydraError(Exception):
    """A merge that this module does not support and Hydra has to do."""


def merge_defaults(words: list[str]) -> tuple[Any, dict[str, Any]] | None:
    """Configuration and chosen presets of some overrides; None if Hydra has to compose it."""
    from hydra import version
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.defaults_list import create_defaults_list
    from hydra.core.default_element import GroupDefault, InputDefault
    from hydra.core.utils import setup_globals
    from hydra.errors import HydraException
    from hydra.plugins.config_source import ConfigResult
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from dse.config.hydra_sources import hydra_search_path, register_sources

    register_sources()
    version.setbase("1.3")
    setup_globals()
    try:
        loader = ConfigLoaderImpl(config_search_path=hydra_search_path("sketched"))
        parsed, files = loader._parse_overrides_and_create_caching_repo("config", words)
        logs: list[InputDefault] = [
            GroupDefault(group=f"{group}_logging", value="none") for group in ("job", "hydra")
        ]  # which our file overrides
        settings = ConfigResult("hydra", "", OmegaConf.create(), {"package": "hydra"}, logs)
        files.cache["config_path=hydra/config"] = settings  # in the place of Hydra's own, which are of no configuration
        listed = create_defaults_list(files, "config", parsed, prepend_hydra=True, skip_missing=False)
        if any(override.key_or_group != "hydra.searchpath" for override in listed.config_overrides):
            return None
        lower_names: Plain = {}
        for file in listed.defaults:
            if not (path := str(file.config_path)).startswith("hydra/"):
                merge_over(lower_names, _pack_values(files.load_config(path), file))
        config = _create_config(lower_names)
    except (HydraException, OmegaConfBaseException, NeedsHydraError):
        return None
    OmegaConf.set_struct(config, True)
    return config, {group: name for group, name in listed.overrides.known_choices.items() if not group.startswith("hydra/")}


def _pack_values(loaded: Any, file: Any) -> Plain:
    """The values of a file below the addresses of its package."""
    from omegaconf import OmegaConf
    from omegaconf._utils import split_key

    from dse.config.hydra_sources import ParsedConfig
    from dse.config.renamed_addresses import rename_content

    plain = isinstance(loaded, ParsedConfig)
    document: Any = pickle.loads(loaded.values) if plain else OmegaConf.to_container(loaded.config, resolve=False)
    if not isinstance(document, dict) or (not file.primary and "hydra" in document):
        raise NeedsHydraError
    document.pop("hydra", None)
    package = loaded.header["package"] if file.package is None else file.package
    for key in reversed(split_key(package) if package else []):
        document = {key: document}
    return dict(document) if plain else rename_content(document)


GROUPS: dict[bytes, bytes] = {}
"""Groups of values as OmegaConf has them, by what they say, both pickled: to make one takes four times as long as a copy."""

MAX_ENTRIES = 4096
"""Groups that are kept; the oldest goes."""


def _create_config(values: Plain) -> Any:
    """What OmegaConf makes of values."""
    from omegaconf import OmegaConf

    config: Any = OmegaConf.create({}, flags={"no_deepcopy_set_nodes": True})
    for key, value in values.items():
        if isinstance(value, dict):
            pickled = pickle.dumps(value)
            if pickled not in GROUPS:
                if len(GROUPS) >= MAX_ENTRIES:
                    GROUPS.pop(next(iter(GROUPS)))
                GROUPS[pickled] = pickle.dumps(OmegaConf.create(value))
            value = pickle.loads(GROUPS[pickled])
        config[key] = value
    config._set_flag("no_deepcopy_set_nodes", None)
    return config


def merge_over(below: Plain, above: Plain) -> None:
    """Put values over existing ones; a value that is still required, ``???``, replaces nothing.

    Raises:
        NotPlainError: a group or a list over what refers to another value, or one over the other.
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
