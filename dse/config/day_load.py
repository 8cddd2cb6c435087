"""Rates of requests by the hour, read from a CSV file with the columns hour and rate."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dse.config.record_parser import parse_value
from dse.space.errors import DesignError, suggest_nearest

HOURS = 24
"""Hours of a day, which a file has each."""

SHIPPED_DAYS = Path(__file__).parents[1] / "conf" / "day"


@dataclass(frozen=True)
class DayLoad:
    """Mean rate of each hour of one day or several, after which the first hour comes again.

    Attributes:
        name: of its file.
        rates: of each hour, from hour 0. [1/s]
    """

    name: str
    rates: tuple[float, ...]

    @property
    def days(self) -> int:
        """Number of days that the rates cover."""
        return len(self.rates) // HOURS

    @property
    def peak(self) -> float:
        """Rate of the busiest hour. [1/s]"""
        return max(self.rates)

    @property
    def mean(self) -> float:
        """Mean rate over all hours. [1/s]"""
        return sum(self.rates) / len(self.rates)

    def times(self, share: float) -> "DayLoad":
        """The same hours with a share of the requests."""
        return DayLoad(self.name, tuple(rate * share for rate in self.rates))


def read_day(name: str, peak: str = "") -> DayLoad:
    """Read the rates of a day by hour from a file.

    Args:
        name: a CSV file, or a day of ``conf/day`` by its name.
        peak: rate of the busiest hour, to which all rates are scaled; empty string if the file has rates in 1/s.

    Raises:
        DesignError: no such file, hours that are missing, or rates that are none.
    """
    path = _find_day(name)
    rates = _read_rates(path)
    if not max(rates) > 0:
        raise DesignError(f"--day {path}: all rates are 0; a day needs an hour with requests")
    if not peak:
        return DayLoad(path.name, rates)
    largest = parse_value(peak, "Hz", "--peak")
    if not 0 < largest < math.inf:
        raise DesignError(f"--peak: {peak!r} is not above 0; write the rate of the busiest hour, as in --peak '200 Hz'")
    return DayLoad(path.name, tuple(rate * (largest / max(rates)) for rate in rates))


def _find_day(name: str) -> Path:
    """The file of a day: one of the user's, or one that ships."""
    path, shipped = Path(name), SHIPPED_DAYS / f"{name}.csv"
    if path.is_file():
        return path
    if "/" not in name and shipped.is_file():
        return shipped
    known = sorted(day.stem for day in SHIPPED_DAYS.glob("*.csv"))
    raise DesignError(f"--day: no file {name!r} here, and no day of that name; {suggest_nearest(name, known)}")


def _read_rates(path: Path) -> tuple[float, ...]:
    """Rates of a file, by hour from 0; each hour once, and whole days."""
    where = f"--day {path}"
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DesignError(f"{where}: cannot be read as text: {error}") from None
    rows = list(csv.DictReader(line for line in lines if line.strip() and not line.startswith("#")))
    if not rows or not {"hour", "rate"} <= set(rows[0]):
        raise DesignError(f"{where}: expected a CSV file with the columns hour,rate, such as 0,35.5")
    hours: dict[int, float] = {}
    for row in rows:
        hour, rate = _parse_row(row, where)
        if hour in hours:
            raise DesignError(f"{where}: hour {hour} is there twice; keep one of them")
        hours[hour] = rate
    _refuse_missing(list(hours), where)
    return tuple(hours[hour] for hour in range(len(hours)))


def _parse_row(row: dict[str, str], where: str) -> tuple[int, float]:
    """Hour and rate of one row. [1/s]"""
    hour, text = (row["hour"] or "").strip(), (row["rate"] or "").strip()
    if not hour.isdecimal() or not hour.isascii():
        raise DesignError(f"{where}: hour {hour!r} is not a whole number from 0")
    try:
        rate = float(text) if text[-1:].isdigit() or text[-1:] == "." else parse_value(text, "Hz", where)
    except ValueError:
        raise DesignError(f"{where}: hour {hour}: rate {text!r} is no number") from None
    if not 0 <= rate < math.inf:
        raise DesignError(f"{where}: hour {hour}: rate {text!r} is not 0 or above; write the mean rate of the hour in 1/s")
    return int(hour), rate


def _refuse_missing(hours: Sequence[int], where: str) -> None:
    """Refuse hours that do not make whole days."""
    wanted = max(HOURS, HOURS * math.ceil((min(max(hours), len(hours) * HOURS) + 1) / HOURS))
    missing = sorted(set(range(wanted)) - set(hours))
    if missing:
        listed = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise DesignError(f"{where}: hours {listed} are missing; a day has the hours 0 to 23, and a second day 24 to 47")
