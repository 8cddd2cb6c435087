"""What dies exchange, as jobs that readers price: of all groups at the same time, ended by a barrier."""

from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.library.collectives import begun
from dse.evaluators.machine.d2d import Level, level, placed
from dse.evaluators.program.activity import Activity
from dse.evaluators.readers import die_exchange
from dse.evaluators.readers.die_exchange import Exchange
from dse.evaluators.readers.die_sums import Sums, collective
from dse.space.chip import Chip
from dse.space.elementwise import Array
from dse.space.errors import DesignError
from dse.space.libraries.dispatch import Dispatch


class Several(NamedTuple):
    """What differs between iterations otherwise than in numbers.

    Attributes:
        each: what there is.
        which: of these each iteration has; shape (iterations, 1).
        made: of one of them, what it stands for, worked out when it is asked for.
    """

    each: tuple[Any, ...]
    which: Array
    made: tuple[Callable[[Any], Any], ...] = ()

    def of_each(self, made: Callable[[Any], Any]) -> "Several":
        """What is made of it."""
        return self._replace(made=(*self.made, made))

    def at(self, place: int) -> Any:
        """One of them."""
        return reduce(lambda one, made: made(one), self.made, self.each[place])


class Job(NamedTuple):
    """An exchange.

    Attributes:
        pattern: all_to_all, reduce_scatter, allgather, allreduce, or hand_over.
        on: the links.
        at: places of the dies of each group, shape (groups, members); of a hand-over, of each stage of each copy of the model.
        to: of a hand-over, places of those that take it, shaped likewise.
        nbytes: as of `layouts.dies.Crossing`. [B]
        ranks: dies whose mean the activity is of: all that work; of a hand-over, those that are not of a last stage.
        shares: of an all-to-all, as of `die_exchange.all_to_all`; None for evenly; `Several` of these of several
            iterations.
        boxed: of one by boxes, how many members are in each, and copies between boxes for each to an expert; None of others.
        back: whether results come back.
        ended: from when all is sent until all know that, where a library says it; None for a barrier.
        sums: who adds up or collects.
    """

    pattern: str
    on: Level
    at: Any
    to: Any
    nbytes: Any
    ranks: int
    shares: Any = None
    boxed: tuple[int, float] | None = None
    back: bool = False
    ended: Any = None
    sums: Sums = Sums()


class Between(NamedTuple):
    """Where groups of dies are.

    Attributes:
        on: the links.
        groups: places of the dies of each stage of each copy of the model, shape (groups, members).
        tp: dies of a copy of attention.
        stages: of a copy of the model.
        boxed: of exchanges with experts, as of `Job`.
        routed: links as tokens to experts find them, and results; None for as all else does.
        library: of these.
        sums: who adds up what dies of a copy of attention have.
        attention: members of a group that have attention, the first ones; 0 for all.
    """

    on: Level
    groups: Array
    tp: int
    stages: int
    boxed: tuple[int, float] | None = None
    routed: tuple[Level, Level] | None = None
    library: Dispatch | None = None
    sums: Sums = Sums()
    attention: int = 0

    def job(self, pattern: str, nbytes: Any, shares: Any = None, *, back: bool = False, each: Any = 0.0) -> Job:
        """An exchange of all groups; `each` is of a copy of a token, where it goes to experts or comes back. [B]"""
        groups, ranks = self.groups, self.groups.size
        if pattern == "all_to_all":
            if self.routed is None or self.library is None:
                return Job(pattern, self.on, groups, None, nbytes, ranks, shares, self.boxed, back)
            ended = begun("combine" if back else "dispatch", each, self.library)
            return Job(pattern, self.routed[back], groups, None, nbytes, ranks, shares, self.boxed, back, ended)
        groups = groups[:, : self.attention or None]
        if pattern != "hand_over":
            return Job(pattern, self.on, groups.reshape(-1, self.tp), None, nbytes, ranks, sums=self.sums)
        each, last = groups.reshape(-1, self.stages, groups.shape[1]), ranks // self.stages
        return Job(pattern, self.on, each[:, :-1].ravel(), each[:, 1:].ravel(), nbytes, ranks - last)


def between(
    chip: Chip,
    placement: str,
    groups: int,
    members: int,
    tp: int,
    stages: int,
    *,
    reached: Any = 1.0,
    copies: Callable[[int], float] | None = None,
    library: Dispatch | None = None,
    rows: tuple[int, int] | None = None,
    sums: tuple[str, int] = ("ring", 0),
    attention: int = 0,
) -> Between:
    """Groups of dies by their placement; those of the stages of a copy of the model follow one another.

    Args:
        chip, placement, groups, members: of dies.
        tp, stages: as of `Between`.
        reached: share of the links' bandwidth that software reaches.
        copies: between boxes for each to an expert, by the boxes that a group is in, where tokens go by boxes.
        rows: of dies, first and how many, that groups are on; None for all.
        sums: who adds up, and phases of a tree.
        attention: as of `Between`.
        library: of exchanges with experts: t = start + what the busiest link takes at its share of the bandwidth + ways.
    """
    if library is not None and (library.dispatch_core is not None or library.combine_core is not None):
        raise DesignError(
            "mapping.stack.dispatch.dispatch_core: exchanges between many dies have no limit of cores; choose a stack without, "
            "as stack=deepep_h800"
        )
    cols = int(chip.dies.cols)
    first, count = rows or (0, int(chip.dies.rows))
    at = _placed(placement, count, cols, groups, members, tp) + first * cols
    on = level(chip, reached)
    each = on.box and together(at, on.box)
    boxed = None if copies is None or not each or each == members else (each, copies(members // each))
    routed = None if library is None else (level(chip, library.dispatch), level(chip, library.combine))
    by = Sums(sums[0], node(chip, at, tp) if sums[0] == "two_level" else 0, sums[1] if sums[0] == "ktree" else 0)
    return Between(on, at, tp, stages, boxed, routed, library, by, attention)


def node(chip: Chip, at: Array, tp: int) -> int:
    """Dies of a copy of attention that are in one box, or in one row where there are no boxes; 0 where not all are alike."""
    each = int(chip.dies.cols) if chip.boxes is None else int(chip.boxes.size)
    return together(at.reshape(-1, tp), each)


def levelled(chip: Chip, at: Array, tp: int) -> bool:
    """Whether sums of two levels are two: copies of attention on several nodes of two dies or more. Else they are one ring."""
    return 1 < node(chip, at, tp) < tp


def together(at: Array, box: int) -> int:
    """Members of a group that are in one box, one after the other and as many in each; 0 where they are otherwise."""
    boxes = at // box
    each = int((boxes[0] == boxes[0, 0]).sum())
    if at.shape[1] % each:
        return 0
    nodes = boxes.reshape(len(at), -1, each)
    apart = all(len(set(row)) == len(row) for row in nodes[:, :, 0].tolist())
    return each if apart and (nodes == nodes[:, :, :1]).all() else 0


@lru_cache(maxsize=1024)
def _placed(placement: str, rows: int, cols: int, groups: int, members: int, each: int) -> Array:
    return placed(placement, rows, cols, groups, members, each)


def price(job: Job) -> Cost:
    """Time, and bytes times the links that they cross, of each die that works."""
    done = closed(job)
    return Cost(done.seconds, activity(done, job.ranks))


def activity(of: Exchange, ranks: int) -> Activity:
    """Of each of some dies that work, in the mean."""
    return Activity(linked_bytes=(of.hop_bytes - of.boxed_bytes) / ranks, boxed_bytes=of.boxed_bytes / ranks)


def left(job: Job) -> Any:
    """Bytes that leave each die that works, in the mean, once for each message, however many links it crosses. [B]"""
    return closed(job).sent_bytes / job.ranks


def split(job: Job) -> dict[str, Any]:
    """Its time by what it goes into, words of `PARTS`."""
    done = closed(job)
    return dict(zip(PARTS, (done.seconds - done.latency - done.barrier, done.latency, done.barrier), strict=True))


PARTS = ("d2d", "d2d latency", "barrier")
"""What takes time: links or ports of dies, the longest way, and until all know that all are done."""


def closed(job: Job) -> Exchange:
    """By the loads of links."""
    if isinstance(job.shares, Several):
        return _in_turn(job, job.shares)
    if job.pattern == "hand_over":
        return die_exchange.hand_over(job.on, job.at, job.to, job.nbytes)
    if job.boxed is not None:
        size, copies = job.boxed
        first, last = die_exchange.by_node(job.on, job.at, job.nbytes, size, copies, 1.0, job.shares, back=job.back)
        return _ended(die_exchange.together(first, last), job.ended)
    if job.pattern == "all_to_all":
        return _ended(die_exchange.all_to_all(job.on, job.at, job.nbytes, job.shares), job.ended)
    return collective(job.pattern, job.on, job.at, job.nbytes, job.sums)


def _in_turn(job: Job, shares: Several) -> Exchange:
    """Of iterations with other shares, those that have the same ones together; the busiest link is that of the last."""
    nbytes = np.broadcast_to(job.nbytes, shares.which.shape)
    taken: dict[str, Any] = {name: np.zeros(nbytes.shape) for name in Exchange._fields if name not in ("link", "hops")}
    for place in range(len(shares.each)):
        here = shares.which == place
        found = closed(job._replace(nbytes=nbytes[here], shares=shares.at(place)))
        for name, values in taken.items():
            values[here] = getattr(found, name)
    return found._replace(**taken)


def _ended(of: Exchange, ended: Any) -> Exchange:
    """With what a library's kernel takes to start and to end instead of a barrier."""
    return of if ended is None else of._replace(seconds=of.seconds - of.barrier + ended, barrier=ended)
