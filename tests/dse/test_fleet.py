"""Fleets for a day's load: systems by hour, what they draw and cost, and questions that are refused."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dse
from dse.analysis.fleet import ChipFleet, FleetQuery, find_fleets, parse_query
from dse.analysis.fleet_schedule import count_systems, schedule_systems
from dse.commands.fleet_output import fleet_record
from dse.config.day_load import read_day
from dse.documents import build_schema
from dse.report.standalone_pages import build_fleet_page
from dse.space.errors import DesignError

Typed = Callable[..., tuple[int, str, str]]

WORDS = [
    "chip=h100", "model=llama3_8b", "workload.prompt=300", "workload.output=20", "workload.requests=120",
    "workload.ttft='400 ms'", "workload.tpot='30 ms'", "mapping.both.tp=1",
]  # fmt: skip

NEEDED = st.lists(st.integers(0, 9), min_size=24, max_size=24)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_day(folder: Path, rates: list[float], name: str = "day.csv") -> str:
    (folder / name).write_text("hour,rate\n" + "\n".join(f"{hour},{rate}" for hour, rate in enumerate(rates)))
    return name


@pytest.fixture(scope="module")
def query() -> FleetQuery:
    return parse_query(WORDS, day="sinusoid", peak="200 Hz", spare="1", cold_start="90 min", rent="3.6 USD/hour")


@pytest.fixture(scope="module")
def fleet(query: FleetQuery) -> ChipFleet:
    return find_fleets(query)[0]


@given(NEEDED, st.floats(0, 23.5))
def test_systems_that_are_up_a_cold_start_earlier_are_those_that_are_needed(needed: list[int], cold_start: float) -> None:
    """By steps of a hundredth of an hour: the fewest that are up are the most needed until the cold start later."""
    schedule = schedule_systems(needed, cold_start)
    steps = 100
    ahead = math.floor(cold_start * steps)
    fine = [needed[step // steps] for step in range(24 * steps)]
    twice = fine + fine
    up = [max(*twice[step : step + ahead + 1 : steps // 2], twice[step + ahead]) for step in range(24 * steps)]
    means = [sum(up[hour * steps : (hour + 1) * steps]) / steps for hour in range(24)]
    assert schedule.up == pytest.approx(means, abs=9 * 2 / steps)


@given(NEEDED, st.floats(0, 23.5), st.floats(0, 23.5))
def test_a_longer_cold_start_never_saves_a_system(needed: list[int], one: float, other: float) -> None:
    short, long = (schedule_systems(needed, cold_start) for cold_start in sorted((one, other)))
    assert all(few <= many + 1e-9 for few, many in zip(short.up, long.up, strict=True))
    assert all(few <= many for few, many in zip(short.ready, long.ready, strict=True))


@given(NEEDED, st.floats(0, 23.5))
def test_those_needed_serve_and_those_that_serve_are_up_and_no_more_than_a_fixed_fleet(
    needed: list[int], cold_start: float
) -> None:
    schedule = schedule_systems(needed, cold_start)
    for wanted, ready, up in zip(schedule.needed, schedule.ready, schedule.up, strict=True):
        assert wanted <= ready <= up + 1e-9
        assert up <= schedule.peak + 1e-9
    assert schedule_systems(needed, 0.0).up == tuple(map(float, needed))


def test_a_system_that_could_not_start_again_in_time_stays_up() -> None:
    valley = [2] * 10 + [1, 1] + [2] * 12
    assert schedule_systems(valley, 2.0).ready == (2,) * 24
    assert schedule_systems(valley, 1.5).ready == tuple(valley)


@pytest.mark.parametrize(("rate", "systems"), [(0.0, 0), (4.999, 1), (5.0, 1), (5.001, 2), (0.1 * 3 / 0.3 * 5.0, 1)])
def test_systems_are_the_rate_over_the_largest_rounded_up(rate: float, systems: int) -> None:
    assert count_systems(rate, 5.0, 0) == systems
    assert count_systems(rate, 5.0, 2) == systems + 2


def test_a_flat_day_needs_the_rate_over_the_largest_all_day(fleet: ChipFleet, folder: Path) -> None:
    largest = fleet.scaled[0].system.max_rate
    day = write_day(folder, [3.4 * largest] * 24)
    flat = find_fleets(parse_query(WORDS, day=day, rent="2 USD/hour"))[0]
    assert flat.scaled[0].schedule.needed == (4,) * 24
    assert flat.totals == flat.fixed_totals
    assert flat.totals.utilisation == pytest.approx(3.4 / 4)


def test_the_day_that_ships_has_the_peak_that_it_says() -> None:
    day = read_day("sinusoid", "300 Hz")
    assert day.peak == day.rates[15] == pytest.approx(300.0)
    assert day.peak / day.mean == pytest.approx(1.5, rel=1e-4)


def test_following_the_load_never_takes_more_than_a_fixed_fleet(fleet: ChipFleet) -> None:
    scaled, fixed = fleet.totals, fleet.fixed_totals
    assert scaled.chips == fixed.chips
    assert scaled.requests == fixed.requests
    for name in ("system_hours", "joules", "rent", "owner_price"):
        assert getattr(scaled, name) < getattr(fixed, name)


def test_the_energy_of_a_day_is_the_sum_of_its_hours(fleet: ChipFleet) -> None:
    (pool,) = fleet.scaled
    economics = pool.system.design.chip.economics
    hour = next(hour for hour in range(24) if pool.schedule.up[hour] > pool.schedule.ready[hour])  # one system starts
    ready, up, idle = pool.schedule.ready[hour], pool.schedule.up[hour], pool.system.idle
    chips = ready * pool.system.power(pool.loads[hour]) + (up - ready) * idle
    servers = up * pool.system.chips * (economics.host_power + economics.scale_out_power * 50e9)
    grid = (chips + servers) * economics.pue / economics.power_supply_efficiency
    assert pool.power[hour] == pytest.approx(grid)
    assert fleet.totals.joules == pytest.approx(sum(pool.power) * 3600)


def test_dollars_of_a_day_are_those_of_all_owned_chips_and_of_what_is_drawn_or_of_hours_that_are_rented(
    fleet: ChipFleet,
) -> None:
    (pool,), totals = fleet.scaled, fleet.totals
    economics, metrics = pool.system.design.chip.economics, pool.system.evaluation.metrics
    owned = max(pool.schedule.needed) * metrics["system_price"] / (float(economics.lifetime) / 86400)
    assert totals.owner_price == pytest.approx(owned + totals.joules / 3.6e6 * 0.08)
    assert totals.rent == pytest.approx(3.6 * totals.chip_hours)
    assert metrics["rent_per_mtoken"] == pytest.approx(3.6 / 3600 / metrics["throughput"] * 1e6)


def test_the_power_at_a_load_lies_between_idle_and_that_at_the_largest_rate(fleet: ChipFleet) -> None:
    (pool,) = fleet.fixed
    system = pool.system
    by_load = [system.power(load) for load in sorted(set(pool.loads))]
    assert by_load == sorted(by_load)
    assert system.idle < by_load[0]
    assert by_load[-1] < 1.05 * system.evaluation.metrics["power"]


def test_two_models_are_the_sum_of_their_fleets(folder: Path, fleet: ChipFleet) -> None:
    (folder / "both.yaml").write_text(
        "models: [{model: llama3_8b, share: 0.75}, {model: qwen3_1b7, share: 0.25, overrides: [\"workload.ttft='300 ms'\"]}]"
    )
    words = [word for word in WORDS if not word.startswith("model=")]
    (both,) = find_fleets(parse_query(words, day="sinusoid", peak="160 Hz", portfolio="both.yaml"))
    assert [pool.model.share for pool in both.scaled] == [0.75, 0.25]
    assert [pool.system.load.ttft for pool in both.scaled] == [0.4, 0.3]
    assert max(both.scaled[0].rates) == pytest.approx(120.0)
    for name in ("joules", "owner_price", "chips", "requests"):
        assert getattr(both.totals, name) == pytest.approx(sum(getattr(pool.totals, name) for pool in both.scaled))
    assert both.scaled[0].system.max_rate == fleet.scaled[0].system.max_rate


def test_chips_stand_in_the_order_of_their_dollars_and_one_that_cannot_serve_says_why(folder: Path) -> None:
    day = write_day(folder, [40.0] * 24)
    words = ["chip=[rtx4090,h200,h100]", *WORDS[1:], "mapping.precision.weights=fp16"]
    words = [word.replace("llama3_8b", "qwen3_14b") for word in words]
    fleets = find_fleets(parse_query(words, day=day))
    assert [fleet.chip for fleet in fleets][-1] == "rtx4090"
    assert "chip.hbm.capacity" in fleets[-1].why
    assert fleets[0].totals.owner_price <= fleets[1].totals.owner_price
    assert "rtx4090" in build_fleet_page(fleet_record(fleets))


def test_the_answer_keeps_to_its_schema_and_says_what_it_assumes(typed: Typed) -> None:
    flags = ["--day", "sinusoid", "--peak", "100 Hz", "--spare", "1", "--cold-start", "3 min"]
    code, out, err = typed("fleet", "--json", *WORDS, *flags)
    assert code == 0, err
    document: Any = json.loads(out)
    jsonschema.Draft202012Validator(build_schema("fleet")).validate(document)
    (record,) = document["fleets"]
    hours = record["models"][0]["hours"]
    assert sum(hour["grid_power_w"] for hour in hours) * 3600 == pytest.approx(record["scaled"]["energy_j"])
    assert sum(hour["system_hours"] for hour in hours) == pytest.approx(record["scaled"]["system_hours"])
    assert record["scaled"]["rented_usd"] is None
    code, out, err = typed("fleet", "--full", *WORDS, *flags)
    assert code == 0, err
    first = " ".join(out.split())
    for text in ("sinusoid.csv", "peak to mean 1.5", "1 spare", "3 min after it starts", "Poisson arrivals", "too few to show"):
        assert text in first
    assert Path("runs/fleet/fleet.html").stat().st_size > 4e5  # with a bundle of Plotly


REFUSED = {
    "chip=h100": "--day",
    "chip=h100 --day sinosoid": "did you mean 'sinusoid'",
    "chip=h100 --day sinusoid --peak 0": "--peak",
    "chip=h100 --day sinusoid --spare 1.5": "--spare",
    "chip=h100 --day sinusoid --cold-start 24h": "--cold-start",
    "chip=h100 --day sinusoid --by price": "--by",
    "chip=h100 --day sinusoid --by rented": "--rent 'h100=2.5 USD/hour'",
    "chip=h100 --day sinusoid --rent h200=2USD/hour": "names none of h100",
    "chip=h100 --day sinusoid --rent 0USD/hour": "not above 0",
    "chip=h100 --day sinusoid --shares 0.5,0.5": "--shares: expected 1",
    "chip=h100 --day sinusoid --portfolio none.yaml": "remove model=",
    "chip=h100 --day sinusoid workload.rate=2Hz": "workload.rate is set by the day's load",
    "chip=h100 --day sinusoid workload.arrivals=offline": "has no rate",
    "chip=h100 --day sinusoid workload=static": "set workload=serving",
    "chip=h100 --day sinusoid study=quickstart": "study is for studies",
    "chip=[h100,h100] --day sinusoid": "listed twice",
    "--day sinusoid": "name a chip",
    "chip=h100 --day sinusoid workload.ttft=1us": "of workload.ttft, has 1 us; a request alone takes that long",
    "chip=h100 --day sinusoid workload.tpot=1us": "of workload.tpot, has 1 us; a request alone takes that long",
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_wrong_question_is_one_line_that_says_what_to_do(line: str, typed: Typed) -> None:
    words = [word for word in WORDS[1:] if word.partition("=")[0] not in line]
    code, out, err = typed("fleet", "--full", *line.split(), *words)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert REFUSED[line] in err


DAYS = {
    "hour,rate\n" + "".join(f"{hour},1\n" for hour in range(24) if hour != 7): "hours 7 are missing",
    "hour,rate\n" + "".join(f"{hour},1\n" for hour in range(25)): "hours 25, 26, 27, 28, 29, ... are missing",
    "hour,rate\n0,1\n0,2\n": "hour 0 is there twice",
    "hour,rate\n0,-1\n": "rate '-1' is not 0 or above",
    "hour,rate\n0,nan\n": "rate 'nan'",
    "hour,rate\n0,many\n": "rate 'many'",
    "hour,rate\n1.5,1\n": "hour '1.5' is not a whole number",
    "hour,load\n0,1\n": "columns hour,rate",
    "": "columns hour,rate",
    "hour,rate\n" + "".join(f"{hour},0\n" for hour in range(24)): "all rates are 0",
    "hour,rate\n99999999999999,1\n": "are missing",
}


@pytest.mark.parametrize("text", DAYS)
def test_a_day_that_is_none_is_refused_by_its_hour(text: str, folder: Path) -> None:
    (folder / "day.csv").write_text(text)
    with pytest.raises(DesignError, match=r"^--day day\.csv: ") as error:
        read_day("day.csv")
    assert DAYS[text] in str(error.value)


def test_rates_of_a_file_may_have_units_and_comments(folder: Path) -> None:
    rows = "\n".join(f"{hour},{hour} mHz" for hour in range(24))
    (folder / "day.csv").write_text(f"# ours\nhour,rate\n\n{rows}\n")
    assert read_day("day.csv").rates == pytest.approx([hour / 1000 for hour in range(24)])


PORTFOLIOS = {
    "models: [{model: llama3_8b, share: 0.7}]": "sum to 1",
    "models: [{model: llama3_8b, share: 1.5}, {model: qwen3_8b, share: -0.5}]": "above 0",
    "models: [{model: llama3_8b}]": "entry 1 needs model and share",
    "models: []": "expected models:",
    "[llama3_8b]": "expected models:",
    "models: [{model: llama3_8b, share: 1, overrides: mapping.both.tp=1}]": "list of texts",
    "models: [{model: llama3_8b, share: 1, overrides: ['workload.rate=1 Hz']}]": "set by the day's load",
}


@pytest.mark.parametrize("text", PORTFOLIOS)
def test_a_portfolio_that_is_none_is_refused(text: str, folder: Path) -> None:
    (folder / "mine.yaml").write_text(text)
    with pytest.raises(DesignError) as error:
        parse_query(["chip=h100"], day="sinusoid", portfolio="mine.yaml")
    assert PORTFOLIOS[text] in str(error.value)


def test_no_rent_is_no_rent_metric() -> None:
    words = ["chip=h100", "model=llama3_8b", "workload.batch=[1]"]
    assert "rent_per_mtoken" not in dse.evaluate(words).metrics
    rented = dse.evaluate([*words, "+chip.economics.rent='7.2 USD/hour'"]).metrics
    assert rented["rent_per_mtoken"] == pytest.approx(7.2 / 3600 / rented["throughput"] * 1e6)
    assert {name: value for name, value in rented.items() if name != "rent_per_mtoken"} == dict(dse.evaluate(words).metrics)
