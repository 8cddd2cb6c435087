"""What attention of requests alike computes, as the kernels of tiles have it."""

from dse.evaluators.graph.operators import Attention
from dse.evaluators.kernels.attention.shape import Heads
from dse.space.elementwise import ceil_div
from dse.space.model import Model


def attended(model: Model, of: Attention, requests: int, queries: int, keys: int, *, prefilling: bool) -> Heads:
    """Prompts, of whose positions the last `queries` are new, or one token each to so many that are cached.

    Within a sliding window prompts go in stretches as long as it, each with the stretch before; positions of it that a query
    does not see any more are computed, and count for nothing.
    """
    window, batch = model.window, requests
    if prefilling and window and keys > window:
        batch, queries = requests * ceil_div(queries, window), min(queries, window)
        keys = min(window + queries, keys)
    latent = model.latent is not None and not prefilling
    return Heads(batch, of.heads.units, of.kv_heads.units, queries, keys, of.qk_dim, of.v_dim, prefilling, latent)
