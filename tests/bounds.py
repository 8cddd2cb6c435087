"""Every compiled loop, played with its indices checked: ``python -m tests.bounds``.

Runs tests that play all of them, those of meshes beyond every power of two among them, in a process in which numba tests each
index, with a cache of its own. An index out of bounds fails its test; a loop that none of the tests plays fails the command.
"""

import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
CHECKED = {"NUMBA_BOUNDSCHECK": "1"}

TESTS = (
    "tests/agreement/test_sizes.py", "tests/agreement/test_events.py", "tests/evaluators/test_ring_attention.py",
    "tests/agreement/test_strands.py",
    "tests/agreement/test_rivals.py::test_a_closed_form_that_does_not_hold_is_refused_and_events_play",
    "tests/agreement/test_collectives.py::test_the_closed_form_of_a_team_is_its_program_played",
    "tests/agreement/test_collectives.py::test_direct_exchange_is_its_closed_form_where_all_are_linked_and_at_least_that_elsewhere",
    "tests/agreement/test_dies.py::test_messages_of_dies_take_as_long_flit_by_flit",
    "tests/agreement/test_cycles.py::test_a_full_mesh_with_faults_never_stands_still",
    "tests/evaluators/test_stream.py::test_the_formula_is_near_what_is_played", "tests/evaluators/test_quickest.py",
    "tests/evaluators/test_call_table.py", "tests/evaluators/test_stages.py", "tests/evaluators/test_windowed.py",
    "tests/evaluators/test_mixing.py", "tests/serving/test_loop.py::test_the_loop_does_what_its_plain_reference_does",
    "tests/serving/test_one_stage.py", "tests/serving/test_balanced.py::test_dies_together_are_what_they_are_one_by_one",
    "tests/serving/test_balanced.py::test_pipelines_together_are_what_they_are_one_by_one",
    "tests/serving/test_guesses.py", "tests/serving/test_by_layer.py", "tests/serving/test_arrivals.py",
)  # fmt: skip
"""What plays each of the loops at least once."""


def loops() -> Iterator[tuple[str, Any]]:
    """Compiled functions with a cache, by name: loops that Python calls, and what they call."""
    import dse.evaluators as top
    from dse.evaluators.machine.compile_cache import _Cache

    seen = set[int]()
    for package in pkgutil.walk_packages(top.__path__, f"{top.__name__}."):
        for made in vars(importlib.import_module(package.name)).values():
            if isinstance(getattr(made, "_cache", None), _Cache) and id(made) not in seen:
                seen.add(id(made))
                yield f"{made.py_func.__module__}.{made.py_func.__name__}", made


def main() -> int:
    """Run the tests; 1 where one fails, or a loop is not played."""
    left = ("-n", "0", "-q", "--no-header", "-p", "no:cacheprovider", "--durations=20")
    failed = pytest.main([*left, *TESTS])
    missed = sorted(name for name, made in loops() if not made.signatures)
    for name in missed:
        print(f"{name}: no test of tests.bounds plays it")
    return int(bool(failed) or bool(missed))


if __name__ == "__main__":
    if all(os.environ.get(name) == value for name, value in CHECKED.items()):
        sys.exit(main())
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | CHECKED | {"NUMBA_CACHE_DIR": cache}
        sys.exit(subprocess.run([sys.executable, "-m", "tests.bounds"], cwd=ROOT, env=environment).returncode)
