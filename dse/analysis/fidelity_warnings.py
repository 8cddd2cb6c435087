"""Warnings of an answer: contention that its fidelity does not count, where simulation does.

A warning has a condition on the design, declared from gaps that `studies/what_closed_misses` measured. It names the largest
gap measured under that condition and how to see it. Numbers of the answer stay as they are.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from dse.evaluators.layouts.whole_chip import has_read_ahead
from dse.space.design import Design
from dse.space.main_memory import main_memory
from dse.space.software import (
    DEVICES,
    POOLED_DIES,
    SERVED_DEVICES,
    SERVED_POOLED_DIES,
    SERVED_WHOLE_CHIP,
    WHOLE_CHIP,
    software_of,
)
from dse.space.workload import BatchCase, ServingLoad, Workload

ON_TILES = (WHOLE_CHIP, SERVED_WHOLE_CHIP)
ON_CACHES = (DEVICES, SERVED_DEVICES)


class FidelityWarning(NamedTuple):
    """A condition under which a fidelity is known to miss contention.

    Attributes:
        fidelities: those that miss it.
        applies: whether a design meets the condition.
        text: what is missed, and the largest gap measured.
        remedy: setting that counts it or takes it away.
    """

    fidelities: tuple[str, ...]
    applies: Callable[[Design], bool]
    text: str
    remedy: str


def fidelity_warnings(design: Design, workload: Workload, fidelity: str) -> list[str]:
    """Warnings of a whole model's answer, as text; empty for single kernels.

    Args:
        design: leaves are numbers.
        workload: of the answer.
        fidelity: of the answer, with or without a submesh.
    """
    if not isinstance(workload.cases[0], BatchCase | ServingLoad):
        return []
    word = fidelity.partition("@")[0]
    return [
        f"{warning.text}; {warning.remedy}" for warning in WARNINGS if word in warning.fidelities and warning.applies(design)
    ]


def _reads_ahead(design: Design) -> bool:
    """Whether a mesh of tiles prefetches into local memories beside operators that use the same links."""
    if software_of(design.mapping) not in ON_TILES or design.chip.l2 is not None:
        return False
    return any(has_read_ahead(plan) for plan in _plans(design))


def _has_one_channel(design: Design) -> bool:
    """Whether routers of a mesh of tiles have a single virtual channel."""
    return software_of(design.mapping) in ON_TILES and int(design.chip.noc.vcs) == 1


def _crosses_two_nodes(design: Design) -> bool:
    """Whether experts of many dies are over two nodes, and tokens go to each of their dies by themselves."""
    if software_of(design.mapping) not in (POOLED_DIES, SERVED_POOLED_DIES) or design.chip.nodes is None:
        return False
    size = int(design.chip.nodes.size)
    return any(plan.all_to_all in (None, "direct") and size < int(plan.ep) <= 2 * size for plan in _plans(design))


def _plans(design: Design) -> tuple[Any, Any]:
    return design.mapping.prefill, design.mapping.decode


def _has_banks_of_die(design: Design) -> bool:
    """Whether a shared-cache die states the banks that its cores read side by side."""
    return software_of(design.mapping) in ON_CACHES and main_memory(design.chip).banks is not None


WARNINGS = (
    FidelityWarning(
        ("analytical", "events", "cycles", "steady_state"),
        _reads_ahead,
        "prefetch beside operators: one program takes up to 71 % longer",
        "compare prefetch.policy=none",
    ),
    FidelityWarning(
        ("analytical", "events", "steady_state"),
        _has_one_channel,
        "one virtual channel: multicasts may be in a deadlock",
        "raise chip.noc.vcs",
    ),
    FidelityWarning(
        ("analytical", "steady_state"),
        _crosses_two_nodes,
        "experts over two nodes, tokens sent directly: events take up to 19 % longer",
        "use fidelity=events",
    ),
    FidelityWarning(
        ("analytical", "steady_state"),
        _has_banks_of_die,
        "cores side by side on banks: events take up to 118 % longer",
        "use fidelity=events",
    ),
)
"""Conditions and largest gaps of `studies/what_closed_misses`."""
