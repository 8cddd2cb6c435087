"""Inference-engine overheads on many dies: terms of steps, launches and host time of replicas."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.layouts.engine_overheads import NO_TERMS, OverheadTimes, StepTerms, overhead_times, step_terms
from dse.evaluators.layouts.multi_die import DieSplit
from dse.space.mapping import Mapping
from dse.space.model import Model


def dies_terms(mapping: Mapping) -> StepTerms:
    """Terms of a mapping's stack that change the calls of a step; none where dies have no stack."""
    return NO_TERMS if mapping.stack is None else step_terms(mapping.stack)


def replica_overheads(mapping: Mapping, model: Model, step: StepCounts, parts: Any, kernels: Any) -> OverheadTimes:
    """Time of an attention replica's iteration beyond its kernels, with launches for each part of it.

    Args:
        mapping, model: as they are.
        step: all requests of the replica, not padded.
        parts: of the iteration that take turns.
        kernels: time of the kernels of all parts. [s]
    """
    if mapping.stack is None:
        return OverheadTimes()
    launch, host = overhead_times(mapping.stack.iteration, model, step, kernels / parts)
    return OverheadTimes(launch * parts, host)


def pass_overheads(mapping: Mapping, model: Model, step: StepCounts | None, die_split: DieSplit, kernels: Any) -> OverheadTimes:
    """Time of a forward pass beyond its kernels, all parts of the micro-batch together.

    Args:
        mapping, model, die_split: as they are.
        step: counts of one part of the micro-batch, not padded; None if they are unknown.
        kernels: time of the kernels of all parts. [s]
    """
    if mapping.stack is None or mapping.stack.iteration is None or step is None:
        return OverheadTimes()
    halves = die_split.halves
    whole = replace(step, requests=step.requests * halves, decodes=step.decodes * halves)
    return replica_overheads(mapping, model, whole, halves, kernels)


def mean_stage_overheads(each: Sequence[tuple[float, OverheadTimes]], die_split: DieSplit) -> OverheadTimes:
    """Time beyond kernels on the mean stage, of all micro-batches of a phase.

    Args:
        each: how often each forward pass runs, and its time beyond kernels.
        die_split: division of the model.
    """
    share = die_split.batches / die_split.pp
    return OverheadTimes(
        sum(times * share * overheads.launch for times, overheads in each),
        sum(times * share * overheads.host for times, overheads in each),
    )
