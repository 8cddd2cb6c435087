"""Output of ``dse evaluate``: settings, metrics, time by operator and bottlenecks; or JSON."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from dse.accuracy.residuals import ErrorBand
from dse.analysis.chrome_trace import write_trace as write_trace
from dse.analysis.engine_arguments import engine_command_lines
from dse.analysis.evaluation import (
    BEYOND,
    CaseResult,
    Evaluation,
    evaluate_config,
    list_metric_rows,
    metric_records,
    operator_record,
)
from dse.analysis.load_notes import LoadNotes, class_records, kv_memory_records, trace_record, turn_records
from dse.analysis.max_rate_text import max_rate_record
from dse.analysis.metric_text import format_metric
from dse.analysis.overload_advice import overload_advice
from dse.analysis.withheld_metrics import computed_metrics
from dse.config.setting_effects import no_effect_records, print_no_effects
from dse.config.workloads import read_models
from dse.documents.evaluate_document import BandRecord, CaseRecord, EvaluateDocument, FactRecord, ModelRecord, SourceRecord
from dse.documents.records import ABSENT
from dse.evaluators import METRICS
from dse.evaluators.accounting.breakdown import Breakdown, BreakdownRow
from dse.evaluators.layouts.tensor_formats import index_format
from dse.evaluators.silicon import area, price
from dse.evaluators.silicon.published import Fact, published_facts
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
from dse.space.workload import BatchCase, ServingLoad, WorkloadCase
from dse.terminal.json_text import format_json
from dse.terminal.progress import SafeConsole, print_lines, screen_width
from dse.terminal.screen_lines import SCREEN_WIDTH, format_columns

SHOWN_EXCESS = 0.005
"""Share of useful operations from which on what is executed beside them is printed."""

MIN_SHOWN_SHARE = 1e-4
"""Share of the time from which on what binds is printed."""

MAX_CASE_COLUMNS = 6
"""Metrics of a case that fit side by side."""


OPERATOR_COLUMNS = (
    *("segment", "operator", "time", "share", "bound", "FLOP", "bytes", "network", "basis", "executed"),
    *("prefetched", "FLOP/B", "shape"),
)
"""Columns of operators alone, those first that are kept on a narrow terminal."""

WORD_COLUMNS = ("segment", "operator", "shape", "bound", "basis")
"""Columns of operators with words, which stand to the left."""

VIEWS = ("screen", "full", "operators")
"""Texts of an answer: its first screen, all that is known, and the time by operator alone."""

INFEASIBLE_STATUS = 3
"""Status with which a command ends whose design violates a limit."""


def print_evaluation_of(
    config: Mapping[str, Any], *, as_json: bool, trace: str = "", with_engine: bool = False, view: str = VIEWS[0]
) -> int:
    """Evaluate and print the design of a composed configuration; returns the command's status.

    Args:
        config: as `dse.config.compose.compose` returns it.
        as_json: all that is known, for machines.
        trace: a file for the timeline; "" for none.
        with_engine: whether to print how the inference engine is assumed to be started.
        view: one of `VIEWS`.
    """
    return print_answer(evaluate_config(config), config, as_json=as_json, trace=trace, with_engine=with_engine, view=view)


def print_answer(
    evaluation: Evaluation,
    config: Mapping[str, Any],
    *,
    as_json: bool,
    trace: str = "",
    with_engine: bool = False,
    view: str = VIEWS[0],
) -> int:
    """Print the answer to a configuration and write its trace; returns 3 if infeasible, else 0."""
    lines = (
        [line for case in evaluation.workload.cases for line in engine_command_lines(evaluation.design, case)]
        if with_engine
        else []
    )
    if trace:
        write_trace(evaluation.breakdown, evaluation.profile, Path(trace))
    if as_json:
        print(format_json(evaluation_record(evaluation), indent=1))
    elif view == "full":
        print_evaluation(evaluation, config)
    elif view == "operators":
        print_operators(evaluation)
    else:
        print_lines(evaluation.first_screen(screen_width()))
    for line in dict.fromkeys(lines):
        print(line)
    print_no_effects(evaluation.without_effect)
    return INFEASIBLE_STATUS if evaluation.infeasible is not None else 0


def print_operators(evaluation: Evaluation) -> None:
    """Print the time by operator of the first case and what limits it, or the limit that it violates."""
    console = SafeConsole(SCREEN_WIDTH)
    console.print(f"[bold]{escape(evaluation.title)}[/]")
    if evaluation.infeasible is not None:
        console.print(f"[red]infeasible:[/] {escape(str(evaluation.infeasible))}")
        return
    parts = evaluation.breakdown
    for phase in dict.fromkeys(row.phase for row in parts.rows):
        rows = [row for row in parts.rows if row.phase == phase]
        work = sum(max(row.seconds, 0.0) for row in rows)
        cells = [_row_cells(row, work, basis=bool(evaluation.kernel_basis)) for row in rows]
        names = [name for name in OPERATOR_COLUMNS if any(cell[name] for cell in cells)]
        words = [place for place, name in enumerate(names) if name in WORD_COLUMNS]
        heading = f"{phase}, first case: {format_quantity(sum(row.seconds for row in rows), 's')}, all layers and steps"
        lines = format_columns(names, [[cell[name] for name in names] for cell in cells], console.width, left=words)
        print_lines([heading, *lines])
    if parts.rows:
        console.print(_bound_text(parts))


def print_evaluation(evaluation: Evaluation, config: Mapping[str, Any]) -> None:
    """Print the answer to a composed configuration as tables."""
    console = SafeConsole(150)
    cases, parts = len(evaluation.cases), evaluation.breakdown
    if evaluation.infeasible is not None:
        console.print(f"[red]infeasible:[/] {escape(str(evaluation.infeasible))}")
    console.print(f"[bold]{escape(evaluation.title)}[/]")
    if evaluation.stack_basis:
        console.print(escape(evaluation.stack_basis.text))
        if band := evaluation.rate_band:
            console.print(escape(f"throughput  {band}"))
    if evaluation.kernel_basis:
        console.print(escape(f"{BEYOND}{evaluation.kernel_basis}"))
    for text in evaluation.max_rates:
        console.print(f"{'max rate':12}{escape(text)}")
    if isinstance(evaluation.workload.cases[0], BatchCase | ServingLoad):
        for name, model in read_models(config["model"]).items():
            console.print(
                f"{'model':12}{escape(_model_text(model, evaluation.design.mapping.precision, config['model'][name]))}"
            )
    for name, text in evaluation.facts():
        console.print(f"{name:11} {escape(text)}")
    if evaluation.infeasible is None:
        _print_metrics(console, evaluation)
    if evaluation.certificate is not None:
        console.print(f"optimality gap: {evaluation.certificate}")
    if over_time := _over_time(evaluation):
        console.print(f"power over time, all chips{' in the first case' if cases > 1 else ''}: {over_time}")
    if parts.memory:
        each = " + ".join(f"{part} {format_quantity(value, 'B')}" for part, value in parts.memory.items() if value)
        console.print(f"memory of the fullest die: {format_quantity(sum(parts.memory.values()), 'B')} = {each}")
    of_chip = (("area", "mm2", parts.area), ("power at peak", "W", parts.power), ("price", "USD", parts.price))
    for name, unit, of_parts in of_chip:
        total, texts = sum(of_parts.values()), [f"{part} {value:.4g}" for part, value in of_parts.items() if value]
        if texts:
            whose = "a chip" if evaluation.design.pools is None else "a chip of each pool"
            console.print(f"{name} of {whose}: {total:.4g} {unit} = {' + '.join(texts)}")
    if parts.price:
        console.print(_dies_text(evaluation.design.chip))


def _print_metrics(console: SafeConsole, evaluation: Evaluation) -> None:
    """Print metrics with definitions and bands, cases and operators of a feasible design."""
    console.print(_metrics_table(evaluation))
    if evaluation.bands:
        console.print(_bands_table(evaluation))
    metrics, parts = computed_metrics(evaluation.metrics), evaluation.breakdown
    if held := overload_advice(metrics, evaluation.design):
        console.print(f"{format_metric('load_status', metrics['load_status'])}: {held}")
    if len(evaluation.cases) > 1:
        console.print(_cases_table(evaluation))
    for phase in dict.fromkeys(row.phase for row in parts.rows):
        console.print(_operators_table(phase, evaluation))
    if parts.rows:
        console.print(_bound_text(parts))


def _dies_text(chip: Chip) -> str:
    """How many dies a chip has, what a wafer gives of them, and how many of these work."""
    die_area, node = float(area.die_area(chip)), chip.technology
    count, below = area.die_counts(chip, area.total_area(chip))
    whole = f"{count:.0f} of {die_area:.4g} mm2" + (f" on {below:.0f} below" if below else "")
    got, good = float(price.dies_of_wafer(die_area)), float(price.die_yield(chip))
    return f"dies of a chip: {whole}; a wafer of {node.wafer_price:.4g} USD gives {got:.3g}, of which {good:.1%} are good"


def _over_time(evaluation: Evaluation) -> str:
    """Power of each phase of a batch; "" of what has none, and where phases would be played again for it."""
    if (
        evaluation.fidelity != "analytical"
        or not isinstance(evaluation.workload.cases[0], BatchCase)
        or (profile := evaluation.profile) is None
    ):
        return ""
    each = zip(profile.names, profile.watts.tolist(), np.diff(profile.instants).tolist(), strict=True)
    return ", ".join(
        f"{name} {format_quantity(watts, 'W')} for {format_quantity(seconds, 's', 3)}" for name, watts, seconds in each
    )


def evaluation_record(evaluation: Evaluation) -> EvaluateDocument:
    """The document of one evaluated design."""
    names, parts, chip = evaluation.names, evaluation.breakdown, evaluation.design.chip
    cases = evaluation.workload.cases
    notes = evaluation.load_notes or (LoadNotes(),) * len(cases)
    return EvaluateDocument(
        title=evaluation.title,
        stack_basis=evaluation.stack_basis.record() if evaluation.stack_basis else None,
        kernel_basis=evaluation.kernel_basis,
        chip=names["chip"],
        mapping=names["mapping"],
        stack=names["stack"],
        workload=names["workload"],
        fidelity=evaluation.fidelity,
        part=evaluation.part or None,
        parts_of_chip=evaluation.parts,
        published=[_fact_record(fact) for fact in published_facts(chip)],
        remarks=evaluation.remarks,
        peaks={name: float(value) for name, value in peaks(chip).items()},
        design={address: value for address, value, _ in iterate_leaves(evaluation.design)},
        cases=[_case_record(result, case, note) for result, case, note in zip(evaluation.cases, cases, notes, strict=True)],
        models=[
            _model_record(model)
            for model in dict.fromkeys(case.model for case in cases if isinstance(case, BatchCase | ServingLoad))
        ],
        feasible=evaluation.infeasible is None,
        infeasible=str(evaluation.infeasible) if evaluation.infeasible else None,
        not_tied=evaluation.untied,
        without_effect=no_effect_records(evaluation.without_effect),
        extrapolated=evaluation.extrapolation_text or None,
        metrics=metric_records(computed_metrics(evaluation.metrics)),
        bands=[_band_record(band) for band in evaluation.bands],
        operators=[operator_record(row) for row in parts.rows],
        seconds_by_bound=parts.by_bound(),
        memory_bytes=parts.memory,
        area_mm2=parts.area,
        power_w=parts.power,
        price_usd=parts.price,
        sources=[
            SourceRecord(
                address=constant.address,
                value=constant.value,
                source=constant.source,
                note=constant.note,
                fitted_on=constant.fitted_on,
                meant_for=constant.meant_for,
            )
            for constant in evaluation.sources
        ],
    )


def _case_record(result: CaseResult, case: WorkloadCase, notes: LoadNotes) -> CaseRecord:
    metrics = metric_records(computed_metrics(result.metrics))
    if not isinstance(case, ServingLoad):
        return CaseRecord(case=result.label, feasible=result.feasible, metrics=metrics)
    return CaseRecord(
        case=result.label,
        feasible=result.feasible,
        metrics=metrics,
        rows_skipped=case.requests.skipped,
        trace=trace_record(case),
        kv_memory=kv_memory_records(notes),
        classes=class_records(notes),
        turns=turn_records(notes) or ABSENT,
        max_rate=max_rate_record(notes.largest, case) if notes.largest else ABSENT,
    )


def _fact_record(fact: Fact) -> FactRecord:
    return FactRecord(
        name=fact.name,
        value=fact.value,
        unit=fact.unit,
        modelled=fact.modelled,
        of_part=fact.of_part,
        holds=fact.holds,
        text=fact.text,
    )


def _band_record(band: ErrorBand) -> BandRecord:
    return BandRecord(
        metric=band.metric,
        value=band.value,
        unit=METRICS[band.metric].unit,
        chip=band.kind.chip,
        software=band.kind.software,
        question=band.kind.question,
        phase=band.kind.phase,
        measure=band.kind.measure,
        fidelity=band.kind.fidelity,
        low=band.low,
        high=band.high,
        measured=band.measured_range,
        rows=band.rows,
        fitted=band.fitted,
        of=band.of,
        compares=band.compares,
        physics=band.physics,
        stale=band.stale,
        text=str(band),
    )


def _model_text(model: Model, formats: FormatPlan, entry: Mapping[str, Any]) -> str:
    """What to know a model by: its size, and what it caches."""
    kv, index = formats.kv, index_format(formats)
    total, active = parameter_count(model), active_parameter_count(model)
    sparse = f", {active / 1e9:.4g} billion of them active" if active != total else ""
    grows = cache_growth(model, BYTES_BY_FORMAT[kv], BYTES_BY_FORMAT[index])
    cached = format_quantity(grows.nbytes, "B")
    until = f" up to {grows.until:,} tokens" if grows.until is not None else ""
    indexed = (
        f" and {index} for keys of the index" if index != kv and any(memory.scores for memory in sequence_memory(model)) else ""
    )
    source_text = ", ".join(str(entry[key]) for key in ("source", "note") if entry.get(key))
    fixed = window_values(model) * BYTES_BY_FORMAT[kv] + fixed_bytes_per_sequence(model, BYTES_BY_FORMAT[kv])
    beside = f" and {format_quantity(fixed, 'B')} a sequence" if fixed else ""
    if until and fixed:
        beside = f", {format_quantity(fixed, 'B')} a sequence at most"
    return (
        f"{model.name}: {total / 1e9:.4g} billion parameters{sparse}, "
        f"{cached} of KV cache a token{until} in {kv}{indexed}{beside}" + (f" ({source_text})" if source_text else "")
    )


def _model_record(model: Model) -> ModelRecord:
    grows = cache_growth(model, 1.0, 1.0)
    return ModelRecord(
        name=model.name,
        parameters=parameter_count(model),
        active_parameters=active_parameter_count(model),
        kv_values_per_token=grows.nbytes,
        kv_tokens_until_full=grows.until,
        kv_values_per_sequence=window_values(model),
        state_bytes_per_sequence=fixed_bytes_per_sequence(model, 2.0),
    )


def _metrics_table(evaluation: Evaluation) -> Table:
    many = f"all {len(evaluation.cases)} cases together: mean, maximum or minimum" if len(evaluation.cases) > 1 else ""
    title = "; ".join(text for text in (many, f"of {evaluation.part}" if evaluation.part else "") if text)
    table = Table(box=None, show_header=False, title=title or None, title_justify="left")
    for _ in range(3):
        table.add_column()
    for name, text, definition in list_metric_rows(computed_metrics(evaluation.metrics)):
        table.add_row(name, text, f"[dim]{definition}[/]")
    return table


def _bands_table(evaluation: Evaluation) -> Table:
    """How far off measured rows of this kind were, and where that would have the answer measured."""
    table = Table(box=None, title="error on similar measurements (simulated / measured - 1)", title_justify="left")
    for name in ("metric", "here", "off by", "expected measurement"):
        table.add_column(name)
    for band in evaluation.bands:
        ends = dict.fromkeys(format_metric(band.metric, end) for end in band.measured_range or ())
        table.add_row(band.metric, format_metric(band.metric, band.value), escape(band.text), " to ".join(ends))
    return table


def _cases_table(evaluation: Evaluation) -> Table:
    """A case a row, with the first of the metrics that are not alike in all cases."""
    each = [computed_metrics(case.metrics) for case in evaluation.cases]
    names = [name for name in evaluation.metrics if len({metrics.get(name) for metrics in each}) > 1]
    picked, left = names[:MAX_CASE_COLUMNS], names[MAX_CASE_COLUMNS:]
    more = f" ({len(left)} more metrics of each with --json)" if left else ""
    table = Table(title=f"cases, one by one{more}", title_justify="left")
    for name in ("case", *picked):
        table.add_column(name, justify="left" if name == "case" else "right", overflow="fold")
    for result, metrics in zip(evaluation.cases, each, strict=True):
        cells = [format_metric(name, metrics[name]) if name in metrics else "-" for name in picked]
        table.add_row(escape(result.label) + ("" if result.feasible else " [red]infeasible[/]"), *cells)
    return table


def _operators_table(phase: str, evaluation: Evaluation) -> Table:
    rows = [row for row in evaluation.breakdown.rows if row.phase == phase]
    total, work = (sum(seconds) for seconds in ([row.seconds for row in rows], [max(row.seconds, 0.0) for row in rows]))
    suffix = " of the first case" if len(evaluation.cases) > 1 else ""
    suffix += f", {evaluation.part.partition(':')[0]}" if evaluation.part else ""
    whole = ", all layers and steps; FLOP and bytes of all devices" if phase in ("prefill", "decode") else ""
    beside = f"; {format_quantity(work, 's')} of work, partly in parallel" if work > total * (1 + MIN_SHOWN_SHARE) else ""
    table = Table(title=f"{phase}{suffix}: {format_quantity(total, 's')}{whole}{beside}", title_justify="left")
    cells = [_row_cells(row, work, basis=bool(evaluation.kernel_basis)) for row in rows]
    for column in list(cells[0]):
        if any(row[column] for row in cells):
            table.add_column(column, justify="left" if column in WORD_COLUMNS else "right")
        else:  # what no operator of this chip has
            for row in cells:
                del row[column]
    for row in cells:
        table.add_row(*row.values())
    return table


def _row_cells(row: BreakdownRow, work: float, *, basis: bool) -> dict[str, str]:
    return {
        "segment": row.segment,
        "operator": row.operator,
        "shape": row.shape,
        "FLOP": _flop_text(row.flop) if row.flop else "",
        "executed": _executed_text(row),
        "bytes": format_quantity(row.nbytes, "B", 3) if row.nbytes else "",
        "FLOP/B": f"{row.intensity:.3g}" if row.intensity else "",
        "network": format_quantity(row.sent, "B", 3) if row.sent else "",
        "prefetched": f"{row.prefetched:.0%}" if row.prefetched else "",
        "bound": row.bound,
        "basis": row.basis.text.partition(":")[0] if basis else "",
        "time": format_quantity(row.seconds, "s", 3),
        "share": f"{row.seconds / work:.1%}" if work and row.seconds >= 0 else "",
    }


def _flop_text(flop: float) -> str:
    """Floating-point operations with a decimal prefix, as "2.93 TFLOP"."""
    return format_quantity(flop, "op", 3).replace("op", "FLOP")


def _executed_text(row: BreakdownRow) -> str:
    """How many times useful operations are executed, and why; nothing where no more are."""
    if not row.executed_flop or not row.excess or row.executed_flop < (1 + SHOWN_EXCESS) * row.flop:
        return ""
    times = f"{row.executed_flop / row.flop:.3g} x" if row.flop else _flop_text(row.executed_flop)
    return f"{times} {row.cause}"


def _bound_text(parts: Breakdown) -> str:
    """What takes the time that something is done, and how long nothing is."""
    idle = []
    for row in parts.rows:
        if row.bound == "idle" and row.seconds:
            total_seconds = sum(other.seconds for other in parts.rows if other.phase.startswith(f"{row.segment},"))
            idle.append(f"{row.segment} {row.seconds / (total_seconds + row.seconds):.0%} of the time")
    return "bound by  " + _shares_text(parts.seconds_by_cause()) + (f"\nidle      {', '.join(idle)}" if idle else "")


def _shares_text(parts: dict[str, float]) -> str:
    total = sum(parts.values())
    return "  ".join(f"{name} {seconds / total:.1%}" for name, seconds in parts.items() if seconds > MIN_SHOWN_SHARE * total)
