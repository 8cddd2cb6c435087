"""Records that several documents have: values with units, and the basis of a software stack."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from dse.documents.records import Record, Scalar


class MeasuredRecord(Record):
    """A value with its unit beside it."""

    value: Annotated[float | None, "null where it is not finite"]
    unit: Annotated[str, '"" or "1" of what has none']


class NoEffectRecord(Record):
    """A setting of the user without effect on this answer."""

    setting: Annotated[str, "as given"]
    reader: Annotated[str | None, "option that uses it, as fidelity=cycles; null if none is known"]
    text: Annotated[str, "the same in a sentence"]


WithoutEffect = Annotated[Sequence[NoEffectRecord], "settings of the user without effect on this answer"]

Metrics = Annotated[Mapping[str, MeasuredRecord], "by metric, those that this kind of chip and workload has; SI units"]

KnobValue = Annotated[
    Scalar | MeasuredRecord,
    "a value with its unit; a word, or a number without a unit, as it is; null where it does not count",
]

Knobs = Annotated[Mapping[str, KnobValue], "values by address, as overrides name them"]

SecondsByResource = Annotated[Mapping[str, Annotated[float, "s"]], "seconds by resource"]

KernelBasis = Annotated[str, "kernels that no measured row of the stack covers, in words; empty where there are none"]

PhysicsVersion = Annotated[int, "version of the physics"]


class KindRecord(Record):
    """What a measured row, or an answer, is a figure of."""

    chip: str
    software: Annotated[str, "mapping and stack, and the algorithm of a single kernel"]
    question: Annotated[str, "static, serving, gemm and others"]
    phase: Annotated[str, "prefill, decode, whole, chip, or the question"]
    measure: Annotated[str, "time, or a metric"]
    fidelity: str


class TraceRecord(Record):
    """What a served load has of its trace; null where requests are from no file."""

    file: Annotated[str, "its name"]
    part: Annotated[str, "which of its requests, and what was done to them, in words"]
    times: Annotated[Literal["replayed", "scaled", "drawn"], "whether arrivals are those of the file"]
    process: Annotated[str | None, "that times are drawn from; null where they are the file's"]


class StackPartRecord(Record):
    """A part of a software stack whose constants were fitted on measurements."""

    part: Annotated[str, "of the stack"]
    rows: Annotated[int, "measurements that its constants were fitted on; 0 where nothing says how many"]
    chips: Annotated[Sequence[str], "that were measured, by name"]
    source: Annotated[str | None, "a key of the sources"]


class StackAccuracyRecord(Record):
    """How far measured rates lie from those of the stack; null where no row tells."""

    rows: Annotated[int, "measured rates of whole models"]
    kind: Annotated[str, "what was measured, in words"]
    median_error: Annotated[float, "median of the absolute relative errors of predicted rates"]
    low: Annotated[float, "measured over predicted rate, tenth percentile"]
    high: Annotated[float, "measured over predicted rate, ninetieth percentile"]


class StackBasisRecord(Record):
    """Measured and assumed parts of the software stack; null without a stack."""

    text: Annotated[str, "all of it as text"]
    measured: Annotated[
        Sequence[StackPartRecord], "parts that the design reads and whose constants were fitted on measurements"
    ]
    assumed: Annotated[Sequence[str], "kinds of kernels at unmeasured flat rates, or these rates"]
    accuracy: StackAccuracyRecord | None
