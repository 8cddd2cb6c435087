"""What is asked of a design: batches or streams of requests to models, products of matrices, collectives or attention by
themselves, requests to a memory, or packets on a network.

A case is one static batch: its requests start together, are prefilled together and decode together; a request that has
its last token leaves, and its place stays empty until the batch ends. A load is a
stream of requests, served as they come.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from dse.space.fields import fingerprint, key_text
from dse.space.model import Model
from dse.space.requests import Requests

DECODE_CONTEXTS = ("mean", "last")
"""Where on its way a decode phase is priced: at the mean context of each stretch between two requests' ends, which is
exact where time is linear in the context; or at the last token of each stretch, as a worst case."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """Tokens that are guessed, and checked a step later together with the next one.

    Attributes:
        tokens: guessed a step.
        acceptance: chance that a guess is right where those before it are.
    """

    tokens: int
    acceptance: float

    @property
    def expected(self) -> float:
        """Tokens that a step yields, expected: 1 + a + a^2 + ... [leviathan2023].

        >>> Speculation(1, 0.7).expected, Speculation(2, 0.5).expected
        (1.7, 1.75)
        """
        return float(sum(self.acceptance**guess for guess in range(self.tokens + 1)))


@dataclass(frozen=True, slots=True)
class BatchCase:
    """One static batch on one model.

    Attributes:
        label: short text for tables.
        model: the model that is served.
        requests: (how many, prompt tokens, output tokens), grouped by equal lengths.
        speculation: what is guessed in decode; None for nothing.
    """

    label: str
    model: Model
    requests: tuple[tuple[int, int, int], ...]
    speculation: Speculation | None = None

    @property
    def subject(self) -> Model:
        """What cases that are worked out together have in common."""
        return self.model

    @property
    def content(self) -> str:
        """What tells it from others, its label apart."""
        return f"{fingerprint(self.model)} {self.requests!r}" + (f" {self.speculation!r}" if self.speculation else "")

    @property
    def guesses(self) -> int:
        """Tokens guessed in a step of decode."""
        return self.speculation.tokens if self.speculation else 0

    @property
    def yielded(self) -> float:
        """Tokens that a step of decode yields a request, expected."""
        return self.speculation.expected if self.speculation else 1.0

    @property
    def batch(self) -> int:
        """Requests in the batch."""
        return sum(n for n, _, _ in self.requests)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(n * prompt for n, prompt, _ in self.requests)

    @property
    def output_tokens(self) -> int:
        """Tokens that the batch generates."""
        return sum(n * output for n, _, output in self.requests)

    @property
    def longest(self) -> int:
        """Prompt and output of the longest request. [token]"""
        return max(prompt + output for _, prompt, output in self.requests)

    @property
    def decode_steps(self) -> int:
        """Steps until the last request has its last token."""
        return max(output for _, _, output in self.requests)


PRODUCT_KINDS = ("gemm", "gemv")
"""Products of matrices, and of vectors with a matrix."""


@dataclass(frozen=True, slots=True)
class ProductCase:
    """C[m, n] = A[m, k] B[k, n] by itself, or several of them, each of operands of its own, by one call.

    Attributes:
        label: short text for tables.
        kind: a word of `PRODUCTS`.
        m, k, n: its sizes; a GEMV has as many vectors as m says.
        groups: how many of these sizes.
    """

    label: str
    kind: str
    m: int
    k: int
    n: int
    groups: int = 1

    @property
    def subject(self) -> str:
        """What cases that are worked out together have in common."""
        return self.kind

    @property
    def content(self) -> str:
        """What tells it from others, its label apart."""
        return f"{self.kind} {product_text(self)}"


def product_text(of: ProductCase) -> str:
    """Of a product, as its question says them: m x k x n, after how many there are if there are several."""
    return " x ".join(map(str, (*((of.groups,) if of.groups > 1 else ()), of.m, of.k, of.n)))


DISTRIBUTIONS = ("balanced", "power_law")
"""How a benchmark gives rows to experts: as many to each, or by shares drawn from a power law."""


@dataclass(frozen=True, slots=True)
class ExpertsCase:
    """The experts of one layer by themselves, on one of the devices that share them out.

    Attributes:
        label: short text for tables.
        tokens: that come in, on all of these devices.
        hidden, intermediate: columns of a token, and of an expert between its products.
        experts, top_k: of the layer, and those that each token goes to.
        ep: devices that have as many of the experts each; the one with most rows is asked for.
        distribution: a word of `DISTRIBUTIONS`.
        exponent: of the power law, else 0.
        seed: of its draws.
    """

    label: str
    tokens: int
    hidden: int
    intermediate: int
    experts: int
    top_k: int
    ep: int
    distribution: str
    exponent: float
    seed: int

    @property
    def subject(self) -> str:
        """What cases that are worked out together have in common."""
        return "experts"

    @property
    def content(self) -> str:
        """What tells it from others, its label apart."""
        sizes = (self.tokens, self.hidden, self.intermediate, self.experts, self.top_k, self.ep)
        return f"{self.subject} {sizes!r} {self.distribution} {self.exponent!r} seed {self.seed}"


OPERATIONS = ("norm", "gate", "rotate", "copy", "gather", "softmax")
"""Operators on elements: a norm of rows, an activation times an input, a rotation by position, a copy, rows of a table that are
picked, a softmax of rows."""


@dataclass(frozen=True, slots=True)
class ElementwiseCase:
    """An operator on elements by itself.

    Attributes:
        label: short text for tables.
        sort: a word of `OPERATIONS`.
        rows, columns: of what comes out.
    """

    label: str
    sort: str
    rows: int
    columns: int

    @property
    def subject(self) -> str:
        """What cases that are worked out together have in common."""
        return self.sort

    @property
    def content(self) -> str:
        """What tells it from others, its label apart."""
        return f"{self.sort} {self.rows} x {self.columns}"


STREAM_PATTERNS = ("sequential", "random", "stride", "chunk")
"""Where requests to a memory go: one after the other; anywhere; each a step further; contiguous over a step, at random."""


@dataclass(frozen=True, slots=True)
class MemoryStreamCase:
    """Requests to a memory by themselves.

    Attributes:
        label: short text for tables.
        pattern: a word of `STREAMS`.
        step: of a stride or a chunk, else 0. [B]
        writes: share of the requests.
        request: size of each. [B]
        gap: from one to the next. [s]
        span: of addresses. [B]
        requests: for each channel of the memory.
        seed: of places and of the order of writes.
    """

    label: str
    pattern: str
    step: int
    writes: float
    request: int
    gap: float
    span: int
    requests: int
    seed: int

    @property
    def subject(self) -> str:
        """What cases that are worked out together have in common."""
        return "stream"

    @property
    def content(self) -> str:
        """What tells it from others, its label apart."""
        what = f"stream {self.pattern} {self.step} writes {self.writes!r} request {self.request} gap {self.gap!r}"
        return f"{what} span {self.span} requests {self.requests} seed {self.seed}"


TRAFFIC_PATTERNS = ("uniform", "transpose", "bit_complement", "tornado", "neighbour", "hotspot")
"""Where packets go, each from a node to another one: to any node, itself too; to that with row and column swapped; to that as
far from the last as this one is from the first; half a mesh less one on, in both directions and round the edge; one on,
likewise; to one of a few, the middle ones or any others."""


@dataclass(frozen=True, slots=True)
class NocTrafficCase:
    """Packets on a network by themselves: every node makes them at random, whether they can be sent or not.

    Attributes:
        label: short text for tables.
        pattern: a word of `TRAFFIC`.
        spots: nodes that a hotspot's packets go to; empty for the middle ones, `middle` of them.
        middle: 1 or 4 nodes in the middle, else 0.
        rate: flits that a node makes in a cycle.
        flits: of a packet.
        period: cycles of a sample, at least.
        packets: that the network makes in a sample, at least.
        seed: of times and places.
    """

    label: str
    pattern: str
    spots: tuple[int, ...]
    middle: int
    rate: float
    flits: int
    period: int
    packets: int
    seed: int

    @property
    def subject(self) -> str:
        """What cases that are worked out together have in common."""
        return "traffic"

    @property
    def content(self) -> str:
        """What tells it from others, its label apart."""
        where = f"traffic {self.pattern} {self.spots!r} {self.middle} rate {self.rate!r} flits {self.flits}"
        return f"{where} period {self.period} packets {self.packets} seed {self.seed}"


TILE_PATTERNS = ("multicast", "reduce", "allreduce")
"""What a team of tiles does: the root's data to all; sums or maxima of all at the root; these, and then back to all."""

DIE_EXCHANGES = ("allgather", "reduce_scatter", "allreduce", "all_to_all")
"""What all tiles do with each other, each having a slice for or of every other one: they end with the slices of all; with the
sum of their own slice; with the sums of all; with the slices that are for them."""

EXPERT_EXCHANGES = ("dispatch", "combine")
"""What dies of experts do with each other by a library: copies of tokens to where their experts are, and results back."""

GROUP_AXES = ("row", "column", "rectangle")
"""Which tiles of a group are a team."""

DIAGONAL = "diagonal"
"""Roots on the diagonal of each group, so that teams beside each other have different ones."""

REDUCTIONS = ("sum", "max")


@dataclass(frozen=True, slots=True)
class CollectiveCase:
    """Tiles of a mesh exchange data, by groups, and do nothing else.

    Attributes:
        label: short text for tables.
        pattern: a word of `PATTERNS`, `EXCHANGES` or `TO_EXPERTS`.
        nbytes: data of one tile. [B]
        along: which tiles of a group are a team: row, column, or rectangle for all of them.
        rows, cols: tiles of a group; 0 for those of the mesh.
        root: place of a team's root, or diagonal.
        combine: of a reduction: sum or max.
        recorded: whether a recorded graph of launches holds it; else the host starts it, which counts between dies.
        hidden: values of a token, of dispatch and combine.
    """

    label: str
    pattern: str
    nbytes: float
    along: str
    rows: int
    cols: int
    root: int | str
    combine: str
    recorded: bool = True
    hidden: int = 7168

    @property
    def subject(self) -> str:
        """What cases that are worked out together have in common."""
        return f"{self.pattern} {self.along} {self.rows} x {self.cols} {self.root} {self.combine}"

    @property
    def content(self) -> str:
        """What tells it from others, its label apart."""
        of = f" of {self.hidden}" if self.pattern in EXPERT_EXCHANGES else ""
        return f"{self.subject} {self.nbytes!r}{of}" + ("" if self.recorded else " by the host")


@dataclass(frozen=True, slots=True)
class AttentionCase:
    """Softmax attention of one layer, and nothing else.

    Attributes:
        label: short text for tables.
        batch: sequences.
        heads, kv_heads: of queries, and of keys and values: MHA has as many, MQA one, GQA some.
        queries, keys: of a sequence: as many for prefill, one query for decode, a few for speculative decode.
        qk, v: dimensions of a head.
        causal: whether a query sees no later key.
        latent: whether values are the last columns of keys: MLA with absorbed weights.
        window: keys that a query sees at most, its own one included, where it sees no later one; 0 for all.
        decodes: sequences of one query each in the same launch, each of which sees `cached` keys.
    """

    label: str
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    qk: int
    v: int
    causal: bool
    latent: bool
    window: int = 0
    decodes: int = 0
    cached: int = 0

    @property
    def subject(self) -> str:
        """What cases that are worked out together have in common."""
        return f"{'causal ' * self.causal}{'latent ' * self.latent}attention"

    @property
    def content(self) -> str:
        """What tells it from others, its label apart."""
        sizes = (self.batch, self.heads, self.kv_heads, self.queries, self.keys, self.qk, self.v)
        beside = f" decodes {self.decodes} {self.cached}" if self.decodes else ""
        return f"{self.subject} {sizes!r}" + (f" window {self.window}" if self.window else "") + beside


@dataclass(frozen=True, slots=True)
class SloClass:
    """Requests of a load that have bounds of their own.

    Attributes:
        name: in words.
        ttft, tpot: as of `Load`. [s]
        priority: who waits is served by it, the least first, and by arrival where it is the same; who has to leave for want of
            memory is the last to come of those where it is the most. As in vLLM's scheduler.
    """

    name: str
    ttft: float
    tpot: float
    priority: int = 0


@dataclass(frozen=True, slots=True)
class TraceUse:
    """What a load has of the trace that its requests are from, and what was changed.

    Attributes:
        file: name of the file.
        part: which of its requests, and what was done to them, in words: "all of conv.csv", "the first of conv.csv".
        times: where arrivals come from: "replayed" as the file has them, "scaled" by a factor, or "drawn" from a process.
        process: of times that are drawn, a name of `PROCESSES`, or closed; else the empty string.
    """

    file: str
    part: str
    times: str
    process: str = ""


@dataclass(frozen=True, eq=False)
class ServingLoad:
    """A stream of requests to a model, served as they come.

    Attributes:
        label: short text for tables.
        model: the model that is served.
        requests: with times of arrival.
        ttft, tpot: what a request must keep to count as good: time to first token, and mean time per output token. [s]
        largest: share of the requests that must keep each of these at the largest rate, which is looked for: all gaps between
            arrivals are longer or shorter alike; 0 where requests come as they are.
        said: rate of the process that the requests are drawn from; 0 where their own counts. [1/s]
        speculation: what is guessed in decode; None for nothing.
        seed: of which guesses are right; read where tokens are guessed.
        classes: with bounds of their own, by the numbers of `Requests.kinds`; none where those above are of all requests.
        trace: what it has of a trace; None where requests are from no file.
        draw: so many requests of the same kind by another seed and at another rate, or of so many users; None where these are
            all that there are, as of a trace that is replayed.
        most: requests that can be drawn, or that somebody says there are; 0 where nothing bounds them.
    """

    label: str
    model: Model
    requests: Requests
    ttft: float
    tpot: float
    largest: float = 0.0
    said: float = 0.0
    speculation: Speculation | None = None
    seed: int = 0
    classes: tuple[SloClass, ...] = ()
    trace: TraceUse | None = None
    draw: Callable[[int, int, float], Requests] | None = None
    most: int = 0

    @property
    def kept(self) -> tuple[Any, Any]:
        """What requests must keep: `ttft` and `tpot`, each a number, or of shape (requests,) where there are classes. [s]"""
        if not self.classes:
            return self.ttft, self.tpot
        bounds = np.array([(one.ttft, one.tpot) for one in self.classes])[self.requests.kinds]
        return bounds[:, 0], bounds[:, 1]

    @property
    def guesses(self) -> int:
        """Tokens guessed a request in an iteration."""
        return self.speculation.tokens if self.speculation else 0

    @property
    def rate(self) -> float:
        """Requests over time, as it is said. [1/s]"""
        return self.said or self.requests.rate

    def at(self, rate: float) -> Requests:
        """The same requests at another rate: all gaps between arrivals are longer or shorter alike.

        Of a closed population, asked by another number of users, at least as many as is said.
        """
        if self.requests.users:
            return self.requests.closed(max(1, ceil(rate - 1e-9)))
        return self.requests.scaled(rate / self.rate)

    @property
    def longest(self) -> int:
        """Prompt and output of the longest request. [token]"""
        return self.requests.longest

    @property
    def subject(self) -> Model:
        """What cases that are worked out together have in common."""
        return self.model

    @property
    def content(self) -> str:
        """What tells it from others, its label apart."""
        most = f" largest {self.largest!r}" if self.largest else ""
        guessed = f" {self.speculation!r} seed {self.seed}" if self.speculation else ""
        apart = f" {key_text(self.classes)}" if self.classes else ""
        return (
            f"{fingerprint(self.model)} requests {self.requests.digest} ttft {self.ttft!r} tpot "
            f"{self.tpot!r}{most}{guessed}{apart}"
        )


WorkloadCase = (
    BatchCase
    | ProductCase
    | ExpertsCase
    | ElementwiseCase
    | MemoryStreamCase
    | NocTrafficCase
    | CollectiveCase
    | AttentionCase
    | ServingLoad
)
"""A case of a workload."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Cases of one kind, which count alike: a metric of a workload is the arithmetic mean over its cases."""

    name: str
    cases: tuple[WorkloadCase, ...]
    decode_context: str = "mean"


def cases_by_model(workload: Workload) -> dict[Model, tuple[tuple[int, BatchCase], ...]]:
    """The cases of a workload of models, with their places in it, model by model."""
    found: dict[Model, list[tuple[int, BatchCase]]] = {}
    for place, case in enumerate(workload.cases):
        if isinstance(case, BatchCase):
            found.setdefault(case.model, []).append((place, case))
    return {model: tuple(cases) for model, cases in found.items()}


def decode_segments(case: BatchCase) -> list[tuple[int, int, tuple[tuple[int, int], ...]]]:
    """The decode phase cut where requests end.

    Returns:
        For each stretch (first step, last step + 1, ((requests, prompt), ...) still active), steps counted from 0.
    """
    ends = sorted({output for _, _, output in case.requests})
    starts = [0, *ends[:-1]]
    return [
        (start, end, tuple((n, prompt) for n, prompt, output in case.requests if output >= end))
        for start, end in zip(starts, ends, strict=True)
    ]


def group_lengths(lengths: Sequence[tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    """(prompt, output) pairs as (how many, prompt, output), in order of first appearance."""
    counts: dict[tuple[int, int], int] = {}
    for pair in lengths:
        counts[pair] = counts.get(pair, 0) + 1
    return tuple((n, prompt, output) for (prompt, output), n in counts.items())
