"""A golden set of results: what each judge answers, at each fidelity, for single designs and for stacks of them.

One JSON file a judge, or a kernel by itself on a machine, with the physics version and three sections, each by question:

    designs   what is stacked: changes to the question's own design, which is the first, by address; drawn once and then kept
    results   of the stack: its metrics and what binds it; of the first design: metrics by case, limits, rows, bars and areas
    work      rows again: operations, what they were spent on, what binds, and how much was prefetched

Metrics that are missing are null. Some designs of a stack have an energy price doubled, so that energies fix every count of the
activity. Bars and flows are stored as their number and sums. Rows and bars are of the first case.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from dse.config.question import Question
from dse.evaluators import PHYSICS_VERSION, evaluate
from dse.evaluators.accounting.breakdown import Breakdown
from dse.evaluators.accounting.outcomes import SILICON_LIMITS, Outcomes
from dse.evaluators.evaluation import explain, limits
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import iterate_leaves, leaf_at, replace_leaves
from dse.space.software import software_of
from tests.contract.draws import shaken, words
from tests.contract.golden.questions import QUESTIONS, fidelity, overrides
from tests.samples import asked

FOLDER = Path(__file__).parent
SECTIONS = ("designs", "results", "work")
RELATIVE, ABSOLUTE = 1e-9, 1e-15
"""Floats agree within these: shares that are nothing but rounding are below the second."""

AROUND, TRIES, PLAYED, SEED = 3, 80, 2, 7
"""Designs of a stack with the question's own words; tries to draw others; designs that are played beside the question's own."""

ACTIVATIONS = "mapping.precision.activations"

Changes = dict[str, Any]


@cache
def read(judge: str) -> dict[str, Any]:
    """The golden answers of a judge."""
    document: dict[str, Any] = json.loads((FOLDER / f"{judge}.json").read_text())
    return document


def write() -> None:
    """Answers all questions, of the designs that they were asked of before where they were."""
    found_designs = {
        judge: {question: _designs_before(judge).get(question) or drawn(question) for question in questions}
        for judge, questions in QUESTIONS.items()
    }
    for judge, question, changes in uncovered_options(found_designs):
        found_designs[judge][question].append(changes)
    for judge, questions in found_designs.items():
        golden: dict[str, Any] = {"physics": PHYSICS_VERSION, **{section: {} for section in SECTIONS}}
        for question, designs in questions.items():
            golden["designs"][question] = designs
            golden["results"][question], golden["work"][question] = answers(question, designs)
            del golden["results"][question]["alone"]
        (FOLDER / f"{judge}.json").write_text(_text(golden))


def _designs_before(judge: str) -> dict[str, list[Changes]]:
    """Designs of which a judge's questions were asked before."""
    found: dict[str, list[Changes]] = read(judge)["designs"] if (FOLDER / f"{judge}.json").exists() else {}
    return found


def uncovered_options(found_designs: dict[str, dict[str, list[Changes]]]) -> list[tuple[str, str, Changes]]:
    """Options of words that no design in closed form has, and that are not refused: judge, question, and the change to make."""
    left: dict[tuple[str, str], set[str]] = {}
    places: dict[tuple[str, str], tuple[str, str, Question]] = {}
    for judge, questions in found_designs.items():
        for question, designs in questions.items():
            if fidelity(question) != "analytical":
                continue
            given_question = asked(*overrides(question))
            software, options = software_of(given_question.base.mapping), words(given_question.base)
            for address in options:
                places[software, address] = judge, question, given_question
                left.setdefault((software, address), set(options[address]))
            for changes in designs:
                design = replace_leaves(given_question.base, changes)
                for address in words(design):
                    left[software, address].discard(leaf_at(design, address))
    missing = []
    for (software, address), options_left in left.items():
        judge, question, given_question = places[software, address]
        formats = {other: options for other, options in words(given_question.base).items() if ".precision." in other}
        for option in sorted(options_left):
            alike = [other for other, options in formats.items() if address in formats and option in options]
            changes = dict.fromkeys([*alike, address], option)
            if _tried(given_question, changes, "analytical") is not None:
                missing.append((judge, question, changes))
    return missing


def answers(question: str, designs: list[Changes]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results and the work of a question: of some designs stacked, and of the first of them, also alone."""
    given_question, word = asked(*overrides(question)), fidelity(question)
    together = evaluate(
        stack_designs([replace_leaves(given_question.base, changes) for changes in designs]),
        given_question.workload,
        fidelity=word,
    )
    alone = evaluate(stack_designs([given_question.base]), given_question.workload, fidelity=word, cases=True)
    cases = alone.cases if len(given_question.workload.cases) > 1 else {}
    spent = explain(
        given_question.base,
        given_question.workload.cases[0],
        decode_context=given_question.workload.decode_context,
        fidelity=word,
    )
    result: dict[str, Any] = {
        "alone": _columns(alone),
        "stack": _columns(together),
        "cases": {name: values for name, column in cases.items() if known(values := _plain(column[:, 0]))},
        "limits": [_limit(limit) for limit in limits(given_question.base, given_question.workload)],
        "rows": [
            [row.phase, row.segment, row.operator, row.shape, _plain(row.nbytes), _plain(row.seconds)] for row in spent.rows
        ],
        "seconds": _plain(spent.seconds),
        "area": _plain(spent.area),
        "bars": _bars(spent),
        "flows": {phase: _sums([at for _, ends in flows for _, at in ends]) for phase, flows in spent.flows.items()},
    }
    work = {
        "flop": [_plain(row.flop) for row in spent.rows],
        "parts": [{part: _plain(s) for part, s in row.parts.items() if abs(s) > RELATIVE * row.seconds} for row in spent.rows],
        "bound": [row.bound for row in spent.rows],
        "prefetched": [_plain(row.prefetched) for row in spent.rows],
    }
    return result, work


def differences(then: Any, now: Any, place: str = "") -> list[str]:
    """Where answers differ, a line each: the place, what it was, and what it is."""
    if isinstance(then, dict) and isinstance(now, dict):
        names = [*then, *(name for name in now if name not in then)]
        found_differences = [
            differences(then.get(name, "nothing"), now.get(name, "nothing"), f"{place} {name}") for name in names
        ]
        return [line for lines in found_differences for line in lines]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = enumerate(zip(then, now, strict=True))
        return [line for number, (old, new) in pairs for line in differences(old, new, f"{place}[{number}]")]
    if isinstance(then, float) and isinstance(now, float) and np.isclose(now, then, rtol=RELATIVE, atol=ABSOLUTE):
        return []
    return [] if type(then) is type(now) and then == now else [f"{place}: was {then!r}, is {now!r}"]


def drawn(question: str) -> list[Changes]:
    """Designs around that of a question, which comes first.

    In closed form, some have its words and other numbers, one each an energy price doubled, and some other words, so that every
    option of each word of the mapping is there if it is not refused. Played, there are only a few, feasible ones if it is.
    """
    given_question, word, rng = (
        asked(*overrides(question)),
        fidelity(question),
        np.random.default_rng([SEED, crc32(question.encode())]),
    )
    found_changes: list[Changes] = [{}]
    if word != "analytical":
        feasible = evaluate(stack_designs([given_question.base]), given_question.workload, fidelity=word).feasible[0]
        for _ in range(TRIES):
            changes = _near(given_question.base, rng) | _words(given_question.base, rng, dict(words(given_question.base)), 0.3)
            outcomes = _tried(given_question, changes, word)
            if outcomes is not None and outcomes.feasible[0] >= feasible:
                found_changes.append(changes)
            if len(found_changes) > PLAYED:
                break
        return found_changes
    found_changes += [
        {address: 2 * value}
        for address, value, spec in iterate_leaves(given_question.base)
        if spec.metadata["unit"] in ("J/op", "J/B")
    ]
    left = {address: set(options) for address, options in words(given_question.base).items()}
    for count in range(TRIES):
        given_words = _words(given_question.base, rng, left, 1.0) if count >= AROUND else {}
        if count >= AROUND and not given_words:
            continue
        changes = given_words | _changed(given_question.base, shaken(given_question.base, rng))
        if _tried(given_question, changes, word) is None:
            # tiles take weights in more formats than activations
            given_words = {address: option for address, option in given_words.items() if address != ACTIVATIONS}
            changes.pop(ACTIVATIONS, None)
            if not given_words or _tried(given_question, changes, word) is None:
                continue
        found_changes.append(changes)
        for address, option in given_words.items():
            left[address].discard(option)
        if count >= AROUND and not any(left.values()):
            break
    return found_changes


def _words(base: Design, rng: np.random.Generator, left: dict[str, Any], share: float) -> Changes:
    """Some words of a mapping others: of options that are left, each at random; half the time number formats are all alike."""
    found_words = {
        address: str(rng.choice(sorted(options))) for address, options in left.items() if options and rng.random() < share
    }
    formats = [address for address in found_words if ".precision." in address]
    if formats and rng.random() < 0.5:
        word = found_words[formats[0]]
        alike = [address for address, options in words(base).items() if ".precision." in address and word in options]
        found_words |= dict.fromkeys(alike, word)
    elif rng.random() < 0.5:
        found_words = {address: option for address, option in found_words.items() if address not in formats}
    return found_words


def _near(base: Design, rng: np.random.Generator) -> Changes:
    """Rates and sizes of a chip, up to twice or down to half what they are, but no cycles, and nothing of memories' banks."""
    near = [leaf for leaf in iterate_leaves(base.chip, "chip.") if "high" in leaf[2].metadata and ".banks." not in leaf[0]]
    return {
        address: _rounded(np.clip(value * 2 ** rng.uniform(-1, 1), spec.metadata["low"], spec.metadata["high"]))
        for address, value, spec in near
        if spec.metadata["unit"] != "cycle" and value and rng.random() < 0.5
    }


def _changed(base: Design, other: Design) -> Changes:
    """What differs, rounded; but refreshes as often, since memories that do nothing else never come to an end."""
    pairs = zip(iterate_leaves(base), iterate_leaves(other), strict=True)
    return {address: _rounded(new) for (address, old, spec), (_, new, _) in pairs if new != old and spec.name != "refi"}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _tried(question: Question, changes: Changes, word: str) -> Outcomes | None:
    """The outcome of a design; None where it is refused."""
    try:
        return evaluate(stack_designs([replace_leaves(question.base, changes)]), question.workload, fidelity=word)
    except DesignError:
        return None


def _columns(outcomes: Outcomes) -> dict[str, Any]:
    """Metrics that some design has, and the limits that bind, with need and have."""
    names = list(SILICON_LIMITS)
    columns = {name: values for name, column in outcomes.columns.items() if known(values := _plain(column))}
    limit = [names[index] if index >= 0 else None for index in outcomes.limit]
    return columns | {"limit": limit, "need": _plain(outcomes.need), "have": _plain(outcomes.have)}


def known(values: list[float | None]) -> bool:
    """Whether there is a number among some values."""
    return any(value is not None for value in values)


def _limit(limit: Any) -> list[Any]:
    return [limit.address, _plain(limit.need), _plain(limit.have), limit.unit, _plain(dict(limit.parts))]


def _bars(spent: Breakdown) -> dict[str, dict[str, list[Any]]]:
    """By phase and stream: how many bars, and sums of their starts and ends."""
    found_bars: dict[str, dict[str, list[Any]]] = {}
    for phase, segments in spent.segments.items():
        bars = [bar for inner in segments.values() for bar in inner]
        streams = dict.fromkeys(stream for stream, *_ in bars)
        found_bars[phase] = {
            name: _sums([bar[2] for bar in bars if bar[0] == name]) + _sums([bar[3] for bar in bars if bar[0] == name])[1:]
            for name in streams
        }
    return found_bars


def _sums(instants: list[float]) -> list[Any]:
    return [len(instants), float(sum(instants))]


def _plain(value: Any) -> Any:
    """Arrays as lists and numbers as floats, with None for what is not one."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, np.ndarray):
        return [_plain(inner) for inner in value] if value.ndim else _plain(value.item())
    return None if np.isnan(value) else float(value)


def _text(golden: dict[str, Any]) -> str:
    """JSON with a line for each field of a question."""

    def lines(value: Any, depth: int) -> str:
        if depth and isinstance(value, dict) and value:
            inner = (f"{' ' * (4 - depth)}{json.dumps(name)}: {lines(item, depth - 1)}" for name, item in value.items())
            return "{\n" + ",\n".join(inner) + "\n" + " " * (3 - depth) + "}"
        return json.dumps(value, separators=(",", ":"), allow_nan=False)

    return lines(golden, 3) + "\n"
