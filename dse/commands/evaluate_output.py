"""Output of ``dse evaluate``: settings, metrics, time by operator and bottlenecks; or JSON."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from dse.analysis.chrome_trace import write_trace as write_trace
from dse.analysis.evaluation import BEYOND, OF_PART, Evaluation, evaluate_config, metric_rows, metric_text
from dse.analysis.load_notes import LoadNotes, trace_record
from dse.analysis.load_notes import notes_record as said_beside
from dse.analysis.withheld_metrics import computed_metrics
from dse.config.setting_effects import no_effect_records, print_no_effects
from dse.config.workloads import read_models
from dse.evaluators import METRICS
from dse.evaluators.accounting.breakdown import Breakdown, BreakdownRow
from dse.evaluators.layouts.tensor_formats import index_format
from dse.evaluators.silicon import area, price
from dse.evaluators.silicon.published import published_facts, remarks
from dse.explanations.advice import overload_advice
from dse.schemas import stamp_document
from dse.space.chip import Chip
from dse.space.fields import iterate_leaves
from dse.space.mapping import BYTES_BY_FORMAT, FormatPlan
from dse.space.model import Model
from dse.space.parameter_counts import (
    active_parameter_count,
    cache_growth,
    fixed_bytes_per_sequence,
    parameter_count,
    sequence_memory,
    window_values,
)
from dse.space.peaks import peaks
from dse.space.units import format_quantity
from dse.space.workload import BatchCase, ServingLoad
from dse.terminal.json_text import json_text
from dse.terminal.progress import SafeConsole

SHOWN_EXCESS = 0.005
"""Share of useful operations from which on what is executed beside them is printed."""

MIN_SHOWN_SHARE = 1e-4
"""Share of the time from which on what binds is printed."""

MAX_CASE_COLUMNS = 6
"""Metrics of a case that fit side by side."""


def print_evaluation_of(config: Mapping[str, Any], *, as_json: bool, trace: str = "") -> None:
    """Evaluate and print the design of a composed configuration.

    Args:
        config: as `dse.config.compose.compose` returns it.
        as_json: all that is known, for machines.
        trace: a file for the timeline; "" for none.
    """
    leave(evaluate_config(config), config, as_json=as_json, trace=trace)


def leave(found: Evaluation, config: Mapping[str, Any], *, as_json: bool, trace: str = "") -> None:
    """Print an answer to a composed configuration and write its trace."""
    if trace:
        write_trace(found.breakdown, found.profile, Path(trace))
    if as_json:
        print(json_text(evaluation_record(found), indent=1))
    else:
        print_evaluation(found, config)
    print_no_effects(found.without_effect)


def print_evaluation(found: Evaluation, config: Mapping[str, Any]) -> None:
    """Print the answer to a composed configuration as tables."""
    console = SafeConsole(150)
    cases, parts = len(found.cases), found.breakdown
    if found.infeasible is not None:
        console.print(f"[red]infeasible:[/] {escape(str(found.infeasible))}")
    console.print(f"[bold]{escape(found.title)}[/]")
    if found.stack_basis:
        console.print(escape(found.stack_basis.text))
    if found.kernel_basis:
        console.print(escape(f"{BEYOND}{found.kernel_basis}"))
    for text in found.max_rates:
        console.print(f"{'max rate':12}{escape(text)}")
    if isinstance(found.workload.cases[0], BatchCase | ServingLoad):
        for name, model in read_models(config["model"]).items():
            console.print(f"{'model':12}{escape(_model_text(model, found.design.mapping.precision, config['model'][name]))}")
    for name, text in found.about():
        console.print(f"{name:12}{escape(text)}")
    console.print(_metrics_table(found))
    if found.bands:
        console.print(_bands_table(found))
    metrics = computed_metrics(found.metrics)
    if held := overload_advice(metrics, found.design):
        console.print(f"{metric_text('load_status', metrics['load_status'])}: {held}")
    if cases > 1:
        console.print(_cases_table(found))
    for phase in dict.fromkeys(row.phase for row in parts.rows):
        console.print(_operators_table(phase, found))
    if parts.rows:
        console.print(_bound(parts))
    if found.certificate is not None:
        console.print(f"optimality gap: {found.certificate}")
    if over_time := _over_time(found):
        console.print(f"power over time, all chips{' in the first case' if cases > 1 else ''}: {over_time}")
    if parts.memory:
        each = " + ".join(f"{part} {format_quantity(value, 'B')}" for part, value in parts.memory.items() if value)
        console.print(f"memory of the fullest die: {format_quantity(sum(parts.memory.values()), 'B')} = {each}")
    of_chip = (("area", "mm2", parts.area), ("power at peak", "W", parts.power), ("price", "USD", parts.price))
    for name, unit, of_parts in of_chip:
        total, said = sum(of_parts.values()), [f"{part} {value:.4g}" for part, value in of_parts.items() if value]
        if said:
            console.print(f"{name} of a chip: {total:.4g} {unit} = {' + '.join(said)}")
    if parts.price:
        console.print(_dies(found.design.chip))


def _dies(chip: Chip) -> str:
    """How many dies a chip has, what a wafer gives of them, and how many of these work."""
    one, node = float(area.die_area(chip)), chip.technology
    count, below = area.die_counts(chip, area.total_area(chip))
    whole = f"{count:.0f} of {one:.4g} mm2" + (f" on {below:.0f} below" if below else "")
    got, good = float(price.dies_of_wafer(one)), float(price.die_yield(chip))
    return f"dies of a chip: {whole}; a wafer of {node.wafer_price:.4g} USD gives {got:.3g}, of which {good:.1%} are good"


def _over_time(found: Evaluation) -> str:
    """Power of each phase of a batch; "" of what has none, and where phases would be played again for it."""
    if found.fidelity != "analytical" or not isinstance(found.workload.cases[0], BatchCase) or (of := found.profile) is None:
        return ""
    each = zip(of.names, of.watts.tolist(), np.diff(of.instants).tolist(), strict=True)
    return ", ".join(
        f"{name} {format_quantity(watts, 'W')} for {format_quantity(seconds, 's', 3)}" for name, watts, seconds in each
    )


def evaluation_record(found: Evaluation) -> dict[str, Any]:
    """One evaluated design as JSON values."""
    sources = [
        {"address": s.address, "value": s.value, "source": s.source, "note": s.note}
        | {"fitted_on": list(s.fitted_on), "meant_for": list(s.meant_for)}
        for s in found.sources
    ]
    cases = found.workload.cases
    data = {
        "title": found.title,
        "stack_basis": found.stack_basis.record() if found.stack_basis else None,
        "kernel_basis": found.kernel_basis,
        **found.names,
        "fidelity": found.fidelity,
        "part": found.part or None,
        "parts_of_chip": dict(found.parts),
        "published": [{**of._asdict(), "text": of.text} for of in published_facts(found.design.chip)],
        "remarks": remarks(found.design.chip),
        "peaks": {name: float(value) for name, value in peaks(found.design.chip).items()},
        "design": {address: value for address, value, _ in iterate_leaves(found.design)},
        "cases": [
            {"case": one.label, "feasible": one.feasible, "metrics": _with_units(computed_metrics(one.metrics))}
            | (
                {"rows_skipped": of.requests.skipped, "trace": trace_record(of), **said_beside(beside, of)}
                if isinstance(of, ServingLoad)
                else {}
            )
            for one, of, beside in zip(found.cases, cases, found.beside or (LoadNotes(),) * len(cases), strict=True)
        ],
        "models": [
            _model_facts(model)
            for model in dict.fromkeys(case.model for case in cases if isinstance(case, BatchCase | ServingLoad))
        ],
        "feasible": found.infeasible is None,
        "infeasible": str(found.infeasible) if found.infeasible else None,
        "not_tied": list(found.untied),
        "without_effect": no_effect_records(found.without_effect),
        "extrapolated": found.extrapolated or None,
        "metrics": _with_units(computed_metrics(found.metrics)),
        "bands": [
            {
                "metric": one.metric,
                "value": one.value,
                "unit": METRICS[one.metric].unit,
                **one.kind._asdict(),
                "low": one.low,
                "high": one.high,
                "measured": one.measured,
                "rows": one.rows,
                "fitted": one.fitted,
                "of": one.of,
                "compares": one.compares,
                "physics": one.physics,
                "stale": one.stale,
                "text": str(one),
            }
            for one in found.bands
        ],
        "operators": [row.record() for row in found.breakdown.rows],
        "seconds_by_bound": found.breakdown.by_bound(),
        "memory_bytes": found.breakdown.memory,
        "area_mm2": found.breakdown.area,
        "power_w": found.breakdown.power,
        "price_usd": found.breakdown.price,
        "sources": sources,
    }
    return stamp_document("evaluate", data)


def _with_units(metrics: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    return {name: {"value": value, "unit": METRICS[name.removeprefix(OF_PART)].unit} for name, value in metrics.items()}


def _model_text(model: Model, formats: FormatPlan, entry: Mapping[str, Any]) -> str:
    """What to know a model by: its size, and what it caches."""
    kv, index = formats.kv, index_format(formats)
    total, active = parameter_count(model), active_parameter_count(model)
    sparse = f", {active / 1e9:.4g} billion of them active" if active != total else ""
    grows = cache_growth(model, BYTES_BY_FORMAT[kv], BYTES_BY_FORMAT[index])
    cached = format_quantity(grows.nbytes, "B")
    until = f" up to {grows.until:,} tokens" if grows.until is not None else ""
    indexed = f" and {index} for keys of the index" if index != kv and any(of.scores for of in sequence_memory(model)) else ""
    said = ", ".join(str(entry[key]) for key in ("source", "note") if entry.get(key))
    fixed = window_values(model) * BYTES_BY_FORMAT[kv] + fixed_bytes_per_sequence(model, BYTES_BY_FORMAT[kv])
    beside = f" and {format_quantity(fixed, 'B')} a sequence" if fixed else ""
    if until and fixed:
        beside = f", {format_quantity(fixed, 'B')} a sequence at most"
    return (
        f"{model.name}: {total / 1e9:.4g} billion parameters{sparse}, "
        f"{cached} of KV cache a token{until} in {kv}{indexed}{beside}" + (f" ({said})" if said else "")
    )


def _model_facts(model: Model) -> dict[str, Any]:
    grows = cache_growth(model, 1.0, 1.0)
    return {
        "name": model.name,
        "parameters": parameter_count(model),
        "active_parameters": active_parameter_count(model),
        "kv_values_per_token": grows.nbytes,
        "kv_tokens_until_full": grows.until,
        "kv_values_per_sequence": window_values(model),
        "state_bytes_per_sequence": fixed_bytes_per_sequence(model, 2.0),
    }


def _metrics_table(found: Evaluation) -> Table:
    many = f"all {len(found.cases)} cases together: mean, maximum or minimum" if len(found.cases) > 1 else ""
    held = "as if every limit held" if found.infeasible is not None else ""
    title = "; ".join(text for text in (held, many, f"of {found.part}" if found.part else "") if text)
    table = Table(box=None, show_header=False, title=title or None, title_justify="left")
    for _ in range(3):
        table.add_column()
    for name, text, definition in metric_rows(computed_metrics(found.metrics)):
        table.add_row(name, text, f"[dim]{definition}[/]")
    return table


def _bands_table(found: Evaluation) -> Table:
    """How far off measured rows of this kind were, and where that would have the answer measured."""
    table = Table(box=None, title="error on similar measurements (simulated / measured - 1)", title_justify="left")
    for name in ("metric", "here", "off by", "expected measurement"):
        table.add_column(name)
    for one in found.bands:
        ends = dict.fromkeys(metric_text(one.metric, end) for end in one.measured or ())
        table.add_row(one.metric, metric_text(one.metric, one.value), escape(one.said), " to ".join(ends))
    return table


def _cases_table(found: Evaluation) -> Table:
    """A case a row, with the first of the metrics that are not alike in all cases."""
    each = [computed_metrics(one.metrics) for one in found.cases]
    names = [name for name in found.metrics if len({metrics.get(name) for metrics in each}) > 1]
    picked, left = names[:MAX_CASE_COLUMNS], names[MAX_CASE_COLUMNS:]
    more = f" ({len(left)} more metrics of each with --json)" if left else ""
    table = Table(title=f"cases, one by one{more}", title_justify="left")
    for name in ("case", *picked):
        table.add_column(name, justify="left" if name == "case" else "right", overflow="fold")
    for one, metrics in zip(found.cases, each, strict=True):
        cells = [metric_text(name, metrics[name]) if name in metrics else "-" for name in picked]
        table.add_row(escape(one.label) + ("" if one.feasible else " [red]infeasible[/]"), *cells)
    return table


def _operators_table(phase: str, found: Evaluation) -> Table:
    rows = [row for row in found.breakdown.rows if row.phase == phase]
    total, work = (sum(some) for some in ([row.seconds for row in rows], [max(row.seconds, 0.0) for row in rows]))
    of = " of the first case" if len(found.cases) > 1 else ""
    of += f", {found.part.partition(':')[0]}" if found.part else ""
    whole = ", all layers and steps; FLOP and bytes of all devices" if phase in ("prefill", "decode") else ""
    beside = f"; {format_quantity(work, 's')} of work, partly in parallel" if work > total * (1 + MIN_SHOWN_SHARE) else ""
    table = Table(title=f"{phase}{of}: {format_quantity(total, 's')}{whole}{beside}", title_justify="left")
    cells = [_cells(row, work, basis=bool(found.kernel_basis)) for row in rows]
    for column in list(cells[0]):
        if any(row[column] for row in cells):
            table.add_column(
                column, justify="left" if column in ("segment", "operator", "shape", "bound", "basis") else "right"
            )
        else:  # what no operator of this chip has
            for row in cells:
                del row[column]
    for row in cells:
        table.add_row(*row.values())
    return table


def _cells(row: BreakdownRow, work: float, *, basis: bool) -> dict[str, str]:
    return {
        "segment": row.segment,
        "operator": row.operator,
        "shape": row.shape,
        "FLOP": format_quantity(row.flop, "op", 3) if row.flop else "",
        "executed": _executed(row),
        "bytes": format_quantity(row.nbytes, "B", 3) if row.nbytes else "",
        "FLOP/B": f"{row.intensity:.3g}" if row.intensity else "",
        "network": format_quantity(row.sent, "B", 3) if row.sent else "",
        "prefetched": f"{row.prefetched:.0%}" if row.prefetched else "",
        "bound": row.bound,
        "basis": row.basis.text.partition(":")[0] if basis else "",
        "time": format_quantity(row.seconds, "s", 3),
        "share": f"{row.seconds / work:.1%}" if work and row.seconds >= 0 else "",
    }


def _executed(row: BreakdownRow) -> str:
    """How many times useful operations are executed, and why; nothing where no more are."""
    if not row.executed or not row.excess or row.executed < (1 + SHOWN_EXCESS) * row.flop:
        return ""
    times = f"{row.executed / row.flop:.3g} x" if row.flop else format_quantity(row.executed, "op", 3)
    return f"{times} {row.cause}"


def _bound(parts: Breakdown) -> str:
    """What takes the time that something is done, and how long nothing is."""
    idle = []
    for row in parts.rows:
        if row.bound == "idle" and row.seconds:
            of = sum(other.seconds for other in parts.rows if other.phase.startswith(f"{row.segment},"))
            idle.append(f"{row.segment} {row.seconds / (of + row.seconds):.0%} of the time")
    return "bound by  " + _shares(parts.binding()) + (f"\nidle      {', '.join(idle)}" if idle else "")


def _shares(parts: dict[str, float]) -> str:
    total = sum(parts.values())
    return "  ".join(f"{name} {seconds / total:.1%}" for name, seconds in parts.items() if seconds > MIN_SHOWN_SHARE * total)
