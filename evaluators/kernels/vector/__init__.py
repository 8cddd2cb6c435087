"""Work on vectors over a mesh of cores, by name: what is left between products. Each module has `cost` and `steps`.

A width lies over the rows of the mesh; tokens lie over its columns, or are on every column (`replicated`).
"""

from types import ModuleType

from dse.evaluators.kernels.vector import choice, elementwise, expand, norm, softmax

VECTOR: dict[str, ModuleType] = {
    "elementwise": elementwise,
    "norm": norm,
    "softmax": softmax,
    "choice": choice,
    "expand": expand,
}
