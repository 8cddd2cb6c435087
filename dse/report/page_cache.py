"""Cache file of slow page results in the run folder, by everything that they depend on.

A key contains the state of the code that computes the result, so that no stale result is shown.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

import pandas as pd

from dse.execution.study import Study
from dse.space.design import key_of_leaves
from dse.terminal.atomic_files import write_atomically

CACHE_FILE = "explained.json"
"""Of the run folder: a line with the checksum of the next one, which has everything by key."""

WATCHED_PACKAGES = ("accuracy", "analysis", "config", "evaluators", "execution", "explanations", "report", "search", "space")
"""Folders of the package whose code says what is kept."""


class PageCache:
    """Cached results for the pages of a study; only those that the last page used stay.

    Attributes:
        path: its file; one that is absent, damaged or cannot be written is as if nothing was kept.
    """

    def __init__(self, study: Study, file: str = CACHE_FILE) -> None:
        self.path = study.run_dir / file
        store = study.store if "://" in study.store else str(Path(study.store).absolute())
        self._rows_table = [("store", store), ("code", code_state()), *_context_parts(study)]
        self._before, self._now = _read_entry(self.path), dict[str, Any]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._now.keys() != self._before.keys() and self.path.parent.is_dir():
            text = json.dumps(self._now, separators=(",", ":"))
            with contextlib.suppress(OSError), write_atomically(self.path) as place:
                place.write_text(f"{_text_digest(text)}\n{text}", encoding="utf-8")

    def find(self, what: Sequence[tuple[str, Any]]) -> Any:
        """Cached value of a key; None if there is none."""
        name = self._entry_name(what)
        if name in self._before:
            self._now[name] = self._before[name]
        return self._now.get(name)

    def keep(self, what: Sequence[tuple[str, Any]], value: Any) -> Any:
        """Store a value and return it as `find` will: with lists for tuples."""
        name = self._entry_name(what)
        self._now[name] = json.loads(json.dumps(value))
        return self._now[name]

    def answer(self, what: Sequence[tuple[str, Any]], make: Callable[[], Any], whole: Callable[[Any], bool]) -> Any:
        """Cached value of a key, or a new one, which is stored if it is complete."""
        answer = self.find(what)
        if answer is not None:
            return answer
        made = make()
        return self.keep(what, made) if whole(made) else made

    def _entry_name(self, what: Sequence[tuple[str, Any]]) -> str:
        return key_of_leaves([*self._rows_table, *what])


BINDING = "binding"
"""Of a design that was explained, its seconds by what they were spent on in the first case, whole; pages do not have them."""


def explanation_key(key: str, by: str) -> list[tuple[str, Any]]:
    """Key of an explained design: its content key, and the fidelity."""
    return [("explained", key), ("by", by)]


def sample_key(key: str, by: str, metrics: Sequence[str], streams: int) -> list[tuple[str, Any]]:
    """Key of a design's sample noise: its content key, fidelity, constrained metrics and streams."""
    return [("sample", key), ("by", by), ("metrics", ",".join(metrics)), ("streams", streams)]


def table_key(frame: pd.DataFrame) -> str:
    """Key of a table: its columns and their contents, in order."""
    cells = pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes()
    return hashlib.sha256(" ".join(map(str, frame.columns)).encode() + cells).hexdigest()[:32]


@cache
def code_state() -> str:
    """State of the code that computes cached results: names, sizes and times of its files."""
    parent = Path(__file__).resolve().parents[1]
    files = sorted(path for room in WATCHED_PACKAGES for path in (parent / room).resolve().rglob("*.py"))
    return key_of_leaves((str(path), f"{(at := path.stat()).st_size} {at.st_mtime_ns}") for path in files)


def _context_parts(study: Study) -> list[tuple[str, Any]]:
    context = study.context
    return [("workload", context.workload), ("physics", context.physics)]


def _read_entry(path: Path) -> dict[str, Any]:
    try:
        checksum, _, text = path.read_text(encoding="utf-8").partition("\n")
        document = json.loads(text) if checksum == _text_digest(text) else {}
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
