"""Question, verdict and front of a report as HTML, which reads without the page's script."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from dse.report.verdict import knob_text, metric_text
from dse.terminal.plain_names import plain_name, setting_name

MAX_ROWS = 30
"""Designs of a front that stand in the table, an even choice of more."""


def header_html(studies: Sequence[Mapping[str, Any]]) -> str:
    """Title, question and verdict of each study.

    Args:
        studies: records of the page's data.
    """
    title = " and ".join(str(study["name"]) for study in studies)
    lines = []
    for study in studies:
        lines += [_element("p", study["question"], "question")] if study["question"] else []
        first, *more = study["verdict"]
        lines += [_element("p", first, "verdict"), *(_element("p", text, "question") for text in more)]
    return f'<div class="title">{_element("h1", title)}<span class="brand">mesh-dse</span></div>{"".join(lines)}'


def table_html(studies: Sequence[Mapping[str, Any]]) -> str:
    """Tables of the fronts, each with its objectives and knobs.

    Args:
        studies: records of the page's data, with ``table``.
    """
    parts = []
    for study in studies:
        table = study["table"]
        head = "".join(_element("th", text) for text in table["head"])
        body = "".join(f"<tr>{''.join(_element('td', cell) for cell in row)}</tr>" for row in table["rows"])
        shown = f", {len(table['rows'])} shown" if len(table["rows"]) < table["front"] else ""
        parts.append(
            f"{_element('h2', 'Front of ' + str(study['name']))}<p>{table['front']:,} designs{shown}.</p>"
            f'<div class="scroll"><table class="grid"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        )
    return "".join(parts)


def front_rows(frame: Any, objectives: Mapping[str, str], knobs: Mapping[str, str], design: str) -> dict[str, Any]:
    """Table of a front as text: a row a design, its objectives and knobs.

    Args:
        frame: designs of the study in the order of the page.
        objectives: of the study.
        knobs: unit of each knob by address.
        design: name of the column with ids.
    """
    front = frame[frame["front"]]
    chosen = front.iloc[:: max(1, -(-len(front) // MAX_ROWS))]
    rows = [
        [
            str(row[design]),
            *(metric_text(name, float(row[name])) for name in objectives),
            *(knob_text(row.get(address), unit) for address, unit in knobs.items()),
        ]
        for row in chosen.to_dict("records")
    ]
    head = ["design", *(plain_name(name) for name in objectives), *map(setting_name, knobs)]
    return {"front": len(front), "head": head, "rows": rows}


def _element(tag: str, text: object, name: str = "") -> str:
    """An element whose text is letters only, whatever it contains."""
    attribute = f' class="{name}"' if name else ""
    return f"<{tag}{attribute}>{html.escape(str(text))}</{tag}>"
