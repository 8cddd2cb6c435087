"""Run or resume the study and write its findings into README.md (a quarter of an hour).

python -m dse.studies.mesh_llm [RUN_DIR]
"""

import sys
import time
from pathlib import Path

import pandas as pd

import dse
from dse.commands.notebook_api import StoredStudy
from dse.commands.study_output import format_knob
from dse.evaluators import METRICS
from dse.execution.study import Study
from dse.space.units import format_quantity
from dse.studies.markdown_table import table
from dse.studies.mesh_llm.variations import variations_text

START, END = "<!-- searched: python -m dse.studies.mesh_llm -->", "<!-- end of searched -->"


def main(arguments: list[str]) -> None:
    """Write the study's part of the README."""
    start, cpu = time.monotonic(), time.process_time()
    run = dse.run("mesh_llm", *(f"run_dir={Path(folder).resolve()}" for folder in arguments[:1]))
    minutes, driver = (time.monotonic() - start) / 60, (time.process_time() - cpu) / 60
    took = f"This run took {minutes:.1f} minutes, and {driver:.1f} minutes of the driver's CPU."
    place = Path(__file__).with_name("README.md")
    text = place.read_text()
    searched = f"{summary_text(run)}\n\n{variations_text(run)}\n\n{took}"
    place.write_text(text[: text.index(START)] + f"{START}\n\n{searched}\n\n{text[text.index(END) :]}")


def summary_text(study: StoredStudy) -> str:
    """Text of counts by chip, and of the best designs of each chip and of all by each objective."""
    wanted_study, frame, front = study.study, study.frame(), study.front()
    good = frame[frame["feasible"]]
    chips = list(wanted_study.question.space.knobs[0].values)  # type: ignore[union-attr]
    counts = [[name, *(str(int((frame_part["chip"] == name).sum())) for frame_part in (frame, good, front))] for name in chips]
    parts = [table(["chip", "designs", "keep all bounds", "on the front"], counts)]
    for name, direction in wanted_study.objectives.items():
        rows = []
        for chip in chips:
            chip_rows = good[good["chip"] == chip].sort_values(name, ascending=direction == "min", kind="stable")
            if len(chip_rows):
                rows.append(_row(wanted_study, chip_rows.iloc[0], chip))
        parts.append(f"The best of each chip by {name}:\n\n" + table(["chip", *wanted_study.objectives, "knobs"], rows))
    return "\n\n".join(parts)


def _row(study: Study, best: pd.Series, chip: str) -> list[str]:
    knobs = ", ".join(
        f"{knob.address} {format_knob(study, knob.address, best[knob.address])}"
        for knob in study.question.space.knobs[1:]
        if best[knob.address] == best[knob.address] and best[knob.address] is not None
    )
    return [chip, *(format_quantity(float(best[objective]), METRICS[objective].unit) for objective in study.objectives), knobs]


if __name__ == "__main__":
    main(sys.argv[1:])
