"""Property tests draw new examples on a desk, and the same ones in CI, where a run must depend on the change alone.

Who runs tests in the background of a shell ignores Ctrl-C, and what they start would too; some of it is sent one.
"""

import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from dse.main import SWEEP

gc.set_threshold(*SWEEP)
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, as what starts processes, stores and browsers mostly waits for them."""
    return (os.cpu_count() or 1) + 1


SLOW = [line for line in (Path(__file__).parent / "slow.txt").read_text().splitlines() if line and not line.startswith("#")]
"""How names of tests begin that only SLOW=all runs."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is slow; what takes longest of the rest goes first, so that nobody waits for it in the end."""
    if os.environ.get("SLOW") != "all" and not any("::" in word for word in config.args):  # a test that is named runs
        slow = [item for item in items if item.nodeid.startswith(tuple(SLOW))]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]
    items.sort(key=lambda item: item.path.parent.name not in ("published", "fuzz") and item.path.name != "test_documents.py")


def pytest_collection_finish() -> None:
    """What has been imported and collected stays: the search for unused cycles looks at what tests make."""
    gc.collect()
    gc.freeze()
