"""Models on many dies of tiles: what one die does by itself, local memories, and energy."""

from collections.abc import Mapping as Dict
from functools import partial
from typing import Any

from dse.evaluators.account import dies_limits, many_dies, shared_dies, tiles
from dse.evaluators.account.dies_limits import early as early
from dse.evaluators.account.dies_limits import one_die
from dse.evaluators.account.dies_limits import refused as refused
from dse.evaluators.account.many_dies import GAP as GAP
from dse.evaluators.account.many_dies import HIDDEN as HIDDEN
from dse.evaluators.account.many_dies import IN_PART as IN_PART
from dse.evaluators.account.many_dies import SMALLER as SMALLER
from dse.evaluators.account.many_dies import TOGETHER as TOGETHER
from dse.evaluators.account.many_dies import WAITS as WAITS
from dse.evaluators.account.many_dies import Alone, Kind, alone
from dse.evaluators.account.many_dies import area_parts as area_parts
from dse.evaluators.account.many_dies import areas as areas
from dse.evaluators.account.many_dies import chips as chips
from dse.evaluators.account.many_dies import memory as memory
from dse.evaluators.account.phase import Phase
from dse.evaluators.account.power import Spent, of_phases
from dse.evaluators.account.stretches import Stretches
from dse.evaluators.account.tiles import Held, filled, limits_of, most, sums
from dse.evaluators.account.tiles import rows as rows
from dse.evaluators.kernels.cost import Cost
from dse.evaluators.layouts import whole_chip
from dse.evaluators.layouts.dies import On, Split, passes
from dse.evaluators.layouts.formats import Sizes, itemsize_of, returned_bytes, sizes
from dse.evaluators.layouts.turns import Turns
from dse.evaluators.machine.machine import Machine, of_tiles
from dse.evaluators.program.activity import Activity
from dse.evaluators.readers import reader_of
from dse.evaluators.readers.price import Reader
from dse.evaluators.silicon.energy import dynamic
from dse.space.chip import Chip, memory_channels, memory_of
from dse.space.design import Design
from dse.space.limits import Infeasible, Limit
from dse.space.mapping import Mapping, Precision
from dse.space.remember import remembered, same

FIDELITIES = ("closed", "events")
"""Of models, whose meshes are too large to be played flit by flit."""

ALONE = ("events",)
"""Readers that take one design after another."""


def phases(design: Design, job: Stretches, fidelity: str, *, detailed: bool = False) -> tuple[Phase, ...]:
    """Prefill and decode of a case."""
    return many_dies.phases(KIND, design, job, fidelity, detailed=detailed)


def _of_design(design: Design, asked: Turns, of: Split, fidelity: str) -> Alone:
    die, said = _die(design, asked.plan)
    how = design.mapping.precision, fidelity
    found: Alone | None = shared_dies.answered(_several, asked, of, die, said, *how)
    return _own(asked, of, die, said, *how) if found is None else found


def wanted(design: Design, asked: Turns, of: Split, fidelity: str) -> None:
    """Says that a design will be asked something: as many as are asked the same are worked out together."""
    shared_dies.wanted(asked, of.alone, *_die(design, asked.plan), design.mapping.precision, fidelity)


@same
def _die(design: Design, plan: str) -> tuple[Chip, whole_chip.Said]:
    """A die, and what a phase's plan says of its kernels."""
    itemsize_of(design.mapping)  # refuses what tiles do not take
    of = getattr(design.mapping, plan)
    return one_die(design.chip), whole_chip.Said(of.attention, of.gemm)


@remembered
def _own(asked: Turns, of: Split, die: Chip, said: whole_chip.Said, precision: Precision, fidelity: str) -> Alone:
    """What dies do by themselves, and local memory of a tile in use, by kind of operator."""
    return _worked(asked, of, whole_chip.On(asked.model, die, said, precision, {}), reader_of(fidelity))


def _several(asked: Turns, of: Split, some: shared_dies.Dies, precision: Precision, fidelity: str) -> Alone:
    """The same of several; what they multiply is priced once, however much they attend to beside it."""
    reader, on = reader_of(fidelity), whole_chip.On(asked.model, some.die, some.said, precision, some.known)

    def price(job: Any) -> Cost:
        if id(job) not in some.priced:
            some.priced[id(job)] = job, reader.job(job)  # which is kept, so that nothing else takes its place
        found: Cost = some.priced[id(job)][1]
        return found

    return _worked(asked, of, on, reader._replace(job=price))


def _worked(asked: Turns, of: Split, on: whole_chip.On, reader: Reader) -> Alone:
    calls = On(asked.model, partial(whole_chip.covered, on=on), on.itemsize, returned_bytes(on.precision))
    found, parts = alone(passes(asked, of, calls), of_tiles(on.chip), reader, sums)
    return found, filled(of.block for of in parts)


def _machine(design: Design, phase: str) -> Machine:
    """Jobs split their time by themselves."""
    return many_dies.NOTHING


def _sizes(mapping: Mapping) -> Sizes:
    itemsize_of(mapping)  # refuses what tiles do not take
    return sizes(mapping.precision)


def _reached(mapping: Mapping) -> float:
    return 1.0


KIND = Kind(_of_design, _machine, _sizes, _reached)


def used(design: Design, job: Stretches, *phases: Phase) -> dict[str, Any]:
    """Shares of what all engines and channels could do, what the fullest die holds, and energy of all dies."""
    chip = design.chip
    latency, dies = phases[0].seconds + phases[1].seconds, chips(design)
    peak = dies * engines(design)
    activity = Activity()
    for phase in phases:
        assert phase.activity is not None
        activity = activity + phase.activity
    return {
        "peak": peak,
        "utilisation": sum(phase.flop for phase in phases) / (peak * latency),
        "hbm_bytes": activity.memory_bytes,
        "hbm_utilisation": activity.memory_bytes / (latency * dies * channels(design)),
        "decode_throughput_per_chip": job.output_tokens / phases[1].seconds / dies,
        "hbm_used": most(sum(value for _, value in phase.held[0]) for phase in phases) * 1.0,
        "sram_used": most(most(nbytes for _, nbytes in phase.held[1]) for phase in phases),
        **of_phases(chip, lambda: spending(design, job, *phases), job.output_tokens, chips=dies),
    }


def spending(design: Design, job: Stretches, *phases: Phase) -> Spent:
    """Energy and time of phases."""
    return [(joules(design, of.activity or Activity()), of.seconds) for of in phases]


def joules(design: Design, activity: Activity) -> Any:
    """Energy of what dies do. [J]"""
    return dynamic(activity, design.chip, itemsize_of(design.mapping))


def engines(design: Design) -> Any:
    """What the engines of a die multiply at most. [FLOP/s]"""
    chip, engine = design.chip, design.chip.tile.matrix
    return 2.0 * chip.mesh.rows * chip.mesh.cols * engine.rows * engine.cols * chip.clock


def channels(design: Design) -> Any:
    """What the memory of a die brings. [B/s]"""
    return memory_channels(design.chip) * design.chip.hbm.channel_bandwidth


def capacity(design: Design) -> Any:
    """Of the memory of a die. [B]"""
    return memory_of(design.chip)


def memories(design: Design, held: Dict[str, Held]) -> list[Limit]:
    """Memories of both phases, and groups of tiles."""
    return limits_of(design.chip, design.mapping, held)


def limits(design: Design, job: Stretches, *phases: Phase) -> list[Limit]:
    """Memories of both phases, groups of tiles, and what holds on many dies of any kind."""
    return [*memories(design, {phase.name: phase.held for phase in phases}), *dies_limits.limits(design, job)]


def remedy(worst: Infeasible, design: Design, asked: tuple[Stretches, ...]) -> str:
    """In words, what would do."""
    return dies_limits.remedy(worst, design, asked) or tiles.remedy(worst, design)
