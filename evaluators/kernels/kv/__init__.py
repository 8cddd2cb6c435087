"""The KV cache on a mesh: where a new token's keys and values go.

Each module has

    steps(mesh, held, width, capacity)   the program of one new token
    held(tokens, rows)                   tokens that each row of cores holds, oldest rows first
    capacity(rows, per_core)             tokens that fit when each core has room for `per_core`
"""

from types import ModuleType

from evaluators.kernels.kv import concat, shift
from space.errors import chosen

KV: dict[str, ModuleType] = {"concat": concat, "shift": shift}


def kv(name: str) -> ModuleType:
    """The method of a name."""
    return chosen(KV, name, "mapping.decode.kv")
