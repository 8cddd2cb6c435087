"""What silicon costs at a node: area per compute throughput, per byte of cache and per unit of off-die bandwidth."""

from space.elementwise import Number
from space.fields import quantity, record


@record
class Technology:
    """Area constants of one process node, each sourced in ``conf/technology``."""

    core: Number = quantity("mm2*s/op", "area of a core with its private memory, per op/s of its matrix engine")
    l2: Number = quantity("mm2/B", "area of one byte of L2 cache")
    hbm_phy: Number = quantity("mm2*s/B", "area of the HBM interface per byte/s of bandwidth")
    link_phy: Number = quantity("mm2*s/B", "area of a die-to-die port per byte/s and direction")
