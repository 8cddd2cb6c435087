"""Functions that compute each part of an answer, by software and fidelity.

A comparison of two fidelities cannot test a part that they share.

A part of an answer names the function that computes it at each fidelity. An error in a function that two fidelities share is in
both. ``tests/agreement/test_ways.py`` runs every software at every fidelity and compares this table with the functions called.
"""

from typing import NamedTuple

from dse.space.software import (
    ATTENTION,
    COLLECTIVE,
    DEVICES,
    DIE_COLLECTIVE,
    MANY_DIES,
    PIPELINES,
    POOLED_DIES,
    PRODUCT,
    REGIONS,
    SERVED_DEVICES,
    SERVED_DIES,
    SERVED_PIPELINES,
    SERVED_POOLED_DIES,
    SERVED_REGIONS,
    SERVED_WHOLE_CHIP,
    STREAM,
    SUMMA,
    TRAFFIC,
    WHOLE_CHIP,
)

EVENTS, CYCLES = "cost_models.event_simulator:simulate_events", "cost_models.cycle_simulator:simulate_cycles"
DRAM_SIMULATOR = "machine.dram_simulator:simulate_requests"
CROSSINGS = "cost_models.simulated_die_exchange:ExchangeSimulator.job_cost"
ROUTERS = "machine.traffic_sources:run_traffic"
SIMULATORS = (EVENTS, CYCLES, DRAM_SIMULATOR, CROSSINGS, ROUTERS)
"""Functions that simulate a part; all others are formulas."""


class FidelityPart(NamedTuple):
    """One part of an answer, and the functions that compute it at each fidelity.

    Attributes:
        part: text of the part.
        analytical, events, cycles: function that computes it there, as ``module:function``, or several with ``|`` between
            them; empty string at a fidelity that this software does not have.
        steady_state: likewise, of loads that are served.
    """

    part: str
    analytical: str
    events: str
    cycles: str
    steady_state: str = ""

    def source_at(self, fidelity: str) -> str:
        """Names of the functions that compute the part at a fidelity; empty string if none."""
        who: str = getattr(self, fidelity)
        return who

    @property
    def players(self) -> set[str]:
        """Fidelities at which a simulation computes the part."""
        return {
            word
            for word in ("steady_state", "analytical", "events", "cycles")
            if set(self.source_at(word).split("|")) & set(SIMULATORS)
        }


def _alike(part: str, who: str) -> FidelityPart:
    return FidelityPart(part, who, who, who)


OPERATORS = _alike("operators, FLOP and bytes of the model", "graph.transformer:transformer_segments")
TIMELINE = _alike(
    "timeline of calls, and prefetches", "cost_models.timeline:schedule_segment|cost_models.timeline:sequential_end"
)
SILICON = (
    _alike("energy of counted work", "silicon.energy:dynamic_energy"),
    _alike("area by part", "silicon.area:total_area"),
)
RATES = _alike("rates of links and engines", "machine.mesh_fabric:mesh_fabric|machine.mesh_fabric:tile_fabric")
ENGINES = _alike("time of a product on one engine", "machine.compute_engines:TileEngines.product")
CHANNEL = _alike("bandwidth and latency of a memory channel", "machine.memory_channels:channels_used")
TILE_BANKS = FidelityPart(
    "time lost to the banks of a memory channel by long blocks",
    "machine.memory_channels:column_memory",
    "machine.simulated_channels:simulated_channels",
    "machine.bank_simulator_state:closed_banks",
)
TILE_JOBS = (
    "cost_models.analytical_summa:job_cost|cost_models.analytical_attention:job_cost|cost_models.analytical_rows:job_cost"
)
ON_GROUPS = FidelityPart(
    "products on groups of cores, with their messages", "cost_models.analytical:group_product_seconds", EVENTS, CYCLES
)
BANKS = FidelityPart(
    "reads and writes of the banks of main memory",
    "machine.machine:CoreMemoryChannel.read",
    "machine.bank_tables:request_slowdown",
    "machine.burst_simulator:simulate_slowdown",
)
STAGES = FidelityPart("messages between pipeline stages", "cost_models.analytical:stage_transfer_seconds", EVENTS, CYCLES)
BESIDE_PRODUCTS = _alike("attention and vector operations, without products", "cost_models.call_cost:call_cost")


REQUESTS = "batching, KV memory and queues of requests"


def _priced(service: str) -> FidelityPart:
    """Iteration times of a layout, by the analytical model alone."""
    return FidelityPart(
        "iteration times, and memory for KV caches", f"accounting.serving_instances.{service}:instances", "", ""
    )


def _standing(*ways: FidelityPart) -> tuple[FidelityPart, ...]:
    """Parts of a serving load whose iteration times come from `ways`."""
    serve = "serving.simulator:simulate_serving"
    analytical, events, cycles = (serve if way else "" for way in ways[0][1:4])
    loop = FidelityPart(REQUESTS, analytical, events, cycles, "serving.steady_state_solver:SteadyStateSolver.__init__")
    return (*(way._replace(steady_state=way.analytical) for way in ways), loop)


WAYS: dict[str, tuple[FidelityPart, ...]] = {
    DEVICES: (
        FidelityPart(
            "reads of main memory by all cores of a die",
            "machine.shared_cache_die:RatedMemory.read",
            "machine.bank_tables:parallel_read_slowdown",
            "machine.parallel_reads:simulate_parallel_slowdown",
        ),
        OPERATORS,
        _alike("time of calls on a die without reads, and library kernels", "machine.shared_cache_die:shared_cache_parts"),
        TIMELINE,
        _alike("energy of counted work", "silicon.energy:pooled_dynamic_energy"),
        _alike("area by part", "silicon.area:total_area"),
    ),
    REGIONS: (
        FidelityPart(
            "kernels on the mesh: products, collectives, vector operations, data movement",
            "cost_models.analytical:kernel_cost",
            EVENTS,
            CYCLES,
        ),
        OPERATORS,
        _alike("layout: work and data of each core", "layouts.regions:region_blocks"),
        RATES,
        TIMELINE,
        *SILICON,
    ),
    PIPELINES: (
        ON_GROUPS,
        BANKS,
        STAGES,
        OPERATORS,
        _alike("layout: work and data of each core", "layouts.pipelines:group_blocks"),
        ENGINES,
        BESIDE_PRODUCTS,
        TIMELINE,
        *SILICON,
    ),
    SERVED_PIPELINES: _standing(ON_GROUPS, BANKS, STAGES, OPERATORS, ENGINES, BESIDE_PRODUCTS, TIMELINE, *SILICON),
    SERVED_DEVICES: _standing(_priced("tensor_parallel")),
    SERVED_REGIONS: _standing(_priced("regions")),
    SERVED_WHOLE_CHIP: _standing(_priced("whole_chip")),
    SERVED_DIES: _standing(
        FidelityPart("messages between dies", "cost_models.die_exchange_jobs:job_cost", CROSSINGS, ""),
        FidelityPart("products, attention and vector operations on a die, with loads and messages", TILE_JOBS, EVENTS, ""),
        TILE_BANKS._replace(cycles=""),
        _priced("multi_die")._replace(events="accounting.serving_instances.multi_die:instances"),
    ),
    SERVED_POOLED_DIES: _standing(
        FidelityPart("messages between dies", "cost_models.die_exchange_jobs:job_cost", CROSSINGS, ""),
        _priced("multi_die")._replace(events="accounting.serving_instances.multi_die:instances"),
    ),
    WHOLE_CHIP: (
        FidelityPart("products, attention and vector operations, with loads and messages", TILE_JOBS, EVENTS, CYCLES),
        TILE_BANKS,
        OPERATORS,
        ENGINES,
        CHANNEL,
        _alike(
            "choice of open groups and tilings",
            "cost_models.analytical_attention:search_tiling",
        ),
        TIMELINE,
        *SILICON,
    ),
    MANY_DIES: (
        FidelityPart("products, attention and vector operations on a die, with loads and messages", TILE_JOBS, EVENTS, ""),
        FidelityPart("messages between dies", "cost_models.die_exchange_jobs:job_cost", CROSSINGS, ""),
        TILE_BANKS._replace(cycles=""),
        OPERATORS,
        _alike("layout: experts and requests of each die", "layouts.multi_die:micro_batch_passes"),
        ENGINES,
        CHANNEL,
        TIMELINE,
        *SILICON,
    ),
    POOLED_DIES: (
        FidelityPart("messages between dies", "cost_models.die_exchange_jobs:job_cost", CROSSINGS, ""),
        _alike("time of calls on a die", "cost_models.call_cost:block_timeline"),
        OPERATORS,
        _alike("layout: experts and requests of each die", "layouts.multi_die:micro_batch_passes"),
        _alike("energy of counted work", "silicon.energy:pooled_dynamic_energy"),
        _alike("area by part", "silicon.area:total_area"),
    ),
    PRODUCT: (
        FidelityPart("the product, with its messages", "cost_models.analytical:kernel_cost", EVENTS, CYCLES),
        RATES,
        *SILICON,
    ),
    SUMMA: (
        FidelityPart("the product, with its loads and messages", "cost_models.analytical_summa:job_cost", EVENTS, CYCLES),
        TILE_BANKS,
        ENGINES,
        RATES,
        CHANNEL,
        _alike("choice of the open tiling", "cost_models.analytical_summa:propose_summa_job"),
        *SILICON,
    ),
    COLLECTIVE: (FidelityPart("the collective", "cost_models.analytical:kernel_cost", EVENTS, CYCLES), RATES, *SILICON),
    DIE_COLLECTIVE: (
        FidelityPart("messages between dies", "cost_models.die_exchange_jobs:job_cost", CROSSINGS, CROSSINGS),
        _alike("area by part", "silicon.area:total_area"),
    ),
    ATTENTION: (
        FidelityPart("attention, with its loads and messages", "cost_models.analytical_attention:job_cost", EVENTS, CYCLES),
        TILE_BANKS,
        ENGINES,
        RATES,
        CHANNEL,
        _alike(
            "choice of open groups and tilings",
            "cost_models.analytical_attention:search_tiling",
        ),
        *SILICON,
    ),
    STREAM: (
        FidelityPart(
            "banks, buses and queues under requests", "machine.dram_queue_model:channel_busy_time", DRAM_SIMULATOR, ""
        ),
        _alike("times of memory commands", "machine.memory_system:clocked_timing"),
        _alike("bank of each address", "machine.memory_system:map_addresses"),
    ),
    TRAFFIC: (
        FidelityPart("packets in routers", "accounting.kernel_workloads.noc_traffic:zero_load_traffic", "", ROUTERS),
        _alike("targets and routes of packets", "machine.traffic_flows:traffic_flows"),
    ),
}
"""Parts by software with more than one fidelity; simulated parts come first."""


def compare_fidelities(software: str, low: str, high: str) -> tuple[list[str], list[str]]:
    """Parts of an answer that two fidelities share, and parts that each computes by itself.

    Args:
        software: as `space.software` has it.
        low, high: fidelities.

    >>> compare_fidelities("stream", "analytical", "events")[1]
    ['banks, buses and queues under requests']
    """
    ways = WAYS[software]
    alike = [way.part for way in ways if way.source_at(low) == way.source_at(high)]
    return alike, [way.part for way in ways if way.source_at(low) != way.source_at(high)]
