"""Leaves of a chip that a user does not choose separately: silicon, wires, software start-up times.

Every other leaf of a chip is a design choice: each setting that saves time costs area, power or money, which a test
checks. Options that cost nothing by nature give the reason.
"""

from dse.space.main_memory import memory_leaves

SILICON = "of silicon, wires or devices"
SOFTWARE = "of software that runs on cores"

CONSTANTS: dict[str, str] = {
    **dict.fromkeys(memory_leaves("strided_row_overhead", "strided_overfetch", "random_access_overhead"), SILICON),
    **dict.fromkeys(memory_leaves("stream_efficiency", "latency", "contended_efficiency"), SILICON),
    "network.latency": SILICON,
    "network.latency_per": SILICON,
    "network.hops": SILICON,
    "d2d.latency": SILICON,
    "d2d.barrier": SOFTWARE,
    "nodes.latency": SILICON,
    "nodes.exchange_start": SOFTWARE,
    "network.nodes.latency": SILICON,
    "chain.latency": SILICON,
    "chain.payload_share": SOFTWARE,
    "noc.hop_cycles": SILICON,
    "noc.ramp_cycles": SILICON,
    "noc.routing_paths": SILICON,
    "tile.matrix.fill": SILICON,
    "core.launch": SOFTWARE,
    "core.message_start": SOFTWARE,
    "core.word_copy": SOFTWARE,
    "core.software_stage": SOFTWARE,
    "core.vector_start": SOFTWARE,
    "tile.matrix.start": SOFTWARE,
    "tile.vector.start": SOFTWARE,
    "tile.dma_start": SOFTWARE,
    "tile.collective_sync": SOFTWARE,
    "tile.multi_head_overhead": SOFTWARE,
    "power": "what a data sheet says; nothing is computed from it but energies that papers state that way",
}
"""By address below ``chip``; so are all leaves below `PRICED`."""

PRICED_PREFIXES = (
    "technology.",
    "areas.",
    "dram.",
    "economics.",
    "die.",
    "base.",
    "carrier.",
    *(f"{part}." for part in memory_leaves("banks", "devices")),
    "decode.",
    "published.",
)
"""Parts with facts of silicon and money, parts for other fidelities, and parts of cores that a mapping sets apart."""

CHOSEN_PREFIXES = ("die_link.",)
"""Parts that no chip has until they are chosen, by name, from files with all of their constants."""

FREE: dict[str, str] = {
    "tile.matrix.dataflow": "an element holds two operands and a sum, whichever of them stays as others stream by; what is "
    "loaded behind its work, or leaves, has its area",
    "tile.gemm_engine": "which engine multiplies few rows is up to software; both engines are there and have their area",
}
"""Free options of a chip without any cost, by address below ``chip``, and the reason."""


def is_design_choice(address: str) -> bool:
    """Whether a leaf of a chip is a design choice rather than a fixed constant.

    >>> is_design_choice("hbm.capacity"), is_design_choice("noc.hop_cycles"), is_design_choice("technology.mac")
    (True, False, False)
    """
    return address not in CONSTANTS and not address.startswith((*PRICED_PREFIXES, *CHOSEN_PREFIXES))
