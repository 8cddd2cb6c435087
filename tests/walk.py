"""A random walk over the union of all knobs: python -m tests.walk [--count 10000] [--seed 0]

Each sample is a chip, what is asked of it, words of its mapping and numbers of both, all drawn. It is refused in one line, or
infeasible with a limit that its parts add up to, or it has every metric.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from zlib import crc32

import numpy as np

from dse.config.question import Question
from dse.evaluators import evaluate
from dse.evaluators.evaluation import find_worst_violation
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from tests.contract.draws import shaken, words
from tests.contract.test_words import ON
from tests.samples import asked

MODELS = ("llama3_8b", "qwen3_1b7", "mixtral_8x7b", "deepseek_v2_lite", "mistral_7b", "phi35_moe", "qwen_7b", "deepseek_v3")
"""One of each mechanism that models differ in."""

TOGETHER = 10
"""Samples of a draw, which differ in numbers and are worked out together."""


FEW = 0.6
"""Share of the draws of several dies in which few words and numbers differ: with many, some limit nearly always breaks."""

EXPERTS = ("mixtral_8x7b", "deepseek_v2_lite", "phi35_moe")
"""Models whose experts such draws divide over dies."""


@dataclass(frozen=True)
class Step:
    """Samples that are worked out together."""

    said: tuple[str, ...]
    question: Question
    designs: list[Design]


@dataclass(frozen=True)
class Found:
    """What came of samples: how many of each, and what is wrong."""

    answers: Counter[str]
    faults: list[str]


def steps(count: int, seed: int) -> Iterator[Step]:
    """Draws of samples, `count` in all."""
    cells = [(f"chip={chip}", *question) for question, chips in ON.items() for chip in chips]
    for number in range(-(-count // TOGETHER)):
        rng = np.random.default_rng([seed, number, crc32(b"walk")])
        cell = list(cells[rng.integers(len(cells))])
        few = any(word.startswith("chip.dies.") for word in cell) and rng.random() < FEW
        models = EXPERTS if few and any(".ep=" in word for word in cell) else MODELS
        if any(word.startswith("model=") for word in cell) and not any(word.startswith("model.") for word in cell):
            cell = [word for word in cell if not word.startswith("model=")] + [f"model={rng.choice(models)}"]
        question = _asked(*cell)
        options = words(question.base)
        often, share = (0.03, 0.015) if few else (0.3, 0.2)
        chosen = {place: str(rng.choice(option)) for place, option in options.items() if rng.random() < often}
        base = replace_leaves(question.base, chosen)
        most = min(TOGETHER, count - number * TOGETHER)
        yield Step(
            (*cell, *(f"{place}={word}" for place, word in chosen.items())),
            question,
            [shaken(base, rng, share) for _ in range(most)],
        )


@cache
def _asked(*overrides: str) -> Question:
    return asked(*overrides)


def walked(count: int, seed: int) -> Found:
    """What came of a walk."""
    answers: Counter[str] = Counter()
    faults = []
    for step in steps(count, seed):
        try:
            evaluation = evaluate(stack_designs(step.designs), step.question.workload)
        except DesignError as error:
            line = str(error)
            answers["refused"] += len(step.designs)
            if not line.strip() or "\n" in line:
                faults.append(f"{' '.join(step.said)}: {line!r} is not one line")
            continue
        except Exception as error:  # which is what the walk looks for
            faults.append(f"{' '.join(step.said)}: {type(error).__name__}: {error}")
            continue
        feasible = evaluation.limit < 0
        answers["feasible"] += int(feasible.sum())
        answers["infeasible"] += int((~feasible).sum())
        for name, column in evaluation.columns.items():
            lost = np.flatnonzero(np.isnan(column) & feasible)
            if len(lost):
                faults.append(f"{' '.join(step.said)}: {name} of {len(lost)} designs is not a number")
        for row in np.flatnonzero(~feasible)[:1]:
            worst = find_worst_violation(step.designs[row], step.question.workload)
            if worst is None:
                faults.append(f"{' '.join(step.said)}: infeasible without a limit that binds")
            elif worst.parts and not np.isclose(sum(value for _, value in worst.parts), worst.need, rtol=1e-6):
                faults.append(f"{' '.join(step.said)}: parts of {worst.limit} do not add up to {worst.need:g}")
    return Found(answers, faults)


def main() -> None:
    """Walks, and says what came of it."""
    parser = argparse.ArgumentParser(description="Walk at random over the union of all knobs.")
    parser.add_argument("--count", type=int, default=10_000, help="samples")
    parser.add_argument("--seed", type=int, default=0, help="of the walk")
    given = parser.parse_args()
    walk = walked(given.count, given.seed)
    for fault in walk.faults:
        print(fault)
    print(", ".join(f"{count:,} {what}" for what, count in walk.answers.items()) + f"; {len(walk.faults)} faults")
    sys.exit(bool(walk.faults))


if __name__ == "__main__":
    main()
