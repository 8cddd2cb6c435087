"""Attention from the memory of a chip of tiles: eight dataflows, with group and slice that the mapping may leave open."""

from dataclasses import replace
from typing import Any, NamedTuple

from dse.evaluators.account.alone import Spans, Spent
from dse.evaluators.account.alone.tile_jobs import memories, taken, told
from dse.evaluators.account.breakdown import Row
from dse.evaluators.kernels.attention import attention
from dse.evaluators.kernels.attention.shape import AS_OTHERS, Cached, Heads, Tiling
from dse.evaluators.layouts.formats import cached_as, itemsize_of_all
from dse.evaluators.machine.fabric import VALUE
from dse.evaluators.readers import READERS, jobs
from dse.evaluators.readers.closed_attention import Job, job, machine, partial_bytes, proposed, slots, tiled
from dse.evaluators.readers.part_jobs import WAVES, attention_on
from dse.evaluators.silicon import area
from dse.space.design import Design
from dse.space.elementwise import column
from dse.space.errors import DesignError
from dse.space.fields import replaced
from dse.space.limits import FITS, Infeasible, Limit, nearest_side
from dse.space.mapping import AttentionPlan
from dse.space.workload import Attention

FIDELITIES = tuple(READERS)
STACKED = WHOLE = True

SMALLER = f"queries and keys shrink with groups of tiles, heads with their number and to {WAVES} turns, channels with the bytes"

SIZES = ("batch", "heads", "kv_heads", "queries", "keys", "qk", "v", "window")
"""Numbers of a case that make its shape."""

SHOWN = {"q": "Q", "c": "Q", "k": "K", "v": "V", "s": "scores", "o": "O", "arriving": "arriving", "merge": "merging"}
"""Names of slots in what a limit itemises; the others are statistics."""


class Tiled(NamedTuple):
    """Cases alike as the chip is asked for them.

    Attributes:
        job: what is priced.
        tiling: group and slice, of sides as they are said, which a limit holds.
    """

    job: Job
    tiling: Tiling


def asked(design: Design, cases: tuple[Attention, ...]) -> Tiled:
    """With group and slice that the mapping leaves open."""
    of, cut = attention(_mapping(design).dataflow), tiling(design, *cases)
    return Tiled(job(of, heads(*cases), cut, design.chip, *nbytes(design)), cut)


def limits(design: Design, asked: Tiled) -> list[Limit]:
    """Memories, and groups of tiles that divide the mesh, where tiles work in groups."""
    of, shape, mesh = asked.job, asked.job.shape, design.chip.mesh
    held = [(SHOWN.get(slot.name.split(".")[-1], "statistics"), slot.nbytes) for slot in slots(of)]
    stored = {
        "queries and outputs": shape.batch * shape.heads * shape.queries * (shape.qk + shape.v) * of.itemsize,
        "KV cache": shape.problems * shape.keys * (shape.key_dim + shape.v) * of.kv.of(of.itemsize),
        **({"partial outputs": partial_bytes(of)} if of.of.split else {}),
    }
    sides, said = ("rows", "cols") if of.of.grouped else (), _mapping(design)
    return [
        *memories(of, held, stored),
        *(FITS[side](f"mapping.{side}", getattr(said, side), getattr(mesh, side)) for side in sides),
    ]


def spent(design: Design, asked: Tiled, fidelity: str) -> Spent:
    """Of all tiles."""
    chip, of, (_, engines) = design.chip, asked.job, machine(design.chip, asked.job.of)
    shape, cut = of.shape, of.tiling
    peak = chip.mesh.rows * chip.mesh.cols * engines.matrix.rows * engines.matrix.cols * chip.clock
    width = of.kv.multiplied(of.itemsize)
    here = 0.0 if shape.bare else engines.product(cut.queries, shape.key_dim, cut.keys, width)
    here = here + engines.product(cut.queries, cut.keys, shape.v, width)
    here = here + (engines.product(cut.queries, shape.v, cut.keys, width) if shape.latent else 0.0)
    rate = cut.queries * cut.keys * (shape.qk + shape.v) / (engines.matrix.rows * engines.matrix.cols * chip.clock)
    found = taken(of, fidelity, {"peak": 2.0 * peak, "engine_utilisation": rate / here})
    seconds = found.metrics["latency"]
    share = shape.macs / (peak * seconds)
    found.metrics.update(
        utilisation=share,
        utilisation_per_system_mm2=share / area.total(chip),
        communication_share=jobs.communication(fidelity, of, seconds) / seconds,
    )
    return found._replace(tokens=shape.batch * shape.queries)


def explained(design: Design, case: Attention, asked: Tiled, fidelity: str) -> tuple[list[Row], Spans]:
    """Exchanges, memory, vectors and products; what is padded under a mask is masked as well."""
    of, t = asked.job, asked.job.tiling
    groups = f"{t.rows:.0f} x {t.cols:.0f} tiles, {t.queries:.0f} x {t.keys:.0f} a tile"
    groups += f", keys in {t.splits:.0f}" if of.of.split else ""
    dataflow, useful = _mapping(design).dataflow, 2.0 * float(of.shape.macs)
    return told(of, fidelity, "attention", dataflow, groups, useful, masked=of.shape.causal)


def tiling(design: Design, *cases: Attention) -> Tiling:
    """Group and slice of cases alike, those that the mapping leaves open included."""
    mapping = _mapping(design)
    return tiled(attention(mapping.dataflow), heads(*cases), design.chip, mapping, *nbytes(design))


def nbytes(design: Design) -> tuple[float, Cached]:
    """Bytes of queries, scores and outputs, 2 where the mapping has no number formats; how keys and values are stored.

    Raises:
        DesignError: weights of another size, of which there are none, or activations with scales of blocks.
    """
    if design.mapping.precision is None:
        return VALUE, AS_OTHERS
    return itemsize_of_all(design.mapping), cached_as(design.mapping.precision)


def heads(*cases: Attention) -> Heads:
    """What cases alike compute."""
    if any(case.decodes for case in cases):
        raise DesignError(
            "workload.decodes: tiles do not mix prompts and decodes in a call; leave it out, or ask dies, as chip=h100"
        )
    values = {name: column([getattr(case, name) for case in cases]) for name in SIZES}
    return Heads(**values, causal=cases[0].causal, latent=cases[0].latent)


def remedy(worst: Infeasible, design: Design, cases: tuple[Attention, ...]) -> str:
    """In words, what would do."""
    chip, (case, *_), of = design.chip, cases, attention(_mapping(design).dataflow)
    if worst.limit in ("mapping.rows", "mapping.cols"):
        side = worst.limit.split(".")[1]
        return nearest_side(side, getattr(_mapping(design), side), getattr(chip.mesh, side))
    if worst.limit != "chip.tile.sram":
        return "fewer sequences at a time would do"
    shape, (each, kv) = heads(case), nbytes(design)
    suited = proposed(of, shape, chip, itemsize=each, kv=kv)
    slice_ = f"mapping.queries={suited.queries:.0f} mapping.keys={suited.keys:.0f}"
    if sum(held.nbytes for held in slots(Job(of, shape, suited, chip, each, kv))) > worst.have:
        return f"no slice of heads of {case.qk} + {case.v} columns fits, not even {slice_}"
    return f"a slice that fits: {slice_}"


def part(design: Design, case: Attention, side: int) -> tuple[Design, Attention]:
    """Groups as they are, or as large as the part."""
    of, _ = attention_on(asked(design, (case,)).job, side)
    names = ("rows", "cols", "queries", "keys", *(("splits",) if of.of.split else ()))
    changes: dict[str, Any] = {f"mapping.{name}": getattr(of.tiling, name) for name in names}
    shape = of.shape
    smaller = replace(case, batch=shape.batch, heads=shape.heads, kv_heads=1, queries=shape.queries, keys=shape.keys)
    return replace(replaced(design, changes), chip=of.chip), smaller


def _mapping(design: Design) -> AttentionPlan:
    plan: AttentionPlan = design.mapping.kernel
    return plan
