"""Models on pipelines of groups of cores: instances, what a core holds, phases, limits, and energy from what is done.

The chip is divided into instances of the model, each a pipeline of groups; requests are shared evenly between them.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dse.evaluators.account import breakdown
from dse.evaluators.account.breakdown import Chosen, Row, transfers
from dse.evaluators.account.partitions import Phase as Partitions
from dse.evaluators.account.partitions import settled, with_partition
from dse.evaluators.account.passes import Staged, through_stages
from dse.evaluators.account.phase import Phase
from dse.evaluators.account.power import Spent, of_phases
from dse.evaluators.account.stretches import Stretches, per_case, reduced, spread, stretches_by_model
from dse.evaluators.graph.operators import Part
from dse.evaluators.graph.step import Step
from dse.evaluators.graph.transformer import line, transformer
from dse.evaluators.kernels.partition.onward import Way
from dse.evaluators.kernels.partition.placement import sides_of
from dse.evaluators.layouts import on_groups
from dse.evaluators.layouts.on_groups import OnGroup, on_group
from dse.evaluators.layouts.partitioned import offered
from dse.evaluators.layouts.pipelines import blocks, room
from dse.evaluators.layouts.residency import Resident, resident
from dse.evaluators.layouts.turns import micro_batches
from dse.evaluators.machine.machine import Machine, of_tiles
from dse.evaluators.machine.shared import shared
from dse.evaluators.passes.call import Block, Call
from dse.evaluators.passes.rivals import picked
from dse.evaluators.program.activity import Activity
from dse.evaluators.readers import READERS
from dse.evaluators.readers import jobs as jobs_of_tiles
from dse.evaluators.readers.price import Reader
from dse.evaluators.readers.rivals import shown_sums
from dse.evaluators.silicon import area
from dse.evaluators.silicon.energy import dynamic
from dse.space.chip import Chip, memory_of_core
from dse.space.design import Design
from dse.space.elementwise import ceil_div, maximum, minimum
from dse.space.fields import replaced
from dse.space.layers import by_reach
from dse.space.limits import ClashError, Infeasible, Limit
from dse.space.mapping import AUTO, BYTES, Mapping, Precision, TilePlan
from dse.space.model import Model
from dse.space.remember import remembered, same

FIDELITIES = IN_PART = tuple(READERS)
"""Readers: products on groups have programs."""

SMALLER = ""
"""What becomes of a model on a part of the mesh: it has none."""

WAITS = "stages"
"""Where requests that follow one another overlap."""

TOGETHER = stretches_by_model
"""Cases that are worked out together: those of a model."""

ALONE = ()
"""Readers that take one design after another."""


def phases(design: Design, job: Stretches, fidelity: str, *, detailed: bool = False) -> tuple[Phase, ...]:
    """Prefill, prompt by prompt through each instance, and decode, micro-batch by micro-batch.

    Only detailed ones keep their blocks.
    """
    machine, reader, laid = of_tiles(design.chip), READERS[fidelity], _laid(design, job)
    of, ttft = _passed(design, job, "prefill", *laid["prefill"], reader)
    first = _phase("prefill", machine, of, job.copies, ttft, laid["prefill"][1], job.prompt_starts, detailed)
    of, decoding = _passed(design, job, "decode", *laid["decode"], reader)
    _, together = _together(_instances(design.chip, design.mapping.decode), design.mapping.decode, job)
    passes = ceil_div(job.requests, together)
    token = _phase("decode", machine, of, job.steps * passes, decoding, laid["decode"][1], job.step_starts, detailed)
    return first, token._replace(asked=job.requests / (passes * together))


def _passed(
    design: Design, job: Stretches, phase: str, laid: tuple[Block, ...], held: Resident, reader: Reader
) -> tuple[Staged, Any]:
    """A pass through all stages, and seconds of the phase of each case."""
    chip, mapping = _of(design)
    plan, starts, entries = _entries(design, job, phase)
    instances = _instances(chip, plan)
    turns, tokens = (1.0, job.prompts) if phase == "prefill" else _together(instances, plan, job)
    crossing = tokens * job.model.hidden * BYTES[mapping.precision.activations]
    here = Resident(*(spread(value, starts, entries) for value in held))
    of = through_stages(job.model, laid, crossing, of_tiles(chip), _way(chip, plan), plan, here, reader)
    if phase == "decode":
        return of, reduced(np.add, job.steps * maximum(of.seconds, turns * of.stage), starts)
    stage = of.stage
    fill = reduced(np.maximum, of.seconds - stage, starts)
    return of, reduced(np.add, ceil_div(job.copies, instances) * stage, starts) + fill


def _entries(design: Design, job: Stretches, phase: str) -> tuple[TilePlan, Any, int]:
    """The plan of a phase, where cases begin, and how many entries they have."""
    prefill = phase == "prefill"
    starts, entries = (job.prompt_starts, job.prompts) if prefill else (job.step_starts, job.steps)
    return design.mapping.prefill if prefill else design.mapping.decode, starts, np.size(entries)


def _laid(design: Design, job: Stretches) -> dict[str, tuple[tuple[Block, ...], Resident]]:
    """By phase, the calls of its steps and what a core holds; with partitions that are chosen where they are left open."""
    found, open_ = {}, []
    for phase in ("prefill", "decode"):
        plan = getattr(design.mapping, phase)
        if plan.partition == AUTO:
            open_.append(phase)
            continue
        tokens = _tokens(job, phase, plan, _instances(design.chip, plan))
        laid = _blocks(job, phase, plan, design.mapping.precision, tokens, _group(design, plan))
        found[phase] = laid, _held(design, job, phase)
    return (
        found | dict(zip(open_, settled([_left_open(design, job, phase) for phase in open_]), strict=True)) if open_ else found
    )


def _left_open(design: Design, job: Stretches, phase: str) -> Partitions:
    """A phase as it depends on partitions of its operators."""
    plan, starts, entries = _entries(design, job, phase)
    chip, precision = design.chip, design.mapping.precision
    tokens = _tokens(job, phase, plan, _instances(chip, plan))
    at, group = _step(job, tokens), _group(design, plan)
    runs = job.copies if phase == "prefill" else job.steps
    return Partitions(
        job.model, plan, precision, transformer(job.model, at), line(job.model, at),
        {word: _blocks(job, phase, with_partition(plan, word), precision, tokens, group, True) for word in offered(plan)},
        lambda word, everywhere: _held(design, job, phase, with_partition(plan, word), everywhere),
        lambda laid, held: _passed(design, job, phase, laid, held, READERS["closed"]),
        lambda _, held: _has_room(chip, held),
        runs, starts, entries, of_tiles(chip), READERS["closed"],
    )  # fmt: skip


def _has_room(chip: Chip, held: Resident) -> Any:
    """Whether what a core holds has room there and in its memory."""
    return (held.hbm <= memory_of_core(chip)) & (held.activations + held.slices <= chip.tile.sram)


def refused(design: Design, job: Stretches) -> list[Limit]:
    """Models that have no layout here: there are none."""
    return []


def rows(phase: Phase, fidelity: str) -> list[Row]:
    """Calls of one phase, and what goes from stage to stage."""
    found = breakdown.rows(
        phase.name, phase.runs, phase.timed, phase.machine, phase.away, partial(jobs_of_tiles.split, fidelity),
        asked=phase.asked, chosen=_chosen(phase.machine),
    )  # fmt: skip
    return found + transfers(phase.name, phase.runs, phase.between)


def areas(design: Design) -> tuple[Any, Any]:
    """Area of one die, and of all. [mm2]"""
    chip = _of(design)[0]
    return area.die(chip), area.total(chip)


def area_parts(design: Design) -> dict[str, Any]:
    """Area by block. [mm2]"""
    return area.parts(_of(design)[0])


def used(design: Design, job: Stretches, prefill: Phase, decode: Phase) -> dict[str, Any]:
    """What the fullest core holds, and energy."""
    return {
        "sram_used": maximum(prefill.held.sram, decode.held.sram),
        "hbm_used": maximum(prefill.held.hbm, decode.held.hbm),
        **of_phases(design.chip, lambda: spending(design, job, prefill, decode), job.output_tokens),
    }


def spending(design: Design, job: Stretches, *phases: Phase) -> Spent:
    """Energy and time of phases."""
    width = float(BYTES[design.mapping.precision.activations])
    return [(dynamic(of.activity or Activity(), design.chip, width), of.seconds) for of in phases]


def pass_rows(phase: str, of: Staged, weights: Any, machine: Machine) -> list[Row]:
    """Rows of a pass through all stages, so many times; they add up to its time."""
    return [
        *breakdown.rows(phase, weights, of.timed, machine, of.away, chosen=_chosen(machine)),
        *transfers(phase, weights, of.between),
    ]


def _chosen(machine: Machine) -> Chosen:
    """Who adds partial sums of a group up, where each product chooses."""

    def words(call: Call) -> str:
        if call.group is None:
            return ""
        return shown_sums(call.group, call.products[0], machine, call.width, READERS["closed"].product)

    return words


def limits(design: Design, job: Stretches, prefill: Phase, decode: Phase) -> list[Limit]:
    """Memory and parallelism of both phases."""
    return _limits(design, job, prefill.held, decode.held)


def remedy(worst: Infeasible, design: Design, asked: tuple[Stretches, ...]) -> str:
    """In words, the smallest parallelism that would do; of sides that divide no group, those that do."""
    if sides := on_groups.remedy(worst.limit, {name: getattr(design.mapping, name) for name in ("prefill", "decode")}):
        return sides

    def limits(trial: Design) -> list[Limit]:
        return [
            limit
            for job in asked
            for limit in _limits(trial, job, *(_held(trial, job, name) for name in ("prefill", "decode")))
        ]

    return smallest(worst, design, limits).remedy


def smallest(worst: Infeasible, design: Design, limits: Callable[[Design], list[Limit]]) -> Infeasible:
    """The verdict with the smallest TP x PP, of both phases, that keeps all limits of a design."""
    mesh = design.chip.mesh
    cores = int(mesh.rows * mesh.cols)
    return replace(worst, remedy=parallelism(design, limits) or f"no TP x PP on {cores} cores would do")


def parallelism(design: Design, limits: Callable[[Design], list[Limit]]) -> str:
    """In words, the smallest TP x PP of both phases that keeps all limits of a design; "" where there is none."""
    mesh = design.chip.mesh
    cores = int(mesh.rows * mesh.cols)
    for count in range(1, cores + 1):
        for tp in (1 << power for power in range(count.bit_length())):
            pp = count // tp
            if pp * tp != count:
                continue
            both = {
                f"mapping.{phase}.{knob}": value for phase in ("prefill", "decode") for knob, value in (("tp", tp), ("pp", pp))
            }
            if all(np.all(limit.need <= limit.have) for limit in limits(replaced(design, both))):
                return f"TP {tp} x PP {pp} would do: mapping.both.tp={tp} mapping.both.pp={pp}"
    return ""


def plan_limits(chip: Chip, name: str, plan: TilePlan, held: Resident, kv: Any, stages: float, groups: Any) -> list[Limit]:
    """Memory and parallelism of a phase.

    Args:
        chip, name, plan: of the phase.
        held: what a core has.
        kv: of the cache in a core's share of HBM. [B]
        stages: into which a model can be divided.
        groups: that there is room for.
    """
    weights = (1 - held.weights_here) * held.weights
    rows, cols = sides_of(plan.placement, plan.tp)
    return [
        Limit("chip.hbm.capacity", weights + kv, memory_of_core(chip), "B", (("weights", weights), ("KV cache", kv))),
        Limit("chip.tile.sram", held.activations + held.slices, chip.tile.sram, "B", _filled(plan, held)),
        Limit(f"mapping.{name}.tp", maximum(rows / chip.mesh.rows, cols / chip.mesh.cols) * plan.tp, plan.tp, "1"),
        Limit(f"mapping.{name}.pp", plan.pp, minimum(maximum(groups, 1.0), stages * 1.0), "1"),
    ]


def _filled(plan: TilePlan, held: Resident) -> tuple[tuple[str, Any], ...]:
    """What has to be in local memory."""
    activations = ("activations", held.activations)
    return (activations,) if plan.attention is None else (activations, ("slices of attention beyond", held.slices))


def _limits(design: Design, job: Stretches, *held: Resident) -> list[Limit]:
    chip, mapping = _of(design)
    found = []
    for name, plan, here in zip(("prefill", "decode"), (mapping.prefill, mapping.decode), held, strict=True):
        found += plan_limits(chip, name, plan, here, here.cached, job.model.layers, room(chip, plan))
        found += on_groups.limits(name, plan)
    return found


def _phase(
    name: str, machine: Machine, of: Staged, runs: Any, seconds: Any, held: Resident, starts: Any, detailed: bool
) -> Phase:
    return Phase(
        name, machine, of.timed if detailed else (), of.away, runs, of.between, seconds, held,
        lambda: per_case(of.activity * runs, starts),
    )  # fmt: skip


@same
def _instances(chip: Chip, plan: TilePlan) -> Any:
    """How many times the chip has room for a pipeline of groups."""
    return maximum(room(chip, plan) // plan.pp, 1.0)


def _way(chip: Chip, plan: TilePlan) -> Way:
    return Way(plan.placement, plan.tp, plan.pp, _instances(chip, plan), chip.mesh.rows)


@same
def _together(instances: Any, plan: TilePlan, job: Stretches) -> tuple[Any, Any]:
    """Micro-batches of an instance that decode in turn, as many as stages at most, and requests of each."""
    return micro_batches(ceil_div(job.requests, instances), plan.pp)


def _held(design: Design, job: Stretches, phase: str, plan: TilePlan | None = None, everywhere: Any = 0.0) -> Resident:
    """What a core holds; where partitions are left open, with the one of all operators that has room, if any does."""
    chip, mapping = _of(design)
    plan = plan or (mapping.prefill if phase == "prefill" else mapping.decode)
    if plan.partition == AUTO:
        some = [_held(design, job, phase, with_partition(plan, word)) for word in offered(plan)]
        found: Resident = picked(some, np.stack(np.broadcast_arrays(*(_has_room(chip, one) for one in some))).argmax(axis=0))
        return found
    instances = _instances(chip, plan)
    if phase == "prefill":
        tokens = reduced(np.maximum, job.prompts, job.prompt_starts)
    else:
        tokens = reduced(np.maximum, _together(instances, plan, job)[1], job.step_starts)
    cached = ceil_div(job.cached, instances)
    slices = _slices(design, job, phase, plan, instances)
    near = shared(chip)
    return resident(
        _parts(job.model, phase), job.model, plan, mapping, chip.tile.sram, tokens=tokens, cached=cached,
        sequences=ceil_div(job.sequences, instances), slices=slices,
        near=near and near.size, everywhere=everywhere,
    )  # fmt: skip


def by_itself(design: Design) -> bool:
    """Whether a design is worked out apart from others: attention on groups is one job after the other."""
    return any(plan.attention is not None for plan in (design.mapping.prefill, design.mapping.decode))


def _group(design: Design, plan: TilePlan) -> OnGroup | None:
    """The cores of a group, where attention is of all of them at a time.

    Raises:
        ClashError: formats of other sizes side by side, or a cache that would stay in local memory.
    """
    if plan.attention is None:
        return None
    if design.mapping.sram_kv:
        raise ClashError(
            f"mapping.sram_kv: attention on groups ({plan.attention.dataflow}) takes keys and values from HBM, wherever they "
            "would have room; say 0",
            "sram_kv",
        )
    return on_group(design.chip, plan, design.mapping.precision)


def _slices(design: Design, job: Stretches, phase: str, plan: TilePlan, instances: Any) -> Any:
    """Local memory of a core for attention on its group. [B]"""
    if plan.attention is None:
        return 0.0
    laid = _blocks(job, phase, plan, design.mapping.precision, _tokens(job, phase, plan, instances), _group(design, plan))
    return max(on_groups.slices(call.job) for block in laid for call in block.calls if call.job is not None)


@remembered
def _parts(model: Model, phase: str) -> tuple[Part, ...]:
    """A model's parts, for the sizes of its weights."""
    return transformer(model, Step(phase, 1.0, 1.0, 1.0, 1.0))


@remembered
def _blocks(
    job: Stretches, phase: str, plan: TilePlan, precision: Precision, tokens: Any, on: OnGroup | None = None,
    apart: bool = False,
) -> tuple[Block, ...]:  # fmt: skip
    """The calls of a pass: of each distinct prompt, or of a micro-batch of each stretch; `tokens` as of `_tokens`."""
    return blocks(job.model, _step(job, tokens), plan, precision, on=on, apart=apart)


def _tokens(job: Stretches, phase: str, plan: TilePlan, instances: Any) -> Any:
    """Requests of a micro-batch; None in prefill, whose prompts are the same whatever instances there are."""
    return None if phase == "prefill" else _together(instances, plan, job)[1]


def _step(job: Stretches, tokens: Any) -> Step:
    """Of a pass."""
    if tokens is None:
        pairs = by_reach(job.model, lambda reach: reach.pairs(job.prompts))
        return Step("prefill", job.prompts, 1.0 + 0.0 * job.prompts, pairs, 0.0 * job.prompts)
    return Step("decode", tokens, tokens, tokens * job.context, tokens * job.context)


def _of(design: Design) -> tuple[Chip, Mapping]:
    return design.chip, design.mapping
