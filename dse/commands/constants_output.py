"""Output of ``dse constants``: uncertain constants of one design by weight, as table and JSON."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from rich.markup import escape
from rich.table import Table

from dse.accuracy.constant_ranges import describe_default_ranges, find_uncertain_constants
from dse.analysis.evaluation import metric_records
from dse.commands.explain import DEFAULT_OBJECTIVES, KERNEL_OBJECTIVES
from dse.commands.explain_output import format_metric
from dse.config.compose import compose, find_study_folder, run_with_hydra
from dse.config.question import build_question
from dse.config.setting_effects import find_settings_without_effect, print_no_effects
from dse.config.untrusted_files import TRUST
from dse.documents.constants_document import ConstantsDocument, ConstantWeightRecord, MetricChangeRecord, NotMovedRecord
from dse.evaluators.accounting.metrics import METRICS
from dse.execution.study import read_objectives
from dse.explanations.constant_weights import LEAST_SPREAD, ConstantWeight, ConstantWeights, weigh_constants
from dse.explanations.neighbours import StudyGoal
from dse.space.errors import DesignError, suggest_nearest
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.safe_text import count_text
from dse.terminal.json_text import format_json
from dse.terminal.progress import ProgressBar, SafeConsole

BUDGET_S = 60.0
"""CPU time after which no more constants are moved. [s]"""

SHOWN = 20
"""Constants that are printed; ``--json`` has all."""

WIDTH = 160

Report = Callable[[int, int], None]


def show_no_progress(done: int, total: int) -> None:
    """Progress that nobody sees."""


def run_constants(words: Sequence[str], source: str, *, as_json: bool, trust: bool) -> None:
    """Run ``dse constants`` for a design that overrides name.

    Args:
        words: overrides, and Hydra's flags.
        source: kind of source or key of the bibliography of the constants that count; the empty string for all.
        as_json: print JSON in place of the table.
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: several chips, a value that is wrong, or no constant of that source.
    """

    def run_config(config: dict[str, Any]) -> None:
        with ProgressBar("constants") as bar:
            weights = weigh_config(config, source, report_progress=lambda done, total: bar.update(done, total, "constants"))
        if as_json:
            print(format_json(constant_weights_record(weights, " ".join(words)), indent=1))
        else:
            print_constant_weights(weights, " ".join(words) or "the design as it is configured")
        question = build_question(dict(config), find_study_folder(config), fewer=bool(config.get("chips")))
        print_no_effects(find_settings_without_effect("constants", question, config, find_study_folder(config)))

    run_with_hydra([*words, *([TRUST] if trust else [])], run_config)


def weigh_overrides(*overrides: str, source: str = "", seconds: float = BUDGET_S) -> ConstantWeights:
    """Weights of the constants of a design that overrides name as for `dse.evaluate`.

    Raises:
        DesignError: naming the override that is wrong.
    """
    return weigh_config(compose(list(overrides)), source, seconds=seconds)


def weigh_config(
    config: Mapping[str, Any], source: str = "", *, seconds: float = BUDGET_S, report_progress: Report = show_no_progress
) -> ConstantWeights:
    """Weights of the constants of the design of a composed configuration.

    Args:
        config: as `dse.config.compose.compose` returns it; its objectives are the metrics that count, else the usual ones.
        source: kind of source or key of the bibliography of the constants that count; the empty string for all.
        seconds: of CPU time.
        report_progress: takes evaluations that are done, and of how many.

    Raises:
        DesignError: several chips, no such source, or a design that does not support its workload.
    """
    if len(config.get("chips") or ()) > 1:
        raise DesignError(
            f"constants: one design of {', '.join(config['chips'])}: choose its chip, as in chip={next(iter(config['chips']))}"
        )
    question = build_question(dict(config), find_study_folder(config), fewer=bool(config.get("chips")))
    constants = find_uncertain_constants(question.sources, question.space)
    if source and not any(constant.source == source for constant in constants):
        known = sorted({constant.source for constant in constants})
        raise DesignError(f"constants --source: no constant with a range has {source!r}; {suggest_nearest(source, known)}")
    wanted = [constant for constant in constants if source in ("", constant.source)]
    objectives = read_objectives(config["objectives"]) if config["objectives"] else {}
    known_metrics = {name: METRICS[name].better for name in (*DEFAULT_OBJECTIVES, *KERNEL_OBJECTIVES)}
    goal = StudyGoal(question.workload, objectives or known_metrics, (), config["fidelity"], defined=question.defined)
    ((chosen, _),) = question.space.base_spaces
    chip = str(chosen.get(CHIP_KNOB, ""))
    weights = weigh_constants(question.base, wanted, goal, chip=chip, seconds=seconds, report_progress=report_progress)
    return weights if objectives else _of_usual_metrics(weights)


def _of_usual_metrics(weights: ConstantWeights) -> ConstantWeights:
    """Weights by the metrics of a model where there are any, else by those of kernels."""
    names = [name for name in DEFAULT_OBJECTIVES if name in weights.metrics] or list(weights.metrics)

    def keep(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: values[name] for name in names if name in values}

    kept = [replace(weight, ends=keep(weight.ends)) for weight in weights.weights]
    order = sorted(kept, key=lambda weight: (not any(weight.breaks), -weight.weight))
    return replace(weights, weights=tuple(order), metrics=keep(weights.metrics))


def print_constant_weights(weights: ConstantWeights, name: str) -> None:
    """Print the heaviest constants of a design, with the change of each metric at both ends."""
    console = SafeConsole(WIDTH)
    metrics = ", ".join(f"{metric} {format_metric(value, METRICS[metric].unit)}" for metric, value in weights.metrics.items())
    moving = [weight for weight in weights.weights if weight.moves]
    console.print(f"[bold]{escape(name)}[/]")
    console.print(f"metrics   {escape(metrics) or 'none'}, by {weights.fidelity}")
    if weights.limit:
        console.print(f"feasible  no: the design violates {escape(weights.limit)}; metrics are as if that limit were not there")
    console.print(f"ranges    {describe_default_ranges()}")
    still = len(weights.weights) - len(moving)
    console.print(f"constants {count_text(len(moving), 'constant')} with a range move a metric, {still:,} move none")
    for why in dict.fromkeys(why for _, why in weights.left):
        addresses = ", ".join(constant.address for constant, reason in weights.left if reason == why)
        console.print(f"not moved {escape(f'{addresses}: {why}')}")
    if not moving:
        return
    shown = moving[:SHOWN]
    table = Table(
        title="by weight: change of each metric at the low and the high end of the constant's range, moved alone (elasticity)"
        + (f"; {SHOWN} of {len(moving):,} shown" if len(moving) > SHOWN else ""),
        title_justify="left",
    )
    table.add_column("constant", overflow="fold")
    table.add_column("value", justify="right", overflow="fold")
    table.add_column("range", justify="right", no_wrap=True)
    table.add_column("source", overflow="fold")
    for metric in weights.metrics:
        table.add_column(metric, justify="right", overflow="fold")
    if any(any(weight.breaks) for weight in shown):
        table.add_column("then violates", overflow="fold")
    for weight in shown:
        constant = weight.constant
        table.add_row(
            constant.address,
            escape(constant.value),
            f"x{constant.low:.3g} to x{constant.high:.3g}",
            escape(constant.source),
            *(format_ends(weight, metric) for metric in weights.metrics),
            *([escape(_breaks_text(weight))] if any(any(other.breaks) for other in shown) else []),
        )
    console.print(table)


def format_ends(weight: ConstantWeight, metric: str) -> str:
    """Changes of a metric at both ends of a constant's range, with the elasticity.

    0 if the metric stays the same, - if the design does not have it.
    """
    if metric not in weight.ends:
        return "-"
    if weight.spread(metric) < LEAST_SPREAD:
        return "0"
    low, high = (f"{end - 1:+.2%}" for end in weight.ends[metric])
    elasticity = weight.elasticity(metric)
    return f"{low} {high}" + (f" ({elasticity:+.2f})" if isfinite(elasticity) else "")


def _breaks_text(weight: ConstantWeight) -> str:
    ends = zip((weight.constant.low, weight.constant.high), weight.breaks, strict=True)
    return ", ".join(f"{limit} at x{end:.3g}" for end, limit in ends if limit)


def constant_weights_record(weights: ConstantWeights, name: str) -> ConstantsDocument:
    """Weights of the constants of one design as a document."""
    return ConstantsDocument(
        overrides=name,
        fidelity=weights.fidelity,
        metrics=metric_records(weights.metrics),
        violates=weights.limit or None,
        not_moved=[NotMovedRecord(address=constant.address, why=why) for constant, why in weights.left],
        constants=[_weight_record(weight) for weight in weights.weights],
    )


def _weight_record(weight: ConstantWeight) -> ConstantWeightRecord:
    constant = weight.constant
    elasticities = {metric: weight.elasticity(metric) for metric in weight.ends}
    return ConstantWeightRecord(
        address=constant.address,
        value=constant.si_value,
        unit=constant.unit,
        written=constant.value,
        low=constant.low,
        high=constant.high,
        source=constant.source,
        range_of="constant" if constant.stated else "source",
        weight=weight.weight,
        metrics={
            metric: MetricChangeRecord(
                at_low=low - 1,
                at_high=high - 1,
                elasticity=elasticities[metric] if isfinite(elasticities[metric]) else None,
            )
            for metric, (low, high) in weight.ends.items()
        },
        violates_at_low=weight.breaks[0] or None,
        violates_at_high=weight.breaks[1] or None,
    )
