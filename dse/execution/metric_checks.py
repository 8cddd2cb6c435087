"""Check, before a study starts, that each chip has the metrics that the study requests."""

from collections.abc import Sequence

import numpy as np

from dse.config.metric_expressions import evaluate_with_derived, input_metrics
from dse.evaluators.accounting.usage import absence_reason
from dse.execution.screen_block import requested_metrics
from dse.execution.study import Study
from dse.execution.study_settings import SCREEN_FIDELITIES, STEADY
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.workload import ServingLoad


def refuse_missing_metrics(study: Study) -> None:
    """Refuse objectives, constraints and plots of metrics that a chip does not have.

    One design of each chip is evaluated as the study begins. A design that violates a limit may have no metrics and is no
    evidence. Fidelities above the screen's take too long and are not checked.

    Raises:
        DesignError: naming the metric, what it is made of, and what is there.
    """
    fidelity = study.screen_fidelity if study.screen.run else study.fidelity
    if fidelity not in SCREEN_FIDELITIES or (_is_served(study) and fidelity != STEADY and not study.screen.run):
        return  # the first design of a search says it, and takes as long
    for chosen, space in study.question.space.base_spaces:
        metrics = _design_metrics(study, space.design_at({}), fidelity)
        lacking = [name for name in requested_metrics(study) if name not in metrics]
        if metrics and lacking:
            whose = f"chip {chosen[CHIP_KNOB]}" if chosen else "this kind of chip or workload"
            raise DesignError(_missing_text(study, lacking[0], whose, fidelity, metrics))


def _design_metrics(study: Study, design: Design, fidelity: str) -> list[str]:
    """The metrics that a design has, defined ones among them; none where it breaks a limit or cannot be asked."""
    question = study.question
    try:
        outcomes = evaluate_with_derived(
            stack_designs([design]), question.workload, question.defined, fidelity=fidelity, metrics=requested_metrics(study)
        )
    except DesignError:  # another design may be asked, and who evaluates it says what is wrong
        return []
    return [name for name, column in outcomes.columns.items() if not np.isnan(column).all()] if outcomes.limit[0] < 0 else []


def _missing_text(study: Study, name: str, whose: str, fidelity: str, metrics: Sequence[str]) -> str:
    group = "objectives" if name in study.objectives else "constraints"
    if name not in study.objectives and name not in {bound.metric for bound in study.bounds}:
        group = "report.lines"
    defined = study.question.defined
    absent = [input_metric for input_metric in input_metrics([name], defined) if input_metric not in metrics]
    if name in defined and not absent:
        return f"{group}.{name}: {defined[name].text!r} is no finite number; it divides by 0 or is too large"
    made = f"it is computed from {', '.join(absent)}, and " if name in defined else ""
    at = "" if fidelity == "analytical" else f" at fidelity={fidelity}{', that of the screen' if study.screen.run else ''}"
    then = ""
    if _is_served(study) and fidelity == STEADY:
        apart = study.fidelity != STEADY
        words = "screen.run=false or screen.fidelity=analytical" if apart else "fidelity=analytical"
        then = f"; to simulate requests, set {words}"
    lacks = f"{', '.join(absent) or name}{at}{absence_reason(absent or [name], metrics)}"
    return f"{group}.{name}: {made}{whose} has no {lacks}{then}; it has {', '.join(metrics)}"


def _is_served(study: Study) -> bool:
    """Whether requests are served, which the closed form plays."""
    return any(isinstance(case, ServingLoad) for case in study.question.workload.cases)
