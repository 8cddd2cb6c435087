"""Screens of mesh_llm by the steady state, chip by chip: designs a second that are new to the process, and again.

`python -m tests.speed.screens [DESIGNS] [CHIP ...]`; CPU seconds of one process, after a few designs of each kind.
"""

import sys

import numpy as np

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate
from dse.search.samplers import generate_sobol_points
from tests.samples import AT_ONE_RATE
from tests.speed.clock import cpu

CHIPS = ("npu64", "npu_whole", "tile_gh200", "wafer64", "npu_dse", "wse2")

WARM = 8
"""Designs before those that count: imports, compiled loops."""


def screened(chip: str, count: int) -> tuple[int, float, float]:
    """Designs that keep all limits, and seconds of CPU: of designs that are new, and of the same ones again. [s]"""
    question = find_study("mesh_llm", f"chips=[{chip}]", *AT_ONE_RATE).question
    sample = question.space.sample(generate_sobol_points(len(question.space.knobs), 0, count + WARM, 0))
    few, many = (question.space.stack({a: c[span] for a, c in sample.items()}) for span in (slice(WARM), slice(WARM, None)))
    evaluate(few, question.workload, fidelity="steady_state")
    kept = 0

    def work() -> None:
        nonlocal kept
        kept = int(np.sum(evaluate(many, question.workload, fidelity="steady_state").feasible))

    new, again = cpu(work), cpu(work)
    return kept, new, again


if __name__ == "__main__":
    count = next((int(word) for word in sys.argv[1:] if word.isdigit()), 256)
    for name in [word for word in sys.argv[1:] if not word.isdigit()] or CHIPS:
        kept, new, again = screened(name, count)
        print(f"{name} | {count} designs, {kept} keep all limits | {count / new:.1f} and {count / again:,.0f} designs/s CPU")
