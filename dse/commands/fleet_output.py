"""Output of ``dse fleet``: tables for the terminal, a page with the day, or JSON."""

import math
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from dse.analysis.fleet import HOUR, ChipFleet, FleetPool, FleetQuery, FleetTotals
from dse.analysis.max_rate_text import describe_caveat, format_range
from dse.commands.capacity_output import format_dollars
from dse.config.day_load import HOURS
from dse.config.setting_effects import NoEffect, find_settings_idle_in_all_designs, no_effect_records, print_no_effects
from dse.documents.fleet_document import (
    ChipFleetRecord,
    DayRecord,
    FleetDocument,
    FleetHourRecord,
    FleetModelRecord,
    FleetTotalsRecord,
)
from dse.evaluators.evaluation import PHYSICS_VERSION
from dse.evaluators.serving.max_rate import MaxRate
from dse.evaluators.serving.slo_bounds import make_slo_bounds
from dse.space.safe_text import count_text
from dse.space.units import format_quantity
from dse.terminal.json_text import format_json
from dse.terminal.progress import SafeConsole, print_lines, say, screen_width
from dse.terminal.screen_lines import SCREEN_WIDTH, ScreenRow, format_columns, format_screen

KWH = 3.6e6
"""Energy of a kilowatt-hour. [J]"""

MEANINGS = (
    "scaled: systems start and stop with the load; a system that starts draws idle power, one that is off draws none",
    "fixed: the systems of the busiest hour are always up",
    "owned: all chips of the busiest hour at what they cost to make, paid over their lifetime; electricity as drawn",
    "rented: rent of each hour in which a chip is up",
)
"""What an answer assumes, a line each."""


def write_fleets(fleets: Sequence[ChipFleet], out: Path, *, as_json: bool, full: bool = False) -> None:
    """Write the page, and print the first screen, all tables or JSON."""
    from dse.report.standalone_pages import build_fleet_page, write_answer_page

    idle = _idle_settings(fleets)
    data = fleet_record(fleets, idle)
    print_no_effects(idle)
    if as_json:
        print(format_json(data, indent=1))
    elif full:
        _print_fleets(fleets)
    else:
        print_lines(fleet_lines(fleets, screen_width()))
    write_answer_page(build_fleet_page(data), out)  # last: where nothing can be written, what was found is said
    if not as_json:
        say(f"wrote   {escape(str(out))}")


def _idle_settings(fleets: Sequence[ChipFleet]) -> tuple[NoEffect, ...]:
    """Settings that were typed and have no effect on any system."""
    systems = [pool.system for fleet in fleets for pool in fleet.scaled]
    answers = [(system.design, system.evaluation.workload) for system in systems]
    return find_settings_idle_in_all_designs("fleet", answers, fleets[0].query.overrides)


def describe_day(query: FleetQuery) -> str:
    """The load of a day as text: its file, peak and mean."""
    day = query.day
    text = f"{day.name}, {count_text(len(day.rates), 'hour')}, after which the first comes again"
    busiest = day.rates.index(day.peak)
    return (
        f"{text}; peak {day.peak:.4g} requests/s in hour {busiest}, mean {day.mean:.4g} requests/s "
        f"(peak to mean {day.peak / day.mean:.3g}); an hour has its mean rate throughout"
    )


def describe_systems(query: FleetQuery, pool: FleetPool) -> str:
    """What systems are, as text: spare ones, cold start and arrivals."""
    spare = (
        f"and {query.spare} spare, which {'share' if query.spare != 1 else 'shares'} the load" if query.spare else "none spare"
    )
    starts = f"serves {query.cold_start / 60:.4g} min after it starts" if query.cold_start else "serves when it starts"
    return (
        f"each model: as many systems as its rate takes, {spare}; a system {starts}; each sees "
        f"{pool.system.arrivals} arrivals, as at its maximum rate"
    )


def fleet_lines(fleets: Sequence[ChipFleet], width: int = SCREEN_WIDTH) -> list[str]:
    """Lines of the first screen of fleets: the day, the systems, and what a day takes by chip.

    Args:
        fleets: chips with their fleets, or why there is none.
        width: characters of a line at most.
    """
    good, query = [fleet for fleet in fleets if not fleet.why], fleets[0].query
    rows: list[ScreenRow | list[str]] = [ScreenRow("day", describe_day(query), needed=True)]
    rows.append(ScreenRow("systems", describe_systems(query, good[0].scaled[0])))
    for fleet in good:
        for pool in fleet.scaled:
            needed, chips = pool.schedule.needed, round(pool.system.chips)
            span = f"{min(needed):,} to {max(needed):,} systems of {count_text(chips, 'chip')} in an hour"
            rows.append(ScreenRow(fleet.chip[:11], f"{span}; {_pool_text(pool)}"))
            basis = pool.system.evaluation.stack_basis
            rows += (
                [ScreenRow("measured", band)] if basis and (band := basis.rate_band(pool.system.max_rate, "requests/s")) else []
            )
            rows += [ScreenRow("note", text) for text in (_caveat(pool), pool.system.evaluation.extrapolation_text) if text]
    cells = [
        [f"{fleet.chip} {name}", *_totals_cells(totals)]
        for fleet in good
        for name, totals in (("scaled", fleet.totals), ("fixed", fleet.fixed_totals))
    ]
    cells += [[f"{good[0].chip} saved", "", *_saved_cells(good[0])]] if len(good) == 1 else []
    head = ["a day", "chips", "chip-hours", "busy", "energy", "owned", "/Mtoken", "rented", "/Mtoken"]
    rows.append(format_columns(head, cells, width))
    rows += [ScreenRow("scaled", MEANINGS[0].partition(": ")[2]), ScreenRow("owned", MEANINGS[2].partition(": ")[2])]
    if unknown := [fleet.chip for fleet in good if math.isnan(fleet.totals.rent)]:
        rows.append(ScreenRow("rented", f"no rent of {', '.join(unknown)} is known; set --rent '{unknown[0]}=2.5 USD/hour'"))
    rows += [ScreenRow("no answer", f"{fleet.chip}: {fleet.why}") for fleet in fleets if fleet.why]
    rows.append(ScreenRow("more", "--full every hour; --json; the page", needed=True))
    models = ", ".join(pool.system.load.model.name for pool in good[0].scaled)
    return format_screen(f"Fleet of {models} on {', '.join(fleet.chip for fleet in fleets)}", rows, width)


def _print_fleets(fleets: Sequence[ChipFleet]) -> None:
    console = SafeConsole(160)
    query = fleets[0].query
    first = next(fleet for fleet in fleets if not fleet.why)
    console.print(f"[bold]fleet for {escape(describe_day(query))}[/]")
    console.print(escape(describe_systems(query, first.scaled[0])))
    for line in MEANINGS:
        console.print(escape(line))
    for fleet in fleets:
        for pool in fleet.scaled:
            _print_pool(console, fleet.chip, pool)
    console.print(_fleets_table(fleets))
    if unknown := [fleet.chip for fleet in fleets if not fleet.why and math.isnan(fleet.totals.rent)]:
        console.print(escape(f"rented: no rent of {', '.join(unknown)} is known; set --rent '{unknown[0]}=2.5 USD/hour'"))
    for pool in first.scaled:
        console.print(_hours_table(first.chip, pool))
    for fleet in fleets:
        if fleet.why:
            console.print(f"[red]{escape(fleet.chip)}[/]  {escape(fleet.why)}")


def _print_pool(console: SafeConsole, chip: str, pool: FleetPool) -> None:
    """Print what a system of a model is, what stands behind its rate, and why the rate may not last."""
    console.print(escape(f"{chip}: {_pool_text(pool)}"))
    basis = pool.system.evaluation.stack_basis
    if basis and (band := basis.rate_band(pool.system.max_rate, "requests/s")):
        console.print(escape(f"{chip}: rate {band}"))
    for text in (_caveat(pool), pool.system.evaluation.extrapolation_text):
        if text:
            console.print(f"[yellow]{escape(f'{chip}: {text}')}[/]")


def _max_rate(pool: FleetPool) -> MaxRate:
    """The maximum rate of a system as it was found."""
    largest = pool.system.evaluation.load_notes[0].largest
    assert largest is not None
    return largest


def _caveat(pool: FleetPool) -> str:
    """Why the maximum rate of a system may not last; empty string if it lasts."""
    load = pool.system.load
    return describe_caveat(_max_rate(pool), load, make_slo_bounds(load, load.largest))


def _pool_text(pool: FleetPool) -> str:
    """What a system of a model is and serves, as text."""
    system, load = pool.system, pool.system.load
    requests = load.requests
    lengths = f"{requests.prompt.mean():,.0f} in, {requests.output.mean():,.0f} out"
    bounds = f"{format_quantity(load.ttft, 's')} TTFT and {format_quantity(load.tpot, 's')} TPOT"
    return (
        f"{load.model.name}, {100 * pool.model.share:.4g} % of the requests: a system of "
        f"{count_text(round(system.chips), 'chip')} serves {system.max_rate:.4g} requests/s at most "
        f"({format_range(_max_rate(pool))}), {lengths}, {100 * load.largest:g} % within {bounds}"
    )


def _fleets_table(fleets: Sequence[ChipFleet]) -> Table:
    table = Table(title="a day, systems that follow the load beside a fixed fleet", title_justify="left")
    table.add_column("chip")
    table.add_column("fleet")
    names = ("chips owned", "chip-hours", "utilisation", "energy", "owned", "a Mtoken", "rented", "a Mtoken")
    for name in names:
        table.add_column(name, justify="right")
    for fleet in fleets:
        if fleet.why:
            table.add_row(escape(fleet.chip), "none", *"-" * len(names))
            continue
        for name, totals in (("scaled", fleet.totals), ("fixed", fleet.fixed_totals)):
            table.add_row(escape(fleet.chip), name, *_totals_cells(totals))
        table.add_row(escape(fleet.chip), "saved", "", *_saved_cells(fleet))
    return table


def _totals_cells(totals: FleetTotals) -> list[str]:
    return [
        f"{totals.chips:,.0f}",
        f"{totals.chip_hours:,.1f} h",
        f"{totals.utilisation:.1%}",
        _known(totals.joules, f"{totals.joules / KWH:,.4g} kWh"),
        _known(totals.owner_price, format_dollars(totals.owner_price)),
        _known(totals.owner_price, format_dollars(totals.per_mtoken(totals.owner_price))),
        _known(totals.rent, format_dollars(totals.rent)),
        _known(totals.rent, format_dollars(totals.per_mtoken(totals.rent))),
    ]


def _saved_cells(fleet: ChipFleet) -> list[str]:
    """Shares that systems which follow the load save of a fixed fleet."""

    def share(name: str) -> str:
        few, many = getattr(fleet.totals, name), getattr(fleet.fixed_totals, name)
        return _known(many, f"{1 - few / many:.1%}" if many else "")

    return [share("chip_hours"), "", share("joules"), share("owner_price"), "", share("rent"), ""]


def _known(value: float, text: str) -> str:
    """Text of a value; a dash where it is not known."""
    return "-" if math.isnan(value) else text


def _hours_table(chip: str, pool: FleetPool) -> Table:
    hours = range(len(pool.rates))
    begin = pool.rates.index(max(pool.rates)) // HOURS * HOURS
    shown = hours[begin : begin + HOURS]
    part = "" if len(hours) == HOURS else f", hours {shown[0]} to {shown[-1]} of {len(hours)} (all: --json)"
    table = Table(title=f"{escape(pool.system.load.model.name)} on {escape(chip)} by hour{part}", title_justify="left")
    names = (
        "hour",
        "requests/s",
        "systems",
        "serve",
        "up (mean)",
        "load of a system",
        "utilisation",
        "within SLO",
        "grid power",
    )
    for name in names:
        table.add_column(name, justify="right")
    for hour in shown:
        load, schedule = pool.loads[hour], pool.schedule
        attained = pool.system.attainment_at(load)
        table.add_row(
            str(hour), f"{pool.rates[hour]:.4g}", f"{schedule.needed[hour]:,}", f"{schedule.ready[hour]:,}",
            f"{schedule.up[hour]:,.2f}", f"{load:.4g} Hz", f"{load / pool.system.max_rate:.1%}",
            _known(attained, f"{attained:.1%}"), _known(pool.power[hour], format_quantity(pool.power[hour], "W")),
        )  # fmt: skip
    return table


def fleet_record(fleets: Sequence[ChipFleet], idle: Sequence[NoEffect] = ()) -> FleetDocument:
    """The document of an answer."""
    query = fleets[0].query
    first = next(fleet for fleet in fleets if not fleet.why)
    return FleetDocument(
        physics=PHYSICS_VERSION,
        day=DayRecord(
            name=query.day.name,
            text=describe_day(query),
            rates_hz=query.day.rates,
            peak_hz=query.day.peak,
            mean_hz=query.day.mean,
        ),
        systems=describe_systems(query, first.scaled[0]),
        assumptions=MEANINGS,
        spare=query.spare,
        cold_start_s=query.cold_start,
        by=query.by,
        fleets=[_chip_record(fleet) for fleet in fleets],
        without_effect=no_effect_records(idle),
    )


def _chip_record(fleet: ChipFleet) -> ChipFleetRecord:
    return ChipFleetRecord(
        chip=fleet.chip,
        why_not=fleet.why or None,
        scaled=_totals_record(fleet.totals) if fleet.scaled else None,
        fixed=_totals_record(fleet.fixed_totals) if fleet.fixed else None,
        models=[_pool_record(scaled, fixed) for scaled, fixed in zip(fleet.scaled, fleet.fixed, strict=True)],
    )


def _pool_record(scaled: FleetPool, fixed: FleetPool) -> FleetModelRecord:
    system = scaled.system
    return FleetModelRecord(
        model=system.load.model.name,
        share=scaled.model.share,
        overrides=scaled.model.overrides,
        text=_pool_text(scaled),
        note=_caveat(scaled) or None,
        stack_basis=basis.record() if (basis := system.evaluation.stack_basis) else None,
        extrapolated=system.evaluation.extrapolation_text or None,
        max_rate_hz=system.max_rate,
        chips_of_a_system=round(system.chips),
        system_price_usd=system.price,
        rent_usd_per_hour=system.rent_per_second * HOUR,
        idle_power_w=system.idle,
        hours=_hours_record(scaled),
        fixed_hours=_hours_record(fixed),
    )


def _hours_record(pool: FleetPool) -> list[FleetHourRecord]:
    return [
        FleetHourRecord(
            hour=hour,
            rate_hz=rate,
            systems_needed=pool.schedule.needed[hour],
            systems_ready=pool.schedule.ready[hour],
            system_hours=pool.schedule.up[hour],
            load_hz=pool.loads[hour],
            utilisation=pool.loads[hour] / pool.system.max_rate,
            slo_attainment=pool.system.attainment_at(pool.loads[hour]),
            grid_power_w=pool.power[hour],
        )
        for hour, rate in enumerate(pool.rates)
    ]


def _totals_record(totals: FleetTotals) -> FleetTotalsRecord:
    return FleetTotalsRecord(
        chips_owned=round(totals.chips),
        system_hours=totals.system_hours,
        chip_hours=totals.chip_hours,
        utilisation=totals.utilisation,
        requests=totals.requests,
        output_tokens=totals.tokens,
        energy_j=totals.joules,
        owned_usd=totals.owner_price,
        capital_usd=totals.capital,
        electricity_usd=totals.electricity,
        rented_usd=totals.rent,
        owned_per_mtoken_usd=totals.per_mtoken(totals.owner_price),
        rented_per_mtoken_usd=totals.per_mtoken(totals.rent),
    )
