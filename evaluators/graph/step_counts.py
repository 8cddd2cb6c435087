"""Counts of one LLM step: tokens, requests, query-key pairs and cached positions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dse.space.layers import AttentionReach, PerReachArray, per_reach, value_at_reach
from dse.space.workload import BatchCase, decode_segments


@dataclass(frozen=True, slots=True)
class StepCounts:
    """Counts of one step, or of many as arrays of shape (steps, 1), which broadcast against designs.

    Attributes:
        phase: prefill or decode.
        tokens: tokens of the step in every layer.
        requests: rows of which the next token is wanted: a sequence's last one, and where tokens are guessed those after it.
        pairs: query-key pairs that attention scores, per head.
        positions: cached positions that are read, per KV head; 0 in prefill, whose keys are still on the die.
        guesses: tokens guessed a request in a step, by as many modules that predict them; 0 for none.
        resumed: sequences of a prefill that have states already, as those of decodes in the same step and of further
            chunks.
        decodes: sequences of a prefill that decode, with a token each and those guessed after it, and what these read: of
            `positions`, `decoded`.
        scored: likewise of `pairs`.

    Where layers of a model look back differently far, pairs and positions, those of decodes too, have an axis more in front, of
    its reaches.
    """

    phase: str
    tokens: Any
    requests: Any
    pairs: Any
    positions: Any
    guesses: int = 0
    resumed: Any = 0.0
    decodes: Any = 0.0
    decoded: Any = 0.0
    scored: Any = 0.0

    def at_reach(self, reach: int) -> "StepCounts":
        """The counts for attention of one reach of the model."""
        names = ("pairs", "positions", "decoded", "scored")
        return replace(self, **{name: value_at_reach(getattr(self, name), reach) for name in names})

    @property
    def sequences(self) -> Any:
        """Sequences to which the step's tokens belong; drafted tokens count only as extra rows of decodes."""
        if not self.guesses:
            return self.requests
        return self.requests / (1 + self.guesses) if self.phase == "decode" else self.requests - self.decodes * self.guesses

    @property
    def states(self) -> Any:
        """Sequences whose recurrent states are read; all states are written."""
        return self.sequences if self.phase == "decode" else self.resumed


def prefill_step(case: BatchCase) -> StepCounts:
    """Counts of the prefill of a case: every prompt, causal, within the attention reach."""
    pairs = per_reach(case.model, lambda reach: float(sum(n * reach.count_pairs(prompt) for n, prompt, _ in case.requests)))
    tokens = sum(n * prompt for n, prompt, _ in case.requests)
    return StepCounts("prefill", float(tokens), float(case.batch), pairs, 0.0, case.guesses)


def decode_steps(case: BatchCase, decode_context: str) -> list[tuple[float, StepCounts]]:
    """Decode of a case as (number of steps, step) pairs, one for each segment between two requests' ends.

    A batch whose tokens all come from prefill has its first step, 0 times.

    With speculative decoding, a step has query rows for each drafted token and the one before, and yields more than
    one token.
    """
    guesses, steps = case.guesses, []
    for start, end, active, tokens in decode_segments(case):

        def count_seen_positions(ahead: int, span: tuple[float, float, Any] = (start, end, active)) -> Any:
            return attended_positions(case, *span, decode_context, ahead)

        requests = float(sum(n for n, _ in active))
        positions = count_seen_positions(guesses)
        pairs = positions if not guesses else sum(count_seen_positions(ahead) for ahead in range(guesses + 1))
        rows = requests * (1 + guesses)
        steps.append((tokens / case.expected_tokens, StepCounts("decode", rows, rows, pairs, positions, guesses)))
    return steps


def attended_positions(case: BatchCase, start: float, end: float, active: Any, decode_context: str, ahead: int = 0) -> Any:
    """Positions that all requests attend to in a representative step of a decode segment, by reach.

    Args:
        case: of the requests.
        start, end, active: of the stretch, and requests of each prompt in it.
        decode_context: representative step, of `space.workload.DECODE_CONTEXTS`.
        ahead: tokens guessed beyond.
    """
    generated = end if decode_context == "last" else (start + 1 + end) / 2

    def count_positions(reach: AttentionReach, prompt: float) -> Any:
        if reach.chunk and decode_context == "mean":  # from the start of a chunk to its end, over and over
            return (reach.count_pairs(prompt + end + ahead) - reach.count_pairs(prompt + start + ahead)) / (end - start)
        return reach.seen_positions(prompt + generated + ahead)

    return per_reach(case.model, lambda reach: float(sum(n * count_positions(reach, prompt) for n, prompt in active)))


def stack_steps(steps: Sequence[StepCounts]) -> StepCounts:
    """Many steps of one phase stacked as arrays of shape (steps, 1); a single step stays scalar."""
    if len(steps) == 1:
        return steps[0]
    tokens, requests = (np.array([[getattr(step, name)] for step in steps]) for name in ("tokens", "requests"))
    pairs, positions = (_stacked([getattr(step, name) for step in steps]) for name in ("pairs", "positions"))
    return StepCounts(steps[0].phase, tokens, requests, pairs, positions, steps[0].guesses)


def _stacked(values: Sequence[Any]) -> Any:
    if isinstance(values[0], PerReachArray):
        return np.concatenate(values, axis=1).view(PerReachArray)
    return np.array([[value] for value in values])
