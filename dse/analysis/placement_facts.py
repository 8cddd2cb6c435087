"""Memory of each content of a model on a chip with memory tiers, as text of an answer."""

import numpy as np

from dse.evaluators.evaluation import limits
from dse.space.design import Design
from dse.space.limits import Limit
from dse.space.main_memory import main_memory
from dse.space.memory_tiers import placement_plan, tier_address, tiers_of
from dse.space.units import format_quantity
from dse.space.workload import BatchCase, ServingLoad, Workload


def placement_facts(design: Design, workload: Workload) -> list[tuple[str, str]]:
    """Contents of each memory of the fullest device, and tiers without any; empty without tiers.

    Of served requests, KV caches are those of one longest request.
    """
    if design.chip.tiers is None:
        return []
    if not isinstance(workload.cases[0], BatchCase | ServingLoad):
        return [("memories", "a single kernel reads main memory only; no tier is used")]
    known_limits, prefixes = limits(design, workload), placement_plan(design.mapping).prefixes
    texts = [f"main: {_contents_text(known_limits, main_memory(design.chip).address('capacity'))}"]
    for name, _ in tiers_of(design.chip):
        held = [_contents_text(known_limits, tier_address(name, "capacity")), "prefixes" if name == prefixes else ""]
        idle = f"nothing is placed in it; +mapping.memory_placement.kv={name} would (or weights, experts, prefixes)"
        texts.append(f"{name}: {', '.join(filter(None, held)) or idle}")
    return [("memories", "; ".join(texts))]


def _contents_text(known_limits: list[Limit], address: str) -> str:
    """Contents that a memory must hold, largest over cases, as text; empty string where there are none."""
    sizes = dict[str, float]()
    for part, value in (item for limit in known_limits if limit.address == address for item in limit.parts):
        sizes[part] = max(sizes.get(part, 0.0), float(np.max(value)))
    return ", ".join(f"{part} {format_quantity(size, 'B')}" for part, size in sizes.items() if size >= 1)
