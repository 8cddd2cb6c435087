"""How far closed forms on tiles are from events, over random chips and sizes: of attention, and of products from memory.

    python -m tests.agreement.survey [COUNT]

prints the ratio of both times: the mean distance, the median, and what 90 % are within. `MEET` and `AHEAD` of
`kernels/attention/served.py` were chosen by it.
"""

from collections.abc import Iterator

import numpy as np

from dse.evaluators.kernels.gemm.tiling import Shape
from dse.evaluators.readers import closed_summa
from dse.evaluators.readers.events_summa import EVENTS
from dse.space.fields import replaced
from tests.agreement import draws
from tests.agreement.test_random_attention import drawn, latency
from tests.samples import asked

SEED, LARGEST = 11, 600_000
"""Of the draws; tiles times chunks of a product, beyond which another one is drawn."""


def attentions(count: int) -> Iterator[tuple[float, float]]:
    """Times in closed form and by events of random attentions, groups and slices chosen unless drawn. [s]"""
    rng = np.random.default_rng(SEED)
    for _ in range(count):
        words = drawn(rng)
        yield latency("closed", *words), latency("events", *words)


def products(count: int) -> Iterator[tuple[float, float]]:
    """The same of random products, of which a third have chosen slices, a third all of K, a third random ones. [s]"""
    rng, question = np.random.default_rng(SEED), asked("chip=tile32", "workload=gemm", "mapping=summa")
    found = 0
    while found < count:
        rows, cols = (int(side) for side in rng.choice([4, 8, 16], 2))
        channels = int(rng.choice([some for some in (2, 4, 8, 16) if some <= cols]))
        mesh = {
            "mesh.rows": rows,
            "mesh.cols": cols,
            "hbm.channels": channels,
            "tile.matrix.rows": int(rng.choice([16, 32, 64])),
        }
        chip = replaced(question.base.chip, mesh | {"hbm.channel_bandwidth": float(rng.uniform(2e10, 2e11))})
        shape = Shape(*(int(2**power) for power in rng.uniform((0, 7, 7), (11, 12, 12.5))))
        sides = {"m": int(rng.choice([16, 32, 64])), "k": int(rng.choice([128, 512, 4096])), "n": int(rng.choice([16, 32, 64]))}
        slices: dict[str, int] = ({}, {"k": shape.k}, sides)[int(rng.integers(3))]
        job = closed_summa.proposed(shape, chip, replaced(question.base.mapping.kernel, slices), int(rng.choice([1, 2, 4])))
        blocks = np.ceil(shape.m / (job.part.m * job.part.rows)) * np.ceil(shape.n / (job.part.n * cols))
        if blocks * np.ceil(shape.k / job.part.k) * job.part.rows * cols > LARGEST:
            continue
        found += 1
        yield float(closed_summa.seconds(job)), sum(EVENTS.split(job).values())


def main() -> None:
    """Prints a line for each."""
    count = draws.count("tests.agreement.survey", __doc__)
    for name, pairs in (("attention", attentions(count)), ("products from memory", products(count))):
        ratios = np.array([closed / events for closed, events in pairs])
        low, middle, high = np.percentile(ratios, [5, 50, 95]) - 1
        distance = np.abs(np.log(ratios)).mean()
        print(f"{name}: {count} draws, mean {distance:.1%} apart, median {middle:+.1%}, 90 % within {low:+.1%} to {high:+.1%}")


if __name__ == "__main__":
    main()
