"""Areas and energies of a chip of each kind by hand: constants as they are written in conf, multiplied out here."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import dse
from dse.evaluators.program.activity import Activity
from dse.evaluators.silicon import area, energy
from dse.evaluators.silicon.energy import PooledActivity
from tests.evaluators.test_silicon import asked

CONF = Path(dse.__file__).parent / "conf"

UNITS = {
    "": 1.0, "B": 1.0, "KiB": 1024.0, "MB": 1e6, "GB": 1e9, "GB/s": 1e9, "TB/s": 1e12, "Gbit/s": 1.25e8, "Top/s": 1e12,
    "Hz": 1.0, "MHz": 1e6, "GHz": 1e9, "cycle": 1.0, "op/cycle": 1.0, "B/cycle": 1.0, "V": 1.0, "W": 1.0, "mm2": 1.0,
    "mm2*cycle/op": 1.0, "mm2*cycle/B": 1.0, "mm2/MB": 1e-6, "mm2*s/TB": 1e-12, "pJ/op": 1e-12, "pJ/B": 1e-12, "W/mm2": 1.0,
}  # fmt: skip
"""In B, s, cycles, mm2, J, V and W."""


class Written:
    """Constants of a chip, by their addresses in the files that it starts from."""

    def __init__(self, chip: str) -> None:
        self.chip = self._file("chip", chip)

    def _file(self, part: str, name: str) -> dict[str, Any]:
        document, below = yaml.safe_load((CONF / part / f"{name}.yaml").read_text()), dict[str, Any]()
        for entry in document.pop("defaults", []):
            if isinstance(entry, dict):
                ((where, file),) = entry.items()
                other, _, place = where.removeprefix("/").partition("@")
                below |= {place: self._file(other, file)} if place == other else {}
            elif entry != "_self_":
                below |= self._file(part, entry)
        parts = {name: {**below[name], **value} for name, value in document.items() if isinstance(below.get(name), dict)}
        return {**below, **document, **{name: value for name, value in parts.items() if "value" not in value}}

    def __call__(self, address: str) -> float:
        chip: Any = self.chip
        for name in address.split("."):
            chip = chip[name]
        value, _, unit = str(chip["value"]).partition(" ")
        return float(value) * UNITS[unit]

    def access(self, nbytes: float) -> float:
        """Energy of a byte of a local memory of that size: 14 pJ for 64 bits of 1 MiB, where 32 KiB take 8.5. [J/B]"""
        return self("technology.access") * (nbytes / 32768) ** 0.144

    @property
    def squared(self) -> float:
        """Square of the supply over the node's own: the clock goes as (V - threshold)^1.3 / V, by halving."""
        own, threshold = self("technology.nominal_voltage"), self("technology.threshold_voltage")
        nominal = self("die.nominal_clock") or self("technology.nominal_clock")

        def faster(volts: float) -> float:
            return float((volts - threshold) ** 1.3 / volts / ((own - threshold) ** 1.3 / own))

        low, high = self("technology.min_voltage"), 3.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if faster(middle) < self("clock") / nominal else (low, middle)
        return (high / own) ** 2


def tech(written_product: Written, name: str) -> float:
    return written_product(f"technology.{name}")


def pool(written_product: Written) -> dict[str, float]:
    """435 cores of 460 multiply-adders, one thread each, behind one cache."""
    cores, ways = written_product("cores"), written_product("l2.bandwidth") / written_product("clock")
    lanes = written_product("core.vector") / written_product("clock")
    return {
        "matrix engines": cores
        * written_product("core.peak.int8")
        / written_product("clock")
        / 4
        * tech(written_product, "multiplier"),  # two multiply-adds of 8 bits
        "vector engines": cores * lanes / written_product("die.simt_ops") * tech(written_product, "simt_lane"),
        "sram": cores * written_product("die.l1_size") * tech(written_product, "sram"),
        "control": cores * written_product("die.issue_rate") * tech(written_product, "issue"),
        "network": ways * tech(written_product, "crossbar"),
        "l2": written_product("l2.size") * tech(written_product, "cache") + ways * tech(written_product, "port"),
        "hbm_phy": written_product("hbm.bandwidth")
        / written_product("dram.device_bandwidth")
        * written_product("dram.phy_area"),
        "host": written_product("die.pcie_lanes") * tech(written_product, "pcie_lane"),
        "links": 2 * written_product("network.ports") * written_product("network.bandwidth") * tech(written_product, "board"),
    }


def wafer(written_product: Written) -> dict[str, float]:
    """916,000 cores with a router of five ports each, four lanes of eight words at each port."""
    cores, held = (
        written_product("die.built_cores"),
        5 * written_product("noc.vcs") * written_product("noc.vc_depth") * written_product("noc.word_bytes"),
    )
    return {
        "matrix engines": cores / written_product("core.mac") * tech(written_product, "multiplier"),
        "vector engines": cores
        * (1 / written_product("core.vector_operation") + 1 / written_product("core.special"))
        * tech(written_product, "lane"),
        "registers": cores * written_product("die.register_size") * tech(written_product, "register"),
        "sram": cores * written_product("core.sram") * tech(written_product, "sram"),
        "control": cores * written_product("die.issue_rate") * tech(written_product, "issue"),
        "network": cores
        * (
            written_product("noc.word_bytes") / written_product("noc.word_cycles") * tech(written_product, "router")
            + held * tech(written_product, "register")
        ),
        "links": written_product("die.unused_link_bandwidth") * tech(written_product, "board"),
    }


def tiles(written_product: Written) -> dict[str, float]:
    """Tiles with an array whose elements hold one operand more where it is loaded behind their work."""
    count, rows, cols = (
        written_product("mesh.rows") * written_product("mesh.cols"),
        written_product("tile.matrix.rows"),
        written_product("tile.matrix.cols"),
    )
    words = {name: written_product.chip["tile"]["matrix"][name]["value"] for name in ("dataflow", "reload")}
    twice = 2.0 if words["dataflow"] != "ce" and words["reload"] == "hidden" else 0.0
    banks = written_product("tile.sram_bandwidth") + (
        written_product("tile.sram_per_row") * rows if "sram_per_row" in written_product.chip["tile"] else 0.0
    )
    locked = written_product.chip["noc"].get("routing", {}).get("value") == "locked"
    held = (
        5 * (1 if locked else written_product("noc.vcs") * written_product("noc.vc_depth")) * written_product("noc.word_bytes")
    )
    channels = count if written_product.chip["hbm"]["channel_side"]["value"] == "core" else written_product("hbm.channels")
    return {
        "matrix engines": count
        * rows
        * cols
        * (tech(written_product, "multiplier") + twice * tech(written_product, "register")),
        "vector engines": count
        * (written_product("tile.vector.lanes") + written_product("tile.vector.special"))
        * tech(written_product, "lane"),
        "sram": count * (written_product("tile.sram") * tech(written_product, "sram") + banks * tech(written_product, "bank")),
        "control": count * written_product("die.issue_rate") * tech(written_product, "issue"),
        "network": count
        * (
            written_product("noc.word_bytes") / written_product("noc.word_cycles") * tech(written_product, "router")
            + held * tech(written_product, "register")
        ),
        "hbm_phy": channels
        * written_product("hbm.channel_bandwidth")
        / written_product("dram.device_bandwidth")
        * written_product("dram.phy_area")
        * written_product("die.built_memory_ratio"),
        "host": written_product("die.pcie_lanes") * tech(written_product, "pcie_lane"),
    }


CHIPS = {"npu_dse": pool, "wse2": wafer, "npu64": tiles, "tile_gh200": tiles}


@pytest.mark.parametrize("chip", CHIPS)
def test_areas_are_what_constants_multiply_out_to(chip: str) -> None:
    written_product, found_area = Written(chip), area.area_by_block(asked(chip).base.chip)
    by_hand = CHIPS[chip](written_product)
    left = {name: value for name, value in found_area.items() if name not in by_hand and value}
    assert {name: found_area[name] for name in by_hand} == pytest.approx(by_hand)
    assert set(left) <= {"other", area.DIE_LINK_BLOCK}  # a mesh over several dies is cut
    whole = sum(by_hand.values()) + left.get(area.DIE_LINK_BLOCK, 0.0)
    assert left["other"] == pytest.approx(whole * 0.08 / 0.92)
    assert tech(written_product, "other_area_share") == 0.08


@pytest.mark.parametrize("chip", CHIPS)
def test_energies_are_what_constants_multiply_out_to(chip: str) -> None:
    """Of 10^12 multiply-adds of 16 bits and as many bytes of main memory, and of a second in which nothing is done."""
    written_product, made, many = Written(chip), asked(chip).base.chip, 1e12
    if chip == "npu_dse":
        dynamic_energy = energy.pooled_dynamic_energy(PooledActivity(macs=many, operands=2 * many, memory_bytes=many), made)
        each = tech(written_product, "mac") + 2 * 2 / written_product("die.operand_reuse") * written_product.access(
            written_product("die.l1_size")
        )
        by_hand = many * (each * written_product.squared + written_product("dram.energy_per_byte"))
    else:
        memory = 0.0 if chip == "wse2" else many
        dynamic_energy = energy.dynamic_energy(Activity(macs=many, memory_bytes=memory), made)
        byte = written_product.access(written_product("core.sram" if chip == "wse2" else "tile.sram"))
        operands = 3.0 if chip == "wse2" else 1 / written_product("tile.matrix.rows") + 1 / written_product("tile.matrix.cols")
        by_hand = many * (tech(written_product, "mac") + 2 * operands * byte) * written_product.squared
        if memory:  # a byte of main memory is written to a local one, where engines read it
            by_hand += memory * (byte * written_product.squared + written_product("dram.energy_per_byte"))
    assert dynamic_energy == pytest.approx(by_hand, rel=1e-6)
    idle = tech(written_product, "static_power_density") * area.total_area(made) * written_product.squared
    if chip != "wse2":
        bandwidth = written_product("hbm.bandwidth") if chip == "npu_dse" else written_product("hbm.channel_bandwidth") * (
            written_product("mesh.rows") * written_product("mesh.cols") if chip == "npu64" else written_product("hbm.channels")
        )  # fmt: skip
        idle += bandwidth / written_product("dram.device_bandwidth") * written_product("dram.idle_power")
    assert energy.static_power(made) == pytest.approx(idle, rel=1e-6)
