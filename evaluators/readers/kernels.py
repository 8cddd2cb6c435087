"""Kernels on a mesh of cores by the readers that play programs, events and cycles: the same ones once."""

from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.kernels.registry import module_of
from dse.evaluators.machine.engine import Engines
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.machine.machine import Machine
from dse.evaluators.passes.call import Kernel
from dse.evaluators.passes.rivals import named
from dse.evaluators.program.activity import COUNTS, Activity
from dse.evaluators.program.rounds import Program
from dse.evaluators.readers import rivals
from dse.evaluators.readers.players import PLAYERS
from dse.space.network import Faults


def played(reader: str, price: rivals.Price, kernel: Kernel, machine: Machine) -> Cost:
    """One run of a kernel, from its program played; where leaves are arrays, one play for each of their elements.

    Cores with engines of their own have numbers for them. Who has rivals plays the one that `price` chooses, a closed form.
    """
    on, engines = machine.fabric, machine.engines
    assert on is not None
    assert engines is None or isinstance(engines, Engines)
    # each entry plays the one algorithm that it has
    best = rivals.place(kernel, machine, price) if kernel.rivals else 0
    names = tuple(sorted(kernel.options))
    shape, mesh = kernel.shape, kernel.mesh
    leaves = (best, shape.m, shape.k, shape.n, mesh.rows, mesh.cols, *(kernel.options[name] for name in names), *on)

    def one(number: int, *values: Any) -> Cost:
        sizes, sides, rest = tuple(ceil(size) for size in values[:3]), tuple(map(int, values[3:5])), values[5:]
        by = kernel._replace(options=dict(zip(names, map(_plain, rest[: len(names)]), strict=True)))
        by = named(by, kernel.rivals[number].word) if kernel.rivals else by
        options, fabric = tuple(by.options.items()), Fabric(*rest[len(names) :])
        return _played(by.kind, by.algorithm, sizes, sides, options, fabric, engines, reader, by.faults)

    if not any(isinstance(leaf, np.ndarray) for leaf in leaves):
        return one(*leaves)
    spread = np.broadcast_arrays(*leaves)
    costs = [one(*(column[place].item() for column in spread)) for place in np.ndindex(spread[0].shape)]

    def column(values: list[Any]) -> Any:
        return np.array(values, dtype=float).reshape(spread[0].shape)

    activity = Activity(*(column([getattr(cost.activity, name) for cost in costs]) for name in COUNTS))
    return Cost(column([cost.seconds for cost in costs]), activity)


@lru_cache(maxsize=4096)
def _played(
    kind: str,
    algorithm: str,
    shape: tuple[int, ...],
    mesh: tuple[int, ...],
    options: tuple[tuple[str, Any], ...],
    on: Fabric,
    engines: Engines | None,
    reader: str,
    faults: Faults,
) -> Cost:
    program = _program(kind, algorithm, shape, mesh, options)
    timing = PLAYERS[reader](program, on, engines=engines, faults=faults)
    return Cost(timing.seconds, timing.activity)


@lru_cache(maxsize=1)  # one: what a kernel's time goes into plays its program again and again, with less and less that costs
def _program(
    kind: str, algorithm: str, shape: tuple[int, ...], mesh: tuple[int, ...], options: tuple[tuple[str, Any], ...]
) -> Program:
    program: Program = module_of(kind, algorithm).steps(Shape(*shape), Mesh(*mesh), "float16", **dict(options))
    return program


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) else value
