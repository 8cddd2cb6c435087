"""Facts of software: machines and workloads of mappings, measurements behind stacks, and limits of inference engines."""

from collections.abc import Mapping
from typing import Any

from dse.config.untrusted_files import SHIPPED_CONF
from dse.reference.entries import Entry, Fact
from dse.reference.presets import preset_entry, preset_names, read_preset
from dse.space.compatibility import KINDS, WORKLOAD_NAMES
from dse.space.machines import MACHINES
from dse.space.workload import ProductCase

LIBRARY = "library/"
"""Folder of the kernels that stacks choose."""

PRODUCTS = "gemm, gemv"
"""Workloads of products, which share a type of case."""


def mapping_entries() -> list[Entry]:
    """Entries of all mappings: the machines that run them, and the workloads."""
    return [preset_entry("mapping", name, _mapping_facts(name)) for name in preset_names("mapping")]


def _mapping_facts(name: str) -> dict[str, Fact]:
    pairs = [pair for pair, kind in KINDS.items() if name in kind.mappings]
    machines = dict.fromkeys(MACHINES[machine].name.removeprefix("a ") for machine, _ in pairs)
    return {
        "machine": Fact(", ".join(machines) or None),
        "workload": Fact(", ".join(dict.fromkeys(workload_name(case) for _, case in pairs)) or None),
    }


def workload_name(case: type) -> str:
    """Names of the workloads that have a type of case."""
    return PRODUCTS if case is ProductCase else WORKLOAD_NAMES[case]


def stack_entries() -> list[Entry]:
    """Entries of all software stacks: what they were measured on."""
    return [preset_entry("stack", name, _stack_facts(name)) for name in preset_names("stack")]


def _stack_facts(name: str) -> dict[str, Fact]:
    preset = read_preset("stack", name)
    values, accuracy = preset.values, preset.values.get("accuracy") or {}
    parts = [part for part in values.values() if isinstance(part, Mapping) and part.get("measured_rows")]
    rows = int(values.get("measured_rows") or 0) + sum(int(part["measured_rows"]) for part in parts)
    chips = dict.fromkeys(chip for part in (values, *parts) for chip in part.get("fitted_on") or ())
    meant = dict.fromkeys(chip for part in (values, *parts) for chip in part.get("meant_for") or () if chip not in chips)
    kernels = [place.removeprefix(LIBRARY).partition("@")[0] for place in preset.choices if place.startswith(LIBRARY)]
    return {
        "rows": Fact(rows or None, "1"),
        "error": Fact(f"{_plain(accuracy['median_error']):.0%}" if accuracy else None),
        "measured on": Fact(", ".join(chips) or None),
        "meant for": Fact(", ".join(meant) or None),
        "library kernels": Fact(", ".join(kernels) or None),
        "rows of whole models": Fact(accuracy.get("rows"), "1"),
    }


def kernel_entries() -> list[Entry]:
    """Entries of all library kernels, named KIND/NAME."""
    folders = sorted(path for path in (SHIPPED_CONF / "library").iterdir() if path.is_dir())
    return [
        _kernel_entry(f"library/{folder.name}", name) for folder in folders for name in preset_names(f"library/{folder.name}")
    ]


def _kernel_entry(group: str, name: str) -> Entry:
    values = read_preset(group, name).values
    facts = {
        "rows": Fact(values.get("measured_rows"), "1"),
        "measured on": Fact(", ".join(values.get("fitted_on") or ()) or None),
        "meant for": Fact(", ".join(values.get("meant_for") or ()) or None),
        "source": Fact(values.get("measured_by")),
    }
    entry = preset_entry(group, name, facts)
    return Entry(f"{group.removeprefix('library/')}/{name}", entry.line, facts, entry.text)


def engine_entries() -> list[Entry]:
    """Entries of all inference engines: version, vendors, and the batch that they start with."""
    return [preset_entry("inference_engine", name, _engine_facts(name)) for name in preset_names("inference_engine")]


def _engine_facts(name: str) -> dict[str, Fact]:
    values = read_preset("inference_engine", name).values
    serving = values.get("serving") or {}
    return {
        "version": Fact(_plain(values.get("version"))),
        "vendors": Fact(_plain(values.get("vendors"))),
        "largest batch": Fact(serving.get("max_batch_size"), "1"),
        "token budget": Fact(serving.get("max_batched_tokens"), "token"),
        "formats of weights": Fact(_plain(values.get("weight_formats"))),
    }


def _plain(constant: Any) -> Any:
    """Value of a constant, without its source."""
    return constant.get("value") if isinstance(constant, Mapping) else constant
