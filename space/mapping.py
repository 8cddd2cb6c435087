"""How a model runs on chips: parallelism, algorithms, prefetching and number formats.

Prefill and decode have each their own plan; where the same devices serve both, a limit holds the parallelism equal.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import integer_field, option_field, part_field, quantity_field, record_class, refused_field
from dse.space.number_formats import BYTES_BY_FORMAT as BYTES_BY_FORMAT
from dse.space.number_formats import formats_of_tensor, why_unfit
from dse.space.stack import Stack

PREFETCH = ("none", "whole", "partial")
"""What is prefetched during a collective (PRESERVE, algorithm 1): nothing; operators that fit the budget whole;
or also the part that still fits of the first one that does not."""


UNEVEN_KV_HEADS = ("round_up", "round_down")
"""KV heads that devices do not divide: some hold one more than others, their own or a copy of a neighbour's (10 heads on 8
devices: two), and all wait for these; or each holds as many as all can have, at least one, for all its query heads, and what is
left over is nobody's (one): software that divides whole numbers times such a model in the place of its own."""


ALONE_DEVICE = {"tp": (1,)}
"""A device that shares no layer with others has no collectives, nor reads anything ahead during them."""

NO_TREE = {"allreduce": ("ring", "bidirectional_ring", "full_mesh", "tree", "two_level", "library")}
"""Allreduces between devices that have no K phases."""


@record_class
class TensorParallelPlan:
    """The mapping of one phase."""

    tp: Number = integer_field("tensor parallelism: devices that share every layer")
    allreduce: str = option_field(
        "allreduce between devices: ring, bidirectional_ring, full_mesh, tree, ktree, two_level or library", unread=ALONE_DEVICE
    )
    ktree_k: Any = integer_field("phases of the K-tree (K); 2 where it is not said", absent=True, apart=True, unread=NO_TREE)
    prefetch: str = option_field("policy for weights and KV cache during collectives", PREFETCH, unread=ALONE_DEVICE)
    prefetch_share: Number = quantity_field(
        "1", "share of L2 for prefetched data, 0 to 1", high=1.0, unread={"prefetch": ("none",)}, former="prefetch_cap"
    )
    kv_heads: Any = option_field(
        "KV heads a device holds where they do not divide: round_up, or round_down",
        UNEVEN_KV_HEADS,
        absent=True,
        former_options={"more": "round_up", "fewer": "round_down"},
    )


def _format(doc: str, tensor: str, *, absent: bool = False) -> Any:
    return option_field(doc, formats_of_tensor(tensor), unfit=why_unfit(tensor), absent=absent)


@record_class
class FormatPlan:
    """Number formats."""

    weights: str = _format("format of weights", "weights")
    activations: str = _format("format of activations", "activations")
    kv: str = _format("format of the KV cache", "kv")
    experts: Any = _format("format of weights of experts, shared too; that of weights if not said", "weights", absent=True)
    attention: Any = _format("format of weights of attention; that of weights if not said", "weights", absent=True)
    index: Any = _format("format of keys of a sparse indexer; that of kv if not said", "index", absent=True)
    combine: Any = _format(
        "format of what experts on other dies send back; that of activations where it is not said",
        "combine",
        absent=True,
    )


KV_HEADS = ("own", "full")
"""Width of K and V on a mesh: that of the model's KV heads, or of its query heads, each KV head being repeated."""


@record_class
class PrefetchPlan:
    """What is read from main memory before it is needed, while that has nothing else to do."""

    policy: str = option_field("policy for weights and KV cache while memory is idle", PREFETCH)
    share: Number = quantity_field(
        "1",
        "share of the local memory beside activations, or of a cache in front of main memory where all tiles work on one "
        "operator, that is set aside for prefetched data; none where policy is none",
        high=1.0,
        unread={"policy": ("none",)},
        former="cap",
    )


AUTO = "auto"
"""Of an algorithm that each operator chooses by itself: the one that is quickest for its shape by the closed form."""


OTHER_SUMS = {"gemv": ("pipeline", "ring", "ladder")}
"""Algorithms of vector-matrix products that add partial sums up along no tree of K phases."""


@record_class
class RegionPlan:
    """The mapping of one phase on a mesh of cores."""

    rows: Number = integer_field("rows of cores that share every layer (a region)")
    cols: Number = integer_field("columns of such a region; 0 for as many as rows", low=0)
    regions: Number = integer_field("regions, each with its share of the layers; 0 for as many as the chip has room for", low=0)
    gemm: str = option_field("matrix products; auto for the algorithm that is quickest for each by itself")
    gemv: str = option_field("vector-matrix products and allreduces; auto likewise")
    ktree_k: Number = integer_field("phases of the K-tree (K)", unread=OTHER_SUMS)
    prefetch: Any = part_field("what main memory at the edge reads ahead while kernels run", PrefetchPlan)
    gemm_attention: Any = option_field("matrix products of attention, where they are others than gemm", absent=True)
    gemm_ffn: Any = option_field(
        "matrix products of feed-forward parts and experts, where they are others than gemm", absent=True
    )


GEMV_SUM_LOCATIONS = ("root", "all")
"""Where a GEMV leaves its sums: at the root of each line, or (with a broadcast) on all its cores."""


@record_class
class MeshProductPlan:
    """One product of matrices on a mesh of cores."""

    rows: Number = integer_field("rows of cores")
    cols: Number = integer_field("columns of cores; 0 for as many as rows", low=0)
    gemm: str = option_field("algorithm of a matrix product; auto for the quickest that fits")
    gemv: str = option_field("algorithm of a vector-matrix product; auto likewise")
    ktree_k: Number = integer_field("phases of the K-tree (K)", unread=OTHER_SUMS)
    gemv_result: str = option_field("where a vector-matrix product leaves its sums", GEMV_SUM_LOCATIONS, former="sums")


@record_class
class TileGemmPlan:
    """One product of matrices on a mesh of tiles, whose operands come from memory to the diagonal."""

    rows: Number = integer_field(
        "rows of tiles of a group, which has all columns; 0 for as many as take the least time; groups share out the product",
        low=0,
    )
    m: Number = integer_field("rows of what a tile multiplies at a time; 0 for as many as take the least time", low=0)
    k: Number = integer_field("its depth; 0 for as much as takes the least time", low=0)
    n: Number = integer_field("its columns; 0 for as many as take the least time", low=0)
    split_k: Number = integer_field(
        "groups of one row that divide the depth, and whose blocks are summed up; 1 for none, 0 for what takes the least time",
        low=0,
    )


@record_class
class MemoryStreamPlan:
    """Who asks a memory."""

    requesters: Number = integer_field("requesters, each with its own part of the addresses and of the requests")
    window: Number = integer_field("bursts that each may have outstanding; 0 for any", low=0)


ORDERS = ("xy", "yx")
"""Which way packets go first on a mesh: along their row, or along their column."""


@record_class
class TrafficPlan:
    """How packets find their way."""

    order: str = option_field("which way packets go first: xy, along the row, or yx", ORDERS)


ALONE = {"dataflow": ("flash2", "flash3", "flash_split")}
"""Dataflows of attention in which tiles form no groups: each works by itself."""

WHOLE_KEYS = ("flash2", "flash3", "flat_seq", "flat_tree", "flat_hw", "flat_async", "flat_rows")
"""Dataflows of attention that split no keys into parts that are items of their own."""


@record_class
class AttentionPlan:
    """Attention of one layer on a mesh of tiles."""

    dataflow: str = option_field(
        "attention: flash2, flash3, flash_split, flat_seq, flat_tree, flat_hw, flat_async or flat_rows"
    )
    rows: Number = integer_field(
        "rows of tiles of a group, which share out queries (G_y); 0 for as many as take the least time", low=0, unread=ALONE
    )
    cols: Number = integer_field(
        "columns of tiles of a group, which share out keys (G_x); 0 for as many as take the least time", low=0, unread=ALONE
    )
    queries: Number = integer_field("queries of a tile's slice; 0 for as many as take the least time", low=0)
    keys: Number = integer_field("keys of a tile's slice; 0 for as many as take the least time", low=0)
    kv_splits: Any = integer_field(
        "parts of a request's keys, for flash_split; 0, or not said, for as many as take the least time",
        low=0,
        absent=True,
        unread={"dataflow": WHOLE_KEYS},
        former="splits",
    )


@record_class
class WholeChipPlan:
    """The mapping of one phase whose operators go one after the other over all tiles of a mesh."""

    attention: AttentionPlan
    gemm: TileGemmPlan
    prefetch: Any = part_field("what main memory reads ahead while it has nothing else to do", PrefetchPlan)
    state_share: Any = quantity_field(
        "1",
        "share of local memories in which recurrent states stay from step to step; of decode",
        high=0.9,
        absent=True,
        former="states",
    )


DIE_PLACEMENTS = ("linear", "snake", "blocks", "interleave", "entwine")
"""Where the dies of a stage are: row after row; likewise, every second row from its other end; a rectangle as square as can be;
each a step from the next, so that dies beside each other are of different stages; or a rectangle in which dies beside each
other are of different copies of attention, as long as there are others."""


OVERLAPS = ("none", "two_batch")
"""What a stage does while its dies exchange: nothing; or the same layer of the other half of its micro-batch."""


@record_class
class ExpertPlacementPlan:
    """Where experts are: each on one die of a group, copies of the busiest on others."""

    redundant: Number = integer_field("copies of the busiest experts beside the routed ones", low=0, apart=True)
    shared_copies: Number = integer_field(
        "copies of each shared expert that are placed as experts, on some dies, and tokens are sent to; 0 for one on every die",
        low=0,
        default=0,
        apart=True,
        former="shared",
    )


FORMER_EXCHANGES = {"by_node": "hierarchical", "near": "nearest_replica"}
"""Exchanges by the names that they had before."""

EXCHANGES = ("direct", "hierarchical", "nearest_replica")
"""How tokens go to their experts: a copy to each, over whatever link; one copy to a box, to the die of the same place there,
which forwards it inside; or from that die of their copy of attention which is in the same part of the stage as the expert: all
of these get the tokens first, and sum up afterwards what each has got back."""


GROUP_SUMS = ("ring", "ktree", "two_level")
"""How partial sums of a group of cores or dies are added up: around its ring; along a tree of K phases and back; or around the
rings of the rows of its grid, of dies of its boxes where there are any, then across them."""

TILE_SUMS = (*GROUP_SUMS, "overlapped_ring")
"""Likewise of a product on cores; by an overlapped ring, beside the product of the next columns ([zhu2025] section 4.1)."""


@record_class
class MultiDiePlan:
    """How one phase is divided over many dies, each of which works on one operator after the other."""

    tp: Number = integer_field("tensor parallelism: dies that share attention and dense layers", apart=True)
    pp: Number = integer_field("pipeline parallelism: stages, each with its share of the layers", apart=True)
    ep: Number = integer_field(
        "expert parallelism: dies that share out the experts of a layer; attention has copies among them", apart=True
    )
    dp: Number = integer_field("data parallelism: copies of the model; 0 for as many as there are dies for", low=0, apart=True)
    microbatches: Number = integer_field(
        "parts of the requests of a copy of attention, which follow one another through stages; 0 for as many as stages in "
        "decode, or as hold all requests, and as requests in prefill",
        low=0,
        apart=True,
    )
    placement: str = option_field("where the dies of a stage are", DIE_PLACEMENTS)
    overlap: str = option_field(
        "what a stage does while its dies exchange: none, or two_batch: halves of a micro-batch in turn",
        OVERLAPS,
        former_options={"halves": "two_batch"},
    )
    experts: ExpertPlacementPlan
    all_to_all: Any = option_field(
        "how tokens go to their experts and back: direct, hierarchical or nearest_replica",
        EXCHANGES,
        absent=True,
        former="exchange",
        former_options=FORMER_EXCHANGES,
    )
    allreduce: str = option_field(
        "how dies that share attention add partial sums up: ring, ktree or two_level",
        GROUP_SUMS,
        default="ring",
        unread={"tp": (1,)},
        former="sums",
    )
    ktree_k: Number = integer_field(
        "phases of the K-tree (K) of dies that share attention",
        default=2,
        apart=True,
        unread={"allreduce": ("ring", "two_level")},
    )
    prefetch: Any = refused_field("many dies do not read ahead yet; leave it out, or ask one die")


@record_class
class TileDiesPlan(MultiDiePlan):
    """The mapping of one phase on many dies of tiles."""

    attention: AttentionPlan
    gemm: TileGemmPlan
    all_to_all: str = option_field(
        "how tokens go to their experts and back: direct, hierarchical or nearest_replica",
        EXCHANGES,
        default="direct",
        former="exchange",
        former_options=FORMER_EXCHANGES,
    )


@record_class
class SharedCacheDiesPlan(MultiDiePlan):
    """The mapping of one phase on many dies with a cache each."""

    attention_dies: Any = integer_field(
        "dies of a stage that have attention, router, embedding and head alone; the ep dies that share out experts, shared "
        "ones and FFNs are others. Where it is not said each die has both",
        absent=True,
        apart=True,
    )
    pingpong: Any = integer_field(
        "micro-batches that attention dies and those of FFNs have in turn; 3 where it is not said", absent=True, apart=True
    )


FORMER_POLICIES = {"chunked": "chunked_prefill", "fusion": "pd_fusion"}
"""Policies by the names that they had before."""

PREEMPTION = ("recompute", "swap")
"""What becomes of a cache for which memory has no room any more: it is computed again, or goes to the host and comes back."""

ROUTING = ("round_robin", "least_loaded", "cache_aware")
"""Which instance a request goes to: the next in turn; the one that holds the fewest, running and queued; or the one that has
most of its prompt in its cache, if that is enough and no instance has far more to do than another ([smg2025])."""


KV_TRANSFERS = ("whole", "layerwise")
"""How a cache goes from who prefills to who decodes: whole, when its prompt is done; or layer by layer as these are computed,
behind the iterations that prefill, so that only the last one is left to send where the link keeps up."""

PREFIX_STORES = ("reserved", "shared")
"""Where prefixes are kept for reuse: in a part of the memory of their own, as large as `prefix_cache_share` says; or in the
blocks that running requests do not need, which share those that they have alike."""


SNAPSHOT = "tokens of a prompt from one snapshot of recurrent states to the next, for reuse; its end alone where it is not said"


ADMISSION_RULES = ("policy", "chunk", "gate", "prompt")
"""What a prompt takes when it is taken up: what its policy says; blocks for the chunk that is computed next, and more from
chunk to chunk; likewise, but only when blocks for all of it are free; or blocks for all of it. The chunk of a prompt that is
never cut is all of it."""


WHOLE_PROMPTS = ("static", "prefill_first", "orca")
"""Policies that never cut a prompt: no chunk has a length, and memory is taken for all of it."""

NEVER_SHORT = {"policy": ("static", "orca"), "prefill_instances": (0,)}
"""Policies that take memory for a request's last token at once, so that it never runs out."""


@record_class
class ServingPlan:
    """How requests are served: instances of the model, and who is served next."""

    policy: str = option_field("how an instance forms an iteration", former_options=FORMER_POLICIES)
    instances: Number = integer_field("copies of the model, each with its own queue; with prefill instances, those that decode")
    prefill_instances: Number = integer_field(
        "copies that only prefill and send caches on; 0 where every instance does both", low=0
    )
    max_batch_size: Number = integer_field("the most requests that an instance runs at a time", former="batch")
    prefill_policy: str = option_field(
        "how prefill instances form iterations", default="prefill_first", former_options=FORMER_POLICIES
    )
    prefill_max_batch_size: Number = integer_field(
        "the most requests that a prefill instance runs at a time; 0 for `max_batch_size`",
        low=0,
        default=0,
        former="prefill_batch",
    )
    prefill_max_batched_tokens: Number = integer_field(
        "token budget of their iterations; 0 for what their policy says", low=0, default=0, former="prefill_tokens"
    )
    max_batched_tokens: Number = integer_field(
        "token budget of an iteration, or units where the budget has units; 0 for the policy's", low=0, former="tokens"
    )
    chunk_budget_units: Number = integer_field(
        "units of the budget that a chunk of a prompt takes; 0 for what the policy says", low=0, former="unit"
    )
    max_chunk_tokens: Number = integer_field(
        "the longest chunk of a prompt, in tokens; 0 for what the policy says",
        low=0,
        unread={"policy": WHOLE_PROMPTS},
        former="chunk",
    )
    block_size: Number = integer_field("tokens in a block of KV memory", former="block")
    kv_blocks: Number = integer_field(
        "blocks of KV memory that an instance has; 0 for as many as there is room for", low=0, former="blocks"
    )
    reserved_memory: Number = quantity_field(
        "B", "of what holds caches, of an instance's device, what the engine keeps for itself", former="reserved"
    )
    admission: str = option_field(
        "which blocks a prompt must have before it is taken up",
        ADMISSION_RULES,
        unread={"policy": WHOLE_PROMPTS, "prefill_policy": WHOLE_PROMPTS},
        former="admit",
    )
    preemption: str = option_field("what becomes of a cache that memory has no room for", PREEMPTION, unread=NEVER_SHORT)
    host_bandwidth: Number = quantity_field(
        "B/s",
        "to the memory of the host, of a device; for caches that are swapped, and prefixes that come back",
        positive=True,
        former="host",
    )
    host_kv_capacity: Any = quantity_field(
        "B",
        "of the host's memory, of a device, for prefixes that have to leave the pool; none where it is not said",
        positive=True,
        absent=True,
        unread={"prefix_cache": ("reserved",)},
        former="host_capacity",
    )
    prefix_cache: str = option_field(
        "where prefixes are kept: reserved, in a part of the memory as large as prefix_cache_share says; or shared, in "
        "its pool of blocks",
        PREFIX_STORES,
        former="reuse",
        former_options={"part": "reserved", "pool": "shared"},
    )
    prefix_cache_share: Number = quantity_field(
        "1", "share of the memory for KV that keeps prefixes for reuse", high=0.95, former="prefix"
    )
    state_snapshot_tokens: Any = integer_field(SNAPSHOT, absent=True, former="snapshot")
    routing: str = option_field(
        "which instance a request goes to", ROUTING, unread={"instances": (1,), "prefill_instances": (0, 1)}
    )
    kv_transfer: Any = option_field(
        "how caches go from prefill instances on: whole, or layerwise behind prefill; whole where it is not said",
        KV_TRANSFERS,
        absent=True,
        unread={"prefill_instances": (0,)},
        former="transfer",
        former_options={"by_layer": "layerwise"},
    )


PARTITIONS = ("input_only", "mn", "k", "mn_k")
"""What of a product is divided between the cores of a group: rows of the input only; rows of the input and columns of the
weights; the inner dimension; or both ([zhu2025] section 4.1)."""

MESH_GEMMS = ("meshgemm", "cannon", "summa")
"""Products of a wafer's mesh: rows and columns of a group divide those of the input, of the weights and of the output."""

DIVISIONS = (*PARTITIONS, *MESH_GEMMS)
"""All ways to divide a product over a group."""

PLACEMENTS = ("linear_seq", "linear_interleave", "ring", "mesh")
"""Where the cores of a group are ([zhu2025] section 4.1, figure 4)."""


EXPERT_PARTITIONS = ("divided", "whole")
"""Where the experts of a layer are: each over all cores of the group, or each on one of them."""


@record_class
class ReductionPlan:
    """How the cores of a group add up the partial sums of a product whose inner dimension is divided."""

    algorithm: str = option_field(
        "how partial sums are added up: ring, ktree, two_level, or overlapped_ring, beside the product; auto for the quickest",
        (*TILE_SUMS, AUTO),
        unread={"..partition": tuple(option_field for option_field in DIVISIONS if option_field != "k")},
        former_options={"turns": "overlapped_ring"},
    )
    ktree_k: Any = integer_field(
        "phases of the K-tree (K)", absent=True, unread={"algorithm": ("ring", "two_level", "overlapped_ring")}
    )


@record_class
class PipelinePlan:
    """The mapping of one phase on a mesh of tiles."""

    tp: Number = integer_field("tensor parallelism: cores that share every layer")
    pp: Number = integer_field("pipeline parallelism: groups of cores that share the layers")
    partition: str = option_field(
        "what of a product is divided between the cores of a group, or a product of a mesh (meshgemm, cannon, summa); auto for "
        "what is quickest for each product by itself",
        (*DIVISIONS, AUTO),
    )
    placement: str = option_field("where the cores of a group are", PLACEMENTS)
    experts: str = option_field(
        "where experts are: divided over the cores of a group, or whole on one of them", EXPERT_PARTITIONS
    )
    prefetch: Any = part_field("what is read from memory while a group exchanges", PrefetchPlan)
    allreduce: Any = part_field(
        "how partial sums of a group are added up; around its ring where it is not said", ReductionPlan, former="sums"
    )
    attention: AttentionPlan | None = part_field(
        "attention of all cores of a group at a time, keys and values from its memory; each core's own heads or rows where it "
        "is not said",
        AttentionPlan,
    )
    state_share: Any = quantity_field(
        "1",
        "share of the local memory beside activations that recurrent states take first, from step to step; of decode. They are "
        "with the KV cache where it is not said",
        high=0.9,
        absent=True,
        former="states",
    )


STAGE_CUTS = ("layers", "operators")
"""What a stage of a pipeline has: whole layers, as many on each; or stages cut between operators too, so that the
slowest takes least."""


@record_class
class ServingPipelinePlan(PipelinePlan):
    """The mapping of one phase on a mesh of tiles that serves requests as they come."""

    stages: str = option_field(
        "what a stage has: whole layers, or operators: parts of layers, cut between operators and inside products",
        STAGE_CUTS,
        former_options={"parts": "operators"},
    )
    dp: Number = integer_field(
        "pipelines, each with a copy of the model; 0 for as many as the phase's cores have room for", low=0
    )
    microbatch_size: Number = integer_field(
        "the most requests of a micro-batch; as many of these are in flight as a pipeline has stages", former="microbatch"
    )
    max_chunk_tokens: Number = integer_field(
        "the longest chunk of a prompt, in tokens; 0 for what the policy says, or where prompts go whole", low=0, former="chunk"
    )
    attention: Any = refused_field(
        "attention on groups takes batches of requests alike, not those that come and go; leave it out, or ask for batches"
    )
    state_share: Any = refused_field(
        "states of requests that come and go are with their caches; leave it out, or ask for batches"
    )


ARRANGEMENTS = ("dp_first", "pp_first")
"""Where pipelines that prefill and that decode are: some of both in each block of cores; or prefill at the two sides of the
chip and decode between them ([zhu2025] figure 6)."""


OVERFLOW = ("pages", "ring")
"""Where keys and values are that local memory has no room for: blocks of HBM, as they are needed; or a ring of buffers there,
one for each request, as long as the longest one ([zhu2025] section 4.2)."""


@record_class
class PipelineServingPlan:
    """How requests are served on a mesh of tiles."""

    policy: str = option_field("how a pipeline that decodes forms an iteration", former_options=FORMER_POLICIES)
    prefill_cores: Number = integer_field(
        "cores that only prefill, others only decode; 0 where those that decode do both", low=0
    )
    decode_cores: Number = integer_field(
        "cores that decode; 0 for all that do not only prefill, else what is left stands idle", low=0
    )
    arrangement: str = option_field("where prefilling and decoding pipelines are", ARRANGEMENTS, unread={"prefill_cores": (0,)})
    max_batched_tokens: Number = integer_field(
        "token budget of an iteration, or units where the budget has units; 0 for what the policy says", low=0, former="tokens"
    )
    chunk_budget_units: Number = integer_field(
        "units of the budget that a chunk of a prompt takes; 0 for what the policy says", low=0, former="unit"
    )
    block_size: Number = integer_field("tokens in a block of the KV cache in local memory", former="block")
    kv_overflow: str = option_field(
        "where caches are that local memory has no room for: pages of HBM or a ring of buffers", OVERFLOW, former="overflow"
    )
    prefix_cache_share: Number = quantity_field(
        "1", "share of HBM beside weights that keeps prefixes for reuse", high=0.95, former="prefix"
    )
    state_snapshot_tokens: Any = integer_field(SNAPSHOT, absent=True, former="snapshot")
    routing: str = option_field("which pipeline a request goes to", ROUTING)
    kv_transfer: Any = option_field(
        "how caches go from cores that prefill on: whole, or layerwise behind prefill; whole where it is not said",
        KV_TRANSFERS,
        absent=True,
        unread={"prefill_cores": (0,)},
        former="transfer",
        former_options={"by_layer": "layerwise"},
    )


@record_class
class TileCollectivePlan:
    """One collective on a mesh of tiles."""

    collective: str = option_field("who carries it: hardware, tree or sequential; exchanges of all tiles rings or direct")


DIE_COLLECTIVES = ("direct", "hierarchical", "ring", "two_level", "ktree")
"""Who carries a collective of dies: each sends to each, or by boxes; around rings, in two levels of them, or along a tree."""

IN_DIE_COLLECTIVES = ("none", "hardware", "tree", "sequential")
"""What the tiles of a die do before dies exchange, and after: nothing, or a reduction, and a multicast."""


@record_class
class DieCollectivePlan:
    """One collective between dies."""

    collective: str = option_field(
        "who carries it between dies: direct, hierarchical, ring, two_level or ktree",
        DIE_COLLECTIVES,
        former_options={"by_node": "hierarchical"},
    )
    members: Number = integer_field(
        "dies of a group, all of which exchange at the same time; 0 for all dies", low=0, apart=True
    )
    placement: str = option_field("where the dies of a group are", DIE_PLACEMENTS)
    ktree_k: Number = integer_field(
        "phases of the K-tree (K)", apart=True, unread={"collective": ("direct", "hierarchical", "ring", "two_level")}
    )
    within: str = option_field(
        "what tiles of a die do first, and last: none; or reduce and multicast by hardware, tree or sequential",
        IN_DIE_COLLECTIVES,
    )


@record_class
class Mapping:
    """Software on the chip: a plan for each phase of a model and how requests are served, or the one kernel that is asked for.

    What is not there is None; `space.software` says which parts belong together.
    """

    prefill: Any = part_field(
        "the plan of prefill",
        TensorParallelPlan,
        RegionPlan,
        PipelinePlan,
        ServingPipelinePlan,
        WholeChipPlan,
        SharedCacheDiesPlan,
        TileDiesPlan,
    )
    decode: Any = part_field(
        "the plan of decode",
        TensorParallelPlan,
        RegionPlan,
        PipelinePlan,
        ServingPipelinePlan,
        WholeChipPlan,
        SharedCacheDiesPlan,
        TileDiesPlan,
    )
    precision: Any = part_field("number formats", FormatPlan)
    stack: Any = part_field("libraries, and what launches them: what they reach of a die, and what starting costs", Stack)
    kv_placement: Any = option_field("where a new token's keys and values go", absent=True, former="kv")
    kv_heads: Any = option_field("width of W_K, W_V and the KV cache as they are stored", KV_HEADS, absent=True)
    kv_projection: Any = option_field(
        "width of K and V as they are computed; full repeats them for every query head", KV_HEADS, absent=True
    )
    simulated_layers: Any = integer_field(
        "layers on the chip, whose time stands for all; 0 where the whole model is there",
        low=0,
        absent=True,
        former="resident_layers",
    )
    sram_kv_share: Any = quantity_field(
        "1", "share of the local memory beside activations that the KV cache may take", high=1.0, absent=True, former="sram_kv"
    )
    serving: Any = part_field("how requests are served", ServingPlan, PipelineServingPlan)
    kernel: Any = part_field(
        "one kernel by itself",
        MeshProductPlan,
        TileGemmPlan,
        MemoryStreamPlan,
        TrafficPlan,
        AttentionPlan,
        TileCollectivePlan,
        DieCollectivePlan,
        inline=True,
    )
