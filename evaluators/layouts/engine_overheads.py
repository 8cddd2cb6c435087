"""Overheads of an inference engine around an iteration's kernels: padding, launches, host and logits.

An absent term adds nothing. Equations and sources: `docs/physics.md`, "Engines as they run". Terms that change a kernel's
own time, as the power limit of a board does, are in the machine (`machine.shared_cache_die`).
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.calls.call import NOTHING, KernelCall
from dse.evaluators.graph.operators import MatMulOp, Segment, local_width
from dse.evaluators.graph.step_counts import StepCounts
from dse.space.array_math import maximum, where
from dse.space.errors import DesignError
from dse.space.layers import has_described_layers, layers
from dse.space.model import Model
from dse.space.parameter_counts import mtp_layers
from dse.space.stack import IterationOverheads, Stack

LOGITS = "logits"
"""Name of the call that moves logits from the head to the sampled tokens."""

HEAD_PRODUCTS = ("head", "mtp_head")
"""Products that end in logits: of the model, and of modules that predict tokens."""


class StepTerms(NamedTuple):
    """Terms of a stack that change which calls a step has; by default none.

    Attributes:
        reduction: number format of the sums between devices; None for that of activations.
        sizes: decode batches of recorded graphs, as of `recorded_batch_sizes`.
        logit_bytes: main memory traffic of a logit; None for none. [B]
        row_passes, intermediate_passes: passes over rows of experts, and over what is between their products; None for none
            beside those of kernels. [-]
        attention_pace: time of an operation of attention over that of a product in 16 bits; None for that of its formats. [-]
        expanded_pace: time of an operation of expert products that expand weights, over that of others; None for 1. [-]
    """

    reduction: str | None = None
    sizes: tuple[float, ...] = ()
    logit_bytes: Any = None
    row_passes: Any = None
    intermediate_passes: Any = None
    attention_pace: Any = None
    expanded_pace: Any = None

    def pads(self, phase: str) -> bool:
        """Whether requests of the iterations of a phase are padded to the size of a recorded graph.

        Prompts differ in length, so that no graph replays an iteration that has some.
        """
        return phase == "decode" and bool(self.sizes)

    @property
    def without_padding(self) -> "StepTerms":
        """The terms for steps whose requests are not padded."""
        return self._replace(sizes=())


NO_TERMS = StepTerms()
"""Terms of a stack without any: a step has the calls of its operators, with sums in the format of activations."""


class OverheadTimes(NamedTuple):
    """Time of an iteration beyond that of its kernels, by cause. [s]

    Leaves broadcast over iterations and designs.

    Attributes:
        launch: by which launches of kernels, which no recorded graph replays, take longer than the kernels themselves; of
            replayed ones, the start of those around experts.
        host: of the host, before the next iteration begins, beyond what replayed kernels hide.
    """

    launch: Any = 0.0
    host: Any = 0.0

    def iteration_seconds(self, kernels: Any) -> Any:
        """Time of the iteration from that of its kernels. [s]"""
        return kernels + self.launch + self.host


def step_terms(stack: Stack) -> StepTerms:
    """Terms of a stack that change which calls a step has.

    Library kernels of expert products collect and add up rows themselves, so that a stack with these has no passes beside them.

    Raises:
        DesignError: sizes of recorded graphs that do not rise.
    """
    iteration, moe = stack.iteration, stack.moe if stack.grouped_gemm is None else None
    if stack.attention_efficiency is None and (stack.reduction_format, iteration, moe) == (None,) * 3:
        return NO_TERMS
    terms = StepTerms(stack.reduction_format)
    if stack.attention_efficiency is not None:
        terms = terms._replace(attention_pace=stack.matrix_efficiency / stack.attention_efficiency)
    if iteration is not None:
        sizes = recorded_batch_sizes(iteration.graph_batch_sizes)
        terms = terms._replace(sizes=sizes, logit_bytes=iteration.logit_bytes)
    if moe is None:
        return terms
    return terms._replace(
        row_passes=moe.row_passes, intermediate_passes=moe.intermediate_passes, expanded_pace=moe.expanded_pace
    )


@lru_cache(maxsize=256)
def recorded_batch_sizes(text: str | None) -> tuple[float, ...]:
    """Decode batches of recorded graphs, rising, from the setting's text; none if that is absent.

    >>> recorded_batch_sizes("1 2 4 8"), recorded_batch_sizes(None)
    ((1.0, 2.0, 4.0, 8.0), ())

    Raises:
        DesignError: numbers that are not whole and positive, or do not rise.
    """
    if text is None:
        return ()
    words = text.split()
    sizes = tuple(float(word) for word in words if word.isascii() and word.isdigit())
    if not sizes or len(sizes) < len(words) or sizes[0] < 1 or any(np.diff(sizes) <= 0):
        raise DesignError(
            f"mapping.stack.iteration.graph_batch_sizes: expected rising whole numbers from 1, as in '1 2 4 8', got {text!r}"
        )
    return sizes


def padded_requests(requests: Any, sizes: tuple[float, ...]) -> Any:
    """Requests of a decode iteration padded to the next recorded batch; unchanged beyond the largest.

    >>> [padded_requests(requests, (1.0, 2.0, 4.0, 8.0)) for requests in (1.0, 3.0, 8.0, 9.0)]
    [1.0, 4.0, 8.0, 9.0]
    """
    if not sizes:
        return requests
    places = np.searchsorted(sizes, requests)
    padded = where(places < len(sizes), np.append(sizes, 0.0)[places], requests)
    return padded if isinstance(requests, np.ndarray) else float(padded)


def padded_step(step: StepCounts, sizes: tuple[float, ...]) -> StepCounts:
    """Counts of a step as recorded graphs run it; attention reads and scores only what is there.

    Recurrent layers have a state for each padded request.
    """
    if not sizes or step.phase != "decode":
        return step
    rows = padded_requests(step.sequences, sizes) * (1 + step.guesses)
    return replace(step, tokens=rows, requests=rows)


def launch_floor(iteration: IterationOverheads, model: Model, step: StepCounts) -> Any:
    """Least time of an iteration with prompts: the launches of all kernels of its layers. [s]

    Layers without an FFN have those of operators that a graph describes, and else none.
    Iterations without prompts are replayed from recorded graphs, and have none.
    """
    dense, experts = _launches(iteration, model, step)
    return dense + experts


def _launches(iteration: IterationOverheads, model: Model, step: StepCounts) -> tuple[Any, Any]:
    """Time that the host launches kernels in an iteration: of layers without experts, and with. [s]"""
    if step.phase == "decode" or iteration.eager_launch is None:
        return NOTHING, NOTHING
    described: Any = _described_kernels(model) if has_described_layers(model) else 0.0
    dense, experts = _layer_counts(model, step)
    return (
        iteration.eager_launch * (described + dense * _or_nothing(iteration.dense_layer_kernels)),
        iteration.eager_launch * (experts * _or_nothing(iteration.moe_layer_kernels)),
    )


def _layer_counts(model: Model, step: StepCounts) -> tuple[Any, Any]:
    """Layers of an iteration with a dense FFN, and with experts, those of modules that predict tokens included."""
    drafted = [layer.name for layer in mtp_layers(model)] if step.guesses else []
    dense: Any = 0.0
    experts: Any = 0.0
    for layer in layers(model).ffns:
        times = layer.times + step.guesses * (layer.name in drafted)
        if layer.of.experts is None:
            dense = dense + times
        else:
            experts = experts + times
    return dense, experts


def _described_kernels(model: Model) -> float:
    """Kernels of layers that operators of a graph describe, and that have no FFN beside them."""
    kernels = {layer.name: len(layer.of.operators) for layer in layers(model).mixings}
    return float(sum(kernels[mixes] for mixes, feeds in layers(model).line if mixes and not feeds))


def host_seconds(iteration: IterationOverheads, step: StepCounts) -> Any:
    """Time of the host in an iteration: a constant, and a part for each request that decodes. [s]"""
    return _host_seconds(iteration, step.sequences if step.phase == "decode" else step.decodes)


def lone_request_host_seconds(iteration: IterationOverheads | None) -> Any:
    """Least host time beyond kernels, in an iteration with a decoding request; 0 if kernels hide it. [s]"""
    return NOTHING if iteration is None or iteration.host_overlap is not None else _host_seconds(iteration, 1.0)


def overhead_times(iteration: IterationOverheads | None, model: Model, step: StepCounts, kernels: Any) -> OverheadTimes:
    """Overheads of an iteration whose kernels take some time.

    Launches are hidden behind kernels, but for the share of `moe_launch_overlap` of layers with experts, where host and device
    wait for each other. In iterations that a recorded graph replays, kernels hide the host, by `host_overlap` of their time.

    Args:
        iteration: terms of the stack; None for none.
        model, step: of the iteration, its requests not padded.
        kernels: time of its kernels, padded ones included. [s]
    """
    if iteration is None:
        return OverheadTimes()
    host = host_seconds(iteration, step)
    if step.phase == "decode":
        return _replayed_times(iteration, model, step, kernels, host)
    dense, experts = _launches(iteration, model, step)
    if dense is NOTHING:
        return OverheadTimes(NOTHING, host)
    waited = 0.0 if iteration.moe_launch_overlap is None else experts * (1 - iteration.moe_launch_overlap)
    return OverheadTimes(waited + maximum(dense + experts - waited - kernels, 0.0), host)


def _replayed_times(iteration: IterationOverheads, model: Model, step: StepCounts, kernels: Any, host: Any) -> OverheadTimes:
    """Overheads of an iteration that a recorded graph replays; the host works while the graph runs."""
    launch: Any = NOTHING
    if iteration.moe_replay_launch is not None:
        launch = iteration.moe_replay_launch * _layer_counts(model, step)[1]
    if iteration.host_overlap is not None:
        host = maximum(host - iteration.host_overlap * (kernels + launch), 0.0)
    return OverheadTimes(launch, host)


def iteration_seconds(iteration: IterationOverheads | None, model: Model, step: StepCounts, kernels: Any) -> Any:
    """Time of an iteration from that of its kernels, arguments as of `overhead_times`. [s]"""
    return kernels if iteration is None else overhead_times(iteration, model, step, kernels).iteration_seconds(kernels)


def with_logits(part: Segment, calls: tuple[KernelCall, ...], tp: Any, logit_bytes: Any) -> tuple[KernelCall, ...]:
    """Calls of a segment with the traffic of its logits after them, if it ends in some.

    Args:
        part: segment of a step.
        calls: of its operators, in their order.
        tp: devices that divide the vocabulary.
        logit_bytes: main memory traffic of a logit; None for none. [B]
    """
    head = part.operators[-2:] if logit_bytes is not None else ()  # a softcap may follow the product
    products = [operator for operator in head if isinstance(operator, MatMulOp) and operator.name in HEAD_PRODUCTS]
    if not products:
        return calls
    rows, columns = products[0].m, local_width(products[0].n, tp)
    nbytes = rows * columns * logit_bytes
    return *calls, KernelCall(
        part.name, LOGITS, (calls[-1].name,), part.rows, (rows, 1, columns),
        reads=LOGITS, fetch=nbytes, nbytes=nbytes,
    )  # fmt: skip


def _host_seconds(iteration: IterationOverheads, requests: Any) -> Any:
    return _or_nothing(iteration.host_time) + _or_nothing(iteration.request_host_time) * requests


def _or_nothing(value: Any) -> Any:
    return NOTHING if value is None else value
