"""What serves a load, put together: pools of instances with prices and memory, and the way of caches between them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dse.evaluators.account.played.served import longest
from dse.evaluators.account.services import Instance
from dse.evaluators.serving.kvcache import Memory, Room, hosted, paged, prefixes
from dse.evaluators.serving.loop import Deployment, Pool
from dse.evaluators.serving.policy import Policy, policies
from dse.evaluators.serving.price import Price
from dse.evaluators.serving.state import Transfer
from dse.space.mapping import Serving, TileServing
from dse.space.workload import Load


class Group(NamedTuple):
    """Instances that are alike: what they are, how they form iterations of how many requests, and how many there are."""

    of: Instance
    rule: Policy
    batch: int
    instances: int


def groups(serving: Serving, instances: Sequence[Instance]) -> list[Group]:
    """Those of each pool: that prefills, if any does so alone, and that decodes."""
    counts = [int(serving.prefill_instances), int(serving.instances)][-len(instances) :]
    return [Group(of, *rule, count) for rule, of, count in zip(policies(serving), instances, counts, strict=True)]


def pool(serving: Serving, group: Group, load: Load, price: Price, free: float, room: Room) -> Pool:
    """A pool of one design.

    Args:
        serving, group, load: of one design or of several, whose serving is the same.
        price: of iterations.
        free, room: of an instance, for caches, and of a request. [B]
    """
    copies = group.of.copies
    memory = held(serving, load, free, room, copies)
    memory = replace(memory, blocks=int(serving.blocks) or memory.blocks)
    kept = (free - copies * float(serving.reserved)) * float(serving.prefix)
    known = prefixes(kept, room, load.requests.block, int(serving.snapshot or 0))
    return Pool(
        price,
        group.rule,
        memory,
        group.instances,
        group.of.shares,
        group.batch,
        **known._asdict(),
        pooled=serving.reuse == "pool",
        hosted=hosted(copies * float(serving.host_capacity), room, block=int(serving.block)) if serving.host_capacity else 0,
        copies=copies,
    )


def held(serving: Serving, load: Load, free: float, room: Room, copies: int = 1) -> Memory:
    """The memory for caches of an instance, with as many blocks as there is room for; as in `pool`.

    What an engine keeps for itself it keeps on each device that has caches of its own.
    """
    left = free - copies * float(serving.reserved)
    left -= left * float(serving.prefix)
    return paged(left, room, block=int(serving.block), host_bandwidth=float(serving.host), longest=longest(load))


def guessing(pools: Sequence[Pool], load: Load) -> list[Pool]:
    """Pools that guess as many tokens as a load says: whoever only prefills makes first tokens alone."""
    if not load.speculation:
        return list(pools)
    said = load.speculation
    return [*pools[:-1], replace(pools[-1], guesses=said.tokens, acceptance=said.acceptance, seed=load.seed)]


def layers(serving: Serving | TileServing, load: Load) -> int:
    """Layers of the model whose caches go one by one behind prefill; 0 where caches go whole."""
    return int(load.model.layers) if serving.transfer == "by_layer" else 0


def deployment(serving: Serving, pools: Sequence[Pool], load: Load, way: tuple[Room, float] | None) -> Deployment:
    """Pools of one design; where there are two, `way` is what a request has on its way between them, and its start. [s]"""
    transfer = None
    if way is not None:
        sent, latency = way
        # an instance sends or takes one cache at a time
        channels = min(of.instances for of in pools)
        transfer = Transfer(
            sent.growing, latency, channels, True, fixed=sent.fixed, windows=sent.windows, layers=layers(serving, load)
        )
    return Deployment(tuple(pools), transfer, serving.routing)
