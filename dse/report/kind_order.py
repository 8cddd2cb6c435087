"""Order of designs on different kinds of chips, within the bands of the rates that kinds reach.

Errors that all chips of a kind share move no order between them: chips with one software stack, or machines of one kind without
a stack. Between kinds each error is free. A design of the front is not distinguished from another kind if a design of that kind
would beat it with both rates somewhere in their bands.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
import pandas as pd

from dse.accuracy.result_kind import quantity_of_metric
from dse.accuracy.stack_basis import stack_basis
from dse.config.compose import read_stack_accuracy
from dse.evaluators.accounting.metrics import METRICS
from dse.execution.result_frame import DESIGN, report_order
from dse.execution.study import Study
from dse.report.error_bands import estimate_study_error_bands
from dse.report.study_software import list_study_software
from dse.search.pareto import convert_to_minimisation, front_mask
from dse.space.array_math import Array
from dse.space.machines import machine_of
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.units import dimension
from dse.space.workload import ServingLoad, Workload

UNMEASURED_STACK = "unfitted"
"""Stack whose band stands for kinds of which no rate of a whole model is measured."""


@dataclass(frozen=True, slots=True)
class KindBand:
    """Band of the rates of one chip of a study, and the kind whose chips share its error.

    Attributes:
        chip: its name.
        kind: name of the software stack, or of the machine where there is no stack.
        low, high: measured over predicted rate. [-]
        source: where the band is from, in words.
    """

    chip: str
    kind: str
    low: float
    high: float
    source: str

    @property
    def text(self) -> str:
        """Band and source in one line."""
        return f"x{self.low:.3g} to x{self.high:.3g} ({self.source})"


@dataclass(frozen=True)
class KindOrder:
    """Designs of a front that are not distinguished from another kind of chip.

    Attributes:
        bands: of each chip of the study; empty if all are of one kind.
        carried: objectives that rates move.
        undecided: by id of a front design, the chips of other kinds of which a design may beat it; only those with any.
        front: designs on the front.
    """

    bands: tuple[KindBand, ...]
    carried: tuple[str, ...]
    undecided: Mapping[str, tuple[str, ...]]
    front: int

    @property
    def text(self) -> str:
        """Designs that are not distinguished, and bands, in one line; empty string for one kind."""
        if not self.bands or not self.front:
            return ""
        chips: dict[str, list[str]] = {}
        for band in self.bands:
            chips.setdefault(band.text, []).append(band.chip)
        bands = "; ".join(f"{', '.join(names)} {text}" for text, names in chips.items())
        if not self.carried:
            return "no objective depends on the rates that kinds of chips reach, so that their bands move no order"
        count = f"{len(self.undecided):,} of {self.front:,} designs of the front"
        are = "are not distinguished from another kind of chip"
        return f"{count} {are} by {' and '.join(self.carried)}; measured over predicted rates: {bands}"


def find_kind_order(study: Study, frame: pd.DataFrame) -> KindOrder:
    """Designs of a study's front that bands do not distinguish from those of other kinds of chips.

    Args:
        study: the study.
        frame: its designs, as `dse.execution.result_frame.combine_with_front` has them.
    """
    if not len(frame) or not frame["front"].any():
        return KindOrder((), (), {}, 0)
    if not has_several_kinds(bands := estimate_kind_bands(study)):
        return KindOrder((), (), {}, int(frame["front"].sum()))
    fixed = has_fixed_rate(study.question.workload)
    exponents = np.array([rate_exponent(name, fixed=fixed) for name in study.objectives])
    carried = tuple(name for name, exponent in zip(study.objectives, exponents, strict=True) if exponent)
    rows = report_order(study, frame)
    rows = rows[rows["feasible"]]
    values = rows[list(study.objectives)].to_numpy(dtype=float)
    chips = rows[CHIP_KNOB].astype(str).to_numpy()
    beaten = find_undecided(values, study.directions, exponents, chips, rows["front"].to_numpy(dtype=bool), bands)
    ids = rows[DESIGN].astype(str).to_numpy()
    undecided = {str(ids[row]): names for row, names in beaten.items()} if carried else {}
    return KindOrder(bands, carried, undecided, int(rows["front"].sum()))


def has_several_kinds(bands: Sequence[KindBand]) -> bool:
    """Whether chips are of several kinds, whose errors differ."""
    return len({band.kind for band in bands}) > 1


def find_undecided(
    values: Array,
    directions: Sequence[str],
    exponents: Array,
    chips: Array,
    front: Array,
    bands: Sequence[KindBand],
) -> dict[int, tuple[str, ...]]:
    """Rows of a front that a chip of another kind may beat, each with these chips.

    A chip may beat a row if one of its designs dominates it, with the rates of the row at the low end of its band, and those
    of the other design at the high end.

    Args:
        values: objectives of designs that keep all limits, shape (designs, objectives).
        directions: "max" or "min" for each objective.
        exponents: power of the rate that each objective goes with: 1, -1 or 0. Shape (objectives,).
        chips: names, shape (designs,).
        front: mask of the front, shape (designs,).
        bands: of each chip.

    >>> bands = [KindBand("a", "x", 0.5, 1.0, ""), KindBand("b", "y", 1.0, 2.0, "")]
    >>> values = np.array([[10.0, 5.0], [8.0, 5.0], [4.0, 5.0]])  # rates, and areas
    >>> mask = np.array([True, False, False])
    >>> find_undecided(values, ["max", "min"], np.array([1, 0]), np.array(["a", "b", "b"]), mask, bands)
    {0: ('b',)}
    >>> find_undecided(values[[0, 2]], ["max", "min"], np.array([1, 0]), np.array(["a", "b"]), mask[:2], bands[:1] + bands[:1])
    {}
    """
    by_chip = {band.chip: band for band in bands}
    low = np.array([by_chip[chip].low if chip in by_chip else 1.0 for chip in chips])
    high = np.array([by_chip[chip].high if chip in by_chip else 1.0 for chip in chips])
    worst = convert_to_minimisation(values * low[:, None] ** exponents, directions)
    best = convert_to_minimisation(values * high[:, None] ** exponents, directions)
    undecided: dict[int, tuple[str, ...]] = {}
    rivals = {chip: np.flatnonzero(chips == chip) for chip in by_chip}
    leaders = {chip: best[rows][front_mask(values[rows], directions)] for chip, rows in rivals.items()}
    for row in np.flatnonzero(front):
        own = by_chip.get(str(chips[row]))
        names = tuple(
            chip
            for chip, leading in leaders.items()
            if own is not None and by_chip[chip].kind != own.kind and _is_beaten(worst[row], leading)
        )
        if names:
            undecided[int(row)] = names
    return undecided


def _is_beaten(mine: Array, others: Array) -> bool:
    """Whether a row of others is as good in everything and better in something; less is better."""
    return bool(((others <= mine).all(axis=1) & (others < mine).any(axis=1)).any())


def estimate_kind_bands(study: Study) -> tuple[KindBand, ...]:
    """Band of the rates of each chip of a study.

    It is that of its software stack; else that of measured rows of its kind; else that of a stack that is fitted on no vendor.
    """
    measured = _measured_bands(study)
    unknown = read_stack_accuracy(UNMEASURED_STACK)
    bands = []
    for (chosen, _), software in zip(study.question.space.base_spaces, list_study_software(study), strict=True):
        _, names, base, _, _ = software
        basis, chip = stack_basis(*software), str(chosen.get(CHIP_KNOB, names["chip"]))
        kind = names["stack"] if basis else machine_of(base.chip)
        if basis is not None and basis.accuracy is not None:
            accuracy = basis.accuracy
            bands.append(KindBand(chip, kind, accuracy.low, accuracy.high, f"stack {basis.stack}, {accuracy.rows:,} rows"))
        elif chip in measured:
            low, high, rows = measured[chip]
            bands.append(KindBand(chip, kind, low, high, f"{rows:,} measured rows of its kind"))
        else:
            low, high = unknown.low, unknown.high
            bands.append(KindBand(chip, kind, low, high, f"no rate measured, as stack {UNMEASURED_STACK}"))
    return tuple(bands)


def _measured_bands(study: Study) -> dict[str, tuple[float, float, int]]:
    """Measured over predicted rates of chips with measured rows of times or rates: the widest band, and its rows."""
    bands: dict[str, tuple[float, float, int]] = {}
    for line in estimate_study_error_bands(study):
        quantity = quantity_of_metric(line["metric"])
        if quantity.what != "time" or line["rows"] < 2 or line["low"] is None or line["low"] <= -1:
            continue
        ends = sorted((1 + error) ** quantity.sign for error in (line["low"], line["high"]))
        low, high, rows = bands.get(line["chip"], (inf, 0.0, 0))
        bands[line["chip"]] = min(low, ends[0]), max(high, ends[1]), max(rows, line["rows"])
    return bands


def has_fixed_rate(workload: Workload) -> bool:
    """Whether every case is a load whose arrivals fix how much is served."""
    return all(
        isinstance(case, ServingLoad) and not case.largest and not case.requests.users and isfinite(case.rate)
        for case in workload.cases
    )


def rate_exponent(metric: str, *, fixed: bool) -> int:
    """Power of the rates that a chip reaches with which a metric goes: 1, -1 or 0.

    Throughput goes with them, times and money for a token against them. Where arrivals fix what is served, only times go with
    them. Energy of a token has no power: it is mostly that of its operations.

    >>> [rate_exponent(name, fixed=False) for name in ("throughput_per_system_mm2", "tpot", "price_per_mtoken", "system_mm2")]
    [1, -1, -1, 0]
    >>> [rate_exponent(name, fixed=True) for name in ("throughput_per_system_mm2", "tpot", "tokens_per_s_per_user")]
    [0, -1, 1]
    """
    quantity, unit = quantity_of_metric(metric), METRICS[metric].unit
    if quantity.what == "time":
        power = -quantity.sign
        return 0 if fixed and power > 0 and quantity.phase == "whole" else power
    if metric.endswith("per_mtoken"):
        return 0 if fixed else -1
    dimensions = dimension(unit).dimensionality
    if "[mass]" in dimensions:
        return 0
    power = -int(np.sign(dimensions.get("[time]", 0)))
    return 0 if fixed and power > 0 else power
