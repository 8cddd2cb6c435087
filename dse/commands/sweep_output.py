"""Output of ``dse sweep``: a table, a page with a figure, a CSV file, or JSON."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from dse.analysis.evaluation import metric_records
from dse.analysis.metric_text import format_metric
from dse.analysis.sweep import Sweep, SweptDesign, sweep
from dse.documents.shared_records import MeasuredRecord
from dse.documents.sweep_document import SweepDocument, SweptDesignRecord
from dse.report.plotly_library import write_figure
from dse.report.sweep_figure import build_sweep_figure, format_swept_value
from dse.space.errors import DesignError
from dse.space.safe_text import count_text
from dse.terminal.atomic_files import write_atomically
from dse.terminal.json_text import format_json
from dse.terminal.progress import ProgressBar, SafeConsole, say

SHOWN_METRICS = ("tpot", "ttft", "throughput", "request_throughput", "slo_attainment", "energy_per_token", "price_per_mtoken")
"""Metrics beside the objective, those that the workload has."""

SHOWN_BESIDE = 3
"""Metrics beside the objective on the first screen."""

MAX_ROWS = 14
"""Designs on the first screen."""

MAX_REASONS = 2
"""Reasons of infeasible combinations on the first screen."""


def write_sweep(
    words: Sequence[str], objective: str, out: str, page: Path, *, as_json: bool, full: bool = False, trust: bool = False
) -> None:
    """Run a sweep; print its table or JSON, and write the page and, if it is named, the CSV file.

    Args:
        words: overrides as of `dse.analysis.sweep.sweep`.
        objective: metric; empty string for the workload's first.
        out: path of the CSV file; empty string for none.
        page: path of the page.
        as_json: whether JSON is printed in the place of the table.
        full: whether all designs and all metrics are printed.
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: as of `sweep`, or a file is no CSV.
    """
    if out and Path(out).suffix != ".csv":
        raise DesignError(f"sweep --out: expected a file name that ends in .csv, got {out}")
    with ProgressBar("sweep") as bar:
        result = sweep(words, objective, trust=trust, progress=lambda done, total: bar.update(done, total, ""))
    if as_json:
        print(format_json(sweep_document(result), indent=1))
    else:
        _print_sweep(result, full=full)
    if out:
        with write_atomically(Path(out)) as place:
            result.frame().to_csv(place, index=False)
        say(f"wrote   {escape(out)}, in SI units")
    if result.feasible:
        page.parent.mkdir(parents=True, exist_ok=True)
        write_figure(build_sweep_figure(result), page)
        say(f"wrote   {escape(str(page))}")


def sweep_document(result: Sweep) -> SweepDocument:
    """The document of a sweep, in SI."""
    return SweepDocument(
        objective=result.objective,
        better=result.better,
        swept={address: [_plain_value(value) for value in values] for address, values in result.axes.items()},
        designs=[_design_record(result, design) for design in result.designs],
        refused_by=result.refusals,
    )


def _plain_value(value: object) -> str | float | bool | None:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def _design_record(result: Sweep, design: SweptDesign) -> SweptDesignRecord:
    units = result.units
    return SweptDesignRecord(
        knobs={
            address: MeasuredRecord(value=value, unit=units[address])
            if units[address] not in ("", "1") and isinstance(value, int | float)
            else value
            for address, value in design.values.items()
        },
        feasible=design.feasible,
        metrics=metric_records(design.metrics),
        limit=design.limit or None,
        why_not=design.why or None,
    )


def _print_sweep(result: Sweep, *, full: bool) -> None:
    console = SafeConsole(160 if full else shutil.get_terminal_size((80, 24)).columns)
    feasible, total = len(result.feasible), len(result.designs)
    best = "most" if result.better == "max" else "least"
    console.print(
        f"[bold]{count_text(total, 'combination')}[/], {feasible:,} feasible; {best} {escape(result.objective)} first"
    )
    if feasible:
        console.print(_designs_table(result, full=full))
    left = feasible - MAX_ROWS
    if left > 0 and not full:
        console.print(f"{count_text(left, 'more design')}: --full prints all, --out FILE.csv writes all")
    reasons = list(result.refusals.items())[: None if full else MAX_REASONS]
    for reason, count in reasons:
        example = next(design for design in result.designs if not design.feasible and reason in (design.limit, design.why))
        what = " ".join(f"{address}={format_swept_value(result, address, value)}" for address, value in example.values.items())
        text = f"{count:,} infeasible: {reason}" + (f", as {what}: {example.why}" if example.limit else "")
        console.print(f"[yellow]{escape(_shortened(text, full))}[/]")
    if rest := sum(result.refusals.values()) - sum(count for _, count in reasons):
        console.print(f"[yellow]{rest:,} infeasible for other reasons: --full names them[/]")


MAX_TEXT = 158
"""Letters of a reason on the first screen: two lines of 80 columns."""


def _shortened(text: str, full: bool) -> str:
    return text if full or len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 4].rsplit(' ', 1)[0]} ..."


def _designs_table(result: Sweep, *, full: bool) -> Table:
    """A row a design: swept settings, the objective, and the metrics that people came for."""
    beside = [
        name for name in (result.metrics if full else SHOWN_METRICS) if name in result.metrics and name != result.objective
    ]
    names = [result.objective, *(beside if full else beside[:SHOWN_BESIDE])]
    table = Table(pad_edge=False, box=None, header_style="bold")
    for address in result.axes:
        table.add_column(escape(_short_address(result, address)), overflow="fold")
    for name in names:
        table.add_column(escape(name), justify="right", overflow="fold")
    for design in result.feasible[: None if full else MAX_ROWS]:
        table.add_row(
            *(escape(format_swept_value(result, address, design.values.get(address))) for address in result.axes),
            *(format_metric(name, design.metrics[name]) if name in design.metrics else "-" for name in names),
        )
    return table


def _short_address(result: Sweep, address: str) -> str:
    """The shortest end of an address that no other swept address has."""
    parts = address.split(".")
    for start in range(len(parts) - 1, 0, -1):
        short = ".".join(parts[start:])
        if sum(other.endswith(f".{short}") or other == short for other in result.axes) == 1:
            return short
    return address
