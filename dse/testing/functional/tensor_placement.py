"""Check that each call of a layer on a group finds its inputs on the cores that need them."""

from collections.abc import Sequence

from dse.evaluators.calls.call import CallBlock, KernelCall
from dse.evaluators.graph.operators import AttentionOp, Segment
from dse.evaluators.layouts.operator_partitions import (
    ACCEPTED_LAYOUTS,
    DATA_LAYOUTS,
    PartitionRules,
    is_gather_call,
    layouts_of_partition,
    operator_inputs,
)
from dse.testing.functional.layer import LayerTensors, as_integer, is_residual


def track_layouts(blocks: Sequence[CallBlock], layer: LayerTensors, *, heads: bool) -> None:
    """Check the data layouts between the calls of a layer, and of the next equal layer.

    The next layer starts with the layout that the first one leaves.

    Args:
        blocks: calls of the layer's parts, each with one partition.
        layer: tensors of the layer.
        heads: whether attention divides heads, not rows.

    Raises:
        ValueError: something does not lie where a call needs it.
    """
    stream = "all"
    for block in (*blocks, *blocks):
        part = layer.find_part(block.calls[0].part)
        if part is not None and is_residual(part):
            stream = _through(part, [block.calls[place] for place in block.order], heads=heads, stream=stream)


def _through(part: Segment, calls: Sequence[KernelCall], *, heads: bool, stream: str) -> str:
    """How the residual stream lies behind a part."""
    operators, takes, left = {operator.name: operator for operator in part.operators}, operator_inputs(part), dict[str, str]()
    dealt = ""
    for call in calls:
        if is_gather_call(call):
            left[call.needs[0]] = "all"
            continue
        for name in call.operators:
            experts = call.group is None and call.exchange is not None and name.startswith("experts")
            by, operator, word = PartitionRules(heads, call.job is not None, experts), operators[name], "k" if heads else "mn"
            if call.group is not None:
                word = call.group.partition
            elif experts and call.exchange is not None:  # the first product has the exchange of all that take the same
                times = as_integer(call.exchange.times)
                word = (
                    ("k" if times == 2 else "mn")
                    if operator.needs[0] == "experts_activation"
                    else dealt or ("mn" if times else "k")
                )
                dealt = word
            streams = [left[need] for need in takes[name] if need in left] or [stream]
            needs, leaves = layouts_of_partition(operator, word, by, streams)
            free = by.apart and isinstance(operator, AttentionOp)
            if not free:
                _found(call, streams, needs)
            left[name] = "all" if free else leaves
    ends = {left[name] for name in left if not any(name in needs for needs in takes.values())}
    return max(ends, key=DATA_LAYOUTS.index)


def _found(call: KernelCall, streams: Sequence[str], needs: str) -> None:
    for state in streams:
        if state not in ACCEPTED_LAYOUTS[needs]:
            raise ValueError(f"call {call.name!r}: needs {needs} of what it takes, and {state} are there")
