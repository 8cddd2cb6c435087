"""Analytical models of library kernels on a shared-cache die, by kind.

The kind names the part of a software stack that has their constants.

Each module has a problem, a named tuple whose `kind` is its name here, and

    kernel_time(problem, constants, die)   time in parts (`kernel_time.LibraryKernelTime`), of shapes () or (steps, designs);
                                           None if the library has no kernel of its sort

More bandwidth, or more cores, never makes a kernel slower.
"""

from types import ModuleType
from typing import Any

from dse.evaluators.kernels.library import decode_attention as generation
from dse.evaluators.kernels.library import elementwise as passes
from dse.evaluators.kernels.library import gemm as products
from dse.evaluators.kernels.library import grouped_gemm as experts
from dse.evaluators.kernels.library import mla_decode_attention as latent_generation
from dse.evaluators.kernels.library import prefill_attention as context
from dse.evaluators.kernels.library.extrapolation import extrapolate
from dse.evaluators.kernels.library.kernel_time import LibraryKernelTime, add_in_sequence
from dse.evaluators.machine.library_die import DieLibraries, LibraryDie
from dse.space.array_math import where
from dse.space.errors import DesignError

LIBRARY: dict[str, ModuleType] = {
    "gemm": products,
    "grouped_gemm": experts,
    "elementwise": passes,
    "prefill_attention": context,
    "mla_prefill_attention": context,
    "decode_attention": generation,
    "mla_decode_attention": latent_generation,
}
"""By kind: parts of `space.stack.Stack`."""


def library_kernel_time(problem: Any, libraries: DieLibraries | None) -> LibraryKernelTime | None:
    """Time of a library kernel's problem in parts. [s]

    None if the stack has no part for its kind, or the problem is None.
    """
    if problem is None or libraries is None:
        return None
    constants = next((part for kind, part in libraries.parts if kind == problem.kind), None)
    if constants is None:
        return None
    if isinstance(problem, context.MixedBatchAttention):
        if constants.launches == "one":
            problem = problem.both
        else:
            decodes = library_kernel_time(problem.decodes, libraries)
            if decodes is None:
                raise DesignError(
                    f"mapping.stack.{problem.kind}.launches: two needs a part of the stack for decodes, which is missing; add "
                    f"mapping.stack.{problem.decodes.kind}, or set launches=one"
                )
            has_decodes = problem.decodes.m > 0
            prompts = extrapolate(
                context.kernel_time(problem.prompts, constants, libraries.die),
                problem.prompts,
                constants,
                libraries.die,
                context,
            )
            return add_in_sequence(prompts, decodes.times(where(has_decodes, 1.0, 0.0)))
    return _within_reason(problem, constants, libraries.die)


def _within_reason(problem: Any, constants: Any, die: LibraryDie) -> LibraryKernelTime | None:
    """What the form of its kind gives, and outside of the sizes that were measured what is near the roofline."""
    kernel = LIBRARY[problem.kind]
    form: LibraryKernelTime | None = kernel.kernel_time(problem, constants, die)
    return None if form is None else extrapolate(form, problem, constants, die, kernel)
