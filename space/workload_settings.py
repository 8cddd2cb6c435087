"""Settings of workloads as users write them: one record for each kind of case.

Fields declare unit, range and meaning.
`dse.config.record_parser` builds them from a configuration, and `dse.config.workloads` makes cases of them (`space.workload`).
What depends on several settings, on a model or on a file is checked there.
"""

from collections.abc import Mapping
from typing import Any

from dse.space.fields import (
    MAX_EXACT_INTEGER,
    boolean_field,
    computed_field,
    group_field,
    integer_field,
    list_field,
    option_field,
    part_field,
    quantity_field,
    record_class,
    text_field,
)
from dse.space.model import EXPERT_LOADS
from dse.space.requests import ARRIVAL_PROCESSES
from dse.space.sessions import MAX_TURNS, TURN_DISTRIBUTIONS
from dse.space.workload import (
    COMBINATIONS,
    DECODE_CONTEXTS,
    DIAGONAL,
    DIE_EXCHANGES,
    DISTRIBUTIONS,
    EXPERT_EXCHANGES,
    FIRST_TOKENS,
    GROUP_AXES,
    OPERATIONS,
    PRODUCT_KINDS,
    REDUCTIONS,
    STREAM_PATTERNS,
    TILE_PATTERNS,
    TRAFFIC_PATTERNS,
    AttentionCase,
    BatchCase,
    CollectiveCase,
    ElementwiseCase,
    ExpertsCase,
    MemoryStreamCase,
    NocTrafficCase,
    ProductCase,
    ServingLoad,
    Speculation,
)

AUTO, TRACE, CLOSED, MAX_RATE = "auto", "trace", "closed_loop", "max"
"""Arrivals that are chosen, of a file, and of a closed population; and the rate that is looked for."""

ARRIVALS = (AUTO, TRACE, *ARRIVAL_PROCESSES, CLOSED)
"""Sources of arrival times."""

SKIPPED_ROWS = ("none", "zero_output", "zero_prompt", "zero")
"""Rows of a trace that can be passed over, by names of `dse.evaluators.serving.traces`."""

SPECULATION = {"auto": AUTO, "none": None}
"""Words in the place of the tokens that are guessed."""

SIZES = r"\s*(?:(\d+) *x *)?(\d+) *x *(\d+) *x *(\d+)\s*"
"""Sizes of a product as a regular expression, with the number of groups first."""


def _counts(doc: str, *, low: int = 1, default: tuple[int, ...] | None = None, absent: bool = False) -> Any:
    """Field for one whole number or several, each of which is a case."""
    entry = integer_field(doc, low=low)
    return list_field(doc, entry, "whole numbers, as in [1,32]", single=True, default=default, absent=absent)


@record_class
class CombinationSettings:
    """Name of a workload, and how metrics combine over its cases."""

    name: str = text_field("name of the workload in tables", number=True, default="workload")
    model_shares: tuple[float, ...] | None = list_field(
        "weights of several models in means of metrics, which sum to 1",
        quantity_field("1", "share of one model", positive=True, high=1.0),
        "shares of models, as in [0.7,0.3]",
        absent=True,
    )
    over_cases: str = option_field(
        "metrics over cases: their mean, or the value of the case where each is worst", COMBINATIONS, default="mean"
    )


@record_class
class StaticSettings:
    """Settings of static batches."""

    batch: tuple[int, ...] = _counts("requests of a batch")
    sequence: tuple[int, ...] | None = _counts("prompt and output tokens of a request together", absent=True)
    output_share: float | None = quantity_field(
        "1", "share of output tokens in a sequence", positive=True, below=1.0, absent=True
    )
    prompt: tuple[int, ...] | None = _counts("prompt tokens of a request", absent=True)
    output: tuple[int, ...] | None = _counts("output tokens of a request", absent=True)
    lengths: str | None = text_field("CSV file of request lengths", "the name of a file", number=True, absent=True)
    requests: int | None = integer_field("requests that are drawn from the file", listed=True, absent=True)
    speculation: Speculation | str | None = part_field(
        "tokens guessed in decode; auto: one where the model predicts tokens", Speculation, words=SPECULATION, default=AUTO
    )
    expert_load: str = option_field(
        "how tokens spread over experts: as independent choices on average, evenly, one draw, or as counted in a file",
        EXPERT_LOADS[:-1],
        form="a file: NAME.csv",
        pattern=r".*\.csv",
        default=EXPERT_LOADS[0],
    )
    decode_context: str = option_field(
        "context of decode steps: their mean, or the longest", DECODE_CONTEXTS, default=DECODE_CONTEXTS[0]
    )
    first_token: str = option_field("phase that gives the first output token", FIRST_TOKENS, default=FIRST_TOKENS[0])


@record_class
class SessionSettings:
    """Sessions of several turns in the place of single requests."""

    turns: float = quantity_field("1", "turns of a session, in the mean", low=1.0, high=float(MAX_TURNS))
    think: float = quantity_field("s", "time from an answer to the next turn, in the mean")
    think_cv: float = quantity_field("1", "standard deviation over mean of the times to think", default=1.0)
    system: int = integer_field("tokens before the first question", low=0, default=0)
    spread: str = option_field("distribution of turns and lengths", TURN_DISTRIBUTIONS, default=TURN_DISTRIBUTIONS[0])


@record_class
class SloClassSettings:
    """One class of requests with SLO bounds and a priority of its own."""

    name: str = text_field("name of the class", "a name, as in chat", pattern=".+")
    share: float | None = quantity_field("1", "share of the requests", positive=True, high=1.0, absent=True)
    ttft: float | None = quantity_field("s", "bound on the time to first token", positive=True, absent=True)
    tpot: float | None = quantity_field("s", "bound on the mean time per output token", positive=True, absent=True)
    priority: int = integer_field("priority; the class with the least is served first", low=-MAX_EXACT_INTEGER, default=0)


@record_class
class ServingSettings:
    """Settings of requests that are served as they come."""

    arrivals: str = option_field("source of arrival times; auto: a trace's own, else poisson", ARRIVALS, default=AUTO)
    rate: float | tuple[float, ...] | str | None = quantity_field(
        "Hz", "rate of the requests, or several", positive=True, several=True, words={MAX_RATE: MAX_RATE}, absent=True
    )
    cv: float = quantity_field("1", "of gamma: standard deviation over mean of the gaps", positive=True, default=1.0)
    trace: str | None = text_field("CSV, JSON or JSONL file of requests", "the name of a file", number=True, absent=True)
    skip: str = option_field("rows of a trace that are passed over", SKIPPED_ROWS, default="none")
    chars_per_token: float | None = quantity_field(
        "1", "characters of a token, of a trace of texts", positive=True, absent=True
    )
    coarse_timestamps: bool | None = boolean_field("whether times of a trace may be equal", absent=True)
    prompt: int | None = integer_field("prompt tokens of a request", listed=True, absent=True)
    output: int | None = integer_field("output tokens of a request", listed=True, absent=True)
    sessions: SessionSettings | None = part_field("sessions of several turns", SessionSettings)
    users: tuple[int, ...] | None = _counts("users of a closed loop", absent=True)
    requests: int | None = integer_field("requests of the load; null: all of a trace, or 1,000", listed=True, absent=True)
    shuffle: bool = boolean_field("whether a trace's lengths come in another order", default=False)
    resample: bool = boolean_field("whether a trace's lengths are drawn again, as many as the rate takes", default=False)
    demand: float | None = quantity_field("Hz", "rate of a fleet of as many systems as it takes", positive=True, absent=True)
    demand_text: str = computed_field("the rate of a fleet as it was written", "")
    max_length: int | None = integer_field("prompt and output tokens of a request at most", low=2, listed=True, absent=True)
    rate_scale: float | tuple[float, ...] | str = quantity_field(
        "1",
        "a trace's rate, so many times as high, or several",
        positive=True,
        several=True,
        words={MAX_RATE: MAX_RATE},
        default=1.0,
    )
    speculation: Speculation | str | None = part_field(
        "tokens guessed in decode; auto: one where the model predicts tokens", Speculation, words=SPECULATION, default=AUTO
    )
    ttft: float = quantity_field("s", "SLO bound on the time to first token", positive=True)
    tpot: float = quantity_field("s", "SLO bound on the mean time per output token", positive=True)
    slo_classes: tuple[SloClassSettings, ...] | None = list_field(
        "classes of requests with bounds and priorities of their own",
        SloClassSettings,
        "classes, as in [{name: chat, share: 0.7, ttft: 1 s}, {name: batch, share: 0.3, ttft: 60 s, tpot: 1 s, priority: 1}]",
        absent=True,
    )
    class_column: str | None = text_field("column of a trace with each row's class", "a column", number=True, absent=True)
    slo_percentile: float | None = quantity_field(
        "1",
        "per cent of the requests that keep each bound at the maximum rate, as in 99",
        low=1.0,
        high=100.0,
        absent=True,
    )


@record_class
class ProductSettings:
    """Settings of matrix products by themselves."""

    kernel: str = option_field("kind of product", PRODUCT_KINDS)
    shapes: tuple[str, ...] = list_field(
        "sizes of each product",
        text_field(
            "m x k x n",
            "m x k x n, whole numbers above 0, as in 8192x8192x8192, nor several of these, as in 8x128x7168x2048",
            pattern=r"\s*(?:0*[1-9]\d* *x *){2,3}0*[1-9]\d*\s*",
        ),
        "sizes; write m x k x n, as in [8192x8192x8192]",
    )


@record_class
class ExpertsSettings:
    """Settings of the experts of one layer by themselves."""

    tokens: tuple[int, ...] = _counts("tokens that arrive on all devices of the experts")
    hidden: tuple[int, ...] = _counts("columns of a token")
    intermediate: tuple[int, ...] = _counts("columns of an expert between its products")
    experts: tuple[int, ...] = _counts("experts of the layer")
    top_k: tuple[int, ...] = _counts("experts that each token goes to")
    ep: tuple[int, ...] = _counts("devices with as many experts each")
    distribution: str = option_field("how rows spread over experts", DISTRIBUTIONS)
    exponent: float | None = quantity_field("1", "exponent of a power law", above=1.0, absent=True)


@record_class
class ElementwiseSettings:
    """Settings of an operator on elements by itself."""

    operator: str = option_field("operator", OPERATIONS)
    rows: tuple[int, ...] = _counts("rows of the output")
    columns: tuple[int, ...] = _counts("columns of the output")


@record_class
class StreamSettings:
    """Settings of requests to a memory by themselves."""

    patterns: tuple[str, ...] = list_field(
        "where requests go",
        option_field(
            "pattern of addresses",
            STREAM_PATTERNS[:2],
            form="strideN or chunkN, of N bytes, as in chunk256",
            pattern=r"(stride|chunk)[1-9]\d*",
        ),
        "patterns, as in [sequential,stride1024]",
    )
    writes: tuple[float, ...] = list_field(
        "shares of writes", quantity_field("1", "share of writes", high=1.0), "shares, as in [0,0.33]", single=True
    )
    request: int = integer_field("size of a request", unit="B")
    gap: float = quantity_field("s", "time from one request to the next")
    span: int = integer_field("range of addresses", unit="B")
    requests: int = integer_field("requests for each channel of the memory")


@record_class
class TrafficSettings:
    """Settings of random packets on a network."""

    traffic: tuple[str, ...] = list_field(
        "where packets go",
        option_field(
            "traffic pattern",
            (*TRAFFIC_PATTERNS[:-1], "hotspot1", "hotspot4"),
            form="hotspot@NODE+NODE",
            pattern=r"hotspot@\d+(?:\+\d+)*",
        ),
        "patterns, as in [uniform,transpose]",
    )
    rates: tuple[float, ...] = list_field(
        "flits that a node makes in a cycle",
        quantity_field("1", "flits that a node makes in a cycle", positive=True, high=1.0),
        "flits a node and cycle, as in [0.1,0.2]",
    )
    flits: tuple[int, ...] = _counts("flits of a packet")
    period: int = integer_field("cycles of a sample at least")
    packets: int = integer_field("packets of a sample at least")


@record_class
class CollectiveSettings:
    """Settings of a collective by itself."""

    pattern: tuple[str, ...] = list_field(
        "collectives",
        option_field("collective", tuple(dict.fromkeys((*TILE_PATTERNS, *DIE_EXCHANGES, *EXPERT_EXCHANGES)))),
        "collectives, as in [reduce,allreduce]",
        single=True,
    )
    group_axis: str = option_field("which tiles of a group are a team", GROUP_AXES)
    group: str = option_field(
        "tiles of a group, as rows x columns, or mesh for all of them",
        ("mesh",),
        number=True,
        form="rows x columns of tiles, as in 8x8",
        pattern=r"\s*[1-9]\d* *x *[1-9]\d*\s*",
    )
    root: int | str = integer_field("place of a team's root, from 0 on", low=0, words={DIAGONAL: DIAGONAL})
    combine: str = option_field("reduction", REDUCTIONS)
    recorded: bool = boolean_field("whether a recorded graph of launches holds it", default=True)
    hidden: int = integer_field("values of a token, of dispatch and combine", default=7168)
    bytes: tuple[int, ...] = list_field(
        "data of one tile", integer_field("data of one tile", unit="B"), "sizes with units, as in ['128 KiB']"
    )


@record_class
class AttentionSettings:
    """Settings of the attention of one layer by itself."""

    batch: tuple[int, ...] = _counts("sequences")
    heads: tuple[int, ...] = _counts("heads of queries")
    kv_heads: tuple[int, ...] = _counts("heads of keys and values; 0 for as many", low=0)
    queries: tuple[int, ...] = _counts("queries of a sequence; 0 for as many as keys", low=0)
    keys: tuple[int, ...] = _counts("keys of a sequence")
    qk: tuple[int, ...] = _counts("columns of queries and keys")
    v: tuple[int, ...] = _counts("columns of values; 0 for as many", low=0)
    causal: bool = boolean_field("whether a query sees no later key")
    window: tuple[int, ...] = _counts("keys that a query sees at most; 0 for all", low=0, default=(0,))
    latent: bool = boolean_field("whether values are the last columns of keys")
    decodes: tuple[int, ...] = _counts("sequences of one query in the same launch", low=0, default=(0,))
    cached: tuple[int, ...] = _counts("keys that each of these sees", low=0, default=(0,))
    variants: tuple[Mapping[str, Any], ...] = list_field(
        "layers beside each other, each by the fields in which it differs",
        group_field("fields of one layer", "{kv_heads: 8, queries: 1}"),
        "groups of fields, as in [{kv_heads: 8, queries: 1}]",
        empty=True,
        default=(),
    )


SETTINGS: Mapping[type, type] = {
    BatchCase: StaticSettings,
    ServingLoad: ServingSettings,
    ProductCase: ProductSettings,
    ExpertsCase: ExpertsSettings,
    ElementwiseCase: ElementwiseSettings,
    MemoryStreamCase: StreamSettings,
    NocTrafficCase: TrafficSettings,
    CollectiveCase: CollectiveSettings,
    AttentionCase: AttentionSettings,
}
"""Records of settings by the kind of case that they describe."""
