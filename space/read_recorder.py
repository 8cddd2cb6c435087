"""Recording of which leaves of records are read; copies, comparisons and listings do not count."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

from dse.space import fields
from dse.space.fields import holder, leaf_at

GENERIC = ("__hash__", "__eq__", "__repr__")
"""Functions of value objects that go through all fields, whatever they are for."""


_recordings: list[set[str]] = []


def is_recording() -> bool:
    """Whether reads are recorded, so that what was worked out before is to be worked out again."""
    return bool(_recordings)


@contextmanager
def record_reads(value: Any, leaves: Sequence[str], first: Callable[[str], None] = lambda leaf: None) -> Iterator[set[str]]:
    """Record which of some leaves are read from a record or its copies, in a with block.

    Fields are recorded by the class that has them, in this whole process. A read of an object that is not in the value, as of
    a changed copy, counts for every leaf of that class and name.

    Args:
        value: of which the leaves are.
        leaves: addresses.
        first: called when a leaf is read for the first time; an exception from it ends the recording code.

    Returns:
        The leaves that were read so far.
    """
    owners: dict[tuple[type, str], dict[int, str]] = {}
    kept = []
    for leaf in leaves:
        owner, name = holder(value, leaf)
        kind = next(kind for kind in type(owner).__mro__ if name in kind.__dict__)
        owners.setdefault((kind, name), {})[id(owner)] = leaf
        kept.append(owner)  # so that no other object has its id
    reads: set[str] = set()
    fields_of = {key: key[0].__dict__[key[1]] for key in owners}
    try:
        for key, known in owners.items():
            setattr(*key, _Recorded(fields_of[key], known, reads, first))
        _recordings.append(reads)
        yield reads
    finally:
        _recordings[:] = [recording for recording in _recordings if recording is not reads]
        for key, own in fields_of.items():
            setattr(*key, own)


class _Recorded:
    """A field descriptor that records its reads."""

    def __init__(self, field: Any, leaves: dict[int, str], read_leaves: set[str], first: Callable[[str], None]) -> None:
        self._field = field
        self._leaves = leaves
        self._found = read_leaves
        self._first = first

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        value = self._field.__get__(owner, kind)
        if owner is not None and not _generic(sys._getframe(1).f_code):
            leaf = self._leaves.get(id(owner))
            for single_leaf in (leaf,) if leaf is not None else tuple(self._leaves.values()):
                if single_leaf not in self._found:
                    self._found.add(single_leaf)
                    self._first(single_leaf)
        return value

    def __set__(self, owner: Any, value: Any) -> None:
        self._field.__set__(owner, value)


def _generic(code: CodeType) -> bool:
    return code.co_name in GENERIC or (code.co_filename == fields.__file__ and code is not leaf_at.__code__)
