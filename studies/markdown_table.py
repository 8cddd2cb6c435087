"""A table of a finding, as Markdown."""


def table(head: list[str], rows: list[list[str]]) -> str:
    """Markdown table from a heading and rows."""
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)
