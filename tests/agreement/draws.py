"""The command line of surveys: how many draws."""

import argparse


def count(module: str, description: str | None, default: int = 200) -> int:
    """A whole number of at least 1 that was typed, or the default.

    Args:
        module, said: the survey's, for its help.
        default: where nothing is typed.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=(description or "").split("\n")[0])
    parser.add_argument("count", nargs="?", type=int, default=default, help="draws of each kind (%(default)s)")
    count: int = parser.parse_args().count
    return count if count > 0 else parser.error(f"argument count: {count} draws; say at least 1")
