"""Pipelines of devices: micro-batches of a batch, and times of stages with the messages between them.

A batch is shared by replicas of the model. Each replica's requests are micro-batches that pass through its stages. The
devices of a stage are a tensor-parallel group (`accounting.tensor_parallel`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.decode_segments import BatchArrays, reduce_per_case, spread_over_entries
from dse.evaluators.accounting.phase import IterationSchedule
from dse.evaluators.accounting.remedies import Changes, Lever, LimitsOfChanges, advise
from dse.evaluators.calls.call import ONCE
from dse.evaluators.cost_models.analytical_collectives import INTER_NODE_HOPS, stage_message_seconds
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.layouts.device_stages import StageGroup, messages_between_nodes
from dse.evaluators.layouts.engine_overheads import OverheadTimes
from dse.evaluators.layouts.micro_batches import micro_batch_counts
from dse.evaluators.machine.machine import HardwareModel
from dse.space.aliases import PHASES
from dse.space.array_math import ceil_div, maximum, minimum, where
from dse.space.chip import DeviceLinks
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.layers import layers, per_reach
from dse.space.limits import Infeasibility, Limit
from dse.space.mapping import Mapping, TensorParallelPlan
from dse.space.memoize import memoize
from dse.space.model import Model
from dse.space.safe_text import count_text


@dataclass(frozen=True, eq=False)
class PhaseBatches:
    """Micro-batches of the fullest replica in one phase.

    Leaves have a row for each entry of the phase, or are numbers.

    Attributes:
        job: the batch, with the step of a micro-batch as the step of the phase.
        schedule: how often micro-batches run.
        runs: passes of all micro-batches of a replica. [1]
        useful_share: share of the requests in these passes that exist.
        requests: of a micro-batch. [1]
    """

    job: BatchArrays
    schedule: IterationSchedule
    runs: Any
    useful_share: Any
    requests: Any


def phase_batches(job: BatchArrays, phase: str, plan: TensorParallelPlan) -> PhaseBatches:
    """Micro-batches of a batch in one phase, by the stages and replicas of a plan.

    Replicas share requests evenly: the fullest one has the share rounded up, at the batch's mix of lengths. With one stage all
    its requests run together. With several, decode has as many micro-batches as stages, or as hold all requests, and each
    prompt is a micro-batch, unless the plan sets their number.

    Raises:
        DesignError: a number of micro-batches with one stage, where nothing reads it.
    """
    if plan.microbatches and plan.stages == 1:
        raise DesignError(f"mapping.{phase}.microbatches: has no effect with one stage; set mapping.both.pp, or remove it")
    return _phase_batches(job, phase, plan.stages, plan.replicas, int(plan.microbatches or 0))


@memoize
def _phase_batches(job: BatchArrays, phase: str, stages: int, replicas: int, microbatches: int) -> PhaseBatches:
    if phase == "prefill":
        return _prefill_batches(job, stages, replicas, microbatches)
    mine = ceil_div(job.requests, replicas)
    count, each = (ONCE, mine) if stages == 1 else micro_batch_counts(mine, microbatches or stages)
    schedule = IterationSchedule(count, job.steps, job.step_starts)
    runs = job.steps if stages == 1 else job.steps * count
    if stages == replicas == 1:
        return PhaseBatches(job, schedule, runs, 1.0, each)
    share, rows = each / job.requests, each * (1.0 + job.decode.guesses)
    step = replace(
        job.decode, tokens=rows, requests=rows, pairs=job.decode.pairs * share, positions=job.decode.positions * share
    )
    return PhaseBatches(replace(job, decode=step), schedule, runs, job.requests / (replicas * count * each), each)


def _prefill_batches(job: BatchArrays, stages: int, replicas: int, microbatches: int) -> PhaseBatches:
    """Micro-batches of prompts: all of them with one stage, else some of one length."""
    mine = ceil_div(job.sequences, replicas)
    share, useful = mine / job.sequences, job.sequences / (replicas * mine)
    if stages == 1:
        schedule = IterationSchedule(steps=ONCE)
        if replicas == 1:
            return PhaseBatches(job, schedule, ONCE, 1.0, mine)
        whole = job.prefill
        step = replace(whole, tokens=whole.tokens * share, requests=whole.requests * share, pairs=whole.pairs * share)
        return PhaseBatches(replace(job, prefill=step), schedule, ONCE, useful, mine)
    share, useful = (spread_over_entries(value, job.prompt_starts, np.size(job.prompts)) for value in (share, useful))
    mine = job.copies * share
    each = ceil_div(mine, minimum(float(microbatches), maximum(mine, 1.0))) if microbatches else 1.0 + 0.0 * mine
    pairs = per_reach(job.model, lambda reach: reach.count_pairs(job.prompts)) * each
    step = StepCounts("prefill", each * job.prompts, each, pairs, 0.0 * each, job.prefill.guesses)
    schedule = IterationSchedule(mine / each, starts=job.prompt_starts, is_ring=False)
    return PhaseBatches(replace(job, prefill=step), schedule, mine / each, useful, each)


@dataclass(frozen=True, eq=False)
class ReplicaMemory:
    """Requests of one replica that its devices have memory for.

    Attributes:
        job: the batch, with the caches of one replica; all micro-batches have theirs on each stage.
        tokens: of the longest prompts that run together. [1]
        together: requests of the largest micro-batch of decode. [1]
    """

    job: BatchArrays
    tokens: Any
    together: Any


@memoize
def batch_memory(job: BatchArrays) -> ReplicaMemory:
    """Requests of a whole batch, which one replica with one stage has memory for."""
    return ReplicaMemory(job, job.longest, None)


@memoize
def replica_memory(job: BatchArrays, prefill: PhaseBatches, decode: PhaseBatches, stages: int, replicas: int) -> ReplicaMemory:
    """Requests that the fullest replica of a batch has memory for."""
    if stages == replicas == 1:
        return batch_memory(job)
    mine = ceil_div(job.sequences, replicas)
    share = mine / job.sequences
    prompts = 1.0 if stages == 1 else reduce_per_case(np.maximum, prefill.requests, job.prompt_starts)
    together = reduce_per_case(np.maximum, decode.requests, job.step_starts)
    caches = replace(job, cached=job.cached * share, sequences=mine)
    return ReplicaMemory(caches, job.longest * prompts, together)


class StagedSeconds(NamedTuple):
    """Times of the stages of one forward pass. [s]

    Attributes:
        kernels: of all stages, one after another.
        transfers: messages between all stages; None with one stage.
        groups: of each group of equal stages, its places, the time of a stage's kernels, and that of its slowest message.
    """

    kernels: Any
    transfers: Any = None
    groups: tuple[tuple[StageGroup, Any, Any], ...] = ()

    @property
    def stages(self) -> int:
        """Number of pipeline stages of the pass. [-]"""
        return sum(len(group.places) for group, _, _ in self.groups) or 1

    def pass_seconds(self, overheads: OverheadTimes) -> Any:
        """Time of a pass through all stages, with what is beyond its kernels. [s]"""
        return overheads.iteration_seconds(self.kernels if self.transfers is None else self.kernels + self.transfers)

    def slowest(self, overheads: OverheadTimes) -> Any:
        """Time of the slowest stage with its message; None with one stage. [s]

        Stages share the time beyond kernels evenly, as each starts the kernels of its own layers.
        """
        if self.transfers is None:
            return None
        paces = [seconds + message for _, seconds, message in self.groups]
        slowest = paces[0]
        for pace in paces[1:]:
            slowest = maximum(slowest, pace)
        return slowest + overheads.iteration_seconds(0.0) / self.stages


def staged_seconds(
    groups: Sequence[StageGroup], seconds: Sequence[Any], nbytes: Any, tp: Any, machine: HardwareModel
) -> StagedSeconds:
    """Times of the stages of a forward pass, with the messages between them.

    Args:
        groups: of equal stages.
        seconds: of the kernels of one stage of each group. [s]
        nbytes: that each device of a stage sends to its peer. [B]
        tp: devices of a stage.
        machine: of a device.
    """
    stages = sum(len(group.places) for group in groups)
    if stages == 1:
        return StagedSeconds(seconds[0])
    assert machine.network is not None
    inside, between = stage_message_seconds(nbytes, tp, machine)
    timed, kernels, transfers = [], 0.0, 0.0
    for group, own in zip(groups, seconds, strict=True):
        senders = tuple(place for place in group.places if place < stages - 1)
        crossing = _crossings(senders, tp, machine.network[0])
        kernels = kernels + len(group.places) * own
        transfers = transfers + crossing * between + (len(senders) - crossing) * inside
        longest = maximum(where(crossing > 0, between, 0.0), where(crossing < len(senders), inside, 0.0))
        timed.append((group, own, longest))
    return StagedSeconds(kernels, transfers, tuple(timed))


def _crossings(senders: tuple[int, ...], tp: Any, network: DeviceLinks) -> Any:
    return messages_between_nodes(senders, tp, None if network.nodes is None else network.nodes.size)


def message_bytes(model: Model, tokens: Any, itemsize: Any, tp: Any) -> Any:
    """Bytes of hidden vectors that one of `tp` devices sends to its peer of the next stage. [B]"""
    return tokens * (model.hidden * itemsize) / tp


def message_hop_bytes(nbytes: Any, stages: int, tp: Any, network: DeviceLinks) -> Any:
    """Bytes times links crossed of all messages of a pass, of one device of each stage. [B]"""
    between = _crossings(tuple(range(stages - 1)), tp, network)
    return nbytes * (between * INTER_NODE_HOPS + (stages - 1 - between) * network.hops)


def stage_limits(mapping: Mapping, model: Model) -> list[Limit]:
    """Limits on pipeline stages that are exceeded: a stage needs a layer. Empty if there are none."""
    most = len(layers(model).line)
    plans = {phase: getattr(mapping, phase).stages for phase in ("prefill", "decode")}
    return [Limit(f"mapping.{phase}.pp", float(stages), float(most), "1") for phase, stages in plans.items() if stages > most]


def equal_stage_limits(mapping: Mapping) -> list[Limit]:
    """Limits that both phases have equally many stages and replicas; empty if they have."""
    limits = []
    for name, field in (("pp", "stages"), ("dp", "replicas")):
        prefill, decode = (float(getattr(plan, field)) for plan in (mapping.prefill, mapping.decode))
        if prefill != decode:
            limits.append(Limit(f"mapping.decode.{name}", max(prefill, decode), min(prefill, decode), "1"))
    return limits


STAGE_LIMITS = ("mapping.prefill.pp", "mapping.decode.pp", "mapping.decode.dp")
"""Limits on stages and replicas."""


def stage_levers(worst: Infeasibility, design: Design, model: Model) -> tuple[Lever, ...]:
    """What to change where stages or replicas exceed a limit."""
    most = len(layers(model).line)
    if worst.limit.endswith(".dp"):
        return advise("the same devices do both phases: set mapping.both.dp")
    if worst.need > most:
        return advise(f"{model.name} has {most} layers, and a stage needs one: mapping.both.pp={most} at most")
    return advise("the same devices do both phases: set mapping.both.pp")


def fewest_stages_levers(design: Design, model: Model, limits: LimitsOfChanges) -> Iterator[Lever]:
    """The fewest stages of both phases at a design's TP, or at a power of two.

    Args:
        design, model: as they are.
        limits: of the design with leaves changed.
    """
    most, own = len(layers(model).line), int(np.max(design.mapping.prefill.tp))
    for tp in dict.fromkeys((own, *(1 << power for power in range(MAX_STAGE_TP.bit_length())))):

        def of_stages(stages: int, tp: int = tp) -> Changes:
            return {f"mapping.{phase}.{name}": count for phase in PHASES for name, count in (("tp", tp), ("pp", stages))}

        def describe_stages(stages: int, tp: int = tp) -> str:
            named = "" if tp == own else f"mapping.both.tp={tp} "
            return f"use {count_text(stages, 'stage')} of {count_text(tp, 'device')}: {named}mapping.both.pp={stages}"

        # no stage of more of them has more layers
        yield Lever(describe_stages, range(2, most + 1), of_stages, limits, by_halves=True)


MAX_STAGE_TP = 64
"""The largest tensor parallelism of a stage that is tried where a design does not fit."""
