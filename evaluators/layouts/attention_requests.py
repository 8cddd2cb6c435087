"""Equal requests of an iteration and their attention shapes, for kernels of tiles."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dse.evaluators.graph.operators import AttentionOp
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.kernels.attention.attention_shape import AttentionShape
from dse.space.array_math import ceil_div
from dse.space.layers import layers
from dse.space.model import Model
from dse.space.workload import BatchCase


class AttentionRequests(NamedTuple):
    """A number of requests with equal attention: new tokens of each, and positions that they see.

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


RequestsOfReach = Callable[[int], Sequence[AttentionRequests]]
"""How requests attend within one of the reaches of a model."""


def no_requests(reach: int) -> Sequence[AttentionRequests]:
    """Return no requests, for parts whose prompts and decodes are evaluated by themselves."""
    return ()


def equal_prompts(case: BatchCase) -> RequestsOfReach:
    """Numbers of requests with equal prompts, by prompt."""
    counts: dict[int, int] = {}
    for n, prompt, _ in case.requests:
        counts[prompt] = counts.get(prompt, 0) + n
    reaches = layers(case.model).reaches

    def prompts(reach: int) -> list[AttentionRequests]:
        return [AttentionRequests(True, n, prompt, prompt, reaches[reach].count_pairs(prompt)) for prompt, n in counts.items()]

    return prompts


def decode_requests(at: StepCounts) -> RequestsOfReach:
    """Requests of a decode step, whose last and drafted tokens attend to the KV cache."""
    queries = 1 + at.guesses
    requests = at.requests / queries

    def found_requests(reach: int) -> list[AttentionRequests]:
        near = at.at_reach(reach)
        return [AttentionRequests(False, int(requests), queries, ceil_div(near.positions, requests), near.pairs / requests)]

    return found_requests


def chunk_requests(model: Model, requests: int, queries: int, keys: int) -> RequestsOfReach:
    """Chunks of equal prompts: new tokens of each, and positions with them."""
    reaches = layers(model).reaches

    def found_requests(place: int) -> list[AttentionRequests]:
        reach = reaches[place]
        return [
            AttentionRequests(True, requests, queries, keys, float(reach.count_pairs(keys) - reach.count_pairs(keys - queries)))
        ]

    return found_requests


def newest_token_requests(model: Model, requests: int, context: float, guesses: int = 0) -> RequestsOfReach:
    """Requests with equal context that each have one new token, and drafted tokens after it."""
    reaches = layers(model).reaches

    def token_requests(place: int) -> list[AttentionRequests]:
        seen = [float(reaches[place].seen_positions(context + ahead)) for ahead in range(1 + guesses)]
        return [AttentionRequests(False, requests, 1 + guesses, max(ceil_div(seen[-1], 1), 1), sum(seen))]

    return token_requests


def attention_shape(
    model: Model, operator: AttentionOp, requests: int, queries: int, keys: int, *, prefilling: bool
) -> AttentionShape:
    """Attention shape of prompts with `queries` new positions, or of one token per request in decode.

    Decode attends to the KV cache.

    Within a sliding window nothing is asked for before the first key that a new position sees. Chunks are sequences by
    themselves, since no query of one sees a key of another. Compressed entries beside a window are no band: such prompts go in
    stretches as long as it, each with the stretch before and as many entries as there are on average.

    Args:
        model: all of whose layers are of the kind.
        operator: the operator.
        requests, queries, keys: as in `AttentionRequests`.
        prefilling: whether these are prompts.
    """
    window, chunk, batch = model.window, model.chunk, requests
    if prefilling and chunk and keys > chunk:
        batch, queries, keys = requests * ceil_div(queries, chunk), min(queries, chunk), chunk
    window = window if prefilling and keys > window else 0
    if window and model.compressed is not None:
        ratio = model.compressed.ratio if model.indexer is None else 0
        entries = ceil_div(keys, 2 * ratio) if ratio else 0
        batch, queries = requests * ceil_div(queries, window), min(queries, window)
        keys, window = min(window + queries, keys) + entries, 0
    keys = min(keys, queries + window - 1) if window else keys
    latent = model.compressed is not None or (model.latent is not None and (not prefilling or model.indexer is not None))
    sizes = batch, operator.heads.units, operator.kv_heads.units, queries, keys, operator.qk_dim, operator.v_dim
    return AttentionShape(*sizes, prefilling, latent, window=window, capped=operator.capped)
