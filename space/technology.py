"""Silicon records: a process node, main memory devices, die contents, and prices."""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import boolean_field, integer_field, option_field, quantity_field, record_class


@record_class
class ProcessNode:
    """One process node with its sources in ``conf/technology``, equal for every chip made in it.

    Energies and leakage are those at `nominal_voltage`.
    """

    multiplier: Number = quantity_field("mm2", "area of a 16-bit multiply-adder with operand supply; it does two 8-bit ones")
    lane: Number = quantity_field("mm2*cycle/op", "area of a vector engine per 16-bit operation per cycle")
    simt_lane: Number = quantity_field(
        "mm2", "area of a 32-bit lane of a multithreaded core, with its share of schedulers and ports", former="thread"
    )
    fp64_unit: Number = quantity_field("mm2", "area of a 64-bit multiply-adder", former="double")
    issue: Number = quantity_field("mm2*cycle/op", "area of control per instruction issued per cycle")
    sram: Number = quantity_field("mm2/B", "area of a byte of local memory, with the macro's periphery and spare rows")
    register: Number = quantity_field("mm2/B", "area of a byte of a register file")
    cache: Number = quantity_field("mm2/B", "area of a byte of a shared cache, with tags, error correction and queues")
    port: Number = quantity_field("mm2*cycle/B", "area of a shared cache's port per byte per cycle")
    bank: Number = quantity_field("mm2*cycle/B", "area of a local memory's port per byte per cycle")
    router: Number = quantity_field("mm2*cycle/B", "area of a mesh router and its links per byte per cycle of a link")
    crossbar: Number = quantity_field("mm2*cycle/B", "area of a core's connection to a shared cache per byte per cycle")
    package: Number = quantity_field("mm2*s/B", "area of links to dies in the same package, per byte/s of both directions")
    module: Number = quantity_field("mm2*s/B", "area of links to dies on the same module, per byte/s of both directions")
    board: Number = quantity_field("mm2*s/B", "area of links to other boards, per byte/s of both directions")
    pcie_lane: Number = quantity_field("mm2", "area of a lane to the host", former="host")
    other_area_share: Number = quantity_field(
        "1", "share of a die for everything else: clocks, test, power, media, gaps", high=0.9, former="other"
    )
    mac: Number = quantity_field("J/op", "energy of a 16-bit multiply-add, without operand reads")
    element: Number = quantity_field("J/op", "energy of a vector operation on a 16-bit value, with registers and instruction")
    access: Number = quantity_field("J/B", "energy of a byte of a local memory of 32 KiB, read or written")
    shared: Number = quantity_field("J/B", "energy of a byte of a shared cache, with the transfer to a core")
    hop: Number = quantity_field("J/B", "energy of a byte from router to router of a mesh")
    package_energy_per_byte: Number = quantity_field(
        "J/B", "energy of a byte to another die of the package", former="package_byte"
    )
    module_energy_per_byte: Number = quantity_field(
        "J/B", "energy of a byte to another die of the module", former="module_byte"
    )
    board_energy_per_byte: Number = quantity_field("J/B", "energy of a byte to another board", former="board_byte")
    static_power_density: Number = quantity_field(
        "W/mm2", "static power of a die per area: leakage and clocks", former="static"
    )
    nominal_voltage: Number = quantity_field(
        "V", "nominal supply voltage, at which energies are stated", positive=True, former="volts"
    )
    min_voltage: Number = quantity_field("V", "lowest supply voltage of memories", positive=True, former="least")
    max_voltage: Number = quantity_field("V", "highest lasting supply voltage", positive=True, former="most")
    threshold_voltage: Number = quantity_field("V", "of transistors", former="threshold")
    nominal_clock: Number = quantity_field(
        "Hz", "clock of a usual design at `nominal_voltage`; a chip may be built for another", positive=True, former="speed"
    )
    wafer_price: Number = quantity_field("USD", "price of a wafer of 300 mm", positive=True, former="wafer")
    defect_density: Number = quantity_field("1/cm2", "defects per area that disable what they hit", former="defects")
    clustering: Number = quantity_field("1", "clustering of defects (alpha of the negative binomial)", positive=True)


@record_class
class PaperAreas:
    """Area constants of a paper, used in place of the process node's to reproduce the paper."""

    core: Number = quantity_field("mm2*s/op", "area of a core with its private memory, per op/s of its matrix engine")
    l2: Number = quantity_field("mm2/B", "area of a byte of L2")
    hbm_phy: Number = quantity_field("mm2*s/B", "area of the HBM interface per byte/s of bandwidth")
    link_phy: Number = quantity_field("mm2*s/B", "area of a die-to-die port per byte/s and direction")


@record_class
class DieCrossings:
    """Links over which the mesh of one chip goes on from die to die: bandwidth, latency, energy and area.

    Where the last three leaves are 0, they follow from `chip.die.dies` and the area of the dies.
    """

    edge_bandwidth: Number = quantity_field("B/s/mm", "bandwidth per length of die edge, one direction", positive=True)
    latency: Number = quantity_field("s", "time of a crossing, from the router before it to the router behind it, beside a hop")
    energy_per_byte: Number = quantity_field("J/B", "energy of a byte that crosses, both interfaces included")
    phy_area: Number = quantity_field("mm2*s/B", "area of an interface on one die, per byte/s of one direction")
    die_rows: Number = integer_field("rows of cores on one die; 0 for dies as near to square as `chip.die.dies` allows", low=0)
    die_cols: Number = integer_field("columns of cores on one die; 0 likewise", low=0)
    link_bandwidth: Number = quantity_field(
        "B/s", "bandwidth of one link of the mesh from die to die, one direction; 0 for its share of the die edge"
    )


@record_class
class DramDevices:
    """Memory devices beside the die, or stacked above it: rates, area, energy and price of each."""

    device_bandwidth: Number = quantity_field(
        "B/s", "bandwidth of a device: a stack of HBM, a chip of GDDR", positive=True, former="device"
    )
    phy_area: Number = quantity_field("mm2", "area of the interface to a device and of its controller", former="phy")
    edge_length: Number = quantity_field("mm", "length of die edge that a device takes", former="edge")
    energy_per_byte: Number = quantity_field(
        "J/B", "energy of a byte, read or written, both interfaces included", former="byte"
    )
    idle_power: Number = quantity_field("W", "power of an idle device", former="idle")
    price: Number = quantity_field("USD/B", "of its capacity")
    footprint: Any = quantity_field(
        "mm2", "area of a device that is stacked above the cores; absent beside the die", absent=True, positive=True
    )
    device_capacity: Any = quantity_field(
        "B", "capacity of a device that is stacked above the cores; absent beside the die", absent=True, positive=True
    )


@record_class
class BaseDies:
    """Base dies below the compute dies, with shared cache, memory interfaces and links."""

    dies: Number = integer_field("of them")
    via_area_share: Number = quantity_field(
        "1", "area of through-silicon vias to the dies above, over the area of the base dies", former="room"
    )


@record_class
class Carrier:
    """Carrier that joins many dies and their main memory: a wafer or panel with wires between dies."""

    price: Number = quantity_field("USD/mm2", "price of the tested carrier per area of dies and memory devices")
    bond_yield: Number = quantity_field(
        "1", "share of good dies that work after bonding; all have to", high=1.0, positive=True, former="bond"
    )


REACHES = ("package", "module", "board")
"""How far links to other dies reach."""


@record_class
class DieBudget:
    """Die contents that take no time but for broken cores, the number of dies, and how they are made."""

    dies: Number = integer_field(
        "compute dies of the chip, which share it evenly; 0 for as few as reticle and edges allow", low=0
    )
    is_wafer: bool = boolean_field("whether a die may be as large as needed, up to a wafer", former="wafer")
    built_cores: Number = integer_field(
        "cores on all dies of the chip, spare ones included; 0 for those in use", low=0, former="cores"
    )
    broken_density: Any = quantity_field(
        "1/cm2", "broken cores per area of a mesh's cores, which spare cores replace; not counted if absent", absent=True
    )
    detour_hops: Any = quantity_field(
        "1", "hops that a message takes more around broken cores; what `broken_density` makes of them if absent", absent=True
    )
    built_cache_ratio: Number = quantity_field("1", "shared cache on the dies over the part in use", low=1.0, former="spare")
    built_memory_ratio: Number = quantity_field(
        "1", "main-memory interfaces on the dies over those in use", low=1.0, former="sites"
    )
    simt_ops: Number = quantity_field(
        "op/cycle",
        "16-bit operations per cycle of a lane of a multithreaded core; 0 for vector engines without threads",
        former="threads",
    )
    fp64_units: Number = quantity_field("1", "64-bit multiply-adders of a core", former="doubles")
    issue_rate: Number = quantity_field("op/cycle", "instructions that a core issues per cycle", former="issue")
    register_size: Number = quantity_field("B", "register files of a core", former="registers")
    l1_size: Number = quantity_field(
        "B", "memories of a shared-cache die's core that software does not address", former="private"
    )
    operand_reuse: Number = quantity_field(
        "1", "multiply-adds of a matrix engine per operand read", positive=True, former="reuse"
    )
    nominal_clock: Number = quantity_field(
        "Hz", "clock at the nominal supply voltage; 0 for a usual design of the process node", former="speed"
    )
    die_link_reach: str = option_field(
        "reach of links between the chip's dies: package, module or board", REACHES, former="near"
    )
    die_link_bandwidth: Number = quantity_field(
        "B/s",
        "bandwidth of links between the chip's dies, both directions, at both ends of each; a mesh that is cut adds links",
        former="between",
    )
    chip_link_reach: str = option_field("reach of links to other chips: package, module or board", REACHES, former="reach")
    unused_link_bandwidth: Number = quantity_field(
        "B/s", "bandwidth of all links to other chips that no workload uses, both directions", former="outside"
    )
    pcie_lanes: Number = integer_field("lanes to the host", low=0, former="host")
    memory_edge_share: Number = quantity_field(
        "1", "share of the die edges where main-memory devices can be placed", high=1.0, positive=True, former="shore"
    )
    reticle: Number = quantity_field("mm2", "largest die that the reticle allows", positive=True)
    max_power_density: Number = quantity_field(
        "W/mm2", "highest power density that can be cooled", positive=True, former="cooling"
    )


@record_class
class Economics:
    """Prices of making and running a chip, in one currency."""

    package: Number = quantity_field("USD/mm2", "price of carrier, interposer and assembly per area of dies")
    assembly_yield: Number = quantity_field(
        "1", "share of packages with good dies that work", high=1.0, positive=True, former="assembly"
    )
    test: Number = quantity_field("USD", "price of testing a chip")
    board: Number = quantity_field("USD", "price share of a chip in its server: host, memory, case, power supply")
    scale_up_price: Number = quantity_field(
        "USD*s/B",
        "price of a node's links and switches, for a chip in a node of eight, per byte/s and direction",
        former="network",
    )
    scale_out_price: Number = quantity_field(
        "USD*s/B", "price of switches and cables between servers, per byte/s of a chip's port", former="fabric"
    )
    scale_out_power: Number = quantity_field(
        "W*s/B", "power of switches and cables between servers, per byte/s of a chip's port", former="fabric_power"
    )
    facility_price: Number = quantity_field(
        "USD/W", "price of power delivery and cooling of the data centre over a chip's life", former="cooling"
    )
    host_power: Number = quantity_field("W", "share of a chip in the power of its server")
    power_supply_efficiency: Number = quantity_field(
        "1", "efficiency of the server's power supply", high=1.0, positive=True, former="supply"
    )
    pue: Number = quantity_field("1", "power of the data centre over that of its servers", low=1.0)
    electricity_price: Number = quantity_field("USD/J", "of electricity", former="electricity")
    lifetime: Number = quantity_field("s", "time over which a chip is paid for", positive=True, former="life")
    duty_cycle: Number = quantity_field("1", "share of its life in which a chip works", high=1.0, positive=True, former="busy")
    markup: Number = quantity_field("1", "price over cost", positive=True)
    rent: Any = quantity_field(
        "USD/s", "rent of a chip with its server and electricity; none if absent", positive=True, absent=True
    )
