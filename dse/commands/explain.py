"""``dse explain`` and ``dse whynot``: a design named by overrides, or one of a study by its id."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.commands.explain_output import (
    explanation_record,
    front_explanation_record,
    print_explanation_stage,
    print_front_explanation,
)
from dse.commands.explanation_screen import dominance_lines, explanation_lines, front_explanation_lines
from dse.commands.notebook_api import StoredStudy, load, read_study_settings
from dse.commands.python_answers import DominanceAnswer, ExplanationAnswer
from dse.commands.whynot_output import dominance_record, print_path, print_position
from dse.config.compose import compose, find_study_folder, run_with_hydra
from dse.config.keyword_settings import Override, Setting, read_settings
from dse.config.question import build_question
from dse.config.setting_effects import find_settings_without_effect, print_no_effects
from dse.config.unread_settings import find_unread_by_workload
from dse.config.untrusted_files import TRUST
from dse.documents.front_document import FrontDocument
from dse.evaluators.accounting.metrics import METRICS, Direction
from dse.execution.result_frame import DESIGN, report_order
from dse.execution.study import read_constraints, read_objectives
from dse.explanations.design_from_overrides import (
    build_design_from_overrides,
    explain_dominance_of,
    place_study_design,
    space_with_tied_leaves,
)
from dse.explanations.dominance import PATH_BUDGET_S, DominanceReport, show_no_dominance
from dse.explanations.explanation import (
    BUDGET_S,
    STAGES,
    Explanation,
    Show,
    Watch,
    compute_front_shadow_prices,
    compute_front_time_shares,
    explain_front,
    explain_named,
    explain_stored_design,
    list_front_outcomes,
    show_nothing,
    study_goal,
    watch_nothing,
)
from dse.explanations.kept_answers import KeptAnswers
from dse.explanations.near_feasible import find_near_feasible_designs
from dse.explanations.neighbours import DesignOutcome, StudyGoal, evaluate_points
from dse.explanations.shadow_prices import MAX_RELAXATION
from dse.explanations.stored_design import find_stored_design
from dse.report.caveats import collect_study_caveats, select_distinct_front
from dse.report.kind_order import find_kind_order
from dse.report.page_cache import BINDING, PageCache, breakdown_question
from dse.report.sampled_front import cached_front_sample
from dse.space.errors import DesignError
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.neighbourhood import build_neighbourhood_space, knob_values_of, list_base_neighbours
from dse.terminal.json_text import format_json
from dse.terminal.progress import ProgressBar, print_lines, screen_width

DEFAULT_OBJECTIVES = ("throughput_per_system_mm2", "ttft", "tpot", "energy_per_token", "price_per_mtoken")
"""What a design is explained by where nobody says objectives: those of these that it has."""

KERNEL_OBJECTIVES = ("latency", "achieved_bandwidth", "packet_latency", "mfu", "energy")
"""The same of kernels, streams and traffic by themselves."""

PLACE = ("store=", "run_dir=")
"""Overrides that say where results are, not what a design is."""


def explain_overrides(*overrides: Override, trust: bool = False, seconds: float = BUDGET_S, **settings: Setting) -> Explanation:
    """Explain a design: where its time goes, what a step of each knob does, and the next designs.

    Its knobs are those of its configuration's space (``space=NAME``); without any, the leaves of its chip that somebody
    chooses and those of its mapping. Its objectives are those of the configuration, else the usual ones.

    Args:
        overrides, settings: as of `dse.evaluate`.
        trust: whether files that are not ours may run code.
        seconds: what its steps may take.

    Raises:
        DesignError: naming the setting that is wrong.
    """
    typed = read_settings(overrides, settings, trust=trust)
    return ExplanationAnswer.from_explanation(explain_config(compose(typed, trust=trust), " ".join(typed), seconds=seconds))


def explain_config(
    config: Mapping[str, Any],
    name: str,
    *,
    seconds: float = BUDGET_S,
    show: Show = show_nothing,
    watch: Watch = watch_nothing,
) -> Explanation:
    """Explain the design of a composed configuration.

    Args:
        config: as `dse.config.compose.compose` returns it.
        name: what was typed.
        seconds: what its steps may take.
        show: takes each stage as soon as it is known.
        watch: shows progress.

    Raises:
        DesignError: several chips, or a value that is wrong.
    """
    if len(config.get("chips") or ()) > 1:
        raise DesignError(
            f"explain: one design of {', '.join(config['chips'])}: choose its chip, as in chip={next(iter(config['chips']))}"
        )
    question = build_question(dict(config), find_study_folder(config), fewer=bool(config.get("chips")))
    ((_, space),) = question.space.base_spaces
    if space.knobs:
        space = space_with_tied_leaves(question.base, space, config["overrides"])
    else:
        space = build_neighbourhood_space(
            question.base,
            lambda address, word: _is_refused(config, address, word),
            lambda design: find_unread_by_workload(design, question.workload),
        )
    base = space.base
    goal = StudyGoal(
        question.workload, {}, read_constraints(config["constraints"]), config["fidelity"], defined=question.defined
    )
    (base_outcome,) = evaluate_points([base], goal)
    assert base_outcome is not None
    wanted = read_objectives(config["objectives"]) if config["objectives"] else _usual_objectives(base_outcome)
    goal = replace(goal, objectives=wanted)
    name = name or "the design as it is configured"
    idle = find_settings_without_effect("explain", question, config, find_study_folder(config), base)
    explanation = explain_named(
        name,
        space,
        knob_values_of(space, base),
        base,
        goal,
        list_base_neighbours(space),
        outcome=base_outcome,
        seconds=seconds,
        show=lambda stage, why: show(stage, replace(why, without_effect=idle)),
        watch=watch,
    )
    return replace(explanation, without_effect=idle)


def explain_study_design(
    name: str,
    which: str,
    *overrides: Override,
    trust: bool = False,
    seconds: float = BUDGET_S,
    show: Show = show_nothing,
    watch: Watch = watch_nothing,
) -> Explanation:
    """Explain a design of a study.

    Args:
        name: of a study that ran here.
        which: id of the design; "" where overrides name the design.
        overrides: what names it, and where results are (``store=URL``).
        trust: whether files that are not ours may run code.
        seconds: what its steps may take.
        show: takes each stage as soon as it is known.
        watch: shows progress.

    Raises:
        DesignError: no such design, or the study has no results here.
    """
    loaded, typed = _load_study(name, read_settings(overrides, {}, trust=trust), trust=trust)
    study, (frame, screened) = loaded.study, loaded.designs()
    if which:
        if typed:
            raise DesignError(f"--design: {which!r} and {' '.join(typed)} both name a design; remove one of them")
        design = find_stored_design(study, frame, screened, which)
        return explain_stored_design(study, frame, design, screened, seconds=seconds, show=show, watch=watch)
    own = build_design_from_overrides(study, typed, "explain", trust=trust)
    space, base = own.space, own.space.base
    rows = report_order(study, frame)
    own_values = knob_values_of(space, base)
    near = list_front_outcomes(study, rows)
    if own.chip:
        near = [
            (label, {k: v for k, v in at.items() if k != CHIP_KNOB}, point)
            for label, at, point in near
            if at[CHIP_KNOB] == own.chip
        ]
    why = explain_named(
        own.name,
        space,
        own_values,
        base,
        study_goal(study),
        list_base_neighbours(space),
        front=near,
        stored=lambda outcome: find_near_feasible_designs(study, rows, screened, [outcome], MAX_RELAXATION),
        rows=rows,
        seconds=seconds,
        kept=KeptAnswers(study.store),
        show=lambda stage, why: show(stage, replace(why, without_effect=own.without_effect)),
        watch=watch,
    )
    return replace(why, without_effect=own.without_effect)


def study_front_record(name: str, *overrides: str, trust: bool = False) -> FrontDocument:
    """Front of a stored study, effects of its knobs and cost of its constraints, as its document.

    Args:
        name: of the study.
        overrides: where results are (``store=URL``).
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: the study has no results here.
    """
    return loaded_front_record(_load_study(name, overrides, trust=trust)[0])


def loaded_front_record(loaded: StoredStudy) -> FrontDocument:
    """Front of a study that is loaded, as `study_front_record` has it.

    Raises:
        DesignError: the study has no results here.
    """
    return front_explanation_record(*_front_arguments(loaded))


def print_study_front(name: str, *overrides: str, trust: bool, as_json: bool, full: bool = False) -> None:
    """Print the front of a study, its knobs' effects and the cost of constraints; all of it if `full`."""
    if as_json:
        print(format_json(study_front_record(name, *overrides, trust=trust), indent=1))
        return
    loaded, _ = _load_study(name, overrides, trust=trust)
    study, members, spent, prices, notes, _, sample, order = _front_arguments(loaded)
    if full:
        print_front_explanation(study, members, spent, prices, notes, sample, order)
    else:
        print_lines(front_explanation_lines(study, members, spent, prices, notes, sample, screen_width()))


def explain_dominance(
    name: str,
    *overrides: Override,
    design: str = "",
    trust: bool = False,
    seconds: float = PATH_BUDGET_S,
    show: Callable[[DominanceReport], None] = show_no_dominance,
    watch: Watch = watch_nothing,
    **settings: Setting,
) -> DominanceAnswer:
    """Position of a design among those of a stored study: what beats it, and the changes to a better one.

    Args:
        name: of the study.
        overrides, settings: as of `dse.evaluate`: what names the design, over what the study starts from, and where results
            are (``store=URL``).
        design: id of a design of the study; "" where settings name the design.
        trust: whether files that are not ours may run code.
        seconds: what the steps of the way to a better design may take.
        show: takes the report without the way, as soon as it is known.
        watch: shows progress.

    Raises:
        DesignError: its workload differs from the study's, or the study has no results here.
    """
    loaded, typed = _load_study(name, read_study_settings(name, overrides, settings, trust=trust), trust=trust)
    study, (frame, screened) = loaded.study, loaded.designs()
    if not design:
        position = explain_dominance_of(study, frame, typed, trust=trust, seconds=seconds, show=show, watch=watch)
        return DominanceAnswer.from_dominance(position)
    if typed:
        raise DesignError(f"--design: {design!r} and {' '.join(typed)} both name a design; remove one of them")
    stored_design = find_stored_design(study, frame, screened, design)
    position = place_study_design(study, frame, stored_design, seconds=seconds, show=show, watch=watch)
    return DominanceAnswer.from_dominance(position)


def run_whynot(
    names: Sequence[str], typed: Sequence[str], which: str, *, as_json: bool, trust: bool, full: bool = False
) -> None:
    """Run ``dse whynot``; returns the exit status.

    Args:
        names: of the study.
        typed: overrides.
        which: id of a design of the study.

    Raises:
        DesignError: no study, or several.
    """
    if len(names) != 1:
        raise DesignError(f"whynot: expected the name of one study (dse list), got {' '.join(names) or 'nothing'}")

    def show(dominance: DominanceReport) -> None:
        print_no_effects(dominance.without_effect)
        if full and not as_json:
            print_position(dominance)

    dominance = explain_dominance(names[0], *typed, design=which, trust=trust, show=show, watch=show_progress)
    if as_json:
        print(format_json(dominance_record(dominance), indent=1))
    elif full:
        print_path(dominance)
    else:
        print_lines(dominance_lines(dominance, screen_width()))


def run_explain(
    names: Sequence[str], typed: Sequence[str], which: str, *, as_json: bool, trust: bool, full: bool = False
) -> None:
    """Run ``dse explain`` for one design, for a design of a study, or for the front of a study.

    Args:
        names: of the study, if one is named.
        typed: overrides.
        which: design of the study.

    Raises:
        DesignError: several studies, or a design without a study.
    """
    if len(names) > 1:
        raise DesignError(f"explain: expected the name of one study (dse list), got {' '.join(names)}")
    if which and not names:
        raise DesignError(
            f"explain --design: {which!r} is a design of a study; name it, as in dse explain quickstart --design {which}"
        )
    if names and not which and all(word.startswith(PLACE) for word in typed):
        print_study_front(names[0], *typed, trust=trust, as_json=as_json, full=full)
        return

    def show(stage: str, explanation: Explanation) -> None:
        if stage == STAGES[0]:
            print_no_effects(explanation.without_effect)
        if full and not as_json:
            print_explanation_stage(stage, explanation)

    def print_record(explanation: Explanation) -> None:
        if as_json:
            print(format_json(explanation_record(explanation), indent=1))
        elif not full:
            print_lines(explanation_lines(explanation, screen_width()))

    if names:
        print_record(explain_study_design(names[0], which, *typed, trust=trust, show=show, watch=show_progress))
    else:
        line = [*typed, *([TRUST] if trust else [])]
        run_with_hydra(
            line, lambda config: print_record(explain_config(config, " ".join(typed), show=show, watch=show_progress))
        )


@contextlib.contextmanager
def show_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for designs one step away, while they are evaluated."""
    with ProgressBar(what) as bar:
        yield lambda done, total: bar.update(done, total, "")


def _front_arguments(loaded: StoredStudy) -> tuple[Any, ...]:
    """What is said of a study's front, as `front_explanation_record` takes it."""
    study, (frame, screened) = loaded.study, loaded.designs()
    members, shadow_prices = explain_front(study, frame), compute_front_shadow_prices(study, frame, screened)
    notes = collect_study_caveats(study, frame, screened)
    with PageCache(study) as page:

        def find_known_binding(key: str, by: str) -> Any:
            return (page.find(breakdown_question(key, by)) or {}).get(BINDING)

        spent = compute_front_time_shares(study, members, known=find_known_binding)
        sample = cached_front_sample(study, frame, page)
    ids = report_order(study, frame)[DESIGN]
    return (
        study,
        members,
        spent,
        shadow_prices,
        notes,
        [str(ids.iloc[place]) for place in select_distinct_front(study, frame)[0]],
        sample,
        find_kind_order(study, frame),
    )


def _load_study(name: str, typed: Sequence[str], *, trust: bool) -> tuple[StoredStudy, list[str]]:
    """A study, found where overrides say, and the other overrides."""
    places = [word for word in typed if word.startswith(PLACE)]
    return load(name, *places, trust=trust), [word for word in typed if word not in places]


def _usual_objectives(outcome: DesignOutcome) -> dict[str, Direction]:
    known = [name for name in DEFAULT_OBJECTIVES if name in outcome.metrics] or [
        name for name in KERNEL_OBJECTIVES if name in outcome.metrics
    ]
    return {name: METRICS[name].better for name in known}


def _is_refused(config: Mapping[str, Any], address: str, word: str) -> bool:
    """Whether a word of the chip would be refused where it was typed."""
    changed: Any = deepcopy(dict(config))
    node = changed
    *path, last = address.split(".")
    for part in path:
        node = node[part]
    node[last] = {**node[last], "value": word} if isinstance(node.get(last), dict) else word
    try:
        build_question(changed, Path.cwd())
    except DesignError:
        return True
    return False
