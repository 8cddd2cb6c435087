"""Output of ``dse export-program``: what was written for another simulator, by program."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from dse.exports.export_files import TraceSchema
from dse.terminal.json_text import format_json
from dse.terminal.progress import say

COUNTS = {"packets": "packets", "requests": "requests", "nodes": "nodes", "flits": "flits a packet"}
"""What an entry counts, in words."""


def print_export(entries: Sequence[Mapping[str, Any]], schemas: Sequence[TraceSchema], folder: Path, *, as_json: bool) -> None:
    """Print totals of each program and the schemas of its files, or all of it as JSON."""
    if as_json:
        print(format_json({"folder": str(folder), "schemas": [schema._asdict() for schema in schemas], "entries": entries}))
        return
    for entry in entries:
        name = next(name for name in COUNTS if name in entry)
        ranks = f", {entry['ranks']:,} ranks" if "ranks" in entry else ""
        cycles = f", {entry['cycles']:,.0f} cycles by fidelity=cycles" if "cycles" in entry else ""
        say(f"{escape(entry['case'])}: {escape(entry['program'])}, {entry[name]:,} {COUNTS[name]}{ranks}{cycles}")
    for schema in schemas:
        say(f"format: {escape(schema.text)}")
    say(f"written to {escape(str(folder))}, with totals in summary.json")
