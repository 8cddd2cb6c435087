"""Requests as arrays: arrival times, lengths, and leading prompt blocks that they share."""

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


MAX_TOKENS = 2**31 - 1
"""Most tokens of a prompt or an output, which arrays of 32 bits hold."""

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
        skipped: rows of the file that were skipped.
        truncated: whether the file has requests beyond these.
        kinds: class of each by number; shape (requests,), or empty where all are of one.
        ranks: priority of each request, 0 first, then by arrival; shape (requests,), or empty if all are equal.
        before: row of the earlier request whose answer a turn waits for; -1 for none. A turn arrives when that request has
            its last token and `think` has passed; `arrival` is then the earliest possible, with instant answers. Shape
            (requests,), or empty if all requests are independent.
        think: time before a turn is sent; shape of `before`. [s]
        turns: position in a session, from 0; shape of `before`.
        users: size of a closed population, of whom each starts its next session when the last has ended; 0 if sessions
            begin independently.
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
        """Digest of the requests' content, equal for equal requests."""
        parts = (self.arrival, self.prompt, self.output, self.starts, self.hashes)
        digest = hashlib.sha256(str(self.block).encode())
        for part in parts:
            digest.update(np.ascontiguousarray(part, float).tobytes())
        for name in ("kinds", "ranks", "before", "think"):
            if len(column := getattr(self, name)):
                digest.update(name.encode() + np.ascontiguousarray(column, float).tobytes())
        return digest.hexdigest()[:32]

    @cached_property
    def total(self) -> Array:
        """Prompt and output tokens of each request, shape (requests,). [token]"""
        return self.prompt.astype(np.int64) + self.output

    @property
    def longest(self) -> int:
        """Prompt and output tokens of the longest request. [token]"""
        return int(self.total.max())

    @property
    def spans(self) -> Array:
        """Leading prompt tokens that each request's hashes cover, shape (requests,). [token]

        >>> replace(make_requests([(9, 1)]), starts=np.array([0, 3]), hashes=np.arange(3), block=4).spans.tolist()
        [9]
        """
        count = np.diff(self.starts)
        prompt = self.prompt.astype(np.int64)
        return np.where(count == -(-prompt // self.block), prompt, count * self.block)

    @property
    def reusable(self) -> float:
        """Share of prompt tokens in leading blocks seen before: hits of an unlimited prefix cache. [-]

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
    def has_times(self) -> bool:
        """Whether requests have arrival times."""
        return not bool(np.isnan(self.arrival).any())

    @property
    def rate(self) -> float:
        """Requests per time over the arrival window; infinite if all arrive at once. [1/s]

        With sessions: the rate at which sessions begin times the turns per session; infinite for a closed
        population, which sends as fast as it is answered.
        """
        if self.population:
            return float("inf")
        begins = self.begins
        window = float(begins[-1] - begins[0])
        return (len(begins) - 1) / window * (len(self) / len(begins)) if window > 0 else float("inf")

    @property
    def is_alone(self) -> bool:
        """Whether there is one request alone, which tells no rate of arrivals."""
        return len(self) == 1 and not self.population

    @property
    def population(self) -> int:
        """Users of a closed loop, or sessions that begin at once; 0 if requests arrive independently."""
        if self.users or not len(self.before):
            return self.users
        return len(self.begins) if self.begins[-1] == self.begins[0] else 0

    @property
    def begins(self) -> Array:
        """Arrival times of requests that wait for no answer. [s]"""
        return np.asarray(self.arrival[self.before < 0]) if len(self.before) else self.arrival

    def first_requests(self, count: int) -> "Requests":
        """The first `count` requests of the stream."""
        rows = self._rows(np.arange(min(count, len(self))), self.arrival[:count])
        return replace(rows, truncated=self.truncated or count < len(self))

    def of_kind(self, number: int) -> "Requests":
        """Requests of one SLO class, at their arrival times."""
        rows = np.flatnonzero(self.kinds == number)
        return self._rows(rows, self.arrival[rows])

    def shuffle_order(self, seed: int) -> "Requests":
        """The same requests in random order; the arrival times keep their order.

        Raises:
            DesignError: the requests are turns of sessions, whose order is fixed.
        """
        if len(self.before):
            raise DesignError("workload.shuffle: turns of sessions have a fixed order; remove it")
        return self._rows(np.random.default_rng(seed).permutation(len(self)), self.arrival)

    def shuffled_copies(self, count: int, seed: int) -> "Requests":
        """So many requests without times: copies of these one after the other, each in an order of its own.

        Fewer requests of a seed are the first of more.

        >>> make_requests([(8, 1), (9, 2)]).shuffled_copies(3, 1).prompt.tolist()
        [8, 9, 8]
        """
        random = np.random.default_rng(seed)
        rows = np.concatenate([random.permutation(len(self)) for _ in range(-(-count // len(self)))])[:count]
        return self._rows(rows, np.full(count, np.nan))

    def draw_requests(self, count: int, seed: int) -> "Requests":
        """Requests drawn with replacement, without times; turns of sessions are drawn singly."""
        sample = replace(self, before=_none(), think=np.zeros(0), turns=_none(), users=0)
        return sample._rows(np.random.default_rng(seed).integers(len(self), size=count), np.full(count, np.nan))

    def resample_blocks(self, count: int, seed: int) -> "Requests":
        """Another stream of requests, of blocks of consecutive ones that are drawn with replacement.

        Each request has the gap before it. The block bootstrap on a circle [politis1992], with blocks of the square root of
        the requests: bursts that are shorter keep their form. Copies of a request have prefixes of their own, as those of
        other users would.

        Args:
            count: requests of the new stream.
            seed: of the generator.

        Raises:
            DesignError: the requests are turns of sessions, which wait for each other.

        >>> trace = make_requests([(1, 1), (2, 1), (3, 1), (4, 1)], [0.0, 1.0, 1.5, 6.0])
        >>> other = trace.resample_blocks(6, seed=1)
        >>> other.prompt.tolist(), other.arrival.tolist()
        ([2, 3, 3, 4, 4, 1], [0.0, 0.5, 1.0, 5.5, 10.0, 12.0])
        """
        if len(self.before):
            raise DesignError("requests: turns of sessions cannot be resampled; draw other sessions")
        size = len(self)
        block = max(1, round(size**0.5))
        starts = np.random.default_rng(seed).integers(size, size=-(-count // block))
        rows = ((starts[:, None] + np.arange(block)).ravel() % size)[:count]
        between = np.diff(self.arrival)
        gaps = np.concatenate([[between.mean() if len(between) else 0.0], between])[rows]
        stream = self._rows(rows, np.concatenate([[0.0], np.cumsum(gaps[1:])]))
        if not len(self.starts):
            return stream
        order = np.argsort(rows, kind="stable")
        copies = np.empty(count, np.int64)
        copies[order] = np.arange(count) - np.searchsorted(rows[order], rows[order])
        apart = stream.hashes.astype(np.int64) * (int(copies.max()) + 1) + np.repeat(copies, np.diff(stream.starts))
        return replace(stream, hashes=np.unique(apart, return_inverse=True)[1].astype(np.int32))

    def clip_lengths(self, total: int) -> "Requests":
        """Requests cut to at most `total` tokens; prompts are shortened first, down to one token. [token]

        Raises:
            DesignError: `total` is too small for a prompt and an output.
        """
        if total < 2:
            raise DesignError(f"clip: a request needs at least 2 tokens, got {total}")
        prompt = np.maximum(1, np.minimum(self.prompt, total - self.output)).astype(np.int32)
        limited = replace(self, prompt=prompt, output=np.minimum(self.output, total - prompt).astype(np.int32))
        if not len(self.starts):
            return limited
        # of a prompt that is cut, the hash of the block where that happens stands for tokens that are gone
        counts = np.diff(self.starts)
        left = np.where(prompt < self.prompt, np.minimum(counts, prompt // self.block), counts)
        kept = self._places < np.repeat(left, counts)
        return replace(limited, starts=np.concatenate([[0], np.cumsum(left)]), hashes=self.hashes[kept])

    def scale_times(self, factor: float) -> "Requests":
        """The same requests at `factor` times their rate."""
        if not factor > 0 or not np.isfinite(factor):
            raise DesignError(f"workload.rate_scale: {factor!r} is not a number above 0")
        return (
            self.with_session_starts(self.begins / factor) if len(self.before) else replace(self, arrival=self.arrival / factor)
        )

    def with_arrivals(self, process: str, *, rate: float = 1.0, cv: float = 1.0, seed: int = 0) -> "Requests":
        """The same requests with new arrival times, the first at 0.

        Args:
            process: a name of `ARRIVAL_PROCESSES`.
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
        return self.with_session_starts(times) if len(self.before) else replace(self, arrival=times)

    def with_session_starts(self, times: Array) -> "Requests":
        """The same sessions begun at other times, shape (sessions,), in order of arrival. [s]"""
        order, arrival = self._begun_order(times)
        return self._rows(order, arrival)

    def _begun_order(self, times: Array) -> tuple[Array, Array]:
        """Rows of session turns ordered for new session start times, and their arrival times. [s]"""
        first = self.before < 0
        if not first.any() or len(times) != first.sum():
            raise DesignError(
                f"sessions: {len(times)} times for {int(first.sum())} sessions that begin independently; give one each"
            )
        begins = np.empty(len(self))
        begins[first] = times
        arrivals, before, think = begins.tolist(), self.before.tolist(), self.think.tolist()  # single array elements are slow
        for row in np.flatnonzero(~first).tolist():  # whom it waits for stands above it
            arrivals[row] = arrivals[before[row]] + think[row]
        arrival = np.array(arrivals)
        order = np.argsort(arrival, kind="stable")
        return order, arrival[order]

    def as_closed_loop(self, users: int) -> "Requests":
        """The same sessions sent by a closed population of users, who think before each session.

        Sessions are dealt to users in rotation, and each user's first session begins after one think time.
        """
        if not len(self.before) or not users >= 1:
            raise DesignError(f"users: {users} users need requests in sessions, and at least 1 user")
        first, last = np.flatnonzero(self.turns == 0), np.arange(len(self))
        sessions = self.sessions
        np.maximum.at(last, sessions, np.arange(len(self)))  # the last of its session
        before = self.before.copy()
        before[first] = -1
        before[first[users:]] = last[first[: max(0, len(first) - users)]]
        # whom a session waits for has to stand above it: users in turn, session after session
        order = np.argsort(np.searchsorted(first, sessions) // users, kind="stable")
        closed = replace(self, before=before, users=min(users, len(first)))
        none = np.zeros(0, np.int64)  # hashes are many: they are put in order once
        turns = replace(closed, starts=none, hashes=none)._rows(order, np.zeros(len(self)))
        begun, arrival = turns._begun_order(turns.think[turns.before < 0])
        return closed._rows(order[begun], arrival)

    def at_once(self) -> "Requests":
        """The same requests all at time 0, and later turns without think time: a saturating load."""
        if not len(self.before):
            return replace(self, arrival=np.zeros(len(self)))
        before = np.where(self.turns == 0, -1, self.before)
        return replace(self, before=before, think=np.zeros(len(self)), arrival=np.zeros(len(self)), users=0)

    def repeated_requests(self, times: int) -> "Requests":
        """The same requests repeated `times` times, for requests that arrive at once and wait for none.

        >>> make_requests([(8, 1), (9, 2)], [0.0, 0.0]).repeated_requests(2).prompt.tolist()
        [8, 9, 8, 9]
        """
        return self._rows(np.tile(np.arange(len(self)), times), np.tile(self.arrival, times))

    @property
    def sessions(self) -> Array:
        """Row of the first turn of each request's session, shape (requests,)."""
        sessions, before = list(range(len(self))), self.before.tolist()
        for row in np.flatnonzero(self.turns > 0).tolist():
            sessions[row] = sessions[before[row]]
        return np.array(sessions, np.int64)

    def _rows(self, rows: Array, arrival: Array) -> "Requests":
        beside = {name: column[rows] for name in OPTIONAL_COLUMNS if len(column := getattr(self, name))}
        if len(self.before):
            place = np.full(len(self) + 1, -1)  # the last one is of those that wait for nobody
            place[rows] = np.arange(len(rows))
            beside["before"] = place[self.before[rows]]
        selected_rows = replace(self, arrival=arrival, prompt=self.prompt[rows], output=self.output[rows], **beside)
        if not len(self.starts):
            return selected_rows
        counts = np.diff(self.starts)[rows]
        starts = np.concatenate([[0], np.cumsum(counts)])
        if starts[-1] > MANY_BLOCKS * len(rows):  # long pieces are copied as they are
            first, after = self.starts[rows].tolist(), (self.starts[rows] + counts).tolist()
            pieces = [self.hashes[begin:end] for begin, end in zip(first, after, strict=True)]
            return replace(selected_rows, starts=starts, hashes=np.concatenate(pieces))
        places = np.repeat(self.starts[rows] - starts[:-1], counts) + np.arange(starts[-1])
        return replace(selected_rows, starts=starts, hashes=self.hashes[places])


def make_requests(lengths: Any, arrival: Any = None) -> Requests:
    """Requests from (prompt, output) pairs and optional arrival times, shape (requests, 2). [token], [s]"""
    exact = np.asarray(lengths).reshape(-1, 2)
    if exact.size and not (exact.min() >= 1 and exact.max() <= MAX_TOKENS):  # also not a number
        worst = exact.max() if exact.max() > MAX_TOKENS else exact.min()
        raise DesignError(f"requests: a length of {worst:g} tokens; expected 1 to {MAX_TOKENS:,}")
    pairs = exact.astype(np.int32)
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
