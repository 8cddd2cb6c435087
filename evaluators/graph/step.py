"""One step of an LLM as counts: what a prefill or a decode iteration has to look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.space.elementwise import minimum
from dse.space.workload import Case, stretches


@dataclass(frozen=True, slots=True)
class Step:
    """Counts of one step, or of many as arrays of shape (steps, 1), which broadcast against designs.

    Attributes:
        phase: prefill or decode.
        tokens: tokens that pass through the layers.
        requests: rows of which the next token is wanted: a sequence's last one, and where tokens are guessed those after it.
        pairs: query-key pairs that attention scores, per head.
        positions: cached positions that are read, per KV head; 0 in prefill, whose keys are still on the die.
        guesses: tokens guessed a request in a step, by as many modules that predict them; 0 for none.
    """

    phase: str
    tokens: Any
    requests: Any
    pairs: Any
    positions: Any
    guesses: int = 0


def prefill(case: Case) -> Step:
    """The prefill of a case: every prompt, causally, within the model's window."""
    window = case.model.window
    pairs = sum(n * causal_pairs(prompt, window) for n, prompt, _ in case.requests)
    tokens = sum(n * prompt for n, prompt, _ in case.requests)
    return Step("prefill", float(tokens), float(case.batch), float(pairs), 0.0, case.guesses)


def decode(case: Case, decode_at: str) -> list[tuple[float, Step]]:
    """The decode of a case as (how many steps, step) pairs, one for each stretch between two requests' ends.

    Where tokens are guessed, a step has a row of queries for each and for the token before, and yields more than one token.
    """
    window, guesses = case.model.window, case.guesses
    steps = []
    for start, end, active in stretches(case):
        generated = end if decode_at == "last" else (start + 1 + end) / 2
        requests = float(sum(n for n, _ in active))
        positions = float(sum(n * seen(prompt + generated + guesses, window) for n, prompt in active))
        pairs = positions
        if guesses:
            pairs = float(sum(n * seen(prompt + generated + g, window) for n, prompt in active for g in range(guesses + 1)))
        rows = requests * (1 + guesses)
        steps.append(((end - start) / case.yielded, Step("decode", rows, rows, pairs, positions, guesses)))
    return steps


def stacked(steps: Sequence[Step]) -> Step:
    """Many steps of one phase as one of arrays, shape (steps, 1); a single one stays scalar."""
    if len(steps) == 1:
        return steps[0]
    tokens, requests, pairs, positions = (
        np.array([[getattr(step, name)] for step in steps]) for name in ("tokens", "requests", "pairs", "positions")
    )
    return Step(steps[0].phase, tokens, requests, pairs, positions, steps[0].guesses)


def seen(context: Any, window: int) -> Any:
    """Cached positions that a token looks at, within the window of a model that has one."""
    return minimum(context, window) if window else context


def causal_pairs(prompt: Any, window: int) -> Any:
    """Query-key pairs of a prompt per head: every token looks at itself and at those before it, within the window.

    >>> causal_pairs(4, 0), causal_pairs(4, 2)
    (10.0, 7.0)
    """
    near = seen(prompt, window)
    return near * (near + 1) / 2 + (prompt - near) * near
