"""Private parts of Hydra and OmegaConf behind functions of ours; no other module may use them.

The versions are Hydra 1.3 and OmegaConf 2.3. Public calls take many times as long for one command line as a merge of files
that are parsed once. That merge needs Hydra's defaults list and its way to set values, which have no public name. Nothing here
says what our files mean: sources of files are in `dse.config.hydra_sources`, the merge is in `dse.config.merge_defaults`, the
cache in `dse.config.compose_cache`.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.core_plugins.importlib_resources_config_source import ImportlibResourcesConfigSource
from hydra._internal.defaults_list import create_defaults_list
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import GroupDefault, InputDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from hydra.core.utils import setup_globals
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig, OmegaConf
from omegaconf._utils import get_yaml_loader, split_key

VERSION_BASE = "1.3"
"""Hydra's version whose defaults hold."""

ROOT_FILE = "config"
"""Name of the file that every configuration starts from."""

PACKAGE = "pkg://dse.conf"
"""Where that file is, by Hydra's own source."""


class PackageSource(ImportlibResourcesConfigSource):
    """Source of the files of a Python package; a class that extends it says how a file on disk is read."""

    def read_file(self, path: Path) -> ConfigResult:
        """A file as Hydra reads it."""
        return super()._read_config(path)

    def _read_config(self, res: Any) -> ConfigResult:
        return self.read_file(res) if isinstance(res, Path) else super()._read_config(res)  # the other is in an archive


class FolderSource(FileConfigSource):
    """Source of the files of a folder."""

    def file_path(self, config_path: str) -> Path:
        """Path of a file of the folder, by the name that Hydra has for it."""
        return Path(os.path.realpath(os.path.join(self.path, self._normalize_file_name(config_path))))


def read_header(text: str) -> dict[str, str | None]:
    """Settings in the first comments of a file: ``package`` from ``# @package NAME``, or None."""
    return ConfigSource._get_header_dict(text[:512])


def split_package(package: str | None) -> list[str]:
    """Names of an address, as the package of a file has them."""
    return list(split_key(package)) if package else []


@cache
def yaml_loader() -> Any:
    """OmegaConf's loader of YAML, by libyaml's parser where that is there: six times as fast."""
    usual: Any = get_yaml_loader()
    if not yaml.__with_libyaml__:
        return usual

    parser: Any = vars(yaml.cyaml)["CParser"]

    class Loader(parser, usual):  # type: ignore[misc]
        def __init__(self, stream: Any) -> None:
            parser.__init__(self, stream)
            yaml.constructor.SafeConstructor.__init__(self)
            yaml.resolver.Resolver.__init__(self)

    return Loader


@dataclass(frozen=True)
class ListedFile:
    """One file of a defaults list.

    Attributes:
        loaded: what the file says, as its source read it.
        package: address below which its values go; None for the top.
        primary: whether it is the root file, which may set how Hydra works.
    """

    loaded: ConfigResult
    package: str | None
    primary: bool


@dataclass(frozen=True)
class DefaultsList:
    """The files that some words choose, in the order of their merge.

    Attributes:
        files: without those of Hydra's own settings.
        choices: chosen presets by group, likewise.
        sets_values: whether a word sets a value, which no file says.
    """

    files: tuple[ListedFile, ...]
    choices: dict[str, Any]
    sets_values: bool


def list_defaults(words: list[str], scheme: str) -> DefaultsList:
    """Files that overrides choose, by Hydra's defaults lists, without a merge.

    Args:
        words: overrides.
        scheme: URL scheme of the source that reads files of packages.

    Raises:
        HydraException: a choice or a list of defaults is wrong.
    """
    version.setbase(VERSION_BASE)
    setup_globals()
    loader = ConfigLoaderImpl(config_search_path=_search_path(scheme))
    parsed, files = loader._parse_overrides_and_create_caching_repo(ROOT_FILE, words)
    logs: list[InputDefault] = [GroupDefault(group=f"{group}_logging", value="none") for group in ("job", "hydra")]
    settings = ConfigResult("hydra", "", OmegaConf.create(), {"package": "hydra"}, logs)  # our file overrides the logs
    files.cache["config_path=hydra/config"] = settings  # in the place of Hydra's own, which are of no configuration
    listed = create_defaults_list(files, ROOT_FILE, parsed, prepend_hydra=True, skip_missing=False)
    chosen: list[ListedFile] = []
    for file in listed.defaults:
        if (path := str(file.config_path)).startswith("hydra/"):
            continue
        loaded = files.load_config(path)
        assert loaded is not None  # the list was made of it
        package = loaded.header["package"] if file.package is None else file.package
        chosen.append(ListedFile(loaded, package, bool(file.primary)))
    choices = {group: name for group, name in listed.overrides.known_choices.items() if not group.startswith("hydra/")}
    others = (override.key_or_group != "hydra.searchpath" for override in listed.config_overrides)
    return DefaultsList(tuple(chosen), choices, any(others))


def set_values(overrides: Iterable[Override], config: DictConfig) -> None:
    """Set values of a composed configuration in place, as Hydra does for a command line.

    Raises:
        HydraException: an address that is not there, or a value that does not fit it.
    """
    ConfigLoaderImpl._apply_overrides_to_config(list(overrides), config)


def compose_by_hydra(words: list[str], scheme: str) -> DictConfig:
    """Configuration of overrides, with Hydra's own settings, by `hydra.compose`.

    A Hydra that runs already goes on afterwards. `hydra.initialize` would fail inside of a program of Hydra's, and has no
    other source for files of packages.

    Args:
        words: overrides.
        scheme: URL scheme of the source that reads files of packages.

    Raises:
        HydraException: what Hydra cannot compose.
    """
    version.setbase(VERSION_BASE)
    before = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        Hydra.create_main_hydra2("app", _search_path(scheme))
        return compose(ROOT_FILE, overrides=words, return_hydra_config=True)
    finally:
        GlobalHydra.instance().hydra = before


def override_text(value: Any) -> str:
    """A value in the syntax of overrides."""
    return str(Override._get_value_element_as_str(value))


def _search_path(scheme: str) -> ConfigSearchPath:
    """Search path with the shipped configuration and Hydra's own, read by the source of a scheme."""
    search_path = create_config_search_path(PACKAGE)
    for place in search_path.get_path():
        if place.path.startswith("pkg://"):
            place.path = f"{scheme}://{place.path.removeprefix('pkg://')}"
    return search_path
