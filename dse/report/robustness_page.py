"""Page on the robustness of a front: shares of draws by design, and the constants that turn designs."""

from collections import defaultdict
from collections.abc import Sequence
from math import sqrt
from typing import Any

from dse.accuracy.constant_ranges import describe_default_ranges
from dse.documents.robust_document import RobustDesignRecord, RobustDocument, TurningRecord
from dse.report.figure_style import FigureSpec, Panel, hover_lines, short_number
from dse.report.front_robustness import format_turning_constant
from dse.report.standalone_pages import PageTable, build_described_page
from dse.space.safe_text import count_text
from dse.terminal.plain_names import named_setting, setting_name

HALF = 0.5
"""Share of draws from which on a design counts as one that stays on the front."""

MAX_CONSTANTS = 12
"""Constants that have a bar on the page; its table has all."""


def build_robustness_page(document: RobustDocument) -> str:
    """Page on the robustness of a front: shares of draws by design, and the constants that turn designs.

    Args:
        document: with at least one design.
    """
    designs = document.designs
    best = max(designs, key=lambda design: (design.share, design.near_share))
    stay = sum(design.share >= HALF for design in designs)
    verdict = (
        f"{stay:,} of {count_text(len(designs), 'design')} of the front {'stays' if stay == 1 else 'stay'} on it in at least "
        f"half of the draws. Design {best.design} stays most often, in {best.share:.0%}."
    )
    left = f"; {document.left_out:,} more designs of the front are left out, evenly" if document.left_out else ""
    question = [
        f"Study {document.study}: {count_text(document.draws, 'draw')} of {count_text(document.constants, 'constant')} at "
        f"fidelity {document.fidelity}, the same for all designs. "
        f"{count_text(document.rivals, 'design')} next to the front take part{left}.",
        f"Ranges: {describe_default_ranges()}.",
    ]
    moved = defaultdict[str, list[tuple[RobustDesignRecord, TurningRecord]]](list)
    for design in designs:
        for record in design.turning:
            moved[record.address].append((design, record))
    constants = sorted(moved.values(), key=lambda pairs: -_turned_designs(pairs))
    unmoved = count_text(document.constants_not_moved, "constant")
    notes = [
        document.order.text,
        f"{unmoved} not moved alone yet: the same command goes on." if document.constants_not_moved else "",
        "" if any(map(_turned_designs, constants)) else "No constant turns a design off the front by itself.",
    ]
    return build_described_page(
        f"Robustness of the front of {document.study}",
        verdict,
        question,
        [_share_figure(document), *_constant_figures(constants)],
        [*([_constant_table(constants)] if constants else []), _design_table(document)],
        list(filter(None, notes)),
    )


def _share_figure(document: RobustDocument) -> FigureSpec:
    """Shares of draws by rank, each with the standard deviation that so many draws leave."""
    ranks = list(range(1, len(document.designs) + 1))
    traces = []
    for name, colour, shares in (
        ("on the front or within 1 %", "--s7", [design.near_share for design in document.designs]),
        ("on the front", "--s1", [design.share for design in document.designs]),
    ):
        spreads = [short_number(100 * sqrt(share * (1 - share) / document.draws), 3) for share in shares]
        texts = [
            hover_lines(f"{design.design} {design.chip}", f"{name}: {share:.0%} ± {spread:.2g} % of the draws")
            for design, share, spread in zip(document.designs, shares, spreads, strict=True)
        ]
        traces.append(
            {
                "type": "scatter", "mode": "markers", "name": name, "x": ranks,
                "y": [short_number(100 * share) for share in shares],
                "marker": {"size": 7, "color": colour}, "text": texts, "hovertemplate": "%{text}<extra></extra>",
                "error_y": {"type": "data", "array": spreads, "color": colour, "thickness": 1, "width": 0},
            }
        )  # fmt: skip
    x: dict[str, Any] = {"title": "rank of the design in the report"}
    y: dict[str, Any] = {"title": "share of draws [%]", "range": [-4, 104]}
    return FigureSpec("Draws in which a design is on the front", "", (Panel(tuple(traces), x, y),))


def _turned_designs(pairs: Sequence[tuple[RobustDesignRecord, TurningRecord]]) -> int:
    """How many designs one constant turns off the front by itself."""
    return sum(bool(record.turns_at) for _, record in pairs)


def _constant_figures(constants: Sequence[Sequence[tuple[RobustDesignRecord, TurningRecord]]]) -> list[FigureSpec]:
    """Bars of the constants that turn most designs; none if no constant turns one."""
    turning = [pairs for pairs in constants if _turned_designs(pairs)][:MAX_CONSTANTS]
    if not turning:
        return []
    trace = {
        "type": "bar", "orientation": "h", "showlegend": False, "x": [_turned_designs(pairs) for pairs in turning],
        "y": [setting_name(pairs[0][1].address) for pairs in turning],
        "text": [format_turning_constant(pairs[0][1]).partition(":")[0] for pairs in turning], "textposition": "none",
        "hovertemplate": "%{text}<br>%{x} designs<extra></extra>", "marker": {"color": "--s2"},
    }  # fmt: skip
    x = {"title": "designs turned off the front", "rangemode": "tozero"}
    y = {"title": "", "type": "category", "autorange": "reversed"}
    return [FigureSpec("Constants that turn designs", "", (Panel((trace,), x, y),))]


def _design_table(document: RobustDocument) -> PageTable:
    head = ["design", "rank", "chip", "on the front", "or within 1 %", "margin", "turned by"]
    apart = any(design.not_distinguished for design in document.designs)
    rows = []
    for rank, design in enumerate(document.designs, 1):
        turning = ", ".join(setting_name(record.address) for record in design.turning if record.turns_at)
        cells = [design.design, f"{rank:,}", design.chip or "-", f"{design.share:.0%}", f"{design.near_share:.0%}"]
        cells += [f"{design.margin:.2%}", turning or "no constant alone"]
        rows.append([*cells, *([", ".join(design.not_distinguished) or "-"] if apart else [])])
    note = "Margin: how much worse all objectives may get before the design leaves the front."
    words = ["chip", "turned by", "not distinguished from"]
    return PageTable("Designs of the front", [*head, *(["not distinguished from"] if apart else [])], rows, words, note)


def _constant_table(constants: Sequence[Sequence[tuple[RobustDesignRecord, TurningRecord]]]) -> PageTable:
    head = ["constant", "value", "range over value", "source", "designs turned", "largest loss of margin"]
    rows = []
    for pairs in constants:
        record = pairs[0][1]
        ends = f"x{record.low:.3g} to x{record.high:.3g}"
        lost = max(turning.margin_lost for _, turning in pairs)
        rows.append(
            [named_setting(record.address), record.written, ends, record.source, f"{_turned_designs(pairs):,}", f"{lost:.2%}"]
        )
    note = "Of each design the three constants that lower its margin most, each moved alone to both ends of its range."
    return PageTable("Constants that move the front most", head, rows, ["value", "source"], note)
