"""What each reader answers with for some software, part by part: what two readers share is what comparing them cannot test.

A part of an answer names who gives it, by reader: a function of this package. Where two readers have the same one, an error in
it is in both. ``tests/agreement/test_ways.py`` plays every software by every reader and holds this table to what was called.
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
"""Who plays something, step by step or request by request; all others are formulas."""


class FidelityPart(NamedTuple):
    """A part of an answer.

    Attributes:
        part: in words.
        analytical, events, cycles: who gives it there, as ``module:function``, or several that are alike, with ``|`` between
            them; "" of a reader that this software does not have.
        steady_state: likewise, of loads that are served.
    """

    part: str
    analytical: str
    events: str
    cycles: str
    steady_state: str = ""

    def by(self, fidelity: str) -> str:
        """Who gives it at a fidelity."""
        who: str = getattr(self, fidelity)
        return who

    @property
    def players(self) -> set[str]:
        """Readers whose answer is played."""
        return {
            word
            for word in ("steady_state", "analytical", "events", "cycles")
            if set(self.by(word).split("|")) & set(SIMULATORS)
        }


def _alike(part: str, who: str) -> FidelityPart:
    return FidelityPart(part, who, who, who)


OPERATORS = _alike("operators, FLOP and bytes of the model", "graph.transformer:transformer_segments")
TIMELINE = _alike(
    "the timeline of calls and what is prefetched", "cost_models.timeline:schedule_segment|cost_models.timeline:sequential_end"
)
SILICON = (
    _alike("energy of counted work", "silicon.energy:dynamic_energy"),
    _alike("area by part", "silicon.area:total_area"),
)
RATES = _alike("rates of links and engines", "machine.mesh_fabric:mesh_fabric|machine.mesh_fabric:tile_fabric")
ENGINES = _alike("time of a product on one engine", "machine.compute_engines:TileEngines.product")
CHANNEL = _alike("bandwidth and latency of a memory channel", "machine.memory_channels:channels_used")
TILE_BANKS = FidelityPart(
    "what long blocks lose to banks of a channel",
    "machine.memory_channels:column_memory",
    "machine.simulated_channels:simulated_channels",
    "machine.bank_simulator_state:closed_banks",
)
TILE_JOBS = (
    "cost_models.analytical_summa:job_cost|cost_models.analytical_attention:job_cost|cost_models.analytical_rows:job_cost"
)
ON_GROUPS = FidelityPart(
    "products on groups of cores with their messages", "cost_models.analytical:group_product_seconds", EVENTS, CYCLES
)
BANKS = FidelityPart(
    "reads and writes of HBM in banks",
    "machine.machine:CoreMemoryChannel.read",
    "machine.bank_tables:request_slowdown",
    "machine.burst_simulator:simulated_slowdown",
)
STAGES = FidelityPart("messages from stage to stage", "cost_models.analytical:stage_transfer_seconds", EVENTS, CYCLES)
BESIDE_PRODUCTS = _alike("attention and vectors beside products", "cost_models.call_cost:call_cost")


REQUESTS = "batching, KV memory and queues of requests"


def _priced(service: str) -> FidelityPart:
    """Prices of a layout's iterations, by the closed form alone."""
    return FidelityPart(
        "prices of iterations, and room for caches", f"accounting.serving_instances.{service}:instances", "", ""
    )


def _standing(*ways: FidelityPart) -> tuple[FidelityPart, ...]:
    """Of a load that is served, where iterations are priced by these."""
    serve = "serving.simulator:simulate_serving"
    analytical, events, cycles = (serve if way else "" for way in ways[0][1:4])
    loop = FidelityPart(REQUESTS, analytical, events, cycles, "serving.steady_state_solver:SteadyStateSolver.__init__")
    return (*(way._replace(steady_state=way.analytical) for way in ways), loop)


WAYS: dict[str, tuple[FidelityPart, ...]] = {
    DEVICES: (
        FidelityPart(
            "reads of HBM by cores side by side",
            "machine.shared_cache_die:RatedMemory.read",
            "machine.bank_tables:parallel_read_slowdown",
            "machine.parallel_reads:parallel_slowdown",
        ),
        OPERATORS,
        _alike("what a die takes for its calls beside reads, and libraries", "machine.shared_cache_die:shared_cache_parts"),
        TIMELINE,
        _alike("energy of counted work", "silicon.energy:pooled_dynamic_energy"),
        _alike("area by part", "silicon.area:total_area"),
    ),
    REGIONS: (
        FidelityPart(
            "kernels on the mesh: products, sums, vectors, moves", "cost_models.analytical:kernel_cost", EVENTS, CYCLES
        ),
        OPERATORS,
        _alike("which core holds and computes what", "layouts.regions:region_blocks"),
        RATES,
        TIMELINE,
        *SILICON,
    ),
    PIPELINES: (
        ON_GROUPS,
        BANKS,
        STAGES,
        OPERATORS,
        _alike("which core holds and computes what", "layouts.pipelines:group_blocks"),
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
        FidelityPart("products, attention and vectors on a die with their loads and messages", TILE_JOBS, EVENTS, ""),
        TILE_BANKS._replace(cycles=""),
        _priced("multi_die")._replace(events="accounting.serving_instances.multi_die:instances"),
    ),
    SERVED_POOLED_DIES: _standing(
        FidelityPart("messages between dies", "cost_models.die_exchange_jobs:job_cost", CROSSINGS, ""),
        _priced("multi_die")._replace(events="accounting.serving_instances.multi_die:instances"),
    ),
    WHOLE_CHIP: (
        FidelityPart("products, attention and vectors with their loads and messages", TILE_JOBS, EVENTS, CYCLES),
        TILE_BANKS,
        OPERATORS,
        ENGINES,
        CHANNEL,
        _alike("groups and slices that are left open", "cost_models.analytical_attention:propose_tiling"),
        TIMELINE,
        *SILICON,
    ),
    MANY_DIES: (
        FidelityPart("products, attention and vectors on a die with their loads and messages", TILE_JOBS, EVENTS, ""),
        FidelityPart("messages between dies", "cost_models.die_exchange_jobs:job_cost", CROSSINGS, ""),
        TILE_BANKS._replace(cycles=""),
        OPERATORS,
        _alike("which die has which experts and requests", "layouts.multi_die:micro_batch_passes"),
        ENGINES,
        CHANNEL,
        TIMELINE,
        *SILICON,
    ),
    POOLED_DIES: (
        FidelityPart("messages between dies", "cost_models.die_exchange_jobs:job_cost", CROSSINGS, ""),
        _alike("what a die takes for its calls", "cost_models.call_cost:block_timeline"),
        OPERATORS,
        _alike("which die has which experts and requests", "layouts.multi_die:micro_batch_passes"),
        _alike("energy of counted work", "silicon.energy:pooled_dynamic_energy"),
        _alike("area by part", "silicon.area:total_area"),
    ),
    PRODUCT: (
        FidelityPart("the product with its messages", "cost_models.analytical:kernel_cost", EVENTS, CYCLES),
        RATES,
        *SILICON,
    ),
    SUMMA: (
        FidelityPart("the product with its loads and messages", "cost_models.analytical_summa:job_cost", EVENTS, CYCLES),
        TILE_BANKS,
        ENGINES,
        RATES,
        CHANNEL,
        _alike("slices that are left open", "cost_models.analytical_summa:propose_summa_job"),
        *SILICON,
    ),
    COLLECTIVE: (FidelityPart("the collective", "cost_models.analytical:kernel_cost", EVENTS, CYCLES), RATES, *SILICON),
    DIE_COLLECTIVE: (
        FidelityPart("messages between dies", "cost_models.die_exchange_jobs:job_cost", CROSSINGS, CROSSINGS),
        _alike("area by part", "silicon.area:total_area"),
    ),
    ATTENTION: (
        FidelityPart("attention with its loads and messages", "cost_models.analytical_attention:job_cost", EVENTS, CYCLES),
        TILE_BANKS,
        ENGINES,
        RATES,
        CHANNEL,
        _alike("groups and slices that are left open", "cost_models.analytical_attention:propose_tiling"),
        *SILICON,
    ),
    STREAM: (
        FidelityPart(
            "banks, buses and queues under requests", "machine.dram_queue_model:channel_busy_time", DRAM_SIMULATOR, ""
        ),
        _alike("times of commands", "machine.memory_system:clocked_timing"),
        _alike("which bank an address is in", "machine.memory_system:map_addresses"),
    ),
    TRAFFIC: (
        FidelityPart("packets in routers", "accounting.kernel_workloads.noc_traffic:zero_load_traffic", "", ROUTERS),
        _alike("who sends to whom, and by which way", "machine.traffic_flows:traffic_flows"),
    ),
}
"""By software that more than one reader answers for; what is played comes first."""


def compare_fidelities(software: str, low: str, high: str) -> tuple[list[str], list[str]]:
    """Parts of an answer that two readers give alike, and parts that they give each in its own way.

    Args:
        software: as `space.software` has it.
        low, high: readers.

    >>> compare_fidelities("stream", "analytical", "events")[1]
    ['banks, buses and queues under requests']
    """
    ways = WAYS[software]
    alike = [way.part for way in ways if way.by(low) == way.by(high)]
    return alike, [way.part for way in ways if way.by(low) != way.by(high)]
