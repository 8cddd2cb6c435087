"""Basis of a library kernel's time: measured rows, extrapolation from them, or a stack's flat rates."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.library.extrapolation import REASON, ROUNDING, rooflines
from dse.evaluators.kernels.library.kernel_time import LibraryKernelTime
from dse.evaluators.kernels.library.prefill_attention import MixedBatchAttention
from dse.evaluators.machine.library_die import DieLibraries

FLAT = "flat rates"
"""Basis of a kernel for which the stack has no part."""

EXTRAPOLATED = "extrapolated"
"""Start of the basis text of a kernel with sizes outside measured rows."""

SIZE_TEXT = {
    "kv_heads": "KV heads",
    "kv_head_queries": "queries of a KV head",
    "columns": "columns of a key and value",
    "m": "rows (m)",
    "k": "inner columns (k)",
    "n": "columns (n)",
    "row_bytes": "bytes of a row",
    "touched": "experts with rows",
    "decodes": "decodes beside prompts",
}
"""Text of sizes whose names are not self-explanatory."""


class KernelBasis(NamedTuple):
    """How well the time of one library kernel is supported by measurements.

    Attributes:
        kernel: kind of library kernel; empty string if no library is used.
        sizes: least and largest value over steps, by name of the size.
        text: empty string if measured rows cover the kernel; else how it was extrapolated, or how slow measured rows are.
    """

    kernel: str = ""
    sizes: Mapping[str, tuple[float, float]] = {}
    text: str = ""


NOT_ASKED = KernelBasis()


def kernel_basis(
    problem: Any, took: LibraryKernelTime | None, libraries: DieLibraries | None, weights: Any = 1.0
) -> KernelBasis:
    """Basis of one kernel's time in a step, from its sizes and the measured ranges.

    Args:
        problem: problem for a library, as in `layouts.library_problems`; None if no library is used.
        took: time of the library kernel; None where no part of the stack has it.
        libraries: of the machine.
        weights: how often each step runs.
    """
    if problem is None:
        return NOT_ASKED
    problems = _launched_problems(problem, libraries)
    kernel, sizes = (
        problems[0].kind,
        {name: _value_extremes(value) for problem in problems for name, value in problem.sizes().items()},
    )
    if took is None or libraries is None:
        return KernelBasis(kernel, sizes, FLAT)
    parts = dict(libraries.parts)
    beyond = [
        text for problem in problems for text in _outside_texts(problem.sizes(), parts[problem.kind].measured_ranges or ())
    ]
    if beyond:
        return KernelBasis(kernel, sizes, f"{EXTRAPOLATED}: {', '.join(dict.fromkeys(beyond))}")
    ideal, beyond_cache = (sum(rooflines(problem, libraries.die)[i] for problem in problems) for i in (0, 1))
    starts = took.start + took.beside
    seconds, most, least = (float(np.sum(weights * value)) for value in (took.seconds(), starts + ideal, beyond_cache))
    unlike = seconds > REASON * most or seconds < least * (1 - ROUNDING)
    return KernelBasis(kernel, sizes, f"measured: {seconds / most:.3g} times its roofline" if unlike else "")


def basis_text(kernels: Iterable[tuple[str, KernelBasis]], measured: bool) -> str:
    """Kernels outside measured rows, or known to be slow, as one line; empty string if there are none.

    Args:
        kernels: operators by name, with the basis of each.
        measured: whether the stack has measured parts, so that flat rates are news.
    """
    operators_by_basis: dict[tuple[str, str], dict[str, None]] = {}
    for operator, basis in kernels:
        if basis.text and (measured or basis.text != FLAT):
            operators_by_basis.setdefault((basis.kernel, basis.text), {})[operator] = None
    names = {
        key: "" if list(operators) == [key[0]] else f" ({', '.join(operators)})"
        for key, operators in operators_by_basis.items()
    }
    return "; ".join(f"{kernel}{names[kernel, text]} {text}" for kernel, text in operators_by_basis)


def _launched_problems(problem: Any, libraries: DieLibraries | None) -> tuple[Any, ...]:
    """Problems that kernels are launched for: attention of prompts and decodes is one launch, or two."""
    if not isinstance(problem, MixedBatchAttention):
        return (problem,)
    own = None if libraries is None else dict(libraries.parts).get(problem.kind)
    return (problem.both,) if own is None or own.launches == "one" else (problem.prompts, problem.decodes)


def _value_extremes(value: Any) -> tuple[float, float]:
    return float(np.min(value)), float(np.max(value))


def _outside_texts(sizes: Mapping[str, Any], ranges: tuple[tuple[str, float, float], ...]) -> list[str]:
    """Sizes outside the measured ranges, as text."""
    texts = []
    for name, low, high in ranges:
        if name not in sizes:
            continue
        least, most = _value_extremes(sizes[name])
        if least >= low * (1 - ROUNDING) and most <= high * (1 + ROUNDING):
            continue
        range_text, rows = _range_text(least, most), _range_text(low, high)
        texts.append(f"{range_text} {SIZE_TEXT.get(name, name)} (measured {rows})")
    return texts


def _range_text(low: float, high: float) -> str:
    """A range in words.

    >>> _range_text(256.0, 256.0), _range_text(1.0, 16384.0)
    ('256', '1 to 16,384')
    """
    least, most = f"{low:,.4g}" if low < 1e4 else f"{low:,.0f}", f"{high:,.4g}" if high < 1e4 else f"{high:,.0f}"
    return least if least == most else f"{least} to {most}"
