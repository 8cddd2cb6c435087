"""Compiled loops that are kept: a second process starts without compiling.

What is kept counts as long as no source in its folder has changed, since loops hold what they call, from other files too. It
is kept where the first of these can be written: `NUMBA_CACHE_DIR`, or else beside the sources, or in the user's cache. Where
nothing can be written, what is there is read, and the rest is compiled every time. Processes that start together compile each
function once. Beside them, what loops over sets of small
numbers, the bits of one, are made of.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numba import njit, types
from numba.core import caching, cgutils, config
from numba.extending import intrinsic

PATIENCE = 120.0
"""How long a process waits for another one to compile a function, before it does so itself. [s]"""


def kept(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compiles functions, as `numba.njit` does with the same options, and keeps what comes out."""

    def compiled(function: Callable[..., Any]) -> Any:
        made = njit(**options)(function)
        made._cache = _Cache(function)
        return made

    return compiled


_plain: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
_inside: dict[str, Any] = {**_plain, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
piece: Any = njit(forceinline=True, **_inside)
"""Of a loop, which it is written into."""

part = kept(**_inside)
"""Of a loop, which it calls."""

loop = kept(**_plain)
"""What Python calls."""


index: Any = np.uint64
"""A number that is not below 0, so that an array need not look whether it counts from the end."""


def _lowest(_: Any, bits: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.cttz(given[0], cgutils.true_bit)

    return types.int64(types.int64), build


lowest: Any = intrinsic(_lowest)
"""The least of a set that is not empty: one instruction."""


@piece  # type: ignore[untyped-decorator]
def following(bits: Any, place: Any) -> Any:
    """The first at or after a place, in a circle, of a set of numbers below 32 that is not empty: without a branch."""
    return lowest(bits >> place << place | bits << 32) & 31


@lru_cache
def _stamp(folder: str) -> str:
    """What tells sources of a folder from what they were."""
    found = hashlib.sha256()
    for path in sorted(Path(folder).glob("*.py")):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


class _Place:
    """Where a function is kept; what numba calls a locator."""

    def __init__(self, function: Callable[..., Any], source: str) -> None:
        self._line = function.__code__.co_firstlineno
        self._folder = os.path.dirname(os.path.abspath(source))
        own = f"{os.path.basename(self._folder)}_{hashlib.sha256(self._folder.encode()).hexdigest()[:16]}"
        beside = os.path.join(self._folder, "__pycache__")
        user = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "mesh-dse", own)
        given: str = getattr(config, "CACHE_DIR", "")
        places = [os.path.join(given, own)] if given else [beside, user]
        self._path = next(filter(_writable, places), beside)

    @classmethod
    def from_function(cls, function: Callable[..., Any], source: str) -> "_Place":
        return cls(function, source)

    def ensure_cache_path(self) -> None:
        """It is there, or cannot be."""

    def get_cache_path(self) -> str:
        return self._path

    def get_source_stamp(self) -> str:
        return _stamp(self._folder)

    def get_disambiguator(self) -> str:
        return str(self._line)


@lru_cache
def _writable(path: str) -> bool:
    try:
        os.makedirs(path, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError:
        return False
    return True


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes = [_Place]


class _Cache(caching.FunctionCache):
    """Of one function: who does not find it compiles it, while others that want it wait to find it."""

    _impl_class = _Implementation

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._turn = FileLock(os.path.join(self._cache_path, f"{self._impl.filename_base}.lock"))

    def load_overload(self, *args: Any) -> Any:
        self._turn.release(force=True)
        found = self._load(*args)
        if found is not None or not _writable(self._cache_path):
            return found
        with contextlib.suppress(Timeout, OSError, NotImplementedError):  # of file systems without locks
            self._turn.acquire(timeout=PATIENCE)
            found = self._load(*args)
            if found is not None:
                self._turn.release()
        return found

    def save_overload(self, *args: Any) -> None:
        with contextlib.suppress(OSError):  # what cannot be kept is compiled again
            super().save_overload(*args)  # type: ignore[no-untyped-call]
        self._turn.release(force=True)

    def _load(self, *args: Any) -> Any:
        with contextlib.suppress(OSError):
            return super().load_overload(*args)  # type: ignore[no-untyped-call]
