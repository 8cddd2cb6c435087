"""CPU time of `dse explain` and `dse whynot` on a design of mesh_llm: python -m tests.speed.explanations [OVERRIDE ...]

Searches a few designs first, then explains the best one in three new processes: one whose store knows nothing of its
neighbours, the same again, and where it stands. CPU seconds are counted from the end of the imports, to the first answer and
to the last. The baseline evaluates the same neighbours one by one, each in its own call.
"""

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from dse.commands.notebook_api import StoredStudy, find_study
from dse.execution.ask_tell import run_search
from dse.execution.result_frame import DESIGN, report_order
from dse.execution.workers import SerialWorkers, make_evaluator
from dse.search.samplers import RandomSampler
from dse.store.store import Store

DESIGNS = 24
"""Designs that are searched beside the papers' points."""

IMPORTS = """
import sys, time
import dse
from dse.commands import explain
from dse.config.compose import compose
compose(["study=mesh_llm"])
from dse.execution.study import build_study
begin, first = time.process_time(), []
def show(*given):
    first or first.append(time.process_time() - begin)
folder, which = sys.argv[1:]
"""

EXPLAIN = """
explain.explain_study_design("mesh_llm", which, f"run_dir={folder}", show=show).certificate
print(first[0], time.process_time() - begin)
"""

WHYNOT = """
explain.explain_dominance("mesh_llm", f"run_dir={folder}", which=which, show=show)
print(first[0], time.process_time() - begin)
"""

ALONE = """
from dse.commands.notebook_api import find_study
from dse.explanations.explanation import study_goal
from dse.explanations.neighbours import evaluate_points, list_neighbours
from dse.explanations.stored_design import find_stored_design
from dse.commands.notebook_api import StoredStudy
loaded = StoredStudy(find_study("mesh_llm", f"run_dir={folder}"))
design = find_stored_design(loaded.study, *loaded.designs(), which)
begin = time.process_time()
for step in list_neighbours(loaded.study.question.space, design.values):
    evaluate_points([step.design], study_goal(loaded.study))
print(0, time.process_time() - begin)
"""


def explained(*overrides: str) -> list[tuple[str, str, str]]:
    """Lines of the speed table."""
    with TemporaryDirectory() as folder:
        study = find_study("mesh_llm", f"run_dir={folder}", "screen.run=false", *overrides)
        with closing(Store(study.store)) as store:
            store.begin(study.name, study.identity(), {"overrides": list(study.overrides)})
            workers = SerialWorkers(make_evaluator(study.question.workload, study.fidelity))
            seeds = list(study.points.values())
            sampler = RandomSampler(study.question.space, study.seed)
            run_search(study, store, sampler, workers, DESIGNS + len(seeds), seeds, lambda done, results: None)
        rows = report_order(study, StoredStudy(study).frame())
        best = str(rows[DESIGN].iloc[0])
        _, alone = cpu_seconds(ALONE, folder, best)
        lines = []
        for what, script in (("explain", EXPLAIN), ("explain, again", EXPLAIN), ("whynot", WHYNOT), ("whynot, again", WHYNOT)):
            first, last = cpu_seconds(script, folder, best)
            lines.append(
                (f"dse {what}, a design of mesh_llm", f"{first:.1f} s CPU to the first answer, {last:.1f} s in all", "")
            )
        lines[0] = (*lines[0][:2], f"{alone:.1f} s CPU its neighbours alone, one by one")
        return lines


def cpu_seconds(script: str, folder: str, which: str) -> tuple[float, float]:
    """CPU seconds that a script prints."""
    command = [sys.executable, "-c", IMPORTS + script, folder, which]
    out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(folder)).stdout
    first, last = out.split()[-2:]
    return float(first), float(last)


if __name__ == "__main__":
    for line in explained(*sys.argv[1:]):
        print(" | ".join(line))
