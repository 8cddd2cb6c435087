"""Slow results of pages, figures and explanations, kept in the study's store beside its results.

A result is kept with a digest of what it follows from, the code that computes it among it: one that is stale, damaged or absent
is computed again.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

import pandas as pd

from dse.execution.study import Study
from dse.explanations.kept_answers import KeptAnswers
from dse.space.design import key_of_leaves
from dse.store.store import ResultContext

PAGE = "page"
"""The topic of what pages show of a whole study."""

WATCHED_PACKAGES = (
    "accuracy",
    "analysis",
    "config",
    "documents",
    "evaluators",
    "execution",
    "explanations",
    "report",
    "search",
    "space",
)
"""Folders of the package whose code says what is kept."""

MEASURED_ROWS = "studies", "published.csv"
"""Folder and name of the tables of real machines, which figures and error bands are of."""

BINDING = "binding"
"""Of a design that was explained, its seconds by what they were spent on in a case, whole; pages do not have them."""

STACKS = "stacks"
"""The same of its seconds by part of the machine and by operator, for stacked bars."""


@dataclass(frozen=True)
class PageQuestion:
    """A question whose answer is kept.

    Attributes:
        text: the question; of one subject the store has one answer to each.
        key: content key of the design that it is about; empty string for the whole study.
        fidelity: of the evaluations; empty string for the study's.
        follows: what an answer follows from beside the subject, workload, fidelity, physics and code.
    """

    text: str
    key: str = ""
    fidelity: str = ""
    follows: Sequence[tuple[str, Any]] = ()


class PageCache:
    """Kept results of a study; new ones are written to its store when the ``with`` ends.

    A store that is absent, damaged or cannot be written is as if nothing was kept.

    Args:
        study: the study.
        topic: of results about the whole study.
    """

    def __init__(self, study: Study, topic: str = PAGE) -> None:
        self._kept, self._context = KeptAnswers(study.store), study.context
        self._subject = key_of_leaves([("study", study.name), ("topic", topic)])
        self._known: dict[tuple[ResultContext, str], dict[str, Any]] = {}
        self._new: dict[tuple[ResultContext, str], dict[str, Any]] = {}
        self._used: set[str] = set()
        self._page: PageQuestion | None = None
        self._late: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._page is not None and sorted(self._late) != (self.find(self._page) or []):
            self.keep(self._page, sorted(self._late))
        if self._new:
            self._kept.keep_each(self._new)
        self._new = {}

    def load(self, questions: Sequence[PageQuestion]) -> None:
        """Read the answers to some questions at once, as far as they are kept."""
        wanted: dict[tuple[ResultContext, str], list[str]] = {}
        for question in questions:
            wanted.setdefault(self._place(question), []).append(question.key or self._subject)
        for (context, text), keys in wanted.items():
            known = self._known.setdefault((context, text), {})
            left = [key for key in keys if key not in known]
            known |= dict.fromkeys(left) | self._kept.find_each(context, text, left)

    def find(self, question: PageQuestion) -> Any:
        """Kept answer to a question; None if there is none that follows from the same."""
        key, place = question.key or self._subject, self._place(question)
        if key not in self._known.get(place, {}):
            self.load([question])
        answer = self._known[place][key]
        if not isinstance(answer, list) or len(answer) != 2 or answer[0] != _digest(question):
            return None
        self._note_use(question)
        return json.loads(answer[1])

    def keep(self, question: PageQuestion, value: Any) -> Any:
        """Store a value and return it as `find` will: with lists for tuples."""
        key, place = question.key or self._subject, self._place(question)
        answer = [_digest(question), json.dumps(value, separators=(",", ":"))]
        self._known.setdefault(place, {})[key] = answer
        self._new.setdefault(place, {})[key] = answer
        self._note_use(question)
        return json.loads(answer[1])

    def answer(self, question: PageQuestion, make: Callable[[], Any], whole: Callable[[Any], bool]) -> Any:
        """Kept answer to a question, or a new one, which is stored if it is complete."""
        answer = self.find(question)
        if answer is not None:
            return answer
        made = make()
        return self.keep(question, made) if whole(made) else made

    def begin_page(self, follows: Sequence[tuple[str, Any]]) -> None:
        """Begin a page: what an earlier page that follows from the same had no time for is late again."""
        self._page = PageQuestion("late", follows=follows)
        self._late = set(self.find(self._page) or ())

    def is_late(self, question: PageQuestion) -> bool:
        """Whether an earlier page of the same had no time for a question on a design."""
        return f"{question.text}: {question.key}" in self._late

    def note_late(self, question: PageQuestion) -> None:
        """Note that a page had no time for a question on a design."""
        self._late.add(f"{question.text}: {question.key}")

    def forget_others(self) -> None:
        """Remove results of its topic, on the whole study, that were not used since it was made."""
        self._kept.forget_others(self._context, self._subject, self._used)

    def _place(self, question: PageQuestion) -> tuple[ResultContext, str]:
        context = replace(self._context, fidelity=question.fidelity) if question.fidelity else self._context
        return context, question.text

    def _note_use(self, question: PageQuestion) -> None:
        if not question.key:
            self._used.add(question.text)


def breakdown_question(key: str, by: str, case: int = 0) -> PageQuestion:
    """What a page has of a design's time in a case, by its content key and the fidelity."""
    return PageQuestion(f"breakdown of case {case}", key, by)


def sample_question(key: str, by: str, metrics: Sequence[str], streams: int) -> PageQuestion:
    """Sample noise of a design: by its content key, fidelity, constrained metrics and streams."""
    return PageQuestion(f"noise of {', '.join(metrics)} over {streams} streams", key, by)


NAMED = ("chip", "model", "stack")
"""Groups whose chosen presets pages name."""


def choice_parts(study: Study) -> list[tuple[str, Any]]:
    """Names of the chosen chips, models and stacks of a study, as parts of a key.

    Figures and caveats have these names; no design has them.
    """
    several = study.config.get("chips") or {}
    chosen = [study.config["choices"], *(config["choices"] for config in several.values())]
    named = [{group: name for group, name in choices.items() if group.partition("@")[0] in NAMED} for choices in chosen]
    return [("choices", [sorted((group, str(name)) for group, name in choices.items()) for choices in named])]


def table_key(frame: pd.DataFrame) -> str:
    """Key of a table: its columns and their contents, in order."""
    cells = pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes()
    return hashlib.sha256(" ".join(map(str, frame.columns)).encode() + cells).hexdigest()[:32]


@cache
def code_state() -> str:
    """Digest of the code that computes kept results, and of tables of measured rows.

    It has the names and contents of their files.
    """
    parent, state = Path(__file__).resolve().parents[1], hashlib.sha256()
    for room, pattern in (*((room, "*.py") for room in WATCHED_PACKAGES), MEASURED_ROWS):
        folder = (parent / room).resolve()
        for path in sorted(folder.rglob(pattern)):
            state.update(f"{room}/{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return state.hexdigest()[:32]


def _digest(question: PageQuestion) -> str:
    return key_of_leaves([("code", code_state()), *question.follows])
