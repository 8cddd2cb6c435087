"""Readers that play, on a mesh of tiles: products on a group are played, the same ones once."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from math import ceil
from typing import Any

import numpy as np

from evaluators import closed_tiles, cycles, events
from evaluators.closed_tiles import Prices
from evaluators.kernels.gemm.tiling import Shape
from evaluators.kernels.partition import partition
from evaluators.machine.engine import Engines
from evaluators.machine.fabric import Fabric
from evaluators.machine.hbm import rates
from evaluators.played import Timing
from evaluators.rounds import DTYPES
from space.chip import MainMemory
from space.elementwise import maximum
from space.memory import channels, peak

Play = Callable[..., Timing]
"""A reader: of a program, a fabric and engines."""


def _product_price(
    play: Play, name: str, shape: Shape, placement: str, cores: Any, fabric: Fabric, of: Engines, nbytes: float
) -> tuple[Any, Any]:
    machine = (*fabric, of.clock, of.sram_bandwidth, *_numbers(of.matrix), *_numbers(of.vector))
    leaves = (shape.m, shape.k, shape.n, cores, *machine)
    if not any(isinstance(leaf, np.ndarray) for leaf in leaves):
        return _played(play, name, tuple(ceil(size) for size in leaves[:3]), placement, int(cores), fabric, of, nbytes)
    spread = np.broadcast_arrays(*leaves)
    found = np.empty((2, *spread[0].shape))
    for place in np.ndindex(spread[0].shape):
        one = [column[place].item() for column in spread]
        sizes, rest = tuple(ceil(size) for size in one[:3]), one[4:]
        on, rest = Fabric(*rest[: len(fabric)]), rest[len(fabric) :]
        matrix = _with(of.matrix, rest[2 : 2 + len(_numbers(of.matrix))])
        vector = _with(of.vector, rest[2 + len(_numbers(of.matrix)) :])
        engines = Engines(rest[0], matrix, vector, rest[1], of.products)
        found[(slice(None), *place)] = _played(play, name, sizes, placement, int(one[3]), on, engines, nbytes)
    return found[0], found[1]


@lru_cache(maxsize=16384)
def _played(
    play: Play, name: str, sizes: tuple[int, ...], placement: str, cores: int, fabric: Fabric, of: Engines, nbytes: float
) -> tuple[float, float]:
    program = partition(name).steps(Shape(*sizes), placement, cores, DTYPES[nbytes])
    timing = play(program, fabric, engines=of)
    return timing.seconds, timing.engine_seconds


def _numbers(of: Any) -> tuple[Any, ...]:
    return tuple(value for value in (getattr(of, name) for name in type(of).__slots__) if not isinstance(value, str))


def _with(of: Any, numbers: list[Any]) -> Any:
    names = [name for name in type(of).__slots__ if not isinstance(getattr(of, name), str)]
    return replace(of, **dict(zip(names, numbers, strict=True)))


def _memory_price(nbytes: Any, block: Any, hbm: MainMemory) -> Any:
    if hbm.banks is None:
        return closed_tiles.PRICES.memory(nbytes, block, hbm)
    known = rates(hbm.banks)
    sizes = np.log2(known.access) + np.arange(known.each.shape[1])
    channel = peak(hbm.banks) / channels(hbm.banks)
    share = 1 / (channel * np.interp(np.log2(maximum(block, known.access)), sizes, known.each[0]))
    return nbytes / (hbm.bandwidth * share) + (hbm.latency + known.first[0]) * (nbytes > 0)


PLAYERS: dict[str, Play] = {"events": events.play, "cycles": cycles.play}
"""By fidelity."""

PRICES = {word: Prices(partial(_product_price, play), _memory_price) for word, play in PLAYERS.items()}
"""By fidelity: programs of products played; blocks of such sizes at random places of a channel of banks, and the way to it."""
