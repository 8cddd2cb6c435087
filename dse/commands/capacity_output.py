"""Output of ``dse capacity``: a table for the terminal, a page with plots, or JSON."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dse.analysis.capacity import ChipCapacity, find_unread_overrides
from dse.analysis.deployment_search import SimulatedDeployment, answered_rate, throughput_and_interactivity
from dse.analysis.engine_arguments import engine_command_lines
from dse.analysis.evaluation import BEYOND
from dse.analysis.load_notes import trace_record, trace_text
from dse.analysis.max_rate_text import describe_caveat, describe_failures_beyond, format_range
from dse.config.setting_effects import NoEffect, find_settings_idle_in_all_designs, no_effect_records, print_no_effects
from dse.documents.capacity_document import (
    BoundsRecord,
    CapacityDocument,
    ChipCapacityRecord,
    ClassBoundsRecord,
    DeploymentRecord,
    DeploymentSearchRecord,
    FrontPointRecord,
    LoadPointRecord,
    RequestsRecord,
)
from dse.evaluators.evaluation import PHYSICS_VERSION
from dse.evaluators.serving.max_rate import MaxRate
from dse.evaluators.serving.slo_bounds import latency_percentiles
from dse.space.safe_text import count_text, describe_left_out
from dse.space.units import format_quantity
from dse.space.workload import Workload
from dse.terminal.atomic_files import write_atomically
from dse.terminal.json_text import format_json
from dse.terminal.progress import SafeConsole, print_lines, say, screen_width
from dse.terminal.screen_lines import SCREEN_WIDTH, ScreenRow, format_columns, format_screen
from dse.terminal.signals import defer_signals

MAX_ROWS = 12
"""Deployments in a chip's table, and points of its front."""


def write_capacity(
    sides: Sequence[ChipCapacity], out: Path, *, as_json: bool, with_engine: bool = False, full: bool = False
) -> None:
    """Write the page; print the first screen, all tables or JSON, and how inference engines are started."""
    from dse.report.standalone_pages import build_capacity_page

    idle = idle_settings(sides)
    data = capacity_record(sides, idle)
    print_no_effects(idle)
    if as_json:
        print(format_json(data, indent=1))
    elif full:
        _print_sides(sides)
    else:
        print_lines(capacity_lines(sides, screen_width()))
    for side in sides if with_engine else ():
        if side.best is not None:
            for line in engine_command_lines(side.best.candidate.design, side.load):
                print(line)
    out.parent.mkdir(parents=True, exist_ok=True)  # last: where nothing can be written, what was found is said
    with defer_signals(), write_atomically(out) as place:
        place.write_text(build_capacity_page(data), encoding="utf-8")
    if not as_json:
        say(f"wrote   {escape(str(out))}")


def idle_settings(sides: Sequence[ChipCapacity]) -> tuple[NoEffect, ...]:
    """Settings that were typed and have no effect on the best deployment of any chip, at its largest rate."""
    answers = [
        (best.candidate.design, Workload("", (replace(side.load, requests=best.capacity.served.requests),)))
        for side in sides
        if (best := side.best) and best.capacity and best.capacity.served
    ]
    return find_settings_idle_in_all_designs("capacity", answers, sides[0].typed)


MAX_SCREEN_ROWS = 5
"""Deployments or chips in the table of a first screen."""


def capacity_lines(sides: Sequence[ChipCapacity], width: int = SCREEN_WIDTH) -> list[str]:
    """Lines of the first screen: best deployment of each chip, its figures, next ones of a single chip.

    Args:
        sides: chips with their answers, or why there is none.
        width: characters of a line at most.
    """
    good, rows = [side for side in sides if side.best], list[ScreenRow | list[str]]()
    title = "no chip of these has an answer"
    for side in good[:2]:
        head, *texts = Text.from_markup(_answer_text(side)).plain.splitlines()
        title = head if side is good[0] else title
        answer_rows = sorted((_answer_row(text) for text in texts), key=lambda row: not row.needed)  # the answer first
        if len(sides) > 1:
            answer_rows = [replace(row, name=side.chip[:11] if row.name == "answer" else row.name) for row in answer_rows]
            answer_rows = [row for row in answer_rows if row.name not in ("engine", "search")]
        rows += answer_rows
    if len(sides) > 1:
        rows.insert(0, _best_lines(good, width))
    elif good:
        rows.append(_best_lines([good[0]] * len(_ranked_deployments(good[0])[:MAX_SCREEN_ROWS]), width, of_chip=True))
    rows += [ScreenRow("no answer", f"{side.chip}: {side.why}") for side in sides if side.why]
    rows.append(ScreenRow("more", "--full all deployments and latency against load; --json; the page", needed=True))
    return format_screen(title, rows, width)


def _answer_row(text: str) -> ScreenRow:
    """A line of the answer as a named row of a first screen."""
    names = {"stack ": "stack", "rate ": "measured", "served by ": "engine", "as ": "as", "without ": "without"}
    for start, name in names.items():
        if text.startswith(start):
            return ScreenRow(name, text.removeprefix(start).strip(), needed=name == "as")
    name, colon, rest = text.partition(": ")
    if colon and name in ("note", "search", "also", "not fitted", BEYOND.removesuffix(": ")):
        return ScreenRow("kernels" if name == BEYOND.removesuffix(": ") else name, rest, needed=name in ("note", "not fitted"))
    return ScreenRow("answer", text, needed=True)


def _best_lines(sides: Sequence[ChipCapacity], width: int, *, of_chip: bool = False) -> list[str]:
    """A line a chip with its best deployment, or a line a deployment of one chip."""
    cells = []
    for place, side in enumerate(sides):
        deployment = _ranked_deployments(side)[place] if of_chip else side.best
        assert deployment is not None
        data = _deployment_record(deployment, side)
        cells.append(
            [
                data.deployment if of_chip else side.chip,
                f"{deployment.rate * (1 if of_chip else side.cells):.4g}",
                _known_text(data.ttft_s, "s"),
                _known_text(data.tpot_s, "s"),
                _known_text(data.tokens_per_s_user),
                f"{data.tokens_per_s_device:.4g}",
                format_dollars(deployment.per_mtoken),
            ]
        )
    share = f"p{100 * sides[0].bounds.share:g}" if sides else ""
    units = (
        _rate_unit(sides[0]) if sides else "",
        f"TTFT {share}",
        f"TPOT {share}",
        "token/s user",
        "token/s dev",
        "USD/Mtoken",
    )
    return format_columns(["deployment" if of_chip else "chip", *units], cells, width)


def _print_sides(sides: Sequence[ChipCapacity]) -> None:
    console = SafeConsole(150)
    for side in sides:
        if side.why:
            console.print(f"[red]{escape(side.chip)}[/]  {escape(side.why)}")
            continue
        console.print(_answer_text(side))
        console.print(_deployments_table(side))
        console.print(_front_table(side))
        console.print(_load_table(side))
    if len(sides) > 1:
        console.print(_chips_table(sides))


def explain_too_few_requests(side: ChipCapacity) -> str:
    """Why a maximum rate may not last: replayed or too few requests; empty string if it lasts."""
    return describe_caveat(_best_max_rate(side), side.load, side.bounds)


def _best_max_rate(side: ChipCapacity) -> MaxRate:
    """What was found of the best deployment."""
    assert side.best is not None
    assert side.best.capacity is not None
    return side.best.capacity


def capacity_record(sides: Sequence[ChipCapacity], idle: Sequence[NoEffect] = ()) -> CapacityDocument:
    """The document of an answer, in SI.

    Args:
        sides: chips.
        idle: settings without effect.
    """
    return CapacityDocument(
        physics=PHYSICS_VERSION,
        chips=[_side_record(side) for side in sides],
        without_effect=no_effect_records(idle),
    )


def _side_record(side: ChipCapacity) -> ChipCapacityRecord:
    return ChipCapacityRecord(
        chip=side.chip,
        why_not=side.why or None,
        note=(explain_too_few_requests(side) or None) if side.best else None,
        published_formats=side.published or None,
        other_variants=side.others or None,
        extrapolated=side.extrapolated or None,
        stack_basis=side.stack_basis.record() if side.stack_basis else None,
        kernel_basis=side.kernel_basis,
        model=side.load.model.name,
        requests=RequestsRecord(
            count=_best_max_rate(side).count if side.best else len(side.load.requests),
            rows_skipped=side.load.requests.skipped,
            trace=trace_record(side.load),
            mean_prompt_tokens=float(side.load.requests.prompt.mean()),
            mean_output_tokens=float(side.load.requests.output.mean()),
        ),
        bounds=_bounds_record(side),
        devices=side.devices,
        cells=side.cells,
        best=_deployment_record(side.best, side) if side.best else None,
        deployments=[_deployment_record(deployment, side) for deployment in _ranked_deployments(side)],
        looked_at=DeploymentSearchRecord(
            fit=len(side.candidates),
            played=len(side.tried),
            refused_by=side.refused,
            left_out=_refusals_text(side),
        ),
        front=[
            FrontPointRecord(tokens_per_s_user=user, tokens_per_s_device=device, deployment=deployment.candidate.text)
            for user, device, deployment in side.front
        ],
        load=[
            LoadPointRecord(of_largest=times, rate_hz=rate, ttft_s=ttft, tpot_s=tpot, breaks=broken or None)
            for times, rate, ttft, tpot, broken in side.curve
        ],
    )


def _refusals_text(side: ChipCapacity) -> str:
    """How many deployments break a limit, by limit, in words."""
    return describe_left_out(side.refused, len(side.candidates) + sum(side.refused.values()), "deployment")


def _bounds_record(side: ChipCapacity) -> BoundsRecord:
    """What requests must keep; of each class, where there are classes."""
    classes = [
        ClassBoundsRecord(name=slo_class.name, ttft_s=slo_class.ttft, tpot_s=slo_class.tpot)
        for slo_class in side.bounds.classes
    ]
    bounds = side.bounds
    return BoundsRecord(ttft_s=bounds.ttft, tpot_s=bounds.tpot, share_of_requests=bounds.share, classes=classes)


def _by_class(deployment: SimulatedDeployment, side: ChipCapacity) -> list[ClassBoundsRecord]:
    """What requests of each class take at the largest rate."""
    assert deployment.capacity is not None
    assert deployment.capacity.served is not None
    classes = []
    for number, slo_class in enumerate(side.bounds.classes):
        ttft, tpot = latency_percentiles(deployment.capacity.served, side.bounds.share, number)
        classes.append(ClassBoundsRecord(name=slo_class.name, ttft_s=ttft, tpot_s=tpot))
    return classes


def _deployment_record(deployment: SimulatedDeployment, side: ChipCapacity) -> DeploymentRecord:
    capacity = deployment.capacity
    assert capacity is not None
    assert capacity.served is not None
    ttft, tpot = latency_percentiles(capacity.served, side.bounds.share)
    device, user = throughput_and_interactivity(capacity.served, deployment.candidate.devices)
    return DeploymentRecord(
        deployment=deployment.candidate.text,
        overrides=[*side.variant, *deployment.candidate.words],
        left_out=find_unread_overrides(deployment.candidate, side.typed),
        phases="apart" if deployment.candidate.apart else "together",
        devices=deployment.candidate.devices,
        max_rate_hz=deployment.rate if not capacity.served.requests.users else answered_rate(capacity.served),
        max_users=capacity.served.requests.users or None,
        rate_override=_rate_override(deployment.rate, side),
        max_rate_range_hz=capacity.range or None,
        requests=capacity.count,
        seed=capacity.seed,
        lasts=capacity.lasts,
        estimate_hz=None if side.load.requests.users else deployment.candidate.estimate.rate,
        breaks_beyond=_next_broken_text(deployment, side),
        ttft_s=ttft,
        tpot_s=tpot,
        tokens_per_s_device=device,
        tokens_per_s_user=user,
        system_price_usd=deployment.price,
        price_per_mtoken_usd=deployment.per_mtoken,
        runs=capacity.runs,
        classes=_by_class(deployment, side),
    )


def _ranked_deployments(side: ChipCapacity) -> list[SimulatedDeployment]:
    """Deployments whose rate is known, the largest first."""
    return sorted((deployment for deployment in side.tried if deployment.rate > 0), key=lambda deployment: -deployment.rate)


def _answer_text(side: ChipCapacity) -> str:
    best = side.best
    assert best is not None
    assert best.capacity is not None
    share = f"{100 * side.bounds.share:g} % of requests"
    bound = ", and ".join(
        f"{f'of {escape(bound.name)} ' if bound.name else ''}within {format_quantity(bound.ttft, 's')} TTFT, "
        f"{format_quantity(bound.tpot, 's')} TPOT"
        for bound in side.bounds.bounds_by_class
    )
    requests = side.load.requests
    lengths = f"{requests.prompt.mean():,.0f} in, {requests.output.mean():,.0f} out"
    last = ", while these requests last," if explain_too_few_requests(side) else ""
    engine = best.candidate.design.mapping.inference_engine
    published = f", {side.published}" if side.published else ""
    skipped = f" ({count_text(requests.skipped, 'row')} skipped)" if requests.skipped else ""
    basis = f"{escape(side.stack_basis.text)}\n" if side.stack_basis else ""
    if side.stack_basis and not side.load.requests.users and (band := side.stack_basis.rate_band(best.rate, "requests/s")):
        basis += f"rate {escape(band)}\n"
    basis += f"served by {escape(f'{engine.name} {engine.version}')}\n" if engine is not None else ""
    return (
        f"[bold]{escape(side.load.model.name)} on {_devices_text(side)}[/]"
        f"{escape(published)}, {_best_max_rate(side).count:,} requests"
        f"{skipped}{escape(trace_text(side.load))}, {lengths}; "
        f"{share} {bound}\n"
        f"{basis}"
        f"[bold]{_level_text(side)}[/]{last} ({format_range(_best_max_rate(side))}) by {escape(best.candidate.text)}; "
        f"{describe_failures_beyond(_next_broken_text(best, side))}"
        f"{_cells_text(side)}\n"
        f"as     {escape(' '.join([*side.variant, *best.candidate.words, *side.words, _rate_override(best.rate, side)]))}"
        f"{_left_out(best, side)}{_each_class(best, side)}{_notes_text(side)}"
    )


def _devices_text(side: ChipCapacity) -> str:
    """Devices that there are, and of which kind; of two kinds that of the prefill pool too."""
    return f"{side.devices} x {side.chip}" + (f" that decode and {side.prefill_chip} that prefill" if side.prefill_chip else "")


def _level_text(side: ChipCapacity) -> str:
    """What the best deployment serves, in words."""
    assert side.best is not None
    if not side.load.requests.users:
        return f"{side.best.rate:.4g} requests/s"
    assert side.best.capacity is not None
    assert side.best.capacity.served is not None
    return f"{side.best.rate:,.0f} users ({answered_rate(side.best.capacity.served):.4g} requests/s)"


def _rate_unit(side: ChipCapacity) -> str:
    """Of what a deployment serves most."""
    return "users" if side.load.requests.users else "requests/s"


def _left_out(best: SimulatedDeployment, side: ChipCapacity) -> str:
    """What was typed and nothing of the best deployment reads."""
    words = find_unread_overrides(best.candidate, side.typed)
    return f"\nwithout {escape(', '.join(words))}, which has no effect on it" if words else ""


def _each_class(best: SimulatedDeployment, side: ChipCapacity) -> str:
    """What requests of each class take, a line each; nothing where there are no classes."""
    return "".join(
        f"\n{escape(bound.name)}: {_known_text(bound.ttft_s, 's')} TTFT, {_known_text(bound.tpot_s, 's')} TPOT"
        for bound in _by_class(best, side)
    )


def _notes_text(side: ChipCapacity) -> str:
    """What to say below the answer: that the rate holds just while so few requests come, what the search left out, and what
    nobody has measured.
    """
    notes = {
        "note": explain_too_few_requests(side),
        "search": _refusals_text(side) if side.refused else "",
        "also": side.others,
        "not fitted": side.extrapolated,
        BEYOND.removesuffix(": "): side.kernel_basis,
    }
    return "".join(f"\n[yellow]{name}:[/] {escape(text)}" for name, text in notes.items() if text)


def _cells_text(side: ChipCapacity) -> str:
    """Of how many equal parts the whole is, where it is of several."""
    if side.cells == 1:
        return ""
    whole = (
        f"{side.cells * side.devices:,} devices serve {side.cells * side.best.rate:.4g} {_rate_unit(side)}" if side.best else ""
    )
    idle = side.asked - side.cells * side.devices
    left = f"; {idle} more are idle" if idle > 0 else ""
    return f"\n[bold]{side.cells:,} equal cells[/], each with a router and its share of the requests: {whole}{left}"


def _next_broken_text(deployment: SimulatedDeployment, side: ChipCapacity) -> str:
    """What is broken at `BEYOND` times a deployment's rate: of the best by the whole run, of others what ends the run."""
    assert deployment.capacity is not None
    return (side.breaks if deployment is side.best else "") or deployment.capacity.binds


def _rate_override(rate: float, side: ChipCapacity) -> str:
    """As an override."""
    if side.load.requests.users:
        return f"workload.users={rate:.0f}"
    # rates have few digits, and what a trace's is multiplied by has as many as it takes
    return f"workload.rate='{rate:.10g} Hz'" if side.load.said else f"workload.rate_scale={rate / side.load.rate:.15g}"


def _deployments_table(side: ChipCapacity) -> Table:
    fit, simulated = len(side.candidates), len(side.tried)
    title = (
        f"deployments: {fit:,} fit, {simulated:,} simulated; the other {fit - simulated:,} are slower by estimate, or "
        f"failed at "
        "the best rate so far; rates below the first row are of one stream and within 5 %"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("deployment")
    for name in (
        "devices",
        _rate_unit(side),
        "estimate",
        "tokens/s a device",
        "tokens/s a user",
        "price",
        "a Mtoken",
        "TTFT",
        "TPOT",
        "missed next",
    ):
        table.add_column(name, justify="right")
    for deployment in _ranked_deployments(side)[:MAX_ROWS]:
        data = _deployment_record(deployment, side)
        table.add_row(
            escape(deployment.candidate.text),
            str(deployment.candidate.devices),
            f"{deployment.rate:.4g}",
            f"{deployment.candidate.estimate.rate:.4g}",
            f"{data.tokens_per_s_device:.4g}",
            _known_text(data.tokens_per_s_user),
            format_dollars(deployment.price),
            format_dollars(deployment.per_mtoken),
            _known_text(data.ttft_s, "s"),
            _known_text(data.tpot_s, "s"),
            data.breaks_beyond,
            style="bold" if deployment is side.best else "",
        )
    return table


def _known_text(value: float | None, unit: str = "") -> str:
    """For people; a dash where there is none, as of time per token where every answer has one."""
    return "-" if value is None or math.isnan(value) else format_quantity(value, unit) if unit else f"{value:.4g}"


def format_dollars(value: float) -> str:
    """An amount of money as text, in dollars.

    >>> format_dollars(1234567.8), format_dollars(0.04321)
    ('$1,234,568', '$0.04321')
    """
    return f"${value:,.0f}" if value >= 1000 else f"${value:.4g}"


def _front_table(side: ChipCapacity) -> Table:
    table = Table(title="tokens/s of a user against tokens/s of a device: Pareto front of the runs", title_justify="left")
    for name in ("tokens/s a user", "tokens/s a device", "deployment"):
        table.add_column(name, justify="left" if name == "deployment" else "right")
    rows = side.front
    # ends, and points in between at equal distances
    places = sorted({round(at * (len(rows) - 1) / (MAX_ROWS - 1)) for at in range(MAX_ROWS)}) if rows else []
    for user, device, deployment in (rows[place] for place in places):
        table.add_row(f"{user:.4g}", f"{device:.4g}", escape(deployment.candidate.text))
    return table


def _load_table(side: ChipCapacity) -> Table:
    table = Table(title="latency against load, best deployment", title_justify="left")
    share = f"{100 * side.bounds.share:g} %"
    for name in ("of the maximum rate", "requests/s", f"TTFT, {share}", f"TPOT, {share}", "missed"):
        table.add_column(name, justify="right")
    for times, rate, ttft, tpot, broken in side.curve:
        table.add_row(f"{times:g}", f"{rate:.4g}", _known_text(ttft, "s"), _known_text(tpot, "s"), broken)
    return table


def _chips_table(sides: Sequence[ChipCapacity]) -> Table:
    table = Table(title="chips, each with its best deployment", title_justify="left")
    names = (
        "chip",
        "devices",
        _rate_unit(sides[0]),
        "tokens/s a device",
        "tokens/s a user",
        "price",
        "a Mtoken",
        "deployment",
    )
    for name in names:
        table.add_column(name, justify="left" if name in ("chip", "deployment") else "right")
    for side in sides:
        if side.best is None:
            table.add_row(escape(side.chip), str(side.devices), *"-----", "")
            continue
        data = _deployment_record(side.best, side)
        table.add_row(
            escape(side.chip), str(side.cells * data.devices), f"{side.cells * side.best.rate:.4g}",
            f"{data.tokens_per_s_device:.4g}",
            _known_text(data.tokens_per_s_user), format_dollars(side.cells * side.best.price),
            format_dollars(side.best.per_mtoken),
            escape(data.deployment),
        )  # fmt: skip
    return table
