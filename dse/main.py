"""The command line.

    dse run study=NAME [overrides]     start a study or go on with it
    dse evaluate [overrides]           one design: metrics, operators, what binds
    dse report STUDY [STUDY...]        write a report again, or one that compares; --follow while it runs
    dse validate [FILE...]             published against simulated
    dse list | show STUDY | export STUDY --to parquet|csv|json|optuna

Heavy libraries are imported where they are used, so that help and completion answer at once.
"""

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dse.compose import STUDIES, hydra_job, studies
from space.errors import DesignError, nearest

HELP = """\
mesh-dse: which chip and which mapping for this model and this load, and why

  dse run study=NAME [overrides]      start the study or go on with it; ends with the front and the path of the report
  dse evaluate [overrides]            one design: metrics, time by operator, what binds; --json for machines,
                                      --trace FILE for a timeline viewer
  dse report STUDY [STUDY...]         write the report of a study again, or one that compares studies; --out FILE;
                                      --follow keeps the open page up to date while they run
  dse validate [FILE...]              published figures against simulated ones; --json for machines
  dse list                            studies that ship, studies that ran here
  dse show STUDY                      a study's question, knobs, objectives and state
  dse export STUDY --to FORMAT        parquet, csv, json or optuna; --out FILE
                                      what ran elsewhere is found by store=URL, with show, report and export

Overrides are Hydra's: chip=ascend910b chip.l2.size='64 MB' model=[llama3_8b,qwen2_7b] mapping.prefill.tp=16
A model as Hugging Face publishes it: model.from_hf=FOLDER/config.json
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
    except OSError as error:
        if error.errno not in PLACES:
            raise
        where = f"{error.filename}: " if error.filename else ""
        print(f"dse: {where}{os.strerror(error.errno)}; {PLACES[error.errno]}", file=sys.stderr)
        sys.exit(2)


AGAIN = "free some space there and run the same command again: what is stored stays"
ELSEWHERE = "choose a place that can be written with run_dir=DIR, store=PATH or --out FILE"
PLACES = {
    errno.ENOSPC: AGAIN,
    errno.EDQUOT: AGAIN,
    errno.EFBIG: AGAIN,
    errno.EROFS: ELSEWHERE,
    errno.EACCES: ELSEWHERE,
    errno.EPERM: ELSEWHERE,
    errno.EISDIR: ELSEWHERE,
    errno.ENOTDIR: ELSEWHERE,
}
"""What the system refuses a file for, and what to do about it."""


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
    hydra_job(arguments, task)
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

    hydra_job(others, task)
    return 0


def _report(arguments: list[str]) -> int:
    from dse.api import compare, load
    from dse.progress import say

    follow, out = "--follow" in arguments, ""
    names: list[str] = []
    overrides: list[str] = []
    rest = iter(argument for argument in arguments if argument != "--follow")
    for argument in rest:
        flag, _, value = argument.partition("=")
        if flag == "--out":
            out = value or next(rest, "")
            if not out:
                raise DesignError("report --out: takes a file, as in --out report.html")
        elif flag.startswith("-"):
            raise DesignError(f"report: no flag {flag!r}; {nearest(flag, ('--follow', '--out'))}")
        else:
            (overrides if value else names).append(argument)
    if not names:
        raise DesignError("report: takes the name of a study, or of several, as dse list shows them; got nothing")
    if follow:
        from dse.follow import follow as followed

        return followed(names, out)
    say(f"report  {compare([load(name, *overrides) for name in names], out)}")
    return 0


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
    (name,) = _named("show", [word for word in arguments if "=" not in word], 1)
    from dse.api import load
    from dse.show import summary

    loaded = load(name, *(word for word in arguments if "=" in word))
    return summary(loaded.study, loaded.runs())


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
    (name,) = _named("export", [word for word in names if "=" not in word], 1)
    if options["--to"] not in FORMATS:
        raise DesignError(f"export --to: no format {options['--to']!r}; {nearest(options['--to'], FORMATS)}")
    return export(name, options["--to"], options["--out"], *(word for word in names if "=" in word))


def _named(command: str, arguments: list[str], count: int) -> list[str]:
    flags = [argument for argument in arguments if argument.startswith("-")]
    if flags:
        raise DesignError(f"{command}: no flag {flags[0]!r}; dse --help lists what there is")
    if len(arguments) != count:
        wanted = "the name of a study, as dse list shows it" if count else "nothing"
        raise DesignError(f"{command}: takes {wanted}; got {' '.join(arguments) or 'nothing'}")
    return arguments


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
    hydra_job([argument for argument in arguments if argument not in commands], lambda config: None)
    return 0


if __name__ == "__main__":
    main()
