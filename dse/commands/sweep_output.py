"""Output of ``dse sweep``: a table, a page with a figure, a CSV file, or JSON."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from dse.analysis.evaluation import metric_records
from dse.analysis.evaluation_screen import question_rows
from dse.analysis.metric_text import format_metric
from dse.analysis.sweep import Sweep, SweptDesign, sweep
from dse.documents.shared_records import MeasuredRecord
from dse.documents.sweep_document import SweepDocument, SweptDesignRecord
from dse.report.standalone_pages import PageTable, build_described_page, write_answer_page
from dse.report.sweep_figure import build_setting_figures, build_sweep_figure, format_swept_value
from dse.space.errors import DesignError
from dse.space.safe_text import count_text
from dse.terminal.atomic_files import write_atomically
from dse.terminal.json_text import format_json
from dse.terminal.plain_names import plain_name, setting_name
from dse.terminal.progress import ProgressBar, SafeConsole, print_lines, say, screen_width
from dse.terminal.screen_lines import SCREEN_WIDTH, ScreenRow, format_columns, format_screen, stack_headers

SHOWN_METRICS = ("tpot", "ttft", "throughput", "request_throughput", "slo_attainment", "energy_per_token", "price_per_mtoken")
"""Metrics beside the objective, those that the workload has."""

SHOWN_BESIDE = 3
"""Metrics beside the objective on the first screen."""

MAX_ROWS = 10
"""Designs on the first screen."""

BAND_NOTE = "Where measurements lie if the answer errs as measured rows of its kind did."

MAX_REASONS = 2
"""Reasons of infeasible combinations on the first screen."""


def write_sweep(
    words: Sequence[str], objective: str, out: str, page: Path, *, as_json: bool, full: bool = False, trust: bool = False
) -> bool:
    """Run a sweep; print its table or JSON, and write the page and, if it is named, the CSV file.

    Returns whether a combination is feasible: without one there is no page.

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
        if full:
            _print_all(result)
        else:
            print_lines(sweep_lines(result, screen_width()))
    if out:
        with write_atomically(Path(out)) as place:
            result.frame().to_csv(place, index=False)
        say(f"wrote   {escape(out)}, in SI units")
    if result.feasible:
        write_answer_page(sweep_page(result), page)
        say(f"wrote   {escape(str(page))}")
    return bool(result.feasible)


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


def sweep_lines(result: Sweep, width: int = SCREEN_WIDTH) -> list[str]:
    """Lines of the first screen of a sweep: best designs, their question, and why others are infeasible.

    Args:
        result: with at least one design.
        width: characters of a line at most.
    """
    feasible, most = len(result.feasible), "most" if result.better == "max" else "least"
    title = f"{count_text(len(result.designs), 'combination')}, {feasible:,} feasible; {most} {result.objective} first"
    rows: list[ScreenRow | list[str]] = []
    if feasible:
        header, cells = _designs_table(result, result.feasible[:MAX_ROWS], SHOWN_METRICS, SHOWN_BESIDE)
        rows.append(format_columns(*stack_headers(header, cells), width, left=range(len(result.axes))))
    if feasible > MAX_ROWS:
        rows.append(
            ScreenRow("", f"{count_text(feasible - MAX_ROWS, 'more design')}: --full prints all, --out FILE.csv writes all")
        )
    if result.best is not None:
        rows += [ScreenRow("best", result.best.title, needed=True), *question_rows(result.best)]
    rows += [ScreenRow("infeasible", text) for text in _infeasible_texts(result, MAX_REASONS)]
    if (rest := len(result.refusals) - MAX_REASONS) > 0:
        rows.append(ScreenRow("", f"and {count_text(rest, 'other reason')}: --full names all"))
    return format_screen(title, rows, width)


def sweep_page(result: Sweep) -> str:
    """Page of a sweep: the best design, the objective over each swept setting, and all feasible designs.

    Args:
        result: with a feasible design.
    """
    best, figure = result.best, build_sweep_figure(result)
    assert best is not None
    objective = plain_name(result.objective)
    header, cells = _designs_table(result, result.feasible, SHOWN_METRICS, len(SHOWN_METRICS))
    names = [name if place < len(result.axes) else plain_name(name) for place, name in enumerate(header)]
    swept = ", ".join(f"{name} {cell}" for name, cell in list(zip(names, cells[0], strict=True))[: len(result.axes)])
    fixed = "; ".join(f"{row.name} {row.text}" for row in question_rows(best))
    measured = [
        [plain_name(name), format_metric(name, best.metrics[name]), *(format_metric(name, end) for end in ends)]
        for name in dict.fromkeys((result.objective, *SHOWN_METRICS))
        if name in best.metrics and (ends := best.measured_range(name)) is not None
    ]
    bands = "" if measured else "No measurement of this kind of answer exists: read differences between designs, not values."
    addresses = [[setting_name(address), address] for address in result.axes]
    tables = [
        PageTable("Designs, the best first", names, cells, names[: len(result.axes)]),
        PageTable(
            "The best design beside measurements", ["metric", "predicted", "measured from", "to"], measured, note=BAND_NOTE
        ),
        PageTable("Swept settings", ["setting", "address"], addresses, ["address"]),
    ]
    return build_described_page(
        f"Sweep: {objective} over {', '.join(map(setting_name, result.axes))}",
        f"Best: {swept}, with {objective} of {format_metric(result.objective, best.metrics[result.objective])}.",
        [f"{best.title}. {figure.caption}", fixed],
        [figure, *build_setting_figures(result)],
        [table for table in tables if table.rows],
        [*filter(None, (bands, best.extrapolation_text)), *(f"Infeasible: {text}" for text in _infeasible_texts(result, None))],
    )


def _infeasible_texts(result: Sweep, most: int | None) -> Iterator[str]:
    """How many combinations are infeasible for each reason, the commonest first, each with an example."""
    for reason, count in list(result.refusals.items())[:most]:
        example = next(design for design in result.designs if not design.feasible and reason in (design.limit, design.why))
        what = " ".join(f"{address}={format_swept_value(result, address, value)}" for address, value in example.values.items())
        yield f"{count:,} by {reason}" + (f", as {what}: {example.why}" if example.limit else "")


def _print_all(result: Sweep) -> None:
    """Print all designs with all metrics, and all reasons of infeasible combinations."""
    console = SafeConsole(160)
    feasible, most = len(result.feasible), "most" if result.better == "max" else "least"
    console.print(f"{count_text(len(result.designs), 'combination')}, {feasible:,} feasible; {most} {result.objective} first")
    header, cells = _designs_table(result, result.feasible, result.metrics, len(result.metrics))
    table = Table(pad_edge=False, box=None, header_style="bold")
    for place, name in enumerate(header):
        table.add_column(escape(name), justify="left" if place < len(result.axes) else "right", overflow="fold")
    for row in cells:
        table.add_row(*map(escape, row))
    if feasible:
        console.print(table)
    print_lines([f"infeasible: {text}" for text in _infeasible_texts(result, None)])


def _designs_table(
    result: Sweep, designs: Sequence[SweptDesign], metrics: Sequence[str], most: int
) -> tuple[list[str], list[list[str]]]:
    """Header and rows of designs: swept settings, the objective, and other metrics.

    Args:
        result: whose settings and objective they are.
        designs: in rows.
        metrics: to show beside the objective, those that the designs have.
        most: of these metrics, as many at most.
    """
    beside = [name for name in metrics if name in result.metrics and name != result.objective][:most]
    names = [result.objective, *beside]
    cells = [
        [
            *(format_swept_value(result, address, design.values.get(address)) for address in result.axes),
            *(format_metric(name, design.metrics[name]) if name in design.metrics else "-" for name in names),
        ]
        for design in designs
    ]
    return [*map(setting_name, result.axes), *names], cells
