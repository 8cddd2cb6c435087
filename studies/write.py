"""Writes the numbers of the studies' findings into their README.md, between the marks; with --check, only compares.

    python -m studies.write [--check] [STUDY ...]

A study with numbers has a ``finding.py`` whose function ``finding()`` returns Markdown.
"""

import importlib
import sys
from pathlib import Path

START, END = "<!-- numbers: python -m studies.write -->", "<!-- end of numbers -->"
HERE = Path(__file__).parent


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)


def written(name: str) -> tuple[str, str]:
    """A README as it is, and as its numbers make it; ``README`` is the project's own."""
    text = place(name).read_text()
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    finding = published() if name == "README" else importlib.import_module(f"studies.{name}.finding").finding()
    return text, f"{before}{START}\n\n{finding.strip()}\n\n{END}{after}"


def place(name: str) -> Path:
    """Where a README is."""
    return HERE.parent / "README.md" if name == "README" else HERE / name / "README.md"


def published() -> str:
    """Published against simulated, all studies, rows that are ratios or optima first; seconds are in the studies."""
    from dse.validate import compare

    rows = []
    for path in sorted(HERE.glob("*/published.csv")):
        for row in compare(path):
            if row.unit == "s":
                continue
            what = f"{row.where}: {row.note or row.metric}"
            simulated = "infeasible" if row.simulated is None else f"{row.simulated:.3g}"
            error = "" if row.error is None else f"{row.error:+.1%}"
            rows.append([path.parent.name, what, f"{row.published} {row.unit}", simulated, error, row.role])
    return table(["study", "figure", "published", "simulated", "error", "role"], rows)


def names() -> list[str]:
    """Studies that have a finding."""
    found = sorted(path.parent.name for path in HERE.glob("*/finding.py"))
    return [*found, "README"] if place("README").exists() else found


def main(arguments: list[str]) -> int:
    """Writes or checks; returns the exit status."""
    stale = []
    for name in [argument for argument in arguments if argument != "--check"] or names():
        old, new = written(name)
        if old == new:
            continue
        stale.append(name)
        if "--check" not in arguments:
            place(name).write_text(new)
            print(f"{place(name)} written")
    if stale and "--check" in arguments:
        print(f"numbers are stale in {', '.join(stale)}: run python -m studies.write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
