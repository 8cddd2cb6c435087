"""Metrics by name, with unit, direction and definition, and their computation for batches."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from dse.space.array_math import where
from dse.space.design import Design
from dse.space.errors import DesignError, suggest_nearest
from dse.space.former_words import FORMER_METRICS, MetricValues, read_metric
from dse.space.limits import Limit
from dse.space.registry import Registry

Direction = Literal["max", "min"]
"""Whether more of a metric is better, or less."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that describes a design under a workload: unit, direction and definition.

    Attributes:
        unit: as `space.units` spells it.
        better: "max" or "min".
        definition: one sentence.
        over: how a workload's cases make one number: mean of those that have a value, max or min.
        words: meaning of the values 0, 1 and so on, for verdicts.
        needs: metrics that it is made of; where a case lacks one, it has none. Empty for one that an account works out.
        worth: the value in SI, from the needed metrics by name and from the design; numbers or arrays over designs.
    """

    unit: str
    better: Direction
    definition: str
    over: str = "mean"
    words: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    worth: Callable[[Mapping[str, Any], Design], Any] | None = None


def _to_max_rate(values: Mapping[str, Any]) -> Any:
    """Maximum rate over the rate of the run."""
    return values["max_rate"] / values["request_throughput"]


SHIPPED: dict[str, Metric] = {
    "throughput": Metric(
        "token/s",
        "max",
        "output tokens per time of all devices: over prefill and decode, or over the time of a serving load",
    ),
    "decode_throughput": Metric("token/s", "max", "tokens of decode steps per decode time of all devices"),
    "decode_throughput_per_chip": Metric("token/s", "max", "decode throughput per die, in a system of many dies"),
    "ttft": Metric(
        "s", "min", "time to first token: prefill time of a batch, or mean time from arrival to the first output token"
    ),
    "tpot": Metric("s", "min", "time per output token: decode time per step, or mean over requests after the first token"),
    "prefill_throughput": Metric("token/s", "max", "prompt tokens per prefill time"),
    "tokens_per_s_per_user": Metric("token/s", "max", "output tokens of one request per time: 1 / tpot"),
    "latency": Metric("s", "min", "end-to-end time of a batch or request; or time of a single kernel"),
    "cycles": Metric("cycle", "min", "clock cycles of a single product, collective or attention kernel"),
    "communication_cycles": Metric("cycle", "min", "cycles of a product in which cores wait for data or move data"),
    "compute_share": Metric("1", "max", "share of a product's time in which cores multiply, starts of local products included"),
    "mfu": Metric(
        "1",
        "max",
        "MFU: useful operations of products (no padding, repetition or masked pairs) over peak "
        "operations of all matrix engines in the same time",
    ),
    "mfu_per_system_mm2": Metric("1/mm2", "max", "MFU of attention over the area of all dies"),
    "peak_flops": Metric("op/s", "max", "peak rate of all matrix engines, at the number formats of activations and weights"),
    "engine_utilisation": Metric(
        "1",
        "max",
        "attention or product on tiles: operations of a block over the engine's peak while the engine works, without starts",
    ),
    "communication_share": Metric("1", "min", "share of attention's time saved if exchanges between tiles took no time"),
    "hbm_bytes": Metric("B", "min", "bytes between HBM and all tiles or dies, padding included"),
    "hbm_utilisation": Metric("1", "max", "bytes between HBM and tiles or dies over the channels' peak in the same time"),
    "noc_utilisation": Metric("1", "min", "bytes times links crossed, over the peak of all links in the same time"),
    "achieved_bandwidth": Metric("B/s", "max", "bytes requested from a memory over the time until the last request is served"),
    "bandwidth_efficiency": Metric("1", "max", "bandwidth over the peak of the data buses"),
    "read_latency": Metric("s", "min", "mean time from a read's arrival at the controller to its last data"),
    "read_latency_p50": Metric("s", "min", "median time from a read's arrival at the controller to its last data"),
    "read_latency_p99": Metric(
        "s", "min", "99th percentile of the time from a read's arrival at the controller to its last data"
    ),
    "row_hit_rate": Metric("1", "max", "share of bursts that find their row open from an earlier burst"),
    "idle_load": Metric("1", "min", "share of the data buses' time without a request that is due"),
    "idle_window": Metric(
        "1", "min", "share of the data buses' time waiting for requests beyond the requesters' outstanding limit"
    ),
    "idle_noc": Metric("1", "min", "share of the data buses' time waiting for requesters that wait for data on links"),
    "idle_queue": Metric("1", "min", "share of the data buses' time waiting for the controller's queues"),
    "idle_row": Metric("1", "min", "share of the data buses' time waiting for a row to close and another to open"),
    "idle_activates": Metric("1", "min", "share of the data buses' time waiting for the next allowed activate (tRRD, tFAW)"),
    "idle_group": Metric("1", "min", "share of the data buses' time waiting for a bank group (tCCD_L)"),
    "idle_turn": Metric("1", "min", "share of the data buses' time waiting for the bus to change between reads and writes"),
    "idle_refresh": Metric("1", "min", "share of the data buses' time waiting for a refresh"),
    "idle_channels": Metric("1", "min", "share of the data buses' time waiting for other channels, which have more to do"),
    "packet_latency": Metric("cycle", "min", "mean time from a packet's creation to the arrival of its last flit"),
    "packet_latency_p50": Metric("cycle", "min", "median time from a packet's creation to the arrival of its last flit"),
    "packet_latency_p99": Metric(
        "cycle", "min", "99th percentile of the time from a packet's creation to the arrival of its last flit"
    ),
    "packet_energy": Metric("J", "min", "energy per packet: power of the network over the rate of arriving packets"),
    "hops": Metric("1", "min", "mean number of routers that a packet passes, both ends included"),
    "accepted_throughput": Metric("1", "max", "mean number of flits that arrive at a node per cycle"),
    "detour_share": Metric("1", "min", "share of node pairs whose packets take another route around faults"),
    "detour_hops": Metric("1", "min", "mean number of additional links on routes around faults"),
    "traffic_status": Metric(
        "1",
        "min",
        "0 stable; 1 not settled: mean latency still changes between samples; 2 saturated: queues grow",
        "max",
        ("stable", "not settled", "saturated"),
    ),
    "cores": Metric("1", "min", "cores on which a single product runs"),
    "die_mm2": Metric("mm2", "min", "area of one die"),
    "system_mm2": Metric("mm2", "min", "area of all dies"),
    "throughput_per_die_mm2": Metric("token/s/mm2", "max", "system throughput over the area of one die"),
    "throughput_per_system_mm2": Metric("token/s/mm2", "max", "system throughput over the area of all dies"),
    "decode_throughput_per_die_mm2": Metric("token/s/mm2", "max", "decode throughput over the area of one die"),
    "decode_throughput_per_system_mm2": Metric("token/s/mm2", "max", "decode throughput over the area of all dies"),
    "attention_layer_bytes": Metric("B", "min", "weights and KV cache of one attention layer on one device, at final lengths"),
    "ffn_layer_bytes": Metric("B", "min", "weights of the largest FFN or MoE layer on one device, all experts included"),
    "hbm_used": Metric(
        "B",
        "min",
        "weights, KV cache and activations on one device, of the largest case; for a serving load, with the KV cache of its "
        "longest request; in pipelines on tiles, of the fullest core's share",
        "max",
    ),
    "ttft_p50": Metric("s", "min", "TTFT, median of the requests"),
    "ttft_p90": Metric("s", "min", "TTFT, 90th percentile of the requests"),
    "ttft_p99": Metric("s", "min", "TTFT, 99th percentile of the requests"),
    "tbt": Metric("s", "min", "time between tokens, mean over all tokens except first ones"),
    "tbt_p50": Metric("s", "min", "time between tokens, median"),
    "tbt_p90": Metric("s", "min", "time between tokens, 90th percentile"),
    "tbt_p99": Metric("s", "min", "time between tokens, 99th percentile"),
    "latency_p50": Metric("s", "min", "time from arrival to the last token, median of the requests"),
    "latency_p90": Metric("s", "min", "time from arrival to the last token, 90th percentile of the requests"),
    "latency_p99": Metric("s", "min", "time from arrival to the last token, 99th percentile of the requests"),
    "queue_delay": Metric("s", "min", "mean time from arrival to the computation of a request's first prompt tokens"),
    "request_throughput": Metric("Hz", "max", "completed requests over the time from the first arrival to the last token"),
    "goodput": Metric(
        "Hz",
        "max",
        "requests served within their SLO over the time from the first arrival to the last token",
    ),
    "max_rate": Metric(
        "Hz",
        "max",
        "largest sustained arrival rate at which the given share of requests keeps the SLO; other metrics are at that rate, or "
        "at a system's share of workload.demand",
        "min",
    ),
    "max_rate_limit": Metric(
        "1",
        "min",
        "what a rate above the maximum breaks: 0 the TTFT bound; 1 the TPOT bound; 2 nothing but saturation, beyond which "
        "queues grow without end; 3 memory, in which a request does not fit",
        "max",
        ("ttft", "tpot", "saturation", "memory"),
    ),
    "devices": Metric("1", "min", "chips that serve requests", "max"),
    "slo_attainment": Metric("1", "max", "share of requests that keep their SLO"),
    "load_status": Metric(
        "1",
        "min",
        "0 stable; 1 backlogged: load above 0.95, or queues grow by more than chance; 2 "
        "overloaded: load above 1; 3 too short to say: arrivals within three times the latency of "
        "the fastest tenth, or fewer than three requests per user; 4 saturated: users of a closed "
        "loop wait for each other",
        "max",
        ("stable", "backlogged", "overloaded", "too short to say", "saturated"),
    ),
    "offered_load": Metric(
        "1",
        "min",
        "arrival rate over the closed-loop rate, or over the steady state's rate below 0.5; in a "
        "closed loop, users over the number from which on they wait for each other",
        "max",
    ),
    "queue_growth": Metric(
        "1", "min", "growth of queues in the second half of the arrivals, over the requests that arrived", "max"
    ),
    "prefill_busy_share": Metric("1", "max", "share of time in which prefill instances are busy"),
    "decode_busy_share": Metric("1", "max", "share of time in which decode instances are busy"),
    "blocked_by_batch_share": Metric(
        "1", "min", "share of time in which the first queued request waits for a batch slot, in the pool where it is largest"
    ),
    "blocked_by_kv_share": Metric(
        "1", "min", "share of time in which the first queued request waits for KV memory, in the pool where it is largest"
    ),
    "kv_utilisation_mean": Metric("1", "min", "share of KV blocks in use, mean over time and instances"),
    "kv_utilisation_peak": Metric("1", "min", "share of KV blocks in use, maximum over time and instances", "max"),
    "kv_spilled_share": Metric("1", "min", "share of KV positions read from HBM because local memory is full"),
    "preemptions": Metric("1", "min", "preemptions per request"),
    "recomputed_share": Metric("1", "min", "positions recomputed after preemptions, over prompt tokens computed"),
    "tokens_per_step": Metric("token", "max", "output tokens per request and iteration with speculative decoding, mean"),
    "prefix_hit_rate": Metric("1", "max", "share of prompt tokens found in the prefix cache"),
    "prefix_host_hit_rate": Metric("1", "max", "share of prompt tokens fetched from the prefix cache of the host"),
    "iteration_time_error": Metric(
        "1", "min", "mean relative error of the iteration-time table at compositions between its points"
    ),
    "relayout_time": Metric("s", "min", "time to move weights and KV cache from the layout of prefill to that of decode"),
    "sram_used": Metric("B", "min", "local memory in use on the fullest core, in the phase that needs more", "max"),
    "kv_capacity": Metric(
        "token",
        "max",
        "tokens that fit in the KV cache beside everything else: of a batch, at its mix of lengths, or on wafers by the KV "
        "cache policy; for a serving load, tokens of its longest requests that fit in the KV memory of one instance",
        "min",
    ),
    "kv_pool_bytes": Metric(
        "B",
        "max",
        "KV memory on one device of an instance that decodes, of the fullest stage; on all cores of a pipeline or wafer",
        "min",
    ),
    "kv_pool_requests": Metric(
        "1", "max", "longest requests of the load that fit in the KV memory of one instance at once", "min"
    ),
    "longest_context": Metric(
        "token", "max", "longest request that fits in the KV memory of one instance, up to the model's positions", "min"
    ),
    "energy": Metric("J", "min", "energy of the batch, load or kernel: dynamic, and static of all chips in the same time"),
    "power": Metric("W", "min", "mean power of all chips"),
    "peak_power": Metric("W", "min", "power of all chips in the phase, or in the concurrent iterations, that take most", "max"),
    "wall_power": Metric(
        "W",
        "min",
        "wall power of one chip: tdp with the chip's share of server and network, supply losses included",
    ),
    "tdp": Metric("W", "min", "power of one chip with matrix engines at their 16-bit peak, and memory and links at theirs"),
    "power_density": Metric("W/mm2", "min", "tdp over the area of all dies of a chip"),
    "system_price": Metric("USD", "min", "price of all chips with their memory and share of servers"),
    "price_per_mtoken": Metric(
        "USD", "min", "price of a million output tokens: the chips' share of their life, and electricity"
    ),
    "capital_per_mtoken": Metric("USD", "min", "part of price_per_mtoken for the chips"),
    "electricity_per_mtoken": Metric("USD", "min", "part of price_per_mtoken for electricity"),
    "capacity_per_mm2": Metric(
        "token/s/mm2",
        "max",
        "output tokens per time at the maximum rate, over the area of all dies",
        needs=("max_rate", "request_throughput", "throughput_per_system_mm2"),
        worth=lambda values, design: values["throughput_per_system_mm2"] * _to_max_rate(values),
    ),
    "capacity_per_watt": Metric(
        "token/J",
        "max",
        "output tokens per time at the maximum rate, over the wall power of all chips",
        needs=("max_rate", "request_throughput", "throughput", "wall_power", "devices"),
        worth=lambda values, design: values["throughput"] * _to_max_rate(values) / (values["wall_power"] * values["devices"]),
    ),
    "capacity_per_dollar": Metric(
        "token/USD",
        "max",
        "output tokens at the maximum rate for one dollar: of the chips' share of their life, and of electricity",
        needs=("max_rate", "request_throughput", "capital_per_mtoken", "electricity_per_mtoken"),
        worth=lambda values, design: (
            1e6
            * _to_max_rate(values)
            / (values["capital_per_mtoken"] + _to_max_rate(values) * values["electricity_per_mtoken"])
        ),
    ),
    "fleet_systems": Metric("1", "min", "systems that a demand takes, each loaded up to its maximum rate at most", "max"),
    "fleet_mm2": Metric(
        "mm2",
        "min",
        "area of all dies of the systems that a demand takes",
        needs=("fleet_systems", "system_mm2"),
        worth=lambda values, design: values["fleet_systems"] * values["system_mm2"],
    ),
    "fleet_power": Metric(
        "W",
        "min",
        "mean power of all chips of the systems that a demand takes",
        needs=("fleet_systems", "power"),
        worth=lambda values, design: values["fleet_systems"] * values["power"],
    ),
    "fleet_price": Metric(
        "USD",
        "min",
        "price of all chips of the systems that a demand takes, with their memory and share of servers",
        needs=("fleet_systems", "system_price"),
        worth=lambda values, design: values["fleet_systems"] * values["system_price"],
    ),
    "fleet_throughput_per_mm2": Metric(
        "token/s/mm2",
        "max",
        "output tokens per time of a demand, over the area of all dies of the systems that it takes",
        needs=("fleet_systems", "throughput_per_system_mm2"),
        worth=lambda values, design: values["throughput_per_system_mm2"] * (values["fleet_systems"] > 0),
    ),
    "rent_per_mtoken": Metric(
        "USD", "min", "rent of all chips for the time of a million output tokens, where chip.economics.rent is known"
    ),
    "rated_energy": Metric("J", "min", "rated power x time, of all dies"),
    "energy_per_token": Metric("J/token", "min", "energy per output token"),
    "prefill_rated_energy_per_token": Metric("J/token", "min", "rated power x prefill time per prompt token"),
    "decode_rated_energy_per_token": Metric("J/token", "min", "rated power x decode time per token of a decode step"),
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
"""Further columns of design tables, besides knobs and metrics: no metric has such a name."""

DERIVED_METRICS = {name: metric for name, metric in METRICS.items() if metric.worth is not None}
"""Metrics that are derived from others."""


def load_metric_plugins() -> None:
    """Import the metrics of installed packages, which are computed for every design.

    Raises:
        DesignError: one cannot be imported, is no `Metric`, is not made of others, or has the name of another column.
    """
    for name in METRICS.names() if METRICS.has_packages() else ():
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
    """Wanted metrics with those from which they are derived; None for all."""
    if wanted is not None and not FORMER_METRICS.keys().isdisjoint(wanted):
        wanted = set(map(read_metric, wanted))
    if wanted is None or not DERIVED_METRICS:
        return wanted
    return {*wanted, *(need for name in wanted if name in DERIVED_METRICS for need in DERIVED_METRICS[name].needs)}


def add_derived_metrics(metrics: dict[str, Any], design: Design) -> dict[str, Any]:
    """Metrics of some designs with the derived metrics added.

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
    """Outcomes of the cases that share a model, for some designs.

    Attributes:
        rows: of the cases.
        metrics: by name, shape (cases, designs), or floats for one of each.
        limits: itemised; the first is memory.
        priced: whether a cost was computed; if limits are violated, only metrics without cost exist.
        external: metrics that an installed package returned; all others are the analytical model's.
    """

    rows: tuple[int, ...]
    metrics: dict[str, Any]
    limits: list[Limit]
    priced: bool = True
    external: tuple[str, ...] = ()


class TokenCounts(Protocol):
    """Token and step counts over all cases of a workload; shape (cases, 1), or floats for one case."""

    @property
    def prompt_tokens(self) -> Any:
        """Prompt tokens of each case."""

    @property
    def output_tokens(self) -> Any:
        """Output tokens of each case."""

    @property
    def decode_tokens(self) -> Any:
        """Output tokens of each case that decode steps give."""

    @property
    def decode_steps(self) -> Any:
        """Decode steps of one token until the last output token; 0 where prefill gives all."""


def batch_metrics(work: TokenCounts, ttft: Any, decoding: Any, latency: Any, die: Any, system: Any) -> dict[str, Any]:
    """Metrics of static batches: rates, latencies and areas.

    Args:
        work: of the cases.
        ttft, decoding: time of prefill and of all decode steps. [s]
        latency: both, and what is between. [s]
        die, system: area of one die and of all. [mm2]
    """
    throughput, decode_throughput = work.output_tokens / latency, decode_rate(work, decoding)
    tpot = decoding / nonzero_or_nan(work.decode_steps)
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


def decode_rate(work: TokenCounts, decoding: Any) -> Any:
    """Tokens of decode steps per decode time; NaN where prefill gives all tokens. [token/s]"""
    return nonzero_or_nan(work.decode_tokens) / nonzero_or_nan(decoding)


def nonzero_or_nan(values: Any) -> Any:
    """Values to divide by, with NaN in the place of zeros.

    >>> nonzero_or_nan(2.0), nonzero_or_nan(0.0), nonzero_or_nan(np.array([[0.0], [3.0]])).tolist()
    (2.0, nan, [[nan], [3.0]])
    """
    return values if np.all(values) else where(values == 0, np.nan, values)


def area_metrics(throughput: Any, decode_throughput: Any, die: Any, system: Any) -> dict[str, Any]:
    """Areas [mm2] and throughputs per area."""
    return {
        "die_mm2": die,
        "system_mm2": system,
        "throughput_per_die_mm2": throughput / die,
        "throughput_per_system_mm2": throughput / system,
        "decode_throughput_per_die_mm2": decode_throughput / die,
        "decode_throughput_per_system_mm2": decode_throughput / system,
    }


def rated_power(power: Any) -> Any:
    """Rated power of a chip, NaN if absent or 0; broadcasts over designs. [W]"""
    return np.nan if power is None else where(power == 0, np.nan, power)


def rated_energies(power: Any, work: TokenCounts, ttft: Any, decoding: Any, latency: Any) -> dict[str, Any]:
    """Energies of static batches from rated power and times, which are as of `batch_metrics`. [J]"""
    return {
        "energy": power * latency,
        "rated_energy": power * latency,
        "energy_per_token": power * latency / work.output_tokens,
        "prefill_rated_energy_per_token": power * ttft / work.prompt_tokens,
        "decode_rated_energy_per_token": power * decoding / nonzero_or_nan(work.decode_tokens),
    }


def find_metric(name: str) -> Metric:
    """Metric of a name, by its present or a former name; an error with the nearest name if there is none."""
    try:
        return METRICS[read_metric(name) if isinstance(name, str) else name]
    except KeyError:
        raise DesignError(f"no metric {name!r}; {suggest_nearest(str(name), METRICS.names())}") from None
