"""Configuration: overrides in, a plain dictionary out, and the one room of Hydra.

Hydra composes once, here; its sweep grammar becomes plain knob dictionaries, and its errors one line each.
"""

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from space.errors import DesignError, nearest

STUDIES = Path(__file__).resolve().parent.parent / "studies"
CONF = Path(__file__).resolve().parent.parent / "conf"


def compose(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of some overrides, ``study=NAME`` among them, as a plain dictionary ready for `dse.build`."""
    found: list[dict[str, Any]] = []
    hydra_job(list(overrides), found.append)
    return found[0]


def studies() -> dict[str, Path]:
    """Study definitions by name: those of the working folder hide those that ship."""
    found = {}
    for folder in (STUDIES, Path.cwd() / "studies"):
        found.update({path.parent.name: path for path in sorted(folder.glob("*/study.yaml"))})
    return found


def folder_of(config: Mapping[str, Any]) -> Path:
    """Where the files that a study names are."""
    path = studies().get(str(config["name"]))
    return path.parent if path else Path.cwd()


def hydra_job(arguments: list[str], task: Callable[[dict[str, Any]], Any]) -> None:
    """Composes under Hydra's own command line, so that all its flags work, and hands a plain dictionary to the task."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    jobs: list[dict[str, Any]] = []

    def job(config: DictConfig) -> None:
        plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        jobs.append(plain)

    saved = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    complaint = io.StringIO()
    try:
        sys.argv = ["dse", *_translated(arguments)]
        for folder in _own_folders(sys.argv):
            _check_numbers(folder)
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra would print its own many lines and exit with 1
        with contextlib.redirect_stderr(complaint):
            hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")(job)()
    except (HydraException, OmegaConfBaseException) as error:
        raise DesignError(_explained(error)) from None
    except DesignError:
        raise
    except Exception as error:  # what Hydra lets through of YAML, of files and of its own slips
        raise DesignError(f"configuration: {_one_line(error)}") from None
    except SystemExit:  # from its argument parser, which has said why
        raise DesignError((complaint.getvalue().strip().splitlines() or ["no such flag"])[-1].removeprefix("dse: ")) from None
    finally:
        sys.argv = saved[0]
        if saved[1] is None:
            os.environ.pop("HYDRA_FULL_ERROR", None)
        else:
            os.environ["HYDRA_FULL_ERROR"] = saved[1]
    for plain in jobs:
        plain["space"] = _knobs(plain.get("space") or {})
        plain["overrides"] = arguments
        task(plain)


def _own_folders(arguments: list[str]) -> list[Path]:
    """Folders of the user's files: of ``--config-dir`` and of the study."""
    found = []
    for flag, following in zip(arguments, [*arguments[1:], ""], strict=True):
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
    """The arguments as Hydra knows them: flags first, sweeps quoted, and ``study=NAME`` as the file it names.

    That file, NAME/study.yaml, is composed over everything but the user's own overrides; groups of its own (chip, space, ...)
    may stand in its folder.
    """
    flags: list[str] = []
    overrides: list[str] = []
    places: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        key, equals, value = argument.partition("=")
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
        elif key.lstrip("+").startswith("space.") and value[:1] not in ("'", '"', "{", "["):
            overrides.append(f"{key}='{value}'")  # a sweep is a value here; bare, Hydra takes it for a multirun
        else:
            overrides.append(argument)
    overrides += _usual_mapping(overrides, places)
    path = [f"hydra.searchpath=[{','.join(places)}]"] if places else []
    return [*flags, *path, *overrides]


def _usual_mapping(overrides: list[str], places: list[str]) -> list[str]:
    """The mapping that a chip's file names, where the command line chooses the chip and no mapping, and no study does."""
    chosen = [override.partition("=")[2] for override in overrides if override.startswith("chip=")]
    if not chosen or any(override.startswith(("mapping=", "+")) for override in overrides):
        return []
    folders = [Path(place.removeprefix("file://")) for place in places] + [CONF]
    for path in (folder / "chip" / f"{chosen[-1]}.yaml" for folder in folders):
        if path.exists():
            named = re.search(r"^mapping: *(\w+)", path.read_text(), re.MULTILINE)
            return [f"mapping={named[1]}"] if named else []
    return []


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


def _explained(error: Exception) -> str:
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
        return _misspelt(key.groups()[-1])
    return _one_line(error)


def _misspelt(address: str) -> str:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    GlobalHydra.instance().clear()
    with initialize_config_module("conf", version_base="1.3"):
        config: Any = OmegaConf.to_container(hydra_compose("config"), resolve=False)
    *path, last = address.split(".")
    for part in path:
        config = config.get(part, {}) if isinstance(config, dict) else {}
    parent = ".".join(path)
    if isinstance(config, dict) and config:
        return f"{parent or 'config'}: no field {address!r}; {nearest(last, config)}"
    return f"no field {address!r}"


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines[:2]) if lines else type(error).__name__
