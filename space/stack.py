"""Software stack of shared-cache dies: libraries of kernels and collectives, and launch overheads.

The chip states what the silicon could do. A stack states the share that programs reach and the launch overheads: a few
flat rates, and one part per kind of library kernel (`space.libraries`). A part gives the time of all kernels of its
kind, start included; the flat rates give the time of the others.
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
    """Shares of a die's peaks that kernels and collectives reach, and their launch overheads."""

    matrix_achieved: Number = quantity_field("1", "share of the matrix peak that products reach", high=1.0, positive=True)
    hbm_achieved: Number = quantity_field("1", "share of the memory's bandwidth that a stream reaches", high=1.0, positive=True)
    network_achieved: Number = quantity_field(
        "1", "share of a port's bandwidth that a collective reaches", high=1.0, positive=True
    )
    collective_call: Number = quantity_field(
        "s", "start of a collective by the host, where no recorded graph of launches holds it"
    )
    nodes_call: Number = quantity_field(
        "s", "start of a collective that leaves a node, beside the latency of the network between nodes"
    )
    nodes_achieved: Any = quantity_field(
        "1",
        "share of the bandwidth between nodes that is used, of which collectives reach network_achieved; all if not said",
        high=1.0,
        positive=True,
        absent=True,
    )
    operator_overhead: Number = quantity_field("s", "launch and synchronisation of one operator")
    attention_passes: Number = quantity_field(
        "1", "vector passes over each K and V element in decode attention; 0 where the matrix engine does it"
    )
    products: Any = part_field("a library's products of matrices; at flat rates where it is not said", GemmConstants)
    context: Any = part_field("a library's attention of prompts; at flat rates where it is not said", PrefillAttentionConstants)
    generation: Any = part_field(
        "a library's attention of decode steps; at flat rates where it is not said", DecodeAttentionConstants
    )
    latent_context: Any = part_field(
        "likewise of prompts whose keys and values are expanded of latents", PrefillAttentionConstants
    )
    latent_generation: Any = part_field("likewise of decode steps over latents", MlaDecodeConstants)
    rings: Any = part_field(
        "a library's allreduces, allgathers and reduce-scatters between dies, for allreduce=library", RingCollectives
    )
    exchanges: Any = part_field("a library's exchanges of each with all", AllToAll)
    short: Any = part_field("allreduces of an inference engine beside those of rings, for allreduce=library", OneShotAllreduce)
    experts: Any = part_field("a library's products of experts; at flat rates where it is not said", GroupedGemmConstants)
    elementwise: Any = part_field("a library's passes over elements; at flat rates where it is not said", ElementwiseConstants)
    dispatch: Any = part_field(
        "a library's exchanges with experts on many dies; at flat rates where it is not said", MoeAllToAllConstants
    )
