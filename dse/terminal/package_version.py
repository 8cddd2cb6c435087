"""The installed version of the project, which answers, runs and results are marked with."""

from functools import cache


@cache
def version() -> str:
    """The installed version of the project."""
    from importlib.metadata import version as installed

    return installed("mesh-dse")
