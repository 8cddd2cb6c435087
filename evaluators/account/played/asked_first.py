"""Prices of designs of several structures worked out at once at fidelity=steady: all say first what they will ask.

A layout that shares prices between designs has `early(design, load)`, which says what its limits ask, and `asks(design, load,
fidelity)`, which says what a table of prices asks.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import product
from types import ModuleType
from typing import cast

from dse.evaluators.account.played import balanced, served, steady
from dse.evaluators.account.shared_dies import kept
from dse.evaluators.choices.words import merged
from dse.space.design import Design, Designs
from dse.space.limits import ClashError, Limit
from dse.space.workload import Load, Workload


@contextmanager
def together(
    service_of: Callable[[Design], ModuleType],
    limits: Callable[[Design, Load], list[Limit]],
    designs: Designs,
    workload: Workload,
) -> Iterator[None]:
    """While it is open, what is asked of several parts of designs is priced once for all that ask it.

    Args:
        service_of: the layout of a design.
        limits: of a part of designs, those that keep all of which are priced.
        designs, workload: what is asked.
    """
    loads, some = cast(tuple[Load, ...], workload.cases), list[tuple[ModuleType, Design, list[served.Part]]]()
    for _, design in designs.groups:
        service = service_of(design)
        if hasattr(service, "early"):
            alike = balanced.alike(design, service.TOGETHER) if hasattr(service, "TOGETHER") else served.singles(design)
            some.append((service, design, list(alike)))
    if sum(len(every) for _, _, every in some) < 2:
        yield
        return
    with kept():
        for service, _, every in some:
            _each(loads, every, service.early)
        try:
            for _, design, every in some:
                with suppress(ClashError):  # which is answered where the design is judged
                    served.BOUNDED[id(design)] = design, served.bounded(design, loads, every, limits)
            for service, design, _ in some:
                parts = served.BOUNDED[id(design)][1].parts if id(design) in served.BOUNDED else []
                _each(loads, parts, partial(service.asks, fidelity=steady.PRICES))
            yield
        finally:
            served.BOUNDED.clear()


def alike(service_of: Callable[[Design], ModuleType], designs: Designs) -> Designs:
    """Designs, of which those are one group that their layout takes at once although some of their words differ."""
    return merged(designs, lambda design: getattr(service_of(design), "words", _none)(design))


def _none(_: Design) -> tuple[str, ...]:
    """Words in which designs of a layout may differ that are one group, where it does not say so."""
    return ()


def _each(loads: Sequence[Load], parts: Sequence[served.Part], say: Callable[[Design, Load], None]) -> None:
    """What parts say that they ask; nothing where words do not go together."""
    for load, (_, part) in product(loads, parts):
        with suppress(ClashError):
            say(part, load)
