"""The one door: designs and a workload in, outcomes out; pure, and the same for one design as for a hundred thousand."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import cache, lru_cache, partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.evaluators.account import outside
from dse.evaluators.account.breakdown import Breakdown
from dse.evaluators.account.lengths import LENGTH, lengths, shorter
from dse.evaluators.account.metrics import MADE, METRICS, Judged, with_made, with_needs
from dse.evaluators.account.outcomes import LIMITS, Columns, Outcomes, empty
from dse.evaluators.account.profile import Profile
from dse.evaluators.allocator import MANY, keep_freed_memory
from dse.evaluators.choices.per_design import parted
from dse.evaluators.passes.part import PART, cut, extent
from dse.evaluators.silicon import limits as silicon
from dse.evaluators.silicon import price
from dse.evaluators.silicon.energy import design_parts
from dse.evaluators.silicon.whole import ALONE, together
from dse.space.design import Design, Designs
from dse.space.elementwise import in_line, maximum
from dse.space.errors import DesignError, nearest
from dse.space.kinds import KINDS, plural
from dse.space.later import asked, asking, now
from dse.space.limits import ClashError, Infeasible, Limit
from dse.space.machines import MACHINES, machine_of
from dse.space.remember import has, remembered
from dse.space.software import (
    ATTENTION,
    COLLECTIVE,
    DEVICES,
    DIE_COLLECTIVE,
    MANY_DIES,
    PIPELINES,
    POOLED_DIES,
    PRODUCT,
    REGIONS,
    SERVED_DEVICES,
    SERVED_DIES,
    SERVED_PIPELINES,
    SERVED_POOLED_DIES,
    SERVED_REGIONS,
    SERVED_WHOLE_CHIP,
    SOFTWARE,
    STREAM,
    SUMMA,
    TRAFFIC,
    WHOLE_CHIP,
    software_of,
)
from dse.space.workload import Asked, Attention, Case, Collective, Load, Mixture, Operation, Product, Stream, Traffic, Workload

if TYPE_CHECKING:
    from dse.evaluators.judges.serving import Held
    from dse.evaluators.serving.max_rate import MaxRate
    from dse.evaluators.serving.measures import OfClass, OfTurns

PHYSICS = 32
"""Version of the physics: raised by hand whenever a golden result changes, so that stored results are not mixed."""

FIDELITIES = ("steady", "closed", "events", "cycles")
"""Readers, each nearer to the machine than the one before it; the first one is of served loads alone, without a run."""


READERS: dict[tuple[str, type], str] = {
    (DEVICES, Case): "models",
    (REGIONS, Case): "models",
    (PIPELINES, Case): "models",
    (WHOLE_CHIP, Case): "models",
    (MANY_DIES, Case): "models",
    (POOLED_DIES, Case): "models",
    (SERVED_DEVICES, Load): "serving",
    (SERVED_REGIONS, Load): "serving",
    (SERVED_PIPELINES, Load): "serving",
    (SERVED_WHOLE_CHIP, Load): "serving",
    (SERVED_DIES, Load): "serving",
    (SERVED_POOLED_DIES, Load): "serving",
    (DEVICES, Product): "kernels",
    (DEVICES, Mixture): "kernels",
    (DEVICES, Operation): "kernels",
    (DEVICES, Attention): "kernels",
    (DEVICES, Collective): "kernels",
    (PRODUCT, Product): "kernels",
    (SUMMA, Product): "kernels",
    (COLLECTIVE, Collective): "kernels",
    (DIE_COLLECTIVE, Collective): "kernels",
    (ATTENTION, Attention): "kernels",
    (STREAM, Stream): "kernels",
    (TRAFFIC, Traffic): "kernels",
}
"""Who judges designs, by the software that runs and the kind of case: modules of `judges`, imported when they first judge. Each
says at which fidelities."""


def evaluate(
    designs: Designs,
    workload: Workload,
    *,
    fidelity: str = "closed",
    cases: bool = False,
    metrics: Collection[str] | None = None,
) -> Outcomes:
    """The metrics of designs under a workload.

    Args:
        designs: many, grouped by structure.
        workload: what is asked of them.
        fidelity: a word of `FIDELITIES`, or one on a part of the mesh.
        cases: also keep the metrics of each case.
        metrics: that somebody asks for, of those that take work of their own (energy, power, price, errors of tables); None for
            all.

    Raises:
        DesignError: an unknown algorithm name, or a fidelity that is unknown or has nothing to play on this chip. Infeasible
            designs are answered, not raised, and so are those whose words do not go together (`Outcomes.refused`).
    """
    if len(designs) >= MANY:
        keep_freed_memory()
    outcomes, common, metrics = empty(len(designs), len(workload.cases) if cases else 0), lengths(workload), with_needs(metrics)
    every, outer = tuple(range(len(workload.cases))), fidelity in outside.words()
    served = fidelity == FIDELITIES[0] and isinstance(workload.cases[0], Load)
    serving = _module("serving") if served else None
    alike = serving.asked_first.alike(serving.service_of, designs) if serving else designs

    def judge(one: Design) -> list[Judged]:
        return [*_alone(one, workload, fidelity), *common, Judged(every, {}, silicon.exceeded(one.chip))]

    with asking(metrics), together(alike.groups), serving.together(alike, workload) if serving else ALONE:
        for group, design in alike.groups:
            _refuse_faults(design, workload.cases[0], fidelity)
            whole = PART not in fidelity and not outer and not _broken(design) and not _by_itself(design, workload.cases[0])
            for rows, one, found in _judged(outcomes, group, design, judge, every, apart=not whole):
                _fill(outcomes, rows, one, found, len(workload.cases), metrics)
    return outcomes


def bound(designs: Designs, workload: Workload, *, soon: bool = False) -> Outcomes:
    """What binds many designs most, as `binding` has it of one, without metrics; no request and no kernel is played for it.

    Args:
        designs, workload: what is asked.
        soon: only of limits that are known before anything is priced (`early`), design by design.
    """
    outcomes, of = empty(len(designs)), early if soon else _limits
    with together(designs.groups):
        for group, design in designs.groups:
            apart = soon or _broken(design) or _by_itself(design, workload.cases[0])
            judge = partial(_kept, of=of, workload=workload)
            for rows, one, found in _judged(outcomes, group, design, judge, (0,), apart=apart):
                _fill(outcomes, rows, one, found, 1, None)
    return outcomes


def _kept(design: Design, of: Callable[[Design, Workload], list[Limit]], workload: Workload) -> list[Judged]:
    """Limits of designs of one structure, without metrics."""
    return [Judged((0,), {}, of(design, workload))]


def _judged(
    outcomes: Outcomes,
    rows: Any,
    design: Design,
    judge: Callable[[Design], list[Judged]],
    cases: tuple[int, ...],
    *,
    apart: bool,
) -> Iterator[tuple[Any, Design, list[Judged]]]:
    """What is judged of designs of one structure: each by itself where they are apart, or its words do not go together."""
    left = parted(rows, design, None) if apart else [(rows, design)]
    while left:
        rows, one = left.pop()
        try:
            found = judge(one)
        except ClashError as clash:
            if len(rows) > 1 and clash.some is not None:
                left += parted(rows, one, clash.some)
                continue
            outcomes.refused.update(dict.fromkeys(rows.tolist(), str(clash)))
            found = [Judged(cases, {}, [clash.limit])]
        yield rows, one, found


def fidelities(design: Design, workload: Workload, *, part: bool = False) -> tuple[str, ...]:
    """The readers that a kind of chip has for a kind of workload, lowest first; those of packages last."""
    found = _readers(_judge(design, workload.cases[0]), design, part)
    return found if part else (*found, *outside.answering(design, workload.cases[0]))


def readers() -> tuple[str, ...]:
    """Every word of ``fidelity=``, lowest first: those that ship, and those of installed packages."""
    return (*FIDELITIES, *outside.words())


def alone(design: Design, fidelity: str) -> list[str]:
    """What a kind of chip can be asked for at a fidelity: kinds of cases, in the plural."""
    here = ((case, kind) for (machine, case), kind in KINDS.items() if machine == machine_of(design.chip))
    found = (case for case, kind in here for software in kind.software if fidelity in _said(software, case, design))
    return list(dict.fromkeys(map(plural, found)))


def _said(software: str, case: type, design: Design) -> tuple[str, ...]:
    """Readers of some software; those of another layout than the design's are not asked for."""
    judge = _module(READERS[software, case])
    if hasattr(judge, "said"):
        found: tuple[str, ...] = judge.said(software)
        return found
    return () if hasattr(judge, "fidelities") and software != software_of(design.mapping) else _readers(judge, design)


def explain(design: Design, case: Asked, *, decode_at: str = "mean", fidelity: str = "closed") -> Breakdown:
    """Where the time of one design goes, operator by operator, for one case of a workload."""
    _refuse_faults(design, case, fidelity)
    if PART in fidelity:
        design, case, fidelity = _part(design, case, fidelity)
    if fidelity in outside.words():
        return outside.explained(fidelity, _alone(design, Workload("", (case,), decode_at), fidelity))
    reader = _reader(design, case, fidelity)
    if hasattr(reader, "limits") and binding(design, Workload("", (case,))) is not None:
        return Breakdown((), 0.0, {}, {})  # nothing is played that cannot be
    breakdown: Breakdown = reader.explain(design, case, decode_at, fidelity)
    if design.chip.die is None or breakdown.price:  # nothing is made, or it is said already
        return breakdown
    watts = {name: float(value) for name, value in design_parts(design.chip).items()}
    return replace(breakdown, power=watts, price={name: float(value) for name, value in price.parts(design.chip).items()})


def power_over_time(design: Design, case: Asked, *, decode_at: str = "mean", fidelity: str = "closed") -> Profile | None:
    """Power of all chips of one design over one case of a workload, which it can run.

    Returns:
        Of a batch, phase by phase; of a served load, over the iterations that a breakdown keeps; of a kernel by itself, its
        mean. None where nothing has a time line (``fidelity=steady``, a part of a mesh, packets on a network) or no power.
    """
    if PART in fidelity or fidelity in outside.words():
        return None
    reader = _reader(design, case, fidelity)
    if hasattr(reader, "profile"):
        found: Profile | None = reader.profile(design, case, decode_at, fidelity)
        return found
    (metrics,) = (now(judged.metrics) for judged in reader.judged(design, Workload("", (case,)), fidelity))
    if not {"power", "latency"} <= metrics.keys():
        return None
    seconds, watts = (np.ravel(metrics[name]).astype(float) for name in ("latency", "power"))
    return Profile(np.array([0.0, seconds[0]]), watts[:1], (case.label,))


def smaller(design: Design, workload: Workload) -> str:
    """How cases of its kind get smaller with a part of the mesh; "" where they do not."""
    return _in_part(_judge(design, workload.cases[0]), design)


def on_part(design: Design, case: Asked, fidelity: str) -> str:
    """Which cores a fidelity on a part of the mesh plays of a case, for people."""
    rows, cols = extent(design)
    found = _smaller(design, case, cut(fidelity)[1])
    if found is None:
        return f"each kernel on at most {cut(fidelity)[1]} x {cut(fidelity)[1]} of the {rows} x {cols} cores"
    return "{} x {} of the {} x {} cores".format(*extent(found[0]), rows, cols)


def limits(design: Design, workload: Workload) -> list[Limit]:
    """Every limit of a design under a workload, itemised; leaves broadcast over designs. No request is played for it.

    Words that do not go together are the one limit of a design.
    """
    return list(_known_limits(design, workload))


@remembered
def _known_limits(design: Design, workload: Workload) -> tuple[Limit, ...]:
    """Those of `limits`: prices of constraints ask for those of the same design again and again."""
    try:
        return tuple(_limits(design, workload))
    except ClashError as error:
        return (error.limit,)


def clash(design: Design, workload: Workload) -> ClashError | None:
    """Why the words of a design do not go together; None where they do."""
    try:
        _of_layout(design, workload)
    except ClashError as error:
        return error
    return None


def _limits(design: Design, workload: Workload) -> list[Limit]:
    """Every limit; words that do not go together are raised."""
    return [*_of_layout(design, workload), *_of_others(design, workload)]


def _of_layout(design: Design, workload: Workload) -> list[Limit]:
    """Limits of what runs where."""
    reader = _reader(design, workload.cases[0], "closed")
    for name in ("limits", "bounds"):  # the latter need no closed form
        if hasattr(reader, name):
            found: list[Limit] = getattr(reader, name)(design, workload)
            return found
    return [limit for judged in reader.judged(design, workload, "closed") for limit in judged.limits]


def _of_others(design: Design, workload: Workload) -> list[Limit]:
    """Limits of models and of silicon, wherever anything runs."""
    return [*(limit for judged in lengths(workload) for limit in judged.limits), *silicon.limits(design.chip)]


def possible(design: Design, workload: Workload) -> bool:
    """Whether one design keeps the limits that are known before anything is priced, at a thousandth of the cost."""
    return all(limit.need <= limit.have for limit in early(design, workload))


def early(design: Design, workload: Workload) -> list[Limit]:
    """Limits of one design that are known before anything is priced; none where its layout knows of none."""
    judge = _judge(design, workload.cases[0])
    found: list[Limit] = judge.early(design, workload) if hasattr(judge, "early") else []
    return found


def unloaded(design: Design, load: Load, fidelity: str) -> tuple[float, float]:
    """Time to first token and a token of requests that meet no other, of the share that the largest rate is for. [s]"""
    found: tuple[float, float] = _judge(design, load).unloaded(design, load, fidelity)
    return found


def found_max_rate(load: Load, rate: float) -> "MaxRate | None":
    """What the search for a load's maximum rate has found that came to some rate; None where none was made here. [1/s]"""
    from dse.evaluators.account.played.served import searched  # which compiles loops

    return searched(load, rate)


def held(design: Design, load: Load) -> "tuple[Held, ...]":
    """KV memory of an instance of each pool, where its blocks are said."""
    found: tuple[Held, ...] = _judge(design, load).held(design, load)
    return found


def by_group(design: Design, load: Load, fidelity: str) -> "tuple[list[OfClass], list[OfTurns]]":
    """What requests of each class got, and turns of sessions by their places; the load is played for that."""
    found: tuple[list[OfClass], list[OfTurns]] = _judge(design, load).by_group(design, load, fidelity)
    return found


def plays(design: Design, workload: Workload, fidelity: str) -> bool:
    """Whether an evaluation takes far longer than its limits do: requests are served, or kernels played."""
    return fidelity != "closed" or hasattr(_judge(design, workload.cases[0]), "limits")


def binding(design: Design, workload: Workload) -> Infeasible | None:
    """What binds one design most, itemised; None where every limit holds."""
    return _worst(limits(design, workload))


def _worst(found: list[Limit]) -> Infeasible | None:
    worst: Infeasible | None = None
    for limit in found:
        row = int(np.argmax(limit.need))
        parts = tuple((name, _pick(value, row)) for name, value in limit.parts)
        verdict = Infeasible(limit.address, _pick(limit.need, row), _pick(limit.have, row), limit.unit, parts)
        if verdict.excess > (worst.excess if worst else 0.0):
            worst = verdict
    return worst


def infeasible(design: Design, workload: Workload) -> Infeasible | None:
    """What binds one design most, itemised, with what would do; None where every limit holds."""
    try:
        worst = _worst(_limits(design, workload))
    except ClashError as clash:
        return clash.verdict
    if worst is None or worst.limit == LENGTH:
        return replace(worst, remedy=shorter(workload)) if worst else None
    if said := silicon.remedy(worst.limit, design.chip):
        return replace(worst, remedy=said)
    remedied: Infeasible = _reader(design, workload.cases[0], "closed").remedied(worst, design, workload)
    return remedied


def _judge(design: Design, case: Asked) -> ModuleType:
    return _module(READERS[software_of(design.mapping), type(case)])


@cache
def _module(name: str) -> ModuleType:
    return import_module(f"dse.evaluators.judges.{name}")


def _broken(design: Design) -> bool:
    """Whether something of a mesh with programs is broken: traffic goes round faults by every reader."""
    return design.chip.router is None and design.chip.faults not in (None, "none")


def _by_itself(design: Design, case: Asked) -> bool:
    """Whether designs of a group are worked out one after the other, whatever reader asks."""
    judge = _judge(design, case)
    return bool(has(judge, "by_itself") and judge.by_itself(design))


def _refuse_faults(design: Design, case: Asked, fidelity: str) -> None:
    """Raises where faults would be ignored."""
    models = isinstance(case, Case | Load)
    if not _broken(design) or (fidelity == "cycles" and not models):
        return
    cycles = not models and "cycles" in _readers(_judge(design, case), design)
    do = "use fidelity=cycles or chip.faults=none" if cycles else "use chip.faults=none"
    who = "" if cycles else f" (fidelity=cycles can, but not for {plural(type(case))})"
    raise DesignError(f"chip.faults: fidelity={fidelity} cannot route around faults{who}; {do}")


def _alone(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Designs of one structure, as one of numbers; on a part of its mesh case by case, as each has its own."""
    found: list[Judged] = []
    if fidelity in outside.words():
        if fidelity not in fidelities(design, workload):
            known = ", ".join(fidelities(design, workload))
            raise DesignError(
                f"fidelity: {fidelity} does not answer for {plural(type(workload.cases[0]))} here; valid: {known}"
            )
        for row, case in enumerate(workload.cases):
            single = replace(workload, cases=(case,))
            closed = _reader(design, case, "closed").judged(design, single, "closed")
            made = [*closed, *lengths(single), Judged((0,), {}, silicon.limits(design.chip))]
            found += outside.judged(design, case, row, fidelity, made)
        return found
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
        raise DesignError(
            f"fidelity: {fidelity!r}: after {PART} comes the side of a square of cores, above 0, as in {word}{PART}8"
        )
    found = _smaller(design, case, int(side))
    if found is None and _in_part(_judge(design, case), design):
        return design, case, fidelity
    if found is None:
        valid = ", ".join(_readers(_judge(design, case), design))
        what = "models on wafers and tiles (mapping=flat), products, attention and collectives"
        raise DesignError(f"fidelity: {fidelity} plays a part of a mesh, for {what} only; valid here: {valid}")
    return *found, word


def _smaller(design: Design, case: Asked, side: int) -> tuple[Design, Asked] | None:
    """One design and a case of it on a part of the mesh; None where cases of its kind do not get smaller."""
    judge = _judge(design, case)
    return judge.part(design, case, side) if hasattr(judge, "part") else None


def _reader(design: Design, case: Asked, fidelity: str) -> ModuleType:
    word, _, part = fidelity.partition(PART)
    if word not in FIDELITIES:
        raise DesignError(f"fidelity: no reader {fidelity!r}; {nearest(fidelity, readers())}")
    reader = _judge(design, case)
    known = _readers(reader, design, bool(part))
    if word not in known:
        raise DesignError(f"fidelity: {_unread(reader, design, case, fidelity)}; valid: {', '.join(known)}")
    return reader


def _unread(judge: ModuleType, design: Design, case: Asked, fidelity: str) -> str:
    """Why a judge does not have a reader for a design and a case, and what would do."""
    word, asked_for = fidelity.partition(PART)[0], plural(type(case))
    if word == FIDELITIES[0]:
        return f"{word} is the steady state of served requests, and {asked_for} are asked for; add workload=serving"
    if said := hasattr(judge, "in_the_way") and judge.in_the_way(design, word):
        return f"{fidelity} cannot play this, because of {said}"
    if word in _readers(judge, design, True):
        return f"whole models are too much for {fidelity} to play; {fidelity}{PART}8 plays each kernel on 8 x 8 cores"
    if design.chip.mesh is None:
        return f"{fidelity} plays programs on a mesh of cores, and this chip is {MACHINES[machine_of(design.chip)].name}"
    if isinstance(case, Load):
        return f"{fidelity} does not play {SOFTWARE[software_of(design.mapping)].name}; ask for batches, workload=static"
    return f"{fidelity} does not play {asked_for} on {MACHINES[machine_of(design.chip)].name}"


def _readers(judge: ModuleType, design: Design, part: bool = False) -> tuple[str, ...]:
    """Fidelities of a judge, of all of a mesh or on a part of it: its own, or those that it has for a layout."""
    if hasattr(judge, "fidelities"):
        own: tuple[str, ...] = judge.fidelities(design, part)
        return own
    found: tuple[str, ...] = getattr(judge, "IN_PART", judge.FIDELITIES) if part else judge.FIDELITIES
    return found


def _in_part(judge: ModuleType, design: Design) -> str:
    """What a judge makes of a case on a part of its mesh, for people; "" where it makes nothing of it."""
    said: str = judge.in_part(design) if hasattr(judge, "in_part") else getattr(judge, "SMALLER", "")
    return said


def _pick(value: Any, row: int) -> float:
    return float(np.ravel(value)[row if np.size(value) > 1 else 0])


def _fill(
    outcomes: Outcomes, rows: Any, design: Design, found: list[Judged], cases: int, wanted: Collection[str] | None
) -> None:
    total: dict[str, Any] = {}
    worst: Any = 0.0
    for judged in found:
        share = len(judged.rows) / cases
        metrics = now(judged.metrics if wanted is None else asked(judged.metrics, wanted)) if judged.metrics else {}
        if wanted is not None:
            outcomes.left.update(judged.metrics.keys() - metrics.keys())
        metrics = with_made(metrics, design) if MADE else metrics
        if isinstance(outcomes.cases, Columns):
            here = np.asarray(judged.rows)[:, None]
            for name, value in metrics.items():
                outcomes.cases.put(name, (here, rows), value)
            for limit in judged.limits:
                outcomes.cases["fits"][here, rows] *= np.asarray(limit.need <= limit.have)
        if cases == 1 and not total:  # as they are
            total.update(metrics)
            metrics = {}
        for name, value in metrics.items():
            over = METRICS[name].over
            many = len(judged.rows) > 1 and isinstance(value, np.ndarray) and value.ndim == 2
            if over == "mean":
                value = value.mean(axis=0) if many else value
                value = value if share == 1 else value * share
                total[name] = total[name] + value if name in total else value
            else:
                value = getattr(value, over)(axis=0) if many else value
                total[name] = value if name not in total else (np.maximum if over == "max" else np.minimum)(total[name], value)
        for limit in judged.limits:
            worst = _bind(outcomes, rows, limit, worst)
    for judged in found:
        if not judged.priced:  # of all cases together there is only what each has
            total = {name: value for name, value in total.items() if name in judged.metrics}
    _put(outcomes.columns, rows, {name: total[name] for name in _ordered(tuple(total), len(METRICS))})


@lru_cache(maxsize=64)
def _ordered(names: tuple[str, ...], known: int) -> tuple[str, ...]:
    """Names as `METRICS` has them, of which so many are known."""
    return tuple(name for name in METRICS if name in names)


def _put(columns: Columns, rows: Any, total: dict[str, Any]) -> None:
    """Writes metrics of some designs; of the only one, which has numbers, all at once."""
    if columns.shape == (1,) and np.ndarray not in set(map(type, total.values())):
        columns.update(zip(total, np.fromiter(total.values(), float, len(total))[:, None], strict=True))
        return
    here = in_line(rows)
    at = ... if isinstance(here, slice) and (len(rows),) == columns.shape else here
    for name, value in total.items():
        columns.put(name, at, value)


def _bind(outcomes: Outcomes, rows: Any, limit: Limit, worst: Any) -> Any:
    """Writes a limit where it exceeds more than what binds so far; returns the largest excess."""
    need = limit.need.max(axis=0) if isinstance(limit.need, np.ndarray) and limit.need.ndim == 2 else limit.need
    over = need > limit.have
    if not (over.any() if isinstance(over, np.ndarray) else over):
        return worst
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
