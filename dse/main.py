"""The command line: dispatch of commands; `dse.commands.cli_options` has what each command takes.

Heavy libraries are imported where they are used, so that help and completion answer at once.
"""

import gc
import os
import sys
from argparse import Namespace

from dse.commands.cli_options import COMMANDS, format_help_overview, parse_arguments
from dse.space.errors import DesignError, suggest_nearest
from dse.terminal.error_line import format_error_line
from dse.terminal.signals import exit_status, handle_signals
from dse.terminal.text_encoding import make_output_printable

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


def _run_command(arguments: list[str]) -> int:
    if any(argument in ("-sc", "--shell-completion") for argument in arguments):
        from dse.commands.completion import run_completion

        return run_completion(arguments)
    name, *rest = arguments or ["--help"]
    if name == "help" and rest:
        name, rest = rest[0], ["--help"]
    if name in ("-h", "--help", "help"):
        print(format_help_overview(), end="")
        return 0
    if name == "--version":
        from dse.terminal.package_version import version

        print(f"mesh-dse {version()}")
        return 0
    if name.startswith("-"):
        raise DesignError(f"no flag {name!r}; {suggest_nearest(name, ('--help', '--version', '--shell-completion'))}")
    if name not in COMMANDS:
        raise DesignError(f"no command {name!r}; {suggest_nearest(name, COMMANDS)}")
    typed = parse_arguments(name, rest)
    run = COMMANDS[name].run
    return run(typed) if run is not None else _serve_mcp(typed)


def _serve_mcp(typed: Namespace) -> int:
    """Serve tools for assistants; the server stands above the commands, whose answers it gives."""
    if typed.words:
        raise DesignError(f"mcp: takes no arguments, got {' '.join(typed.words)!r}")
    try:
        from dse.mcp_server.server import serve_mcp
    except ImportError as error:
        raise DesignError(f"mcp: {error}; pip install 'mesh-dse[mcp]'") from None
    serve_mcp(allow_run=typed.allow_run)
    return 0


if __name__ == "__main__":
    main()
