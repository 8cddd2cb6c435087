"""Prices of designs of several structures worked out at once at fidelity=steady_state: all say first what they will ask.

A layout that shares prices between designs has `early(design, load)`, which says what its limits ask, and `asks(design, load,
fidelity)`, which says what a table of prices asks.
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
    """While it is open, what is asked of several parts of designs is priced once for all that ask it.

    Args:
        service_of: the layout of a design.
        limits: of a part of designs, those that keep all of which are priced.
        designs, workload: what is asked.
    """
    loads, some = cast(tuple[ServingLoad, ...], workload.cases), list[tuple[ModuleType, Design, list[served.DesignPart]]]()
    for _, design in designs.groups:
        service = service_of(design)
        if hasattr(service, "request_limit_times"):
            alike = (
                balanced.groups_with_equal_serving(design, service.MERGEABLE_LEAVES)
                if hasattr(service, "MERGEABLE_LEAVES")
                else served.single_rows(design)
            )
            some.append((service, design, list(alike)))
    if sum(len(every) for _, _, every in some) < 2:
        yield
        return
    with collect_die_work():
        for service, _, every in some:
            _each(loads, every, service.request_limit_times)
        try:
            for _, design, every in some:
                with suppress(IncompatibleOptionsError):  # which is answered where the design is judged
                    served.BOUNDED[id(design)] = design, served.limited_design(design, loads, every, limits)
            for service, design, _ in some:
                parts = served.BOUNDED[id(design)][1].parts if id(design) in served.BOUNDED else []
                _each(loads, parts, partial(service.request_table_times, fidelity=steady.ITERATION_FIDELITY))
            yield
        finally:
            served.BOUNDED.clear()


def merge_equal_groups(service_of: Callable[[Design], ModuleType], designs: Designs) -> Designs:
    """Designs, of which those are one group that their layout takes at once although some of their words differ."""
    return merge_option_groups(designs, lambda design: getattr(service_of(design), "mergeable_options", _none)(design))


def _none(_: Design) -> tuple[str, ...]:
    """Words in which designs of a layout may differ that are one group, where it does not say so."""
    return ()


def _each(loads: Sequence[ServingLoad], parts: Sequence[served.DesignPart], say: Callable[[Design, ServingLoad], None]) -> None:
    """What parts say that they ask; nothing where words do not go together."""
    for load, (_, part) in product(loads, parts):
        with suppress(IncompatibleOptionsError):
            say(part, load)
