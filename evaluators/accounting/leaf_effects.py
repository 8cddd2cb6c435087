"""Effects of a chip's numbers on time, silicon and memory limits of batches and loads, by layout.

A box fixes all options and gives such numbers ranges. Its fastest corner has the end of each range at which every call and
collective is shortest, its smallest corner the end at which area, power and price are least. No design of the box is faster
than the first, or smaller than the second, so that both together bound every metric of `LEAST` and `MOST`.

Each effect is declared here with a sketch of its proof. `tests/dse/test_certify.py` and `tests/dse/test_certify_tiles.py` draw
random boxes and look for a design that beats its bound.

A serving load has the numbers of its layout, in the steady state. Batches of a faster chip may gather otherwise, so that no
effect is proved there: `tests/dse/test_certify_served.py` samples by how much a faster chip is slower at most, and bounds are
loosened by more (`bound_margin`).
"""

from collections.abc import Mapping
from typing import NamedTuple

from dse.evaluators.accounting.layout import layout_of
from dse.evaluators.machine.library_die import die_libraries
from dse.space.design import Design
from dse.space.published import FACTS, is_said
from dse.space.software import (
    DEVICES,
    PIPELINES,
    REGIONS,
    SERVED_DEVICES,
    SERVED_WHOLE_CHIP,
    SOFTWARE,
    WHOLE_CHIP,
    software_of,
)
from dse.space.workload import ServingLoad, Workload

PROVED, SAMPLED = "proved", "sampled"
"""How an effect is known: by an argument on the formulas, or by random designs alone."""


class LeafEffect(NamedTuple):
    """Effect of more of a number, all others equal.

    Attributes:
        time: -1 where no time of a phase and no activity grows, +1 where none shrinks, 0 where they do not change.
        silicon: +1 where neither area nor static power nor price shrinks, -1 where none grows, 0 where they do not change.
        room: +1 where no limit of a memory is harder to keep, 0 where such limits do not change.
        basis: `PROVED` or `SAMPLED`.
        proof: why, in one or two sentences.
    """

    time: int
    silicon: int
    room: int
    basis: str
    proof: str


_AREA = "Each block of the die is a product of non-negative factors, of which none shrinks"

_POOL: dict[str, LeafEffect] = {
    "chip.cores": LeafEffect(
        -1, 1, 0, PROVED, f"All cores are one engine, whose operation takes 1 / (cores x rate); reads do not change. {_AREA}."
    ),
    "chip.core.matrix": LeafEffect(
        -1, 1, 0, PROVED, f"A product takes operations over the rate; a call takes the longer of engines and reads. {_AREA}."
    ),
    "chip.core.vector": LeafEffect(
        -1, 1, 0, PROVED, f"Operations on elements take their number over the rate, beside products and reads. {_AREA}."
    ),
    "chip.l2.bandwidth": LeafEffect(
        -1, 1, 0, PROVED, f"A byte of activations or of prefetched data takes 1 / bandwidth, a summand of reads. {_AREA}."
    ),
    "chip.l2.size": LeafEffect(
        -1,
        1,
        0,
        PROVED,
        "More activations stay, more bytes are prefetched, and both are read sooner from the cache than from main memory. "
        "Calls wait for what is prefetched: the box has the waits of its smallest cache and the calls of its largest. The end "
        f"of a block is made of sums and maxima of both. {_AREA}.",
    ),
    "chip.hbm.bandwidth": LeafEffect(
        -1,
        1,
        0,
        PROVED,
        "A byte takes 1 / bandwidth, of strided reads plus the time of gaps, whether it is awaited on the prefetch stream or "
        "read by a call; which bytes are prefetched does not depend on it. Devices of memory are bandwidth over theirs. "
        f"{_AREA}.",
    ),
    "chip.hbm.capacity": LeafEffect(
        0, 1, 1, PROVED, "No time depends on it; memory is bought by capacity; contents of memory do not depend on it."
    ),
    "chip.network.bandwidth": LeafEffect(
        -1,
        1,
        0,
        PROVED,
        "A collective is a sum of bytes over the bandwidth and of latencies, and opens a block sooner if it is shorter. "
        f"{_AREA}.",
    ),
    "chip.network.latency": LeafEffect(1, 0, 0, PROVED, "A collective has a latency for each of its steps; no area has one."),
}

_TILING = "Which tilings are tried does not depend on it, and a box takes the fastest of all that fit its largest local memory"

_TILES: dict[str, LeafEffect] = {
    "chip.tile.sram": LeafEffect(
        -1,
        1,
        1,
        PROVED,
        f"{_TILING}. Blocks of row kernels are those of the box's largest memory, or have the least instructions and bytes a "
        f"row of all between (`analytical_rows._least_of_box`). {_AREA}.",
    ),
    "chip.tile.matrix.rows": LeafEffect(
        -1,
        1,
        0,
        PROVED,
        "Not monotone: a box takes the least padding of its arrays (`compute_engines.least_element_cycles`, "
        f"`least_systolic_cycles`). Times of each tiling grow with its products'. {_TILING}. {_AREA}.",
    ),
    "chip.tile.matrix.cols": LeafEffect(-1, 1, 0, PROVED, f"As of the array's rows. {_AREA}."),
    "chip.tile.vector.lanes": LeafEffect(
        -1,
        1,
        0,
        PROVED,
        f"An instruction takes the longest of three quotients, of which this is a divisor. {_TILING}. {_AREA}.",
    ),
    "chip.tile.vector.special": LeafEffect(-1, 1, 0, PROVED, f"As of lanes. {_AREA}."),
    "chip.tile.sram_bandwidth": LeafEffect(
        -1, 1, 0, PROVED, f"A divisor of the bytes of an instruction or a product, beside their operations. {_TILING}. {_AREA}."
    ),
    "chip.noc.word_bytes": LeafEffect(
        -1,
        1,
        0,
        PROVED,
        "Messages have no more words, each of the same time, and a channel's link no more time for a byte. What is subtracted "
        f"from times of messages and channels is less than what these lose. {_TILING}. {_AREA}.",
    ),
    "chip.hbm.channel_bandwidth": LeafEffect(
        -1,
        1,
        0,
        PROVED,
        "A piece of 1 MiB lies over pseudo-channels in proportion to the bandwidth, and takes no longer where fewer of its "
        "requests are on each. Times of each tiling grow with those of a byte, alone and beside others. "
        f"{_TILING}. {_AREA}.",
    ),
    "chip.hbm.capacity": _POOL["chip.hbm.capacity"],
}

_PIPELINE: dict[str, LeafEffect] = {
    "chip.tile.sram": LeafEffect(
        -1, 1, 1, SAMPLED, "More local memory holds more weights and more of the KV cache, and has room for longer chunks."
    ),
    "chip.tile.vector.lanes": LeafEffect(
        -1, 1, 0, SAMPLED, "Operations on elements take their number over the lanes, beside or after products."
    ),
    "chip.noc.word_bytes": LeafEffect(
        -1, 1, 0, SAMPLED, "Messages take fewer words; what was prefetched behind a message is read after it, in no more time."
    ),
    "chip.hbm.channel_bandwidth": LeafEffect(
        -1, 1, 0, SAMPLED, "A byte takes 1 / bandwidth of a core's channel, whether it is prefetched or awaited."
    ),
}

_REGION: dict[str, LeafEffect] = {
    "chip.core.sram": LeafEffect(
        -1, 1, 1, SAMPLED, "More memory of a core has room for more of the KV cache; regions are as large as the mapping says."
    ),
    "chip.core.mac": LeafEffect(1, -1, 0, SAMPLED, "A multiply-add takes so many cycles, and an engine of more is smaller."),
    "chip.core.vector_operation": LeafEffect(
        1, -1, 0, SAMPLED, "An operation on an element takes so many cycles, and an engine of more is smaller."
    ),
    "chip.core.launch": LeafEffect(1, 0, 0, SAMPLED, "Each task of a kernel starts with so many cycles; no area has one."),
    "chip.noc.word_bytes": LeafEffect(-1, 1, 0, SAMPLED, "Messages take fewer words on wider links; routers grow with them."),
}


def _as_served(effects: Mapping[str, LeafEffect]) -> dict[str, LeafEffect]:
    """Sampled effects under a serving load: without capacities, since with more memory an instance serves larger batches."""
    note = "An iteration takes no longer; queues and batches of the steady state follow, as far as random boxes show."
    sampled = {address: effect._replace(basis=SAMPLED, proof=note) for address, effect in effects.items()}
    sampled.pop("chip.hbm.capacity", None)
    return sampled


EFFECTS: dict[str, Mapping[str, LeafEffect]] = {
    DEVICES: _POOL,
    PIPELINES: _PIPELINE,
    REGIONS: _REGION,
    WHOLE_CHIP: _TILES,
    SERVED_DEVICES: _as_served(_POOL),
    SERVED_WHOLE_CHIP: _as_served(_TILES),
}
"""Numbers with an effect, by layout and address; a layout that is absent has no bounds over boxes."""

TIMES = ("ttft", "tpot", "latency")
RATES = ("throughput", "decode_throughput", "prefill_throughput", "tokens_per_s_per_user")
LEAST = (
    *TIMES, "system_mm2", "die_mm2", "energy", "energy_per_token", "system_price", "price_per_mtoken", "capital_per_mtoken",
    "electricity_per_mtoken",
)  # fmt: skip
"""Metrics of which a box has a lower bound: times of the fastest corner; area, static power and price of the smallest; energy
of the activity of the one and the static power of the other."""

MOST = (
    *RATES, "throughput_per_system_mm2", "throughput_per_die_mm2", "decode_throughput_per_system_mm2",
    "decode_throughput_per_die_mm2",
)  # fmt: skip
"""Metrics of which a box has an upper bound: tokens over those times, and over those areas."""

OF_ONE_DIE = (
    "die_mm2", "throughput_per_die_mm2", "decode_throughput_per_die_mm2", "system_price", "price_per_mtoken",
    "capital_per_mtoken",
)  # fmt: skip
"""Metrics without a bound where the number of dies is chosen by area: more area may take one more die, each smaller."""


OF_ENERGY = ("energy", "energy_per_token", "price_per_mtoken", "electricity_per_mtoken")
"""Metrics without a bound on tiles: the tiling of least energy is not that of least time, and a larger array takes less SRAM
energy an operation."""

AREAS_AND_PRICE = ("system_mm2", "die_mm2", "system_price")
"""Metrics of a serving load that depend on the smallest corner alone."""

SERVED_AT_MAX_RATE = ((*AREAS_AND_PRICE, "capital_per_mtoken"), ("max_rate", "capacity_per_mm2"))
"""Metrics with a lower bound, and those with an upper one, of a serving load at its maximum rate."""

SERVED_AT_RATE = (
    (*TIMES, "tbt_p99", *AREAS_AND_PRICE, "capital_per_mtoken"),
    ("throughput", "request_throughput", "goodput", "slo_attainment", "throughput_per_system_mm2", "throughput_per_die_mm2"),
)
"""The same of a serving load at a fixed rate."""

SERVED_MARGIN, QUEUE_MARGIN = 0.04, 0.08
"""Shares by which the bounds of serving loads are loosened; the second of `QUEUED` metrics. In 5,000 random boxes of dies
designs beat the fastest corner by 2.2 % at most, by 3 % in `QUEUED` metrics; in 150 of tiles none did."""

QUEUED = ("ttft", "latency", "tbt_p99")
"""Metrics with times in queues, which depend most on who is served together."""


def metric_sides(workload: Workload) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Metrics of a workload with a lower bound over boxes, and those with an upper one."""
    if not isinstance(workload.cases[0], ServingLoad):
        return LEAST, MOST
    return SERVED_AT_MAX_RATE if workload.cases[0].largest else SERVED_AT_RATE


def bound_margin(metric: str, workload: Workload) -> float:
    """Share by which the bound of a metric over boxes is loosened; 0 where it is proved.

    0 also of areas and prices, which no queue changes.
    """
    if not isinstance(workload.cases[0], ServingLoad) or metric in AREAS_AND_PRICE:
        return 0.0
    return QUEUE_MARGIN if metric in QUEUED else SERVED_MARGIN


def leaf_effects(design: Design) -> Mapping[str, LeafEffect]:
    """Effects of the numbers of a design's chip, by address, without those that are uncertain."""
    effects = dict(EFFECTS.get(software_of(design.mapping), {}))
    chip, mapping = design.chip, design.mapping
    if chip.die is not None and chip.die.built_cores != 0:  # fewer spare cores, and fewer ways to the cache for each
        effects.pop("chip.cores", None)
    if mapping.inference_engine is not None:  # which takes a share of the memory for itself
        effects.pop("chip.hbm.capacity", None)
    return effects


def bounds_obstacle(design: Design) -> str:
    """Why boxes around a design have no bounds, as text; empty string if they have."""
    software = software_of(design.mapping)
    if software not in EFFECTS:
        known = ", ".join(SOFTWARE[name].name for name in EFFECTS)
        return (
            f"no bounds over boxes are known of {SOFTWARE[software].name}, whose sizes pad where they do not divide; of {known}"
        )
    if design.pools is not None:
        return "pools on unlike chips have no bounds over boxes; certify a system of one kind of chip"
    if software in (WHOLE_CHIP, SERVED_WHOLE_CHIP) and (reason := _tiles_obstacle(design)):
        return f"bounds over boxes of tiles are not proved with {reason}"
    if software in (DEVICES, PIPELINES, REGIONS, WHOLE_CHIP) and layout_of(design).is_evaluated_alone(design):
        return "attention on groups of cores is computed design by design, for which there are no bounds"
    if design.chip.die_link is not None:
        return "the dies of a mesh and their links are chosen by its area, so that times are not monotone; remove chip.die_link"
    if design.mapping.stack is not None and die_libraries(design.chip, design.mapping.stack) is not None:
        return "library kernels of mapping.stack take waves of tiles, whose time is not monotone in any number"
    if design.chip.tiers is not None:
        return "contents move between memory tiers as sizes change, so that time is not monotone; remove chip.tiers"
    facts = [fact for fact in FACTS if is_said(design.chip, fact)]
    if facts:
        return f"chip.published.{facts[0]} holds for one chip alone, so that area is not monotone; set chip.published=null"
    return ""


def _tiles_obstacle(design: Design) -> str:
    """Setting of a design with which boxes of tiles have no bounds, as text; empty string if there is none."""
    chip, plans = design.chip, (design.mapping.prefill, design.mapping.decode)
    if chip.l2 is not None:
        return "a cache in front of main memory (chip.l2), of which operators share what is kept"
    if any(plan.prefetch is not None and plan.prefetch.policy != "none" for plan in plans):
        return "prefetching (mapping.prefill.prefetch.policy), which takes what local memory is left; set it to none"
    if any(plan.state_share is not None for plan in plans):
        return "resident states (mapping.decode.state_share); set it to null"
    if chip.die is not None and chip.die.broken_density is not None:
        return "detours around broken cores, which go by the area of a core (chip.die.broken_density)"
    return ""


def unbounded_reason(metric: str, better: str, design: Design, workload: Workload) -> str:
    """Why a metric has no bound over boxes around a design; empty string if it has one.

    Args:
        metric: its name.
        better: "min" or "max": which bound is needed.
        design: of the space.
        workload: static batches or serving loads.
    """
    wanted = metric_sides(workload)[better == "max"]
    known = ", ".join(name for name in bounded_metrics(design, workload) if name in wanted)
    if metric not in wanted:
        return f"has no {'lower' if better == 'min' else 'upper'} bound over boxes; metrics that have one: {known}"
    if metric in OF_ENERGY and software_of(design.mapping) == WHOLE_CHIP:
        return "has no bound on tiles, whose tiling of least energy is not that of least time; use capital_per_mtoken or areas"
    if metric not in bounded_metrics(design, workload):
        return f"has no bound where the number of dies is chosen (chip.die.dies=0); set chip.die.dies, or use {known}"
    return ""


def bounded_metrics(design: Design, workload: Workload) -> tuple[str, ...]:
    """Metrics of a workload of which boxes around a design have a lower or an upper bound."""
    chip = design.chip
    chosen = chip.areas is None and (chip.die is None or chip.die.dies == 0)
    without = (*(OF_ONE_DIE if chosen else ()), *(OF_ENERGY if software_of(design.mapping) == WHOLE_CHIP else ()))
    least, most = metric_sides(workload)
    return tuple(name for name in (*least, *most) if name not in without)
