"""Software stack of shared-cache dies: libraries of kernels and collectives, and launch overheads.

The chip states what the silicon could do. A stack states the share that programs reach and the launch overheads: a few
flat rates, and one part per kind of library kernel (`space.libraries`). A part gives the time of all kernels of its
kind, start included; the flat rates give the time of the others.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import integer_field, option_field, part_field, quantity_field, record_class
from dse.space.libraries.decode_attention import DecodeAttentionConstants
from dse.space.libraries.elementwise import ElementwiseConstants
from dse.space.libraries.gemm import GemmConstants
from dse.space.libraries.grouped_gemm import GroupedGemmConstants
from dse.space.libraries.mla_decode_attention import MlaDecodeConstants
from dse.space.libraries.moe_all_to_all import MoeAllToAllConstants
from dse.space.libraries.node_collectives import AllToAll, OneShotAllreduce, RingCollectives
from dse.space.libraries.prefill_attention import PrefillAttentionConstants
from dse.space.number_formats import formats_of_tensor


@record_class
class IterationOverheads:
    """Overheads of an inference engine in every iteration, beside kernels; an absent one costs nothing.

    Terms, equations and sources: `docs/physics.md`, "Engines as they run".
    """

    host_time: Any = quantity_field("s", "host time of an iteration, added to that of its kernels", absent=True)
    request_host_time: Any = quantity_field("s", "host time of an iteration for each decoding request", absent=True)
    host_overlap: Any = quantity_field(
        "1", "share of the kernels of a replayed iteration that hide the host's time; none if absent", high=1.0, absent=True
    )
    eager_launch: Any = quantity_field(
        "s", "launch of a kernel in iterations with prompts, which no recorded graph replays: their least time", absent=True
    )
    dense_layer_kernels: Any = integer_field("kernels that a layer with a dense FFN launches", low=0, absent=True)
    moe_layer_kernels: Any = integer_field("kernels that a layer with experts launches", low=0, absent=True)
    moe_launch_overlap: Any = quantity_field(
        "1",
        "share of the launches of layers with experts that kernels hide, in iterations with prompts; all if absent",
        high=1.0,
        absent=True,
    )
    moe_replay_launch: Any = quantity_field(
        "s",
        "start of the kernels of a layer with experts that are no operators, in iterations that a recorded graph replays",
        absent=True,
    )
    graph_batch_sizes: Any = option_field(
        'decode batches of recorded graphs, as in "1 2 4 8": others are padded to the next, and those beyond run as they are',
        absent=True,
    )
    logit_bytes: Any = quantity_field("B", "main memory traffic of a logit between the head and its sampled token", absent=True)


@record_class
class ExpertOverheads:
    """Overheads of an inference engine around expert products; an absent one costs nothing.

    Terms, equations and sources: `docs/physics.md`, "Engines as they run".
    """

    row_passes: Any = quantity_field(
        "1",
        "passes over a token's hidden vector, of 16 bits, for each expert that it goes to: permute, quantise, add up",
        absent=True,
    )
    intermediate_passes: Any = quantity_field(
        "1", "passes over the intermediate vector of each expert that a token goes to, of 16 bits", absent=True
    )
    expanded_pace: Any = quantity_field(
        "1",
        "time of an operation of expert products whose kernel expands weights, over that in the format that it multiplies",
        low=1.0,
        absent=True,
    )
    imbalance: Any = quantity_field(
        "1", "excess load of the busiest of n dies with experts, times 1 - 1/n; 0 if all have the mean", absent=True
    )


@record_class
class StackAccuracy:
    """How far measured rates lie from those that a stack predicts; it changes no result.

    The range is from the tenth to the ninetieth percentile of measured over predicted rates, on rows that the stack's
    constants were not fitted on.
    """

    stack: str = option_field("name of the stack that the rows tested; a stack that inherits from it has no such rows")
    rows: int = integer_field("measured rows", low=1)
    kind: str = option_field("what was measured, in words")
    median_error: float = quantity_field("1", "median of the absolute relative errors of predicted rates")
    low: float = quantity_field("1", "measured over predicted rate, tenth percentile", positive=True)
    high: float = quantity_field("1", "measured over predicted rate, ninetieth percentile", positive=True)

    @property
    def text(self) -> str:
        """Range and rows as text, as in "x0.8 to x1.2: 147 rows of an engine, 8 % median error"."""
        median = f"{100 * self.median_error:.0f} % median error"
        return f"x{self.low:.2g} to x{self.high:.2g}: {self.rows:,} rows of {self.kind}, {median}"


@record_class
class Stack:
    """Shares of a die's peaks that kernels and collectives reach, and their launch overheads."""

    matrix_efficiency: Number = quantity_field(
        "1", "share of the matrix peak that products reach", high=1.0, positive=True, former="matrix_achieved"
    )
    hbm_efficiency: Number = quantity_field(
        "1", "share of the memory's bandwidth that a stream reaches", high=1.0, positive=True, former="hbm_achieved"
    )
    matrix_energy: Any = quantity_field(
        "J",
        "energy of an operation at the power limit of a board: its time grows by this over `chip.power`; 0 if absent",
        absent=True,
    )
    roofline_exponent: Any = quantity_field(
        "1",
        "p of the time of a product, (compute^p + memory^p)^(1/p), both overlapping imperfectly; the longer of both if absent",
        low=1.0,
        absent=True,
    )
    network_efficiency: Number = quantity_field(
        "1", "share of a port's bandwidth that a collective reaches", high=1.0, positive=True, former="network_achieved"
    )
    network_half_size: Any = quantity_field(
        "B", "message of a collective that reaches half of network_efficiency; all sizes reach it if absent", absent=True
    )
    reduction_format: Any = option_field(
        "format in which dies add up partial sums; that of activations if absent", formats_of_tensor("activations"), absent=True
    )
    collective_launch: Number = quantity_field(
        "s",
        "launch overhead of a collective by the host, if no recorded graph of launches contains it",
        former="collective_call",
    )
    inter_node_launch: Number = quantity_field(
        "s", "launch overhead of a collective that leaves a node, besides the latency between nodes", former="nodes_call"
    )
    inter_node_efficiency: Any = quantity_field(
        "1",
        "share of the bandwidth between nodes in use, of which collectives reach network_efficiency; all if absent",
        high=1.0,
        positive=True,
        absent=True,
        former="nodes_achieved",
    )
    operator_launch: Number = quantity_field(
        "s", "launch and synchronisation overhead of one operator", former="operator_overhead"
    )
    attention_passes: Number = quantity_field(
        "1", "vector passes over each K and V element in decode attention; 0 if the matrix engine does the work"
    )
    product_block: Any = integer_field(
        "side of the square of results that a core computes at a time, in products with weights; even shares if absent",
        low=1,
        absent=True,
    )
    attention_efficiency: Any = quantity_field(
        "1",
        "share of the 16-bit matrix peak that attention reaches, whatever its formats; as products in its formats if absent",
        high=1.0,
        positive=True,
        absent=True,
    )
    gemm: Any = part_field("library kernels of matrix products; flat rates if absent", GemmConstants, former="products")
    prefill_attention: Any = part_field(
        "library kernels of prefill attention; flat rates if absent", PrefillAttentionConstants, former="context"
    )
    decode_attention: Any = part_field(
        "library kernels of decode attention; flat rates if absent",
        DecodeAttentionConstants,
        former="generation",
    )
    mla_prefill_attention: Any = part_field(
        "library kernels of prefill attention with keys and values expanded from latents; flat rates if absent",
        PrefillAttentionConstants,
        former="latent_context",
    )
    mla_decode_attention: Any = part_field(
        "library kernels of decode attention on latents; flat rates if absent", MlaDecodeConstants, former="latent_generation"
    )
    ring_collectives: Any = part_field(
        "library kernels of allreduce, allgather and reduce-scatter between dies, for allreduce=library",
        RingCollectives,
        former="rings",
    )
    all_to_all: Any = part_field("library kernels of all-to-all between dies", AllToAll, former="exchanges")
    one_shot_allreduce: Any = part_field(
        "allreduces of an inference engine besides rings, for allreduce=library", OneShotAllreduce, former="short"
    )
    grouped_gemm: Any = part_field(
        "library kernels of expert products; flat rates if absent", GroupedGemmConstants, former="experts"
    )
    elementwise: Any = part_field("library kernels of elementwise operators; flat rates if absent", ElementwiseConstants)
    moe_all_to_all: Any = part_field(
        "library kernels of expert dispatch and combine on many dies; flat rates if absent",
        MoeAllToAllConstants,
        former="dispatch",
    )
    iteration: Any = part_field(
        "what the inference engine does around an iteration's kernels; nothing if absent", IterationOverheads
    )
    moe: Any = part_field("what the inference engine does around expert products; nothing if absent", ExpertOverheads)
