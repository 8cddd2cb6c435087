"""Models on many dies with a cache each: what one die does by itself, as `layouts.devices` has it, and energy."""

from collections.abc import Mapping as Dict
from dataclasses import replace
from functools import partial
from typing import Any

from dse.evaluators.account import breakdown, dies_limits, many_dies
from dse.evaluators.account.breakdown import Row, merged
from dse.evaluators.account.devices import at_rated_power, done_in
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
from dse.evaluators.account.tiles import most
from dse.evaluators.graph.operators import Part
from dse.evaluators.layouts import devices
from dse.evaluators.layouts.attended import Attend
from dse.evaluators.layouts.dies import On, Split, passes, plain
from dse.evaluators.layouts.formats import Sizes, multiplied, returned_bytes, sizes
from dse.evaluators.layouts.turns import Turns
from dse.evaluators.machine.machine import Machine, of_die
from dse.evaluators.machine.pooled import pooled
from dse.evaluators.passes.call import Block, alike, breadth_first
from dse.evaluators.program.activity import Activity
from dse.evaluators.readers import crossings, jobs, reader_of
from dse.evaluators.readers.price import Timed
from dse.evaluators.silicon.energy import WORD, Pooled, of_pool
from dse.space.design import Design
from dse.space.limits import Infeasible, Limit
from dse.space.mapping import BYTES, Mapping, Precision
from dse.space.numbers import Rates
from dse.space.remember import remembered

FIDELITIES = ("closed", "events")
"""Readers: there is no mesh of cores to play, but links between dies."""

ALONE = ("events",)
"""Readers that take one design after another."""


def phases(design: Design, job: Stretches, fidelity: str, *, detailed: bool = False) -> tuple[Phase, ...]:
    """Prefill and decode of a case."""
    return many_dies.phases(KIND, design, job, fidelity, detailed=detailed)


def rows(phase: Phase, fidelity: str) -> list[Row]:
    """Operators and exchanges of one phase; those of layers of two kinds that are the same are one row."""
    found: dict[tuple[str, str], Row] = {}
    for of in phase.timed:
        split, many = partial(jobs.split, fidelity), {"dies": phase.dies, "asked": phase.dies * phase.asked}
        for row in breakdown.rows(phase.name, 1.0, [of], phase.machine, split=split, left=crossings.left, **many):
            row = replace(row, segment=of.block.calls[0].part)
            key = row.segment, row.operator
            found[key] = merged(found[key], row) if key in found else row
    return list(found.values())


def _of_design(design: Design, asked: Turns, of: Split, fidelity: str) -> Alone:
    mapping = design.mapping
    passed, formats = mapping.stack.attention_passes, mapping.precision
    rates = design.chip.core.rates
    found: Alone = _own(asked, of, _machine(design, asked.plan), formats, rates, passed, fidelity)
    return found


@remembered
def _own(
    asked: Turns, of: Split, machine: Machine, precision: Precision, rates: Rates | None, passed: Any, fidelity: str
) -> Alone:
    """What dies do by themselves; `passed` is how often vector engines pass over K and V."""

    def cover(part: Part, attend: Attend) -> Block:
        calls = tuple(devices.call(part, operator, 1, precision, rates) for operator in part.operators)
        return Block(part.name, calls, alike(calls), breadth_first(calls), float(part.times))

    def sums(parts: list[Timed]) -> tuple[Any, Activity, float]:
        done = done_in(tuple(of.block for of in parts), passed, machine.cache)
        activity = Activity(
            macs=done.operands / WORD,  # as if of 16 bits
            elements=done.elements,
            memory_bytes=done.memory_bytes,
            cache_bytes=done.shared_bytes,
        )
        flop = sum((of.block.times * call.flop for of in parts for call in of.block.calls), 0.0)
        return sum(of.seconds * of.block.times for of in parts), activity, flop

    on = On(asked.model, cover, float(BYTES[precision.activations]), returned_bytes(precision), plain)
    return alone(passes(asked, of, on), machine, reader_of(fidelity), sums)[0], ()


def _machine(design: Design, phase: str) -> Machine:
    """What a die computes with: without the cores that forward tokens between boxes, where both go on at a time."""
    chip, plan, library = one_die(design.chip), getattr(design.mapping, phase), design.mapping.stack.dispatch
    if library is not None and plan.overlap == "halves" and plan.exchange == "by_node":
        chip = replace(chip, cores=chip.cores - library.cores)
    return of_die(chip, design.mapping)


def _sizes(mapping: Mapping) -> Sizes:
    return sizes(mapping.precision)


def _reached(mapping: Mapping) -> Any:
    return mapping.stack.network_achieved


KIND = Kind(_of_design, _machine, _sizes, _reached, together=True)


def used(design: Design, job: Stretches, prefill: Phase, decode: Phase) -> dict[str, Any]:
    """What the fullest die holds, and energy of all dies."""
    chip, dies = design.chip, chips(design)
    return {
        "decode_throughput_per_chip": job.output_tokens / decode.seconds / dies,
        "hbm_used": most(_held(of) for of in (prefill, decode)) * 1.0,
        **at_rated_power(chip, dies, job, prefill, decode),
        **of_phases(chip, lambda: spending(design, job, prefill, decode), job.output_tokens, chips=dies),
    }


def spending(design: Design, job: Stretches, *phases: Phase) -> Spent:
    """Energy and time of phases."""
    return [(joules(design, of.activity or Activity()), of.seconds) for of in phases]


def _done(of: Activity) -> Pooled:
    return Pooled(of.macs, WORD * of.macs, of.elements, of.memory_bytes, of.cache_bytes, of.linked_bytes + of.boxed_bytes)


def _held(of: Phase) -> Any:
    return sum(value for _, value in of.held[0])


def joules(design: Design, activity: Activity) -> Any:
    """Energy of what dies do. [J]"""
    return of_pool(_done(activity), design.chip)


def engines(design: Design) -> Any:
    """What the engines of a die multiply at most, activations with weights in their formats. [FLOP/s]"""
    said = design.mapping.precision
    pace = multiplied(said.activations, said.weights, design.chip.core.rates).pace
    return 1 / (pooled(design.chip, design.mapping)[0].matrix * design.mapping.stack.matrix_achieved * pace)


def channels(design: Design) -> Any:
    """What the memory of a die brings. [B/s]"""
    return design.chip.hbm.bandwidth


def capacity(design: Design) -> Any:
    """Of the memory of a die. [B]"""
    return design.chip.hbm.capacity


def memories(design: Design, held: Dict[str, Any]) -> list[Limit]:
    """Memory of both phases."""
    have = capacity(design)
    return [Limit("chip.hbm.capacity", sum(value for _, value in of), have, "B", of) for of, _ in held.values()]


def limits(design: Design, job: Stretches, *phases: Phase) -> list[Limit]:
    """Memory, and what holds on many dies of any kind."""
    return [*memories(design, {phase.name: phase.held for phase in phases}), *dies_limits.limits(design, job)]


def remedy(worst: Infeasible, design: Design, asked: tuple[Stretches, ...]) -> str:
    """In words, what would do."""
    return dies_limits.remedy(worst, design, asked)
