"""The events reader on a mesh of cores: every kernel of a phase is played, the same ones once."""

from functools import lru_cache
from math import ceil
from typing import Any

from evaluators.closed_mesh import kernel_of
from evaluators.events import play
from evaluators.graph.lay import Kernel
from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm.tiling import Mesh, Shape
from evaluators.machine.fabric import Fabric


def price(kernel: Kernel, on: Fabric) -> Cost:
    """One run of a kernel, from its program played."""
    shape = tuple(ceil(float(size)) for size in (kernel.shape.m, kernel.shape.k, kernel.shape.n))
    mesh = int(kernel.mesh.rows), int(kernel.mesh.cols)
    options = tuple((name, _plain(value)) for name, value in sorted(kernel.options.items()))
    return _played(kernel.kind, kernel.algorithm, shape, mesh, options, on)


@lru_cache(maxsize=4096)
def _played(
    kind: str, algorithm: str, shape: tuple[int, ...], mesh: tuple[int, int], options: tuple[tuple[str, Any], ...], on: Fabric
) -> Cost:
    kernel = Kernel("", "", kind, algorithm, Shape(*shape), Mesh(*mesh), dict(options))
    program = kernel_of(kernel).steps(kernel.shape, kernel.mesh, "float16", **kernel.options)
    timing = play(program, on)
    return Cost(timing.seconds, timing.activity)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) else value
