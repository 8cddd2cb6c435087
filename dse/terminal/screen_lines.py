"""Lines of a first screen: named texts and plain tables in a given width and number of lines.

Text only, without colours; a console of `dse.terminal.progress` prints the lines.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

MAX_LINES, SCREEN_WIDTH = 25, 80
"""Lines of a first screen at most, and characters of a line where nothing gives a width."""

NAME_WIDTH = 12
"""Characters of the name before a text."""

CUT = " ..."
"""What ends a text that is cut; --full has the whole of it."""


@dataclass(frozen=True, slots=True)
class ScreenRow:
    """One named text of a first screen.

    Attributes:
        name: of at most eleven characters; empty string to continue the row above.
        text: of any length; it is wrapped.
        needed: whether all of it is kept; other rows are cut from the longest one on if there are too many lines.
        spare: whether it is left out before others are cut.
        cut_last: whether it is cut only after all others that may be cut.
    """

    name: str
    text: str
    needed: bool = False
    spare: bool = False
    cut_last: bool = False


def format_screen(
    title: str, rows: Sequence[ScreenRow | list[str]], width: int = SCREEN_WIDTH, most: int = MAX_LINES
) -> list[str]:
    """Lines of a screen: its title, then named texts and the lines of tables, in order.

    If there are more than `most` lines, spare rows are left out from the last one on. Then the longest texts that are not
    needed lose their last lines.

    Args:
        title: what was asked.
        rows: rows with text, or lines of a table, none of which is cut.
        width: characters of a line at most.
        most: lines at most, unless needed rows take more.

    >>> format_screen("batch 1", [ScreenRow("chip", "h100"), ["  TTFT  1 s"]])
    ['batch 1', 'chip        h100', '  TTFT  1 s']
    >>> rows = [ScreenRow("fits", "of two lines or more", True), ScreenRow("stack", "a text that is cut")]
    >>> format_screen("batch 1", rows, 22, 5)
    ['batch 1', 'fits        of two', '            lines or', '            more', 'stack       a text ...']
    """
    heads = wrap(title, width) or [""]
    blocks = [row if isinstance(row, list) else _wrap_text(row.text, width) for row in rows]
    cuttable = [place for place, row in enumerate(rows) if isinstance(row, ScreenRow) and not row.needed]
    spare = [place for place in cuttable if rows[place].spare]  # type: ignore[union-attr]
    while len(heads) + sum(map(len, blocks)) > most:
        if spare:
            blocks[spare.pop()] = []
            continue
        long = [place for place in cuttable if len(blocks[place]) > 1]
        first = [place for place in long if not rows[place].cut_last] or long  # type: ignore[union-attr]
        if not first:
            break
        longest = max(first, key=lambda place: (len(blocks[place]), place))
        blocks[longest] = _cut_line(blocks[longest][:-1], width)
    lines = list(heads)
    for row, block in zip(rows, blocks, strict=True):
        if isinstance(row, list):
            lines += block
        else:
            lines += [f"{name:{NAME_WIDTH}}{text}" for name, text in zip([row.name] + [""] * len(block), block, strict=False)]
    return lines


def _wrap_text(text: str, width: int) -> list[str]:
    return wrap(text, max(width - NAME_WIDTH, 1), break_on_hyphens=False) or [""]


def _cut_line(lines: list[str], width: int) -> list[str]:
    """Lines of which the last ends in dots."""
    last = lines[-1].removesuffix(CUT)
    while last and len(last) + len(CUT) > width - NAME_WIDTH:
        last = last.rpartition(" ")[0]
    return [*lines[:-1], last + CUT]


def format_columns(
    header: Sequence[str] | Sequence[Sequence[str]],
    rows: Sequence[Sequence[str]],
    width: int = SCREEN_WIDTH,
    *,
    left: Sequence[int] = (0,),
) -> list[str]:
    """Lines of a plain table: a header, a line a row, two spaces between columns, numbers to the right.

    Columns that do not fit are left out from the last one on; the header then ends in dots. A first column that is too wide
    is shortened.

    Args:
        header: a name a column, or lines of such as `stack_headers` has them.
        rows: a cell a column each.
        width: characters of a line at most.
        left: columns of words.

    >>> format_columns(["case", "TTFT"], [["batch 1", "1 s"], ["batch 32", "12 s"]])
    ['case      TTFT', 'batch 1    1 s', 'batch 32  12 s']
    """
    heads = [list(header)] if not header or isinstance(header[0], str) else [list(line) for line in header]
    table = [list(map(str, row)) for row in (*heads, *rows)]
    sizes = [max(len(row[column]) for row in table) for column in range(len(heads[0]))]
    sizes[0] = min(sizes[0], max(width // 2, 1))
    shown = len(sizes)
    while shown > 1 and sum(sizes[:shown]) + 2 * (shown - 1) + (len(CUT) if shown < len(sizes) else 0) > width:
        shown -= 1
    lines = []
    for place, row in enumerate(table):
        cells = [_shorten(row[0], sizes[0]), *row[1:shown]]
        texts = [
            f"{cell:<{size}}" if column in left else f"{cell:>{size}}"
            for column, (cell, size) in enumerate(zip(cells, sizes, strict=False))
        ]
        lines.append(("  ".join(texts) + (CUT if shown < len(sizes) and not place else "")).rstrip()[:width])
    return lines


def stack_headers(header: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """Header in lines broken between words, and cells without the unit that a column shares.

    Args:
        header: a name a column.
        rows: a cell a column each.

    Returns:
        Lines of the header, each with a text a column, and the rows; a common unit is in the last line of the header.

    >>> stack_headers(["design", "chip.hbm.bandwidth"], [["a", "460 GB/s"], ["b", "920 GB/s"]])
    ([['design', 'chip.hbm.'], ['', 'bandwidth'], ['', 'GB/s']], [['a', '460'], ['b', '920']])
    """
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in header]
    heads = []
    for place, (name, cells) in enumerate(zip(header, columns, strict=True)):
        units = {cell.partition(" ")[2] for cell in cells if cell != "-"}
        unit = units.pop() if len(units) == 1 else ""
        if unit and all(cell == "-" or cell.count(" ") == 1 for cell in cells):
            columns[place] = [cell.partition(" ")[0] for cell in cells]
        else:
            unit = ""
        least = max(map(len, columns[place]), default=0)
        heads.append([*_break_name(name, least), *([unit] if unit else [])])
    most = max(map(len, heads))
    lines = [[head[line] if line < len(head) else "" for head in heads] for line in range(most)]
    return lines, [list(row) for row in zip(*columns, strict=True)]


def _break_name(name: str, least: int) -> list[str]:
    """A name in lines as wide as its widest word, or as the cells below; words end at dots, underscores and spaces."""
    parts = [part for part in re.split(r"(?<=[._ ])", name) if part]
    width, lines = max(least, *(len(part.rstrip()) for part in parts)), [""]
    for part in parts:
        if len(lines[-1]) + len(part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]


def _shorten(text: str, size: int) -> str:
    """A text in a width, its middle replaced by dots."""
    if len(text) <= size:
        return text
    half = (size - 2) // 2
    return f"{text[:half]}..{text[len(text) - (size - 2 - half) :]}"
