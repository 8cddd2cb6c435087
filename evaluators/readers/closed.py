"""The closed reader: collectives and products on groups by their formulas, reads by a rate; over one design or many at once."""

from functools import partial
from typing import Any

from dse.evaluators.kernels.collective import allreduce, two_level
from dse.evaluators.kernels.cost import Cost as KernelCost
from dse.evaluators.kernels.gemm.tiling import Shape
from dse.evaluators.kernels.partition import partition
from dse.evaluators.kernels.registry import module_of
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.machine.link import Links, spread
from dse.evaluators.machine.machine import Machine
from dse.evaluators.passes.call import Group, Kernel, Opener, Product
from dse.evaluators.readers import jobs
from dse.evaluators.readers.price import Reader
from dse.space.elementwise import where


def collective(of: Opener, machine: Machine) -> Any:
    """Seconds of an allreduce between dies, across nodes where one does not hold them all."""
    network = machine.network
    assert network is not None
    algorithm, bandwidth = allreduce(of.algorithm), network.bandwidth * network.achieved
    if network.nodes is None:
        seconds = algorithm.cost(of.nbytes, Links(of.peers, bandwidth, network.latency, network.latency_per)).seconds
    else:
        nodes, members = spread(of.peers, network.nodes.size)
        within = Links(members, bandwidth, network.latency, network.latency_per)
        between = Links(nodes, network.nodes.bandwidth / members, network.nodes.latency, network.latency_per)
        seconds = two_level.cost(algorithm, of.nbytes, within, between).seconds
    return seconds if of.recorded else seconds + where(of.peers > 1, network.call, 0.0)


def kernel(of: Kernel, on: Fabric) -> KernelCost:
    """One run of a kernel on a mesh, from its closed form."""
    cost: KernelCost = module_of(of.kind, of.algorithm).cost(of.shape, of.mesh, on, **of.options)
    return cost


def product(group: Group, of: Product, machine: Machine, width: float) -> tuple[Any, Any]:
    """Seconds of a product on a group, and those of its engines."""
    way, shape = partition(group.partition), Shape(of.m, of.k, of.n)
    found: tuple[Any, Any] = way.cost(
        shape, group.placement, group.cores, machine.fabric, machine.engines, width, **group.options
    )
    return found


READER = Reader(kernel, collective, product, partial(jobs.price, "closed"))
