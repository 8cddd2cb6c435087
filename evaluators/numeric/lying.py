"""What lies where on a group while calls of a layer are walked: each finds what it needs, or what was brought to all cores."""

from collections.abc import Sequence

from dse.evaluators.graph.operators import Attention, Part
from dse.evaluators.layouts.partitioned import FOUND, STATES, Rules, brings, divided, taken
from dse.evaluators.numeric.layer import Layer, summed_up, whole
from dse.evaluators.passes.call import Block, Call


def find(blocks: Sequence[Block], layer: Layer, *, heads: bool) -> None:
    """Walks the layouts of a layer, and of the next one like it, into which comes what the first one leaves.

    Args:
        blocks: calls of the layer's parts, each with one partition.
        layer: what is computed.
        heads: whether attention divides heads, not rows.

    Raises:
        ValueError: something does not lie where a call needs it.
    """
    stream = "all"
    for block in (*blocks, *blocks):
        part = layer.part(block.calls[0].part)
        if part is not None and summed_up(part):
            stream = _through(part, [block.calls[place] for place in block.order], heads=heads, stream=stream)


def _through(part: Part, calls: Sequence[Call], *, heads: bool, stream: str) -> str:
    """How the residual stream lies behind a part."""
    operators, takes, left = {of.name: of for of in part.operators}, taken(part), dict[str, str]()
    dealt = ""
    for call in calls:
        if brings(call):
            left[call.needs[0]] = "all"
            continue
        for name in call.operators:
            experts = call.group is None and call.exchange is not None and name.startswith("experts")
            by, of, word = Rules(heads, call.job is not None, experts), operators[name], "k" if heads else "mn"
            if call.group is not None:
                word = call.group.partition
            elif experts and call.exchange is not None:  # the first product has the exchange of all that take the same
                times = whole(call.exchange.times)
                word = (
                    ("k" if times == 2 else "mn") if of.needs[0] == "experts_activation" else dealt or ("mn" if times else "k")
                )
                dealt = word
            there = [left[need] for need in takes[name] if need in left] or [stream]
            needs, leaves = divided(of, word, by, there)
            free = by.apart and isinstance(of, Attention)
            if not free:
                _found(call, there, needs)
            left[name] = "all" if free else leaves
    ends = {left[name] for name in left if not any(name in needs for needs in takes.values())}
    return max(ends, key=STATES.index)


def _found(call: Call, there: Sequence[str], needs: str) -> None:
    for state in there:
        if state not in FOUND[needs]:
            raise ValueError(f"call {call.name!r}: needs {needs} of what it takes, and {state} are there")
