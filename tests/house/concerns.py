"""python -m tests.house.concerns       # prints how many modules of `evaluators` state each concern of the account, and which.

A module states a concern if it defines a function that answers it, or calls one that only the account should call. What a
layout is asked about itself (such as `levers`) is structure and is left out, and so are single kernels.
"""

import ast
import re
from typing import NamedTuple

from tests.house.sources import SOURCES, parsed, place


class Concern(NamedTuple):
    """A concern of the account, by the names of functions that answer it.

    Attributes:
        most: modules that may state it today; it may only fall.
        wanted: modules that it needs.
        defined: pattern of names of functions and classes that state it.
        called: functions whose callers state it.
    """

    most: int
    wanted: int
    defined: str
    called: frozenset[str] = frozenset()


CONCERNS = {
    "memory held": Concern(12, 2, r"^$", frozenset({"MemoryContents", "main_memory_contents", "core_memory_contents"})),
    "limits of memories": Concern(6, 2, r"^memory_limits$", frozenset({"memory_limits"})),
    "shares, energy and power": Concern(
        20,
        2,
        r"^(usage_metrics|usage_of_\w+|power_metrics|power_of_work|work_of_iterations|iteration_energies|phase_energy|"
        r"energy_and_time|activity_energy)$",
        frozenset({"usage_of_time", "usage_of_work", "power_metrics", "power_of_work"}),
    ),
    "price of a served iteration": Concern(
        7,
        2,
        r"^(pricing|iteration_pass|time_iteration_blocks|iteration_time_function|_iteration_seconds|_(prefill|decode)_seconds|"
        r"_(run|served|staged|timed)_iteration)$",
    ),
    "prefetch timelines": Concern(
        3, 2, r"^(prefetched_bytes|IdleWindow|fit_in_budget)$", frozenset({"prefetched_bytes", "IdleWindow", "fit_in_budget"})
    ),
    "remedies": Concern(1, 2, r"remed|^_?(first_fitting|(fewest|smallest|shortest)_\w+_text)$"),
    "transfers between pools": Concern(
        2,
        2,
        r"^(kv_transfer|kv_transfer_cost|kv_host_bytes|transfer_work|transfer_activity|parallel_transfers|_moved_activity|"
        r"_caches_moved)$",
        frozenset({"KvTransfer", "TransferWork"}),
    ),
    "breakdown rows": Concern(8, 2, r"^$", frozenset({"BreakdownRow"})),
}
"""Concerns of the account; the lists of `test_concerns` hold some of them name by name."""


def list_modules(concern: Concern) -> list[str]:
    """Modules of `evaluators`, single kernels left out, that state a concern."""
    return [
        place(path)
        for path in SOURCES
        if place(path).startswith("evaluators/") and "/kernel_workloads/" not in place(path)
        if any(_states(node, concern) for node in ast.walk(parsed(path)))
    ]


def _states(node: ast.AST, concern: Concern) -> bool:
    """Whether a node defines or calls a function of a concern."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return re.search(concern.defined, node.name) is not None
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return called in concern.called
    return False


def main() -> None:
    """Print the modules of each concern, with the most that there may be today and that are wanted."""
    for name, concern in CONCERNS.items():
        modules = list_modules(concern)
        print(f"{len(modules):3} of {concern.most} at most ({concern.wanted} wanted)  {name}: {', '.join(modules)}")


if __name__ == "__main__":
    main()
