"""What the terminal shows: one design's numbers, the front of a study, the studies there are.

Text only; pictures are in the report.
"""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dse.build import Question, question
from dse.compose import folder_of
from dse.json_text import json_text
from dse.study import Study, stored_at
from dse.trace import write as write_trace
from dse.verify import Verified
from dse.workloads import models
from evaluators import METRICS, evaluate, explain, smaller
from evaluators.breakdown import Breakdown, Row
from evaluators.evaluation import infeasible
from evaluators.graph.part import PART
from space.design import stacked
from space.errors import DesignError
from space.fields import leaves, spec_at
from space.mapping import BYTES, Precision
from space.model import Model, active_parameters, kv_values, parameters
from space.units import show
from space.workload import Case, Load

SMALL = 1e-4
"""Share of the time from which on what binds is printed."""

ROWS = 15
"""Designs of a front that are printed; the report has all."""

COLUMNS = 12
"""Knobs and objectives that fit side by side."""


def evaluation(config: Mapping[str, Any], *, as_json: bool, trace: str = "") -> None:
    """Prints one design: metrics, time by operator of the first case, and what binds."""
    asked = question(dict(config), folder_of(config))
    outcomes = evaluate(stacked([asked.base]), asked.workload, fidelity=config["fidelity"])
    verdict = infeasible(asked.base, asked.workload)
    parts = explain(asked.base, asked.workload.cases[0], decode_at=asked.workload.decode_at, fidelity=config["fidelity"])
    metrics = {name: float(column[0]) for name, column in outcomes.columns.items()}
    if trace:
        write_trace(parts, Path(trace))
    if as_json:
        print(json_text(_as_json(asked, metrics, verdict, parts), indent=1))
        return
    console = Console(highlight=False, width=None if Console().is_terminal else 150)
    cases = len(asked.workload.cases)
    console.print(
        f"[bold]{escape(asked.workload.cases[0].label)}[/]"
        + (f" and {cases - 1} more cases; metrics are means" if cases > 1 else "")
    )
    mapping = asked.base.mapping
    if isinstance(asked.workload.cases[0], Case | Load):
        formats: Precision = mapping.precision  # type: ignore[union-attr]
        for name, model in models(config["model"]).items():
            console.print(f"model     {escape(_model_text(model, formats.kv, config['model'][name]))}")
    if PART in config["fidelity"]:
        console.print(
            f"{config['fidelity']:10}on at most so many cores a side, each as it is: {smaller(asked.base, asked.workload)}"
        )
    if verdict is not None:
        console.print(f"[red]infeasible:[/] {escape(str(verdict))}")
    console.print(_metrics_table(metrics))
    for phase in dict.fromkeys(row.phase for row in parts.rows):
        console.print(_operators_table(phase, parts, cases))
    if parts.rows:
        console.print("bound by  " + _shares(parts.by_bound()))
    areas = [f"{name} {area:.4g} mm2" for name, area in parts.area.items() if area]
    if areas:
        console.print("die area  " + "  ".join(areas))


def front_table(asked: Study, frame: pd.DataFrame) -> None:
    """Prints the front of a study, best first objective first: a design a row, or with many knobs a design a column."""
    best = frame[frame["front"]]
    first, direction = next(iter(asked.objectives.items()))
    best = best.sort_values(first, ascending=direction == "min", kind="stable")
    knobs = [knob.address for knob in asked.question.space.knobs if best[knob.address].notna().any()]
    across = len(knobs) + len(asked.objectives) <= COLUMNS
    most = ROWS if across else COLUMNS // 2
    picks = best.iloc[[round(i * (len(best) - 1) / max(most - 1, 1)) for i in range(most)]] if len(best) > most else best
    names = [*knobs, *asked.objectives]
    cells = [
        [knob_text(asked, address, row[address]) for address in knobs]
        + [show(float(row[name]), METRICS[name].unit) for name in asked.objectives]
        for _, row in picks.iterrows()
    ]
    more = f", {most} shown" if len(best) > most else ""
    table = Table(
        title=f"front: {len(best):,} of {int(frame['feasible'].sum()):,} feasible designs{more}",
        title_justify="left",
        show_header=across,
    )
    if across:
        for name in names:
            table.add_column(name, justify="right", style="bold" if name in asked.objectives else "", overflow="fold")
        for row in cells:
            table.add_row(*row)
    else:
        table.add_column(no_wrap=True)
        for _ in cells:
            table.add_column(justify="right", overflow="fold")
        for place, name in enumerate(names):
            row = [of[place] for of in cells]
            table.add_row(name, *row, style="bold" if name in asked.objectives else "", end_section=place == len(knobs) - 1)
    Console(highlight=False, width=None if Console().is_terminal else 160).print(table)


def verified_table(asked: Study, found: Verified) -> None:
    """Prints how far the metrics that a study wants or bounds move at a higher fidelity, and which designs that moves."""
    console = Console(highlight=False, width=None if Console().is_terminal else 160)
    table = Table(title=f"{found.high} against {found.low}: {len(found.after):,} designs", title_justify="left")
    for column in ("metric", "rank correlation", "median shift", "worst shift"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    wanted = dict.fromkeys((*asked.objectives, *(bound.metric for bound in asked.bounds)))
    for shift in found.shifts():
        if shift.metric in wanted:
            correlation = "-" if shift.correlation is None else f"{shift.correlation:.3f}"
            table.add_row(shift.metric, correlation, f"{shift.median:+.2%}", f"{shift.worst:+.2%}")
    console.print(table)
    moves = found.moves()
    names = [name for name in asked.objectives if found.before[name].notna().any()]
    if found.part:
        console.print(escape(found.part))
        names = [name for name in names if (found.before[name] != found.after[name]).any()] or names[:1]
    else:
        stay, fall, come = (int((moves == move).sum()) for move in ("stays", "falls off", "comes on"))
        console.print(
            f"of {stay + fall:,} designs on the front, {stay:,} stay there at {found.high} and {fall:,} fall off; "
            f"{come:,} come on from behind"
        )
    shown = found.shown(ROWS)
    if not shown:
        return
    table = Table()
    knobs = [knob.address for knob in asked.question.space.knobs if found.after[knob.address].iloc[shown].nunique() > 1]
    columns = ((name, f"{name}, {found.low}", f"{name}, {found.high}") for name in names)
    said = ["" if found.part else str(moves.iloc[place]) for place in shown]
    said = [_failing(found.after.iloc[place]) or word for place, word in zip(shown, said, strict=True)]
    for column in (
        *([""] if any(said) else []),
        *knobs,
        *(column for _, low, high in columns for column in (low, high, "gap")),
    ):
        table.add_column(column, justify="right", overflow="fold")
    for place, word in zip(shown, said, strict=True):
        before, after = found.before.iloc[place], found.after.iloc[place]
        cells = [word] if any(said) else []
        cells += [knob_text(asked, address, after[address]) for address in knobs]
        for name in names:
            low, high = float(before[name]), float(after[name])
            cells += [*(show(value, METRICS[name].unit) for value in (low, high)), f"{high / low - 1:+.1%}" if low else "-"]
        table.add_row(*cells)
    console.print(table)


def _failing(row: pd.Series) -> str:
    """Why a design has no metrics, or breaks a limit."""
    return next((str(row[name]) for name in ("error", "limit") if isinstance(row[name], str)), "")


def knob_text(asked: Study, address: str, value: Any) -> str:
    """A knob's value for people; a dash where it does not count."""
    if value is None or (isinstance(value, float) and value != value):
        return "-"
    if isinstance(value, str):
        return value
    unit = spec_at(asked.question.base, asked.question.space.targets[address][0]).metadata["unit"]
    return show(float(value), unit)


def listing(known: dict[str, Path]) -> int:
    """Prints the studies that can be run and those that ran in this folder."""
    table = Table(box=None, title="studies: dse run study=NAME", title_justify="left")
    for column in ("name", "question", "ran here"):
        table.add_column(column, overflow="fold")
    ran = {path.name: place for path in sorted(Path("runs").glob("*")) if (place := stored_at(path)) is not None}
    for name, path in known.items():
        table.add_row(name, _question_of(path), _state(name, ran.pop(name)) if name in ran else "")
    for name, place in ran.items():
        table.add_row(name, "", _state(name, place))
    Console(highlight=False, width=None if Console().is_terminal else 140).print(table)
    return 0


def summary(asked: Study, runs: list[dict[str, Any]]) -> int:
    """Prints a study: question, objectives, knobs with their values, constants that were assumed or fitted, runs."""
    console = Console(highlight=False, width=None if Console().is_terminal else 140)
    console.print(f"[bold]{asked.name}[/]  {asked.text}")
    goals = ", ".join(f"{metric} {direction}" for metric, direction in asked.objectives.items())
    console.print(f"objectives   {goals}")
    console.print(f"constraints  {', '.join(map(str, asked.bounds)) or 'none'}")
    cases = asked.question.workload.cases
    console.print(f"workload     {len(cases)} cases, from {cases[0].label} to {cases[-1].label}")
    for knob in asked.question.space.knobs:
        values = getattr(knob, "values", None)
        texts = [knob_text(asked, knob.address, value) for value in values or (knob.low, knob.high)]  # type: ignore[union-attr]
        text = ", ".join(texts if len(texts) <= 8 else [*texts[:3], "...", texts[-1]])
        console.print(f"knob         {knob.address}: " + (f"{text} ({len(texts)})" if values else f"{text} (interval)"))
    unsure: dict[tuple[str, str], list[str]] = {}
    for source in asked.question.sources:
        if source.source in ("assumed", "fitted"):
            unsure.setdefault((source.source, source.note), []).append(f"{source.address} = {source.value}")
    for (kind, note), constants in unsure.items():
        console.print(f"{kind:12} {', '.join(constants)}: {escape(note)}")
    for run in runs:
        console.print(f"run          {escape(_run_text(run))}")
    return 0


def _run_text(run: Mapping[str, Any]) -> str:
    """When a run was, how it ended, what it took, who ran it where, and with what."""
    facts = run["facts"]
    spent = [f"{show(facts[f'{kind}_seconds'], 's', 3)} {kind}" for kind in ("wall", "cpu") if f"{kind}_seconds" in facts]
    lost = f" (its machine {facts.get('host', '?')} does not hold this file: killed there, or this is a copy)"
    parts = [f"{run['started']} {run['state']}" + (lost if run["state"] == "lost" else ""), *spent]
    parts += [f"{facts['results']:,} designs searched"] if "results" in facts else []
    parts += [f"{facts['verified']:,} verified"] if "verified" in facts else []
    parts += [f"{facts.get('user', '?')} on {facts.get('host', '?')}, process {facts.get('pid', '?')}"]
    parts += [f"seed {facts['seed']}"] if "seed" in facts else []
    known = {"mesh-dse": facts.get("version"), "python": facts.get("python"), **facts.get("versions", {})}
    parts += [", ".join(f"{name} {number}" for name, number in known.items() if number)]
    parts += [f"git {facts['git']}"] if facts.get("git") else []
    parts += [facts[key] for key in ("command", "error") if facts.get(key)]
    return "; ".join(part for part in parts if part)


def _as_json(asked: Question, metrics: dict[str, float], verdict: Any, parts: Breakdown) -> dict[str, Any]:
    return {
        "design": {address: value for address, value, _ in leaves(asked.base)},
        "cases": [case.label for case in asked.workload.cases],
        "models": [
            _model_facts(model)
            for model in dict.fromkeys(case.model for case in asked.workload.cases if isinstance(case, Case))
        ],
        "feasible": verdict is None,
        "infeasible": str(verdict) if verdict else None,
        "metrics": {name: {"value": value, "unit": METRICS[name].unit} for name, value in metrics.items() if value == value},
        "operators": [row.record() for row in parts.rows],
        "seconds_by_bound": parts.by_bound(),
        "area_mm2": parts.area,
        "sources": [{"address": s.address, "value": s.value, "source": s.source, "note": s.note} for s in asked.sources],
    }


def _model_text(model: Model, kv: str, entry: Mapping[str, Any]) -> str:
    """What to know a model by: its size, and what it caches."""
    total, active = parameters(model), active_parameters(model)
    sparse = f", {active / 1e9:.4g} billion of them active" if active != total else ""
    cached = show(model.layers * kv_values(model) * BYTES[kv], "B")
    said = ", ".join(str(entry[key]) for key in ("source", "note") if entry.get(key))
    return f"{model.name}: {total / 1e9:.4g} billion parameters{sparse}, {cached} of KV cache a token in {kv}" + (
        f" ({said})" if said else ""
    )


def _model_facts(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "parameters": parameters(model),
        "active_parameters": active_parameters(model),
        "kv_values_per_token": model.layers * kv_values(model),
    }


def _metrics_table(metrics: dict[str, float]) -> Table:
    table = Table(box=None, show_header=False)
    for _ in range(3):
        table.add_column()
    for name, value in metrics.items():
        if value != value:  # a metric that this kind of chip does not have
            continue
        words = METRICS[name].words
        text = words[round(value)] if words else show(value, METRICS[name].unit)
        table.add_row(name, text, f"[dim]{METRICS[name].definition}[/]")
    return table


def _operators_table(phase: str, parts: Breakdown, cases: int) -> Table:
    rows = [row for row in parts.rows if row.phase == phase]
    total = sum(row.seconds for row in rows)
    of = " of the first case" if cases > 1 else ""
    whole = ", all layers and steps, one device" if phase in ("prefill", "decode") else ""
    table = Table(title=f"{phase}{of}: {show(total, 's')}{whole}", title_justify="left")
    cells = [_cells(row, total) for row in rows]
    for column in list(cells[0]):
        if any(row[column] for row in cells):
            table.add_column(column, justify="left" if column in ("segment", "operator", "shape", "bound") else "right")
        else:  # what no operator of this chip has
            for row in cells:
                del row[column]
    for row in cells:
        table.add_row(*row.values())
    return table


def _cells(row: Row, total: float) -> dict[str, str]:
    return {
        "segment": row.segment,
        "operator": row.operator,
        "shape": row.shape,
        "FLOP": show(row.flop, "op", 3) if row.flop else "",
        "bytes": show(row.nbytes, "B", 3) if row.nbytes else "",
        "FLOP/B": f"{row.intensity:.3g}" if row.intensity else "",
        "in L2": f"{row.prefetched:.0%}" if row.prefetched else "",
        "bound": row.bound,
        "time": show(row.seconds, "s", 3),
        "share": f"{row.seconds / total:.1%}" if total else "",
    }


def _shares(parts: dict[str, float]) -> str:
    total = sum(parts.values())
    return "  ".join(f"{name} {seconds / total:.1%}" for name, seconds in parts.items() if seconds > SMALL * total)


def _question_of(path: Path) -> str:
    for line in path.read_text().splitlines():
        if line.startswith("question:"):
            return line.partition(":")[2].strip().strip('"')
    return ""


def _state(name: str, place: str) -> str:
    from dse.store import Store

    try:
        with closing(Store(place, create=False)) as store:
            runs = store.runs(name)
    except DesignError as error:  # the others are listed all the same
        return escape(str(error))
    return f"{runs[-1]['state']}, {runs[-1]['facts'].get('results', 0)} searched" if runs else "no run"
