"""Placement of a new token's keys and values in the KV cache on a mesh, by name.

Each module has

    append_program(mesh, tokens, width, per_core)   program of one new token in a cache of `tokens`
    build_program(shape, mesh, dtype)               the same where every row holds one token
    tokens_per_row(tokens, rows)                    tokens that each row of cores holds, oldest rows first
    token_capacity(rows, per_core)                  tokens that fit if each core has room for `per_core`
    fullest_row_tokens(context, generated, rows)    tokens of a request on the fullest row
    cost(shape, mesh, fabric)                       time and activity of one new token by the analytical model
"""

from types import ModuleType

from dse.evaluators.kernels.kv import append_last_row as concat
from dse.evaluators.kernels.kv import balanced_shift as shift
from dse.space.errors import choose_option

KV: dict[str, ModuleType] = {"concat": concat, "shift": shift}


def find_kv_method(name: str) -> ModuleType:
    """Return the module of a KV cache placement by its option of `mapping.kv_placement`."""
    return choose_option(KV, name, "mapping.kv_placement")
