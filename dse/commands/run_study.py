"""Run of a study from its configuration to its report: screen, search, verify, report."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.markup import escape

from dse.commands.study_output import case_labels_text, devices_texts, print_front, print_verification
from dse.config.compose import study_folder
from dse.config.metric_expressions import with_derived_metrics
from dse.config.record_parser import USUAL_CHOICES
from dse.evaluators import PHYSICS_VERSION, case_types_at_fidelity
from dse.execution.ask_tell import base_design_key, run_search, stored_asks
from dse.execution.limit_filter import accept_all, count_by_limit, make_early_limits
from dse.execution.low_fidelity import LowFidelity
from dse.execution.metric_checks import refuse_missing_metrics
from dse.execution.provenance import RunClock, run_provenance
from dse.execution.ray_actors import make_workers
from dse.execution.result_frame import knob_values, search_frame, search_refusals, with_front
from dse.execution.screen import ScreenResult, run_screen, screen_left_out_text
from dse.execution.study import STORE_URL, Study, build_study
from dse.execution.time_budget import affordable_designs
from dse.execution.verify import Verification, run_verification
from dse.execution.warm_start import WarmStart, take_over_results
from dse.execution.workers import make_evaluator
from dse.report.caveats import facts_dropped, stack_texts
from dse.report.payload import ReportedStudy
from dse.report.study_page import write_report
from dse.search.optuna_samplers import make_sampler
from dse.search.samplers import allow_all, recommend_sampler
from dse.search.stopping import StopRules
from dse.space.design import design_key
from dse.space.errors import DesignError
from dse.space.safe_text import count_text, left_out_text, mask_passwords, mask_passwords_in
from dse.store.database import without_password
from dse.store.store import SEARCH, DesignResult, Store
from dse.terminal.atomic_files import write_atomically
from dse.terminal.progress import ProgressBar, ProgressCallback, no_progress, say
from dse.terminal.signals import exit_status


def run_config(config: Mapping[str, Any]) -> int:
    """Start or resume the study of a configuration; returns the exit status.

    It ends with the front and the path of the report.
    """
    return run_study(build_study(config, study_folder(config)))


def run_study(asked: Study, told: ProgressCallback = no_progress) -> int:
    """Run a study that is built; returns the exit status.

    Args:
        asked: the study.
        told: takes how far it is.

    Raises:
        DesignError: there is nothing to do, or the study was run with another space or workload.
    """
    if asked.search["sampler"] == "none" and asked.fidelity != asked.screening:
        raise DesignError(
            f"search.sampler: none, but only a search evaluates at fidelity={asked.fidelity}; add search=nsga2 or search=random"
        )
    refuse_missing_metrics(asked)
    say(f"[bold]{escape(asked.name)}[/]  {escape(asked.text)}".rstrip())
    say(f"  workload: {escape(case_labels_text(asked.question.workload))}")
    space = asked.question.space
    grid = space.combinations
    size = count_text(grid, "combination") if grid is not None else "not enumerable"
    cases = count_text(len(asked.question.workload.cases), "case")
    say(f"  {count_text(len(space.knobs), 'knob')}, {size}; {cases}; fidelity {asked.fidelity}; seed {asked.seed}")
    for text in devices_texts(asked):
        say(f"  devices: {escape(text)}")
    for text in stack_texts(asked):
        say(f"  {escape(text)}")
    if asked.chips:
        say(f"  chips: {escape(asked.chips)}")
    for remark in facts_dropped(asked):
        say(f"  {escape(remark.text)}")
    with contextlib.closing(open_store(asked)) as store:
        return _run(asked, store, told)


def _run(asked: Study, store: Store, told: ProgressCallback) -> int:
    identity = asked.identity()
    _same(asked, store, identity)
    number = store.begin(asked.name, identity, run_provenance(asked))
    elapsed = RunClock()
    try:
        _note_place(asked)
        screened = _screen(asked, told) if asked.screen["run"] else None
        found = _search(asked, store, screened, elapsed, told)
        frame = with_front(asked, found, screened)
        if not len(frame):
            raise DesignError("screen.run is false and search.sampler is none: nothing to do; set screen.run=true or a sampler")
        checked = _verify(asked, store, frame, elapsed, told)
        counts = {"results": len(found)} | ({"verified": len(checked.after)} if checked is not None else {})
        done = elapsed() | counts
        say("  report: being written")
        path, idle = write_report(ReportedStudy(asked, frame, screened, store.ended(number, "done", done), checked))
    except KeyboardInterrupt as error:
        store.end(number, "interrupted", elapsed())
        say("\n[yellow]stopped[/]: what is finished is stored; the same command goes on from here")
        return exit_status(error)
    except BaseException as error:
        with contextlib.suppress(DesignError):  # where the store is what failed, the first reason counts
            store.end(number, "failed", {**elapsed(), "error": mask_passwords(f"{type(error).__name__}: {error}")})
        raise
    store.end(number, "done", done)
    print_front(asked, frame)
    if checked is not None:
        print_verification(asked, checked)
    for knob in idle:
        say(f"[yellow]note[/]  {escape(knob)}")
    say(f"report  {escape(str(path))}")
    say(f"results {escape(store.place)}")
    return 0


def open_store(asked: Study) -> Store:
    """Open the store of a study, and report stored results that cannot be used."""
    store = Store(asked.store)
    for physics, count in store.of_other_physics(asked.context).items():
        say(
            f"  {count:,} stored results of physics version {physics} are kept, and not used: this is version {PHYSICS_VERSION}"
        )
    return store


def choose_sampler(
    asked: Study, screened: ScreenResult | None, begun: Mapping[str, Any] | None, allowed: Callable[[], tuple[int, str]]
) -> tuple[str, str]:
    """The sampler of a study, and the reason for it as text.

    Args:
        asked: the study.
        screened: what its screen found.
        begun: the notes of its first ask, where it was begun before.
        allowed: says how many designs its budget and time allow, and why where it is the time.
    """
    wanted = asked.search["sampler"]
    if wanted != "auto":
        return wanted, "as configured"
    if begun is not None:
        return begun.get("sampler", "nsga2"), "from its first run"
    if asked.search["promote"]:
        what = f"designs of {asked.search['promote']} are promoted to {asked.fidelity} by their expected hypervolume gain"
        return "local", what
    if screened is not None and screened.exact and asked.fidelity == asked.screening:
        return "none", "the screen evaluated every design at this fidelity, so its front is exact"
    designs, time_says = allowed()
    name, why = recommend_sampler(asked.question.space, len(asked.objectives), designs)
    return name, f"{time_says}; {why}" if time_says else why


def _screen(asked: Study, told: ProgressCallback) -> ScreenResult:
    with ProgressBar("screen", told) as bar:
        found = run_screen(asked, lambda done, total, size: bar.update(done, total, f"front {size}"))
    kind = "exact" if found.exact else "of a quasi-random sample"
    pruned = sum(found.pruned.values())
    reused = found.rows - found.evaluated - pruned
    note = f", {reused:,} of them stored before" if reused else ""
    known = "known to be " if pruned else ""
    front = f"front of {len(found.front):,}, {kind}"
    say(f"  screen: {count_text(found.rows, 'design')}{note}, {found.feasible:,} {known}feasible; {front}")
    if found.refused:
        say(f"  screen: {left_out_text(found.refused, found.rows, 'design')}")
    if pruned:
        say(f"  screen: {count_text(found.rows - pruned, 'design')} evaluated; {screen_left_out_text(found)}")
    return found


def _search(
    asked: Study, store: Store, screened: ScreenResult | None, elapsed: RunClock, told: ProgressCallback
) -> pd.DataFrame:
    mine = store.search(asked.name, asked.identity())
    before, others = store.asks(mine, PHYSICS_VERSION), {*store.searches(asked.name, PHYSICS_VERSION)} - {mine}
    begun = before[0][0].marks if before else None
    limits = make_early_limits(asked.question.space, asked.question.workload, asked.fidelity)
    possible, ruled_out = (limits.possible, limits.ruled_out) if limits else (allow_all, accept_all)
    name, why = choose_sampler(asked, screened, begun, lambda: affordable_designs(asked, store, possible))
    say(f"  search: {name} ({why})")
    if others:
        count = store.asked(asked.name, PHYSICS_VERSION) - len(before)
        say(f"  {count_text(count, 'design')} proposed by other searches of this study: their results are used and shown")
    if name == "none":
        return search_frame(asked, stored_asks(asked, store))
    space, stop = asked.question.space, asked.search["stop"]
    population = asked.search["population"]
    cheaper = LowFidelity(asked, store, screened) if asked.search["promote"] else None
    source = make_sampler(
        name, space, asked.directions, seed=asked.seed, population=population, possible=possible, cheaper=cheaper
    )
    if cheaper is not None:
        say(f"  promoted: {cheaper}")
    taken = _warm(asked)
    first = [*taken.seeds, *(point for point in asked.points.values() if point not in taken.seeds)]
    seeds = first if cheaper else [*first, *(seed for seed in _seeds(asked, screened) if seed not in first)]
    about = {"sampler": name, "warm": len(taken.seeds)}
    # what others have evaluated costs nothing and is not of the budget
    budget = asked.search["budget"] + (begun or about).get("warm", 0)
    budget = budget if source.designs is None else _all_of(source.designs, budget)
    if before:
        say(f"  going on from {count_text(len(before), 'proposed design')}")
    base = asked.question.base
    workers = make_workers(
        asked.crew,
        make_evaluator(asked.question.workload, asked.fidelity),
        window=asked.search["window"],
        designs=budget - len({design for _, design in before}),
        example=[(design_key(base), {}, base)],
        say=lambda text: say(f"  {text}"),
    )
    with elapsed.hired(workers), ProgressBar("search", told) as bar:
        best = _Best(asked)
        found = run_search(
            asked,
            store,
            source,
            workers,
            budget,
            seeds,
            lambda told, results: bar.update(told, budget, best(results)),
            stops=StopRules(asked.directions, **stop, every=asked.search["window"]),
            given=taken.results,
            about=about,
            ruled_out=ruled_out,
        )
    failed = sum(1 for _, result in found.values() if result.error)
    say(
        f"  search: {count_text(len(found), 'design')} proposed, {len({r.key for _, r in found.values()}):,} different"
        + (f", {failed} failed" if failed else "")
    )
    out = count_by_limit({result.key: result for _, result in found.values()}.values())
    if out:
        most = ", ".join(f"{limit} {count:,}" for limit, count in out.items())
        say(f"  search: {sum(out.values()):,} of them violate an early limit, and do not count in the budget: {most}")
    frame = search_frame(asked, stored_asks(asked, store) if others else found)
    if refused := search_refusals(asked, frame):
        say(f"  search: {left_out_text(refused, len(frame), 'different design')}")
    return frame


def _verify(asked: Study, store: Store, frame: pd.DataFrame, elapsed: RunClock, told: ProgressCallback) -> Verification | None:
    if asked.verify["fidelity"] == "none":
        return None
    if not asked.higher:
        wanted = asked.verify["fidelity"]
        what = f"no fidelity above {asked.fidelity}" if wanted == "next" else f"no fidelity {wanted}"
        each = asked.question.space.each
        others = " and ".join(dict.fromkeys(what for _, space in each for what in case_types_at_fidelity(space.base, wanted)))
        more = f"; for {others} alone the fidelities are" if others else ""
        say(f"  verify: this kind of chip has {what} for this kind of workload: nothing to verify{more}")
        return None
    with ProgressBar("verify", told) as bar:
        base = base_design_key(asked)
        found = run_verification(
            asked,
            store,
            base,
            frame,
            lambda done, total: bar.update(done, total, f"at {asked.higher}"),
            lambda text: say(f"  {text}"),
            elapsed,
        )
    failed = int(found.after["error"].notna().sum() + found.off.after["error"].notna().sum())
    aside = f" and {len(found.off.after):,} off the front" if len(found.off.after) else ""
    say(f"  verify: {count_text(len(found.after), 'design')}{aside} at {found.high}" + (f", {failed} failed" if failed else ""))
    return found


def _all_of(designs: int, budget: int) -> int:
    if budget < designs:
        raise DesignError(
            f"search.budget: {budget:,} is below the {designs:,} designs of the space, all of which exhaustive evaluates; "
            f"set search.budget={designs} or choose another sampler"
        )
    return designs


def _warm(asked: Study) -> WarmStart:
    places = asked.search["warm_start"]
    if not places:
        return WarmStart({}, [], 0)
    taken = take_over_results(asked, places, asked.screen["seeds"])
    of = f"of {taken.stored:,} results of this workload, fidelity and physics in {', '.join(places)}"
    say(f"  warm start: {len(taken.results):,} {of} are in this space; the best {len(taken.seeds):,} are evaluated first")
    return taken


class _Best:
    """The front's size for the progress line, at most twice a second; what is off the front is not looked at again."""

    def __init__(self, asked: Study) -> None:
        self._asked = asked
        self._time = 0.0
        self._seen = 0
        self._front = np.zeros((0, len(asked.objectives)))

    def __call__(self, results: Callable[[int], Iterable[DesignResult]]) -> str:
        if time.monotonic() - self._time > 0.5:
            from dse.search.pareto import front_mask

            fresh = list(results(self._seen))
            self._seen += len(fresh)
            good = [
                with_derived_metrics(result.metrics, self._asked.question.defined) for result in fresh if self._good(result)
            ]
            rows = [[metrics[name] for name in self._asked.objectives] for metrics in good]
            both = np.vstack([self._front, np.array(rows)]) if rows else self._front
            self._front = both[front_mask(both, self._asked.directions)]
            self._time = time.monotonic()
        return f"front {len(self._front)}"

    def _good(self, result: DesignResult) -> bool:
        bounds, metrics = self._asked.bounds, with_derived_metrics(result.metrics, self._asked.question.defined)
        return bool(metrics) and not result.limit and all(b.excess(metrics[b.metric]) <= 0 for b in bounds)


def _seeds(asked: Study, screened: ScreenResult | None) -> list[dict[str, Any]]:
    """The screened front as first asks, thinned evenly along the first objective."""
    if screened is None or not len(screened.front):
        return []
    ordered = screened.front.sort_values(list(asked.objectives), kind="stable")
    keep = min(asked.screen["seeds"], len(ordered))
    rows = ordered.iloc[np.unique(np.linspace(0, len(ordered) - 1, keep).round().astype(int))] if keep else ordered.iloc[:0]
    return [knob_values(asked, record) for record in rows.to_dict("records")]


def _same(asked: Study, store: Store, now: dict[str, Any]) -> None:
    before = mask_passwords_in(store.identity(asked.name))
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
        f"study {asked.name!r} was run with {first}={before.get(first, '(nothing)')}, now {now.get(first, '(nothing)')}{more}; "
        f"choose another name (name=NEW) or restore the setting; its results are in {store.place}"
    )


def _note_place(asked: Study) -> None:
    """Where the results are, for the commands that read them by the study's name."""
    path = asked.run_dir / STORE_URL
    path.unlink(missing_ok=True)
    if asked.config["store"]:
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(path) as place:
            place.write_text(without_password(asked.store) if "://" in asked.store else str(Path(asked.store).resolve()))
