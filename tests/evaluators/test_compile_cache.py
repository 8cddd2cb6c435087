"""The cache of compiled functions: where it is, when an entry is valid, and what happens where nothing can be written."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba.core import config

from dse.evaluators.machine import compile_cache
from dse.evaluators.machine.compile_counter import count_compilations_started

INNER = (
    "from dse.evaluators.machine.compile_cache import inlined_function\n\n\n@inlined_function\ndef add(a):\n    return a + {}\n"
)
OUTER = (
    "from dse.evaluators.machine.compile_cache import compiled_loop\n"
    "from {}_inner import add\n\n\n@compiled_loop\ndef twice(a):\n    return add(add(a))\n"
)


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], tuple[int, Any]]:
    """Two modules of which one's loop is made of the other's piece, as a new process would find them."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    name = f"loops_{tmp_path.name}"

    def load(adds: int) -> tuple[int, Any]:
        (tmp_path / f"{name}_inner.py").write_text(INNER.format(adds))
        (tmp_path / f"{name}.py").write_text(OUTER.format(name))
        for module in (name, f"{name}_inner"):
            sys.modules.pop(module, None)
        importlib.invalidate_caches()
        compile_cache._contents.cache_clear()
        compile_cache._writable.cache_clear()
        found_module: ModuleType = importlib.import_module(name)
        return found_module.twice(1), found_module.twice.stats

    return load


def test_an_entry_is_valid_until_a_source_beside_it_changes(played: Callable[[int], tuple[int, Any]]) -> None:
    for adds, hits in ((3, 0), (3, 1), (4, 0), (4, 1)):
        before = count_compilations_started()
        total, stats = played(adds)
        assert total == 1 + 2 * adds
        assert sum(stats.cache_hits.values()) == hits
        assert count_compilations_started() - before == 1 - hits  # who waits is told of what is compiled, and of that alone


@pytest.mark.parametrize("caller", ["{}.near.loops", "{}_outside"])
def test_an_entry_is_invalid_after_a_callee_in_another_folder_is_edited(
    caller: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a package with the module itself, so that its own folders are those that the module looks into."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    name = f"package_{tmp_path.name}"
    place, own = caller.format(name), f"{name}.machine.{compile_cache.__name__.rpartition('.')[2]}"
    texts = {
        own: Path(compile_cache.__file__).read_text(),
        place: OUTER.replace(compile_cache.__name__, own).replace("{}_inner", f"{name}.far.below.pieces"),
    }

    def load(adds: int) -> tuple[int, int]:
        texts[f"{name}.far.below.pieces"] = INNER.replace(compile_cache.__name__, own).format(adds)
        for module, text in texts.items():
            path = tmp_path / f"{module.replace('.', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for module in [module for module in sys.modules if module.startswith(name)]:
            del sys.modules[module]
        importlib.invalidate_caches()
        twice = importlib.import_module(place).twice
        return twice(1), sum(twice.stats.cache_hits.values())

    assert [load(adds) for adds in (3, 3, 4, 4)] == [(7, 0), (7, 1), (9, 0), (9, 1)]


class Tables(NamedTuple):
    rows: Any
    counts: Any
    step: float


@compile_cache.called_part
def _marked(tables: Any, row: int) -> Any:
    tables.counts[row] += 1
    return tables.rows[row, tables.counts[row]] * tables.step


@compile_cache.compiled_whole
def _walked(tables: Any) -> Any:
    kept, total = compile_cache.held(tables), 0.0
    for row in range(len(kept.counts)):
        total += _marked(kept, row) + _marked(kept, row)
    return total


def test_parts_read_and_write_tables_that_are_held_in_one_place() -> None:
    rows, level = np.arange(12.0).reshape(3, 4), config.OPT  # type: ignore[attr-defined]
    tables = Tables(rows, np.zeros(3, np.int64), 0.5)
    total = _walked(tables)
    assert total == 0.5 * rows[:, 1:3].sum()
    assert tables.counts.tolist() == [2, 2, 2]
    assert level == config.OPT  # type: ignore[attr-defined]


def test_a_part_that_stands_apart_is_in_the_code_once_and_called() -> None:
    _walked.recompile()
    code = _walked.inspect_llvm(_walked.signatures[0])
    assert sum("_marked" in line for line in code.splitlines() if line.startswith("define")) == 1
    assert sum("_marked" in line and " call " in line for line in code.splitlines()) == 2


def test_the_cache_may_be_where_the_user_says(
    played: Callable[[int], tuple[int, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "mine"))
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
    assert sorted(child.communicate()[0].strip() for child in many) == ["0", "0", "1"]


@pytest.mark.parametrize("given", ["", "/dev/null/none"])
def test_without_a_cache_that_can_be_written_loops_are_compiled_every_time(
    played: Callable[[int], tuple[int, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", given)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/none")
    (tmp_path / "__pycache__").write_text("a file, where a folder would have to be")
    for _ in range(2):
        total, stats = played(7)
        assert total == 15
        assert not stats.cache_hits


def test_without_a_home_nothing_is_kept_in_the_working_folder(
    played: Callable[[int], tuple[int, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    (tmp_path / "__pycache__").write_text("a file, where a folder would have to be")
    monkeypatch.chdir(tmp_path)
    played(7)
    assert not (tmp_path / "~").exists()
