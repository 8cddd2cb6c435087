"""Vector kernels on a mesh of cores, by name: operators between matrix products.

Each module has `cost` and `build_program`.

A width lies over the rows of the mesh; tokens lie over its columns, or are on every column (`replicated`).
"""

from types import ModuleType

from dse.evaluators.kernels.vector import dequantize as expand
from dse.evaluators.kernels.vector import elementwise_kernels as elementwise
from dse.evaluators.kernels.vector import norm, softmax
from dse.evaluators.kernels.vector import radix_select as choice

VECTOR: dict[str, ModuleType] = {
    "elementwise": elementwise,
    "norm": norm,
    "softmax": softmax,
    "choice": choice,
    "expand": expand,
}
