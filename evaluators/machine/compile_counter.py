"""Counter of the loops that this process has begun to compile.

Messages about waiting use it; it does not import numba.
"""

_loops: list[str] = []


def note_compilation(loop: str) -> None:
    """Note that a loop was in no cache and is being compiled."""
    _loops.append(loop)


def count_compilations_started() -> int:
    """Number of loops that this process has begun to compile. [-]"""
    return len(_loops)
