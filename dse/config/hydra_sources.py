"""Hydra config sources: shipped files, parsed once; user files, checked when read; preset `usual`.

The check sees the text that is composed, whatever path led to the file.
"""

import io
import pickle
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig, OmegaConf

from dse.config.hydra_internals import FolderSource, PackageSource, read_header
from dse.config.record_parser import USUAL
from dse.config.renamed_addresses import refuse_double_names, rename_chosen_options, rename_references_in
from dse.config.untrusted_files import SHIPPED_CONF, check_package, is_shipped, read_untrusted_yaml
from dse.config.yaml_files import file_state, listed_defaults, parse_yaml, read_document
from dse.space.errors import DesignError

PHASES = ("prefill", "decode")


def source_url(folder: str | Path, *, trust: bool) -> str:
    """URL of a folder for the search path."""
    return f"{'trusted' if trust else 'theirs'}://{folder}"


def register_sources() -> None:
    """Register the sources of this module with Hydra; again is harmless."""
    for source in (ShippedConfigSource, ParsedConfigSource, UserConfigSource, TrustedConfigSource, DefaultChoiceSource):
        Plugins.instance().register(source)


class ShippedConfigSource(PackageSource):
    """Source of shipped files and Hydra's own, each parsed once while it is unchanged.

    Parsing takes most of the time of composing.
    """

    @staticmethod
    def scheme() -> str:
        """URL scheme of shipped configuration folders."""
        return "ours"

    def read_file(self, path: Path) -> ConfigResult:
        """A file as Hydra takes it, a copy of its own, as Hydra changes it."""
        READ[path] = state = file_state(path)
        place = path, self.provider, self.scheme()
        known = PARSED.get(place)
        if known is None or known[0] != state:
            known = PARSED[place] = state, pickle.dumps(self._parse_file(path))
        copy: ConfigResult = pickle.loads(known[1])
        return copy

    def _parse_file(self, path: Path) -> ConfigResult:
        config = super().read_file(path)
        return replace(config, config=_add_citations(config.config))


@dataclass
class ParsedConfig(ConfigResult):
    """One file as Hydra lists it, with all values as pickled plain dictionaries."""

    values: bytes = b""


class ParsedConfigSource(ShippedConfigSource):
    """Source of the same files for a merge of plain dictionaries (`dse.config.merge_defaults`)."""

    @staticmethod
    def scheme() -> str:
        """URL scheme of shipped configuration folders that are merged as plain values."""
        return "sketched"

    def _parse_file(self, path: Path) -> ConfigResult:
        text = path.read_text(encoding="utf-8")
        document = parse_yaml(text) or {}
        if not isinstance(document, dict):
            return super()._parse_file(path)
        _cite_constants(document)
        listed = {key: document[key] for key in ("defaults", "hydra") if key in document}
        more = {"values": True} if document.keys() - listed.keys() else {}
        document.pop("defaults", None)
        config = OmegaConf.create(listed | more)
        return ParsedConfig(self.provider, self.full_path(), config, read_header(text), values=pickle.dumps(document))


def _add_citations(config: Any) -> Any:
    """A file whose constants say where they are from, and nothing of where those are from that they stand for."""
    if not isinstance(config, DictConfig):
        return config
    container = OmegaConf.to_container(config, resolve=False)
    return OmegaConf.create(container) if _cite_constants(container) else config


def _cite_constants(document: Any) -> bool:
    """Give each constant that names a source a page and a note, empty ones where it has none; whether there was one."""
    if not isinstance(document, dict):
        return False
    if "value" in document and "source" in document:
        lacking = {"page", "note"} - document.keys()
        document.update(dict.fromkeys(sorted(lacking), ""))
        return bool(lacking)
    lacked = [_cite_constants(entry) for entry in document.values()]
    return any(lacked)


READ: dict[Path, tuple[int, int]] = {}
"""Files that were read, with their state."""

PARSED: dict[tuple[Path, str, str], tuple[tuple[int, int], bytes]] = {}
"""Files of ours as they were parsed, with their state, by path, who asked, and for what."""


class UserConfigSource(FolderSource):
    """Source of files of users and strangers, which may not run code."""

    trust = False

    @staticmethod
    def scheme() -> str:
        """URL scheme of user configuration folders."""
        return "theirs"

    def load_config(self, config_path: str) -> ConfigResult:
        """Read a file for Hydra, and refuse it if it could run code."""
        path = self.file_path(config_path)
        trust = self.trust or is_shipped(path)
        READ[path] = file_state(path)
        text = read_untrusted_yaml(path, trust=trust)
        header = read_header(text)
        if not trust:
            check_package(header["package"], path)
        document = parse_yaml(text)
        if isinstance(document, dict):
            config: Any = OmegaConf.create(_by_present_addresses(document, config_path, path))
        else:
            config = OmegaConf.load(io.StringIO(text))  # nothing, a list, or what Hydra refuses
        return ConfigResult(config=config, path=self.full_path(), provider=self.provider, header=header)


class TrustedConfigSource(UserConfigSource):
    """Source of user files that the user trusts."""

    trust = True

    @staticmethod
    def scheme() -> str:
        """URL scheme of trusted user configuration folders."""
        return "trusted"


class DefaultChoiceSource(ConfigSource):
    """Source of the mapping, the stack and the inference engine `usual`, whose preset names are the path.

    No stack and no inference engine are no fields.
    """

    @staticmethod
    def scheme() -> str:
        """URL scheme of the default presets."""
        return "usual"

    def load_config(self, config_path: str) -> ConfigResult:
        """The default preset of a group, as Hydra loads a file."""
        group = config_path.partition("/")[0]
        named = dict(zip(USUAL, self.path.split(":"), strict=True))[group]
        config = OmegaConf.create({"defaults": [named, "_self_"]} if named else {})
        package = None if named else "_global_"
        return ConfigResult(config=config, path=self.full_path(), provider=self.provider, header={"package": package})

    def available(self) -> bool:
        """Whether the source is available: always."""
        return True

    def is_group(self, config_path: str) -> bool:
        """Whether the group has a default preset."""
        return config_path in ("", *USUAL)

    def is_config(self, config_path: str) -> bool:
        """Whether the file is a default preset."""
        return config_path.removesuffix(".yaml") in [f"{group}/usual" for group in USUAL]

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Names that users may choose: none."""
        return []


def _by_present_addresses(document: dict[Any, Any], config_path: str, path: Path) -> dict[Any, Any]:
    """A user's file as ours are: present addresses, phases apart, groups of the study overridden, constants with citations."""
    document = rename_references_in(document)
    if not config_path.startswith("space/"):  # knobs know both phases
        document = _each_phase(document, config_path, path)
    if config_path.rpartition("/")[2] == "study":
        document = _with_overridden_groups(document)
    if "defaults" in document:
        document = {**document, "defaults": rename_chosen_options(document["defaults"])}
    refuse_double_names(document, config_path, path)
    _cite_constants(document)
    return document


@cache
def _study_groups() -> tuple[str, ...]:
    """Groups of which every study has a choice, from the defaults list of the base configuration."""
    document = read_document(SHIPPED_CONF / "config.yaml")
    return tuple(group for group, _ in listed_defaults(document) if group.isidentifier())


def _with_overridden_groups(config: Any) -> Any:
    """A study's file whose defaults list overrides groups also where it was written as for a file that brings them.

    `- chip: h100`, `- /chip: h100` and `- override chip: h100` all mean `- override /chip: h100`: a study brings no group of
    its own, and Hydra would look for the chip in a folder of the study.
    """
    if not isinstance(config, dict) or not isinstance(config.get("defaults"), list):
        return config

    def override_entry(entry: Any) -> Any:
        if not isinstance(entry, dict) or len(entry) != 1:
            return entry
        ((key, chosen),) = entry.items()
        override = re.fullmatch(r"(?:override\s+)?/?(\w+)", str(key))
        return {f"override /{override[1]}": chosen} if override and override[1] in _study_groups() else entry

    return {**config, "defaults": [override_entry(entry) for entry in config["defaults"]]}


def _each_phase(config: Any, config_path: str, path: Path) -> Any:
    """A file with the fields of `mapping.both` in both phases; what it says of one phase counts there."""
    at = config if config_path.startswith("mapping/") else config.get("mapping")
    if not isinstance(at, dict) or "both" not in at:
        return config
    both = at.pop("both")
    if not isinstance(both, dict):
        raise DesignError(f"{path}: mapping.both: {both!r} is not a group of fields")
    for phase in PHASES:
        if not isinstance(at.setdefault(phase, {}), dict):
            raise DesignError(f"{path}: mapping.{phase}: {at[phase]!r} is not a group of fields")
        at[phase] = _merge_over(both, at[phase])
    return config


def _merge_over(below: dict[Any, Any], above: dict[Any, Any]) -> dict[Any, Any]:
    merged = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            merged[key] = _merge_over(below[key], above[key])
    return merged
