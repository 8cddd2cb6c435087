"""The software under a mapping on dies with a cache: libraries of kernels and of collectives, and what launches them.

What the silicon could do is said by the chip; a stack says which share of it programs reach, and what starting them costs: by
a few flat rates, and kind by kind of kernel where it has a part for that (`space.libraries`). A part prices all kernels of its
kind, start included; the flat rates price what no part is for.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import part_field, quantity_field, record_class
from dse.space.libraries.decode_attention import DecodeAttentionConstants
from dse.space.libraries.elementwise import ElementwiseConstants
from dse.space.libraries.gemm import GemmConstants
from dse.space.libraries.grouped_gemm import GroupedGemmConstants
from dse.space.libraries.mla_decode_attention import MlaDecodeConstants
from dse.space.libraries.moe_all_to_all import MoeAllToAllConstants
from dse.space.libraries.node_collectives import AllToAll, OneShotAllreduce, RingCollectives
from dse.space.libraries.prefill_attention import PrefillAttentionConstants


@record_class
class Stack:
    """What kernels and collectives reach of a die's peaks, and what starting them costs."""

    matrix_efficiency: Number = quantity_field(
        "1", "share of the matrix peak that products reach", high=1.0, positive=True, former="matrix_achieved"
    )
    hbm_efficiency: Number = quantity_field(
        "1", "share of the memory's bandwidth that a stream reaches", high=1.0, positive=True, former="hbm_achieved"
    )
    network_efficiency: Number = quantity_field(
        "1", "share of a port's bandwidth that a collective reaches", high=1.0, positive=True, former="network_achieved"
    )
    collective_launch: Number = quantity_field(
        "s", "start of a collective by the host, where no recorded graph of launches holds it", former="collective_call"
    )
    inter_node_launch: Number = quantity_field(
        "s", "start of a collective that leaves a node, beside the latency of the network between nodes", former="nodes_call"
    )
    inter_node_efficiency: Any = quantity_field(
        "1",
        "share of the bandwidth between nodes that is used, of which collectives reach network_efficiency; all if not said",
        high=1.0,
        positive=True,
        absent=True,
        former="nodes_achieved",
    )
    operator_launch: Number = quantity_field("s", "launch and synchronisation of one operator", former="operator_overhead")
    attention_passes: Number = quantity_field(
        "1", "vector passes over each K and V element in decode attention; 0 where the matrix engine does it"
    )
    gemm: Any = part_field(
        "a library's products of matrices; at flat rates where it is not said", GemmConstants, former="products"
    )
    prefill_attention: Any = part_field(
        "a library's attention of prompts; at flat rates where it is not said", PrefillAttentionConstants, former="context"
    )
    decode_attention: Any = part_field(
        "a library's attention of decode steps; at flat rates where it is not said",
        DecodeAttentionConstants,
        former="generation",
    )
    mla_prefill_attention: Any = part_field(
        "likewise of prompts whose keys and values are expanded of latents", PrefillAttentionConstants, former="latent_context"
    )
    mla_decode_attention: Any = part_field(
        "likewise of decode steps over latents", MlaDecodeConstants, former="latent_generation"
    )
    ring_collectives: Any = part_field(
        "a library's allreduces, allgathers and reduce-scatters between dies, for allreduce=library",
        RingCollectives,
        former="rings",
    )
    all_to_all: Any = part_field("a library's exchanges of each with all", AllToAll, former="exchanges")
    one_shot_allreduce: Any = part_field(
        "allreduces of an inference engine beside those of rings, for allreduce=library", OneShotAllreduce, former="short"
    )
    grouped_gemm: Any = part_field(
        "a library's products of experts; at flat rates where it is not said", GroupedGemmConstants, former="experts"
    )
    elementwise: Any = part_field("a library's passes over elements; at flat rates where it is not said", ElementwiseConstants)
    moe_all_to_all: Any = part_field(
        "a library's exchanges with experts on many dies; at flat rates where it is not said",
        MoeAllToAllConstants,
        former="dispatch",
    )
