"""Verified designs with other streams of requests: in how many each keeps its constraints.

A served load is some hundred requests of many that could have come. With `verify.seeds` of N, each of the best designs is
simulated with N streams, its own and others (`space.workload.workload_of_stream`), at the higher fidelity.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dse.config.metric_expressions import extend_with_derived_metrics
from dse.evaluators import PHYSICS_VERSION
from dse.evaluators.accounting.metrics import METRICS
from dse.execution.study import Study, workload_key
from dse.space.safe_text import count_text
from dse.space.units import format_quantity
from dse.space.workload import Workload, workload_of_stream
from dse.store.store import DesignResult, ResultContext, Store


@dataclass(frozen=True, slots=True)
class StreamVerdict:
    """In how many streams of requests one design keeps all constraints.

    Attributes:
        row: of the design in the study's frame.
        simulated: streams, of those that are wanted.
        kept: streams in which every constraint and limit holds.
        worst: the constraint that is broken most with the value there, or why there is none; empty string if all hold.
    """

    row: int
    simulated: int
    kept: int
    worst: str


def other_streams(study: Study) -> list[Workload]:
    """Workloads of the other streams with which the best designs are simulated; empty for one stream."""
    numbers = range(1, study.verify.seeds)
    streams = [workload_of_stream(study.question.workload, number) for number in numbers]
    return [stream for stream in streams if stream is not None]


def stream_context(stream: Workload, fidelity: str) -> ResultContext:
    """Context of results of a stream."""
    return ResultContext(workload_key(stream), fidelity, PHYSICS_VERSION)


def load_stream_verdicts(study: Study, store: Store, fidelity: str, keys: Mapping[int, str]) -> tuple[StreamVerdict, ...]:
    """Verdicts of designs that are stored for all streams or for some; empty if one stream is wanted.

    Args:
        study: the study.
        store: of its results.
        fidelity: at which the streams are simulated.
        keys: of the designs, by row of the study's frame.
    """
    streams = other_streams(study)
    if not streams:
        return ()
    workloads = [study.question.workload, *streams]
    played = [store.results(stream_context(workload, fidelity)) for workload in workloads]
    verdicts = []
    for row, key in keys.items():
        results = [results[key] for results in played if key in results]
        if results:
            verdicts.append(_judge(study, row, results))
    return tuple(verdicts)


def _judge(study: Study, row: int, results: Sequence[DesignResult]) -> StreamVerdict:
    kept, worst, excess = 0, "", 0.0
    for result in results:
        broken, text = _worst_excess(study, result)
        kept += broken <= 0
        if broken > excess:
            worst, excess = text, broken
    return StreamVerdict(row, len(results), kept, worst)


def _worst_excess(study: Study, result: DesignResult) -> tuple[float, str]:
    """Relative excess over the constraint that a result breaks most, at most 0 if all hold, and the value as text."""
    if result.error or result.limit:
        return float("inf"), result.error or f"violates {result.limit}"
    metrics: Mapping[str, Any] = extend_with_derived_metrics(result.metrics, study.question.defined)
    broken = [
        (float(bound.excess(metrics[bound.metric])), f"{bound}, is {_value_text(bound.metric, metrics)}")
        for bound in study.bounds
        if bound.metric in metrics
    ]
    return max(broken, default=(0.0, ""))


def _value_text(metric: str, metrics: Mapping[str, Any]) -> str:
    return format_quantity(float(metrics[metric]), METRICS[metric].unit)


def summarise_verdicts(verdicts: Sequence[StreamVerdict], streams: int, fidelity: str) -> str:
    """How many designs keep all constraints in every stream, as text; empty string for one stream.

    >>> verdicts = [StreamVerdict(0, 5, 5, ""), StreamVerdict(1, 5, 3, "tpot <= 0.1 s, is 0.2 s")]
    >>> summarise_verdicts(verdicts, 5, "analytical")
    '1 of 2 designs keeps its constraints in all 5 streams of requests at analytical'
    """
    if not verdicts:
        return ""
    whole = [verdict for verdict in verdicts if verdict.simulated == streams]
    kept = sum(verdict.kept == streams for verdict in whole)
    verb = "keeps its" if kept == 1 else "keep their"
    text = (
        f"{kept:,} of {count_text(len(whole), 'design')} {verb} constraints in all {streams} streams of requests at {fidelity}"
    )
    left = len(verdicts) - len(whole)
    return text + (f"; {left:,} more are not simulated with all" if left else "")


def describe_verdict(verdict: StreamVerdict) -> str:
    """In how many streams a design breaks a constraint, and the worst, as text.

    >>> describe_verdict(StreamVerdict(1, 5, 3, "tpot <= 100 ms, is 0.2 s"))
    'breaks a constraint in 2 of 5 streams; at worst tpot <= 100 ms, is 0.2 s'
    """
    return f"breaks a constraint in {verdict.simulated - verdict.kept} of {verdict.simulated} streams; at worst {verdict.worst}"
