"""The vocabulary in which kernels say what they do, one grammar on one screen; readers play it.

    Program(rows, cols, slots, strands)   strands run side by side; a strand is a sequence of rounds and loops
    Round(steps, wait)                    a simultaneous assignment: every step reads what the cores held before it
    Loop(body, times)                     the same rounds over and over
    Multiply(a, b, out, subscripts)       the engine of every core adds a product to a tile
    Vector(function, inputs, out)         the engine of every core computes a function of `FUNCTIONS`, element by element
    Send(slot, source, target, ...)       slices of a tile go from core to core, any pairs
    Multicast(slot, path, ...)            among groups of cores, the root first: everyone gets the root's slice
    Reduce(slot, path, ...)               among groups of cores, the root first: the root gets the sum of all slices
    Load(stream, slot, cores, channel)    the next block of a stream comes from a memory channel to a tile of some cores
    Store(stream, slot, cores, channel)   a tile of some cores goes to a memory channel as the stream's next block
    Cores(row, col)                       integer arrays that broadcast: a set of cores, never an object per core
    Slot(name, shape, dtype, depth)       a tile that every core holds; depth 2 is double buffered

`via` says who carries: ``router`` (in the network), ``core`` (each member is a software stage, but words stream through; for a
multicast, whose words the network copies, its route is set by software first),
``relay`` (the whole slice is stored and forwarded at each core), ``shared`` (memory of another core as if it were one's own: a
load is a request, a grant and a release, each a task of the owner, and then one value at a time, there and back; sums are
posted). Networks carry messages across to the target's column first, then along it; a group's tree is the union of its ways.
`topology` says which cores have links: neighbours of a ``mesh``, also those of a ``torus`` (a ring where it has one row), whose
lines close and are gone along the shorter way, or every pair where it is ``full``. `wait` says where an algorithm synchronises:
``slots`` (a step starts when what it reads is there), ``line`` (a round ends for a whole row or column before its next one
starts), ``mesh``.

A new word needs two kernels that want it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from space.elementwise import Array

COMBINE = ("set", "sum", "max")
VIA = ("router", "core", "relay", "shared")
WAIT = ("slots", "line", "mesh")
TOPOLOGIES = ("mesh", "torus", "full")


@dataclass(frozen=True, slots=True)
class Cores:
    """Cores of the mesh by row and column, integer arrays that broadcast together."""

    row: Array
    col: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the broadcast arrays."""
        return np.broadcast_shapes(self.row.shape, self.col.shape)


@dataclass(frozen=True, slots=True)
class Slot:
    """A tile that every core holds.

    Attributes:
        name: how steps refer to it.
        shape: of one core's tile, whole numbers, or arrays over designs for a closed form; slices are cut along its first axis.
        dtype: number format, as NumPy names it.
        depth: versions held at a time; one that is both sent and received in a round needs 2.
    """

    name: str
    shape: tuple[Any, ...]
    dtype: str = "float32"
    depth: int = 1

    @property
    def itemsize(self) -> int:
        """Bytes of one value."""
        return np.dtype(self.dtype).itemsize

    @property
    def row_bytes(self) -> Any:
        """Bytes of one entry along the first axis."""
        return prod(self.shape[1:]) * self.itemsize

    @property
    def nbytes(self) -> Any:
        """Bytes of one core's memory that the slot takes."""
        return self.shape[0] * self.row_bytes * self.depth


@dataclass(frozen=True, slots=True)
class Multiply:
    """``out += einsum(subscripts, a, b)`` on every core; with combine set, ``out =`` that."""

    a: str
    b: str
    out: str
    subscripts: str = "mk,kn->mn"
    combine: str = "sum"


@dataclass(frozen=True, slots=True)
class Function:
    """What a vector instruction does to tiles.

    Attributes:
        operations, specials: of each element; a special one is an exponential, a root or a quotient.
        apply: the function itself, of tiles with the mesh in front.
    """

    operations: float
    specials: float
    apply: Callable[..., Array]


FUNCTIONS: dict[str, Function] = {
    "turn": Function(1, 0, lambda x: x.swapaxes(2, 3)),
    "squares": Function(2, 0, lambda x: (x * x).sum(axis=2, keepdims=True)),
    "largest": Function(1, 0, lambda x: x.max(axis=2, keepdims=True)),
    "total": Function(1, 0, lambda x: x.sum(axis=2, keepdims=True)),
    "roots": Function(0, 2, lambda x: 1 / np.sqrt(x)),
    "scale": Function(1, 0, lambda x, by: x * by),
    "exponentials": Function(1, 1, lambda x, largest: np.exp(x - largest)),
    "divide": Function(1, 0, lambda x, total: x / total),
    "rotate": Function(3, 0, lambda x, y, cos, sin: x * cos + y * sin),
    "gate": Function(2, 1, lambda gate, up: gate / (1 + np.exp(-gate)) * up),
    "add": Function(1, 0, lambda x, y: x + y),
}
"""Vector instructions by name; tiles have shape (rows, cols, first axis, ...); some reduce along the first axis."""


@dataclass(frozen=True, slots=True)
class Vector:
    """``out = function(*inputs)`` on every core, element by element of the largest tile."""

    function: str
    inputs: tuple[str, ...]
    out: str


@dataclass(frozen=True, slots=True)
class Send:
    """Rows `start` to `stop` of a slot go from each source to rows `at` and on of `into` on its target.

    Attributes:
        slot, into: names of slots; the same where `into` is empty.
        source, target: equally shaped sets of cores.
        start, stop: per pair of cores, along the first axis of `slot`.
        at: where they go, per pair, along the first axis of `into`; `start` where it is None.
        combine: what the target does with what arrives, a word of `COMBINE`.
        via: a word of `VIA`.

    Parts of a slot that keep their place (no `at`, no `into`) are versions of their own: the rest stays as it is.
    """

    slot: str
    source: Cores
    target: Cores
    start: Array
    stop: Array
    at: Array | None = None
    into: str = ""
    combine: str = "set"
    via: str = "router"


@dataclass(frozen=True, slots=True)
class Multicast:
    """Rows `start` to `stop` of the root's slot go to rows `at` and on of `into` on every core of its group, itself included.

    Attributes:
        path: shape (groups, members), the root first.
        start, stop, at: per group, along the first axis; `at` is 0 where None.
    """

    slot: str
    path: Cores
    start: Array
    stop: Array
    into: str
    at: Array | None = None
    via: str = "router"


@dataclass(frozen=True, slots=True)
class Reduce:
    """Rows `start` to `stop` of the slot, combined over each group, become rows `at` and on of `into` at the root.

    Attributes:
        path: shape (groups, members), the root first. Via router they may lie anywhere, and routers add what meets at them; via
            core all are on one line, and partial results pass from member to member towards the root, from both sides at once.
        start, stop, at: per group, along the first axis; `at` is 0 where None.
        combine: how members are combined: sum or max.
    """

    slot: str
    path: Cores
    start: Array
    stop: Array
    into: str
    at: Array | None = None
    combine: str = "sum"
    via: str = "core"


@dataclass(frozen=True, slots=True)
class Load:
    """The next block of a stream comes from memory into a slot of some cores.

    Attributes:
        stream: name of a sequence of blocks, one a core each time.
        slot: the tile that it fills.
        cores: which cores.
        channel: the memory channel that each core's block is in, an index that broadcasts with `cores`.
    """

    stream: str
    slot: str
    cores: Cores
    channel: Array


@dataclass(frozen=True, slots=True)
class Store:
    """A slot of some cores goes to memory as the next block of a stream; attributes as of `Load`."""

    stream: str
    slot: str
    cores: Cores
    channel: Array


def in_place(step: Send, slot: Slot) -> bool:
    """Whether a step moves parts of a slot that keep their place."""
    return step.at is None and not step.into and int(np.max(step.stop - step.start)) < slot.shape[0]


Step = Multiply | Vector | Send | Multicast | Reduce | Load | Store


@dataclass(frozen=True, slots=True)
class Round:
    """Steps that all read the state before the round."""

    steps: tuple[Step, ...]
    wait: str = "slots"


@dataclass(frozen=True, slots=True)
class Loop:
    """The same rounds `times` over; a reader may count what it has played."""

    body: tuple[Round, ...]
    times: int


@dataclass(frozen=True, slots=True)
class Program:
    """What every core of a `rows` x `cols` mesh does; `topology`, a word of `TOPOLOGIES`, says which of them have links."""

    rows: int
    cols: int
    slots: tuple[Slot, ...]
    strands: tuple[tuple[Round | Loop, ...], ...]
    topology: str = "mesh"

    @property
    def core_bytes(self) -> int:
        """Memory of one core: the sum of its slots."""
        return sum(slot.nbytes for slot in self.slots)


@dataclass(frozen=True, slots=True)
class Activity:
    """What a program does, whoever plays it; leaves are floats or arrays over designs.

    Attributes:
        macs: multiply-adds, padding included.
        sent_bytes: that leave a core, once for each message.
        hop_bytes: bytes times the links they cross on the mesh.
        elements: that vector instructions compute.
        memory_bytes: that come from memory channels or go there.
    """

    macs: Any = 0.0
    sent_bytes: Any = 0.0
    hop_bytes: Any = 0.0
    elements: Any = 0.0
    memory_bytes: Any = 0.0

    def __add__(self, other: "Activity") -> "Activity":
        return Activity(*(getattr(self, name) + getattr(other, name) for name in COUNTS))

    def __mul__(self, times: Any) -> "Activity":
        return Activity(*(getattr(self, name) * times for name in COUNTS))


COUNTS = tuple(spec.name for spec in fields(Activity))
"""What an activity counts."""


def reads(step: Step) -> tuple[str, ...]:
    """Slots that a step looks at."""
    if isinstance(step, Multiply):
        return step.a, step.b
    if isinstance(step, Load):
        return ()
    return step.inputs if isinstance(step, Vector) else (step.slot,)


def writes(step: Step) -> tuple[str, ...]:
    """Slots that a step changes."""
    if isinstance(step, Multiply | Vector):
        return (step.out,)
    if isinstance(step, Load | Store):
        return (step.slot,) if isinstance(step, Load) else ()
    return (step.into or step.slot,)


def rounds_of(strand: tuple[Round | Loop, ...]) -> Iterator[Round]:
    """Every round of a strand in turn, loops unrolled."""
    for part in strand:
        if isinstance(part, Loop):
            for _ in range(part.times):
                yield from part.body
        else:
            yield part


def activity(program: Program) -> Activity:
    """Counted from the steps; what memory channels send crosses links as well, which only who knows their places can count."""
    slots = {slot.name: slot for slot in program.slots}
    macs = vector = sent = hops = memory = 0.0
    for strand in program.strands:
        for part in strand:
            body, times = (part.body, part.times) if isinstance(part, Loop) else ((part,), 1)
            for step in (step for turn in body for step in turn.steps):
                if isinstance(step, Multiply):
                    macs += times * program.rows * program.cols * products(step, slots)
                elif isinstance(step, Vector):
                    vector += times * program.rows * program.cols * elements(step, slots)
                elif isinstance(step, Load | Store):
                    memory += times * prod(step.cores.shape) * tile_bytes(slots[step.slot])
                else:
                    nbytes = (step.stop - step.start) * slots[step.slot].row_bytes
                    moved, crossed = _moved(step, program)
                    sent += times * float(np.sum(nbytes * moved))
                    hops += times * float(np.sum(nbytes * crossed))
    return Activity(macs, sent, hops, vector, memory)


def longest_hop(program: Program) -> int:
    """Most links that one message crosses from a core to the next that handles it."""
    longest = 0
    for strand in program.strands:
        for turn in {id(turn): turn for turn in rounds_of(strand)}.values():
            for step in turn.steps:
                if isinstance(step, Send):
                    hops: Array = distance(step.source, step.target, program)
                elif not isinstance(step, Multicast | Reduce):
                    continue
                elif isinstance(step, Reduce) and step.via == "core":
                    hops = _legs(step.path)
                else:
                    hops = distance(*_ends(step.path), program)
                longest = max(longest, int(np.max(hops, initial=0)))
    return longest


def paths(program: Program, *, at_once: bool = False) -> int:
    """Routing paths of the core that is part of most: it begins or ends there, or passes through.

    A path is a pair of cores between which the network carries messages, the neighbours between which one is relayed, a tree
    with its root, or a line on which sums pass from core to core, whichever way.

    Args:
        program: what every core does.
        at_once: count those of a round, for a fabric whose routes are set anew; else those of the whole program.
    """
    most = 0
    found: set[tuple[tuple[int, int], Any]] = set()
    seen: set[int] = set()
    for strand in program.strands:
        for turn in rounds_of(strand):
            if id(turn) in seen:
                continue
            seen.add(id(turn))
            found = set() if at_once else found
            for step in turn.steps:
                if isinstance(step, Send | Multicast | Reduce):
                    found |= set(_routes(step, program))
            most = max(most, _most_common(core for core, _ in found))
    return most


def _routes(step: Send | Multicast | Reduce, program: Program) -> Iterator[tuple[tuple[int, int], Any]]:
    """(core, path) for every core of every path."""
    if isinstance(step, Send):
        shape = np.broadcast_shapes(step.source.shape, step.target.shape, np.shape(step.start))
        ends = (step.source.row, step.source.col, step.target.row, step.target.col)
        for r, c, to_r, to_c in zip(*(np.broadcast_to(end, shape).ravel().tolist() for end in ends), strict=True):
            line = _route((r, c), (to_r, to_c), program)
            if len(line) > 1 and step.via == "relay":
                for pair in pairwise(line):
                    yield from ((core, pair) for core in pair)
            elif len(line) > 1:
                yield from ((core, ((r, c), (to_r, to_c))) for core in line)
        return
    row, col = (axis.reshape(-1, axis.shape[-1]) for axis in _spread(step.path))
    for r, c in zip(row, col, strict=True):
        if len(r) > 1:
            members = list(zip(r.tolist(), c.tolist(), strict=True))
            straight = (r == r[0]).all() or (c == c[0]).all()
            if straight and program.topology == "mesh":
                tree: Iterable[tuple[int, int]] = _route(min(members), max(members), program)
            elif isinstance(step, Multicast):
                tree = {core for member in members for core in _route(members[0], member, program)}
            else:
                tree = {core for member in members for core in _route(member, members[0], program)}
            name = ("tree", members[0], *sorted(tree)) if isinstance(step, Multicast) else ("sums", *sorted(members))
            yield from ((core, name) for core in tree)


def way(source: tuple[int, int], target: tuple[int, int]) -> list[tuple[int, int]]:
    """Cores of a mesh from one to another, across to the target's column first."""
    (r, c), (to_r, to_c) = source, target
    across, down = (1 if to_c > c else -1), (1 if to_r > r else -1)
    return [(r, col) for col in range(c, to_c, across)] + [(row, to_c) for row in range(r, to_r + down, down)]


def _route(source: tuple[int, int], target: tuple[int, int], program: Program) -> list[tuple[int, int]]:
    """Cores from one to another, whatever the topology."""
    if program.topology == "full":
        return [source, target] if source != target else [source]
    (r, c), torus = source, program.topology == "torus"
    down, across = (int(signed(*ends, torus)) for ends in ((r, target[0], program.rows), (c, target[1], program.cols)))
    return [(row % program.rows, col % program.cols) for row, col in way(source, (r + down, c + across))]


def _most_common(cores: Iterator[tuple[int, int]]) -> int:
    counts = Counter(cores)
    return max(counts.values(), default=0)


def distance(source: Cores, target: Cores, program: Program) -> Array:
    """Links between cores, dimension by dimension."""
    if program.topology == "full":
        return np.asarray((source.row != target.row) | (source.col != target.col)).astype(int)
    down, across = _steps(source, target, program)
    return np.asarray(np.abs(down) + np.abs(across))


def signed(here: Any, there: Any, side: int, closed: bool) -> Any:
    """Links from one place of a line to another, negative the other way; over the edge where a closed line is shorter so.

    >>> signed(0, 4, 6, False), int(signed(0, 4, 6, True)), int(signed(0, 3, 6, True))
    (4, -2, 3)
    """
    far = there - here
    return far - np.sign(far) * side * (2 * np.abs(far) > side) if closed else far


def _steps(source: Cores, target: Cores, program: Program) -> tuple[Array, Array]:
    """Links down and across between cores of a mesh or torus."""
    torus = program.topology == "torus"
    down = signed(source.row, target.row, program.rows, torus)
    return np.asarray(down), np.asarray(signed(source.col, target.col, program.cols, torus))


def tile_bytes(slot: Slot) -> Any:
    """Bytes of one version of a slot."""
    return slot.shape[0] * slot.row_bytes


def products(step: Multiply, slots: dict[str, Slot]) -> int:
    """Multiply-adds of one core."""
    return prod(_sizes(step, slots).values())


def calls(step: Multiply, slots: dict[str, Slot]) -> int:
    """Vector instructions of one core: results are made in vectors along their longest axis, one value at a time."""
    inputs, _, out = step.subscripts.partition("->")
    a, b = inputs.split(",")
    sizes = _sizes(step, slots)
    return prod(sizes.values()) // max(sizes[letter] for letter in out if not (letter in a and letter in b))


def matrices(step: Multiply, slots: dict[str, Slot]) -> tuple[int, int, int, int]:
    """How many products of matrices a step is, and their sizes m, k and n."""
    inputs, _, out = step.subscripts.partition("->")
    a, b = inputs.split(",")
    sizes = _sizes(step, slots)

    def over(wanted: tuple[bool, bool, bool]) -> int:
        return prod(size for letter, size in sizes.items() if (letter in a, letter in b, letter in out) == wanted)

    return over((True, True, True)), over((True, False, True)), over((True, True, False)), over((False, True, True))


def elements(step: Vector, slots: dict[str, Slot]) -> int:
    """Elements of one core that a vector instruction passes over: those of its largest tile."""
    return int(max(prod(slots[name].shape) for name in (*step.inputs, step.out)))


def _sizes(step: Multiply, slots: dict[str, Slot]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for letters, name in zip(step.subscripts.partition("->")[0].split(","), (step.a, step.b), strict=True):
        sizes.update(zip(letters, slots[name].shape, strict=True))
    return sizes


def _moved(step: Send | Multicast | Reduce, program: Program) -> tuple[Any, Any]:
    """Of each pair or group: messages that leave a core, and links that they cross."""
    if isinstance(step, Send):
        hops = distance(step.source, step.target, program)
        return (hops > 0).astype(float), hops
    members = step.path.shape[-1]
    # each link of the tree is crossed once: the network copies where the path forks, partial results are added on the way
    messages = float(members > 1) if isinstance(step, Multicast) else members - 1.0
    return np.full(step.path.shape[:-1], messages), _tree(step, program)


def _legs(path: Cores) -> Array:
    """Links from each member to the next along the line, shape (..., members - 1)."""
    row, col = _spread(path)
    return np.asarray(np.diff(np.sort(row, axis=-1), axis=-1) + np.diff(np.sort(col, axis=-1), axis=-1))


def _tree(step: Multicast | Reduce, program: Program) -> Array:
    """Links of the ways between the root and all members: a trunk, and branches that leave it in order.

    A multicast's trunk is the root's row and its branches are columns; sums come along the rows to the root's column.
    """
    if program.topology == "full":
        return np.full(step.path.shape[:-1], step.path.shape[-1] - 1)
    down, across = _steps(*_ends(step.path), program)
    trunk, branch = (across, down) if isinstance(step, Multicast) else (down, across)
    whole = _extent(trunk)
    if ((trunk == 0) | (branch == 0)).all():
        return np.asarray(whole + _extent(branch))
    for place in np.unique(trunk):
        whole = whole + _extent(np.where(trunk == place, branch, 0))
    return np.asarray(whole)


def _extent(steps: Array) -> Array:
    """Links from 0 to the farthest places both ways, of the last axis."""
    return np.asarray(np.max(steps, axis=-1, initial=0) - np.min(steps, axis=-1, initial=0))


def _ends(path: Cores) -> tuple[Cores, Cores]:
    """The root, and all members."""
    row, col = _spread(path)
    return Cores(row[..., :1], col[..., :1]), Cores(row, col)


def _spread(path: Cores) -> tuple[Array, Array]:
    return np.broadcast_to(path.row, path.shape), np.broadcast_to(path.col, path.shape)
