"""Records of commands and flags, and the words of a command line: studies and overrides.

No heavy library is imported, so that help and completion answer at once.
"""

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dse.config.untrusted_files import TRUST
from dse.space.errors import DesignError

if TYPE_CHECKING:
    from dse.terminal.progress import CompileNotice


@dataclass(frozen=True, slots=True)
class CommandFlag:
    """One flag of a command with its help text.

    Attributes:
        names: as they are typed, the one for messages last.
        does: one line.
        value: what it takes, in capitals; "" for nothing.
        example: of a value.
        optional: whether the value may be left out; then it is the example.
        default: what counts where the flag is not typed, with its unit; "" of a flag without a value.
        completes: what its values are, as `dse.commands.completion` lists them; "" where nothing lists them.
    """

    names: tuple[str, ...]
    does: str
    value: str = ""
    example: str = ""
    optional: bool = False
    default: str = ""
    completes: str = ""

    @property
    def help_text(self) -> str:
        """What it does and its default, as ``--help`` prints it; empty string of a flag that help leaves out."""
        return f"{self.does} (default: {self.default})" if self.does and self.default else self.does


@dataclass(frozen=True, slots=True)
class Command:
    """One command with its arguments, flags, help text and examples, and the function that runs it.

    Attributes:
        takes: what follows its name.
        does: one line, for the list of commands.
        about: what it does, and the overrides that count for it.
        flags: its own.
        examples: three lines that run.
        run: does it for parsed arguments and returns the exit status; None of the server, which `dse.main` starts.
        hydra: whether it composes a configuration under Hydra's own flags.
        studies: whether its words may name a study.
    """

    takes: str
    does: str
    about: str
    flags: tuple[CommandFlag, ...]
    examples: tuple[str, str, str]
    run: Callable[[Namespace], int] | None = None
    hydra: bool = False
    studies: bool = False


FULL_FLAG = CommandFlag(("--full",), "print all that is known instead of the first screen")
JSON_FLAG = CommandFlag(("--json",), "print everything as JSON, in SI units")
ENGINE_ARGS_FLAG = CommandFlag(
    ("--engine-args",), "also print the command line with which the inference engine is assumed to be started"
)
TRUST_FLAG = CommandFlag(("--trust",), "allow code in files that did not come with this program, and in stored runs")
OPEN_FLAG = CommandFlag(("--open",), "open the written page in the browser")
YES_FLAG = CommandFlag(("--yes",), "do it without asking; required without a terminal")
DESIGN_FLAG = CommandFlag(
    ("--design",), "a design of the study, by its id in tables, files and the report", "ID", "1f3a09c27b", default="none"
)
OBJECTIVE = "metrics"
"""Kind of names that an objective takes, for completion."""


def out_flag(default: str, example: str, what: str = "the page") -> CommandFlag:
    """The flag that names a file to write.

    Args:
        default: path where it is not typed.
        example: of a value.
        what: is written.
    """
    return CommandFlag(("--out",), f"write {what} to this file", "FILE", example, default=default)


def split_words(words: list[str]) -> tuple[list[str], list[str]]:
    """Names, and overrides, which have a value or remove a setting (``~constraints.ttft``).

    >>> split_words(["quickstart", "seed=1", "~constraints.ttft"])
    (['quickstart'], ['seed=1', '~constraints.ttft'])
    """
    are_overrides = ["=" in word or word.startswith("~") for word in words]
    names = [word for word, is_override in zip(words, are_overrides, strict=True) if not is_override]
    return names, [word for word, is_override in zip(words, are_overrides, strict=True) if is_override]


def split_studies(words: list[str]) -> tuple[list[str], list[str]]:
    """Names of studies, bare or as ``study=NAME``, and the other overrides: the one rule for all commands.

    >>> split_studies(["study=quickstart", "seed=1"]), split_studies(["quickstart", "seed=1"])
    ((['quickstart'], ['seed=1']), (['quickstart'], ['seed=1']))
    """
    names, overrides = split_words([word.removeprefix("study=") if word.startswith("study=") else word for word in words])
    return names, overrides


def split_study(command: str, words: list[str]) -> tuple[str, list[str]]:
    """The one study that a command takes, and overrides.

    Raises:
        DesignError: no study or several.
    """
    names, overrides = split_studies(words)
    if len(names) != 1:
        raise DesignError(f"{command}: expected the name of a study (dse list), got {' '.join(names) or 'nothing'}")
    return names[0], overrides


def list_run_names() -> list[str]:
    """Names of the studies that have results in ./runs."""
    return sorted(
        folder.name for folder in Path("runs").glob("*") if any((folder / f).is_file() for f in ("results.sqlite", "store.url"))
    )


def name_as_override(words: list[str]) -> list[str]:
    """Words of a command that composes a configuration, with a bare name of a study as ``study=NAME``."""
    names, _ = split_words(words)
    if not names:
        return words
    from dse.config.overrides import find_study_paths

    known = find_study_paths()
    return [f"study={word}" if word in known else word for word in words]


def hydra_line(typed: Namespace) -> list[str]:
    """What Hydra is given: its flags and the overrides."""
    return [*typed.hydra, *typed.words, *([TRUST] if typed.trust else [])]


def compile_notice(what: str) -> "CompileNotice":
    """Say that loops are being compiled, where they are."""
    from dse.evaluators.machine.compile_counter import count_compilations_started
    from dse.terminal.progress import CompileNotice

    return CompileNotice(what, count_compilations_started)


def open_if_asked(typed: Namespace, path: Path) -> None:
    """Open a written page in the browser where ``--open`` was typed."""
    if typed.open:
        from dse.terminal.browser import open_page

        open_page(path)
