"""Deployments in the steady state of a load: in closed form (`standing`), and what is played of a load of few requests."""

import math
from collections.abc import Collection, Sequence
from functools import partial

import numpy as np

from dse.evaluators.serving import arrivals
from dse.evaluators.serving.balance import BALANCE
from dse.evaluators.serving.closed_loop import CLEAR, saturated
from dse.evaluators.serving.loop import Deployment
from dse.evaluators.serving.standing import APART, RANKED, STANDING, mix, refused, sending, solve, stations
from dse.evaluators.serving.state import records
from dse.space.elementwise import Array
from dse.space.errors import DesignError
from dse.space.requests import Requests

BRIEF, TAIL = 300, 0.02
"""Requests up to which the span is that of the load as it is played, and the share of it after the last arrival beyond which it
is."""

Tables = tuple[Array, Array]
"""Tables of prices that share their points, shape (tables, points), and which of them each of some designs has."""


class Stood:
    """Designs whose prices have the same linear part and the same points, in the steady state of a load.

    Prompts are played over the arrivals where requests are few, else they wait in a queue. Where few come faster than they are
    served, or what comes after the last arrival counts, they are played at once, and the span is from there.

    Args:
        kinds: that designs are of; what tables their prices have does not count.
        which: of them each design is, shape (designs,).
        tables: of each pool, those of the designs.
        requests: with times.
        ttft, tpot: bounds of the time to first token, and per output token. [s]
        prompts: whether those of few requests are played.
        asked: those of `standing.APART` that somebody is known to ask for.

    Attributes:
        found: records of `standing.STANDING`, but for their fields of `standing.FIRST`; shape (designs,).

    Raises:
        DesignError: what `standing.refused` says of one of them.
    """

    def __init__(
        self,
        kinds: Sequence[Deployment],
        which: Array,
        tables: Sequence[Tables],
        requests: Requests,
        ttft: float = math.inf,
        tpot: float = math.inf,
        *,
        prompts: bool = True,
        asked: Collection[str] = APART,
    ) -> None:
        for one in kinds:
            if why := refused(one.pools, requests):
                raise DesignError(f"fidelity=steady: {why}, or fidelity=closed")
        self._kinds, self._which, self._requests, self._bounds = kinds, which, requests, (ttft, tpot)
        self._load, self._apart = mix(requests), len(kinds[0].pools) == 2
        first = stations([one.pools[0] for one in kinds], requests, prefills=True, decodes=not self._apart)[which]
        last = stations([one.pools[-1] for one in kinds], requests, prefills=not self._apart, decodes=True)[which]
        self._pools, self._tables = (first, last), (tables[0], tables[-1])
        self._prices = kinds[0].pools[0].price, kinds[0].pools[-1].price
        self._sent = np.array([sending(one.transfer, self._load) for one in kinds])[which]
        self._few = prompts and len(requests) <= arrivals.MOST
        self.found = self._solved(self._load.rate)
        self.found["within"] *= self.found["tpot"] <= tpot
        if not self._few:
            return
        deep, tail = int(first["stages"].max()), self.found["span"] - (requests.arrival[-1] - requests.arrival[0])
        self._shares = np.array([(*one.pools[0].shares, *[0.0] * (deep - one.pools[0].stages)) for one in kinds])
        self._nearest = np.array([one.routing != "round_robin" for one in kinds])
        self._known, self._whole = {*asked} & {*APART}, self.found.copy()
        now = (self.found["saturated"] <= self._load.rate) | (tail > TAIL * self.found["span"]) | (len(requests) <= BRIEF)
        self._left = ~now
        if now.any():
            self._play(np.flatnonzero(now))
            self.found["span"][now] = self._whole["span"][now]

    def played(self, names: Collection[str] = APART) -> Array:
        """Records with all fields, but for those of `standing.APART` that nobody asks for.

        Args:
            names: that are asked for; where others than were known to be are, prompts are played once more.
        """
        if not self._few:
            return self.found
        if more := {*names} & {*APART} - self._known:
            self._known |= more
            self._left[:] = True
        if self._left.any():
            self._play(np.flatnonzero(self._left))
            self._whole["span"], self._left[:] = self.found["span"], False
        return self._whole

    def closed(self) -> Array:
        """The rates at which some always wait, shape (designs,). [1/s]

        Those of a closed loop of the same requests, which is played where these are few and come at `closed_loop.CLEAR` of what
        pools in balance serve, or more; else the latter.
        """
        rates = self.found["saturated"].copy()
        near = np.flatnonzero(self._load.rate >= CLEAR * rates) if self._few else np.zeros(0, int)
        if len(near):
            full = self._solved(2 * float(rates.max()))
            for row in near.tolist():
                ends = partial(self._ends, row, full[row]["spilled"])
                rates[row] = saturated(self._kinds[self._which[row]], self._requests, ends)
        return rates

    def _solved(self, rate: float) -> Array:
        """Records at a rate."""
        found, load = records(STANDING, len(self._which)), self._load._replace(rate=rate)
        room, queued = (np.zeros(2, BALANCE), np.zeros(2, BALANCE), np.zeros((4, len(load.prompts)))), not self._few
        solve(*self._prices, self._tables, self._apart, *self._pools, self._sent, load, self._bounds[0], queued, room, found)
        return found

    def _play(self, rows: Array) -> None:
        """Plays the load on some designs, for what is known to be asked for."""
        some, chosen, requests = self._whole[rows], self._which[rows], self._requests
        ranked = np.array([name in self._known for name in RANKED])
        channels = int(self._sent[:, 2].max())
        place = arrivals.room(np.concatenate(self._pools), len(requests), channels, gaps="tbt_p99" in self._known)
        arrivals.prompted(
            self._prices, self._priced(rows), self._apart, *(of[rows] for of in self._pools), self._shares[chosen],
            self._nearest[chosen], arrivals.of(requests), self._load, np.array([_sends(one, requests) for one in self._kinds]),
            (chosen, self._sent[rows]), *self._bounds, ranked, place, some,
        )  # fmt: skip
        self._whole[rows] = some

    def _ends(self, row: int, spilled: float, of: Deployment, requests: Requests) -> Array:
        """When each of some requests has its last token on a design, of which as many instances are there as of another."""
        pools, kind = [some[row : row + 1].copy() for some in self._pools], self._which[row]
        for some, pool in zip(pools, (of.pools[0], of.pools[-1]), strict=True):
            some["instances"] = pool.instances
        place = arrivals.room(np.concatenate(pools), len(requests), int(self._sent[row, 2]), gaps=False)
        arrivals.ended(
            self._prices, self._priced(slice(row, row + 1)), self._apart, *pools, self._shares[kind], self._nearest[kind],
            arrivals.of(requests), self._load, spilled, _sends(of, requests), self._sent[row], place,
        )  # fmt: skip
        return place.last

    def _priced(self, rows: Array | slice) -> tuple[Tables, ...]:
        """Tables of each pool of some designs."""
        return tuple((tables, of[rows]) for tables, of in self._tables)


def _sends(of: Deployment, requests: Requests) -> Array:
    """That each request has a channel. [s]"""
    found: Array = of.transfer.seconds(requests.prompt) if of.transfer else np.zeros(len(requests))
    return found


def alone(of: Deployment, requests: Requests, ttft: float = math.inf, tpot: float = math.inf, *, prompts: bool = True) -> Stood:
    """A deployment in the steady state of a load; arguments and errors as of `Stood`."""
    one = np.zeros(1, int)
    return Stood([of], one, [(pool.price.table[None], one) for pool in of.pools], requests, ttft, tpot, prompts=prompts)


def standing(
    of: Sequence[Deployment], requests: Requests, ttft: float = math.inf, tpot: float = math.inf, *, prompts: bool = True
) -> Array:
    """Deployments that serve the same requests, in the steady state: records of `standing.STANDING`, shape (deployments,).

    Arguments and errors as of `Stood`.
    """
    return np.concatenate([alone(some, requests, ttft, tpot, prompts=prompts).played() for some in of])
