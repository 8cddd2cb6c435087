"""Cost models by fidelity: time and activity of a call on a machine.

`call_cost` and `block_timeline` are the same for all of them.
"""

from functools import partial
from typing import Any

from dse.evaluators.calls.call import MeshKernel
from dse.evaluators.calls.submesh import kernel_on_submesh, parse_fidelity
from dse.evaluators.cost_models import analytical as closed
from dse.evaluators.cost_models import fastest_algorithm as rivals
from dse.evaluators.cost_models import jobs
from dse.evaluators.cost_models import simulated_calls as played
from dse.evaluators.cost_models import simulated_kernels as kernels
from dse.evaluators.cost_models.analytical_collectives import die_allreduce_seconds
from dse.evaluators.cost_models.call_cost import CostModel
from dse.evaluators.cost_models.simulators import PLAYERS
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.machine import HardwareModel

READERS: dict[str, CostModel] = {"analytical": closed.ANALYTICAL} | {
    word: CostModel(
        partial(kernels.simulate_kernel, word, closed.kernel_cost),
        die_allreduce_seconds,
        partial(played.simulate_product, play, closed.group_product_seconds),
        partial(jobs.job_cost, word),
        partial(played.simulate_exchange, play),
        partial(played.simulate_stage_transfer, play),
        partial(played.simulate_memory_read, word),
        partial(played.simulate_bank_seconds, word),
        play,
    )
    for word, play in PLAYERS.items()
}
"""By fidelity."""


def cost_model(fidelity: str) -> CostModel:
    """Return the cost model of a fidelity; of one on a submesh, kernels run on submeshes of their own."""
    word, side = parse_fidelity(fidelity)
    whole = READERS[word]
    if not side:
        return whole

    def price_job(job: Any) -> KernelCost:
        from dse.evaluators.cost_models.submesh_jobs import job_on_submesh  # with the readers of all jobs

        smaller, turns = job_on_submesh(job, side)
        found_job = whole.job(smaller)
        return KernelCost(found_job.seconds * turns, found_job.activity * turns)

    def price_kernel(kernel: MeshKernel, hardware: HardwareModel) -> KernelCost:  # by the algorithm that the whole mesh has
        return rivals.map_choices(
            kernel, hardware, closed.kernel_cost, lambda kernel: whole.kernel(kernel_on_submesh(kernel, side), hardware)
        )

    return whole._replace(kernel=price_kernel, job=price_job)
