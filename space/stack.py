"""The software under a mapping on dies with a cache: libraries of kernels and of collectives, and what launches them.

What the silicon could do is said by the chip; a stack says which share of it programs reach, and what starting them costs: by
a few flat rates, and kind by kind of kernel where it has a part for that (`space.libraries`). A part prices all kernels of its
kind, start included; the flat rates price what no part is for.
"""

from typing import Any

from dse.space.elementwise import Number
from dse.space.fields import part, quantity, record
from dse.space.libraries.collectives import Exchanges, Rings, Short
from dse.space.libraries.context import Context
from dse.space.libraries.dispatch import Dispatch
from dse.space.libraries.experts import Grouped
from dse.space.libraries.generation import Generation
from dse.space.libraries.latent_generation import LatentGeneration
from dse.space.libraries.passes import Passes
from dse.space.libraries.products import Products


@record
class Stack:
    """What kernels and collectives reach of a die's peaks, and what starting them costs."""

    matrix_achieved: Number = quantity("1", "share of the matrix peak that products reach", high=1.0, positive=True)
    hbm_achieved: Number = quantity("1", "share of the memory's bandwidth that a stream reaches", high=1.0, positive=True)
    network_achieved: Number = quantity("1", "share of a port's bandwidth that a collective reaches", high=1.0, positive=True)
    collective_call: Number = quantity("s", "start of a collective by the host, where no recorded graph of launches holds it")
    nodes_call: Number = quantity(
        "s", "start of a collective that leaves a node, beside the latency of the network between nodes"
    )
    nodes_achieved: Any = quantity(
        "1",
        "share of the bandwidth between nodes that is used, of which collectives reach network_achieved; all if not said",
        high=1.0,
        positive=True,
        absent=True,
    )
    operator_overhead: Number = quantity("s", "launch and synchronisation of one operator")
    attention_passes: Number = quantity(
        "1", "vector passes over each K and V element in decode attention; 0 where the matrix engine does it"
    )
    products: Any = part("a library's products of matrices; at flat rates where it is not said", Products)
    context: Any = part("a library's attention of prompts; at flat rates where it is not said", Context)
    generation: Any = part("a library's attention of decode steps; at flat rates where it is not said", Generation)
    latent_context: Any = part("likewise of prompts whose keys and values are expanded of latents", Context)
    latent_generation: Any = part("likewise of decode steps over latents", LatentGeneration)
    rings: Any = part("a library's allreduces, allgathers and reduce-scatters between dies, for allreduce=library", Rings)
    exchanges: Any = part("a library's exchanges of each with all", Exchanges)
    short: Any = part("allreduces of an inference engine beside those of rings, for allreduce=library", Short)
    experts: Any = part("a library's products of experts; at flat rates where it is not said", Grouped)
    elementwise: Any = part("a library's passes over elements; at flat rates where it is not said", Passes)
    dispatch: Any = part("a library's exchanges with experts on many dies; at flat rates where it is not said", Dispatch)
