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

EVENTS, CYCLES = "readers.events:play", "readers.cycles:play"
DRAM = "machine.dram:serve"
CROSSINGS = "readers.events_crossings:Events.price"
ROUTERS = "machine.sources:run"
PLAYERS = (EVENTS, CYCLES, DRAM, CROSSINGS, ROUTERS)
"""Who plays something, step by step or request by request; all others are formulas."""


class Way(NamedTuple):
    """A part of an answer.

    Attributes:
        part: in words.
        closed, events, cycles: who gives it there, as ``module:function``, or several that are alike, with ``|`` between them;
            "" of a reader that this software does not have.
        steady: likewise, of loads that are served.
    """

    part: str
    closed: str
    events: str
    cycles: str
    steady: str = ""

    def by(self, fidelity: str) -> str:
        """Who gives it at a fidelity."""
        who: str = getattr(self, fidelity)
        return who

    @property
    def players(self) -> set[str]:
        """Readers whose answer is played."""
        return {word for word in ("steady", "closed", "events", "cycles") if set(self.by(word).split("|")) & set(PLAYERS)}


def _alike(part: str, who: str) -> Way:
    return Way(part, who, who, who)


OPERATORS = _alike("operators, FLOP and bytes of the model", "graph.transformer:transformer")
TIMELINE = _alike("the timeline of calls and what is prefetched", "readers.timeline:schedule|readers.timeline:in_turn")
SILICON = (
    _alike("energy of counted work", "silicon.energy:dynamic"),
    _alike("area by part", "silicon.area:total"),
)
RATES = _alike("rates of links and engines", "machine.fabric:mesh_fabric|machine.fabric:tile_fabric")
ENGINES = _alike("time of a product on one engine", "machine.engine:Engines.product")
CHANNEL = _alike("bandwidth and latency of a memory channel", "machine.channels:channels_used")
TILE_BANKS = Way(
    "what long blocks lose to banks of a channel",
    "machine.channels:column_memory",
    "machine.played_channels:chip_channels",
    "machine.banks_at_rest:at_start",
)
TILE_JOBS = "readers.closed_summa:price|readers.closed_attention:price|readers.closed_streamed:price"
ON_GROUPS = Way("products on groups of cores with their messages", "readers.closed:product", EVENTS, CYCLES)
BANKS = Way(
    "reads and writes of HBM in banks", "machine.machine:Channel.read", "machine.bank_state:pace", "machine.bursts:pace"
)
STAGES = Way("messages from stage to stage", "readers.closed:onward", EVENTS, CYCLES)
BESIDE_PRODUCTS = _alike("attention and vectors beside products", "readers.price:price")


REQUESTS = "batching, KV memory and queues of requests"


def _priced(service: str) -> Way:
    """Prices of a layout's iterations, by the closed form alone."""
    return Way("prices of iterations, and room for caches", f"account.services.{service}:instances", "", "")


def _standing(*ways: Way) -> tuple[Way, ...]:
    """Of a load that is served, where iterations are priced by these."""
    serve = "serving.loop:serve"
    closed, events, cycles = (serve if way else "" for way in ways[0][1:4])
    loop = Way(REQUESTS, closed, events, cycles, "serving.stood:Stood.__init__")
    return (*(way._replace(steady=way.closed) for way in ways), loop)


WAYS: dict[str, tuple[Way, ...]] = {
    DEVICES: (
        Way(
            "reads of HBM by cores side by side",
            "machine.pooled:Rated.read",
            "machine.bank_state:side_by_side",
            "machine.streams:pace",
        ),
        OPERATORS,
        _alike("what a die takes for its calls beside reads, and libraries", "machine.pooled:pooled"),
        TIMELINE,
        _alike("energy of counted work", "silicon.energy:of_pool"),
        _alike("area by part", "silicon.area:total"),
    ),
    REGIONS: (
        Way("kernels on the mesh: products, sums, vectors, moves", "readers.closed:kernel", EVENTS, CYCLES),
        OPERATORS,
        _alike("which core holds and computes what", "layouts.regions:blocks"),
        RATES,
        TIMELINE,
        *SILICON,
    ),
    PIPELINES: (
        ON_GROUPS,
        BANKS,
        STAGES,
        OPERATORS,
        _alike("which core holds and computes what", "layouts.pipelines:blocks"),
        ENGINES,
        BESIDE_PRODUCTS,
        TIMELINE,
        *SILICON,
    ),
    SERVED_PIPELINES: _standing(ON_GROUPS, BANKS, STAGES, OPERATORS, ENGINES, BESIDE_PRODUCTS, TIMELINE, *SILICON),
    SERVED_DEVICES: _standing(_priced("devices")),
    SERVED_REGIONS: _standing(_priced("regions")),
    SERVED_WHOLE_CHIP: _standing(_priced("whole_chip")),
    SERVED_DIES: _standing(
        Way("messages between dies", "readers.crossings:price", CROSSINGS, ""),
        Way("products, attention and vectors on a die with their loads and messages", TILE_JOBS, EVENTS, ""),
        TILE_BANKS._replace(cycles=""),
        _priced("many_dies")._replace(events="account.services.many_dies:instances"),
    ),
    SERVED_POOLED_DIES: _standing(
        Way("messages between dies", "readers.crossings:price", CROSSINGS, ""),
        _priced("many_dies")._replace(events="account.services.many_dies:instances"),
    ),
    WHOLE_CHIP: (
        Way("products, attention and vectors with their loads and messages", TILE_JOBS, EVENTS, CYCLES),
        TILE_BANKS,
        OPERATORS,
        ENGINES,
        CHANNEL,
        _alike("groups and slices that are left open", "readers.closed_attention:proposed"),
        TIMELINE,
        *SILICON,
    ),
    MANY_DIES: (
        Way("products, attention and vectors on a die with their loads and messages", TILE_JOBS, EVENTS, ""),
        Way("messages between dies", "readers.crossings:price", CROSSINGS, ""),
        TILE_BANKS._replace(cycles=""),
        OPERATORS,
        _alike("which die has which experts and requests", "layouts.dies:passes"),
        ENGINES,
        CHANNEL,
        TIMELINE,
        *SILICON,
    ),
    POOLED_DIES: (
        Way("messages between dies", "readers.crossings:price", CROSSINGS, ""),
        _alike("what a die takes for its calls", "readers.price:timed"),
        OPERATORS,
        _alike("which die has which experts and requests", "layouts.dies:passes"),
        _alike("energy of counted work", "silicon.energy:of_pool"),
        _alike("area by part", "silicon.area:total"),
    ),
    PRODUCT: (Way("the product with its messages", "readers.closed:kernel", EVENTS, CYCLES), RATES, *SILICON),
    SUMMA: (
        Way("the product with its loads and messages", "readers.closed_summa:price", EVENTS, CYCLES),
        TILE_BANKS,
        ENGINES,
        RATES,
        CHANNEL,
        _alike("slices that are left open", "readers.closed_summa:proposed"),
        *SILICON,
    ),
    COLLECTIVE: (Way("the collective", "readers.closed:kernel", EVENTS, CYCLES), RATES, *SILICON),
    DIE_COLLECTIVE: (
        Way("messages between dies", "readers.crossings:price", CROSSINGS, CROSSINGS),
        _alike("area by part", "silicon.area:total"),
    ),
    ATTENTION: (
        Way("attention with its loads and messages", "readers.closed_attention:price", EVENTS, CYCLES),
        TILE_BANKS,
        ENGINES,
        RATES,
        CHANNEL,
        _alike("groups and slices that are left open", "readers.closed_attention:proposed"),
        *SILICON,
    ),
    STREAM: (
        Way("banks, buses and queues under requests", "machine.backlog:busy", DRAM, ""),
        _alike("times of commands", "machine.hbm:timing"),
        _alike("which bank an address is in", "machine.hbm:place"),
    ),
    TRAFFIC: (
        Way("packets in routers", "account.alone.traffic:free", "", ROUTERS),
        _alike("who sends to whom, and by which way", "machine.flows:flows"),
    ),
}
"""By software that more than one reader answers for; what is played comes first."""


def compared(software: str, low: str, high: str) -> tuple[list[str], list[str]]:
    """Parts of an answer that two readers give alike, and parts that they give each in its own way.

    Args:
        software: as `space.software` has it.
        low, high: readers.

    >>> compared("stream", "closed", "events")[1]
    ['banks, buses and queues under requests']
    """
    ways = WAYS[software]
    alike = [way.part for way in ways if way.by(low) == way.by(high)]
    return alike, [way.part for way in ways if way.by(low) != way.by(high)]
