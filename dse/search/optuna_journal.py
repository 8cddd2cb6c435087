"""Results of a study as a journal of Optuna's, which its dashboard opens."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend, JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from dse.search.samplers import Values
from dse.space.knobs import IntervalKnob, Knob
from dse.space.multi_chip_space import AnySpace


def write_optuna_journal(
    name: str,
    objectives: Mapping[str, str],
    space: AnySpace,
    frame: Any,
    path: Path,
    units: Mapping[str, str],
    attributes: Sequence[str],
) -> None:
    """Write designs as a journal of Optuna's, each a trial.

    Args:
        name: of the study.
        objectives: metrics with their directions.
        space: of the knobs.
        frame: designs in rows, as `dse.execution.result_frame.combine_with_front` gives them.
        path: of a file that does not exist yet.
        units: of columns, kept as attributes of the study where they are not empty.
        attributes: columns that are kept as attributes of trials.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    backend = _JournalBuffer()
    study = optuna.create_study(
        storage=JournalStorage(backend),
        study_name=name,
        directions=["maximize" if direction == "max" else "minimize" for direction in objectives.values()],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names(list(objectives))
    for column, unit in units.items():
        if unit:
            study.set_user_attr(f"unit of {column}", unit)
    distributions = {knob.address: _shown_distribution(knob) for knob in space.knobs}
    study.add_trials([_trial_of_row(row, objectives, distributions, attributes) for row in frame.to_dict("records")])
    JournalFileBackend(str(path)).append_logs(backend.logs)


class _JournalBuffer(BaseJournalBackend):
    """Journal in memory: a file would be locked, written and synchronised for each trial."""

    def __init__(self) -> None:
        self.logs: list[dict[str, Any]] = []

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append entries."""
        self.logs += logs

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        """Entries from a number on."""
        return self.logs[log_number_from:]


def _shown_distribution(knob: Knob) -> BaseDistribution:
    """Distribution that shows a knob as it is: numbers on an axis, options as categories."""
    if isinstance(knob, IntervalKnob):
        return FloatDistribution(knob.low, knob.high, log=knob.log)
    if knob.words:
        return CategoricalDistribution(knob.values)
    low, high = min(knob.values), max(knob.values)
    if not all(isinstance(value, int) for value in knob.values):
        return FloatDistribution(low, high)
    gaps = {later - earlier for earlier, later in zip(sorted(knob.values), sorted(knob.values)[1:], strict=False)}
    return IntDistribution(low, high, step=gaps.pop() if len(gaps) == 1 else 1)


def _trial_of_row(
    row: Mapping[str, Any],
    objectives: Mapping[str, str],
    distributions: Mapping[str, BaseDistribution],
    attributes: Sequence[str],
) -> FrozenTrial:
    params: Values = {address: row[address] for address in distributions if _has_value(row[address])}
    known: dict[str, Any] = {"params": params, "distributions": {address: distributions[address] for address in params}}
    known["user_attrs"] = {column: row[column] for column in attributes if _has_value(row[column])}
    if not all(_has_value(row[objective]) for objective in objectives):
        return create_trial(state=TrialState.FAIL, **known)
    excess = 0.0 if row["feasible"] else max(float(row.get("excess") or 0.0), 1e-9)
    return create_trial(
        values=[float(row[objective]) for objective in objectives],
        constraints={"limit": excess},
        system_attrs={"constraints": [excess]},  # the older place, which its dashboard looks at
        **known,
    )


def _has_value(cell: Any) -> bool:
    return cell is not None and cell == cell
