"""Decoder-only language models as their published configurations state them: what layers are, and in which order."""

from typing import Any

from dse.space.fields import flag, quantity, record, refused, table, whole, word

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
    shared_intermediate: int = whole("width of one shared expert; 0 for that of a routed one", low=0, default=0)
    shared_gate: bool = flag("a learned score of each token scales the shared experts", default=False)
    latent: int = whole("width that routed experts have in and out, between two projections; 0 for hidden", low=0, default=0)
    route_bias: bool = flag("biases on the router's product", default=False)


@record
class Latent:
    """Multi-head latent attention (MLA): queries and keys/values through low-rank projections."""

    q_rank: int = whole("rank of the query projection; 0 where it is full", low=0)
    kv_rank: int = whole("rank of the shared key/value projection, which is what is cached")
    nope_dim: int = whole("query/key dimension without rotation")
    rope_dim: int = whole("rotated query/key dimension, shared by the heads", low=0)
    v_dim: int = whole("value dimension")


@record
class Indexer:
    """Sparse attention: small heads score all cached positions, and attention looks at the best of them alone.

    Source:
        DeepSeek sparse attention [deepseekai2025]; with `block`, the best blocks of positions.
    """

    heads: int = whole("heads that score, over one key a position")
    dim: int = whole("dimension of these")
    top: int = whole("positions that a query attends to, at most")
    block: int = whole("positions side by side that are chosen together; 1 for one by one", default=1)
    reused: bool = flag("what a layer before has chosen is taken, and nothing is scored", default=False)


RULES = ("delta", "channel_delta", "ssd", "linear", "selective")
"""How a state forgets and learns: gated delta rule, decay a head (Gated DeltaNet) or a key channel (KDA); decay that depends on
the token (Mamba-2), is fixed a head (lightning attention), or depends on the token in each entry of a state (Mamba-1)."""


@record
class Recurrence:
    """Mixing by a state of fixed size a sequence, of `heads` matrices [key_dim, value_dim], in the place of a cache.

    Source:
        delta: Gated DeltaNet [yang2024]; channel_delta: Kimi Linear [kimi2025]; ssd: Mamba-2 [dao2024]; linear: lightning
        attention [qin2024]; selective: Mamba-1 [gu2023], whose inputs of width heads x value_dim have one B and C of key_dim
        each, and steps of rank gate_rank; only they pass through the convolution.
    """

    rule: str = word("how states forget and learn", RULES)
    heads: int = whole("of values; each has a state")
    key_heads: int = whole("of queries and keys, each shared by as many heads of values (groups)")
    key_dim: int = whole("dimension of queries and keys, rows of a state")
    value_dim: int = whole("dimension of values, columns of a state")
    conv: int = whole("tokens that a causal convolution of queries, keys and values sees; 0 for none", low=0, default=0)
    conv_bias: bool = flag("biases on the convolution", default=False)
    gate_rank: int = whole("rank of the projections of decays and of the output gate; 0 where they are full", low=0, default=0)
    full_gate: bool = flag("the output gate is full beside decays of gate_rank", default=False)
    chunk: int = whole("tokens of a prompt that are worked out together", default=64)


@record
class Compressed:
    """Attention to the last tokens one by one, and to earlier ones of which some side by side are one entry (CSA, HCA).

    Keys and gates that wait until their entry is full, of at most two entries a layer, are in no count of memory.

    Source:
        DeepSeek-V4, as its published code has it.
    """

    ratio: int = whole("positions of one entry; 0 for the window alone", low=0)
    q_rank: int = whole("rank of the query projection; 0 where it is full", low=0)
    o_rank: int = whole("rank of the output projection of a group of heads")
    groups: int = whole("groups of heads of the output projection")


MIXINGS = ("attention", "none")
FFNS = ("dense", "experts", "none")
GATES = ("none", "element", "head")
"""What scales the output of attention: nothing, a gate of each value, or one of each head."""


@record
class Kind:
    """What one kind of layers has that the model does not say; a field that is left out is the model's."""

    mixing: Any = word(
        "how tokens are mixed: attention, or none; a state where one is said", MIXINGS, default=None, absent=True
    )
    ffn: Any = word("dense, experts, or none", FFNS, default=None, absent=True)
    heads: Any = whole("query heads", default=None, absent=True)
    kv_heads: Any = whole("key/value heads", default=None, absent=True)
    head_dim: Any = whole("query/key dimension of a head", default=None, absent=True)
    v_dim: Any = whole("value dimension of a head", low=0, default=None, absent=True)
    window: Any = whole("sliding attention window in tokens; 0 where attention is full", low=0, default=None, absent=True)
    chunk: Any = whole("tokens of a chunk that attention stays in; 0 for no chunks", low=0, default=None, absent=True)
    rope: Any = quantity("1", "share of a head's dimension that is rotated", high=1.0, default=None, absent=True)
    qk_norm: Any = flag("norms on queries and keys of each head", default=None, absent=True)
    sinks: Any = flag("a learned logit a head joins the softmax", default=None, absent=True)
    v_proj: Any = flag("a projection of values; keys are values where there is none", default=None, absent=True)
    kv_reused: Any = flag("keys and values are those of a layer before", default=None, absent=True)
    ffn_intermediate: Any = whole("width of the dense FFN", default=None, absent=True)
    latent: Latent | None = None
    indexer: Indexer | None = None
    recurrence: Recurrence | None = None
    compressed: Compressed | None = None


@record
class Model:
    """An LLM architecture.

    Layers are alike, but for the first ones that `experts` says are dense, or they are of some `kinds` in an `order`:
    ``10 (5 local, global), 2 local``.
    """

    name: str = word("name for people")
    layers: int = whole("decoder layers")
    hidden: int = whole("width of the residual stream")
    heads: int = whole("query heads")
    kv_heads: int = whole("key/value heads; fewer than heads is GQA, 1 is MQA")
    head_dim: int = whole("query/key dimension of a head")
    ffn_intermediate: int = whole("width of the dense FFN")
    vocab: int = whole("tokens in the vocabulary")
    max_position: int = whole("longest sequence the model was trained for")
    learned_positions: int = whole("rows of a learned table of positions; 0 for none", low=0, default=0)
    gated_ffn: bool = flag("the FFN has a gate beside the up projection", default=True)
    tied_embeddings: bool = flag("the head reuses the embedding table", default=False)
    qkv_bias: bool = flag("biases on the query, key and value projections", default=False)
    out_bias: bool = flag("bias on the output projection", default=False)
    ffn_bias: bool = flag("biases in the FFN", default=False)
    head_bias: bool = flag("bias on the head", default=False)
    qk_norm: bool = flag("norms on queries and keys of each head", default=False)
    norm: str = word("kind of norm", ("rms", "layernorm"), default="rms")
    post_norms: bool = flag("norms after attention and FFN too, before the residual sum", default=False)
    window: int = whole("sliding attention window in tokens; 0 where attention is full", low=0, default=0)
    chunk: int = whole("tokens of a chunk that attention stays in; 0 for no chunks", low=0, default=0)
    mtp: int = whole("modules that predict tokens beyond the next (MTP), each a layer of its own", low=0, default=0)
    v_dim: int = whole("value dimension of a head; 0 for head_dim", low=0, default=0)
    rope: float = quantity("1", "share of a head's dimension that is rotated", high=1.0, default=1.0)
    v_proj: bool = flag("a projection of values; keys are values where there is none", default=True)
    sinks: bool = flag("a learned logit a head joins the softmax", default=False)
    gate: str = word("what scales the output of attention", GATES, default="none")
    kv_reused: bool = flag("keys and values are those of a layer before", default=False)
    softcap: bool = flag("scores of attention go through a tanh", default=False)
    head_softcap: bool = flag("scores of the head go through a tanh", default=False)
    parallel: bool = flag("attention and FFN have one input and one norm, side by side", default=False)
    experts: Experts | None = None
    latent: Latent | None = None
    indexer: Indexer | None = None
    recurrence: Recurrence | None = None
    compressed: Compressed | None = None
    order: str = word("kinds of layers in turn, as in 10 (5 local, global), 2 local", default="")
    kinds: tuple[tuple[str, Kind], ...] = table("kinds of layers by name", Kind)
