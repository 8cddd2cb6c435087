"""How far off measured rows of a study's kinds were: a line for each chip, kernel and metric that it wants or bounds."""

from typing import Any

from dse.config.parts import other_parts
from dse.measured.kind import kernel_of, kind_of
from dse.measured.residuals import band
from dse.running.study import Study
from dse.space.chips import CHIP
from dse.space.kinds import called


def of_study(asked: Study) -> list[dict[str, Any]]:
    """Lines as plain values: chip and software, metric, span of the errors and in words what the rows are; null for none."""
    question = called(asked.config["workload"])
    metrics = dict.fromkeys((*asked.objectives, *(bound.metric for bound in asked.bounds)))
    lines = []
    for chosen, space in asked.question.space.each:
        group = asked.config["chips"][chosen[CHIP]] if chosen else asked.config
        names = {name: str(group["choices"].get(name, "")) for name in ("chip", "mapping", "stack")}
        moved = {address for targets in space.targets.values() for address in targets}
        set_ = (source.address for source in asked.question.sources if source.source == "override")
        changed = any(address.rpartition(": ")[2].startswith("chip.") for address in (*moved, *set_))
        changed |= bool(other_parts(group["choices"]))
        for kernel in _kernels(space, question):
            for metric in metrics:
                found = band(kind_of(names, kernel, question, metric, asked.fidelity), metric, float("nan"), changed=changed)
                lines.append(
                    {
                        "chip": chosen.get(CHIP, names["chip"]),
                        "software": found.kind.software,
                        "metric": metric,
                        "low": found.low,
                        "high": found.high,
                        "rows": found.rows,
                        "text": found.said,
                    }
                )
    return lines


def _kernels(space: Any, question: str) -> list[str]:
    """The algorithms that a question by itself is answered with: those of a knob, or the one that is fixed."""
    addresses = (f"mapping.{question}", "mapping.dataflow")
    knobs = [knob for knob in space.knobs if set(addresses) & set(space.targets[knob.address])]
    return [str(value) for knob in knobs for value in knob.values] or [kernel_of(space.base, question)]
