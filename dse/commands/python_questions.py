"""Questions in Python: `dse.evaluate`, `dse.compare`, `dse.capacity`, `dse.sweep` and `dse.validate`.

Settings are keyword arguments, dictionaries by address, or overrides as on the command line (`dse.config.keyword_settings`).

>>> import dse
>>> dse.evaluate("model=llama3_8b", tp=8).metrics["tpot"] < 0.01
True
"""

from collections.abc import Sequence
from pathlib import Path

from dse.accuracy.validate import compare_file
from dse.analysis.capacity import QUERY_OPTIONS, find_capacity
from dse.analysis.compare import DEFAULT_OBJECTIVE, compare_best_mappings
from dse.analysis.evaluation import evaluate_config
from dse.analysis.sweep import sweep as sweep_settings
from dse.commands.python_answers import Capacity, Comparison, EvaluationAnswer, SweepAnswer, Validation
from dse.commands.validate_all import list_published_files, simulate_rows
from dse.config.compose import compose
from dse.config.keyword_settings import Override, Setting, read_settings
from dse.space.former_words import read_metric


def evaluate(
    *overrides: Override,
    chip: str | None = None,
    model: str | Sequence[str] | None = None,
    mapping: str | None = None,
    workload: str | None = None,
    stack: str | None = None,
    fidelity: str | None = None,
    trust: bool = False,
    **settings: Setting,
) -> EvaluationAnswer:
    """Evaluate one design: metrics, time by operator, limits and error bands.

    Args:
        overrides: as on the command line (``"workload.batch=[16]"``), or dictionaries by address or short word.
        chip, model, mapping, workload, stack, fidelity: choices by name; `dse.list_chips` and the like list them.
        trust: whether files that are not ours may run code.
        settings: by short word, as ``batch=16``, ``prompt=1024``, ``tp=2``, ``ttft="2 s"``.

    Raises:
        DesignError: naming the setting that is wrong.

    >>> evaluate(chip="h100", model="llama3_8b", batch=16, prompt=1024, output=128).infeasible is None
    True
    """
    named = _named_settings(chip=chip, model=model, mapping=mapping, workload=workload, stack=stack, fidelity=fidelity)
    words = read_settings(overrides, named | settings, trust=trust)
    return EvaluationAnswer.from_evaluation(evaluate_config(compose(words, trust=trust)))


def compare(
    *overrides: Override,
    chip: Sequence[str] | str | None = None,
    model: str | Sequence[str] | None = None,
    workload: str | None = None,
    objective: str = DEFAULT_OBJECTIVE,
    trust: bool = False,
    **settings: Setting,
) -> Comparison:
    """Compare chips for one workload, each with the best mapping that a short search finds.

    Args:
        overrides, settings: as of `evaluate`.
        chip: names of the chips, as ``chip=["h100", "mi300x"]``.
        model, workload: choices by name.
        objective: the metric that the best mapping is best in.
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: an override that is wrong for all chips, no such metric, or formats that differ.
    """
    words = read_settings(overrides, _named_settings(chip=chip, model=model, workload=workload) | settings, trust=trust)
    sides = compare_best_mappings(words, objective, trust=trust)
    return Comparison(tuple(sides), read_metric(objective), tuple(word for word in words if not word.startswith("chip=")))


def capacity(
    *overrides: Override,
    chip: Sequence[str] | str | None = None,
    model: str | None = None,
    devices: int | None = None,
    rate: Setting = None,
    ttft: Setting = None,
    tpot: Setting = None,
    trust: bool = False,
    **settings: Setting,
) -> Capacity:
    """Find the deployment with the highest rate on some devices, or the fewest devices for a rate.

    Requests keep bounds on latency; serving is simulated.

    Args:
        overrides, settings: as of `evaluate`; besides the options of ``dse capacity``: ``slo_percentile``, ``disaggregated``,
            ``ffn``, ``by`` and ``formats``.
        chip: name of a chip, or of several.
        model: name of the model.
        devices: number of devices whose maximum rate is sought.
        rate: rate that the fewest devices serve, as ``"10 Hz"``; instead of `devices`.
        ttft, tpot: bounds on time to first token and time per output token, as ``"2 s"`` and ``"50 ms"``.
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: a wrong question, in one line.
    """
    named = _named_settings(chip=chip, model=model, devices=devices, rate=rate, ttft=ttft, tpot=tpot)
    words = read_settings(overrides, named | settings, own=QUERY_OPTIONS, base=["workload=serving"], trust=trust)
    return Capacity(tuple(find_capacity(words, trust=trust)))


def sweep(
    *overrides: Override,
    chip: Sequence[str] | str | None = None,
    model: Sequence[str] | str | None = None,
    mapping: Sequence[str] | str | None = None,
    workload: str | None = None,
    objective: str = "",
    trust: bool = False,
    **settings: Setting,
) -> SweepAnswer:
    """Evaluate every combination of the settings that have several values, without a study.

    Args:
        overrides, settings: as of `evaluate`; a list is swept, as ``tp=[1, 2, 4]`` or ``batch=[1, 8, 64]``.
        chip, model, mapping, workload: choices by name; a list is swept.
        objective: metric that orders the designs; empty string for the first that the workload has.
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: nothing is swept, too much is, a setting is wrong for all combinations, or no such metric.
    """
    named = _named_settings(chip=chip, model=model, mapping=mapping, workload=workload)
    words = read_settings(overrides, named | settings, trust=trust)
    return SweepAnswer.from_sweep(sweep_settings(words, objective, trust=trust))


def validate(*names: str | Path) -> Validation:
    """Simulate published figures and compare them: of studies, of files, or of all studies.

    All studies take minutes.

    Args:
        names: studies that ship, or files of published rows (``.csv``).

    Raises:
        DesignError: no such study or file, or a row that cannot be understood.
    """
    files = [Path(name) for name in names if Path(name).suffix == ".csv"]
    studies = [str(name) for name in names if Path(name).suffix != ".csv"]
    rows = [row for path in files for row in compare_file(path)]
    if studies or not files:
        rows += [checked.row for checked in simulate_rows(list_published_files(studies))]
    return Validation(tuple(rows))


def _named_settings(**settings: Setting) -> dict[str, Setting]:
    """Settings that were given: those that are None were not."""
    return {word: value for word, value in settings.items() if value is not None}
