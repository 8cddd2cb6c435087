"""Time of a kernel by cause: the time saved by freeing each cause in turn."""

from collections.abc import Sequence
from typing import Any

from dse.evaluators.calls.call import MeshKernel
from dse.evaluators.calls.submesh import kernel_on_submesh, parse_fidelity
from dse.evaluators.cost_models import READERS
from dse.evaluators.cost_models import analytical as closed
from dse.evaluators.cost_models import fastest_algorithm as rivals
from dse.evaluators.machine.machine import HardwareModel
from dse.space.noc_router import NO_FAULTS

MIN_SECONDS = 1e-30
"""A time to divide by where there is none. [s]"""

CAUSES = (
    ("hops", ("hop", "ramp")),
    ("stages", ("stage",)),
    ("words", ("word", "copy")),
    ("starts", ("launch", "post", "call")),
)

CROSSINGS = ("die crossings", ("crossing", "crossing_word"))
"""The first cause on a mesh that is divided into dies."""


def time_by_cause(
    kernel: MeshKernel, hardware: HardwareModel, fidelity: str, kinds: Sequence[tuple[str, tuple[str, ...]]] = CAUSES
) -> dict[str, Any]:
    """Time of a kernel by cause, saved by freeing each in turn; the rest is products. [s]

    Nothing of a router is free where it is simulated cycle by cycle: there it is what events say, and what flits wait for
    beyond, or lose on ways round what is broken.
    """
    if kernel.rivals:  # the algorithm is that of the machine as it is
        return rivals.map_choices(
            kernel, hardware, closed.kernel_cost, lambda kernel: time_by_cause(kernel, hardware, fidelity, kinds)
        )
    word, side = parse_fidelity(fidelity)
    kernel, priced = kernel_on_submesh(kernel, side), READERS[word].kernel
    if word == "cycles":
        seconds = time_by_cause(kernel._replace(faults=NO_FAULTS), hardware, "events", kinds)
        return seconds | {"contention": priced(kernel, hardware).seconds - sum(seconds.values())}
    seconds, before = {}, priced(kernel, hardware).seconds
    assert hardware.fabric is not None
    for name, fields in (*([CROSSINGS] if hardware.fabric.is_divided else []), *kinds):
        hardware = hardware._replace(fabric=hardware.fabric._replace(**dict.fromkeys(fields, 0.0)))
        after = priced(kernel, hardware).seconds
        seconds[name], before = before - after, after
    return seconds | {"products": before}
