"""One step of an LLM as counts: what a prefill or a decode iteration has to look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from space.workload import Case, stretches


@dataclass(frozen=True, slots=True)
class Step:
    """Counts of one step, or of many as arrays of shape (steps, 1), which broadcast against designs.

    Attributes:
        phase: prefill or decode.
        tokens: tokens that pass through the layers.
        requests: sequences that get a new token.
        pairs: query-key pairs that attention scores, per head.
        positions: cached positions that are read, per KV head; 0 in prefill, whose keys are still on the die.
    """

    phase: str
    tokens: Any
    requests: Any
    pairs: Any
    positions: Any


def prefill(case: Case) -> Step:
    """The prefill of a case: every prompt, causally, within the model's window."""
    window = case.model.window
    pairs = sum(n * _causal_pairs(prompt, window) for n, prompt, _ in case.requests)
    tokens = sum(n * prompt for n, prompt, _ in case.requests)
    return Step("prefill", float(tokens), float(case.batch), float(pairs), 0.0)


def decode(case: Case, decode_at: str) -> list[tuple[float, Step]]:
    """The decode of a case as (how many steps, step) pairs, one for each stretch between two requests' ends."""
    window = case.model.window
    steps = []
    for start, end, active in stretches(case):
        generated = end if decode_at == "last" else (start + 1 + end) / 2
        requests = float(sum(n for n, _ in active))
        positions = float(sum(n * _seen(prompt + generated, window) for n, prompt in active))
        steps.append((float(end - start), Step("decode", requests, requests, positions, positions)))
    return steps


def stacked(steps: Sequence[Step]) -> Step:
    """Many steps of one phase as one of arrays, shape (steps, 1); a single one stays scalar."""
    if len(steps) == 1:
        return steps[0]
    columns = (np.array([[getattr(step, name)] for step in steps]) for name in ("tokens", "requests", "pairs", "positions"))
    return Step(steps[0].phase, *columns)


def _seen(context: float, window: int) -> float:
    return min(context, window) if window else context


def _causal_pairs(prompt: int, window: int) -> float:
    if not window or prompt <= window:
        return prompt * (prompt + 1) / 2
    return window * (window + 1) / 2 + (prompt - window) * window
