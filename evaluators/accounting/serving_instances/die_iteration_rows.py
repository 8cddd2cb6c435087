"""Iterations of many dies that serve requests: time, activity, and breakdown rows."""

from dataclasses import replace
from typing import Any, NamedTuple

from dse.evaluators.accounting.breakdown import BreakdownRow
from dse.evaluators.accounting.multi_die import PassWork, detailed_blocks, exchange_activity
from dse.evaluators.accounting.phase import PhaseCost
from dse.evaluators.accounting.serving_instances import Composition
from dse.evaluators.accounting.serving_instances.multi_die_iterations import useful_operations_of, whole_iteration
from dse.evaluators.accounting.serving_instances.served_die import ServedDie
from dse.evaluators.cost_models import die_exchange_jobs as crossings
from dse.evaluators.layouts.engine_overheads import OverheadTimes
from dse.evaluators.layouts.micro_batches import IterationWork
from dse.evaluators.layouts.multi_die import DieSplit
from dse.evaluators.machine.machine import HardwareModel
from dse.evaluators.program.activity import Activity
from dse.space.workload import ServingLoad


class DieIteration(NamedTuple):
    """One iteration on many dies: its work, forward pass, division, and time beyond its kernels. [s]"""

    asked: IterationWork
    played: PassWork
    split: DieSplit
    overheads: OverheadTimes

    @property
    def seconds(self) -> float:
        """Time of the iteration. [s]"""
        return float(self.overheads.iteration_seconds(self.played.seconds(self.split)))


def iteration_work_rows(
    die: ServedDie, machine: HardwareModel, load: ServingLoad, run: DieIteration, made_of: Composition, fidelity: str
) -> list[BreakdownRow]:
    """Breakdown rows of the calls and exchanges of an iteration on all dies of an instance."""
    it, forward_pass, split = run.asked, run.played, run.split
    once = split._replace(batches=1)
    blocks = tuple(_mean_stage(block, split) for block in detailed_blocks([forward_pass], once))
    flop = sum(unit.flop * unit.times for unit in forward_pass.units) * split.group * split.halves
    phase = PhaseCost(name=it.phase, machine=machine, seconds=run.seconds, work=None, flop=flop)
    # blocks are those of all stages: each is on the dies of one
    share = useful_operations_of(whole_iteration(load, made_of)) / flop if flop else 1.0
    phase, rows = replace(phase, useful_share=share), list[BreakdownRow]()
    # what a die exchanges is the mean over all dies of a stage, also where only some have attention
    apart = [split.attention > 0 and isinstance(block.block.calls[0].job, crossings.DieExchangeJob) for block in blocks]
    for exchanged, dies in ((False, split.attention or split.group), (True, split.group)):
        selected_blocks = tuple(block for block, of_all in zip(blocks, apart, strict=True) if of_all == exchanged)
        rows += die.breakdown_rows(replace(phase, timed=selected_blocks, dies=dies), fidelity)
    beyond = [
        block._replace(block=block.block._replace(times=block.block.times * unit.times * split.halves))
        for unit in forward_pass.units
        for block in unit.beyond
    ]
    if beyond:
        rows += die.breakdown_rows(replace(phase, timed=tuple(beyond), dies=split.ep), fidelity)
    return rows


def _mean_stage(block: Any, split: DieSplit) -> Any:
    """Of all stages, where a batch has the mean one's."""
    return block._replace(block=block.block._replace(times=block.block.times * split.pp))


def run_activity(run: DieIteration) -> Activity:
    """Activity of an iteration, by all dies of an instance."""
    activity, forward_pass, split = Activity(), run.played, run.split
    every = float(split.halves * split.group)
    for unit in forward_pass.units:
        activity = activity + unit.activity * (every * unit.times)
    if forward_pass.onward:
        activity = activity + exchange_activity(forward_pass.onward) * (every * (split.pp - 1))
    return activity
