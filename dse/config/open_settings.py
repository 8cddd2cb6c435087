"""Settings that a mapping leaves open as `auto`: devices of a model, and the allreduce algorithm.

A model runs on the fewest devices that hold it, and a stack with collectives of its own sets the algorithm. Both are found
once, when a configuration becomes a design, so that designs, keys and spaces have values only.
"""

from collections.abc import Collection
from collections.abc import Mapping as Dict
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from dse.space.compatibility import case_type_of
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.main_memory import CAPACITY_LIMITS
from dse.space.unread_leaves import explain_unread
from dse.space.workload import BatchCase, CollectiveCase, ServingLoad, Workload

AUTO = "auto"
"""The word for what is left open."""

PHASES = ("prefill", "decode")

MAX_TP = 4096
"""Devices of a copy of a model up to which the fewest are looked for."""

KERNEL_TP = 8
"""Devices of a kernel by itself, which has no model to hold: those of a node of most chips."""

COLLECTIVES = ("ring_collectives", "all_to_all", "moe_all_to_all")
"""Parts of a stack that are collectives; allreduces of a model take the first."""


def close_mapping(mapping: Dict[str, Any], workload: Dict[str, Any]) -> tuple[Dict[str, Any], tuple[str, ...]]:
    """A mapping without open settings, and the addresses of tensor parallelism that was open.

    Open tensor parallelism is that of a kernel; `choose_devices` sets that of a model.

    Args:
        mapping: fields of the mapping, its stack among them.
        workload: fields of the workload.
    """
    both = {phase: mapping.get(phase) for phase in PHASES}
    plans = {phase: plan for phase, plan in both.items() if isinstance(plan, Dict)}
    open_tp = tuple(f"mapping.{phase}.tp" for phase, plan in plans.items() if plan.get("tp") == AUTO)
    own = {"tp": KERNEL_TP, "allreduce": allreduce_of(mapping.get("stack"), case_type_of(workload))}

    def close_plan(plan: Dict[str, Any]) -> dict[str, Any]:
        # allreduces of dies that share out experts too are never the library's
        names = [name for name in own if plan.get(name) == AUTO and not (name == "allreduce" and "ep" in plan)]
        return {**plan, **{name: own[name] for name in names}}

    settings = {phase: close_plan(plan) for phase, plan in plans.items()}
    return {**mapping, **settings}, open_tp


def allreduce_of(stack: Any, case: type) -> str:
    """Allreduce algorithm of a stack: its library's if it has one, else bidirectional rings.

    >>> (
    ...     allreduce_of({"ring_collectives": {"start": "1 us"}}, BatchCase),
    ...     allreduce_of({"ring_collectives": None}, BatchCase),
    ...     allreduce_of(None, BatchCase),
    ... )
    ('library', 'bidirectional_ring', 'bidirectional_ring')
    """
    parts = COLLECTIVES if case is CollectiveCase else COLLECTIVES[:1]
    has_collectives = isinstance(stack, Dict) and any(stack.get(part) is not None for part in parts)
    return "library" if has_collectives else "bidirectional_ring"


def choose_devices(
    base: Design, workload: Workload, open_tp: tuple[str, ...], given: Collection[str], space: Dict[str, Any]
) -> tuple[Design, str]:
    """A design on the fewest devices that hold its models, and text that says how many.

    The text is the empty string if nothing was open. Devices are a power of two, and at least two if a setting is given that
    one device does not read. If no number of devices holds the models, it is the least, and evaluation reports the violated
    limit.

    Args:
        base: the design.
        workload: of the design.
        open_tp: addresses of tensor parallelism that are open.
        given: leaves that overrides, the file of a study or knobs set.
        space: knobs by address, as plain values; where one moves tensor parallelism, it is one of its values.
    """
    if not open_tp or not all(isinstance(case, BatchCase | ServingLoad) for case in workload.cases):
        return base, ""

    def design_at(tp: int) -> Design:
        return replace_leaves(base, dict.fromkeys(open_tp, tp))

    reader = next(
        (leaf for leaf in given if _reads_leaf(design_at(2), workload, leaf) and not _reads_leaf(design_at(1), workload, leaf)),
        "",
    )
    options = _degree_options(open_tp, space)
    least = next((tp for tp in options if tp >= (2 if reader else 1)), options[-1])
    fitting = (tp for tp in options if tp >= least and _fits_memory(design_at(tp), workload))
    fits = next(fitting, 0)
    fewest = next((tp for tp in chain((fits,), fitting) if fits and not _start_obstacle(design_at(tp), workload)), fits)
    none = f"TP {least}, since no TP up to {options[-1]:,} holds the model"
    reason = f"TP {fewest}, the fewest devices that hold the model" + (f" and read {reader}" if reader else "")
    return design_at(fewest or least), reason if fewest else none


def _degree_options(open_tp: tuple[str, ...], space: Dict[str, Any]) -> list[int]:
    """Devices to choose from, ascending: values that knobs of all open phases have, else powers of two.

    >>> _degree_options(("mapping.decode.tp",), {"mapping.both.tp": {"values": [4, 2]}})
    [2, 4]
    """
    powers = [1 << power for power in range(MAX_TP.bit_length())]
    found_powers = set(powers)
    for address in open_tp:
        phase, both = (space.get(name) for name in (address, f"mapping.both.{address.rpartition('.')[2]}"))
        values = (phase or both or {}).get("values", ())
        degrees = {int(value) for value in values if isinstance(value, int | float) and value >= 1}
        found_powers = (
            degrees if degrees and found_powers == set(powers) else found_powers & degrees if degrees else found_powers
        )
    return sorted(found_powers) or powers


def _reads_leaf(design: Design, workload: Workload, leaf: str) -> bool:
    """Whether a design reads one of its leaves for what it is asked."""
    from dse.config.unread_settings import find_unread_by_workload

    return not explain_unread(design, leaf) and leaf not in find_unread_by_workload(design, workload)


def _start_obstacle(design: Design, workload: Workload) -> str:
    """Why no engine starts the models of a workload on so many devices; empty string if one does."""
    from dse.evaluators.layouts.startable_degrees import design_obstacle  # which loads graphs

    models = (case.model for case in workload.cases if isinstance(case, BatchCase | ServingLoad))
    return next(filter(None, (design_obstacle(design.mapping, model) for model in models)), "")


def _fits_memory(design: Design, workload: Workload) -> bool:
    """Whether memory has room for what a design keeps of each case."""
    from dse.evaluators.evaluation import limits  # which loads judges

    try:
        found_limits = [limit for limit in limits(design, _one_of_each(workload)) if limit.address in CAPACITY_LIMITS]
    except DesignError:  # said where the design is evaluated
        return False
    return bool(found_limits) and all(bool(np.all(limit.need <= limit.have)) for limit in found_limits)


def _one_of_each(workload: Workload) -> Workload:
    """Cases that differ in what they keep: loads at several rates keep the same."""
    kept: dict[Any, Any] = {}
    for place, case in enumerate(workload.cases):
        kept.setdefault((case.model, case.longest) if isinstance(case, ServingLoad) else place, case)
    return replace(workload, cases=tuple(kept.values()))
