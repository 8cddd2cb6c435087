"""What the time of a kernel goes into: what falls away when something is free, in turn."""

from collections.abc import Sequence
from typing import Any

from dse.evaluators.machine.machine import Machine
from dse.evaluators.passes.call import Kernel
from dse.evaluators.passes.part import cut, kernel_on
from dse.evaluators.readers import READERS, closed, rivals
from dse.space.network import NO_FAULTS

TINY = 1e-30
"""A time to divide by where there is none. [s]"""

SPENT = (
    ("hops", ("hop", "ramp")),
    ("stages", ("stage",)),
    ("words", ("word", "copy")),
    ("starts", ("launch", "post", "call")),
)


def spent(kernel: Kernel, on: Machine, fidelity: str, kinds: Sequence[tuple[str, tuple[str, ...]]] = SPENT) -> dict[str, Any]:
    """The time of a kernel by what it goes into: what falls away when that is free, in turn; the rest is products.

    Nothing of a router is free where it is played cycle by cycle: there it is what events say, and what flits wait for beyond,
    or lose on ways round what is broken.
    """
    if kernel.rivals:  # the algorithm is that of the machine as it is
        return rivals.each(kernel, on, closed.kernel, lambda one: spent(one, on, fidelity, kinds))
    word, side = cut(fidelity)
    kernel, priced = kernel_on(kernel, side), READERS[word].kernel
    if word == "cycles":
        found = spent(kernel._replace(faults=NO_FAULTS), on, "events", kinds)
        return found | {"contention": priced(kernel, on).seconds - sum(found.values())}
    found, before = {}, priced(kernel, on).seconds
    for name, fields in kinds:
        assert on.fabric is not None
        on = on._replace(fabric=on.fabric._replace(**dict.fromkeys(fields, 0.0)))
        after = priced(kernel, on).seconds
        found[name], before = before - after, after
    return found | {"products": before}
