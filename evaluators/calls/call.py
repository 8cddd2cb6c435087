"""Calls: one kernel on some cores of a machine, with its repetitions.

Layouts make calls, and cost models give their time and activity.

A `CallBlock` is calls in the order in which they run, from one collective to the next. Leaves broadcast over steps and designs.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.space.array_math import minimum
from dse.space.noc_router import NO_FAULTS, MeshFaults

ONCE = 1.0
"""The count of what is there once, which nothing has to be multiplied with."""

NOTHING = 0.0
"""What a call has none of."""


PREFETCHABLE = ("weights", "kv", "states")
"""What calls read that is in main memory before the step; logits and activations are written in it."""

ACTIVATIONS = "activations"
"""What calls read and write that main memory has between them, whatever a cache has room for."""


class AlgorithmCandidate(NamedTuple):
    """Algorithm that auto-tuning may choose for a kernel.

    Attributes:
        word: its name.
        fits: whether the chip can run it; broadcasts over designs.
    """

    word: str
    fits: Any


class MeshKernel(NamedTuple):
    """One kernel whose program runs on a mesh of cores; leaves broadcast over designs.

    Attributes:
        part: attention, ffn, moe, region, or head: runs in every layer, between regions, or once.
        name: what it is for.
        kind: gemm, gemv, vector or move.
        algorithm: a name in the registry of that kind.
        shape, mesh: of one run.
        options: further arguments, equal for all cost models.
        times: runs one after the other, each time.
        copies: that run side by side, each on its own cores.
        faults: of its mesh.
        rivals: for a word that is left open (`space.mapping.AUTO`), as algorithm or among the options; else none.
    """

    part: str
    name: str
    kind: str
    algorithm: str
    shape: GemmShape
    mesh: CoreMesh
    options: dict[str, Any]
    times: Any = ONCE
    copies: Any = 1.0
    faults: MeshFaults = NO_FAULTS
    rivals: tuple[AlgorithmCandidate, ...] = ()


class CallProduct(NamedTuple):
    """A number of products [m, k] x [k, n] in sequence on one core."""

    count: Any
    m: Any
    k: Any
    n: Any


class CoreGroupSplit(NamedTuple):
    """Division of a product over a group of cores.

    Attributes:
        partition: how it is divided, an option of `PARTITION`; `AUTO` where entries have several ways.
        placement, cores: where they are, and how many.
        sums: how partial sums are added up, an option of `space.mapping.TILE_SUMS`, or `AUTO` for the quickest of them.
        phases: phases of a K-tree.
        ways: partitions that were chosen, each by some entry; none where a plan sets one.
        which: place of each entry's among them, where there are several.
    """

    partition: str
    placement: str
    cores: Any
    sums: str = "ring"
    phases: Any = 1
    ways: tuple[str, ...] = ()
    which: Any = 0

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of the partition beyond its defaults."""
        return {} if self.sums == "ring" else {"sums": self.sums, "phases": self.phases}


class GroupExchange(NamedTuple):
    """Allgather or reduction of the slices of a group's cores around its rings.

    Attributes:
        times: how often all slices go round: 2 where they are summed and then come to all; 0 for not at all.
        placement, cores: of the group.
        nbytes: of a slice. [B]
        attended: whether each core works on a slice while that goes on; else nothing hides the messages.
    """

    times: Any
    placement: str
    cores: Any
    nbytes: Any
    attended: bool = False


class KernelCall(NamedTuple):
    """One run of one kernel: its products, vector operations, reads and messages on one core.

    Attributes:
        part, name, needs: of the operator.
        rows: tokens that come into its part.
        shape: m, k and n, for people; of attention as the layout has them.
        products: on one core; of a group, on all its cores together.
        group: cores that share the products; None where each core has its own.
        width: bytes of an operand's value, of the wider one as it is multiplied. [B]
        operations, specials: on elements, of one core, None for none; a special one is an exponential, a root or a quotient.
        streamed: elements of K and V that a vector engine would pass over to do the attention itself.
        reads: what that one core reads from main memory, unless it has it: "weights", "kv" or "states", or "logits" or
            "activations", which main memory has whatever a cache has room for; or nothing.
        fetch: how much of that. [B]
        known: share of `fetch` that is in main memory before the step; the rest is written by it.
        piece, stride: contiguous bytes of that, and from one piece to the next; a stride of 0 is contiguous. [B]
        wrote: contiguous bytes of what is written. [B]
        local: bytes of activations that go through a cache. [B]
        kernel: whose program a mesh of cores runs; nothing else is said of such a call.
        job: what a chip of tiles is asked for as a whole (`cost_models.jobs`), likewise.
        exchange: messages beside the product's own.
        flop, nbytes: for people: useful operations, of all dies that divide it, and bytes from main memory. [op], [B]
        macs, elements, sent: of all cores, or of one of the dies that divide it: multiply-adds, elements of vectors, bytes
            that leave a core. [1], [1], [B]
        operators: of its part, that are done when it is: its own, and those folded into it; none where the rest of its own
            follows, or where a layout adds the call.
        pace: time of an operation of a product over that of one on values of 16 bits, where engines have a rate by format.
        masked, repeated: for people: operations beside `flop`, of pairs that a mask hides, and done elsewhere as well. [op]
        asked: of a library kernel: its problem, of a module of `kernels.library`; used where the stack has a part for it.
    """

    part: str
    name: str
    needs: tuple[str, ...]
    rows: Any
    shape: tuple[Any, Any, Any]
    products: tuple[CallProduct, ...] = ()
    group: CoreGroupSplit | None = None
    width: float = 0.0
    operations: Any = None
    specials: Any = 0.0
    streamed: Any = 0.0
    reads: str = ""
    fetch: Any = 0.0
    piece: Any = 0.0
    stride: Any = 0.0
    local: Any = 0.0
    exchange: GroupExchange | None = None
    kernel: MeshKernel | None = None
    job: Any = None
    flop: Any = 0.0
    nbytes: Any = 0.0
    macs: Any = 0.0
    elements: Any = 0.0
    sent: Any = 0.0
    operators: tuple[str, ...] = ()
    known: Any = 1.0
    pace: Any = ONCE
    asked: Any = None
    wrote: Any = NOTHING
    masked: Any = NOTHING
    repeated: Any = NOTHING

    @property
    def can_be_prefetched(self) -> bool:
        """Whether the call reads something that is in main memory before the step."""
        return self.reads in PREFETCHABLE


class LeadingCollective(NamedTuple):
    """Collective that a block of calls waits for.

    Attributes:
        algorithm: of an allreduce between dies.
        peers: dies that take part.
        nbytes: vector on each. [B]
        recorded: whether a recorded graph of launches holds it; else the host starts it.
        phases: of a K-tree; None where it is not set.
    """

    algorithm: str
    peers: Any
    nbytes: Any
    recorded: bool
    phases: Any = None


class CallBlock(NamedTuple):
    """Calls from one collective to the next one, with their repetitions.

    Attributes:
        name: for people.
        calls: in the order of execution.
        alike: of each call, the position of the first one that costs the same.
        order: positions of the calls, breadth-first from the opener.
        times: how often all of it runs in a step.
        opener: the collective that they wait for; None where they wait for nothing.
        after: position of the block whose last messages are on their way when it begins; None where there are none.
    """

    name: str
    calls: tuple[KernelCall, ...]
    alike: tuple[int, ...]
    order: tuple[int, ...]
    times: float
    opener: LeadingCollective | None = None
    after: int | None = None


def equal_call_index(calls: tuple[KernelCall, ...]) -> tuple[int, ...]:
    """Position of the first call that differs from each call in name and needs at most.

    >>> one = KernelCall("attention", "k_proj", (), 8.0, (8.0, 4, 4), (CallProduct(1.0, 8.0, 4, 4),))
    >>> equal_call_index((one, one._replace(name="v_proj"), one._replace(name="rope", products=())))
    (0, 0, 2)
    """
    costs = [_what_costs(call) for call in calls]
    heads = [cost[:2] for cost in costs]
    return tuple(
        next(first for first, other in enumerate(costs) if heads[first] == head and _same(other, cost))
        for head, cost in zip(heads, costs, strict=True)
    )


def _what_costs(call: KernelCall) -> tuple[Any, ...]:
    """Fields that determine the cost of a call, its two names first; of a kernel only the kernel."""
    kernel = call.kernel
    if kernel is not None:
        return call.part, (kernel.kind, kernel.algorithm), *kernel[4:]
    return (
        call.part,
        id(call.job),
        *call._replace(job=None, flop=0.0, macs=0.0, operators=(), masked=NOTHING, repeated=NOTHING)[3:],
    )


def _same(value: Any, other: Any) -> bool:
    """Whether two values are the same; of arrays only those that are one object."""
    if value is other:
        return True
    if type(value) is not type(other):
        return False
    if isinstance(value, (str, float, int)):
        return bool(value == other)
    if isinstance(value, tuple):
        return len(value) == len(other) and all(map(_same, value, other))
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(_same(value[name], other[name]) for name in value)
    if is_dataclass(value):
        return all(_same(getattr(value, spec.name), getattr(other, spec.name)) for spec in fields(value))
    return not isinstance(value, np.ndarray) and bool(value == other)


def chain_blocks(parts: list[CallBlock], order: tuple[str, ...], stages: Any) -> tuple[CallBlock, ...]:
    """Blocks of segments with the block that each one mostly follows on the same core.

    The first block of a stage follows none.

    Args:
        parts: from the embedding to the head.
        order: their names, layer after layer.
        stages: in which layers are; each begins with what the first layer begins with.
    """
    embedding, *layers, head = parts
    begins, *others = sorted(layers, key=lambda block: order.index(block.name))
    first = minimum(stages * 1.0, begins.times)
    blocks = [embedding, begins._replace(times=first), *others, begins._replace(times=begins.times - first), head]
    place = {block.name: number for number, block in enumerate((embedding, begins, *others))}
    before = Counter(pairwise(order))

    def find_usual_block(name: str, number: int) -> int | None:
        counts = {
            place[single_name]: count
            for (single_name, then), count in before.items()
            if then == name and 0 < place.get(single_name, 0) < number
        }
        return max(counts, key=lambda name: counts[name]) if counts else None

    return tuple(
        block if number < 2 else block._replace(after=find_usual_block(block.name, number))
        for number, block in enumerate(blocks)
    )


def sort_breadth_first(calls: Sequence[KernelCall]) -> tuple[int, ...]:
    """Positions of the calls in breadth-first order from the collective that they wait for.

    A call is reached when the last of its needs is; roots, which need nothing in this block, are reached first.
    """
    return _order(tuple((call.name, call.needs) for call in calls))


@lru_cache(maxsize=256)
def _order(edges: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[int, ...]:
    place = {name: position for position, (name, _) in enumerate(edges)}
    waiting = {name: {need for need in needs if need in place} for name, needs in edges}
    frontier = [name for name, needs in waiting.items() if not needs]
    visited: list[str] = []
    while frontier:
        visited += frontier
        done = set(visited)
        frontier = [name for name, needs in waiting.items() if name not in done and needs <= done]
    return tuple(place[name] for name in visited)
