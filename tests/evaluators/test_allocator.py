"""Memory of arrays over designs: pages that were written once are written again."""

import os
import platform
import subprocess
import sys

import pytest

from dse.evaluators.malloc_settings import SAID

FAULTS = """
import resource
import numpy as np
from dse.evaluators import evaluate
from dse.space.design import Designs
from dse.space.fields import replace_leaves
from tests.samples import asked

question, count = asked(), 32_768
rates = np.linspace(1e12, 2e12, count)
many = Designs(count, ((np.arange(count), replace_leaves(question.base, {"chip.hbm.bandwidth": rates})),))
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    evaluate(many, question.workload)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**environment: str) -> int:
    """Pages that a third evaluation of the same designs asks the kernel for."""
    kept = {name: value for name, value in os.environ.items() if name not in SAID}
    command = [sys.executable, "-c", FAULTS]
    return int(subprocess.run(command, env=kept | environment, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="thresholds of glibc")
def test_many_designs_again_take_no_new_pages_unless_the_user_chose_thresholds() -> None:
    assert faults() * 10 < faults(MALLOC_TOP_PAD_="131072")
