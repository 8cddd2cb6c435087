"""Fewest systems that carry a day's load by hour, with energy and dollars, for ``dse fleet``.

A system is the chips that serve one model together, as its mapping says. Its maximum rate is that of `workload.rate=max`
under the workload's arrival process. The load of an hour is spread evenly over the systems that serve, spare ones
included, and each is evaluated at its part of it. Systems that start draw idle power; those that are off draw none.
Within an hour the rate is its mean. Several models have systems of their own, each a share of the requests.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import get_args

import numpy as np
import yaml

from dse.analysis.evaluation import Evaluation, evaluate_config
from dse.analysis.fleet_schedule import SystemSchedule, count_systems, schedule_systems
from dse.analysis.withheld_metrics import computed_metrics
from dse.config.compose import compose
from dse.config.day_load import DayLoad, read_day
from dse.config.record_parser import parse_setting, parse_value
from dse.config.untrusted_files import check_stored_overrides, read_untrusted_yaml
from dse.documents.fleet_document import FleetOrder
from dse.evaluators.accounting.power_profile import idle_power
from dse.evaluators.accounting.serving_instances.pipeline_fleet import decode_only_cores
from dse.evaluators.silicon.price import grid_power
from dse.space.design import Design
from dse.space.errors import DesignError, suggest_nearest
from dse.space.fields import integer_field, option_field, quantity_field
from dse.space.software import SERVED_PIPELINES, software_of
from dse.space.workload import ServingLoad
from dse.terminal.progress import ProgressBar

HOUR, DAY = 3600.0, 86400.0
"""Seconds of an hour. [s]"""

ORDERS: tuple[FleetOrder, ...] = get_args(FleetOrder)
"""What chips are put in order by, the least first."""

MAX_SYSTEMS = 1_000_000
"""Systems of an hour at most."""

FLAGS = {
    "--spare": integer_field("systems of each model beside those that the rate takes", low=0, high=MAX_SYSTEMS),
    "--cold-start": quantity_field("s", "time from the start of a system until it serves", below=DAY),
    "--by": option_field("order of chips", ORDERS),
}
"""Flags whose values are declared settings."""

EXAMPLE = "dse fleet chip=h100 model=llama3_8b workload.ttft='1 s' workload.tpot='50 ms' --day sinusoid --peak '200 Hz'"

SET_BY_DAY = ("workload.rate", "workload.rate_scale", "workload.users")
"""Settings that the day's load decides."""

PROCESSES = ("poisson", "gamma", "constant")
"""Arrival processes that have a rate."""


@dataclass(frozen=True)
class FleetModel:
    """One model of a fleet, with its share of the requests.

    Attributes:
        share: of all requests.
        overrides: of this model alone.
    """

    name: str
    share: float
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class FleetQuery:
    """One question of ``dse fleet``.

    Attributes:
        overrides: of all chips and models.
        spare: systems of each model beside those that the rate takes.
        cold_start: time from the start of a system until it serves. [s]
        by: a word of `ORDERS`.
        rents: of chips by name, as text; others have that of their file, if any.
    """

    chips: tuple[str, ...]
    models: tuple[FleetModel, ...]
    overrides: tuple[str, ...]
    day: DayLoad
    spare: int
    cold_start: float
    by: FleetOrder
    rents: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FleetSystem:
    """One system of a chip for one model, at its maximum rate and at lower ones.

    Attributes:
        evaluation: at the maximum rate.
        chips: that it has.
        arrivals: process of the arrivals at it, as text.
        idle: power of all its chips without requests; NaN if energy is not known. [W]
        loads: by rate of one system, power of its chips and SLO attainment. [W], [1]
    """

    evaluation: Evaluation
    max_rate: float
    chips: float
    arrivals: str
    idle: float
    loads: Mapping[float, tuple[float, float]] = field(default_factory=dict)

    @property
    def design(self) -> Design:
        """Chip and mapping of the system."""
        return self.evaluation.design

    @property
    def load(self) -> ServingLoad:
        """Requests of the model, with their bounds."""
        case = self.evaluation.workload.cases[0]
        assert isinstance(case, ServingLoad)
        return case

    @property
    def price(self) -> float:
        """Price of its chips with their share of servers; NaN if prices are not known. [USD]"""
        return computed_metrics(self.evaluation.metrics).get("system_price", math.nan)

    @property
    def rent_per_second(self) -> float:
        """Rent of its chips; NaN if it is not known. [USD/s]"""
        economics = self.design.chip.economics
        return math.nan if economics is None or economics.rent is None else self.chips * float(economics.rent)

    @property
    def tokens(self) -> float:
        """Mean output tokens of a request."""
        return float(self.load.requests.output.mean())

    def power(self, rate: float) -> float:
        """Power of its chips at a rate; idle at 0. [W]"""
        return self.loads[rate][0] if rate else self.idle

    def attainment_at(self, rate: float) -> float:
        """Share of the requests within their SLO at a rate; NaN without requests."""
        return self.loads[rate][1] if rate else math.nan


@dataclass(frozen=True)
class FleetTotals:
    """Sums of energy, hours and dollars over a mean day.

    Attributes:
        requests, tokens: requests and output tokens.
        system_hours, chip_hours: hours in which systems, or chips, are up. [h]
        busy_hours: system-hours at the maximum rate that the requests take. [h]
        joules: drawn from the grid. [J]
        capital: share of the price of all chips that are owned; electricity: of what is drawn. [USD]
        rent: of the hours in which chips are up; NaN if it is not known. [USD]
        chips: that are owned.
    """

    requests: float
    tokens: float
    system_hours: float
    chip_hours: float
    busy_hours: float
    joules: float
    capital: float
    electricity: float
    rent: float
    chips: float

    @property
    def owner_price(self) -> float:
        """Dollars of a day where chips are owned: a day's part of their price, and electricity. [USD]"""
        return self.capital + self.electricity

    @property
    def utilisation(self) -> float:
        """Load over the maximum rate, mean over the hours in which systems are up."""
        return self.busy_hours / self.system_hours if self.system_hours else 0.0

    def per_mtoken(self, dollars: float) -> float:
        """Dollars of a day over its million output tokens. [USD]"""
        return dollars / self.tokens * 1e6


@dataclass(frozen=True, eq=False)
class FleetPool:
    """Systems of one model over the hours of a load.

    Attributes:
        rates: requests to the model, by hour. [1/s]
    """

    model: FleetModel
    system: FleetSystem
    rates: tuple[float, ...]
    schedule: SystemSchedule

    @cached_property
    def loads(self) -> tuple[float, ...]:
        """Rate of each system that serves, by hour. [1/s]"""
        return tuple(rate / ready if ready else 0.0 for rate, ready in zip(self.rates, self.schedule.ready, strict=True))

    @cached_property
    def power(self) -> tuple[float, ...]:
        """Power drawn from the grid, by hour, with supply losses and the data centre's share. [W]"""
        chip, system = self.system.design.chip, self.system
        watts = []
        for load, ready, up in zip(self.loads, self.schedule.ready, self.schedule.up, strict=True):
            chips = ready * system.power(load) + (up - ready) * system.idle
            watts.append(math.nan if chip.economics is None else float(np.squeeze(grid_power(chip, up * system.chips, chips))))
        return tuple(watts)

    @property
    def totals(self) -> FleetTotals:
        """Sums of the model's systems over a mean day."""
        days, system = len(self.rates) * HOUR / DAY, self.system
        economics, hours = system.design.chip.economics, self.schedule.system_hours / days
        joules, requests = sum(self.power) * HOUR / days, sum(self.rates) * HOUR / days
        return FleetTotals(
            requests=requests,
            tokens=requests * system.tokens,
            system_hours=hours,
            chip_hours=hours * system.chips,
            busy_hours=requests / HOUR / system.max_rate,
            joules=joules,
            capital=math.nan if economics is None else self.schedule.peak * system.price * DAY / float(economics.lifetime),
            electricity=math.nan if economics is None else joules * float(economics.electricity_price),
            rent=hours * HOUR * system.rent_per_second,
            chips=self.schedule.peak * system.chips,
        )


@dataclass(frozen=True, eq=False)
class ChipFleet:
    """Fleet of one kind of chip.

    Attributes:
        scaled: systems of each model where they start and stop with the load.
        fixed: the same where all of the busiest hour are always up.
        why: why there is none; empty string if there is one.
    """

    chip: str
    query: FleetQuery
    scaled: tuple[FleetPool, ...] = ()
    fixed: tuple[FleetPool, ...] = ()
    why: str = ""

    @cached_property
    def totals(self) -> FleetTotals:
        """A mean day of systems that start and stop, all models together."""
        return _add_totals(self.scaled)

    @cached_property
    def fixed_totals(self) -> FleetTotals:
        """The same of systems that are always up."""
        return _add_totals(self.fixed)


def _add_totals(pools: Sequence[FleetPool]) -> FleetTotals:
    every = [pool.totals for pool in pools]
    return FleetTotals(**{name: sum(getattr(totals, name) for totals in every) for name in FleetTotals.__annotations__})


def find_fleets(query: FleetQuery, *, trust: bool = False) -> list[ChipFleet]:
    """Fleet of each chip for the load of a day, the least first by the query's order.

    Raises:
        DesignError: a wrong question, or no chip that carries the load.
    """
    fleets = []
    for chip in query.chips:
        try:
            fleets.append(_find_fleet(chip, query, trust))
        except DesignError as error:
            fleets.append(ChipFleet(chip, query, why=str(error)))
    if all(fleet.why for fleet in fleets):
        raise DesignError(f"fleet: {'; '.join(f'{fleet.chip}: {fleet.why}' for fleet in fleets)}")
    if query.by == "rented" and (unknown := [fleet.chip for fleet in fleets if not fleet.why and _has_no_rent(fleet)]):
        raise DesignError(f"--by rented: no rent of {', '.join(unknown)}; set --rent '{unknown[0]}=2.5 USD/hour'")
    return sorted(fleets, key=lambda fleet: _order_value(fleet, query.by))


def _has_no_rent(fleet: ChipFleet) -> bool:
    return math.isnan(fleet.totals.rent)


def _order_value(fleet: ChipFleet, by: str) -> float:
    """What fleets are put in order by; those that do not exist, or whose value is not known, come last."""
    if fleet.why:
        return math.inf
    totals = fleet.totals
    value = {"owned": totals.owner_price, "rented": totals.rent, "energy": totals.joules, "chips": totals.chips}[by]
    return 1e300 if math.isnan(value) else value


def _find_fleet(chip: str, query: FleetQuery, trust: bool) -> ChipFleet:
    """Fleet of one chip: systems of each model with the load."""
    scaled, fixed = [], []
    with ProgressBar(f"fleet of {chip}") as progress:
        for done, model in enumerate(query.models):
            progress.update(done, len(query.models), f"maximum rate of {model.name}")
            system, words = _find_max_rate(chip, model, query, trust)
            rates = query.day.times(model.share).rates
            if max(rates) / system.max_rate > MAX_SYSTEMS:
                raise DesignError(
                    f"{model.name}: {max(rates):.4g} requests/s take more than {MAX_SYSTEMS:,} systems, which serve "
                    f"{system.max_rate:.4g} each; lower --peak"
                )
            needed = [count_systems(rate, system.max_rate, query.spare) for rate in rates]
            pools = [
                FleetPool(model, system, rates, schedule)
                for schedule in (
                    schedule_systems(needed, query.cold_start / HOUR),
                    schedule_systems([max(needed)] * len(needed), 0.0),
                )
            ]
            progress.update(done, len(query.models), f"{model.name} at the loads of the day")
            system = _with_loads(system, words, {load for pool in pools for load in pool.loads if load}, trust)
            scaled.append(replace(pools[0], system=system))
            fixed.append(replace(pools[1], system=system))
    return ChipFleet(chip, query, tuple(scaled), tuple(fixed))


def _find_max_rate(chip: str, model: FleetModel, query: FleetQuery, trust: bool) -> tuple[FleetSystem, list[str]]:
    """A system at its maximum rate, and its overrides without the rate.

    Raises:
        DesignError: a limit that is violated, or a bound that no rate keeps.
    """
    rent = [f"++chip.economics.rent='{query.rents[chip]}'"] if chip in query.rents else []
    words = [f"chip={chip}", *rent, *query.overrides, f"model={model.name}", *model.overrides]
    config = compose([*words, "workload.rate=max"], trust=trust)
    evaluation = evaluate_config(config)
    if evaluation.infeasible is not None:
        raise DesignError(f"{model.name}: {evaluation.infeasible}")
    metrics = computed_metrics(evaluation.metrics)
    design = evaluation.design
    apart = decode_only_cores(design) if software_of(design.mapping) == SERVED_PIPELINES else 0
    chips = metrics.get("devices", 1.0)
    idle = idle_power(design.chip, chips, apart) if "power" in metrics else math.nan
    process, cv = config["workload"]["arrivals"], config["workload"].get("cv")
    arrivals = {"auto": "Poisson", "poisson": "Poisson", "gamma": f"gamma (CV {cv})"}.get(process, str(process))
    return FleetSystem(evaluation, metrics["max_rate"], chips, arrivals, idle), words


def _with_loads(system: FleetSystem, words: Sequence[str], rates: set[float], trust: bool) -> FleetSystem:
    """A system with its power at several rates.

    The power is that of the long run: idle power, and the energy that requests add at the rate, without the beginning and
    the end of the simulated requests.
    """
    if not rates:
        return system
    distinct = sorted(rates)
    text = ", ".join(f"{rate:.12g} Hz" for rate in distinct)
    evaluation = evaluate_config(compose([*words, f"workload.rate=[{text}]"], trust=trust))
    loads = {}
    for rate, case in zip(distinct, evaluation.cases, strict=True):
        metrics = computed_metrics(case.metrics)
        dynamic = (metrics.get("power", math.nan) - system.idle) / metrics["request_throughput"]
        loads[rate] = system.idle + rate * dynamic, metrics["slo_attainment"]
    return replace(system, loads=loads)


def parse_query(
    words: Sequence[str],
    *,
    day: str = "",
    peak: str = "",
    spare: str = "",
    cold_start: str = "",
    shares: str = "",
    portfolio: str = "",
    rent: str = "",
    by: str = "",
    trust: bool = False,
) -> FleetQuery:
    """Fleet question from overrides and the values of flags; empty strings are flags that nobody gave.

    Raises:
        DesignError: what is wrong, with what to write.
    """
    names = _parse_list([word for word in words if word.startswith("chip=")], "chip")
    if not names:
        raise DesignError(f"fleet: name a chip, as in {EXAMPLE}")
    others = [word for word in words if not word.startswith("chip=")]
    _refuse_overrides(others)
    if not any(word.startswith("workload=") for word in others):
        others = ["workload=serving", *others]
    models, others = _read_models(others, shares, portfolio, trust)
    if not day:
        raise DesignError(
            f"fleet: name a day's load, as in --day sinusoid --peak '200 Hz', or --day FILE with hour,rate; {EXAMPLE}"
        )
    typed = {"--spare": spare or 0, "--cold-start": cold_start or 0.0, "--by": by or ORDERS[0]}
    many, starts, _ = (parse_setting(value, FLAGS[flag], flag) for flag, value in typed.items())
    order = next(order for order in ORDERS if order == (by or ORDERS[0]))
    return FleetQuery(names, models, tuple(others), read_day(day, peak), many, starts, order, _parse_rents(rent, names))


def _parse_rents(text: str, chips: Sequence[str]) -> dict[str, str]:
    """Rents by chip, as in ``h100=2.5 USD/hour, h200=3.5 USD/hour``; those of one chip may leave out its name."""
    rents = {}
    for entry in text.split(",") if text else ():
        name, _, rent = entry.strip().rpartition("=")
        name = name or (chips[0] if len(chips) == 1 else "")
        if name not in chips:
            raise DesignError(f"--rent: {entry.strip()!r} names none of {', '.join(chips)}; write {chips[0]}=2.5 USD/hour")
        if not parse_value(rent, "USD/s", f"--rent {name}") > 0:
            raise DesignError(f"--rent {name}: {rent!r} is not above 0; write {name}=2.5 USD/hour")
        rents[name] = rent
    return rents


def _parse_list(words: Sequence[str], key: str) -> tuple[str, ...]:
    """Names of the last override of a group, as in ``chip=[h100,h200]``; none if there is no such override."""
    if not words:
        return ()
    names = tuple(name.strip() for name in words[-1].partition("=")[2].strip("[]").split(","))
    if not all(names):
        raise DesignError(f"fleet: an empty name in {words[-1]}")
    if len(set(names)) < len(names):
        raise DesignError(f"fleet: a {key} is listed twice in {', '.join(names)}")
    return names


def _refuse_overrides(words: Sequence[str]) -> None:
    """Refuse overrides of studies, and those that the day's load decides."""
    for word in words:
        key, _, value = word.lstrip("+").partition("=")
        if key in ("study", "chips", "mappings"):
            raise DesignError(f"fleet: {key} is for studies; set chip=[...] and the workload")
        if key in SET_BY_DAY:
            raise DesignError(f"fleet: {key} is set by the day's load; remove it, and set --peak")
        if key == "workload.arrivals" and value not in PROCESSES:
            raise DesignError(f"fleet: workload.arrivals={value} has no rate; {suggest_nearest(value, PROCESSES)}")
        if key == "workload" and value != "serving":
            raise DesignError(f"fleet: workload={value} has no rate of requests; set workload=serving, or leave it out")


def _read_models(words: list[str], shares: str, portfolio: str, trust: bool) -> tuple[tuple[FleetModel, ...], list[str]]:
    """Models with their shares of the load, and overrides without the models."""
    names = _parse_list([word for word in words if word.startswith("model=")], "model")
    others = [word for word in words if not word.startswith("model=")]
    if portfolio:
        if names or shares:
            raise DesignError("--portfolio: has the models and their shares; remove model= and --shares")
        return _check_shares(_read_portfolio(Path(portfolio), trust), "--portfolio"), others
    if not names:
        raise DesignError(f"fleet: name a model, as in {EXAMPLE}")
    if not shares:
        if len(names) > 1:
            raise DesignError(f"--shares: needed for {len(names)} models, as in --shares 0.7,0.3; or set --portfolio FILE")
        return (FleetModel(names[0], 1.0),), others
    parts = [parse_value(part, "1", "--shares") for part in shares.strip("[]").split(",")]
    if len(parts) != len(names):
        raise DesignError(f"--shares: expected {len(names)}, one for each of {', '.join(names)}, got {len(parts)}")
    return _check_shares([FleetModel(name, part) for name, part in zip(names, parts, strict=True)], "--shares"), others


def _check_shares(models: Sequence[FleetModel], where: str) -> tuple[FleetModel, ...]:
    """Models whose shares are above 0 and sum to 1."""
    whole = sum(model.share for model in models)
    if not all(model.share > 0 for model in models) or abs(whole - 1) > 1e-6:
        texts = ", ".join(f"{model.name} {model.share:g}" for model in models)
        raise DesignError(f"{where}: shares must be above 0 and sum to 1, got {texts} (sum {whole:g})")
    return tuple(models)


def _read_portfolio(path: Path, trust: bool) -> list[FleetModel]:
    """Models of a YAML file: each with its share, and overrides of its own."""
    example = "models: [{model: llama3_8b, share: 0.7, overrides: [mapping.both.tp=1]}, ...]"
    if not path.is_file():
        raise DesignError(f"--portfolio: no file {str(path)!r}; expected {example}")
    content = yaml.safe_load(read_untrusted_yaml(path, trust=trust))
    entries = content.get("models") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise DesignError(f"--portfolio {path}: expected {example}")
    models = []
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or not {"model", "share"} <= set(entry) <= {"model", "share", "overrides"}:
            raise DesignError(f"--portfolio {path}: entry {number} needs model and share, and may have overrides")
        overrides = entry.get("overrides") or []
        if not isinstance(overrides, list) or not all(isinstance(word, str) for word in overrides):
            raise DesignError(f"--portfolio {path}: overrides of {entry['model']} are a list of texts, as on the command line")
        overrides = overrides if trust else check_stored_overrides(overrides, str(path))
        _refuse_overrides(overrides)
        share = parse_value(entry["share"], "1", f"--portfolio {path}: share of {entry['model']}")
        models.append(FleetModel(str(entry["model"]), share, tuple(overrides)))
    return models
