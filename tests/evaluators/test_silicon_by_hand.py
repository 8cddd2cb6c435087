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
        found, below = yaml.safe_load((CONF / part / f"{name}.yaml").read_text()), dict[str, Any]()
        for of in found.pop("defaults", []):
            if isinstance(of, dict):
                ((where, file),) = of.items()
                other, _, place = where.removeprefix("/").partition("@")
                below |= {place: self._file(other, file)} if place == other else {}
            elif of != "_self_":
                below |= self._file(part, of)
        parts = {name: {**below[name], **value} for name, value in found.items() if isinstance(below.get(name), dict)}
        return {**below, **found, **{name: value for name, value in parts.items() if "value" not in value}}

    def __call__(self, address: str) -> float:
        found: Any = self.chip
        for name in address.split("."):
            found = found[name]
        value, _, unit = str(found["value"]).partition(" ")
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


def tech(of: Written, name: str) -> float:
    return of(f"technology.{name}")


def pool(of: Written) -> dict[str, float]:
    """435 cores of 460 multiply-adders, one thread each, behind one cache."""
    cores, ways = of("cores"), of("l2.bandwidth") / of("clock")
    lanes = of("core.vector") / of("clock")
    return {
        "matrix engines": cores
        * of("core.peak.int8")
        / of("clock")
        / 4
        * tech(of, "multiplier"),  # two multiply-adds of 8 bits
        "vector engines": cores * lanes / of("die.simt_ops") * tech(of, "simt_lane"),
        "sram": cores * of("die.l1_size") * tech(of, "sram"),
        "control": cores * of("die.issue_rate") * tech(of, "issue"),
        "network": ways * tech(of, "crossbar"),
        "l2": of("l2.size") * tech(of, "cache") + ways * tech(of, "port"),
        "hbm_phy": of("hbm.bandwidth") / of("dram.device_bandwidth") * of("dram.phy_area"),
        "host": of("die.pcie_lanes") * tech(of, "pcie_lane"),
        "links": 2 * of("network.ports") * of("network.bandwidth") * tech(of, "board"),
    }


def wafer(of: Written) -> dict[str, float]:
    """916,000 cores with a router of five ports each, four lanes of eight words at each port."""
    cores, held = of("die.built_cores"), 5 * of("noc.vcs") * of("noc.vc_depth") * of("noc.word_bytes")
    return {
        "matrix engines": cores / of("core.mac") * tech(of, "multiplier"),
        "vector engines": cores * (1 / of("core.vector_operation") + 1 / of("core.special")) * tech(of, "lane"),
        "registers": cores * of("die.register_size") * tech(of, "register"),
        "sram": cores * of("core.sram") * tech(of, "sram"),
        "control": cores * of("die.issue_rate") * tech(of, "issue"),
        "network": cores * (of("noc.word_bytes") / of("noc.word_cycles") * tech(of, "router") + held * tech(of, "register")),
        "links": of("die.unused_link_bandwidth") * tech(of, "board"),
    }


def tiles(of: Written) -> dict[str, float]:
    """Tiles with an array whose elements hold one operand more where it is loaded behind their work."""
    count, rows, cols = of("mesh.rows") * of("mesh.cols"), of("tile.matrix.rows"), of("tile.matrix.cols")
    said = {name: of.chip["tile"]["matrix"][name]["value"] for name in ("dataflow", "reload")}
    twice = 2.0 if said["dataflow"] != "ce" and said["reload"] == "hidden" else 0.0
    banks = of("tile.sram_bandwidth") + (of("tile.sram_per_row") * rows if "sram_per_row" in of.chip["tile"] else 0.0)
    locked = of.chip["noc"].get("routing", {}).get("value") == "locked"
    held = 5 * (1 if locked else of("noc.vcs") * of("noc.vc_depth")) * of("noc.word_bytes")
    channels = count if of.chip["hbm"]["channel_side"]["value"] == "core" else of("hbm.channels")
    return {
        "matrix engines": count * rows * cols * (tech(of, "multiplier") + twice * tech(of, "register")),
        "vector engines": count * (of("tile.vector.lanes") + of("tile.vector.special")) * tech(of, "lane"),
        "sram": count * (of("tile.sram") * tech(of, "sram") + banks * tech(of, "bank")),
        "control": count * of("die.issue_rate") * tech(of, "issue"),
        "network": count * (of("noc.word_bytes") / of("noc.word_cycles") * tech(of, "router") + held * tech(of, "register")),
        "hbm_phy": channels
        * of("hbm.channel_bandwidth")
        / of("dram.device_bandwidth")
        * of("dram.phy_area")
        * of("die.built_memory_ratio"),
        "host": of("die.pcie_lanes") * tech(of, "pcie_lane"),
    }


CHIPS = {"npu_dse": pool, "wse2": wafer, "npu64": tiles, "tile_gh200": tiles}


@pytest.mark.parametrize("chip", CHIPS)
def test_areas_are_what_constants_multiply_out_to(chip: str) -> None:
    of, found = Written(chip), area.area_by_block(asked(chip).base.chip)
    by_hand = CHIPS[chip](of)
    left = {name: value for name, value in found.items() if name not in by_hand and value}
    assert {name: found[name] for name in by_hand} == pytest.approx(by_hand)
    assert set(left) <= {"other", area.DIE_LINK_BLOCK}  # a mesh over several dies is cut
    whole = sum(by_hand.values()) + left.get(area.DIE_LINK_BLOCK, 0.0)
    assert left["other"] == pytest.approx(whole * 0.08 / 0.92)
    assert tech(of, "other_area_share") == 0.08


@pytest.mark.parametrize("chip", CHIPS)
def test_energies_are_what_constants_multiply_out_to(chip: str) -> None:
    """Of 10^12 multiply-adds of 16 bits and as many bytes of main memory, and of a second in which nothing is done."""
    of, made, many = Written(chip), asked(chip).base.chip, 1e12
    if chip == "npu_dse":
        found = energy.pooled_dynamic_energy(PooledActivity(macs=many, operands=2 * many, memory_bytes=many), made)
        each = tech(of, "mac") + 2 * 2 / of("die.operand_reuse") * of.access(of("die.l1_size"))
        by_hand = many * (each * of.squared + of("dram.energy_per_byte"))
    else:
        memory = 0.0 if chip == "wse2" else many
        found = energy.dynamic_energy(Activity(macs=many, memory_bytes=memory), made)
        byte = of.access(of("core.sram" if chip == "wse2" else "tile.sram"))
        operands = 3.0 if chip == "wse2" else 1 / of("tile.matrix.rows") + 1 / of("tile.matrix.cols")
        by_hand = many * (tech(of, "mac") + 2 * operands * byte) * of.squared
        if memory:  # a byte of main memory is written to a local one, where engines read it
            by_hand += memory * (byte * of.squared + of("dram.energy_per_byte"))
    assert found == pytest.approx(by_hand, rel=1e-6)
    idle = tech(of, "static_power_density") * area.total_area(made) * of.squared
    if chip != "wse2":
        bandwidth = of("hbm.bandwidth") if chip == "npu_dse" else of("hbm.channel_bandwidth") * (
            of("mesh.rows") * of("mesh.cols") if chip == "npu64" else of("hbm.channels")
        )  # fmt: skip
        idle += bandwidth / of("dram.device_bandwidth") * of("dram.idle_power")
    assert energy.static_power(made) == pytest.approx(idle, rel=1e-6)
