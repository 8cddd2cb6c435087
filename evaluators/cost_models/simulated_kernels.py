"""Simulated cost of kernels on a mesh of cores, by events or cycles; equal kernels run once."""

from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np

from dse.evaluators.calls.algorithm_candidates import kernel_with_algorithm
from dse.evaluators.calls.call import MeshKernel
from dse.evaluators.cost_models import fastest_algorithm as rivals
from dse.evaluators.cost_models.simulators import PLAYERS
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.registry import kernel_module
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.machine import HardwareModel
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import COUNTS, Activity
from dse.evaluators.program.kernel_ir import Program
from dse.space.noc_router import MeshFaults


def simulate_kernel(reader: str, price: rivals.KernelCostFunction, kernel: MeshKernel, machine: HardwareModel) -> KernelCost:
    """Simulated time [s] and activity of one kernel run; arrays are simulated element by element.

    Cores with engines of their own have numbers for them. A kernel with candidates runs the one that `price`, an analytical
    cost, chooses.
    """
    fabric, engines = machine.fabric, machine.engines
    assert fabric is not None
    assert engines is None or isinstance(engines, TileEngines)
    # each entry runs the one algorithm that it has
    best = rivals.find_fastest_index(kernel, machine, price) if kernel.rivals else 0
    names = tuple(sorted(kernel.options))
    shape, mesh = kernel.shape, kernel.mesh
    leaves = (best, shape.m, shape.k, shape.n, mesh.rows, mesh.cols, *(kernel.options[name] for name in names), *fabric)

    def simulated_cost(number: int, *values: Any) -> KernelCost:
        sizes, sides, rest = tuple(ceil(size) for size in values[:3]), tuple(map(int, values[3:5])), values[5:]
        by = kernel._replace(options=dict(zip(names, map(_plain, rest[: len(names)]), strict=True)))
        by = kernel_with_algorithm(by, kernel.rivals[number].word) if kernel.rivals else by
        options, fabric = tuple(by.options.items()), MeshFabric(*rest[len(names) :])
        return _played(by.kind, by.algorithm, sizes, sides, options, fabric, engines, reader, by.faults)

    if not any(isinstance(leaf, np.ndarray) for leaf in leaves):
        return simulated_cost(*leaves)
    spread = np.broadcast_arrays(*leaves)
    costs = [simulated_cost(*(column[place].item() for column in spread)) for place in np.ndindex(spread[0].shape)]

    def make_column(values: list[Any]) -> Any:
        return np.array(values, dtype=float).reshape(spread[0].shape)

    activity = Activity(*(make_column([getattr(cost.activity, name) for cost in costs]) for name in COUNTS))
    return KernelCost(make_column([cost.seconds for cost in costs]), activity)


@lru_cache(maxsize=4096)
def _played(
    kind: str,
    algorithm: str,
    shape: tuple[int, ...],
    mesh: tuple[int, ...],
    options: tuple[tuple[str, Any], ...],
    fabric: MeshFabric,
    engines: TileEngines | None,
    reader: str,
    faults: MeshFaults,
) -> KernelCost:
    program = _program(kind, algorithm, shape, mesh, options)
    timing = PLAYERS[reader](program, fabric, engines=engines, faults=faults)
    return KernelCost(timing.seconds, timing.activity)


@lru_cache(maxsize=1)  # one: `time_by_cause` simulates a program several times in a row, with less and less that costs
def _program(
    kind: str, algorithm: str, shape: tuple[int, ...], mesh: tuple[int, ...], options: tuple[tuple[str, Any], ...]
) -> Program:
    program: Program = kernel_module(kind, algorithm).build_program(
        GemmShape(*shape), CoreMesh(*mesh), "float16", **dict(options)
    )
    return program


def build_kernel_program(kernel: MeshKernel) -> Program:
    """Program of one kernel whose leaves are numbers, as simulators run it."""
    sizes = tuple(ceil(float(size)) for size in (kernel.shape.m, kernel.shape.k, kernel.shape.n))
    options = tuple((name, _plain(_number(value))) for name, value in sorted(kernel.options.items()))
    return _program(kernel.kind, kernel.algorithm, sizes, (int(kernel.mesh.rows), int(kernel.mesh.cols)), options)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray) else value


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) else value
