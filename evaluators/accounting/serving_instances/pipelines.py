"""Meshes of tiles that serve requests: pipelines for both phases, or separate ones for each.

An iteration of a pipeline is one micro-batch's forward pass through all its stages, prompts and decodes together:
products over all tokens, attention of each kind separately. KV cache outside local memory comes from HBM. Iteration
times use the plan of the pipeline's phase and are tabulated once per design.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np

from dse.evaluators.accounting.breakdown import Breakdown, BreakdownRow
from dse.evaluators.accounting.memory_contents import MemoryContents
from dse.evaluators.accounting.partition_search import plan_with_partition
from dse.evaluators.accounting.pipelines import (
    parallelism_lever,
    parallelism_limits,
    pass_rows,
)
from dse.evaluators.accounting.power_profile import PowerProfile, idle_power
from dse.evaluators.accounting.remedies import Lever, advise, limits_of_changes
from dse.evaluators.accounting.serving_instances import Composition, iteration_time_key
from dse.evaluators.accounting.serving_instances import pipelines_steady_state as standing
from dse.evaluators.accounting.serving_instances.lower_bounds import (
    WorkLowerBounds,
    prefill_flop_per_token,
    weight_bytes_read,
)
from dse.evaluators.accounting.serving_instances.pipeline_fleet import (
    PipelinePool,
    core_count,
    decode_only_cores,
    iteration_pass,
    operator_set_count,
    pipeline_pools,
    pool_contents,
    prefill_and_decode_cores,
    select_rows,
)
from dse.evaluators.accounting.serving_instances.pipeline_pools import (
    iteration_time_function,
    make_deployments,
    pipeline_message_cost,
    pipeline_paces,
)
from dse.evaluators.accounting.serving_instances.pipeline_usage import (
    fixed_metrics,
    mean_iteration_pass,
    pipeline_peak_rates,
    power_function,
    usage_metrics,
    work_of_pipeline_transfers,
)
from dse.evaluators.accounting.serving_instances.prompt_table_points import distinct_prompt_lengths
from dse.evaluators.accounting.serving_instances.serving_layout import JointParts, ServingLayout
from dse.evaluators.accounting.serving_runs import peak_power as peak
from dse.evaluators.accounting.serving_runs import power_timeline as drawn
from dse.evaluators.accounting.serving_runs import run_metrics as served
from dse.evaluators.accounting.serving_runs import steady_state_run as steady
from dse.evaluators.accounting.serving_runs.run_metrics import CheckedTable
from dse.evaluators.accounting.serving_runs.steady_state_run import STEADY
from dse.evaluators.accounting.usage import PeakRates, fastest_product_rate
from dse.evaluators.cost_models import READERS
from dse.evaluators.layouts.kv_transfer import TransferCost
from dse.evaluators.machine.machine import tile_core_machine
from dse.evaluators.serving.iteration_time import geometric_axes
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import Deployment, InstancePool, ServingRun
from dse.evaluators.silicon import area, price
from dse.evaluators.silicon.energy import design_power_by_part
from dse.space.array_math import maximum, minimum, option_index, where
from dse.space.chip import Chip, decode_only_chip
from dse.space.design import Design
from dse.space.fields import iterate_leaves
from dse.space.limits import Infeasibility, Limit
from dse.space.main_memory import main_memory
from dse.space.mapping import AUTO, PARTITIONS, STAGE_CUTS, Mapping
from dse.space.requests import Requests
from dse.space.workload import ServingLoad

MERGEABLE_OPTIONS = (*(f"mapping.{phase}.{word}" for phase in ("prefill", "decode") for word in ("placement", "stages")),
         "mapping.serving.arrangement")  # fmt: skip
"""Options in which designs that are evaluated together may differ."""

PREFILL_CORES = "mapping.serving.prefill_cores"

MAX_SHARES = 64
"""Numbers of prefill cores that are tried, if the given number does not fit."""

ADVICE = {
    PREFILL_CORES: "set fewer cores apart for prefill, so that some are left for decode",
    "mapping.serving.decode_cores": "set fewer cores apart, or mapping.serving.decode_cores=0 for all the rest",
    "mapping.decode.partition": ("the same cores serve both phases; set partition, placement, experts, stages by mapping.both"),
    "mapping.decode.prefetch": ("the same cores serve both phases; set mapping.both.prefetch, or set cores apart for prefill"),
    "mapping.decode.allreduce": "the same cores serve both phases; set mapping.both.allreduce, or set cores apart for prefill",
}
"""By limit, where parallelism does not help."""

OTHER_OPERATORS = (
    "auto needs operators that prompts and tokens share, and here they differ; set a "
    "partition, or set cores apart by mapping.serving.prefill_cores"
)


class PipelineServing(ServingLayout):
    """Pipelines of tile groups, for both phases or separate ones for each, whose pools depend on the rate."""

    FIDELITIES = tuple(READERS)

    def system_peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of the engines, memory and links of the chip."""
        return pipeline_peak_rates(design)

    def work_lower_bounds(self, design: Design, load: ServingLoad) -> WorkLowerBounds:
        """Lower bounds of one chip: times of a stage's cores, since tokens pass the stages in turn.

        Weights for which the local memories of all stages have room may be resident; the content of a cache in front of
        main memory is not known.
        """
        chip, mapping = _chip_of(design), _mapping_of(design)
        apart, last, alone = mapping.serving.prefill_cores > 0, mapping.decode, decode_only_chip(chip)
        sram = where(apart, alone.tile.sram, chip.tile.sram)
        channel = where(apart, main_memory(alone).channel_bandwidth, main_memory(chip).channel_bandwidth)
        away = (
            maximum(weight_bytes_read(load.model, mapping.precision) - last.tp * last.pp * sram, 0.0)
            if chip.l2 is None
            else 0.0
        )
        channels = last.tp if main_memory(chip).channel_side == "core" else main_memory(chip).channels
        each = fastest_product_rate(chip) / core_count(design) * where(apart, mapping.prefill.tp, last.tp)
        return WorkLowerBounds(
            decode_cores=decode_only_cores(design),
            decode=away / (channels * channel),
            prompt=prefill_flop_per_token(load.model) / each,
        )

    def mergeable_options(self, design: Design) -> tuple[str, ...]:
        """Options in which designs of one group may differ; none if partitions are open or of a mesh."""
        mapping = _mapping_of(design)
        return MERGEABLE_OPTIONS if {mapping.prefill.partition, mapping.decode.partition} <= set(PARTITIONS) else ()

    def layout_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits of cores for both phases: nothing can be said of pipelines on cores that there are not."""
        limits = _core_division_limits(design)
        if any(np.any(limit.need > limit.have) for limit in limits) or not _two_sets(design, load):
            return limits
        return [Limit("mapping.decode.partition", 2.0, 1.0, "layout")]

    def memory_contents(self, design: Design, load: ServingLoad) -> list[MemoryContents]:
        """Contents of the fullest core's share of main memory and of its local memory, of each kind of core."""
        return [memory for pool in pipeline_pools(design, load) for memory in pool_contents(pool, load, design.mapping)]

    def structural_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits of parallelism of each pool, and equal plans where the same cores serve both phases."""
        mapping, fleet, limits = _mapping_of(design), pipeline_pools(design, load), list[Limit]()
        for pool in fleet:
            limits += parallelism_limits(pool.chip, pool.name, pool.plan, _most_stages(pool, load), pool.groups)
            limits.append(Limit(f"mapping.{pool.name}.dp", pool.dp * pool.plan.pp * 1.0, maximum(pool.groups, 1) * 1.0, "1"))
        if len(fleet) == 1:
            # the same cores serve both phases
            chunk = make_policy(mapping.serving.policy).chunk or 1
            usual = {"dp": maximum(1, fleet[0].groups // mapping.decode.pp), "max_chunk_tokens": chunk}
            for knob in ("tp", "pp", "dp", "microbatch_size", "max_chunk_tokens"):
                counts = [getattr(plan, knob) * 1.0 for plan in (mapping.prefill, mapping.decode)]
                values = [where(value > 0, value, usual[knob]) if knob in usual else value for value in counts]
                limits.append(Limit(f"mapping.decode.{knob}", maximum(*values), minimum(*values), "1"))
            of_both = ("partition", "placement", "experts", "stages")
            alike = reduce(operator.and_, (getattr(mapping.prefill, word) == getattr(mapping.decode, word) for word in of_both))
            limits.append(Limit("mapping.decode.partition", where(alike, 1.0, 2.0), 1.0, "layout"))
            for part in ("prefetch", "allreduce"):
                same = _is_same_part(getattr(mapping.prefill, part), getattr(mapping.decode, part))
                limits.append(Limit(f"mapping.decode.{part}", where(same, 1.0, 2.0), 1.0, "layout"))
        return limits

    def joint_parts(self, fidelity: str, *, at_rate: bool) -> JointParts:
        """Rows that are solved together in the steady state; single rows in a simulation."""
        return (standing.groups_solved_together, select_rows) if fidelity == STEADY else ()

    def metrics(self, design: Design, load: ServingLoad, fidelity: str) -> dict[str, Any]:
        """Metrics of a serving run or of the steady state; the latter of shape (designs,)."""
        if fidelity == STEADY:
            return standing.steady_state_metrics(design, load)
        chip, fleet, apart = _chip_of(design), pipeline_pools(design, load), decode_only_cores(design)
        run, tables, between = _serve_load(design, load, fleet, fidelity, 0)
        if run is None:
            return served.unkept_rate(self.unloaded_latency(design, load, fidelity))
        made = float(area.die_area(chip, apart)), float(area.total_area(chip, apart))
        values = served.run_metrics(run, load, *made) | {
            "iteration_time_error": served.table_errors_by_design([tables])[0].mean
        }
        values |= served.max_rate_metrics(load, run.rate)
        load = served.of_run(load, run)
        counts = run.state.work
        read = counts["positions"].sum() + counts["past"].sum()
        values["kv_spilled_share"] = float(counts["far"].sum() / read) if read else 0.0
        means = [
            [mean for kind in served.mean_iterations_by_span(run, number) for mean in kind if mean.times]
            for number in range(len(fleet))
        ]
        gone = ~np.isnan(run["ready"])
        values |= usage_metrics(
            design, load, fleet, READERS[fidelity], means, peak.concurrency_of_run(run), between, gone, served.run_duration(run)
        )
        values |= served.kv_pool_metrics(run.pools[-1], load)
        return values | fixed_metrics(fleet, load, _mapping_of(design))

    def serving_power_profile(self, design: Design, load: ServingLoad, fidelity: str) -> PowerProfile | None:
        """Power over the first iterations, with mean KV transfer; None if no rate keeps the SLOs. [W]"""
        chip, fleet = _chip_of(design), pipeline_pools(design, load)
        run, _, between = _serve_load(design, load, fleet, fidelity, served.LOGGED_ITERATIONS)
        if run is None:
            return None
        rest = idle_power(chip, decode_cores=decode_only_cores(design))
        moved = work_of_pipeline_transfers(design, load, fleet, between, ~np.isnan(run["ready"]))
        rest += moved.energy / served.run_duration(run)
        return drawn.run_power_profile(run, power_function(load, fleet, READERS[fidelity], between), rest)

    def serving_breakdown(self, design: Design, load: ServingLoad, fidelity: str) -> Breakdown:
        """Breakdown of pipeline time by operator and idle, with a timeline of the first iterations."""
        fleet = pipeline_pools(design, load)
        if fidelity == STEADY:
            return self._standing_breakdown(design, load, fleet)
        reader = READERS[fidelity]
        run = _serve_load(design, load, fleet, fidelity, served.LOGGED_ITERATIONS)[0]
        if run is None:
            return Breakdown((), 0.0, area.area_by_block(_chip_of(design), decode_only_cores(design)), {})
        beside = {"HBM": np.zeros(len(run.log)), "links": np.zeros(len(run.log))}
        of_pool = run.state.instances["pool"][run.log["instance"]]
        for number, pool in enumerate(fleet):
            mine = run.log[of_pool == number]
            if not len(mine):
                continue
            tokens, requests = np.maximum(mine["prompt"], 1), np.maximum(mine["requests"], 1)
            read = np.maximum(mine["positions"] + mine["past"], 1)
            counts = (
                mine["prompt"],
                mine["pairs"] / tokens,
                mine["requests"],
                mine["positions"] / requests,
                mine["far"] / read,
            )
            at = iteration_pass(load, pool, reader, "prefill" if number == 0 else "decode", *(1.0 * count for count in counts))
            beside["HBM"][of_pool == number] = sum(cost.memory * times for _, cost, times, _ in at.calls())
            beside["links"][of_pool == number] = sum(
                cost.network * times for _, cost, times, _ in at.calls() if cost.network is not None
            )
        names = [f"{pool.name} pipeline" if len(fleet) == 2 else "pipeline" for pool in fleet]

        def of_mean(pool: int, mean: served.MeanIteration) -> list[BreakdownRow]:
            return self.iteration_rows(design, load, pool, mean.times, mean.composition, fidelity)

        made = _chip_of(design), decode_only_cores(design)
        breakdown = served.run_breakdown(run, area.area_by_block(*made), of_mean, names=names, beside=beside)
        return replace(breakdown, power=design_power_by_part(*made), price=price.price_by_part(*made))

    def _standing_breakdown(self, design: Design, load: ServingLoad, fleet: tuple[PipelinePool, ...]) -> Breakdown:
        """The time of pipelines by operator, in the steady state."""
        made = _chip_of(design), decode_only_cores(design)
        means = [
            [mean.design_iteration(0) for mean in mean if mean.times[0]]
            for mean in standing.pipeline_steady_state(design, load, fleet).means
        ]

        def of_mean(pool: int, mean: served.MeanIteration) -> list[BreakdownRow]:
            return self.iteration_rows(design, load, pool, mean.times, mean.composition, steady.ITERATION_FIDELITY)

        return replace(
            steady.steady_state_breakdown(means, area.area_by_block(*made), of_mean),
            power=design_power_by_part(*made),
            price=price.price_by_part(*made),
        )

    def iteration_rows(
        self, design: Design, load: ServingLoad, pool: int, times: float, made_of: Composition, fidelity: str
    ) -> list[BreakdownRow]:
        """Breakdown rows of an iteration, one per operator."""
        pipeline_pool, mean = pipeline_pools(design, load)[pool], served.MeanIteration(bool(made_of[0]), times, *made_of)
        return pass_rows(
            "", mean_iteration_pass(load, pipeline_pool, READERS[fidelity], mean), times, tile_core_machine(pipeline_pool.chip)
        )

    def levers(self, worst: Infeasibility, design: Design, loads: tuple[ServingLoad, ...]) -> Iterable[Lever]:
        """Fewer cores set apart for prefill, or the smallest parallelism."""
        if any(_two_sets(design, load) for load in loads):
            return advise(OTHER_OPERATORS)
        if worst.limit in ADVICE:
            return advise(ADVICE[worst.limit])

        def all_limits(design: Design) -> list[Limit]:
            """Where partitions are left open, of one for all operators that keeps them, the first one else."""
            each = (
                [limit for load in loads for limit in self.limits(trial, load)]
                for trial in (
                    [design]
                    if not _leaves_partitions_open(design)
                    else map(partial(_divided_by, design), ("k", "mn_k", "mn", "input_only"))
                )
            )
            first = next(each)
            kept = (limits for limits in (first, *each) if all(limit.need <= limit.have for limit in limits))
            return next(kept, first)

        parallelism = parallelism_lever(design, all_limits)
        if not _mapping_of(design).serving.prefill_cores:
            return (parallelism,)
        return (
            Lever("", values=(), failed=_crowded_text(worst, design)),
            _prefill_cores_lever(design, all_limits),
            parallelism._replace(failed="", beside=True),
            Lever(f"no share of the {core_count(design):.0f} cores for prefill and no TP x PP fits"),
        )

    def simulate_load(self, design: Design, load: ServingLoad, fidelity: str) -> ServingRun | None:
        """Serving simulation of a load; None if no rate keeps the SLOs."""
        return _serve_load(design, load, pipeline_pools(design, load), fidelity, 0)[0]

    def unloaded_latency(self, design: Design, load: ServingLoad, fidelity: str) -> tuple[float, float]:
        """TTFT and TPOT of requests on idle pipelines."""
        return served.unloaded_latency(_by_rate(design, load, pipeline_pools(design, load), fidelity)[0], load)

    def deployment_factory(
        self, design: Design, load: ServingLoad, pools: Sequence[InstancePool]
    ) -> Callable[[Requests], Deployment]:
        """Function that gives the deployment at any rate, on which pools depend; given pools are not used."""
        return _by_rate(design, load, pipeline_pools(design, load), steady.ITERATION_FIDELITY)[0]

    def run_usage(self, design: Design, load: ServingLoad, run: ServingRun, fidelity: str) -> dict[str, float]:
        """Metrics of utilisation and energy of a run of a load's requests."""
        fleet = pipeline_pools(design, load)
        between = _deploy_fleet(design, replace(load, requests=run.requests), fleet, fidelity)[2]
        means = [
            [mean for kind in served.mean_iterations_by_span(run, number) for mean in kind if mean.times]
            for number in range(len(fleet))
        ]
        gone = ~np.isnan(run["ready"])
        return usage_metrics(
            design, load, fleet, READERS[fidelity], means, peak.concurrency_of_run(run), between, gone, served.run_duration(run)
        )


def _is_same_part(value: Any, other: Any) -> Any:
    """Whether parts of two plans are the same, design by design."""
    if value is None or other is None:
        return value is other
    pairs = zip(iterate_leaves(value), iterate_leaves(other), strict=True)
    return reduce(operator.and_, (mine == its for (_, mine, _), (_, its, _) in pairs), True)


def _two_sets(design: Design, load: ServingLoad) -> bool:
    """Whether partitions that are left open are of operators that prompts and tokens do not share, on the same cores."""
    return (
        _mapping_of(design).decode.partition == AUTO
        and not _mapping_of(design).serving.prefill_cores
        and operator_set_count(load.model) > 1
    )


def _leaves_partitions_open(design: Design) -> bool:
    """Whether a plan leaves partitions open."""
    return AUTO in (_mapping_of(design).prefill.partition, _mapping_of(design).decode.partition)


def _divided_by(design: Design, word: str) -> Design:
    """A design with one partition for all in the place of what is left open."""
    mapping = _mapping_of(design)
    plans = {"prefill": mapping.prefill, "decode": mapping.decode}
    pipelines = {name: plan_with_partition(plan, word) if plan.partition == AUTO else plan for name, plan in plans.items()}
    return replace(design, mapping=replace(mapping, **pipelines))


def _crowded_text(worst: Infeasibility, design: Design) -> str:
    """Cores that a pipeline needs and that its phase has, as text; empty string for other limits."""
    for phase, cores in zip(("prefill", "decode"), prefill_and_decode_cores(design), strict=True):
        if worst.limit in (f"mapping.{phase}.{knob}" for knob in ("tp", "pp", "dp")):
            plan = getattr(_mapping_of(design), phase)
            many = f" x DP {plan.dp:.0f}" if plan.dp > 1 else ""
            needs_text = (
                f"TP {plan.tp:.0f} x PP {plan.pp:.0f}{many} = {plan.tp * plan.pp * max(plan.dp, 1):.0f} cores for {phase}"
            )
            whose = "set aside by mapping.serving.prefill_cores" if phase == "prefill" else "left to it"
            return f"{needs_text}, {cores:.0f} of {core_count(design):.0f} are {whose}"
    return ""


def _prefill_cores_lever(design: Design, limits: Callable[[Design], list[Limit]]) -> Lever:
    """The number of prefill cores that is nearest to the given one."""
    plan, now = _mapping_of(design).prefill, float(_mapping_of(design).serving.prefill_cores)
    each, cores = max(1, int(plan.tp * plan.pp)), int(core_count(design))
    return Lever(
        lambda count: f"set {PREFILL_CORES}={count}" + ("" if count else ", all cores for both phases"),
        sorted((0, *range(each, cores, each)), key=lambda share: abs(share - now))[:MAX_SHARES],
        lambda count: {PREFILL_CORES: count},
        limits_of_changes(design, limits),
    )


def _most_stages(pool: PipelinePool, load: ServingLoad) -> Any:
    """Into which a model can be divided."""
    return where(
        option_index(pool.plan.stages, STAGE_CUTS) == STAGE_CUTS.index("layers"), float(load.model.layers), float("inf")
    )


def _core_division_limits(design: Design) -> list[Limit]:
    """Limits of the cores that are set apart for each phase."""
    plan, cores = _mapping_of(design).serving, core_count(design)
    apart = plan.prefill_cores * 1.0
    limits = [Limit("mapping.serving.prefill_cores", apart, cores - 1.0, "1")] if np.any(apart) else []
    return [*limits, Limit("mapping.serving.decode_cores", plan.decode_cores * 1.0, maximum(cores - apart, 1.0), "1")]


def _serve_load(
    design: Design, load: ServingLoad, fleet: tuple[PipelinePool, ...], fidelity: str, log: int
) -> tuple[ServingRun | None, list[CheckedTable], TransferCost | None]:
    """Serving run, its iteration times, and KV transfer cost, if any; None if no rate keeps the SLOs."""
    at, deployments = _by_rate(design, load, fleet, fidelity)
    run = served.run_load(at, load, log)
    _, tables, between = deployments[run.requests.rate if run is not None and len(fleet) == 2 else next(iter(deployments))]
    return run, tables, between


def _by_rate(
    design: Design, load: ServingLoad, fleet: tuple[PipelinePool, ...], fidelity: str
) -> tuple[Callable[[Requests], Deployment], dict[float, tuple[Deployment, list[CheckedTable], TransferCost | None]]]:
    """What serves a load at any rate, and what has been made of that so far, by rate; 0 where all rates have the same."""
    deployments: dict[float, tuple[Deployment, list[CheckedTable], TransferCost | None]] = {}

    def at(requests: Requests) -> Deployment:
        # how much is on the links at a time depends on the rate
        rate = requests.rate if len(fleet) == 2 else 0.0
        if rate not in deployments:
            deployments[rate] = _deploy_fleet(design, replace(load, requests=requests), fleet, fidelity)
        return deployments[rate][0]

    return at, deployments


def _deploy_fleet(
    design: Design, load: ServingLoad, fleet: tuple[PipelinePool, ...], fidelity: str
) -> tuple[Deployment, list[CheckedTable], TransferCost | None]:
    longest, reader, paces = served.longest_sequence(load), READERS[fidelity], pipeline_paces(load, fleet, READERS[fidelity])
    between = pipeline_message_cost(design, load, fleet, paces, reader)
    tables = list[CheckedTable]()
    for place, pool in enumerate(fleet):
        crowding = 1.0 if between is None else (between.prefill, between.decode)[place]
        table = served.iteration_time_table(
            iteration_time_function(load, pool, reader, between, crowding), pool.rule, int(pool.plan.microbatch_size),
            longest + 1,
            spread=partial(geometric_axes, spilled=True, whole=distinct_prompt_lengths(load)),
            key=iteration_time_key(design, load, place, crowding, fidelity, pool.words, pool.held, without=()),
        )  # fmt: skip
        tables.append(table)
    (deployment,) = make_deployments(design, load, fleet, [table.price for table in tables], paces, between)
    return deployment, tables, between


def _chip_of(design: Design) -> Chip:
    return design.chip


def _mapping_of(design: Design) -> Mapping:
    return design.mapping
