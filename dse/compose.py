"""Configuration: overrides in, a plain dictionary out, and the one room of Hydra.

Hydra composes once, here; its sweep grammar becomes plain knob dictionaries, and its errors one line each.
"""

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from dse import from_hf
from space.errors import DesignError, nearest

STUDIES = Path(__file__).resolve().parent.parent / "studies"
CONF = Path(__file__).resolve().parent.parent / "conf"


def compose(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of some overrides, ``study=NAME`` among them, as a plain dictionary ready for `dse.build`."""
    found: list[dict[str, Any]] = []
    if any(override.startswith("-") for override in overrides):
        hydra_job(list(overrides), found.append)
        return found[0]
    from hydra import compose, initialize_config_module
    from hydra.core.global_hydra import GlobalHydra

    before = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with _refused(list(overrides)), initialize_config_module(version_base="1.3", config_module="conf"):
            return _plain(compose("config", overrides=_checked(list(overrides))), list(overrides))
    finally:
        GlobalHydra.instance().hydra = before


def studies() -> dict[str, Path]:
    """Study definitions by name: those of the working folder hide those that ship."""
    found = {}
    for folder in (STUDIES, Path.cwd() / "studies"):
        found.update({path.parent.name: path for path in sorted(folder.glob("*/study.yaml"))})
    return found


def folder_of(config: Mapping[str, Any]) -> Path:
    """Where the files that a study names are: with its definition, whatever name it was given."""
    chosen = [word.removeprefix("study=") for word in config.get("overrides", ()) if word.startswith("study=")]
    path = studies().get(chosen[-1] if chosen else str(config["name"]))
    return path.parent if path else Path.cwd()


def bibliography() -> dict[str, str]:
    """What the keys of sources stand for."""
    from omegaconf import OmegaConf

    return {str(key): str(text) for key, text in OmegaConf.load(CONF / "sources.yaml").items()}


def hydra_job(arguments: list[str], task: Callable[[dict[str, Any]], Any]) -> None:
    """Composes under Hydra's own command line, so that all its flags work, and hands a plain dictionary to the task."""
    import hydra

    jobs: list[dict[str, Any]] = []

    def job(config: Any) -> None:
        jobs.append(_plain(config, arguments))

    saved = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    complaint = io.StringIO()
    try:
        sys.argv = ["dse", *_checked(arguments)]
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra would print its own many lines and exit with 1
        with _refused(arguments), contextlib.redirect_stderr(complaint):
            hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")(job)()
    except SystemExit:  # from its argument parser, which has said why
        raise DesignError((complaint.getvalue().strip().splitlines() or ["no such flag"])[-1].removeprefix("dse: ")) from None
    finally:
        sys.argv = saved[0]
        if saved[1] is None:
            os.environ.pop("HYDRA_FULL_ERROR", None)
        else:
            os.environ["HYDRA_FULL_ERROR"] = saved[1]
    for plain in jobs:
        task(plain)


@contextlib.contextmanager
def _refused(arguments: list[str]) -> Iterator[None]:
    """Errors of Hydra's, one line each."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise DesignError(_explained(error, arguments)) from None
    except DesignError:
        raise
    except Exception as error:  # what Hydra lets through of YAML, of files and of its own slips
        raise DesignError(f"configuration: {_one_line(error)}") from None


def _plain(config: Any, arguments: list[str]) -> dict[str, Any]:
    """A composed configuration as a dictionary."""
    from omegaconf import OmegaConf

    plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    named = {"space": _knobs(plain.get("space") or {}), "overrides": arguments, "model": _models(plain, arguments)}
    return {**plain, **named}


def _checked(arguments: list[str]) -> list[str]:
    """The arguments as Hydra knows them, when the user's own files are sound."""
    translated = _translated(arguments)
    for folder in _own_folders(translated):
        _check_numbers(folder)
    return translated


def _own_folders(arguments: list[str]) -> list[Path]:
    """Folders of the user's files: of ``--config-dir`` and of the study."""
    found = []
    for flag, following in pairwise([*arguments, ""]):
        name, _, value = flag.partition("=")
        if name in ("--config-dir", "-cd"):
            found.append(Path(value or following))
        elif name == "hydra.searchpath":
            found.append(Path(value.strip("[]").split(",")[0].removeprefix("file://")))
    return [folder for folder in found if folder.is_dir()]


NUMBER = re.compile(r"[+-]?(0|[1-9][0-9_]*)")


def _check_numbers(folder: Path) -> None:
    """Refuses whole numbers that YAML 1.1 reads otherwise than they look: ``010`` is 8 to it, and ``12:30`` is 750."""
    import yaml

    for path in sorted(folder.glob("*.yaml")) + sorted(folder.glob("*/*.yaml")):
        try:
            root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        except (yaml.YAMLError, UnicodeDecodeError, OSError):
            continue  # Hydra reads it as well, where it is asked for
        nodes = [root] if root is not None else []
        while nodes:
            node = nodes.pop()
            if isinstance(node, yaml.MappingNode):
                nodes += [part for pair in node.value for part in pair]
            elif isinstance(node, yaml.SequenceNode):
                nodes += node.value
            elif node.tag == "tag:yaml.org,2002:int" and not NUMBER.fullmatch(node.value):
                number = yaml.safe_load(node.value)
                raise DesignError(
                    f"{path}, line {node.start_mark.line + 1}: YAML reads {node.value} as {number}; write a decimal number"
                )


VALUED = {
    "--cfg",
    "-c",
    "--config-dir",
    "-cd",
    "--config-name",
    "-cn",
    "--config-path",
    "-cp",
    "--info",
    "-i",
    "--package",
    "-p",
}
"""Flags of Hydra's that take a value."""


def _translated(arguments: list[str]) -> list[str]:
    """The arguments as Hydra knows them: flags first, sweeps quoted, a field for each phase, and ``study=NAME`` as its file.

    That file, NAME/study.yaml, is composed over everything but the user's own overrides; groups of its own (chip, space, ...)
    may stand in its folder.
    """
    flags: list[str] = []
    overrides: list[str] = []
    places: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        key, equals, value = argument.partition("=")
        if re.fullmatch(r"\{\s*\}", value.strip()):
            address = key.lstrip("+~")
            raise DesignError(
                f"{address}: {{}} is merged into what is there, and so changes nothing; take a field away with ~{address}.FIELD"
            )
        if argument.startswith("-"):
            flags.append(argument)
            if argument in VALUED:
                flags += [next(rest, "")]
        elif key == "study" and equals:
            known = studies()
            if value not in known:
                raise DesignError(f"study: no study {value!r}; {nearest(value, known)}")
            folder = known[value].parent
            places += [f"file://{folder}", f"file://{folder.parent}"]
            overrides = [f"+{value}@_global_=study", f"name={value}", *overrides]
        elif key == "hydra.searchpath":
            places = [*value.strip("[]").split(","), *places]
        elif key.lstrip("+~").startswith("mapping.both."):
            overrides += [argument.replace(".both.", f".{phase}.", 1) for phase in ("prefill", "decode")]
        elif key.lstrip("+").startswith("space.") and value[:1] not in ("'", '"', "{", "["):
            overrides.append(f"{key}='{value}'")  # a sweep is a value here; bare, Hydra takes it for a multirun
        elif key == "model.from_hf" and value[:1] not in ("'", '"', "[") and value not in ("", "null"):
            overrides.append("{}='{}'".format(key, value.replace("'", "\\'")))  # bare, many a path is no value to Hydra
        else:
            overrides.append(argument)
    overrides += _usual_mapping(overrides, places)
    path = [f"hydra.searchpath=[{','.join(places)}]"] if places else []
    return [*flags, *path, *overrides]


def _usual_mapping(overrides: list[str], places: list[str]) -> list[str]:
    """The mapping that a chip's file names for the workload, or the workload's, or the chip's for what it usually does; where
    the command line chooses one of these and no mapping, and no study does.
    """
    if any(override.startswith("mapping=") or "@_global_=" in override for override in overrides):
        return []
    folders = [Path(place.removeprefix("file://")) for place in places] + [CONF]
    chosen = {
        group: [override.partition("=")[2] for override in overrides if override.startswith(f"{group}=")][-1:]
        for group in ("workload", "chip")
    }
    usual = [("chip", f"mapping_{name}") for name in chosen["workload"]] + [("workload", "mapping"), ("chip", "mapping")]
    for group, field in usual:
        for path in (folder / group / f"{name}.yaml" for name in chosen[group] for folder in folders):
            named = re.search(rf"^{re.escape(field)}: *(\w+)", path.read_text(), re.MULTILINE) if path.exists() else None
            if named:
                return [f"mapping={named[1]}"]
    return []


def _models(config: Mapping[str, Any], arguments: Sequence[str]) -> Any:
    """The models that were chosen by name, or those of `model.from_hf` in their place."""
    models = config.get("model")
    if not isinstance(models, dict):
        return models
    named = {name: entry for name, entry in models.items() if name != "from_hf"}
    if models.get("from_hf") is None:
        return named
    if any(argument.startswith("model=") for argument in arguments):
        raise DesignError("model: chosen by name and by model.from_hf as well; give one of them")
    return from_hf.entries(models["from_hf"], folder_of(config))


def _knobs(space: Any, prefix: str = "") -> dict[str, dict[str, Any]]:
    """Hydra's sweep grammar as plain knob dictionaries by dotted address.

    ``range(a, b, step)`` leaves out its end, as Hydra's and Python's do; ``interval(a, b)`` has both ends.
    """
    if not isinstance(space, dict):
        raise DesignError(
            f"space.{prefix.rstrip('.')}: {space!r} is not a sweep; write choice(...), range(...) or interval(...)"
        )
    found: dict[str, dict[str, Any]] = {}
    for key, entry in space.items():
        address = f"{prefix}{key}"
        if isinstance(entry, dict) and "sweep" in entry:
            unknown = set(entry) - {"sweep", "when"}
            if unknown:
                raise DesignError(f"space.{address}: a knob has sweep and when; got {', '.join(sorted(unknown))}")
            found[address] = _sweep(address, entry["sweep"]) | {"when": dict(_flat(entry.get("when") or {}))}
        elif isinstance(entry, dict):
            found |= _knobs(entry, f"{address}.")
        elif isinstance(entry, list):
            found[address] = {"values": entry}
        elif entry is not None:
            found[address] = _sweep(address, entry)
    return found


MOST = 100_000
"""Values of a range."""


def _sweep(address: str, text: Any) -> dict[str, Any]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, RangeSweep
    from hydra.errors import HydraException

    where = f"space.{address}"
    try:
        sweep: Any = OverridesParser.create().parse_override(f"x={text}").value()
    except HydraException as error:
        raise DesignError(f"{where}: {str(text)!r} is not a sweep: {_one_line(error)}") from None
    if not isinstance(sweep, ChoiceSweep | RangeSweep | IntervalSweep):
        raise DesignError(f"{where}: {str(text)!r} is not a sweep; write choice(...), range(...) or interval(...)")
    units = sorted(sweep.tags - {"log"})
    if len(units) > 1:
        raise DesignError(f"{where}: more than one unit in {str(text)!r}: {', '.join(units)}")
    unit = {"unit": units[0]} if units else {}
    if isinstance(sweep, IntervalSweep):
        return {"low": sweep.start, "high": sweep.end, "log": "log" in sweep.tags} | unit
    if isinstance(sweep, ChoiceSweep):
        return {"values": [str(v) if not isinstance(v, int | float | bool | str) else v for v in sweep.list]} | unit
    start: Any = sweep.start
    if sweep.step and (sweep.stop - start) / sweep.step > MOST:
        raise DesignError(f"{where}: {str(text)!r} has more than {MOST:,} values; write interval(a, b), or a larger step")
    values: list[Any] = []
    while (start + len(values) * sweep.step - sweep.stop) * sweep.step < 0:
        values.append(start + len(values) * sweep.step)
    if not values:
        raise DesignError(f"{where}: {str(text)!r} is empty; range leaves out its end")
    return {"values": values} | unit


def _flat(group: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs = []
    for key, value in group.items():
        if isinstance(value, dict):
            pairs += _flat(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", value))
    return pairs


def _explained(error: Exception, arguments: list[str]) -> str:
    """Hydra's error in one line, with the nearest valid name where it is about a name."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines)
    group = re.search(r"Could not (?:find|load) '([\w/]+)/([^']*)'", text)
    if group:
        known = {path.stem for path in (CONF / group[1]).glob("*.yaml")}
        return f"{group[1]}: no option {group[2]!r}; {nearest(group[2], known)}"
    key = re.search(r"Key '([^']+)' is not in struct.*?full_key: (\S+)", text) or re.search(
        r"Could not override '([^']+)'", text
    )
    if key:
        return _misspelt(key.groups()[-1], arguments)
    return _one_line(error)


def _misspelt(address: str, arguments: list[str]) -> str:
    """What to write for an address that the configuration of some arguments does not have."""
    config = _chosen_groups(arguments)
    if address.startswith("space."):
        knobs = _knobs(config.get("space") or {})
        hint = f"; {nearest(address.removeprefix('space.'), knobs)}" if knobs else ""
        return f"no knob {address!r} in this space; +{address}=... adds one{hint}"
    *path, last = address.split(".")
    at: Any = config
    for depth, part in enumerate(path):
        if not isinstance(at, dict) or part not in at:
            here = ".".join(path[:depth])
            return f"{here or 'config'}: no field {address!r}; {nearest(part, at if isinstance(at, dict) else ())}"
        at = at[part]
    if isinstance(at, dict) and last in at:
        return f"{address}: a group of fields; add one with +{address}.NAME=VALUE, take one away with ~{address}.NAME"
    if isinstance(at, dict) and set(at) != {"value", "source"}:
        return f"{'.'.join(path) or 'config'}: no field {address!r}; {nearest(last, at)}"
    return f"no field {address!r}; {'.'.join(path)} is a value"


def _chosen_groups(arguments: list[str]) -> dict[str, Any]:
    """The configuration of a command line without the values that it sets: study, chip, mapping and other choices only."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    def chooses(override: str) -> bool:
        key = override.partition("=")[0].lstrip("+")
        return "@" in key or key == "hydra.searchpath" or (CONF / key).is_dir()

    GlobalHydra.instance().clear()
    with initialize_config_module("conf", version_base="1.3"):
        try:
            composed = hydra_compose("config", [override for override in _translated(arguments) if chooses(override)])
        except HydraException:  # a choice that is wrong as well
            composed = hydra_compose("config")
        found: Any = OmegaConf.to_container(composed, resolve=False)
    return dict(found)


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines[:2]) if lines else type(error).__name__
