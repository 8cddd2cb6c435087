"""Settings of the user without effect on the answer: unread, or no other value changes the result.

With a formula, a setting is tried at a quarter, at four times and at every other option. With kernel or serving simulation, its
reads are recorded, and a formula tells whether the values that are read matter.
"""

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isclose, isfinite, isnan
from pathlib import Path
from typing import Any, TypeVar

from dse.config import command_groups as groups
from dse.config.metric_expressions import DefinedMetrics, evaluate_with_derived
from dse.config.question import Question
from dse.config.record_parser import parse_setting
from dse.config.unread_settings import set_by
from dse.config.workloads import SEED as SEED_FIELD
from dse.config.workloads import read_workload
from dse.documents.shared_records import NoEffectRecord
from dse.evaluators.accounting.outcomes import Outcomes
from dse.evaluators.calls.submesh import SUBMESH_MARK
from dse.evaluators.evaluation import FIDELITIES, fidelities, limits, submesh_text
from dse.space.compatibility import SPECULATING_SOFTWARE
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import check_leaf, field_at, iterate_leaves, leaf_at, replace_leaves
from dse.space.knobs import Space
from dse.space.read_recorder import record_reads
from dse.space.software import software_of
from dse.space.workload import BatchCase, ServingLoad, Workload
from dse.terminal.forked_answers import collect_answers_within

T = TypeVar("T")

CHEAP = 0.2
"""An evaluation that took no longer is repeated for each other value of a setting. [s]"""

SIDE = 4
"""Of the part of a mesh that a fidelity plays to see whether it reads a setting. [cores]"""

READER_SECONDS = 3.0
"""For which another fidelity is evaluated to see whether it reads a setting. [s]"""

SHORT = 8
"""Tokens of a prompt and of an answer of a small case."""

STEADY, CLOSED = FIDELITIES[:2]

MAGNITUDES = tuple(10.0**power for power in range(-12, 16, 3))
"""Values that are tried in place of zero."""

SAME = 1e-12
"""Relative difference up to which two metrics are the same."""


@dataclass(frozen=True, slots=True)
class NoEffect:
    """One setting of the user without effect on the answer.

    Attributes:
        address: as it was typed.
        reader: option that uses it, as ``fidelity=cycles``; empty string if none is known.
        command: that it has no effect on; empty string where it has none on this design.
    """

    address: str
    reader: str = ""
    command: str = ""

    def __str__(self) -> str:
        where = f"on {self.command}" if self.command else "here"
        return f"{self.address} has no effect {where}" + (f"; {self.reader} uses it" if self.reader else "")


def no_effect_records(no_effects: Sequence[NoEffect]) -> list[NoEffectRecord]:
    """Settings without effect as records of documents."""
    return [
        NoEffectRecord(setting=no_effect.address, reader=no_effect.reader or None, text=str(no_effect))
        for no_effect in no_effects
    ]


def print_no_effects(no_effects: Sequence[NoEffect]) -> None:
    """Print settings without effect on standard error, beside the answer."""
    for no_effect in no_effects:
        print(f"dse: note: {no_effect}", file=sys.stderr)


@dataclass(frozen=True, slots=True)
class TypedSetting:
    """One setting that the user gave.

    Attributes:
        address: as it was typed.
        leaves: of the chip and the mapping that it sets.
        others: of a setting of the workload, workloads with other values; None for what cannot be.
    """

    address: str
    leaves: tuple[str, ...] = ()
    others: Callable[[], Iterator[Workload | None]] | None = None


@dataclass
class TypedSettings:
    """Settings that the user gave for a design and its workload, and those that were read.

    Attributes:
        question: with the design.
        fidelity: that answers.
        settings: that were typed.
        read: leaves that were read; all where that was not recorded.
        seconds: CPU time of the evaluation.
    """

    question: Question
    fidelity: str
    settings: Sequence[TypedSetting]
    read: frozenset[str]
    seconds: float

    def without_effect(self) -> tuple[NoEffect, ...]:
        """Settings without effect on the answer, in the order of the command line."""
        question, formula = self.question, choose_formula(self.question.base, self.question.workload)
        left = [setting for setting in self.settings if setting.others or not self.read.isdisjoint(setting.leaves)]
        moving = find_effective_settings(question, left, formula) if left else set[str]()
        left = [setting for setting in left if setting.address not in moving]
        if self.fidelity not in (formula, CLOSED if formula == STEADY else formula) and left:
            if self.seconds < CHEAP:
                moving |= find_effective_settings(question, left, self.fidelity)
            else:
                seen = _changes_answer(question, [[setting] for setting in left], self.fidelity)
                unknown = [True] * (len(left) - len(seen))
                moving |= {setting.address for setting, moves in zip(left, [*seen, *unknown], strict=True) if moves}
        idle = dict[str, list[TypedSetting]]()
        for setting in self.settings:
            if setting.address not in moving:
                idle.setdefault(setting.address, []).append(setting)
        readers = _fidelity_readers(question, idle, self.fidelity)
        return tuple(NoEffect(address, readers.get(address, "")) for address in idle)


def list_unread_settings(command: str, config: Mapping[str, Any]) -> tuple[NoEffect, ...]:
    """Settings of groups that a command does not read and a study run does."""
    addresses = groups.list_unread_overrides(command, config.get("overrides", ()))
    return tuple(NoEffect(address, "dse run", f"dse {command}") for address in addresses)


def find_settings_without_effect(
    command: str, question: Question, config: Mapping[str, Any], folder: Path, design: Design | None = None
) -> tuple[NoEffect, ...]:
    """Settings of the user without effect on the answer of a command.

    Args:
        command: its name.
        question: of the evaluation.
        config: with the overrides that were typed, and the fidelity.
        folder: against which relative files are found.
        design: that is answered; None for the question's own.
    """
    own = replace(question, base=design) if design is not None else question
    settings = list_settings(own, config, folder)
    read = frozenset(leaf for setting in settings for leaf in setting.leaves)
    effect = TypedSettings(own, str(config["fidelity"]), settings, read, inf).without_effect()
    return (*list_unread_settings(command, config), *effect)


def find_settings_idle_in_all_designs(
    command: str, several: Iterable[tuple[Design, Workload]], words: Sequence[str]
) -> tuple[NoEffect, ...]:
    """Settings of chip and mapping that affect none of several designs, by the formula.

    Args:
        command: its name.
        several: designs, each with its workload; none of a chip that does not support it.
        words: that were typed.
    """
    idle: list[list[str]] = []
    for design, workload in several:
        own = [TypedSetting(address, tuple(leaves)) for address, leaves in set_by(design, words).items()]
        question = Question(design, workload, Space(design, ()), ())
        moving = find_effective_settings(question, own, choose_formula(design, workload)) if own else set[str]()
        idle.append([setting.address for setting in own if setting.address not in moving])
    addresses = [address for address in (idle[0] if idle else ()) if all(address in leaves for leaves in idle)]
    return (*list_unread_settings(command, {"overrides": words}), *(NoEffect(address) for address in addresses))


def evaluate_typed(
    question: Question, config: Mapping[str, Any], folder: Path, run: Callable[[], T]
) -> tuple[T, TypedSettings]:
    """Evaluate a design and record which settings were read, unless a formula answers.

    Args:
        question: with the design.
        config: with the overrides that were typed, and the fidelity.
        folder: against which relative files are found.
        run: evaluates it.
    """
    settings, fidelity = list_settings(question, config, folder), str(config["fidelity"])
    every = [leaf for setting in settings for leaf in setting.leaves]
    began = time.process_time()
    if not every or fidelity == choose_formula(question.base, question.workload):
        answer, read = run(), set(every)
    else:
        with record_reads(question.base, every) as read:
            answer = run()
    return answer, TypedSettings(question, fidelity, settings, frozenset(read), time.process_time() - began)


def list_settings(question: Question, config: Mapping[str, Any], folder: Path) -> list[TypedSetting]:
    """Settings of a chip, a mapping, a model and a workload that overrides set; chip and mapping first."""
    words = [word for word in config.get("overrides", ()) if not word.startswith("-")]
    settings = [TypedSetting(address, tuple(leaves)) for address, leaves in set_by(question.base, words).items()]
    for address in dict.fromkeys(word.lstrip("+~").partition("=")[0] for word in words):
        part = address.partition("@")[2]
        if part:  # a whole part of the chip, by one of its leaves
            settings += [
                TypedSetting(part, (leaf,)) for leaf, _, _ in iterate_leaves(question.base) if leaf.startswith(f"{part}.")
            ]
        elif address == SEED or address.startswith(OF_LOADS):
            settings.append(TypedSetting(address, (), partial(_scaled_workloads, question, config, folder, address)))
    return settings


SEED = "seed"
OF_LOADS = ("workload.", "model.")
"""Settings of what is asked, of which another value makes another workload."""

NUMBER = re.compile(r"\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)(.*)", re.DOTALL)


def _scaled_workloads(question: Question, config: Mapping[str, Any], folder: Path, address: str) -> Iterator[Workload | None]:
    """Workloads with a setting at a quarter, at four times and at a thousandth, as a bound must be to bind; None of none."""
    root, *path = address.split(".")
    tried = 0
    for by in (0.25, 4.0, 1e-3):
        own = {**config, root: deepcopy(config[root])}
        node: Any = own
        for name in (root, *path)[:-1]:
            node = node.get(name) if isinstance(node, dict) else None
        last = (root, *path)[-1]
        other = _scale_value(node.get(last), by) if isinstance(node, dict) else None
        other = parse_setting(node[last], SEED_FIELD, SEED) + 1 if root == SEED else other
        if other is None or other == node[last]:
            continue
        node[last] = other
        try:
            yield read_workload(own, folder, guesses=software_of(question.base.mapping) in SPECULATING_SOFTWARE)
        except DesignError:
            continue
        tried += 1
    if not tried:
        yield None


def _scale_value(value: Any, by: float) -> Any:
    """A number, a quantity or a list of these, times something; None of others."""
    if isinstance(value, list):
        scaled = [_scale_value(entry, by) for entry in value]
        return None if None in scaled else scaled
    if isinstance(value, bool) or not value:
        return None
    if isinstance(value, int):
        return max(1, int(value * by))
    if isinstance(value, float):
        return value * by
    quantity_match = NUMBER.fullmatch(value) if isinstance(value, str) else None
    return f"{float(quantity_match[1]) * by!r}{quantity_match[2]}" if quantity_match and quantity_match[2].strip() else None


def choose_formula(design: Design, workload: Workload) -> str:
    """Fidelity that evaluates a design by a formula: the steady state for a serving load."""
    return STEADY if isinstance(workload.cases[0], ServingLoad) else CLOSED


def find_effective_settings(question: Question, settings: Sequence[TypedSetting], fidelity: str) -> set[str]:
    """Settings with another value that changes a metric or a limit, or that can have no other value."""
    design, workload, defined = question.base, question.workload, question.defined
    base_answer, *_ = _design_answers([design], workload, defined, fidelity)
    if base_answer is None or base_answer[0] >= 0:  # nothing is evaluated of what breaks a limit
        return {setting.address for setting in settings}
    own, found_settings = _limit_values(design, workload), set[str]()
    tried = [
        (setting.address, other)
        for setting in settings
        if not setting.others
        for other in _varied_designs(design, setting.leaves)
    ]
    found_settings |= {name for name, other in tried if other is None}
    variants = [(name, other) for name, other in tried if other is not None]
    for (name, other), point in zip(
        variants, _design_answers([other for _, other in variants], workload, defined, fidelity), strict=True
    ):
        if name not in found_settings and not (
            point is not None and _is_same(base_answer, point) and _limit_values(other, workload) == own
        ):
            found_settings.add(name)
    for setting in settings:
        for load in setting.others() if setting.others else ():
            if load is not None:
                (point,) = _design_answers([design], load, defined, fidelity)
                if point is not None and _is_same(base_answer, point) and _limit_values(design, load) == own:
                    continue
            found_settings.add(setting.address)
            break
    return found_settings


def _varied_designs(design: Design, several: Sequence[str]) -> Iterator[Design | None]:
    """Designs with other values of some leaves: a quarter, four times, all options; None for what cannot be tried."""
    spec, value = field_at(design, several[0]), leaf_at(design, several[0])
    limits = spec.metadata
    values: list[Any]
    if isinstance(value, bool):
        values = [not value]
    elif isinstance(value, str):
        values = [option for option in limits.get("options", ()) if option != value] or [None]
    elif not value:
        values = list(MAGNITUDES)
    else:
        values = [value / 4, value * 4] if "whole" not in limits else [value // 4, value * 4]
    allowed = 0
    for other in values:
        if other is None:
            yield None
            continue
        try:
            fits = check_leaf(other if "whole" not in limits or isinstance(other, str) else int(other), spec, several[0])
            if fits == value:
                continue
            made = replace_leaves(design, dict.fromkeys(several, fits))
        except DesignError:
            continue
        allowed += 1
        yield made
    if not allowed and values != [None]:
        yield None


def _design_answers(designs: Sequence[Design], workload: Workload, defined: DefinedMetrics, fidelity: str) -> list[Any]:
    """How designs come out; None of those that cannot be asked."""
    if not designs:
        return []
    try:
        outcomes = evaluate_with_derived(stack_designs(designs), workload, defined, fidelity=fidelity)
    except DesignError:
        if len(designs) == 1:
            return [None]
        middle = len(designs) // 2
        parts = (designs[:middle], designs[middle:])
        return [answer for part in parts for answer in _design_answers(part, workload, defined, fidelity)]
    return [_row_answer(outcomes, row) for row in range(len(designs))]


def _row_answer(outcomes: Outcomes, row: int) -> Any:
    if row in outcomes.refused:
        return None
    return int(outcomes.limit[row]), {name: float(column[row]) for name, column in outcomes.columns.items()}


def _is_same(answer: Any, other: Any) -> bool:
    """Whether two designs come out the same."""
    if answer[0] != other[0] or answer[1].keys() != other[1].keys():
        return False
    pairs = ((value, other[1][name]) for name, value in answer[1].items())
    return all(a == b or (isnan(a) and isnan(b)) or (isfinite(a) and isclose(a, b, rel_tol=SAME)) for a, b in pairs)


def _limit_values(design: Design, workload: Workload) -> list[tuple[str, list[float], list[float]]]:
    """What each limit needs and has."""
    return [(limit.address, _rounded_floats(limit.need), _rounded_floats(limit.have)) for limit in limits(design, workload)]


def _rounded_floats(value: Any) -> list[float]:
    import numpy as np

    return [float(f"{number:.11g}") for number in np.ravel(value).astype(float).tolist()]


def _fidelity_readers(question: Question, idle: Mapping[str, Sequence[TypedSetting]], fidelity: str) -> dict[str, str]:
    """By setting, the lowest other fidelity at which it has an effect, as it is typed; none of which none is known to."""
    readers: dict[str, str] = {}
    for word in fidelities(question.base, question.workload) if idle else ():
        if word == fidelity.partition(SUBMESH_MARK)[0] or word in (STEADY, CLOSED):
            continue
        left = {address: settings for address, settings in idle.items() if address not in readers}
        moves = _changes_answer(question, list(left.values()), word)
        readers |= {address: f"fidelity={word}" for address, move in zip(left, moves, strict=False) if move}
    return readers


def _changes_answer(question: Question, several: Sequence[Sequence[TypedSetting]], fidelity: str) -> list[bool]:
    """Whether settings change an answer, of a small case where there is one; of the first ones, as time allows."""
    of_load = any(setting.others for settings in several for setting in settings)
    part = SUBMESH_MARK not in fidelity and not of_load and submesh_text(question.base, question.workload)
    word = f"{fidelity}{SUBMESH_MARK}{SIDE}" if part else fidelity

    def compare_answers() -> Iterator[bool]:
        every = [leaf for settings in several for setting in settings for leaf in setting.leaves]
        own = question if of_load else replace(question, workload=_small_workload(question.workload))
        own = replace(own, base=replace_leaves(question.base, {leaf: leaf_at(question.base, leaf) for leaf in every}))
        with record_reads(own.base, every) as read:  # of objects of which nothing is known yet
            evaluate_with_derived(stack_designs([own.base]), own.workload, {}, fidelity=word)
        for settings in several:
            reading = [setting for setting in settings if setting.others or not read.isdisjoint(setting.leaves)]
            yield bool(reading) and bool(find_effective_settings(own, reading, word))

    return collect_answers_within(READER_SECONDS, compare_answers) if several else []


def _small_workload(workload: Workload) -> Workload:
    """The first case, of a model with one short request."""
    case = workload.cases[0]
    if isinstance(case, BatchCase):
        (_, prompt, output), *_ = case.requests
        case = replace(case, requests=((1, min(prompt, SHORT), min(output, SHORT)),))
    return replace(workload, cases=(case,))
