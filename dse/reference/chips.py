"""Facts of chips: kind of machine, process node, peak, memory and bandwidth, and which rows of measurements they have."""

import csv
from functools import cache
from statistics import median
from typing import Any

from dse.config.peaks import convert_peaks_to_core_rates
from dse.config.record_parser import USUAL_CHOICES, parse_record
from dse.config.untrusted_files import SHIPPED_STUDIES
from dse.reference.entries import Entry, Fact
from dse.reference.presets import Preset, preset_entry, preset_names, read_preset
from dse.space.chip import Chip
from dse.space.machines import MACHINES, machine_of
from dse.space.main_memory import has_main_memory, main_memory
from dse.space.peaks import format_peaks, peaks
from dse.space.safe_text import count_text

RESIDUALS = SHIPPED_STUDIES / "residuals.csv"
"""Errors of measured rows; `dse.accuracy.residuals` writes them, and reads them with all that judges them."""


def chip_entries() -> list[Entry]:
    """Entries of all chips."""
    return [_chip_entry(name) for name in preset_names("chip")]


@cache
def read_chip(name: str) -> tuple[Chip, Preset]:
    """A chip as it ships, and the presets that it is made of."""
    preset = read_preset("chip", name)
    chip = convert_peaks_to_core_rates({"chip": preset.values}, ())["chip"]
    return parse_record(Chip, {key: value for key, value in chip.items() if key not in USUAL_CHOICES}, "chip", []), preset


def _chip_entry(name: str) -> Entry:
    chip, preset = read_chip(name)
    dies = chip.dies.rows * chip.dies.cols if chip.dies is not None else 1
    peak = peaks(chip).get("fp16")
    facts = {
        "kind": Fact(MACHINES[machine_of(chip)].name.removeprefix("a ")),
        "node": Fact(preset.choices.get("technology@technology")),
        "peak": Fact(None if peak is None else peak * dies, "FLOP/s"),
        "memory": Fact(_memory_bytes(chip, dies), "B"),
        "bandwidth": Fact(main_memory(chip).bandwidth * dies if has_main_memory(chip) else None, "B/s"),
        "measured": Fact(_measured_text(measured_errors(name))),
        "dies": Fact(dies if chip.die is not None else None, "1"),
        "DRAM": Fact(preset.choices.get("dram@dram")),
        "rated power": Fact(_rated_power(chip), "W"),
        "peak of a die by format": Fact(format_peaks(chip) or None),
        "mapping": Fact(_choice(preset, "mapping")),
        "mapping of served requests": Fact(_choice(preset, "mapping_serving")),
        "stack": Fact(_choice(preset, "stack")),
        "inference engine": Fact(_choice(preset, "inference_engine")),
    }
    rows = (f"{kind}: {_measured_text(errors)}" for kind, errors in _errors_by_kind(name).items())
    facts["measured rows"] = Fact("; ".join(rows) or None)
    return preset_entry("chip", name, facts)


def _memory_bytes(chip: Chip, dies: int) -> Any:
    """Main memory of all dies; local memory of all cores where there is none. [B]"""
    if has_main_memory(chip):
        return main_memory(chip).capacity * dies
    if chip.mesh is None or chip.core is None:
        return None
    return chip.mesh.rows * chip.mesh.cols * chip.core.sram


def _rated_power(chip: Chip) -> Any:
    """Power on the data sheet, else that of the chip's file; None where neither says it. [W]"""
    published = None if chip.published is None else chip.published.tdp
    return published or chip.power or None


def _choice(preset: Preset, group: str) -> str | None:
    value = preset.values.get(group)
    return None if value is None else str(value)


def measured_errors(chip: str) -> list[float]:
    """Errors of the rows of measurements of a chip, simulated over measured less 1."""
    return [error for errors in _errors_by_kind(chip).values() for error in errors]


def _measured_text(errors: list[float]) -> str:
    """Number of rows, and the median of their errors without sign."""
    return f"{count_text(len(errors), 'row')}, {median(map(abs, errors)):.1%}" if errors else "-"


def _errors_by_kind(chip: str) -> dict[str, list[float]]:
    """Errors of rows by what was measured: a workload, with its phase; or a property of the chip."""
    return _all_errors().get(chip, {})


@cache
def _all_errors() -> dict[str, dict[str, list[float]]]:
    errors: dict[str, dict[str, list[float]]] = {}
    with RESIDUALS.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            kind = row["question"] or "the chip itself"
            kind += f", {row['phase']}" if row["phase"] in ("prefill", "decode") else ""
            errors.setdefault(row["chip"], {}).setdefault(kind, []).append(float(row["error"]))
    return errors
