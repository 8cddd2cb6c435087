"""Records of the document of ``dse fleet``: systems for the load of a day."""

from collections.abc import Sequence
from typing import Annotated, Literal

from dse.documents.records import Document, Record
from dse.documents.shared_records import PhysicsVersion, StackBasisRecord, WithoutEffect

FleetOrder = Literal["owned", "rented", "energy", "chips"]


class FleetTotalsRecord(Record):
    """A mean day, all models together."""

    chips_owned: Annotated[int, "those of the busiest hour"]
    system_hours: Annotated[float, "h; in which systems are up"]
    chip_hours: Annotated[float, "h; in which chips are up"]
    utilisation: Annotated[float, "load over the maximum rate, mean over these hours"]
    requests: Annotated[float, "requests of a day"]
    output_tokens: Annotated[float, "token; of a day"]
    energy_j: Annotated[float | None, "J; drawn from the grid; null where energy is not known"]
    owned_usd: Annotated[
        float | None, "USD; capital and electricity, of chips at what they cost to make; null where prices are not known"
    ]
    capital_usd: Annotated[float | None, "USD; a day's share of the price of all chips that are owned"]
    electricity_usd: Annotated[float | None, "USD"]
    rented_usd: Annotated[float | None, "USD; rent of the hours in which chips are up; null without a rent"]
    owned_per_mtoken_usd: Annotated[float | None, "USD of a million output tokens"]
    rented_per_mtoken_usd: Annotated[float | None, "USD of a million output tokens"]


class FleetHourRecord(Record):
    """One hour of a day, of the systems of one model."""

    hour: Annotated[int, "from 0"]
    rate_hz: Annotated[float, "requests/s to the model"]
    systems_needed: Annotated[int, "that the rate takes, spare ones included"]
    systems_ready: Annotated[int, "that serve: more where a system could not start again in time"]
    system_hours: Annotated[float, "h; in which systems are up: those that serve or start"]
    load_hz: Annotated[float, "requests/s of each system that serves"]
    utilisation: Annotated[float, "that load over the maximum rate"]
    slo_attainment: Annotated[float | None, "share of the requests within their SLO; null without requests"]
    grid_power_w: Annotated[float | None, "W; of all systems of the model; null where energy is not known"]


class FleetModelRecord(Record):
    """Systems of one model, hour by hour."""

    model: str
    share: Annotated[float, "of all requests"]
    overrides: Annotated[Sequence[str], "of this model alone"]
    text: Annotated[str, "the system, its maximum rate and its bounds, in words"]
    note: Annotated[str | None, "why the maximum rate need not last; null where it does"]
    stack_basis: StackBasisRecord | None
    extrapolated: Annotated[str | None, "which constants of the stack were fitted on other chips alone, in words"]
    max_rate_hz: Annotated[float, "requests/s of a system; the largest that keeps the bounds"]
    chips_of_a_system: int
    system_price_usd: Annotated[float | None, "USD; of its chips with their share of servers"]
    rent_usd_per_hour: Annotated[float | None, "USD/h; of its chips; null where no rent is known"]
    idle_power_w: Annotated[float | None, "W; of its chips without requests"]
    hours: Annotated[Sequence[FleetHourRecord], "systems that start and stop with the load"]
    fixed_hours: Annotated[Sequence[FleetHourRecord], "systems of the busiest hour that are always up"]


class DayRecord(Record):
    """The load of a day by hour."""

    name: Annotated[str, "of the file"]
    text: Annotated[str, "the load in words"]
    rates_hz: Annotated[Sequence[Annotated[float, "requests/s"]], "mean of each hour, from hour 0"]
    peak_hz: Annotated[float, "requests/s"]
    mean_hz: Annotated[float, "requests/s"]


class ChipFleetRecord(Record):
    """The fleets of one chip, with systems that follow the load and without."""

    chip: str
    why_not: Annotated[str | None, "why there is no fleet; null if there is one"]
    scaled: Annotated[FleetTotalsRecord | None, "systems that start and stop with the load"]
    fixed: Annotated[FleetTotalsRecord | None, "systems of the busiest hour that are always up"]
    models: Sequence[FleetModelRecord]


class FleetDocument(Document):
    """The fewest systems for a day's load, by hour, with energy and dollars of the day."""

    STAMP = "dse/fleet/1"
    COMMAND = "dse fleet --json"

    physics: PhysicsVersion
    day: DayRecord
    systems: Annotated[str, "spare systems, cold start and arrivals, in words"]
    assumptions: Annotated[Sequence[str], "what the answer assumes, in words"]
    spare: Annotated[int, "systems of each model beside those that the rate takes"]
    cold_start_s: Annotated[float, "s; from the start of a system until it serves"]
    by: Annotated[FleetOrder, "order of the fleets, the least first"]
    fleets: Sequence[ChipFleetRecord]
    without_effect: WithoutEffect
