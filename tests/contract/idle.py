"""Knobs that change no output and that nobody refuses: python -m tests.contract.idle [--draws 4] [--seed 0] [WORD ...]

Of each question of `tests.contract.test_words` some designs are drawn: the one that is typed, and others with random numbers.
Every leaf of the chip and of the mapping is changed there, by much: to a billionth and a billion times what it is, so that what
does not bind does so. What changes no metric and no limit of any draw is typed on the question's line, and searched: where that
is neither refused nor inactive, it is printed. Constants of silicon and of prices are left out.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dse.config.build import Question
from dse.config.said import unasked
from dse.evaluators import evaluate, fidelities
from dse.space.beside import unread
from dse.space.design import Design, stacked
from dse.space.errors import DesignError
from dse.space.fields import at, leaves, replaced, spec_at
from dse.space.mapping import BYTES
from dse.space.workload import Workload
from tests.contract.draws import REGISTRIES, makes_sense, shaken
from tests.contract.test_words import ON, SERVED
from tests.leaves import MORE
from tests.samples import asked

FAR = 1e9
"""How many times more, or less, than it is: enough for what does not bind to bind."""

OF_SILICON = ("chip.technology.", "chip.economics.", "chip.die.")
"""Constants of silicon and of prices, among them those of parts that a chip lacks."""

OF_NOTHING = {"s": 1e-2, "cycle": 1e5, "B": 1e6, "B/s": 1e9, "1": 0.5}
"""What a leaf becomes that is 0, by its unit; 1 for others."""


def outcome(design: Design, workload: Workload, fidelity: str) -> tuple[Any, ...] | None:
    """All that is said of a design; None where it is refused."""
    try:
        found = evaluate(stacked([design]), workload, fidelity=fidelity, cases=True)
    except DesignError:
        return None
    if found.refused:
        return None
    numbers = {name: repr(column[..., 0].tolist()) for name, column in (found.columns | found.cases).items()}
    return int(found.limit[0]), repr(float(found.need[0])), repr(float(found.have[0])), *numbers.items()


def others(design: Design, address: str) -> list[Any]:
    """Values of a leaf that are far from what it is."""
    value, spec = at(design, address), spec_at(design, address)
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        options = spec.metadata["options"] or tuple(REGISTRIES.get(spec.name, ()))
        return [word for word in options if word != value and BYTES.get(word, 0) != BYTES.get(value, 1)]
    low, high = spec.metadata["low"], spec.metadata.get("high", np.inf)
    if "whole" in spec.metadata:
        some = [max(low, number) for number in (1, 2, 3, 4, int(value) // 2, 2 * int(value), 64 * max(int(value), 1))]
        return list(dict.fromkeys(number for number in some if number != value))
    if not value:
        far = OF_NOTHING.get(spec.metadata["unit"], 1.0)
        return [number for number in (low + far, low + far / 100) if number <= high]
    return list(dict.fromkeys(number for number in (value / FAR, min(value * FAR, high), value / 2) if number >= low))


def drawn(question: Question, count: int, seed: int) -> Iterator[Design]:
    """The design that is typed, then others with its words, whose numbers are random."""
    yield question.base
    for number in range(1, count):
        yield shaken(question.base, np.random.default_rng([seed, number]))


def idle(question: Question, fidelity: str, draws: int, seed: int, prefix: str = "") -> list[str]:
    """Leaves that change no output of a question, in any of some draws, nor are declared to be read by nothing."""
    tried, changed = Counter[str](), set[str]()
    beside = unasked(question.base, question.workload)
    for design in drawn(question, draws, seed):
        before = outcome(design, question.workload, fidelity)
        if before is None:
            continue
        for address, _, _ in leaves(design):
            if address.startswith(OF_SILICON) or not address.startswith(prefix):
                continue
            if address in changed or unread(design, address) or address in beside:
                continue
            for value in others(design, address):
                other = replaced(design, {address: value})
                if address.startswith("chip.") and not makes_sense(other):
                    continue
                after = outcome(other, question.workload, fidelity)
                tried[address] += after is not None
                if after is not None and after != before:
                    changed.add(address)
                    break
    return [address for address in tried if address not in changed and tried[address]]


def passes(said: Sequence[str], base: Design, address: str) -> str:
    """What of typing a leaf, and of searching it, goes through: typed, searched, both or nothing."""
    unit, of_chip = spec_at(base, address).metadata["unit"], address.startswith("chip.")
    some = [one for one in others(base, address) if not of_chip or makes_sense(replaced(base, {address: one}))][:2]
    plain = not unit or unit == "1"
    texts = [str(one) if plain else f"'{one!r} {unit}'" for one in some]
    values = ",".join(map(str, some))
    choice = f"choice({values})" if plain else f"tag('{unit}',choice({values}))"
    there = len(asked(*said).space.knobs)
    found = []
    for what, word in (("typed", f"++{address}={texts[0]}"), ("searched", f"+space.{address}={choice}")):
        try:
            of = asked(*said, word)
        except DesignError as error:
            if "nothing reads it" not in str(error):
                found.append(f"{what}: {error}")
            continue
        if what == "typed" or len(of.space.knobs) > there:
            found.append(what)
    return " and ".join(found)


BUSY = ("workload.arrivals=at_once", "workload.requests=24", "workload.output=40", "mapping.serving.blocks=60")
"""Requests for which there is not enough memory."""


def questions() -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """What is asked, of which chips: served requests are as many as wait for memory, where somebody says how much there is."""
    for question, chips in (ON | MORE).items():
        if not set(SERVED[1:]) <= set(question):
            yield question, chips
            continue
        for chip in chips:
            try:
                asked(f"chip={chip}", *question, *BUSY)
            except DesignError:  # pipelines of tiles have no number of blocks
                yield (*question, *BUSY[:-1]), (chip,)
            else:
                yield (*question, *BUSY), (chip,)


def main() -> None:
    """Looks, and says what it finds."""
    parser = argparse.ArgumentParser(description="Look for knobs that change no output and that nobody refuses.")
    parser.add_argument("words", nargs="*", help="of questions to ask, as chip=npu64")
    parser.add_argument("--draws", type=int, default=4, help="designs of each question")
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    parser.add_argument("--fidelity", default="closed")
    parser.add_argument("--leaves", default="", help="only those whose address begins so")
    given = parser.parse_args()
    for question, chips in questions():
        for chip in chips if given.words else chips[:1]:
            said = (f"chip={chip}", *question)
            if not set(given.words) <= set(said):
                continue
            of = asked(*said)
            if given.fidelity not in fidelities(of.base, of.workload):
                continue
            print(" ".join(said), flush=True)
            for address in idle(of, given.fidelity, given.draws, given.seed, given.leaves):
                if how := passes(said, of.base, address):
                    print(f"  {address}: {how}", flush=True)


if __name__ == "__main__":
    main()
