"""Compiled loops are kept where something can be written, count until a source beside them changes, and work everywhere."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from numba.core import config

from evaluators.machine import kept

INNER = "from evaluators.machine.kept import piece\n\n\n@piece\ndef add(a):\n    return a + {}\n"
OUTER = "from evaluators.machine.kept import loop\nfrom {}_inner import add\n\n\n@loop\ndef twice(a):\n    return add(add(a))\n"


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], tuple[int, Any]]:
    """Two modules of which one's loop is made of the other's piece, as a new process would find them."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    name = f"kept_{tmp_path.name}"

    def load(adds: int) -> tuple[int, Any]:
        (tmp_path / f"{name}_inner.py").write_text(INNER.format(adds))
        (tmp_path / f"{name}.py").write_text(OUTER.format(name))
        for module in (name, f"{name}_inner"):
            sys.modules.pop(module, None)
        importlib.invalidate_caches()
        kept._stamp.cache_clear()
        kept._writable.cache_clear()
        found: ModuleType = importlib.import_module(name)
        return found.twice(1), found.twice.stats

    return load


def test_what_is_kept_counts_until_a_source_changes(played: Callable[[int], tuple[int, Any]]) -> None:
    for adds, hits in ((3, 0), (3, 1), (4, 0), (4, 1)):
        found, stats = played(adds)
        assert found == 1 + 2 * adds
        assert sum(stats.cache_hits.values()) == hits


def test_the_cache_may_be_where_the_user_says(
    played: Callable[[int], tuple[int, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "mine"))
    assert played(5)[0] == 11
    assert list((tmp_path / "mine").rglob("*.nbi"))
    assert not (tmp_path / "__pycache__").exists()


ONE = "import together; together.twice(1); print(len(together.twice.stats.cache_misses))"


def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    (tmp_path / "adds.py").write_text(INNER.format(3))
    (tmp_path / "together.py").write_text(OUTER.format("adds").replace("adds_inner", "adds"))
    line, path = [sys.executable, "-c", ONE], os.pathsep.join((str(tmp_path), str(Path(__file__).resolve().parents[2])))
    where = os.environ | {"PYTHONPATH": path}
    many = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=where, cwd=tmp_path) for _ in range(3)]
    assert sorted(one.communicate()[0].strip() for one in many) == ["0", "0", "1"]


@pytest.mark.parametrize("given", ["", "/dev/null/none"])
def test_without_a_cache_that_can_be_written_loops_are_compiled_every_time(
    played: Callable[[int], tuple[int, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", given)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/none")
    (tmp_path / "__pycache__").write_text("a file, where a folder would have to be")
    for _ in range(2):
        found, stats = played(7)
        assert found == 15
        assert not stats.cache_hits
