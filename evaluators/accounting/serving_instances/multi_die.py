"""Many dies that serve requests: an instance is the dies over which a replica of the model is divided.

An iteration is a micro-batch's pass through all stages, of which there are as many in flight. Its prompts and decoding requests
are dealt to copies of attention in turn (data parallelism of attention). Each die takes as long as those of the copy that has
most: the others wait for it where they meet, as engines do that have idle ranks run along. Experts have all copies' tokens.

Prompts and decodes share a pass, by the plan of prefill; latent attention and states have a form for each, done apart in it. A
table has each kind by itself; what decodes add beside prompts is what as many more tokens take, evenly over copies, and what
is theirs alone, as their attention.

Instances that prefill are on the first rows of dies, those that decode on the rows after them, and caches go over the links
between them: all that can be on their way are, beside nothing else.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from dse.evaluators.accounting import multi_die as many_dies
from dse.evaluators.accounting.breakdown import BreakdownRow, overhead_rows, padding_row, scale_row
from dse.evaluators.accounting.decode_segments import arrays_of_cases
from dse.evaluators.accounting.device_rates import device_peak_rates, fastest_speedup
from dse.evaluators.accounting.engine_memory import (
    EngineDemand,
    cached_positions,
    engine_limits,
    engine_memory,
    keeps_windows_alone,
)
from dse.evaluators.accounting.memory_contents import MemoryContents, main_memory_contents, request_room
from dse.evaluators.accounting.memory_placement import (
    ServedPlacement,
    memories_contents,
    place_served,
    prefix_room,
    refuse_staged_tiers,
)
from dse.evaluators.accounting.multi_die import (
    HIDDEN_LABEL,
    DieKind,
    PassWork,
    pass_work,
    units_per_stage,
)
from dse.evaluators.accounting.multi_die_limits import (
    chip_die_count,
    die_levers,
    equal_split_limit,
    phase_layout_limits,
    port_limit,
)
from dse.evaluators.accounting.multi_die_memory import (
    COPIES,
    ROUTED,
    cache_bytes,
    ffn_weight_bytes,
    layers_of_units,
    unit_weight_bytes,
    weight_bytes_by_kind,
)
from dse.evaluators.accounting.remedies import Lever, advise
from dse.evaluators.accounting.serving_instances import Composition, IterationCounts, ServingInstance, iteration_time_key
from dse.evaluators.accounting.serving_instances.design_parts import DesignPart, single_rows
from dse.evaluators.accounting.serving_instances.die_iteration_rows import DieIteration, iteration_work_rows, run_activity
from dse.evaluators.accounting.serving_instances.instance_layout import InstanceLayout, instance_advice_text
from dse.evaluators.accounting.serving_instances.lower_bounds import (
    WorkLowerBounds,
    prefill_flop_per_token,
    weight_bytes_read,
)
from dse.evaluators.accounting.serving_instances.multi_die_iterations import (
    DiePool,
    ReplicaWork,
    composition_counts,
    die_pools,
    iteration_overheads,
    largest_iterations,
    part_time_tables,
    phase_split_of_pool,
    replica_work,
    typical_iteration,
    whole_iteration,
    whole_prompts,
    whole_requests,
)
from dse.evaluators.accounting.serving_instances.prompt_table_points import distinct_prompt_lengths
from dse.evaluators.accounting.serving_instances.served_die import ServedDie, TightestStage
from dse.evaluators.accounting.serving_instances.served_work import ServedWork
from dse.evaluators.accounting.serving_runs import steady_state_run as steady
from dse.evaluators.accounting.serving_runs.kv_transfers import KvPath
from dse.evaluators.accounting.usage import PeakRates, fastest_product_rate
from dse.evaluators.cost_models import die_exchange_jobs as crossings
from dse.evaluators.cost_models.die_exchange_model import stage_transfer_cost
from dse.evaluators.layouts.engine_overheads import lone_request_host_seconds
from dse.evaluators.layouts.micro_batches import BatchWork, IterationWork, stack_iterations
from dse.evaluators.layouts.multi_die import DieSplit
from dse.evaluators.machine.die_network import die_network, place_groups
from dse.evaluators.machine.tiered_reads import EXPERTS, KV, WEIGHTS
from dse.evaluators.program.activity import Activity
from dse.evaluators.serving.iteration_time import axis_points, geometric_axes
from dse.evaluators.serving.kv_memory import request_memory
from dse.evaluators.serving.scheduling_policy import max_prompt_tokens
from dse.space.array_math import Array, ceil_div, maximum, where
from dse.space.design import Design
from dse.space.limits import Infeasibility, Limit
from dse.space.mapping import MultiDiePlan
from dse.space.memoize import LastUsed, memoize_by_identity
from dse.space.memory_tiers import prefix_tier
from dse.space.software import SERVED_DIES, SERVED_POOLED_DIES, software_of
from dse.space.workload import BatchCase, ServingLoad

ERROR_SAMPLES = 20
"""Compositions at which a table's error is measured: each is a step of the model through all of its layers."""

AXES: dict[str, Callable[..., list[Array]]] = {
    SERVED_DIES: partial(geometric_axes, finer=0.5),
    SERVED_POOLED_DIES: geometric_axes,
}
"""Axes of tables, by software: those of tiles, which need a tiling search for each point, have half as many points."""

OVERLAP_LABEL = "attention, FFNs and their exchanges, of other micro-batches"
"""Time saved by micro-batches between attention dies and FFN dies, without waits."""


class MultiDieServing(InstanceLayout):
    """Instances of several dies, of tiles or with a shared cache, that divide a replica of the model."""

    FIDELITIES = ("analytical", "events")
    SHARES_TIMES = True
    POWER_ONE_BY_ONE = True

    def layout_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits of the layout of all instances."""
        return _layout_check(design, load)

    def structural_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits of the structure of a die, as of tile groups."""
        return served_die(design).structural_limits(design)

    def memory_contents(self, design: Design, load: ServingLoad) -> list[MemoryContents]:
        """Contents of the memories of a die of each pool, and of one that has FFNs alone."""
        die, longest, contents = served_die(design), load.longest - 1, list[MemoryContents]()
        cached = cached_positions(design.mapping, load.model, longest)
        for pool in die_pools(design, load):
            stage = _tightest_stage(design, load, pool)
            parts = stage.parts(float(stage.kv(cached, 1.0)))
            if design.chip.tiers is not None:
                placement = _pool_placement(design, load, pool).placement
                contents += memories_contents(design.chip, placement, stage.beside, _die_capacity(design))
                continue
            contents += die.contents(design, pool.phase, parts, _slice_bytes(design, load, pool))
            if pool.of.attention:
                contents += die.contents(design, f"{pool.phase}, FFNs", stage.fed, [])
        return contents

    def request_limit_times(self, design: Design, load: ServingLoad) -> None:
        """Request the die work that limits need, so that designs are computed together."""
        if not any(limit.need > limit.have for limit in _layout_check(design, load)):
            for die_pool in die_pools(design, load):
                for made_of in (typical_iteration(load, die_pool), *largest_iterations(load, die_pool)):
                    _request_work(design, replica_work(design, load, die_pool, made_of))

    def request_table_times(self, design: Design, load: ServingLoad, fidelity: str) -> None:
        """Request the die work that a steady-state table needs, so that designs are computed together."""
        longest, every = load.longest, AXES[software_of(design.mapping)]

        def request_each(many: Sequence[ReplicaWork | None]) -> Sequence[float]:
            for composition in many:
                _request_work(design, composition)
            return [1.0] * len(many)

        for die_pool in die_pools(design, load):
            largest = max_prompt_tokens(die_pool.rule, die_pool.batch, longest), longest, die_pool.batch, longest
            part_time_tables(design, load, die_pool, request_each)(
                *axis_points(
                    steady.coarse_table_points(every, load, die_pool.of.copies, die_pool.padded_requests(design))(*largest)
                )
            )

    def instances(self, design: Design, load: ServingLoad, fidelity: str) -> tuple[ServingInstance, ...]:
        """Serving instance of each pool, with the KV memory of its tightest stage."""
        instances = []
        for die_pool in die_pools(design, load):
            stage = _tightest_stage(design, load, die_pool)
            free = request_room(main_memory_contents(design.chip, stage.parts(0.0), capacity=_die_capacity(design)))
            tiers: tuple[Any, ...] = ()
            prefixes = None
            if design.chip.tiers is not None:
                placed = _pool_placement(design, load, die_pool)
                free, tiers, tier = float(placed.pool.nbytes), (placed.shares,), prefix_tier(design)
                prefixes = None if tier is None else (prefix_room(design, placed), float(tier.bandwidth))
            free = die_pool.of.copies * free
            room = request_memory(load.model, stage.kv, window_caches=keeps_windows_alone(design.mapping))
            key = iteration_time_key(design, load, fidelity, die_pool.of, die_pool.rows, *tiers)
            pricing = iteration_time_function(design, load, die_pool, fidelity, key)
            sizes, copies = die_pool.padded_requests(design), die_pool.of.copies
            of_load = {"whole": distinct_prompt_lengths(load), "copies": copies, "graph_sizes": sizes}
            axes = partial(AXES[software_of(design.mapping)], **of_load)
            instances.append(
                ServingInstance(
                    pricing,
                    free,
                    room,
                    axes,
                    ERROR_SAMPLES,
                    key,
                    stage.shares,
                    copies=copies,
                    graph_sizes=sizes,
                    prefixes=prefixes,
                )
            )
        return tuple(instances)

    def work_lower_bounds(self, design: Design, load: ServingLoad) -> WorkLowerBounds:
        """Lower bounds on dies, iteration time and prompt time, as a pass goes through all stages in turn."""
        die, mapping = served_die(design), design.mapping
        before, after = (_stage_dies(plan) for plan in (mapping.prefill, mapping.decode))
        rates = die.peak_rates(design)
        engines = rates.flops * fastest_speedup(design) if design.chip.tile is None else fastest_product_rate(design.chip)
        host = 0.0 if mapping.stack is None else lone_request_host_seconds(mapping.stack.iteration)
        decode = weight_bytes_read(load.model, mapping.precision) / (rates.memory * after) + host
        return WorkLowerBounds(
            design.chip.dies.rows * design.chip.dies.cols,
            decode=decode,
            prompt=prefill_flop_per_token(load.model) / (engines * before),
        )

    def bound_parts(self, design: Design) -> list[DesignPart]:
        """Single rows, each as a separate design."""
        return list(single_rows(design))

    def untimed_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits that need no iteration times: the layout of all instances."""
        return _layout_check(design, load)

    def decode_step_seconds(self, design: Design, load: ServingLoad, context: float) -> float:
        """Time of an iteration that decodes one request at a context length; larger batches take no less. [s]"""
        die_pool = die_pools(design, load)[-1]
        return _run_iteration(design, load, die_pool, (0.0, 0.0, 1.0, context, 0.0), "analytical").seconds

    def request_decode_times(self, design: Design, load: ServingLoad, context: float) -> None:
        """Request the die work of `decode_step_seconds`, so that designs are computed together."""
        _request_work(design, replica_work(design, load, die_pools(design, load)[-1], (0.0, 0.0, 1.0, context, 0.0)))

    def kv_path(self, design: Design, load: ServingLoad) -> KvPath:
        """Path of KV caches over die links from prefill to decode replicas, from memory to memory.

        Caches go at a time from as many attention replicas as the smaller pool has.
        """
        pools = die_pools(design, load)
        die = served_die(design)
        network, ends = die_network(design.chip, die.kind.reached(design.mapping)), [_copy_dies(design, pool) for pool in pools]
        ways = min(pool.of.dp * pool.of.copies for pool in pools)
        pairs = max(copies.shape[1] for copies in ends)
        start, end = (
            copies[np.arange(ways) * len(copies) // ways][:, np.arange(pairs) * copies.shape[1] // pairs] for copies in ends
        )
        # what the dies that take a cache hold of it; of what several that send have alike, it is sent once
        room = request_memory(load.model, _tightest_stage(design, load, pools[1]).kv).times(
            self.devices_per_cache(design, load)[1] / pairs
        )
        sent = stage_transfer_cost(network, start, end, 1.0)
        seconds = room.times(max(float(sent.links), float(sent.injection)))
        byte = crossings.exchange_activity(sent, ways) + Activity(memory_bytes=2 * sent.sent_bytes / ways)
        return KvPath(seconds, float(sent.latency), room, byte.memory_bytes, die.activity_energy(design, byte), channels=ways)

    def device_count(self, design: Design) -> int:
        """Dies of the system, whether in use or idle."""
        return chip_die_count(design.chip)

    def devices_per_cache(self, design: Design, load: ServingLoad) -> tuple[int, ...]:
        """Dies of an attention replica, over all stages."""
        return tuple(die_pool.of.tp * die_pool.of.pp for die_pool in die_pools(design, load))

    def peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of one die, of tiles or with a shared cache."""
        return served_die(design).peak_rates(design)

    def work_of_iterations(self, design: Design, load: ServingLoad, done: IterationCounts, fidelity: str) -> ServedWork:
        """Work of iterations on all dies, of whole prompts."""
        activity, flop, die = Activity(), 0.0, served_die(design)
        for pool, iterations in zip(die_pools(design, load), done, strict=True):
            for times, made_of in iterations:
                for part, composition in whole_requests(made_of):
                    for share, work in whole_prompts(pool, composition):
                        run = _run_iteration(design, load, pool, work, fidelity)
                        activity = activity + run_activity(run) * (times * part * share)
                    iteration = whole_iteration(load, composition)
                    steps = times * part
                    flop += steps * many_dies.paced_operations(die.kind, design, iteration.model, iteration.step())
        return ServedWork(flop, activity.memory_bytes, activity.hop_bytes, lambda: die.activity_energy(design, activity))

    def iteration_energies(
        self, design: Design, load: ServingLoad, pool: int, made_of: Composition, fidelity: str
    ) -> list[tuple[Any, Any]]:
        """Time of an iteration, and energy on all dies of an instance."""
        run = _run_iteration(design, load, die_pools(design, load)[pool], made_of, fidelity)
        return [(run.seconds, float(served_die(design).activity_energy(design, run_activity(run))))]

    def iteration_rows(
        self, design: Design, load: ServingLoad, pool: int, times: float, made_of: Composition, fidelity: str
    ) -> Sequence[BreakdownRow]:
        """Breakdown rows of an iteration: operators and exchanges on all dies of an instance."""
        die_pool = die_pools(design, load)[pool]
        run = _run_iteration(design, load, die_pool, made_of, fidelity)
        die, it, split = served_die(design), run.asked, run.split
        machine = die_kind(design, load, die_pool).machine(design, it.plan)
        rows = iteration_work_rows(die, machine, load, run, made_of, fidelity)
        if it.is_recorded:
            unpadded = _run_iteration(design, load, die_pool, made_of, fidelity, pads=False)
            plain = iteration_work_rows(die, machine, load, unpadded, made_of, fidelity)
            rows = [*plain, padding_row(it.phase, plain, rows)]
        rows += overhead_rows(it.phase, 1.0, run.overheads)
        gap = run.seconds - sum(row.seconds for row in rows)
        if abs(gap) > 1e-9 * run.seconds:
            name = OVERLAP_LABEL if split.attention else HIDDEN_LABEL
            rows.append(BreakdownRow(it.phase, many_dies.WAIT_LABEL, name, "", 0.0, 0.0, 0.0, "overlap", gap, {"overlap": gap}))
        return [scale_row(row, times) for row in rows]

    def levers(self, worst: Infeasibility, design: Design, loads: tuple[ServingLoad, ...]) -> tuple[Lever, ...]:
        """What to change where instances, or the division over dies, violate a limit."""
        address = worst.limit
        if text := instance_advice_text(address):
            return advise(text)
        if address == "chip.dies":
            each = ", ".join(
                f"{die_pool.of.dp} x {die_pool.of.pp * die_pool.of.group} to {die_pool.phase}"
                for die_pool in die_pools(design, loads[0])
            )
            cols = int(design.chip.dies.cols)
            return advise(f"instances need {each}, each pool in whole rows of {cols}: reduce mapping.serving.instances")
        return served_die(design).levers(worst, design, (_case_arrays(_longest_case(loads[0])),))


def _request_work(design: Design, work: ReplicaWork | None) -> None:
    if work is not None:
        served_die(design).request_work(design, *work, "analytical")


def _stage_dies(plan: MultiDiePlan) -> Any:
    """Dies of a stage."""
    attention = getattr(plan, "attention_dies", None) or 0
    return where(attention > 0, attention + plan.ep, maximum(plan.tp, plan.ep))


def _layout_check(design: Design, load: ServingLoad) -> list[Limit]:
    """That all instances can be laid out."""
    chip, mapping, limits, case = design.chip, design.mapping, list[Limit](), _longest_case(load)
    pools = die_pools(design, load)
    for pool in pools:
        names = ("prefill", "decode") if pool.both else (pool.phase,)
        for phase in names:
            split, plan = phase_split_of_pool(design, pool, phase), getattr(mapping, phase)
            limits += phase_layout_limits(design, case, phase, split, min(pool.rows[1], int(chip.dies.rows)))
            limits.append(Limit(f"mapping.{phase}.dp", float(plan.dp), 1.0, "1"))
            limits.append(Limit(f"mapping.{phase}.microbatches", float(plan.microbatches), 0.0, "1"))
        limits.append(Limit("mapping.serving.admission", 2.0 if pool.of.pp > 1 and pool.rule.by_chunk else 1.0, 1.0, "layout"))
    rows = sum(pool.rows[1] for pool in pools)
    limits.append(Limit("chip.dies", float(rows * int(chip.dies.cols)), float(chip_die_count(chip)), "1"))
    if pools[0].both:
        limits.append(equal_split_limit(*(phase_split_of_pool(design, pools[0], phase) for phase in ("prefill", "decode"))))
    return [*limits, port_limit(chip), *engine_limits(mapping, load.model, load.guesses)]


def die_kind(design: Design, load: ServingLoad, pool: DiePool) -> DieKind:
    """Work of a die of a pool: with memory tiers, those of its contents."""
    return served_die(design).kind if design.chip.tiers is None else _tiered_kind(design, load, pool)


@memoize_by_identity
def _tiered_kind(design: Design, load: ServingLoad, pool: DiePool) -> DieKind:
    """Work of a die of a pool with memory tiers."""
    with_tiers = served_die(design).with_tiers
    assert with_tiers is not None
    return with_tiers(design, _pool_placement(design, load, pool).shares, load.model)


@memoize_by_identity
def _pool_placement(design: Design, load: ServingLoad, pool: DiePool) -> ServedPlacement:
    """Placement of what a die of a pool with memory tiers holds, and its KV memory."""
    if pool.of.pp > 1 or pool.of.attention:
        refuse_staged_tiers(design)
    stage, longest = _tightest_stage(design, load, pool), load.longest - 1
    cached = cached_positions(design.mapping, load.model, longest)
    nbytes = {WEIGHTS: stage.weights - stage.experts, KV: float(stage.kv(cached, 1.0)), EXPERTS: stage.experts}
    room = _die_capacity(design) - sum(value for _, value in stage.beside)
    requests = float(ceil_div(min(float(pool.batch), float(len(load.requests))), pool.of.copies))
    return place_served(design.chip, design.mapping, room, nbytes, requests)


@memoize_by_identity
def _tightest_stage(design: Design, load: ServingLoad, pool: DiePool) -> TightestStage:
    model, sizes, units = load.model, served_die(design).kind.sizes(design.mapping), layers_of_units(load.model)
    own = served_die(design).kind  # times of main memory alone, which balance stages
    _, usual, split, _ = _run_iteration(design, load, pool, typical_iteration(load, pool), "analytical", kind=own)
    cut = units_per_stage([usual], split.pp)[:, :, 0]
    names = [unit.name for unit in usual.units]
    each = np.array([unit_weight_bytes(name, units.get(name, ("", "")), model, split, sizes) for name in names])

    def stage_bytes(stage: int, cached: Any, sequences: float) -> Any:
        mixes = zip(names, cut[stage], strict=True)
        return sum(n * cache_bytes(units.get(name, ("", ""))[0], model, cached, sequences, split, sizes) for name, n in mixes)

    seconds = np.array([unit.seconds for unit in usual.units], float)
    paces = cut @ seconds
    if usual.onward:
        paces[:-1] += float(usual.onward[0].seconds) * split.halves
    runs = [_run_iteration(design, load, pool, made_of, "analytical", kind=own) for made_of in largest_iterations(load, pool)]
    beside: tuple[tuple[str, float], ...] = tuple(
        (what, max(run.split.halves * float(getattr(run.played.of, name)) for run in runs))
        for what, name in (("activations", "held"), ("dispatched tokens", "received"))
    )
    fed: tuple[tuple[str, float], ...] = ()
    if split.attention:
        weight_bytes = np.array([ffn_weight_bytes(units.get(name, ("", "")), model, split, sizes) for name in names])
        left = ("activations", max(run.split.halves * float(run.played.of.beyond) for run in runs))
        fed, beside = (("weights", float((cut @ weight_bytes).max())), left, beside[1]), beside[:1]
    # the stage on which the longest requests fill the rest first
    longest = load.longest - 1
    cached = cached_positions(design.mapping, model, longest)
    besides = [_beside_weights(design, load, pool, float(weights), beside) for weights in cut @ each]
    left = _die_capacity(design) - cut @ each - [sum(value for _, value in parts) for parts in besides]
    taken = np.array([float(stage_bytes(stage, cached, 1.0)) for stage in range(len(cut))])
    fullest = int(np.argmin(left / np.maximum(taken, 1e-9)))
    shares = tuple((paces / paces.sum()).tolist())
    routed = [weight_bytes_by_kind(name, units.get(name, ("", "")), model, split, sizes) for name in names]
    experts = np.array([kinds.get(ROUTED, 0.0) + kinds.get(COPIES, 0.0) for kinds in routed])
    return TightestStage(
        float(cut[fullest] @ each), besides[fullest], lambda kept, sequences: stage_bytes(fullest, kept, sequences), shares,
        fed, float(cut[fullest] @ experts),
    )  # fmt: skip


def _beside_weights(
    design: Design, load: ServingLoad, pool: DiePool, weights: float, layout_parts: tuple[tuple[str, float], ...]
) -> tuple[tuple[str, float], ...]:
    """Bytes of a die beside weights and KV caches, by item: those of the layout, or by the inference engine's rule. [B]"""
    if design.mapping.inference_engine is None:
        return layout_parts
    copies, split = pool.of.copies, pool.of
    tokens = pool.rule.tokens if pool.rule.chunked else max(load.longest, min(pool.rule.tokens, load.longest * pool.batch))
    demand = EngineDemand(
        ceil_div(tokens, copies), ceil_div(pool.batch, copies), split.tp, split.group * split.pp, copies if split.ep > 1 else 1
    )
    return engine_memory(design.chip, design.mapping, load.model, weights, 0.0, demand).parts(design.mapping)


def _slice_bytes(design: Design, load: ServingLoad, pool: DiePool) -> Any:
    """Local memory of a tile in use in the largest iterations, by kind of operator; nothing where dies have a cache."""
    slices: list[tuple[str, Any]] = []
    for made_of in largest_iterations(load, pool):
        slices += pass_work(
            served_die(design).kind, design, *replica_work(design, load, pool, made_of), "analytical", pool.rows
        )[1]
    return slices


def _run_iteration(
    design: Design, load: ServingLoad, pool: DiePool, made_of: Composition, fidelity: str, *, pads: bool = True,
    kind: DieKind | None = None,
) -> DieIteration:  # fmt: skip
    """One iteration, its requests padded as recorded graphs run it if `pads`; on dies of another kind than the pool's."""
    work, split = replica_work(design, load, pool, made_of, pads=pads)
    done = _run_work(design, pool, fidelity, (work, split), kind or die_kind(design, load, pool))
    prompts, _, _, decodes, _ = composition_counts(made_of)
    overheads = iteration_overheads(design, load, pool, prompts, decodes, done.seconds(split))
    return DieIteration(work, done, split, overheads)


def _run_work(design: Design, pool: DiePool, fidelity: str, work: ReplicaWork, kind: DieKind | None = None) -> PassWork:
    """Forward pass of an iteration on dies of some kind; those of the software with main memory alone if absent."""
    ((done,), _) = pass_work(kind or served_die(design).kind, design, *work, fidelity, pool.rows)
    return done


def _price_iterations(
    design: Design, pool: DiePool, fidelity: str, kind: DieKind, many: Sequence[ReplicaWork | None]
) -> Sequence[float]:
    """Seconds of the kernels of each of some iterations: those of one structure together, where a formula has them."""
    groups = dict[Any, list[tuple[int, IterationWork]]]()
    if not kind.together or fidelity != "analytical":
        return [
            0.0 if work_split is None else float(_run_work(design, pool, fidelity, work_split, kind).seconds(work_split[1]))
            for work_split in many
        ]
    for place, work_split in enumerate(many):
        if work_split is not None:
            work, split = work_split
            drawn = work.model.experts is not None and work.model.experts.load == "sampled"
            groups.setdefault((work.structure, place if drawn else -1, split), []).append((place, work))
    seconds = np.zeros(len(many))
    for (*_, split), members in groups.items():
        places, each = zip(*members, strict=True)
        ((done,), _) = pass_work(
            kind, design, each[0] if len(each) == 1 else stack_iterations(each), split, fidelity, pool.rows
        )
        seconds[list(places)] = np.ravel(np.broadcast_to(done.seconds(split), (len(each), 1)))
    return seconds.tolist()


MEMORY = 64
"""Iteration-time functions that are kept by their keys, at most."""

_prices: LastUsed[str, Callable[..., Array]] = LastUsed(MEMORY)


def iteration_time_function(
    design: Design, load: ServingLoad, pool: DiePool, fidelity: str, key: str = ""
) -> Callable[..., Array]:
    """Function from iteration compositions to seconds, by part tables; equal keys share the tables."""
    if key and (known := _prices.find(key)):
        return known
    kind = die_kind(design, load, pool)
    pricing = part_time_tables(design, load, pool, partial(_price_iterations, design, pool, fidelity, kind))
    return _prices.keep(key, pricing) if key else pricing


def _copy_dies(design: Design, pool: DiePool) -> Array:
    """Places of the dies of each copy of attention, all stages of it together; shape (copies, members)."""
    plan, cols, (first, rows) = getattr(design.mapping, pool.phase), int(design.chip.dies.cols), pool.rows
    split = pool.of
    at = place_groups(plan.placement, rows, cols, split.dp * split.pp, split.group, split.tp) + first * cols
    at = at[:, : split.copies * split.tp]
    each = at.reshape(split.dp, split.pp, split.copies, split.tp)
    return np.asarray(each.transpose(0, 2, 1, 3).reshape(split.dp * split.copies, -1))


def _die_capacity(design: Design) -> float:
    """Of a die's memory. [B]"""
    return float(served_die(design).memory_capacity(design))


def _longest_case(load: ServingLoad) -> BatchCase:
    """A request as long as the longest prompt, for what depends on the model alone."""
    return BatchCase(load.label, load.model, ((1, int(load.requests.prompt.max()), 1),), load.speculation)


def _case_arrays(case: BatchCase) -> Any:
    return arrays_of_cases(case.model, ((0, case),), "mean")


def _tile_die() -> ServedDie:
    """A die of tiles, whose work is shared between designs."""
    from dse.evaluators.accounting import tile_dies as dies

    return ServedDie(
        dies.DIE_KIND,
        dies.die_peak_rates,
        dies.memory_capacity,
        dies.activity_energy,
        dies.die_contents,
        dies.group_limits,
        dies.breakdown_rows,
        dies.tile_die_levers,
        dies.request_die_work,
    )


def _shared_cache_die() -> ServedDie:
    """A die with a shared cache."""
    from dse.evaluators.accounting import shared_cache_dies as dies

    return ServedDie(
        dies.DIE_KIND,
        device_peak_rates,
        dies.memory_capacity,
        dies.activity_energy,
        dies.die_contents,
        _no_limits,
        dies.breakdown_rows,
        die_levers,
        _request_nothing,
        lambda design, shares, model: dies.tiered_kind(dies.die_reads(design, shares, model)),
    )


def _request_nothing(design: Design, work: BatchWork | IterationWork, split: DieSplit, fidelity: str) -> None:
    """Request no work of a die, where none is shared between designs."""


def _no_limits(design: Design) -> list[Limit]:
    """No limits of structure: a die with a cache has none."""
    return []


MADE_BY_SOFTWARE = {SERVED_DIES: _tile_die, SERVED_POOLED_DIES: _shared_cache_die}
"""Functions that give the die, by the software that runs; they import its module at first use."""


def served_die(design: Design) -> ServedDie:
    """The die of a design's system."""
    return served_die_of_software(software_of(design.mapping))


@cache
def served_die_of_software(software: str) -> ServedDie:
    """The die of systems with some software."""
    return MADE_BY_SOFTWARE[software]()
