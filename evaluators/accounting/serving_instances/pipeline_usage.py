"""Energy and utilisation of pipelines that have served a load.

Leaves are of one design, or of several with equal options, of shape (designs,).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dse.evaluators.accounting.forward_passes import StagedPass
from dse.evaluators.accounting.memory_contents import largest_use
from dse.evaluators.accounting.serving_instances.pipeline_fleet import (
    PipelinePool,
    core_count,
    decode_only_cores,
    iteration_pass,
    pipeline_path,
    pool_contents,
)
from dse.evaluators.accounting.serving_instances.served_work import (
    ServedWork,
    power_of_work,
    usage_of_work,
)
from dse.evaluators.accounting.serving_runs import peak_power as peak
from dse.evaluators.accounting.serving_runs.kv_transfers import TransferWork, work_of_transfers
from dse.evaluators.accounting.serving_runs.run_metrics import MeanIteration
from dse.evaluators.accounting.usage import PeakRates, tile_peak_rates
from dse.evaluators.cost_models.call_cost import CostModel
from dse.evaluators.layouts.kv_transfer import TransferCost
from dse.evaluators.program.activity import Activity
from dse.evaluators.silicon.energy import dynamic_energy
from dse.space.array_math import Array
from dse.space.chip import decode_only_chip
from dse.space.design import Design
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
    energy: Any = 0.0
    operations: Any = 0.0
    done, passes = Activity(), dict[tuple[int, bool], StagedPass]()
    for place, (pool, pool_means) in enumerate(zip(fleet, means, strict=True)):
        for mean in pool_means:
            at = passes[place, mean.prompts] = mean_iteration_pass(load, pool, reader, mean, _message_crowding(between, place))
            work = at.activity * mean.times
            done, energy = done + work, energy + dynamic_energy(work, pool.chip, pool.width)
            operations = operations + mean.times * sum(call.flop * times for call, _, times, _ in at.calls())
    moved = work_of_pipeline_transfers(design, load, fleet, between, gone)

    def mean_watts(place: int, made_of: peak.Counts) -> Any:
        return np.atleast_2d(_pass_watts(passes[place, bool(np.any(made_of[0]))], fleet[place]))

    def most() -> Any:
        """Caches are on their way all the time, in the mean."""
        power = mean_watts if steady else power_function(load, fleet, reader, between)
        return _flat_values(peak.peak_power(fullest, power)) + moved.energy / span

    served = ServedWork(
        _flat_values(operations),
        _flat_values(done.memory_bytes),
        _flat_values(done.hop_bytes),
        lambda: _flat_values(energy),
    )
    rates = PeakRates(*map(_flat_values, pipeline_peak_rates(design)))
    kinds, apart = ((design.chip, 1.0),), decode_only_cores(design)
    return usage_of_work(served, moved, rates, span) | power_of_work(served, moved, span, load, kinds, most, decode_cores=apart)


def work_of_pipeline_transfers(
    design: Design, load: ServingLoad, fleet: tuple[PipelinePool, ...], between: TransferCost | None, gone: Array
) -> TransferWork:
    """Work of KV transfers of some requests, shape (requests,); none where one pool does both phases."""
    path = None if between is None else pipeline_path(design, load, fleet, between)
    work = work_of_transfers(path, load.requests.prompt[gone])
    return work._replace(**{name: _flat_values(value) for name, value in work._asdict().items()})


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
    contents = [memory for pool in fleet for memory in pool_contents(pool, load, mapping)]
    uses = {"sram_used": largest_use(contents, main=False), "hbm_used": largest_use(contents, main=True)}
    return {"devices": 1.0} | {name: _flat_values(use) for name, use in uses.items()}


def pipeline_peak_rates(design: Design) -> PeakRates:
    """Peak rates of all engines, channels and links of the chip, idle cores included.

    Cores that only decode may differ.
    """
    decode = decode_only_cores(design) / core_count(design)
    first, last = tile_peak_rates(design.chip), tile_peak_rates(decode_only_chip(design.chip))
    flops, memory = ((1 - decode) * own + decode * other for own, other in zip(first[:2], last[:2], strict=True))
    return PeakRates(flops, memory, first.links)


def _flat_values(values: Any) -> Any:
    """Of one design as a float, of several of shape (designs,)."""
    return np.ravel(values) if np.size(values) > 1 else float(np.squeeze(values))
