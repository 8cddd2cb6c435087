"""How long the steps around a front take: python -m tests.speed.elastic [STUDY] [DESIGNS] [stored] [alone] [OVERRIDE ...]

Every step of every knob, both ways, around the first so many designs of the front that a study's screen finds (quickstart and
100), by the lowest reader that the study has, in a process that has screened them before, with others of the machine where that
takes less time. With `stored` the front is what is stored in runs/STUDY, which this process did not evaluate; with `alone` no
other process helps. The bar is 20 s for 100 designs.
"""

import sys
import time
from tempfile import TemporaryDirectory

from dse.commands.notebook_api import find_study, load
from dse.execution.pool.worker_settings import WorkerSettings
from dse.execution.screen import encode_rows, run_screen
from dse.explanations.elasticities import compute_knob_effects
from dse.explanations.explanation import list_front_outcomes, study_goal
from dse.explanations.neighbours import analytical_goal


def stepped(study: str, designs: int, *words: str) -> tuple[str, str, str]:
    """A line of a table."""
    with TemporaryDirectory() as folder:
        if "stored" in words:
            wanted_study = find_study(study)
            rows = [values for _, values, _ in list_front_outcomes(wanted_study, load(study).frame())][:designs]
        else:
            given_words = [word for word in words if word != "alone"]
            wanted_study = find_study(study, "workers.kind=serial", f"run_dir={folder}", *given_words)
            front = run_screen(wanted_study, lambda done, total, size: None).front.iloc[:designs]
            columns = encode_rows(wanted_study.question.space, front)
            rows = [wanted_study.question.space.row(columns, row) for row in range(len(front))]
    space, goal, crew = (
        wanted_study.question.space,
        study_goal(wanted_study),
        WorkerSettings("serial" if "alone" in words else "auto"),
    )
    start, wall = time.process_time(), time.perf_counter()
    changes = compute_knob_effects(space, rows, goal, crew=crew)
    spent, wall = time.process_time() - start, time.perf_counter() - wall
    steps = sum(len(change) for change in changes if change is not None)
    reader = analytical_goal(goal, space.base).fidelity
    said_of = f"{steps:,} steps around {len(rows)} designs of {study}'s front, {reader}"
    return said_of, f"{wall:.2f} s, {spent:.2f} s CPU of this process", "20 s for 100"


if __name__ == "__main__":
    count = next((int(word) for word in sys.argv[1:] if word.isdigit()), 100)
    said = [word for word in sys.argv[1:] if not word.isdigit()]
    print(*stepped((said or ["quickstart"])[0], count, *said[1:]), sep=" | ")
