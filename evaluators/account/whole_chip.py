"""Models on all tiles of a mesh at a time: turns, limits, and energy from what is done."""

from typing import Any

import numpy as np

from dse.evaluators.account import tiles
from dse.evaluators.account.phase import Phase
from dse.evaluators.account.power import Spent, of_phases
from dse.evaluators.account.stretches import Stretches, by_case
from dse.evaluators.account.tiles import filled, held, limits_of, most, sums
from dse.evaluators.account.tiles import rows as rows
from dse.evaluators.graph.step import decode, prefill
from dse.evaluators.layouts.formats import itemsize_of
from dse.evaluators.layouts.whole_chip import reads_ahead, resident, turns
from dse.evaluators.machine.machine import Machine, of_tiles
from dse.evaluators.passes.call import Block
from dse.evaluators.passes.part import cut
from dse.evaluators.program.activity import Activity
from dse.evaluators.readers import READERS, reader_of
from dse.evaluators.readers.ahead import Ahead, timed_ahead
from dse.evaluators.readers.part_jobs import WAVES
from dse.evaluators.readers.price import Reader, Timed, timed
from dse.evaluators.readers.through_cache import kept
from dse.evaluators.silicon import area
from dse.evaluators.silicon.energy import dynamic
from dse.space.chip import Chip, memory_channels
from dse.space.design import Design
from dse.space.elementwise import maximum
from dse.space.layers import by_reach
from dse.space.limits import Infeasible, Limit
from dse.space.mapping import FlatPlan, Mapping
from dse.space.parameters import STATE_BYTES, growths
from dse.space.workload import Case

FIDELITIES = ("closed", "events")
"""Of models, whose meshes are too large to be played flit by flit."""

IN_PART = tuple(READERS)
"""Of models whose operators are played on a part of their mesh each."""

SMALLER = (
    f"each operator on a part of its mesh, at most {WAVES} turns of it, which stand for all; memory channels as many fewer"
)
"""What becomes of a model there, for people."""

WAITS = "stages"
"""Where requests that follow one another overlap."""

TOGETHER = by_case
"""Cases that are worked out together: each by itself."""

ALONE = ("events", "cycles")
"""Readers that take one design after another."""


def phases(design: Design, job: Stretches, fidelity: str, *, detailed: bool = False) -> tuple[Phase, ...]:
    """Prefill and decode of a case, turn by turn. Only detailed ones keep their blocks.

    Raises:
        DesignError: formats of other sizes side by side.
    """
    chip, mapping, (case,) = _chip(design), _mapping(design), job.cases
    machine, reader = of_tiles(chip), reader_of(fidelity)
    plans = {"prefill": mapping.prefill, "decode": mapping.decode}
    keep = {name: kept(chip, _held(design, job, name), _aside(chip, plan)) for name, plan in plans.items()}
    found = []
    for name, passes in turns(case, chip, mapping, job.decode_at, keep).items():
        scaled = [[block._replace(times=count * block.times) for block in of] for count, of in passes]
        parts = _timed(scaled, machine, reader, chip, plans[name])
        seconds, activity, flop = sums(parts)
        full = (_held(design, job, name), _in_tiles(parts, case, chip, plans[name]))
        whole = activity if not cut(fidelity)[1] else None  # a part has other shares of memory, and of what is sent
        found.append(Phase(name, machine, tuple(parts) if detailed else (), None, 1.0, None, seconds, full, whole, flop))
    return tuple(found)


def by_itself(design: Design) -> bool:
    """Whether a design is worked out apart from others: what share of states stays is of each design its own."""
    return any(plan.states is not None for plan in (design.mapping.prefill, design.mapping.decode))


def _in_tiles(parts: list[Timed], case: Case, chip: Chip, plan: FlatPlan) -> list[tuple[str, Any]]:
    """Local memory of a tile in use by kind of operator, beside the states that stay there."""
    share, stay = resident(case, chip, plan)
    if not share:
        return filled(of.block for of in parts)
    # what updates states has those of its own layer among what is set aside
    own = max(of.state for of in growths(case.model)) * STATE_BYTES * case.batch * stay / (chip.mesh.rows * chip.mesh.cols)
    aside = share * chip.tile.sram
    return [(name, nbytes + aside - (own if name == "rows" else 0.0)) for name, nbytes in filled(of.block for of in parts)]


def _aside(chip: Chip, plan: FlatPlan) -> Any:
    """Of a cache in front of main memory, what is set aside for what is read ahead. [B]"""
    return plan.prefetch.cap * chip.l2.size if reads_ahead(plan) and chip.l2 is not None else 0.0


def _timed(turns: list[list[Block]], machine: Machine, reader: Reader, chip: Chip, plan: FlatPlan) -> list[Timed]:
    """Blocks of turns one after the other, with what is read ahead in each."""
    parts, of = timed([block for blocks in turns for block in blocks], machine, reader), plan.prefetch
    if not reads_ahead(plan):
        return parts
    # without a cache, of what the slices of all operators leave of local memories: nothing, where these are full
    free = (
        maximum(chip.tile.sram - most(nbytes for _, nbytes in filled(of.block for of in parts)), 0.0)
        * chip.mesh.rows
        * chip.mesh.cols
    )
    ahead = Ahead(of.policy, of.cap * free if chip.l2 is None else _aside(chip, plan))
    return [one for blocks in turns for one in timed_ahead(blocks, machine, reader, chip, ahead)]


def areas(design: Design) -> tuple[Any, Any]:
    """Area of one die, and of all. [mm2]"""
    return area.die(_chip(design)), area.total(_chip(design))


def area_parts(design: Design) -> dict[str, Any]:
    """Area by block. [mm2]"""
    return area.parts(_chip(design))


def refused(design: Design, job: Stretches) -> list[Limit]:
    """Models that have no layout here: there are none."""
    return []


def used(design: Design, job: Stretches, *phases: Phase) -> dict[str, Any]:
    """Shares of what engines and channels could do, what memories hold, and energy; not a number on a part of the mesh."""
    chip, engine = _chip(design), _chip(design).tile.matrix
    latency = phases[0].seconds + phases[1].seconds
    peak = 2.0 * chip.mesh.rows * chip.mesh.cols * engine.rows * engine.cols * chip.clock
    activity: Activity | None = Activity()
    for phase in phases:
        activity = None if activity is None or phase.activity is None else activity + phase.activity
    nbytes = np.nan if activity is None else activity.memory_bytes
    return {
        "peak": peak,
        "utilisation": sum(phase.flop for phase in phases) / (peak * latency),
        "hbm_bytes": nbytes,
        "hbm_utilisation": nbytes / (latency * memory_channels(chip) * chip.hbm.channel_bandwidth),
        "hbm_used": max(sum(value for _, value in phase.held[0]) for phase in phases) * 1.0,
        "sram_used": most(_filled(design, phase) for phase in phases),
        **of_phases(chip, lambda: spending(design, job, *phases), job.output_tokens),
    }


def spending(design: Design, job: Stretches, *phases: Phase) -> Spent:
    """Energy and time of phases; energy is not a number on a part of the mesh."""
    chip, width = _chip(design), itemsize_of(_mapping(design))
    return [(np.nan if of.activity is None else dynamic(of.activity, chip, width), of.seconds) for of in phases]


def _filled(design: Design, phase: Phase) -> Any:
    """Of a tile's local memory in a phase, with the room for what is read ahead where that is there."""
    chip, plan = _chip(design), getattr(_mapping(design), phase.name)
    slices = most(nbytes for _, nbytes in phase.held[1])
    if not reads_ahead(plan) or chip.l2 is not None:
        return slices
    return slices + plan.prefetch.cap * maximum(chip.tile.sram - slices, 0.0)


def limits(design: Design, job: Stretches, *phases: Phase) -> list[Limit]:
    """Memories of both phases, and groups of tiles that divide the mesh."""
    chip, mapping = _chip(design), _mapping(design)
    return limits_of(chip, mapping, {phase.name: phase.held for phase in phases})


def remedy(worst: Infeasible, design: Design, asked: tuple[Stretches, ...]) -> str:
    """In words, what would do."""
    return tiles.remedy(worst, design)


def _held(design: Design, job: Stretches, phase: str) -> tuple[tuple[str, float], ...]:
    (case,) = job.cases
    at = prefill(case) if phase == "prefill" else decode(case, "last")[0][1]
    lengths = [(n, prompt + (output if phase == "decode" else 0)) for n, prompt, output in case.requests]
    cached = by_reach(case.model, lambda reach: float(sum(n * reach.kept(length) for n, length in lengths)))
    plan = _mapping(design).decode
    away = 1 - (resident(case, _chip(design), plan)[1] if phase == "decode" else 0.0)
    return held(case.model, at, cached, case.batch * away, _mapping(design).precision)


def _chip(design: Design) -> Chip:
    return design.chip


def _mapping(design: Design) -> Mapping:
    return design.mapping
