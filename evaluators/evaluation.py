"""The one door: designs and a workload in, outcomes out; pure, and the same for one design as for a hundred thousand."""

from types import ModuleType
from typing import Any

import numpy as np

from evaluators import (
    attention,
    collective,
    die,
    die_product,
    die_serving,
    flat,
    mesh,
    product,
    stream,
    tile_product,
    tile_serving,
    tiles,
    traffic,
)
from evaluators.breakdown import Breakdown
from evaluators.metrics import LIMITS, METRICS, Judged, Outcomes, empty
from space.chip import Chip, MeshChip, TileChip
from space.design import Design, Designs
from space.elementwise import maximum
from space.errors import DesignError, nearest
from space.limits import Infeasible, Limit
from space.mapping import FlatMapping
from space.memory import MemoryChip
from space.network import NetworkChip
from space.workload import Asked, Attention, Case, Collective, Load, Product, Stream, Traffic, Workload

PHYSICS = 3
"""Version of the physics: raised by hand whenever a golden result changes, so that stored results are not mixed."""

FIDELITIES = ("closed", "events", "cycles")
"""Readers, each nearer to the machine than the one before it."""

READERS: dict[tuple[type, type], ModuleType] = {
    (Chip, Case): die,
    (Chip, Product): die_product,
    (Chip, Load): die_serving,
    (MeshChip, Case): mesh,
    (MeshChip, Product): product,
    (TileChip, Case): tiles,
    (TileChip, Product): tile_product,
    (MemoryChip, Stream): stream,
    (TileChip, Stream): stream,
    (NetworkChip, Traffic): traffic,
    (TileChip, Collective): collective,
    (TileChip, Attention): attention,
    (TileChip, Load): tile_serving,
}
"""Who judges designs, by kinds of chip and of case; each says at which fidelities."""

WHOLE: dict[tuple[type, type], ModuleType] = {(FlatMapping, Case): flat}
"""Who does instead, by kinds of mapping and of case."""


def evaluate(designs: Designs, workload: Workload, *, fidelity: str = "closed", cases: bool = False) -> Outcomes:
    """The metrics of designs under a workload.

    Args:
        designs: many, grouped by structure.
        workload: what is asked of them.
        fidelity: a word of `FIDELITIES`.
        cases: also keep the metrics of each case.

    Raises:
        DesignError: an unknown algorithm name, or a fidelity that is unknown or has nothing to play on this chip. Infeasible
            designs are answered, not raised.
    """
    outcomes = empty(len(designs))
    if cases:
        shape = (len(workload.cases), len(designs))
        outcomes.cases.update({name: np.full(shape, np.nan) for name in (*METRICS, "fits")})
    for rows, design in designs.groups:
        _fill(
            outcomes, rows, _reader(design, workload.cases[0], fidelity).judged(design, workload, fidelity), len(workload.cases)
        )
    return outcomes


def fidelities(design: Design, workload: Workload) -> tuple[str, ...]:
    """The readers that a kind of chip has for a kind of workload, lowest first."""
    found: tuple[str, ...] = _judge(design, workload.cases[0]).FIDELITIES
    return found


def explain(design: Design, case: Asked, *, decode_at: str = "mean", fidelity: str = "closed") -> Breakdown:
    """Where the time of one design goes, operator by operator, for one case of a workload."""
    breakdown: Breakdown = _reader(design, case, fidelity).explain(design, case, decode_at, fidelity)
    return breakdown


def limits(design: Design, workload: Workload) -> list[Limit]:
    """Every limit of a design under a workload, itemised; leaves broadcast over designs."""
    found = _reader(design, workload.cases[0], "closed").judged(design, workload, "closed")
    return [limit for judged in found for limit in judged.limits]


def infeasible(design: Design, workload: Workload) -> Infeasible | None:
    """What binds one design most, itemised, with what would do; None where every limit holds."""
    worst: Infeasible | None = None
    for limit in limits(design, workload):
        row = int(np.argmax(limit.need))
        parts = tuple((name, _pick(value, row)) for name, value in limit.parts)
        verdict = Infeasible(limit.address, _pick(limit.need, row), _pick(limit.have, row), limit.unit, parts)
        if verdict.excess > (worst.excess if worst else 0.0):
            worst = verdict
    return _reader(design, workload.cases[0], "closed").remedied(worst, design, workload) if worst else None


def _judge(design: Design, case: Asked) -> ModuleType:
    return WHOLE.get((type(design.mapping), type(case))) or READERS[type(design.chip), type(case)]


def _reader(design: Design, case: Asked, fidelity: str) -> ModuleType:
    if fidelity not in FIDELITIES:
        raise DesignError(f"fidelity: no reader {fidelity!r}; {nearest(fidelity, FIDELITIES)}")
    reader = _judge(design, case)
    if fidelity not in reader.FIDELITIES:
        valid = ", ".join(reader.FIDELITIES)
        raise DesignError(
            f"fidelity: {fidelity} plays kernels on a mesh of cores; this chip has a cache instead; valid: {valid}"
        )
    return reader


def _pick(value: Any, row: int) -> float:
    flat = np.ravel(value)
    return float(flat[row] if len(flat) > 1 else flat[0])


def _fill(outcomes: Outcomes, rows: Any, found: list[Judged], cases: int) -> None:
    total: dict[str, Any] = {}
    worst: Any = 0.0
    for judged in found:
        share = len(judged.rows) / cases
        if outcomes.cases:
            here = np.asarray(judged.rows)[:, None]
            for name, value in judged.metrics.items():
                outcomes.cases[name][here, rows] = value
            outcomes.cases["fits"][here, rows] = np.asarray(judged.limits[0].need <= judged.limits[0].have)
        for name, value in judged.metrics.items():
            over = METRICS[name].over
            many = len(judged.rows) > 1 and isinstance(value, np.ndarray) and value.ndim == 2
            if over == "mean":
                total[name] = total.get(name, 0.0) + (value.mean(axis=0) if many else value) * share
            else:
                value = getattr(value, over)(axis=0) if many else value
                total[name] = value if name not in total else (np.maximum if over == "max" else np.minimum)(total[name], value)
        for limit in judged.limits:
            worst = _bind(outcomes, rows, limit, worst)
    for name, value in total.items():
        outcomes.columns[name][rows] = value


def _bind(outcomes: Outcomes, rows: Any, limit: Limit, worst: Any) -> Any:
    """Writes a limit where it exceeds more than what binds so far; returns the largest excess."""
    need = limit.need.max(axis=0) if isinstance(limit.need, np.ndarray) and limit.need.ndim == 2 else limit.need
    excess = need / maximum(limit.have, 1e-300) - 1  # of some things there are none
    beyond = excess > worst
    if not (beyond.any() if isinstance(beyond, np.ndarray) else beyond):
        return worst
    over = np.broadcast_to(beyond, rows.shape)
    where = rows[over]
    outcomes.limit[where] = list(LIMITS).index(limit.address)
    outcomes.need[where] = np.broadcast_to(need, rows.shape)[over]
    outcomes.have[where] = np.broadcast_to(limit.have, rows.shape)[over]
    return maximum(worst, excess)
