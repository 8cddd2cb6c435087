"""The command line: dispatch of commands; `dse.commands.cli_options` has what each command takes.

Heavy libraries are imported where they are used, so that help and completion answer at once.
"""

import gc
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.commands.cli_options import COMMANDS, format_help_overview, list_flags, parse_arguments
from dse.config.untrusted_files import TRUST
from dse.space.errors import DesignError, suggest_nearest
from dse.terminal.error_line import format_error_line
from dse.terminal.signals import exit_status, handle_signals
from dse.terminal.text_encoding import make_output_printable

if TYPE_CHECKING:
    from dse.terminal.progress import CompileNotice

SWEEP = (100_000, 20, 20)
"""New objects between two searches for unused cycles, of which a command makes few: every 700 is a tenth of its time."""


def main() -> None:
    """Entry point of ``dse``; exits with 2 on any error that the user can fix."""
    gc.set_threshold(*SWEEP)
    try:
        with handle_signals():
            make_output_printable()
            sys.exit(_run_command(sys.argv[1:]))
    except KeyboardInterrupt as error:
        print("\ndse: stopped; what was stored stays", file=sys.stderr)
        sys.exit(exit_status(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (DesignError, OSError) as error:
        line = format_error_line(error)
        if not line:
            raise
        print(line, file=sys.stderr)
        sys.exit(2)


NAMED = ("explain", "robust", "whynot", "show", "report", "export", "figure")
"""Commands that take the name of a study."""


def _run_command(arguments: list[str]) -> int:
    if any(argument in ("-sc", "--shell-completion") for argument in arguments):
        return _run_complete(arguments)
    name, *rest = arguments or ["--help"]
    if name == "help" and rest:
        name, rest = rest[0], ["--help"]
    if name in ("-h", "--help", "help"):
        print(format_help_overview(), end="")
        return 0
    if name == "--version":
        from importlib.metadata import version

        print(f"mesh-dse {version('mesh-dse')}")
        return 0
    if name.startswith("-"):
        raise DesignError(f"no flag {name!r}; {suggest_nearest(name, ('--help', '--version', '--shell-completion'))}")
    if name not in COMMANDS:
        raise DesignError(f"no command {name!r}; {suggest_nearest(name, COMMANDS)}")
    does: dict[str, Callable[[Namespace], int]] = {
        "run": _run_studies,
        "evaluate": _run_evaluate,
        "compare": _run_compare,
        "capacity": _run_capacity,
        "fleet": _run_fleet,
        "explain": _run_explain,
        "constants": _run_constants,
        "robust": _run_robust,
        "whynot": _run_whynot,
        "report": _run_report,
        "validate": _run_validate,
        "calibrate": _run_calibrate,
        "list": _run_list,
        "show": _run_show,
        "export": _run_export,
        "figure": _run_figure,
        "schema": _run_schema,
        "mcp": _run_mcp,
    }
    return does[name](parse_arguments(name, rest))


def _run_studies(typed: Namespace) -> int:
    from dse.config.compose import run_with_hydra
    from dse.config.overrides import find_study_paths

    names, words = _split_words(typed.words)
    if len(names) > 1 or (names and any(word.startswith("study=") for word in words)):
        raise DesignError(f"run: expected one study, got {' '.join(typed.words)}; as in dse run quickstart")
    if not names and not typed.hydra and not any(word.startswith("study=") for word in words):
        raise DesignError(f"run: name a study, as in dse run quickstart; valid: {', '.join(find_study_paths())}")
    typed.words = [*(f"study={name}" for name in names), *words]

    def run_composed_study(config: dict[str, Any]) -> None:
        from dse.commands.run_study import run_config

        codes.append(run_config(config))

    codes: list[int] = []
    run_with_hydra(_hydra_line(typed), run_composed_study)
    return codes[0] if codes else 0


def _run_evaluate(typed: Namespace) -> int:
    from dse.config.compose import run_with_hydra

    shortlist = vars(typed)["from"]
    _refuse_engine_args(typed, alone=not shortlist)
    if shortlist:
        from dse.commands.shortlist import print_shortlist

        if typed.trace:
            raise DesignError("evaluate --trace: a timeline needs one design; evaluate it by its overrides, without --from")
        with _compile_notice("evaluate"):
            print_shortlist(
                Path(shortlist), [*typed.hydra, *typed.words], as_json=typed.json, trust=typed.trust, full=typed.full
            )
        return 0

    if typed.design:
        return _evaluate_design(typed)

    def evaluate_composed_design(config: dict[str, Any]) -> None:
        from dse.commands.evaluate_output import print_evaluation_of

        with _compile_notice("evaluate"):
            status = print_evaluation_of(
                config, as_json=typed.json, trace=typed.trace, with_engine=typed.engine_args, view=_view(typed)
            )
        codes.append(status)

    codes: list[int] = []
    run_with_hydra(_hydra_line(typed), evaluate_composed_design)
    return codes[0] if codes else 0


def _view(typed: Namespace) -> str:
    """The text of an answer that is asked for: its first screen, all of it, or its operators."""
    if sum((typed.full, typed.operators, typed.json)) > 1:
        raise DesignError("evaluate: --full, --operators and --json are three texts of one answer; remove all but one")
    return "full" if typed.full else "operators" if typed.operators else "screen"


def _evaluate_design(typed: Namespace) -> int:
    """A design of a study by its id."""
    from dse.commands.evaluate_output import print_answer
    from dse.commands.notebook_api import evaluated_design, load

    names = [word.removeprefix("study=") for word in typed.words if word.startswith("study=")]
    if len(names) != 1:
        raise DesignError(
            f"evaluate --design: {typed.design!r} belongs to a study; name the study, as in dse evaluate "
            f"study=quickstart --design ID"
        )
    places = [word for word in typed.words if word.startswith(("store=", "run_dir="))]
    if others := [word for word in typed.words if word not in places and not word.startswith("study=")]:
        raise DesignError(f"evaluate --design: {typed.design!r} and {' '.join(others)} both name a design; remove one of them")
    with _compile_notice("evaluate"):
        evaluation, config = evaluated_design(load(names[0], *places, trust=typed.trust), typed.design, trust=typed.trust)
        return print_answer(
            evaluation, config, as_json=typed.json, trace=typed.trace, with_engine=typed.engine_args, view=_view(typed)
        )


def _run_compare(typed: Namespace) -> int:
    from dse.analysis.compare import DEFAULT_OBJECTIVE
    from dse.commands.compare_output import print_comparison

    with _compile_notice("compare"):
        print_comparison(
            [*typed.hydra, *typed.words],
            typed.objective or DEFAULT_OBJECTIVE,
            as_json=typed.json,
            trust=typed.trust,
            full=typed.full,
        )
    return 0


def _run_capacity(typed: Namespace) -> int:
    from dse.analysis.capacity import find_capacity
    from dse.commands.capacity_output import write_capacity

    names, words = _split_words(typed.words)
    _refuse_engine_args(typed)
    if names:
        raise DesignError(f"capacity: expected devices=N or rate=R, and overrides, got {' '.join(names)}")
    out = Path(typed.out) if typed.out else Path("runs") / "capacity" / "capacity.html"
    with _compile_notice("capacity"):
        sides = find_capacity([*typed.hydra, *words], trust=typed.trust)
    write_capacity(sides, out, as_json=typed.json, with_engine=typed.engine_args, full=typed.full)
    return 0


def _run_fleet(typed: Namespace) -> int:
    from dse.analysis.fleet import find_fleets, parse_query
    from dse.commands.fleet_output import write_fleets

    names, words = _split_words(typed.words)
    if names:
        raise DesignError(f"fleet: expected overrides and flags, got {' '.join(names)}")
    flags = {name: getattr(typed, name) for name in ("day", "peak", "spare", "cold_start", "shares", "portfolio", "rent", "by")}
    out = Path(typed.out) if typed.out else Path("runs") / "fleet" / "fleet.html"
    with _compile_notice("fleet"):
        query = parse_query([*typed.hydra, *words], **flags, trust=typed.trust)
        fleets = find_fleets(query, trust=typed.trust)
    write_fleets(fleets, out, as_json=typed.json, full=typed.full)
    return 0


def _refuse_engine_args(typed: Namespace, *, alone: bool = True) -> None:
    """Refuse command lines of inference engines in JSON, or of a shortlist of designs."""
    if typed.engine_args and (typed.json or not alone):
        raise DesignError(f"--engine-args: prints text for one answer; remove it, or {'--json' if alone else '--from'}")


def _compile_notice(what: str) -> "CompileNotice":
    """Say that loops are being compiled, where they are."""
    from dse.evaluators.machine.compile_counter import count_compilations_started
    from dse.terminal.progress import CompileNotice

    return CompileNotice(what, count_compilations_started)


def _run_explain(typed: Namespace) -> int:
    from dse.commands.explain import run_explain

    names, words = _split_words(typed.words)
    run_explain(names, [*typed.hydra, *words], typed.design, as_json=typed.json, trust=typed.trust, full=typed.full)
    return 0


def _run_constants(typed: Namespace) -> int:
    from dse.commands.constants_output import run_constants

    names, words = _split_words(typed.words)
    if names:
        raise DesignError(f"constants: expected overrides, as in dse constants study={names[0]}, got {' '.join(names)}")
    with _compile_notice("constants"):
        run_constants([*typed.hydra, *words], typed.source, as_json=typed.json, trust=typed.trust)
    return 0


def _run_robust(typed: Namespace) -> int:
    name, overrides = _single_name("robust", typed.words)
    from dse.commands.robust_output import run_robust

    with _compile_notice("robust"):
        return run_robust(name, *overrides, draws=typed.draws, as_json=typed.json, trust=typed.trust)


def _run_whynot(typed: Namespace) -> int:
    from dse.commands.explain import run_whynot

    names, words = _split_words(typed.words)
    run_whynot(names, [*typed.hydra, *words], typed.design, as_json=typed.json, trust=typed.trust, full=typed.full)
    return 0


def _run_report(typed: Namespace) -> int:
    from rich.markup import escape

    from dse.commands.notebook_api import load, write_comparison_report
    from dse.terminal.progress import say

    names, overrides = _split_words(typed.words)
    if not names:
        raise DesignError("report: expected the names of one or more studies (dse list), got nothing")
    if typed.follow:
        from dse.commands.follow_report import follow_studies

        return follow_studies(names, typed.out, trust=typed.trust)
    path = write_comparison_report([load(name, *overrides, trust=typed.trust) for name in names], typed.out)
    say(f"report  {escape(str(path))}")
    return 0


def _run_validate(typed: Namespace) -> int:
    if typed.claims:
        from dse.commands.claim_output import validate_claims

        out = Path(typed.out) if typed.out else Path("runs") / "validation" / "claims.html"
        return validate_claims(typed.words, out, as_json=typed.json)
    files = [word for word in typed.words if word.endswith(".csv") or Path(word).is_file()]
    if files and files != typed.words:
        raise DesignError(f"validate: expected files or studies, got {' '.join(typed.words)}")
    if files:
        from dse.accuracy.validate import validate_files

        if typed.out:
            raise DesignError("validate --out: only studies have a page; files are printed")
        return validate_files([Path(word) for word in files], as_json=typed.json)
    from dse.commands.validate_all import validate_studies

    out = Path(typed.out) if typed.out else Path("runs") / "validation" / "validation.html"
    return validate_studies(typed.words, out, as_json=typed.json)


def _run_calibrate(typed: Namespace) -> int:
    from dse.accuracy.calibrate import calibrate
    from dse.commands.calibrate_output import write_calibration

    files, words = _split_words(typed.words)
    if len(files) != 1:
        raise DesignError(f"calibrate: expected one file of measured rows, got {' '.join(files) or 'nothing'}")
    named = [word.partition("=")[2] for word in words if word.startswith("name=")]
    name = named[-1] if named else Path(files[0]).stem
    if not name.replace("-", "_").replace("_", "a").isalnum() or name.startswith("-"):
        raise DesignError(f"name: {name!r} cannot name a folder of constants; set name=NAME with letters, digits and _")
    out = Path(typed.out) if typed.out else Path("runs") / name / "calibration.yaml"
    if out.suffix != ".yaml":
        raise DesignError(f"calibrate --out: expected a file name that ends in .yaml, got {out}")
    write_calibration(calibrate(Path(files[0]), [*typed.hydra, *words]), out, as_json=typed.json)
    return 0


def _run_list(typed: Namespace) -> int:
    if len(typed.words) > 2:
        raise DesignError(f"list: expected a kind and a word, got {' '.join(typed.words)}; as in dse list chips h100")
    if typed.words:
        from dse.commands.reference_output import print_reference

        return print_reference(typed.words[0], "".join(typed.words[1:]), as_json=typed.json)
    from dse.commands.study_output import print_studies
    from dse.config.overrides import find_study_paths

    return print_studies(find_study_paths(), as_json=typed.json)


def _run_schema(typed: Namespace) -> int:
    from dse.documents import build_schema, document_types
    from dse.documents.records import record_title
    from dse.terminal.json_text import format_json

    if len(typed.words) > 1:
        raise DesignError(f"schema: expected the name of one document, got {' '.join(typed.words)}")
    if typed.words:
        print(format_json(build_schema(typed.words[0]), indent=1))
        return 0
    for name, document in document_types().items():
        print(f"{name:12}{document.STAMP:20}{document.COMMAND:40}{record_title(document)}")
    return 0


def _run_mcp(typed: Namespace) -> int:
    if typed.words:
        raise DesignError(f"mcp: takes no arguments, got {' '.join(typed.words)!r}")
    try:
        from dse.mcp_server.server import serve_mcp
    except ImportError as error:
        raise DesignError(f"mcp: {error}; pip install 'mesh-dse[mcp]'") from None
    serve_mcp(allow_run=typed.allow_run)
    return 0


def _run_show(typed: Namespace) -> int:
    name, overrides = _single_name("show", typed.words)
    from dse.commands.notebook_api import load
    from dse.commands.study_output import print_study, print_study_results
    from dse.commands.study_screen import stored_study_lines
    from dse.terminal.progress import print_lines, screen_width

    loaded = load(name, *overrides, trust=typed.trust)
    loaded.check_rows()
    if typed.full:
        print_study(loaded.study, loaded.runs(), loaded.front_sample(), loaded.frame)
        print_study_results(loaded.study, loaded.frame(), loaded.verification())
        return 0
    print_lines(stored_study_lines(loaded, screen_width()))
    return 0


def _run_export(typed: Namespace) -> int:
    from dse.commands.export import FORMATS, export_study

    name, overrides = _single_name("export", typed.words)
    to = typed.to or "parquet"
    if to not in FORMATS:
        raise DesignError(f"export --to: no format {to!r}; {suggest_nearest(to, FORMATS)}")
    return export_study(name, to, typed.out, *overrides, trust=typed.trust, everything=typed.all)


def _run_figure(typed: Namespace) -> int:
    names, overrides = _split_words(typed.words)
    if len(names) != 2:
        raise DesignError(
            f"figure: expected a study and a figure, got {' '.join(names) or 'nothing'}; as in dse figure quickstart pareto"
        )
    from dse.commands.figure_output import write_study_figure

    options = {name: getattr(typed, name) for name in ("design", "per", "x", "y")}
    return write_study_figure(*names, typed.out, *overrides, trust=typed.trust, **options)


def _hydra_line(typed: Namespace) -> list[str]:
    """What Hydra is given: its flags and the overrides."""
    return [*typed.hydra, *typed.words, *([TRUST] if typed.trust else [])]


def _split_words(words: list[str]) -> tuple[list[str], list[str]]:
    """Names, and overrides, which have a value or remove a setting (``~constraints.ttft``)."""
    are_overrides = ["=" in word or word.startswith("~") for word in words]
    names = [word for word, is_override in zip(words, are_overrides, strict=True) if not is_override]
    return names, [word for word, is_override in zip(words, are_overrides, strict=True) if is_override]


def _single_name(command: str, words: list[str]) -> tuple[str, list[str]]:
    """The one name that a command takes, and overrides."""
    names, overrides = _split_words(words)
    if len(names) != 1:
        raise DesignError(f"{command}: expected the name of a study (dse list), got {' '.join(names) or 'nothing'}")
    return names[0], overrides


def _run_complete(arguments: list[str]) -> int:
    """Shell completion: commands, flags and studies here, overrides by Hydra."""
    line = os.environ.get("COMP_LINE", "")
    words = line.split()
    current = "" if line.endswith(" ") else (words or [""])[-1]
    if line and (len(words) == 1 or (len(words) == 2 and current)):
        return _offer_words(COMMANDS, current)
    from dse.config.compose import run_with_hydra
    from dse.config.overrides import find_study_paths

    if len(words) > 1 and words[1] in COMMANDS:
        if current.startswith("-"):
            return _offer_words(list_flags(words[1]), current)
        if words[1] == "run" and (current.startswith("study=") or (current and "study=".startswith(current))):
            return _offer_words([f"study={name}" for name in find_study_paths()], current)
        if words[1] in NAMED and "=" not in current:
            return _offer_words(find_study_paths(), current)
        if not COMMANDS[words[1]].hydra:
            return 0
        os.environ["COMP_LINE"] = line.replace(f" {words[1]}", "", 1)
    run_with_hydra([argument for argument in arguments if argument not in COMMANDS], lambda config: None)
    return 0


def _offer_words(words: Iterable[str], start: str) -> int:
    print(" ".join(word for word in words if word.startswith(start)))
    return 0


if __name__ == "__main__":
    main()
