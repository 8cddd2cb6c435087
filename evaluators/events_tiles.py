"""The events reader on a mesh of tiles: products on a group are played, the same ones once."""

from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np

from evaluators.events import play
from evaluators.kernels.gemm.tiling import Shape
from evaluators.kernels.partition import partition
from evaluators.machine.engine import Engines
from evaluators.machine.fabric import Fabric


def price(name: str, shape: Shape, placement: str, cores: Any, fabric: Fabric, of: Engines, nbytes: float) -> tuple[Any, Any]:
    """A product on a group, from its program played; where leaves are arrays, one play for each of their elements."""
    machine = (*fabric, of.clock, of.sram_bandwidth, *_numbers(of.matrix), *_numbers(of.vector))
    leaves = (shape.m, shape.k, shape.n, cores, *machine)
    if not any(isinstance(leaf, np.ndarray) for leaf in leaves):
        return _played(name, tuple(ceil(size) for size in leaves[:3]), placement, int(cores), fabric, of, nbytes)
    spread = np.broadcast_arrays(*leaves)
    found = np.empty((2, *spread[0].shape))
    for place in np.ndindex(spread[0].shape):
        one = [column[place].item() for column in spread]
        sizes, rest = tuple(ceil(size) for size in one[:3]), one[4:]
        on, rest = Fabric(*rest[: len(fabric)]), rest[len(fabric) :]
        matrix = _with(of.matrix, rest[2 : 2 + len(_numbers(of.matrix))])
        vector = _with(of.vector, rest[2 + len(_numbers(of.matrix)) :])
        engines = Engines(rest[0], matrix, vector, rest[1], of.products)
        found[(slice(None), *place)] = _played(name, sizes, placement, int(one[3]), on, engines, nbytes)
    return found[0], found[1]


@lru_cache(maxsize=16384)
def _played(
    name: str, sizes: tuple[int, ...], placement: str, cores: int, fabric: Fabric, of: Engines, nbytes: float
) -> tuple[float, float]:
    program = partition(name).steps(Shape(*sizes), placement, cores, {1: "int8", 2: "float16", 4: "float32"}[int(nbytes)])
    timing = play(program, fabric, engines=of)
    return timing.seconds, timing.engine_seconds


def _numbers(of: Any) -> tuple[Any, ...]:
    return tuple(value for value in (getattr(of, name) for name in type(of).__slots__) if not isinstance(value, str))


def _with(of: Any, numbers: list[Any]) -> Any:

    names = [name for name in type(of).__slots__ if not isinstance(getattr(of, name), str)]
    return replace(of, **dict(zip(names, numbers, strict=True)))
