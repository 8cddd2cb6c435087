"""Output of ``dse robust``: how each design of a front fares over draws of the constants."""

from pathlib import Path

from rich.markup import escape
from rich.table import Table

from dse.accuracy.constant_ranges import describe_default_ranges
from dse.commands.explain_output import kind_order_record
from dse.commands.notebook_api import StoredStudy, load
from dse.config.record_parser import parse_setting
from dse.documents.robust_document import RobustDesignRecord, RobustDocument
from dse.report.front_robustness import (
    BUDGET_S,
    DEFAULT_DRAWS,
    FrontRobustness,
    format_turning_constant,
    measure_front_robustness,
)
from dse.report.kind_order import KindOrder, find_kind_order
from dse.report.robustness_page import build_robustness_page
from dse.report.standalone_pages import write_answer_page
from dse.space.errors import DesignError
from dse.space.fields import integer_field
from dse.space.safe_text import count_text
from dse.terminal.json_text import format_json
from dse.terminal.progress import ProgressBar, SafeConsole, say

MIN_DRAWS, MAX_DRAWS = 8, 4096
DRAWS = integer_field("number of draws", low=MIN_DRAWS, high=MAX_DRAWS)
"""Draws that may be asked for."""

SHOWN = 15
"""Designs of a front that are printed; ``--json`` and the report have all."""

WIDTH = 160


def write_robustness(name: str, *overrides: str, draws: str, out: str, as_json: bool, trust: bool) -> Path:
    """Measure, print and write the robustness of a study's front; returns the path of its page.

    Args:
        name: of the study.
        overrides: where results are (``store=URL``).
        draws: as typed; empty for the usual number.
        out: path of the page; empty string for one in the run's folder.
        as_json: print JSON in place of the table.
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: no such study here, no front, or a number of draws that is none.
    """
    many, loaded = parse_draws(draws), load(name, *overrides, trust=trust)
    page = Path(out) if out else loaded.study.run_dir / "robust.html"
    robustness, order = measure_stored_robustness(loaded, many)
    document = robustness_record(robustness, order)
    if as_json:
        print(format_json(document, indent=1))
    else:
        print_robustness(robustness, order, many)
    write_answer_page(build_robustness_page(document), page)
    if not as_json:
        say(f"wrote   {escape(str(page))}")
    return page


def parse_draws(text: str) -> int:
    """Number of draws as typed; the usual one if nothing was.

    Raises:
        DesignError: no whole number within the limits.
    """
    return int(parse_setting(text or DEFAULT_DRAWS, DRAWS, "robust --draws"))


def measure_stored_robustness(loaded: StoredStudy, draws: int) -> tuple[FrontRobustness, KindOrder]:
    """Robustness of a stored study's front, with progress, and the order of its kinds of chips.

    Raises:
        DesignError: no results here, or no feasible design.
    """
    part = loaded.part()
    if not part.frame["front"].any():
        raise DesignError(f"robust: study {part.study.name} has no feasible design; dse explain {part.study.name} says why")
    with ProgressBar("robust") as bar:
        robustness = measure_front_robustness(
            part.study,
            part.frame,
            part.screened,
            draws=draws,
            report_progress=lambda done, total: bar.update(done, total, f"{draws} draws, then constants one by one"),
        )
    return robustness, find_kind_order(part.study, part.frame)


def print_robustness(robustness: FrontRobustness, order: KindOrder, draws: int) -> None:
    """Print what was drawn, and for each design of the front its shares and turning constants.

    Args:
        robustness: of the front.
        order: of its kinds of chips.
        draws: that were asked for.
    """
    console = SafeConsole(WIDTH)
    left = f"; {robustness.left:,} of the front left out, evenly" if robustness.left else ""
    wanted = f" of {draws}" if robustness.draws < draws else ""
    drawn = f"{robustness.draws}{wanted} draws of {count_text(robustness.constants, 'constant')}"
    console.print(
        f"[bold]{escape(robustness.study)}[/]  {drawn} at fidelity {robustness.fidelity}, the same for all designs; "
        f"{robustness.rivals:,} designs next to the front take part{left}"
    )
    console.print(f"ranges    {describe_default_ranges()}")
    if wanted or robustness.unmoved:
        unmoved = f"; {count_text(robustness.unmoved, 'constant')} not moved alone yet" if robustness.unmoved else ""
        console.print(f"time      {BUDGET_S:g} s of CPU are over{unmoved}: the same command goes on")
    if order.text:
        console.print(f"order     {escape(order.text)}")
    names = list(robustness.designs)
    shown = [names[round(i * (len(names) - 1) / (SHOWN - 1))] for i in range(SHOWN)] if len(names) > SHOWN else names
    table = Table(
        title=f"front: {count_text(len(names), 'design')}" + (f", {len(shown)} shown" if len(shown) < len(names) else ""),
        title_justify="left",
        show_lines=True,
    )
    table.add_column("rank", justify="right")
    table.add_column("design", no_wrap=True)
    table.add_column("chip", overflow="fold")
    table.add_column("draws on the front", justify="right")
    table.add_column("or within 1 %", justify="right")
    if order.undecided:
        table.add_column("not distinguished from", overflow="fold")
    table.add_column("constants that turn it most (range over value, source)", overflow="fold")
    for name in shown:
        design = robustness.designs[name]
        cells = [f"{names.index(name) + 1:,}", name, escape(design.chip), f"{design.share:.0%}", f"{design.near_share:.0%}"]
        cells += [escape(", ".join(order.undecided.get(name, ())))] if order.undecided else []
        turning = [escape(format_turning_constant(record)) for record in design.turning]
        table.add_row(*cells, "\n".join(turning) or "none within its range")
    console.print(table)
    console.print(f"dse report {escape(robustness.study)} has these shares beside the designs")


def robustness_record(robustness: FrontRobustness, order: KindOrder) -> RobustDocument:
    """The document on the robustness of a front."""
    return RobustDocument(
        study=robustness.study,
        fidelity=robustness.fidelity,
        draws=robustness.draws,
        constants_not_moved=robustness.unmoved,
        constants=robustness.constants,
        rivals=robustness.rivals,
        left_out=robustness.left,
        designs=[
            RobustDesignRecord(
                design=name,
                chip=design.chip,
                share=design.share,
                near_share=design.near_share,
                margin=design.margin,
                turning=design.turning,
                not_distinguished=order.undecided.get(name, ()),
            )
            for name, design in robustness.designs.items()
        ],
        order=kind_order_record(order),
    )
