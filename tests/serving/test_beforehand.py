"""The serving loop compiled beforehand, by another process: it is the one that a command then plays."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dse.evaluators.machine.compile_cache import needs_compiling
from dse.evaluators.serving.event_loop import run_event_loop
from dse.evaluators.serving.iteration_time import geometric_axes, tabulate_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import InstancePool, simulate_serving
from dse.evaluators.serving.simulator_state import KvTransfer
from dse.execution import precompile as beforehand
from dse.space.requests import Requests


def test_what_is_compiled_beforehand_is_what_any_deployment_plays() -> None:
    beforehand.compile_simulator()
    many = Requests(np.arange(4.0), np.array([9, 70, 30, 5]), np.array([3, 1, 8, 2]), np.arange(5), np.arange(4) % 2, 16)
    table = tabulate_time(
        lambda p, c, d, e, s: 1e-3 + 1e-5 * (p + d) + 1e-9 * p * c + 1e-8 * d * e, geometric_axes(64, 128, 8, 128)
    )
    pools = [InstancePool(table, make_policy(word, tokens=32), KvMemory(64)) for word in ("prefill_first", "chunked_prefill")]
    simulate_serving(many, pools, transfer=KvTransfer(1e-6, 1e-5, 2, True))
    assert len(run_event_loop.signatures) == 1
    assert not needs_compiling(run_event_loop)


@pytest.mark.parametrize(("empty", "cores", "starts"), [(True, 2, True), (True, 1, False), (False, 2, False)])
def test_a_process_begins_where_the_cache_has_no_loop_and_a_core_is_idle(
    empty: bool, cores: int, starts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beforehand, "needs_compiling", lambda made: empty)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(cores)), raising=False)
    monkeypatch.setattr(beforehand, "COMMAND", f"import dse; open({str(tmp_path / 'been')!r}, 'w')")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    beforehand.start_precompile.cache_clear()
    module = beforehand.start_precompile()
    beforehand.start_precompile.cache_clear()
    assert isinstance(module, subprocess.Popen) == starts
    assert module is None or module.wait(60) == 0
    assert (tmp_path / "been").exists() == starts
