"""Published speed of real machines: tokens/s of a user and of the system, from rows that ship.

A point needs the speed that a user gets as well as that of all devices, so that rows of offline benchmarks, which state
the latter alone, give none.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from dse.accuracy.validate import compose_question, overrides_of, parse_value_range, read_rows
from dse.config.untrusted_files import SHIPPED_CONF, SHIPPED_STUDIES
from dse.config.yaml_files import listed_defaults, read_document
from dse.evaluators import evaluate
from dse.space.design import stack_designs
from dse.space.published import is_said
from dse.space.units import parse_quantity
from dse.space.workload import BatchCase

RATES, USER_RATES, TIMES = ("throughput", "decode_throughput"), ("tokens_per_s_per_user",), ("tpot", "latency")
"""Metrics of rows that say how fast a machine is: of all devices, of a user, and times of a token and a batch."""

DIE_AREAS = "silicon"
"""Study whose rows have the published area of dies."""


@dataclass(frozen=True)
class MeasuredPoint:
    """Published speed of one real machine under one batch.

    Attributes:
        id, where: of its row.
        chip: name of the machine's preset.
        text: batch, lengths and formats.
        user_rate: tokens/s of one user. [token/s]
        rate: tokens/s of all devices. [token/s]
        has_prompt: whether the time of the prompt counts in the user's tokens/s, which is then a lower bound.
        has_published_area: whether the area of its die is published; else it is that of the silicon model.
        simulated: metrics of the same machine and batch by the model.
    """

    id: str
    where: str
    chip: str
    text: str
    user_rate: float
    rate: float
    has_prompt: bool
    has_published_area: bool
    simulated: dict[str, float]

    def throughput_per(self, metric: str, inverse: float = 0.0) -> float:
        """Measured throughput over a resource, which is that of the simulated machine; NaN if unknown.

        Args:
            metric: throughput over the resource, as `throughput_per_system_mm2`, or the resource over throughput.
            inverse: factor over the metric in the latter case, as 1.0 of `energy_per_token`; else 0.
        """
        simulated = self.simulated.get(metric, np.nan)
        return self.rate * (inverse / simulated if inverse else simulated) / self.simulated.get("throughput", np.nan)


@cache
def measured_points(models: frozenset[str], metrics: frozenset[str]) -> tuple[MeasuredPoint, ...]:
    """Points of real machines that serve some models in static batches.

    Args:
        models: names of the presets of models.
        metrics: of the simulated machine that points keep.
    """
    speeds: dict[tuple[str, ...], dict[str, tuple[dict[str, str], float]]] = {}
    for row in _speed_rows():
        overrides = overrides_of(row, "overrides")
        if models.intersection(word.partition("=")[2] for word in overrides if word.startswith("model=")):
            speeds.setdefault(overrides, {}).setdefault(row["metric"], (row, _si_value(row)))
    points = (_point(overrides, values, metrics) for overrides, values in speeds.items())
    return tuple(point for point in points if point is not None)


@cache
def _speed_rows() -> tuple[dict[str, str], ...]:
    """Rows of shipped studies with a speed in its own unit."""
    rows = (row for path in sorted(SHIPPED_STUDIES.glob("*/published.csv")) for _, row in read_rows(path))
    known = (*RATES, *USER_RATES, *TIMES)
    return tuple(row for row in rows if row["metric"] in known and not row["baseline"] and row["unit"] not in ("", "ratio"))


def _si_value(row: dict[str, str]) -> float:
    """Published value, or the geometric middle of a range. [token/s] or [s]"""
    low, high = parse_value_range(row["value"])
    return float(np.sqrt(low * high)) * parse_quantity(f"1 {row['unit']}", "s" if row["metric"] in TIMES else "token/s")


def _point(
    overrides: tuple[str, ...], values: dict[str, tuple[dict[str, str], float]], metrics: frozenset[str]
) -> MeasuredPoint | None:
    """Point of the rows with equal overrides; None if the machine is none that exists, or speeds are unknown."""
    chip = next((word.partition("=")[2] for word in overrides if word.startswith("chip=")), "")
    if chip not in real_machines():
        return None
    area = published_die_areas().get(chip)
    question = compose_question(overrides).question
    has_area = area is not None or is_said(question.base.chip, "die_area")
    if area is not None and not is_said(question.base.chip, "die_area") and not _states_area(overrides):
        question = compose_question((*overrides, f"+chip.published.die_area={area:g} mm2")).question
    case = question.workload.cases[0]
    if not isinstance(case, BatchCase) or len(case.requests) > 1:
        return None
    ((batch, prompt, output),) = case.requests
    speeds = {metric: value for metric, (_, value) in values.items()}
    rate, user_rate, has_prompt = _rates(speeds, float(batch), float(output))
    outcomes = evaluate(stack_designs([question.base]), question.workload, metrics={*metrics, "throughput"})
    simulated = {name: float(outcomes.columns[name][0]) for name in {*metrics, "throughput"} if name in outcomes.columns}
    formats = question.base.mapping.precision
    text = f"batch {batch:,}, {prompt:,} in, {output:,} out, {formats.weights} weights"
    row = next(iter(values.values()))[0]
    return MeasuredPoint(row["id"], row["where"], chip, text, user_rate, rate, has_prompt, has_area, simulated)


def _rates(speeds: dict[str, float], batch: float, output: float) -> tuple[float, float, bool]:
    """Tokens/s of all devices and of a user, and whether the latter has the prompt's time in it.

    >>> _rates({"tpot": 0.01}, 32.0, 2.0), _rates({"throughput": 640.0}, 32.0, 128.0)
    ((3200.0, 100.0, False), (640.0, 20.0, True))
    """
    of_tokens = {name: speeds[name] for name in USER_RATES if name in speeds}
    of_tokens |= {"tpot": 1 / speeds["tpot"]} if "tpot" in speeds else {}
    of_tokens |= {"decode_throughput": speeds["decode_throughput"] / batch} if "decode_throughput" in speeds else {}
    if of_tokens:
        user_rate = next(iter(of_tokens.values()))
        return speeds.get("decode_throughput", user_rate * batch), user_rate, False
    rate = speeds["throughput"] if "throughput" in speeds else batch * output / speeds["latency"]
    return rate, rate / batch, True


def _states_area(overrides: Iterable[str]) -> bool:
    """Whether overrides change the die, so that a published area is another one's."""
    return any(word.lstrip("+").startswith(("chip.cores", "chip.l2.", "chip.die.", "chip.core.")) for word in overrides)


@cache
def published_die_areas() -> dict[str, float]:
    """Published area of one die by the name of its chip, from the rows of studies/silicon. [mm2]"""
    areas = {}
    for _, row in read_rows(SHIPPED_STUDIES / DIE_AREAS / "published.csv"):
        if row["metric"] == "die_mm2":
            (chip,) = (word.partition("=")[2] for word in overrides_of(row, "overrides") if word.startswith("chip="))
            areas[chip] = parse_value_range(row["value"])[0]
    return areas


@cache
def real_machines() -> frozenset[str]:
    """Presets of chips that exist: those that name a vendor, and those whose die has a published area."""
    return frozenset({*published_die_areas(), *_chips_with_vendor()})


def _chips_with_vendor() -> list[str]:
    """Names of the presets of chips whose file, or the one that it extends, names a vendor."""
    files = {path.stem: read_document(path) for path in (SHIPPED_CONF / "chip").glob("*.yaml")}

    def has_vendor(name: str) -> bool:
        parents = [parent for group, parent in listed_defaults(files[name]) if not group and parent in files]
        return "vendor" in files[name] or any(has_vendor(parent) for parent in parents)

    return [name for name in files if has_vendor(name)]
