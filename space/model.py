"""Decoder-only language models as in their published configurations: layers, kinds and order."""

from typing import Any

from dse.space.fields import (
    boolean_field,
    integer_field,
    list_field,
    option_field,
    quantity_field,
    record_class,
    refused_field,
    table_field,
    text_field,
)

MAX_LAYERS = 10_000
"""Of a model at most; those of today have some hundred, and each takes time to describe."""

EXPERT_LOADS = ("expected", "even", "sampled", "file")
"""Expert loads: mean of independent choices; as even as possible; one random draw; or as counted in a file
(`ExpertLayers.shares`).
"""


@record_class
class ExpertLayers:
    """Mixture-of-experts layers: experts, routing, widths and loads."""

    count: int = integer_field("routed experts in a layer")
    top_k: int = integer_field("experts that each token goes to")
    intermediate: int = integer_field("width of one expert")
    shared: int = integer_field("experts that every token goes to", low=0, default=0)
    dense_layers: int = integer_field("first layers with a dense FFN instead", low=0, default=0)
    score_bias: bool = boolean_field("a learned bias is added to the router's scores", default=False)
    skew: float = quantity_field("1", "exponent of Zipf's law by which tokens choose experts; 0 for uniform", default=0.0)
    load: str = option_field("expert load: expected, even or sampled", EXPERT_LOADS, default="expected")
    seed: int = integer_field("of sampled choices", low=0, default=0)
    shares: Any = refused_field("expert loads from a file: workload.expert_load=FILE, with layer, expert and tokens")
    groups: int = integer_field("groups of experts among which a router chooses first", default=1)
    groups_kept: int = integer_field("groups that the experts of a token may be in", default=1)
    shared_intermediate: int = integer_field("width of one shared expert; 0 for that of a routed one", low=0, default=0)
    shared_gate: bool = boolean_field("a learned score of each token scales the shared experts", default=False)
    latent: int = integer_field(
        "input and output width of routed experts, between two projections; 0 for hidden", low=0, default=0
    )
    route_bias: bool = boolean_field("biases on the router's product", default=False)


@record_class
class LatentAttention:
    """Multi-head latent attention (MLA): queries and keys/values through low-rank projections."""

    q_rank: int = integer_field("rank of the query projection; 0 for a full one", low=0)
    kv_rank: int = integer_field("rank of the shared key/value projection, which is cached")
    nope_dim: int = integer_field("query/key dimension without rotation")
    rope_dim: int = integer_field("rotated query/key dimension, shared by the heads", low=0)
    v_dim: int = integer_field("value dimension")


@record_class
class SparseIndexer:
    """Sparse attention: small heads score all cached positions, and attention reads the best ones only.

    Source:
        DeepSeek sparse attention [deepseekai2025]; with `block`, the best blocks of positions.
    """

    heads: int = integer_field("scoring heads, over one key per position")
    dim: int = integer_field("dimension of these")
    top: int = integer_field("positions that a query attends to, at most")
    block: int = integer_field("consecutive positions that are chosen together; 1 for single ones", default=1)
    reused: bool = boolean_field("the choice of an earlier layer is reused, and nothing is scored", default=False)


RECURRENCE_RULES = ("delta", "channel_delta", "ssd", "linear", "selective")
"""How a state forgets and learns: gated delta rule, decay a head (Gated DeltaNet) or a key channel (KDA); decay that depends on
the token (Mamba-2), is fixed a head (lightning attention), or depends on the token in each entry of a state (Mamba-1)."""


@record_class
class RecurrentMixing:
    """Token mixing by a fixed-size state per sequence, `heads` matrices [key_dim, value_dim], not a cache.

    Source:
        delta: Gated DeltaNet [yang2024]; channel_delta: Kimi Linear [kimi2025]; ssd: Mamba-2 [dao2024]; linear: lightning
        attention [qin2024]; selective: Mamba-1 [gu2023], whose inputs of width heads x value_dim have one B and C of key_dim
        each, and steps of rank gate_rank; only they pass through the convolution.
    """

    rule: str = option_field("recurrence rule: how states forget and learn", RECURRENCE_RULES)
    heads: int = integer_field("value heads; each has a state")
    key_heads: int = integer_field("heads of queries and keys, each shared by as many value heads (groups)")
    key_dim: int = integer_field("dimension of queries and keys, rows of a state")
    value_dim: int = integer_field("dimension of values, columns of a state")
    conv: int = integer_field("tokens of a causal convolution of queries, keys and values; 0 for none", low=0, default=0)
    conv_bias: bool = boolean_field("biases on the convolution", default=False)
    gate_rank: int = integer_field(
        "rank of the projections of decays and of the output gate; 0 for full ones", low=0, default=0
    )
    full_gate: bool = boolean_field("the output gate is full even if decays have gate_rank", default=False)
    chunk: int = integer_field("tokens of a prompt that are computed together", default=64)


@record_class
class CompressedAttention:
    """Attention to the last tokens singly, and to earlier ones compressed to one entry per few (CSA, HCA).

    Keys and gates that wait until their entry is full, of at most two entries a layer, are in no count of memory.

    Source:
        DeepSeek-V4, as its published code has it.
    """

    ratio: int = integer_field("positions per compressed entry; 0 for the window only", low=0)
    q_rank: int = integer_field("rank of the query projection; 0 for a full one", low=0)
    o_rank: int = integer_field("rank of the output projection of a group of heads")
    groups: int = integer_field("groups of heads of the output projection")


OPERATOR_KINDS = ("product", "attention", "norm", "elements")
OPERATOR_UNITS = ("token", "sequence", "pair", "step")
"""What an operator of a graph runs for: each token, each sequence, each query-key pair, or once in a step."""
DIVISIONS = ("none", "inputs", "outputs")


@record_class
class LayerOperator:
    """Operator of a layer that a graph describes: a product, attention, a norm, or elements.

    Sizes are those for one token, sequence or query-key pair (`per`). Layouts of devices divide `inputs` or `outputs` by whole
    groups, as heads are.
    """

    kind: str = option_field("kind of operator", OPERATOR_KINDS)
    needs: tuple[str, ...] = list_field(
        "operators of the layer whose results it takes",
        text_field("name of an operator"),
        "a list of names",
        empty=True,
        default=(),
    )
    per: str = option_field("what it runs for", OPERATOR_UNITS, default="token")
    rows: float = quantity_field("1", "rows of a product, a norm or elements, for each of these", positive=True, default=1.0)
    inputs: int = integer_field("values that a product sums over", default=1)
    input_groups: int = integer_field("groups of these that devices do not divide", default=1)
    outputs: int = integer_field("columns of a product, a norm or elements", default=1)
    output_groups: int = integer_field("groups of these that devices do not divide", default=1)
    divided: str = option_field("what devices divide of it", DIVISIONS, default="none")
    matrices: int = integer_field("stored weight matrices of a product; 0 for two activations", low=0, default=1)
    chosen: int = integer_field("matrices that each token goes to, as experts; 0 for all", low=0, default=0)
    apart: int = integer_field("parts of a matrix with rows of their own, as those of heads", default=1)
    heads: int = integer_field("query heads of attention", default=1)
    kv_heads: int = integer_field("key/value heads of attention", default=1)
    qk_dim: int = integer_field("query/key dimension of a head", default=1)
    v_dim: int = integer_field("value dimension of a head", default=1)
    window: int = integer_field("sliding attention window in tokens; 0 for full attention", low=0, default=0)
    cached: bool = boolean_field("attention has a KV cache of its own; another one reads an earlier cache", default=True)
    operations: float = quantity_field("1", "vector operations on each element", default=0.0)
    passes: int = integer_field("reads and writes of each element", low=0, default=0)
    values: int = integer_field("weights that no product multiplies by, as of norms and biases", low=0, default=0)


MIXINGS = ("attention", "none")
FFNS = ("dense", "experts", "none")
GATES = ("none", "element", "head")
"""What scales the output of attention: nothing, a gate of each value, or one of each head."""


@record_class
class LayerKind:
    """Fields in which one layer kind differs from the model; fields that are left out are the model's."""

    mixing: Any = option_field(
        "token mixing: attention, none, or a recurrent state where one is given", MIXINGS, default=None, absent=True
    )
    ffn: Any = option_field("dense, experts, or none", FFNS, default=None, absent=True)
    heads: Any = integer_field("query heads", default=None, absent=True)
    kv_heads: Any = integer_field("key/value heads", default=None, absent=True)
    head_dim: Any = integer_field("query/key dimension of a head", default=None, absent=True)
    v_dim: Any = integer_field("value dimension of a head", low=0, default=None, absent=True)
    window: Any = integer_field("sliding attention window in tokens; 0 for full attention", low=0, default=None, absent=True)
    chunk: Any = integer_field("tokens of a chunk that bounds attention; 0 for no chunks", low=0, default=None, absent=True)
    rope: Any = quantity_field("1", "share of a head's dimension that is rotated", high=1.0, default=None, absent=True)
    qk_norm: Any = boolean_field("norms on queries and keys of each head", default=None, absent=True)
    sinks: Any = boolean_field("a learned logit per head joins the softmax", default=None, absent=True)
    v_proj: Any = boolean_field("a projection of values; without it keys are values", default=None, absent=True)
    kv_reused: Any = boolean_field("keys and values of an earlier layer are reused", default=None, absent=True)
    ffn_intermediate: Any = integer_field("width of the dense FFN", default=None, absent=True)
    latent: LatentAttention | None = None
    indexer: SparseIndexer | None = None
    recurrence: RecurrentMixing | None = None
    compressed: CompressedAttention | None = None
    operators: Any = table_field("operators of a mixing that a graph describes, by name", LayerOperator)


@record_class
class Model:
    """Architecture of a large language model: sizes, layer kinds and order.

    Layers are equal, except the first ones that `experts` makes dense, or they have `kinds` in an `order`: ``10 (5
    local, global), 2 local``.
    """

    name: str = option_field("name for people")
    layers: int = integer_field("decoder layers", high=MAX_LAYERS)
    hidden: int = integer_field("width of the residual stream")
    heads: int = integer_field("query heads")
    kv_heads: int = integer_field("key/value heads; fewer than heads is GQA, 1 is MQA")
    head_dim: int = integer_field("query/key dimension of a head")
    ffn_intermediate: int = integer_field("width of the dense FFN")
    vocab: int = integer_field("tokens in the vocabulary")
    max_position: int = integer_field("longest sequence the model was trained for")
    learned_positions: int = integer_field("rows of a learned table of positions; 0 for none", low=0, default=0)
    gated_ffn: bool = boolean_field("the FFN has a gate besides the up projection", default=True)
    tied_embeddings: bool = boolean_field("the head reuses the embedding table", default=False)
    qkv_bias: bool = boolean_field("biases on the query, key and value projections", default=False)
    out_bias: bool = boolean_field("bias on the output projection", default=False)
    ffn_bias: bool = boolean_field("biases in the FFN", default=False)
    head_bias: bool = boolean_field("bias on the head", default=False)
    qk_norm: bool = boolean_field("norms on queries and keys of each head", default=False)
    norm: str = option_field("kind of norm", ("rms", "layernorm"), default="rms")
    post_norms: bool = boolean_field("norms also after attention and FFN, before the residual sum", default=False)
    window: int = integer_field("sliding attention window in tokens; 0 for full attention", low=0, default=0)
    chunk: int = integer_field("tokens of a chunk that bounds attention; 0 for no chunks", low=0, default=0)
    mtp: int = integer_field("multi-token prediction modules (MTP), each a layer of its own", low=0, high=MAX_LAYERS, default=0)
    v_dim: int = integer_field("value dimension of a head; 0 for head_dim", low=0, default=0)
    rope: float = quantity_field("1", "share of a head's dimension that is rotated", high=1.0, default=1.0)
    v_proj: bool = boolean_field("a projection of values; without it keys are values", default=True)
    sinks: bool = boolean_field("a learned logit per head joins the softmax", default=False)
    gate: str = option_field("gate that scales the output of attention", GATES, default="none")
    kv_reused: bool = boolean_field("keys and values of an earlier layer are reused", default=False)
    softcap: bool = boolean_field("attention scores pass through a tanh", default=False)
    head_softcap: bool = boolean_field("scores of the head pass through a tanh", default=False)
    parallel: bool = boolean_field("attention and FFN have one input and one norm, in parallel", default=False)
    experts: ExpertLayers | None = None
    latent: LatentAttention | None = None
    indexer: SparseIndexer | None = None
    recurrence: RecurrentMixing | None = None
    compressed: CompressedAttention | None = None
    order: str = option_field("layer kinds in order, as in 10 (5 local, global), 2 local", default="")
    kinds: tuple[tuple[str, LayerKind], ...] = table_field("layer kinds by name", LayerKind)
    operators: tuple[tuple[str, LayerOperator], ...] = table_field(
        "operators of all mixings that a graph describes, by name", LayerOperator
    )
