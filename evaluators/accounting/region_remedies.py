"""Remedies for a model that does not fit its wafer: a larger mesh, or more wafers in a chain."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dse.space.array_math import Array
from dse.space.chip import Chip, ChipChain
from dse.space.design import Design
from dse.space.limits import Limit
from dse.space.machines import CHAIN_LENGTH, CHAIN_PART
from dse.space.mapping import MeshProductPlan, RegionPlan

MAX_SCALE = 16
"""Scale up to which the side of a chip is tried, if no mesh of the chip's own size fits."""

MAX_KTREE_K = 64
"""Phases of a K-tree that are tried from; with 2 cores a group, enough for any mesh."""


def smallest_mesh_text(
    what: str, limits: Callable[[dict[str, Any]], list[Limit]], where: str, plan: RegionPlan | MeshProductPlan, chip: Chip
) -> str:
    """Smallest square mesh on which the limits hold, as text; else a shallower K-tree or a larger chip.

    Args:
        what: subject of the text.
        limits: of a design with leaves changed, by address, to arrays.
        where: the address of the plan.
        plan: as it is.
        chip: as it is.
    """
    rows, cols, depth = f"{where}.rows", f"{where}.cols", f"{where}.ktree_k"
    most = int(min(chip.mesh.rows, chip.mesh.cols))
    side = _first_fitting(np.arange(1.0, most + 1), lambda sides: limits({rows: sides, cols: 0}))
    if side:
        return f"{what} fits on {side} x {side} cores"
    if plan.gemv == "ktree":
        phases = _first_fitting(
            np.arange(min(float(plan.ktree_k), MAX_KTREE_K), 0.0, -1.0), lambda phases: limits({depth: phases})
        )
        if phases:
            return f"{what} fits with {depth}={phases}"
    larger = np.arange(most + 10.0, MAX_SCALE * most, 10.0)
    side = _first_fitting(
        larger, lambda sides: limits({rows: sides, cols: 0, "chip.mesh.rows": sides, "chip.mesh.cols": sides})
    )
    return f"no square mesh of this chip fits {what}" + (f", {side} x {side} cores would" if side else "")


def with_chain(design: Design) -> Design:
    """Design whose chip is one of a chain, as limits of memory read it: any link where there is none yet."""
    if design.chip.chain is not None:
        return design
    chain = ChipChain(chips=2, bandwidth=1.0, payload_share=1.0, latency=0.0)
    return replace(design, chip=replace(design.chip, chain=chain))


def shortest_chain_text(limits: Callable[[dict[str, Any]], list[Limit]], design: Design, layers: int) -> str:
    """Fewest chips in a chain on which the limits hold, as text, with regions as they are or larger.

    Larger ones are the largest squares of the chip.

    Args:
        limits: of a design with leaves changed, by address, to arrays.
        design: as it is.
        layers: of the deepest model, of which each chip has at least one.

    Returns:
        What to type, empty string if no chain would do.
    """
    chip, plans = design.chip, {"prefill": design.mapping.prefill, "decode": design.mapping.decode}
    side = int(min(chip.mesh.rows, chip.mesh.cols))
    squares = {f"mapping.{phase}.rows": side for phase in plans}
    squares |= {f"mapping.{phase}.cols": 0 for phase, plan in plans.items() if np.any(plan.cols)}
    for changes in ({}, squares):

        def of_chain(chips: Array, changes: dict[str, Any] = changes) -> list[Limit]:
            return limits({CHAIN_LENGTH: chips, **changes})

        chips = _first_fitting(np.arange(2.0, layers + 1), of_chain)
        if chips:
            part = (CHAIN_PART,) if chip.chain is None else ()
            words = (*part, *(f"{address}={value}" for address, value in {CHAIN_LENGTH: chips, **changes}.items()))
            return f"{chips} chips in a chain would do: {' '.join(words)}"
    return ""


def _first_fitting(values: Array, limits: Callable[[Array], list[Limit]]) -> int:
    """First of some values for which all limits hold; 0 if there is none."""
    fits = np.ones(len(values), dtype=bool)
    for limit in limits(values):
        holds = np.asarray(limit.need <= limit.have)
        fits &= holds.all(axis=0) if holds.ndim == 2 else holds
    return int(values[fits][0]) if fits.any() else 0
