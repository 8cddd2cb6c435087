"""Mappings of a model on chips: parallelism, algorithms, prefetch and number formats.

Prefill and decode have a plan each; where the same devices serve both, a limit keeps the parallelism equal.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import integer_field, option_field, part_field, quantity_field, record_class, refused_field
from dse.space.inference_engine import InferenceEngine
from dse.space.memory_tiers import PlacementPlan
from dse.space.number_formats import BYTES_BY_FORMAT as BYTES_BY_FORMAT
from dse.space.number_formats import explain_unfit, formats_of_tensor
from dse.space.serving_plan import ADMISSION_RULES as ADMISSION_RULES  # former names of packages lead here
from dse.space.serving_plan import FORMER_POLICIES, KV_TRANSFERS, ROUTING, SNAPSHOT, ServingPlan
from dse.space.serving_plan import PREFIX_STORES as PREFIX_STORES
from dse.space.stack import Stack

PREFETCH = ("none", "whole", "partial")
"""What is prefetched during a collective (PRESERVE, algorithm 1): nothing; operators that fit the budget whole;
or also the part that still fits of the first one that does not."""


UNEVEN_KV_HEADS = ("round_up", "round_down")
"""KV heads that devices cannot divide evenly. With more, some devices have one more than others, their own or a copy of a
neighbour's (10 heads on 8 devices: two), and all wait for these. With fewer, each has as many as all can have, at least
one, for all its query heads, and the rest is dropped (one): software that replaces such a model by a divisible one.
"""


ALONE_DEVICE = {"tp": (1,)}
"""A device that shares no layer with others has no collectives, nor reads anything ahead during them."""

NO_TREE = {"allreduce": ("ring", "bidirectional_ring", "full_mesh", "tree", "two_level", "library")}
"""Allreduces between devices that have no K phases."""


@record_class
class TensorParallelPlan:
    """Mapping of one phase on tensor-parallel devices."""

    tp: Number = integer_field("tensor parallelism: devices that share every layer")
    allreduce: str = option_field(
        "allreduce between devices: ring, bidirectional_ring, full_mesh, tree, ktree, two_level or library", unread=ALONE_DEVICE
    )
    ktree_k: Any = integer_field("phases of the K-tree (K); 2 if absent", absent=True, apart=True, unread=NO_TREE)
    prefetch: str = option_field("policy for weights and KV cache during collectives", PREFETCH, unread=ALONE_DEVICE)
    prefetch_share: Number = quantity_field(
        "1", "share of L2 for prefetched data, 0 to 1", high=1.0, unread={"prefetch": ("none",)}, former="prefetch_cap"
    )
    kv_heads: Any = option_field(
        "KV heads per device where they do not divide evenly: round_up, or round_down",
        UNEVEN_KV_HEADS,
        absent=True,
        former_options={"more": "round_up", "fewer": "round_down"},
    )
    pp: Any = integer_field(
        "pipeline parallelism: stages of consecutive layers, each on tp devices; 1 if absent", absent=True, apart=True
    )
    dp: Any = integer_field(
        "data parallelism: replicas of the model, which share a batch evenly; 1 if absent", absent=True, apart=True
    )
    microbatches: Any = integer_field(
        (
            "micro-batches that pass through the stages in turn; 0 or absent for as many as stages in decode, or as hold all "
            "requests, and one per prompt in prefill"
        ),
        low=0,
        absent=True,
        apart=True,
        unread={"pp": (1,)},
    )

    @property
    def stages(self) -> int:
        """Pipeline stages of a replica. [-]"""
        return int(self.pp or 1)

    @property
    def replicas(self) -> int:
        """Replicas of the model that share a batch. [-]"""
        return int(self.dp or 1)


AS_WEIGHTS = "as_weights"
"""Option of a table of tokens: the format of weights, whatever that is. With the embedding go norms, biases and routers."""


def _format(doc: str, tensor: str, *, absent: bool = False, more: tuple[str, ...] = ()) -> Any:
    return option_field(doc, (*formats_of_tensor(tensor), *more), unfit=explain_unfit(tensor), absent=absent)


@record_class
class FormatPlan:
    """Number formats of weights, activations, KV cache and exchanged values."""

    weights: str = _format("format of weights", "weights")
    activations: str = _format("format of activations", "activations")
    kv: str = _format("format of the KV cache", "kv")
    experts: Any = _format(
        "format of expert weights, shared experts included; that of weights if absent", "weights", absent=True
    )
    attention: Any = _format("format of attention weights; that of weights if absent", "weights", absent=True)
    embedding: Any = _format(
        "format of the embedding table, or as_weights; of 16 bits where weights are narrower, else theirs, if absent",
        "weights",
        absent=True,
        more=(AS_WEIGHTS,),
    )
    head: Any = _format(
        "format of the head, or of a table that is both; likewise",
        "weights",
        absent=True,
        more=(AS_WEIGHTS,),
    )
    index: Any = _format("format of a sparse indexer's keys; that of kv if absent", "index", absent=True)
    combine: Any = _format(
        "format of results that experts on other dies send back; that of activations if absent",
        "combine",
        absent=True,
    )


KV_HEADS = ("own", "full")
"""Width of K and V on a mesh: that of the model's KV heads, or of its query heads, each KV head being repeated."""


@record_class
class PrefetchPlan:
    """Prefetch from main memory while the memory is otherwise idle: policy and share of local memory."""

    policy: str = option_field("policy for weights and KV cache while memory is idle", PREFETCH)
    share: Number = quantity_field(
        "1",
        (
            "share of local memory beside activations, or of a cache in front of main memory where all "
            "tiles run one operator, reserved for prefetched data; none if policy is none"
        ),
        high=1.0,
        unread={"policy": ("none",)},
        former="cap",
    )


AUTO = "auto"
"""Auto-tuning: each operator uses the algorithm that is fastest for its shape in the analytical model."""


OTHER_SUMS = {"gemv": ("pipeline", "ring", "ladder")}
"""Algorithms of vector-matrix products that add partial sums up along no tree of K phases."""


@record_class
class RegionPlan:
    """Mapping of one phase to regions of a mesh of cores."""

    rows: Number = integer_field("rows of cores that share every layer (a region)")
    cols: Number = integer_field("columns of a region; 0 for as many as rows", low=0)
    regions: Number = integer_field("regions, each with its share of the layers; 0 for as many as fit on the chip", low=0)
    gemm: str = option_field("algorithm of matrix products; auto for the fastest of each product")
    gemv: str = option_field("algorithm of vector-matrix products and allreduces; auto likewise")
    ktree_k: Number = integer_field("phases of the K-tree (K)", unread=OTHER_SUMS)
    prefetch: Any = part_field("prefetch from main memory at the edge while kernels run", PrefetchPlan)
    gemm_attention: Any = option_field("algorithm of attention's matrix products, if other than gemm", absent=True)
    gemm_ffn: Any = option_field("algorithm of matrix products of FFNs and experts, if other than gemm", absent=True)


GEMV_SUM_LOCATIONS = ("root", "all")
"""Where a GEMV leaves its sums: at the root of each line, or (with a broadcast) on all its cores."""


@record_class
class MeshProductPlan:
    """Mapping of one matrix product to a mesh of cores."""

    rows: Number = integer_field("rows of cores")
    cols: Number = integer_field("columns of cores; 0 for as many as rows", low=0)
    gemm: str = option_field("algorithm of a matrix product; auto for the fastest that fits")
    gemv: str = option_field("algorithm of a vector-matrix product; auto likewise")
    ktree_k: Number = integer_field("phases of the K-tree (K)", unread=OTHER_SUMS)
    gemv_result: str = option_field("where a vector-matrix product leaves its sums", GEMV_SUM_LOCATIONS, former="sums")


@record_class
class TileGemmPlan:
    """Mapping of one matrix product to a mesh of tiles; diagonal tiles load operands from main memory."""

    rows: Number = integer_field(
        "rows of tiles of a group, which has all columns; 0 for auto-tuning; groups share the product",
        low=0,
    )
    m: Number = integer_field("rows of a block that a tile multiplies; 0 for auto-tuning", low=0)
    k: Number = integer_field("depth of a block; 0 for auto-tuning", low=0)
    n: Number = integer_field("columns of a block; 0 for auto-tuning", low=0)
    split_k: Number = integer_field(
        "groups of one row that divide the depth and add up their blocks; 1 for none, 0 for auto-tuning",
        low=0,
    )


@record_class
class MemoryStreamPlan:
    """Requesters of a memory stream, and the requests that each may have outstanding."""

    requesters: Number = integer_field("requesters, each with its own share of addresses and requests")
    window: Number = integer_field("bursts that each requester may have outstanding; 0 for no limit", low=0)


ORDERS = ("xy", "yx")
"""Which way packets go first on a mesh: along their row, or along their column."""


@record_class
class TrafficPlan:
    """Routing order of packets on a mesh."""

    order: str = option_field("routing order of packets: xy, first along the row, or yx", ORDERS)


ALONE = {"dataflow": ("flash2", "flash3", "flash_split")}
"""Dataflows of attention without groups: each tile works on heads of its own."""

WHOLE_KEYS = ("flash2", "flash3", "flat_seq", "flat_tree", "flat_hw", "flat_async", "flat_rows")
"""Dataflows of attention that split no keys into parts that are items of their own."""


@record_class
class AttentionPlan:
    """Mapping of one layer's attention to a mesh of tiles."""

    dataflow: str = option_field(
        "attention dataflow: flash2, flash3, flash_split, flat_seq, flat_tree, flat_hw, flat_async or flat_rows"
    )
    rows: Number = integer_field("rows of tiles of a group, which share queries (G_y); 0 for auto-tuning", low=0, unread=ALONE)
    cols: Number = integer_field("columns of tiles of a group, which share keys (G_x); 0 for auto-tuning", low=0, unread=ALONE)
    queries: Number = integer_field("queries of a tile's block; 0 for auto-tuning", low=0)
    keys: Number = integer_field("keys of a tile's block; 0 for auto-tuning", low=0)
    kv_splits: Any = integer_field(
        "parts of a request's keys, for flash_split; 0 or absent for auto-tuning",
        low=0,
        absent=True,
        unread={"dataflow": WHOLE_KEYS},
        former="splits",
    )


@record_class
class WholeChipPlan:
    """Mapping of one phase in which each operator runs on all tiles of a mesh, one after the other."""

    attention: AttentionPlan
    gemm: TileGemmPlan
    prefetch: Any = part_field("prefetch from main memory while it is idle", PrefetchPlan)
    state_share: Any = quantity_field(
        "1",
        "share of local memories in which recurrent states are resident in decode",
        high=0.9,
        absent=True,
        former="states",
    )


DIE_PLACEMENTS = ("linear", "snake", "blocks", "interleave", "entwine")
"""Placement of a stage's dies: row after row; likewise, every second row reversed; a rectangle as square as possible;
interleaved, so that neighbouring dies are of different stages; or a rectangle in which neighbouring dies are of different
attention replicas, while there are others.
"""


OVERLAPS = ("none", "two_batch")
"""What a stage does while its dies exchange: nothing; or the same layer of the other half of its micro-batch."""


@record_class
class ExpertPlacementPlan:
    """Placement of experts: one die of a group for each, and redundant copies on others."""

    redundant: Number = integer_field("redundant copies of the most loaded routed experts", low=0, apart=True)
    shared_copies: Number = integer_field(
        "copies of each shared expert that are placed as routed experts, on some dies; 0 for one on every die",
        low=0,
        default=0,
        apart=True,
        former="shared",
    )


FORMER_EXCHANGES = {"by_node": "hierarchical", "near": "nearest_replica"}
"""Exchanges by the names that they had before."""

EXCHANGES = ("direct", "hierarchical", "nearest_replica")
"""Route of tokens to their experts: a copy to each over any link; one copy per node, to the die in the same place there,
which forwards it; or from the die of their attention replica in the same part of the stage as the expert: all of these get
the tokens first, and sum up the returned results.
"""

SHARED_CACHE_EXCHANGES = (*EXCHANGES, "gather")
"""Expert exchanges between shared-cache dies.

With `gather`, all dies of a stage get all tokens round a ring. Results are then reduced and scattered round it, as in
TensorRT-LLM with data-parallel attention.
"""


GROUP_SUMS = ("ring", "ktree", "two_level")
"""Reduction of partial sums in a group of cores or dies: around its ring; along a K-tree and back; or around the rings of
its grid's rows or its nodes, then across them.
"""

TILE_SUMS = (*GROUP_SUMS, "overlapped_ring")
"""Reductions of a product on cores; overlapped_ring: a ring beside the product of the next columns ([zhu2025] section
4.1).
"""


@record_class
class MultiDiePlan:
    """Mapping of one phase to many dies, each of which runs one operator after the other."""

    tp: Number = integer_field("tensor parallelism: dies that share attention and dense layers", apart=True)
    pp: Number = integer_field("pipeline parallelism: stages, each with its share of the layers", apart=True)
    ep: Number = integer_field(
        "expert parallelism: dies that share the experts of a layer; attention is replicated among them", apart=True
    )
    dp: Number = integer_field("data parallelism: replicas of the model; 0 for as many as the dies allow", low=0, apart=True)
    microbatches: Number = integer_field(
        (
            "micro-batches of an attention replica that pass through the stages in turn; 0 for as many "
            "as stages in decode, or as hold all requests, and as requests in prefill"
        ),
        low=0,
        apart=True,
    )
    placement: str = option_field("where the dies of a stage are", DIE_PLACEMENTS)
    overlap: str = option_field(
        "overlap while a stage's dies exchange: none, or two_batch: halves of a micro-batch in turn",
        OVERLAPS,
        former_options={"halves": "two_batch"},
    )
    experts: ExpertPlacementPlan
    all_to_all: Any = option_field(
        "route of tokens to their experts and back: direct, hierarchical, nearest_replica or gather",
        SHARED_CACHE_EXCHANGES,
        absent=True,
        former="exchange",
        former_options=FORMER_EXCHANGES,
    )
    allreduce: str = option_field(
        "allreduce of partial sums among dies that share attention: ring, ktree or two_level",
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
    prefetch: Any = refused_field("many dies do not support prefetch yet; remove it, or use one die")


@record_class
class TileDiesPlan(MultiDiePlan):
    """Mapping of one phase to many dies of tiles."""

    attention: AttentionPlan
    gemm: TileGemmPlan
    all_to_all: str = option_field(
        "route of tokens to their experts and back: direct, hierarchical or nearest_replica",
        EXCHANGES,
        default="direct",
        former="exchange",
        former_options=FORMER_EXCHANGES,
    )


@record_class
class SharedCacheDiesPlan(MultiDiePlan):
    """Mapping of one phase to many shared-cache dies."""

    attention_dies: Any = integer_field(
        (
            "attention dies of a stage, with attention, router, embedding and head; the ep dies with "
            "experts and FFNs are others. If absent, each die has both"
        ),
        absent=True,
        apart=True,
    )
    pingpong: Any = integer_field(
        "micro-batches that alternate between attention dies and FFN dies; 3 if absent", absent=True, apart=True
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
    """Reduction in a group of cores of partial sums of a product whose inner dimension is divided."""

    algorithm: str = option_field(
        "reduction of partial sums: ring, ktree, two_level, or overlapped_ring, beside the product; auto for the fastest",
        (*TILE_SUMS, AUTO),
        unread={"..partition": tuple(option_field for option_field in DIVISIONS if option_field != "k")},
        former_options={"turns": "overlapped_ring"},
    )
    ktree_k: Any = integer_field(
        "phases of the K-tree (K)", absent=True, unread={"algorithm": ("ring", "two_level", "overlapped_ring")}
    )


@record_class
class PipelinePlan:
    """Mapping of one phase to pipelines of core groups on a mesh of tiles."""

    tp: Number = integer_field("tensor parallelism: cores that share every layer")
    pp: Number = integer_field("pipeline parallelism: groups of cores that share the layers")
    partition: str = option_field(
        (
            "which dimension of a product the cores of a group divide, or a product algorithm of a "
            "mesh (meshgemm, cannon, summa); auto for the fastest of each product"
        ),
        (*DIVISIONS, AUTO),
    )
    placement: str = option_field("placement of the cores of a group", PLACEMENTS)
    experts: str = option_field(
        "placement of experts: divided over the cores of a group, or whole on one core", EXPERT_PARTITIONS
    )
    prefetch: Any = part_field("prefetch from main memory while a group exchanges", PrefetchPlan)
    allreduce: Any = part_field("reduction of a group's partial sums; around its ring if absent", ReductionPlan, former="sums")
    attention: AttentionPlan | None = part_field(
        "attention of all cores of a group at once, keys and values from its memory; each core's own heads or rows if absent",
        AttentionPlan,
    )
    state_share: Any = quantity_field(
        "1",
        (
            "share of local memory beside activations that is reserved for recurrent states in decode; "
            "if absent, states are stored with the KV cache"
        ),
        high=0.9,
        absent=True,
        former="states",
    )


STAGE_CUTS = ("layers", "operators")
"""Contents of a pipeline stage: whole layers, as many on each; or stages cut between operators too, for the
slowest stage."""


@record_class
class ServingPipelinePlan(PipelinePlan):
    """Mapping of one phase to pipelines on a mesh of tiles that serves a request stream."""

    stages: str = option_field(
        "contents of a stage: whole layers, or operators: parts of layers, cut between operators and inside products",
        STAGE_CUTS,
        former_options={"parts": "operators"},
    )
    dp: Number = integer_field("pipelines, each with a replica of the model; 0 for as many as the phase's cores allow", low=0)
    microbatch_size: Number = integer_field(
        "requests of a micro-batch, at most; as many micro-batches as stages are in flight", former="microbatch"
    )
    max_chunk_tokens: Number = integer_field(
        "tokens of a prompt chunk, at most; 0 for the policy's, or for whole prompts", low=0, former="chunk"
    )
    attention: Any = refused_field("attention on groups supports static batches only; remove it, or use workload=static")
    state_share: Any = refused_field(
        "with serving, recurrent states are stored with the KV caches; remove it, or use workload=static"
    )


ARRANGEMENTS = ("dp_first", "pp_first")
"""Where pipelines that prefill and that decode are: some of both in each block of cores; or prefill at the two sides of the
chip and decode between them ([zhu2025] figure 6)."""


OVERFLOW = ("pages", "ring")
"""Storage of keys and values that local memory cannot hold: blocks of HBM, as needed; or a ring of buffers there, one for
each request, as long as the longest one ([zhu2025] section 4.2).
"""


RESIDENCIES = ("fixed", "by_phase")
"""What stays in the local memories of served pipelines.

`fixed` is one set for all iterations, laid out for the largest one and for the caches of a full batch. `by_phase` is that of
a static batch: caches of the load's requests, and in iterations without prompts as many weights as have room beside them.
"""


@record_class
class PipelineServingPlan:
    """Serving settings of pipelines on a mesh of tiles."""

    policy: str = option_field("scheduling policy of a pipeline that decodes", former_options=FORMER_POLICIES)
    prefill_cores: Number = integer_field(
        "cores that only prefill, while others only decode; 0 if the decode cores do both", low=0
    )
    decode_cores: Number = integer_field("cores that decode; 0 for all that do not only prefill; other cores are idle", low=0)
    arrangement: str = option_field("placement of prefill and decode pipelines", ARRANGEMENTS, unread={"prefill_cores": (0,)})
    max_batched_tokens: Number = integer_field(
        "token budget of an iteration, or units where the budget has units; 0 for the policy's", low=0, former="tokens"
    )
    chunk_budget_units: Number = integer_field(
        "units of the budget that a prompt chunk takes; 0 for the policy's", low=0, former="unit"
    )
    block_size: Number = integer_field("tokens in a block of the KV cache in local memory", former="block")
    kv_overflow: str = option_field(
        "where KV caches that local memory cannot hold are stored: pages of HBM or a ring of buffers",
        OVERFLOW,
        former="overflow",
    )
    residency: Any = option_field(
        "local memory of cores that do both phases: fixed for the largest iteration and a full batch, or by_phase as in a "
        "static batch; fixed if absent",
        RESIDENCIES,
        absent=True,
    )
    prefix_cache_share: Number = quantity_field(
        "1", "share of HBM beside weights that keeps prefixes for reuse", high=0.95, former="prefix"
    )
    state_snapshot_tokens: Any = integer_field(SNAPSHOT, absent=True, former="snapshot")
    routing: str = option_field("routing of requests to pipelines", ROUTING)
    kv_transfer: Any = option_field(
        "KV transfer from prefill cores: whole, or layerwise during prefill; whole if absent",
        KV_TRANSFERS,
        absent=True,
        unread={"prefill_cores": (0,)},
        former="transfer",
        former_options={"by_layer": "layerwise"},
    )


@record_class
class TileCollectivePlan:
    """Algorithm of one collective on a mesh of tiles."""

    collective: str = option_field(
        "collective algorithm: hardware, tree or sequential; for exchanges of all tiles rings or direct"
    )


DIE_COLLECTIVES = ("direct", "hierarchical", "ring", "two_level", "ktree")
"""Algorithms of collectives between dies: each to each, or by node; around rings, in two levels of rings, or along a
tree.
"""

IN_DIE_COLLECTIVES = ("none", "hardware", "tree", "sequential")
"""What the tiles of a die do before dies exchange, and after: nothing, or a reduction, and a multicast."""


@record_class
class DieCollectivePlan:
    """Algorithm, members and placement of one collective between dies."""

    collective: str = option_field(
        "algorithm between dies: direct, hierarchical, ring, two_level or ktree",
        DIE_COLLECTIVES,
        former_options={"by_node": "hierarchical"},
    )
    members: Number = integer_field("dies of a group; all groups exchange at the same time; 0 for all dies", low=0, apart=True)
    placement: str = option_field("placement of the dies of a group", DIE_PLACEMENTS)
    ktree_k: Number = integer_field(
        "phases of the K-tree (K)", apart=True, unread={"collective": ("direct", "hierarchical", "ring", "two_level")}
    )
    within: str = option_field(
        "what tiles of a die do first and last: none; or reduce and multicast by hardware, tree or sequential",
        IN_DIE_COLLECTIVES,
    )


PHASE_PLANS = (
    TensorParallelPlan,
    RegionPlan,
    PipelinePlan,
    ServingPipelinePlan,
    WholeChipPlan,
    SharedCacheDiesPlan,
    TileDiesPlan,
)
"""Plans of a phase of a model, told apart by their fields."""


@record_class
class Mapping:
    """Software on a chip: a plan per phase and for serving, or the plan of a single kernel.

    Absent parts are None; `space.software` lists the parts that belong together.
    """

    prefill: Any = part_field("the plan of prefill", *PHASE_PLANS)
    decode: Any = part_field("the plan of decode", *PHASE_PLANS)
    precision: Any = part_field("number formats", FormatPlan)
    stack: Any = part_field("software stack: shares of a die's peaks that libraries reach, and launch overheads", Stack)
    inference_engine: Any = part_field(
        "inference engine: memory that it leaves for KV caches, formats and degrees; all free memory if absent", InferenceEngine
    )
    memory_placement: Any = part_field(
        "memory of each content on a chip with memory tiers; by the rule if absent", PlacementPlan
    )
    kv_placement: Any = option_field("where a new token's keys and values are stored", absent=True, former="kv")
    kv_heads: Any = option_field("width of W_K, W_V and the KV cache as stored", KV_HEADS, absent=True)
    kv_projection: Any = option_field(
        "width of K and V as computed; full repeats them for every query head", KV_HEADS, absent=True
    )
    simulated_layers: Any = integer_field(
        "layers resident on the chip, whose time represents all layers; 0 if the whole model is resident",
        low=0,
        absent=True,
        former="resident_layers",
    )
    sram_kv_share: Any = quantity_field(
        "1", "share of local memory beside activations that the KV cache may take", high=1.0, absent=True, former="sram_kv"
    )
    serving: Any = part_field("serving settings", ServingPlan, PipelineServingPlan)
    kernel: Any = part_field(
        "plan of a single kernel",
        MeshProductPlan,
        TileGemmPlan,
        MemoryStreamPlan,
        TrafficPlan,
        AttentionPlan,
        TileCollectivePlan,
        DieCollectivePlan,
        inline=True,
    )
