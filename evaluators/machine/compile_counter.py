"""Counter of the loops that this process has begun to compile.

Messages about waiting use it; it does not import numba.
"""


class _Compilations:
    """Number of loops that were begun so far."""

    started = 0


def note_compilation(loop: str) -> None:
    """Note that a loop was in no cache and is being compiled."""
    _Compilations.started += 1


def count_compilations_started() -> int:
    """Number of loops that this process has begun to compile. [-]"""
    return _Compilations.started
