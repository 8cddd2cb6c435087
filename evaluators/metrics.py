"""What comes out: the metrics by name, with unit, direction and definition, and the outcomes of many designs."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from space.elementwise import Array
from space.errors import chosen
from space.limits import Infeasible


@dataclass(frozen=True, slots=True)
class Metric:
    """One number about a design under a workload.

    Attributes:
        unit: as `space.units` spells it.
        better: "max" or "min".
        definition: one sentence.
    """

    unit: str
    better: str
    definition: str


METRICS: dict[str, Metric] = {
    "throughput": Metric("token/s", "max", "output tokens over prefill and decode time, all devices together"),
    "decode_throughput": Metric("token/s", "max", "output tokens over decode time, all devices together"),
    "ttft": Metric("s", "min", "time to first token: prefill of the batch"),
    "tpot": Metric("s", "min", "time per output token: decode time over decode steps"),
    "latency": Metric("s", "min", "prefill and decode of the batch"),
    "die_mm2": Metric("mm2", "min", "area of one die"),
    "system_mm2": Metric("mm2", "min", "area of all dies"),
    "throughput_per_die_mm2": Metric("token/s/mm2", "max", "throughput of the system over the area of one die"),
    "throughput_per_system_mm2": Metric("token/s/mm2", "max", "throughput of the system over the area of all its dies"),
    "decode_throughput_per_die_mm2": Metric("token/s/mm2", "max", "decode throughput over the area of one die"),
    "decode_throughput_per_system_mm2": Metric("token/s/mm2", "max", "decode throughput over the area of all dies"),
    "attention_layer": Metric("B", "min", "weights and KV cache of one attention layer on one device, at final lengths"),
    "ffn_layer": Metric("B", "min", "weights of the largest FFN or MoE layer on one device, all experts included"),
    "hbm_used": Metric("B", "min", "weights, KV cache and activations on one device, of the largest case"),
}
"""Every metric of a workload with several cases is the arithmetic mean over them, `hbm_used` the maximum."""

LIMITS = ("chip.hbm.capacity", "chip.network.ports", "mapping.decode.tp")
LIMIT_UNITS = {"chip.hbm.capacity": "B", "chip.network.ports": "1", "mapping.decode.tp": "1"}


def metric(name: str) -> Metric:
    """The metric of a name."""
    return chosen(METRICS, name, "metric")


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What came out for many designs, in the order they were asked.

    Attributes:
        columns: by metric, shape (designs,); also for infeasible designs, as if the limit were not there.
        limit: which limit binds most, an index into `LIMITS`; -1 where all hold. Shape (designs,).
        need, have: of that limit; 0 where all hold.
        cases: by metric, shape (cases, designs); with ``fits``, whether the case fits in memory.
    """

    columns: dict[str, Array]
    limit: Array
    need: Array
    have: Array
    cases: dict[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.limit)

    @property
    def feasible(self) -> Array:
        """Which designs keep every limit, shape (designs,)."""
        return self.limit < 0

    @property
    def excess(self) -> Array:
        """Need / have - 1 of the limit that binds; at most 0 where all hold."""
        return np.where(self.feasible, 0.0, self.need / np.maximum(self.have, 1e-300) - 1)

    def at(self, row: int) -> dict[str, float] | Infeasible:
        """One design's metrics, or what makes it infeasible."""
        index = int(self.limit[row])
        if index < 0:
            return {name: float(column[row]) for name, column in self.columns.items()}
        name = LIMITS[index]
        return Infeasible(name, float(self.need[row]), float(self.have[row]), LIMIT_UNITS[name])


def empty(size: int) -> Outcomes:
    """Outcomes to be filled."""
    return Outcomes(
        {name: np.empty(size) for name in METRICS}, np.full(size, -1, dtype=np.int8), np.zeros(size), np.zeros(size)
    )


def mean(values: Any, axis: int = 0) -> Any:
    """Mean over cases: of a float itself, of an array along its first axis."""
    return values.mean(axis=axis) if isinstance(values, np.ndarray) else values
