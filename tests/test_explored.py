"""Properties draw the same examples each time; the command that draws new ones finds what is wrong, and keeps it."""

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import settings

from tests import explore

PROPERTY = """
from hypothesis import example, given, strategies as st

@given(st.integers(), st.sampled_from(["a", "b"]))
def test_numbers_are_small(number, word):
    assert number < {bound}

def test_that_draws_nothing():
    raise AssertionError
"""


def test_the_suite_draws_the_same_examples_each_time() -> None:
    assert bool(settings.default.derandomize) != bool(os.environ.get("EXPLORED"))  # type: ignore[union-attr]


def explored(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"EXPLORED": str(place)}
    command = [sys.executable, "-m", "tests.explore", "--processes", "1", "--minutes", "0.02", *words]
    return subprocess.run(command, cwd=explore.ROOT, env=environment, capture_output=True, text=True)


def test_what_an_exploration_finds_is_kept_until_it_passes(tmp_path: Path) -> None:
    path, place = tmp_path / "test_it.py", tmp_path / "found"
    path.write_text(PROPERTY.format(bound=100))
    completed_process = explored(place, str(path))
    assert completed_process.returncode == 1, completed_process.stderr
    assert "@example(number=100" in completed_process.stdout
    assert "1 failed" in completed_process.stdout
    (test,) = explore.read(place)
    assert test.endswith("test_it.py::test_numbers_are_small")
    path.write_text(PROPERTY.format(bound="number + 1"))
    assert explored(place, "--again", str(path)).returncode == 0
    assert explore.read(place) == {}
