"""Records of the document of ``dse capacity``: the maximum rate of requests within SLOs."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from dse.documents.records import Document, Record
from dse.documents.shared_records import KernelBasis, PhysicsVersion, StackBasisRecord, TraceRecord, WithoutEffect


class ClassBoundsRecord(Record):
    """Latency bounds of one class of requests, or its latencies."""

    name: Annotated[str, "of the class"]
    ttft_s: Annotated[float | None, "s; time to first token; null for no bound"]
    tpot_s: Annotated[float | None, "s; time per output token; likewise"]


class DeploymentRecord(Record):
    """A deployment of the model on the devices, and its maximum rate."""

    deployment: Annotated[str, "in words"]
    overrides: Annotated[Sequence[str], "what gives it to dse evaluate"]
    left_out: Annotated[Sequence[str], "overrides without effect on it, which dse evaluate would refuse"]
    phases: Annotated[Literal["apart", "together"], "whether some instances only prefill"]
    devices: int
    max_rate_hz: Annotated[float, "requests/s; the largest that keeps the bounds"]
    max_users: Annotated[int | None, "of a closed population, the most that keep the bounds; null for others"]
    rate_override: Annotated[str, "the same as an override"]
    max_rate_range_hz: Annotated[
        Annotated[
            Sequence[Annotated[float, "requests/s"]],
            "the least and the most of the largest rates of single seeds; users of a closed population",
        ]
        | None,
        "null where there is one stream",
    ]
    requests: Annotated[int, "of each seed; workload.requests of the run that confirms the rate"]
    seed: Annotated[int, "of that run, as an override"]
    lasts: Annotated[bool, "whether the verdict is the same of half as many requests"]
    estimate_hz: Annotated[float | None, "requests/s; by the steady state"]
    breaks_beyond: Annotated[str, "SLO that is missed above that rate"]
    ttft_s: Annotated[float | None, "s; of the share of requests that `bounds` says, at that rate"]
    tpot_s: Annotated[float | None, "s; the same of the time per output token"]
    tokens_per_s_device: Annotated[float, "token/s of one device"]
    tokens_per_s_user: Annotated[float | None, "token/s of one request; null where none has two tokens"]
    system_price_usd: Annotated[float, "USD; to make all its chips, with their memory and share of servers"]
    price_per_mtoken_usd: Annotated[float, "USD of a million output tokens, at the largest rate"]
    runs: Annotated[int, "rates that were simulated"]
    classes: Annotated[Sequence[ClassBoundsRecord], "what the share of each of workload.slo_classes keeps, at that rate"]


class FrontPointRecord(Record):
    """A run that no other exceeds in rate per user and per device."""

    tokens_per_s_user: Annotated[float, "token/s of one request"]
    tokens_per_s_device: Annotated[float, "token/s of one device"]
    deployment: str


class LoadPointRecord(Record):
    """Latency of a deployment at a share of its maximum rate."""

    of_largest: Annotated[float, "times the largest rate"]
    rate_hz: Annotated[float, "requests/s"]
    ttft_s: Annotated[float | None, "s; null where some request is never served"]
    tpot_s: Annotated[float | None, "s; likewise"]
    breaks: Annotated[str | None, "SLO that is missed; null if all are kept"]


class RequestsRecord(Record):
    """The requests of a load, and where they are from."""

    count: Annotated[int, "that are simulated"]
    rows_skipped: Annotated[int, "rows of the trace that workload.skip passed over"]
    trace: TraceRecord | None
    mean_prompt_tokens: Annotated[float, "token"]
    mean_output_tokens: Annotated[float, "token"]


class BoundsRecord(Record):
    """Latency bounds that requests must keep."""

    ttft_s: Annotated[float | None, "s; time to first token; null for no bound"]
    tpot_s: Annotated[float | None, "s; time per output token; likewise"]
    share_of_requests: Annotated[float, "that keep each bound, from 0 to 1"]
    classes: Annotated[
        Sequence[ClassBoundsRecord], "what requests of each of workload.slo_classes must keep; those above are the longest"
    ]


class DeploymentSearchRecord(Record):
    """Deployments of a chip that were simulated, and those left out."""

    fit: Annotated[int, "deployments"]
    played: Annotated[int, "deployments"]
    refused_by: Annotated[
        Mapping[str, Annotated[int, "deployments"]],
        "by the limit that they break, or why they are left out: same batch by memory, pools out of balance",
    ]
    left_out: Annotated[str, "the same in words"]


class ChipCapacityRecord(Record):
    """One chip: its deployments and the load that the best of them serves."""

    chip: str
    why_not: Annotated[str | None, "why no deployment serves the load; null if one does"]
    note: Annotated[str | None, "what to know of the answer"]
    published_formats: Annotated[
        str | None, "whether deployments have the formats that the model is published in, in words; null if of 16 bits"
    ]
    other_variants: Annotated[str | None, "what other formats serve, or devices that share no experts, in words"]
    extrapolated: Annotated[str | None, "which constants of the best one's stack were fitted on other chips alone, in words"]
    stack_basis: StackBasisRecord | None
    kernel_basis: KernelBasis
    model: str
    requests: RequestsRecord
    bounds: BoundsRecord
    devices: Annotated[int, "of a cell"]
    cells: Annotated[int, "alike, which the devices are; each has a router, and its part of the requests"]
    best: Annotated[DeploymentRecord | None, "which serves most"]
    deployments: Annotated[Sequence[DeploymentRecord], "those whose rate is known, the largest first"]
    looked_at: DeploymentSearchRecord
    front: Annotated[Sequence[FrontPointRecord], "of runs, those that no other exceeds in both"]
    load: Annotated[Sequence[LoadPointRecord], "latency of the best deployment against load"]


class CapacityDocument(Document):
    """Maximum rate of requests within SLOs, by the best deployment."""

    STAMP = "dse/capacity/12"
    COMMAND = "dse capacity --json"

    physics: PhysicsVersion
    chips: Sequence[ChipCapacityRecord]
    without_effect: WithoutEffect
