"""The one door: designs and a workload in, outcomes out; pure, and the same for one design as for a hundred thousand."""

from dataclasses import replace
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
    submesh,
    tile_product,
    tile_serving,
    tiles,
    traffic,
)
from evaluators.breakdown import Breakdown
from evaluators.graph.part import PART
from evaluators.metrics import LIMITS, METRICS, Judged, Outcomes, empty
from space.chip import Chip, MeshChip, TileChip
from space.design import Design, Designs
from space.elementwise import maximum
from space.errors import DesignError, nearest
from space.fields import leaves, replaced
from space.limits import Infeasible, Limit
from space.mapping import FlatMapping
from space.memory import MemoryChip
from space.network import NetworkChip
from space.workload import Asked, Attention, Case, Collective, Load, Product, Stream, Traffic, Workload

PHYSICS = 6
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


PLURALS = {Case: "models", Product: "products", Collective: "collectives", Load: "requests to models", Stream: "streams"}
"""Kinds of cases whose names count, for people."""


def evaluate(designs: Designs, workload: Workload, *, fidelity: str = "closed", cases: bool = False) -> Outcomes:
    """The metrics of designs under a workload.

    Args:
        designs: many, grouped by structure.
        workload: what is asked of them.
        fidelity: a word of `FIDELITIES`, or one on a part of the mesh.
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
        _refuse_faults(design, workload.cases[0], fidelity)
        if PART not in fidelity and not _broken(design):
            reader = _reader(design, workload.cases[0], fidelity)
            _fill(outcomes, rows, reader.judged(design, workload, fidelity), len(workload.cases))
            continue
        for place, row in enumerate(rows):
            _fill(outcomes, np.array([row]), _alone(_picked(design, place), workload, fidelity), len(workload.cases))
    return outcomes


def fidelities(design: Design, workload: Workload, *, part: bool = False) -> tuple[str, ...]:
    """The readers that a kind of chip has for a kind of workload, lowest first."""
    return _readers(_judge(design, workload.cases[0]), part)


def alone(design: Design, fidelity: str) -> list[str]:
    """What a kind of chip can be asked for at a fidelity: kinds of cases, in the plural."""
    kinds = (case for (chip, case), reader in READERS.items() if chip is type(design.chip) and fidelity in reader.FIDELITIES)
    return [_plural(kind) for kind in kinds]


def explain(design: Design, case: Asked, *, decode_at: str = "mean", fidelity: str = "closed") -> Breakdown:
    """Where the time of one design goes, operator by operator, for one case of a workload."""
    _refuse_faults(design, case, fidelity)
    if PART in fidelity:
        design, case, fidelity = _part(design, case, fidelity)
    breakdown: Breakdown = _reader(design, case, fidelity).explain(design, case, decode_at, fidelity)
    return breakdown


def smaller(design: Design, workload: Workload) -> str:
    """How cases of its kind get smaller with a part of the mesh; "" where they do not."""
    known = submesh.SMALLER.get((type(design.chip), type(workload.cases[0])))
    return known.said if known else getattr(_judge(design, workload.cases[0]), "SMALLER", "")


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


def _plural(kind: type) -> str:
    return PLURALS.get(kind, kind.__name__.lower())


def _judge(design: Design, case: Asked) -> ModuleType:
    return WHOLE.get((type(design.mapping), type(case))) or READERS[type(design.chip), type(case)]


def _broken(design: Design) -> bool:
    """Whether something of a mesh with programs is broken: traffic goes round faults by every reader."""
    return isinstance(design.chip, MeshChip | TileChip) and design.chip.faults != "none"


def _refuse_faults(design: Design, case: Asked, fidelity: str) -> None:
    """Raises where faults would be ignored."""
    models = isinstance(case, Case | Load)
    if not _broken(design) or (fidelity == "cycles" and not models):
        return
    alone = models or "cycles" not in _judge(design, case).FIDELITIES
    do = "cycles has, for products, collectives and attention by themselves" if alone else "cycles has"
    raise DesignError(f"chip.faults: {fidelity} has no ways round what is broken; {do}, or say none")


def _alone(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """One design by itself; on a part of its mesh case by case, as each has its own."""
    found: list[Judged] = []
    if PART not in fidelity:
        return list(_reader(design, workload.cases[0], fidelity).judged(design, workload, fidelity))
    for row, whole in enumerate(workload.cases):
        one, case, word = _part(design, whole, fidelity)
        judged = _reader(one, case, word).judged(one, replace(workload, cases=(case,)), word)
        found += [replace(part, rows=(row,)) for part in judged]
    return found


def _part(design: Design, case: Asked, fidelity: str) -> tuple[Design, Asked, str]:
    """One design and a case of it on the part of its mesh that a fidelity names, and its reader."""
    word, _, side = fidelity.partition(PART)
    if not side.isdecimal() or not int(side):
        raise DesignError(f"fidelity: {fidelity!r} has no cores of a side above 0 after {PART}, as in {word}{PART}8")
    found = submesh.part(design, case, int(side))
    if found is None and hasattr(_judge(design, case), "IN_PART"):
        return design, case, fidelity
    if found is None:
        valid = ", ".join(_judge(design, case).FIDELITIES)
        what = "models on wafers and tiles (mapping=flat), products, attention and collectives"
        raise DesignError(f"fidelity: {fidelity} is of {what}; valid here: {valid}")
    return *found, word


def _picked(design: Design, place: int) -> Design:
    """One of the designs of a group."""
    wide = {address: value for address, value, _ in leaves(design) if isinstance(value, np.ndarray)}
    return replaced(design, {address: value[place].item() for address, value in wide.items()}) if wide else design


def _reader(design: Design, case: Asked, fidelity: str) -> ModuleType:
    word, _, part = fidelity.partition(PART)
    if word not in FIDELITIES:
        raise DesignError(f"fidelity: no reader {fidelity!r}; {nearest(fidelity, FIDELITIES)}")
    reader = _judge(design, case)
    known = _readers(reader, bool(part))
    if word not in known:
        valid = ", ".join(known)
        if word in _readers(reader, True):
            what = f"whole models are too much for {fidelity} to play; {fidelity}{PART}8 plays each kernel on 8 x 8 of them"
        elif isinstance(design.chip, Chip):
            what = f"{fidelity} plays kernels on a mesh of cores; this chip has a cache instead"
        else:
            what = f"{fidelity} does not play {_plural(type(case))} on this kind of chip"
        raise DesignError(f"fidelity: {what}; valid: {valid}")
    return reader


def _readers(judge: ModuleType, part: bool) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(judge, "IN_PART", judge.FIDELITIES) if part else judge.FIDELITIES
    return found


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
