"""Tables and traces as a stranger may hand them over: an answer, or one line that names file and row; never a traceback.

FUZZ=10000 pytest tests/dse/test_mutants.py tries ten thousand traces and a tenth as many tables.
"""

import os
import time
from pathlib import Path

import pytest

from dse.accuracy.validate import compare_file
from dse.evaluators.serving.traces import read_trace
from dse.space.errors import DesignError
from tests.dse.mutants import mutant
from tests.serving.test_traces import written

MANY = int(os.environ.get("FUZZ", "300"))

ROWS = [(0.5 + 0.25 * number, 900 + number, 40 + number, [7, number]) for number in range(12)]
TRACES = {kind: written(kind, ROWS).encode() for kind in ("mooncake", "llmservingsim", "azure", "vidur", "plain", "lengths")}
TABLE = b"""id,where,overrides,baseline,metric,value,unit,role,note
a,table 1; here,model=llama3_8b mapping.prefill.tp=8,,tpot,10,ms,check,
b,"table 1, there",model=llama3_8b mapping.prefill.tp=8,mapping.prefill.prefetch=none,tpot,0.5..1,ratio,report,"a, b"
c,fig. 2,model=llama3_8b mapping.prefill.tp=8,,throughput,5.5e3,token/s,calibration,
"""


def answered(read_it: object, path: Path) -> bool:
    """Whether a file was read; else one line of which the file is the subject refused it."""
    start = time.monotonic()
    try:
        read_it(path)  # type: ignore[operator]
    except DesignError as error:
        line = str(error)
        assert line.startswith(str(path))
        assert line.isprintable(), line
        assert len(line) < 2000
        return False
    finally:
        assert time.monotonic() - start < 10
    return True


@pytest.mark.parametrize("kind", TRACES)
def test_a_mutated_trace_is_read_or_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    path, read_ones = tmp_path / "trace", 0
    for seed in range(MANY // len(TRACES)):
        path.write_bytes(mutant(TRACES[kind], seed))
        read_ones += answered(read_trace, path)
    assert read_ones < 0.7 * (MANY // len(TRACES))


def test_a_mutated_table_is_compared_or_refused_in_one_line(tmp_path: Path) -> None:
    path, compared = tmp_path / "published.csv", 0
    for seed in range(MANY // 10):
        path.write_bytes(mutant(TABLE, seed))
        os.utime(path, ns=(seed, seed))  # files that are alike in name and time are taken for the same
        compared += answered(compare_file, path)
    assert compared < 0.7 * (MANY // 10)
