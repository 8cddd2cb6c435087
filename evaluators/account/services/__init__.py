"""Layouts whose instances serve requests: what an iteration takes, what caches have room for, and what a run has used.

Each module has

    FIDELITIES                                          readers that price its iterations
    limits(design, load)                                that the model and a longest request fit, and what else binds
    instances(design, load, fidelity)                   an `Instance` of each pool: that prefills, if any, and that decodes
    transfer(design, load)                              what a request has, on its way between instances, and its start [s]
    areas(design), area_parts(design)                   of a die and of all, and by block [mm2]
    used(design, load, done, seconds, fidelity)         metrics of what is used, of iterations `done` in some time
    operators(design, load, pool, times, made_of, fidelity)     rows of an iteration, so many times
    remedy(worst, design, loads)                        in words, what would do; "" where nothing is known

An iteration is known by its composition: tokens of prompts and positions that each attends to, decoding requests and positions
that each reads (`serving/price.py`). ``done`` are pools, each a list of (times, composition).
"""

from collections.abc import Callable
from typing import NamedTuple

from dse.evaluators.serving.kvcache import Room
from dse.evaluators.serving.price import Pricing, spread
from dse.space.elementwise import Array

Composition = tuple[float, ...]
"""Counts of an iteration, in the order of `serving.price.AXES`."""

Done = list[list[tuple[float, Composition]]]
"""By pool, compositions of iterations and how many there were."""


COMPOSITIONS = 300
"""At which a table's error is measured, where prices are quick."""


class Instance(NamedTuple):
    """An instance of the model, of a pool of instances that are alike.

    Attributes:
        pricing: seconds of iterations.
        free: for caches, of what holds them: beside weights and activations. [B]
        room: what a request has there.
        axes: points of a table of prices, of the largest counts in the order of `serving.price.AXES`.
        checks: compositions between them at which the table is compared with prices.
    """

    pricing: Pricing
    free: float
    room: Room
    axes: Callable[[int, int, int, int], list[Array]] = spread
    checks: int = COMPOSITIONS
