"""What silicon costs: a process node, main memory, what is on a die beside what takes time, and money."""

from dse.space.array_math import Number
from dse.space.fields import boolean_field, integer_field, option_field, quantity_field, record_class


@record_class
class ProcessNode:
    """One process node, the same for every chip that is made in it, sourced in ``conf/technology``.

    Energies and leakage are those at `nominal_voltage`.
    """

    multiplier: Number = quantity_field("mm2", "area of a multiply-adder of 16 bits with what feeds it; it does two of 8 bits")
    lane: Number = quantity_field("mm2*cycle/op", "area of a vector engine per operation a cycle on 16-bit values")
    simt_lane: Number = quantity_field(
        "mm2", "area of a 32-bit lane of a core of many threads, with its share of schedulers and ports", former="thread"
    )
    fp64_unit: Number = quantity_field("mm2", "area of a 64-bit multiply-adder", former="double")
    issue: Number = quantity_field("mm2*cycle/op", "area of control per instruction that a core starts in a cycle")
    sram: Number = quantity_field("mm2/B", "area of a byte of local memory, its macro's periphery and spare rows included")
    register: Number = quantity_field("mm2/B", "area of a byte of a register file")
    cache: Number = quantity_field("mm2/B", "area of a byte of a cache that cores share, with its tags, checks and queues")
    port: Number = quantity_field("mm2*cycle/B", "area of a byte a cycle out of a cache that cores share")
    bank: Number = quantity_field("mm2*cycle/B", "area of a byte a cycle out of a core's local memory")
    router: Number = quantity_field("mm2*cycle/B", "area of a router of a mesh and its links per byte a cycle of a link")
    crossbar: Number = quantity_field("mm2*cycle/B", "area of a core's way to a shared cache per byte a cycle")
    package: Number = quantity_field("mm2*s/B", "area of links to dies in the same package, per byte/s of both directions")
    module: Number = quantity_field("mm2*s/B", "area of links to dies on the same module, likewise")
    board: Number = quantity_field("mm2*s/B", "area of links to other boards, likewise")
    pcie_lane: Number = quantity_field("mm2", "area of a lane to the host", former="host")
    other_area_share: Number = quantity_field(
        "1", "share of a die that is none of this: clocks, test, power, media, space between", high=0.9, former="other"
    )
    mac: Number = quantity_field("J/op", "energy of a multiply-add of 16 bits, operands at hand")
    element: Number = quantity_field(
        "J/op", "energy of a vector operation on a 16-bit value, its registers and instruction included"
    )
    access: Number = quantity_field("J/B", "energy of a byte of a local memory of 32 KiB, read or written")
    shared: Number = quantity_field("J/B", "energy of a byte of a cache that cores share, and of the way to it")
    hop: Number = quantity_field("J/B", "energy of a byte from router to router of a mesh")
    package_energy_per_byte: Number = quantity_field(
        "J/B", "energy of a byte to another die of the package", former="package_byte"
    )
    module_energy_per_byte: Number = quantity_field(
        "J/B", "energy of a byte to another die of the module", former="module_byte"
    )
    board_energy_per_byte: Number = quantity_field("J/B", "energy of a byte to another board", former="board_byte")
    static_power_density: Number = quantity_field(
        "W/mm2", "power of a die whatever it does: leakage, and clocks that never stop", former="static"
    )
    nominal_voltage: Number = quantity_field("V", "supply at which energies are stated", positive=True, former="volts")
    min_voltage: Number = quantity_field("V", "lowest supply at which memories work", positive=True, former="least")
    max_voltage: Number = quantity_field("V", "highest supply that lasts", positive=True, former="most")
    threshold_voltage: Number = quantity_field("V", "of transistors", former="threshold")
    nominal_clock: Number = quantity_field(
        "Hz", "clock of a usual design at `nominal_voltage`; a chip may be built for another", positive=True, former="speed"
    )
    wafer_price: Number = quantity_field("USD", "price of a wafer of 300 mm", positive=True, former="wafer")
    defect_density: Number = quantity_field("1/cm2", "that kill what they hit", former="defects")
    clustering: Number = quantity_field("1", "of defects (alpha of the negative binomial)", positive=True)


@record_class
class PaperAreas:
    """A paper's own area model, in the place of the node's, for reproducing it."""

    core: Number = quantity_field("mm2*s/op", "area of a core with its private memory, per op/s of its matrix engine")
    l2: Number = quantity_field("mm2/B", "area of a byte of L2")
    hbm_phy: Number = quantity_field("mm2*s/B", "area of the HBM interface per byte/s of bandwidth")
    link_phy: Number = quantity_field("mm2*s/B", "area of a die-to-die port per byte/s and direction")


@record_class
class DramDevices:
    """Main memory as it is bought: devices beside the die."""

    device_bandwidth: Number = quantity_field(
        "B/s", "bandwidth of a device: a stack of HBM, a chip of GDDR", positive=True, former="device"
    )
    phy_area: Number = quantity_field("mm2", "area of the interface to a device and of its controller", former="phy")
    edge_length: Number = quantity_field("mm", "of a die's edge that a device takes", former="edge")
    energy_per_byte: Number = quantity_field(
        "J/B", "energy of a byte, read or written, both interfaces included", former="byte"
    )
    idle_power: Number = quantity_field("W", "of a device that does nothing", former="idle")
    price: Number = quantity_field("USD/B", "of its capacity")


@record_class
class BaseDies:
    """Dies below those with cores, on which they stand: shared cache, interfaces of main memory and links are there."""

    dies: Number = integer_field("of them")
    via_area_share: Number = quantity_field(
        "1", "area of what goes through them to the dies above, over the area of these", former="room"
    )


@record_class
class Carrier:
    """What many dies are joined on, with their main memory beside them: a wafer or a panel with wires from die to die."""

    price: Number = quantity_field(
        "USD/mm2", "of it, tested, for the area of dies and of devices of main memory that it carries"
    )
    bond_yield: Number = quantity_field(
        "1", "share of good dies that still work when they are joined; all have to", high=1.0, positive=True, former="bond"
    )


REACHES = ("package", "module", "board")
"""How far links to other dies reach."""


@record_class
class DieBudget:
    """What is on a die beside what takes time, how many dies make the chip, and how it is made."""

    dies: Number = integer_field(
        "dies of the chip, which share all of it evenly; 0 for as few as the reticle and the edges let", low=0
    )
    is_wafer: bool = boolean_field("whether a die is as large as it has to be, as a whole wafer is", former="wafer")
    built_cores: Number = integer_field(
        "cores on all dies of the chip, spare ones included; 0 for those that are used", low=0, former="cores"
    )
    built_cache_ratio: Number = quantity_field("1", "shared cache on the dies over that which is used", low=1.0, former="spare")
    built_memory_ratio: Number = quantity_field(
        "1", "interfaces of main memory on the dies over those that are used", low=1.0, former="sites"
    )
    simt_ops: Number = quantity_field(
        "op/cycle",
        "16-bit operations a cycle of a lane of a core of many threads; 0 where vector engines run one",
        former="threads",
    )
    fp64_units: Number = quantity_field("1", "64-bit multiply-adders of a core", former="doubles")
    issue_rate: Number = quantity_field("op/cycle", "instructions that a core starts in a cycle", former="issue")
    register_size: Number = quantity_field("B", "register files of a core", former="registers")
    l1_size: Number = quantity_field("B", "memories of a core of a pool, which software does not see", former="private")
    operand_reuse: Number = quantity_field(
        "1", "multiply-adds of a matrix engine for each operand that it reads", positive=True, former="reuse"
    )
    nominal_clock: Number = quantity_field(
        "Hz", "clock at the node's own supply; 0 for that of a usual design of the node", former="speed"
    )
    die_link_reach: str = option_field(
        "how far links between the dies of the chip reach: package, module or board", REACHES, former="near"
    )
    die_link_bandwidth: Number = quantity_field(
        "B/s",
        "of links between the dies of the chip, both directions, at both ends of each; a mesh that is cut adds",
        former="between",
    )
    chip_link_reach: str = option_field("how far links to other chips reach: package, module or board", REACHES, former="reach")
    unused_link_bandwidth: Number = quantity_field(
        "B/s", "of links to other chips that no workload uses, all of them, both directions", former="outside"
    )
    pcie_lanes: Number = integer_field("lanes to the host", low=0, former="host")
    memory_edge_share: Number = quantity_field(
        "1", "share of the edges of dies at which devices of main memory can be", high=1.0, positive=True, former="shore"
    )
    reticle: Number = quantity_field("mm2", "largest die that can be exposed", positive=True)
    max_power_density: Number = quantity_field("W/mm2", "power that can be taken off a die", positive=True, former="cooling")


@record_class
class Economics:
    """What a chip costs to make and to run, in one currency."""

    package: Number = quantity_field("USD/mm2", "carrier, interposer and assembly, per area of dies")
    assembly_yield: Number = quantity_field(
        "1", "share of packages that work, of those with good dies", high=1.0, positive=True, former="assembly"
    )
    test: Number = quantity_field("USD", "test of a chip")
    board: Number = quantity_field("USD", "share of a chip in its server: host, memory, case, power supply")
    scale_up_price: Number = quantity_field(
        "USD*s/B", "links and switches of a chip in a node of eight, per byte/s and direction that leaves it", former="network"
    )
    scale_out_price: Number = quantity_field(
        "USD*s/B", "switches and cables between servers, per byte/s and direction of a chip's port", former="fabric"
    )
    scale_out_power: Number = quantity_field("W*s/B", "power of them, likewise", former="fabric_power")
    facility_price: Number = quantity_field(
        "USD/W", "of power and cooling of the data centre, over its share of a chip's life", former="cooling"
    )
    host_power: Number = quantity_field("W", "share of a chip in the power of its server")
    power_supply_efficiency: Number = quantity_field(
        "1", "share of the power of a server that arrives", high=1.0, positive=True, former="supply"
    )
    pue: Number = quantity_field("1", "power of the data centre over that of its servers", low=1.0)
    electricity_price: Number = quantity_field("USD/J", "of electricity", former="electricity")
    lifetime: Number = quantity_field("s", "over which a chip is paid for", positive=True, former="life")
    duty_cycle: Number = quantity_field("1", "share of its life in which it works", high=1.0, positive=True, former="busy")
    markup: Number = quantity_field("1", "price over cost", positive=True)
