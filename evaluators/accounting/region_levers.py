"""Levers of a model that does not fit its wafer: a larger mesh, or more wafers in a chain."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dse.evaluators.accounting.remedies import Changes, Lever, LimitsOfChanges
from dse.space.array_math import Array
from dse.space.chip import Chip, ChipChain
from dse.space.design import Design
from dse.space.machines import CHAIN_LENGTH, CHAIN_PART
from dse.space.mapping import MeshProductPlan, RegionPlan

MAX_SCALE = 16
"""Scale up to which the side of a chip is tried, if no mesh of the chip's own size fits."""

MAX_KTREE_K = 64
"""Phases of a K-tree that are tried from; with 2 cores a group, enough for any mesh."""


def mesh_levers(
    what: str, limits: LimitsOfChanges, where: str, plan: RegionPlan | MeshProductPlan, chip: Chip
) -> Iterator[Lever]:
    """The smallest square mesh, else a shallower K-tree, else a larger chip.

    Args:
        what: subject of the text.
        limits: of a design with leaves changed, by address, to arrays.
        where: the address of the plan.
        plan: as it is.
        chip: as it is.
    """
    rows, cols, depth = f"{where}.rows", f"{where}.cols", f"{where}.ktree_k"
    most = int(min(chip.mesh.rows, chip.mesh.cols))

    def of_side(sides: Array) -> Changes:
        return {rows: sides, cols: 0}

    def of_chip(sides: Array) -> Changes:
        return of_side(sides) | {"chip.mesh.rows": sides, "chip.mesh.cols": sides}

    yield Lever(
        lambda side: f"{what} fits on {side:.0f} x {side:.0f} cores", np.arange(1.0, most + 1), of_side, limits, subject=what
    )
    if plan.gemv == "ktree":
        phases = np.arange(min(float(plan.ktree_k), MAX_KTREE_K), 0.0, -1.0)
        yield Lever(
            lambda count: f"{what} fits with {depth}={count:.0f}", phases, lambda count: {depth: count}, limits, subject=what
        )
    none = f"no square mesh of this chip fits {what}"
    larger = np.arange(most + 10.0, MAX_SCALE * most, 10.0)
    yield Lever(lambda side: f"{none}, {side:.0f} x {side:.0f} cores would", larger, of_chip, limits, failed=none, subject=what)


def with_chain(design: Design) -> Design:
    """Design whose chip is one of a chain, as limits of memory read it: any link where there is none yet."""
    if design.chip.chain is not None:
        return design
    chain = ChipChain(chips=2, bandwidth=1.0, payload_share=1.0, latency=0.0)
    return replace(design, chip=replace(design.chip, chain=chain))


def chain_levers(limits: LimitsOfChanges, design: Design, layers: int) -> Iterator[Lever]:
    """The fewest chips in a chain, with regions as they are or larger: the largest squares of the chip.

    Args:
        limits: of a design with leaves changed, by address, to arrays.
        design: as it is.
        layers: of the deepest model, of which each chip has at least one.
    """
    chip, plans = design.chip, {"prefill": design.mapping.prefill, "decode": design.mapping.decode}
    side = int(min(chip.mesh.rows, chip.mesh.cols))
    squares = {f"mapping.{phase}.rows": side for phase in plans}
    squares |= {f"mapping.{phase}.cols": 0 for phase, plan in plans.items() if np.any(plan.cols)}
    part = (CHAIN_PART,) if chip.chain is None else ()
    for beside in ({}, squares):

        def of_chain(chips: Any, beside: Changes = beside) -> Changes:
            return {CHAIN_LENGTH: chips, **beside}

        def describe_chain(chips: float, beside: Changes = beside) -> str:
            settings = {CHAIN_LENGTH: int(chips), **beside}
            words = (*part, *(f"{address}={value}" for address, value in settings.items()))
            return f"{chips:.0f} chips in a chain would do: {' '.join(words)}"

        yield Lever(describe_chain, np.arange(2.0, layers + 1), of_chain, limits, subject=CHAIN_LENGTH)
