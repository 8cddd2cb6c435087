"""Run of a study from its configuration to its report: screen, search, verify, report."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.markup import escape

from dse.commands.certify_study import certify_study
from dse.commands.study_output import (
    describe_devices,
    describe_load,
    format_case_labels,
    print_certificate,
)
from dse.commands.study_screen import study_lines
from dse.config.compose import find_study_folder
from dse.config.metric_expressions import extend_with_derived_metrics
from dse.config.record_parser import USUAL_CHOICES
from dse.evaluators import PHYSICS_VERSION, case_types_at_fidelity
from dse.execution.ask_tell import base_design_key, read_stored_asks, run_search
from dse.execution.certify import single_space
from dse.execution.limit_filter import accept_all, count_by_limit, make_early_limits
from dse.execution.metric_checks import refuse_missing_metrics
from dse.execution.objective_structure import EvaluationStructure
from dse.execution.provenance import RunClock, run_provenance
from dse.execution.result_frame import combine_with_front, knob_values, search_frame, search_refusals
from dse.execution.screen import ScreenResult, run_screen, screen_left_out_text
from dse.execution.study import STORE_URL, Study, build_study
from dse.execution.study_settings import CERTIFY, describe_unread_settings
from dse.execution.time_budget import affordable_designs
from dse.execution.verify import Verification, run_verification
from dse.execution.warm_start import WarmStart, take_over_results
from dse.execution.workers import make_evaluator, make_workers
from dse.report.caveats import describe_stacks, find_dropped_facts
from dse.report.page_cache import PageCache
from dse.report.reported_study import ReportedStudy
from dse.report.sampled_front import cached_front_sample
from dse.report.study_page import write_report
from dse.search.optuna_samplers import make_sampler
from dse.search.samplers import allow_all, recommend_sampler
from dse.search.stopping import StopRules
from dse.space.design import design_key
from dse.space.errors import DesignError
from dse.space.safe_text import count_text, describe_left_out, mask_passwords, mask_passwords_in
from dse.store.database import strip_password
from dse.store.store import SEARCH, DesignResult, Store
from dse.terminal.atomic_files import write_atomically
from dse.terminal.progress import ProgressBar, ProgressCallback, print_lines, say, screen_width, skip_progress
from dse.terminal.signals import exit_status


def run_config(config: Mapping[str, Any]) -> int:
    """Start or resume the study of a configuration; returns the exit status.

    It ends with the front and the path of the report.
    """
    return run_study(build_study(config, find_study_folder(config)))


def run_study(study: Study, report_progress: ProgressCallback = skip_progress) -> int:
    """Run a study that is built; returns the exit status.

    Args:
        study: the study.
        report_progress: takes how far it is.

    Raises:
        DesignError: there is nothing to do, or the study was run with another space or workload.
    """
    if study.search.sampler == "none" and study.fidelity != study.screen_fidelity:
        raise DesignError(
            f"search.sampler: none, but only a search evaluates at fidelity={study.fidelity}; add search=nsga2 or search=random"
        )
    study.crew.check_count()
    refuse_missing_metrics(study)
    if study.search.sampler == CERTIFY:
        single_space(study)
    say(f"[bold]{escape(study.name)}[/]  {escape(study.text)}".rstrip())
    say(f"  workload: {escape(format_case_labels(study.question.workload))}")
    space = study.question.space
    grid = space.combinations
    size = count_text(grid, "combination") if grid is not None else "not enumerable"
    workload = study.question.workload
    cases = count_text(len(workload.cases), "case")
    cases += f" ({workload.combination_text})" if workload.model_shares or workload.combine != "mean" else ""
    say(f"  {count_text(len(space.knobs), 'knob')}, {size}; {cases}; fidelity {study.fidelity}; seed {study.seed}")
    if load := describe_load(study):
        say(f"  load: {escape(load)}")
    for text in describe_devices(study):
        say(f"  devices: {escape(text)}")
    for text in describe_stacks(study):
        say(f"  {escape(text)}")
    if study.chips:
        say(f"  chips: {escape(study.chips)}")
    if study.pools:
        say(f"  pools: {escape(study.pools)}")
    for remark in find_dropped_facts(study):
        say(f"  {escape(remark.text)}")
    groups = {"screen": study.screen, "search": study.search, "verify": study.verify, "workers": study.crew}
    for line in describe_unread_settings(groups, study.overrides):
        say(f"  note: {escape(line)}")
    with contextlib.closing(open_store(study)) as store:
        return _run_stages(study, store, report_progress)


def _run_stages(study: Study, store: Store, report_progress: ProgressCallback) -> int:
    identity = study.identity()
    _refuse_changed_study(study, store, identity)
    number = store.begin(study.name, identity, run_provenance(study))
    elapsed = RunClock()
    try:
        _note_place(study)
        screened = _run_screen_stage(study, report_progress) if study.screen.run else None
        search_result = _run_search_stage(study, store, screened, elapsed, report_progress)
        frame = combine_with_front(study, search_result, screened)
        if not len(frame):
            raise DesignError("screen.run is false and search.sampler is none: nothing to do; set screen.run=true or a sampler")
        checked = _run_verify_stage(study, store, frame, elapsed, report_progress)
        counts = {"results": len(search_result)} | ({"verified": len(checked.after)} if checked is not None else {})
        done = elapsed() | counts
        say("  report: being written")
        path, idle = write_report(ReportedStudy(study, frame, screened, store.runs_after_end(number, "done", done), checked))
    except KeyboardInterrupt as error:
        store.end(number, "interrupted", elapsed())
        say("\n[yellow]stopped[/]: what is finished is stored; the same command goes on from here")
        return exit_status(error)
    except BaseException as error:
        with contextlib.suppress(DesignError):  # where the store is what failed, the first reason counts
            store.end(number, "failed", {**elapsed(), "error": mask_passwords(f"{type(error).__name__}: {error}")})
        raise
    store.end(number, "done", done)
    sample = cached_front_sample(study, frame, PageCache(study), seconds=0.0)
    print_lines(study_lines(study, store.runs(study.name), frame, sample, checked, screen_width()))
    print_certificate(study)
    for knob in idle:
        say(f"[yellow]note[/]  {escape(knob)}")
    say(f"report  {escape(str(path))}")
    say(f"results {escape(store.place)}")
    return 0


def open_store(study: Study) -> Store:
    """Open the store of a study, and report stored results that cannot be used."""
    store = Store(study.store)
    for physics, count in store.of_other_physics(study.context).items():
        say(
            f"  {count:,} stored results of physics version {physics} are kept, and not used: this is version {PHYSICS_VERSION}"
        )
    return store


def choose_sampler(
    study: Study, screened: ScreenResult | None, begun: Mapping[str, Any] | None, allowed: Callable[[], tuple[int, str]]
) -> tuple[str, str]:
    """The sampler of a study, and the reason for it as text.

    Args:
        study: the study.
        screened: what its screen found.
        begun: the notes of its first ask, where it was begun before.
        allowed: says how many designs its budget and time allow, and why where it is the time.
    """
    wanted = study.search.sampler
    if wanted != "auto":
        return wanted, "as configured"
    if begun is not None:
        return begun.get("sampler", "nsga2"), "from its first run"
    if study.search.promote:
        what = f"designs of {study.search.promote} are promoted to {study.fidelity} by their expected hypervolume gain"
        return "local", what
    if screened is not None and screened.exact and study.fidelity == study.screen_fidelity:
        return "none", "the screen evaluated every design at this fidelity, so its front is exact"
    designs, time_says = allowed()
    name, why = recommend_sampler(study.question.space, len(study.objectives), designs)
    return name, f"{time_says}; {why}" if time_says else why


def _run_screen_stage(study: Study, report_progress: ProgressCallback) -> ScreenResult:
    with ProgressBar("screen", report_progress) as bar:
        screen = run_screen(study, lambda done, total, size: bar.update(done, total, f"front {size}"))
    kind = "exact" if screen.exact else "of a quasi-random sample"
    pruned = sum(screen.pruned.values())
    reused = screen.rows - screen.evaluated - pruned
    note = f", {reused:,} of them stored before" if reused else ""
    known = "known to be " if pruned else ""
    front = f"front of {len(screen.front):,}, {kind}"
    say(f"  screen: {count_text(screen.rows, 'design')}{note}, {screen.feasible:,} {known}feasible; {front}")
    if screen.refused:
        say(f"  screen: {describe_left_out(screen.refused, screen.rows, 'design')}")
    if pruned:
        say(f"  screen: {count_text(screen.rows - pruned, 'design')} evaluated; {screen_left_out_text(screen)}")
    return screen


def _run_search_stage(
    study: Study, store: Store, screened: ScreenResult | None, elapsed: RunClock, report_progress: ProgressCallback
) -> pd.DataFrame:
    mine = store.search(study.name, study.identity())
    before, others = store.asks(mine, PHYSICS_VERSION), {*store.searches(study.name, PHYSICS_VERSION)} - {mine}
    begun = before[0][0].marks if before else None
    limits = make_early_limits(study.question.space, study.question.workload, study.fidelity)
    possible, ruled_out = (limits.find_possible, limits.ruled_out) if limits else (allow_all, accept_all)
    name, why = choose_sampler(study, screened, begun, lambda: affordable_designs(study, store, possible))
    say(f"  search: {name} ({why})")
    if others:
        count = store.ask_count(study.name, PHYSICS_VERSION) - len(before)
        say(f"  {count_text(count, 'design')} proposed by other searches of this study: their results are used and shown")
    if name == "none":
        return search_frame(study, read_stored_asks(study, store))
    if name == CERTIFY:
        return certify_study(study, store, screened, elapsed, report_progress)
    space, stop = study.question.space, study.search.stop
    population = study.search.population
    cheaper = None
    if study.search.promote:
        from dse.execution.low_fidelity import LowFidelity  # with the models of SciPy

        cheaper = LowFidelity(study, store, screened)
    structure = EvaluationStructure(study, store) if name == "local" and cheaper is None else None
    source = make_sampler(
        name,
        space,
        study.directions,
        seed=study.seed,
        population=population,
        possible=possible,
        cheaper=cheaper,
        structure=structure,
    )
    if cheaper is not None:
        say(f"  promoted: {cheaper}")
    taken = _load_warm_start(study)
    first = [*taken.seeds, *(point for point in study.points.values() if point not in taken.seeds)]
    seeds = first if cheaper else [*first, *(seed for seed in _screen_seeds(study, screened) if seed not in first)]
    about: dict[str, Any] = {"sampler": name, "warm": len(taken.seeds)}
    # what others have evaluated costs nothing and is not of the budget
    budget = study.search.budget + (begun or about).get("warm", 0)
    budget = budget if source.designs is None else _all_of(source.designs, budget)
    if before:
        say(f"  going on from {count_text(len(before), 'proposed design')}")
    base = study.question.base
    workers = make_workers(
        study.crew,
        make_evaluator(study.question.workload, study.fidelity),
        window=study.search.window,
        designs=budget - len({design for _, design in before}),
        example=[(design_key(base), {}, base)],
        say=lambda text: say(f"  {text}"),
    )
    with elapsed.closing_workers(workers), ProgressBar("search", report_progress) as bar:
        best = _Best(study)
        search_result = run_search(
            study,
            store,
            source,
            workers,
            budget,
            seeds,
            lambda done, results: bar.update(done, budget, best(results)),
            stops=StopRules(
                study.directions,
                seconds=stop.time,
                designs=stop.stagnation,
                growth=stop.growth,
                every=study.search.window,
            ),
            given=taken.results,
            about=about,
            ruled_out=ruled_out,
            structure=structure,
        )
    failed = sum(1 for _, result in search_result.values() if result.error)
    say(
        f"  search: {count_text(len(search_result), 'design')} proposed, "
        f"{len({r.key for _, r in search_result.values()}):,} different" + (f", {failed} failed" if failed else "")
    )
    out = count_by_limit({result.key: result for _, result in search_result.values()}.values())
    if out:
        most = ", ".join(f"{limit} {count:,}" for limit, count in out.items())
        say(f"  search: {sum(out.values()):,} of them violate an early limit, and do not count in the budget: {most}")
    frame = search_frame(study, read_stored_asks(study, store) if others else search_result)
    if refused := search_refusals(study, frame):
        say(f"  search: {describe_left_out(refused, len(frame), 'different design')}")
    return frame


def _run_verify_stage(
    study: Study, store: Store, frame: pd.DataFrame, elapsed: RunClock, report_progress: ProgressCallback
) -> Verification | None:
    if study.verify.fidelity == "none":
        return None
    if not study.higher:
        wanted = study.verify.fidelity
        what = f"no fidelity above {study.fidelity}" if wanted == "next" else f"no fidelity {wanted}"
        each = study.question.space.base_spaces
        others = " and ".join(dict.fromkeys(what for _, space in each for what in case_types_at_fidelity(space.base, wanted)))
        more = f"; for {others} alone the fidelities are" if others else ""
        say(f"  verify: this kind of chip has {what} for this kind of workload: nothing to verify{more}")
        return None
    with ProgressBar("verify", report_progress) as bar:
        base = base_design_key(study)
        verification = run_verification(
            study,
            store,
            base,
            frame,
            lambda done, total: bar.update(done, total, f"at {study.higher}"),
            lambda text: say(f"  {text}"),
            elapsed,
        )
    failed = int(verification.after["error"].notna().sum() + verification.off.after["error"].notna().sum())
    aside = f" and {len(verification.off.after):,} off the front" if len(verification.off.after) else ""
    say(
        f"  verify: {count_text(len(verification.after), 'design')}{aside} at {verification.high}"
        + (f", {failed} failed" if failed else "")
    )
    return verification


def _all_of(designs: int, budget: int) -> int:
    if budget < designs:
        raise DesignError(
            f"search.budget: {budget:,} is below the {designs:,} designs of the space, all of which exhaustive evaluates; "
            f"set search.budget={designs} or choose another sampler"
        )
    return designs


def _load_warm_start(study: Study) -> WarmStart:
    places = study.search.warm_start
    if not places:
        return WarmStart({}, [], 0)
    taken = take_over_results(study, places, study.screen.seeds)
    results_text = f"of {taken.stored:,} results of this workload, fidelity and physics in {', '.join(places)}"
    say(
        f"  warm start: {len(taken.results):,} {results_text} are in this "
        f"space; the best {len(taken.seeds):,} are evaluated first"
    )
    return taken


class _Best:
    """The front's size for the progress line, at most twice a second; what is off the front is not looked at again."""

    def __init__(self, study: Study) -> None:
        self._asked = study
        self._time = 0.0
        self._seen = 0
        self._front = np.zeros((0, len(study.objectives)))

    def __call__(self, results: Callable[[int], Iterable[DesignResult]]) -> str:
        if time.monotonic() - self._time > 0.5:
            from dse.search.pareto import front_mask

            fresh = list(results(self._seen))
            self._seen += len(fresh)
            good = [
                extend_with_derived_metrics(result.metrics, self._asked.question.defined)
                for result in fresh
                if self._is_good(result)
            ]
            rows = [[metrics[name] for name in self._asked.objectives] for metrics in good]
            both = np.vstack([self._front, np.array(rows)]) if rows else self._front
            self._front = both[front_mask(both, self._asked.directions)]
            self._time = time.monotonic()
        return f"front {len(self._front)}"

    def _is_good(self, result: DesignResult) -> bool:
        bounds, metrics = self._asked.bounds, extend_with_derived_metrics(result.metrics, self._asked.question.defined)
        return bool(metrics) and not result.limit and all(b.excess(metrics[b.metric]) <= 0 for b in bounds)


def _screen_seeds(study: Study, screened: ScreenResult | None) -> list[dict[str, Any]]:
    """The screened front as first asks, thinned evenly along the first objective."""
    if screened is None or not len(screened.front):
        return []
    ordered = screened.front.sort_values(list(study.objectives), kind="stable")
    keep = min(study.screen.seeds, len(ordered))
    rows = ordered.iloc[np.unique(np.linspace(0, len(ordered) - 1, keep).round().astype(int))] if keep else ordered.iloc[:0]
    return [knob_values(study, record) for record in rows.to_dict("records")]


def _refuse_changed_study(study: Study, store: Store, now: dict[str, Any]) -> None:
    before = mask_passwords_in(store.identity(study.name))
    if before is None or before == now:
        return
    # another way to search asks anew, of the same designs and results
    keys = sorted((before.keys() | now.keys()) - {f"chip.{note}" for note in USUAL_CHOICES})  # the mapping itself is compared
    changed = [k for k in keys if before.get(k) != now.get(k) and not k.startswith(SEARCH)]
    if not changed:
        return
    first = changed[0]
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    raise DesignError(
        f"study {study.name!r} was run with {first}={before.get(first, '(nothing)')}, now {now.get(first, '(nothing)')}{more}; "
        f"choose another name (name=NEW) or restore the setting; its results are in {store.place}"
    )


def _note_place(study: Study) -> None:
    """Where the results are, for the commands that read them by the study's name."""
    path = study.run_dir / STORE_URL
    path.unlink(missing_ok=True)
    if study.config["store"]:
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(path) as place:
            place.write_text(strip_password(study.store) if "://" in study.store else str(Path(study.store).resolve()))
