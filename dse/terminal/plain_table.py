"""Tables and lines of plain text for the representations of answers in Python: one screen, without a terminal's codes."""

from collections.abc import Iterable, Sequence
from textwrap import shorten, wrap

WIDTH = 80
"""Columns of a representation at most."""

LINES = 25
"""Lines of a representation at most."""

GAP = "  "
"""Between two columns."""


def align_rows(head: Sequence[str], rows: Sequence[Sequence[str]], width: int = WIDTH) -> list[str]:
    """Lines of a table whose first column is text and whose others are numbers; columns beyond the width are left out.

    Args:
        head: names of the columns.
        rows: cells, shape (rows, columns).
        width: of a line at most. [characters]

    >>> align_rows(["chip", "tpot"], [["h100", "13 ms"], ["mi300x", "9.1 ms"]])
    ['chip      tpot', 'h100     13 ms', 'mi300x  9.1 ms']
    >>> align_rows(["a", "b", "c"], [["1", "22222", "3" * 14]], width=21)
    ['a      b', '1  22222', 'and 1 more column: c']
    """
    sizes = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    sizes[0] = min(sizes[0], width // 2)
    shown = len(sizes)
    while shown > 1 and sum(sizes[:shown]) + len(GAP) * (shown - 1) > width:
        shown -= 1
    lines = []
    for first, *others in (list(row[:shown]) for row in (head, *rows)):
        cells = [cell.rjust(size) for cell, size in zip(others, sizes[1:shown], strict=True)]
        lines.append(GAP.join([cut_text(first, sizes[0]).ljust(sizes[0]), *cells]).rstrip())
    if left := head[shown:]:
        more = f"and {len(left)} more column{'s' * (len(left) > 1)}: {', '.join(left)}"
        lines.append(cut_text(more, width))
    return lines


def label_lines(pairs: Iterable[tuple[str, str]], width: int = WIDTH, most: int = 2) -> list[str]:
    """Lines of labels with a text each, wrapped after the label; empty texts are left out, and long ones cut.

    Args:
        pairs: label and text.
        width: of a line at most. [characters]
        most: lines of one text.

    >>> label_lines([("chip", "h100"), ("set", "")])
    ['chip  h100']
    """
    shown = [(label, text) for label, text in pairs if text]
    size = max((len(label) for label, _ in shown), default=0)
    lines = []
    for label, text in shown:
        room = width - size - len(GAP)
        first, *rest = wrap(cut_text(text, most * room - 8), room) or [""]
        lines.append(f"{label.ljust(size)}{GAP}{first}")
        lines += [" " * (size + len(GAP)) + line for line in rest]
    return lines


def cut_text(text: str, width: int) -> str:
    """Text in so many characters, with an ellipsis where it is longer.

    >>> cut_text("Llama-3-8B batch 16, 5461+2731 tokens", 22)
    'Llama-3-8B batch 16,…'
    """
    text = " ".join(text.split())
    return (
        text
        if len(text) <= width
        else shorten(text, width, placeholder="…")
        if " " in text[:width]
        else f"{text[: width - 1]}…"
    )


def fit_screen(lines: Sequence[str], last: Sequence[str] = (), width: int = WIDTH, most: int = LINES) -> str:
    """Text of at most so many lines, none wider than the width.

    Args:
        lines: of the answer; those that do not fit are left out.
        last: lines that stand at the end in any case.
        width: of a line at most. [characters]
        most: lines.
    """
    room = most - len(last)
    body = list(lines) if len(lines) <= room else [*lines[: room - 1], f"… {len(lines) - room + 1} more lines"]
    return "\n".join(line if len(line) <= width else f"{line[: width - 1]}…" for line in (*body, *last))
