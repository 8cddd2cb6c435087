"""Models on all tiles of a mesh at once: forward passes, limits and energy."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dse.evaluators.accounting import tile_operators as tiles
from dse.evaluators.accounting.breakdown import BreakdownRow
from dse.evaluators.accounting.decode_segments import BatchArrays, arrays_by_case
from dse.evaluators.accounting.layout import Layout, only_case
from dse.evaluators.accounting.memory_contents import CACHE, main_memory_contents, sum_parts
from dse.evaluators.accounting.phase import IterationSchedule, PhaseCost, mesh_work, phase_seconds
from dse.evaluators.accounting.remedies import Lever
from dse.evaluators.accounting.tile_operators import (
    group_limits,
    hbm_bytes_by_use,
    largest_value,
    local_memory_by_kind,
    local_memory_contents,
    sum_blocks,
)
from dse.evaluators.accounting.usage import PeakRates, tile_peak_rates
from dse.evaluators.calls.call import CallBlock
from dse.evaluators.calls.submesh import parse_fidelity
from dse.evaluators.cost_models import READERS, cost_model
from dse.evaluators.cost_models.cached_operators import cached_shares
from dse.evaluators.cost_models.call_cost import CostModel, TimedBlock, block_timeline
from dse.evaluators.cost_models.memory_read_ahead import timeline_with_read_ahead
from dse.evaluators.cost_models.submesh_jobs import MAX_WAVES
from dse.evaluators.graph.step_counts import decode_steps, prefill_step
from dse.evaluators.layouts.cache_memory import resident_state_bytes
from dse.evaluators.layouts.tensor_formats import activation_bytes
from dse.evaluators.layouts.whole_chip import has_read_ahead, passes_by_phase, resident_state_shares
from dse.evaluators.machine.machine import HardwareModel, tile_core_machine
from dse.evaluators.silicon.energy import dynamic_energy
from dse.space.array_math import maximum
from dse.space.chip import Chip, with_tile_range
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.layers import layers, per_reach
from dse.space.limits import Infeasibility, Limit
from dse.space.mapping import WholeChipPlan
from dse.space.model import Model
from dse.space.workload import BatchCase

GROWING = (CACHE, "states")
"""Uses of main memory that grow with requests."""


class WholeChipLayout(Layout):
    """A model on all tiles of a mesh at once, operator by operator; cases are evaluated one by one."""

    FIDELITIES = ("analytical", "events")
    SUBMESH_FIDELITIES = tuple(READERS)
    SINGLE_DESIGN_FIDELITIES = ("events", "cycles")
    SUBMESH_TEXT = (
        f"each operator on a submesh, at most {MAX_WAVES} waves, which represent all waves; memory channels are scaled"
    )
    batch_arrays = staticmethod(arrays_by_case)

    def phases(self, design: Design, job: BatchArrays, fidelity: str, *, detailed: bool = False) -> tuple[PhaseCost, ...]:
        """Costs of prefill and decode of a case, iteration by iteration.

        Raises:
            DesignError: formats of other sizes side by side.
        """
        chip, mapping, case = design.chip, design.mapping, only_case(job)
        machine, reader = tile_core_machine(chip), cost_model(fidelity)
        plans = {"prefill": mapping.prefill, "decode": mapping.decode}
        held = {name: _main_memory_parts(design, case, name) for name in plans}
        keep = {name: cached_shares(chip, held[name], _aside(chip, plan)) for name, plan in plans.items()}
        phases = []
        for name, passes in passes_by_phase(case, chip, mapping, job.decode_context, keep).items():
            scaled = [[block._replace(times=count * block.times) for block in blocks] for count, blocks in passes]
            parts = _timed(scaled, machine, reader, chip, plans[name])
            seconds, activity, flop = sum_blocks(parts)
            phases.append(
                PhaseCost(
                    name=name,
                    machine=machine,
                    seconds=phase_seconds(seconds, None, IterationSchedule()),
                    # a submesh has other shares of memory, and of what is sent
                    work=None if parse_fidelity(fidelity)[1] else activity,
                    flop=flop,
                    memory=(
                        main_memory_contents(
                            chip, held[name], cache=sum_parts(part for part in held[name] if part[0] in GROWING)
                        ),
                        *local_memory_contents(
                            chip, name, _in_tiles(parts, case, chip, plans[name]), _ahead_bytes(design, name)
                        ),
                    ),
                    timed=tuple(parts) if detailed else (),
                )
            )
        return tuple(phases)

    def least_phases(self, fastest: Design, smallest: Design, job: BatchArrays) -> tuple[PhaseCost, ...]:
        """Costs of phases of which no design of a box takes less; their activity is of no design.

        Each call takes at least its time on the tiles of the box (`TileRange`): products and attention by the fastest of all
        tilings that are tried and fit the largest local memory, at rates of the fastest corner, with the least padding on
        arrays of the box; row kernels by `analytical_rows`. Operators follow one another, so that bounds of calls add up. Of
        each tiling, `summa_diagonal.program_seconds` and `attention_cost.attention_seconds` say why its time does not grow
        where products, messages and bytes take less.

        Raises:
            DesignError: a model with operators that have no bounds.
        """
        refuse_unbounded(only_case(job).model)
        return self.phases(replace(fastest, chip=with_tile_range(fastest.chip, smallest.chip.tile)), job, "analytical")

    def structural_limits(self, design: Design, job: BatchArrays, phases: Sequence[PhaseCost]) -> list[Limit]:
        """Limits of tile groups, which divide the mesh."""
        return group_limits(design.chip, design.mapping)

    def peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of all tiles and channels."""
        return tile_peak_rates(design.chip)

    def phase_energy(self, design: Design, job: BatchArrays, phase: PhaseCost) -> Any:
        """Dynamic energy of a phase; NaN on a submesh. [J]"""
        if phase.activity is None:
            return np.nan
        return dynamic_energy(mesh_work(phase), design.chip, activation_bytes(design.mapping))

    def is_evaluated_alone(self, design: Design) -> bool:
        """Whether a design is evaluated alone, since its share of resident states is its own."""
        return any(plan.state_share is not None for plan in (design.mapping.prefill, design.mapping.decode))

    def breakdown_rows(self, phase: PhaseCost, fidelity: str) -> list[BreakdownRow]:
        """Breakdown rows of one phase by operator."""
        return tiles.breakdown_rows(phase, fidelity)

    def levers(self, worst: Infeasibility, design: Design, arrays: Sequence[BatchArrays]) -> tuple[Lever, ...]:
        """What to change where a tile or a group violates a limit."""
        return tiles.tile_levers(worst, design)


UNBOUNDED_MIXING = ("latent", "indexer", "recurrence", "compressed")
"""Parts of a model whose operators have no bounds over boxes of tiles."""


def refuse_unbounded(model: Model) -> None:
    """Refuse models with operators of which boxes of tiles have no bounds.

    Raises:
        DesignError: naming the part of the model.
    """
    for layer in layers(model).mixings:
        parts = [name for name in UNBOUNDED_MIXING if getattr(layer.of, name) is not None]
        if parts:
            raise DesignError(
                f"model.{parts[0]}: bounds over boxes of tiles are proved for attention with a key and a value for each token; "
                "use another model, or another search"
            )


def _in_tiles(parts: list[TimedBlock], case: BatchCase, chip: Chip, plan: WholeChipPlan) -> list[tuple[str, Any]]:
    """Local memory of a tile in use by kind of operator, besides resident states."""
    share, stay = resident_state_shares(case, chip, plan)
    if not share:
        return local_memory_by_kind(part.block for part in parts)
    # what updates states has those of its own layer among what is set aside
    own = resident_state_bytes(case.model)[1] * case.batch * stay / (chip.mesh.rows * chip.mesh.cols)
    aside = share * chip.tile.sram
    return [
        (name, nbytes + aside - (own if name == "rows" else 0.0))
        for name, nbytes in local_memory_by_kind(part.block for part in parts)
    ]


def _aside(chip: Chip, plan: WholeChipPlan) -> Any:
    """Of a cache in front of main memory, what is set aside for what is read ahead. [B]"""
    return plan.prefetch.share * chip.l2.size if has_read_ahead(plan) and chip.l2 is not None else 0.0


def _timed(
    turns: list[list[CallBlock]], machine: HardwareModel, reader: CostModel, chip: Chip, plan: WholeChipPlan
) -> list[TimedBlock]:
    """Timed blocks of consecutive forward passes, with the prefetch in each."""
    parts, prefetch = block_timeline([block for blocks in turns for block in blocks], machine, reader), plan.prefetch
    if not has_read_ahead(plan):
        return parts
    # without a cache, of what the slices of all operators leave of local memories: nothing, where these are full
    free = (
        maximum(chip.tile.sram - largest_value(nbytes for _, nbytes in local_memory_by_kind(part.block for part in parts)), 0.0)
        * chip.mesh.rows
        * chip.mesh.cols
    )
    policy, budget = prefetch.policy, prefetch.share * free if chip.l2 is None else _aside(chip, plan)
    return [
        timed_block
        for blocks in turns
        for timed_block in timeline_with_read_ahead(blocks, machine, reader, chip, policy, budget)
    ]


def _ahead_bytes(design: Design, phase: str) -> Callable[[Any], Any]:
    """Function from the bytes of slices of a tile to what is read ahead beside them. [B]"""
    chip, plan = design.chip, getattr(design.mapping, phase)
    if not has_read_ahead(plan) or chip.l2 is not None:
        return lambda slices: 0.0
    return lambda slices: plan.prefetch.share * maximum(chip.tile.sram - slices, 0.0)


def _main_memory_parts(design: Design, case: BatchCase, phase: str) -> tuple[tuple[str, float], ...]:
    """Bytes in main memory at the end of a phase, by use. [B]"""
    at = prefill_step(case) if phase == "prefill" else decode_steps(case, "last")[0][1]
    lengths = [(n, prompt + (decoded if phase == "decode" else 0)) for n, prompt, decoded in case.decode_lengths]
    cached = per_reach(case.model, lambda reach: float(sum(n * reach.kept_positions(length) for n, length in lengths)))
    mapping = design.mapping
    away = 1 - (resident_state_shares(case, design.chip, mapping.decode)[1] if phase == "decode" else 0.0)
    return hbm_bytes_by_use(case.model, at, cached, case.batch * away, mapping.precision)
