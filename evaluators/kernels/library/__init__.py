"""Closed forms of library kernels on a die with a cache, by kind: the part of a stack that has their constants.

Each module has a problem, a named tuple whose `kind` is its name here, and

    took(problem, constants, die)     its time in parts (`took.Took`), of shapes () or (steps, designs); None where the
                                      library has none of its sort

No more bandwidth, and no more cores, makes a kernel slower.
"""

from types import ModuleType
from typing import Any

from dse.evaluators.kernels.library import context, experts, generation, latent_generation, passes, products
from dse.evaluators.kernels.library.extrapolation import extrapolate
from dse.evaluators.kernels.library.took import Took, one_after_the_other
from dse.evaluators.machine.library import Die, Libraries
from dse.space.elementwise import where
from dse.space.errors import DesignError

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
    if constants is None:
        return None
    if isinstance(problem, context.Beside):
        if constants.launches == "one":
            problem = problem.both
        else:
            decodes = took(problem.decodes, libraries)
            if decodes is None:
                raise DesignError(
                    f"mapping.stack.{problem.kind}.launches: two, but the stack has no part for decodes; add "
                    f"mapping.stack.{problem.decodes.kind}, or say one"
                )
            some = problem.decodes.m > 0
            prompts = extrapolate(
                context.took(problem.prompts, constants, libraries.die), problem.prompts, constants, libraries.die, context
            )
            return one_after_the_other(prompts, decodes.times(where(some, 1.0, 0.0)))
    return _within_reason(problem, constants, libraries.die)


def _within_reason(problem: Any, constants: Any, die: Die) -> Took | None:
    """What the form of its kind gives, and outside of the sizes that were measured what is near the roofline."""
    kernel = LIBRARY[problem.kind]
    form: Took | None = kernel.took(problem, constants, die)
    return None if form is None else extrapolate(form, problem, constants, die, kernel)
