"""The serving loop compiled beforehand, by another process: it is the one that a command then plays."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dse.evaluators.machine.compile_cache import missing
from dse.evaluators.serving.compiled import play
from dse.evaluators.serving.kvcache import Memory
from dse.evaluators.serving.loop import Pool, serve
from dse.evaluators.serving.policy import policy
from dse.evaluators.serving.price import spread, tabled
from dse.evaluators.serving.state import Transfer
from dse.running import beforehand
from dse.space.requests import Requests


def test_what_is_compiled_beforehand_is_what_any_deployment_plays() -> None:
    beforehand.compiled()
    many = Requests(np.arange(4.0), np.array([9, 70, 30, 5]), np.array([3, 1, 8, 2]), np.arange(5), np.arange(4) % 2, 16)
    table = tabled(lambda p, c, d, e, s: 1e-3 + 1e-5 * (p + d) + 1e-9 * p * c + 1e-8 * d * e, spread(64, 128, 8, 128))
    pools = [Pool(table, policy(word, tokens=32), Memory(64)) for word in ("prefill_first", "chunked")]
    serve(many, pools, transfer=Transfer(1e-6, 1e-5, 2, True))
    assert len(play.signatures) == 1
    assert not missing(play)


@pytest.mark.parametrize(("empty", "cores", "starts"), [(True, 2, True), (True, 1, False), (False, 2, False)])
def test_a_process_begins_where_the_cache_has_no_loop_and_a_core_is_idle(
    empty: bool, cores: int, starts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beforehand, "missing", lambda made: empty)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(cores)), raising=False)
    monkeypatch.setattr(beforehand, "COMMAND", f"import dse; open({str(tmp_path / 'been')!r}, 'w')")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    beforehand.begun.cache_clear()
    one = beforehand.begun()
    beforehand.begun.cache_clear()
    assert isinstance(one, subprocess.Popen) == starts
    assert one is None or one.wait(60) == 0
    assert (tmp_path / "been").exists() == starts
