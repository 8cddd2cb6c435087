"""Requests as arrays: when they come, how long they are, and which leading blocks of a prompt they share."""

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from dse.space.array_math import Array
from dse.space.errors import DesignError, choose_option


def _none() -> Array:
    return np.zeros(0, np.int32)


OPTIONAL_COLUMNS = ("rows", "kinds", "ranks", "think", "turns")
"""Columns of requests that may be absent."""


MANY_BLOCKS = 16
"""Hash blocks of a request, in the mean, from which on those of each request are copied together."""


@dataclass(frozen=True, eq=False)
class Requests:
    """A stream of requests; request i is row i, and rows are in the order of arrival.

    Attributes:
        arrival: not falling; NaN in all rows where only lengths are known. Shape (requests,). [s]
        prompt, output: at least 1. Shape (requests,). [token]
        starts: request i has the block hashes `hashes[starts[i]:starts[i + 1]]`; shape (requests + 1,), or empty for none.
        hashes: of the blocks of all prompts, numbered from 0; equal leading ones are a prefix that can be reused. Those beyond
            a prompt's last token are of whole blocks with generated tokens.
        block: tokens that a hash stands for.
        rows: of a file that each stands in, as an editor counts; empty where there is none.
        skipped: rows of the file that were passed over.
        truncated: whether the file has requests beyond these.
        kinds: class of each by number; shape (requests,), or empty where all are of one.
        ranks: of each, 0 first: who waits is served by rank, then by arrival; shape (requests,), or empty where all are alike.
        before: of a turn, the row of the request whose answer it waits for, which stands above it; -1 for none. A turn comes
            when that has its last token and `think` has passed; `arrival` is then the earliest that can be, where answers
            take no time. Shape (requests,), or empty where all come by themselves.
        think: before a turn is asked; shape of `before`. [s]
        turns: places in a session, from 0; shape of `before`.
        users: of a closed population: so many ask at a time, each its next session when the last has ended; 0 where sessions
            begin by themselves.
    """

    arrival: Array
    prompt: Array
    output: Array
    starts: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    hashes: Array = field(default_factory=_none)
    block: int = 512
    rows: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    skipped: int = 0
    truncated: bool = False
    kinds: Array = field(default_factory=_none)
    ranks: Array = field(default_factory=_none)
    before: Array = field(default_factory=_none)
    think: Array = field(default_factory=lambda: np.zeros(0))
    turns: Array = field(default_factory=_none)
    users: int = 0

    def __len__(self) -> int:
        return len(self.prompt)

    @cached_property
    def digest(self) -> str:
        """Equal for equal requests."""
        parts = (self.arrival, self.prompt, self.output, self.starts, self.hashes)
        found = hashlib.sha256(str(self.block).encode())
        for part in parts:
            found.update(np.ascontiguousarray(part, float).tobytes())
        for name in ("kinds", "ranks", "before", "think"):
            if len(column := getattr(self, name)):
                found.update(name.encode() + np.ascontiguousarray(column, float).tobytes())
        return found.hexdigest()[:32]

    @cached_property
    def total(self) -> Array:
        """Prompt and output together, shape (requests,). [token]"""
        return self.prompt.astype(np.int64) + self.output

    @property
    def longest(self) -> int:
        """Prompt and output of the longest request. [token]"""
        return int(self.total.max())

    @property
    def spans(self) -> Array:
        """Leading tokens that the hashes of each request stand for: all of the prompt's, or whole blocks; shape (requests,).

        >>> replace(make_requests([(9, 1)]), starts=np.array([0, 3]), hashes=np.arange(3), block=4).spans.tolist()
        [9]
        """
        count = np.diff(self.starts)
        prompt = self.prompt.astype(np.int64)
        return np.where(count == -(-prompt // self.block), prompt, count * self.block)

    @property
    def reusable(self) -> float:
        """Share of the prompt tokens in leading blocks that came before: what one cache that forgets nothing would reuse. [-]

        >>> two = replace(
        ...     make_requests([(8, 1), (12, 1)]), starts=np.array([0, 2, 5]), hashes=np.array([0, 1, 0, 1, 2]), block=4
        ... )
        >>> two.reusable
        0.4
        """
        if not len(self.starts):
            return 0.0
        counts = np.diff(self.starts)
        _, first, which = np.unique(self.hashes, return_index=True, return_inverse=True)
        new = first[which] >= np.repeat(self.starts[:-1], counts)
        known = counts.copy()
        np.minimum.at(known, np.repeat(np.arange(len(self)), counts)[new], self._places[new])
        return float(np.minimum(known * self.block, self.prompt - 1).sum() / self.prompt.astype(float).sum())

    @property
    def _places(self) -> Array:
        """Of each hash, how many its request has before it."""
        return np.asarray(np.arange(len(self.hashes)) - np.repeat(self.starts[:-1], np.diff(self.starts)))

    @property
    def timed(self) -> bool:
        """Whether requests have times of arrival."""
        return not bool(np.isnan(self.arrival).any())

    @property
    def rate(self) -> float:
        """Requests over the time in which they come; infinite where they come at once. [1/s]

        Of turns, as many as sessions begin in the time in which these do, times the turns of one; infinite of a closed
        population too, which asks as fast as it is answered.
        """
        if self.population:
            return float("inf")
        begins = self.begins
        window = float(begins[-1] - begins[0])
        return (len(begins) - 1) / window * (len(self) / len(begins)) if window > 0 else float("inf")

    @property
    def population(self) -> int:
        """Who asks at a time where nobody else comes: users, or sessions that begin at once; 0 where others come."""
        if self.users or not len(self.before):
            return self.users
        return len(self.begins) if self.begins[-1] == self.begins[0] else 0

    @property
    def begins(self) -> Array:
        """Arrivals of those that wait for no answer. [s]"""
        return np.asarray(self.arrival[self.before < 0]) if len(self.before) else self.arrival

    def first(self, count: int) -> "Requests":
        """The first so many."""
        some = self._rows(np.arange(min(count, len(self))), self.arrival[:count])
        return replace(some, truncated=self.truncated or count < len(self))

    def of_kind(self, number: int) -> "Requests":
        """Those of one class, at the times at which they come."""
        rows = np.flatnonzero(self.kinds == number)
        return self._rows(rows, self.arrival[rows])

    def shuffled(self, seed: int) -> "Requests":
        """Requests in another order; the times of arrival stay where they are.

        Raises:
            DesignError: turns, which have one.
        """
        if len(self.before):
            raise DesignError("workload.shuffle: turns of sessions have an order; leave it out")
        return self._rows(np.random.default_rng(seed).permutation(len(self)), self.arrival)

    def drawn(self, count: int, seed: int) -> "Requests":
        """So many, with replacement, without times; of turns, each by itself."""
        some = replace(self, before=_none(), think=np.zeros(0), turns=_none(), users=0)
        return some._rows(np.random.default_rng(seed).integers(len(self), size=count), np.full(count, np.nan))

    def clipped(self, total: int) -> "Requests":
        """Prompt and output together at most `total`: the prompt gives way first, down to one token. [token]

        Raises:
            DesignError: no room for a prompt and an output.
        """
        if total < 2:
            raise DesignError(f"clip: a request has at least 2 tokens, {total} are allowed")
        prompt = np.maximum(1, np.minimum(self.prompt, total - self.output)).astype(np.int32)
        some = replace(self, prompt=prompt, output=np.minimum(self.output, total - prompt).astype(np.int32))
        if not len(self.starts):
            return some
        # of a prompt that is cut, the hash of the block where that happens stands for tokens that are gone
        counts = np.diff(self.starts)
        left = np.where(prompt < self.prompt, np.minimum(counts, prompt // self.block), counts)
        kept = self._places < np.repeat(left, counts)
        return replace(some, starts=np.concatenate([[0], np.cumsum(left)]), hashes=self.hashes[kept])

    def scaled(self, factor: float) -> "Requests":
        """The same requests, `factor` times as fast."""
        if not factor > 0 or not np.isfinite(factor):
            raise DesignError(f"workload.rate_scale: {factor!r} is not a number above 0")
        return self.begun(self.begins / factor) if len(self.before) else replace(self, arrival=self.arrival / factor)

    def arriving(self, process: str, *, rate: float = 1.0, cv: float = 1.0, seed: int = 0) -> "Requests":
        """The same requests with other times of arrival, the first at 0.

        Args:
            process: a name of `PROCESSES`.
            rate: requests over time. [1/s]
            cv: standard deviation over mean of the times between two requests, of a gamma process. [-]
            seed: of the generator.
        """
        gaps = choose_option(ARRIVAL_PROCESSES, process, "workload.arrivals")
        for name, value in (("rate", rate), ("cv", cv)):
            if not value > 0 or not np.isfinite(value):
                raise DesignError(f"workload.{name}: {value!r} is not a number above 0")
        first = int((self.before < 0).sum()) if len(self.before) else len(self)
        between = gaps(np.random.default_rng(seed), first - 1, len(self) / first / rate, cv)
        times = np.concatenate([[0.0], np.cumsum(between)])
        return self.begun(times) if len(self.before) else replace(self, arrival=times)

    def begun(self, times: Array) -> "Requests":
        """Turns whose sessions begin at other times, in their order; shape (sessions,). [s]"""
        order, arrival = self._begun_order(times)
        return self._rows(order, arrival)

    def _begun_order(self, times: Array) -> tuple[Array, Array]:
        """Rows of turns whose sessions begin at other times in the order of their arrival, and these arrivals. [s]"""
        first = self.before < 0
        if not first.any() or len(times) != first.sum():
            raise DesignError(f"sessions: {len(times)} times for {int(first.sum())} that begin by themselves")
        begins = np.empty(len(self))
        begins[first] = times
        arrivals, before, think = begins.tolist(), self.before.tolist(), self.think.tolist()  # single array elements are slow
        for row in np.flatnonzero(~first).tolist():  # whom it waits for stands above it
            arrivals[row] = arrivals[before[row]] + think[row]
        arrival = np.array(arrivals)
        order = np.argsort(arrival, kind="stable")
        return order, arrival[order]

    def closed(self, users: int) -> "Requests":
        """The same sessions asked by a closed population: each user begins the next when the last has ended, and thinks before.

        Sessions are shared out in turn, and the first of each user comes when that has thought.
        """
        if not len(self.before) or not users >= 1:
            raise DesignError(f"users: {users} of requests in sessions; give sessions, and at least 1")
        first, last = np.flatnonzero(self.turns == 0), np.arange(len(self))
        of = self.sessions
        np.maximum.at(last, of, np.arange(len(self)))  # the last of its session
        before = self.before.copy()
        before[first] = -1
        before[first[users:]] = last[first[: max(0, len(first) - users)]]
        # whom a session waits for has to stand above it: users in turn, session after session
        order = np.argsort(np.searchsorted(first, of) // users, kind="stable")
        some = replace(self, before=before, users=min(users, len(first)))
        none = np.zeros(0, np.int64)  # hashes are many: they are put in order once
        turns = replace(some, starts=none, hashes=none)._rows(order, np.zeros(len(self)))
        begun, arrival = turns._begun_order(turns.think[turns.before < 0])
        return some._rows(order[begun], arrival)

    def at_once(self) -> "Requests":
        """All at once, and turns as soon as the one before is answered: what keeps instances as busy as they can be."""
        if not len(self.before):
            return replace(self, arrival=np.zeros(len(self)))
        before = np.where(self.turns == 0, -1, self.before)
        return replace(self, before=before, think=np.zeros(len(self)), arrival=np.zeros(len(self)), users=0)

    def again(self, times: int) -> "Requests":
        """The same requests so many times, of those that come at once and wait for no answer.

        >>> make_requests([(8, 1), (9, 2)], [0.0, 0.0]).again(2).prompt.tolist()
        [8, 9, 8, 9]
        """
        return self._rows(np.tile(np.arange(len(self)), times), np.tile(self.arrival, times))

    @property
    def sessions(self) -> Array:
        """The row of each request's first turn."""
        found, before = list(range(len(self))), self.before.tolist()
        for row in np.flatnonzero(self.turns > 0).tolist():
            found[row] = found[before[row]]
        return np.array(found, np.int64)

    def _rows(self, rows: Array, arrival: Array) -> "Requests":
        beside = {name: column[rows] for name in OPTIONAL_COLUMNS if len(column := getattr(self, name))}
        if len(self.before):
            place = np.full(len(self) + 1, -1)  # the last one is of those that wait for nobody
            place[rows] = np.arange(len(rows))
            beside["before"] = place[self.before[rows]]
        some = replace(self, arrival=arrival, prompt=self.prompt[rows], output=self.output[rows], **beside)
        if not len(self.starts):
            return some
        counts = np.diff(self.starts)[rows]
        starts = np.concatenate([[0], np.cumsum(counts)])
        if starts[-1] > MANY_BLOCKS * len(rows):  # long pieces are copied as they are
            first, after = self.starts[rows].tolist(), (self.starts[rows] + counts).tolist()
            pieces = [self.hashes[begin:end] for begin, end in zip(first, after, strict=True)]
            return replace(some, starts=starts, hashes=np.concatenate(pieces))
        places = np.repeat(self.starts[rows] - starts[:-1], counts) + np.arange(starts[-1])
        return replace(some, starts=starts, hashes=self.hashes[places])


def make_requests(lengths: Any, arrival: Any = None) -> Requests:
    """Requests of (prompt, output) pairs, shape (requests, 2), and times that default to none. [token], [s]"""
    pairs = np.asarray(lengths, np.int32).reshape(-1, 2)
    times = np.full(len(pairs), np.nan) if arrival is None else np.asarray(arrival, float)
    return Requests(times, pairs[:, 0].copy(), pairs[:, 1].copy())


def _poisson(rng: Any, count: int, mean: float, cv: float) -> Array:
    return np.asarray(rng.exponential(mean, count))


def _gamma(rng: Any, count: int, mean: float, cv: float) -> Array:
    return np.asarray(rng.gamma(1 / cv**2, mean * cv**2, count))


def _fixed(rng: Any, count: int, mean: float, cv: float) -> Array:
    return np.full(count, mean)


def _at_once(rng: Any, count: int, mean: float, cv: float) -> Array:
    return np.zeros(count)


ARRIVAL_PROCESSES = {"poisson": _poisson, "gamma": _gamma, "constant": _fixed, "offline": _at_once}
"""Times between two requests."""
