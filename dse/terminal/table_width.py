"""Tables fitted to the width of the terminal without loss of letters.

Left to itself rich cuts names and numbers with an ellipsis, or a whole column that comes last.
"""

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

ENDLESS = 100_000
"""A width in which nothing is wrapped."""


def fit_table(table: Table, console: Console) -> Table:
    """Table in the plain style of all commands, its columns as narrow as the line demands.

    Where not even the longest words stand side by side, it has no lines between columns; where that is not enough, each row is
    a block of lines, one a column. A table without names of columns breaks words instead.
    """
    if table.box is not None:
        table.box, table.pad_edge = SIMPLE_HEAD, False
    roomy = console.options.update(width=ENDLESS)
    sizes = [_column_measurement(table, column, console, roomy) for column in table.columns]
    most, least = (sum(widths) for widths in zip(*((size.maximum, size.minimum) for size in sizes), strict=True))
    if (whole := Measurement.get(console, roomy, table).maximum) <= console.width:
        return table
    for column in table.columns:
        column.overflow = "fold"
    if least + whole - most > console.width:
        table.box, table.padding = SIMPLE_HEAD, (0, 0, 0, 0)
        whole = Measurement.get(console, roomy, table).maximum
    if (room := console.width - least - (whole - most)) < 0:
        return _turn_table(table) if all(str(column.header) for column in table.columns) else table
    wanted = [size.maximum - size.minimum for size in sizes]
    for column, size, more in zip(table.columns, sizes, _share_width(wanted, room), strict=True):
        column.width = size.minimum + more
    return table


def _column_measurement(table: Table, column: Column, console: Console, roomy: ConsoleOptions) -> Measurement:
    """How wide a column is at least, with its longest word or number and unit, and at most."""

    def measure_cell(cell: RenderableType) -> int:
        quantity = column.justify == "right" and str(cell).count(" ") < 2 and cell is not column.header
        size = Measurement.get(console, roomy, cell)
        return size.maximum if column.no_wrap or quantity else size.minimum

    shown = [*column.cells, *([column.header] if table.show_header else [])]
    most = max((Measurement.get(console, roomy, cell).maximum for cell in shown), default=0)
    return Measurement(max(map(measure_cell, shown), default=0), most)


def _share_width(wanted: list[int], room: int) -> list[int]:
    """What each gets of the room: all that it wants, or as much as any other.

    >>> _share_width([2, 30, 40], 42)
    [2, 20, 20]
    """
    given = [0] * len(wanted)
    for done, place in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        given[place] = min(wanted[place], room // (len(wanted) - done))
        room -= given[place]
    return given


def _turn_table(table: Table) -> Table:
    """Each row as lines of a column's name and what the row has there."""
    turned = Table(title=table.title, title_justify=table.title_justify, show_header=False)
    turned.add_column(overflow="fold")
    turned.add_column(overflow="fold")
    cells = [list(column.cells) for column in table.columns]
    for row, cells_of_row in zip(table.rows, zip(*cells, strict=True), strict=True):
        pairs = [(column.header, cell) for column, cell in zip(table.columns, cells_of_row, strict=True) if str(cell)]
        for place, (name, cell) in enumerate(pairs):
            plain = name.plain if isinstance(name, Text) else " ".join(str(name).split())
            turned.add_row(plain, cell, style=row.style, end_section=place == len(pairs) - 1)
    return turned
