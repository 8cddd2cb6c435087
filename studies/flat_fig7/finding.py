"""Findings on row multicasts and row sums: cycles by size and implementation, and network gains.

The findings are a table and pictures.
"""

from dse.config.compose import compose, find_study_folder
from dse.config.question import build_question
from dse.evaluators import evaluate
from dse.studies.markdown_table import table

SIZES = (*(f"{2**power} KiB" for power in range(10)), "1 MiB")
"""Beyond what L1 has room for as well: what would be, if it had."""

PICTURE = """```mermaid
xychart-beta
    title "{title}, cycles of software over cycles of hardware"
    x-axis [{sizes}]
    y-axis "times" {low} --> {high}
    line [{tree}]
    line [{sequential}]
```"""


def finding() -> str:
    """One row per pattern and size, and one picture per pattern."""
    config = compose(["study=flat_fig7", f"workload.bytes=[{','.join(size.replace(' ', '') for size in SIZES)}]"])
    question = build_question(config, find_study_folder(config))
    names = question.space.knob("mapping.collective").values
    columns = question.space.grid(0, len(names))
    cases = evaluate(question.space.stack(columns), question.workload, fidelity=config["fidelity"], cases=True).cases
    rows, pictures = [], []
    for pattern in dict.fromkeys(case.pattern for case in question.workload.cases):
        places = [place for place, case in enumerate(question.workload.cases) if case.pattern == pattern]
        cycles = {name: cases["cycles"][places, at] for at, name in enumerate(names)}
        fits = cases["fits"][places].all(axis=1)
        gains = {name: cycles[name] / cycles["hardware"] for name in ("tree", "sequential")}
        for at, size in enumerate(SIZES):
            numbers = [f"{cycles[name][at]:,.0f}" for name in names]
            rows.append([pattern, size, *numbers, *(f"{gains[name][at]:.2f}" for name in gains), "" if fits[at] else "no"])
        pictures.append(
            PICTURE.format(
                title=f"Row {pattern}",
                sizes=", ".join(f'"{size}"' for size in SIZES),
                low=0,
                high=10 * (int(max(gains["sequential"])) // 10 + 1),
                **{name: ", ".join(f"{gain:.2f}" for gain in gains[name]) for name in gains},
            )
        )
    head = ["pattern", "size", *(f"{name}, cycles" for name in names), "tree / hardware", "sequential / hardware", "fits L1"]
    return "\n\n".join([table(head, rows), *pictures])
