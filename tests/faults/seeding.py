"""A seeded fault, the source with it, and which tests fail on a copy of the tree that has it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "runs", "*.egg-info", "*.nbi", "*.nbc")
"""Of a copy; compiled loops among it, which may have a part of another file in them."""

GOLDEN = "tests/contract/test_golden.py::test_closed_forms_are_those_of_this_physics_version"


class Fault(NamedTuple):
    """A wrong piece of a program, and who should notice.

    Attributes:
        wrong: what is wrong.
        path: of the file.
        text: what stands there once.
        instead: what stands there in its place.
        identities: tests of properties and identities, doctests among them.
        golden: of physics, a question of the golden set.
    """

    wrong: str
    path: str
    text: str
    instead: str
    identities: tuple[str, ...]
    golden: str = ""

    @property
    def tests(self) -> tuple[str, ...]:
        """All that may notice it."""
        golden = (f"{GOLDEN}[{self.golden.replace(' ', '-')}]",) if self.golden else ()
        return (*self.identities, *golden)


def mutated(fault: Fault, root: Path = ROOT) -> str:
    """The source of a file with a fault in it."""
    source = (root / fault.path).read_text()
    assert source.count(fault.text) == 1, (
        f"{fault.path}: {source.count(fault.text)} times {fault.text!r}; say what stands there now"
    )
    return source.replace(fault.text, fault.instead)


def failed(tests: tuple[str, ...], folder: Path, fault: Fault | None = None) -> list[str]:
    """Which of some tests fail on a copy of the tree, without a fault or with one.

    Raises:
        RuntimeError: they could not be run.
    """
    copy = folder / (Path(fault.path).stem if fault else "clean")
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT, symlinks=True)
    if fault:
        (copy / fault.path).write_text(mutated(fault))
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "--tb=no", "-rfE"]
    command += ["--doctest-modules", *tests]
    # the same examples of properties every time
    done = subprocess.run(command, cwd=copy, env=os.environ | {"CI": "1"}, capture_output=True, text=True, check=False)
    shutil.rmtree(copy)
    result = re.findall(r"^FAILED (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode != bool(result):
        raise RuntimeError(f"tests of {fault or 'the clean tree'} do not run:\n{done.stdout}{done.stderr}")
    return result
