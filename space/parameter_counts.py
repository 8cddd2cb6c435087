"""Parameter counts and cached values per sequence, from the layers of a model."""

from dataclasses import replace
from typing import Any, NamedTuple

from dse.space.layers import ATTENTION, MOE, AttentionReach, LayerGroup, attention_reach, indexer_reach, layers
from dse.space.model import ExpertLayers, LayerOperator, Model, RecurrentMixing

STATE_BYTES = 4.0
"""Of a value of a recurrent state, which is kept in single precision [yang2024] [dao2024]. [B]"""


def parameter_count(model: Model) -> int:
    """Weights of the whole model, with embeddings and head, without multi-token heads."""
    return _outside_layers(model) + _in_layers(model, active=False)


def active_parameter_count(model: Model) -> int:
    """Weights that one token uses: all but those of experts to which the token is not routed."""
    return _outside_layers(model) + _in_layers(model, active=True)


def _in_layers(model: Model, *, active: bool) -> int:
    found_layers = layers(model)
    mixing = sum(
        layer.times * (mixing_parameter_count(layer.of, active=active) + norms_of_half_layer(layer.of))
        for layer in found_layers.mixings
    )
    return mixing + sum(
        layer.times * feeding_parameter_count(layer.name, layer.of, active=active) for layer in found_layers.ffns
    )


def mtp_parameter_count(model: Model) -> int:
    """Weights of one multi-token prediction module [deepseek2024].

    The module has a layer like the last, the projection of two hidden states, and norms. Embedding and head are
    those of the model.
    """
    mixing, ffn = mtp_layers(model)
    layer = mixing_parameter_count(mixing.of) + norms_of_half_layer(mixing.of) + feeding_parameter_count(ffn.name, ffn.of)
    return layer + 2 * model.hidden * model.hidden + 3 * norm_values(model)


def mtp_layers(model: Model) -> tuple[LayerGroup, LayerGroup]:
    """Mixing and FFN of a multi-token prediction module: the model's last attention and last FFN."""
    found_layers = layers(model)
    mixes = [name for name, _ in found_layers.line if name]
    attends = [layer for layer in found_layers.mixings if layer.of.recurrence is None]
    mixing = attends[-1] if attends else next(layer for layer in found_layers.mixings if layer.name == mixes[-1])
    feeds = [name for _, name in found_layers.line if name]
    return mixing, next(layer for layer in found_layers.ffns if layer.name == feeds[-1])


def mixing_parameter_count(model: Model, *, active: bool = False) -> int:
    """Weights of one layer's mixing of tokens, with biases and inner norms.

    Args:
        model: a model all of whose layers are of one kind.
        active: whether only those matrices count to which a token is routed, of operators of a graph.
    """
    if model.operators:
        return sum(operator_values(each, active=active) for _, each in model.operators) - norms_of_half_layer(model)
    if model.recurrence is not None:
        return _recurrent(model, model.recurrence)
    h, heads, latent = model.hidden, model.heads, model.latent
    gates = {"none": 0, "element": heads * value_head_dim(model), "head": heads}[model.gate]
    extra = h * gates + model.sinks * heads + _indexing(model) + _compressing(model)
    if model.compressed is not None:
        row, rank = model.head_dim, model.compressed.o_rank * model.compressed.groups
        query = _low_rank_query(model, heads * row)
        return query + h * row + row + heads * row * model.compressed.o_rank + rank * h + extra
    if latent is not None:
        qk = latent.nope_dim + latent.rope_dim
        down = h * (latent.kv_rank + latent.rope_dim) + latent.kv_rank
        up = latent.kv_rank * heads * (latent.nope_dim + latent.v_dim)
        return _low_rank_query(model, heads * qk) + down + up + heads * latent.v_dim * h + extra
    q, k, v = heads * model.head_dim, model.kv_heads * model.head_dim, model.kv_heads * value_head_dim(model)
    own_k, own_v = 0 if model.kv_reused else k, v if model.v_proj and not model.kv_reused else 0
    weights = h * (q + own_k + own_v) + heads * value_head_dim(model) * h
    norms = model.qk_norm * (model.head_dim + (0 if model.kv_reused else model.head_dim))
    return weights + model.qkv_bias * (q + own_k + own_v) + model.out_bias * h + norms + extra


def operator_values(operator: LayerOperator, *, active: bool = False) -> int:
    """Weights of an operator that a graph describes; with `active` those that one token uses."""
    matrices = operator.chosen if active and operator.chosen else operator.matrices
    products = matrices * operator.inputs * operator.outputs if operator.kind == "product" else 0
    return products + operator.values


def value_head_dim(model: Model) -> int:
    """Dimension of the values of one attention head."""
    return model.latent.v_dim if model.latent is not None else model.v_dim or model.head_dim


def _low_rank_query(model: Model, width: int) -> int:
    rank = query_rank(model)
    return model.hidden * rank + rank + rank * width if rank else model.hidden * width


def query_rank(model: Model) -> int:
    """Rank of the query projection; 0 for a full projection."""
    low = model.compressed if model.compressed is not None else model.latent
    return 0 if low is None else low.q_rank


def _indexing(model: Model) -> int:
    """Projections of an indexer: its queries from those of latent attention, one key, and the weight of each of its heads."""
    index = model.indexer
    if index is None or index.reused:
        return 0
    rank = query_rank(model) or model.hidden
    if index.block > 1:
        return model.hidden * index.dim * (index.heads + 1)
    key = model.hidden * index.dim if model.compressed is None else 0  # else keys are those of compressed entries
    return rank * index.heads * index.dim + key + model.hidden * index.heads + 2 * index.dim


def _compressing(model: Model) -> int:
    """Projections that make one entry of some positions: twice as wide where entries overlap, as those that are picked do."""
    if model.compressed is None or not model.compressed.ratio:
        return 0
    wide = 2 if model.indexer is not None else 1
    own = wide * 2 * model.hidden * model.head_dim
    return own + (wide * 2 * model.hidden * model.indexer.dim if model.indexer is not None else 0)


def _recurrent(model: Model, state: RecurrentMixing) -> int:
    h, keys, values = model.hidden, state.key_heads * state.key_dim, state.heads * state.value_dim
    if state.rule == "selective":
        return _selective(model, state, values)
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


def _selective(model: Model, state: RecurrentMixing, values: int) -> int:
    """Of Mamba-1: inputs, gates and outputs, the convolution, B, C and steps of what leaves it, their norms, A and D."""
    inner = 2 * state.key_dim + state.gate_rank
    weights = 3 * model.hidden * values + values * (state.conv + state.conv_bias) + values * (inner + state.gate_rank + 1)
    return weights + model.qk_norm * inner + values * (state.key_dim + 1)


def ffn_parameter_count(model: Model, width: int, hidden: int = 0) -> int:
    """Weights of one FFN, dense or expert, of a width; `hidden` 0 means the model's width."""
    inner, h = 2 if model.gated_ffn else 1, hidden or model.hidden
    return (inner + 1) * h * width + ffn_bias_values(model, width, hidden)


def ffn_bias_values(model: Model, width: int, hidden: int = 0) -> int:
    """Biases of one FFN, dense or expert, of a width; `hidden` 0 means the model's width."""
    return model.ffn_bias * ((2 if model.gated_ffn else 1) * width + (hidden or model.hidden))


def feeding_parameter_count(name: str, model: Model, *, active: bool = False) -> int:
    """Weights of one layer's FFN or experts with its norms, given the name of its kind.

    Args:
        name, model: of a kind of layers, all of which are alike.
        active: whether only those experts count to which a token is routed.
    """
    experts, norms = model.experts, norms_before_feeding(model)
    if not name.startswith(MOE) or experts is None:
        return norms + ffn_parameter_count(model, model.ffn_intermediate)
    routed = experts.top_k if active else experts.count
    router = experts.count * (model.hidden + experts.score_bias + experts.route_bias)
    shared = experts.shared * ffn_parameter_count(model, shared_expert_width(experts)) + experts.shared_gate * model.hidden
    around = 2 * model.hidden * experts.latent
    return norms + router + routed * ffn_parameter_count(model, experts.intermediate, experts.latent) + shared + around


def shared_expert_width(experts: ExpertLayers) -> int:
    """Intermediate width of one shared expert."""
    return experts.shared_intermediate or experts.intermediate


def expert_input_width(model: Model) -> int:
    """Values per token that are sent to an expert."""
    return model.experts.latent or model.hidden if model.experts is not None else model.hidden


def norm_values(model: Model) -> int:
    """Weights of one norm of hidden vectors."""
    return model.hidden * (2 if model.norm == "layernorm" else 1)


def norms_of_half_layer(model: Model) -> int:
    """Weights of the norms of one half of a layer; of a described layer, of its undivided norms."""
    if model.operators:
        return sum(each.values for _, each in model.operators if each.kind == "norm" and each.divided == "none")
    return norm_values(model) * (2 if model.post_norms else 1)


def norms_before_feeding(model: Model) -> int:
    """Weights of the norms of an FFN; 0 where it shares those of attention."""
    return 0 if model.parallel else norms_of_half_layer(model)


def head_bias_values(model: Model) -> int:
    """Number of biases of a model's head."""
    return model.head_bias * model.vocab


def _outside_layers(model: Model) -> int:
    tables = model.vocab * model.hidden * (1 if model.tied_embeddings else 2)
    return tables + position_values(model) + head_bias_values(model) + norm_values(model)


def position_values(model: Model) -> int:
    """Weights of a learned table of positions."""
    return model.learned_positions * model.hidden


def kv_values_per_token(model: Model) -> int:
    """Values cached per position in one layer: K and V of every KV head, or the latent of MLA."""
    if model.operators:
        return sum(kv_values_per_token(each) for each in attention_models(model))
    if model.recurrence is not None or model.kv_reused:
        return 0
    if model.compressed is not None:
        return model.head_dim
    if model.latent is not None:
        return model.latent.kv_rank + model.latent.rope_dim
    return model.kv_heads * (model.head_dim + value_head_dim(model))


def attention_models(model: Model) -> tuple[Model, ...]:
    """Plain models of each KV cache of a layer that a graph describes."""
    return tuple(
        replace(
            model, operators=(), latent=None, indexer=None, recurrence=None, compressed=None, kv_reused=False, chunk=0,
            heads=each.heads, kv_heads=each.kv_heads, head_dim=each.qk_dim, v_dim=each.v_dim, window=each.window,
        )
        for _, each in model.operators
        if each.kind == ATTENTION and each.cached
    )  # fmt: skip


def index_values_per_token(model: Model) -> int:
    """Values of an indexer key cached per position in one layer."""
    return 0 if model.indexer is None or model.indexer.reused or model.recurrence is not None else model.indexer.dim


def state_values_per_sequence(model: Model) -> int:
    """Values of a sequence's recurrent state in one layer."""
    state = model.recurrence
    return 0 if state is None else state.heads * state.key_dim * state.value_dim


def conv_values_per_sequence(model: Model) -> int:
    """Values of earlier tokens that a convolution keeps per sequence in one layer."""
    state = model.recurrence
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

    def kept_positions(self, positions: Any) -> tuple[Any, Any]:
        """Positions in a sequence's KV cache, and in its indexer's cache."""
        return self.reach.kept_positions(positions), self.indexed.kept_positions(positions)


def sequence_memory(model: Model) -> tuple[SequenceMemory, ...]:
    """Memory of one sequence for each layer kind, and for each cache of described layers."""
    found_layers = layers(model)
    caches = (cache for layer in found_layers.mixings for cache in _layer_caches(layer, found_layers.reaches))
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
        for layer in caches
    )


def _layer_caches(layer: LayerGroup, reaches: tuple[AttentionReach, ...]) -> tuple[LayerGroup, ...]:
    """The layer kind itself, or one of plain attention for each cache of a kind that a graph describes."""
    if not layer.of.operators:
        return (layer,)
    return tuple(
        layer._replace(of=each, reach=reaches.index(attention_reach(each)), indexed=0) for each in attention_models(layer.of)
    )


def kv_values_all_layers(model: Model) -> int:
    """Values cached per position, over all layers. [1]"""
    return sum(memory.layer.times * (memory.kv + memory.scores) for memory in sequence_memory(model))


def growing_values_per_token(model: Model) -> float:
    """Values that each further token adds to the caches of a long sequence, over all layers. [1]"""
    return growing_bytes_per_token(model, 1.0, 1.0)


def growing_bytes_per_token(model: Model, itemsize: float, indexed: float) -> float:
    """Bytes that each further token adds to the caches of a long sequence, over all layers. [B]"""
    memory = sequence_memory(model)
    return sum(
        memory.layer.times * (memory.kv * memory.reach.grows * itemsize + memory.scores * memory.indexed.grows * indexed)
        for memory in memory
    )


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
    caching = [memory for memory in sequence_memory(model) if memory.kv or memory.scores]
    if without_end or not caching:
        return CacheGrowth(without_end)
    until = min(memory.reach.window or memory.reach.chunk for memory in caching)
    return CacheGrowth(sum(memory.layer.times * (memory.kv * itemsize + memory.scores * indexed) for memory in caching), until)


def window_values(model: Model) -> int:
    """Cached values of windows and chunks of a sequence that exceeds them, over all layers. [1]"""
    return sum(
        memory.layer.times * memory.kv * (memory.reach.window or memory.reach.chunk) for memory in sequence_memory(model)
    )


def cached_values_at(model: Model, positions: Any) -> Any:
    """Cached values of a sequence of some positions, over all layers, without recurrent states. [1]"""
    total: Any = 0.0
    for memory in sequence_memory(model):
        total = total + memory.layer.times * (
            memory.kv * memory.reach.kept_positions(positions) + memory.scores * memory.indexed.kept_positions(positions)
        )
    return total


def fixed_bytes_per_sequence(model: Model, itemsize: float) -> float:
    """Bytes of a sequence's recurrent states, over all layers. [B]"""
    return sum(memory.layer.times * (memory.state * STATE_BYTES + memory.conv * itemsize) for memory in sequence_memory(model))


def keeps_all_positions(model: Model) -> bool:
    """Whether every layer keeps keys and values of all positions: no windows, chunks or states."""
    return not fixed_bytes_per_sequence(model, 1.0) and not any(reach.window or reach.chunk for reach in layers(model).reaches)
