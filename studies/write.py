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
    """A study's README as it is, and as its finding makes it."""
    path = HERE / name / "README.md"
    text = path.read_text()
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    finding = importlib.import_module(f"studies.{name}.finding").finding()
    return text, f"{before}{START}\n\n{finding.strip()}\n\n{END}{after}"


def names() -> list[str]:
    """Studies that have a finding."""
    return sorted(path.parent.name for path in HERE.glob("*/finding.py"))


def main(arguments: list[str]) -> int:
    """Writes or checks; returns the exit status."""
    stale = []
    for name in [argument for argument in arguments if argument != "--check"] or names():
        old, new = written(name)
        if old == new:
            continue
        stale.append(name)
        if "--check" not in arguments:
            (HERE / name / "README.md").write_text(new)
            print(f"studies/{name}/README.md written")
    if stale and "--check" in arguments:
        print(f"numbers are stale in {', '.join(stale)}: run python -m studies.write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
