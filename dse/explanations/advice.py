"""Remedies for infeasible studies and overloaded deployments, in the user's addresses."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.evaluators import METRICS
from dse.evaluators.evaluation import explain_infeasibility, limits
from dse.space.design import Design
from dse.space.units import format_quantity

if TYPE_CHECKING:
    import pandas as pd

    from dse.execution.study import Study

NEAREST_DESIGNS = 32
"""Designs among which the smallest relaxation is looked for: limits of each are itemised."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """One limit or constraint, with the designs that violate it.

    Attributes:
        what: the limit's address, or the constraint as it is written.
        designs: that violate it; of several limits the most violated one counts.
        least: by how much the nearest of them does, relative to it.
    """

    what: str
    designs: int
    least: float


def count_rejections(study: "Study", frame: "pd.DataFrame") -> list[Rejection]:
    """Limits and constraints by the number of designs that violate them, most frequent first."""
    excesses = [(str(limit), rows["excess"].to_numpy(dtype=float)) for limit, rows in frame.groupby("limit")]
    for bound in study.bounds:
        excess = np.asarray(bound.excess(frame[bound.metric].to_numpy(dtype=float)))
        excesses.append((str(bound), excess[excess > 0]))
    counted = [Rejection(what, len(excess), float(excess.min())) for what, excess in excesses if len(excess)]
    counted += [Rejection("failed evaluations", failed, 0.0)] if (failed := int(frame["error"].notna().sum())) else []
    return sorted(counted, key=lambda rejection: -rejection.designs)


def find_smallest_relaxation(study: "Study", frame: "pd.DataFrame") -> tuple[dict[str, Any], list[str]]:
    """Knobs of the design nearest to feasible, and the relaxations that would admit it.

    Empty if none is known. Nearest is the design whose largest excess over a limit or constraint is smallest.
    """
    from dse.execution.result_frame import knob_values

    excess = [frame["excess"].where(frame["limit"].notna(), 0.0).to_numpy(dtype=float)]
    excess += [np.asarray(bound.excess(frame[bound.metric].to_numpy(dtype=float))) for bound in study.bounds]
    worst = np.nanmax(np.array(excess), axis=0)
    worst[frame["error"].notna().to_numpy()] = np.inf
    best: tuple[float, dict[str, Any], list[str]] = (np.inf, {}, [])
    for row in np.argsort(worst, kind="stable")[:NEAREST_DESIGNS]:
        if not worst[row] < best[0]:  # itemised it can only be more
            break
        values = knob_values(study, frame.iloc[int(row)].to_dict())
        most, gives = _violations_of(study, study.question.space.design_at(values), frame.iloc[int(row)])
        if max(most, worst[row]) < best[0]:
            best = max(most, float(worst[row])), values, gives
    return best[1:]


def _violations_of(study: "Study", design: Design, row: "pd.Series") -> tuple[float, list[str]]:
    """The largest excess of a design over a limit, and what each limit and constraint that it breaks would have to be."""
    workload, gives, most = study.question.workload, [], 0.0
    verdict = explain_infeasibility(design, workload)
    broken: dict[str, tuple[float, float, str]] = {}
    for limit in limits(design, workload):
        need, have = float(np.max(limit.need)), float(np.min(limit.have))
        if need > have and need > broken.get(limit.address, (0.0,))[0]:
            broken[limit.address] = need, have, limit.unit
    alone = str(row["limit"])
    if alone in ("workload.ttft", "workload.tpot"):  # which only times tell: a request alone takes longer
        have = float(getattr(workload.cases[0], alone.partition(".")[2]))
        broken[alone] = have * (1 + float(row["excess"])), have, "s"
    for address, (need, have, unit) in broken.items():
        most = max(most, need / have - 1 if have else np.inf)
        remedy = f"; {verdict.remedy}" if verdict and verdict.limit == address and verdict.remedy else ""
        gives.append(f"{format_quantity(need, unit)} of {address} instead of {format_quantity(have, unit)}{remedy}")
    for bound in study.bounds:
        value = float(row[bound.metric])
        if value != value:
            gives.append(f"{bound} is unknown before evaluation")
        elif bound.excess(value) > 0:
            outward = value * (1.0005 if bound.relation == "<=" else 0.9995)  # so that it holds as it is printed
            unit = METRICS[bound.metric].unit
            gives.append(
                f"{bound.metric} {bound.relation} {format_quantity(outward, unit)} instead of "
                f"{format_quantity(bound.value, unit)}"
            )
    return most, gives
