"""Leaves of a chip that nothing reads for what is asked of it, by its kind of cores and by the words of the mapping.

Each is said with the reason and with what would have it read. What binds nothing, as a bandwidth that is never short, is read.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from dse.config.idle import alone, crossing, sends_on
from dse.space.beside import choosers, unread
from dse.space.design import Design
from dse.space.fields import leaves
from dse.space.kinds import plural
from dse.space.layers import layers
from dse.space.mapping import AttentionPlan
from dse.space.model import Model
from dse.space.software import (
    COLLECTIVE,
    DEVICES,
    PIPELINES,
    POOLED_DIES,
    PRODUCT,
    SERVED_DEVICES,
    SERVED_PIPELINES,
    SERVED_POOLED_DIES,
    SUMMA,
    software_of,
)
from dse.space.workload import Attention, Case, Load, Workload

CHIP = "chip."

STRIDED = ("chip.hbm.gap", "chip.hbm.waste")
SCATTERED = "chip.hbm.scatter"
OF_CACHES = (DEVICES, SERVED_DEVICES, POOLED_DIES, SERVED_POOLED_DIES)
"""Software of dies with a cache."""

LATENCIES = ("chip.network.latency", "chip.network.latency_per", "chip.network.nodes.latency")
OF_BOXES = ("chip.boxes.latency", "chip.boxes.start")
BOXED = ("chip.dies.rows", "chip.dies.cols", "chip.boxes.size")
"""What decides whether dies are in several boxes."""

WAITING = {
    "dataflow": ("flat_seq", "flat_tree"),
    "collective": ("tree", "sequential", "rings", "direct"),
    "within": ("tree", "sequential"),
    "gemm": ("t10", "auto"),
}
"""Algorithms whose steps in software begin when all have what the last one moved, by the leaf of a mapping that names them."""

TOGETHER = {"dataflow": ("flash3", "flat_async", "flat_rows")}
"""Dataflows with several heads or blocks in flight."""

ADDING = ("tree", "sequential", "rings")
"""Collectives whose sums the tiles add up."""

SIDES = frozenset(("chip.mesh.rows", "chip.mesh.cols"))

APART = "mapping.serving.prefill_cores"


def unread_of_chip(base: Design, asked_for: Workload, moved: Collection[str] = ()) -> dict[str, str]:
    """Leaves of a chip that nothing reads, each with the reason and what to say instead; `moved`: leaves that knobs move."""
    there = {address for address, _, _ in leaves(base.chip, CHIP)}
    found = dict(_beside(base, moved))
    for some, why in (*_pooled(base, asked_for), *_linked(base, moved), *_tiled(base, asked_for, moved)):
        found |= dict.fromkeys(some, why)
    return {address: why for address, why in found.items() if address in there}


def _beside(base: Design, moved: Collection[str]) -> Iterator[tuple[str, str]]:
    """Those that a word beside them leaves unread, which no knob moves."""
    for address, _, spec in leaves(base.chip, CHIP):
        if "unread" in spec.metadata and (word := unread(base, address)) and set(moved).isdisjoint(choosers(base, address)):
            yield address, f"{word} has no use for it; leave it out"


def _pooled(base: Design, asked_for: Workload) -> Iterator[tuple[Sequence[str], str]]:
    """Of the memory of dies with a cache."""
    if software_of(base.mapping) not in OF_CACHES:
        return
    case = asked_for.cases[0]
    models = [one.model for one in asked_for.cases if isinstance(one, Case | Load)]
    if not any(_indexed(model) for model in models):
        yield (SCATTERED,), "pieces that lie anywhere are what an indexer picks, and no model here has one; leave it out"
    if not isinstance(case, Attention | Case | Load):
        yield STRIDED, f"{plural(type(case))} by themselves read memory in one piece; ask for attention, or leave it out"


def _linked(base: Design, moved: Collection[str]) -> Iterator[tuple[Sequence[str], str]]:
    """Of links between dies, which only who exchanges something waits for."""
    chip = base.chip
    if chip.network is not None and software_of(base.mapping) in OF_CACHES and not sends_on(base, moved):
        if alone(base, moved):
            yield LATENCIES, "mapping.both.tp=1 exchanges nothing; say another, or leave it out"
        elif not crossing(base, moved):
            yield LATENCIES[-1:], "no collective leaves a node; say mapping.both.tp beyond chip.network.nodes.size"
    if chip.boxes is not None and {*BOXED}.isdisjoint(moved) and chip.dies.rows * chip.dies.cols <= chip.boxes.size:
        yield OF_BOXES, "all dies are in one box; say chip.dies.rows of more, or leave it out"


def _tiled(base: Design, asked_for: Workload, moved: Collection[str]) -> Iterator[tuple[Sequence[str], str]]:
    """Of tiles and of their memory."""
    if base.chip.tile is None:
        return
    software, case = software_of(base.mapping), asked_for.cases[0]
    said = _words(base)
    open_ = {leaf.rpartition(".")[2] for leaf in moved}
    if not _any(WAITING, said) and open_.isdisjoint(WAITING):
        yield (
            ("chip.tile.sync",),
            "no step here waits in software for all tiles; say a dataflow, collective or product that does",
        )
    if not _any(TOGETHER, said) and open_.isdisjoint(TOGETHER):
        yield ("chip.tile.control",), "no dataflow of attention here has several heads in flight; leave it out"
    by_core = software in (PIPELINES, SERVED_PIPELINES) and not _grouped(base)
    if by_core:
        yield ("chip.hbm.crowded",), "each core of a pipeline has its own part of the memory; leave it out"
        sides = base.chip.mesh.rows * base.chip.mesh.cols
        if base.chip.hbm.place == "core" and base.chip.hbm.channels != sides and SIDES.isdisjoint(moved):
            yield ("chip.hbm.channels",), "each core has a channel of its own; say chip.hbm.channel_bandwidth, or chip.mesh"
    if software in (SUMMA, PRODUCT):
        yield ("chip.tile.vector.call",), "products start no vector instructions by software; leave it out"
    decoding = getattr(base.mapping.serving, "prefill_cores", 0)
    if not decoding and APART not in moved:
        some = [address for address, _, _ in leaves(base.chip, CHIP) if address.startswith("chip.decode.")]
        yield some, f"no cores only decode here; serve requests, and say {APART}"
    if software == COLLECTIVE:
        engines = [
            address
            for address, _, spec in leaves(base.chip, CHIP)
            if address.startswith(("chip.hbm.", "chip.tile.matrix.", "chip.tile.products"))
            and spec.name in ("achieved", "latency", "crowded", "call", "fill", "reload", "products")
        ]
        yield engines, f"{plural(type(case))} by themselves neither multiply nor read memory; leave it out"
        if not set(ADDING) & set(said.values()) and "collective" not in open_:
            yield ("chip.tile.vector.call",), "sums are made in the network; say mapping.collective=tree, or leave it out"


def _words(base: Design) -> dict[str, str]:
    """Words of the mapping, by address."""
    return {address: value for address, value, _ in leaves(base.mapping, "mapping.") if isinstance(value, str)}


def _any(reading: Mapping[str, tuple[str, ...]], said: dict[str, str]) -> bool:
    """Whether the mapping has a word of those, at a leaf of that name."""
    return any(word in reading.get(address.rpartition(".")[2], ()) for address, word in said.items())


def _grouped(base: Design) -> bool:
    """Whether groups of a pipeline have attention together."""
    plans: tuple[Any, ...] = (base.mapping.prefill, base.mapping.decode)
    return any(isinstance(getattr(plan, "attention", None), AttentionPlan) for plan in plans)


def _indexed(model: Model) -> bool:
    """Whether some layers choose what they attend to."""
    return any(kind.of.indexer is not None for kind in layers(model).mixings)
