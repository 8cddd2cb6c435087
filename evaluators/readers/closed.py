"""The closed reader: collectives and products on groups by their formulas, reads by a rate; over one design or many at once."""

from functools import partial
from typing import Any

from dse.evaluators.kernels.cost import Cost as KernelCost
from dse.evaluators.kernels.gemm.tiling import Shape
from dse.evaluators.kernels.partition import onward as stages
from dse.evaluators.kernels.partition import partition, ring, ring_attention
from dse.evaluators.kernels.partition.onward import Onward, Way
from dse.evaluators.kernels.registry import module_of
from dse.evaluators.machine.engine import Engines
from dse.evaluators.machine.machine import Machine
from dse.evaluators.passes.call import Exchange, Group, Kernel, Product
from dse.evaluators.readers import jobs, rivals
from dse.evaluators.readers.closed_collective import collective
from dse.evaluators.readers.price import Reader
from dse.space.mapping import AUTO


def kernel(of: Kernel, machine: Machine) -> KernelCost:
    """One run of a kernel on a mesh, from its closed form; of the quickest of its rivals, where it has some."""
    if of.rivals:
        return rivals.quickest(of, machine, kernel)
    module, fabric = module_of(of.kind, of.algorithm), machine.fabric
    assert fabric is not None
    if machine.engines is not None and of.kind == "gemm":
        fabric = fabric._replace(mac=multiply_add(module, of, machine), call=0.0)
    cost: KernelCost = module.cost(of.shape, of.mesh, fabric, **of.options)
    return cost


def multiply_add(module: Any, of: Kernel, machine: Machine) -> Any:
    """Of a tile's engine on the product that a core multiplies at a time, which its operands' slots say. [s]"""
    assert isinstance(machine.engines, Engines)
    a, b = (next(slot for slot in module.slots(of.shape, of.mesh, "float16") if slot.name == name) for name in ("a", "b"))
    m, k = a.shape[-2:]
    n = b.shape[-2] * b.shape[-1] / k  # transposed or not
    return machine.engines.product(m, k, n, float(a.itemsize)) / (m * k * n * 1.0)


def product(group: Group, of: Product, machine: Machine, width: float) -> tuple[Any, Any]:
    """Seconds of a product on a group, and those of its engines; with the quickest sums where none are said."""
    if group.partition == AUTO:
        return rivals.each_way(group, lambda one: product(one, of, machine, width))
    if group.sums == AUTO:
        return rivals.quickest_sums(group, of, machine, width, product)
    way, shape = partition(group.partition), Shape(of.m, of.k, of.n)
    found: tuple[Any, Any] = way.cost(
        shape, group.placement, group.cores, machine.fabric, machine.engines, width, **group.options
    )
    return found


def exchange(of: Exchange, machine: Machine, work: Any = 0.0) -> Any:
    """Seconds of slices that go around a group; where cores work on them for some time, those beyond that."""
    assert machine.fabric is not None
    if of.attended:
        return of.times * ring_attention.cost(of.placement, of.cores, of.nbytes, work, machine.fabric)
    return of.times * ring.cost(of.placement, of.cores, of.nbytes, machine.fabric)


def onward(way: Way, nbytes: Any, machine: Machine) -> Onward:
    """Seconds of a message from stage to stage."""
    assert machine.fabric is not None
    return stages.cost(way, nbytes, machine.fabric)


READER = Reader(kernel, collective, product, partial(jobs.price, "closed"), exchange, onward)
