"""Pools of pipelines: iteration times, KV memory, and KV transfer between pools.

Leaves are of one design, or of several with equal options, of shape (designs,).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.serving_instances.pipeline_fleet import (
    PipelinePool,
    iteration_pass,
    longest_request_bytes,
    pipeline_path,
    pipeline_request_memory,
    stage_shares_and_rate,
)
from dse.evaluators.accounting.serving_runs import run_metrics as served
from dse.evaluators.accounting.serving_runs.kv_transfers import make_transfer
from dse.evaluators.cost_models.call_cost import CostModel
from dse.evaluators.layouts.kv_transfer import FleetLayout, PipelineFleet, TransferCost, transfer_cost
from dse.evaluators.layouts.simulated_kv_transfer import simulated_transfer_cost
from dse.evaluators.machine.mesh_fabric import tile_fabric
from dse.evaluators.serving.iteration_time import IterationTime, IterationTimeFunction
from dse.evaluators.serving.kv_memory import prefix_cache_sizes, two_level_memory, two_level_paged_memory
from dse.evaluators.serving.simulator import Deployment, InstancePool
from dse.evaluators.serving.simulator_state import KvTransfer
from dse.space.array_math import Array, minimum, option_index
from dse.space.design import Design
from dse.space.layers import differs_between_phases
from dse.space.mapping import ARRANGEMENTS, BYTES_BY_FORMAT, Mapping
from dse.space.workload import ServingLoad


class PipelineShares(NamedTuple):
    """Stage shares of an iteration and token rate of a pool's pipelines, for each design.

    Attributes:
        shares: of an iteration's time, by stage.
        tokens: that all pipelines can do. [1/s]
    """

    shares: list[tuple[float, ...]]
    tokens: Any


def pipeline_paces(load: ServingLoad, fleet: tuple[PipelinePool, ...], reader: CostModel) -> list[PipelineShares]:
    """Stage shares and token rate of each pool."""
    return [PipelineShares(*stage_shares_and_rate(load, pool, reader)) for pool in fleet]


def iteration_time_function(
    load: ServingLoad, pool: PipelinePool, reader: CostModel, between: TransferCost | None, crowding: Any
) -> IterationTimeFunction:
    """Function from iteration compositions to seconds; `crowding` scales message times, designs last."""

    def pricing(prompt: Array, prompt_context: Array, decodes: Array, context: Array, spilled: Array) -> Any:
        counts = (prompt, prompt_context, decodes, context, spilled, crowding)
        if pool.words is not None and pool.name == "decode" and between is not None:  # whose words are those of tokens alone
            return iteration_pass(load, pool, reader, "decode", *counts).seconds
        mixed = iteration_pass(load, pool, reader, "prefill", *counts).seconds
        if not differs_between_phases(load.model) or (pool.words is not None and pool.name == "prefill"):
            return mixed
        # latent attention and states are computed otherwise where nothing is prefilled
        return np.where(prompt > 0, mixed, iteration_pass(load, pool, reader, "decode", *counts).seconds)

    return pricing


def make_deployments(
    design: Design,
    load: ServingLoad,
    fleet: tuple[PipelinePool, ...],
    prices: Sequence[IterationTime],
    paces: Sequence[PipelineShares],
    between: TransferCost | None,
) -> list[Deployment]:
    """Deployment of each design.

    Args:
        design, load, fleet: as they are.
        prices: iteration time of each pool.
        paces: results of `pipeline_paces`.
        between: caches on their way.
    """
    mapping = design.mapping
    pools = [_instance_pools(pool, load, mapping, price, pace) for pool, price, pace in zip(fleet, prices, paces, strict=True)]
    ways: list[KvTransfer | None] = [None] * len(fleet[0].rules)
    if between is not None:
        path = pipeline_path(design, load, fleet, between)
        ways = [
            make_transfer(path, row, mapping.serving, load, design_pools)
            for row, design_pools in enumerate(zip(*pools, strict=True))
        ]
    each = zip(zip(*pools, strict=True), ways, strict=True)
    return [Deployment(pools, transfer, mapping.serving.routing) for pools, transfer in each]


def _instance_pools(
    pool: PipelinePool, load: ServingLoad, mapping: Mapping, price: IterationTime, paces: PipelineShares
) -> list[InstancePool]:
    """Of each design: blocks in local memories and in HBM, or buffers there, one a request; and what of prefixes is kept."""
    longest, block = served.longest_sequence(load), int(mapping.serving.block_size)
    kept, every = float(mapping.serving.prefix_cache_share), int(mapping.serving.state_snapshot_tokens or 0)
    form = two_level_paged_memory if mapping.serving.kv_overflow == "pages" else two_level_memory
    size, pools = len(pool.rules), []
    numbers = _design_rows(
        [pool.free, pool.local_cache_bytes, longest_request_bytes(pool, load, mapping), pool.dp, pool.batch], size
    )
    for rule, shares, room, (free, near, alone, dp, batch) in zip(
        pool.rules, paces.shares, pool.room.each_of(size), numbers, strict=True
    ):
        # the longest request must fit, which is a limit
        memory = form(near, max(free * (1 - kept), alone), room, longest=longest, block=block)
        known = prefix_cache_sizes(free * kept, room, load.requests.block, every)
        pools.append(InstancePool(price, rule, memory, shares=shares, instances=int(dp), batch=int(batch), **known._asdict()))
    return pools


def pipeline_message_cost(
    design: Design, load: ServingLoad, fleet: tuple[PipelinePool, ...], paces: Sequence[PipelineShares], reader: CostModel
) -> TransferCost | None:
    """KV transfer cost from prefill to decode pipelines; None if one pool does both phases.

    Args:
        design, load, fleet: as they are.
        paces: results of `pipeline_paces`.
        reader: cost model of messages.
    """
    if len(fleet) == 1:
        return None
    chip, mapping, requests = design.chip, design.mapping, load.requests
    size, prompt = len(fleet[0].rules), float(requests.prompt.mean())
    # as many as come, or as pipelines can do
    means = (float(requests.prompt.mean()), float(requests.output.mean()))
    rates = [minimum(requests.rate * mean, pace.tokens) for mean, pace in zip(means, paces, strict=True)]
    positions = [
        pipeline_request_memory(design, load, pool.holds).request_bytes(prompt) / (prompt * load.model.layers) for pool in fleet
    ]
    rows, cols, block = (int(size) for size in (chip.mesh.rows, chip.mesh.cols, mapping.serving.block_size))
    fabric, act = tile_fabric(chip), float(BYTES_BY_FORMAT[mapping.precision.activations])
    of_design = _design_rows(
        [*(pool.plan.tp for pool in fleet), *(pool.plan.pp for pool in fleet), *(pool.dp for pool in fleet)], size
    )
    of_fabric, rated = _design_rows(list(fabric), size), _design_rows([*positions, *rates], size)
    arrangements = np.broadcast_to(option_index(mapping.serving.arrangement, ARRANGEMENTS), size).tolist()
    of_layer, carried = ([getattr(pool.cut, name).tolist() for pool in fleet] for name in ("of_layer", "carried"))
    costs = []
    for row in range(size):
        tps, pps, dps = (of_design[row][at : at + 2] for at in (0, 2, 4))
        fleets = [
            PipelineFleet(int(tp), int(pp), int(dp), tuple(layers[row]), position, (values[row] or load.model.hidden) * act)
            for tp, pp, dp, layers, values, position in zip(tps, pps, dps, of_layer, carried, rated[row], strict=False)
        ]
        # more groups than there is room for, which is a limit, are as many columns wider
        wide = max(cols, -(-sum(fleet.tp * fleet.pp * fleet.dp for fleet in fleets) // rows))
        layout, links = FleetLayout(rows, wide, ARRANGEMENTS[arrangements[row]], *fleets), type(fabric)(*of_fabric[row])
        inputs = (layout, links, block, *rated[row][2:])
        costs.append(transfer_cost(*inputs) if reader.play is None else simulated_transfer_cost(*inputs, reader.play))
    return costs[0] if size == 1 else TransferCost(*(np.array(values) for values in zip(*costs, strict=True)))


def _design_rows(values: Sequence[Any], size: int) -> list[list[float]]:
    """Numbers of each design, in order."""
    rows: list[list[float]] = np.array([np.broadcast_to(np.ravel(value), size) for value in values], float).T.tolist()
    return rows
