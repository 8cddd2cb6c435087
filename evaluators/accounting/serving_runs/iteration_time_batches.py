"""Iteration times of several structures computed together at fidelity=steady_state.

Layouts with shared times first record what they will need: `request_limit_times(design, load)` for limits, and
`request_table_times(design, load, fidelity)` for tables.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import product
from types import ModuleType
from typing import cast

from dse.evaluators.accounting.die_batches import collect_die_work
from dse.evaluators.accounting.serving_runs import run_metrics as served
from dse.evaluators.accounting.serving_runs import steady_state_designs as balanced
from dse.evaluators.accounting.serving_runs import steady_state_run as steady
from dse.evaluators.tuning.merged_options import merge_option_groups
from dse.space.design import Design, Designs
from dse.space.limits import IncompatibleOptionsError, Limit
from dse.space.workload import ServingLoad, Workload


@contextmanager
def batch_iteration_times(
    service_of: Callable[[Design], ModuleType],
    limits: Callable[[Design, ServingLoad], list[Limit]],
    designs: Designs,
    workload: Workload,
) -> Iterator[None]:
    """Compute the iteration times that parts of designs need once for all of them, in a with block.

    Args:
        service_of: the layout of a design.
        limits: limits of a group of designs; times are computed for designs that keep all.
        designs, workload: designs and serving loads.
    """
    loads, setups = cast(tuple[ServingLoad, ...], workload.cases), list[tuple[ModuleType, Design, list[served.DesignPart]]]()
    for _, design in designs.groups:
        service = service_of(design)
        if hasattr(service, "request_limit_times"):
            alike = (
                balanced.groups_with_equal_serving(design, service.MERGEABLE_LEAVES)
                if hasattr(service, "MERGEABLE_LEAVES")
                else served.single_rows(design)
            )
            setups.append((service, design, list(alike)))
    if sum(len(every) for _, _, every in setups) < 2:
        yield
        return
    with collect_die_work():
        for service, _, every in setups:
            _ask_parts(loads, every, service.request_limit_times)
        try:
            for _, design, every in setups:
                with suppress(IncompatibleOptionsError):  # which is answered where the design is judged
                    served.BOUNDED[id(design)] = design, served.limited_design(design, loads, every, limits)
            for service, design, _ in setups:
                parts = served.BOUNDED[id(design)][1].parts if id(design) in served.BOUNDED else []
                _ask_parts(loads, parts, partial(service.request_table_times, fidelity=steady.ITERATION_FIDELITY))
            yield
        finally:
            served.BOUNDED.clear()


def merge_equal_groups(service_of: Callable[[Design], ModuleType], designs: Designs) -> Designs:
    """Designs with groups merged where the layout evaluates groups of different options together."""
    return merge_option_groups(designs, lambda design: getattr(service_of(design), "mergeable_options", _no_words)(design))


def _no_words(_: Design) -> tuple[str, ...]:
    """Options in which designs of a merged group may differ, for layouts that define none."""
    return ()


def _ask_parts(
    loads: Sequence[ServingLoad], parts: Sequence[served.DesignPart], say: Callable[[Design, ServingLoad], None]
) -> None:
    """Record the times that parts of designs need; nothing for conflicting options."""
    for load, (_, part) in product(loads, parts):
        with suppress(IncompatibleOptionsError):
            say(part, load)
