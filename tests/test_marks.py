"""What the marks leave out of a run, on a file of tests of its own; `tests/conftest.py` is its plugin."""

import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest
from tests.marks import slow_if

@pytest.mark.slow
def test_long(): ...

@slow_if(lambda size: size > 2)
@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_some(size, name): ...

@pytest.mark.sampled
@pytest.mark.parametrize("name", list("abc"))
@pytest.mark.parametrize("size", [1, 2, 3])
def test_many(size, name): ...
"""


def collected(folder: Path, source: str, *words: str, slow: str = "") -> list[str]:
    """Lines of `pytest --collect-only`, without its last ones."""
    (folder / "test_it.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir"]
    command += [str(folder), "--collect-only", "-q", "--strict-markers", "-o", "markers=slow\nsampled", *words]
    root = Path(__file__).resolve().parents[1]
    env = {"PATH": "", "SLOW": slow, "PYTHONPATH": str(root), "HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).splitlines()


def test_slow_cases_and_two_thirds_of_sampled_ones_are_left_out_unless_all_are_asked_for(tmp_path: Path) -> None:
    kept = {line.removeprefix("test_it.py::") for line in collected(tmp_path, TESTS, "test_it.py") if "::" in line}
    assert {name for name in kept if "many" not in name} == {f"test_some[{size}-{name}]" for size in (1, 2) for name in "ab"}
    many = [name.removeprefix("test_many[").rstrip("]").split("-") for name in kept if "many" in name]
    assert len(many) == 3
    assert {size for size, _ in many} == {"1", "2", "3"}
    assert {name for _, name in many} == {"a", "b", "c"}
    assert sum("::" in line for line in collected(tmp_path, TESTS, "test_it.py", slow="all")) == 1 + 6 + 9


def test_a_condition_that_holds_for_no_case_or_asks_for_no_parameter_is_an_error(tmp_path: Path) -> None:
    stale = TESTS.replace("size > 2", "size > 3")
    assert "ERROR: a condition of slow_if holds for no case of: test_it.py::test_some" in collected(
        tmp_path, stale, "test_it.py"
    )
    assert any(
        "slow_if asks for length" in line
        for line in collected(tmp_path, TESTS.replace("lambda size: size", "lambda length: length"), "test_it.py")
    )
