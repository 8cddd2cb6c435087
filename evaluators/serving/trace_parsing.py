"""Parsing of traces and tables: lines of CSV or JSONL as dictionaries, and error texts."""

import csv
import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from dse.space.errors import DesignError

FaultCallback = Callable[[int, str], None]
"""Callback for a row, counted from the first line read, and its fault."""


def read_header(path: Path, before: int, first: str) -> list[str]:
    """Column names from the first non-empty line of CSV; `before` lines precede it."""
    try:
        return next(csv.reader([first], strict=True), [])
    except csv.Error as error:
        raise DesignError(f"{path}: row {before + 1}: {describe_csv_error(error)}") from None


def read_csv_rows(file: Any, first: str, fault: FaultCallback) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of CSV as dictionaries with their numbers; rows of a wrong length are faults."""
    table = csv.reader(chain([first], file), strict=True)
    names = next(table)
    while True:
        start = table.line_num + 1
        try:
            values = next(table, None)
        except csv.Error as error:
            fault(start, describe_csv_error(error))
            return  # where the next record begins is not known
        if values is None:
            return
        if values:
            if len(values) != len(names):
                fault(start, f"{len(values)} columns, but the header has {len(names)}")
                continue
            yield start, dict(zip(names, values, strict=True))


def read_json_lines(file: Any, first: str, fault: FaultCallback) -> Iterator[tuple[int, dict[str, Any]]]:
    """JSON objects, one per line, with their numbers."""
    for number, line in enumerate(chain([first], file), start=1):
        if line.strip():
            row = parse_json_line(line)
            if row is None:
                fault(number, "not a JSON object")
            else:
                yield number, row


def parse_json_line(line: str) -> dict[str, Any] | None:
    """JSON object of one line; None if the line is no JSON object."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def describe_csv_error(error: csv.Error) -> str:
    """Error text for a malformed line of CSV."""
    text = str(error)
    if "field limit" in text:
        return f"a field of more than {csv.field_size_limit():,} characters, as with an unclosed quote"
    if "end of data" in text:
        return "a quote that opens here, or further down, is never closed"
    return f"not a line of CSV: {text}"


def find_first_undecodable_row(path: Path) -> int:
    """First row of a file that is not UTF-8, counted from 1."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1
