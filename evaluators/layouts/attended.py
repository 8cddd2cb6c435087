"""What attention of requests alike computes, as the kernels of tiles have it."""

from typing import NamedTuple

from dse.evaluators.graph.operators import Attention
from dse.evaluators.graph.step import Step, causal_pairs
from dse.evaluators.kernels.attention.shape import Heads
from dse.space.elementwise import ceil_div
from dse.space.model import Model
from dse.space.workload import Case


class Attending(NamedTuple):
    """Requests that attend alike.

    Attributes:
        prompts: whether these are their prompts, or a chunk of each; else one token of each.
        requests, queries, keys: how many, new tokens of each, and positions with these.
        pairs: of query and key in each, per head.
    """

    prompts: bool
    requests: int
    queries: int
    keys: int
    pairs: float


def alike_prompts(case: Case) -> list[Attending]:
    """How many requests have which prompt."""
    counts: dict[int, int] = {}
    for n, prompt, _ in case.requests:
        counts[prompt] = counts.get(prompt, 0) + n
    window = case.model.window
    return [Attending(True, n, prompt, prompt, causal_pairs(prompt, window)) for prompt, n in counts.items()]


def decoding(at: Step) -> Attending:
    """Requests of a step of decode, whose last tokens, and those that are guessed, attend to what is cached."""
    queries = 1 + at.guesses
    requests = at.requests / queries
    return Attending(False, int(requests), queries, ceil_div(at.positions, requests), at.pairs / requests)


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
