"""Workloads: static batches, serving loads, and single kernels, memory streams or packet traffic.

A static batch is one case: its requests start together, are prefilled together and decode together. A finished request
leaves, and its place stays empty until the batch ends. A serving load is a stream of requests, served as they arrive.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal, NamedTuple

import numpy as np

from dse.space.fields import fingerprint, integer_field, key_text, quantity_field
from dse.space.model import Model
from dse.space.requests import Requests

DECODE_CONTEXTS = ("mean", "last")
"""Context at which a decode phase is evaluated: the mean context of each segment between two requests' ends, which is exact
if time is linear in the context; or the last token of each segment, as a worst case.
"""

FIRST_TOKENS = ("prefill", "decode")
"""Phase that the first output token of a static batch comes from.

Engines take it from the last position of prefill, and so do serving loads. Papers that divide all output tokens by the time
of decode take it from the first decode step.
"""


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding: drafted tokens per iteration and their acceptance."""

    tokens: int = integer_field("tokens guessed a step", low=0)
    acceptance: float = quantity_field("1", "chance that a guess is right where those before it are", high=1.0)

    @property
    def expected_tokens(self) -> float:
        """Expected tokens per iteration: 1 + a + a^2 + ... [leviathan2023]

        >>> Speculation(1, 0.7).expected_tokens, Speculation(2, 0.5).expected_tokens
        (1.7, 1.75)
        """
        return float(sum(self.acceptance**guess for guess in range(self.tokens + 1)))


@dataclass(frozen=True, slots=True)
class BatchCase:
    """One static batch of requests to one model.

    Attributes:
        label: short text for tables.
        model: the model that is served.
        requests: (how many, prompt tokens, output tokens), grouped by equal lengths.
        speculation: what is guessed in decode; None for nothing.
        first_token: phase that the first output token comes from, of `FIRST_TOKENS`.
    """

    label: str
    model: Model
    requests: tuple[tuple[int, int, int], ...]
    speculation: Speculation | None = None
    first_token: str = FIRST_TOKENS[0]

    @property
    def subject(self) -> Model:
        """What cases evaluated together have in common: the model."""
        return self.model

    @property
    def content(self) -> str:
        """Text that identifies the case, without its label, for content keys."""
        guessed = f" {self.speculation!r}" if self.speculation else ""
        return f"{fingerprint(self.model)} {self.requests!r}{guessed}{' first token of prefill' * self.prefill_gives_token}"

    @property
    def prefill_gives_token(self) -> bool:
        """Whether prefill gives the first output token of each request, so that decode takes one step less."""
        return self.first_token == "prefill"

    @property
    def decode_lengths(self) -> tuple[tuple[int, int, int], ...]:
        """The requests as (how many, prompt tokens, tokens that decode steps give).

        >>> [BatchCase("", None, ((4, 100, 10),), first_token=phase).decode_lengths for phase in FIRST_TOKENS]
        [((4, 100, 9),), ((4, 100, 10),)]
        """
        return tuple((n, prompt, output - self.prefill_gives_token) for n, prompt, output in self.requests)

    @property
    def guesses(self) -> int:
        """Drafted tokens per decode step."""
        return self.speculation.tokens if self.speculation else 0

    @property
    def expected_tokens(self) -> float:
        """Expected output tokens per request and decode step."""
        return self.speculation.expected_tokens if self.speculation else 1.0

    @property
    def batch(self) -> int:
        """Number of requests in the batch."""
        return sum(n for n, _, _ in self.requests)

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of all requests of the batch."""
        return sum(n * prompt for n, prompt, _ in self.requests)

    @property
    def output_tokens(self) -> int:
        """Output tokens of all requests of the batch."""
        return sum(n * output for n, _, output in self.requests)

    @property
    def decode_tokens(self) -> int:
        """Output tokens of all requests that decode steps give: all but those of prefill."""
        return sum(n * decoded for n, _, decoded in self.decode_lengths)

    @property
    def longest(self) -> int:
        """Prompt and output tokens of the longest request. [token]"""
        return max(prompt + output for _, prompt, output in self.requests)

    @property
    def decode_steps(self) -> int:
        """Decode steps of one token until the last request has its last token; 0 where prefill gives all."""
        return max(decoded for _, _, decoded in self.decode_lengths)


PRODUCT_KINDS = ("gemm", "gemv")
"""Products of matrices, and of vectors with a matrix."""


@dataclass(frozen=True, slots=True)
class ProductCase:
    """Matrix products C[m, n] = A[m, k] B[k, n] in one kernel, each with operands of its own.

    Attributes:
        label: short text for tables.
        kind: kind of product, of `PRODUCTS`.
        m, k, n: sizes; a GEMV has m vectors.
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
        """What cases evaluated together have in common: the kind of product."""
        return self.kind

    @property
    def content(self) -> str:
        """Text that identifies the case, without its label, for content keys."""
        return f"{self.kind} {product_text(self)}"


def product_text(product_case: ProductCase) -> str:
    """Sizes of a product as m x k x n, preceded by the number of groups if there are several."""
    return " x ".join(
        map(str, (*((product_case.groups,) if product_case.groups > 1 else ()), product_case.m, product_case.k, product_case.n))
    )


DISTRIBUTIONS = ("balanced", "power_law")
"""How a benchmark gives rows to experts: as many to each, or by shares drawn from a power law."""


@dataclass(frozen=True, slots=True)
class ExpertsCase:
    """Experts of one layer as a single kernel, on one of the devices that share them.

    Attributes:
        label: short text for tables.
        tokens: tokens that arrive on all of these devices.
        hidden, intermediate: columns of a token, and of an expert between its products.
        experts, top_k: of the layer, and those that each token goes to.
        ep: devices with equally many experts each; the one with most rows is evaluated.
        distribution: distribution of rows, of `DISTRIBUTIONS`.
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
        """What cases evaluated together have in common: nothing beyond the type of case."""
        return "experts"

    @property
    def content(self) -> str:
        """Text that identifies the case, without its label, for content keys."""
        sizes = (self.tokens, self.hidden, self.intermediate, self.experts, self.top_k, self.ep)
        return f"{self.subject} {sizes!r} {self.distribution} {self.exponent!r} seed {self.seed}"


OPERATIONS = ("norm", "gate", "rotate", "copy", "gather", "softmax")
"""Operators on elements: a norm of rows, an activation times an input, a rotation by position, a copy, rows of a table that are
picked, a softmax of rows."""


@dataclass(frozen=True, slots=True)
class ElementwiseCase:
    """One elementwise operator as a single kernel.

    Attributes:
        label: short text for tables.
        sort: operator, of `OPERATIONS`.
        rows, columns: size of the output.
    """

    label: str
    sort: str
    rows: int
    columns: int

    @property
    def subject(self) -> str:
        """What cases evaluated together have in common: the operator."""
        return self.sort

    @property
    def content(self) -> str:
        """Text that identifies the case, without its label, for content keys."""
        return f"{self.sort} {self.rows} x {self.columns}"


STREAM_PATTERNS = ("sequential", "random", "stride", "chunk")
"""Where requests to a memory go: one after the other; anywhere; each a step further; contiguous over a step, at random."""


@dataclass(frozen=True, slots=True)
class MemoryStreamCase:
    """A stream of requests to a memory, without any kernel.

    Attributes:
        label: short text for tables.
        pattern: access pattern, of `STREAMS`.
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
        """What cases evaluated together have in common: nothing beyond the type of case."""
        return "stream"

    @property
    def content(self) -> str:
        """Text that identifies the case, without its label, for content keys."""
        what = f"stream {self.pattern} {self.step} writes {self.writes!r} request {self.request} gap {self.gap!r}"
        return f"{what} span {self.span} requests {self.requests} seed {self.seed}"


TRAFFIC_PATTERNS = ("uniform", "transpose", "bit_complement", "tornado", "neighbour", "hotspot")
"""Where packets go, each from a node to another one: to any node, itself too; to that with row and column swapped; to that as
far from the last as this one is from the first; half a mesh less one on, in both directions and round the edge; one on,
likewise; to one of a few, the middle ones or any others."""


@dataclass(frozen=True, slots=True)
class NocTrafficCase:
    """Random packets on a network: every node injects at a rate, whether the network accepts them or not.

    Attributes:
        label: short text for tables.
        pattern: traffic pattern, of `TRAFFIC`.
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
        """What cases evaluated together have in common: nothing beyond the type of case."""
        return "traffic"

    @property
    def content(self) -> str:
        """Text that identifies the case, without its label, for content keys."""
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
"""Roots on the diagonal of each group, so that neighbouring groups have different ones."""

REDUCTIONS = ("sum", "max")


@dataclass(frozen=True, slots=True)
class CollectiveCase:
    """One collective among tiles of a mesh or among dies, without other work.

    Attributes:
        label: short text for tables.
        pattern: collective, of `PATTERNS`, `EXCHANGES` or `EXPERT_EXCHANGES`.
        nbytes: data of one tile. [B]
        along: which tiles of a group are a team: row, column, or rectangle for all of them.
        rows, cols: tiles of a group; 0 for those of the mesh.
        root: place of a team's root, or diagonal.
        combine: of a reduction: sum or max.
        recorded: whether a recorded graph of launches contains it; else the host starts it, which adds time between dies.
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
        """What cases evaluated together have in common: pattern, group, root and reduction."""
        return f"{self.pattern} {self.along} {self.rows} x {self.cols} {self.root} {self.combine}"

    @property
    def content(self) -> str:
        """Text that identifies the case, without its label, for content keys."""
        hidden_text = f" of {self.hidden}" if self.pattern in EXPERT_EXCHANGES else ""
        return f"{self.subject} {self.nbytes!r}{hidden_text}" + ("" if self.recorded else " by the host")


@dataclass(frozen=True, slots=True)
class AttentionCase:
    """Softmax attention of one layer as a single kernel.

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
        """What cases evaluated together have in common: the kind of attention."""
        return f"{'causal ' * self.causal}{'latent ' * self.latent}attention"

    @property
    def content(self) -> str:
        """Text that identifies the case, without its label, for content keys."""
        sizes = (self.batch, self.heads, self.kv_heads, self.queries, self.keys, self.qk, self.v)
        beside = f" decodes {self.decodes} {self.cached}" if self.decodes else ""
        return f"{self.subject} {sizes!r}" + (f" window {self.window}" if self.window else "") + beside


@dataclass(frozen=True, slots=True)
class SloClass:
    """Requests of a load that have SLOs and a priority of their own.

    Attributes:
        name: name of the class.
        ttft, tpot: SLO bounds as in `ServingLoad`. [s]
        priority: queue order, lowest first, and by arrival if equal; of the requests with the highest number, the last to
            arrive is preempted first. As in vLLM's scheduler.
    """

    name: str
    ttft: float
    tpot: float
    priority: int = 0


@dataclass(frozen=True, slots=True)
class TraceUse:
    """How a load uses its request trace, and what was changed.

    Attributes:
        file: name of the file.
        part: which requests of the file are used, and how they were changed, as text: "all of conv.csv", "the first of
            conv.csv".
        times: source of the arrival times: "replayed" from the file, "scaled" by a factor, or "drawn" from a process.
        process: of times that are drawn, a name of `ARRIVAL_PROCESSES`, or closed; else the empty string.
    """

    file: str
    part: str
    times: Literal["replayed", "scaled", "drawn"]
    process: str = ""


@dataclass(frozen=True, eq=False)
class ServingLoad:
    """A stream of requests to a model, served as they arrive.

    Attributes:
        label: short text for tables.
        model: the model that is served.
        requests: with times of arrival.
        ttft, tpot: SLO bounds on TTFT and mean TPOT. [s]
        largest: share of the requests that must keep the SLO at the maximum rate, found by scaling all gaps between
            arrivals; 0 for the requests' own rate.
        said: rate of the process from which the requests are drawn; 0 for the requests' own rate. [1/s]
        speculation: drafted tokens in decode; None for none.
        seed: of the accepted drafts; read with speculation only.
        classes: SLO classes, by the numbers of `Requests.kinds`; empty if the bounds above apply to all requests.
        trace: how the load uses a trace; None if requests are from no file.
        draw: function from count, seed and rate (or users) to similar requests; None if no others exist, as for a replayed
            trace.
        most: requests that can be drawn at most; 0 for no bound.
        demand: rate of a fleet of equal systems, as many as it takes at their maximum rate; 0 for one system. [1/s]
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
    demand: float = 0.0

    @property
    def slo_targets(self) -> tuple[Any, Any]:
        """SLO bounds on TTFT and TPOT: numbers, or arrays over requests if there are classes. [s]"""
        if not self.classes:
            return self.ttft, self.tpot
        bounds = np.array([(slo_class.ttft, slo_class.tpot) for slo_class in self.classes])[self.requests.kinds]
        return bounds[:, 0], bounds[:, 1]

    @property
    def guesses(self) -> int:
        """Drafted tokens per request and iteration."""
        return self.speculation.tokens if self.speculation else 0

    @property
    def rate(self) -> float:
        """Arrival rate of the stated process, or of the requests themselves if none is stated. [1/s]"""
        return self.said or self.requests.rate

    def requests_at(self, rate: float) -> Requests:
        """The same requests at another rate: all gaps between arrivals are scaled alike.

        A closed population gets another number of users, rounded up.
        """
        if self.requests.users:
            return self.requests.as_closed_loop(max(1, ceil(rate - 1e-9)))
        return self.requests.scale_times(rate / self.rate)

    def other_stream(self, number: int, count: int = 0) -> "ServingLoad | None":
        """The same load with another stream of requests, or itself for stream 0; None if there is none.

        Arrival times of a process are drawn with another seed. Lengths of a file, and times of a trace, are resampled in
        blocks. Sessions that begin at once cannot be drawn again.

        Args:
            number: of the stream.
            count: requests of it; 0 for as many.
        """
        if number == 0 and not count:
            return self
        requests, seed, count = self.requests, self.seed + number, count or len(self.requests)
        drawn = self.draw(count, seed, float(requests.users or self.rate)) if self.draw is not None else None
        if len(requests.before):
            return None if drawn is None else replace(self, requests=drawn, seed=seed)
        stream = requests.resample_blocks(count, seed)
        if drawn is not None:  # a file may have fewer requests than are drawn
            times = drawn if len(drawn) == count else drawn.resample_blocks(count, seed)
            stream = replace(stream, arrival=times.arrival)
        return replace(self, requests=stream, seed=seed)

    @property
    def longest(self) -> int:
        """Prompt and output tokens of the longest request. [token]"""
        return self.requests.longest

    @property
    def subject(self) -> Model:
        """What cases evaluated together have in common: the model."""
        return self.model

    @property
    def content(self) -> str:
        """Text that identifies the load, without its label, for content keys."""
        most = f" largest {self.largest!r}" if self.largest else ""
        guessed = f" {self.speculation!r} seed {self.seed}" if self.speculation else ""
        apart = f" {key_text(self.classes)}" if self.classes else ""
        most += " resampled" if self.largest and self.trace and self.draw and not self.most else ""
        most += f" demand {self.demand!r}" if self.demand else ""
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


COMBINATIONS = ("mean", "worst")
"""How a metric combines over cases: its mean, or its value in the case where it is worst."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Cases of one type; a metric of a workload is the mean over its cases, unless `combine` is worst.

    Attributes:
        model_shares: weight of each model by its name, over its cases alike; empty if all cases have the same weight.
        combine: a word of `COMBINATIONS`.
    """

    name: str
    cases: tuple[WorkloadCase, ...]
    decode_context: str = "mean"
    model_shares: tuple[tuple[str, float], ...] = ()
    combine: str = "mean"

    @property
    def case_weights(self) -> tuple[float, ...]:
        """Weight of each case in means, which sum to 1; empty if all cases have the same weight."""
        if not self.model_shares:
            return ()
        names = [case.model.name for case in self.cases if isinstance(case, BatchCase | ServingLoad)]
        shares = dict(self.model_shares)
        weights = [shares[name] / names.count(name) for name in names]
        return tuple(weight / sum(weights) for weight in weights)

    @property
    def combination_text(self) -> str:
        """How metrics of several cases combine, as text."""
        if self.combine == "worst":
            return "metrics are the worst of all"
        shares = ", ".join(f"{name} {share:g}" for name, share in self.model_shares)
        return f"metrics are means over all, weighted: {shares}" if shares else "metrics are means over all"


def is_fixed_rate(case: WorkloadCase) -> bool:
    """Whether a case is a serving load with one rate, or number of users, for all designs."""
    return isinstance(case, ServingLoad) and not case.largest and bool(case.requests.users or np.isfinite(case.requests.rate))


def workload_of_stream(workload: Workload, number: int, times: float = 1.0, most: int = 0) -> Workload | None:
    """A workload of serving loads with other streams of requests; None if there are none.

    Args:
        workload: at rates that are not searched.
        number: of the stream of each case.
        times: as many requests as the load has; 1 for as many.
        most: requests of a longer stream; 0 for no bound.
    """
    loads = []
    for case in workload.cases:
        if not isinstance(case, ServingLoad) or case.largest:
            return None
        count = round(times * len(case.requests))
        loads.append(case.other_stream(number, max(min(count, most or count), len(case.requests)) if times > 1 else 0))
    cases = tuple(load for load in loads if load is not None)
    return replace(workload, cases=cases) if len(cases) == len(loads) else None


def cases_by_model(workload: Workload) -> dict[Model, tuple[tuple[int, BatchCase], ...]]:
    """Batch cases of a workload with their indices, grouped by model."""
    cases_of_model: dict[Model, list[tuple[int, BatchCase]]] = {}
    for place, case in enumerate(workload.cases):
        if isinstance(case, BatchCase):
            cases_of_model.setdefault(case.model, []).append((place, case))
    return {model: tuple(cases) for model, cases in cases_of_model.items()}


class DecodeSegment(NamedTuple):
    """Decode steps between the ends of two requests, in which the same requests are active.

    Attributes:
        start, end: first step, and last step + 1, counted from 0.
        active: (requests, prompt) of those that have tokens to come.
        tokens: that each of them has in it; 0 where a batch has no decode, whose one segment never runs.
    """

    start: int
    end: int
    active: tuple[tuple[int, int], ...]
    tokens: int


def decode_segments(case: BatchCase) -> list[DecodeSegment]:
    """Segments of a decode phase between the ends of requests, at least one.

    A batch without decode steps has its first step, which runs no time: layouts and memories of decode are judged by it.

    >>> [segment.tokens for segment in decode_segments(BatchCase("", None, ((1, 9, 3), (2, 9, 1), (2, 9, 8))))]
    [2, 5]
    >>> decode_segments(BatchCase("", None, ((1, 9, 1),)))
    [DecodeSegment(start=0, end=1, active=((1, 9),), tokens=0)]
    """
    lengths = case.decode_lengths
    ends = sorted({decoded for _, _, decoded in lengths} - {0})
    if not ends:
        return [DecodeSegment(0, 1, tuple((n, prompt) for n, prompt, _ in lengths), 0)]
    return [
        DecodeSegment(start, end, tuple((n, prompt) for n, prompt, decoded in lengths if decoded >= end), end - start)
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]


def group_lengths(lengths: Sequence[tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Requests of equal lengths as (count, prompt, output), in order of first appearance."""
    counts: dict[tuple[int, int], int] = {}
    for pair in lengths:
        counts[pair] = counts.get(pair, 0) + 1
    return tuple((n, prompt, output) for (prompt, output), n in counts.items())
