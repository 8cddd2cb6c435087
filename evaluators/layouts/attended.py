"""What attention of requests alike computes, as the kernels of tiles have it."""

from dse.evaluators.graph.operators import Attention
from dse.evaluators.kernels.attention.shape import Heads
from dse.space.elementwise import ceil_div
from dse.space.model import Model


def attended(model: Model, of: Attention, requests: int, length: int, *, prefilling: bool) -> Heads:
    """Whole prompts of so many tokens, or one token each to so many that are cached.

    Within a sliding window prompts go in stretches as long as it, each with the stretch before; positions of it that a query
    does not see any more are computed, and count for nothing.
    """
    window = model.window
    batch, queries, keys = requests, length if prefilling else 1, length
    if prefilling and window and length > window:
        batch, queries, keys = requests * ceil_div(length, window), window, min(2 * window, length)
    latent = model.latent is not None and not prefilling
    return Heads(batch, of.heads.units, of.kv_heads.units, queries, keys, of.qk_dim, of.v_dim, prefilling, latent)
