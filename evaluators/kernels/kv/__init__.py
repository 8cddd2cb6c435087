"""The KV cache on a mesh: where a new token's keys and values go.

Each module has

    steps(mesh, held, width, capacity)   the program of one new token
    held(tokens, rows)                   tokens that each row of cores holds, oldest rows first
    capacity(rows, per_core)             tokens that fit when each core has room for `per_core`
"""

from types import ModuleType

from evaluators.kernels.kv import concat, shift
from space.errors import DesignError, nearest

KV: dict[str, ModuleType] = {"concat": concat, "shift": shift}


def kv(name: str) -> ModuleType:
    """The method of a name.

    Raises:
        DesignError: no such method; the message lists them.
    """
    if name not in KV:
        raise DesignError(f"mapping.decode.kv: no method {name!r}; {nearest(name, KV)}")
    return KV[name]
