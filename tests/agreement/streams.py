"""How near the closed form of streams comes to what is played, over random memories: python -m tests.agreement.streams 500"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dse.evaluators.accounting.kernel_workloads import memory_stream as streams
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.dram import HASHES, ORDERS, MemorySystem, capacity_bytes, check_memory
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.mapping import Mapping, MemoryStreamPlan
from dse.space.workload import MemoryStreamCase
from tests.agreement import draws
from tests.samples import memory

GENERATIONS = ("hbm2", "hbm3", "hbm4", "hbm2_legacy")


class Compared(NamedTuple):
    """A stream on a memory, and its time as a formula over that as played."""

    design: Design
    stream: MemoryStreamCase
    ratio: float


def compared(count: int, seed: int, requests: int = 500) -> Iterator[Compared]:
    """Random streams on random memories; every fourth one writes too."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        memory, case = _memory(rng), _stream(rng, number % 4 == 3, requests)
        while case.step > min(case.span, capacity_bytes(memory)):
            case = _stream(rng, number % 4 == 3, requests)
        mapping = MemoryStreamPlan(
            requesters=int(rng.choice([1, 1, 1, 4, 16])), window=int(rng.choice([0, 0, 1, 4, 16, 64, 256]))
        )
        design = Design(chip=Chip(memory=memory), mapping=Mapping(kernel=mapping))
        yield Compared(design, case, streams._price_stream(design, case).seconds / streams._memory_report(design, case).seconds)


def _memory(rng: np.random.Generator) -> MemorySystem:
    """Any generation, order of bits, hashing, granularity; half of the time other banks, and other times between commands."""
    while True:
        given_memory = memory(
            str(rng.choice(GENERATIONS)), channels=int(rng.integers(1, 4)), pseudo=int(rng.integers(1, 3)),
            order=str(rng.choice(sorted(ORDERS))), hashed=str(rng.choice(HASHES)),
        )  # fmt: skip
        changes = {"granularity": float(given_memory.access * 2 ** rng.integers(0, 4))}
        if rng.random() < 0.5:
            changes |= {"groups": int(2 ** rng.integers(0, 4)), "banks": int(2 ** rng.integers(0, 3))}
        if rng.random() < 0.5:
            t = given_memory.timing
            changes |= {"timing.faw": int(rng.integers(t.rrd_s, 4 * t.rrd_l + 20)), "timing.rp": int(rng.integers(5, 40))}
            changes |= {"timing.ccd_l": int(rng.integers(t.ccd_s, 9)), "timing.rcd_read": int(rng.integers(5, min(40, t.ras)))}
        given_memory = replace_leaves(given_memory, changes)
        try:
            check_memory(given_memory)
        except DesignError:
            continue
        return given_memory


def _stream(rng: np.random.Generator, writes: bool, requests: int) -> MemoryStreamCase:
    pattern, request = (
        str(rng.choice(["sequential", "random", "stride", "stride", "chunk"])),
        int(rng.choice([32, 64, 128, 256])),
    )
    step = request * int(rng.integers(1, 65)) if pattern == "chunk" else 0
    if pattern == "stride":
        step = int(2 ** rng.integers(6, 18)) if rng.random() < 0.5 else int(rng.integers(1, 3000)) * 32
    share = float(rng.choice([0.1, 0.33, 0.5, 1.0])) if writes else 0.0
    return MemoryStreamCase(
        "", pattern, step, share, request, 0.0, 1 << int(rng.integers(22, 31)), requests, int(rng.integers(100))
    )


def main(count: int) -> None:
    """How many are near, reads and with writes, and the worst."""
    streams_compared = list(compared(count, 0, 1000))
    for name, group in (
        ("reads", [comparison for comparison in streams_compared if not comparison.stream.writes]),
        ("with writes", [comparison for comparison in streams_compared if comparison.stream.writes]),
    ):
        ratios = np.array([comparison.ratio for comparison in group])
        low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9))
        near = (np.abs(ratios - 1) < 0.15).mean()
        print(
            f"{name}: {len(group)}, within 15 % {near:.0%}; time over played: {low:.2f} {middle:.2f} {high:.2f} (10, 50, 90 %)"
        )
        for comparison in sorted(group, key=lambda comparison: -abs(np.log(comparison.ratio)))[:5]:
            memory, case, mapping = comparison.design.chip.memory, comparison.stream, comparison.design.mapping  # type: ignore[union-attr]
            what = f"{case.pattern}{case.step or ''}, {case.request} B, writes {case.writes:g}, {mapping}"
            print(
                f"  {comparison.ratio:.2f} {what}, {memory.groups} x {memory.banks}, "
                f"{memory.order}, hashed {memory.hashed}, refresh {memory.refresh}"
            )


if __name__ == "__main__":
    main(draws.count("tests.agreement.streams", __doc__))
