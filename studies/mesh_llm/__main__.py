"""Run or resume the study and write its findings into README.md (a quarter of an hour).

python -m dse.studies.mesh_llm [RUN_DIR]
"""

import sys
import time
from pathlib import Path

import pandas as pd

import dse
from dse.commands.notebook_api import StoredStudy
from dse.commands.study_output import knob_text
from dse.evaluators import METRICS
from dse.execution.study import Study
from dse.space.units import format_quantity
from dse.studies.write import table

START, END = "<!-- searched: python -m dse.studies.mesh_llm -->", "<!-- end of searched -->"


def main(arguments: list[str]) -> None:
    """Write the study's part of the README."""
    start, cpu = time.monotonic(), time.process_time()
    found = dse.run("mesh_llm", *(f"run_dir={Path(folder).resolve()}" for folder in arguments[:1]))
    minutes, driver = (time.monotonic() - start) / 60, (time.process_time() - cpu) / 60
    took = f"This run took {minutes:.1f} minutes, and {driver:.1f} minutes of the driver's CPU."
    place = Path(__file__).with_name("README.md")
    text = place.read_text()
    place.write_text(text[: text.index(START)] + f"{START}\n\n{said(found)}\n\n{took}\n\n{text[text.index(END) :]}")


def said(found: StoredStudy) -> str:
    """Text of counts by chip, and of the best designs of each chip and of all by each objective."""
    asked, frame, front = found.study, found.frame(), found.front()
    good = frame[frame["feasible"]]
    chips = list(asked.question.space.knobs[0].values)  # type: ignore[union-attr]
    counts = [[name, *(str(int((of["chip"] == name).sum())) for of in (frame, good, front))] for name in chips]
    parts = [table(["chip", "designs", "keep all bounds", "on the front"], counts)]
    for name, direction in asked.objectives.items():
        rows = []
        for chip in chips:
            some = good[good["chip"] == chip].sort_values(name, ascending=direction == "min", kind="stable")
            if len(some):
                rows.append(_row(asked, some.iloc[0], chip))
        parts.append(f"The best of each chip by {name}:\n\n" + table(["chip", *asked.objectives, "knobs"], rows))
    return "\n\n".join(parts)


def _row(asked: Study, best: pd.Series, chip: str) -> list[str]:
    knobs = ", ".join(
        f"{knob.address} {knob_text(asked, knob.address, best[knob.address])}"
        for knob in asked.question.space.knobs[1:]
        if best[knob.address] == best[knob.address] and best[knob.address] is not None
    )
    return [chip, *(format_quantity(float(best[one]), METRICS[one].unit) for one in asked.objectives), knobs]


if __name__ == "__main__":
    main(sys.argv[1:])
