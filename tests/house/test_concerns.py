"""What is held and used stands in one place: who makes limits of memories, and who turns work into utilisation and power."""

import ast
import re

import pytest

from tests.house.concerns import CONCERNS, list_modules
from tests.house.sources import SOURCES, parsed, place

MEMORY = re.compile(r"capacity|\.sram|\.memory$")
"""Text of the first argument of a limit of a memory: the setting of its size."""

PASSED_ON = {"evaluators/accounting/regions.py", "evaluators/accounting/serving_runs/run_metrics.py"}
"""Sources that make a limit of an address that they are given: of chunks of a mesh, and the worst limit of several runs."""

SERVING = "evaluators/accounting/serving_instances"

CALLERS = {
    # bytes of caches and states: the one formula, and tiles of caches on the cores of a wafer
    "sequence_memory": ("evaluators/layouts/cache_memory.py", "evaluators/layouts/region_memory.py"),
    "fixed_bytes_per_sequence": (),
    # limits of memories: of batches, of serving loads, and of trials of a remedy or without iteration times
    "memory_limits": (
        "evaluators/accounting/batch_account.py",
        "evaluators/accounting/pipelines.py",
        "evaluators/accounting/regions.py",
        f"{SERVING}/serving_layout.py",
        f"{SERVING}/whole_chip.py",
    ),
    "largest_use": (
        "evaluators/accounting/batch_account.py",
        f"{SERVING}/pipeline_usage.py",
        f"{SERVING}/serving_layout.py",
    ),
    # utilisation and power
    "usage_of_time": ("evaluators/accounting/batch_account.py", f"{SERVING}/served_work.py"),
    "power_metrics": (
        "evaluators/accounting/batch_account.py",
        f"{SERVING}/served_work.py",
        "evaluators/accounting/serving_runs/metric_bounds.py",
    ),
    # the largest served iteration
    "largest_iteration": (
        f"{SERVING}/device_memory.py",
        f"{SERVING}/multi_die_iterations.py",
        f"{SERVING}/whole_chip_iterations.py",
    ),
    # peaks of a mesh's engines
    "mesh_peak_rates": ("evaluators/accounting/regions.py", "evaluators/accounting/usage.py"),
}
"""Sources of `evaluators/` that may call a function of the account, kernels by themselves left out; a list may only get
shorter."""


def calls(name: str) -> dict[str, list[ast.Call]]:
    """Calls of a function by its name, by source of `evaluators/`."""
    found = {
        place(path): [
            node
            for node in ast.walk(parsed(path))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
        ]
        for path in SOURCES
        if place(path).startswith("evaluators/")
    }
    return {source: nodes for source, nodes in found.items() if nodes}


def test_limits_of_memories_are_made_in_one_place() -> None:
    """Layouts and kernels state contents (`MemoryContents`); nobody else compares them with a capacity."""
    makers = {
        source
        for source, nodes in calls("Limit").items()
        for node in nodes
        if MEMORY.search(ast.unparse(node.args[0]).strip("\"'")) or "address" in ast.unparse(node.args[0])
    }
    assert makers - PASSED_ON == {"evaluators/accounting/memory_contents.py"}


@pytest.mark.parametrize("name", CALLERS)
def test_the_account_has_few_callers(name: str) -> None:
    callers = {source for source in calls(name) if "/kernel_workloads/" not in source}
    assert callers == set(CALLERS[name])


@pytest.mark.parametrize("name", CONCERNS)
def test_a_concern_stands_in_no_more_modules(name: str) -> None:
    """As many as the ceiling, which goes down with them; `python -m tests.house.concerns` prints which these are."""
    assert len(list_modules(CONCERNS[name])) == CONCERNS[name].most


def test_layouts_are_named_in_one_registry() -> None:
    """Classes of layouts are named where layouts are declared, and where functions of a fidelity are described."""
    names = re.compile(r"^\w+(\.\w+)*:\w+(Layout|Serving)$")
    found = {
        place(path)
        for path in SOURCES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and names.match(node.value)
    }
    assert found - {"evaluators/cost_models/fidelity_parts.py"} == {"space/software.py"}


def test_results_are_kept_by_classes_of_one_module() -> None:
    """What is remembered between calls is a class of `space/memoize.py`, or wrapped by one of its functions."""
    made = {
        place(path)
        for path in SOURCES
        if place(path).startswith("evaluators/")
        for node in parsed(path).body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _starts_empty(node.value)
    }
    assert made == set()


def _starts_empty(value: ast.expr) -> bool:
    """Whether a value is a container that only becomes useful when something is put into it."""
    if isinstance(value, ast.Call):
        return not value.args and ast.unparse(value.func).split("[")[0] in {"dict", "list", "set", "WeakKeyDictionary"}
    return (isinstance(value, ast.Dict) and not value.keys) or (isinstance(value, ast.List) and not value.elts)


def test_no_layout_is_probed_for_what_it_has() -> None:
    """Evaluators of workloads and runs ask objects with documented methods; none is asked whether it has one."""
    folders = ("evaluators/workloads/", "evaluators/accounting/", "evaluators/evaluation.py")
    probes = [
        f"{place(path)}:{node.lineno}"
        for path in SOURCES
        if place(path).startswith(folders)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "hasattr"
        and isinstance(node.args[1], ast.Constant)
        and node.args[1].value not in {"_fields", "__dataclass_fields__"}
    ]
    assert probes == []
