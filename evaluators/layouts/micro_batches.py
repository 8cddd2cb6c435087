"""Steps of one attention replica: its micro-batches of a batch, or an iteration of a serving load."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from dse.evaluators.cost_models.die_exchange_jobs import ExchangeVariants
from dse.evaluators.graph.step_counts import StepCounts, decode_steps, prefill_step
from dse.evaluators.layouts.attention_requests import (
    RequestsOfReach,
    chunk_requests,
    decode_requests,
    equal_prompts,
    newest_token_requests,
    no_requests,
)
from dse.evaluators.layouts.engine_overheads import padded_step
from dse.space.array_math import ceil_div, minimum, where
from dse.space.layers import AttentionReach, per_reach
from dse.space.model import Model
from dse.space.workload import BatchCase


def micro_batch_counts(requests: Any, most: Any) -> tuple[Any, Any]:
    """Number of micro-batches, at most `most`, and requests of each; none is empty. [-]

    >>> micro_batch_counts(8, 6), micro_batch_counts(5, 6)
    ((4, 2), (5, 1))
    """
    each = ceil_div(requests, minimum(requests, most))
    return ceil_div(requests, each), each


def fastest_micro_batch_count(count: Any, seconds: Callable[[Any], Any]) -> Any:
    """Number of micro-batches with the shortest step, among `count` and its halves. [-]

    Args:
        count: regions or stages, of which all work where there are as many micro-batches.
        seconds: of a step, by how many micro-batches there are at most; broadcasts with `count`. [s]

    >>> fastest_micro_batch_count(6, lambda most: 10.0 + (most - 2) ** 2), fastest_micro_batch_count(6, lambda most: 10.0)
    (2, 6)
    """
    tried = [ceil_div(count, 2**halved) for halved in range(int(np.max(count)).bit_length() + 1)]
    best, least = tried[0], seconds(tried[0])
    for most in tried[1:]:
        taken = seconds(most)
        best, least = where(taken < least, most, best), minimum(taken, least)
    return best


class ReplicaStep(NamedTuple):
    """A step of one replica of attention, with its number of repetitions.

    Attributes:
        times: how often.
        at, attend: counts of it, and how its requests attend.
        mean: tokens of a copy, where copies have different numbers of them and this is the fullest; 0 where all have as many.
        sent: tokens of each copy over those of the fullest, shape (copies,); () where all have as many; `ExchangeVariants` of
            these of several iterations.
        asked: counts before requests are padded to those of a recorded graph; None where they are `at`.
    """

    times: float
    at: StepCounts
    attend: RequestsOfReach
    mean: Any = 0.0
    sent: tuple[float, ...] | ExchangeVariants = ()
    asked: StepCounts | None = None

    @property
    def tokens(self) -> Any:
        """Tokens of a replica, mean over replicas. [-]"""
        return where(self.mean > 0, self.mean, self.at.tokens)


class ReplicaWork(Protocol):
    """Interface of work of one attention replica: a sequence of steps of a model."""

    @property
    def model(self) -> Model:
        """Model that the work runs on."""

    @property
    def plan(self) -> str:
        """Phase whose plan the work follows."""

    def turns(self) -> list[ReplicaStep]:
        """Steps of the work, in order."""


class BatchWork(NamedTuple):
    """Prefill of all requests of a case, or their decode step by step.

    Attributes:
        case: of one copy of attention.
        phase: prefill or decode.
        decode_context: an option of `space.workload.DECODE_CONTEXTS`.
        graph_sizes: decode batches of recorded graphs, to which requests of a copy are padded; () for none.
    """

    case: BatchCase
    phase: str
    decode_context: str
    graph_sizes: tuple[float, ...] = ()

    @property
    def model(self) -> Model:
        """Model that the case runs on."""
        return self.case.model

    @property
    def plan(self) -> str:
        """Phase whose plan the work follows."""
        return self.phase

    def turns(self) -> list[ReplicaStep]:
        """Steps of the work: one for all prompts, or decode steps between the ends of requests."""
        if self.phase == "prefill":
            return [ReplicaStep(1.0, prefill_step(self.case), equal_prompts(self.case))]
        return [
            ReplicaStep(count, padded_step(at, self.graph_sizes), decode_requests(at), asked=at if self.graph_sizes else None)
            for count, at in decode_steps(self.case, self.decode_context)
        ]


class IterationWork(NamedTuple):
    """Iteration of one attention replica: prompt chunks, decodes with drafted tokens, or both.

    Counts are numbers, or of several iterations (`stack_iterations`), arrays of shape (iterations, 1).

    Attributes:
        model: that is served.
        phase: prefill where there are prompts, else decode.
        plan: of the phase by whose plan dies work.
        prompts, own, past: chunks that are alike, new tokens of each, and positions before these.
        decodes, context: requests that decode, and positions that each reads.
        guesses: tokens guessed after each.
        attends: whether attention is evaluated too.
        mean, sent: as of `ReplicaStep`.
        graph_sizes: decode batches of recorded graphs, to which requests of all copies alike are padded; () for none.
    """

    model: Model
    phase: str
    plan: str
    prompts: Any
    own: Any
    past: Any
    decodes: Any
    context: Any
    guesses: int = 0
    attends: bool = True
    mean: Any = 0.0
    sent: tuple[float, ...] | ExchangeVariants = ()
    graph_sizes: tuple[float, ...] = ()

    @property
    def structure(self) -> tuple[Any, ...]:
        """Fields that iterations must share to be evaluated together."""
        return self.phase, self.plan, self.prompts > 0, self.decodes > 0, self.guesses, self.attends, self.is_recorded

    @property
    def is_recorded(self) -> bool:
        """Whether a recorded graph replays the iteration: it only decodes, and fits the largest one."""
        return bool(self.graph_sizes) and self.phase == "decode" and bool(np.all(self.decodes <= self.graph_sizes[-1]))

    def turns(self) -> list[ReplicaStep]:
        """The single step of the iteration; one that is padded has as many tokens on all copies."""
        at = self.step()
        if not self.is_recorded:
            return [ReplicaStep(1.0, at, self._attend(), self.mean, self.sent)]
        return [ReplicaStep(1.0, padded_step(at, self.graph_sizes), self._attend(), asked=at)]

    def step(self) -> StepCounts:
        """Token and request counts of the iteration. [-]"""
        model, rows = self.model, self.decodes * (1 + self.guesses)
        tokens, wanted = 1.0 * (self.prompts * self.own + rows), 1.0 * (self.prompts + rows)
        at = StepCounts(
            self.phase, tokens, wanted, 0.0, 0.0, self.guesses, 1.0 * (self.decodes + self.prompts * (self.past > 0))
        )
        if self.phase == "prefill":
            at = replace(at, decodes=1.0 * self.decodes)
        if not self.attends:
            return at

        def scored(reach: AttentionReach) -> Any:
            return self.decodes * sum(reach.seen_positions(self.context + ahead) for ahead in range(1 + self.guesses))

        def decoded(reach: AttentionReach) -> Any:
            return self.decodes * reach.seen_positions(self.context + self.guesses)

        def pairs(reach: AttentionReach) -> Any:
            return 1.0 * (
                self.prompts * (reach.count_pairs(self.past + self.own) - reach.count_pairs(self.past)) + scored(reach)
            )

        def positions(reach: AttentionReach) -> Any:
            return 1.0 * (self.prompts * where(self.past > 0, reach.seen_positions(self.past), 0.0) + decoded(reach))

        at = replace(at, pairs=per_reach(model, pairs), positions=per_reach(model, positions))
        if self.phase == "decode":
            return at
        beside = [per_reach(model, lambda reach, count=count: 1.0 * count(reach)) for count in (decoded, scored)]  # type: ignore[misc]
        return replace(at, decoded=beside[0], scored=beside[1])

    def _attend(self) -> RequestsOfReach:
        if not self.attends:
            return no_requests
        attends = []
        if np.any(self.prompts):
            attends.append(chunk_requests(self.model, self.prompts, self.own, self.own + self.past))
        if np.any(self.decodes):
            attends.append(newest_token_requests(self.model, self.decodes, self.context, self.guesses))
        return lambda reach: [request for attend in attends for request in attend(reach)]


def stack_iterations(work: Sequence[IterationWork]) -> IterationWork:
    """Iterations of one structure as one, with counts of shape (iterations, 1).

    Counts that no iteration has stay numbers.
    """

    def column(name: str) -> Any:
        values = [getattr(work, name) for work in work]
        return np.array(values, float)[:, None] if any(values) else values[0]

    sent: dict[Any, int] = {}
    which = np.array([sent.setdefault(work.sent, len(sent)) for work in work])[:, None]
    counts = {name: column(name) for name in ("prompts", "own", "past", "decodes", "context", "mean")}
    return work[0]._replace(**counts, sent=work[0].sent if len(sent) == 1 else ExchangeVariants(tuple(sent), which))
