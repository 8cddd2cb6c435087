"""Former place of `dse.testing.functional_simulator`, which is answered for one release.

Tests of packages import `run_program` from here. Nothing is loaded until they do, and one line then says the present place.
"""

from importlib import import_module
from typing import Any

from dse.space.former_words import note_renamed

PRESENT = "dse.testing.functional_simulator"


def __getattr__(name: str) -> Any:
    """Return what the present module has by a name.

    Raises:
        AttributeError: the present module does not have the name.
    """
    if name.startswith("__"):  # what Python and tools look for in every module
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(PRESENT), name)
    note_renamed(__name__, PRESENT)
    return value
