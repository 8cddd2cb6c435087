"""The partition of each operator of pipelines that serve, where their plan leaves it open: by the time of typical work.

Weights lie in one way whatever an iteration has, so that a pipeline has one set of words: for what a mean request asks of it,
prompts, and tokens in full micro-batches, those that take least by the closed form. A pipeline in which prompts and tokens are
other operators (latent attention that is absorbed for tokens) has no such set, unless some cores only prefill.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.account.partitions import Phase, Tried, quickest, with_partition
from dse.evaluators.account.passes import Staged
from dse.evaluators.graph.operators import Part
from dse.evaluators.graph.step import Step
from dse.evaluators.graph.transformer import line, transformer
from dse.evaluators.layouts.partitioned import offered
from dse.evaluators.layouts.residency import Resident
from dse.evaluators.machine.machine import of_tiles
from dse.evaluators.passes.call import Block
from dse.evaluators.readers.price import Reader
from dse.space.chip import Chip
from dse.space.mapping import PoolPlan, Precision
from dse.space.model import Model


class Work(NamedTuple):
    """Iterations that a mean request asks for, shape (iterations, 1).

    Attributes:
        at, attending: steps, and those that share them.
        runs: how often each is done.
    """

    at: Step
    attending: tuple[Step, ...]
    runs: Any


def words_of(
    model: Model, chip: Chip, plan: PoolPlan, precision: Precision, work: Work, closed: Reader,
    lay: Callable[[str], tuple[Block, ...]],
    held: Callable[[PoolPlan, Any], Resident], passed: Callable[[tuple[Block, ...], Resident], Staged],
    fits: Callable[[PoolPlan, Resident], bool],
) -> tuple[Tried, PoolPlan]:  # fmt: skip
    """Words of pipelines, and their plan as what a core holds is counted.

    Args:
        model, chip, plan, precision: what is divided, and where.
        work: that is typical.
        closed: the closed reader.
        lay: calls of that work by one partition, but for what goes to all.
        held: what a core holds by a plan, and of weights those of which each core has all [B].
        passed: a pass of blocks of that work.
        fits: whether that has room.
    """

    def through(laid: tuple[Block, ...], here: Resident) -> tuple[Staged, Any]:
        staged = passed(laid, here)
        return staged, np.sum(staged.seconds * work.runs, axis=0, keepdims=True)

    phase = Phase(
        model, plan, precision, transformer(model, work.at), line(model, work.at),
        {word: lay(word) for word in offered(plan)},
        lambda word, everywhere: held(with_partition(plan, word), everywhere), through,
        lambda word, here: fits(with_partition(plan, word), here),
        work.runs, np.array([0]), len(work.runs), of_tiles(chip), closed,
    )  # fmt: skip
    best = quickest(phase)
    return best, with_partition(plan, best.counted)


def forms(model: Model) -> int:
    """How many sets of operators the phases of a model have."""

    def names(phase: str) -> list[tuple[str, str]]:
        parts: tuple[Part, ...] = transformer(model, Step(phase, 1.0, 1.0, 1.0, 1.0))
        return [(part.name, of.name) for part in parts for of in part.operators]

    return 1 if names("prefill") == names("decode") else 2
