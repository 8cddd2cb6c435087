"""Studies that the driver's speeds are measured on, and workers that cost nothing; imports no more than a search does."""

from typing import Any

from dse.store.store import DesignResult

MILLION = (
    "name=million",
    "+objectives.throughput_per_system_mm2=max",
    "+objectives.tpot=min",
    "+space.chip.cores=range(100,600,20)",
    "+space.chip.l2.size=tag(MB,range(8,257,8))",
    "+space.chip.hbm.bandwidth=tag(GB/s,range(500,3000,100))",
    "+space.chip.network.bandwidth=tag(GB/s,range(10,100,10))",
    "+space.mapping.both.tp=choice(1,2,4,8,16,32)",
)
"""1,080,000 designs of one model."""


class Trivial:
    """An objective that costs next to nothing, so that what is timed is the driver."""

    def __init__(self) -> None:
        self._queue: list[Any] = []
        self.children, self.cpu = False, 0.0

    def submit(self, batch: Any) -> None:
        self._queue += batch

    def collect(self) -> list[DesignResult]:
        batch, self._queue = self._queue, []
        results = []
        for key, values, _ in batch:
            numbers = [float(value) for value in values.values() if not isinstance(value, str)]
            metrics = {"throughput_per_system_mm2": sum(numbers), "tpot": sum(x * x for x in numbers)}
            results.append(DesignResult(key, values, metrics))
        return results

    def close(self) -> None:
        """End; nothing is open."""


TWELVE = (
    "+space.chip.l2.size='tag(MB, interval(8,256))'",
    "+space.chip.l2.bandwidth='tag(TB/s, interval(1,20))'",
    "+space.chip.hbm.bandwidth='tag(GB/s, log, interval(500,3000))'",
    "+space.chip.network.bandwidth='tag(GB/s, log, interval(10,100))'",
    "+space.chip.cores=range(1,600)",
    "+space.chip.network.ports=range(2,100)",
    "+space.mapping.prefill.tp=range(1,100)",
    "+space.mapping.decode.tp=range(1,100)",
    "+space.mapping.stack.attention_passes=range(0,30)",
    "+space.mapping.prefill.prefetch=choice(none,whole,partial)",
    "+space.mapping.decode.prefetch=choice(none,whole,partial)",
    "+space.mapping.precision.weights=choice(int8,bf16)",
)
