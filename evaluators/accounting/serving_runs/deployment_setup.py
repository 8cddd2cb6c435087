"""Assembly of a deployment: pools with iteration times and KV memory, and KV transfer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dse.evaluators.accounting.serving_instances import ServingInstance
from dse.evaluators.accounting.serving_runs.kv_transfers import KvPath, make_transfer
from dse.evaluators.accounting.serving_runs.run_metrics import longest_sequence
from dse.evaluators.serving.iteration_time import IterationTime
from dse.evaluators.serving.kv_memory import KvMemory, RequestMemory, host_blocks, paged_memory, prefix_cache_sizes
from dse.evaluators.serving.scheduling_policy import SchedulingPolicy, policies_with_batch
from dse.evaluators.serving.simulator import Deployment, InstancePool
from dse.space.serving_plan import ServingPlan, instance_counts
from dse.space.workload import ServingLoad


class InstanceGroup(NamedTuple):
    """A group of equal instances: their properties, scheduling policy, batch size and number."""

    of: ServingInstance
    rule: SchedulingPolicy
    batch: int
    instances: int


def instance_groups(serving: ServingPlan, instances: Sequence[ServingInstance]) -> list[InstanceGroup]:
    """Instance groups of each pool: prefill only, if any, and decode."""
    counts = instance_counts(serving)
    return [
        InstanceGroup(instance, *rule, count)
        for rule, instance, count in zip(policies_with_batch(serving), instances, counts, strict=True)
    ]


def make_pool(
    serving: ServingPlan, group: InstanceGroup, load: ServingLoad, price: IterationTime, free: float, room: RequestMemory
) -> InstancePool:
    """Build the instance pool of one design.

    Args:
        serving, group, load: settings of one design, or of several with equal serving settings.
        price: iteration time.
        free, room: KV memory of an instance, and of a request. [B]
    """
    copies = group.of.copies
    if group.of.prefixes is not None:
        room_for_prefixes, bandwidth = group.of.prefixes
        serving = replace(serving, host_kv_capacity=room_for_prefixes, host_bandwidth=bandwidth)
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
    """KV memory of an instance, with as many blocks as fit.

    Memory reserved by an engine is reserved on each device that has KV caches of its own.
    """
    left = free - copies * float(serving.reserved_memory)
    left -= left * float(serving.prefix_cache_share)
    return paged_memory(
        left, room, block=int(serving.block_size), host_bandwidth=float(serving.host_bandwidth), longest=longest_sequence(load)
    )


def with_speculation(pools: Sequence[InstancePool], load: ServingLoad) -> list[InstancePool]:
    """Pools with the load's speculative decoding; pools that only prefill make first tokens only."""
    if not load.speculation:
        return list(pools)
    speculation = load.speculation
    return [*pools[:-1], replace(pools[-1], guesses=speculation.tokens, acceptance=speculation.acceptance, seed=load.seed)]


def make_deployment(
    serving: ServingPlan, pools: Sequence[InstancePool], load: ServingLoad, path: KvPath | None, row: int
) -> Deployment:
    """Build the deployment of one design from its pools and, for two pools, the path of KV caches.

    Args:
        serving, pools, load: of the design.
        path, row: of several designs, and which one of them it is.
    """
    transfer = None if path is None else make_transfer(path, row, serving, load, pools)
    return Deployment(tuple(pools), transfer, serving.routing)
