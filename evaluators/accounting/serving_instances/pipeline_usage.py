"""Energy and utilisation of pipelines that have served a load.

Leaves are of one design, or of several with equal options, of shape (designs,).
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from dse.evaluators.accounting.forward_passes import StagedPass
from dse.evaluators.accounting.power import power_metrics
from dse.evaluators.accounting.serving_instances.pipeline_fleet import (
    PipelinePool,
    core_count,
    decode_only_cores,
    iteration_pass,
    longest_request_bytes,
    pipeline_request_memory,
)
from dse.evaluators.accounting.serving_runs import peak_power as peak
from dse.evaluators.accounting.serving_runs.run_metrics import MeanIteration
from dse.evaluators.accounting.usage import PeakRates, link_utilisation, mesh_link_bandwidth, usage_of_time
from dse.evaluators.cost_models.call_cost import CostModel
from dse.evaluators.layouts.kv_transfer import TransferCost
from dse.evaluators.program.activity import Activity
from dse.evaluators.silicon.energy import dynamic_energy
from dse.space.array_math import Array, maximum
from dse.space.chip import decode_only_chip
from dse.space.design import Design
from dse.space.main_memory import main_memory
from dse.space.mapping import Mapping
from dse.space.workload import ServingLoad


def usage_metrics(
    design: Design,
    load: ServingLoad,
    fleet: tuple[PipelinePool, ...],
    reader: CostModel,
    means: Sequence[Sequence[MeanIteration]],
    fullest: Sequence[peak.PoolConcurrency],
    between: TransferCost | None,
    gone: Array,
    span: Any,
    *,
    steady: bool = False,
) -> dict[str, Any]:
    """Metrics of utilisation, memory use and energy of a run.

    Args:
        design, load, fleet, reader: design, load, pools and cost model.
        means: iterations of each pool.
        fullest: what each has under way at once.
        between: how caches are moved, where they are.
        gone: which requests had a KV transfer, shape (requests,).
        span: of the run. [s]
        steady: whether the fullest iterations are the mean ones.
    """
    spent: Any = 0.0
    moved: Any = 0.0
    operations: Any = 0.0
    done, made = Activity(), dict[tuple[int, bool], StagedPass]()
    for place, (pool, pool_means) in enumerate(zip(fleet, means, strict=True)):
        for mean in pool_means:
            at = made[place, mean.prompts] = mean_iteration_pass(load, pool, reader, mean, _message_crowding(between, place))
            work = at.activity * mean.times
            done, spent = done + work, spent + dynamic_energy(work, pool.chip, pool.width)
            operations = operations + mean.times * sum(call.flop * times for call, _, times, _ in at.calls())
    if between is not None:
        caches = transfer_activity(design, load, fleet, between, gone)
        done, moved = done + caches, dynamic_energy(caches, design.chip)

    def mean_watts(place: int, made_of: peak.Counts) -> Any:
        return np.atleast_2d(_pass_watts(made[place, bool(np.any(made_of[0]))], fleet[place]))

    def most() -> Any:
        """Caches are on their way all the time, in the mean."""
        power = mean_watts if steady else power_function(load, fleet, reader, between)
        return _flat_values(peak.peak_power(fullest, power)) + _flat_values(moved / span)

    tokens, apart = float(load.requests.output.sum()), decode_only_cores(design)
    return _usage_shares(design, done, operations, span) | power_metrics(
        design.chip, lambda: [(_flat_values(spent + moved), span)], tokens, decode_cores=apart, peak=most
    )


def transfer_activity(
    design: Design, load: ServingLoad, fleet: tuple[PipelinePool, ...], between: TransferCost, gone: Array
) -> Activity:
    """Activity of KV transfers of some requests, shape (requests,), from memory to memory.

    Positions in local memories are not read from main memory.
    """
    plan, away = fleet[-1].holds, sum(1 - pool.held.kv_here for pool in fleet)
    sent = pipeline_request_memory(design, load, plan).sum_bytes(load.requests.prompt[gone]) * plan.tp
    return Activity(sent_bytes=sent, hop_bytes=sent * between.hops, memory_bytes=sent * away)


def power_function(
    load: ServingLoad, fleet: tuple[PipelinePool, ...], reader: CostModel, between: TransferCost | None
) -> peak.PowerFunction:
    """Function from iteration compositions to power. [W]"""

    def of_iterations(place: int, made_of: peak.Counts) -> Any:
        pool = fleet[place]
        counts = (*made_of, _message_crowding(between, place))
        return _pass_watts(iteration_pass(load, pool, reader, "prefill" if np.any(made_of[0]) else "decode", *counts), pool)

    return of_iterations


def _message_crowding(between: TransferCost | None, place: int) -> Any:
    """How many times as long caches on their way make the messages of a pool."""
    return 1.0 if between is None else (between.prefill, between.decode)[place]


def _pass_watts(at: StagedPass, pool: PipelinePool) -> Any:
    return dynamic_energy(at.activity, pool.chip, pool.width) / at.seconds


def mean_iteration_pass(
    load: ServingLoad, pool: PipelinePool, reader: CostModel, mean: MeanIteration, crowding: Any = 1.0
) -> StagedPass:
    """Forward pass of the mean iteration of a kind."""
    prompt, prompt_context, decodes, context, spilled = mean.composition
    phase = "prefill" if mean.prompts else "decode"
    return iteration_pass(load, pool, reader, phase, prompt, prompt_context, decodes, context, spilled, crowding)


def fixed_metrics(fleet: tuple[PipelinePool, ...], load: ServingLoad, mapping: Mapping) -> dict[str, Any]:
    """Metrics that do not depend on time: chips, and memory of the fullest core for a longest request."""
    main = ((1 - pool.held.weights_here) * pool.held.weights + longest_request_bytes(pool, load, mapping) for pool in fleet)
    return {
        "devices": 1.0,
        "sram_used": _flat_values(reduce(maximum, (pool.sram_used for pool in fleet))),
        "hbm_used": _flat_values(reduce(maximum, main)),
    }


def pipeline_peak_rates(design: Design) -> PeakRates:
    """Peak rates of all engines, channels and links of the chip, whose decode cores may differ."""
    chip, cores = design.chip, core_count(design)
    decode = decode_only_cores(design)
    engines: Any = 0.0
    channels: Any = 0.0
    for given_chip, count in ((chip, cores - decode), (decode_only_chip(chip), decode)):
        engines = engines + count * 2 * (given_chip.tile.matrix.rows * given_chip.tile.matrix.cols * given_chip.clock)
        channels = channels + count / cores * main_memory(given_chip).bandwidth
    return PeakRates(engines, channels, mesh_link_bandwidth(chip))


def _usage_shares(design: Design, done: Activity, operations: Any, seconds: Any) -> dict[str, Any]:
    """Usage of all of the chip's engines, channels and links in some time; idle cores have theirs."""
    rates = pipeline_peak_rates(design)
    values = usage_of_time(operations, done.memory_bytes, seconds, rates.flops, rates.memory)
    values["noc_utilisation"] = link_utilisation(done.hop_bytes, rates.links, seconds)
    return {name: _flat_values(value) for name, value in values.items()}


def _flat_values(values: Any) -> Any:
    """Of one design as a float, of several of shape (designs,)."""
    return np.ravel(values) if np.size(values) > 1 else float(np.squeeze(values))
