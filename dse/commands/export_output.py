"""Output of ``dse export-program``: what was written for another simulator, by program."""

from rich.markup import escape

from dse.documents.export_document import ExportDocument, ExportedProgramRecord
from dse.terminal.json_text import format_json
from dse.terminal.progress import say

COUNTS = {"packets": "packets", "requests": "requests", "nodes": "nodes", "flits": "flits a packet"}
"""What an entry counts, in words."""


def print_export(document: ExportDocument, *, as_json: bool) -> None:
    """Print totals of each program and the schemas of its files, or the document as JSON."""
    if as_json:
        print(format_json(document))
        return
    for entry in document.entries:
        say(f"{escape(entry.case)}: {escape(_program_text(entry))}")
    for schema in document.schemas:
        say(f"format: {escape(f'{schema.format}; {schema.source} at {schema.version}, {schema.file}')}")
    say(f"written to {escape(document.folder)}, with totals in summary.json")


def _program_text(entry: ExportedProgramRecord) -> str:
    totals = entry.totals
    name = next(name for name in COUNTS if name in totals)
    ranks = f", {totals['ranks']:,} ranks" if "ranks" in totals else ""
    cycles = f", {totals['cycles']:,.0f} cycles by fidelity=cycles" if "cycles" in totals else ""
    return f"{entry.program}, {totals[name]:,} {COUNTS[name]}{ranks}{cycles}"
