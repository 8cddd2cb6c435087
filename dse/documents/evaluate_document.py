"""Records of the document of ``dse evaluate``: metrics and bottlenecks of one design."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from dse.documents.records import ABSENT, Absent, Document, Record, Scalar
from dse.documents.shared_records import (
    KernelBasis,
    KindRecord,
    Metrics,
    SecondsByResource,
    StackBasisRecord,
    TraceRecord,
    WithoutEffect,
)


class KvMemoryRecord(Record):
    """KV memory of an instance of one pool, by blocks that are set and by its devices."""

    of: Annotated[str, "whose memory it is: instance, prefill instance or decode instance"]
    blocks: Annotated[int, "that mapping.serving.kv_blocks says"]
    blocks_of_memory: Annotated[int, "that its devices have room for"]
    tokens: Annotated[int, "for which the blocks are, of requests that keep all positions"]
    tokens_of_memory: Annotated[int, "the same of the room"]


class ClassRecord(Record):
    """What requests of one class of workload.slo_classes got."""

    class_: Annotated[str, "its name"]
    requests: Annotated[int, "of it"]
    slo_attainment: Annotated[float | None, "share of them within the bounds of the class; null where there are none"]
    goodput_hz: Annotated[float | None, "requests/s; those that are, over the time of all"]
    ttft_s: Annotated[float | None, "s; mean time to first token"]
    ttft_p90_s: Annotated[float | None, "s; that 90 % of them keep"]
    tpot_s: Annotated[float | None, "s; mean over requests; null where none has two tokens"]


class TurnRecord(Record):
    """What turns of sessions got, by their places."""

    turn: Annotated[str, "places in a session, from 1: 1, 2, 3-4, 5-8 and so on"]
    requests: Annotated[int, "of them"]
    prompt_tokens: Annotated[float, "mean prompt length: earlier turns and new tokens"]
    prefix_hit_rate: Annotated[float, "share of these that was taken from caches"]
    ttft_s: Annotated[float | None, "s; mean time to first token"]
    ttft_p90_s: Annotated[float | None, "s; that 90 % of them keep"]
    tpot_s: Annotated[float | None, "s; mean over requests; null where none has two tokens"]
    latency_s: Annotated[float | None, "s; mean time from the arrival of a turn to its last token"]


class MaxRateRecord(Record):
    """Of workload.rate=max: the maximum rate, as in the answer of dse capacity."""

    max_rate_hz: Annotated[float, "requests/s; the largest that lasts, or at which a replayed trace keeps its bounds"]
    max_rate_range_hz: Annotated[
        Sequence[Annotated[float, "requests/s"]] | None, "of single seeds, the least and the most; null of one stream"
    ]
    requests: Annotated[int, "of each stream"]
    seed: Annotated[int, "of the stream that confirms it"]
    lasts: Annotated[bool, "whether the streams are long enough for queues to settle"]
    breaks_beyond: Annotated[str, "SLOs that are missed a little above that rate, or saturation"]
    note: Annotated[str | None, "why it need not last; null where it does"]


class CaseRecord(Record):
    """One case of the workload with its metrics."""

    case: Annotated[str, "the case as text"]
    feasible: Annotated[bool, "whether every limit holds"]
    metrics: Metrics
    rows_skipped: Annotated[
        int | Absent, "of a served load: rows of its trace that workload.skip passed over; absent of other cases"
    ] = ABSENT
    trace: TraceRecord | Absent | None = ABSENT
    kv_memory: Annotated[
        Sequence[KvMemoryRecord] | Absent,
        "of a served load: by pool, if mapping.serving.kv_blocks is set; absent of other cases",
    ] = ABSENT
    classes: Annotated[
        Sequence[ClassRecord] | Absent,
        "of a served load: what requests of each of workload.slo_classes got; absent of other cases",
    ] = ABSENT
    turns: Annotated[
        Sequence[TurnRecord] | Absent, "of a served load of sessions: what turns got, by their places; absent of other cases"
    ] = ABSENT
    max_rate: MaxRateRecord | Absent = ABSENT


class ModelRecord(Record):
    """A model: its parameters and what it caches."""

    name: str
    parameters: Annotated[float, "all of them"]
    active_parameters: Annotated[float, "those that one token meets"]
    kv_values_per_token: Annotated[float, "values that are cached for each token"]
    kv_tokens_until_full: Annotated[int | None, "tokens of a sequence up to which that is so, where all layers have windows"]
    kv_values_per_sequence: Annotated[float, "values that are cached for each sequence, however long"]
    state_bytes_per_sequence: Annotated[float, "B; recurrent states of a sequence"]


class BandMetricRecord(Record):
    """A metric of an answer that has an error band."""

    metric: str
    value: Annotated[float | None, "of this answer, in `unit`"]
    unit: Annotated[str, "of `value` and `measured`"]


class BandRecord(KindRecord, BandMetricRecord):
    """Error on similar measurements; no confidence interval."""

    low: Annotated[float | None, "simulated over measured less 1, the lower end of rows of this kind"]
    high: Annotated[float | None, "the same, the upper end"]
    measured: Annotated[Sequence[float | None] | None, "where this answer would be measured, from and to, in `unit`"]
    rows: Annotated[int, "measured rows of this kind"]
    fitted: Annotated[int, "those of them that constants were fitted on"]
    of: Annotated[str, "software of the rows, and what of them is not as in the answer"]
    compares: Annotated[bool, "whether the rows compare two designs"]
    physics: Annotated[int, "version of the physics that the rows were simulated at"]
    stale: Annotated[bool, "whether that is another version than this one"]
    text: Annotated[str, "all of it as text"]


class OperatorRecord(Record):
    """One operator of a phase: its work, its bytes and its time."""

    phase: str
    segment: str
    operator: str
    shape: str
    flop: Annotated[
        float, "useful operations of the whole job, on all devices together: no padding, repetition or masked pairs"
    ]
    flop_executed: Annotated[float | None, "what engines execute, useful operations among them; null if it is not counted"]
    flop_excess: Annotated[
        Mapping[str, Annotated[float, "op"]], "executed beside useful ones, by cause: padding, repetition or mask"
    ]
    bytes: Annotated[float, "B; that main memory, or the cache in front of it, moves: weights, KV and activations, all devices"]
    network_bytes: Annotated[float, "B; of messages between cores or devices, once for each message"]
    flop_per_byte: Annotated[float, "op/B; useful operations over bytes"]
    prefetched: Annotated[float, "share of the bytes, from 0 to 1"]
    bound: Annotated[str, "the part of the machine that takes the time"]
    seconds: Annotated[float, "s; all layers and steps"]
    kernel: Annotated[str, "part of the software stack that is used; empty if none"]
    basis: Annotated[
        str, "empty where measured rows cover it; else flat rates, how it is extrapolated, or how slow rows say it is"
    ]


class SourceRecord(Record):
    """A constant with the source of its value."""

    address: str
    value: Annotated[str, "as it was written"]
    source: Annotated[str, "a key of the sources"]
    note: str
    fitted_on: Annotated[Sequence[str], "of a constant of a stack: chips that it was fitted on, by name"]
    meant_for: Annotated[Sequence[str], "likewise: other chips that it is for"]


class FactRecord(Record):
    """A figure of a data sheet beside the model's own."""

    name: Annotated[str, "die_area, tdp, clock or price"]
    value: Annotated[float, "as the data sheet has it, in `unit`"]
    unit: Annotated[str, "of `value`, `modelled` and `of_part`"]
    modelled: Annotated[float, "what the model makes of this design"]
    of_part: Annotated[float, "what the model makes of the part as it was given"]
    holds: Annotated[bool, "whether both are the same, so that the data sheet counts; else the model does"]
    text: Annotated[str, "all of it as text"]


class EvaluateDocument(Document):
    """One design: metrics, time by operator, bottlenecks."""

    STAMP = "dse/evaluate/11"
    COMMAND = "dse evaluate --json"

    title: Annotated[str, "workload, and number of devices if that was left open"]
    stack_basis: StackBasisRecord | None
    kernel_basis: KernelBasis
    chip: Annotated[str, "name of the choice; empty where there is none"]
    mapping: Annotated[str, "name of the choice"]
    stack: Annotated[str, "name of the choice; empty where there is none"]
    workload: Annotated[str, "name of the choice"]
    fidelity: Annotated[str, "fidelity of the evaluation"]
    part: Annotated[str | None, "submesh on which it was simulated; metrics then begin with part."]
    parts_of_chip: Annotated[Mapping[str, str], "what was chosen by name of the chip's parts, by group and place"]
    published: Annotated[Sequence[FactRecord], "what a data sheet says of the chip, beside the model's own figures"]
    remarks: Annotated[
        Sequence[str],
        "limits of the model that facts of the data sheet contradict, contention that it does not count, what was read of "
        "models from graphs, and which metrics an installed package returned",
    ]
    peaks: Annotated[
        Mapping[str, Annotated[float, "op/s"]], "of all cores of a chip, by format that its matrix engines multiply"
    ]
    design: Annotated[Mapping[str, Scalar], "every leaf of the chip and the mapping by address, in SI"]
    cases: Sequence[CaseRecord]
    models: Sequence[ModelRecord]
    feasible: Annotated[bool, "whether every limit holds in every case"]
    infeasible: Annotated[str | None, "violated limit, with need and capacity"]
    not_tied: Annotated[
        Sequence[str], "leaves of a study's design that would follow a knob and were given a value of their own, in words"
    ]
    without_effect: WithoutEffect
    extrapolated: Annotated[str | None, "which constants of the stack were fitted on other chips alone, in words"]
    metrics: Metrics
    bands: Sequence[BandRecord]
    operators: Annotated[Sequence[OperatorRecord], "of the first case"]
    seconds_by_bound: SecondsByResource
    memory_bytes: Annotated[
        Mapping[str, Annotated[float, "B"]],
        "in memory of the fullest of many dies that share a model, by what it is for; empty of other systems",
    ]
    area_mm2: Annotated[Mapping[str, Annotated[float, "mm2"]], "of a chip, by part"]
    power_w: Annotated[Mapping[str, Annotated[float, "W"]], "of a chip at its peak, by part"]
    price_usd: Annotated[Mapping[str, Annotated[float, "USD"]], "of a chip, by part"]
    sources: Annotated[Sequence[SourceRecord], "where constants come from"]


class ShortlistDocument(Document):
    """The designs of a shortlist, each as dse evaluate has it."""

    STAMP = "dse/shortlist/11"
    COMMAND = "dse evaluate --json --from FILE"

    designs: Annotated[Mapping[str, EvaluateDocument], "by name, in the order of the file"]
