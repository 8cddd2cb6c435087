"""The one door: designs and a workload in, outcomes out; pure, and the same for one design as for a hundred thousand."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import cache, lru_cache, partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.evaluators.accounting import external_evaluators as outside
from dse.evaluators.accounting.breakdown import Breakdown
from dse.evaluators.accounting.metrics import DERIVED_METRICS, METRICS, CaseOutcomes, add_derived_metrics, add_input_metrics
from dse.evaluators.accounting.outcomes import SILICON_LIMITS, MetricColumns, Outcomes, empty_outcomes
from dse.evaluators.accounting.power_profile import PowerProfile
from dse.evaluators.accounting.sequence_limits import LENGTH, length_limits, length_remedy_text
from dse.evaluators.calls.submesh import SUBMESH_MARK, core_extent, parse_fidelity
from dse.evaluators.malloc_settings import MANY, keep_freed_memory
from dse.evaluators.silicon import manufacturing_limits as silicon
from dse.evaluators.silicon import price
from dse.evaluators.silicon.chip_batches import ALONE, batch_chips
from dse.evaluators.silicon.energy import design_power_by_part
from dse.evaluators.tuning.per_design import split_group
from dse.space.array_math import as_slice, maximum
from dse.space.compatibility import KINDS, case_type_name
from dse.space.design import Design, Designs
from dse.space.errors import DesignError, suggest_nearest
from dse.space.lazy_metrics import compute_all, requested_metrics, select_metrics
from dse.space.limits import IncompatibleOptionsError, Infeasibility, Limit
from dse.space.machines import MACHINES, machine_of
from dse.space.memoize import has_attribute, memoize
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
from dse.space.workload import (
    AttentionCase,
    BatchCase,
    CollectiveCase,
    ElementwiseCase,
    ExpertsCase,
    MemoryStreamCase,
    NocTrafficCase,
    ProductCase,
    ServingLoad,
    Workload,
    WorkloadCase,
)

if TYPE_CHECKING:
    from dse.evaluators.serving.max_rate import MaxRate
    from dse.evaluators.serving.run_statistics import ClassResult, TurnResult
    from dse.evaluators.workloads.serving import PoolKvMemory

PHYSICS_VERSION = 32
"""Version of the physics: raised by hand whenever a golden result changes, so that stored results are not mixed."""

FIDELITIES = ("steady", "closed", "events", "cycles")
"""Readers, each nearer to the machine than the one before it; the first one is of served loads alone, without a run."""


READERS: dict[tuple[str, type], str] = {
    (DEVICES, BatchCase): "batch_inference",
    (REGIONS, BatchCase): "batch_inference",
    (PIPELINES, BatchCase): "batch_inference",
    (WHOLE_CHIP, BatchCase): "batch_inference",
    (MANY_DIES, BatchCase): "batch_inference",
    (POOLED_DIES, BatchCase): "batch_inference",
    (SERVED_DEVICES, ServingLoad): "serving",
    (SERVED_REGIONS, ServingLoad): "serving",
    (SERVED_PIPELINES, ServingLoad): "serving",
    (SERVED_WHOLE_CHIP, ServingLoad): "serving",
    (SERVED_DIES, ServingLoad): "serving",
    (SERVED_POOLED_DIES, ServingLoad): "serving",
    (DEVICES, ProductCase): "kernels",
    (DEVICES, ExpertsCase): "kernels",
    (DEVICES, ElementwiseCase): "kernels",
    (DEVICES, AttentionCase): "kernels",
    (DEVICES, CollectiveCase): "kernels",
    (PRODUCT, ProductCase): "kernels",
    (SUMMA, ProductCase): "kernels",
    (COLLECTIVE, CollectiveCase): "kernels",
    (DIE_COLLECTIVE, CollectiveCase): "kernels",
    (ATTENTION, AttentionCase): "kernels",
    (STREAM, MemoryStreamCase): "kernels",
    (TRAFFIC, NocTrafficCase): "kernels",
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
    outcomes, common, metrics = (
        empty_outcomes(len(designs), len(workload.cases) if cases else 0),
        length_limits(workload),
        add_input_metrics(metrics),
    )
    every, outer = tuple(range(len(workload.cases))), fidelity in outside.external_fidelities()
    served = fidelity == FIDELITIES[0] and isinstance(workload.cases[0], ServingLoad)
    serving = _module("serving") if served else None
    alike = serving.asked_first.merge_equal_groups(serving.instance_module, designs) if serving else designs

    def judge(one: Design) -> list[CaseOutcomes]:
        return [*_alone(one, workload, fidelity), *common, CaseOutcomes(every, {}, silicon.exceeded_limits(one.chip))]

    with (
        requested_metrics(metrics),
        batch_chips(alike.groups),
        serving.batch_iteration_times(alike, workload) if serving else ALONE,
    ):
        for group, design in alike.groups:
            _refuse_faults(design, workload.cases[0], fidelity)
            whole = (
                SUBMESH_MARK not in fidelity and not outer and not _broken(design) and not _by_itself(design, workload.cases[0])
            )
            for rows, one, found in _judged(outcomes, group, design, judge, every, apart=not whole):
                _fill(outcomes, rows, one, found, len(workload.cases), metrics)
    return outcomes


def worst_limits(designs: Designs, workload: Workload, *, soon: bool = False) -> Outcomes:
    """What binds many designs most, as `binding` has it of one, without metrics; no request and no kernel is played for it.

    Args:
        designs, workload: what is asked.
        soon: only of limits that are known before anything is priced (`early`), design by design.
    """
    outcomes, of = empty_outcomes(len(designs)), early_limits if soon else _limits
    with batch_chips(designs.groups):
        for group, design in designs.groups:
            apart = soon or _broken(design) or _by_itself(design, workload.cases[0])
            judge = partial(_kept, of=of, workload=workload)
            for rows, one, found in _judged(outcomes, group, design, judge, (0,), apart=apart):
                _fill(outcomes, rows, one, found, 1, None)
    return outcomes


def _kept(design: Design, of: Callable[[Design, Workload], list[Limit]], workload: Workload) -> list[CaseOutcomes]:
    """Limits of designs of one structure, without metrics."""
    return [CaseOutcomes((0,), {}, of(design, workload))]


def _judged(
    outcomes: Outcomes,
    rows: Any,
    design: Design,
    judge: Callable[[Design], list[CaseOutcomes]],
    cases: tuple[int, ...],
    *,
    apart: bool,
) -> Iterator[tuple[Any, Design, list[CaseOutcomes]]]:
    """What is judged of designs of one structure: each by itself where they are apart, or its words do not go together."""
    left = split_group(rows, design, None) if apart else [(rows, design)]
    while left:
        rows, one = left.pop()
        try:
            found = judge(one)
        except IncompatibleOptionsError as clash:
            if len(rows) > 1 and clash.some is not None:
                left += split_group(rows, one, clash.some)
                continue
            outcomes.refused.update(dict.fromkeys(rows.tolist(), str(clash)))
            found = [CaseOutcomes(cases, {}, [clash.limit])]
        yield rows, one, found


def fidelities(design: Design, workload: Workload, *, part: bool = False) -> tuple[str, ...]:
    """The readers that a kind of chip has for a kind of workload, lowest first; those of packages last."""
    found = _readers(_judge(design, workload.cases[0]), design, part)
    return found if part else (*found, *outside.matching_evaluators(design, workload.cases[0]))


def fidelity_names() -> tuple[str, ...]:
    """Every word of ``fidelity=``, lowest first: those that ship, and those of installed packages."""
    return (*FIDELITIES, *outside.external_fidelities())


def case_types_at_fidelity(design: Design, fidelity: str) -> list[str]:
    """What a kind of chip can be asked for at a fidelity: kinds of cases, in the plural."""
    here = ((case, kind) for (machine, case), kind in KINDS.items() if machine == machine_of(design.chip))
    found = (case for case, kind in here for software in kind.software if fidelity in _said(software, case, design))
    return list(dict.fromkeys(map(case_type_name, found)))


def _said(software: str, case: type, design: Design) -> tuple[str, ...]:
    """Readers of some software; those of another layout than the design's are not asked for."""
    judge = _module(READERS[software, case])
    if hasattr(judge, "fidelities_of_software"):
        found: tuple[str, ...] = judge.fidelities_of_software(software)
        return found
    return () if hasattr(judge, "fidelities") and software != software_of(design.mapping) else _readers(judge, design)


def explain(design: Design, case: WorkloadCase, *, decode_context: str = "mean", fidelity: str = "closed") -> Breakdown:
    """Where the time of one design goes, operator by operator, for one case of a workload."""
    _refuse_faults(design, case, fidelity)
    if SUBMESH_MARK in fidelity:
        design, case, fidelity = _part(design, case, fidelity)
    if fidelity in outside.external_fidelities():
        return outside.external_breakdown(fidelity, _alone(design, Workload("", (case,), decode_context), fidelity))
    reader = _reader(design, case, fidelity)
    if hasattr(reader, "case_limits") and worst_violation(design, Workload("", (case,))) is not None:
        return Breakdown((), 0.0, {}, {})  # nothing is played that cannot be
    breakdown: Breakdown = reader.case_breakdown(design, case, decode_context, fidelity)
    if design.chip.die is None or breakdown.price:  # nothing is made, or it is said already
        return breakdown
    watts = {name: float(value) for name, value in design_power_by_part(design.chip).items()}
    return replace(
        breakdown, power=watts, price={name: float(value) for name, value in price.price_by_part(design.chip).items()}
    )


def power_over_time(
    design: Design, case: WorkloadCase, *, decode_context: str = "mean", fidelity: str = "closed"
) -> PowerProfile | None:
    """Power of all chips of one design over one case of a workload, which it can run.

    Returns:
        Of a batch, phase by phase; of a served load, over the iterations that a breakdown keeps; of a kernel by itself, its
        mean. None where nothing has a time line (``fidelity=steady``, a part of a mesh, packets on a network) or no power.
    """
    if SUBMESH_MARK in fidelity or fidelity in outside.external_fidelities():
        return None
    reader = _reader(design, case, fidelity)
    if hasattr(reader, "case_power_profile"):
        found: PowerProfile | None = reader.case_power_profile(design, case, decode_context, fidelity)
        return found
    (metrics,) = (compute_all(judged.metrics) for judged in reader.evaluate_cases(design, Workload("", (case,)), fidelity))
    if not {"power", "latency"} <= metrics.keys():
        return None
    seconds, watts = (np.ravel(metrics[name]).astype(float) for name in ("latency", "power"))
    return PowerProfile(np.array([0.0, seconds[0]]), watts[:1], (case.label,))


def submesh_text(design: Design, workload: Workload) -> str:
    """How cases of its kind get smaller with a part of the mesh; "" where they do not."""
    return _in_part(_judge(design, workload.cases[0]), design)


def submesh_of_case(design: Design, case: WorkloadCase, fidelity: str) -> str:
    """Which cores a fidelity on a part of the mesh plays of a case, for people."""
    rows, cols = core_extent(design)
    found = _smaller(design, case, parse_fidelity(fidelity)[1])
    if found is None:
        return (
            f"each kernel on at most {parse_fidelity(fidelity)[1]} x {parse_fidelity(fidelity)[1]} of the {rows} x {cols} cores"
        )
    return "{} x {} of the {} x {} cores".format(*core_extent(found[0]), rows, cols)


def limits(design: Design, workload: Workload) -> list[Limit]:
    """Every limit of a design under a workload, itemised; leaves broadcast over designs. No request is played for it.

    Words that do not go together are the one limit of a design.
    """
    return list(_known_limits(design, workload))


@memoize
def _known_limits(design: Design, workload: Workload) -> tuple[Limit, ...]:
    """Those of `limits`: prices of constraints ask for those of the same design again and again."""
    try:
        return tuple(_limits(design, workload))
    except IncompatibleOptionsError as error:
        return (error.limit,)


def option_conflict(design: Design, workload: Workload) -> IncompatibleOptionsError | None:
    """Why the words of a design do not go together; None where they do."""
    try:
        _of_layout(design, workload)
    except IncompatibleOptionsError as error:
        return error
    return None


def _limits(design: Design, workload: Workload) -> list[Limit]:
    """Every limit; words that do not go together are raised."""
    return [*_of_layout(design, workload), *_of_others(design, workload)]


def _of_layout(design: Design, workload: Workload) -> list[Limit]:
    """Limits of what runs where."""
    reader = _reader(design, workload.cases[0], "closed")
    for name in ("case_limits", "kernel_limits"):  # the latter need no closed form
        if hasattr(reader, name):
            found: list[Limit] = getattr(reader, name)(design, workload)
            return found
    return [limit for judged in reader.evaluate_cases(design, workload, "closed") for limit in judged.limits]


def _of_others(design: Design, workload: Workload) -> list[Limit]:
    """Limits of models and of silicon, wherever anything runs."""
    return [*(limit for judged in length_limits(workload) for limit in judged.limits), *silicon.silicon_limits(design.chip)]


def is_possible(design: Design, workload: Workload) -> bool:
    """Whether one design keeps the limits that are known before anything is priced, at a thousandth of the cost."""
    return all(limit.need <= limit.have for limit in early_limits(design, workload))


def early_limits(design: Design, workload: Workload) -> list[Limit]:
    """Limits of one design that are known before anything is priced; none where its layout knows of none."""
    judge = _judge(design, workload.cases[0])
    found: list[Limit] = judge.early_limits(design, workload) if hasattr(judge, "early_limits") else []
    return found


def unloaded_latency(design: Design, load: ServingLoad, fidelity: str) -> tuple[float, float]:
    """Time to first token and a token of requests that meet no other, of the share that the largest rate is for. [s]"""
    found: tuple[float, float] = _judge(design, load).unloaded_latency(design, load, fidelity)
    return found


def found_max_rate(load: ServingLoad, rate: float) -> "MaxRate | None":
    """What the search for a load's maximum rate has found that came to some rate; None where none was made here. [1/s]"""
    from dse.evaluators.accounting.serving_runs.run_metrics import searched  # which compiles loops

    return searched(load, rate)


def kv_memory_by_pool(design: Design, load: ServingLoad) -> "tuple[PoolKvMemory, ...]":
    """KV memory of an instance of each pool, where its blocks are said."""
    found: tuple[PoolKvMemory, ...] = _judge(design, load).kv_memory_by_pool(design, load)
    return found


def results_by_class_and_turn(design: Design, load: ServingLoad, fidelity: str) -> "tuple[list[ClassResult], list[TurnResult]]":
    """What requests of each class got, and turns of sessions by their places; the load is played for that."""
    found: tuple[list[ClassResult], list[TurnResult]] = _judge(design, load).results_by_class_and_turn(design, load, fidelity)
    return found


def is_simulated(design: Design, workload: Workload, fidelity: str) -> bool:
    """Whether an evaluation takes far longer than its limits do: requests are served, or kernels played."""
    return fidelity != "closed" or hasattr(_judge(design, workload.cases[0]), "case_limits")


def worst_violation(design: Design, workload: Workload) -> Infeasibility | None:
    """What binds one design most, itemised; None where every limit holds."""
    return _worst(limits(design, workload))


def _worst(found: list[Limit]) -> Infeasibility | None:
    worst: Infeasibility | None = None
    for limit in found:
        row = int(np.argmax(limit.need))
        parts = tuple((name, _pick(value, row)) for name, value in limit.parts)
        verdict = Infeasibility(limit.address, _pick(limit.need, row), _pick(limit.have, row), limit.unit, parts)
        if verdict.excess > (worst.excess if worst else 0.0):
            worst = verdict
    return worst


def explain_infeasibility(design: Design, workload: Workload) -> Infeasibility | None:
    """What binds one design most, itemised, with what would do; None where every limit holds."""
    try:
        worst = _worst(_limits(design, workload))
    except IncompatibleOptionsError as clash:
        return clash.verdict
    if worst is None or worst.limit == LENGTH:
        return replace(worst, remedy=length_remedy_text(workload)) if worst else None
    if said := silicon.remedy_text(worst.limit, design.chip):
        return replace(worst, remedy=said)
    remedied: Infeasibility = _reader(design, workload.cases[0], "closed").with_remedy(worst, design, workload)
    return remedied


def _judge(design: Design, case: WorkloadCase) -> ModuleType:
    return _module(READERS[software_of(design.mapping), type(case)])


@cache
def _module(name: str) -> ModuleType:
    return import_module(f"dse.evaluators.workloads.{name}")


def _broken(design: Design) -> bool:
    """Whether something of a mesh with programs is broken: traffic goes round faults by every reader."""
    return design.chip.router is None and design.chip.faults not in (None, "none")


def _by_itself(design: Design, case: WorkloadCase) -> bool:
    """Whether designs of a group are worked out one after the other, whatever reader asks."""
    judge = _judge(design, case)
    return bool(has_attribute(judge, "is_evaluated_alone") and judge.is_evaluated_alone(design))


def _refuse_faults(design: Design, case: WorkloadCase, fidelity: str) -> None:
    """Raises where faults would be ignored."""
    models = isinstance(case, BatchCase | ServingLoad)
    if not _broken(design) or (fidelity == "cycles" and not models):
        return
    cycles = not models and "cycles" in _readers(_judge(design, case), design)
    do = "use fidelity=cycles or chip.faults=none" if cycles else "use chip.faults=none"
    who = "" if cycles else f" (fidelity=cycles can, but not for {case_type_name(type(case))})"
    raise DesignError(f"chip.faults: fidelity={fidelity} cannot route around faults{who}; {do}")


def _alone(design: Design, workload: Workload, fidelity: str) -> list[CaseOutcomes]:
    """Designs of one structure, as one of numbers; on a part of its mesh case by case, as each has its own."""
    found: list[CaseOutcomes] = []
    if fidelity in outside.external_fidelities():
        if fidelity not in fidelities(design, workload):
            known = ", ".join(fidelities(design, workload))
            raise DesignError(
                f"fidelity: {fidelity} does not answer for {case_type_name(type(workload.cases[0]))} here; valid: {known}"
            )
        for row, case in enumerate(workload.cases):
            single = replace(workload, cases=(case,))
            closed = _reader(design, case, "closed").evaluate_cases(design, single, "closed")
            made = [*closed, *length_limits(single), CaseOutcomes((0,), {}, silicon.silicon_limits(design.chip))]
            found += outside.evaluate_external(design, case, row, fidelity, made)
        return found
    if SUBMESH_MARK not in fidelity:
        return list(_reader(design, workload.cases[0], fidelity).evaluate_cases(design, workload, fidelity))
    for row, whole in enumerate(workload.cases):
        one, case, word = _part(design, whole, fidelity)
        judged = _reader(one, case, word).evaluate_cases(one, replace(workload, cases=(case,)), word)
        found += [replace(part, rows=(row,)) for part in judged]
    return found


def _part(design: Design, case: WorkloadCase, fidelity: str) -> tuple[Design, WorkloadCase, str]:
    """One design and a case of it on the part of its mesh that a fidelity names, and its reader."""
    word, _, side = fidelity.partition(SUBMESH_MARK)
    if not side.isdecimal() or not int(side):
        raise DesignError(
            f"fidelity: {fidelity!r}: after {SUBMESH_MARK} comes the side of a square of cores, above 0, as in "
            f"{word}{SUBMESH_MARK}8"
        )
    found = _smaller(design, case, int(side))
    if found is None and _in_part(_judge(design, case), design):
        return design, case, fidelity
    if found is None:
        valid = ", ".join(_readers(_judge(design, case), design))
        what = "models on wafers and tiles (mapping=flat), products, attention and collectives"
        raise DesignError(f"fidelity: {fidelity} plays a part of a mesh, for {what} only; valid here: {valid}")
    return *found, word


def _smaller(design: Design, case: WorkloadCase, side: int) -> tuple[Design, WorkloadCase] | None:
    """One design and a case of it on a part of the mesh; None where cases of its kind do not get smaller."""
    judge = _judge(design, case)
    return judge.shrink_to_submesh(design, case, side) if hasattr(judge, "shrink_to_submesh") else None


def _reader(design: Design, case: WorkloadCase, fidelity: str) -> ModuleType:
    word, _, part = fidelity.partition(SUBMESH_MARK)
    if word not in FIDELITIES:
        raise DesignError(f"fidelity: no reader {fidelity!r}; {suggest_nearest(fidelity, fidelity_names())}")
    reader = _judge(design, case)
    known = _readers(reader, design, bool(part))
    if word not in known:
        raise DesignError(f"fidelity: {_unread(reader, design, case, fidelity)}; valid: {', '.join(known)}")
    return reader


def _unread(judge: ModuleType, design: Design, case: WorkloadCase, fidelity: str) -> str:
    """Why a judge does not have a reader for a design and a case, and what would do."""
    word, asked_for = fidelity.partition(SUBMESH_MARK)[0], case_type_name(type(case))
    if word == FIDELITIES[0]:
        return f"{word} is the steady state of served requests, and {asked_for} are asked for; add workload=serving"
    if said := hasattr(judge, "simulation_obstacle") and judge.simulation_obstacle(design, word):
        return f"{fidelity} cannot play this, because of {said}"
    if word in _readers(judge, design, True):
        return f"whole models are too much for {fidelity} to play; {fidelity}{SUBMESH_MARK}8 plays each kernel on 8 x 8 cores"
    if design.chip.mesh is None:
        return f"{fidelity} plays programs on a mesh of cores, and this chip is {MACHINES[machine_of(design.chip)].name}"
    if isinstance(case, ServingLoad):
        return f"{fidelity} does not play {SOFTWARE[software_of(design.mapping)].name}; ask for batches, workload=static"
    return f"{fidelity} does not play {asked_for} on {MACHINES[machine_of(design.chip)].name}"


def _readers(judge: ModuleType, design: Design, part: bool = False) -> tuple[str, ...]:
    """Fidelities of a judge, of all of a mesh or on a part of it: its own, or those that it has for a layout."""
    if hasattr(judge, "fidelities"):
        own: tuple[str, ...] = judge.fidelities(design, part)
        return own
    found: tuple[str, ...] = getattr(judge, "SUBMESH_FIDELITIES", judge.FIDELITIES) if part else judge.FIDELITIES
    return found


def _in_part(judge: ModuleType, design: Design) -> str:
    """What a judge makes of a case on a part of its mesh, for people; "" where it makes nothing of it."""
    said: str = judge.submesh_text(design) if hasattr(judge, "submesh_text") else getattr(judge, "SUBMESH_TEXT", "")
    return said


def _pick(value: Any, row: int) -> float:
    return float(np.ravel(value)[row if np.size(value) > 1 else 0])


def _fill(
    outcomes: Outcomes, rows: Any, design: Design, found: list[CaseOutcomes], cases: int, wanted: Collection[str] | None
) -> None:
    total: dict[str, Any] = {}
    worst: Any = 0.0
    for judged in found:
        share = len(judged.rows) / cases
        metrics = (
            compute_all(judged.metrics if wanted is None else select_metrics(judged.metrics, wanted)) if judged.metrics else {}
        )
        if wanted is not None:
            outcomes.left.update(judged.metrics.keys() - metrics.keys())
        metrics = add_derived_metrics(metrics, design) if DERIVED_METRICS else metrics
        if isinstance(outcomes.cases, MetricColumns):
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


def _put(columns: MetricColumns, rows: Any, total: dict[str, Any]) -> None:
    """Writes metrics of some designs; of the only one, which has numbers, all at once."""
    if columns.shape == (1,) and np.ndarray not in set(map(type, total.values())):
        columns.update(zip(total, np.fromiter(total.values(), float, len(total))[:, None], strict=True))
        return
    here = as_slice(rows)
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
    outcomes.limit[where] = list(SILICON_LIMITS).index(limit.address)
    outcomes.need[where] = np.broadcast_to(need, rows.shape)[over]
    outcomes.have[where] = np.broadcast_to(limit.have, rows.shape)[over]
    return maximum(worst, excess)
