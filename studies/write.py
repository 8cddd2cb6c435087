"""Write the figures of the studies' findings into their documents; compare only with --check.

Findings go into each README.md and the project's documents, between the marks; residuals go into studies/residuals.csv,
and verdicts into studies/claims/verdicts.csv.

    python -m dse.studies.write [--check] [STUDY ...]

A study with figures has a ``finding.py`` whose function ``finding()`` returns Markdown. The name ``claims`` stands for
the verdicts and for what is written from them.
"""

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dse.accuracy import claims, residuals
from dse.accuracy.validate import ROLES, ValidationRow, compare_file, format_row_error, score_rows
from dse.studies.markdown_table import table

START, END = "<!-- numbers: python -m dse.studies.write -->", "<!-- end of numbers -->"
HERE = Path(__file__).resolve().parent
DOCUMENTS = {"README": "README.md", "accuracy": "docs/accuracy.md"}
RESIDUALS = "residuals"
"""How far off each row is, which answers' bands are made of."""

VERDICTS = "verdicts"
"""Verdicts of all claims of papers, from which the README of the claims and the lines of the project's are written."""

WITH_VERDICTS = {"claims": (VERDICTS, "claims")}
"""Names that stand for several documents, in the order in which they are written."""

PAPERS = {
    "preserve": "PRESERVE (dies with L2, prefetching)",
    "waferllm": "WaferLLM (wafers, kernels on a mesh)",
    "npusim": "NpuSim (LLM serving on multi-core NPUs)",
    "flat": "FlatAttention (attention on tiles)",
    "deepseek": "DeepSeek-V3 on FlatAttention's wafer of 64 dies",
    "noc": "Router networks under load",
    "hbm": "HBM under patterns of addresses",
    "gpu_measured": "Kernels of GPUs (products, experts, attention, passes, collectives)",
    "gpu_deployments": "Services on GPUs, of kernels measured alone",
    "silicon": "Chips that exist (areas of dies, rated powers)",
    "engines": "Inference engines as they run (GPUs, Gaudi, MI300X, Tenstorrent, Groq)",
}
"""By what the names of their studies begin with."""


def written_document(name: str) -> tuple[str, str]:
    """Text of a document now, and with its figures computed again."""
    if name in (RESIDUALS, VERDICTS):
        new = (
            residuals.format_residuals_csv(compare_all())
            if name == RESIDUALS
            else claims.format_verdict_file(map(claims.decide_claim, claims.find_claims(())))
        )
        return place(name).read_text() if place(name).exists() else "", new
    text = place(name).read_text()
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    finding = FINDINGS[name]() if name in DOCUMENTS else importlib.import_module(f"dse.studies.{name}.finding").finding()
    return text, f"{before}{START}\n\n{finding.strip()}\n\n{END}{after}"


def place(name: str) -> Path:
    """Path of a document, given its name."""
    if name == RESIDUALS:
        return residuals.FILE
    if name == VERDICTS:
        return claims.folder() / claims.VERDICT_FILE
    return HERE.parent / DOCUMENTS[name] if name in DOCUMENTS else HERE / name / "README.md"


def compare_all() -> dict[str, list[ValidationRow]]:
    """Every row of every study, compared with the simulation."""
    return {path.parent.name: compare_file(path) for path in sorted(HERE.glob("*/published.csv"))}


def published_text() -> str:
    """Table of published and simulated figures of all studies, without rows in seconds."""
    rows = []
    for path in sorted(HERE.glob("*/published.csv")):
        for row in compare_file(path):
            if row.unit == "s":
                continue
            what = f"{row.where}: {row.note or row.metric}"
            simulated = "infeasible" if row.simulated is None else f"{row.simulated:.3g}"
            rows.append([path.parent.name, what, f"{row.published} {row.unit}", simulated, format_row_error(row), row.role])
    return table(["study", "figure", "published", "simulated", "error", "role"], rows)


def accuracy() -> str:
    """Summary of errors by paper, and the number of claims of each paper that hold."""
    tallies: str = importlib.import_module("dse.studies.claims.finding").tallies()
    return f"{summary()}\n\n{tallies}" if tallies else summary()


def summary() -> str:
    """Table of simulation errors, a paper per row, with numbers and ranges of each role in columns."""
    head = ["paper", *(word for role in ROLES for word in (f"{role} numbers", "median, worst error", "ranges hold"))]
    comparison = compare_all()
    return table(head, [line(paper, rows_of_paper(prefix, comparison)) for prefix, paper in PAPERS.items()])


def rows_of_paper(prefix: str, rows: Mapping[str, Sequence[ValidationRow]]) -> list[ValidationRow]:
    """Rows of one paper, by the beginning of its studies' names."""
    return [row for study, rows in rows.items() if study.startswith(prefix) for row in rows]


def line(paper: str, rows: Sequence[ValidationRow]) -> list[str]:
    """Table cells of one paper: errors and held ranges by role."""
    cells = [paper]
    for role in ROLES:
        score = score_rows(row for row in rows if row.role == role)
        cells += [f"{len(score.errors)}" if score.errors else "", score.error_text, score.range_text]
    return cells


FINDINGS = {"README": accuracy, "accuracy": published_text}
"""What is written into the project's documents."""


def names() -> list[str]:
    """Names of documents to write: verdicts, findings, residuals and, if present, project documents."""
    names = sorted(path.parent.name for path in HERE.glob("*/finding.py"))
    return [VERDICTS, *names, RESIDUALS, *(name for name in DOCUMENTS if place(name).exists())]


def main(arguments: list[str]) -> int:
    """Write or check the documents; returns the exit status."""
    stale = []
    typed = [WITH_VERDICTS.get(argument, (argument,)) for argument in arguments if argument != "--check"]
    for name in [name for several in typed for name in several] or names():
        old, new = written_document(name)
        if old == new:
            continue
        stale.append(name)
        if "--check" not in arguments:
            place(name).write_text(new)
            print(f"{place(name)} written")
    if stale and "--check" in arguments:
        print(f"numbers are stale in {', '.join(stale)}: run python -m dse.studies.write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
