"""The KV cache on a mesh: where a new token's keys and values go.

Each module has

    grown(mesh, tokens, width, per_core) the program of one new token in a cache that has some
    steps(shape, mesh, dtype)            the same where every row holds one
    held(tokens, rows)                   tokens that each row of cores holds, oldest rows first
    capacity(rows, per_core)             tokens that fit when each core has room for `per_core`
    fullest(context, generated, rows)    tokens of a request on the row that has most
    cost(shape, mesh, fabric)            the closed form of one new token
"""

from types import ModuleType

from dse.evaluators.kernels.kv import append_last_row as concat
from dse.evaluators.kernels.kv import balanced_shift as shift
from dse.space.errors import choose_option

KV: dict[str, ModuleType] = {"concat": concat, "shift": shift}


def find_kv_method(name: str) -> ModuleType:
    """The method of a name."""
    return choose_option(KV, name, "mapping.kv_placement")
