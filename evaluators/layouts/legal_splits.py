"""Legal splits over many dies nearest to an illegal one, for the error message that refuses it."""

from collections.abc import Iterator
from itertools import product
from math import log2
from typing import NamedTuple

from dse.evaluators.graph.expert_loads import placed_experts
from dse.evaluators.layouts.multi_die import DieSplit
from dse.evaluators.machine.die_network import group_rectangle
from dse.space.chip import DieGrid
from dse.space.mapping import MultiDiePlan
from dse.space.workload import BatchCase

FIELDS = ("tp", "pp", "ep", "dp")
"""Settings of a split; if dp is not set, there are as many model copies as fit on the dies."""

SplitNumbers = tuple[int, int, int, int]
"""Values of these; 0 copies for as many as there is room for."""


class SplitBounds(NamedTuple):
    """Bounds that a split over dies has to keep.

    Attributes:
        rows, cols: of dies.
        heads, units: of the model: at most so many dies share attention, and so many stages a copy.
        routed: experts that dies share out, with all copies; 0 for a model that has none.
        blocks: whether the dies of a stage are a rectangle.
    """

    rows: int
    cols: int
    heads: int
    units: int
    routed: int
    blocks: bool


def split_bounds(plan: MultiDiePlan, dies: DieGrid, case: BatchCase) -> SplitBounds:
    """Bounds of the split of a plan and a case on a number of dies."""
    experts = case.model.experts
    routed = 0 if experts is None else placed_experts(experts, int(plan.experts.redundant), int(plan.experts.shared_copies))
    return SplitBounds(
        int(dies.rows), int(dies.cols), case.model.heads, max_stages(case), routed, plan.placement in ("blocks", "entwine")
    )


def max_stages(case: BatchCase) -> int:
    """Largest number of pipeline stages: embedding, layers, draft layers and head of the model. [-]"""
    return int(2 + case.model.layers + case.guesses)


def is_legal(formats: SplitNumbers, within: SplitBounds) -> bool:
    """Whether a layout exists for a split over dies.

    >>> wafer = SplitBounds(8, 8, heads=128, units=64, routed=256, blocks=True)
    >>> (
    ...     is_legal((1, 2, 32, 0), wafer),
    ...     is_legal((1, 2, 64, 0), wafer),
    ...     is_legal((3, 1, 32, 0), wafer),
    ...     is_legal((3, 1, 1, 0), wafer),
    ... )
    (True, False, False, False)
    """
    tp, pp, ep, dp = formats
    whole = ep == 1 or (within.routed % ep == 0 and ep % tp == 0 and within.routed > 0)
    group, dies = max(tp, ep), within.rows * within.cols
    copies = dp or max(dies // (pp * group), 1)
    if tp > within.heads or pp > within.units or not whole or copies * pp * group > dies:
        return False
    return not within.blocks or group_rectangle(within.rows, within.cols, copies * pp, group)[0] > 0


def split_advice_text(die_split: DieSplit, dp: int, within: SplitBounds) -> str:
    """Overrides with the nearest legal values of each field alone, or else of all fields together.

    Args:
        die_split: the split that cannot be laid out.
        dp: copies of the model that were set; 0 for as many as fit.
        within: what it has to keep.

    >>> wafer = SplitBounds(8, 8, heads=128, units=64, routed=256, blocks=True)
    >>> split_advice_text(DieSplit(3, 2, 32, 1, 32, 0, 1), 0, wafer)
    'mapping.both.tp=2 or 4'
    >>> split_advice_text(DieSplit(1, 128, 128, 1, 128, 0, 1), 0, wafer)
    'mapping.both.pp=1 and ep=64'
    """
    default = die_split.tp, die_split.pp, die_split.ep, dp
    alone = {}
    for place, name in enumerate(FIELDS):
        values = [value for value in _values(name, within, default) if is_legal(_with(default, place, value), within)]
        below, above = ([v for v in values if v < default[place]][-1:], [v for v in values if v > default[place]][:1])
        alone[name] = [str(value) for value in (*below, *above)]
    texts = [f"{name}={' or '.join(values)}" for name, values in alone.items() if values]
    if not texts:
        near = min(_every(default, within), key=lambda other: (_apart(default, other), other), default=default)
        texts = [
            " and ".join(f"{name}={value}" for name, value, old in zip(FIELDS, near, default, strict=True) if value != old)
        ]
    return f"mapping.both.{', or '.join(texts)}" if any(texts) else ""


def _values(name: str, within: SplitBounds, formats: SplitNumbers) -> list[int]:
    """Legal values of a field; of dp only if it is set."""
    dies = within.rows * within.cols
    if name == "ep":
        return [ep for ep in range(1, dies + 1) if ep == 1 or (within.routed and within.routed % ep == 0)]
    most = {"tp": min(within.heads, dies), "pp": min(within.units, dies), "dp": dies if formats[3] else 0}
    return list(range(1, most[name] + 1)) or [0]


def _with(formats: SplitNumbers, place: int, value: int) -> SplitNumbers:
    tp, pp, ep, dp = (value if at == place else old for at, old in enumerate(formats))
    return tp, pp, ep, dp


def _every(formats: SplitNumbers, within: SplitBounds) -> Iterator[SplitNumbers]:
    """Legal splits whose stages and groups fit, with at most the set number of model copies."""
    dies = within.rows * within.cols
    for ep, tp in product(_values("ep", within, formats), _values("tp", within, formats)):
        for pp in range(1, min(within.units, dies // max(ep, tp)) + 1) if ep == 1 or ep % tp == 0 else ():
            parallel_split = tp, pp, ep, min(formats[3], dies // (pp * max(ep, tp)))
            if is_legal(parallel_split, within):
                yield parallel_split


def _apart(formats: SplitNumbers, other: SplitNumbers) -> float:
    """How far two splits are from each other: in doublings."""
    return sum(abs(log2(max(value, 1) / max(old, 1))) for value, old in zip(other, formats, strict=True))
