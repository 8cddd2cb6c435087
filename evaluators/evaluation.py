"""Evaluate designs under a workload: metrics, limits and breakdowns of one design or of many.

Evaluation is pure: equal inputs give equal results, for one design as for a hundred thousand.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.evaluators.accounting import external_evaluators as outside
from dse.evaluators.accounting.breakdown import Breakdown
from dse.evaluators.accounting.broken_cores import refuse_broken_cores
from dse.evaluators.accounting.die_crossings import refuse_crossings, with_divided_mesh
from dse.evaluators.accounting.layout_registry import BATCH_LAYOUTS, SERVING_LAYOUTS
from dse.evaluators.accounting.metrics import CaseOutcomes, add_input_metrics
from dse.evaluators.accounting.outcome_columns import fill_outcomes
from dse.evaluators.accounting.outcomes import Outcomes, empty_outcomes
from dse.evaluators.accounting.power_profile import PowerProfile
from dse.evaluators.accounting.remedies import Lever, advise, remedy_text
from dse.evaluators.accounting.sequence_limits import LENGTH, length_advice_text, length_limits
from dse.evaluators.accounting.usage import PeakRates
from dse.evaluators.accounting.workload_evaluator import WorkloadEvaluator
from dse.evaluators.calls.submesh import SUBMESH_MARK, core_extent, parse_fidelity
from dse.evaluators.malloc_settings import MANY, keep_freed_memory
from dse.evaluators.silicon import manufacturing_limits as silicon
from dse.evaluators.silicon import price
from dse.evaluators.silicon.chip_batches import ALONE, batch_chips
from dse.evaluators.silicon.energy import design_power_by_part
from dse.evaluators.tuning.per_design import split_group
from dse.space.chip import Chip
from dse.space.compatibility import KINDS, case_type_name
from dse.space.design import Design, Designs, prefill_mapping, stack_designs
from dse.space.errors import DesignError, suggest_nearest
from dse.space.former_words import read_fidelity
from dse.space.layers import has_described_layers
from dse.space.lazy_metrics import compute_all, requested_metrics
from dse.space.limits import IncompatibleOptionsError, Infeasibility, Limit
from dse.space.machines import MACHINES, machine_of
from dse.space.memoize import memoize
from dse.space.software import (
    ATTENTION,
    COLLECTIVE,
    DEVICES,
    DIE_COLLECTIVE,
    MODEL_LAYOUTS,
    PRODUCT,
    SERVED_DEVICES,
    SOFTWARE,
    STREAM,
    SUMMA,
    TRAFFIC,
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

PHYSICS_VERSION = 40
"""Version of the physics: raised by hand whenever a golden result changes, so that stored results are not mixed."""

FIDELITIES = ("steady_state", "analytical", "events", "cycles")
"""Fidelities, each nearer to the machine than the one before; the first is for serving loads only, without simulation."""


READERS: dict[tuple[str, type], str] = {
    **{(software, BatchCase): "batch_inference" for software in BATCH_LAYOUTS},
    **{(software, ServingLoad): "serving" for software in SERVING_LAYOUTS},
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
"""Modules of `workloads` that evaluate designs, by the software that runs and the type of case; imported at first use."""


def evaluate(
    designs: Designs,
    workload: Workload,
    *,
    fidelity: str = "analytical",
    cases: bool = False,
    metrics: Collection[str] | None = None,
) -> Outcomes:
    """Metrics of designs under a workload, with the violated limit of each infeasible design.

    Args:
        designs: many, grouped by structure.
        workload: cases for the designs.
        fidelity: an element of `FIDELITIES`, or one with a submesh.
        cases: also keep the metrics of each case.
        metrics: that somebody asks for, of those that take work of their own (energy, power, price, errors of tables); None for
            all.

    Raises:
        DesignError: an unknown algorithm name, or a fidelity that is unknown or has nothing to play on this chip. Infeasible
            designs are answered, not raised, and so are those whose words do not go together (`Outcomes.refused`).
    """
    fidelity = read_fidelity(fidelity)
    if len(designs) >= MANY:
        keep_freed_memory()
    outcomes, common, metrics = (
        empty_outcomes(len(designs), len(workload.cases) if cases else 0),
        length_limits(workload),
        add_input_metrics(metrics),
    )
    designs, weights = (
        Designs(designs.size, tuple((rows, with_divided_mesh(design)) for rows, design in designs.groups)),
        workload.case_weights,
    )
    every, outer = tuple(range(len(workload.cases))), fidelity in outside.external_fidelities()
    served = fidelity == FIDELITIES[0] and isinstance(workload.cases[0], ServingLoad)
    serving = _module("serving") if served else None
    alike = serving.asked_first.merge_equal_groups(serving.serving_layout, designs) if serving else designs

    def evaluate_alone(design: Design) -> list[CaseOutcomes]:
        return [*_alone(design, workload, fidelity), *common, CaseOutcomes(every, {}, silicon.exceeded_limits(design.chip))]

    with (
        requested_metrics(metrics),
        batch_chips(alike.groups),
        serving.batch_iteration_times(alike, workload) if serving else ALONE,
    ):
        for group, design in alike.groups:
            _refuse_faults(design, workload.cases[0], fidelity)
            _refuse_described_layers(design, workload)
            refuse_crossings(design, fidelity)
            refuse_broken_cores(design, fidelity)
            whole = (
                SUBMESH_MARK not in fidelity and not outer and not _broken(design) and not _by_itself(design, workload.cases[0])
            )
            for rows, single_design, found_outcomes in _judged(outcomes, group, design, evaluate_alone, every, apart=not whole):
                fill_outcomes(
                    outcomes,
                    rows,
                    single_design,
                    found_outcomes,
                    len(workload.cases),
                    metrics,
                    weights=weights,
                    worst_case=workload.combine == "worst",
                )
    return outcomes


def find_worst_limits(designs: Designs, workload: Workload, *, soon: bool = False) -> Outcomes:
    """Most violated limit of each design, without metrics and without simulation.

    Args:
        designs, workload: designs and cases.
        soon: early limits only, evaluated design by design.
    """
    outcomes, limits = empty_outcomes(len(designs)), early_limits if soon else _limits
    with batch_chips(designs.groups):
        for group, whole in designs.groups:
            design = with_divided_mesh(whole)
            apart = soon or _broken(design) or _by_itself(design, workload.cases[0])
            judge = partial(_kept, find_limits=limits, workload=workload)
            for rows, single_design, found_outcomes in _judged(outcomes, group, design, judge, (0,), apart=apart):
                fill_outcomes(outcomes, rows, single_design, found_outcomes, 1, None)
    return outcomes


def _kept(design: Design, find_limits: Callable[[Design, Workload], list[Limit]], workload: Workload) -> list[CaseOutcomes]:
    """Limits of designs of one structure, without metrics."""
    return [CaseOutcomes((0,), {}, find_limits(design, workload))]


def _judged(
    outcomes: Outcomes,
    rows: Any,
    design: Design,
    judge: Callable[[Design], list[CaseOutcomes]],
    cases: tuple[int, ...],
    *,
    apart: bool,
) -> Iterator[tuple[Any, Design, list[CaseOutcomes]]]:
    """Outcomes of designs of one structure, one by one where they are evaluated alone or their options conflict."""
    left = split_group(rows, design, None) if apart else [(rows, design)]
    while left:
        rows, single_design = left.pop()
        try:
            found_judge = judge(single_design)
        except IncompatibleOptionsError as clash:
            if len(rows) > 1 and clash.some is not None:
                left += split_group(rows, single_design, clash.some)
                continue
            outcomes.refused.update(dict.fromkeys(rows.tolist(), str(clash)))
            found_judge = [CaseOutcomes(cases, {}, [clash.limit])]
        yield rows, single_design, found_judge


def fidelities(design: Design, workload: Workload, *, part: bool = False) -> tuple[str, ...]:
    """Fidelities available for a design and a workload, lowest first; those of packages last."""
    readers = _evaluator(design, workload.cases[0]).fidelities(design, part)
    return readers if part else (*readers, *outside.matching_evaluators(design, workload.cases[0]))


def fidelity_names() -> tuple[str, ...]:
    """Names of all fidelities, lowest first: those that ship, then those of installed packages."""
    return (*FIDELITIES, *outside.external_fidelities())


def case_types_at_fidelity(design: Design, fidelity: str) -> list[str]:
    """Types of case that a design's machine supports at a fidelity, as plural names."""
    case_kinds = ((case, kind) for (machine, case), kind in KINDS.items() if machine == machine_of(design.chip))
    cases = (case for case, kind in case_kinds for software in kind.software if fidelity in _said(software, case, design))
    return list(dict.fromkeys(map(case_type_name, cases)))


def _said(software: str, case: type, design: Design) -> tuple[str, ...]:
    """Fidelities of some software; of another layout than the design's, those without further conditions."""
    evaluator = _evaluator_of_software(software, case)
    if evaluator.fidelities_of_software is not None:
        return evaluator.fidelities_of_software(software)
    return () if software != software_of(design.mapping) else evaluator.fidelities(design, False)


def explain(design: Design, case: WorkloadCase, *, decode_context: str = "mean", fidelity: str = "analytical") -> Breakdown:
    """Time of one design for one case of a workload, broken down by operator and resource."""
    fidelity, design = read_fidelity(fidelity), with_divided_mesh(design)
    _refuse_faults(design, case, fidelity)
    _refuse_described_layers(design, Workload("", (case,)))
    refuse_crossings(design, fidelity)
    refuse_broken_cores(design, fidelity)
    if SUBMESH_MARK in fidelity:
        design, case, fidelity = _part(design, case, fidelity)
    if fidelity in outside.external_fidelities():
        return outside.external_breakdown(fidelity, _alone(design, Workload("", (case,), decode_context), fidelity))
    evaluator = _evaluator_at(design, case, fidelity)
    if evaluator.simulates and find_worst_violation(design, Workload("", (case,))) is not None:
        return Breakdown((), 0.0, {}, {})  # nothing is played that cannot be
    breakdown = evaluator.case_breakdown(design, case, decode_context, fidelity)
    if design.chip.die is None or breakdown.price:  # nothing is made, or it is said already
        return breakdown
    kinds = {"": design.chip}
    if design.pools is not None:
        kinds = {"prefill: ": design.pools.prefill.chip, "decode: ": design.chip}
    return replace(breakdown, power=_by_part(design_power_by_part, kinds), price=_by_part(price.price_by_part, kinds))


def _by_part(figures: Callable[[Chip], Mapping[str, Any]], kinds: Mapping[str, Chip]) -> dict[str, float]:
    """Figures of one chip of each kind by part, each name after that of its kind."""
    return {f"{kind}{name}": float(value) for kind, chip in kinds.items() for name, value in figures(chip).items()}


def power_over_time(
    design: Design, case: WorkloadCase, *, decode_context: str = "mean", fidelity: str = "analytical"
) -> PowerProfile | None:
    """Power of all chips of one design over the time of one case of a workload. [W]

    Returns:
        Of a batch, phase by phase; of a served load, over the iterations that a breakdown keeps; of a kernel by itself, its
        mean. None where nothing has a time line (``fidelity=steady_state``, a part of a mesh, packets) or no power.
    """
    fidelity, design = read_fidelity(fidelity), with_divided_mesh(design)
    if SUBMESH_MARK in fidelity or fidelity in outside.external_fidelities():
        return None
    evaluator = _evaluator_at(design, case, fidelity)
    if evaluator.power_profile is not None:
        return evaluator.power_profile(design, case, decode_context, fidelity)
    (metrics,) = (compute_all(judged.metrics) for judged in evaluator.evaluate_cases(design, Workload("", (case,)), fidelity))
    if not {"power", "latency"} <= metrics.keys():
        return None
    seconds, watts = (np.ravel(metrics[name]).astype(float) for name in ("latency", "power"))
    return PowerProfile(np.array([0.0, seconds[0]]), watts[:1], (case.label,))


def peak_rates(design: Design, case: WorkloadCase) -> PeakRates | None:
    """Peak rates of all chips of a design together; None for single kernels. [FLOP/s], [B/s]"""
    evaluator = _evaluator(design, case)
    return None if evaluator.peak_rates is None else evaluator.peak_rates(design)


def submesh_text(design: Design, workload: Workload) -> str:
    """How cases shrink on a submesh, as text; empty string if they do not shrink."""
    return _evaluator(design, workload.cases[0]).submesh_text(design)


def submesh_of_case(design: Design, case: WorkloadCase, fidelity: str) -> str:
    """Cores of the submesh that a fidelity simulates for a case, as text."""
    rows, cols = core_extent(design)
    submesh = _smaller(design, case, parse_fidelity(fidelity)[1])
    if submesh is None:
        return (
            f"each kernel on at most {parse_fidelity(fidelity)[1]} x {parse_fidelity(fidelity)[1]} of the {rows} x {cols} cores"
        )
    return "{} x {} of the {} x {} cores".format(*core_extent(submesh[0]), rows, cols)


def limits(design: Design, workload: Workload) -> list[Limit]:
    """All limits of a design under a workload, itemised and without simulation.

    Values broadcast over designs. Options that cannot be combined are the only limit of their design.
    """
    return list(_known_limits(design, workload))


@memoize
def _known_limits(design: Design, workload: Workload) -> tuple[Limit, ...]:
    """Cached `limits`: shadow prices need those of the same design again and again."""
    try:
        return tuple(_limits(with_divided_mesh(design), workload))
    except IncompatibleOptionsError as error:
        return (error.limit,)


def limits_by_design(designs: Sequence[Design], workload: Workload) -> list[list[Limit]]:
    """Every limit of each design, itemised as `limits` does, for designs of equal structure together.

    Args:
        designs: all of scalars.
        workload: under which they count.
    """
    design_limits: list[list[Limit]] = [[] for _ in designs]
    stacked, outcomes = stack_designs(designs), empty_outcomes(len(designs))
    with batch_chips(stacked.groups):
        for group, whole in stacked.groups:
            design = with_divided_mesh(whole)
            apart = _broken(design) or _by_itself(design, workload.cases[0])
            judge = partial(_kept, find_limits=_limits, workload=workload)
            for rows, _, judged in _judged(outcomes, group, design, judge, (0,), apart=apart):
                itemised = [limit for outcome in judged for limit in outcome.limits]
                for place, row in enumerate(rows):
                    design_limits[row] = [_limit_of_design(limit, place, len(rows)) for limit in itemised]
    return design_limits


def settle_open_choices(designs: Sequence[Design], case: WorkloadCase, *, decode_context: str = "mean") -> None:
    """Choose together what designs leave open for a case, for designs that are then evaluated alone.

    Args:
        designs: all of scalars.
        case: of a workload.
        decode_context: which decode step stands for others.
    """
    for _, design in stack_designs(designs).groups if designs else ():
        _evaluator(design, case).settle_open_choices(with_divided_mesh(design), case, decode_context)


def _limit_of_design(limit: Limit, place: int, count: int) -> Limit:
    """A limit of many designs as it is of one of them."""

    def pick_value(value: Any) -> Any:
        values = np.atleast_1d(value)
        return values[..., place] if values.shape[-1] == count else value

    parts = tuple((name, pick_value(value)) for name, value in limit.parts)
    return limit._replace(need=pick_value(limit.need), have=pick_value(limit.have), parts=parts)


def find_option_conflict(design: Design, workload: Workload) -> IncompatibleOptionsError | None:
    """Error for options of a design that cannot be combined; None if they can."""
    try:
        _of_layout(with_divided_mesh(design), workload)
    except IncompatibleOptionsError as error:
        return error
    return None


def _limits(design: Design, workload: Workload) -> list[Limit]:
    """All limits; conflicting options are raised."""
    return [*_of_layout(design, workload), *_of_others(design, workload)]


def _of_layout(design: Design, workload: Workload) -> list[Limit]:
    """Limits of what runs where."""
    _refuse_described_layers(design, workload)
    return _evaluator_at(design, workload.cases[0], "analytical").known_limits(design, workload)


def _of_others(design: Design, workload: Workload) -> list[Limit]:
    """Limits of models and of silicon, wherever anything runs."""
    return [*(limit for judged in length_limits(workload) for limit in judged.limits), *silicon.silicon_limits(design.chip)]


def is_possible(design: Design, workload: Workload) -> bool:
    """Whether one design keeps its early limits, at a thousandth of the time of an evaluation."""
    return all(limit.need <= limit.have for limit in early_limits(design, workload))


def early_limits(design: Design, workload: Workload) -> list[Limit]:
    """Limits of one design that are known before any cost is computed; may be empty."""
    return _evaluator(design, workload.cases[0]).early_limits(with_divided_mesh(design), workload)


def get_found_max_rate(load: ServingLoad, rate: float) -> "MaxRate | None":
    """Search result that led to a load's maximum rate; None if the search did not run here. [1/s]"""
    from dse.evaluators.accounting.serving_runs.run_metrics import known_max_rate  # which compiles loops

    return known_max_rate(load, rate)


def kv_memory_by_pool(design: Design, load: ServingLoad) -> "tuple[PoolKvMemory, ...]":
    """KV memory of one instance in each pool, for pools whose KV blocks are counted."""
    kv_memory: tuple[PoolKvMemory, ...] = _module("serving").kv_memory_by_pool(with_divided_mesh(design), load)
    return kv_memory


def results_by_class_and_turn(design: Design, load: ServingLoad, fidelity: str) -> "tuple[list[ClassResult], list[TurnResult]]":
    """Results of each SLO class, and of session turns by position, from a serving simulation."""
    results: tuple[list[ClassResult], list[TurnResult]] = _module("serving").results_by_class_and_turn(
        with_divided_mesh(design), load, fidelity
    )
    return results


def is_simulated(design: Design, workload: Workload, fidelity: str) -> bool:
    """Whether evaluation needs simulation, which takes far longer than computing limits."""
    return fidelity != "analytical" or _evaluator(design, workload.cases[0]).simulates


def find_worst_violation(design: Design, workload: Workload) -> Infeasibility | None:
    """Most violated limit of one design, itemised; None if every limit holds."""
    return _worst(limits(design, workload))


def _worst(limits: list[Limit]) -> Infeasibility | None:
    worst: Infeasibility | None = None
    for limit in limits:
        row = int(np.argmax(limit.need))
        parts = tuple((name, _pick(value, row)) for name, value in limit.parts)
        verdict = Infeasibility(limit.address, _pick(limit.need, row), _pick(limit.have, row), limit.unit, parts)
        if verdict.excess > (worst.excess if worst else 0.0):
            worst = verdict
    return worst


def explain_infeasibility(design: Design, workload: Workload) -> Infeasibility | None:
    """Most violated limit of one design with the remedy; None if every limit holds."""
    design = with_divided_mesh(design)
    try:
        worst = _worst(_limits(design, workload))
    except IncompatibleOptionsError as clash:
        return clash.verdict
    if worst is None:
        return None
    if worst.limit == LENGTH:
        levers: Iterable[Lever] = advise(length_advice_text(workload))
    else:
        levers = advise(silicon.advice_text(worst.limit, design.chip)) or _evaluator_at(
            design, workload.cases[0], "analytical"
        ).levers(worst, design, workload)
    return replace(worst, remedy=remedy_text(levers))


def _evaluator(design: Design, case: WorkloadCase) -> WorkloadEvaluator:
    """What evaluates a design under a type of case."""
    return _evaluator_of_software(software_of(design.mapping), type(case))


def _evaluator_of_software(software: str, case: type) -> WorkloadEvaluator:
    """What evaluates some software under a type of case."""
    evaluator: WorkloadEvaluator = _module(READERS[software, case]).EVALUATOR
    return evaluator


@cache
def _module(name: str) -> ModuleType:
    return import_module(f"dse.evaluators.workloads.{name}")


def _broken(design: Design) -> bool:
    """Whether a mesh with programs has faults: all fidelities route around them."""
    return design.chip.router is None and design.chip.faults not in (None, "none")


def _by_itself(design: Design, case: WorkloadCase) -> bool:
    """Whether designs of a group are evaluated one after the other, at every fidelity."""
    return _evaluator(design, case).is_evaluated_alone(design)


def _refuse_described_layers(design: Design, workload: Workload) -> None:
    """Raises where operators of a graph describe layers, on a layout other than that of devices."""
    models = [case.model for case in workload.cases if isinstance(case, BatchCase | ServingLoad)]
    described = [model for model in models if has_described_layers(model)]
    mappings = [design.mapping, *([] if design.pools is None else [prefill_mapping(design)])]
    for software in map(software_of, mappings) if described else ():
        if software not in (DEVICES, SERVED_DEVICES):
            raise DesignError(
                f"model: {described[0].name} has layers of no known block, which {MODEL_LAYOUTS[software].text} cannot divide; "
                "use devices, as chip=h100 mapping=tensor_parallel"
            )


def _refuse_faults(design: Design, case: WorkloadCase, fidelity: str) -> None:
    """Raises where faults would be ignored."""
    models = isinstance(case, BatchCase | ServingLoad)
    if not _broken(design) or (fidelity == "cycles" and not models):
        return
    cycles = not models and "cycles" in _evaluator(design, case).fidelities(design, False)
    do = "use fidelity=cycles or chip.faults=none" if cycles else "use chip.faults=none"
    who = "" if cycles else f" (fidelity=cycles can, but not for {case_type_name(type(case))})"
    raise DesignError(f"chip.faults: fidelity={fidelity} cannot route around faults{who}; {do}")


def _alone(design: Design, workload: Workload, fidelity: str) -> list[CaseOutcomes]:
    """Designs of one structure, as one of numbers; on a part of its mesh case by case, as each has its own."""
    outcomes: list[CaseOutcomes] = []
    if fidelity in outside.external_fidelities():
        if fidelity not in fidelities(design, workload):
            known = ", ".join(fidelities(design, workload))
            raise DesignError(
                f"fidelity: {fidelity} does not support {case_type_name(type(workload.cases[0]))} here; valid: {known}"
            )
        for row, case in enumerate(workload.cases):
            single = replace(workload, cases=(case,))
            closed = _evaluator_at(design, case, "analytical").evaluate_cases(design, single, "analytical")
            made = [*closed, *length_limits(single), CaseOutcomes((0,), {}, silicon.silicon_limits(design.chip))]
            outcomes += outside.evaluate_external(design, case, row, fidelity, made)
        return outcomes
    if SUBMESH_MARK not in fidelity:
        return list(_evaluator_at(design, workload.cases[0], fidelity).evaluate_cases(design, workload, fidelity))
    for row, whole in enumerate(workload.cases):
        single_design, case, word = _part(design, whole, fidelity)
        judged = _evaluator_at(single_design, case, word).evaluate_cases(single_design, replace(workload, cases=(case,)), word)
        outcomes += [replace(part, rows=(row,)) for part in judged]
    return outcomes


def _part(design: Design, case: WorkloadCase, fidelity: str) -> tuple[Design, WorkloadCase, str]:
    """One design and case on the submesh that a fidelity names, and the fidelity without the submesh."""
    word, _, side = fidelity.partition(SUBMESH_MARK)
    if not side.isdecimal() or not int(side):
        raise DesignError(
            f"fidelity: {fidelity!r}: {SUBMESH_MARK} must be followed by the side of a square submesh, "
            f"above 0, as in {word}{SUBMESH_MARK}8"
        )
    submesh = _smaller(design, case, int(side))
    if submesh is None and _evaluator(design, case).submesh_text(design):
        return design, case, fidelity
    if submesh is None:
        valid = ", ".join(_evaluator(design, case).fidelities(design, False))
        what = "models on wafers and tiles (mapping=flat), products, attention and collectives"
        raise DesignError(f"fidelity: {fidelity} simulates a submesh, which only {what} support; valid here: {valid}")
    return *submesh, word


def _smaller(design: Design, case: WorkloadCase, side: int) -> tuple[Design, WorkloadCase] | None:
    """One design and a case of it on a part of the mesh; None where cases of its kind do not get smaller."""
    return _evaluator(design, case).shrink_to_submesh(design, case, side)


def _evaluator_at(design: Design, case: WorkloadCase, fidelity: str) -> WorkloadEvaluator:
    word, _, part = fidelity.partition(SUBMESH_MARK)
    if word not in FIDELITIES:
        raise DesignError(f"fidelity: no option {fidelity!r}; {suggest_nearest(fidelity, fidelity_names())}")
    evaluator = _evaluator(design, case)
    known = evaluator.fidelities(design, bool(part))
    if word not in known:
        raise DesignError(f"fidelity: {_unread(evaluator, design, case, fidelity)}; valid: {', '.join(known)}")
    return evaluator


def _unread(evaluator: WorkloadEvaluator, design: Design, case: WorkloadCase, fidelity: str) -> str:
    """Why a design and a case do not support a fidelity, and what to change."""
    word, asked_for = fidelity.partition(SUBMESH_MARK)[0], case_type_name(type(case))
    if word == FIDELITIES[0]:
        return f"{word} is the steady state of a serving load, got {asked_for}; add workload=serving"
    if obstacle := evaluator.simulation_obstacle(design, word):
        return f"{fidelity} cannot simulate this design because of {obstacle}"
    if word in evaluator.fidelities(design, True):
        return f"{fidelity} supports whole models on submeshes only; use {fidelity}{SUBMESH_MARK}8 for kernels on 8 x 8 cores"
    if design.chip.mesh is None:
        return f"{fidelity} needs a mesh of cores, and this chip is {MACHINES[machine_of(design.chip)].name}"
    if isinstance(case, ServingLoad):
        return f"{fidelity} does not support {SOFTWARE[software_of(design.mapping)].name}; use static batches, workload=static"
    return f"{fidelity} does not support {asked_for} on {MACHINES[machine_of(design.chip)].name}"


def _pick(value: Any, row: int) -> float:
    return float(np.ravel(value)[row if np.size(value) > 1 else 0])
