"""The page itself: figures and tables into one HTML file that needs nothing beside it."""

import html
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import plotly.offline

from dse.frame import by_case
from dse.report import figures
from dse.screen import Screened
from dse.show import knob_text
from dse.study import Study
from evaluators import METRICS, PHYSICS, explain
from space.units import show

FRONT_ROWS = 400
"""Front designs in the table; of more, an even choice along the first objective."""

EXPLAINED = 24
"""Front designs whose time is broken down."""

HERE = Path(__file__).parent


def write(asked: Study, frame: pd.DataFrame, screened: Screened | None, runs: list[dict[str, Any]]) -> Path:
    """Writes the report of a study; returns its path."""
    path = asked.run_dir / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(page(asked, frame, screened, runs))
    draft.replace(path)
    return path


def page(asked: Study, frame: pd.DataFrame, screened: Screened | None, runs: list[dict[str, Any]]) -> str:
    """The report as text."""
    first, direction = next(iter(asked.objectives.items()))
    best = _thinned(frame[frame["front"]].sort_values(first, ascending=direction == "min", kind="stable"), FRONT_ROWS)
    sections = [_section("Front", _caption(asked, frame, screened), figures.pareto(asked, frame))]
    for spec in asked.report["lines"]:
        if spec["x"] not in asked.question.space.targets:
            continue
        title = f"{spec['y']} against {spec['x']}"
        views = by_case(asked, frame, spec["y"]) if spec.get("each") else {"": frame}
        for label, view in views.items():
            picture = figures.line(asked, view, dict(spec))
            sections.append(_section(f"{title}, {label}" if label else title, METRICS[spec["y"]].definition, picture))
    if len(best):
        sections.append(_binding(asked, best))
    history = figures.hypervolume_history(asked, frame, screened)
    if history is not None:
        sections.append(_section("Search", "How much of the front the search had found, by designs asked.", history))
    sections.append(_card("Designs on the front", "Click a heading to sort.", _table(asked, best)))
    sections.append(_card("Limits", "Designs that cannot be, by the limit that binds.", _limits(asked, frame, screened)))
    sections.append(_card("Sources", "Where every chip constant of this study came from.", _sources(asked)))
    sections.append(_card("Runs", "", _runs(runs)))
    template = (HERE / "page.html").read_text()
    filled = {
        "{{title}}": html.escape(asked.name),
        "{{question}}": html.escape(asked.text),
        "{{summary}}": _summary(asked, frame, screened),
        "{{sections}}": "\n".join(sections),
        "{{plotly}}": plotly.offline.get_plotlyjs(),
    }
    for mark, text in filled.items():
        template = template.replace(mark, text)
    return template


def _section(title: str, caption: str, figure: go.Figure, *, wide: bool = False) -> str:
    name = f"figure-{abs(hash(title)) % 10**8}"
    data = figure.to_json().replace("</", "<\\/")
    body = f'<div class="plot" id="{name}"></div><script type="application/json" data-plot="{name}">{data}</script>'
    return _card(title, caption, body, wide=wide)


def _card(title: str, caption: str, body: str, *, wide: bool = False) -> str:
    return f"<section{' class=wide' if wide else ''}><h2>{html.escape(title)}</h2><p>{html.escape(caption)}</p>{body}</section>"


def _summary(asked: Study, frame: pd.DataFrame, screened: Screened | None) -> str:
    searched = int(frame["number"].notna().sum())
    facts = [
        ("designs screened", f"{screened.rows:,}" if screened else "0"),
        ("designs searched", f"{searched:,}"),
        ("on the front", f"{int(frame['front'].sum()):,}"),
        ("fidelity", asked.fidelity),
        ("seed", str(asked.seed)),
        ("physics version", str(PHYSICS)),
        ("written", datetime.now().isoformat(" ", "minutes")),
    ]
    facts += [("constraint", str(bound)) for bound in asked.bounds]
    return "".join(f"<div><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>" for name, value in facts)


def _caption(asked: Study, frame: pd.DataFrame, screened: Screened | None) -> str:
    cases = asked.question.workload.cases
    mean = (
        f"Metrics are means over {len(cases)} cases, from {cases[0].label} to {cases[-1].label}."
        if len(cases) > 1
        else cases[0].label
    )
    exact = " Every design of the space was looked at, so the front is exact." if screened and screened.exact else ""
    return f"Point at a design to see all its knobs and metrics. {mean}{exact}"


def _binding(asked: Study, best: pd.DataFrame) -> str:
    rows = _thinned(best, EXPLAINED)
    case = asked.question.workload.cases[0]
    space = asked.question.space
    labels, parts = [], []
    for index, row in enumerate(rows.to_dict("records")):
        values = _values(asked, row)
        parts.append(explain(space.at(values), case, decode_at=asked.question.workload.decode_at))
        labels.append(f"{index + 1}: " + ", ".join(knob_text(asked, address, value) for address, value in values.items()))
    of = f" of {case.label}" if len(asked.question.workload.cases) > 1 else ""
    names = ", ".join(knob.address for knob in space.knobs)
    caption = f"What the time{of} is spent on, best first objective first. Designs by {names}."
    return _section("What binds", caption, figures.binding(labels, parts), wide=True)


def _values(asked: Study, row: Mapping[Any, Any]) -> dict[str, Any]:
    values = {}
    for knob in asked.question.space.knobs:
        value = row[knob.address]
        if value is None or value != value:
            continue
        values[knob.address] = value if isinstance(value, str) else asked.question.space.number(knob, float(value))
    return asked.question.space.canonical(values)


def _table(asked: Study, best: pd.DataFrame) -> str:
    knobs = [knob.address for knob in asked.question.space.knobs]
    known = [name for name in METRICS if name in best and best[name].notna().any()]
    names = [*asked.objectives, *(name for name in known if name not in asked.objectives)]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in ("#", *knobs, *names))
    rows = []
    for index, row in enumerate(best.to_dict("records"), start=1):
        cells = [f'<td data-sort="{index}">{index}</td>']
        for address in knobs:
            value = row[address]
            cells.append(f'<td data-sort="{html.escape(str(value))}">{html.escape(knob_text(asked, address, value))}</td>')
        for name in names:
            cells.append(f'<td data-sort="{float(row[name])!r}">{html.escape(show(float(row[name]), METRICS[name].unit))}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    table = f'<table class="sortable"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<div class="scroll">{table}</div>'


def _limits(asked: Study, frame: pd.DataFrame, screened: Screened | None) -> str:
    counts = frame["limit"].dropna().value_counts()
    lines = [
        f"<li><b>{html.escape(str(name))}</b>: {count:,} of the designs in this page</li>" for name, count in counts.items()
    ]
    errors = frame["error"].dropna()
    lines += [f"<li>failed: {html.escape(str(error))}</li>" for error in errors.unique()[:20]]
    for bound in asked.bounds:
        broken = int((bound.excess(frame[bound.metric].to_numpy(dtype=float)) > 0).sum())
        lines.append(f"<li><b>{html.escape(str(bound))}</b>: {broken:,} of the designs in this page break it</li>")
    if screened is not None:
        lines.append(f"<li>screened: {screened.feasible:,} of {screened.rows:,} designs keep every limit and constraint</li>")
    return f"<ul>{''.join(lines)}</ul>"


def _sources(asked: Study) -> str:
    moved = {address for targets in asked.question.space.targets.values() for address in targets}
    rows = []
    for source in asked.question.sources:
        if source.address in moved:
            continue
        cells = (source.address, source.value, source.source, source.page, source.note)
        rows.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("constant", "value", "source", "where", "note"))
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _runs(runs: list[dict[str, Any]]) -> str:
    lines = []
    for run in runs:
        facts = run["facts"]
        text = f"{run['started']}: {run['state']}, version {facts.get('version')}, git {str(facts.get('git'))[:10] or 'none'}, "
        text += f"on {facts.get('host')}; {json.dumps(facts.get('overrides'))}"
        lines.append(f"<li>{html.escape(text)}</li>")
    return f"<ul>{''.join(lines)}</ul>"


def _thinned(frame: pd.DataFrame, most: int) -> pd.DataFrame:
    if len(frame) <= most:
        return frame
    return frame.iloc[[round(i * (len(frame) - 1) / (most - 1)) for i in range(most)]]
