"""How many loops this process has begun to compile, for whoever says why there is no answer yet; it does not import numba."""

_loops: list[str] = []


def note_compilation(loop: str) -> None:
    """A loop was in no cache."""
    _loops.append(loop)


def compilations_started() -> int:
    """How many were in none so far."""
    return len(_loops)
