"""Request lengths from a file, read row by row: Vidur-style CSV or a plain one."""

import csv
from pathlib import Path

import numpy as np

from space.errors import DesignError

COLUMNS = (("num_prefill_tokens", "num_decode_tokens"), ("prompt", "output"))
"""Headers understood: those of Vidur's processed traces, and the plain ones."""


def draw(path: Path, requests: int, seed: int) -> list[tuple[int, int]]:
    """Requests drawn from a file with replacement, the same for the same seed.

    Returns:
        (prompt, output) tokens.

    Raises:
        DesignError: no known header, or rows that are no request; up to ten rows are named.
    """
    known = read(path)
    picks = np.random.default_rng(seed).integers(len(known), size=requests)
    return [known[pick] for pick in picks]


def read(path: Path) -> list[tuple[int, int]]:
    """All (prompt, output) pairs of a file."""
    pairs: list[tuple[int, int]] = []
    bad: list[str] = []
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        header = rows.fieldnames or []
        names = next((pair for pair in COLUMNS if set(pair) <= set(header)), None)
        if names is None:
            wanted = " or ".join(", ".join(pair) for pair in COLUMNS)
            raise DesignError(f"{path}: no length columns; expected {wanted}, found {', '.join(header) or 'nothing'}")
        for number, row in enumerate(rows, start=2):
            try:
                pair = (int(float(row[names[0]])), int(float(row[names[1]])))
            except (TypeError, ValueError):
                pair = (0, 0)
            if min(pair) < 1:
                bad.append(f"row {number}: {names[0]}={row[names[0]]!r}, {names[1]}={row[names[1]]!r}")
            pairs.append(pair)
    if bad:
        more = f" and {len(bad) - 10} more" if len(bad) > 10 else ""
        raise DesignError(f"{path}: a request needs at least 1 prompt and 1 output token; {'; '.join(bad[:10])}{more}")
    if not pairs:
        raise DesignError(f"{path}: no requests")
    return pairs
