"""Command lines as Hydra takes them: flags, folders, overrides."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dse.config.renamed_addresses import rename_typed, resolve_choice
from dse.config.untrusted_files import SHIPPED_CONF, SHIPPED_STUDIES
from dse.space.aliases import CHOICES
from dse.space.errors import CONFIGURATION_FIELDS, DesignError, suggest_nearest

DEFAULT = ("tensor_parallel", "", "")
"""The mapping of a chip and a workload that name none, no stack, and no inference engine."""


def find_study_paths() -> dict[str, Path]:
    """Study definitions by name: those of the working folder hide those that ship."""
    paths = {}
    for folder in (SHIPPED_STUDIES, Path.cwd() / "studies"):
        paths.update({path.parent.name: path for path in sorted(folder.glob("*/study.yaml")) if path.is_file()})
    return paths


@dataclass(frozen=True)
class CommandLine:
    """One command line, split into Hydra's flags, search folders and overrides.

    Attributes:
        typed: as it was.
        flags: of Hydra's, with their values.
        places: folders of the user's for Hydra's search path, as URLs.
        overrides: as Hydra knows them: sweeps quoted, a field for each phase, and ``study=NAME`` as its file.
        trust: whether files may run code.
        usual: the mapping, the stack and the inference engine that stand for the name `usual`.
    """

    typed: tuple[str, ...]
    flags: tuple[str, ...]
    places: tuple[str, ...]
    overrides: tuple[str, ...]
    trust: bool
    usual: tuple[str, str, str] = DEFAULT

    @property
    def sets_hydra(self) -> bool:
        """Whether it sets a value of Hydra's own configuration."""
        return any(re.match(r"[+~]*hydra[./@=]", override) for override in self.overrides)

    @property
    def choices(self) -> "CommandLine":
        """The command line without values: study, chip, mapping and other choices of presets only."""

        def is_group_choice(override: str) -> bool:
            key = override.partition("=")[0].lstrip("+")
            return "@" in key or (SHIPPED_CONF / key).is_dir()

        return replace(self, overrides=tuple(override for override in self.overrides if is_group_choice(override)))

    @property
    def words(self) -> list[str]:
        """Overrides and search path as Hydra takes them."""
        path = ", ".join(_quote_text(place) for place in (*self.places, f"usual://{':'.join(self.usual)}"))
        return [f"hydra.searchpath=[{path}]", *self.overrides]


def parse_command_line(typed: Sequence[str], *, trust: bool) -> CommandLine:
    """Command line as Hydra takes it.

    The file of a study, NAME/study.yaml, is composed over everything but the user's own overrides; groups of its own (chip,
    space, ...) may stand in its folder.
    """
    from dse.config.hydra_sources import source_url

    typed = rename_typed(typed)
    flags: list[str] = []
    overrides: list[str] = []
    places: list[str] = []
    rest = iter(typed)
    for word in rest:
        key, equals, value = word.partition("=")
        if key != "study" and key.isascii() and not value.isascii() and value[:1] not in ("'", '"', "[", "{"):
            value = _quote_text(value)  # bare, Hydra reads ASCII alone
            word = f"{key}={value}"
        if equals and (group := key.lstrip("+").partition("@")[0]) in CHOICES:
            value = resolve_choice(group, value)
            word = f"{key}={value}"
        if re.fullmatch(r"\{\s*\}", value.strip()):
            address = key.lstrip("+~")
            raise DesignError(
                f"{address}: {{}} is merged into the present fields and changes nothing; remove a field with ~{address}.FIELD"
            )
        if word.startswith("-"):
            flag = _full_flag(key)
            given = value if equals else next(rest, "") if flag in VALUED else None
            if flag in FIXED:
                raise DesignError(
                    f"{key}: the program's own configuration cannot be replaced; add your folder with --config-dir"
                )
            if flag in ("--config-dir", "-cd"):
                if not Path(str(given)).is_dir():
                    raise DesignError(f"{key}: no folder {str(given)!r}")
                places.append(source_url(str(given), trust=trust))
            else:
                flags += [flag] if not given else [f"{flag}={given}"] if flag.startswith("--") else [flag, given]
        elif key == "study" and equals:
            known = find_study_paths()
            if value not in known:
                raise DesignError(f"study: no study {value!r}; {suggest_nearest(value, known)}")
            if taken := next(
                (
                    name
                    for name in known
                    if name in CONFIGURATION_FIELDS and known[name].parent.parent == known[value].parent.parent
                ),
                "",
            ):
                raise DesignError(
                    f"study: beside {value!r} is a folder of a study called {taken!r}, a field of every study; rename it"
                )
            folder = known[value].parent
            places += [source_url(folder, trust=trust), source_url(folder.parent, trust=trust)]
            overrides = [f"+{value}@_global_=study", f"name={_quote_text(value)}", *overrides]
        elif key.lstrip("+~") == "hydra.searchpath":
            given_places = [place.strip("'\" ") for place in value.strip("[]").split(",")]
            places = [*(_ours_of(place, trust=trust) for place in given_places if place), *places]
        elif key.lstrip("+~").startswith("mapping.both."):
            overrides += [word.replace(".both.", f".{phase}.", 1) for phase in ("prefill", "decode")]
        elif key.lstrip("+").startswith(("space.", "constraints.")) and value[:1] not in ("'", '"', "{", "["):
            overrides.append(f"{key}='{value}'")  # bare, Hydra takes a sweep for a multirun, and a bound for nothing it knows
        elif key in PLACES and value[:1] not in ("'", '"', "[") and value not in ("", "null"):
            overrides.append(f"{key}={_quote_text(value)}")  # bare, many a path or URL is no value to Hydra
        else:
            overrides.append(word)
    return CommandLine(tuple(typed), tuple(flags), tuple(places), rename_typed(overrides), trust)


PLACES = (
    "model.from_hf",
    "model.from_graph",
    "store",
    "run_dir",
    "screen.folder",
    "workload.trace",
    "workload.lengths",
    "workload.expert_load",
)
"""Fields that name a file, a folder or a URL."""

VALUED = (
    "--cfg",
    "-c",
    "--config-dir",
    "-cd",
    "--config-name",
    "-cn",
    "--config-path",
    "-cp",
    "--experimental-rerun",
    "--info",
    "-i",
    "--package",
    "-p",
)
"""Flags of Hydra's that take a value."""

FIXED = ("--config-name", "-cn", "--config-path", "-cp")
"""Flags of Hydra's that would put another configuration in the place of ours."""


def _full_flag(name: str) -> str:
    """A flag that Hydra would know by its first letters, in full."""
    flags = [flag for flag in VALUED if name.startswith("--") and len(name) > len("--") and flag.startswith(name)]
    return flags[0] if len(flags) == 1 else name


def _quote_text(text: str) -> str:
    return "'{}'".format(text.replace("'", "\\'"))


def _ours_of(place: str, *, trust: bool) -> str:
    """A place of the search path, of files that are checked."""
    from dse.config.hydra_sources import source_url

    scheme, colon, path = place.rpartition("://")
    return place if colon and scheme != "file" else source_url(path, trust=trust)
