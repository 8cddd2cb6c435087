"""Random decoder layers, and what plain NumPy says of them, token by token; nothing here knows of calls or layouts."""

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from dse.evaluators.graph.step_counts import StepCounts, decode_steps, prefill_step
from dse.evaluators.graph.transformer import transformer_segments
from dse.space.array_math import Array
from dse.space.model import ExpertLayers, Model
from dse.space.workload import BatchCase
from dse.testing.functional.layer import LayerTensors, ScoreRules


class Drawn(NamedTuple):
    """A layer, the step that it is of, and what comes out."""

    layer: LayerTensors
    case: BatchCase
    at: StepCounts
    expected: Array

    @property
    def model(self) -> Model:
        return self.case.model

    @property
    def phase(self) -> str:
        return self.at.phase


def drawn(
    phase: str, heads: int, shared: int, sequences: int, tokens: int, seed: int, *, experts: ExpertLayers | None = None,
    normed: bool = True, gated: bool = True, head_dim: int = 4, wide: int = 12, hidden: int = 10,
    window: int = 0, cap: float = 0.0, sinks: bool = False, rope: float = 1.0,
) -> Drawn:  # fmt: skip
    """A layer of random numbers.

    Args:
        phase: prefill of prompts of some tokens, or decode behind so many.
        heads, shared: KV heads, and heads of queries of each.
        sequences, tokens: requests alike.
        seed: of the numbers.
        experts: of a sparse layer.
        normed, gated: norms of heads, and a gate of the FFN.
        head_dim: width of a head, even.
        wide, hidden: of the FFN, and of the residual stream.
        window, cap, sinks: of scores: keys that a query sees, the height of a tanh, and a logit of each head in the softmax.
        rope: share of a head that is rotated.
    """
    model = Model(
        name="random", layers=1, hidden=hidden, heads=heads * shared, kv_heads=heads, head_dim=head_dim,
        ffn_intermediate=wide, vocab=7, max_position=99, gated_ffn=gated, qk_norm=normed, experts=experts,
        window=window, softcap=cap > 0, sinks=sinks, rope=rope,
    )  # fmt: skip
    case = BatchCase("", model, ((sequences, tokens, 1),))
    at = prefill_step(case) if phase == "prefill" else decode_steps(case, "last")[0][1]
    rng, past = np.random.default_rng(seed), 0 if phase == "prefill" else tokens
    q, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
    sizes: dict[str, tuple[int, ...]] = {
        "attention_norm": (hidden,), "ffn_norm": (hidden,), "q_norm": (model.head_dim,), "k_norm": (model.head_dim,),
        "q_proj": (hidden, q), "k_proj": (hidden, kv), "v_proj": (hidden, kv), "o_proj": (q, hidden),
    }  # fmt: skip
    prefixes = [("", (), wide)] if experts is None else [("experts_", (experts.count,), experts.intermediate)]
    if experts is not None:
        sizes["router"] = (hidden, experts.count)
        prefixes += [("shared_", (), experts.shared * experts.intermediate)] * bool(experts.shared)
    for prefix, many, width in prefixes:
        names = ("gate", "up") if gated else ("up",)
        sizes |= {f"{prefix}{name}": (*many, hidden, width) for name in names} | {f"{prefix}down": (*many, width, hidden)}
    weights = {name: rng.normal(size=size) / (size[-2] ** 0.5 if len(size) > 1 else 1) for name, size in sizes.items()}
    for name in ("q_norm", "k_norm"):  # kernels of tiles have one weight for both halves of a head
        weights[name] = np.tile(weights[name][: head_dim // 2], 2)
    cached = (sequences, past, model.kv_heads, model.head_dim)
    parts = tuple(part for part in transformer_segments(model, at) if part.name not in ("embedding", "head"))
    x = rng.normal(size=(round(at.tokens), hidden))
    top = experts.top_k if experts else 0
    keys, values, before = rng.normal(size=cached), rng.normal(size=cached), max(past + 1 - window, 0) if window else 0
    scored = ScoreRules(window, cap, 3 * rng.normal(size=model.heads) if sinks else None)
    layer = LayerTensors(parts, weights, x, keys, values, top, normed, scored=scored)
    # a cache has what a window shows, and the layer by itself all that there was
    kept = layer._replace(keys=keys[:, before:], values=values[:, before:], before=before)
    return Drawn(kept, case, at, decoder_layer(layer, model))


def decoder_layer(layer: LayerTensors, model: Model) -> Array:
    """Pre-norm attention with grouped heads and rotations, and a SwiGLU or experts, each added to what came in.

    Scores go through c tanh(s / c) and a window as in Gemma 2, a sink of each head joins the softmax as in gpt-oss.
    """
    w, new = layer.weights, len(layer.x) // layer.sequences
    out = layer.x.copy()
    for sequence in range(layer.sequences):
        rows = slice(sequence * new, (sequence + 1) * new)
        keys, values = list(layer.keys[sequence]), list(layer.values[sequence])
        for token, x in enumerate(layer.x[rows]):
            place, normed = layer.before + len(keys), unit(x) * w["attention_norm"]
            q, k, v = (heads_of(normed @ w[f"{name}_proj"], model.head_dim) for name in "qkv")
            if model.qk_norm:
                q, k = [unit(head) * w["q_norm"] for head in q], [unit(head) * w["k_norm"] for head in k]
            part = round(model.head_dim * model.rope)
            q, k = ([np.append(turned(head[:part], place), head[part:]) for head in heads] for heads in (q, k))
            keys.append(np.array(k))
            values.append(np.array(v))
            outputs = []
            for number, head in enumerate(q):
                kv_head = number * model.kv_heads // model.heads
                seen = slice(-model.window if model.window else None, None)
                scores = np.array([head @ key[kv_head] for key in keys[seen]]) / model.head_dim**0.5
                outputs.append(weighed(scores, [value[kv_head] for value in values[seen]], layer.scored, number))
            out[rows.start + token] += np.concatenate(outputs) @ w["o_proj"]
    return out + np.array([fed(x, w, model) for x in out])


def weighed(scores: Array, values: list[Array], how: ScoreRules, head: int) -> Array:
    """Values by the softmax of their scores and of the head's sink, which has none."""
    if how.cap:
        scores = how.cap * np.tanh(scores / how.cap)
    sink = [] if how.sinks is None else [float(how.sinks[head])]
    logits = np.array([*scores, *sink])
    share = np.exp(logits - logits.max())
    return np.asarray(sum(s * value for s, value in zip(share / share.sum(), values, strict=False)))


def fed(x: Array, w: dict[str, Array], model: Model) -> Array:
    """What an FFN, or the experts of a token, add to it."""
    x = unit(x) * w["ffn_norm"]
    if model.experts is None:
        return swiglu(x, w, "")
    scores = x @ w["router"]
    chosen = sorted(range(len(scores)), key=lambda expert: -scores[expert])[: model.experts.top_k]
    total = sum(np.exp(scores[expert]) for expert in chosen)
    found_total = sum(np.exp(scores[expert]) / total * swiglu(x, w, "experts_", expert) for expert in chosen)
    return np.asarray(found_total + (swiglu(x, w, "shared_") if model.experts.shared else 0.0))


def swiglu(x: Array, w: dict[str, Array], prefix: str, expert: Any = ...) -> Array:
    gate = x @ w[f"{prefix}gate" if f"{prefix}gate" in w else f"{prefix}up"][expert]
    up = x @ w[f"{prefix}up"][expert] if f"{prefix}gate" in w else 1.0
    return np.asarray((gate / (1 + np.exp(-gate)) * up) @ w[f"{prefix}down"][expert])


def unit(x: Array) -> Array:
    return np.asarray(x / np.sqrt(np.mean(x**2)))


def heads_of(x: Array, wide: int) -> list[Array]:
    return [x[start : start + wide] for start in range(0, len(x), wide)]


def turned(head: Array, place: int) -> Array:
    """Pairs of values as complex numbers, turned by an angle that grows with the place."""
    half = len(head) // 2
    pairs = (head[:half] + 1j * head[half:]) * np.exp(1j * place * 10000.0 ** (-np.arange(half) / half))
    return np.concatenate([pairs.real, pairs.imag])


def balanced(draw: Drawn) -> Drawn:
    """The same, with a router that sends as many tokens to each expert: what layouts say of experts with even loads."""
    experts = draw.model.experts
    assert experts is not None
    w, model = draw.layer.weights, draw.model
    none = {name: 0 * value if name.endswith("down") else value for name, value in w.items()}
    x = decoder_layer(draw.layer._replace(weights=none), model)
    normed = np.array([unit(row) * w["ffn_norm"] for row in x])
    wanted = np.random.default_rng(len(x)).normal(size=(len(x), experts.count))
    for token in range(len(x)):
        wanted[token, (token * experts.top_k + 3 + np.arange(experts.top_k)) % experts.count] += 9
    layer = draw.layer._replace(weights={**w, "router": np.linalg.pinv(normed) @ wanted})
    return draw._replace(layer=layer, expected=decoder_layer(layer, model))


SIZES = {
    "phase": st.sampled_from(["prefill", "decode"]), "heads": st.sampled_from([1, 2, 4]), "shared": st.integers(1, 3),
    "sequences": st.integers(1, 3), "tokens": st.integers(1, 5), "seed": st.integers(0, 10**6), "normed": st.booleans(),
    "gated": st.booleans(), "wide": st.integers(3, 13), "hidden": st.integers(3, 13),
}  # fmt: skip
"""Sizes of a dense layer."""

SCORES = {"window": st.integers(0, 7), "cap": st.sampled_from([0.0, 0.5, 1.5]), "tokens": st.integers(1, 9)}
"""What becomes of scores, but for sinks."""

CAPPED = st.fixed_dictionaries(SIZES | SCORES).map(lambda sizes: drawn(**sizes))
SUNK = st.fixed_dictionaries(SIZES | SCORES | {"sinks": st.booleans()}).map(lambda sizes: drawn(**sizes))
DENSE = st.fixed_dictionaries(SIZES).map(lambda sizes: drawn(**sizes))
PARTLY = st.fixed_dictionaries(SIZES).map(lambda sizes: drawn(**sizes, rope=0.5))


def _sparse(sizes: dict[str, Any], count: int, top: int, shared: int) -> Drawn:
    width = sizes["wide"]
    experts = ExpertLayers(count=count, top_k=min(top, count), intermediate=width, shared=shared, load="even")
    return drawn(**sizes, experts=experts)


SPARSE = st.builds(_sparse, st.fixed_dictionaries(SIZES), st.integers(1, 6), st.integers(1, 3), st.integers(0, 1))
FEW = SIZES | {"sequences": st.integers(1, 2), "tokens": st.integers(1, 4), "hidden": st.integers(8, 13)}
EVEN = st.builds(_sparse, st.fixed_dictionaries(FEW), st.integers(1, 6), st.integers(1, 3), st.integers(0, 1)).map(balanced)
"""Layers of experts, and those that have no more tokens than a router can tell apart, which share them out evenly."""
