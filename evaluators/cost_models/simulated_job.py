"""Simulated cost of jobs, and the time saved when parts of their programs are removed in turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from dse.evaluators.cost_models.simulation_timing import SimulationResult
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.program.kernel_ir import Instruction, Loop, Program, Round

ProgramSimulator = Callable[..., SimulationResult]
"""Simulator of programs: `simulate_events` or `simulate_cycles`."""


@dataclass(frozen=True, slots=True)
class JobSimulator:
    """Simulator of one kind of jobs at one fidelity.

    Attributes:
        parts: what the time goes into, in words, in the order in which they are taken out.
        played: what a job takes with its last parts only: the job, how many of them, and the simulator.
        play: simulator of the programs.
    """

    parts: Sequence[str]
    played: Callable[[Any, int, ProgramSimulator], SimulationResult]
    play: ProgramSimulator

    def job_cost(self, job: Any) -> KernelCost:
        """Time [s] and activity of a job whose leaves are numbers."""
        timing = self.played(job, len(self.parts), self.play)
        return KernelCost(timing.seconds, timing.activity)

    def time_by_resource(self, job: Any) -> dict[str, float]:
        """Time of a job by resource: time saved by simulating without each part in turn. [s]"""
        times = [self.played(job, left, self.play).seconds for left in range(len(self.parts), 0, -1)]
        return dict(zip(self.parts, (*(a - b for a, b in pairwise(times)), times[-1]), strict=True))


def remove_instructions(program: Program, gone: Callable[[Instruction], bool]) -> Program:
    """The program without some of its instructions."""
    known: dict[int, Round] = {}

    def strip_round(turn: Round) -> Round:
        if id(turn) not in known:
            known[id(turn)] = replace(turn, steps=tuple(step for step in turn.steps if not gone(step)))
        return known[id(turn)]

    def strip_rounds(turns: tuple[Round, ...]) -> tuple[Round, ...]:
        return tuple(turn for turn in map(strip_round, turns) if turn.steps)

    strands = []
    for strand in program.strands:
        parts: list[Round | Loop] = []
        for part in strand:
            parts += [replace(part, body=strip_rounds(part.body))] if isinstance(part, Loop) else strip_rounds((part,))
        strands.append(tuple(parts))
    return replace(program, strands=tuple(strands))
