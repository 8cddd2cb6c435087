"""Readers: what a call costs on a machine, by fidelity. `price` and `timed` are the same for all of them."""

from functools import partial
from typing import Any

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.machine.machine import Machine
from dse.evaluators.passes.call import Kernel
from dse.evaluators.passes.part import cut, kernel_on
from dse.evaluators.readers import closed, jobs, kernels, played, rivals
from dse.evaluators.readers.closed_collective import collective
from dse.evaluators.readers.players import PLAYERS
from dse.evaluators.readers.price import Reader

READERS: dict[str, Reader] = {"closed": closed.READER} | {
    word: Reader(
        partial(kernels.played, word, closed.kernel),
        collective,
        partial(played.product, play, closed.product),
        partial(jobs.price, word),
        partial(played.exchange, play),
        partial(played.onward, play),
        partial(played.memory, word),
        partial(played.banks, word),
        play,
    )
    for word, play in PLAYERS.items()
}
"""By fidelity."""


def reader_of(fidelity: str) -> Reader:
    """The reader of a fidelity; of one on a part of the mesh, each kernel on a part of its own."""
    word, side = cut(fidelity)
    whole = READERS[word]
    if not side:
        return whole

    def part(job: Any) -> Cost:
        from dse.evaluators.readers.part_jobs import job_on  # with the readers of all jobs

        smaller, turns = job_on(job, side)
        found = whole.job(smaller)
        return Cost(found.seconds * turns, found.activity * turns)

    def kernel(of: Kernel, on: Machine) -> Cost:  # by the algorithm that the whole mesh has
        return rivals.each(of, on, closed.kernel, lambda one: whole.kernel(kernel_on(one, side), on))

    return whole._replace(kernel=kernel, job=part)
