"""Layouts with equal instances in fixed pools: one pool for both phases, or one for each phase.

Instances are whole devices. Their iteration times are tabulated once, and a serving simulation or the steady state runs
on the tables (`accounting/serving_runs`); the costs of one instance are the layout's own (`InstanceCosts`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dse.evaluators.accounting.breakdown import Breakdown, BreakdownRow
from dse.evaluators.accounting.power_profile import PowerProfile, idle_power
from dse.evaluators.accounting.serving_instances import Composition, IterationCounts
from dse.evaluators.accounting.serving_instances.design_parts import groups_with_equal_serving
from dse.evaluators.accounting.serving_instances.serving_layout import InstanceCosts, JointParts, PoolKvMemory
from dse.evaluators.accounting.serving_runs import peak_power as peak
from dse.evaluators.accounting.serving_runs import power_timeline as drawn
from dse.evaluators.accounting.serving_runs import run_metrics as served
from dse.evaluators.accounting.serving_runs import simulated_designs as simulated
from dse.evaluators.accounting.serving_runs import steady_state_designs as balanced
from dse.evaluators.accounting.serving_runs import steady_state_run as steady
from dse.evaluators.accounting.serving_runs.deployment_setup import (
    instance_groups,
    make_deployment,
    make_kv_memory,
    make_pool,
    with_speculation,
)
from dse.evaluators.accounting.serving_runs.steady_state_run import ITERATION_FIDELITY, STEADY
from dse.evaluators.serving.simulator import Deployment, InstancePool, ServingRun
from dse.space.design import Design
from dse.space.memory_tiers import prefix_bandwidth
from dse.space.requests import Requests
from dse.space.serving_plan import ServingPlan
from dse.space.workload import ServingLoad

POOL_NAMES = ("instance", "prefill instance", "decode instance")
"""Of the pool that does both phases, and of those that do one."""

TIMELINE_ITERATIONS = 2_000
"""Iterations with power in a timeline where a layout computes them one by one, in up to 10 ms each."""


INSTANCE_ADVICE = {
    "dp": "replicas that serve are instances: mapping.serving.instances, and mapping.both.dp=1",
    "microbatches": "as many micro-batches are in flight as stages: mapping.both.microbatches=0",
    "admission": "stages of a pipeline share a memory: mapping.serving.admission=prompt, which reserves blocks for whole "
    "prompts",
}
"""What to change where instances and their stages are set by other settings than those of batches, by the end of an address."""


def instance_advice_text(address: str) -> str:
    """What to change where replicas, micro-batches or admission violate a limit; empty for others.

    >>> instance_advice_text("mapping.decode.microbatches")
    'as many micro-batches are in flight as stages: mapping.both.microbatches=0'
    """
    return INSTANCE_ADVICE.get(address.rpartition(".")[2], "")


class InstanceLayout(InstanceCosts):
    """A layout with equal instances in pools that are the same at any rate."""

    def joint_parts(self, fidelity: str, *, at_rate: bool) -> JointParts:
        """Rows with equal serving settings in the steady state; rows that differ in these in a simulation."""
        if fidelity == STEADY:
            leaves = self.MERGEABLE_LEAVES
            return () if leaves is None else (partial(groups_with_equal_serving, together=leaves),)
        return (simulated.rows_by_serving,) if at_rate and self.USAGE_IN_BATCH else ()

    def metrics(self, design: Design, load: ServingLoad, fidelity: str) -> dict[str, Any]:
        """Metrics by simulation, or in the steady state, there of several designs where the layout takes them."""
        if fidelity != STEADY:
            return simulated.simulated_metrics(
                self,
                design,
                load,
                fidelity,
                lambda design: self._run(design, load, fidelity, 0),
                lambda design: self.unloaded_latency(design, load, fidelity),
            )
        if self.MERGEABLE_LEAVES is not None:
            return balanced.steady_state_metrics(self, design, load)
        deployment, state = self._steady_state(design, load)
        fixed = {"devices": float(self.device_count(design))} | served.kv_pool_metrics(deployment.pools[-1], load)
        made: IterationCounts = [[(mean.times, mean.composition) for mean in pool] for pool in state.means]
        fullest = peak.concurrency_of_pools(state.means, deployment.pools, len(load.requests))
        most = partial(self._peak_power, design, load, fullest)
        spent: dict[str, float] = self.usage_metrics(design, load, made, state.span, ITERATION_FIDELITY, most)
        return state.values | spent | fixed

    def run_usage(self, design: Design, load: ServingLoad, run: ServingRun, fidelity: str) -> dict[str, Any]:
        """Metrics of usage of a run; the most power has no part in them."""
        hosted = served.host_bytes(run, self.devices_per_cache(design, load), float(prefix_bandwidth(design)))
        done = _iterations_of_run(run)
        return self.usage_metrics(design, load, done, served.run_duration(run), fidelity, float, hosted=hosted)

    def serving_breakdown(self, design: Design, load: ServingLoad, fidelity: str) -> Breakdown:
        """Breakdown of instances' time by operator and idle, of a run or of the steady state."""
        by = ITERATION_FIDELITY if fidelity == STEADY else fidelity

        def operators(pool: int, mean: served.MeanIteration) -> Sequence[BreakdownRow]:
            return self.iteration_rows(design, load, pool, mean.times, mean.composition, by)

        if fidelity == STEADY:
            means = self._steady_state(design, load)[1].means
            return steady.steady_state_breakdown(means, self.area_by_block(design), operators)
        run = self._run(design, load, fidelity, served.LOGGED_ITERATIONS)[0]
        if run is None:
            return Breakdown((), 0.0, self.area_by_block(design), {})
        names = POOL_NAMES[-2:] if len(run.pools) == 2 else POOL_NAMES[:1]
        return served.run_breakdown(run, self.area_by_block(design), operators, names=names)

    def serving_power_profile(self, design: Design, load: ServingLoad, fidelity: str) -> PowerProfile | None:
        """Power of all chips over the first iterations, each at its mean power."""
        kept = TIMELINE_ITERATIONS if self.POWER_ONE_BY_ONE else served.LOGGED_ITERATIONS
        run = self._run(design, load, fidelity, kept)[0]
        if run is None:
            return None
        return drawn.run_power_profile(
            run,
            lambda pool, made_of: self.mean_iteration_power(design, load, pool, made_of, fidelity),
            self.idle_watts(design),
        )

    def idle_watts(self, design: Design) -> float:
        """Power of all chips while nothing is done. [W]"""
        return sum(idle_power(chip, count) for chip, count in self.chips_by_kind(design))

    def simulate_load(self, design: Design, load: ServingLoad, fidelity: str) -> ServingRun | None:
        """Serving simulation of a load, without logged iterations."""
        return self._run(design, load, fidelity, 0)[0]

    def unloaded_latency(self, design: Design, load: ServingLoad, fidelity: str) -> tuple[float, float]:
        """TTFT and TPOT of requests on an idle deployment."""
        made, _ = self.deploy_load(design, load, fidelity)
        return served.unloaded_latency(lambda requests: made, load)

    def deployment_factory(
        self, design: Design, load: ServingLoad, pools: Sequence[InstancePool]
    ) -> Callable[[Requests], Deployment]:
        """Function that gives the deployment of the pools, equal at any rate."""
        made = self.join_pools(design, load, pools)
        return lambda requests: made

    def deploy_load(self, design: Design, load: ServingLoad, fidelity: str) -> tuple[Deployment, list[served.CheckedTable]]:
        """Deployment for a load, with its iteration-time tables; its memory must fit the longest request."""
        pools, tables = self.make_pools(design, load, fidelity)
        return self.join_pools(design, load, pools), tables

    def make_pools(
        self, design: Design, load: ServingLoad, fidelity: str
    ) -> tuple[list[InstancePool], list[served.CheckedTable]]:
        """Pools of a design, with their iteration-time tables; coarse ones for the steady state."""
        serving = _serving(design)
        instances = self.instances(design, load, ITERATION_FIDELITY if fidelity == STEADY else fidelity)
        pools, tables = list[InstancePool](), list[served.CheckedTable]()
        for group in instance_groups(serving, instances):
            instance, rule, batch, _ = group
            table = served.iteration_time_table(
                instance.pricing,
                rule,
                batch,
                served.longest_sequence(load) + 1,
                spread=steady.coarse_table_points(instance.axes, load, instance.copies, instance.graph_sizes)
                if fidelity == STEADY
                else instance.axes,
                checks=instance.checks,
                key=instance.key,
            )
            tables.append(table)
            pools.append(make_pool(serving, group, load, table.price, float(instance.free), instance.room.design_memory(0)))
        return with_speculation(pools, load), tables

    def join_pools(self, design: Design, load: ServingLoad, pools: Sequence[InstancePool]) -> Deployment:
        """Deployment of a design's pools, with the KV transfer between them."""
        path = self.kv_path(design, load) if len(pools) == 2 else None
        return make_deployment(_serving(design), pools, load, path, 0)

    def kv_memory_by_pool(self, design: Design, load: ServingLoad) -> tuple[PoolKvMemory, ...]:
        """KV memory of one instance in each pool, if the block count is set."""
        serving = _serving(design)
        if not serving.kv_blocks:
            return ()
        names, kv_memory = POOL_NAMES[-2:] if serving.prefill_instances else POOL_NAMES[:1], list[PoolKvMemory]()
        for name, instance in zip(names, self.instances(design, load, ITERATION_FIDELITY), strict=True):
            memory = make_kv_memory(serving, load, float(instance.free), instance.room.design_memory(0), instance.copies)
            each = max(memory.each, 1)  # a request's states alone have no tokens
            tokens = [blocks // each * memory.block for blocks in (int(serving.kv_blocks), memory.blocks)]
            kv_memory.append(PoolKvMemory(name, int(serving.kv_blocks), memory.blocks, *tokens))
        return tuple(kv_memory)

    def _run(
        self, design: Design, load: ServingLoad, fidelity: str, log: int
    ) -> tuple[ServingRun | None, list[served.CheckedTable]]:
        """Serving run of a load with so many logged iterations, and its tables; no run if no rate keeps the SLOs."""
        deployment, tables = self.deploy_load(design, load, fidelity)
        return served.run_load(lambda requests: deployment, load, log), tables

    def _steady_state(self, design: Design, load: ServingLoad) -> tuple[Deployment, steady.SteadyStateRun]:
        """Deployment and steady state of one design."""
        steady.refuse_unsteady_load(load)
        deployment = self.deploy_load(design, load, STEADY)[0]
        return deployment, steady.solve_steady_run(deployment, load, *self.die_and_system_area(design))

    def _peak_power(self, design: Design, load: ServingLoad, pools: Sequence[peak.PoolConcurrency]) -> float:
        """Peak power of one design in the steady state. [W]"""

        def watts(pool: int, made_of: Composition) -> Any:
            return self.iteration_power(design, load, pool, made_of, ITERATION_FIDELITY)

        return float(np.squeeze(peak.peak_power(pools, watts)))


def _iterations_of_run(run: ServingRun) -> IterationCounts:
    """Mean iterations of a run, by pool and span of tokens."""
    return [
        [(mean.times, mean.composition) for kind in served.mean_iterations_by_span(run, pool) for mean in kind if mean.times]
        for pool in range(len(run.pools))
    ]


def _serving(design: Design) -> ServingPlan:
    plan: ServingPlan = design.mapping.serving
    return plan
