"""Every command with its group, the help texts, and the argparse parsers of arguments.

What a command takes stands beside the function that runs it, in `dse.commands.groups`. No heavy library is imported, so that
help and completion answer at once.
"""

import argparse
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dse.commands.command_record import Command, CommandFlag
from dse.commands.groups import ask, out, search, trust
from dse.config.untrusted_files import TRUST
from dse.space.errors import CONFIGURATION_FIELDS, DesignError, suggest_nearest

GROUPS: dict[str, dict[str, Command]] = {
    "ask: one answer, no study": ask.COMMANDS,
    "search: studies and their results": search.COMMANDS,
    "trust: why, and how sure": trust.COMMANDS,
    "out: for other programs": out.COMMANDS,
}
"""Commands by the heading of their group in ``dse --help``."""

COMMANDS: dict[str, Command] = {name: command for group in GROUPS.values() for name, command in group.items()}

HYDRA = (
    CommandFlag(
        ("-cd", "--config-dir"), "a folder of your own chips, models, mappings and spaces", "DIR", "mine", default="none"
    ),
    CommandFlag(
        ("-c", "--cfg"), "print the composed configuration (job, hydra or all), and stop", "WHAT", "job", default="none"
    ),
    CommandFlag(("--resolve",), "with --cfg: resolve interpolations"),
    CommandFlag(
        ("-p", "--package"), "with --cfg: print only this part, as in --package chip", "PART", "chip", default="all parts"
    ),
    CommandFlag(
        ("-i", "--info"),
        "print what Hydra knows: all, config, defaults, defaults-tree, plugins or searchpath",
        "WHAT",
        "all",
        optional=True,
        default="none",
    ),
    CommandFlag(("--hydra-help",), "Hydra's own help"),
    CommandFlag(("-cn", "--config-name"), "", "NAME", "config"),
    CommandFlag(("-cp", "--config-path"), "", "DIR", "mine"),
)
"""Hydra's flags of commands that compose a configuration; those without a help text are refused with a remedy."""

HELP_HEAD = "mesh-dse: which chip and which mapping for this model and this load, and why\n"
HELP_TAIL = """
dse COMMAND --help describes each command, with examples; dse --version.

Overrides are Hydra's: chip=ascend910b chip.l2.size='64 MB' model=[llama3_8b,qwen2_7b] mapping.prefill.tp=16
A model from Hugging Face: model.from_hf=FOLDER/config.json; from a graph: model.from_graph=FILE.onnx
A study is named alike for all commands: dse show quickstart, or dse show study=quickstart
The shell (bash, zsh or fish) completes commands, studies, flags, keys and values after
  eval "$(dse -sc install=bash)"
"""

DEEP = 12
"""Spaces from which on a line goes on with the row above it."""

NARROWEST, WIDEST = 40, 120
"""Width of help texts at least and at most, whatever the terminal says."""


def help_width() -> int:
    """Columns of help texts: those of the terminal, 80 where the output is piped."""
    return min(max(shutil.get_terminal_size((80, 24)).columns, NARROWEST), WIDEST)


def format_help_overview() -> str:
    """The help on all commands, as ``dse --help`` prints it."""
    width, column = help_width(), max(map(len, COMMANDS)) + 8
    lines = [HELP_HEAD]
    for heading, group in GROUPS.items():
        lines.append(heading)
        for name, command in group.items():
            lines += _hanging_lines(f"  dse {name}", command.does, column, width)
        lines.append("")
    return "\n".join([*lines[:-1], *_wrapped_lines(HELP_TAIL, width)]) + "\n"


def _hanging_lines(start: str, text: str, column: int, width: int) -> list[str]:
    """A name and its text beside it, further lines below the text."""
    lines = textwrap.wrap(text, max(width - column, 20), break_on_hyphens=False, break_long_words=False) or [""]
    first = [f"{start:{column}}{lines[0]}"] if len(start) < column else [start, " " * column + lines[0]]
    return [*first, *(" " * column + line for line in lines[1:])]


def _wrapped_lines(text: str, width: int) -> Iterator[str]:
    """Lines of a help text in a width: paragraphs filled, tables of names and texts with their texts hanging."""
    paragraph: list[str] = []
    for line in [*_joined_rows(text), ""]:
        if line and not line.startswith(" ") and not line.startswith(("dse ", "Overrides", "A ", "The shell")):
            paragraph.append(line)
            continue
        if paragraph:
            yield from textwrap.wrap(" ".join(paragraph), width, break_on_hyphens=False, break_long_words=False)
            paragraph = []
        pair = re.match(r"(\s+\S.*?\s{2,})(\S.*)", line)
        if pair:
            column = min(len(pair[1]), width // 2)
            *above, start = textwrap.wrap(pair[1].strip(), width, initial_indent="  ", subsequent_indent="  ")
            yield from above
            yield from _hanging_lines(start, pair[2], column, width)
        else:
            indent = " " * (len(line) - len(line.lstrip()))
            yield from textwrap.wrap(
                line, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False, drop_whitespace=True
            ) or [""]


def _joined_rows(text: str) -> list[str]:
    """Lines of a text, those that go on with the text of a table's row joined to it."""
    lines: list[str] = []
    for line in text.splitlines():
        if lines and line.startswith(" " * DEEP) and lines[-1].startswith(" "):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return lines


def _example_lines(example: str, width: int) -> list[str]:
    r"""A command line in a width, its lines ended with a backslash where it goes on.

    >>> _example_lines("dse show quickstart store=runs/quickstart/results.sqlite", 40)
    ['  dse show quickstart \\', '    store=runs/quickstart/results.sqlite']
    """
    lines, line = [], ""
    for word in re.findall(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+", example):
        if line and len(line) + len(word) + 3 > width:
            lines.append(f"{line} \\")
            line = f"    {word}"
        else:
            line = f"{line} {word}" if line else f"  {word}"
    return [*lines, line]


def list_flags(name: str) -> list[str]:
    """Every flag of a command, Hydra's flags included."""
    return ["--help", *(flag.names[-1] for flag in known_flags(name) if flag.does)]


def known_flags(name: str) -> tuple[CommandFlag, ...]:
    """Flags of a command, with Hydra's where it composes a configuration."""
    command = COMMANDS[name]
    return (*command.flags, *(HYDRA if command.hydra else ()))


SWEEPS = ("-m", "--multirun", "--sweep")
"""Flags by which other programs try several values."""

INSTEAD_OF_A_SWEEP = (
    "dse sweep tries several values, as in dse sweep chip=[h100,h200] mapping.both.tp=[1,2,4]; "
    "dse compare chip=[A,B] compares chips, each with its best mapping; a study tries chips=[A,B]"
)


def parse_arguments(name: str, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of a command: a field for each of its flags, ``words`` and ``hydra``.

    ``words`` has the overrides, ``hydra`` Hydra's flags. ``--help`` prints and ends the program, as argparse does.

    Raises:
        DesignError: a flag that the command does not have, or one without its value.
    """
    parser = _option_parser(name)
    try:
        found_arguments, left = parser.parse_known_intermixed_args(list(arguments))
    except argparse.ArgumentError as error:
        spelt = str(error.argument_name).split("/")[-1]
        (flag,) = (flag for flag in (*COMMANDS[name].flags, *HYDRA) if flag.names[-1] == spelt)
        what = "takes a file" if flag.value == "FILE" else f"takes {flag.value}"
        raise DesignError(f"{name} {spelt}: {what if flag.value else error.message}, as in {spelt} {flag.example}") from None
    unknown = [word for word in (*left, *found_arguments.words) if word.startswith("-")]
    if unknown:
        typed = unknown[0].partition("=")[0]
        if typed in SWEEPS:
            raise DesignError(f"{name}: no flag {typed!r}; {INSTEAD_OF_A_SWEEP}")
        setting = typed.strip("-").replace("-", "_")
        if setting in CONFIGURATION_FIELDS or f" {setting}=" in COMMANDS[name].about:
            raise DesignError(f"{name}: no flag {typed!r}; settings have no dashes: {setting}=VALUE")
        raise DesignError(
            f"{name}: no flag {typed!r}; {suggest_nearest(typed, [flag for flag in list_flags(name) if flag != TRUST])}"
        )
    found_arguments.words += left
    _refuse_flag_words(name, found_arguments.words)
    _refuse_folder_for_file(name, found_arguments)
    return found_arguments


def _refuse_flag_words(name: str, words: Sequence[str]) -> None:
    """Refuse a flag that is written as an override, as in ``objective=tpot``."""
    flags = {flag.names[-1].removeprefix("--"): flag for flag in COMMANDS[name].flags}
    for word in words:
        key, equals, value = word.partition("=")
        flag = flags.get(key.replace("_", "-"))
        if flag and equals and key not in CONFIGURATION_FIELDS and f" {key}=" not in COMMANDS[name].about:
            typed = f" {value}" if flag.value else ""
            raise DesignError(f"{name}: {key} is a flag and no setting: {flag.names[-1]}{typed}")


def _refuse_folder_for_file(name: str, typed: argparse.Namespace) -> None:
    """Refuse a folder where a flag takes the page to write, before the answer is worked out."""
    out = getattr(typed, "out", None)
    takes_page = any(flag.names[-1] == "--out" and flag.value == "FILE" for flag in COMMANDS[name].flags)
    if out and takes_page and not getattr(typed, "to", None) and Path(out).is_dir():
        raise DesignError(f"{name} --out: {out} is a folder; name a file in it, as in --out {Path(out) / name}.html")


class _Value(argparse.Action):
    """Keeps the value of a flag; an empty one, as of a variable of the shell that is not set, is none."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if not values.strip():
            raise argparse.ArgumentError(self, "empty")
        setattr(namespace, self.dest, values)


class _Hydras(argparse.Action):
    """Keeps a flag of Hydra's as it was typed."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        namespace.hydra += [option_string, *([values] if isinstance(values, str) else [])]


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help in the width of the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=24, width=help_width())

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:\n"):
            lines = [line for example in text.splitlines()[1:] for line in _example_lines(example.strip(), width)]
            return "\n".join(["examples:", *lines])
        return "\n".join(_wrapped_lines(text, width))


def _option_parser(name: str) -> argparse.ArgumentParser:
    command = COMMANDS[name]
    parser = argparse.ArgumentParser(
        f"dse {name}",
        usage="\n       ".join(textwrap.wrap(f"dse {name} [flags] {command.takes}", help_width() - 8)),
        description=command.about,
        epilog="\n".join(("examples:", *command.examples)),
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
        exit_on_error=False,
    )
    parser._optionals.title = "flags"
    parser.set_defaults(hydra=[])
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    for flag in command.flags:
        if flag.value:
            parser.add_argument(*flag.names, action=_Value, metavar=flag.value, default="", help=_escaped(flag))
        else:
            parser.add_argument(*flag.names, action="store_true", help=_escaped(flag))
    if command.hydra:
        group = parser.add_argument_group("Hydra's flags")
        for flag in HYDRA:
            many = 0 if not flag.value else "?" if flag.optional else None
            group.add_argument(
                *flag.names,
                action=_Hydras,
                nargs=many,
                const=flag.example if flag.optional else None,
                metavar=flag.value or None,
                help=_escaped(flag) or argparse.SUPPRESS,
                dest="hydra",
                default=argparse.SUPPRESS,
            )
    return parser


def _escaped(flag: CommandFlag) -> str:
    """Help text of a flag as argparse takes it, which reads % as a field."""
    return flag.help_text.replace("%", "%%")
