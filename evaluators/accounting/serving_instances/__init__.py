"""Layouts whose instances serve requests: what an iteration takes, what caches have room for, and what a run has used.

Each module has

    FIDELITIES                                          readers that price its iterations
    limits(design, load)                                that the model and a longest request fit, and what else binds
    instances(design, load, fidelity)                   an `Instance` of each pool: that prefills, if any, and that decodes
    transfer(design, load)                              what a request has, on its way between instances, and its start [s]
    channels(design, load)                              caches on their way at a time, where it is not one of each instance
    devices(design)                                     chips of all instances
    areas(design), area_parts(design)                   of a die and of all, and by block [mm2]
    used(design, load, done, seconds, fidelity, peak)   metrics of what is used, of iterations `done` in some time; `peak` says
                                                        the most power of what is done at once, when asked (and `spent`,
                                                        where instances say what else compositions spend; and `hosted`, bytes
                                                        between all chips and hosts)
    holders(design, load)                               chips of each pool that have a request's cache together, where
                                                        caches can go to hosts
    watts(design, load, pool, made_of, fidelity)        power of what iterations of one instance do, counts of shape
                                                        (iterations, designs) [W]; `mean_watts` where `watts` is
                                                        of the part of an iteration that takes most
    operators(design, load, pool, times, made_of, fidelity)     rows of an iteration, so many times
    remedy(worst, design, loads)                        in words, what would do; "" where nothing is known
    at_least(design, load)                              what it does at least, without a price; broadcasts over designs
    sure(design, load)                                  limits that need no price, where it knows some
    capacity(design, load)                              requests of an instance that memory has room for at least
    decoded(design, load, context)                      the price of one request's next token, where that is a bound of what
                                                        more take [s]; `decoding` says what it asks, where prices are shared
    prompted(design, load)                              what a token of a prompt takes at least, by prices [s]

The last four are of designs as TOGETHER says, of one design, or of all of a structure with BOUNDS_TOGETHER.

One that says ONE_BY_ONE works out the power of one iteration after another. One that says TOGETHER takes designs of one
structure as well, whose leaves have the shape (designs,), those of `mapping.serving` that it names there among them: what it
answers broadcasts over them, and prices have an axis more, the last one. One that says USED_TOGETHER answers `used` and `watts`
for designs of several runs at once, where these differ in how instances serve alone. One with TOGETHER_AT has, by fidelity,
which rows of a design it takes at once, and how some rows are taken of them.

An iteration is known by its composition: tokens of prompts and positions that each attends to, decoding requests and positions
that each reads (`serving/price.py`). ``done`` are pools, each a list of (times, composition).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.serving.iteration_time import IterationTimeFunction, geometric_axes
from dse.evaluators.serving.kv_memory import RequestMemory
from dse.space.array_math import Array
from dse.space.chip import Chip
from dse.space.design import Design, hash_lines, key_line
from dse.space.fields import fingerprint, iterate_key_leaves, iterate_leaves
from dse.space.memoize import memoize_by_identity
from dse.space.model import Model
from dse.space.workload import ServingLoad

Composition = tuple[float, ...]
"""Counts of an iteration, in the order of `serving.price.AXES`."""

IterationCounts = list[list[tuple[float, Composition]]]
"""By pool, compositions of iterations and how many there were."""


ERROR_SAMPLES = 300
"""At which a table's error is measured, where prices are quick."""


SERVING_PREFIXES = ("mapping.serving.",)
"""Leaves of a design that say how instances are used, not what an iteration of them takes."""


def iteration_time_key(design: Design, load: ServingLoad, *others: Any, without: tuple[str, ...] = SERVING_PREFIXES) -> str:
    """The key of prices that depend on a design but for some leaves of its mapping, on a model and lengths, and on what else is
    said.
    """
    of = [
        key_line(*leaf)
        for (address, _, _), leaf in zip(
            iterate_leaves(design.mapping, "mapping."), iterate_key_leaves(design.mapping, "mapping."), strict=True
        )
        if not address.startswith(without)
    ]
    asked = load.requests
    lengths = asked.prompt.max(), asked.prompt.mean(), asked.output.max(), asked.longest
    return hash_lines([*_lines(design.chip, load.model), *of, *map(repr, (*lengths, load.guesses, *others))])


@memoize_by_identity
def _lines(chip: Chip, model: Model) -> list[str]:
    """Of a chip and a model, which many designs of a load share."""
    return [*(key_line(*leaf) for leaf in iterate_key_leaves(chip, "chip.")), fingerprint(model)]


def design_count(design: Design) -> int:
    """Designs that the leaves are of; 0 where they are numbers, of one."""
    return max((len(value) for _, value, _ in iterate_leaves(design) if isinstance(value, np.ndarray)), default=0)


class ServingInstance(NamedTuple):
    """An instance of the model, of a pool of instances that are alike.

    Attributes:
        pricing: seconds of iterations; shape (..., designs) of several designs.
        free: for caches, of what holds them: beside weights and activations. [B]
        room: what a request has there.
        axes: points of a table of prices, of the largest counts in the order of `serving.price.AXES`.
        checks: compositions between them at which the table is compared with prices.
        shares: of the time of an iteration, by stage; as many micro-batches are in flight.
        key: equal for instances of equal prices, whatever design they are of.
        more: seconds, joules and what else iterations spend, shape (..., what, designs); None where `used` takes compositions.
        copies: of attention, on devices that each have caches of requests of their own; `free` is of all of them. [1]
    """

    pricing: IterationTimeFunction
    free: Any
    room: RequestMemory
    axes: Callable[[int, int, int, int], list[Array]] = geometric_axes
    checks: int = ERROR_SAMPLES
    key: str = ""
    shares: tuple[float, ...] = (1.0,)
    more: IterationTimeFunction | None = None
    copies: int = 1
