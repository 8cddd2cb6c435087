"""Parameter counts and cached values per sequence, from the layers of a model."""

from typing import Any, NamedTuple

from dse.space.layers import MOE, AttentionReach, LayerGroup, attention_reach, indexer_reach, layers
from dse.space.model import ExpertLayers, Model, RecurrentMixing

STATE_BYTES = 4.0
"""Of a value of a recurrent state, which is kept in single precision [yang2024] [dao2024]. [B]"""


def parameter_count(model: Model) -> int:
    """Weights of the whole model, with embeddings and head, without multi-token heads."""
    return _outside_layers(model) + _in_layers(model, active=False)


def active_parameter_count(model: Model) -> int:
    """Weights that one token uses: all but those of experts to which the token is not routed."""
    return _outside_layers(model) + _in_layers(model, active=True)


def _in_layers(model: Model, *, active: bool) -> int:
    found = layers(model)
    mixing = sum(layer.times * (mixing_parameter_count(layer.of) + _norms(layer.of)) for layer in found.mixings)
    return mixing + sum(layer.times * _feeding(layer, active=active) for layer in found.ffns)


def mtp_parameter_count(model: Model) -> int:
    """Weights of one multi-token prediction module [deepseek2024].

    The module has a layer like the last, the projection of two hidden states, and norms. Embedding and head are
    those of the model.
    """
    mixing, ffn = mtp_layers(model)
    h, norms = model.hidden, _norm(model)
    return mixing_parameter_count(mixing.of) + _norms(mixing.of) + _feeding(ffn, active=False) + 2 * h * h + 3 * norms


def mtp_layers(model: Model) -> tuple[LayerGroup, LayerGroup]:
    """Mixing and FFN of a multi-token prediction module: the model's last attention and last FFN."""
    found = layers(model)
    mixes = [name for name, _ in found.line if name]
    attends = [layer for layer in found.mixings if layer.of.recurrence is None]
    mixing = attends[-1] if attends else next(layer for layer in found.mixings if layer.name == mixes[-1])
    feeds = [name for _, name in found.line if name]
    return mixing, next(layer for layer in found.ffns if layer.name == feeds[-1])


def mixing_parameter_count(of: Model) -> int:
    """Weights of one layer's mixing of tokens, with biases and inner norms.

    Args:
        of: a model all of whose layers are of one kind.
    """
    if of.recurrence is not None:
        return _recurrent(of, of.recurrence)
    h, heads, latent = of.hidden, of.heads, of.latent
    gates = {"none": 0, "element": heads * value_head_dim(of), "head": heads}[of.gate]
    extra = h * gates + of.sinks * heads + _indexing(of) + _compressing(of)
    if of.compressed is not None:
        row, rank = of.head_dim, of.compressed.o_rank * of.compressed.groups
        query = _low_rank_query(of, heads * row)
        return query + h * row + row + heads * row * of.compressed.o_rank + rank * h + extra
    if latent is not None:
        qk = latent.nope_dim + latent.rope_dim
        down = h * (latent.kv_rank + latent.rope_dim) + latent.kv_rank
        up = latent.kv_rank * heads * (latent.nope_dim + latent.v_dim)
        return _low_rank_query(of, heads * qk) + down + up + heads * latent.v_dim * h + extra
    q, k, v = heads * of.head_dim, of.kv_heads * of.head_dim, of.kv_heads * value_head_dim(of)
    own_k, own_v = 0 if of.kv_reused else k, v if of.v_proj and not of.kv_reused else 0
    weights = h * (q + own_k + own_v) + heads * value_head_dim(of) * h
    norms = of.qk_norm * (of.head_dim + (0 if of.kv_reused else of.head_dim))
    return weights + of.qkv_bias * (q + own_k + own_v) + of.out_bias * h + norms + extra


def value_head_dim(of: Model) -> int:
    """Dimension of the values of one attention head."""
    return of.latent.v_dim if of.latent is not None else of.v_dim or of.head_dim


def _low_rank_query(of: Model, width: int) -> int:
    rank = query_rank(of)
    return of.hidden * rank + rank + rank * width if rank else of.hidden * width


def query_rank(of: Model) -> int:
    """Rank of the query projection; 0 for a full projection."""
    low = of.compressed if of.compressed is not None else of.latent
    return 0 if low is None else low.q_rank


def _indexing(of: Model) -> int:
    """Projections of an indexer: its queries from those of latent attention, one key, and the weight of each of its heads."""
    index = of.indexer
    if index is None or index.reused:
        return 0
    rank = query_rank(of) or of.hidden
    if index.block > 1:
        return of.hidden * index.dim * (index.heads + 1)
    key = of.hidden * index.dim if of.compressed is None else 0  # else keys are those of compressed entries
    return rank * index.heads * index.dim + key + of.hidden * index.heads + 2 * index.dim


def _compressing(of: Model) -> int:
    """Projections that make one entry of some positions: twice as wide where entries overlap, as those that are picked do."""
    if of.compressed is None or not of.compressed.ratio:
        return 0
    wide = 2 if of.indexer is not None else 1
    own = wide * 2 * of.hidden * of.head_dim
    return own + (wide * 2 * of.hidden * of.indexer.dim if of.indexer is not None else 0)


def _recurrent(of: Model, state: RecurrentMixing) -> int:
    h, keys, values = of.hidden, state.key_heads * state.key_dim, state.heads * state.value_dim
    if state.rule == "selective":
        return _selective(of, state, values)
    weights = h * (2 * keys + 2 * values) + values * h
    mixed = 2 * keys + values
    weights += mixed * (state.conv + state.conv_bias)
    if state.rule == "delta":
        return weights + 2 * h * state.heads + 2 * state.heads + state.value_dim
    if state.rule == "ssd":
        return weights + h * state.heads + 3 * state.heads + values
    if state.rule == "channel_delta":
        rank = state.gate_rank
        low = rank * (h + keys) if rank else h * keys
        low += rank * (h + values) - h * values if rank and not state.full_gate else 0
        return weights + low + h * state.heads + state.heads + keys + state.value_dim
    return weights + values


def _selective(of: Model, state: RecurrentMixing, values: int) -> int:
    """Of Mamba-1: inputs, gates and outputs, the convolution, B, C and steps of what leaves it, their norms, A and D."""
    inner = 2 * state.key_dim + state.gate_rank
    weights = 3 * of.hidden * values + values * (state.conv + state.conv_bias) + values * (inner + state.gate_rank + 1)
    return weights + of.qk_norm * inner + values * (state.key_dim + 1)


def ffn_parameter_count(model: Model, width: int, hidden: int = 0) -> int:
    """Weights of one FFN, dense or expert, of a width; `hidden` 0 means the model's width."""
    inner, h = 2 if model.gated_ffn else 1, hidden or model.hidden
    return (inner + 1) * h * width + model.ffn_bias * (inner * width + h)


def _feeding(layer: LayerGroup, *, active: bool) -> int:
    """Weights of an FFN with its norm."""
    of, experts = layer.of, layer.of.experts
    norms = 0 if of.parallel else _norms(of)
    if not layer.name.startswith(MOE) or experts is None:
        return norms + ffn_parameter_count(of, of.ffn_intermediate)
    routed = experts.top_k if active else experts.count
    router = experts.count * (of.hidden + experts.score_bias + experts.route_bias)
    shared = experts.shared * ffn_parameter_count(of, shared_expert_width(experts)) + experts.shared_gate * of.hidden
    around = 2 * of.hidden * experts.latent
    return norms + router + routed * ffn_parameter_count(of, experts.intermediate, experts.latent) + shared + around


def shared_expert_width(experts: ExpertLayers) -> int:
    """Intermediate width of one shared expert."""
    return experts.shared_intermediate or experts.intermediate


def expert_input_width(model: Model) -> int:
    """Values per token that are sent to an expert."""
    return model.experts.latent or model.hidden if model.experts is not None else model.hidden


def _norm(model: Model) -> int:
    return model.hidden * (2 if model.norm == "layernorm" else 1)


def _norms(of: Model) -> int:
    """Of one half of a layer."""
    return _norm(of) * (2 if of.post_norms else 1)


def _outside_layers(model: Model) -> int:
    tables = model.vocab * model.hidden * (1 if model.tied_embeddings else 2)
    return tables + position_values(model) + model.head_bias * model.vocab + _norm(model)


def position_values(model: Model) -> int:
    """Weights of a learned table of positions."""
    return model.learned_positions * model.hidden


def kv_values_per_token(of: Model) -> int:
    """Values cached per position in one layer: K and V of every KV head, or the latent of MLA."""
    if of.recurrence is not None or of.kv_reused:
        return 0
    if of.compressed is not None:
        return of.head_dim
    if of.latent is not None:
        return of.latent.kv_rank + of.latent.rope_dim
    return of.kv_heads * (of.head_dim + value_head_dim(of))


def index_values_per_token(of: Model) -> int:
    """Values of an indexer key cached per position in one layer."""
    return 0 if of.indexer is None or of.indexer.reused or of.recurrence is not None else of.indexer.dim


def state_values_per_sequence(of: Model) -> int:
    """Values of a sequence's recurrent state in one layer."""
    state = of.recurrence
    return 0 if state is None else state.heads * state.key_dim * state.value_dim


def conv_values_per_sequence(of: Model) -> int:
    """Values of earlier tokens that a convolution keeps per sequence in one layer."""
    state = of.recurrence
    if state is None or not state.conv:
        return 0
    return (state.conv - 1) * (2 * state.key_heads * convolved_keys(state) + state.heads * state.value_dim)


def convolved_keys(state: RecurrentMixing) -> int:
    """Values of a key that pass through the convolution: all, or none for the selective rule."""
    return 0 if state.rule == "selective" else state.key_dim


class SequenceMemory(NamedTuple):
    """Memory of one sequence in the layers of one kind.

    Attributes:
        layer: the kind.
        kv, scores: values a position, and those of an indexer's key. [1]
        state, conv: values whatever its length. [1]
        reach: how many positions are kept.
        indexed: how many are scored.
    """

    layer: LayerGroup
    kv: int
    scores: int
    state: int
    conv: int
    reach: AttentionReach
    indexed: AttentionReach

    def kept(self, positions: Any) -> tuple[Any, Any]:
        """Positions in a sequence's KV cache, and in its indexer's cache."""
        return self.reach.kept(positions), self.indexed.kept(positions)


def sequence_memory(model: Model) -> tuple[SequenceMemory, ...]:
    """Memory of one sequence for each layer kind of a model."""
    return tuple(
        SequenceMemory(
            layer,
            kv_values_per_token(layer.of),
            index_values_per_token(layer.of),
            state_values_per_sequence(layer.of),
            conv_values_per_sequence(layer.of),
            attention_reach(layer.of),
            indexer_reach(layer.of),
        )
        for layer in layers(model).mixings
    )


def kv_values_all_layers(model: Model) -> int:
    """Values cached per position, over all layers. [1]"""
    return sum(of.layer.times * (of.kv + of.scores) for of in sequence_memory(model))


def growing_values_per_token(model: Model) -> float:
    """Values that each further token adds to the caches of a long sequence, over all layers. [1]"""
    return growing_bytes_per_token(model, 1.0, 1.0)


def growing_bytes_per_token(model: Model, itemsize: float, indexed: float) -> float:
    """Bytes that each further token adds to the caches of a long sequence, over all layers. [B]"""
    some = sequence_memory(model)
    return sum(of.layer.times * (of.kv * of.reach.grows * itemsize + of.scores * of.indexed.grows * indexed) for of in some)


class CacheGrowth(NamedTuple):
    """Growth of a sequence's caches per token, and the length up to which the growth holds.

    Attributes:
        nbytes: of all layers. [B]
        until: tokens up to which they grow so; None where they do so without end.
    """

    nbytes: float
    until: int | None = None


def cache_growth(model: Model, itemsize: float, indexed: float) -> CacheGrowth:
    """Growth of a sequence's caches per token: without end, or until the first window is full. [B]"""
    without_end = growing_bytes_per_token(model, itemsize, indexed)
    caching = [of for of in sequence_memory(model) if of.kv or of.scores]
    if without_end or not caching:
        return CacheGrowth(without_end)
    until = min(of.reach.window or of.reach.chunk for of in caching)
    return CacheGrowth(sum(of.layer.times * (of.kv * itemsize + of.scores * indexed) for of in caching), until)


def window_values(model: Model) -> int:
    """Cached values of windows and chunks of a sequence that exceeds them, over all layers. [1]"""
    return sum(of.layer.times * of.kv * (of.reach.window or of.reach.chunk) for of in sequence_memory(model))


def cached_values_at(model: Model, positions: Any) -> Any:
    """Cached values of a sequence of some positions, over all layers, without recurrent states. [1]"""
    total: Any = 0.0
    for of in sequence_memory(model):
        total = total + of.layer.times * (of.kv * of.reach.kept(positions) + of.scores * of.indexed.kept(positions))
    return total


def fixed_bytes_per_sequence(model: Model, itemsize: float) -> float:
    """Bytes of a sequence's recurrent states, over all layers. [B]"""
    return sum(of.layer.times * (of.state * STATE_BYTES + of.conv * itemsize) for of in sequence_memory(model))
