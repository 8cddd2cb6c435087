"""What ``dse capacity`` leaves: a table for the terminal, a page with pictures, or all as JSON."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from dse.answers.capacity import Side, unread
from dse.answers.max_rate_text import beyond_text, caveat_text, range_text
from dse.answers.of_loads import trace_record, trace_text
from dse.answers.race import Tried, answered, worth
from dse.config.effects import NoEffect, idle_of_all, note, records
from dse.evaluators.evaluation import PHYSICS
from dse.evaluators.serving.capacity import spent
from dse.evaluators.serving.max_rate import MaxRate
from dse.schemas import stamped
from dse.space.shown import left_out_text
from dse.space.units import show
from dse.space.workload import Workload
from dse.terminal.drafts import draft
from dse.terminal.json_text import json_text
from dse.terminal.progress import Terminal, say
from dse.terminal.signals import held_back

SHOWN = 12
"""Deployments in a chip's table, and points of its front."""


def leave(sides: Sequence[Side], out: Path, *, as_json: bool) -> None:
    """Writes the page, and prints what was found."""
    from dse.report.alone import capacity_page

    idle = _idle(sides)
    data = record(sides, idle)
    note(idle)
    if as_json:
        print(json_text(data, indent=1))
    else:
        _tell(sides)
    out.parent.mkdir(parents=True, exist_ok=True)  # last: where nothing can be written, what was found is said
    with held_back(), draft(out) as place:
        place.write_text(capacity_page(data), encoding="utf-8")
    if not as_json:
        say(f"wrote   {escape(str(out))}")


def _idle(sides: Sequence[Side]) -> tuple[NoEffect, ...]:
    """Settings that were typed and have no effect on the best deployment of any chip, at its largest rate."""
    answers = [
        (one.candidate.design, Workload("", (replace(side.load, requests=one.capacity.served.requests),)))
        for side in sides
        if (one := side.best) and one.capacity and one.capacity.served
    ]
    return idle_of_all("capacity", answers, sides[0].typed)


def _tell(sides: Sequence[Side]) -> None:
    console = Terminal(150)
    for side in sides:
        if side.why:
            console.print(f"[red]{escape(side.chip)}[/]  {escape(side.why)}")
            continue
        console.print(_answer(side))
        console.print(_deployments(side))
        console.print(_front(side))
        console.print(_load(side))
    if len(sides) > 1:
        console.print(_chips(sides))


def few(side: Side) -> str:
    """What to say of a rate that need not last: of requests that are replayed, or too few; "" of one that lasts."""
    return caveat_text(_found(side), side.load, side.bounds)


def _found(side: Side) -> MaxRate:
    """What was found of the best deployment."""
    assert side.best is not None
    assert side.best.capacity is not None
    return side.best.capacity


def record(sides: Sequence[Side], idle: Sequence[NoEffect] = ()) -> dict[str, Any]:
    """The answer as plain values, in SI.

    Args:
        sides: chips.
        idle: settings without effect.
    """
    data = {"physics": PHYSICS, "chips": [_side(side) for side in sides], "without_effect": records(idle)}
    return stamped("capacity", data)


def _side(side: Side) -> dict[str, Any]:
    return {
        "chip": side.chip,
        "why_not": side.why or None,
        "note": (few(side) or None) if side.best else None,
        "extrapolated": side.extrapolated or None,
        "stack_basis": side.stack_basis.record() if side.stack_basis else None,
        "model": side.load.model.name,
        "requests": {
            "count": _found(side).count if side.best else len(side.load.requests),
            "rows_skipped": side.load.requests.skipped,
            "trace": trace_record(side.load),
            "mean_prompt_tokens": float(side.load.requests.prompt.mean()),
            "mean_output_tokens": float(side.load.requests.output.mean()),
        },
        "bounds": _bounds(side),
        "devices": side.devices,
        "cells": side.cells,
        "best": _deployment(side.best, side) if side.best else None,
        "deployments": [_deployment(one, side) for one in _ranked(side)],
        "looked_at": {
            "fit": len(side.candidates),
            "played": len(side.tried),
            "refused_by": side.refused,
            "left_out": _refused(side),
        },
        "front": [
            {"tokens_per_s_user": user, "tokens_per_s_device": device, "deployment": one.candidate.text}
            for user, device, one in side.front
        ],
        "load": [
            {"of_largest": times, "rate_hz": rate, "ttft_s": ttft, "tpot_s": tpot, "breaks": broken or None}
            for times, rate, ttft, tpot, broken in side.curve
        ],
    }


def _refused(side: Side) -> str:
    """How many deployments break a limit, by limit, in words."""
    return left_out_text(side.refused, len(side.candidates) + sum(side.refused.values()), "deployment")


def _bounds(side: Side) -> dict[str, Any]:
    """What requests must keep; of each class, where there are classes."""
    classes = [{"name": of.name, "ttft_s": of.ttft, "tpot_s": of.tpot} for of in side.bounds.classes]
    bounds = side.bounds
    return {"ttft_s": bounds.ttft, "tpot_s": bounds.tpot, "share_of_requests": bounds.share, "classes": classes}


def _by_class(one: Tried, side: Side) -> list[dict[str, Any]]:
    """What requests of each class take at the largest rate."""
    assert one.capacity is not None
    assert one.capacity.served is not None
    found = []
    for number, of in enumerate(side.bounds.classes):
        ttft, tpot = spent(one.capacity.served, side.bounds.share, number)
        found.append({"name": of.name, "ttft_s": ttft, "tpot_s": tpot})
    return found


def _deployment(one: Tried, side: Side) -> dict[str, Any]:
    found = one.capacity
    assert found is not None
    assert found.served is not None
    ttft, tpot = spent(found.served, side.bounds.share)
    device, user = worth(found.served, one.candidate.devices)
    return {
        "deployment": one.candidate.text,
        "overrides": one.candidate.words,
        "left_out": unread(one.candidate, side.typed),
        "phases": "apart" if one.candidate.apart else "together",
        "devices": one.candidate.devices,
        "max_rate_hz": one.rate if not found.served.requests.users else answered(found.served),
        "max_users": found.served.requests.users or None,
        "rate_override": _rate(one.rate, side),
        "max_rate_range_hz": list(found.range) if found.range else None,
        "requests": found.count,
        "seed": found.seed,
        "lasts": found.lasts,
        "estimate_hz": None if side.load.requests.users else one.candidate.estimate.rate,
        "breaks_beyond": _next(one, side),
        "ttft_s": ttft,
        "tpot_s": tpot,
        "tokens_per_s_device": device,
        "tokens_per_s_user": user,
        "system_price_usd": one.price,
        "price_per_mtoken_usd": one.per_mtoken,
        "runs": found.runs,
        "classes": _by_class(one, side),
    }


def _ranked(side: Side) -> list[Tried]:
    """Deployments whose rate is known, the largest first."""
    return sorted((one for one in side.tried if one.rate > 0), key=lambda one: -one.rate)


def _answer(side: Side) -> str:
    best = side.best
    assert best is not None
    assert best.capacity is not None
    share = f"{100 * side.bounds.share:g} % of requests"
    bound = ", and ".join(
        f"{f'of {escape(of.name)} ' if of.name else ''}within {show(of.ttft, 's')} to the first token, "
        f"{show(of.tpot, 's')} a token"
        for of in side.bounds.each
    )
    asked = side.load.requests
    lengths = f"{asked.prompt.mean():,.0f} in, {asked.output.mean():,.0f} out"
    last = ", while these requests last," if few(side) else ""
    basis = f"{escape(side.stack_basis.text)}\n" if side.stack_basis else ""
    return (
        f"[bold]{escape(side.load.model.name)} on {side.devices} x {escape(side.chip)}[/], {_found(side).count:,} requests"
        f"{f' ({asked.skipped:,} rows skipped)' if asked.skipped else ''}{escape(trace_text(side.load))}, {lengths}; "
        f"{share} {bound}\n"
        f"{basis}"
        f"[bold]{_level(side)}[/]{last} ({range_text(_found(side))}) by {escape(best.candidate.text)}; "
        f"{beyond_text(_next(best, side))}"
        f"{_cells(side)}\n"
        f"as     {escape(' '.join([*best.candidate.words, *side.words, _rate(best.rate, side)]))}"
        f"{_left_out(best, side)}{_each_class(best, side)}{_beside(side)}"
    )


def _level(side: Side) -> str:
    """What the best deployment serves, in words."""
    assert side.best is not None
    if not side.load.requests.users:
        return f"{side.best.rate:.4g} requests/s"
    assert side.best.capacity is not None
    assert side.best.capacity.served is not None
    return f"{side.best.rate:,.0f} users ({answered(side.best.capacity.served):.4g} requests/s)"


def _unit(side: Side) -> str:
    """Of what a deployment serves most."""
    return "users" if side.load.requests.users else "requests/s"


def _left_out(best: Tried, side: Side) -> str:
    """What was typed and nothing of the best deployment reads."""
    words = unread(best.candidate, side.typed)
    return f"\nwithout {escape(', '.join(words))}, which nothing of it reads" if words else ""


def _each_class(best: Tried, side: Side) -> str:
    """What requests of each class take, a line each; nothing where there are no classes."""
    return "".join(
        f"\n{escape(of['name'])}: {show(of['ttft_s'], 's')} to the first token, {_known(of['tpot_s'], 's')} a token"
        for of in _by_class(best, side)
    )


def _beside(side: Side) -> str:
    """What to say below the answer: that the rate holds just while so few requests come, what the search left out, and what
    nobody has measured.
    """
    said = {"note": few(side), "search": _refused(side) if side.refused else "", "not fitted": side.extrapolated}
    return "".join(f"\n[yellow]{name}:[/] {escape(text)}" for name, text in said.items() if text)


def _cells(side: Side) -> str:
    """Of how many equal parts the whole is, where it is of several."""
    if side.cells == 1:
        return ""
    whole = f"{side.cells * side.devices:,} devices serve {side.cells * side.best.rate:.4g} {_unit(side)}" if side.best else ""
    idle = side.asked - side.cells * side.devices
    left = f"; {idle} more are left over" if idle > 0 else ""
    return f"\n[bold]{side.cells:,} such cells[/], each with a router and its part of the requests: {whole}{left}"


def _next(one: Tried, side: Side) -> str:
    """What is broken at `BEYOND` times a deployment's rate: of the best by the whole run, of others what ends the run."""
    assert one.capacity is not None
    return (side.breaks if one is side.best else "") or one.capacity.binds


def _rate(rate: float, side: Side) -> str:
    """As an override."""
    if side.load.requests.users:
        return f"workload.users={rate:.0f}"
    # rates have few digits, and what a trace's is multiplied by has as many as it takes
    return f"workload.rate='{rate:.10g} Hz'" if side.load.said else f"workload.scale={rate / side.load.rate:.15g}"


def _deployments(side: Side) -> Table:
    fit, played = len(side.candidates), len(side.tried)
    title = (
        f"deployments: {fit:,} fit, {played:,} played; the others are slower by their estimates or by a run at the best rate; "
        f"below the first, rates are of one stream and within 5 %"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("deployment")
    for name in (
        "devices",
        _unit(side),
        "closed estimate",
        "tokens/s a device",
        "tokens/s a user",
        "price",
        "a Mtoken",
        "TTFT",
        "TPOT",
        "breaks next",
    ):
        table.add_column(name, justify="right")
    for one in _ranked(side)[:SHOWN]:
        data = _deployment(one, side)
        table.add_row(
            escape(one.candidate.text),
            str(one.candidate.devices),
            f"{one.rate:.4g}",
            f"{one.candidate.estimate.rate:.4g}",
            f"{data['tokens_per_s_device']:.4g}",
            _known(data["tokens_per_s_user"]),
            dollars(one.price),
            dollars(one.per_mtoken),
            show(data["ttft_s"], "s"),
            _known(data["tpot_s"], "s"),
            data["breaks_beyond"],
            style="bold" if one is side.best else "",
        )
    return table


def _known(value: float, unit: str = "") -> str:
    """For people; a dash where there is none, as of time per token where every answer has one."""
    return "-" if math.isnan(value) else show(value, unit) if unit else f"{value:.4g}"


def dollars(value: float) -> str:
    """For people.

    >>> dollars(1234567.8), dollars(0.04321)
    ('$1,234,568', '$0.04321')
    """
    return f"${value:,.0f}" if value >= 1000 else f"${value:.4g}"


def _front(side: Side) -> Table:
    table = Table(title="what a user gets against what a device gives: no run has more of both", title_justify="left")
    for name in ("tokens/s a user", "tokens/s a device", "deployment"):
        table.add_column(name, justify="left" if name == "deployment" else "right")
    rows = side.front
    # ends, and points in between at equal distances
    places = sorted({round(at * (len(rows) - 1) / (SHOWN - 1)) for at in range(SHOWN)}) if rows else []
    for user, device, one in (rows[place] for place in places):
        table.add_row(f"{user:.4g}", f"{device:.4g}", escape(one.candidate.text))
    return table


def _load(side: Side) -> Table:
    table = Table(title="latency against load, of the best", title_justify="left")
    share = f"{100 * side.bounds.share:g} %"
    for name in ("of the largest rate", "requests/s", f"TTFT, {share}", f"TPOT, {share}", "breaks"):
        table.add_column(name, justify="right")
    for times, rate, ttft, tpot, broken in side.curve:
        table.add_row(f"{times:g}", f"{rate:.4g}", _known(ttft, "s"), _known(tpot, "s"), broken)
    return table


def _chips(sides: Sequence[Side]) -> Table:
    table = Table(title="chips, each by its best deployment", title_justify="left")
    names = (
        "chip",
        "devices",
        _unit(sides[0]),
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
        data = _deployment(side.best, side)
        table.add_row(
            escape(side.chip), str(side.cells * data["devices"]), f"{side.cells * side.best.rate:.4g}",
            f"{data['tokens_per_s_device']:.4g}",
            _known(data["tokens_per_s_user"]), dollars(side.cells * side.best.price), dollars(side.best.per_mtoken),
            escape(data["deployment"]),
        )  # fmt: skip
    return table
