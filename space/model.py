"""Decoder-only language models as their published configurations state them: what layers are, and in which order."""

from typing import Any

from dse.space.fields import (
    boolean_field,
    integer_field,
    option_field,
    quantity_field,
    record_class,
    refused_field,
    table_field,
)

EXPERT_LOADS = ("expected", "even", "sampled", "file")
"""How tokens spread over experts: what independent choices come to on average; as evenly as can be; one draw of them; or as
often as a file says (`Experts.shares`)."""


@record_class
class ExpertLayers:
    """Mixture-of-experts layers."""

    count: int = integer_field("routed experts in a layer")
    top_k: int = integer_field("experts that each token goes to")
    intermediate: int = integer_field("width of one expert")
    shared: int = integer_field("experts that every token goes to", low=0, default=0)
    dense_layers: int = integer_field("first layers with a dense FFN instead", low=0, default=0)
    score_bias: bool = boolean_field("a learned bias is added to the router's scores", default=False)
    skew: float = quantity_field("1", "exponent of Zipf's law by which tokens choose experts; 0 for evenly", default=0.0)
    load: str = option_field("how tokens spread over experts: expected, even or sampled", EXPERT_LOADS, default="expected")
    seed: int = integer_field("of sampled choices", low=0, default=0)
    shares: Any = refused_field(
        "how often experts are chosen is in a file: workload.expert_load=FILE, with layer, expert and tokens"
    )
    groups: int = integer_field("groups of experts that a router chooses among first", default=1)
    groups_kept: int = integer_field("of these, how many the experts of a token are in", default=1)
    shared_intermediate: int = integer_field("width of one shared expert; 0 for that of a routed one", low=0, default=0)
    shared_gate: bool = boolean_field("a learned score of each token scales the shared experts", default=False)
    latent: int = integer_field(
        "width that routed experts have in and out, between two projections; 0 for hidden", low=0, default=0
    )
    route_bias: bool = boolean_field("biases on the router's product", default=False)


@record_class
class LatentAttention:
    """Multi-head latent attention (MLA): queries and keys/values through low-rank projections."""

    q_rank: int = integer_field("rank of the query projection; 0 where it is full", low=0)
    kv_rank: int = integer_field("rank of the shared key/value projection, which is what is cached")
    nope_dim: int = integer_field("query/key dimension without rotation")
    rope_dim: int = integer_field("rotated query/key dimension, shared by the heads", low=0)
    v_dim: int = integer_field("value dimension")


@record_class
class SparseIndexer:
    """Sparse attention: small heads score all cached positions, and attention looks at the best of them alone.

    Source:
        DeepSeek sparse attention [deepseekai2025]; with `block`, the best blocks of positions.
    """

    heads: int = integer_field("heads that score, over one key a position")
    dim: int = integer_field("dimension of these")
    top: int = integer_field("positions that a query attends to, at most")
    block: int = integer_field("positions side by side that are chosen together; 1 for one by one", default=1)
    reused: bool = boolean_field("what a layer before has chosen is taken, and nothing is scored", default=False)


RECURRENCE_RULES = ("delta", "channel_delta", "ssd", "linear", "selective")
"""How a state forgets and learns: gated delta rule, decay a head (Gated DeltaNet) or a key channel (KDA); decay that depends on
the token (Mamba-2), is fixed a head (lightning attention), or depends on the token in each entry of a state (Mamba-1)."""


@record_class
class RecurrentMixing:
    """Mixing by a state of fixed size a sequence, of `heads` matrices [key_dim, value_dim], in the place of a cache.

    Source:
        delta: Gated DeltaNet [yang2024]; channel_delta: Kimi Linear [kimi2025]; ssd: Mamba-2 [dao2024]; linear: lightning
        attention [qin2024]; selective: Mamba-1 [gu2023], whose inputs of width heads x value_dim have one B and C of key_dim
        each, and steps of rank gate_rank; only they pass through the convolution.
    """

    rule: str = option_field("how states forget and learn", RECURRENCE_RULES)
    heads: int = integer_field("of values; each has a state")
    key_heads: int = integer_field("of queries and keys, each shared by as many heads of values (groups)")
    key_dim: int = integer_field("dimension of queries and keys, rows of a state")
    value_dim: int = integer_field("dimension of values, columns of a state")
    conv: int = integer_field("tokens that a causal convolution of queries, keys and values sees; 0 for none", low=0, default=0)
    conv_bias: bool = boolean_field("biases on the convolution", default=False)
    gate_rank: int = integer_field(
        "rank of the projections of decays and of the output gate; 0 where they are full", low=0, default=0
    )
    full_gate: bool = boolean_field("the output gate is full beside decays of gate_rank", default=False)
    chunk: int = integer_field("tokens of a prompt that are worked out together", default=64)


@record_class
class CompressedAttention:
    """Attention to the last tokens one by one, and to earlier ones of which some side by side are one entry (CSA, HCA).

    Keys and gates that wait until their entry is full, of at most two entries a layer, are in no count of memory.

    Source:
        DeepSeek-V4, as its published code has it.
    """

    ratio: int = integer_field("positions of one entry; 0 for the window alone", low=0)
    q_rank: int = integer_field("rank of the query projection; 0 where it is full", low=0)
    o_rank: int = integer_field("rank of the output projection of a group of heads")
    groups: int = integer_field("groups of heads of the output projection")


MIXINGS = ("attention", "none")
FFNS = ("dense", "experts", "none")
GATES = ("none", "element", "head")
"""What scales the output of attention: nothing, a gate of each value, or one of each head."""


@record_class
class LayerKind:
    """What one kind of layers has that the model does not say; a field that is left out is the model's."""

    mixing: Any = option_field(
        "how tokens are mixed: attention, or none; a state where one is said", MIXINGS, default=None, absent=True
    )
    ffn: Any = option_field("dense, experts, or none", FFNS, default=None, absent=True)
    heads: Any = integer_field("query heads", default=None, absent=True)
    kv_heads: Any = integer_field("key/value heads", default=None, absent=True)
    head_dim: Any = integer_field("query/key dimension of a head", default=None, absent=True)
    v_dim: Any = integer_field("value dimension of a head", low=0, default=None, absent=True)
    window: Any = integer_field(
        "sliding attention window in tokens; 0 where attention is full", low=0, default=None, absent=True
    )
    chunk: Any = integer_field("tokens of a chunk that attention stays in; 0 for no chunks", low=0, default=None, absent=True)
    rope: Any = quantity_field("1", "share of a head's dimension that is rotated", high=1.0, default=None, absent=True)
    qk_norm: Any = boolean_field("norms on queries and keys of each head", default=None, absent=True)
    sinks: Any = boolean_field("a learned logit a head joins the softmax", default=None, absent=True)
    v_proj: Any = boolean_field("a projection of values; keys are values where there is none", default=None, absent=True)
    kv_reused: Any = boolean_field("keys and values are those of a layer before", default=None, absent=True)
    ffn_intermediate: Any = integer_field("width of the dense FFN", default=None, absent=True)
    latent: LatentAttention | None = None
    indexer: SparseIndexer | None = None
    recurrence: RecurrentMixing | None = None
    compressed: CompressedAttention | None = None


@record_class
class Model:
    """An LLM architecture.

    Layers are alike, but for the first ones that `experts` says are dense, or they are of some `kinds` in an `order`:
    ``10 (5 local, global), 2 local``.
    """

    name: str = option_field("name for people")
    layers: int = integer_field("decoder layers")
    hidden: int = integer_field("width of the residual stream")
    heads: int = integer_field("query heads")
    kv_heads: int = integer_field("key/value heads; fewer than heads is GQA, 1 is MQA")
    head_dim: int = integer_field("query/key dimension of a head")
    ffn_intermediate: int = integer_field("width of the dense FFN")
    vocab: int = integer_field("tokens in the vocabulary")
    max_position: int = integer_field("longest sequence the model was trained for")
    learned_positions: int = integer_field("rows of a learned table of positions; 0 for none", low=0, default=0)
    gated_ffn: bool = boolean_field("the FFN has a gate beside the up projection", default=True)
    tied_embeddings: bool = boolean_field("the head reuses the embedding table", default=False)
    qkv_bias: bool = boolean_field("biases on the query, key and value projections", default=False)
    out_bias: bool = boolean_field("bias on the output projection", default=False)
    ffn_bias: bool = boolean_field("biases in the FFN", default=False)
    head_bias: bool = boolean_field("bias on the head", default=False)
    qk_norm: bool = boolean_field("norms on queries and keys of each head", default=False)
    norm: str = option_field("kind of norm", ("rms", "layernorm"), default="rms")
    post_norms: bool = boolean_field("norms after attention and FFN too, before the residual sum", default=False)
    window: int = integer_field("sliding attention window in tokens; 0 where attention is full", low=0, default=0)
    chunk: int = integer_field("tokens of a chunk that attention stays in; 0 for no chunks", low=0, default=0)
    mtp: int = integer_field("modules that predict tokens beyond the next (MTP), each a layer of its own", low=0, default=0)
    v_dim: int = integer_field("value dimension of a head; 0 for head_dim", low=0, default=0)
    rope: float = quantity_field("1", "share of a head's dimension that is rotated", high=1.0, default=1.0)
    v_proj: bool = boolean_field("a projection of values; keys are values where there is none", default=True)
    sinks: bool = boolean_field("a learned logit a head joins the softmax", default=False)
    gate: str = option_field("what scales the output of attention", GATES, default="none")
    kv_reused: bool = boolean_field("keys and values are those of a layer before", default=False)
    softcap: bool = boolean_field("scores of attention go through a tanh", default=False)
    head_softcap: bool = boolean_field("scores of the head go through a tanh", default=False)
    parallel: bool = boolean_field("attention and FFN have one input and one norm, side by side", default=False)
    experts: ExpertLayers | None = None
    latent: LatentAttention | None = None
    indexer: SparseIndexer | None = None
    recurrence: RecurrentMixing | None = None
    compressed: CompressedAttention | None = None
    order: str = option_field("kinds of layers in turn, as in 10 (5 local, global), 2 local", default="")
    kinds: tuple[tuple[str, LayerKind], ...] = table_field("kinds of layers by name", LayerKind)
