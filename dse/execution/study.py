"""A study as a value: question, space, objectives, constraints, and where its results are stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dse.config import format_policy as formats
from dse.config import multi_chip as chips
from dse.config.metric_workloads import refuse_foreign_metrics
from dse.config.named_points import named_points
from dse.config.question import Question, build_question
from dse.config.record_parser import parse_setting, parse_settings, parse_value
from dse.config.workloads import SEED
from dse.evaluators import PHYSICS_VERSION, fidelities, fidelity_names, submesh_text
from dse.evaluators.accounting.metrics import METRICS, Direction, find_metric
from dse.evaluators.accounting.sequence_limits import length_advice_text
from dse.evaluators.calls.submesh import SUBMESH_MARK
from dse.evaluators.evaluation import explain_infeasibility, find_option_conflict
from dse.execution.pool.worker_settings import WorkerSettings
from dse.execution.study_settings import (
    ALL,
    CERTIFY,
    FRONT,
    GROUPS,
    SCREEN_FIDELITIES,
    STEADY,
    RaySettings,
    ReportSettings,
    ScreenSettings,
    SearchSettings,
    VerifySettings,
)
from dse.space.design import Design, key_of_leaves
from dse.space.errors import DesignError, suggest_nearest
from dse.space.knobs import Space, Value
from dse.space.limits import Infeasibility
from dse.space.multi_chip_space import CHIP_KNOB, chips_with_address
from dse.space.safe_text import mask_passwords_in
from dse.space.units import format_quantity
from dse.space.workload import COMBINATIONS, Workload, workload_of_stream
from dse.store.storage_folders import StorageFolder
from dse.store.store import ResultContext

STORE_URL = "store.url"
"""The file of a run folder that says where the results are, where they are not in the folder."""


@dataclass(frozen=True, slots=True)
class MetricConstraint:
    """Constraint on a metric: ``metric <= value`` or ``metric >= value``, in the metric's unit."""

    metric: str
    relation: str
    value: float

    def excess(self, values: Any) -> Any:
        """Relative excess of values over the constraint; at most 0 where they keep it. [-]"""
        return values / self.value - 1 if self.relation == "<=" else self.value / np.maximum(values, 1e-300) - 1

    def __str__(self) -> str:
        return f"{self.metric} {self.relation} {format_quantity(self.value, METRICS[self.metric].unit)}"


@dataclass(frozen=True)
class Study:
    """Everything that `dse run` needs, built and checked before anything is written."""

    name: str
    text: str
    question: Question
    fidelity: str
    seed: int
    objectives: dict[str, Direction]
    bounds: tuple[MetricConstraint, ...]
    screen: ScreenSettings
    search: SearchSettings
    verify: VerifySettings
    crew: WorkerSettings
    report: ReportSettings
    run_dir: Path
    store: str
    overrides: tuple[str, ...]
    config: Mapping[str, Any]

    @property
    def directions(self) -> list[str]:
        """Directions of the objectives, in order."""
        return list(self.objectives.values())

    @property
    def context(self) -> ResultContext:
        """Workload key, fidelity and physics version of its results."""
        return self.context_at(self.fidelity)

    @cached_property
    def points(self) -> dict[str, dict[str, Value]]:
        """Knob values of the points that the study names."""
        return named_points(self.report.points, self.question.space)

    def context_at(self, fidelity: str) -> ResultContext:
        """Workload key, physics version and a fidelity, as the context of results."""
        return ResultContext(workload_key(self.question.workload), fidelity, PHYSICS_VERSION)

    @property
    def screen_fidelity(self) -> str:
        """Fidelity of the screen: as set, else that of promotion, else the analytical model.

        For a study at the steady state, the steady state.
        """
        usual = STEADY if self.fidelity == STEADY else "analytical"
        return self.screen.fidelity or self.search.promote or usual

    @property
    def higher(self) -> str:
        """Fidelity of the verification; empty string if none is wanted or its chips have none."""
        fidelities = [self.higher_of(space.base) for _, space in self.question.space.base_spaces]
        return min((word for word in fidelities if word), key=fidelity_names().index, default="")

    def higher_of(self, base: Design) -> str:
        """Fidelity of the verification for one kind of chip; empty string if it has none."""
        wanted, known = self.verify.fidelity, fidelities(base, self.question.workload)
        if wanted == "next":
            return next(iter(known[known.index(self.fidelity) + 1 :]), "") if self.fidelity in known else ""
        if wanted not in known and self.verify.submesh:
            known = fidelities(base, self.question.workload, part=True)
        return wanted if wanted in known else ""

    @property
    def verified_bases(self) -> list[Design]:
        """Base designs of the chips that have the higher fidelity."""
        higher = self.higher
        return [space.base for _, space in self.question.space.base_spaces if higher and self.higher_of(space.base) == higher]

    @property
    def compared_fidelities(self) -> tuple[str, str]:
        """Fidelities at which the best designs are compared: its own and the higher one.

        Both on a submesh, if the whole mesh is too large for the higher one.
        """
        if self.higher == "cycles" and self.verify.submesh and all(map(self._submesh_text_of, self.verified_bases)):
            suffix = f"{SUBMESH_MARK}{self.verify.submesh}"
            return self.fidelity + suffix, self.higher + suffix
        return self.fidelity, self.higher

    @property
    def part(self) -> str:
        """Submesh on which designs are compared, and how the workload shrinks; empty string if none."""
        if self.compared_fidelities == (self.fidelity, self.higher):
            return ""
        side, how = self.verify.submesh, dict.fromkeys(map(self._submesh_text_of, self.verified_bases))
        return f"on at most {side} x {side} cores, each as it is: {'; '.join(how)}"

    def _submesh_text_of(self, base: Design) -> str:
        return submesh_text(base, self.question.workload)

    @property
    def chips(self) -> str:
        """Chips with mapping and formats of each, as text; empty string for a study of one chip."""
        several = self.config.get("chips") or {}
        bases = {str(chosen[CHIP_KNOB]): space.base for chosen, space in self.question.space.base_spaces if chosen}
        return (
            formats.describe_chip_formats(bases, {name: config["choices"]["mapping"] for name, config in several.items()})
            if bases
            else ""
        )

    @property
    def pools(self) -> str:
        """Chips of both pools and their link, as text; empty string for one kind of chip."""
        base = next(space.base for _, space in self.question.space.base_spaces)
        if base.pools is None:
            return ""
        prefill = self.config["pools"]["prefill"]["choices"]
        decode = list(self.config.get("chips") or ()) or [self.config["choices"]["chip"]]
        rate = format_quantity(float(base.pools.link.bandwidth), "B/s")
        return f"{prefill['chip']} ({prefill['mapping']}) prefills, {' or '.join(decode)} decodes; link {rate} a prefill chip"

    def identity(self) -> dict[str, Any]:
        """Settings that must stay the same for results to be continued, flat, by address."""
        several = self.config.get("chips")
        own: dict[str, Any] = (
            {"chips": {name: {"chip": config["chip"], "mapping": config["mapping"]} for name, config in several.items()}}
            if several
            else {}
        )
        groups = ("model", "workload", "space", "objectives", "constraints", *(() if several else ("chip", "mapping")))
        if pools := self.config.get("pools"):
            own["pools"] = {"prefill": {part: pools["prefill"][part] for part in ("chip", "mapping")}, "link": pools["link"]}
        flat = dict(_flat_pairs({group: self.config[group] for group in groups} | own))
        flat |= {f"metrics.{name}": expression.text for name, expression in self.question.defined.items()}
        flat |= {"fidelity": self.fidelity, "seed": str(self.seed)}
        flat |= {f"search.{key}": str(getattr(self.search, key)) for key in ("sampler", "window", "population")}
        if self.search.promote:
            flat["search.promote"] = self.search.promote
        if self.search.warm_start:
            flat["search.warm_start"] = str([*self.search.warm_start])
        return dict(mask_passwords_in(flat))

    @property
    def sent_copy(self) -> "Study":
        """The study as workers get it: without store and workers."""
        return replace(self, store="", config={}, crew=WorkerSettings())


def build_study(config: Mapping[str, Any], folder: Path) -> Study:
    """Study of a composed configuration.

    Args:
        config: plain dictionary, as `dse.config.compose.compose` returns it.
        folder: of the study definition, where its own files are.

    Raises:
        DesignError: naming the address, the value, what was expected and the nearest valid name.
    """
    config, nouns = _parse_nouns(config, folder)
    if length_advice_text(nouns.workload):
        raise DesignError(f"model: no design of this study is possible: {length_advice_text(nouns.workload)}")
    for chosen, space in nouns.space.base_spaces:
        verdict = _base_verdict(space, nouns.workload, chosen.get(CHIP_KNOB))
        if verdict is not None and verdict.limit.startswith("model."):
            raise DesignError(f"model: no design of {chosen.get(CHIP_KNOB, 'this study')} is possible: {verdict}")
    screen, search, verify, workers, ray, report = _parse_groups(config)
    fidelity = config["fidelity"]
    if fidelity not in fidelity_names():
        raise DesignError(f"fidelity: no option {fidelity!r}; {suggest_nearest(str(fidelity), fidelity_names())}")
    for chosen, space in nouns.space.base_spaces:
        if chosen and fidelity not in (known := fidelities(space.base, nouns.workload)):
            raise DesignError(
                f"fidelity: chip {chosen[CHIP_KNOB]} has no {fidelity} for this workload; it has {', '.join(known)}"
            )
    _check_verified(verify, fidelity)
    _check_sampler_words(search.sampler, config.get("overrides", ()))
    _check_gap(search, nouns)
    _check_screened(screen.fidelity, fidelity, nouns)
    _check_prune(screen, search.promote or fidelity, read_objectives(config["objectives"]), nouns)
    _check_promote(search, screen, fidelity, nouns)
    named_points(report.points, nouns.space)
    _check_pictures(report, nouns)
    objectives, bounds = read_objectives(config["objectives"]), read_constraints(config["constraints"])
    refuse_foreign_metrics("objectives", objectives, nouns.defined, nouns.workload)
    refuse_foreign_metrics("constraints", (bound.metric for bound in bounds), nouns.defined, nouns.workload)
    if verify.seeds > 1 and workload_of_stream(nouns.workload, 1) is None:
        raise DesignError(
            f"verify.seeds: {verify.seeds}, but this workload has one stream of requests; set 1 for batches and kernels, "
            "for sessions that begin at once, and for the maximum rate, which has several streams of its own"
        )
    run_dir = Path(str(config["run_dir"])).resolve()
    return Study(
        str(config["name"]),
        str(config["question"]),
        nouns,
        fidelity,
        parse_setting(config["seed"], SEED, "seed"),
        objectives,
        bounds,
        screen,
        search,
        verify,
        replace(workers, address=ray.address or ""),
        report,
        run_dir,
        str(config["store"]) if config["store"] else str(run_dir / "results.sqlite"),
        tuple(config.get("overrides", ())),
        config,
    )


def _parse_nouns(config: Mapping[str, Any], folder: Path) -> tuple[Mapping[str, Any], Question]:
    """The nouns of a configuration; of some of the chips that its study lists, without what only others have."""
    own, names = chips.list_study_chips(folder), list(config.get("chips") or ())
    if own and names and set(names) < set(own):
        config = chips.restrict_to_chips(config, own)
        return config, build_question(dict(config), folder, fewer=True)
    try:
        return config, build_question(dict(config), folder)
    except DesignError as error:
        others = [name for name in names if own and name not in own]
        more = f"; the space is of the study's chips, {', '.join(own)}; {', '.join(others)} is none of them" if others else ""
        raise DesignError(f"{error}{more}") from None


def _parse_groups(
    config: Mapping[str, Any],
) -> tuple[ScreenSettings, SearchSettings, VerifySettings, WorkerSettings, RaySettings, ReportSettings]:
    """Settings of each group. A number in the place of what a screen keeps is `seeds`, as earlier versions had it."""
    screen = config["screen"]
    if isinstance(keep := screen.get("keep"), int) and not isinstance(keep, bool):
        config = {**config, "screen": {**screen, "keep": ALL, "seeds": keep}}
    parsed: dict[str, Any] = {name: parse_settings(kind, config[name], name, complete=True) for name, kind in GROUPS.items()}
    if folder := parsed["screen"].folder:
        folder = str(Path(folder).resolve()) if "://" not in folder else folder
        StorageFolder(folder).reach()
        parsed["screen"] = replace(parsed["screen"], folder=folder)
    return tuple(parsed.values())


def _check_screened(word: str | None, fidelity: str, nouns: Question) -> None:
    """Refuse a fidelity of the screen that a chip has not, or that is above that of the search."""
    if word is None:
        return
    for chosen, space in nouns.space.base_spaces:
        known = fidelities(space.base, nouns.workload)
        if word not in known:
            whose = f"chip {chosen[CHIP_KNOB]}" if chosen else "this chip"
            raise DesignError(f"screen.fidelity: {whose} has no {word} for this workload; it has {', '.join(known)}")
        if known.index(word) > known.index(fidelity):
            raise DesignError(f"screen.fidelity: {word} is above the search's {fidelity}; set fidelity={word}, or null here")


def _check_prune(screen: ScreenSettings, fidelity: str, ways: Mapping[str, str], nouns: Question) -> None:
    """Refuse to leave designs out by bounds where there are none, or where all are kept."""
    if not screen.prune:
        return
    from dse.evaluators.accounting.serving_runs.metric_bounds import (
        LOWER_BOUNDED,
        UPPER_BOUNDED,
    )  # which loads what plays loads

    if screen.keep != FRONT:
        raise DesignError(f"screen.prune: pruned designs have no metrics to keep; set screen.keep={FRONT}")
    if (screen.fidelity or fidelity) != STEADY:
        raise DesignError(f"screen.prune: bounds exist for the steady state of serving loads; set screen.fidelity={STEADY}")
    if any(getattr(case, "largest", 0.0) for case in nouns.workload.cases):
        raise DesignError("screen.prune: bounds are those of a stated rate; set workload.rate, or screen.prune=false")
    if absent := [name for name, way in ways.items() if name not in (UPPER_BOUNDED if way == "max" else LOWER_BOUNDED)]:
        raise DesignError(
            f"screen.prune: no bound of {', '.join(absent)} is known; "
            f"{suggest_nearest(absent[0], (*LOWER_BOUNDED, *UPPER_BOUNDED))}"
        )


def _check_sampler_words(sampler: str, overrides: Sequence[str]) -> None:
    """Refuse two samplers that are typed at once."""
    typed = dict(word.lstrip("+").split("=", 1) for word in overrides if word.lstrip("+").startswith("search") and "=" in word)
    preset = typed.get("search", sampler)
    if "search.sampler" in typed and preset not in (typed["search.sampler"], "usual", "auto") and sampler != "none":
        raise DesignError(f"search: two samplers, search={preset} and search.sampler={sampler}; remove one of them")


def _check_gap(search: SearchSettings, nouns: Question) -> None:
    """Refuse a gap of a search that proves nothing, and of a certificate that none or no gap says when to end."""
    gap = search.gap
    if search.sampler != CERTIFY:
        if gap is not None:
            raise DesignError(
                f"search.gap: {100 * gap:.4g}%, but search.sampler={search.sampler} proves nothing; set search=certify, or null"
            )
    elif gap is None:
        raise DesignError("search.gap: missing; search=certify needs the share by which a design may beat the front, as in 1%")
    elif gap == 0 and nouns.space.combinations is None:
        raise DesignError("search.gap: 0 needs a space without intervals; write a share above 0, as in 1%")


def _check_promote(search: SearchSettings, screen: ScreenSettings, fidelity: str, nouns: Question) -> None:
    """Refuse a fidelity to promote from that a chip has not, that is not below the search's, or that nobody would heed."""
    word, sampler = search.promote, search.sampler
    if word is None:
        return
    for chosen, space in nouns.space.base_spaces:
        known = fidelities(space.base, nouns.workload)
        if word not in known or known.index(word) >= known.index(fidelity):
            whose = f"chip {chosen[CHIP_KNOB]}" if chosen else "this chip"
            below = [name for name in known[: known.index(fidelity)] if name in SCREEN_FIDELITIES]
            do = f"set {' or '.join(below)}" if below else "set null, or a higher fidelity"
            raise DesignError(f"search.promote: {word} is not below fidelity={fidelity} of {whose} for this workload; {do}")
    if sampler not in ("auto", "local"):
        raise DesignError(f"search.promote: search.sampler={sampler} uses one fidelity; set auto or local")
    if screen.run and screen.keep == FRONT:
        raise DesignError(f"search.promote: promotion needs all screened designs; set screen.keep={ALL}")
    if (screened := screen.fidelity) not in (None, word):
        raise DesignError(f"screen.fidelity: {screened}, but designs are promoted from {word}; set null or {word}")


def _base_verdict(space: Space, workload: Workload, chip: Any) -> Infeasibility | None:
    """What binds a base; where it cannot be asked and no knob is of the words in the way, of several chips says which."""
    moved = {leaf.rpartition(".")[2] for leaves in space.targets.values() for leaf in leaves}
    try:
        if (conflict := find_option_conflict(space.base, workload)) and not moved & set(conflict.fields):
            raise conflict
        return explain_infeasibility(space.base, workload)
    except DesignError as error:
        raise (DesignError(f"chips: {chip}: {error}") if chip else error) from None


def stored_location(run_dir: Path) -> str | None:
    """Place of the results of a run folder; None if it never ran."""
    note, file = run_dir / STORE_URL, run_dir / "results.sqlite"
    return note.read_text().strip() if note.is_file() else str(file) if file.is_file() else None


def read_objectives(config: Mapping[str, Any]) -> dict[str, Direction]:
    """Metrics to optimise, with their directions."""
    if not config:
        raise DesignError("objectives: none given; name one or more metrics, as in 'objectives: {tpot: min}'")
    for name, direction in config.items():
        try:
            find_metric(name)
        except DesignError as error:
            raise DesignError(f"objectives: {error}") from None
        if direction not in ("max", "min"):
            raise DesignError(f"objectives.{name}: no direction {direction!r}; valid: max, min")
    return dict(config)


def read_constraints(config: Mapping[str, Any]) -> tuple[MetricConstraint, ...]:
    """Constraints on metrics, as in ``tpot: "<= 50 ms"``, or a list of them."""
    return tuple(
        _parse_bound(name, text) for name, texts in config.items() for text in (texts if isinstance(texts, list) else [texts])
    )


def _parse_bound(name: str, text: Any) -> MetricConstraint:
    try:
        unit = find_metric(name).unit
    except DesignError as error:
        raise DesignError(f"constraints: {error}") from None
    relation, value = str(text)[:2], str(text)[2:].strip()
    if relation not in ("<=", ">="):
        raise DesignError(f"constraints.{name}: {text!r} is no bound; write '<= 50 {unit}' or '>= 50 {unit}'")
    number = parse_value(value, unit, f"constraints.{name}")
    if number <= 0:
        raise DesignError(f"constraints.{name}: {text!r}; a bound must be above 0")
    return MetricConstraint(name, relation, number)


def workload_key(workload: Workload) -> str:
    """Content key of a workload: of its cases, not of their names."""
    rows = [(f"case {i}", case.content) for i, case in enumerate(workload.cases)]
    combined = [("model_shares", repr(workload.model_shares))] if workload.model_shares else []
    combined += [("combine", workload.combine)] if workload.combine != COMBINATIONS[0] else []
    return key_of_leaves([("decode_at", workload.decode_context), *rows, *combined])


def _check_verified(verify: VerifySettings, fidelity: str) -> None:
    """Refuse a fidelity of the verification that is none, or not above the study's own."""
    valid = ("none", "next", *fidelity_names()[fidelity_names().index(fidelity) + 1 :])
    if (wanted := verify.fidelity) in valid:
        return
    if wanted in fidelity_names():
        raise DesignError(f"verify.fidelity: {wanted!r} is not above fidelity={fidelity}; valid: {', '.join(valid)}")
    word, part, cores = wanted.partition(SUBMESH_MARK)
    say = f"set verify.fidelity={word} verify.submesh={cores or 8}" if part and word in valid else suggest_nearest(word, valid)
    raise DesignError(f"verify.fidelity: {wanted!r} is no fidelity; {say}")


def _check_pictures(report: ReportSettings, nouns: Question) -> None:
    """Refuse pictures over metrics or knobs that no design has."""
    for line in report.lines:
        find_metric(line.y)
    for kind, pictures in (("lines", report.lines), ("bars", report.bars)):
        for picture in pictures:
            for address in (picture.x, getattr(picture, "by", None)):
                if address is not None and address not in nouns.space.targets:
                    _check_leaf_exists(address, kind, nouns)


def _check_leaf_exists(address: str, kind: str, nouns: Question) -> None:
    """Refuse an address of a picture that no chip has; a field that this space holds fixed is no mistake."""
    bases = {str(place): space.base for place, (_, space) in enumerate(nouns.space.base_spaces)}
    try:
        chips_with_address(bases, address)
    except DesignError as error:
        raise DesignError(f"report.{kind}: {error}") from None


def _flat_pairs(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        if "value" in value and "source" in value:
            return [(prefix.rstrip("."), str(value["value"]))]
        return [pair for key, inner in value.items() for pair in _flat_pairs(inner, f"{prefix}{key}.")]
    return [(prefix.rstrip("."), str(value))]
