"""Decoder-only transformers as their published configurations state them, and what follows: parameters and KV bytes."""

from typing import Any

from dse.space.fields import flag, quantity, record, refused, whole, word

LOADS = ("expected", "even", "sampled", "file")
"""How tokens spread over experts: what independent choices come to on average; as evenly as can be; one draw of them; or as
often as a file says (`Experts.shares`)."""


@record
class Experts:
    """Mixture-of-experts layers."""

    count: int = whole("routed experts in a layer")
    top_k: int = whole("experts that each token goes to")
    intermediate: int = whole("width of one expert")
    shared: int = whole("experts that every token goes to", low=0, default=0)
    dense_layers: int = whole("first layers with a dense FFN instead", low=0, default=0)
    score_bias: bool = flag("a learned bias is added to the router's scores", default=False)
    skew: float = quantity("1", "exponent of Zipf's law by which tokens choose experts; 0 for evenly", default=0.0)
    load: str = word("how tokens spread over experts: expected, even or sampled", LOADS, default="expected")
    seed: int = whole("of sampled choices", low=0, default=0)
    shares: Any = refused("how often experts are chosen is in a file: workload.routing=FILE, with layer, expert and tokens")
    groups: int = whole("groups of experts that a router chooses among first", default=1)
    groups_kept: int = whole("of these, how many the experts of a token are in", default=1)


@record
class Latent:
    """Multi-head latent attention (MLA): queries and keys/values through low-rank projections."""

    q_rank: int = whole("rank of the query projection; 0 where it is full", low=0)
    kv_rank: int = whole("rank of the shared key/value projection, which is what is cached")
    nope_dim: int = whole("query/key dimension without rotation")
    rope_dim: int = whole("rotated query/key dimension, shared by the heads")
    v_dim: int = whole("value dimension")


@record
class Model:
    """An LLM architecture."""

    name: str = word("name for people")
    layers: int = whole("decoder layers")
    hidden: int = whole("width of the residual stream")
    heads: int = whole("query heads")
    kv_heads: int = whole("key/value heads; fewer than heads is GQA, 1 is MQA")
    head_dim: int = whole("query/key dimension of a head")
    ffn_intermediate: int = whole("width of the dense FFN")
    vocab: int = whole("tokens in the vocabulary")
    max_position: int = whole("longest sequence the model was trained for")
    gated_ffn: bool = flag("the FFN has a gate beside the up projection", default=True)
    tied_embeddings: bool = flag("the head reuses the embedding table", default=False)
    qkv_bias: bool = flag("biases on the query, key and value projections", default=False)
    out_bias: bool = flag("bias on the output projection", default=False)
    ffn_bias: bool = flag("biases in the FFN", default=False)
    head_bias: bool = flag("bias on the head", default=False)
    qk_norm: bool = flag("norms on queries and keys of each head", default=False)
    norm: str = word("kind of norm", ("rms", "layernorm"), default="rms")
    window: int = whole("sliding attention window in tokens; 0 where attention is full", low=0, default=0)
    mtp: int = whole("modules that predict tokens beyond the next (MTP), each a layer of its own", low=0, default=0)
    experts: Experts | None = None
    latent: Latent | None = None


def parameters(model: Model) -> int:
    """Weights of the whole model, embeddings and head included, multi-token heads excluded."""
    return _outside_layers(model) + sum(
        layers * (attention_parameters(model) + _norms(model) + ffn) for layers, ffn in _ffn_kinds(model, active=False)
    )


def drafting_parameters(model: Model) -> int:
    """Weights of one multi-token prediction module: a layer, the projection of two hidden states, and norms [deepseek2024].

    Embedding and head are those of the model.
    """
    _, ffn = _ffn_kinds(model, active=False)[-1]
    h, norms = model.hidden, _norms(model) // 2
    return attention_parameters(model) + _norms(model) + ffn + 2 * h * h + 3 * norms


def active_parameters(model: Model) -> int:
    """Weights that one token uses: all but the experts it is not routed to."""
    return _outside_layers(model) + sum(
        layers * (attention_parameters(model) + _norms(model) + ffn) for layers, ffn in _ffn_kinds(model, active=True)
    )


def attention_parameters(model: Model) -> int:
    """Weights of one layer's attention, with its biases and inner norms."""
    h, heads, latent = model.hidden, model.heads, model.latent
    if latent is not None:
        qk = latent.nope_dim + latent.rope_dim
        query = h * latent.q_rank + latent.q_rank + latent.q_rank * heads * qk if latent.q_rank else h * heads * qk
        down = h * (latent.kv_rank + latent.rope_dim) + latent.kv_rank
        up = latent.kv_rank * heads * (latent.nope_dim + latent.v_dim)
        return query + down + up + heads * latent.v_dim * h
    q, kv = heads * model.head_dim, model.kv_heads * model.head_dim
    weights = h * q + 2 * h * kv + q * h
    return weights + model.qkv_bias * (q + 2 * kv) + model.out_bias * h + model.qk_norm * 2 * model.head_dim


def ffn_parameters(model: Model, width: int) -> int:
    """Weights of one FFN, dense or expert, of some width."""
    inner = 2 if model.gated_ffn else 1
    return (inner + 1) * model.hidden * width + model.ffn_bias * (inner * width + model.hidden)


def kv_values(model: Model) -> int:
    """Values cached per token and layer: K and V of every KV head, or the latent of MLA."""
    if model.latent is not None:
        return model.latent.kv_rank + model.latent.rope_dim
    return 2 * model.kv_heads * model.head_dim


def _ffn_kinds(model: Model, *, active: bool) -> list[tuple[int, int]]:
    dense = ffn_parameters(model, model.ffn_intermediate)
    experts = model.experts
    if experts is None:
        return [(model.layers, dense)]
    routed = experts.top_k if active else experts.count
    router = experts.count * (model.hidden + experts.score_bias)
    sparse = router + (routed + experts.shared) * ffn_parameters(model, experts.intermediate)
    return [(experts.dense_layers, dense), (model.layers - experts.dense_layers, sparse)]


def _norms(model: Model) -> int:
    return 2 * model.hidden * (2 if model.norm == "layernorm" else 1)


def _outside_layers(model: Model) -> int:
    tables = model.vocab * model.hidden * (1 if model.tied_embeddings else 2)
    return tables + model.head_bias * model.vocab + _norms(model) // 2
