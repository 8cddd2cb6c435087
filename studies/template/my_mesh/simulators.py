"""A simulator of our own that is another program: started for each design, files in and out, as ``fidelity=mine``."""

import sys

from dse.evaluators.external.program import ExternalProgram, program_evaluator
from dse.space.design import Design
from dse.space.workload import BatchCase, WorkloadCase

PROGRAM = ExternalProgram(
    command=(sys.executable, "-P", "-m", "my_mesh.stand_in", "question.json", "answer.json"),  # put your program here
    time_limit=60.0,
    memory_limit=2e9,
    tries=2,
)
"""Reads question.json (settings, case, analytical metrics) in its folder, and writes answer.json: metrics in SI by name."""


def answers(design: Design, case: WorkloadCase) -> bool:
    """Batches of requests on dies with a software stack."""
    return isinstance(case, BatchCase) and design.mapping.stack is not None


MINE = program_evaluator("our simulator, a program", PROGRAM, answers)
