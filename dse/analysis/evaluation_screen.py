"""First screen of an evaluated design: question, fit, main figures, limits, and where to read on.

At most 25 lines; the command line prints them, and they are what a notebook shows of an `Evaluation`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dse.accuracy.residuals import ErrorBand
from dse.analysis.best_knob import find_best_knob
from dse.analysis.load_notes import trace_text
from dse.analysis.metric_text import OF_PART, format_metric
from dse.analysis.overload_advice import overload_advice
from dse.analysis.withheld_metrics import computed_metrics
from dse.evaluators import METRICS
from dse.evaluators.accounting.breakdown import IDLE
from dse.evaluators.calls.submesh import SUBMESH_MARK
from dse.evaluators.evaluation import limits
from dse.evaluators.silicon.area import die_counts, total_area
from dse.space.limits import Limit
from dse.space.safe_text import count_text
from dse.space.units import format_quantity
from dse.space.workload import BatchCase, ServingLoad
from dse.terminal.screen_lines import SCREEN_WIDTH, ScreenRow, format_columns, format_screen

Evaluation = Any
"""An evaluated design as `dse.analysis.evaluation` has it, whose representation this module is."""

MODEL_FIGURES = ("throughput", "ttft", "tpot", "latency", "mfu", "energy_per_token", "price_per_mtoken")
"""Figures of a static batch, by metric."""

LOAD_FIGURES = (
    *("throughput", "goodput", "ttft", "tpot", "slo_attainment", "load_status"),
    *("energy_per_token", "price_per_mtoken"),
)
"""Figures of a serving load, by metric."""

KERNEL_FIGURES = (
    *("latency", "packet_latency", "accepted_throughput", "traffic_status", "achieved_bandwidth", "bandwidth_efficiency"),
    *("cycles", "communication_cycles", "compute_share", "mfu", "energy", "power"),
)
"""Figures of a kernel, a memory stream or traffic."""

CASE_COLUMNS = ("throughput", "ttft", "tpot", "goodput", "energy_per_token", "price_per_mtoken", "latency", "mfu")
"""Metrics of a table of cases of models, those that the cases have."""

LABELS = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "mfu": "MFU",
    "energy_per_token": "energy",
    "price_per_mtoken": "price",
    "slo_attainment": "SLO kept",
    "load_status": "load status",
    "packet_latency": "latency",
    "accepted_throughput": "accepted",
    "traffic_status": "traffic",
    "achieved_bandwidth": "bandwidth",
    "bandwidth_efficiency": "of peak",
    "communication_cycles": "moving data",
    "compute_share": "multiplying",
}
"""Names of metrics in a first screen, where they are not the metric's own."""

SHARES = ("mfu", "slo_attainment", "bandwidth_efficiency", "compute_share")
"""Figures that are shares, shown in percent."""

REQUEST_RATES = ("goodput",)
"""Figures of requests per second, which are never told in multiples of Hz."""

SPARE_FIGURES = ("goodput", "mfu", "latency", "cycles", "power")
"""Figures that are left out where there is no room."""

MAX_FIGURES, MAX_CASES = 8, 6
"""Figures and cases of a first screen at most."""

NO_DECODE = "none with 1 output token"
"""What begins the fact of batches without decode steps."""

NEEDED_FACTS = (
    *("not fitted", "trace", "not tied", "speculation", "first token", "decode", "prefixes", "on the chip", "padding"),
    *("memory", "not counted", "submesh", "dies", "repair", "chain"),
)
"""Facts that change what was asked or how far the answer reaches, and are in no other line."""

PLAN_FACTS = ("both phases", "prefill", "decode", "kernels", "prefill on", "decode on", "pool link")
"""Facts on the mapping that its row has: degrees, layouts, kernels and pools."""

POOL_FACTS = ("prefill on", "decode on")
"""Facts on the chips of unlike pools."""

MIN_OVERLAP = 1e-4
"""Share of the time from which work that is done meanwhile is told. [-]"""

MIN_SHARE = 0.005
"""Share of the time from which a resource is told. [-]"""

LATER = "dse explain ranks the settings: a step of one takes as long as this answer"
"""Best knob of designs whose steps take long."""

MORE = "--full all metrics, bands, areas, prices; --operators time by operator; --json"
"""Options that print more of an answer than its first screen."""


def evaluation_lines(evaluation: Evaluation, width: int = SCREEN_WIDTH) -> list[str]:
    """Lines of the first screen of one evaluated design, at most 25.

    Args:
        evaluation: of any workload, feasible or not.
        width: characters of a line at most.
    """
    rows: list[ScreenRow | list[str]] = [*question_rows(evaluation)]
    if evaluation.infeasible is not None:
        rows = [*_infeasible_rows(evaluation), *rows, ScreenRow("more", MORE, needed=True)]
        return format_screen(evaluation.title, rows, width)
    rows += [*_fit_rows(evaluation), *_external_rows(evaluation)]
    rows += _case_rows(evaluation, width) if len(evaluation.cases) > 1 else _figure_rows(evaluation)
    rows += [*_limit_rows(evaluation), ScreenRow("more", f"{MORE}; dse explain the effect of each knob", needed=True)]
    return format_screen(evaluation.title, rows, width)


def question_rows(evaluation: Evaluation) -> Iterator[ScreenRow]:
    """Rows on the question: chip, mapping, formats, load, and what is measured of the software."""
    facts, cases = evaluation.facts(), evaluation.workload.cases
    for text in evaluation.graphs:
        yield ScreenRow("graph", text, needed=True)
    yield ScreenRow("chip", f"{_chip_text(evaluation)}; fidelity {evaluation.fidelity}")
    plans = [(name, _chosen_text(text)) for name, text in facts if name in PLAN_FACTS and not text.startswith(NO_DECODE)]
    texts = [text if name in ("both phases", "kernels") else f"{name} {text}" for name, text in plans if text]
    texts += [", ".join(text.split(", ")[:2]) for name, text in facts if name == "serving"]  # policy and instances
    engine = evaluation.design.mapping.inference_engine
    engines = [] if engine is None else [f"engine {engine.name}"]
    yield ScreenRow("mapping", "; ".join([evaluation.names["mapping"], *engines, *texts]))
    if evaluation.design.pools is None and (formats := dict(facts).get("formats")):
        yield ScreenRow("formats", _formats_text(formats))
    if isinstance(cases[0], ServingLoad):
        yield ScreenRow("load", _load_text(cases[0], 0.0 if cases[0].largest else _served_rate(evaluation)), needed=True)
    elif isinstance(cases[0], BatchCase) and len(cases) == 1:
        lengths = lengths_text(*_request_lengths(cases[0]))
        yield ScreenRow("load", f"static batch of {count_text(cases[0].batch, 'request')}; {lengths}", needed=True)
    if evaluation.stack_basis:
        yield ScreenRow("stack", evaluation.stack_basis.text.removeprefix("stack "), cut_last=True)
    if evaluation.kernel_basis:
        yield ScreenRow("kernels", f"beyond measured rows: {evaluation.kernel_basis}")
    for name, text in facts:
        if name in NEEDED_FACTS and (name != "decode" or text.startswith(NO_DECODE)):
            yield ScreenRow(name, text)


def _chip_text(evaluation: Evaluation) -> str:
    """How many chips there are, the chip with its changes, and the dies of one."""
    metrics, name = computed_metrics(evaluation.metrics), ", ".join((evaluation.names["chip"], *evaluation.changes))
    if evaluation.design.pools is not None:
        pools = [text.partition(",")[0] for fact, text in evaluation.facts() if fact in POOL_FACTS]
        return " and ".join(pools) + (f"; {', '.join(evaluation.changes)}" if evaluation.changes else "")
    if "devices" in metrics:
        return f"{metrics['devices']:g} x {name}"
    if evaluation.infeasible is not None or not metrics.get("system_mm2"):
        return name
    chip = evaluation.design.chip
    whole = total_area(chip)
    count, dies = round(metrics["system_mm2"] / float(whole)), round(float(die_counts(chip, whole)[0]))
    if chip.dies is not None:
        return f"{name}; {count_text(count, 'die')}"
    return f"{count} x {name}" + (f", {'each ' * (count > 1)}of {dies} dies" if dies > 1 else "")


def _chosen_text(plan: str) -> str:
    """The settings of a plan that are not 0, which leaves a choice to the tuning or means none."""
    return ", ".join(setting for setting in plan.split(", ") if setting.split(" ")[1:2] != ["0"])


def _formats_text(plan: str) -> str:
    """Number formats in few words: one if weights, activations and KV cache have the same."""
    formats = dict(setting.split(" ", 1) for setting in plan.split(", ") if not setting.endswith("as_weights"))
    main = [formats.pop(name) for name in ("weights", "activations", "kv") if name in formats]
    if len(main) < 3 or len(set(main)) > 1:
        return plan
    return ", ".join([f"{main[0]} weights, activations and KV cache", *(f"{name} {text}" for name, text in formats.items())])


def _request_lengths(case: BatchCase) -> tuple[Any, Any]:
    """Prompt and output tokens of each request of a batch, two arrays of shape (requests,)."""
    count, prompt, output = np.array(case.requests).T
    return np.repeat(prompt, count), np.repeat(output, count)


def _served_rate(evaluation: Evaluation) -> float:
    """Completed requests per time of a feasible load of one case; 0 if unknown. [1/s]"""
    alone = evaluation.infeasible is None and len(evaluation.cases) == 1
    return float(evaluation.metrics.get("request_throughput", 0.0)) if alone else 0.0


def lengths_text(prompt: Any, output: Any) -> str:
    """Lengths of requests: one number each where they are equal, else mean, median and 99th percentile.

    >>> lengths_text(np.array([512, 512]), np.array([1, 3]))
    '512 tokens in, mean 2 (p50 2, p99 3) out'
    """

    def spread(tokens: Any) -> str:
        if tokens.min() == tokens.max():
            return f"{int(tokens[0]):,}"
        half, most = np.percentile(tokens, (50, 99))
        return f"mean {tokens.mean():,.0f} (p50 {half:,.0f}, p99 {most:,.0f})"

    return f"{spread(prompt)} tokens in, {spread(output)} out"


def _load_text(load: ServingLoad, served: float) -> str:
    """Requests of a load: how many, arrivals, seconds of the run, lengths and SLO.

    Args:
        load: the requests at the rate that was asked for.
        served: completed requests per time; 0 if unknown or at another rate. [1/s]
    """
    requests, named = load.requests, (("TTFT", load.ttft), ("TPOT", load.tpot))
    begins = requests.begins[np.isfinite(requests.begins)]
    span = float(begins[-1] - begins[0]) if len(begins) > 1 else 0.0
    arrivals = f" arriving in {format_quantity(span, 's')}" if span and not load.largest else " all at once" if not span else ""
    arrivals = "" if requests.is_alone else arrivals
    skipped = f" ({count_text(requests.skipped, 'row')} skipped)" if requests.skipped else ""
    arrivals = f" of {requests.users:,} users in a closed loop" if requests.users else arrivals
    run = f", served in {format_quantity(len(requests) / served, 's')}" if served else ""
    bounds = [f"{name} {format_quantity(bound, 's')}" for name, bound in named if np.isfinite(bound)]
    slo = f"; SLO {', '.join(bounds)}" if bounds and not load.classes else ""
    slo = f"; {len(load.classes)} SLO classes" if load.classes else slo
    sent = f"{count_text(len(requests), 'request')}{skipped}{arrivals}{trace_text(load)}{run}"
    return f"{sent}; {lengths_text(requests.prompt, requests.output)}{slo}"


def _infeasible_rows(evaluation: Evaluation) -> Iterator[ScreenRow]:
    """The violated limit, by how much, what it is made of, and the nearest change that fits."""
    why = evaluation.infeasible
    assert why is not None
    need, have = (format_quantity(value, why.unit) for value in (why.need, why.have))
    over = f": {why.need / why.have:.3g} times as much" if why.have > 0 else ""
    yield ScreenRow("infeasible", f"needs {need} of {why.limit}, has {have}{over}", needed=True)
    if parts := [f"{name} {format_quantity(value, why.unit)}" for name, value in why.parts if value]:
        yield ScreenRow("needed by", ", ".join(parts), needed=True)
    yield ScreenRow("change", why.remedy or f"no setting is known that helps; change {why.limit}", needed=True)
    if len(evaluation.cases) > 1:
        fit = [case.label for case in evaluation.cases if case.feasible]
        yield ScreenRow("cases", f"{len(fit)} of {len(evaluation.cases)} fit" + (f": {'; '.join(fit)}" if fit else ""))


def memory_limit(evaluation: Evaluation) -> Limit | None:
    """The fullest main memory of a design, else another memory; None if no limit states its contents."""
    known = [limit for limit in limits(evaluation.design, evaluation.workload) if limit.unit == "B" and limit.parts]
    main = [limit for limit in known if limit.address.endswith(".capacity")]
    return max(
        main or known, key=lambda limit: float(np.max(limit.need)) / max(float(np.min(limit.have)), 1e-300), default=None
    )


def _fit_rows(evaluation: Evaluation) -> Iterator[ScreenRow]:
    """Memory of a feasible design by what holds it, what is free, and the requests that have room at once."""
    if SUBMESH_MARK in evaluation.fidelity or (limit := memory_limit(evaluation)) is None:
        yield ScreenRow("fits", "yes, every limit holds")
        return
    need, have = float(np.max(limit.need)), float(np.min(limit.have))
    sizes = ((name, float(np.max(value))) for name, value in limit.parts)
    parts = ", ".join(f"{name} {format_quantity(size, 'B', 3)}" for name, size in sizes if size > 0)
    whole = f"{format_quantity(need, 'B', 3)} of {format_quantity(have, 'B', 3)} {limit.address}"
    free = format_quantity(float(round(max(have - need, 0.0))), "B", 3)  # by whole bytes: less is what sums are rounded by
    yield ScreenRow("fits", f"yes, {whole}: {parts}; {free} free{_requests_text(evaluation)}", needed=True)


def _external_rows(evaluation: Evaluation) -> Iterator[ScreenRow]:
    """Which metrics an installed package returned; its numbers have no error band, as none of its errors is known."""
    if text := evaluation.external_text:
        yield ScreenRow("metrics", text, needed=True)


def _requests_text(evaluation: Evaluation) -> str:
    """How many requests have room at once; empty string where nothing says it."""
    metrics, case = computed_metrics(evaluation.metrics), evaluation.workload.cases[0]
    if isinstance(case, ServingLoad) and (count := metrics.get("kv_pool_requests")):
        return f"; KV memory for {count:,.0f} of the longest requests at once"
    if isinstance(case, BatchCase) and (tokens := metrics.get("kv_capacity")) and len(evaluation.cases) == 1:
        prompt, output = _request_lengths(case)
        return f"; KV memory for {tokens // (prompt + output).mean():,.0f} such requests at once"
    return ""


def _figure_rows(evaluation: Evaluation) -> Iterator[ScreenRow]:
    """The main figures of a single case, each with its error band."""
    metrics = {name.removeprefix(OF_PART): value for name, value in computed_metrics(evaluation.metrics).items()}
    bands, case = {band.metric: band for band in evaluation.bands}, evaluation.workload.cases[0]
    names = MODEL_FIGURES if isinstance(case, BatchCase) else LOAD_FIGURES if isinstance(case, ServingLoad) else KERNEL_FIGURES
    for text in evaluation.max_rates:
        yield ScreenRow("max rate", text, needed=True)
    alone = isinstance(case, ServingLoad) and case.requests.is_alone  # nothing arrives that it could keep up with
    shown = [name for name in names if name in metrics and not (alone and name == "load_status")]
    for name in shown[:MAX_FIGURES]:
        spread = _spread_text(name, metrics)
        parts = [spread or figure_text(name, metrics[name]), *_beside_texts(name, metrics)]
        if name == "throughput" and evaluation.rate_band:
            parts.append(f"measured {evaluation.rate_band}")
        elif name in bands:
            note = band_text(bands[name])
            parts.append(note.removesuffix(" of this kind") if spread else note)  # so that both stand on a line
        elif name == "throughput" and evaluation.keeps_up:
            parts.append("what arrives")
        yield ScreenRow(LABELS.get(name, name), "; ".join(parts), spare=name in SPARE_FIGURES, cut_last=True)


def figure_text(name: str, value: float) -> str:
    """A figure with its unit; shares in percent."""
    if name in REQUEST_RATES:
        return f"{value:.4g} requests/s"
    if name in SHARES:
        return f"{value:.3g}%" if not value else f"{value:.3%}" if value < 1e-3 else f"{value:.1%}"
    return f"{format_metric(name, value)}/Mtoken" if name == "price_per_mtoken" else format_metric(name, value)


def _spread_text(name: str, metrics: Mapping[str, float]) -> str:
    """Mean, median and 99th percentile of a time of served requests; empty string where there are none."""
    known = [(word, metrics[key]) for word, key in (("p50", f"{name}_p50"), ("p99", f"{name}_p99")) if key in metrics]
    if not known or METRICS[name].unit != "s":
        return ""
    spread = ", ".join(f"{word} {format_quantity(value, 's')}" for word, value in known)
    return f"{format_quantity(metrics[name], 's')} mean, {spread}"


def _beside_texts(name: str, metrics: Mapping[str, float]) -> list[str]:
    """Another view of a figure, to stand beside it."""
    if name == "tpot" and metrics["tpot"] > 0:
        return [f"{1 / metrics['tpot']:.4g} token/s a user"]
    if name == "energy_per_token" and "power" in metrics:
        return [f"{format_quantity(metrics['power'], 'W')} mean power"]
    if name == "price_per_mtoken" and "system_price" in metrics:
        return [f"system {metrics['system_price']:,.0f} USD"]
    if name == "load_status" and "offered_load" in metrics:
        load = metrics["offered_load"]
        return [f"offered load {load:.1%}" if np.isfinite(load) else "offered load infinite"]
    return []


def band_text(band: ErrorBand) -> str:
    """An error band in few words: the range of measurements it leads one to expect, and of how many rows."""
    if band.low is None or band.high is None:
        return "no measured row of this kind"
    kind = count_text(band.rows, "comparison" if band.compares else "row") + (", stale" if band.stale else "")
    if band.measured_range is None:
        errors = dict.fromkeys(f"{round(end, 2) + 0.0:+.0%}" for end in (band.low, band.high))  # + 0.0: no -0%
        return f"error {' to '.join(errors)} ({kind})"
    ends = dict.fromkeys(figure_text(band.metric, end) for end in band.measured_range)
    return f"measured {' to '.join(ends)} ({kind})"


def _case_rows(evaluation: Evaluation, width: int) -> Iterator[ScreenRow | list[str]]:
    """A table with a line a case, and the error bands of the mean."""
    for text in evaluation.max_rates[:2]:
        yield ScreenRow("max rate", text)
    metrics = [computed_metrics(case.metrics) for case in evaluation.cases]
    of_models = isinstance(evaluation.workload.cases[0], BatchCase | ServingLoad)
    names = [
        name
        for name in (CASE_COLUMNS if of_models else KERNEL_FIGURES)
        if any(name in case_metrics for case_metrics in metrics)
    ]
    labels = distinct_labels([case.label for case in evaluation.cases])
    rows = [
        [label, *(figure_text(name, case_metrics[name]) if name in case_metrics else "-" for name in names)]
        for label, case_metrics in list(zip(labels, metrics, strict=True))[:MAX_CASES]
    ]
    left = len(labels) - len(rows)
    table = format_columns(["case", *(LABELS.get(name, name) for name in names)], rows, width)
    yield [*table, *([f"and {count_text(left, 'more case')} with --full"] if left > 0 else [])]
    bands = {band.metric: band for band in evaluation.bands}
    known = [f"{LABELS.get(name, name)} {band_text(bands[name])}" for name in names if name in bands and bands[name].rows]
    known = [f"throughput {evaluation.rate_band}", *known] if evaluation.rate_band else known
    yield ScreenRow("measured", "; ".join([*known, evaluation.workload.combination_text]) if known else "no row of this kind")


def distinct_labels(labels: Sequence[str]) -> list[str]:
    """Labels of cases without the words with which all begin or end; the word before a number stays.

    >>> distinct_labels(["Llama-3-8B batch 1, 512+1 tokens", "Llama-3-8B batch 32, 512+1 tokens"])
    ['batch 1', 'batch 32']
    """
    words = [label.split(" ") for label in labels]
    least = min(map(len, words))
    head = next((place for place in range(least) if len({each[place] for each in words}) > 1), 0)
    tail = next((place for place in range(least - head) if len({each[-1 - place] for each in words}) > 1), 0)
    head -= bool(head) and words[0][head][:1].isdigit()
    return [" ".join(each[head : len(each) - tail]).rstrip(",") or label for each, label in zip(words, labels, strict=True)]


def _limit_rows(evaluation: Evaluation) -> Iterator[ScreenRow]:
    """What takes the time, and the one setting whose step helps most."""
    first = ", of the first case" if len(evaluation.cases) > 1 else ""
    parts = evaluation.breakdown.seconds_by_cause()
    if total := sum(parts.values()):
        shares = ", ".join(f"{name} {seconds / total:.0%}" for name, seconds in parts.items() if seconds > MIN_SHARE * total)
        yield ScreenRow("bound by", f"{shares}{_overlap_text(evaluation)}{first}{_idle_text(evaluation)}", needed=True)
    if advice := overload_advice(computed_metrics(evaluation.metrics), evaluation.design):
        yield ScreenRow("overload", advice, needed=True)
        return  # what an overloaded system takes grows with the requests, and ranks no setting
    best = None if SUBMESH_MARK in evaluation.fidelity else find_best_knob(evaluation.design, evaluation.workload)
    yield ScreenRow("best knob", best.text + first if best else LATER, needed=best is not None)


def _overlap_text(evaluation: Evaluation) -> str:
    """What shares are of where work overlaps, which takes less time than its sum; else empty string."""
    seconds = [row.seconds for row in evaluation.breakdown.rows]
    overlaps = sum(max(part, 0.0) for part in seconds) > sum(seconds) * (1 + MIN_OVERLAP)
    return " of work, partly in parallel" if overlaps else ""


def _idle_text(evaluation: Evaluation) -> str:
    """How long instances wait for requests; empty string where they do not."""
    rows, texts = evaluation.breakdown.rows, []
    for row in rows:
        if row.bound == IDLE and row.seconds:
            busy = sum(other.seconds for other in rows if other.phase.startswith(f"{row.segment},"))
            texts.append(f"{row.segment} {row.seconds / (busy + row.seconds):.0%}")
    return f"; idle: {', '.join(texts)} of the run" if texts else ""
