"""Causes of gaps between two fidelities, found by counterfactuals.

A cause is what closes a gap when it is taken out of the design.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dse.evaluators.evaluation import explain
from dse.evaluators.machine.memory_channels import channels_used
from dse.space.design import Design
from dse.space.fields import iterate_leaves, replace_leaves
from dse.space.main_memory import main_memory
from dse.space.workload import Workload
from dse.studies.what_closed_misses.families import FAMILIES, DesignFamily
from dse.studies.what_closed_misses.gap_search import Gap, design_gaps

MANY_TIMES = 256
"""Factor by which a resource is made larger to take it out of a design."""

ENOUGH = 0.5
"""Share of a gap that a counterfactual has to close to be called its cause."""


def _times(factor: float) -> Callable[[Any], Any]:
    return lambda value: value * factor


def _set(word: Any) -> Callable[[Any], Any]:
    return lambda value: word


def _chosen(left_open: Any, word: Any) -> Callable[[Any], Any]:
    """An option in place of a choice that is left open; other values stay."""
    return lambda value: word if value == left_open else value


@dataclass(frozen=True)
class Counterfactual:
    """A design without one possible cause.

    Attributes:
        category: the cause.
        what: what is changed, as text.
        leaves: new values by address, from the value that a leaf has; leaves that a design lacks stay out.
        overrides: changes of the load, by the words that they replace.
        limit: further leaves with their values, from a design.
    """

    category: str
    what: str
    leaves: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)
    limit: Callable[[Design], dict[str, Any]] | None = None

    def change(self, design: Design) -> dict[str, Any]:
        """Leaves of a design that change, with their new values; empty where the cause is not there."""
        changes = {} if self.limit is None else self.limit(design)
        for address, value, _ in iterate_leaves(design):
            if address in self.leaves and (new := self.leaves[address](value)) != value:
                changes[address] = new
        return changes


def _both(setting: str) -> tuple[str, str]:
    return f"mapping.prefill.{setting}", f"mapping.decode.{setting}"


def _option(setting: str, word: str) -> dict[str, Callable[[Any], Any]]:
    return {address: _set(word) for address in _both(setting)}


def _channels_as_links(design: Design) -> dict[str, Any]:
    """Bandwidth of a mesh's memory channels where they are faster than a link, as much as a link has."""
    chip, memory = design.chip, main_memory(design.chip)
    if chip.tile is None or memory.channel_side == "core":
        return {}
    shared = float(memory.stated_channels) / float(channels_used(chip))
    link = float(chip.noc.word_bytes * chip.clock / chip.noc.word_cycles) / max(shared, 1.0)
    return {"chip." + memory.leaf("channel_bandwidth"): link} if link < memory.channel_bandwidth else {}


ROWS = dict.fromkeys(
    (f"chip.hbm.banks.timing.{name}" for name in ("rcd_read", "rcd_write", "rp", "ras", "rrd_s", "rrd_l", "faw")), _set(1)
)
"""Rows of banks that open at once."""

COUNTERFACTUALS = (
    Counterfactual("broken links", "all links whole", {"chip.faults": _set("none")}),
    Counterfactual("credits", "buffers that never fill", {
        "chip.d2d.credits": _set(0.0), "chip.noc.vc_depth": _times(MANY_TIMES),
    }),
    Counterfactual("virtual channels", "16 virtual channels", {"chip.noc.vcs": _set(16)}),
    Counterfactual("expert skew", "as many tokens for each expert", {}, {
        "workload.expert_load": "workload.expert_load=even", "experts.skew": "",
    }),
    Counterfactual("prefetch", "no prefetch", {**_option("prefetch.policy", "none"), **_option("prefetch", "none")}),
    Counterfactual("overlap", "no overlap of micro-batches", _option("overlap", "none")),
    Counterfactual("overlap", "sums after products, not beside them", {
        address: _chosen("overlapped_ring", "ring") for address in _both("allreduce.algorithm")
    }),
    *(
        Counterfactual("tuner's choice", f"products by {word} instead of the tuner's choice", {
            address: _chosen("auto", word) for address in _both("partition")
        })
        for word in ("input_only", "mn", "k", "mn_k")
    ),
    Counterfactual("locked routes", "messages hold one link at a time", {"chip.noc.routing": _set("wormhole")}),
    Counterfactual("memory banks", "rows of banks that open at once", ROWS),
    Counterfactual("memory ports", "memory channels no faster than a link", limit=_channels_as_links),
    Counterfactual("hops and ramps", "routers and ramps that take no time", {
        **dict.fromkeys(("chip.noc.hop_cycles", "chip.noc.ramp_cycles", "chip.d2d.latency", "chip.nodes.latency"), _set(0.0)),
    }),
    Counterfactual("memory latency", "memory without latency", {"chip.hbm.latency": _set(0.0)}),
    Counterfactual("link contention", "links 256 times as fast", {
        **dict.fromkeys(("chip.noc.word_bytes", "chip.d2d.bandwidth", "chip.nodes.bandwidth"), _times(MANY_TIMES)),
    }),
    Counterfactual("link contention", "ports of nodes 16 times as fast", {"chip.nodes.bandwidth": _times(16)}),
    Counterfactual("memory bandwidth", "memory 256 times as fast", {
        **dict.fromkeys(("chip.hbm.channel_bandwidth", "chip.hbm.bandwidth"), _times(MANY_TIMES)),
    }),
)  # fmt: skip
"""What may cause a gap, the narrowest first: a cause is named before the resource that it takes."""


class Cause(NamedTuple):
    """Counterfactual that closes a gap between two fidelities.

    Attributes:
        category: the cause; "several together" where none closes half of the gap by itself.
        what: what was changed to close it.
        left: gap that is left then.
        closed: share of the gap that the change closes, 1 for all of it. [-]
        where: operator whose time differs most, with the resource that binds it in both fidelities.
        shares: share that each counterfactual closes, by category.
    """

    category: str
    what: str
    left: float
    closed: float
    where: str
    shares: dict[str, float]


def find_cause(gap: Gap) -> Cause:
    """The narrowest counterfactual that closes half of a gap, and the operator that the gap is in."""
    family = next(family for family in FAMILIES if family.name == gap.family)
    design, workload = design_of(family, gap, family.overrides)
    lost = gap.simulated - gap.analytical
    shares: dict[str, float] = {}
    results: list[tuple[float, Gap, Counterfactual]] = []
    for counterfactual in COUNTERFACTUALS:
        after = _gap_without(counterfactual, family, gap, design, workload)
        if after is not None:
            share = 1 - abs((after.simulated - after.analytical) / lost)
            shares[counterfactual.category] = max(share, shares.get(counterfactual.category, share))
            results.append((share, after, counterfactual))
    where = _where(family, gap, design, workload)
    named = next((result for result in results if result[0] >= ENOUGH), None)
    share, after, counterfactual = named or max(results, key=lambda result: result[0])
    category = counterfactual.category if named else "several together"
    return Cause(category, counterfactual.what, after.gap, share, where, shares)


def design_of(family: DesignFamily, gap: Gap, overrides: tuple[str, ...]) -> tuple[Design, Workload]:
    """Design of a gap and its load alone, from the family's overrides as they are or changed."""
    question = family._replace(overrides=overrides).study(*gap.settings, *gap.load).question
    return question.space.with_ties(question.base), question.workload


def _gap_without(
    counterfactual: Counterfactual, family: DesignFamily, gap: Gap, design: Design, workload: Workload
) -> Gap | None:
    """Gap of the same phase without a possible cause; None where the cause is not there."""
    if counterfactual.overrides:
        words = tuple(
            next((new for old, new in counterfactual.overrides.items() if old in word), word) for word in family.overrides
        )
        if words == family.overrides:
            return None
        design, workload = design_of(family, gap, tuple(word for word in words if word))
    elif changes := counterfactual.change(design):
        design = replace_leaves(design, changes)
    else:
        return None
    return next((after for after in design_gaps(family, design, workload, gap.settings) if after.phase == gap.phase), None)


def _where(family: DesignFamily, gap: Gap, design: Design, workload: Workload) -> str:
    """Operator of the phase whose time differs most, and what binds it by each fidelity."""
    times: list[dict[tuple[str, str], tuple[float, str]]] = []
    for fidelity in (family.analytical, family.fidelity):
        rows = explain(design, workload.cases[0], fidelity=fidelity).rows
        by_operator: dict[tuple[str, str], tuple[float, str]] = {}
        for row in rows:
            if row.phase == gap.phase and row.shape:
                seconds, bound = by_operator.get((row.segment, row.operator), (0.0, row.bound))
                by_operator[row.segment, row.operator] = (seconds + row.seconds, bound)
        times.append(by_operator)
    low, high = times
    common = [name for name in low if name in high]
    if not common:
        return ""
    name = max(common, key=lambda name: abs(high[name][0] - low[name][0]))
    change = high[name][0] / low[name][0] - 1 if low[name][0] else 0.0
    binds = low[name][1] if low[name][1] == high[name][1] else f"{low[name][1]}, then {high[name][1]}"
    return f"{name[0]}: {name[1]} {change:+.0%}, bound by {binds}"
