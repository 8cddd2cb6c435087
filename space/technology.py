"""What silicon costs at a node: area per compute throughput, per byte of cache and per unit of off-die bandwidth."""

from dse.space.elementwise import Number
from dse.space.fields import quantity, record


@record
class Technology:
    """Area constants of one process node, each sourced in ``conf/technology``."""

    core: Number = quantity("mm2*s/op", "area of a core with its private memory, per op/s of its matrix engine")
    l2: Number = quantity("mm2/B", "area of one byte of L2 cache")
    hbm_phy: Number = quantity("mm2*s/B", "area of the HBM interface per byte/s of bandwidth")
    link_phy: Number = quantity("mm2*s/B", "area of a die-to-die port per byte/s and direction")


@record
class MeshTechnology:
    """Area and energy of a mesh of cores."""

    core: Number = quantity("mm2", "area of a core without its memory: engine, router, control")
    sram: Number = quantity("mm2/B", "area of one byte of a core's memory")
    mac: Number = quantity("J/op", "energy of a multiply-add with its operands from memory")
    element: Number = quantity("J/op", "energy of a vector operation with its operands from memory")
    copy: Number = quantity("J/B", "energy of a byte between memory and router, both ends")
    hop: Number = quantity("J/B", "energy of a byte from router to router")
    static: Number = quantity("W/mm2", "power that does not depend on what is computed: clocks, leakage, instructions")


@record
class TileTechnology:
    """Area and energy of a mesh of tiles with HBM."""

    multiplier: Number = quantity("mm2", "area of one multiply-adder of a matrix engine")
    lane: Number = quantity("mm2*cycle/op", "area of a vector engine per operation a cycle")
    sram: Number = quantity("mm2/B", "area of one byte of local memory")
    router: Number = quantity("mm2/B", "area of a router and its links per byte of link width")
    control: Number = quantity("mm2", "area of what else a tile has: scalar cores, DMA engine")
    hbm_phy: Number = quantity("mm2*s/B", "area of the HBM interface per byte/s of bandwidth")
    mac: Number = quantity("J/op", "energy of a multiply-add in the array, operands from registers")
    element: Number = quantity("J/op", "energy of a vector operation, operands from registers")
    access: Number = quantity("J/B", "energy of a byte of local memory, read or written")
    hop: Number = quantity("J/B", "energy of a byte from router to router")
    hbm: Number = quantity("J/B", "energy of a byte of HBM, read or written, its interface included")
    static: Number = quantity("W/mm2", "power that does not depend on what is computed: clocks, leakage, instructions")
