"""Language in which kernels write their programs, as one grammar; simulators run it.

    Program(rows, cols, slots, strands)               strands run in parallel; a strand is a sequence of rounds and loops
    Round(steps, wait)                                a simultaneous assignment: every instruction reads the state before it
    Loop(body, times)                                 the same rounds, repeated
    MultiplyInstruction(a, b, out, subscripts)        the engine of every core adds a product to a buffer
    VectorInstruction(function, inputs, out)          the engine of every core computes a function, element by element
    SendInstruction(slot, source, target, ...)        slices of a buffer go from core to core, any pairs
    MulticastInstruction(slot, path, ...)             in groups of cores, root first: every member gets the root's slice
    ReduceInstruction(slot, path, ...)                in groups of cores, root first: the root gets the sum of all slices
    LoadInstruction(stream, slot, cores, channel)     the next block of a stream comes from a memory channel to some cores
    StoreInstruction(stream, slot, cores, channel)    a buffer of some cores goes to a memory channel as the next block
    CoreIndex(row, col)                               integer arrays that broadcast: a set of cores, never an object per core
    Buffer(name, shape, dtype, depth)                 memory that every core holds; depth 2 is double buffered

`via` names the carrier: ``router`` (in the network), ``core`` (each member is a software stage, but words stream through; for a
multicast, whose words the network copies, its route is set by software first), ``relay`` (the whole slice is stored and
forwarded at each core), ``shared`` (memory of another core as if it were one's own: a load is a request, a grant and a
release, each a task of its owner, which starts a message, then one value at a time, there and back; sums are posted),
``answer`` (a load that a sum requested). Networks carry messages across to the target's column first, then
along it; a group's tree is the union of its ways. `topology` gives the cores that have links: neighbours of a ``mesh``, also
those of a ``torus`` (a ring where it has one row), whose lines close and are gone along the shorter way, or every pair where it
is ``full``. `wait` gives where an algorithm synchronises: ``slots`` (an instruction starts when its inputs are there), ``core``
(a round ends on a core before its next one starts there), ``line`` (for a whole row or column), ``mesh``.

A new instruction needs two kernels that use it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dse.space.array_math import Array

Tiles = dict[str, Array]
"""By slot: shape (rows, cols, *slot.shape)."""

DTYPES = {1.0: "int8", 2.0: "float16", 4.0: "float32"}
"""Number formats by bytes of a value: what NumPy calls one of that size."""

COMBINE_MODES = ("set", "sum", "max")
TRANSPORTS = ("router", "core", "relay", "shared", "answer")
BARRIERS = ("slots", "core", "line", "mesh")


@dataclass(frozen=True, slots=True)
class CoreIndex:
    """Cores of a mesh by row and column, as integer arrays that broadcast together."""

    row: Array
    col: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the broadcast arrays of rows and columns."""
        return np.broadcast_shapes(self.row.shape, self.col.shape)


class Buffer(NamedTuple):
    """Named memory of every core, of one shape and number format, with one or more versions.

    Attributes:
        name: how steps refer to it.
        shape: of one core's tile, whole numbers, or arrays over designs for the analytical model; slices are cut along its
            first axis.
        dtype: number format, as NumPy names it.
        depth: versions held at a time; one that is both sent and received in a round needs 2.
        packed: bytes of a value with its share of scales, of a format that NumPy does not have; 0 for those of `dtype`.
    """

    name: str
    shape: tuple[Any, ...]
    dtype: str = "float32"
    depth: int = 1
    packed: float = 0.0

    @property
    def itemsize(self) -> float:
        """Bytes of one value of the buffer. [B]"""
        return self.packed or _itemsize(self.dtype)

    @property
    def row_bytes(self) -> Any:
        """Bytes of one entry along the first axis. [B]"""
        return prod(self.shape[1:]) * self.itemsize

    @property
    def nbytes(self) -> Any:
        """Bytes of one core's memory that the buffer takes, all versions included. [B]"""
        return self.shape[0] * self.row_bytes * self.depth


@cache
def _itemsize(dtype: str) -> int:
    return np.dtype(dtype).itemsize


@dataclass(frozen=True, slots=True)
class MultiplyInstruction:
    """``out += einsum(subscripts, a, b)`` on every core; ``out = ...`` with combine set."""

    a: str
    b: str
    out: str
    subscripts: str = "mk,kn->mn"
    combine: str = "sum"


@dataclass(frozen=True, slots=True)
class VectorFunction:
    """Function of a vector instruction: its effect on blocks, and its operations per element.

    Attributes:
        operations, specials: of each element; a special one is an exponential, a root or a quotient.
        apply: the function itself, of tiles with the mesh in front.
    """

    operations: float
    specials: float
    apply: Callable[..., Array]


MASKED_SCORE = -1e30
"""Score of a pair that a mask leaves out: finite, since a whole row of a tile may be left out."""


def _below(size: int, diagonal: int = 0) -> Array:
    """Where a square matrix is not above a diagonal."""
    return np.tri(size, k=diagonal, dtype=bool)


BITS, BINS = 4, 16
"""Of a digit that a choice looks at, and its values: fewer bits mean more sums to wait for, and more bits longer ones."""


def _digits(x: Array, search_state: Array, shift: Array) -> Array:
    """How often each digit comes among scores whose bits above it are those found; scores below 0 are none."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.int64)
    prefix = search_state[:, :, :1].astype(np.int64)
    alike = (bits >> (shift + BITS) == prefix >> (shift + BITS)) & (x >= 0)
    return np.stack([(alike & (bits >> shift & (BINS - 1) == digit)).sum(axis=2) for digit in range(BINS)], axis=2)


def _enough(counts: Array, search_state: Array, shift: Array) -> Array:
    """The bits found and the digit with which enough are, and how many are wanted of those that have it."""
    above = counts[:, :, ::-1].cumsum(axis=2)[:, :, ::-1] - counts
    digit = np.minimum((above >= search_state[:, :, 1:]).sum(axis=2, keepdims=True), BINS - 1)
    wanted = search_state[:, :, 1:] - np.take_along_axis(above, digit, axis=2)
    return np.concatenate([search_state[:, :, :1] + digit * 2.0**shift, wanted], axis=2)


def _first(x: Array, low: Array, high: Array) -> Array:
    """Places of entries above `high`, then of those above `low`, then of the rest."""
    return np.argsort((x <= high).astype(np.int8) + (x <= low), axis=2, kind="stable")


FUNCTIONS: dict[str, VectorFunction] = {
    "turn": VectorFunction(1, 0, lambda x: x.swapaxes(2, 3)),
    "squares": VectorFunction(2, 0, lambda x: (x * x).sum(axis=2, keepdims=True)),
    "largest": VectorFunction(1, 0, lambda x: x.max(axis=2, keepdims=True)),
    "total": VectorFunction(1, 0, lambda x: x.sum(axis=2, keepdims=True)),
    "roots": VectorFunction(0, 2, lambda x: 1 / np.sqrt(x)),
    "scale": VectorFunction(1, 0, lambda x, by: x * by),
    "exponentials": VectorFunction(1, 1, lambda x, largest: np.exp(x - largest)),
    "divide": VectorFunction(1, 0, lambda x, total: x / total),
    "rotate": VectorFunction(3, 0, lambda x, y, cos, sin: x * cos + y * sin),
    "gate": VectorFunction(2, 1, lambda gate, up: gate / (1 + np.exp(-gate)) * up),
    "silu": VectorFunction(1, 1, lambda x: x / (1 + np.exp(-x))),
    "tap": VectorFunction(1, 0, lambda x, by, at: x[..., int(at[0]) : x.shape[-1] - int(at[1])] * by),
    "add": VectorFunction(1, 0, lambda x, y: x + y),
    "larger": VectorFunction(1, 0, np.maximum),
    "without": VectorFunction(1, 0, lambda x, top: np.where(x < top, x, MASKED_SCORE)),
    "decayed": VectorFunction(2, 0, lambda x, by, y: x * by + y),
    "dots": VectorFunction(2, 0, lambda x, y: (x * y).sum(axis=2, keepdims=True)),
    "error": VectorFunction(2, 0, lambda x, y, by: (x - y) * by),
    "updated": VectorFunction(3, 0, lambda x, by, y, z: x * by + y * z),
    "less": VectorFunction(1, 0, lambda x, y: x - y),
    "cumulated": VectorFunction(1, 0, lambda x: x.cumsum(axis=2)),
    "decays": VectorFunction(
        2, 1, lambda x: np.exp(np.where(_below(x.shape[2])[:, :, None], x - x.swapaxes(2, 3), MASKED_SCORE))
    ),
    "left": VectorFunction(1, 1, lambda x: np.exp(x[:, :, -1:] - x)),
    "ebbed": VectorFunction(1, 0, lambda x, y: x * np.exp(y[:, :, -1:].swapaxes(2, 3))),
    "under": VectorFunction(2, 0, lambda x, by: np.where(_below(x.shape[2], -1)[:, :, None], -x * by, 0.0)),
    "lower": VectorFunction(1, 0, lambda x: np.where(_below(x.shape[2])[:, :, None], x, 0.0)),
    "diagonal": VectorFunction(1, 0, lambda x: x + np.eye(x.shape[2])[:, :, None]),
    "rectified": VectorFunction(2, 0, lambda x, by: np.maximum(x, 0) * by),
    "peaks": VectorFunction(1, 0, lambda x: x.max(axis=3, keepdims=True)),
    "smallest": VectorFunction(1, 0, lambda x: x.min(axis=2, keepdims=True)),
    "middle": VectorFunction(2, 0, lambda x, y: (x + y) / 2),
    "above": VectorFunction(2, 0, lambda x, y: (x > y).sum(axis=2, keepdims=True)),
    "lifted": VectorFunction(2, 0, lambda x, y, count, top: np.asarray(np.where(count >= top, y, x))),
    "lowered": VectorFunction(2, 0, lambda x, y, count, top: np.asarray(np.where(count >= top, x, y))),
    "positions": VectorFunction(4, 0, lambda x, low, high, top: _first(x, low, high)[:, :, : int(top)]),
    "picked": VectorFunction(1, 0, lambda x, at: np.take_along_axis(x, at.astype(int), axis=2)),
    "tapped": VectorFunction(2, 0, lambda x, y, by: x + y * by),
    "cap": VectorFunction(3, 2, lambda x: 1 - 2 / (1 + np.exp(2 * x))),
    "capped": VectorFunction(4, 2, lambda x, most: most * (1 - 2 / (1 + np.exp(2 * x)))),
    "correct": VectorFunction(3, 0, lambda value, read, decay, rate: (value - read * decay) * rate),
    "learn": VectorFunction(3, 0, lambda x, decay, key, value: x * decay + key * value),
    "rectify": VectorFunction(3, 0, lambda x, by, y: y + by * np.maximum(x, 0)),
    "digits": VectorFunction(4, 0, _digits),
    "enough": VectorFunction(2, 0, _enough),
    "unpacked": VectorFunction(1, 0, lambda x: x),
    "converted": VectorFunction(1, 0, lambda x: x),
    "rescaled": VectorFunction(1, 0, lambda x: x),
    "mask": VectorFunction(1, 0, lambda x, seen: np.where(np.arange(x.shape[2])[:, None] < seen, x, MASKED_SCORE)),
    "mask_before": VectorFunction(1, 0, lambda x, first: np.where(np.arange(x.shape[2])[:, None] < first, MASKED_SCORE, x)),
}
"""Vector instructions by name; tiles have shape (rows, cols, first axis, ...); some reduce along the first axis. NumPy's tiles
have wide values from the beginning, so that to unpack, convert and rescale them changes none."""

DEQUANTIZE_FUNCTIONS = {1: ("converted",), 2: ("converted", "rescaled"), 3: ("unpacked", "converted", "rescaled")}
"""Instructions that make wide values of packed ones, by operations on each (`space.number_formats.NumberFormat.expand`)."""


def dequantize_instructions(packed: str, wide: str, operations: float) -> tuple["VectorInstruction", ...]:
    """Instructions that dequantise one buffer into another, as one sequence.

    >>> [(step.function, step.inputs, step.joined) for step in dequantize_instructions("b", "wide", 2.0)]
    [('converted', ('b',), False), ('rescaled', ('wide',), True)]
    """
    return tuple(
        VectorInstruction(function, (wide if place else packed,), wide, joined=place > 0)
        for place, function in enumerate(DEQUANTIZE_FUNCTIONS[int(operations)])
    )


@dataclass(frozen=True, slots=True)
class VectorInstruction:
    """``out = function(*inputs)`` on every core, element by element of the largest buffer.

    Attributes:
        function: a key of `FUNCTIONS`.
        inputs, out: names of slots.
        given: what software knows without a slot, the function's last input; broadcasts with tiles, the mesh in front.
        joined: whether it is one sequence with the instruction before it, which scalar cores start once.
    """

    function: str
    inputs: tuple[str, ...]
    out: str
    given: Array | None = None
    joined: bool = False


@dataclass(frozen=True, slots=True)
class SendInstruction:
    """Rows `start` to `stop` of a buffer go from each source to rows `at` of `into` on its target.

    Attributes:
        slot, into: names of slots; the same where `into` is empty.
        source, target: equally shaped sets of cores.
        start, stop: per pair of cores, along the first axis of `slot`.
        at: where they go, per pair, along the first axis of `into`; `start` where it is None.
        combine: what the target does with what arrives, an option of `COMBINE_MODES`.
        via: an option of `TRANSPORTS`.

    Parts of a slot that keep their place (no `at`, no `into`) are versions of their own: the rest stays as it is.
    """

    slot: str
    source: CoreIndex
    target: CoreIndex
    start: Array
    stop: Array
    at: Array | None = None
    into: str = ""
    combine: str = "set"
    via: str = "router"


@dataclass(frozen=True, slots=True)
class MulticastInstruction:
    """Rows `start` to `stop` of the root's buffer go to rows `at` of `into` on each core of its group.

    The root is included.

    Attributes:
        path: shape (groups, members), the root first.
        start, stop, at: per group, along the first axis; `at` is 0 where None.
    """

    slot: str
    path: CoreIndex
    start: Array
    stop: Array
    into: str
    at: Array | None = None
    via: str = "router"


@dataclass(frozen=True, slots=True)
class ReduceInstruction:
    """Rows `start` to `stop`, combined over each group, become rows `at` of `into` at the root.

    Attributes:
        path: shape (groups, members), the root first. Via router they may lie anywhere, and routers add what meets at them; via
            core all are on one line, and partial results pass from member to member towards the root, from both sides at once.
        start, stop, at: per group, along the first axis; `at` is 0 where None.
        combine: how members are combined: sum or max.
    """

    slot: str
    path: CoreIndex
    start: Array
    stop: Array
    into: str
    at: Array | None = None
    combine: str = "sum"
    via: str = "core"


@dataclass(frozen=True, slots=True)
class LoadInstruction:
    """The next block of a stream comes from memory into a buffer of some cores.

    Attributes:
        stream: name of a sequence of blocks, one a core each time.
        slot: the tile that it fills.
        cores: which cores.
        channel: the memory channel that each core's block is in, an index that broadcasts with `cores`.
        rows: a slot of numbers, one for each row of `slot`: which rows of the block come. Empty where all of it does.
        pace: time of the channel over that of one long block, as the memory says of pieces at random places.
    """

    stream: str
    slot: str
    cores: CoreIndex
    channel: Array
    rows: str = ""
    pace: float = 1.0


@dataclass(frozen=True, slots=True)
class StoreInstruction:
    """A buffer of some cores goes to memory as the next block of a stream.

    Attributes are as in `LoadInstruction`, which has more.
    """

    stream: str
    slot: str
    cores: CoreIndex
    channel: Array


def is_in_place(step: SendInstruction, slot: Buffer) -> bool:
    """Whether an instruction moves parts of a buffer that keep their place."""
    return step.at is None and not step.into and int(np.max(step.stop - step.start)) < slot.shape[0]


Instruction = (
    MultiplyInstruction
    | VectorInstruction
    | SendInstruction
    | MulticastInstruction
    | ReduceInstruction
    | LoadInstruction
    | StoreInstruction
)


@dataclass(frozen=True, slots=True)
class Round:
    """Instructions that all read the state before the round."""

    steps: tuple[Instruction, ...]
    wait: str = "slots"


@dataclass(frozen=True, slots=True)
class Loop:
    """The same rounds, repeated `times`; a simulator may skip repetitions."""

    body: tuple[Round, ...]
    times: int


@dataclass(frozen=True, slots=True)
class Program:
    """Instructions of every core of a `rows` x `cols` mesh.

    `topology` gives the pairs of cores that have links, an option of `space.chip.TOPOLOGIES`.
    """

    rows: int
    cols: int
    slots: tuple[Buffer, ...]
    strands: tuple[tuple[Round | Loop, ...], ...]
    topology: str = "mesh"

    @property
    def core_bytes(self) -> Any:
        """Memory of one core: the sum of its buffers. [B]"""
        return sum(slot.nbytes for slot in self.slots)


def buffers_read(step: Instruction) -> tuple[str, ...]:
    """Names of the buffers that an instruction reads."""
    if isinstance(step, MultiplyInstruction):
        return step.a, step.b
    if isinstance(step, LoadInstruction):
        return (step.rows,) if step.rows else ()
    return step.inputs if isinstance(step, VectorInstruction) else (step.slot,)


def buffers_written(step: Instruction) -> tuple[str, ...]:
    """Names of the buffers that an instruction writes."""
    if isinstance(step, MultiplyInstruction | VectorInstruction):
        return (step.out,)
    if isinstance(step, LoadInstruction | StoreInstruction):
        return (step.slot,) if isinstance(step, LoadInstruction) else ()
    return (step.into or step.slot,)


def iterate_rounds(strand: tuple[Round | Loop, ...]) -> Iterator[Round]:
    """Every round of a strand in order, with loops unrolled."""
    for part in strand:
        if isinstance(part, Loop):
            for _ in range(part.times):
                yield from part.body
        else:
            yield part
