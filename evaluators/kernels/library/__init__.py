"""Closed forms of library kernels on a die with a cache, by kind: the part of a stack that has their constants.

Each module has a problem, a named tuple whose `kind` is its name here, and

    took(problem, constants, die)     its time in parts (`took.Took`), of shapes () or (steps, designs); None where the
                                      library has none of its sort

No more bandwidth, and no more cores, makes a kernel slower.
"""

from types import ModuleType
from typing import Any

from dse.evaluators.kernels.library import context, experts, generation, latent_generation, passes, products
from dse.evaluators.kernels.library.took import Took
from dse.evaluators.machine.library import Libraries

LIBRARY: dict[str, ModuleType] = {
    "products": products,
    "experts": experts,
    "elementwise": passes,
    "context": context,
    "latent_context": context,
    "generation": generation,
    "latent_generation": latent_generation,
}
"""By kind: parts of `space.stack.Stack`."""


def took(problem: Any, libraries: Libraries | None) -> Took | None:
    """What a problem takes, in parts; None where the stack has no part for its kind, or it is none of a library."""
    if problem is None or libraries is None:
        return None
    constants = next((part for kind, part in libraries.parts if kind == problem.kind), None)
    found: Took | None = None if constants is None else LIBRARY[problem.kind].took(problem, constants, libraries.die)
    return found
