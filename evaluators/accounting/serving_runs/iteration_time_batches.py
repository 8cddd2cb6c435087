"""Iteration times of several structures computed together at fidelity=steady_state.

Layouts that share times first record what they will need, for limits and for tables (`ServingLayout.SHARES_TIMES`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import product
from typing import cast

from dse.evaluators.accounting.die_batches import collect_die_work
from dse.evaluators.accounting.serving_instances.design_parts import DesignPart
from dse.evaluators.accounting.serving_instances.serving_layout import ServingLayout
from dse.evaluators.accounting.serving_runs import run_metrics as served
from dse.evaluators.accounting.serving_runs import steady_state_run as steady
from dse.evaluators.tuning.merged_options import merge_option_groups
from dse.space.design import Design, Designs
from dse.space.limits import IncompatibleOptionsError, Limit
from dse.space.workload import ServingLoad, Workload


@contextmanager
def batch_iteration_times(
    layout_of: Callable[[Design], ServingLayout],
    limits: Callable[[Design, ServingLoad], list[Limit]],
    designs: Designs,
    workload: Workload,
) -> Iterator[None]:
    """Compute the iteration times that parts of designs need once for all of them, in a with block.

    Args:
        layout_of: the layout of a design.
        limits: limits of a group of designs; times are computed for designs that keep all.
        designs, workload: designs and serving loads.
    """
    loads = cast(tuple[ServingLoad, ...], workload.cases)
    setups = [
        (layout, design, list(layout.limited_parts(design)))
        for _, design in designs.groups
        if (layout := layout_of(design)).SHARES_TIMES
    ]
    if sum(len(every) for _, _, every in setups) < 2:
        yield
        return
    with collect_die_work(), served.BOUNDED.open({}) as bounded:
        for layout, _, every in setups:
            _ask_parts(loads, every, layout.request_limit_times)
        for _, design, every in setups:
            with suppress(IncompatibleOptionsError):  # which is answered where the design is judged
                bounded[id(design)] = design, served.limited_design(design, loads, every, limits)
        for layout, design, _ in setups:
            parts = bounded[id(design)][1].parts if id(design) in bounded else []
            _ask_parts(loads, parts, partial(layout.request_table_times, fidelity=steady.ITERATION_FIDELITY))
        yield


def merge_equal_groups(layout_of: Callable[[Design], ServingLayout], designs: Designs) -> Designs:
    """Designs with groups merged where the layout evaluates groups of different options together."""
    return merge_option_groups(designs, lambda design: layout_of(design).mergeable_options(design))


def _ask_parts(loads: Sequence[ServingLoad], parts: Sequence[DesignPart], say: Callable[[Design, ServingLoad], None]) -> None:
    """Record the times that parts of designs need; nothing for conflicting options."""
    for load, (_, part) in product(loads, parts):
        with suppress(IncompatibleOptionsError):
            say(part, load)
