"""Random layers of latent attention, and what plain NumPy says of them, token by token, by the definition of DeepSeek-V2."""

import numpy as np
from hypothesis import strategies as st

from dse.evaluators.graph.step_counts import decode_steps, prefill_step
from dse.evaluators.graph.transformer import transformer_segments
from dse.space.array_math import Array
from dse.space.model import LatentAttention, Model, SparseIndexer
from dse.space.workload import BatchCase
from dse.testing.functional.layer import LayerTensors, ScoreRules
from tests.agreement.layers import Drawn, fed, turned, unit


def latents(
    phase: str, heads: int, sequences: int, tokens: int, seed: int, *, q_rank: int = 6, kv_rank: int = 8, nope: int = 4,
    rope: int = 2, v_dim: int = 3, hidden: int = 10, wide: int = 12, indexer: SparseIndexer | None = None,
) -> Drawn:  # fmt: skip
    """A dense layer; naive in prefill, absorbed in decode behind so many tokens, and with an indexer, as the graph has it.

    Args:
        phase, heads, sequences, tokens, seed, hidden, wide: as of `layers.drawn`.
        indexer: which keys a query sees, of whose heads at least `rope` values are rotated; None for all.
        q_rank: of queries; 0 where their projection is full.
        kv_rank, nope, rope, v_dim: of the latent, and of a head what is not rotated, what is, and values.
    """
    latent = LatentAttention(q_rank=q_rank, kv_rank=kv_rank, nope_dim=nope, rope_dim=rope, v_dim=v_dim)
    model = Model(
        name="random", layers=1, hidden=hidden, heads=heads, kv_heads=heads, head_dim=nope + rope, ffn_intermediate=wide,
        vocab=7, max_position=99, latent=latent, indexer=indexer,
    )  # fmt: skip
    case = BatchCase("", model, ((sequences, tokens, 1),))
    first, rng = phase == "prefill", np.random.default_rng(seed)
    at, naive = prefill_step(case) if first else decode_steps(case, "last")[0][1], first and indexer is None
    sizes: dict[str, tuple[int, ...]] = {
        "attention_norm": (hidden,), "ffn_norm": (hidden,), "q_up": (q_rank or hidden, heads * (nope + rope)),
        "kv_down": (hidden, kv_rank + rope), "kv_down_norm": (kv_rank,), "kv_up": (kv_rank, heads * (nope + v_dim)),
        "o_proj": (heads * v_dim, hidden), "gate": (hidden, wide), "up": (hidden, wide), "down": (wide, hidden),
    }  # fmt: skip
    sizes |= {"q_down": (hidden, q_rank), "q_down_norm": (q_rank,)} if q_rank else {}
    if indexer is not None:
        sizes |= {"index_q": (q_rank or hidden, indexer.heads * indexer.dim), "index_k": (hidden, indexer.dim)}
        sizes |= {"index_weights": (hidden, indexer.heads), "index_layernorm": (2, indexer.dim)}
    w = {name: rng.normal(size=size) / (size[0] ** 0.5 if len(size) > 1 else 1) for name, size in sizes.items()}
    up = w["kv_up"].reshape(kv_rank, heads, nope + v_dim)
    w |= {"q_absorb": up[..., :nope].transpose(1, 2, 0), "v_absorb": up[..., nope:].swapaxes(0, 1)}
    past = (sequences, 0 if first else tokens, heads if naive else 1)
    keys, values = rng.normal(size=(*past, nope + rope if naive else rope + kv_rank)), np.zeros((*past, v_dim))
    values = values if naive else keys[..., rope:]
    parts = tuple(part for part in transformer_segments(model, at) if part.name not in ("embedding", "head"))
    x = rng.normal(size=(round(at.tokens), hidden))
    indexed = None if indexer is None else rng.normal(size=(sequences, past[1], indexer.dim))
    layer = LayerTensors(parts, w, x, keys, values, scored=ScoreRules(scale=(nope + rope) ** -0.5), rope=rope, indexed=indexed)
    return Drawn(layer, case, at, latent_layer(layer, model, latent))


def latent_layer(layer: LayerTensors, model: Model, attention: LatentAttention) -> Array:
    """Keys and values of each head are made of a latent of all tokens, whatever a cache keeps of them."""
    w, new, out = layer.weights, len(layer.x) // layer.sequences, layer.x.copy()
    up = w["kv_up"].reshape(attention.kv_rank, model.heads, -1)
    for sequence in range(layer.sequences):
        rows = slice(sequence * new, (sequence + 1) * new)
        scored = [] if layer.indexed is None else list(layer.indexed[sequence])
        cached = [(row[0, attention.rope_dim :], row[0, : attention.rope_dim]) for row in layer.keys[sequence]]
        for token, x in enumerate(layer.x[rows]):
            place, normed = len(cached), unit(x) * w["attention_norm"]
            low = unit(normed @ w["q_down"]) * w["q_down_norm"] if attention.q_rank else normed
            q = (low @ w["q_up"]).reshape(model.heads, -1)
            down = normed @ w["kv_down"]
            latent = unit(down[: attention.kv_rank]) * w["kv_down_norm"]
            cached.append((latent, turned(down[attention.kv_rank :], place)))
            seen = sorted(chosen(normed, low, place, scored, layer, model.indexer)) if model.indexer else range(place + 1)
            outputs = []
            for head in range(model.heads):
                query = np.concatenate([q[head, : attention.nope_dim], turned(q[head, attention.nope_dim :], place)])
                entries = [cached[position] for position in seen]
                keys = [np.concatenate([entry @ up[:, head, : attention.nope_dim], shared]) for entry, shared in entries]
                scores = np.array([query @ key for key in keys]) / len(query) ** 0.5
                share = np.exp(scores - scores.max())
                values = [entry @ up[:, head, attention.nope_dim :] for entry, _ in entries]
                outputs.append(sum(s * value for s, value in zip(share / share.sum(), values, strict=True)))
            out[rows.start + token] += np.concatenate(outputs) @ w["o_proj"]
    return out + np.array([fed(x, w, model) for x in out])


def chosen(x: Array, low: Array, place: int, scored: list[Array], layer: LayerTensors, indexer: SparseIndexer) -> list[int]:
    """Positions of the largest scores of a token, sums over heads of what is above zero, as DeepSeek-V3.2 defines them."""
    w, rope = layer.weights, layer.rope
    key = x @ w["index_k"]
    key = (key - key.mean()) / key.std() * w["index_layernorm"][0] + w["index_layernorm"][1]
    scored.append(np.concatenate([turned(key[:rope], place), key[rope:]]))
    queries = [
        np.concatenate([turned(q[:rope], place), q[rope:]]) for q in (low @ w["index_q"]).reshape(indexer.heads, indexer.dim)
    ]
    weights = x @ w["index_weights"]
    scores = [sum(weight * max(q @ key, 0.0) for weight, q in zip(weights, queries, strict=True)) for key in scored]
    return sorted(range(len(scored)), key=lambda position: -scores[position])[: indexer.top]


SIZES = {
    "phase": st.sampled_from(["prefill", "decode"]), "heads": st.sampled_from([1, 2, 4]), "sequences": st.integers(1, 3),
    "tokens": st.integers(1, 6), "seed": st.integers(0, 10**6), "q_rank": st.sampled_from([0, 5]), "kv_rank": st.integers(3, 9),
    "nope": st.integers(1, 5), "rope": st.sampled_from([2, 4]), "v_dim": st.integers(1, 5), "hidden": st.integers(3, 13),
    "wide": st.integers(3, 13),
}  # fmt: skip
LATENTS = st.fixed_dictionaries(SIZES).map(lambda sizes: latents(**sizes))
"""Layers of latent attention, with full queries or of low rank."""

INDEXERS = st.builds(SparseIndexer, heads=st.integers(1, 3), dim=st.integers(4, 7), top=st.integers(1, 6))
PICKED = st.fixed_dictionaries(SIZES | {"tokens": st.integers(1, 9), "indexer": INDEXERS}).map(lambda sizes: latents(**sizes))
"""Those in which an indexer says which keys a query sees, of fewer positions than it may pick or of more."""
