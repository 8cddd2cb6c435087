"""What serves a load, put together: pools of instances with prices and memory, and the way of caches between them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dse.evaluators.accounting.serving_instances import ServingInstance
from dse.evaluators.accounting.serving_runs.run_metrics import longest_sequence
from dse.evaluators.serving.iteration_time import IterationTime
from dse.evaluators.serving.kv_memory import KvMemory, RequestMemory, host_blocks, paged_memory, prefix_cache_sizes
from dse.evaluators.serving.scheduling_policy import SchedulingPolicy, policies_with_batch
from dse.evaluators.serving.simulator import Deployment, InstancePool
from dse.evaluators.serving.simulator_state import KvTransfer
from dse.space.mapping import PipelineServingPlan, ServingPlan
from dse.space.workload import ServingLoad


class InstanceGroup(NamedTuple):
    """Instances that are alike: what they are, how they form iterations of how many requests, and how many there are."""

    of: ServingInstance
    rule: SchedulingPolicy
    batch: int
    instances: int


def instance_groups(serving: ServingPlan, instances: Sequence[ServingInstance]) -> list[InstanceGroup]:
    """Those of each pool: that prefills, if any does so alone, and that decodes."""
    counts = [int(serving.prefill_instances), int(serving.instances)][-len(instances) :]
    return [
        InstanceGroup(of, *rule, count) for rule, of, count in zip(policies_with_batch(serving), instances, counts, strict=True)
    ]


def make_pool(
    serving: ServingPlan, group: InstanceGroup, load: ServingLoad, price: IterationTime, free: float, room: RequestMemory
) -> InstancePool:
    """A pool of one design.

    Args:
        serving, group, load: of one design or of several, whose serving is the same.
        price: of iterations.
        free, room: of an instance, for caches, and of a request. [B]
    """
    copies = group.of.copies
    memory = make_kv_memory(serving, load, free, room, copies)
    memory = replace(memory, blocks=int(serving.kv_blocks) or memory.blocks)
    kept = (free - copies * float(serving.reserved_memory)) * float(serving.prefix_cache_share)
    known = prefix_cache_sizes(kept, room, load.requests.block, int(serving.state_snapshot_tokens or 0))
    return InstancePool(
        price,
        group.rule,
        memory,
        group.instances,
        group.of.shares,
        group.batch,
        **known._asdict(),
        pooled=serving.prefix_cache == "shared",
        hosted=host_blocks(copies * float(serving.host_kv_capacity), room, block=int(serving.block_size))
        if serving.host_kv_capacity
        else 0,
        copies=copies,
    )


def make_kv_memory(serving: ServingPlan, load: ServingLoad, free: float, room: RequestMemory, copies: int = 1) -> KvMemory:
    """The memory for caches of an instance, with as many blocks as there is room for; as in `pool`.

    What an engine keeps for itself it keeps on each device that has caches of its own.
    """
    left = free - copies * float(serving.reserved_memory)
    left -= left * float(serving.prefix_cache_share)
    return paged_memory(
        left, room, block=int(serving.block_size), host_bandwidth=float(serving.host_bandwidth), longest=longest_sequence(load)
    )


def with_speculation(pools: Sequence[InstancePool], load: ServingLoad) -> list[InstancePool]:
    """Pools that guess as many tokens as a load says: whoever only prefills makes first tokens alone."""
    if not load.speculation:
        return list(pools)
    said = load.speculation
    return [*pools[:-1], replace(pools[-1], guesses=said.tokens, acceptance=said.acceptance, seed=load.seed)]


def layerwise_transfer_layers(serving: ServingPlan | PipelineServingPlan, load: ServingLoad) -> int:
    """Layers of the model whose caches go one by one behind prefill; 0 where caches go whole."""
    return int(load.model.layers) if serving.kv_transfer == "layerwise" else 0


def make_deployment(
    serving: ServingPlan, pools: Sequence[InstancePool], load: ServingLoad, way: tuple[RequestMemory, float] | None
) -> Deployment:
    """Pools of one design; where there are two, `way` is what a request has on its way between them, and its start. [s]"""
    transfer = None
    if way is not None:
        sent, latency = way
        # an instance sends or takes one cache at a time
        channels = min(of.instances for of in pools)
        transfer = KvTransfer(
            sent.growing,
            latency,
            channels,
            True,
            fixed=sent.fixed,
            windows=sent.windows,
            layers=layerwise_transfer_layers(serving, load),
        )
    return Deployment(tuple(pools), transfer, serving.routing)
