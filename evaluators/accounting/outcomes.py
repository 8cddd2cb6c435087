"""Results for many designs: metrics in columns, the most violated limit, and refused designs."""

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from dse.evaluators.accounting.metrics import METRICS
from dse.space.array_math import Array
from dse.space.design import PREFILL_ADDRESS
from dse.space.errors import DesignError
from dse.space.former_words import FORMER_METRICS, read_metric
from dse.space.limits import Infeasibility
from dse.space.main_memory import CAPACITY_LIMITS, memory_leaves
from dse.space.mapping import FormatPlan
from dse.space.memory_tiers import TIER_LIMITS, PlacementPlan

_ONE_CHIP_LIMITS = {
    "chip.die.reticle": "mm2",
    "chip.die.memory_edge_share": "mm",
    "chip.die.max_power_density": "W/mm2",
    "chip.clock": "Hz",
    **dict.fromkeys(CAPACITY_LIMITS, "B"),
    "chip.network.ports": "1",
    "chip.dies": "1",
    "chip.d2d.ports": "1",
    "chip.nodes.size": "1",
    "mapping.prefill.all_to_all": "layout",
    "mapping.decode.all_to_all": "layout",
    "mapping.prefill.allreduce": "layout",
    "workload.batch": "1",
    "mapping.prefill.placement": "layout",
    "mapping.decode.placement": "layout",
    "mapping.prefill.ep": "1",
    "mapping.decode.ep": "1",
    "mapping.decode.tp": "1",
    "chip.core.sram": "B",
    "chip.tile.sram": "B",
    "chip.mesh.rows": "1",
    "chip.mesh.cols": "1",
    "chip.noc.routing_paths": "1",
    "mapping.prefill.cols": "1",
    "mapping.prefill.rows": "1",
    "mapping.decode.rows": "1",
    "mapping.serving.block_size": "1",
    "mapping.serving.prefix_cache_share": "1",
    "mapping.serving.max_batched_tokens": "1",
    "mapping.prefill.regions": "1",
    "mapping.decode.regions": "1",
    "mapping.simulated_layers": "1",
    "model.max_position": "token",
    "mapping.prefill.tp": "1",
    "mapping.prefill.pp": "1",
    "mapping.decode.pp": "1",
    "mapping.rows": "1",
    "mapping.cols": "1",
    "chip.memory": "B",
    **dict.fromkeys((f"chip.{part}" for part in memory_leaves("banks")), "B"),
    "mapping.requesters": "1",
    "mapping.prefill.dp": "1",
    "mapping.decode.dp": "1",
    "mapping.decode.microbatch_size": "1",
    "mapping.prefill.microbatches": "1",
    "mapping.decode.microbatches": "1",
    "mapping.serving.admission": "layout",
    "mapping.decode.max_chunk_tokens": "1",
    "mapping.decode.partition": "layout",
    "mapping.both.partition": "layout",
    "mapping.both.allreduce": "layout",
    "mapping.both.allreduce.algorithm": "layout",
    "mapping.sram_kv_share": "layout",
    "mapping.decode.kv_heads": "layout",
    **{f"mapping.precision.{field.name}": "layout" for field in fields(FormatPlan)},
    "mapping.serving.prefill_cores": "1",
    "mapping.serving.decode_cores": "1",
    "mapping.serving.kv_blocks": "1",
    "mapping.serving.reserved_memory": "B",
    "workload.group": "1",
    "workload.root": "1",
    "workload.traffic": "1",
    "mapping.prefill.attention.rows": "1",
    "mapping.prefill.attention.cols": "1",
    "mapping.prefill.gemm.rows": "1",
    "mapping.prefill.gemm.split_k": "1",
    "mapping.decode.gemm.split_k": "1",
    "mapping.split_k": "1",
    "mapping.decode.attention.rows": "1",
    "mapping.decode.attention.cols": "1",
    "mapping.decode.gemm.rows": "1",
    "mapping.decode.prefetch": "layout",
    "mapping.decode.allreduce": "layout",
    "mapping.prefill.experts.shared_copies": "layout",
    "mapping.decode.experts.shared_copies": "layout",
    "mapping.prefill.experts.redundant": "layout",
    "mapping.decode.experts.redundant": "layout",
    "mapping.members": "1",
    "mapping.placement": "layout",
    "mapping.collective": "layout",
    "mapping.stack.ring_collectives": "layout",
    "mapping.stack.matrix_energy": "layout",
    "workload.ttft": "s",
    "workload.tpot": "s",
    "workload.slo_percentile": "1",
    "mapping.serving.prefill_instances": "1",
    "chip.chain.chips": "1",
    "chip.die.dies": "1",
    "chip.die_link.link_bandwidth": "B/s",
    "chip.die.built_cores": "1",
    **dict.fromkeys(TIER_LIMITS, "B"),
    "chip.dram.footprint": "mm2",
    **{f"mapping.memory_placement.{field.name}": "layout" for field in fields(PlacementPlan)},
}

SILICON_LIMITS = (
    _ONE_CHIP_LIMITS
    | {
        f"{PREFILL_ADDRESS}{address}": unit
        for address, unit in _ONE_CHIP_LIMITS.items()
        if address.startswith(("chip.", "mapping."))
    }
    | {"pools.link.kv": "layout"}
)
"""Limits that can be violated, with their units; those of a prefill pool on chips of another kind last."""


class MetricColumns(dict[str, Array]):
    """Values by metric as arrays; a metric that is absent reads as NaN.

    Args:
        shape: of the values of a metric.

    >>> found = MetricColumns((2,))
    >>> found["ttft"], "ttft" in found
    (array([nan, nan]), False)
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def __missing__(self, name: str) -> Array:
        if name in FORMER_METRICS:
            return self[read_metric(name)]
        if name not in METRICS:
            raise KeyError(name)
        return np.full(self.shape, np.nan)

    def put(self, name: str, at: Any, value: Any) -> None:
        """Write values of a metric at an index of its array; unwritten places are NaN."""
        if name not in self:
            self[name] = np.empty(self.shape)
            if at is not ...:
                self[name].fill(np.nan)
        self[name][at] = value

    def __reduce__(self) -> tuple[Any, ...]:
        return MetricColumns, (self.shape,), None, None, iter(self.items())


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Results for many designs, in the order in which the designs were given.

    Attributes:
        columns: by metric that some design has, shape (designs,); also for infeasible designs, as if the limit were not there.
        limit: most violated limit of each design, an index into `SILICON_LIMITS`; -1 if all hold. Shape (designs,).
        need, have: of that limit; 0 where all hold.
        cases: by metric, shape (cases, designs); with ``fits``, whether the case fits in memory; empty unless asked for.
        left: metrics that exist but were not requested.
        refused: by row, why a design's options cannot be combined, as one line; its limit is at the first option.
        external: metrics that an installed package returned for some design; others are the analytical model's.
    """

    columns: MetricColumns
    limit: Array
    need: Array
    have: Array
    cases: dict[str, Array] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)
    external: set[str] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.limit)

    @property
    def feasible(self) -> Array:
        """Mask of designs that keep every limit, shape (designs,)."""
        return self.limit < 0

    @property
    def excess(self) -> Array:
        """Need / have - 1 of the most violated limit of each design; 0 where all limits hold."""
        return np.where(self.feasible, 0.0, self.need / np.maximum(self.have, 1e-300) - 1)

    def require_compatible(self) -> "Outcomes":
        """The same outcomes, or an error if options of a design conflict; for designs given one by one.

        Raises:
            DesignError: options of one design cannot be combined.
        """
        for reason in self.refused.values():
            raise DesignError(reason)
        return self

    def row_outcome(self, row: int) -> dict[str, float] | Infeasibility:
        """Metrics of one design, or its most violated limit if infeasible."""
        index = int(self.limit[row])
        if index < 0:
            return {name: float(column[row]) for name, column in self.columns.items()}
        name = list(SILICON_LIMITS)[index]
        reason = self.refused.get(row, "").partition(": ")[2]
        return Infeasibility(name, float(self.need[row]), float(self.have[row]), SILICON_LIMITS[name], remedy=reason)


def empty_outcomes(size: int, cases: int = 0) -> Outcomes:
    """Empty results for `size` designs, optionally with arrays per case."""
    each = MetricColumns((cases, size)) if cases else {}
    if cases:
        each["fits"] = np.ones((cases, size))
    limit = np.empty(size, dtype=np.int16)
    limit.fill(-1)
    return Outcomes(MetricColumns((size,)), limit, np.zeros(size), np.zeros(size), each)
