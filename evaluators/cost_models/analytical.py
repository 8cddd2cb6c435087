"""Analytical cost model: formulas for collectives and products on groups, and rates for reads.

It takes one design, or many at once.
"""

from functools import partial
from typing import Any

from dse.evaluators.calls.call import CallProduct, CoreGroupSplit, GroupExchange, MeshKernel
from dse.evaluators.cost_models import fastest_algorithm as rivals
from dse.evaluators.cost_models import jobs
from dse.evaluators.cost_models.analytical_collectives import die_allreduce_seconds
from dse.evaluators.cost_models.call_cost import CostModel
from dse.evaluators.kernels.gemm.tiling import GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost as KernelCost
from dse.evaluators.kernels.partition import find_partition, ring_attention
from dse.evaluators.kernels.partition import ring_collectives as ring
from dse.evaluators.kernels.partition import stage_transfer as stages
from dse.evaluators.kernels.partition.stage_transfer import PipelinePlacement, StageTransferTime
from dse.evaluators.kernels.registry import kernel_module
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.machine import HardwareModel
from dse.space.mapping import AUTO


def kernel_cost(kernel: MeshKernel, machine: HardwareModel) -> KernelCost:
    """Time [s] and activity of one run of a kernel on a mesh; of the fastest candidate, if it has any."""
    if kernel.rivals:
        return rivals.fastest_kernel_cost(kernel, machine, kernel_cost)
    module, fabric = kernel_module(kernel.kind, kernel.algorithm), machine.fabric
    assert fabric is not None
    if machine.engines is not None and kernel.kind == "gemm":
        fabric = fabric._replace(mac=local_product_seconds(module, kernel, machine), call=0.0)
    cost: KernelCost = module.cost(kernel.shape, kernel.mesh, fabric, **kernel.options)
    return cost


def local_product_seconds(module: Any, kernel: MeshKernel, machine: HardwareModel) -> Any:
    """Time per multiply-add of a core's local product on a tile's matrix engine. [s]"""
    assert isinstance(machine.engines, TileEngines)
    a, b = (
        next(slot for slot in module.buffers(kernel.shape, kernel.mesh, "float16") if slot.name == name) for name in ("a", "b")
    )
    m, k = a.shape[-2:]
    n = b.shape[-2] * b.shape[-1] / k  # transposed or not
    return machine.engines.product(m, k, n, float(a.itemsize)) / (m * k * n * 1.0)


def group_product_seconds(group: CoreGroupSplit, product: CallProduct, machine: HardwareModel, width: float) -> tuple[Any, Any]:
    """Time of a product on a group, and of its engines; with the fastest sums if left open. [s], [s]"""
    if group.partition == AUTO:
        return rivals.map_partitions(group, lambda group_split: group_product_seconds(group_split, product, machine, width))
    if group.sums == AUTO:
        return rivals.fastest_product_seconds(group, product, machine, width, group_product_seconds)
    way, shape = find_partition(group.partition), GemmShape(product.m, product.k, product.n)
    product_seconds: tuple[Any, Any] = way.cost(
        shape, group.placement, group.cores, machine.fabric, machine.engines, width, **group.options
    )
    return product_seconds


def exchange_seconds(exchange: GroupExchange, machine: HardwareModel, work: Any = 0.0) -> Any:
    """Time of slices that go around a group, beyond any work of cores on them. [s]"""
    assert machine.fabric is not None
    if exchange.attended:
        return exchange.times * ring_attention.ring_attention_wait(
            exchange.placement, exchange.cores, exchange.nbytes, work, machine.fabric
        )
    return exchange.times * ring.ring_seconds(exchange.placement, exchange.cores, exchange.nbytes, machine.fabric)


def stage_transfer_seconds(way: PipelinePlacement, nbytes: Any, machine: HardwareModel) -> StageTransferTime:
    """Time of a message from stage to stage of a pipeline. [s]"""
    assert machine.fabric is not None
    return stages.stage_transfer_time(way, nbytes, machine.fabric)


ANALYTICAL = CostModel(
    kernel_cost,
    die_allreduce_seconds,
    group_product_seconds,
    partial(jobs.job_cost, "analytical"),
    exchange_seconds,
    stage_transfer_seconds,
)
