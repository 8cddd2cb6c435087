"""Steady states of deployments under a load: closed form, with replay for loads of few requests."""

import math
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dse.evaluators.serving import prefill_replay as arrivals
from dse.evaluators.serving.closed_loop import CLEAR_LOAD, saturated_rate
from dse.evaluators.serving.pool_balance import BALANCE
from dse.evaluators.serving.simulator import Deployment
from dse.evaluators.serving.simulator_state import make_records
from dse.evaluators.serving.steady_state import (
    RANKED,
    REPLAYED_FIELDS,
    STEADY_STATE_RECORD,
    explain_no_steady_state,
    make_pool_records,
    request_mix,
    solve_pools,
    transfer_constants,
)
from dse.space.array_math import Array
from dse.space.errors import DesignError
from dse.space.requests import Requests

if TYPE_CHECKING:
    from dse.evaluators.serving.steady_state_max_rate import RateStream

BRIEF, TAIL = 300, 0.02
"""Requests up to which the span is that of the load as it is played, and the share of it after the last arrival beyond which it
is."""

TimeTables = tuple[Array, Array]
"""Iteration-time tables with equal points, shape (tables, points), and the index of each design's table."""


class SteadyStateSolver:
    """Steady state of designs whose iteration times share the linear part and table points.

    Prompts are replayed over the arrivals where requests are few, else they wait in a queue. Where few requests
    arrive faster than they are served, or where the time after the last arrival counts, they are replayed at once,
    and the duration comes from there.

    Args:
        kinds: deployments of which designs are; their tables are ignored.
        which: index of each design's deployment, shape (designs,).
        tables: iteration-time tables of the designs, for each pool.
        requests: requests with arrival times.
        ttft, tpot: SLO bounds on TTFT and TPOT. [s]
        prompts: whether loads of few requests are replayed.
        wanted_fields: the fields of `steady_state.REPLAYED_FIELDS` that will be read.
        largest: stream of which each design gets its maximum rate; None for the requests' own rate.

    Attributes:
        rates: of the requests of each design, shape (designs,). [1/s]
        systems: of the fleet that each design's demand takes; None without a demand.
        max_rates: records of `steady_state_max_rate.MAX_RATE_RECORD`; None unless they were asked for.
        found: records of `steady_state.STEADY_STATE_RECORD` without their fields of `steady_state.MAIN_FIELDS`; shape
            (designs,).

    Raises:
        DesignError: `steady_state.explain_no_steady_state` gives a reason for one of the deployments.
    """

    def __init__(
        self,
        kinds: Sequence[Deployment],
        which: Array,
        tables: Sequence[TimeTables],
        requests: Requests,
        ttft: float = math.inf,
        tpot: float = math.inf,
        *,
        prompts: bool = True,
        wanted_fields: Collection[str] = REPLAYED_FIELDS,
        largest: "RateStream | None" = None,
    ) -> None:
        for kind in kinds:
            if why := explain_no_steady_state(kind.pools, requests):
                raise DesignError(f"fidelity=steady_state: {why}, or use fidelity=analytical")
        self._kinds, self._which, self._requests, self._bounds = kinds, which, requests, (ttft, tpot)
        self._load, self._apart = request_mix(requests), len(kinds[0].pools) == 2
        first = make_pool_records([kind.pools[0] for kind in kinds], requests, prefills=True, decodes=not self._apart)[which]
        last = make_pool_records([kind.pools[-1] for kind in kinds], requests, prefills=not self._apart, decodes=True)[which]
        self._pools, self._tables = (first, last), (tables[0], tables[-1])
        self._prices = kinds[0].pools[0].price, kinds[0].pools[-1].price
        self._sent = np.array([transfer_constants(kind.transfer, self._load) for kind in kinds])[which]
        deep = int(first["stages"].max())
        self._shares = np.array([(*kind.pools[0].shares, *[0.0] * (deep - kind.pools[0].stages)) for kind in kinds])
        self._nearest = np.array([kind.routing != "round_robin" for kind in kinds])
        self._known = {*wanted_fields} & {*REPLAYED_FIELDS}
        self._replayed = largest.requests if largest else requests
        self.max_rates: Array | None = None
        self.systems: Array | None = None
        self._times = np.array([1.0, len(requests)]) + np.zeros((len(which), 2))
        self.rates = np.full(len(which), self._load.rate)
        self._has_few_results = prompts and (largest is not None or len(requests) <= arrivals.MAX_REQUESTS)
        if largest:
            self.max_rates = self._searched(largest)
            self.systems, self.rates = largest.shared_rates(self.max_rates)
            self._times = np.array([1 / self.rates, largest.count_requests(self.rates)]).T
        self.found = self._solved(self.rates)
        self.found["within"] *= self.found["tpot"] <= tpot
        if not self._has_few_results:
            return
        self._whole = self.found.copy()
        if largest:  # it lasts: no time after the last arrival counts
            self.found["span"] = len(requests) / self.rates
            now = np.zeros(len(which), bool)
        else:
            tail = self.found["span"] - (requests.arrival[-1] - requests.arrival[0])
            now = (self.found["saturated"] <= self._load.rate) | (tail > TAIL * self.found["span"]) | (len(requests) <= BRIEF)
        self._left = ~now
        if now.any():
            self._play(np.flatnonzero(now))
            self.found["span"][now] = self._whole["span"][now]

    def replayed_records(self, names: Collection[str] = REPLAYED_FIELDS) -> Array:
        """Result records with all fields, except those of `REPLAYED_FIELDS` that are not requested.

        Args:
            names: requested fields; if they were not announced, prompts are replayed once more.
        """
        if not self._has_few_results:
            return self.found
        if more := {*names} & {*REPLAYED_FIELDS} - self._known:
            self._known |= more
            self._left[:] = True
        if self._left.any():
            self._play(np.flatnonzero(self._left))
            self._whole["span"], self._left[:] = self.found["span"], False
        return self._whole

    def saturation_rates(self) -> Array:
        """Rates of each design at which some requests always wait, shape (designs,). [1/s]

        The rates are those of a closed loop of the same requests. Loads of few requests that come at
        `run_statistics.CLEAR_LOAD` of the balanced rate, or more, are replayed; others get the balanced rate.
        """
        rates = self.found["saturated"].copy()
        near = np.flatnonzero(self._load.rate >= CLEAR_LOAD * rates) if self._has_few_results else np.zeros(0, int)
        if self.max_rates is not None:
            return self.max_rates["saturated"]
        if len(near):
            full = self._solved(2 * float(rates.max()) + 0 * rates)
            for row in near.tolist():
                ends = partial(self._ends, row, full[row]["spilled"])
                rates[row] = saturated_rate(self._kinds[self._which[row]], self._requests, ends)
        return rates

    def _solved(self, rates: Array) -> Array:
        """Records at rates, shape (designs,). [1/s]"""
        records = make_records(STEADY_STATE_RECORD, len(self._which))
        solve_pools(
            *self._prices, self._tables, self._apart, *self._pools, self._sent, self._load, rates, self._bounds[0],
            not self._has_few_results, self._balance_workspace(), records,
        )  # fmt: skip
        return records

    def _balance_workspace(self) -> tuple[Array, ...]:
        """Work arrays of `steady_state.solve_row`."""
        return np.zeros(2, BALANCE), np.zeros(2, BALANCE), np.zeros((4, len(self._load.prompts)))

    def _searched(self, stream: "RateStream") -> Array:
        """Maximum rates of all designs, as records of `steady_state_max_rate.MAX_RATE_RECORD`."""
        return stream.search(
            self._prices,
            self._priced(slice(None)),
            self._apart,
            *self._pools,
            self._shares[self._which],
            self._nearest[self._which],
            self._load,
            self._channel_seconds(stream.requests),
            (self._which, self._sent),
            self._workspace(len(stream.requests), gaps=False),
            self._balance_workspace(),
            self._solved(np.ones(len(self._which))),
        )

    def _workspace(self, requests: int, *, gaps: bool) -> arrivals.ReplayWorkspace:
        """Work arrays of replays of so many requests."""
        channels = int(self._sent[:, 2].max())
        return arrivals.make_replay_workspace(np.concatenate(self._pools), requests, channels, gaps=gaps)

    def _play(self, rows: Array) -> None:
        """Replay the load on some designs, for the announced fields."""
        records, chosen, requests = self._whole[rows], self._which[rows], self._replayed
        ranked = np.array([name in self._known for name in RANKED])
        place = self._workspace(len(requests), gaps="tbt_p99" in self._known)
        arrivals.replay_prompts(
            self._prices,
            self._priced(rows),
            self._apart,
            *(pool[rows] for pool in self._pools),
            self._shares[chosen],
            self._nearest[chosen],
            arrivals.arrival_arrays(requests),
            self._load,
            self._times[rows],
            self._channel_seconds(requests),
            (chosen, self._sent[rows]),
            *self._bounds,
            ranked,
            place,
            records,
        )
        self._whole[rows] = records

    def _ends(self, row: int, spilled: float, deployment: Deployment, requests: Requests) -> Array:
        """When each of some requests has its last token on a design, of which as many instances are there as of another."""
        pools, kind = [pool[row : row + 1].copy() for pool in self._pools], self._which[row]
        for selected_pool, pool in zip(pools, (deployment.pools[0], deployment.pools[-1]), strict=True):
            selected_pool["instances"] = pool.instances
        place = arrivals.make_replay_workspace(np.concatenate(pools), len(requests), int(self._sent[row, 2]), gaps=False)
        arrivals.replay_last_tokens(
            self._prices, self._priced(slice(row, row + 1)), self._apart, *pools, self._shares[kind], self._nearest[kind],
            arrivals.arrival_arrays(requests), self._load, spilled, _sends(deployment, requests), self._sent[row], place,
        )  # fmt: skip
        return place.last

    def _channel_seconds(self, requests: Requests) -> Array:
        """Time that each request has a channel between pools, by kind of design; nothing is held without them. [s]"""
        if not self._apart:
            return np.zeros((len(self._kinds), 0))
        return np.array([_sends(kind, requests) for kind in self._kinds])

    def _priced(self, rows: Array | slice) -> tuple[TimeTables, ...]:
        """Tables of each pool of some designs."""
        return tuple((tables, places[rows]) for tables, places in self._tables)


def _sends(deployment: Deployment, requests: Requests) -> Array:
    """That each request has a channel. [s]"""
    sends: Array = deployment.transfer.seconds(requests.prompt) if deployment.transfer else np.zeros(len(requests))
    return sends


def solve_deployment(
    deployment: Deployment,
    requests: Requests,
    ttft: float = math.inf,
    tpot: float = math.inf,
    *,
    prompts: bool = True,
    largest: "RateStream | None" = None,
) -> SteadyStateSolver:
    """Steady state of one deployment under a load; arguments and errors as of `SteadyStateSolver`."""
    single_row = np.zeros(1, int)
    return SteadyStateSolver(
        [deployment],
        single_row,
        [(pool.price.table[None], single_row) for pool in deployment.pools],
        requests,
        ttft,
        tpot,
        prompts=prompts,
        largest=largest,
    )


def solve_deployments(
    deployments: Sequence[Deployment],
    requests: Requests,
    ttft: float = math.inf,
    tpot: float = math.inf,
    *,
    prompts: bool = True,
) -> Array:
    """Steady states of deployments that serve the same requests, as records, shape (deployments,).

    Arguments and errors as of `SteadyStateSolver`.
    """
    return np.concatenate(
        [solve_deployment(deployment, requests, ttft, tpot, prompts=prompts).replayed_records() for deployment in deployments]
    )
