"""Models on a wafer mesh: regions, core memory, phases, limits and energy.

Both phases run on regions of the mesh, each with its share of the layers. Requests of a batch follow one another
through the regions: with one request one region works at a time, with as many requests as regions all work. Several wafers in
a chain have the layers in order, the same ones in both phases: KV caches stay on their wafer, and all wafers change layout at
the same time.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dse.evaluators.accounting.breakdown import BreakdownRow, excess_by_cause, stage_transfer_rows
from dse.evaluators.accounting.decode_segments import (
    BatchArrays,
    reduce_per_case,
    spread_over_entries,
    sum_per_case,
)
from dse.evaluators.accounting.forward_passes import RegionPass, pass_through_regions
from dse.evaluators.accounting.layout import Layout
from dse.evaluators.accounting.memory_contents import (
    ACTIVATIONS,
    CACHE,
    MemoryContents,
    core_memory_contents,
    main_memory_contents,
    memory_limits,
)
from dse.evaluators.accounting.phase import IterationSchedule, PhaseCost, mesh_work, phase_seconds, useful_operations
from dse.evaluators.accounting.region_levers import chain_levers, mesh_levers, with_chain
from dse.evaluators.accounting.remedies import Lever
from dse.evaluators.accounting.usage import PeakRates, mesh_peak_rates
from dse.evaluators.calls.algorithm_candidates import add_candidates
from dse.evaluators.calls.call import KernelCall, MeshKernel
from dse.evaluators.calls.submesh import kernel_on_submesh, parse_fidelity
from dse.evaluators.cost_models import READERS, cost_model
from dse.evaluators.cost_models.call_cost import CostModel
from dse.evaluators.cost_models.edge_weight_stream import EdgeStream
from dse.evaluators.cost_models.fastest_algorithm import describe_choice, kernels_by_choice
from dse.evaluators.cost_models.kernel_attribution import time_by_cause
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.kernels.gemm.tiling import MAX_CHUNKS, CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.kv import KV, find_kv_method
from dse.evaluators.layouts.micro_batches import fastest_micro_batch_count, micro_batch_counts
from dse.evaluators.layouts.model_weights import model_weight_bytes
from dse.evaluators.layouts.region_algorithms import algorithm_needs, is_left_open, refuse_unknown_algorithms, region_candidates
from dse.evaluators.layouts.region_memory import (
    VALUE,
    CoreMemory,
    region_cache_bytes,
    region_core_memory,
    with_streamed_weights,
)
from dse.evaluators.layouts.regions import Region, make_region, region_blocks
from dse.evaluators.layouts.tensor_formats import refuse_unsupported_formats
from dse.evaluators.machine.chip_chain import chain_crossing
from dse.evaluators.machine.edge_memory import edge_memory
from dse.evaluators.machine.machine import HardwareModel, mesh_program_machine
from dse.evaluators.machine.simulated_channels import reached_share
from dse.evaluators.program.activity import Activity
from dse.evaluators.silicon.energy import dynamic_energy
from dse.space.array_math import ceil_div, maximum, minimum, where
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.errors import choose_option
from dse.space.fields import replace_leaves
from dse.space.layers import per_reach
from dse.space.limits import Infeasibility, Limit
from dse.space.machines import CHAIN_LENGTH
from dse.space.main_memory import CAPACITY_LIMITS, has_main_memory, main_memory
from dse.space.mapping import Mapping, RegionPlan
from dse.space.model import Model
from dse.space.safe_text import count_text


class RegionLayout(Layout):
    """A model on regions of a wafer mesh, which divide its layers; each phase has its own regions."""

    FIDELITIES = ("analytical", "events")
    SUBMESH_FIDELITIES = tuple(READERS)
    SUBMESH_TEXT = (
        "each kernel on a submesh whose cores keep their blocks; times are of submeshes, without layout changes between phases"
    )
    WAIT_LABEL = "regions"

    def phases(self, design: Design, job: BatchArrays, fidelity: str, *, detailed: bool = False) -> tuple[PhaseCost, ...]:
        """Costs of prefill, of decode, and of the transition between their layouts.

        Raises:
            DesignError: an algorithm that is not registered.
        """
        mapping, machine, reader = design.mapping, mesh_program_machine(design.chip), cost_model(fidelity)
        for name, plan in phase_plans(mapping):
            refuse_unknown_algorithms(name, plan)
        choose_option(KV, mapping.kv_placement, "mapping.kv_placement")
        places = _phase_regions(design, job.model)

        def price_pass(name: str, at: StepCounts, turns: Any, generated: Any = 0.0, reader: CostModel = reader) -> RegionPass:
            place = places[name]
            blocks = region_blocks(job.model, at, replace(place, mesh=evaluated_mesh(place.mesh)), mapping, generated)
            if is_left_open(getattr(mapping, name)):
                blocks = add_candidates(blocks, region_candidates(design.chip, getattr(mapping, name), place.mesh))
            stream = _weight_stream(design, job, name, place, fidelity)
            crossing = chain_crossing(design.chip, at.tokens * (job.model.hidden * VALUE), place.chips - 1)
            return pass_through_regions(
                blocks, job.model, place, mapping.simulated_layers, machine, reader, stream, turns, crossing
            )

        def phase(
            name: str, region_pass: RegionPass, runs: Any, schedule: IterationSchedule, useful_share: Any = 1.0
        ) -> PhaseCost:
            timed = region_pass.timed if detailed else ()
            away = region_pass.away
            aways = None if away is None else tuple((away,) * len(timed_block.block.calls) for timed_block in timed)

            main = _main_memory(design, job) if name == "decode" else ()  # the same in both phases

            def useful() -> Any:
                return useful_operations([part.block for part in region_pass.timed], runs * useful_share, schedule.starts)

            return PhaseCost(
                name=name,
                machine=machine,
                seconds=phase_seconds(region_pass.seconds, region_pass.stage, schedule),
                # a submesh has other shares of what is sent and read
                work=None if parse_fidelity(fidelity)[1] else sum_per_case(region_pass.activity * runs, schedule.starts),
                flop=useful,
                memory=(*main, *_core_contents(design, job, name, places[name])),
                timed=timed,
                away=aways,
                runs=runs,
                between=None if design.chip.chain is None else region_pass.between,
                useful_share=useful_share,
            )

        requests = _by_entry(job, "prefill", reduce_per_case(np.add, job.copies, job.prompt_starts))
        pairs = per_reach(job.model, lambda reach: reach.remaining_positions(job.past, job.prompts))
        past = per_reach(job.model, lambda reach: reach.seen_positions(job.past))
        at_work = minimum(requests, places["prefill"].total)
        blocks = price_pass("prefill", StepCounts("prefill", job.prompts, 1.0, pairs, past), at_work)
        prompts = IterationSchedule(job.copies, starts=job.prompt_starts, is_ring=False)
        first = phase("prefill", blocks, job.copies, prompts)

        def price_decode(most: Any, reader: CostModel) -> tuple[Any, Any, RegionPass]:
            """Micro-batches, at most so many, requests of each, and an iteration of one."""
            turns, together = micro_batch_counts(job.requests, most)
            at = StepCounts("decode", together, together, together * job.context, together * job.context)
            return turns, together, price_pass("decode", at, turns, job.generated, reader)

        def step_seconds(most: Any) -> Any:
            turns, _, region_pass = price_decode(most, cost_model("analytical"))
            return phase_seconds(region_pass.seconds, region_pass.stage, IterationSchedule(turns))

        most = places["decode"].total
        if has_main_memory(design.chip):  # weights come once for each micro-batch
            most = fastest_micro_batch_count(most, step_seconds)
        turns, together, blocks = price_decode(most, reader)
        steps = IterationSchedule(turns, job.steps, job.step_starts)
        token = phase("decode", blocks, job.steps * turns, steps, job.requests / (turns * together))
        return first, token, layout_transition(design, job, fidelity)

    def structural_limits(self, design: Design, job: BatchArrays, phases: Sequence[PhaseCost]) -> list[Limit]:
        """Limits of layers, cores, routing paths and chunks of both phases."""
        return structural_limits(design, job)

    def peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of all cores of the wafer, of its links, and of the channels at its edge."""
        chip = design.chip
        return wafer_peak_rates(chip, main_memory(chip).bandwidth if has_main_memory(chip) else np.nan)

    def phase_energy(self, design: Design, job: BatchArrays, phase: PhaseCost) -> Any:
        """Dynamic energy of a phase; NaN on a submesh. [J]"""
        return np.nan if phase.activity is None else dynamic_energy(mesh_work(phase), design.chip)

    def own_metrics(self, design: Design, job: BatchArrays, phases: Sequence[PhaseCost]) -> dict[str, Any]:
        """Time of the transition between layouts, and tokens whose caches fit in local memories."""
        chip, mapping = design.chip, design.mapping
        place = _phase_regions(design, job.model)["decode"]
        room = [
            maximum(chip.core.sram - memory.total + memory.kv, 0.0) // maximum(memory.per_token, 1.0)
            for memory in _held_memory(design, job, "decode", place)
            if np.any(memory.per_token)
        ]
        metrics = {"relayout_time": phases[2].seconds}
        if not room:
            return metrics
        capacity = find_kv_method(mapping.kv_placement).token_capacity(place.mesh.rows, minimum(room[0], room[-1]))
        return metrics | {"kv_capacity": capacity}

    def die_count(self, design: Design) -> Any:
        """Number of wafers: all of a chain, also those without layers."""
        return chip_count(design.chip)

    def submesh_obstacle(self, design: Design) -> str:
        """Why no submesh can represent this design, and the setting to change; empty string if one can."""
        if np.any(chip_count(design.chip) > 1):
            return (
                "chip.chain.chips, whose links carry whole vectors, of which a submesh has a part; set "
                "chip.chain.chips=1, or simulate the whole mesh, fidelity=events"
            )
        if not has_main_memory(design.chip):
            return ""
        return (
            f"chip.{main_memory(design.chip).part}, main memory at an edge, of which no submesh has a share; remove it, as "
            "chip=wse2, or simulate the whole mesh, fidelity=events"
        )

    def breakdown_rows(self, phase: PhaseCost, fidelity: str) -> list[BreakdownRow]:
        """Breakdown rows of one phase by freed resource, or the row of the layout transition."""
        return breakdown_rows(phase, fidelity)

    def levers(self, worst: Infeasibility, design: Design, arrays: Sequence[BatchArrays]) -> Iterable[Lever]:
        """A larger mesh for each phase that violates the limit, or more wafers."""
        return region_levers(worst, design, arrays)


ANALYTICAL = RegionLayout.FIDELITIES[0]

REGION_LAYOUT = RegionLayout()


def wafer_peak_rates(chip: Chip, memory: Any = np.nan) -> PeakRates:
    """Peak rates of a wafer, with the bandwidth of its memory channels, NaN without any. [B/s]"""
    return mesh_peak_rates(chip, 1 / chip.core.mac, memory)


def phase_memory(design: Design, job: BatchArrays, phase: str) -> tuple[CoreMemory, CoreMemory]:
    """Memory of a core in a phase: in a full region, and in the last one."""
    return _held_memory(design, job, phase, _phase_regions(design, job.model)[phase])


def chip_count(chip: Chip) -> Any:
    """Chips that share the layers of a model; 1 without a chain."""
    return 1.0 if chip.chain is None else chip.chain.chips * 1.0


def chain_text(design: Design, model: Model) -> str:
    """How the chips of one design's chain share the layers of a model, and how many have none, as text."""
    place = _phase_regions(design, model)["decode"]
    chips, used = int(chip_count(design.chip)), int(place.chips)
    text = (
        f"{count_text(chips, 'chip')}, {int(place.chip_layers)} of {int(place.all_layers)} layers of {model.name} each at most"
    )
    return text + (f", {chips - used} idle: they count in area, power and price" if chips > used else "")


def _by_entry(job: BatchArrays, phase: str, values: Any) -> Any:
    """Values per case, repeated for each entry of the case in a phase."""
    starts, entries = (job.prompt_starts, job.prompts) if phase == "prefill" else (job.step_starts, job.steps)
    return spread_over_entries(values, starts, len(entries)) if isinstance(entries, np.ndarray) else values


def _weight_stream(
    design: Design, job: BatchArrays, phase: str, place: Region, fidelity: str
) -> Callable[[Any], EdgeStream] | None:
    """Weights of a phase from main memory at the edge, of regions of which so many work at a time; None without one."""
    chip, plan = _chip_of(design), getattr(_mapping_of(design), phase)
    if not has_main_memory(chip):
        return None
    full, last = _held_memory(design, job, phase, place)
    away = _by_entry(job, phase, _away_share((full, last)))
    ahead = _by_entry(job, phase, minimum(full.ahead, last.ahead))
    policy = "partial" if plan.prefetch is None or plan.prefetch.policy == "none" else plan.prefetch.policy
    rows, cols = place.mesh.rows, place.mesh.cols
    share = _reached_share_of(chip, fidelity)
    return lambda at_work: EdgeStream(away, edge_memory(chip, rows, cols, at_work, share), policy, ahead * rows * cols)


def _reached_share_of(chip: Chip, fidelity: str) -> Any:
    """Share of the edge bandwidth that bank simulation reaches; None for the analytical model."""
    return None if fidelity == ANALYTICAL else reached_share(main_memory(chip))


def breakdown_rows(phase: PhaseCost, fidelity: str) -> list[BreakdownRow]:
    """Breakdown rows of one phase by freed resource, or the row of the layout transition."""
    if phase.name == "transition":
        if not np.any(phase.seconds):
            return []
        moved = mesh_work(phase)
        value, sent, loaded = (float(np.max(amount)) for amount in (phase.seconds, moved.sent_bytes, moved.memory_bytes))
        sent += loaded  # over links as well
        return [
            BreakdownRow("transition", "layouts", "reshuffle", "", 0.0, loaded, 0.0, "words", value, {"words": value}, sent, {})
        ]
    rows = []
    assert phase.machine.fabric is not None
    for place, block in enumerate(phase.timed):
        aways = phase.away[place] if phase.away else (0.0,) * len(block.costs)
        each = zip(block.block.calls, block.costs, block.durations, block.resident, aways, strict=True)
        for call, cost, duration, ahead, away in each:
            kernel, times = call.kernel, phase.runs * block.block.times
            assert kernel is not None
            assert cost.activity is not None
            split = time_by_cause(kernel, phase.machine, fidelity)
            parts = {name: float(np.sum(times * kernel.times * value)) for name, value in split.items()}
            if duration is not cost.engines:  # waiting for weights, and storing them
                parts["hbm"] = float(np.sum(times * (duration - cost.engines)))
            total = sum(parts.values())
            if not total:
                continue
            nbytes = float(np.sum(times * call.fetch * away))
            early = float(np.sum(times * ahead)) / nbytes if nbytes and ahead is not None else 0.0
            sent = float(np.sum(cost.activity.sent_bytes * (times * kernel.times * kernel.copies))) + nbytes
            ways = kernels_by_choice(kernel, phase.machine, READERS["analytical"].kernel)
            shape = _shape_text(kernel_on_submesh(ways[0], parse_fidelity(fidelity)[1])) + describe_choice(kernel, ways)
            bound = max(parts, key=lambda name: parts[name])
            flop = float(np.sum(times * phase.useful_share * call.flop))
            excess = None if parse_fidelity(fidelity)[1] else _excess_flop(call, cost.activity, times, phase.useful_share)
            row = BreakdownRow(phase.name, call.part, call.name, shape, flop, nbytes, early, bound, total, parts, sent, excess)
            rows.append(row)
    return rows if phase.between is None else rows + stage_transfer_rows(phase.name, phase.runs, phase.between, "chips")


def _excess_flop(call: KernelCall, done: Activity, times: Any, useful_times: Any) -> dict[str, float]:
    """What cores execute of a call beside useful operations, by cause; of vectors only where their work is useful.

    Requests that no region has, where their number is no multiple, are padding.
    """
    kernel = call.kernel
    assert kernel is not None
    counted = done.macs if kernel.kind in ("gemm", "gemv") or not np.any(call.flop) else done.elements
    executed = 2.0 * counted * (kernel.times * kernel.copies)
    useful = (call.flop * useful_times, call.masked * useful_times, call.repeated * useful_times)
    return excess_by_cause(*(float(np.sum(times * value)) for value in (executed, *useful)))


def region_levers(worst: Infeasibility, design: Design, arrays: Sequence[BatchArrays]) -> Iterator[Lever]:
    """A larger mesh for each phase that violates the limit, or more wafers; else advice by limit."""
    if worst.limit == CHAIN_LENGTH:
        yield Lever(
            f"wafers with main memory at an edge (chip.{main_memory(design.chip).part}) do not share a model: "
            "chip.chain.chips=1, or remove that memory"
        )
        return
    if worst.limit in CAPACITY_LIMITS:
        yield Lever(f"all weights are in main memory: enlarge it ({worst.limit}), or choose a smaller model")
        return
    if worst.limit == "mapping.simulated_layers":
        layers = min(job.model.layers for job in arrays)
        whole = "all layers are read from main memory here: mapping.simulated_layers=0"
        few = f"the model has {layers} layers: mapping.simulated_layers=0 keeps all"
        yield Lever(whole if has_main_memory(_chip_of(design)) else few)
        return

    def limits(changes: dict[str, Any], phase: str = "") -> list[Limit]:
        trial = replace_leaves(design if CHAIN_LENGTH not in changes else with_chain(design), changes)
        return [limit for job in arrays for limit in _all_limits(trial, job, phase)]

    for phase, plan in phase_plans(_mapping_of(design)):
        of_phase = partial(limits, phase=phase)
        yield Lever("", limits=of_phase, subject=phase)  # nothing is said of a phase that fits as it is
        yield from mesh_levers(phase, of_phase, f"mapping.{phase}", plan, _chip_of(design))
    if worst.limit == "chip.core.sram" and not has_main_memory(design.chip):
        yield from chain_levers(limits, design, max(job.model.layers for job in arrays))


def evaluated_mesh(mesh: CoreMesh) -> CoreMesh:
    """Mesh used for costs: a mesh that would need too many chunks (a limit) counts as a square."""
    return (
        CoreMesh(mesh.rows, where(_chunk_count(mesh) > MAX_CHUNKS, mesh.rows, mesh.cols))
        if mesh.rows is not mesh.cols
        else mesh
    )


def chunk_limit(address: str, chunks: Any) -> Limit:
    """Limit that the sides of a mesh have a small common multiple."""
    return Limit(address, chunks, float(MAX_CHUNKS), "1", (("least common multiple of rows and columns", chunks),))


def _chunk_count(mesh: CoreMesh) -> Any:
    return mesh.chunks * 1.0


def layout_transition(design: Design, job: BatchArrays, fidelity: str) -> PhaseCost:
    """Cost of the change from prefill's layout to that of decode: weights, and caches of prompts.

    A static batch changes once, after its first tokens and before its first decode step: in latency, neither in TTFT nor in
    TPOT. A wafer that serves changes both ways in every iteration with prompts, so that both are in TTFT
    (`serving_instances/regions.py`).
    """
    machine = mesh_program_machine(design.chip)
    moved = _reshuffle_cost(design, job, machine, fidelity)
    return PhaseCost(name="transition", machine=machine, seconds=moved.seconds, work=moved.activity)


def _reshuffle_cost(design: Design, job: BatchArrays, machine: HardwareModel, fidelity: str) -> KernelCost:
    """Change from one phase's layout to the other's, if they differ and decode follows; none on a submesh.

    Chips of a chain change at the same time, each what it has of the layers; weights of the head count as a share of these.
    """
    if parse_fidelity(fidelity)[1]:
        return KernelCost(0.0, Activity())
    chip, mapping, places = _chip_of(design), _mapping_of(design), _phase_regions(design, job.model)
    resident = where(mapping.simulated_layers == 0, 1.0, mapping.simulated_layers / job.model.layers)
    # in values of 16 bits
    cached = sum(nbytes / VALUE for nbytes in region_cache_bytes(job.model, mapping, job.prompt_kept, job.sequences))
    weights = model_weight_bytes(job.model, mapping.precision) / VALUE * resident
    before, after = places["prefill"], places["decode"]
    same = (before.mesh.rows == after.mesh.rows) * (before.mesh.cols == after.mesh.cols) * (before.count == after.count)
    moved = where(same, 0.0, 1.0) * where(job.decode_steps > 0, 1.0, 0.0)

    share = layer_share_of_chip(before)

    def reshuffled(values: Any) -> KernelCost:
        rectangle, into = _region_rectangle(before, chip), _region_rectangle(after, chip)
        kernel = MeshKernel("", "", "move", "reshuffle", GemmShape(1.0, 1, values * share), rectangle, {"into": into})
        cost = READERS["analytical"].kernel(kernel, machine)
        return KernelCost(cost.seconds * moved, cost.activity * (moved / share))

    if not has_main_memory(chip):
        return reshuffled(weights + cached)
    first, then = (1 - _away_share(_held_memory(design, job, name, places[name])) for name in ("prefill", "decode"))
    both = minimum(first, then)
    border = edge_memory(chip, after.mesh.rows, after.mesh.cols, after.count, _reached_share_of(chip, fidelity))

    def loaded(values: Any, cost: KernelCost) -> KernelCost:
        nbytes = values * VALUE
        came = Activity(hop_bytes=nbytes * border.hops, memory_bytes=nbytes)
        return KernelCost(cost.seconds + nbytes * (border.byte / after.count), cost.activity + came)

    # weights that stay in both phases go from layout to layout, or come anew
    kept, anew = (
        loaded((then - both) * weights, reshuffled(weights * both + cached)),
        loaded(then * weights, reshuffled(cached)),
    )
    quicker = where(kept.seconds <= anew.seconds, 1.0, 0.0)
    return KernelCost(minimum(kept.seconds, anew.seconds), kept.activity * quicker + anew.activity * (1 - quicker))


def _away_share(regions: tuple[CoreMemory, CoreMemory]) -> Any:
    """Share of weights read from main memory each time, of the region with the larger share."""
    return maximum(regions[0].away, regions[1].away)


def layer_share_of_chip(place: Region) -> Any:
    """Share of all layers that a full chip has: 1 without a chain. [1]"""
    return place.chip_layers / place.all_layers


def phase_plans(mapping: Mapping) -> tuple[tuple[str, RegionPlan], ...]:
    """Plans of prefill and decode with their names."""
    return ("prefill", mapping.prefill), ("decode", mapping.decode)


def _region_rectangle(place: Region, chip: Chip) -> CoreMesh:
    """Cores of all regions of a phase, side by side and then below one another."""
    room = maximum(chip.mesh.cols // place.mesh.cols, 1)
    wide = minimum(place.count * 1.0, room)
    return CoreMesh(place.mesh.rows * -(-place.count // wide), place.mesh.cols * wide)


def _phase_regions(design: Design, model: Model) -> dict[str, Region]:
    chip, mapping = _chip_of(design), _mapping_of(design)
    layers = where(mapping.simulated_layers == 0, model.layers * 1.0, minimum(mapping.simulated_layers * 1.0, model.layers))
    chips = chip_count(chip)
    return {name: make_region(plan, chip.mesh.rows, chip.mesh.cols, layers, chips) for name, plan in phase_plans(mapping)}


def _held_memory(design: Design, job: BatchArrays, phase: str, place: Region) -> tuple[CoreMemory, CoreMemory]:
    chip, mapping = _chip_of(design), _mapping_of(design)
    if phase == "prefill":
        longest = reduce_per_case(np.maximum, job.prompts, job.prompt_starts)
        cached, past = (
            ceil_div(job.prompt_kept, place.mesh.rows),
            per_reach(job.model, lambda reach: reach.seen_positions(job.past)),
        )
        core_memory = region_core_memory(
            job.model, place, mapping, tokens=longest, cached=cached, scores=True, sequences=job.sequences, past=past
        )
    else:
        rows, cols = (_fullest_line_tokens(job, mapping, lines) for lines in (place.mesh.rows, place.mesh.cols))
        core_memory = region_core_memory(
            job.model, place, mapping, tokens=1.0, cached=rows, scores=False, across=cols, sequences=job.sequences
        )
    if not has_main_memory(chip):
        return core_memory
    plan = getattr(mapping, phase).prefetch
    cap = 0.0 if plan is None or plan.policy == "none" else plan.share
    return with_streamed_weights(core_memory[0], chip.core.sram, cap), with_streamed_weights(
        core_memory[1], chip.core.sram, cap
    )


def _fullest_line_tokens(job: BatchArrays, mapping: Mapping, lines: Any) -> Any:
    """Tokens on the line of cores that has most when the last one is generated, of all requests."""
    return find_kv_method(mapping.kv_placement).fullest_row_tokens(job.cached, job.cached - job.prompt_kept, lines)


def _main_memory(design: Design, job: BatchArrays) -> tuple[MemoryContents, ...]:
    """Contents of main memory at the edge, which has all weights; empty without one."""
    chip = design.chip
    if not has_main_memory(chip):
        return ()
    weights = model_weight_bytes(job.model, design.mapping.precision)
    return (main_memory_contents(chip, (("weights", weights),)),)


def _core_contents(design: Design, job: BatchArrays, phase: str, place: Region) -> list[MemoryContents]:
    """Contents of the local memory of the fullest core, of full regions and of the last one."""
    contents = []
    for which, held in zip(("", ", last region"), _held_memory(design, job, phase, place), strict=True):
        parts = [
            (f"{phase} weights{which}", held.weights),
            (CACHE, held.kv),
            (ACTIVATIONS, held.activations),
            ("buffers", held.buffers),
        ]
        if np.any(held.states):
            parts.append(("states", held.states))
        contents.append(core_memory_contents(design.chip, tuple(parts)))
    return contents


def all_contents(design: Design, job: BatchArrays, only: str = "") -> list[MemoryContents]:
    """Contents of main memory and of the fullest cores, in both phases or in one."""
    places = _phase_regions(design, job.model)
    names = [name for name in places if only in ("", name)]
    return [
        *_main_memory(design, job),
        *(memory for name in names for memory in _core_contents(design, job, name, places[name])),
    ]


def _all_limits(design: Design, job: BatchArrays, only: str) -> list[Limit]:
    """Limits of memories and of structure, of one phase."""
    return [*memory_limits(all_contents(design, job, only)), *structural_limits(design, job, only)]


def structural_limits(design: Design, job: BatchArrays, only: str = "") -> list[Limit]:
    """Limits of layers, cores, routing paths and chunks, of both phases or of one."""
    chip, mapping = design.chip, design.mapping
    refuse_unsupported_formats(mapping.precision)
    layers, resident_layers = job.model.layers * 1.0, mapping.simulated_layers * 1.0
    if not has_main_memory(chip):
        limits = [Limit("mapping.simulated_layers", resident_layers, layers, "1")]
    else:  # none stands for another: what is not on the chip comes from main memory
        least = where(resident_layers == 0, layers, minimum(layers, resident_layers))
        limits = [Limit("mapping.simulated_layers", maximum(layers, resident_layers), least, "1")]
    if chip.chain is not None and has_main_memory(chip):  # whose share of each wafer nothing divides
        limits.append(Limit(CHAIN_LENGTH, chip.chain.chips * 1.0, 1.0, "1"))
    places = _phase_regions(design, job.model)
    for name, plan in phase_plans(mapping):
        if only and name != only:
            continue
        mesh = places[name].mesh
        limits.append(Limit("chip.mesh.rows", mesh.rows, chip.mesh.rows, "1"))
        limits.append(Limit("chip.mesh.cols", mesh.cols, chip.mesh.cols, "1"))
        room = (chip.mesh.rows // mesh.rows) * (chip.mesh.cols // mesh.cols)
        limits.append(Limit(f"mapping.{name}.regions", maximum(plan.regions, 1), maximum(room, 1.0), "1"))
        least, paths = algorithm_needs(chip, plan, name, mesh)
        limits.append(Limit(f"mapping.{name}.rows", least, minimum(mesh.rows, mesh.cols), "1"))
        limits.append(Limit("chip.noc.routing_paths", paths, chip.noc.routing_paths, "1"))
        if name == "prefill":
            limits.append(chunk_limit("mapping.prefill.cols", _chunk_count(mesh)))
    return limits


def _shape_text(kernel: MeshKernel) -> str:
    m, k, n = (float(np.ravel(value)[0]) for value in (kernel.shape.m, kernel.shape.k, kernel.shape.n))
    cores_text = f"{float(np.ravel(kernel.mesh.rows)[0]):.0f} x {float(np.ravel(kernel.mesh.cols)[0]):.0f} cores"
    return (
        f"{m:.0f} x {k:.0f} x {n:.0f} on {cores_text}"
        if kernel.kind in ("gemm", "gemv")
        else f"{m:.0f} x {k:.0f} on {cores_text}"
    )


def _chip_of(design: Design) -> Chip:
    return design.chip


def _mapping_of(design: Design) -> Mapping:
    return design.mapping
