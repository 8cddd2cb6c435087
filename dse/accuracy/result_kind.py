"""Kind of a result: chip, software, workload type, phase and measured quantity.

Results of one kind share one error: times and rates of a phase are the same quantity, one the inverse of the other.
"""

from collections.abc import Mapping
from typing import NamedTuple

from dse.space.design import Design

MODELS, SERVICES = "static", "serving"
"""Questions that have phases; of others the question is the phase."""

CHIP = "chip"
"""Phase of what no question changes."""


class MeasuredQuantity(NamedTuple):
    """Phase and quantity that a metric measures, and its sign.

    Attributes:
        phase: prefill, decode, whole, or chip, which no question changes.
        what: time, or the metric itself.
        sign: -1 where the metric falls as what is measured grows, as a rate does with time.
    """

    phase: str
    what: str
    sign: int


def _time_quantities(phase: str, seconds: str, rates: str) -> dict[str, MeasuredQuantity]:
    quantities = {name: MeasuredQuantity(phase, "time", 1) for name in seconds.split()}
    return quantities | {name: MeasuredQuantity(phase, "time", -1) for name in rates.split()}


MEASURES: dict[str, MeasuredQuantity] = {
    **_time_quantities("prefill", "ttft ttft_p50 ttft_p90 ttft_p99", "prefill_throughput"),
    **_time_quantities(
        "decode", "tpot tbt tbt_p50 tbt_p90 tbt_p99", "tokens_per_s_per_user decode_throughput decode_throughput_per_chip"
    ),
    **_time_quantities(
        "whole",
        "latency latency_p50 latency_p90 latency_p99 cycles",
        "throughput mfu achieved_bandwidth bandwidth_efficiency request_throughput",
    ),
    **{name: MeasuredQuantity(CHIP, name, 1) for name in ("die_mm2", "system_mm2", "tdp", "power_density", "system_price")},
    **{name: MeasuredQuantity("prefill", "energy", 1) for name in ("prefill_rated_energy_per_token",)},
    **{name: MeasuredQuantity("decode", "energy", 1) for name in ("decode_rated_energy_per_token",)},
}
"""By metric; one that is not here is a measure of its own, of the whole."""


class ResultKind(NamedTuple):
    """Kind of a figure: chip, software, workload type, phase, measure and fidelity.

    Attributes:
        chip: by name.
        software: mapping and stack by name, and the algorithm of a single kernel.
        question: static (a model), serving, gemm, gemv, attention and others; empty string for a property of the chip.
        phase: prefill, decode or whole of models and services, else the question; "chip".
        measure: time, or a metric.
        fidelity: of the figure.
    """

    chip: str
    software: str
    question: str
    phase: str
    measure: str
    fidelity: str


def quantity_of_metric(metric: str) -> MeasuredQuantity:
    """Phase and quantity that a metric measures, and whether the metric falls as the quantity grows.

    >>> quantity_of_metric("tokens_per_s_per_user")
    MeasuredQuantity(phase='decode', what='time', sign=-1)
    >>> quantity_of_metric("sram_used")
    MeasuredQuantity(phase='whole', what='sram_used', sign=1)
    """
    return MEASURES.get(metric, MeasuredQuantity("whole", metric, 1))


def kernel_algorithm(design: Design, question: str) -> str:
    """Algorithm of a question about a single kernel; empty string for any other question."""
    plan = design.mapping.kernel
    return next((str(getattr(plan, name)) for name in (question, "dataflow") if hasattr(plan, name)), "")


def result_kind(names: Mapping[str, str], kernel: str, question: str, metric: str, fidelity: str) -> ResultKind:
    """Kind of a figure, from names of chip and software, workload type, metric and fidelity.

    Args:
        names: what was chosen by name: chip, mapping and, where there is one, stack.
        kernel: as `kernel_of` has it.
        question: as `space.kinds.called` has it.
        metric: by name, of one design.
        fidelity: of the figure.

    >>> result_kind({"chip": "wse2", "mapping": "waferllm"}, "", "static", "tpot", "analytical").phase
    'decode'
    >>> result_kind({"chip": "wse2", "mapping": "product"}, "ring", "gemv", "cycles", "events")[1:5]
    ('product: ring', 'gemv', 'gemv', 'time')
    """
    phase, what, _ = quantity_of_metric(metric)
    if phase == CHIP:
        return ResultKind(names["chip"], "", "", phase, what, fidelity)
    software = " on ".join(name for name in (names.get("mapping", ""), names.get("stack", "")) if name)
    software += f": {kernel}" if kernel else ""
    return ResultKind(names["chip"], software, question, phase if question in (MODELS, SERVICES) else question, what, fidelity)
