"""Answers of explanations in a study's store, by design, workload, fidelity, PHYSICS and question.

What a search or a verification evaluated is in the store as well, and counts as an answer to the first question: how a design
comes out. A store that is absent, damaged or cannot be written is as if nothing was kept.
"""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from dse.evaluators import PHYSICS_VERSION
from dse.execution.study import workload_key
from dse.space.errors import DesignError
from dse.space.workload import Workload
from dse.store.database import store_exists
from dse.store.store import ResultContext, Store

OUTCOME = "outcome"
"""Question: all metrics of a design, or the limit that it violates."""

TIME = "seconds by cause"
"""Question: on what a design spends the time of each case."""

LIMITS = "limits"
"""Question: the share of each limit that a design uses."""

GAP = "optimality gap"
"""Question: how far a design's time is from a bound."""

CASES = "cases"
"""Question: all metrics of a design in each case, by metric in the order of cases; null for none."""


@dataclass(frozen=True)
class KeptAnswers:
    """Answers of explanations that one store keeps.

    Attributes:
        place: the store; empty string for none, as of a design that is in no study.
    """

    place: str = ""

    def find_outcomes(
        self, workload: Workload, fidelity: str, keys: Sequence[str], metrics: Sequence[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Evaluated designs by content key, each with its metrics and the violated limit.

        The keys of each are ``metrics``, ``limit``, ``need``, ``have`` and ``refused``. Of a search's results those count that
        violate no limit; others lack the text of what is not supported.

        Args:
            workload, fidelity: of the evaluations.
            keys: of the designs.
            metrics: that were requested; None for all, which answer for fewer as well.
        """
        context = _context_of(workload, fidelity)
        with contextlib.suppress(DesignError), self._open() as store:
            answers: dict[str, dict[str, Any]] = {}
            for question in dict.fromkeys((OUTCOME, _outcome_question(metrics))):
                answers |= store.find_explanations(context, question, [key for key in keys if key not in answers])
            results = store.find_results(context, [key for key in keys if key not in answers])
            sound = {key: result for key, result in results.items() if not (result.error or result.limit)}
            return answers | {key: {"metrics": result.metrics} for key, result in sound.items()}
        return {}

    def keep_outcomes(
        self,
        workload: Workload,
        fidelity: str,
        outcomes: Mapping[str, Mapping[str, Any]],
        metrics: Sequence[str] | None = None,
    ) -> None:
        """Keep evaluated designs, as `find_outcomes` has them."""
        self._keep(_context_of(workload, fidelity), _outcome_question(metrics), outcomes)

    def find(self, question: str, workload: Workload, fidelity: str, key: str) -> Any:
        """Answer to a question on one design; None if there is none."""
        with contextlib.suppress(DesignError), self._open() as store:
            return store.find_explanations(_context_of(workload, fidelity), question, [key]).get(key)
        return None

    def keep(self, question: str, workload: Workload, fidelity: str, key: str, answer: Any) -> None:
        """Keep the answer to a question on one design."""
        self._keep(_context_of(workload, fidelity), question, {key: answer})

    def find_each(self, context: ResultContext, question: str, keys: Sequence[str]) -> dict[str, Any]:
        """Answers to a question by key, of those that are kept.

        Args:
            context: workload, fidelity and physics of the answers.
            question: the question.
            keys: content keys of designs, or another subject's of 32 digits.
        """
        with contextlib.suppress(DesignError), self._open() as store:
            return store.find_explanations(context, question, keys)
        return {}

    def keep_each(self, answers: Mapping[tuple[ResultContext, str], Mapping[str, Any]]) -> None:
        """Keep answers by context and question, then by key, in place of earlier ones."""
        with contextlib.suppress(DesignError), self._open() as store:
            for (context, question), by_key in answers.items():
                store.keep_explanations(context, question, by_key)

    def forget_others(self, context: ResultContext, key: str, questions: Collection[str]) -> None:
        """Remove the answers on one subject to all but some questions."""
        with contextlib.suppress(DesignError), self._open() as store:
            store.remove_explanations(context, key, questions)

    def _keep(self, context: ResultContext, question: str, answers: Mapping[str, Any]) -> None:
        with contextlib.suppress(DesignError), self._open() as store:
            store.keep_explanations(context, question, answers)

    @contextlib.contextmanager
    def _open(self) -> Iterator[Store]:
        if not self.place or not store_exists(self.place):
            raise DesignError("no store")
        with closing(Store(self.place, create=False)) as store:
            yield store


NOTHING_KEPT = KeptAnswers()
"""Answers of a design that is in no study."""


def _outcome_question(metrics: Sequence[str] | None) -> str:
    return OUTCOME if metrics is None else f"{OUTCOME}: {', '.join(sorted(metrics))}"


def _context_of(workload: Workload, fidelity: str) -> ResultContext:
    return ResultContext(workload_key(workload), fidelity, PHYSICS_VERSION)
