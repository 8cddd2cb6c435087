"""Metrics and limits of a batch from the costs of its phases, alike on every layout."""

from collections.abc import Sequence
from functools import cache, reduce
from typing import Any

import numpy as np

from dse.evaluators.accounting.decode_segments import BatchArrays
from dse.evaluators.accounting.layout import Layout
from dse.evaluators.accounting.memory_contents import (
    MemoryContents,
    cache_scale,
    largest_use,
    memory_limits,
    spread_cache_scale,
)
from dse.evaluators.accounting.metrics import batch_metrics, rated_energies, rated_power
from dse.evaluators.accounting.phase import PhaseCost
from dse.evaluators.accounting.power import EnergyIntervals, power_metrics
from dse.evaluators.accounting.usage import (
    MAIN_MEMORY_METRICS,
    USAGE_METRICS,
    link_utilisation,
    system_peak_rates,
    usage_of_time,
)
from dse.evaluators.program.activity import Activity
from dse.evaluators.silicon import area
from dse.space.design import Design
from dse.space.lazy_metrics import make_lazy_metrics
from dse.space.limits import Limit
from dse.space.main_memory import has_main_memory
from dse.space.memory_tiers import AUTO_PLACEMENT, placement_plan

LINK_METRIC, CACHE_METRIC = "noc_utilisation", "kv_capacity"
"""Metrics of the links of a NoC, and of what the KV cache has room for."""


def die_and_system_area(layout: Layout, design: Design) -> tuple[Any, Any]:
    """Area of one die and of all dies. [mm2]"""
    return area.die_area(design.chip), area.total_area(design.chip) * layout.die_count(design)


def account_limits(layout: Layout, design: Design, job: BatchArrays, phases: Sequence[PhaseCost]) -> list[Limit]:
    """Limits of memories, main memory first, then those of structure."""
    contents = [memory for phase in phases for memory in phase.memory]
    contents.sort(key=lambda memory: not memory.is_main)
    return [*memory_limits(contents), *layout.structural_limits(design, job, phases)]


def account_metrics(layout: Layout, design: Design, job: BatchArrays, phases: Sequence[PhaseCost]) -> dict[str, Any]:
    """All metrics of a batch: rates, utilisation, memory in use, energy, power and price."""
    prefill, decode, *_ = phases
    latency = total_seconds(phases)
    return {
        **batch_metrics(job, prefill.seconds, decode.seconds, latency, *die_and_system_area(layout, design)),
        **_usage_metrics(layout, design, phases, latency),
        **_memory_metrics(design, job, phases),
        **layout.own_metrics(design, job, phases),
        **_rated_energies(layout, design, job, prefill.seconds, decode.seconds, latency),
        **power_metrics(
            design.chip,
            lambda: energy_and_time(layout, design, job, order_phases(phases)),
            job.output_tokens,
            chips=layout.die_count(design),
        ),
    }


def order_phases(phases: Sequence[PhaseCost]) -> tuple[PhaseCost, ...]:
    """Phases in the order in which they run; costs list the transition last."""
    prefill, decode, *between = phases
    return (prefill, *between, decode)


def total_seconds(phases: Sequence[PhaseCost]) -> Any:
    """Time of all phases, one after another. [s]"""
    total = phases[0].seconds
    for phase in phases[1:]:
        total = total + phase.seconds
    return total


def energy_and_time(layout: Layout, design: Design, job: BatchArrays, phases: Sequence[PhaseCost]) -> EnergyIntervals:
    """Dynamic energy and time of each phase. [J], [s]"""
    return [(layout.phase_energy(design, job, phase), phase.seconds) for phase in phases]


def _usage_metrics(layout: Layout, design: Design, phases: Sequence[PhaseCost], latency: Any) -> dict[str, Any]:
    """Utilisation of engines, memory channels and links of a NoC, computed when it is read."""

    def usage() -> dict[str, Any]:
        rates = system_peak_rates(layout.peak_rates(design), layout.die_count(design))
        flop: Any = 0.0
        nbytes: Any = 0.0
        hop_bytes: Any = 0.0
        for phase in phases:
            work = phase.activity
            flop = flop + phase.useful_flop
            nbytes = np.nan if work is None else nbytes + work.memory_bytes * phase.workers
            hop_bytes = hop_bytes + work.hop_bytes if isinstance(work, Activity) else np.nan
        values = usage_of_time(flop, nbytes, latency, rates.flops, rates.memory)
        links = {} if rates.links is None else {LINK_METRIC: link_utilisation(hop_bytes, rates.links, latency)}
        return values | links

    return make_lazy_metrics(_usage_names(has_main_memory(design.chip), design.chip.mesh is not None), usage)


@cache
def _usage_names(has_memory: bool, has_links: bool) -> tuple[str, ...]:
    """Metrics of usage of a chip with or without main memory, and links of a NoC."""
    names = (name for name in USAGE_METRICS if has_memory or name not in MAIN_MEMORY_METRICS)
    return (*names, *((LINK_METRIC,) if has_links else ()))


def _memory_metrics(design: Design, job: BatchArrays, phases: Sequence[PhaseCost]) -> dict[str, Any]:
    """Bytes in use of main memory and of the fullest local memory, and tokens that the KV cache has room for."""
    contents = [memory for phase in phases for memory in phase.memory]
    uses = {"hbm_used": largest_use(contents, main=True), "sram_used": largest_use(contents, main=False)}
    metrics = {name: value * 1.0 for name, value in uses.items() if value is not None}
    caching = [memory for memory in phases[1].memory if not memory.is_local]
    if not any(memory.has_cache for memory in caching):
        return metrics

    def capacity() -> dict[str, Any]:
        """Tokens that fit beside everything else, at the job's mix of lengths."""
        return {CACHE_METRIC: (job.prompt_tokens + job.decode_tokens) * _cache_scale(design, caching)}

    return metrics | make_lazy_metrics((CACHE_METRIC,), capacity)


def _cache_scale(design: Design, memories: Sequence[MemoryContents]) -> Any:
    """How many times the KV cache fits in main memory and tiers: as the rule spreads it, or where the mapping puts it. [1]"""
    if design.chip.tiers is not None and placement_plan(design.mapping).kv == AUTO_PLACEMENT:
        return spread_cache_scale(memories)
    return reduce(np.fmin, (cache_scale(memory) for memory in memories if memory.has_cache))


def _rated_energies(layout: Layout, design: Design, job: BatchArrays, ttft: Any, decoding: Any, latency: Any) -> dict[str, Any]:
    """Energies of all dies from the rated power of a data sheet; empty if that is unknown. [J]"""
    power = rated_power(design.chip.power)
    known = np.any(power == power) if isinstance(power, np.ndarray) else power == power  # not a number where it is not
    if not known:
        return {}
    return rated_energies(power * layout.die_count(design), job, ttft, decoding, latency)


def batch_limits(layout: Layout, design: Design, arrays: Sequence[BatchArrays]) -> list[Limit]:
    """Limits of a design under several jobs, in closed form."""
    return [limit for job in arrays for limit in account_limits(layout, design, job, layout.phases(design, job, "analytical"))]
