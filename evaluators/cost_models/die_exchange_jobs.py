"""Jobs of exchanges between dies: all groups at the same time, ended by a barrier."""

from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.cost_models import die_exchange_model as die_exchange
from dse.evaluators.cost_models.die_allreduce_model import ReductionAlgorithm, reduction_cost
from dse.evaluators.cost_models.die_exchange_model import ExchangeCost
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.library.node_collectives import dispatch_start_seconds
from dse.evaluators.machine.die_network import DieNetworkLevel, die_network, place_groups
from dse.evaluators.program.activity import Activity
from dse.space.array_math import Array, where
from dse.space.chip import Chip
from dse.space.errors import DesignError
from dse.space.libraries.moe_all_to_all import MoeAllToAllConstants


class ExchangeVariants(NamedTuple):
    """Variants of an exchange that differ between iterations in more than numbers.

    Attributes:
        each: what there is.
        which: of these each iteration has; shape (iterations, 1).
        made: of one of them, what it stands for, worked out when it is asked for.
    """

    each: tuple[Any, ...]
    which: Array
    made: tuple[Callable[[Any], Any], ...] = ()

    def of_each(self, made: Callable[[Any], Any]) -> "ExchangeVariants":
        """Variants with a function applied to each of them, when it is needed."""
        return self._replace(made=(*self.made, made))

    def build_variant(self, place: int) -> Any:
        """The variant at one place, with all functions applied."""
        return reduce(lambda job, made: made(job), self.made, self.each[place])


class DieExchangeJob(NamedTuple):
    """An exchange of all groups of dies over the links of a network.

    Attributes:
        pattern: all_to_all, reduce_scatter, allgather, allreduce, or hand_over.
        on: the links.
        at: places of the dies of each group, shape (groups, members); of a hand-over, of each stage of each copy of the model.
        to: of a hand-over, places of those that take it, shaped likewise.
        nbytes: as of `layouts.multi_die.DieExchange`. [B]
        ranks: dies whose mean the activity is of: all that work; of a hand-over, those that are not of a last stage.
        shares: of an all-to-all, as of `die_exchange_model.all_to_all_cost`; None for evenly; `ExchangeVariants` of these of
            several iterations.
        boxed: of one by nodes, how many members are in each, and copies between nodes for each to an expert; None of others.
        back: whether results come back.
        ended: from when all is sent until all know that, where a library says it; None for a barrier.
        sums: algorithm of reductions and allgathers.
        half: bytes at which messages reach half of the links' rate; None where those of all sizes reach it. [B]
    """

    pattern: str
    on: DieNetworkLevel
    at: Any
    to: Any
    nbytes: Any
    ranks: int
    shares: Any = None
    boxed: tuple[int, float] | None = None
    back: bool = False
    ended: Any = None
    sums: ReductionAlgorithm = ReductionAlgorithm()
    half: Any = None

    @property
    def full_rate_job(self) -> "DieExchangeJob":
        """Exchange that takes as long at the whole rate of links: s bytes at s / (s + half) are s + half."""
        if self.half is None:
            return self
        return self._replace(nbytes=where(self.nbytes > 0, self.nbytes + self.half, self.nbytes), half=None)

    @property
    def leaves_nodes(self) -> bool:
        """Whether a group of dies is in more than one node."""
        box = self.on.box if self.on.outer is not None else 0
        return bool(box) and self.to is None and bool((self.at // box != self.at[:, :1] // box).any())


class DieGroups(NamedTuple):
    """Places of groups of dies, and the links and algorithms of their exchanges.

    Attributes:
        on: the links.
        groups: places of the dies of each stage of each copy of the model, shape (groups, members).
        tp: dies of a copy of attention.
        stages: of a copy of the model.
        boxed: of exchanges with experts, as of `DieExchangeJob`.
        routed: links as tokens to experts find them, and results; None for as all else does.
        library: of these.
        sums: algorithm that adds up results of the dies of an attention replica.
        attention: members of a group that have attention, the first ones; 0 for all.
        half: as of `DieExchangeJob`, of collectives whose constants no library gives.
    """

    on: DieNetworkLevel
    groups: Array
    tp: int
    stages: int
    boxed: tuple[int, float] | None = None
    routed: tuple[DieNetworkLevel, DieNetworkLevel] | None = None
    library: MoeAllToAllConstants | None = None
    sums: ReductionAlgorithm = ReductionAlgorithm()
    attention: int = 0
    half: Any = None

    def build_job(
        self, pattern: str, nbytes: Any, shares: Any = None, *, back: bool = False, each: Any = 0.0, whole: bool = False
    ) -> DieExchangeJob:
        """Exchange job of all groups.

        `each` is the size of a token's copy that goes to experts or comes back [B]. In a `whole` collective, which goes round a
        ring, all dies of a group take part.
        """
        groups, ranks = self.groups, self.groups.size
        if pattern == "all_to_all":
            if self.routed is None or self.library is None:
                return DieExchangeJob(pattern, self.on, groups, None, nbytes, ranks, shares, self.boxed, back, half=self.half)
            ended = dispatch_start_seconds("combine" if back else "dispatch", each, self.library)
            return DieExchangeJob(pattern, self.routed[back], groups, None, nbytes, ranks, shares, self.boxed, back, ended)
        if whole:
            return DieExchangeJob(pattern, self.on, groups, None, nbytes, ranks, half=self.half)
        groups = groups[:, : self.attention or None]
        if pattern != "hand_over":
            return DieExchangeJob(
                pattern, self.on, groups.reshape(-1, self.tp), None, nbytes, ranks, sums=self.sums, half=self.half
            )
        each, last = groups.reshape(-1, self.stages, groups.shape[1]), ranks // self.stages
        return DieExchangeJob(pattern, self.on, each[:, :-1].ravel(), each[:, 1:].ravel(), nbytes, ranks - last)


def make_die_groups(
    chip: Chip,
    placement: str,
    groups: int,
    members: int,
    tp: int,
    stages: int,
    *,
    reached: Any = 1.0,
    copies: Callable[[int], float] | None = None,
    library: MoeAllToAllConstants | None = None,
    rows: tuple[int, int] | None = None,
    sums: tuple[str, int] = ("ring", 0),
    attention: int = 0,
    half: Any = None,
) -> DieGroups:
    """Groups of dies by their placement; the stages of a model copy follow one another.

    Args:
        chip, placement, groups, members: of dies.
        tp, stages: as of `DieGroups`.
        reached: share of the links' bandwidth that software reaches.
        copies: between nodes for each to an expert, by the nodes that a group is in, where tokens go by nodes.
        rows: of dies, first and how many, that groups are on; None for all.
        sums: algorithm of sums, and phases of a tree.
        attention, half: as of `DieGroups`.
        library: of exchanges with experts: t = start + what the busiest link takes at its share of the bandwidth + ways.
    """
    if library is not None and (library.dispatch_core is not None or library.combine_core is not None):
        raise DesignError(
            "mapping.stack.moe_all_to_all.dispatch_core: has no effect on exchanges between dies, which have no limit of "
            "cores; choose a stack without it, such as stack=deepep_h800"
        )
    cols = int(chip.dies.cols)
    first, count = rows or (0, int(chip.dies.rows))
    at = _placed(placement, count, cols, groups, members, tp) + first * cols
    network = die_network(chip, reached)
    each = network.box and members_per_node(at, network.box)
    boxed = None if copies is None or not each or each == members else (each, copies(members // each))
    routed = None if library is None else (die_network(chip, library.dispatch), die_network(chip, library.combine))
    by = ReductionAlgorithm(
        sums[0], dies_per_node(chip, at, tp) if sums[0] == "two_level" else 0, sums[1] if sums[0] == "ktree" else 0
    )
    return DieGroups(network, at, tp, stages, boxed, routed, library, by, attention, half)


def dies_per_node(chip: Chip, at: Array, tp: int) -> int:
    """Dies of an attention copy in one node, or in one row without nodes; 0 if they differ. [-]"""
    each = int(chip.dies.cols) if chip.nodes is None else int(chip.nodes.size)
    return members_per_node(at.reshape(-1, tp), each)


def has_two_levels(chip: Chip, at: Array, tp: int) -> bool:
    """Whether two-level sums have two levels: attention copies on several nodes of two dies or more."""
    return 1 < dies_per_node(chip, at, tp) < tp


def members_per_node(at: Array, box: int) -> int:
    """Members of a group in one node, contiguous and equally many in each; otherwise 0. [-]"""
    boxes = at // box
    each = int((boxes[0] == boxes[0, 0]).sum())
    if at.shape[1] % each:
        return 0
    nodes = boxes.reshape(len(at), -1, each)
    apart = all(len(set(row)) == len(row) for row in nodes[:, :, 0].tolist())
    return each if apart and (nodes == nodes[:, :, :1]).all() else 0


@lru_cache(maxsize=1024)
def _placed(placement: str, rows: int, cols: int, groups: int, members: int, each: int) -> Array:
    return place_groups(placement, rows, cols, groups, members, each)


def job_cost(job: DieExchangeJob) -> KernelCost:
    """Time [s] of an exchange, and bytes times links crossed per working die."""
    done = analytical_exchange(job)
    return KernelCost(done.seconds, exchange_activity(done, job.ranks))


def exchange_activity(cost: ExchangeCost, ranks: int) -> Activity:
    """Activity of an exchange per working die, mean over those dies."""
    return Activity(linked_bytes=(cost.hop_bytes - cost.boxed_bytes) / ranks, boxed_bytes=cost.boxed_bytes / ranks)


def sent_bytes(job: DieExchangeJob) -> Any:
    """Bytes that leave each working die, mean over dies, once per message whatever its hops. [B]"""
    return analytical_exchange(job).sent_bytes / job.ranks


def time_by_resource(job: DieExchangeJob) -> dict[str, Any]:
    """Time of an exchange by resource, with the keys of `TIME_PARTS`. [s]"""
    done = analytical_exchange(job)
    return dict(zip(TIME_PARTS, (done.seconds - done.latency - done.barrier, done.latency, done.barrier), strict=True))


TIME_PARTS = ("d2d", "d2d latency", "barrier")
"""What takes time: links or ports of dies, the longest way, and until all know that all are done."""


SENT_BYTES = ("busiest", "sent_bytes", "hop_bytes", "boxed_bytes")
"""What of the cost of an exchange counts bytes."""


def analytical_exchange(job: DieExchangeJob) -> ExchangeCost:
    """Time and link loads of an exchange by the analytical model."""
    if job.half is not None and job.leaves_nodes:
        cost = analytical_exchange(job._replace(half=None))
        return cost._replace(seconds=cost.seconds + ramp_seconds(job))
    if job.half is not None:
        longer = job.full_rate_job
        share = job.nbytes / where(longer.nbytes > 0, longer.nbytes, 1.0)
        cost = analytical_exchange(longer)
        return cost._replace(**{name: getattr(cost, name) * share for name in SENT_BYTES})
    if isinstance(job.shares, ExchangeVariants):
        return _in_turn(job, job.shares)
    if job.pattern == "hand_over":
        return die_exchange.stage_transfer_cost(job.on, job.at, job.to, job.nbytes)
    if job.boxed is not None:
        size, copies = job.boxed
        first, last = die_exchange.hierarchical_cost(job.on, job.at, job.nbytes, size, copies, 1.0, job.shares, back=job.back)
        return _ended(die_exchange.add_in_sequence(first, last), job.ended)
    if job.pattern == "all_to_all":
        return _ended(die_exchange.all_to_all_cost(job.on, job.at, job.nbytes, job.shares), job.ended)
    return reduction_cost(job.pattern, job.on, job.at, job.nbytes, job.sums)


def ramp_seconds(job: DieExchangeJob) -> Any:
    """Time by which an exchange over several nodes starts later for small messages. [s]

    It is 0 where a job has no `half`.

    A collective of s bytes reaches s / (s + half) of the rate of the links on which `half` was measured, those inside a node.
    It starts as late for it whatever the links: the time of `half` bytes at that rate. Taken at the rate between nodes, the
    same bytes would be a start as many times longer as those links are slower, which no measurement says.
    """
    if job.half is None:
        return 0.0
    near = job._replace(on=job.on._replace(box=0, outer=None), boxed=None, half=None)
    whole = job.full_rate_job.nbytes
    return analytical_exchange(near._replace(nbytes=whole)).seconds - analytical_exchange(near).seconds


def _in_turn(job: DieExchangeJob, shares: ExchangeVariants) -> ExchangeCost:
    """Of iterations with other shares, those that have the same ones together; the busiest link is that of the last."""
    nbytes = np.broadcast_to(job.nbytes, shares.which.shape)
    taken: dict[str, Any] = {name: np.zeros(nbytes.shape) for name in ExchangeCost._fields if name not in ("link", "hops")}
    for place in range(len(shares.each)):
        mask = shares.which == place
        cost = analytical_exchange(job._replace(nbytes=nbytes[mask], shares=shares.build_variant(place)))
        for name, values in taken.items():
            values[mask] = getattr(cost, name)
    return cost._replace(**taken)


def _ended(cost: ExchangeCost, ended: Any) -> ExchangeCost:
    """With what a library's kernel takes to start and to end instead of a barrier."""
    return cost if ended is None else cost._replace(seconds=cost.seconds - cost.barrier + ended, barrier=ended)
