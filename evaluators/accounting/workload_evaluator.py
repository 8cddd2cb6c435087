"""What evaluates one type of workload: metrics, limits, breakdown and levers of designs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dse.evaluators.accounting.breakdown import Breakdown
from dse.evaluators.accounting.metrics import CaseOutcomes
from dse.evaluators.accounting.power_profile import PowerProfile
from dse.evaluators.accounting.remedies import Lever
from dse.evaluators.accounting.usage import PeakRates
from dse.space.design import Design
from dse.space.limits import Infeasibility, Limit
from dse.space.workload import BatchCase, Workload, WorkloadCase


def no_text(design: Design) -> str:
    """No text: nothing becomes of a case on a submesh."""
    return ""


def no_obstacle(design: Design, fidelity: str) -> str:
    """No text: nothing keeps a simulator from running a design."""
    return ""


def never_alone(design: Design) -> bool:
    """No design is evaluated apart from others."""
    return False


def no_limits(design: Design, workload: Workload) -> list[Limit]:
    """No limits are known before a cost."""
    return []


def no_submesh(design: Design, case: WorkloadCase, side: int) -> None:
    """Cases do not shrink to a submesh."""


def no_choices(design: Design, case: BatchCase, decode_context: str) -> None:
    """Designs leave nothing open."""


@dataclass(frozen=True, kw_only=True)
class WorkloadEvaluator:
    """Functions that evaluate one type of workload; each module of `workloads` has one.

    Attributes:
        fidelities: of a design, on the whole mesh or on a submesh.
        evaluate_cases: metrics and limits of all cases at a fidelity.
        known_limits: limits without any cost, of designs of one structure.
        case_breakdown: time of one design for one case, by operator and resource.
        levers: what may be changed so that a violated limit holds.
        simulates: whether the lowest fidelity simulates as well, so that limits come first.
        fidelities_of_software: of some software on any chip; None where they depend on more.
        power_profile: power over time of one case; None where the mean stands for it.
        peak_rates: of all chips of a design together; None where no rates are known.
        simulation_obstacle: why a fidelity cannot simulate a design, and the setting to change.
        submesh_text: how a case shrinks on a submesh, as text.
        shrink_to_submesh: a design and a case on fewer cores; None where cases do not shrink.
        early_limits: limits of one design before any cost.
        is_evaluated_alone: whether a design is evaluated apart from others.
        settle_open_choices: chooses together what designs leave open.
    """

    fidelities: Callable[[Design, bool], tuple[str, ...]]
    evaluate_cases: Callable[[Design, Workload, str], list[CaseOutcomes]]
    known_limits: Callable[[Design, Workload], list[Limit]]
    case_breakdown: Callable[..., Breakdown]
    levers: Callable[[Infeasibility, Design, Workload], Iterable[Lever]]
    simulates: bool = False
    fidelities_of_software: Callable[[str], tuple[str, ...]] | None = None
    power_profile: Callable[..., PowerProfile | None] | None = None
    peak_rates: Callable[[Design], PeakRates] | None = None
    simulation_obstacle: Callable[[Design, str], str] = no_obstacle
    submesh_text: Callable[[Design], str] = no_text
    shrink_to_submesh: Callable[[Design, WorkloadCase, int], tuple[Design, WorkloadCase] | None] = no_submesh
    early_limits: Callable[[Design, Workload], list[Limit]] = no_limits
    is_evaluated_alone: Callable[[Design], bool] = never_alone
    settle_open_choices: Callable[..., None] = no_choices
