"""Search the study on public traces and write its findings into README.md (takes minutes).

python -m dse.studies.npu_serving [--budget N] AZURE.csv MOONCAKE.jsonl
"""

import sys
import tempfile
import time
from pathlib import Path

import dse
from dse.commands.study_output import format_knob
from dse.evaluators import METRICS
from dse.space.units import format_quantity
from dse.studies.markdown_table import table
from dse.studies.npu_serving.finding import ways

START, END = "<!-- searched: python -m dse.studies.npu_serving -->", "<!-- end of searched -->"
LOADS = {
    "Azure's conversations, 1,000 requests as they came": (1000, ("workload.requests=1000",)),
    "Mooncake's conversations, 300 requests at a tenth of their rate, cut at 32,768 tokens, 20 s to the first token": (
        300, ("workload.requests=300", "workload.rate_scale=0.1", "workload.max_length=32768", "workload.ttft=20 s"),
    ),
}  # fmt: skip
"""Designs, and the workload of each trace, in the order of the arguments."""


def main(arguments: list[str]) -> None:
    """Write the study's part of the README."""
    fewer = None
    if arguments[:1] == ["--budget"]:
        fewer, arguments = int(arguments[1]), arguments[2:]
    parts = []
    for (name, (budget, load)), trace in zip(LOADS.items(), arguments, strict=True):
        parts.append(f"**{name}.**\n\n" + search_best((f"workload.trace={Path(trace).resolve()}", *load), fewer or budget))
    place = Path(__file__).with_name("README.md")
    text = place.read_text()
    place.write_text(text[: text.index(START)] + f"{START}\n\n" + "\n\n".join(parts) + f"\n\n{text[text.index(END) :]}")


def search_best(load: tuple[str, ...], budget: int) -> str:
    """Best designs of a search by each objective, with all knobs, and published settings for comparison."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        run = dse.run("npu_serving", *load, f"search.budget={budget}", "workers=serial", f"run_dir={folder}/run")
        seconds = time.process_time() - start
        study, front, everything = run.study, run.front(), run.frame()
    rows = []
    for name, direction in study.objectives.items() if len(front) else ():
        best = front.sort_values(name, ascending=direction == "min").iloc[0]
        knobs = ", ".join(
            f"{knob.address.split('.', 1)[1]} {format_knob(study, knob.address, best[knob.address])}"
            for knob in study.question.space.knobs
            if best[knob.address] == best[knob.address] and best[knob.address] != -1
        )
        rows.append(
            [name, *(format_quantity(float(best[objective]), METRICS[objective].unit) for objective in study.objectives), knobs]
        )
    counts = (
        f"{len(everything):,} designs in {seconds / 60:.0f} CPU minutes, {len(everything) / seconds:.1f} a second on one core: "
        f"{int(everything['feasible'].sum()):,} keep limits and bounds, {len(front):,} are on the front. "
        "Its best by each objective:"
    )
    return "\n\n".join([counts, table(["best by", *study.objectives, "knobs"], rows), ways(*load)])


if __name__ == "__main__":
    main(sys.argv[1:])
