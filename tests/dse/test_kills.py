"""One in each stage of a run, of the kills that `python -m tests.kills` spreads over a study."""

import subprocess
import sys


def test_kills_at_any_moment_lose_nothing() -> None:
    line = [sys.executable, "-m", "tests.kills", "--count", "7", "--ray", "0", "--seed", "1"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 kills, 0 that lost something" in done.stdout
