"""Wafers that serve requests: an instance is a wafer or a chain of them, with regions for each phase.

The kernels of a phase cannot include work of the other phase, so an iteration with prompts and decodes runs them in
turn. Prompts follow one another through the regions of prefill, each after its cached tokens. Then one token of every
decoding request passes the regions of decode, both as in a static batch (`accounting/regions.py`). Weights lie in the
cores for both phases, so a common forward pass would not read fewer. Prompts are known by their tokens and mean
context, and taken as whole and equal as far as these allow: T / (2 c - 1) prompts of 2 c - 1 tokens, else one chunk of
T with the remaining past.

Where the regions of the two phases differ, the wafer changes layout: for every iteration with prompts, weights and
cached values of these prompts move to the layout of prefill, and return with the new keys and values. Caches of other
requests stay, so there is room for those that fit beside either phase. The move is charged in both directions for each
iteration with prompts, which is slower than one change for several iterations. A static batch begins in the layout of
prefill: by the way there a request that is served alone takes longer. Where the regions are equal nothing moves.
Wafers that only prefill, or only decode, keep their layout, and KV caches go by the host between them. Wafers of a chain
have the same layers in both phases, so that each moves its own, by its own host, at the same time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dse.evaluators.accounting import regions
from dse.evaluators.accounting.breakdown import BreakdownRow, scale_row
from dse.evaluators.accounting.decode_segments import BatchArrays
from dse.evaluators.accounting.memory_contents import MemoryContents
from dse.evaluators.accounting.phase import PhaseCost, mesh_work
from dse.evaluators.accounting.regions import REGION_LAYOUT
from dse.evaluators.accounting.remedies import Lever
from dse.evaluators.accounting.serving_instances import Composition, IterationCounts, ServingInstance, iteration_time_key
from dse.evaluators.accounting.serving_instances.instance_layout import InstanceLayout
from dse.evaluators.accounting.serving_instances.lower_bounds import WorkLowerBounds, budget_lanes, prefill_flop_per_token
from dse.evaluators.accounting.serving_instances.prompt_table_points import (
    distinct_prompt_lengths,
    equal_prompts,
    table_points,
)
from dse.evaluators.accounting.serving_instances.served_work import ServedWork
from dse.evaluators.accounting.serving_runs import steady_state_run as steady
from dse.evaluators.accounting.serving_runs.kv_transfers import KvPath
from dse.evaluators.accounting.usage import PeakRates
from dse.evaluators.graph.operators import useful_flop
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.kernels.kv import find_kv_method
from dse.evaluators.layouts.region_memory import CoreMemory, region_cache_bytes
from dse.evaluators.layouts.regions import Region, make_region
from dse.evaluators.program.activity import Activity
from dse.evaluators.serving.kv_memory import RequestMemory, request_memory
from dse.evaluators.serving.scheduling_policy import max_prompt_tokens, pool_policies
from dse.evaluators.silicon.energy import dynamic_energy, host_transfer_energy
from dse.space.array_math import Array
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.layers import per_reach, value_of_widest_reach
from dse.space.limits import Infeasibility, Limit
from dse.space.mapping import Mapping
from dse.space.serving_plan import is_disaggregated, pool_phases, served_chips
from dse.space.workload import ServingLoad

PHASES = ("prefill", "decode")

EQUAL_TOLERANCE = 1e-9
"""Of the time of a phase, what its rows may leave unsaid."""


class RegionServing(InstanceLayout):
    """Instances of wafers with regions of cores for either phase."""

    HAS_MAIN_MEMORY = False
    POWER_ONE_BY_ONE = True

    def memory_contents(self, design: Design, load: ServingLoad) -> list[MemoryContents]:
        """Contents of cores for one request with the longest prompt and cache; other requests queue."""
        return regions.all_contents(design, _longest_job(load), only=design.mapping.serving.pool or "")

    def structural_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits of layers, cores, routing paths and chunks."""
        return regions.structural_limits(design, _longest_job(load), only=design.mapping.serving.pool or "")

    def instances(self, design: Design, load: ServingLoad, fidelity: str) -> tuple[ServingInstance, ...]:
        """Serving instance of each pool of wafers, with the KV memory left by its phases."""
        _, mapping = _chip_and_mapping(design)
        room, instances = _wafer_request(design, load), list[ServingInstance]()
        for names in [(phase,) for phase in pool_phases(mapping.serving)] if is_disaggregated(mapping.serving) else [PHASES]:

            def pricing(
                prompt: Array, prompt_context: Array, decodes: Array, context: Array, spilled: Array, names: Any = names
            ) -> Array:
                changing = "decode" in names
                prompts = _seconds_where_positive(
                    (prompt, prompt_context), lambda t, c: _prefill_seconds(design, load, t, c, fidelity, changing)
                )
                tokens = _seconds_where_positive((decodes, context), lambda d, c: _decode_seconds(design, load, d, c, fidelity))
                return np.where((prompt > 0) | (decodes > 0), prompts + tokens, np.nan)

            free = min(_free_bytes(design, load, name, room) for name in names)
            begun = float(load.requests.prompt.mean())
            axes = partial(table_points, steps=_region_places(design, load), begun=begun, whole=distinct_prompt_lengths(load))
            instances.append(ServingInstance(pricing, free, room, axes, key=iteration_time_key(design, load, names, fidelity)))
        return tuple(instances)

    def kv_path(self, design: Design, load: ServingLoad) -> KvPath:
        """Path of KV caches by way of the hosts of all wafers, whose latency is left out."""
        chip, mapping = _chip_and_mapping(design)
        request = _wafer_request(design, load)
        seconds = request.times(1 / float(mapping.serving.host_bandwidth))
        return KvPath(seconds, 0.0, request.times(1 / _chip_share(design, load)), 2.0, host_transfer_energy(2.0, chip))

    def work_lower_bounds(self, design: Design, load: ServingLoad) -> WorkLowerBounds:
        """Lower bounds of wafers: prompt time on all cores; resident weights bound no decode time."""
        chip, mapping = _chip_and_mapping(design)
        each = chip.core.mac / chip.clock / (chip.mesh.rows * chip.mesh.cols * regions.chip_count(chip))
        return WorkLowerBounds(
            self.device_count(design), prompt=prefill_flop_per_token(load.model) / 2 * each, lanes=budget_lanes(mapping.serving)
        )

    def untimed_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits that need no iteration times, which are all; leaves broadcast over designs."""
        return self.limits(design, load)

    def decode_step_seconds(self, design: Design, load: ServingLoad, context: float) -> Any:
        """Time of an iteration that decodes one request at a context length; larger batches take no less. [s]"""
        return np.ravel(
            REGION_LAYOUT.phases(design, _token_job(load, np.ones(1), np.array([context])), "analytical")[1].seconds
        )

    def prefill_token_seconds(self, design: Design, load: ServingLoad) -> Any:
        """Least time per prompt token, from the points of a steady-state table. [s]

        Times are linear in tokens between table points, and a prompt is evaluated alone, whatever precedes it.
        """
        most = max(max_prompt_tokens(rule, 1, load.longest) for rule in pool_policies(_chip_and_mapping(design)[1].serving))
        tokens, before, *_ = steady.coarse_table_points(lambda *_: [np.zeros(1)], load)(most, load.longest, 1, load.longest)
        chunk_tokens, past = (np.ravel(count) for count in np.broadcast_arrays(tokens[1:, None], before[before >= 0]))
        seconds = REGION_LAYOUT.phases(design, _prompt_job(load, chunk_tokens, past + (chunk_tokens + 1) / 2), "analytical")[
            0
        ].seconds
        return np.min(seconds / chunk_tokens[:, None], axis=0)

    def devices_per_cache(self, design: Design, load: ServingLoad) -> tuple[Any, ...]:
        """Chips that share a request's KV cache, in full chips: those of a chain; not a whole number."""
        chips = 1 / _chip_share(design, load)
        return (chips, chips)

    def peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of one wafer, which has no main memory for served loads."""
        return regions.wafer_peak_rates(design.chip)

    def work_of_iterations(self, design: Design, load: ServingLoad, done: IterationCounts, fidelity: str) -> ServedWork:
        """Work of iterations: prompts, changes of layout, and tokens."""
        activity, useful = Activity(), 0.0
        for pool, iterations in enumerate(done):
            for times, made_of in iterations:
                useful += times * _useful_operations(load, made_of)
                for _, phase in _iteration_phases(design, load, pool, made_of, fidelity):
                    activity = activity + mesh_work(phase) * times
        hop_bytes = float(np.max(activity.hop_bytes))
        return ServedWork(useful, np.nan, hop_bytes, lambda: float(np.max(dynamic_energy(activity, design.chip))))

    def iteration_energies(
        self, design: Design, load: ServingLoad, pool: int, made_of: Composition, fidelity: str
    ) -> list[tuple[Any, Any]]:
        """Time and energy of prompts, layout changes and tokens of an iteration."""
        parts = (phase for _, phase in _iteration_phases(design, load, pool, made_of, fidelity))
        chip = design.chip
        return [
            (float(np.max(part.seconds)), float(np.max(dynamic_energy(mesh_work(part), chip))))
            for part in parts
            if part.activity
        ]

    def iteration_rows(
        self, design: Design, load: ServingLoad, pool: int, times: float, made_of: Composition, fidelity: str
    ) -> Sequence[BreakdownRow]:
        """Breakdown rows of an iteration: kernels, and changes of layout."""
        found_rows: list[BreakdownRow] = []
        for what, phase in _iteration_phases(design, load, pool, made_of, fidelity):
            rows = regions.breakdown_rows(phase, fidelity)
            seconds = float(np.max(phase.seconds))
            gap = seconds - sum(row.seconds for row in rows)
            if abs(gap) > EQUAL_TOLERANCE * seconds:
                name = "overlap of requests"
                rows.append(
                    BreakdownRow("", REGION_LAYOUT.WAIT_LABEL, name, "", 0.0, 0.0, 0.0, "overlap", gap, {"overlap": gap})
                )
            found_rows += [scale_row(replace(row, segment=f"{what}{row.segment}"), times) for row in rows]
        return found_rows

    def levers(self, worst: Infeasibility, design: Design, loads: tuple[ServingLoad, ...]) -> Iterable[Lever]:
        """A larger mesh for each phase that violates the limit, or more wafers."""
        return regions.region_levers(worst, design, tuple(_longest_job(load) for load in loads))

    def device_count(self, design: Design) -> Any:
        """Number of chips of all instances."""
        return served_chips(design.mapping.serving) * regions.chip_count(design.chip)


def _seconds_where_positive(counts: tuple[Array, Array], seconds: Any) -> Array:
    """Seconds where the first count is above 0, in the shape that both broadcast to, and 0 elsewhere."""
    first, second = np.broadcast_arrays(*counts)
    table, positive = np.zeros(first.shape), first > 0
    if positive.any():
        table[positive] = seconds(first[positive], second[positive])
    return table


def _prefill_seconds(design: Design, load: ServingLoad, tokens: Array, context: Array, fidelity: str, changing: bool) -> Array:
    """Seconds of the prompts of iterations, and of the ways between layouts; shape (iterations,)."""
    job = _prompt_job(load, tokens, context)
    flat_terms = _flat_seconds(REGION_LAYOUT.phases(design, job, fidelity)[0], len(tokens))
    if changing:
        for moving in _transition_jobs(load, job):
            flat_terms = flat_terms + _flat_seconds(regions.layout_transition(design, moving, fidelity), len(tokens))
    return flat_terms


def _decode_seconds(design: Design, load: ServingLoad, requests: Array, context: Array, fidelity: str) -> Array:
    """Seconds of a token of each request; shape (iterations,)."""
    return _flat_seconds(REGION_LAYOUT.phases(design, _token_job(load, requests, context), fidelity)[1], len(requests))


def _flat_seconds(phase: PhaseCost, count: int) -> Array:
    return np.broadcast_to(np.ravel(phase.seconds), (count,))


def _iteration_phases(
    design: Design, load: ServingLoad, pool: int, made_of: Composition, fidelity: str
) -> list[tuple[str, PhaseCost]]:
    """Of an iteration: prompts, ways between layouts, and tokens, as far as there are such; and what their rows begin with."""
    prompt, prompt_context, decodes, context = (np.array([count]) for count in made_of[:4])
    phases: list[tuple[str, PhaseCost]] = []
    if prompt > 0:
        job = _prompt_job(load, prompt, prompt_context)
        phases.append(("", REGION_LAYOUT.phases(design, job, fidelity, detailed=True)[0]))
        if pool_phases(design.mapping.serving)[pool] == "decode":
            ways = (regions.layout_transition(design, moving, fidelity) for moving in _transition_jobs(load, job))
            phases += zip(("to prefill: ", "to decode: "), ways, strict=True)
    if decodes > 0:
        phase = REGION_LAYOUT.phases(design, _token_job(load, decodes, context), fidelity, detailed=True)[1]
        phases.append(("decode: " if prompt > 0 else "", phase))
    return phases


def _prompt_job(load: ServingLoad, tokens: Array, context: Array) -> BatchArrays:
    """Equal prompts of iterations, as far as their tokens and mean context allow."""
    copies, own, past = equal_prompts(tokens, context)
    return _iteration_job(load, prompts=own[:, None], copies=copies[:, None], past=past[:, None])


def _token_job(load: ServingLoad, requests: Array, context: Array) -> BatchArrays:
    """A token of each request, which has generated what its context is longer than a prompt."""
    generated = np.maximum(context - float(load.requests.prompt.mean()), 0.0)[:, None]
    near = per_reach(load.model, lambda reach: reach.seen_positions(context)[:, None])
    return _iteration_job(
        load, requests=requests[:, None], context=near, generated=np.minimum(generated, value_of_widest_reach(near))
    )


def _transition_jobs(load: ServingLoad, job: BatchArrays) -> tuple[BatchArrays, BatchArrays]:
    """To the layout of prefill with what is cached of its prompts, and back with what they add."""
    moved_tokens = job.copies * job.past
    return _iteration_job(load, moved=moved_tokens), _iteration_job(load, moved=moved_tokens + job.copies * job.prompts)


def _longest_job(load: ServingLoad) -> BatchArrays:
    """The longest prompt, and the longest cache."""
    prompt = float(load.requests.prompt.max())
    return _iteration_job(load, prompts=prompt, moved=prompt, cached=float(max(load.longest - 1, prompt)))


def _iteration_job(
    load: ServingLoad,
    *,
    prompts: Any = 1.0,
    copies: Any = 1.0,
    past: Any = 0.0,
    requests: Any = 1.0,
    context: Any = 1.0,
    generated: Any = 0.0,
    moved: Any = 1.0,
    cached: Any = 1.0,
) -> BatchArrays:
    """Iterations as the account of batches knows them: prompts, and one step of decode; arrays of shape (iterations, 1)."""
    pairs, seen = (
        per_reach(load.model, lambda reach: reach.remaining_positions(past, prompts)),
        per_reach(load.model, lambda reach: reach.seen_positions(past)),
    )
    return BatchArrays(
        model=load.model, rows=(0,), cases=(), decode_context="mean", prompts=prompts, copies=copies, past=past,
        prompt_starts=_entry_starts(prompts), steps=1.0, requests=requests, context=context, generated=generated,
        step_starts=_entry_starts(requests),
        prefill=StepCounts("prefill", copies * prompts, copies, copies * pairs, copies * seen),
        decode=StepCounts("decode", requests, requests, requests * context, requests * context), prompt_tokens=moved,
        output_tokens=1.0, decode_tokens=1.0, decode_steps=1.0,
        cached=per_reach(load.model, lambda reach: reach.kept_positions(cached)), longest=prompts, sequences=1.0,
        prompt_kept=per_reach(load.model, lambda reach: reach.kept_positions(moved)),
    )  # fmt: skip


def _entry_starts(values: Any) -> Any:
    return np.arange(len(values)) if isinstance(values, np.ndarray) else None


def _held_memory(design: Design, load: ServingLoad, phase: str) -> tuple[CoreMemory, CoreMemory]:
    """Core memory for the longest request: in a full region, and in the last one."""
    return regions.phase_memory(design, _longest_job(load), phase)


def _free_bytes(design: Design, load: ServingLoad, phase: str, room: RequestMemory) -> float:
    """KV memory that a phase leaves free; for states alone, as many as fit on the fullest core. [B]"""
    if room.position:
        return _position_room(design, load, phase) * float(room.position)
    sram, held = float(_chip_and_mapping(design)[0].core.sram), _held_memory(design, load, phase)
    return float(
        min(
            max(float(sram - memory.total + memory.states), 0.0) / float(memory.per_sequence)
            for memory in held
            if memory.per_sequence
        )
        * room.fixed
    )


def _position_room(design: Design, load: ServingLoad, phase: str) -> float:
    """Cached positions of all requests that a phase has memory for, on the fullest row of cores."""
    chip, mapping = _chip_and_mapping(design)
    rows = float(getattr(mapping, phase).rows)
    core = min(
        max(float(chip.core.sram - memory.total + memory.kv), 0.0) // memory.per_token
        for memory in _held_memory(design, load, phase)
        if memory.per_token
    )
    # of as many requests as make rows even
    positions, generated = (
        rows * float(lengths.sum()) for lengths in (load.requests.prompt + load.requests.output, load.requests.output)
    )
    return float(core * positions / find_kv_method(mapping.kv_placement).fullest_row_tokens(positions, generated, rows))


def _region_places(design: Design, load: ServingLoad) -> tuple[int, int, int]:
    """Rows of cores in prefill, regions in decode, and rows of cores there."""
    mapping = _chip_and_mapping(design)[1]
    return int(mapping.prefill.rows), int(_decode_region(design, load).total), int(mapping.decode.rows)


def _decode_region(design: Design, load: ServingLoad) -> Region:
    chip, mapping = _chip_and_mapping(design)
    layers = float(load.model.layers)
    return make_region(mapping.decode, chip.mesh.rows, chip.mesh.cols, layers, regions.chip_count(chip))


def _chip_share(design: Design, load: ServingLoad) -> float:
    """Share of a request's KV cache that the fullest wafer has. [1]"""
    return float(regions.layer_share_of_chip(_decode_region(design, load)))


def _wafer_request(design: Design, load: ServingLoad) -> RequestMemory:
    """What a request has on a wafer, the fullest of a chain."""
    mapping = _chip_and_mapping(design)[1]

    def nbytes(cached: Any, sequences: float) -> float:
        return float(sum(region_cache_bytes(load.model, mapping, cached, sequences)))

    return request_memory(load.model, nbytes).times(_chip_share(design, load))


def _useful_operations(load: ServingLoad, made_of: Composition) -> float:
    """Useful operations of the model in an iteration. [op]"""
    prompt, prompt_context, decodes, context = (np.array([count]) for count in made_of[:4])
    steps = []
    if prompt > 0:
        steps.append(_prompt_job(load, prompt, prompt_context).prefill)
    if decodes > 0:
        steps.append(_token_job(load, decodes, context).decode)
    return sum(
        float(np.sum(part.times * useful_flop(operator)))
        for at in steps
        for part in transformer_segments(load.model, at)
        for operator in part.operators
    )


def _chip_and_mapping(design: Design) -> tuple[Chip, Mapping]:
    return design.chip, design.mapping
