"""CPU seconds of this process."""

import time
from collections.abc import Callable
from typing import Any


def cpu(work: Callable[[], Any], times: int = 1) -> float:
    """Of one run of `work`, the mean of several."""
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times
