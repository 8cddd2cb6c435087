"""The command line, and the one room of Hydra: overrides in, a plain dictionary out.

    dse run study=NAME [overrides]     start a study or go on with it
    dse evaluate [overrides]           one design: metrics, operators, what binds
    dse report STUDY                   write a report again
    dse validate [FILE...]             published against simulated
    dse list | show STUDY | export STUDY --to parquet|csv|json|optuna

Heavy libraries are imported where they are used, so that help and completion answer at once.
"""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from space.errors import DesignError, nearest

STUDIES = Path(__file__).resolve().parent.parent / "studies"
CONF = Path(__file__).resolve().parent.parent / "conf"

HELP = """\
mesh-dse: which chip and which mapping for this model and this load, and why

  dse run study=NAME [overrides]      start the study or go on with it; ends with the front and the path of the report
  dse evaluate [overrides]            one design: metrics, time by operator, what binds; --json for machines,
                                      --trace FILE for a timeline viewer
  dse report STUDY                    write the report of a study again
  dse validate [FILE...]              published figures against simulated ones; --json for machines
  dse list                            studies that ship, studies that ran here
  dse show STUDY                      a study's question, knobs, objectives and state
  dse export STUDY --to FORMAT        parquet, csv, json or optuna; --out FILE

Overrides are Hydra's: chip=ascend910b chip.l2.size='64 MB' model=[llama3_8b,qwen2_7b] mapping.prefill.tp=16
Hydra's flags work with run and evaluate: --cfg job, --config-dir DIR (own chips and models), --help, --info.
"""


def main() -> None:
    """Entry point of ``dse``; exits with 2 on anything the user can fix."""
    try:
        sys.exit(_command(sys.argv[1:]))
    except DesignError as error:
        print(f"dse: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def compose(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of some overrides, ``study=NAME`` among them, as a plain dictionary ready for `dse.build`."""
    found: list[dict[str, Any]] = []
    _hydra(list(overrides), found.append)
    return found[0]


def studies() -> dict[str, Path]:
    """Study definitions by name: those of the working folder hide those that ship."""
    found = {}
    for folder in (STUDIES, Path.cwd() / "studies"):
        found.update({path.parent.name: path for path in sorted(folder.glob("*/study.yaml"))})
    return found


def _command(arguments: list[str]) -> int:
    commands: dict[str, Callable[[list[str]], int]] = {
        "run": _run,
        "evaluate": _evaluate,
        "report": _report,
        "validate": _validate,
        "list": _list,
        "show": _show,
        "export": _export,
    }
    if any(argument in ("-sc", "--shell-completion") for argument in arguments):
        return _complete(arguments, list(commands))
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if arguments[0] == "--version":
        from importlib.metadata import version

        print(f"mesh-dse {version('mesh-dse')}")
        return 0
    name, *rest = arguments
    if name not in commands:
        raise DesignError(f"no command {name!r}; {nearest(name, commands)}")
    return commands[name](rest)


def _run(arguments: list[str]) -> int:
    if not any(argument.startswith(("study=", "--", "-c", "-i", "-h")) for argument in arguments):
        raise DesignError(f"run: say which study, as in dse run study=quickstart; {nearest('quickstart', studies())}")

    def task(config: dict[str, Any]) -> None:
        from dse.loop import run

        codes.append(run(config))

    codes: list[int] = []
    _hydra(arguments, task)
    return codes[0] if codes else 0


def _evaluate(arguments: list[str]) -> int:
    as_json, trace = "--json" in arguments, ""
    rest = iter(argument for argument in arguments if argument != "--json")
    others = []
    for argument in rest:
        flag, _, value = argument.partition("=")
        if flag == "--trace":
            trace = value or next(rest, "")
            if not trace:
                raise DesignError("evaluate --trace: takes a file, as in --trace step.json")
        else:
            others.append(argument)

    def task(config: dict[str, Any]) -> None:
        from dse.show import evaluation

        evaluation(config, as_json=as_json, trace=trace)

    _hydra(others, task)
    return 0


def _report(arguments: list[str]) -> int:
    from dse.report import rewrite

    return rewrite(*_named("report", arguments, 1))


def _validate(arguments: list[str]) -> int:
    from dse.validate import validate

    files = [Path(argument) for argument in arguments if not argument.startswith("--")]
    unknown = [argument for argument in arguments if argument.startswith("--") and argument != "--json"]
    if unknown:
        raise DesignError(f"validate: no flag {unknown[0]!r}; valid: --json")
    return validate(files or sorted(STUDIES.glob("*/published.csv")), as_json="--json" in arguments)


def _list(arguments: list[str]) -> int:
    from dse.show import listing

    _named("list", arguments, 0)
    return listing(studies())


def _show(arguments: list[str]) -> int:
    from dse.show import study

    (name,) = _named("show", arguments, 1)
    return study(name)


def _export(arguments: list[str]) -> int:
    from dse.export import FORMATS, export

    options = {"--to": "parquet", "--out": ""}
    names = []
    rest = iter(arguments)
    for argument in rest:
        flag, _, value = argument.partition("=")
        if flag in options:
            options[flag] = value or next(rest, "")
        elif flag.startswith("--"):
            raise DesignError(f"export: no flag {flag!r}; {nearest(flag, options)}")
        else:
            names.append(argument)
    (name,) = _named("export", names, 1)
    if options["--to"] not in FORMATS:
        raise DesignError(f"export --to: no format {options['--to']!r}; {nearest(options['--to'], FORMATS)}")
    return export(name, options["--to"], options["--out"])


def _named(command: str, arguments: list[str], count: int) -> list[str]:
    flags = [argument for argument in arguments if argument.startswith("-")]
    if flags:
        raise DesignError(f"{command}: no flag {flags[0]!r}; dse --help lists what there is")
    if len(arguments) != count:
        wanted = "the name of a study, as dse list shows it" if count else "nothing"
        raise DesignError(f"{command}: takes {wanted}; got {' '.join(arguments) or 'nothing'}")
    return arguments


def _hydra(arguments: list[str], task: Callable[[dict[str, Any]], Any]) -> None:
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
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra would print its own many lines and exit with 1
        with contextlib.redirect_stderr(complaint):
            hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")(job)()
    except (HydraException, OmegaConfBaseException) as error:
        raise DesignError(_explained(error)) from None
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
    path = [f"hydra.searchpath=[{','.join(places)}]"] if places else []
    return [*flags, *path, *overrides]


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
    import re

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


def _complete(arguments: list[str], commands: list[str]) -> int:
    """Shell completion: the command itself here, everything after it by Hydra."""
    line = os.environ.get("COMP_LINE", "")
    words = line.split()
    if line and (len(words) == 1 or (len(words) == 2 and not line.endswith(" "))):
        start = words[1] if len(words) == 2 else ""
        print(" ".join(command for command in commands if command.startswith(start)))
        return 0
    if len(words) > 1 and words[1] in commands:
        current = "" if line.endswith(" ") else words[-1]
        if current.startswith("study="):
            print(" ".join(f"study={name}" for name in studies() if f"study={name}".startswith(current)))
            return 0
        os.environ["COMP_LINE"] = line.replace(f" {words[1]}", "", 1)
    _hydra([argument for argument in arguments if argument not in commands], lambda config: None)
    return 0


if __name__ == "__main__":
    main()
