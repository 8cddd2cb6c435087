"""Chips side by side for one workload, each with its best mapping, at equal number formats.

A short search evaluates the chip's default mapping and a small space of mappings with the analytical model; a study searches
further, and varies chips too. If a chip does not support the workload, its column gives the reason. An unknown chip name is an
error before any search begins.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

import numpy as np

from dse.accuracy.machine_order import order_text
from dse.analysis.evaluation import Evaluation, evaluate_design
from dse.analysis.published_formats import propose_published_formats
from dse.config import format_policy as formats
from dse.config.compose import compose, find_study_folder
from dse.config.metric_expressions import evaluate_with_derived
from dse.config.question import Question, build_question
from dse.config.searchable_knobs import find_searchable_knobs
from dse.evaluators import METRICS
from dse.evaluators.accounting.metrics import find_metric
from dse.evaluators.accounting.outcomes import SILICON_LIMITS
from dse.evaluators.accounting.usage import absence_reason
from dse.evaluators.evaluation import early_limits, explain_infeasibility, is_simulated
from dse.evaluators.silicon import area
from dse.execution.limit_filter import EarlyLimits
from dse.search.coordinate_search import DIVIDE, run_coordinate_search
from dse.search.samplers import RandomSampler, Values, generate_sobol_points
from dse.space.compatibility import case_type_of as kind_of
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import leaf_at
from dse.space.former_words import read_metric
from dse.space.knobs import ChoiceKnob, Space
from dse.space.limits import Infeasibility
from dse.space.multi_chip_space import chips_with_address
from dse.space.safe_text import describe_left_out
from dse.space.software import MANY_DIES, POOLED_DIES, software_of
from dse.space.workload import ServingLoad

MAX_MAPPINGS = 4096
"""Mappings of a chip that are looked at, all of them where there are no more."""

MAX_SIMULATED = 12
"""The same where each plays requests, which takes up to seconds."""

BATCH_SIZE = 1024
"""Designs that are evaluated together."""

COMMON_STACK = "tuned"
"""A stack of rates alone, of no chip's own kernels: that chips can have alike."""

DEFAULT_OBJECTIVE = "throughput_per_system_mm2"


@dataclass(frozen=True)
class ChipComparison:
    """One chip of a comparison, with the best mapping that the search found for it.

    Attributes:
        found: its best design, evaluated; None where there is none.
        values: by knob of the search, what it chose.
        looked: designs that the search evaluated, and how many of them are feasible.
        why: why there is no design; "" where there is one.
        refused: how many designs each limit rules out, before they are evaluated or when they are.
    """

    chip: str
    found: Evaluation | None
    values: Values
    looked: tuple[int, int]
    why: str = ""
    refused: Mapping[str, int] = field(default_factory=dict)

    @property
    def left_out(self) -> str:
        """Number of mappings that the search left out, by limit, as text.

        Mappings that a limit rules out before evaluation count too.
        """
        return describe_left_out(self.refused, self.looked[1] + sum(self.refused.values()), "mapping")

    @property
    def chips(self) -> int | None:
        """Number of chips that work together, if their area is known."""
        whole = self.found.metrics.get("system_mm2") if self.found else None
        return round(whole / float(area.total_area(self.found.design.chip))) if self.found and whole else None

    @property
    def dies(self) -> int | None:
        """Dies of one chip, stacked dies included."""
        chip = self.found.design.chip if self.found else None
        return int(sum(area.die_counts(chip, area.total_area(chip)))) if chip else None

    @property
    def changes(self) -> tuple[str, ...]:
        """Settings of the chip that differ from its preset."""
        return self.found.changes if self.found else ()

    @property
    def formats(self) -> str:
        """Number formats of the best mapping, as text."""
        return formats.describe_formats(self.found.design) if self.found else ""

    @property
    def software(self) -> str:
        """Name of the software stack; empty string for a chip without one."""
        return self.found.names.get("stack", "") if self.found else ""

    @property
    def mapping(self) -> str:
        """Name of the mapping, and the knobs that the search chose, as text."""
        chosen = ", ".join(
            f"{address.removeprefix('mapping.').removeprefix('both.')} {value}" for address, value in self.values.items()
        )
        if not self.found:
            return ""
        devices = f"; {self.found.devices}" if self.found.devices else ""
        return f"{self.found.names['mapping']}{f': {chosen}' if chosen else ', as it is set'}{devices}"


def compare_best_mappings(
    words: Sequence[str], objective: str = DEFAULT_OBJECTIVE, *, trust: bool = False
) -> list[ChipComparison]:
    """Best mapping of each chip for one workload, found by a short search.

    Args:
        words: overrides as of `dse evaluate`, with ``chip=[NAME, NAME]``; ``space=NAME`` searches another space.
        objective: the metric that the best mapping is best in.
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: a name that is no chip, an override that is wrong for all chips, no such metric, or formats that differ.
    """
    names, others, rule = _split_overrides(words)
    configs: dict[str, dict[str, Any]] = {}
    sides: dict[str, ChipComparison] = {}
    for name in names:
        try:
            configs[name] = _compose_chip(name, others, trust)
            _base_question(configs[name])
        except DesignError as error:
            _refuse_unknown(name, others, trust)
            configs.pop(name, None)
            sides[name] = ChipComparison(name, None, {}, (0, 0), str(error))
    if not configs:
        if len(reasons := {side.why for side in sides.values()}) == 1 < len(names):
            raise DesignError(f"compare: {reasons.pop()}")
        raise DesignError(f"compare: no chip supports this workload; {names[0]}: {sides[names[0]].why}")
    objective = read_metric(objective)
    find_metric(objective)  # when those that are defined are known
    bases = {name: _base_question(config).base for name, config in configs.items()}
    formats.check_equal_formats(bases, (), {"formats": rule})
    for address in next(iter(configs.values()))["space"] if _has_space(others) else ():
        chips_with_address(bases, address)  # of one's own space, each knob is of some chip
    for name, config in configs.items():
        try:
            sides[name] = _best_mapping(name, config, objective, others)
        except DesignError as error:
            sides[name] = ChipComparison(name, None, {}, (0, 0), str(error))
    return [sides[name] for name in names]


def describe_software_difference(sides: Sequence[ChipComparison]) -> str:
    """One line on chips that run with different stacks, and the overrides that equalise them.

    Empty string if all have the same stack.
    """
    stacks = {side.chip: side.software for side in sides if side.software}
    if len(set(stacks.values())) < 2:
        return ""
    stacks_text = ", ".join(f"{chip} {stack}" for chip, stack in stacks.items())
    others = any(side.found and not side.software for side in sides)
    where = " (only these chips: others run without a stack)" if others else ""
    return f"software stacks differ ({stacks_text}): stack={COMMON_STACK} inference_engine=none equalises them{where}"


def collect_comparison_notes(sides: Sequence[ChipComparison]) -> str:
    """One line on different stacks, on stacks of other chips, and on measured order; empty if none."""
    evaluations = [side.found for side in sides if side.found]
    notes = [describe_software_difference(sides), *(evaluation.extrapolation_text for evaluation in evaluations)]
    if len(evaluations) > 1:
        notes.append(order_text())
    return "; ".join(filter(None, notes))


def _split_overrides(words: Sequence[str]) -> tuple[list[str], list[str], str]:
    """The chips, the other overrides, and the rule for formats."""
    chips = [word for word in words if word.startswith("chip=")]
    rules = [word.removeprefix("formats=") for word in words if word.startswith("formats=")]
    names = [name.strip() for name in chips[-1].removeprefix("chip=").strip("[]").split(",")] if chips else []
    if not names or not all(names):
        raise DesignError("compare: name the chips, as in dse compare chip=[a100,wse2] model=llama3_8b")
    if len(set(names)) < len(names):
        raise DesignError(f"compare: a chip is listed twice in {', '.join(names)}")
    for word in words:
        if word.startswith(("study=", "chips=", "mappings=")):
            raise DesignError(f"compare: {word.partition('=')[0]} is for studies; set chip=[...] and the workload")
    others = [word for word in words if not word.startswith(("chip=", "formats="))]
    return names, others, rules[-1] if rules else "equal"


def _compose_chip(name: str, others: Sequence[str], trust: bool) -> dict[str, Any]:
    """The configuration of a chip, with the space of mappings to search unless another is chosen."""
    words = [f"chip={name}", *others]
    config = compose(words, trust=trust)
    if config["fidelity"] != "analytical":
        raise DesignError(
            "fidelity: compare searches with the analytical model; for other fidelities use dse evaluate or a study"
        )
    if _has_space(others):
        return config
    dies = software_of(_base_question(config).base.mapping) in (MANY_DIES, POOLED_DIES)
    space = "best_serving" if kind_of(config["workload"]) is ServingLoad else "best_dies" if dies else "best"
    return compose([*words, f"space={space}"], trust=trust)


def _refuse_unknown(name: str, others: Sequence[str], trust: bool) -> None:
    """Refuse a chip that cannot be composed by itself, as a misspelt one: nobody asked for a comparison without it."""
    flags = [word for word in others if word.startswith("-") or "=" not in word]
    try:
        compose([f"chip={name}", *flags], trust=trust)
    except DesignError as error:
        raise DesignError(f"compare: {error}") from None


def _has_space(words: Sequence[str]) -> bool:
    """Whether a user names a space, or knobs."""
    return any(word.lstrip("+").startswith(("space=", "space.")) for word in words)


def _base_question(config: Mapping[str, Any]) -> Question:
    """The question of a configuration without its knobs."""
    return build_question({**config, "space": {}}, find_study_folder(config))


def _best_mapping(name: str, config: Mapping[str, Any], objective: str, others: Sequence[str]) -> ChipComparison:
    """The best mapping of a chip: of its usual one and those of the space, whose knobs the user has not set."""
    usual = _base_question(config)
    free = {**config, "space": find_searchable_knobs(config["space"], usual, others)}
    question = build_question(free, find_study_folder(config), fewer=not _has_space(others))
    space = question.space
    assert isinstance(space, Space)
    looks = _Looks(name, question, space, objective)
    looks.score_designs([{}])
    _search_mappings(question, space, looks)
    looked, refused, best = (len(looks.known), looks.feasible), looks.refused, looks.best
    if best is None:
        return ChipComparison(
            name,
            None,
            {},
            looked,
            f"none of {looked[0]:,} mappings fits; the default mapping: {_usual_verdict(question, config)}",
            refused,
        )
    design = space.design_at(best)
    values = {knob.address: leaf_at(design, space.targets[knob.address][0]) for knob in space.knobs}
    devices = "" if any(address.endswith(".tp") for address in values) else next(iter(question.devices.values()), "")
    return ChipComparison(
        name, replace(evaluate_design(design, question, config), devices=devices), values, looked, refused=refused
    )


def _usual_verdict(question: Question, config: Mapping[str, Any]) -> Infeasibility | None:
    """What binds the usual mapping, with what would do."""
    return propose_published_formats(
        explain_infeasibility(question.base, question.workload), question.base, question.workload, config["model"]
    )


class _Looks:
    """Designs of a chip that were evaluated, each once, and the best of them."""

    def __init__(self, name: str, question: Question, space: Space, objective: str) -> None:
        self._name, self._asked, self._space, self._objective = name, question, space, objective
        self._sign = -1.0 if METRICS[objective].better == "min" else 1.0
        self.known: dict[str, float] = {}
        self.best: Values | None = None
        self.feasible = 0
        self.refused = Counter[str]()
        self._early: set[str] = set()
        self._most = -np.inf

    def score_designs(self, designs: Sequence[Values]) -> list[float]:
        """What designs are worth, more being better; not a number where one is infeasible.

        Raises:
            DesignError: feasible ones have no such metric.
        """
        keys = [self._space.key_at(values) for values in designs]
        new = {key: values for key, values in zip(keys, designs, strict=True) if key not in self.known}
        candidates = list(new.items())
        for start in range(0, len(candidates), BATCH_SIZE):
            self._look_at(candidates[start : start + BATCH_SIZE])
        return [self.known[key] for key in keys]

    def check_limits(self, several: Sequence[Values]) -> list[bool]:
        """Whether mappings keep the limits that are known before any cost is computed; those that do not are counted once."""
        kept = []
        for values in several:
            worst = next(
                (
                    early_limit.address
                    for early_limit in early_limits(self._space.design_at(values), self._asked.workload)
                    if early_limit.need > early_limit.have
                ),
                "",
            )
            key = self._space.key_at(values)
            if worst and key not in self._early:
                self._early.add(key)
                self.refused[worst] += 1
            kept.append(not worst)
        return kept

    def _look_at(self, candidates: Sequence[tuple[str, Values]]) -> None:
        outcomes = evaluate_with_derived(
            stack_designs([self._space.design_at(values) for _, values in candidates]),
            self._asked.workload,
            self._asked.defined,
        )
        scores = np.where(outcomes.feasible, self._sign * outcomes.columns[self._objective], np.nan)
        self.feasible += int(outcomes.feasible.sum())
        self.refused.update(list(SILICON_LIMITS)[code] for code in outcomes.limit.tolist() if code >= 0)
        if outcomes.feasible.any() and np.isnan(scores[outcomes.feasible]).all():
            known = [name for name, column in outcomes.columns.items() if not np.isnan(column).all()]
            reason = absence_reason([self._objective], known)
            raise DesignError(
                f"--objective: {self._name} has no {self._objective} for this workload{reason}; it has {', '.join(known)}"
            )
        for (key, values), score in zip(candidates, scores.tolist(), strict=True):
            self.known[key] = score
            if score > self._most:
                self._most, self.best = score, values


def _search_mappings(question: Question, space: Space, looks: _Looks) -> None:
    """A few mappings where each is played; else all of a grid, or of a larger space the best in rounds or an even spread."""
    knobs, total = space.knobs, space.combinations
    choices = [knob for knob in knobs if isinstance(knob, ChoiceKnob)]
    if not knobs:
        return
    if is_simulated(question.base, question.workload, "analytical"):
        looks.score_designs(_possible_samples(question, looks))
    elif total is not None and total > MAX_MAPPINGS and any(knob.address in DIVIDE for knob in knobs):
        run_coordinate_search(choices, looks.check_limits, looks.score_designs)
    else:
        small = total is not None and total <= MAX_MAPPINGS
        columns = space.grid(0, total or 0) if small else space.sample(generate_sobol_points(len(knobs), 0, MAX_MAPPINGS, 0))
        looks.score_designs([space.row(columns, place) for place in range(len(next(iter(columns.values()))))])


def _possible_samples(question: Question, looks: _Looks) -> list[Values]:
    """A few mappings that keep the limits which are known before anything is played."""
    space = question.space
    if not space.knobs:
        return []
    limits = EarlyLimits(space, question.workload)
    source = RandomSampler(space, 0, limits.find_possible)
    samples = [source.ask(number, None).values for number in range(MAX_SIMULATED)]
    different = [dict(pairs) for pairs in dict.fromkeys(tuple(values.items()) for values in samples)]
    looks.refused.update(limits.refusal_counts)
    return list(compress(different, limits.find_possible(different)))
