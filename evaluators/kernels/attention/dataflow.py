"""Programs of attention on groups of tiles ([zhang2026] algorithms 1 and 2).

Tiles of a group's diagonal load: Q slices, which go out along their rows, K and V slices, which go out along their columns.
Maxima and sums of scores are combined along rows and go back; outputs are summed along rows in the end, and the diagonal
stores them. A group of one tile is FlashAttention: nothing is exchanged.

Blocking, a tile does one thing after the other: a round ends on it before its next one starts; only the next block's K comes
beside P V, and V beside Q K^T. With two strands, each of which works on items of its own, engines and DMA serve whichever
comes first, and items are loaded ahead.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.attention.attention_shape import (
    SAME_AS_ACTIVATIONS,
    AttentionShape,
    AttentionTiling,
    BlockCounts,
    KvStorage,
    attention_buffers,
    block_counts,
    busy_mesh,
)
from dse.evaluators.kernels.attention.block_schedule import GroupWave, causal_band, list_waves, stream_name
from dse.evaluators.kernels.collective import TEAMS
from dse.evaluators.kernels.collective.core_groups import BufferRows, MeshGroups
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.program.kernel_ir import (
    CoreIndex,
    Instruction,
    LoadInstruction,
    Loop,
    MultiplyInstruction,
    Program,
    Round,
    SendInstruction,
    StoreInstruction,
    VectorInstruction,
    dequantize_instructions,
)
from dse.space.array_math import Array, ceil_div, where

ProgramPart = Round | Loop

PARTIAL_OUTPUTS = ("o", "m", "l")
"""What is stored of an item that has a part of the keys: outputs that are not divided, maxima and sums."""


@dataclass(frozen=True, slots=True)
class Dataflow:
    """A dataflow of attention: its collectives, items in flight, and how blocks of queries share keys.

    Attributes:
        collective: implementation of multicasts and sums along rows and columns, a key of `TEAMS`.
        strands: items of a group in flight; with one, tiles block.
        grouped: whether tiles work in groups.
        split: whether keys may be split into parts that are items of their own, whose outputs a merge adds up.
        paired: whether the two strands are blocks of queries of one problem, which share its keys and values, where a problem
            has an even number of them ([zhang2026] section III-C, footnote); else two heads.
    """

    collective: str
    strands: int
    grouped: bool
    split: bool = False
    paired: bool = False

    @property
    def software(self) -> bool:
        """Whether collectives run in software, so that tiles buffer partial sums."""
        return self.collective != "hardware"


def attention_program(
    dataflow: Dataflow,
    shape: AttentionShape,
    tiling: AttentionTiling,
    mesh: CoreMesh,
    dtype: str = "float16",
    *,
    channels: int,
    scale: float = 0.0,
    pace: float = 1.0,
    cap: float = 1.0,
    kv: KvStorage = SAME_AS_ACTIVATIONS,
) -> Program:
    """Program of attention on the busy tiles; with split keys, the part before the merge.

    Args:
        dataflow: the dataflow.
        shape, tiling, mesh: whole numbers; groups divide the mesh.
        dtype: of operands, scores and outputs.
        channels: memory channels, at most one a column; a tile loads from that of its own.
        scale: of scores; that of the head dimension where it is 0.
        pace: time of keys and values that were selected over that of ones that follow one another.
        cap: of scores that are capped, c tanh(s / c), whose first scale is with that of queries.
        kv: how keys and values are stored.
    """
    counted, factor = (
        tiling_of_pairs(dataflow, shape, tiling),
        (scale or float(shape.qk) ** -0.5) / (cap if shape.capped else 1.0),
    )
    mesh = busy_mesh(shape, counted, mesh)
    context = _On(dataflow, shape, tiling, mesh, dtype, channels, factor, block_counts(shape, counted, mesh), {}, pace, cap, kv)
    turns = list_waves(shape, counted, mesh)
    alone = 1 if counted != tiling else dataflow.strands
    strands = [turns[number::alone] for number in range(min(alone, len(turns)))]
    written = tuple(tuple(_strand(mine, strand_prefix(number, dataflow), context)) for number, mine in enumerate(strands))
    several = dataflow.strands if counted != tiling else len(strands)
    held = tuple(slot for number in range(several) for slot in strand_buffers(dataflow, shape, tiling, dtype, number, kv))
    return Program(mesh.rows, mesh.cols, held, written)


def strand_buffers(
    dataflow: Dataflow,
    shape: AttentionShape,
    tiling: AttentionTiling,
    dtype: str,
    strand: int,
    kv: KvStorage = SAME_AS_ACTIVATIONS,
) -> tuple[Any, ...]:
    """Buffers of one strand; the first of two paired strands also has their common keys and values.

    Latent values are read by both products of a block: only a second buffer lets the next ones come meanwhile.
    """
    buffers = attention_buffers(shape, tiling, dtype, software=dataflow.software, prefix=strand_prefix(strand, dataflow), kv=kv)
    if not np.any(is_paired(dataflow, shape, tiling)):
        return buffers
    shared = tuple(slot for slot in buffers if slot.name[2:] in ("k", "v", "wk", "wv"))
    own = tuple(slot for slot in buffers if slot not in shared)
    if strand and not shape.latent:
        shared = tuple(
            slot._replace(shape=(where(is_paired(dataflow, shape, tiling), 0, slot.shape[0]), *slot.shape[1:]))
            for slot in shared
        )
    if np.all(is_paired(dataflow, shape, tiling)):
        shared = tuple(slot._replace(name=f"{strand}.{slot.name[2:]}") for slot in shared if np.any(slot.shape[0]))
    return (*own, *shared)


def is_paired(dataflow: Dataflow, shape: AttentionShape, tiling: AttentionTiling) -> Any:
    """Whether two blocks of queries are paired and share keys and values."""
    return dataflow.paired and not shape.has_selected_rows and (ceil_div(shape.rows, tiling.rows * tiling.queries) % 2 == 0)


def tiling_of_pairs(dataflow: Dataflow, shape: AttentionShape, tiling: AttentionTiling) -> AttentionTiling:
    """Tiling as waves count it: two paired blocks of queries are one of twice the size."""
    return (
        replace(tiling, queries=tiling.queries * where(is_paired(dataflow, shape, tiling), 2, 1)) if dataflow.paired else tiling
    )


def strand_prefix(strand: int, dataflow: Dataflow) -> str:
    """Prefix of the buffer names of a strand."""
    return f"{'ab'[strand]}." if dataflow.strands > 1 else ""


class _On(NamedTuple):
    """What is written, and rounds that are written already."""

    of: Dataflow
    shape: AttentionShape
    tiling: AttentionTiling
    mesh: CoreMesh
    dtype: str
    channels: int
    scale: float
    cut: BlockCounts
    known: dict[Any, Any]
    pace: float
    cap: float
    kv: KvStorage

    @property
    def paired(self) -> bool:
        """Whether strands are blocks of queries of one problem."""
        return bool(is_paired(self.of, self.shape, self.tiling))

    @property
    def blocking(self) -> bool:
        """Whether a tile does one thing after the other."""
        return self.of.strands == 1

    @property
    def queries(self) -> tuple[str, ...]:
        """Slots of queries, by what of keys they meet: columns that are no values, and values."""
        both = ("q", "c") if self.shape.latent else ("q",)
        return both[self.shape.bare :]

    def operand(self, slot: str) -> str:
        """The slot from which keys or values are multiplied."""
        return f"{slot[:-1]}w{slot[-1]}" if self.kv.expand else slot

    def build_rounds(self, *steps: Instruction) -> tuple[Round, ...]:
        """Steps side by side, which a tile that blocks waits for together; else each for itself."""
        return (Round(steps, "core"),) if self.blocking else tuple(Round((step,)) for step in steps)


def _strand(turns: list[GroupWave], prefix: str, context: _On) -> Iterator[ProgramPart]:
    """Waves that are alike are a loop over their rounds, or one after the other where these are loops."""
    following = [*turns[1:], None]
    keys = [(place == 0, wave, after) for place, (wave, after) in enumerate(zip(turns, following, strict=True))]
    for (first, wave, after), alike in groupby(keys, key=lambda key: key if not context.blocking else (False, key[1], None)):
        times = len(list(alike))
        parts = tuple(
            _both(wave, after, context, first=first) if context.paired else _wave(wave, after, prefix, context, first=first)
        )
        if wave.inner <= times:
            yield Loop(tuple(turn for part in parts for turn in _unrolled(part)), times)
        else:
            yield from parts * times


def _unrolled(part: ProgramPart) -> tuple[Round, ...]:
    return part.body * part.times if isinstance(part, Loop) else (part,)


def _wave(wave: GroupWave, after: GroupWave | None, p: str, context: _On, *, first: bool) -> Iterator[ProgramPart]:
    """One item of each group, from Q to O; where tiles do not block, with what the wave after it begins with loaded ahead."""
    if first or context.blocking:
        for opening in _opening(wave, p, context):
            yield from context.build_rounds(*opening) if opening else ()
    for part in context.queries:
        yield from _spread(part, "row", p, context)
    for part in context.queries:
        yield from context.build_rounds(
            VectorInstruction("scale", (p + part,), p + part, given=np.array(context.scale), joined=True)
        )
    lead, middle = _alike(wave)
    ahead: PrefetchInstructions = _ahead(after, p, context) if after is not None and not context.blocking else ((), ())
    for block in range(lead):
        yield from _block(wave, block, ahead, p, context)
    if middle:
        yield Loop(tuple(_block(wave, lead, ahead, p, context)), middle)
    for block in range(lead + middle, wave.inner):
        yield from _block(wave, block, ahead, p, context)
    whole = context.cut.parts == 1
    if whole:
        yield from context.build_rounds(VectorInstruction("divide", (p + "o", p + "l"), p + "o"))
    yield from _combined("o", "sum", p, context)
    for slot in ("o",) if whole else PARTIAL_OUTPUTS:
        yield from context.build_rounds(
            StoreInstruction(stream_name(p + slot, wave, context.cut), p + slot, *_loaders("row", wave, context))
        )


def _alike(wave: GroupWave) -> tuple[int, int]:
    """Blocks of keys before those that are alike, the first one and those that windows have left a part of; and these."""
    lead = max(wave.low, 1)
    return lead, max(min(wave.plain, wave.inner - 1) - lead, 0)


def _opening(wave: GroupWave, p: str, context: _On) -> tuple[tuple[Instruction, ...], ...]:
    """What an item begins with: queries and the first keys, before them the numbers of their rows where they were selected."""
    queries = tuple(_load(slot, "row", wave, p, context) for slot in context.queries)
    keys = () if context.shape.latent else (_load("k", "column", wave, p, context),)
    return (
        ((*queries, _load("i", "column", wave, p, context)), keys) if context.shape.has_selected_rows else ((*queries, *keys),)
    )


PrefetchInstructions = tuple[tuple[Instruction, ...], tuple[Instruction, ...]]
"""Instructions that load the start of an item during the one before: row numbers, then what they select."""


def _ahead(wave: GroupWave, p: str, context: _On) -> PrefetchInstructions:
    steps = tuple(step for part in _opening(wave, p, context) for step in part)
    numbers = tuple(step for step in steps if isinstance(step, LoadInstruction) and step.slot == p + "i")
    return numbers, tuple(step for step in steps if step not in numbers)


def _block(wave: GroupWave, block: int, following: PrefetchInstructions, p: str, context: _On) -> Iterator[Round]:
    """Instructions of a block of keys, algorithm 2 lines 8 to 26; `following` loads during its products."""
    q, k, v, s, o = (p + slot for slot in ("q", "k", "v", "s", "o"))
    k, v = context.operand(k), context.operand(v)
    first, last = block == 0, block == wave.inner - 1
    values = _load("v", "column", wave, p, context)
    scores = MultiplyInstruction(q, k, s, "md,nd->nm", combine="set")
    # numbers of the next rows come when both keys and values of these have been asked for
    numbers, ahead = (
        following if last or not context.shape.has_selected_rows else ((_load("i", "column", wave, p, context),), following[1])
    )
    if context.shape.latent:  # values are keys as well: they come after the others, whose scores are computed meanwhile
        others = () if context.shape.bare else (_load("k", "column", wave, p, context),)
        yield from context.build_rounds(*others, values, *numbers) if context.blocking else context.build_rounds(*others)
        if others:
            yield from _arrived("k", p, context)
            yield from context.build_rounds(scores)
        if not context.blocking:
            yield from context.build_rounds(values, *numbers)
        yield from _arrived("v", p, context)
        yield from context.build_rounds(MultiplyInstruction(p + "c", v, s, "md,nd->nm", combine="sum" if others else "set"))
    else:
        yield from _arrived("k", p, context)
        yield from context.build_rounds(values, scores, *numbers)
    yield from _softmax(wave, block, p, context)
    if not context.shape.latent:
        yield from _arrived("v", p, context)
        ahead = ahead if last else (_load("k", "column", wave, p, context),)
    outputs = MultiplyInstruction(s, v, o, "nm,nv->vm", combine="set" if first else "sum")
    yield from context.build_rounds(*(ahead if last or not context.shape.latent else ()), outputs)


def _softmax(wave: GroupWave, block: int, p: str, context: _On, strand: int = 0) -> Iterator[Round]:
    """Scores of a block of keys become weights, algorithm 2 lines 12 to 24 and 26.

    Instructions between two exchanges are a sequence, which is started once: up to the maxima, the sums, and what they do to
    outputs. Queries are scaled where line 11 scales scores, in the first of these, and have no start of their own.
    """
    s, o, top, total, m, l_, decay = (p + slot for slot in ("s", "o", "top", "total", "m", "l", "decay"))
    first = block == 0
    begun = context.shape.capped
    if begun:
        yield from context.build_rounds(VectorInstruction("capped", (s,), s, given=np.array(context.cap)))
    if block >= wave.plain:
        yield from context.build_rounds(
            VectorInstruction("mask", (s,), s, given=_seen(wave, block, context, strand)[0], joined=begun)
        )
        begun = True
    if block < wave.low:
        yield from context.build_rounds(
            VectorInstruction("mask_before", (s,), s, given=_seen(wave, block, context, strand)[1], joined=begun)
        )
        begun = True
    yield from context.build_rounds(VectorInstruction("largest", (s,), top, joined=begun))
    if not first:
        yield from context.build_rounds(VectorInstruction("larger", (top, m), top, joined=True))
    yield from _combined("top", "max", p, context, back=True)
    yield from context.build_rounds(VectorInstruction("exponentials", (s, top), s))
    yield from context.build_rounds(VectorInstruction("total", (s,), total, joined=True))
    yield from _combined("total", "sum", p, context, back=True)
    if first:
        yield from context.build_rounds(_moved(total, l_, context))
    else:
        yield from context.build_rounds(VectorInstruction("exponentials", (m, top), decay))
        yield from context.build_rounds(VectorInstruction("decayed", (l_, decay, total), l_, joined=True))
        yield from context.build_rounds(VectorInstruction("scale", (o, decay), o, joined=True))
    yield from context.build_rounds(_moved(top, m, context))


STRAND_PREFIXES = ("a.", "b.")
"""What slots of two blocks of queries that go together begin with; those of keys and values, their buffer's number."""


def _both(wave: GroupWave, after: GroupWave | None, context: _On, *, first: bool) -> Iterator[ProgramPart]:
    """Two blocks of queries of each group's problem, from Q to O, with what the wave after it begins with loaded ahead."""
    if first:
        yield from _begun(wave, context, _load("v", "column", wave, "0.", context))
        yield from _arrived("v", "0.", context) if context.shape.latent else ()
    lead, middle = _alike(wave)
    period = 2 if context.shape.latent else 1
    for block in range(lead):
        yield from _both_block(wave, block, after, context)
    if middle >= period:
        body = tuple(turn for block in range(lead, lead + period) for turn in _both_block(wave, block, after, context))
        yield Loop(body, middle // period)
    for block in range(middle // period * period + lead, wave.inner):
        yield from _both_block(wave, block, after, context)
    for p in STRAND_PREFIXES:
        yield from context.build_rounds(VectorInstruction("divide", (p + "o", p + "l"), p + "o"))
        yield from _combined("o", "sum", p, context)
        yield from context.build_rounds(
            StoreInstruction(stream_name(p + "o", wave, context.cut), p + "o", *_loaders("row", wave, context))
        )


def _begun(wave: GroupWave, context: _On, *beside: LoadInstruction) -> Iterator[Round]:
    """What both blocks of queries begin with, themselves and the first keys, and what else is loaded."""
    yield from context.build_rounds(
        *(_load(part, "row", wave, p, context) for p in STRAND_PREFIXES for part in context.queries)
    )
    yield from context.build_rounds(*(() if context.shape.bare else (_load("k", "column", wave, "0.", context),)), *beside)
    for p, part in ((p, part) for p in STRAND_PREFIXES for part in context.queries):
        yield from _spread(part, "row", p, context)
        yield from context.build_rounds(
            VectorInstruction("scale", (p + part,), p + part, given=np.array(context.scale), joined=True)
        )
    if not context.shape.bare:
        yield from _arrived("k", "0.", context)


def _both_block(wave: GroupWave, block: int, after: GroupWave | None, context: _On) -> Iterator[Round]:
    """A block of keys for both: products of one while the other's scores become weights.

    Both multiply keys before either multiplies values, so that one buffer of keys fills while both multiply values, and one of
    values while both multiply keys; latent ones fill another buffer all the time.
    """
    last, latent, bare = block == wave.inner - 1, context.shape.latent, context.shape.bare
    following = after if last else wave
    buffer, next_buffer = (f"{number % 2 if latent else 0}." for number in (block, 0 if last else block + 1))
    begins = _begun(following, context) if last and following is not None else iter(())
    values = [_load("v", "column", following, next_buffer, context)] if following is not None else []
    keys = [_load("k", "column", following, next_buffer, context)] if following is not None and not last and not bare else []
    ahead = latent and buffer != next_buffer and not last
    if ahead:
        yield from context.build_rounds(*keys, *values)
    for p in STRAND_PREFIXES:
        if not bare:
            yield from context.build_rounds(
                MultiplyInstruction(p + "q", context.operand(buffer + "k"), p + "s", "md,nd->nm", combine="set")
            )
        if latent:
            combine = "set" if bare else "sum"
            yield from context.build_rounds(
                MultiplyInstruction(p + "c", context.operand(buffer + "v"), p + "s", "md,nd->nm", combine=combine)
            )
    yield from _softmax(wave, block, "a.", context)
    if not latent:
        yield from context.build_rounds(*keys)
        yield from _arrived("v", buffer, context)
    yield from _softmax(wave, block, "b.", context, 1)
    if keys:
        yield from _arrived("k", next_buffer, context)
    yield from begins
    early = latent and last and buffer != next_buffer
    if early:
        yield from context.build_rounds(*values)
    if ahead:
        yield from _arrived("v", next_buffer, context)
    for p in STRAND_PREFIXES:
        yield from context.build_rounds(
            MultiplyInstruction(p + "s", context.operand(buffer + "v"), p + "o", "nm,nv->vm", combine="sum" if block else "set")
        )
    if not ahead:
        yield from context.build_rounds(*(() if early else values))
        yield from _arrived("v", next_buffer, context) if latent and values else ()


def _load(slot: str, along: str, wave: GroupWave, p: str, context: _On) -> LoadInstruction:
    chosen = context.shape.has_selected_rows and slot in ("k", "v")
    numbers, pace = (p + "i", context.pace) if chosen else ("", 1.0)
    return LoadInstruction(stream_name(p + slot, wave, context.cut), p + slot, *_loaders(along, wave, context), numbers, pace)


def _loaders(along: str, wave: GroupWave, context: _On) -> tuple[CoreIndex, Array]:
    """Diagonal tiles of the groups that work, shape (groups, members), and the channel of each one's column."""
    if (along, wave.active) not in context.known:
        group, side = np.arange(wave.active)[:, None], context.tiling
        across = context.mesh.cols // side.cols
        place = np.arange(side.rows if along == "row" else side.cols)
        row, col = group // across * side.rows + place % side.rows, group % across * side.cols + place % side.cols
        context.known[along, wave.active] = CoreIndex(row, col), col * context.channels // context.mesh.cols
    loaders: tuple[CoreIndex, Array] = context.known[along, wave.active]
    return loaders


def _spread(slot: str, along: str, p: str, context: _On) -> tuple[Round, ...]:
    """From the diagonal to its rows or columns."""
    return _collective("multicast", slot, along, p, context)


def _arrived(slot: str, p: str, context: _On) -> Iterator[Round]:
    """Keys or values go from the diagonal down its columns, where each tile makes of them what it multiplies."""
    yield from _spread(slot, "column", p, context)
    for step in dequantize_instructions(p + slot, context.operand(p + slot), context.kv.expand) if context.kv.expand else ():
        yield from context.build_rounds(step)


def _combined(slot: str, combine: str, p: str, context: _On, *, back: bool = False) -> tuple[Round, ...]:
    """Along rows to the diagonal, and back where all need it."""
    summed = _collective("reduction", slot, "row", p, context, combine)
    return (*summed, *(_spread(slot, "row", p, context) if back else ()))


def _collective(pattern: str, slot: str, along: str, p: str, context: _On, *options: str) -> tuple[Round, ...]:
    side = context.tiling
    if (side.cols if along == "row" else side.rows) == 1:
        return ()
    key = (pattern, p + slot, along)
    if key not in context.known:
        height = {held.name: held.shape[0] for held in attention_buffers(context.shape, side, context.dtype, software=False)}[
            slot
        ]
        write = getattr(TEAMS[context.of.collective], f"{pattern}_rounds")
        rounds = write(MeshGroups(side.rows, side.cols, along), context.mesh, BufferRows(p + slot, 0, height), *options)
        context.known[key] = tuple(replace(turn, wait="core" if context.blocking else "slots") for turn in rounds)
    collective: tuple[Round, ...] = context.known[key]
    return collective


def _moved(slot: str, into: str, context: _On) -> SendInstruction:
    """What a tile has under another name."""
    key = "moved", slot, into
    if key not in context.known:
        everyone = CoreIndex(*np.indices((context.mesh.rows, context.mesh.cols)))
        context.known[key] = SendInstruction(slot, everyone, everyone, np.array(0), np.array(1), into=into)
    instruction: SendInstruction = context.known[key]
    return instruction


def _seen(wave: GroupWave, block: int, context: _On, strand: int = 0) -> tuple[Array, Array]:
    """Keys of its slice before the end and before the beginning of what each query of each tile sees.

    Both have the shape (rows, cols, 1, queries).
    """
    shape, tiling, mesh = context.shape, context.tiling, context.mesh
    row, col = np.indices((mesh.rows, mesh.cols))
    group = row // tiling.rows * (mesh.cols // tiling.cols) + col // tiling.cols
    blocks, parts = (
        np.array([*numbers, *([0] * (context.cut.groups - len(numbers)))]) for numbers in (wave.blocks, wave.parts)
    )
    begins = (
        causal_band(shape, tiling_of_pairs(context.of, shape, tiling), blocks[group]).first[..., None] if shape.causal else 0
    )
    blocks = 2 * blocks + strand if context.paired else blocks
    start = (blocks[group] * tiling.rows + row % tiling.rows) * tiling.queries
    query = (start[..., None] + np.arange(tiling.queries)) // shape.heads_per_kv
    seen = shape.keys - shape.queries + 1 + query if shape.causal else np.full_like(query, shape.keys)
    before = ((parts[group] * context.cut.inner + block) * tiling.cols + col % tiling.cols) * tiling.keys
    before = before[..., None] + begins
    ends = np.minimum(seen, shape.keys) - before, seen - (shape.window or shape.keys) - before
    return ends[0][:, :, None, :], ends[1][:, :, None, :]
