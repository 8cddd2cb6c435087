"""What comes out: the metrics by name, with unit, direction and definition, and what accounts make of them."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from dse.space.array_math import where
from dse.space.design import Design
from dse.space.errors import DesignError, suggest_nearest
from dse.space.former_words import FORMER_METRICS, MetricValues, read_metric
from dse.space.limits import Limit
from dse.space.registry import Registry


@dataclass(frozen=True, slots=True)
class Metric:
    """One number about a design under a workload.

    Attributes:
        unit: as `space.units` spells it.
        better: "max" or "min".
        definition: one sentence.
        over: how a workload's cases make one number: mean, max or min.
        words: what 0, 1 and so on mean, where they are verdicts.
        needs: metrics that it is made of; where a case lacks one, it has none. Empty for one that an account works out.
        worth: the value, in SI, from these by name and from the design; all of them numbers or arrays over designs.
    """

    unit: str
    better: str
    definition: str
    over: str = "mean"
    words: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    worth: Callable[[Mapping[str, Any], Design], Any] | None = None


SHIPPED: dict[str, Metric] = {
    "throughput": Metric(
        "token/s",
        "max",
        "output tokens over prefill and decode time, or of served requests over the time they take; all devices",
    ),
    "decode_throughput": Metric("token/s", "max", "output tokens over decode time, all devices together"),
    "decode_throughput_per_chip": Metric("token/s", "max", "decode throughput over the dies of a system of many"),
    "ttft": Metric(
        "s", "min", "time to first token: prefill of the batch; from arrival, where requests are served as they come"
    ),
    "tpot": Metric("s", "min", "time per output token: decode time over decode steps, or of a request; mean over requests"),
    "prefill_throughput": Metric("token/s", "max", "prompt tokens over prefill time"),
    "tokens_per_s_per_user": Metric("token/s", "max", "tokens of one request over time: 1 / tpot"),
    "latency": Metric(
        "s", "min", "prefill, decode and what is between; or a product, collective, attention or stream of requests by itself"
    ),
    "cycles": Metric("cycle", "min", "of the chip's clock: a product, collective or attention by itself"),
    "communication_cycles": Metric("cycle", "min", "of a product's cycles, those in which cores wait for data or move them"),
    "compute_share": Metric(
        "1", "max", "share of a product's time in which cores multiply, with the start of each local product"
    ),
    "mfu": Metric(
        "1",
        "max",
        "useful operations of products (no padding, repetition or masked pairs) over what all matrix engines that are there "
        "could do in the time",
    ),
    "mfu_per_system_mm2": Metric("1/mm2", "max", "that of attention over the area of all dies"),
    "peak_flops": Metric("op/s", "max", "what the matrix engines of all tiles could do in a second: attention by itself"),
    "engine_utilisation": Metric(
        "1",
        "max",
        "of attention or a product on tiles: operations of a slice over what its engine could do while it works, starts apart",
    ),
    "communication_share": Metric("1", "min", "share of attention's time that would fall away if tiles exchanged for nothing"),
    "hbm_bytes": Metric("B", "min", "between HBM and tiles or dies, padding included, all dies together"),
    "hbm_utilisation": Metric(
        "1", "max", "bytes between HBM and tiles or dies over what the channels' peak could move in the time"
    ),
    "noc_utilisation": Metric("1", "min", "bytes times the links that they cross, over what all links could carry in the time"),
    "achieved_bandwidth": Metric(
        "B/s", "max", "bytes that requests to a memory ask for, over the time until the last has them"
    ),
    "bandwidth_efficiency": Metric("1", "max", "bandwidth over what the data buses could move"),
    "read_latency": Metric("s", "min", "from when the controller takes a read until its last data: the mean"),
    "read_latency_p50": Metric("s", "min", "of half the reads"),
    "read_latency_p99": Metric("s", "min", "of 99 % of the reads"),
    "row_hit_rate": Metric("1", "max", "share of bursts that find their row open from another one before"),
    "idle_load": Metric("1", "min", "share of the data buses' time that they wait for a request whose time has not come"),
    "idle_window": Metric(
        "1", "min", "share of the data buses' time that they wait for a request held back, too many being outstanding"
    ),
    "idle_noc": Metric(
        "1", "min", "share of the data buses' time that they wait for requests whose requester waits for data on links"
    ),
    "idle_queue": Metric("1", "min", "share of the data buses' time that they wait for the queues of the controller"),
    "idle_row": Metric(
        "1", "min", "share of the data buses' time that they wait for a row to be closed and another to be opened"
    ),
    "idle_activates": Metric(
        "1", "min", "share of the data buses' time that they wait for another activate to be allowed (tRRD, tFAW)"
    ),
    "idle_group": Metric("1", "min", "share of the data buses' time that they wait for a bank group (tCCD_L)"),
    "idle_turn": Metric(
        "1", "min", "share of the data buses' time that they wait for the bus to turn round between reads and writes"
    ),
    "idle_refresh": Metric("1", "min", "share of the data buses' time that they wait for a refresh"),
    "idle_channels": Metric(
        "1", "min", "share of the data buses' time that they wait for other channels, which have more to do"
    ),
    "packet_latency": Metric("cycle", "min", "from when a packet is made until its last flit is there: the mean"),
    "packet_latency_p50": Metric("cycle", "min", "of half the packets"),
    "packet_latency_p99": Metric("cycle", "min", "of 99 % of the packets"),
    "packet_energy": Metric("J", "min", "of a packet: power of a network by itself over the packets that arrive in a second"),
    "hops": Metric("1", "min", "routers that a packet passes, those of its ends among them: the mean"),
    "accepted_throughput": Metric("1", "max", "flits that arrive at a node in a cycle: the mean over nodes"),
    "detour_share": Metric(
        "1", "min", "share of pairs of nodes whose packets go another way than on a whole mesh: round faults"
    ),
    "detour_hops": Metric("1", "min", "links that these packets cross more than on a whole mesh: the mean over their pairs"),
    "traffic_status": Metric(
        "1",
        "min",
        "0 stable; 1 not settled: the mean latency still moves from sample to sample; 2 saturated: queues grow",
        "max",
        ("stable", "not settled", "saturated"),
    ),
    "cores": Metric("1", "min", "cores that a product by itself is laid out on"),
    "die_mm2": Metric("mm2", "min", "area of one die"),
    "system_mm2": Metric("mm2", "min", "area of all dies"),
    "throughput_per_die_mm2": Metric("token/s/mm2", "max", "throughput of the system over the area of one die"),
    "throughput_per_system_mm2": Metric("token/s/mm2", "max", "throughput of the system over the area of all its dies"),
    "decode_throughput_per_die_mm2": Metric("token/s/mm2", "max", "decode throughput over the area of one die"),
    "decode_throughput_per_system_mm2": Metric("token/s/mm2", "max", "decode throughput over the area of all dies"),
    "attention_layer_bytes": Metric("B", "min", "weights and KV cache of one attention layer on one device, at final lengths"),
    "ffn_layer_bytes": Metric("B", "min", "weights of the largest FFN or MoE layer on one device, all experts included"),
    "hbm_used": Metric("B", "min", "weights, KV cache and activations on one device, of the largest case", "max"),
    "ttft_p50": Metric("s", "min", "time to first token that half of the requests keep"),
    "ttft_p90": Metric("s", "min", "time to first token that 90 % of the requests keep"),
    "ttft_p99": Metric("s", "min", "time to first token that 99 % of the requests keep"),
    "tbt": Metric("s", "min", "time between tokens: mean over all tokens but the requests' first ones"),
    "tbt_p50": Metric("s", "min", "time between tokens that half of them keep"),
    "tbt_p90": Metric("s", "min", "time between tokens that 90 % of them keep"),
    "tbt_p99": Metric("s", "min", "time between tokens that 99 % of them keep"),
    "latency_p50": Metric("s", "min", "from arrival to the last token, of half of the requests"),
    "latency_p90": Metric("s", "min", "from arrival to the last token, of 90 % of the requests"),
    "latency_p99": Metric("s", "min", "from arrival to the last token, of 99 % of the requests"),
    "queue_delay": Metric("s", "min", "from arrival until a request's first prompt tokens are computed"),
    "request_throughput": Metric("Hz", "max", "requests served over the time from the first arrival to the last token"),
    "goodput": Metric(
        "Hz",
        "max",
        "requests served within the bounds on time to first token and per output token, those of their class, over that time",
    ),
    "max_rate": Metric(
        "Hz",
        "max",
        "the largest rate that lasts at which a share of the requests keeps both bounds; the other metrics are at that rate",
        "min",
    ),
    "devices": Metric("1", "min", "chips that serve requests", "max"),
    "slo_attainment": Metric("1", "max", "share of the requests that are served within these bounds"),
    "load_status": Metric(
        "1",
        "min",
        "0 stable; 1 backlogged: load above 0.95, or queues grow by more than chance; 2 overloaded: load above 1; "
        "3 too short to say: requests come within three times what the quickest tenth takes, or users ask fewer than three; "
        "4 saturated: a closed population of users who wait for each other",
        "max",
        ("stable", "backlogged", "overloaded", "too short to say", "saturated"),
    ),
    "offered_load": Metric(
        "1",
        "min",
        "rate of requests over what is served of them in a closed loop, or below 0.5 over the steady state's; of a closed "
        "population, users over those from which on they wait for each other",
        "max",
    ),
    "queue_growth": Metric(
        "1", "min", "requests left in queues over those that came, in the second half of the arrivals", "max"
    ),
    "prefill_busy_share": Metric("1", "max", "share of the time that instances which prefill are busy"),
    "decode_busy_share": Metric("1", "max", "share of the time that instances which decode are busy"),
    "blocked_by_batch_share": Metric(
        "1", "min", "share of the time that the first in a queue waits for a place in the batch; of the pool where that is most"
    ),
    "blocked_by_kv_share": Metric("1", "min", "likewise for KV memory"),
    "kv_utilisation_mean": Metric("1", "min", "share of the KV blocks in use, mean over time and instances"),
    "kv_utilisation_peak": Metric("1", "min", "share of the KV blocks in use, the most of any instance", "max"),
    "kv_spilled_share": Metric("1", "min", "share of the KV positions read that come from HBM, for want of local memory"),
    "preemptions": Metric("1", "min", "times that a request had to give up its memory, a request"),
    "recomputed_share": Metric("1", "min", "positions computed and thrown away, over prompt tokens computed"),
    "tokens_per_step": Metric("token", "max", "tokens that a decoding request has of an iteration, where some are guessed"),
    "prefix_hit_rate": Metric("1", "max", "share of the prompt tokens that came from the prefix cache"),
    "prefix_host_hit_rate": Metric(
        "1", "max", "share of the prompt tokens that came from prefixes on the host, of those reused"
    ),
    "iteration_time_error": Metric(
        "1", "min", "of the table of step prices: mean relative error at compositions between its points"
    ),
    "relayout_time": Metric("s", "min", "moving weights and KV cache from the layout of prefill to that of decode"),
    "sram_used": Metric("B", "min", "what the fullest core holds, in the phase that needs more", "max"),
    "kv_capacity": Metric("token", "max", "generated tokens that fit beside all else, by the method of the KV cache", "min"),
    "energy": Metric("J", "min", "of the batch, load or kernel: of what is done, and of all chips meanwhile"),
    "power": Metric("W", "min", "energy over the time it takes, all chips"),
    "peak_power": Metric("W", "min", "of the phase, or of iterations of a load at once, that take most, all chips", "max"),
    "wall_power": Metric(
        "W",
        "min",
        "of one chip at its tdp with its share of server and network, where it enters the server: losses of supplies too",
    ),
    "tdp": Metric("W", "min", "of one chip whose matrix engines multiply 16-bit values, memory and links at their peak"),
    "power_density": Metric("W/mm2", "min", "tdp over the area of all dies of a chip"),
    "system_price": Metric("USD", "min", "to make all chips with their memory and share of servers"),
    "price_per_mtoken": Metric("USD", "min", "of a million output tokens: the chips' share of their life, and electricity"),
    "capital_per_mtoken": Metric("USD", "min", "of that, the chips' share of their life"),
    "electricity_per_mtoken": Metric("USD", "min", "of that, electricity"),
    "rated_energy": Metric("J", "min", "rated power x time, of all dies"),
    "energy_per_token": Metric("J/token", "min", "energy over output tokens"),
    "prefill_rated_energy_per_token": Metric("J/token", "min", "rated power x prefill time over prompt tokens"),
    "decode_rated_energy_per_token": Metric("J/token", "min", "rated power x decode time over output tokens"),
}
"""Those that ship."""

METRICS: Registry[Metric] = Registry("dse.metric", SHIPPED)
"""Those and what installed packages add, by entry points of the group dse.metric: a `Metric` with `needs` and `worth`.

Metrics that a chip does not have are not a number there.
"""

COLUMNS = (
    "chip",
    "design",
    "key",
    "search_order",
    "stage",
    "feasible",
    "front",
    "limit",
    "excess",
    "error",
    "formats",
    "place",
)
"""What else tables of designs have, beside knobs and metrics: no metric has such a name."""

DERIVED_METRICS = {name: one for name, one in METRICS.items() if one.worth is not None}
"""Metrics that are made of others."""


def load_metric_plugins() -> None:
    """Imports the metrics of installed packages, which are told of every design, asked for or not.

    Raises:
        DesignError: one cannot be imported, is no `Metric`, is not made of others, or has the name of another column.
    """
    for name in METRICS.names() if METRICS.extended() else ():
        if name in COLUMNS:
            raise DesignError(f"metric {name!r} of a package: tables of designs have a column of that name; give it another")
        if METRICS[name].worth is None and name not in SHIPPED:
            raise DesignError(f"metric {name!r} of a package: needs and worth are missing; no account of a package's fills it")
        if name in FORMER_METRICS:
            raise DesignError(f"metric {name!r} of a package: the former name of {FORMER_METRICS[name]}; give it another")
        if METRICS[name].worth is not None and name not in DERIVED_METRICS:
            METRICS[name] = DERIVED_METRICS[name] = _by_present_names(METRICS[name])


def _by_present_names(made: Metric) -> Metric:
    """A metric of a package whose needs have their present names; its function reads them by either."""
    worth = made.worth
    if worth is None or not set(made.needs) & FORMER_METRICS.keys():
        return made
    return replace(
        made, needs=tuple(map(read_metric, made.needs)), worth=lambda values, design: worth(MetricValues(values), design)
    )


def add_input_metrics(wanted: Collection[str] | None) -> Collection[str] | None:
    """Metrics that somebody asks for, and those that they are made of; None for all."""
    if wanted is not None and not FORMER_METRICS.keys().isdisjoint(wanted):
        wanted = set(map(read_metric, wanted))
    if wanted is None or not DERIVED_METRICS:
        return wanted
    return {*wanted, *(need for name in wanted if name in DERIVED_METRICS for need in DERIVED_METRICS[name].needs)}


def add_derived_metrics(metrics: dict[str, Any], design: Design) -> dict[str, Any]:
    """Metrics of some designs, and those that are made of them.

    >>> DERIVED_METRICS["speed"] = Metric(
    ...     "1/s", "max", "of a doctest", needs=("latency",), worth=lambda of, design: 1 / of["latency"]
    ... )
    >>> add_derived_metrics({"latency": 0.5}, None)["speed"], DERIVED_METRICS.pop("speed").needs
    (2.0, ('latency',))
    """
    for name, made in DERIVED_METRICS.items():
        if made.worth is not None and all(need in metrics for need in made.needs):
            metrics = {**metrics, name: made.worth({need: metrics[need] for need in made.needs}, design)}
    return metrics


@dataclass(frozen=True, slots=True)
class CaseOutcomes:
    """The cases of a workload that share a model, under designs.

    Attributes:
        rows: of the cases.
        metrics: by name, shape (cases, designs), or floats for one of each.
        limits: itemised; the first is memory.
        priced: whether a step was; else limits were in the way, and metrics are those that need none.
    """

    rows: tuple[int, ...]
    metrics: dict[str, Any]
    limits: list[Limit]
    priced: bool = True


class TokenCounts(Protocol):
    """What the cases of a workload ask for in all; arrays of shape (cases, 1), or floats for one."""

    @property
    def prompt_tokens(self) -> Any:
        """Tokens to prefill."""

    @property
    def output_tokens(self) -> Any:
        """Tokens to generate."""

    @property
    def decode_steps(self) -> Any:
        """Steps that generate them."""


def batch_metrics(work: TokenCounts, ttft: Any, decoding: Any, latency: Any, die: Any, system: Any) -> dict[str, Any]:
    """Rates, latencies and areas of batches that are prefilled and then decoded.

    Args:
        work: of the cases.
        ttft, decoding: time of prefill and of all decode steps. [s]
        latency: both, and what is between. [s]
        die, system: area of one die and of all. [mm2]
    """
    throughput, decode_throughput = work.output_tokens / latency, work.output_tokens / decoding
    tpot = decoding / work.decode_steps
    return {
        "throughput": throughput,
        "decode_throughput": decode_throughput,
        "ttft": ttft,
        "tpot": tpot,
        "prefill_throughput": work.prompt_tokens / ttft,
        "tokens_per_s_per_user": 1 / tpot,
        "latency": latency,
        **area_metrics(throughput, decode_throughput, die, system),
    }


def area_metrics(throughput: Any, decode_throughput: Any, die: Any, system: Any) -> dict[str, Any]:
    """Areas, and throughputs over them."""
    return {
        "die_mm2": die,
        "system_mm2": system,
        "throughput_per_die_mm2": throughput / die,
        "throughput_per_system_mm2": throughput / system,
        "decode_throughput_per_die_mm2": decode_throughput / die,
        "decode_throughput_per_system_mm2": decode_throughput / system,
    }


def rated_power(power: Any) -> Any:
    """Power, NaN where a chip says none or 0, which is not known; leaves broadcast over designs."""
    return np.nan if power is None else where(power == 0, np.nan, power)


def rated_energies(
    power: Any, ttft: Any, decoding: Any, latency: Any, prompt_tokens: Any, output_tokens: Any
) -> dict[str, Any]:
    """Energies as power x time."""
    return {
        "energy": power * latency,
        "rated_energy": power * latency,
        "energy_per_token": power * latency / output_tokens,
        "prefill_rated_energy_per_token": power * ttft / prompt_tokens,
        "decode_rated_energy_per_token": power * decoding / output_tokens,
    }


def find_metric(name: str) -> Metric:
    """The metric of a name, the present or a former one."""
    try:
        return METRICS[read_metric(name) if isinstance(name, str) else name]
    except KeyError:
        raise DesignError(f"no metric {name!r}; {suggest_nearest(str(name), METRICS.names())}") from None
