"""Output of ``dse compare``: one column a chip, metrics per area, energy and money; or JSON."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from dse.analysis.compare import ChipComparison, collect_comparison_notes, compare_best_mappings
from dse.analysis.evaluation import BEYOND, metric_records
from dse.analysis.metric_text import format_metric
from dse.config import format_policy as formats
from dse.config.setting_effects import NoEffect, find_settings_idle_in_all_designs, no_effect_records, print_no_effects
from dse.documents.compare_document import ComparedChipRecord, CompareDocument, ComparedSearchRecord
from dse.evaluators import METRICS
from dse.space.former_words import read_metric
from dse.space.safe_text import count_text
from dse.space.units import format_quantity
from dse.terminal.json_text import format_json
from dse.terminal.plain_names import plain_name
from dse.terminal.progress import SafeConsole, print_lines, say, screen_width
from dse.terminal.screen_lines import SCREEN_WIDTH, ScreenRow, format_columns, format_screen, stack_headers

SHOWN_METRICS = ("ttft", "tpot", "throughput", "throughput_per_die_mm2", "throughput_per_system_mm2", "energy_per_token")
"""Metrics in the table, with what money says and the objective."""

MONEY = ("price_per_mtoken", "system_price")
RENT = "rent_per_mtoken"

SHOWN_BOTTLENECKS = 3
"""Parts of the machine that are named where time goes."""


def write_comparison(
    words: Sequence[str], objective: str, page: Path, *, as_json: bool, trust: bool, full: bool = False
) -> None:
    """Print chips side by side, and write their page where one has an answer.

    Args:
        words: overrides as of `compare_best_mappings`.
        objective: metric that the best mapping is best in.
        page: path of the page.
        as_json: whether JSON is printed in the place of the first screen.
        trust: whether files that are not ours may run code.
        full: whether all metrics are printed.

    Raises:
        DesignError: as of `compare_best_mappings`.
    """
    objective = read_metric(objective)
    sides = compare_best_mappings(words, objective, trust=trust)
    answers = ((side.found.design, side.found.workload) for side in sides if side.found)
    idle = find_settings_idle_in_all_designs("compare", answers, [word for word in words if not word.startswith("chip=")])
    print_no_effects(idle)
    document = comparison_document(sides, objective, idle)
    if as_json:
        print(format_json(document, indent=1))
    elif full:
        _print_all(sides, objective)
    else:
        print_lines(comparison_lines(sides, objective, screen_width()))
    if any(side.found for side in sides):
        from dse.report.standalone_pages import build_comparison_page, write_answer_page

        best = f"Best: {_best_text(sides, objective, plain_name(objective))}."
        write_answer_page(build_comparison_page(document, best, _shown_names(sides, objective)), page)
        if not as_json:
            say(f"wrote   {escape(str(page))}")


def _print_all(sides: Sequence[ChipComparison], objective: str) -> None:
    """Print a column a chip with all metrics, software, data sheets and the search."""
    console = SafeConsole(160)
    outcomes = [side.found for side in sides if side.found]
    if outcomes:
        more = len(outcomes[0].cases) - 1
        console.print(
            f"[bold]{escape(outcomes[0].cases[0].label)}[/]" + (f" and {count_text(more, 'more case')}" if more else "")
        )
        for side in sides:
            if side.found and side.found.stack_basis:
                console.print(escape(f"{side.chip}: {side.found.stack_basis.text}"))
            if side.found and side.found.rate_band:
                console.print(escape(f"{side.chip}: throughput {side.found.rate_band}"))
            if side.found and side.found.kernel_basis:
                console.print(escape(f"{side.chip}: {BEYOND}{side.found.kernel_basis}"))
            for text in (text for name, text in side.found.facts() if name == "data sheet") if side.found else ():
                console.print(escape(f"{side.chip}: data sheet: {text}"))
        console.print(_facts_table(sides, objective))
        if notes := collect_comparison_notes(sides):
            console.print(f"[yellow]{escape(notes)}[/]")
    for side in sides:
        if not side.found:
            console.print(f"[red]{escape(side.chip)}[/]  {escape(side.why)}")


def comparison_lines(sides: Sequence[ChipComparison], objective: str, width: int = SCREEN_WIDTH) -> list[str]:
    """Lines of the first screen of a comparison: a line a chip, what is measured, and the best chip.

    Args:
        sides: chips with their best designs, or why there is none.
        objective: the metric that the best mapping is best in.
        width: characters of a line at most.
    """
    answered = {side.chip: (side, side.found) for side in sides if side.found}
    rows: list[ScreenRow | list[str]] = []
    title = "no chip of these has an answer"
    if answered:
        first = next(iter(answered.values()))[1]
        title = first.title if len(first.cases) > 1 else first.cases[0].label
        rows.append(ScreenRow("best", _best_text(sides, objective), needed=True))
        rows.append(_chip_lines(sides, objective, width))
        rows += _grouped_rows("mapping", {chip: f"{side.mapping}; {side.formats}" for chip, (side, _) in answered.items()})
        measured = {chip: f"throughput {answer.rate_band}" for chip, (_, answer) in answered.items() if answer.rate_band}
        rows += _grouped_rows("measured", measured)
        stacks = {chip: answer.stack_basis.text for chip, (_, answer) in answered.items() if answer.stack_basis}
        rows += _grouped_rows("stack", {chip: text.removeprefix("stack ") for chip, text in stacks.items()})
        rows += _grouped_rows(
            "kernels", {chip: answer.kernel_basis for chip, (_, answer) in answered.items() if answer.kernel_basis}
        )
        rows += [ScreenRow("note", notes)] if (notes := collect_comparison_notes(sides)) else []
    rows += [ScreenRow("no answer", f"{side.chip}: {side.why}") for side in sides if not side.found]
    rows.append(ScreenRow("more", "--full every metric, software, data sheets and the search; --json", needed=True))
    return format_screen(title, rows, width)


def _best_text(sides: Sequence[ChipComparison], objective: str, called: str = "") -> str:
    """The chip that is best in the objective, and how far the next one is behind; the objective as it is called."""
    called = called or objective
    known = {side.chip: side.found.metrics[objective] for side in sides if side.found and objective in side.found.metrics}
    if not known:
        return f"no chip has {called}"
    ranked = sorted(known, key=known.__getitem__, reverse=METRICS[objective].better == "max")
    text = f"{ranked[0]} by {called}, {format_metric(objective, known[ranked[0]])}"
    if len(ranked) > 1 and known[ranked[1]]:
        text += f", {known[ranked[0]] / known[ranked[1]] - 1:+.0%} against {ranked[1]}"
    return f"{text}; each with its best mapping by the analytical model"


def _chip_lines(sides: Sequence[ChipComparison], objective: str, width: int) -> list[str]:
    """A line a chip: how many, main figures, and what takes most of the time."""
    names = _shown_names(sides, objective)
    place = min(3, len(names)) + 1
    cells = []
    for side in (side for side in sides if side.found):
        figures = [_cell_text(name, side) for name in names]
        bound = _bound_text(side).partition(",")[0] or "-"
        cells.append([side.chip, str(side.chips or "-"), *figures[:place], bound, *figures[place:]])
    head, cells = stack_headers(["chip", "chips", *names[:place], "bound by", *names[place:]], cells)
    return format_columns(head, cells, width)


def _shown_names(sides: Sequence[ChipComparison], objective: str) -> list[str]:
    """The objective and main metrics of speed, money and energy that some chip has."""
    known = {name for side in sides if side.found for name in side.found.metrics}
    speed = ("throughput", "ttft", "tpot") if "throughput" in known else ("latency", "mfu", "achieved_bandwidth")
    return [name for name in dict.fromkeys((objective, *speed, *MONEY, "energy_per_token")) if name in known]


def _cell_text(name: str, side: ChipComparison) -> str:
    return format_metric(name, side.found.metrics[name]) if side.found and name in side.found.metrics else "-"


def _grouped_rows(name: str, texts: Mapping[str, str]) -> list[ScreenRow]:
    """Texts of chips, equal ones together with the names of their chips."""
    chips: dict[str, list[str]] = {}
    for chip, text in texts.items():
        chips.setdefault(text, []).append(chip)
    alike = len(chips) == 1
    return [
        ScreenRow("" if place else name, text if alike else f"{', '.join(given)}: {text}")
        for place, (text, given) in enumerate(chips.items())
    ]


def comparison_document(sides: Sequence[ChipComparison], objective: str, idle: Sequence[NoEffect]) -> CompareDocument:
    """The document of chips side by side; metrics in SI with their units."""
    cases = next((side.found.cases for side in sides if side.found), ())
    return CompareDocument(
        objective=objective,
        note=collect_comparison_notes(sides) or None,
        cases=[case.label for case in cases],
        chips=[chip_record(side) for side in sides],
        without_effect=no_effect_records(idle),
    )


def chip_record(side: ChipComparison) -> ComparedChipRecord:
    """One chip of a comparison as a record of its document."""
    return ComparedChipRecord(
        chip=side.chip,
        why_not=side.why or None,
        chips=side.chips,
        dies_of_a_chip=side.dies,
        set=side.changes,
        mapping=side.found.names["mapping"] if side.found else None,
        software=side.software or None,
        stack_basis=side.found.stack_basis.record() if side.found and side.found.stack_basis else None,
        kernel_basis=side.found.kernel_basis if side.found else "",
        knobs=side.values,
        formats=formats.formats_of(side.found.design) if side.found else {},
        metrics=metric_records(side.found.metrics if side.found else {}),
        tokens_per_joule=tokens_per_joule(side),
        seconds_by_bound=side.found.breakdown.by_bound() if side.found else {},
        looked_at=ComparedSearchRecord(
            designs=side.looked[0], feasible=side.looked[1], refused_by=side.refused, left_out=side.left_out
        ),
    )


def tokens_per_joule(side: ChipComparison) -> float | None:
    """Output tokens per joule, if energy is known. [token/J]"""
    energy = side.found.metrics.get("energy_per_token") if side.found else None
    return 1 / energy if energy else None


def _facts_table(sides: Sequence[ChipComparison], objective: str) -> Table:
    """A row a fact, a column a chip."""
    table = Table(title=f"best {objective} among mappings, analytical model", title_justify="left")
    table.add_column("", no_wrap=True)
    for side in sides:
        table.add_column(escape(side.chip), justify="right", overflow="fold")
    rent = [RENT] if any(side.found and RENT in side.found.metrics for side in sides) else []
    names = dict.fromkeys((*SHOWN_METRICS, *(name for name in MONEY if name in METRICS), *rent, objective))

    def add_text_row(name: str, texts: Sequence[str], **how: Any) -> None:
        table.add_row(name, *(escape(text) if text else "-" for text in texts), **how)

    add_text_row(
        "chips",
        [f"{side.chips} of {side.dies} die{'s' * (side.dies > 1)}" if side.chips and side.dies else "" for side in sides],
    )
    if any(side.changes for side in sides):
        add_text_row("set", [", ".join(side.changes) for side in sides])
    add_text_row("mapping", [side.mapping for side in sides])
    add_text_row("software", [side.software for side in sides])
    add_text_row("formats", [side.formats for side in sides], end_section=True)
    for name in names:
        texts = [
            format_metric(name, side.found.metrics[name]) if side.found and name in side.found.metrics else "" for side in sides
        ]
        if name == "energy_per_token":
            add_text_row(
                "tokens per joule", [format_quantity(value, "1") if (value := tokens_per_joule(side)) else "" for side in sides]
            )
        else:
            add_text_row(name, texts, style="bold" if name == objective else "")
    add_text_row("time by resource", [_bound_text(side) for side in sides])
    add_text_row(
        "mappings evaluated", [f"{side.looked[0]:,}, {side.looked[1]:,} fit" if side.looked[0] else "" for side in sides]
    )
    if any(side.refused for side in sides):
        add_text_row("search", [side.left_out if side.refused else "" for side in sides])
    return table


def _bound_text(side: ChipComparison) -> str:
    """The parts of the machine that most of the time goes to."""
    parts = side.found.breakdown.seconds_by_cause() if side.found else {}
    total = sum(parts.values())
    most = sorted(parts.items(), key=lambda pair: -pair[1])[:SHOWN_BOTTLENECKS]
    return ", ".join(f"{name} {seconds / total:.0%}" for name, seconds in most if seconds) if total else ""
