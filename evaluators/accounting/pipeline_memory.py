"""Contents of the memories of a core in a pipeline of tile groups, for batches and serving loads."""

from typing import Any

from dse.evaluators.accounting.memory_contents import (
    ACTIVATIONS,
    CACHE,
    MemoryContents,
    core_memory_contents,
    main_memory_contents,
)
from dse.evaluators.layouts.residency import CoreResidency
from dse.space.chip import Chip
from dse.space.main_memory import main_memory
from dse.space.mapping import PipelinePlan


def core_contents(chip: Chip, plan: PipelinePlan, held: CoreResidency, cached: Any) -> tuple[MemoryContents, MemoryContents]:
    """Contents of the fullest core's share of main memory, and of its local memory.

    Args:
        chip, plan: of the phase.
        held: memory of the core.
        cached: KV cache in its share of main memory. [B]
    """
    weights = (1 - held.weights_here) * held.weights
    local = [(ACTIVATIONS, held.activations)]
    if plan.attention is not None:
        local.append(("slices of attention beyond", held.slices))
    stored, capacity = (("weights", weights), (CACHE, cached)), main_memory(chip).capacity_per_core
    main = main_memory_contents(chip, stored, cache=held.kv + held.states, capacity=capacity)
    return main, core_memory_contents(chip, tuple(local), held.sram - held.activations - held.slices)
