"""Error bands of a study: one line per chip, kernel and metric that it optimises or bounds."""

from typing import Any

from dse.accuracy.residuals import ErrorBand, estimate_error_band
from dse.accuracy.result_kind import kernel_algorithm, result_kind
from dse.config.part_presets import find_parts_from_outside
from dse.evaluators.accounting.external_evaluators import external_fidelities
from dse.execution.study import Study
from dse.space.compatibility import workload_name
from dse.space.multi_chip_space import CHIP_KNOB


def estimate_study_error_bands(study: Study) -> list[dict[str, Any]]:
    """Error bands as JSON values: chip, software, metric, span, number of rows and text.

    Null if there is no band.
    """
    question = workload_name(study.config["workload"])
    metrics = dict.fromkeys((*study.objectives, *(bound.metric for bound in study.bounds)))
    lines = []
    for chosen, space in study.question.space.base_spaces:
        group = study.config["chips"][chosen[CHIP_KNOB]] if chosen else study.config
        names = {name: str(group["choices"].get(name, "")) for name in ("chip", "mapping", "stack")}
        moved = {address for targets in space.targets.values() for address in targets}
        set_ = (source.address for source in study.question.sources if source.source == "override")
        changed = any(address.rpartition(": ")[2].startswith("chip.") for address in (*moved, *set_))
        changed |= bool(find_parts_from_outside(group["choices"]))
        for kernel in _kernel_names(space, question):
            for metric in metrics:
                kind = result_kind(names, kernel, question, metric, study.fidelity)
                band = (
                    ErrorBand(metric, float("nan"), kind)  # rows say nothing of a package's numbers
                    if study.fidelity in external_fidelities()
                    else estimate_error_band(kind, metric, float("nan"), changed=changed)
                )
                lines.append(
                    {
                        "chip": chosen.get(CHIP_KNOB, names["chip"]),
                        "software": band.kind.software,
                        "metric": metric,
                        "low": band.low,
                        "high": band.high,
                        "rows": band.rows,
                        "text": band.text,
                    }
                )
    return lines


def _kernel_names(space: Any, question: str) -> list[str]:
    """The algorithms that a question by itself is answered with: those of a knob, or the one that is fixed."""
    addresses = (f"mapping.{question}", "mapping.dataflow")
    knobs = [knob for knob in space.knobs if set(addresses) & set(space.targets[knob.address])]
    return [str(value) for knob in knobs for value in knob.values] or [kernel_algorithm(space.base, question)]
