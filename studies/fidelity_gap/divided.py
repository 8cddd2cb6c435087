"""Random products divided over groups of NPU cores, by analytical model and by events."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dse.evaluators.calls.call import CallProduct, CoreGroupSplit
from dse.evaluators.cost_models import READERS
from dse.evaluators.machine.machine import tile_core_machine
from dse.space.mapping import PARTITIONS, PLACEMENTS
from dse.studies.fidelity_gap.kernels import preset

NEAR = 0.1
"""What counts as near."""

LARGEST = 16384
"""Side of a matrix; sides are spread evenly by their logarithms."""

MOVING = tuple(name for name in PARTITIONS if name != "input_only")
"""Partitions that send something."""


class DividedProduct(NamedTuple):
    """A product divided over a group of cores, with its times at two fidelities. [s]"""

    partition: str
    placement: str
    routing: str
    chip: str
    cores: int
    m: int
    k: int
    n: int
    closed: float
    events: float

    @property
    def gap(self) -> float:
        """Relative excess of the analytical time over the event simulation's."""
        return self.closed / self.events - 1


def sample_products(count: int, seed: int) -> Iterator[DividedProduct]:
    """Random products, ragged ones included, on 2 to 16 cores."""
    rng = np.random.default_rng(seed)
    core_machines = {name: tile_core_machine(preset(name)) for name in ("npu64", "npu256")}
    for _ in range(count):
        name = str(rng.choice(list(core_machines)))
        way, placement = str(rng.choice(MOVING)), str(rng.choice(PLACEMENTS))
        routing, cores = str(rng.choice(("wormhole", "locked"))), int(rng.integers(2, 17))
        m, k, n = (int(side) for side in np.exp(rng.uniform(0, np.log(LARGEST), 3)))
        machine = core_machines[name]._replace(fabric=core_machines[name].fabric._replace(locked=float(routing == "locked")))
        given = (CoreGroupSplit(way, placement, cores), CallProduct(1.0, m, max(k, cores), n), machine, 2.0)
        (closed, _), (played, _) = (READERS[reader].product(*given) for reader in ("analytical", "events"))
        yield DividedProduct(way, placement, routing, name, cores, m, max(k, cores), n, float(closed), float(played))
