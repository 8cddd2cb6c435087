"""Measurements of engines and profilers from files of any known format, which is seen from the content.

Files come from strangers: nothing in them is executed, none is held as a whole, and what is wrong is one line with the file.
"""

import gzip
import io
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from dse.accuracy.measurements.benchmark_clients import DETAILS, is_client_result, read_client_result
from dse.accuracy.measurements.json_scanner import JsonScanner
from dse.accuracy.measurements.measured_run import MAX_NUMBER, MeasuredRun
from dse.space.array_math import Array
from dse.space.errors import DesignError

HEAD_CHARS = 65_536
"""Characters by which a format is seen."""
MAX_KEPT_CHARS = 1 << 20
MAX_RESULTS = 1_000
"""Most results of one file."""
MAX_REQUESTS = 2_000_000
"""Most entries of a list with one a request."""
KNOWN = "results of vllm bench serve and sglang.bench_serving (JSON), or rows of dse validate (CSV)"
"""What is read, for messages."""


def read_measurements(paths: Sequence[Path]) -> list[MeasuredRun]:
    """Runs of some files, in their order.

    Raises:
        DesignError: a file that cannot be read, of no known format, or with a figure that cannot be; with its name.
    """
    return [run for path in paths for run in _read_file(path)]


def is_row_file(path: Path) -> bool:
    """Whether a file is a table of rows as of ``dse validate``, by its header."""
    with _open_text(path) as file:
        header = next((line for line in file.read(HEAD_CHARS).splitlines() if line.strip()), "")
    return not header.lstrip().startswith(("{", "[")) and "overrides" in header.split(",")


def _read_file(path: Path) -> list[MeasuredRun]:
    with _open_text(path) as file:
        head = file.read(HEAD_CHARS)
    first = head.lstrip()[:1]
    if not first:
        raise DesignError(f"{path}: empty; expected {KNOWN}")
    if first in "{[":
        with _open_text(path) as file:
            return list(_read_json(path, file))
    raise DesignError(f"{path}: no known format; expected {KNOWN}")


@contextmanager
def _open_text(path: Path) -> Iterator[TextIO]:
    """A file as text, unpacked if it is packed by gzip.

    Raises:
        DesignError: no file, no UTF-8, or a damaged packing.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as opened:
            yield io.TextIOWrapper(opened, encoding="utf-8-sig", newline="")
    except UnicodeDecodeError:
        raise DesignError(f"{path}: no text in UTF-8; expected {KNOWN}") from None
    except (OSError, EOFError) as error:
        raise DesignError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _read_json(path: Path, file: TextIO) -> Iterator[MeasuredRun]:
    scanner, number = JsonScanner(path, file), 0
    while scanner.has_more():
        number += 1
        if number > MAX_RESULTS:
            raise DesignError(f"{path}: more than {MAX_RESULTS:,} results; keep those that are to be fitted")
        if scanner.next_character() != "{":
            raise DesignError(f"{path}: result {number} is no JSON object; expected {KNOWN}")
        yield _read_result(path, number, *_read_object(scanner))


def _read_object(scanner: JsonScanner) -> tuple[dict[str, Any], dict[str, Array]]:
    """Small values of the next object by key, and its lists of `DETAILS`; all else is passed over."""
    values: dict[str, Any] = {}
    details: dict[str, Array] = {}
    for key in scanner.iterate_members():
        first = scanner.next_character()
        if key in DETAILS and first == "[":
            details[key] = _read_numbers(scanner, key)
        elif first == "[":
            scanner.skip_value()
        else:
            values[key] = scanner.read_value()
    return values, details


def _read_numbers(scanner: JsonScanner, key: str) -> Array:
    numbers = array("d")
    for element in scanner.iterate_elements():
        if isinstance(element, bool) or not isinstance(element, int | float) or abs(element) > MAX_NUMBER:
            raise DesignError(f"{scanner.path}: {key}: entry {len(numbers) + 1:,}: {str(element)[:40]!r} is no number")
        numbers.append(element)
        if len(numbers) > MAX_REQUESTS:
            raise DesignError(f"{scanner.path}: {key}: more than {MAX_REQUESTS:,} requests")
    return np.frombuffer(numbers, float)


Reader = Callable[[Path, int, dict[str, Any], dict[str, Array]], MeasuredRun]

JSON_READERS: tuple[tuple[Callable[[dict[str, Any]], bool], Reader], ...] = ((is_client_result, read_client_result),)
"""Formats of JSON objects: whether an object is of it, and what reads it."""


def _read_result(path: Path, number: int, values: dict[str, Any], details: dict[str, Array]) -> MeasuredRun:
    for matches, read in JSON_READERS:
        if matches(values):
            return read(path, number, values, details)
    raise DesignError(f"{path}: result {number} has no keys of a known format; expected {KNOWN}")
