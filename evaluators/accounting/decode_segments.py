"""Cases of a workload that share a model, as arrays over prompts and over decode segments."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np

from dse.evaluators.graph.step_counts import StepCounts, attended_positions, decode_steps, prefill_step, stack_steps
from dse.evaluators.program.activity import COUNTS, Activity
from dse.space.array_math import as_column
from dse.space.layers import AttentionReach, PerReachArray, per_reach
from dse.space.memoize import memoize_by_identity
from dse.space.model import Model
from dse.space.workload import BatchCase, Workload, cases_by_model, decode_segments


@dataclass(frozen=True, eq=False)
class BatchArrays:
    """Cases of a workload that share a model, as arrays of shape (entries, 1), or floats for one entry.

    Attributes:
        rows: of the cases.
        cases, decode_context: themselves, and which step of a stretch stands for it.
        prompts, copies: distinct prompts of the cases in order, and requests of each; `prompt_starts` are where cases
            begin.
        steps: decode steps of each stretch between two ends; `step_starts` are where cases begin.
        requests, context, generated: of each stretch: requests that still run, cached positions that each looks
            at, and tokens generated so far.
        prefill: all prompts of each case as one step.
        decode: a step of each stretch.
        prompt_tokens, output_tokens, decode_tokens, decode_steps: of each case, as of `BatchCase`.
        cached: positions that caches have of all requests of each case, at the longest.
        longest: prompt of each case.
        sequences: requests of each case.
        prompt_kept: positions that caches have of all prompts of each case.
        past: positions before each prompt that are cached already.

    Where layers look back differently far, `context`, `cached` and `prompt_kept` have an axis of reaches more in front.
    """

    model: Model
    rows: tuple[int, ...]
    cases: tuple[BatchCase, ...]
    decode_context: str
    prompts: Any
    copies: Any
    prompt_starts: Any
    steps: Any
    requests: Any
    context: Any
    generated: Any
    step_starts: Any
    prefill: StepCounts
    decode: StepCounts
    prompt_tokens: Any
    output_tokens: Any
    decode_tokens: Any
    decode_steps: Any
    cached: Any
    longest: Any
    sequences: Any
    prompt_kept: Any
    past: Any = 0.0


@memoize_by_identity
def arrays_by_model(workload: Workload) -> tuple[BatchArrays, ...]:
    """Arrays of a workload's cases, model by model; cached by workload."""
    return _by_model(workload)


@lru_cache(maxsize=16)
def _by_model(workload: Workload) -> tuple[BatchArrays, ...]:
    return tuple(arrays_of_cases(model, cases, workload.decode_context) for model, cases in cases_by_model(workload).items())


@lru_cache(maxsize=16)
def arrays_by_case(workload: Workload) -> tuple[BatchArrays, ...]:
    """Arrays of each case of a workload, one case at a time."""
    cases = cast(tuple[BatchCase, ...], workload.cases)
    return tuple(arrays_of_cases(case.model, ((row, case),), workload.decode_context) for row, case in enumerate(cases))


def arrays_of_cases(model: Model, cases: tuple[tuple[int, BatchCase], ...], decode_context: str) -> BatchArrays:
    """Arrays of some cases of one model, with their rows in the workload."""
    prompts: list[tuple[float, float]] = []
    steps: list[tuple[float, float, float, float]] = []
    prompt_starts, step_starts = [], []
    for _, case in cases:
        prompt_starts.append(len(prompts))
        counts: dict[int, int] = {}
        for n, prompt, _ in case.requests:
            counts[prompt] = counts.get(prompt, 0) + n
        prompts += [(float(prompt), float(n)) for prompt, n in counts.items()]
        step_starts.append(len(steps))
        for start, end, active, tokens in decode_segments(case):
            generated = end if decode_context == "last" else (start + 1 + end) / 2
            requests = float(sum(n for n, _ in active))
            context = attended_positions(case, start, end, active, decode_context) / requests
            steps.append((tokens / case.expected_tokens, requests, context, float(generated)))

    def per(function: Callable[[BatchCase], float]) -> Any:
        return as_column([float(function(case)) for _, case in cases])

    def kept(reach: AttentionReach, decode: int = 1) -> Any:
        return per(
            lambda case: sum(n * reach.kept_positions(prompt + decode * decoded) for n, prompt, decoded in case.decode_lengths)
        )

    return BatchArrays(
        model,
        tuple(row for row, _ in cases),
        tuple(case for _, case in cases),
        decode_context,
        as_column([prompt for prompt, _ in prompts]),
        as_column([n for _, n in prompts]),
        np.array(prompt_starts),
        as_column([count for count, _, _, _ in steps]),
        as_column([requests for _, requests, _, _ in steps]),
        _entry_column([context for _, _, context, _ in steps]),
        as_column([generated for _, _, _, generated in steps]),
        np.array(step_starts),
        stack_steps([prefill_step(case) for _, case in cases]),
        stack_steps([step for _, case in cases for _, step in decode_steps(case, decode_context)]),
        per(lambda case: case.prompt_tokens),
        per(lambda case: case.output_tokens),
        per(lambda case: case.decode_tokens),
        per(lambda case: case.decode_steps),
        per_reach(model, kept),
        per(lambda case: max(prompt for _, prompt, _ in case.requests)),
        per(lambda case: case.batch),
        per_reach(model, lambda reach: kept(reach, 0)),
    )


def _entry_column(values: list[Any]) -> Any:
    """Entries in a column; where each has an axis of reaches in front, that stays in front."""
    return np.concatenate(values, axis=1).view(PerReachArray) if isinstance(values[0], PerReachArray) else as_column(values)


def sum_per_case(activity: Activity, starts: Any) -> Activity:
    """Activity summed over the entries of each case."""
    return Activity(*(reduce_per_case(np.add, getattr(activity, name), starts) for name in COUNTS))


def reduce_per_case(how: np.ufunc, values: Any, starts: Any) -> Any:
    """Entries combined case by case, shape (cases, designs); a single entry is returned unchanged."""
    if starts is None or not isinstance(values, np.ndarray) or values.ndim < 2:
        return values
    return values if len(starts) == len(values) else how.reduceat(values, starts, axis=0)


def spread_over_entries(values: Any, starts: Any, entries: int) -> Any:
    """Values per case repeated for each entry of the case; scalars are returned unchanged."""
    if not isinstance(values, np.ndarray) or values.ndim < 2 or len(values) in (1, entries):
        return values
    return np.repeat(values, np.diff(np.append(starts, entries)), axis=0)
