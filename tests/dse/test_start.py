"""What starts quickly: a design is evaluated without the libraries that searches, stores, reports and played programs need."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"moocore", "numba", "optuna", "pandas", "plotly", "pyarrow", "ray", "scipy.optimize", "scipy.special", "sqlalchemy"}

CODE = """
import contextlib, io, json, sys
from dse.main import main
for line in sys.argv[1:]:
    sys.argv = ["dse", *line.split()]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main()
print(json.dumps(sorted(sys.modules)))
"""


def imported(folder: Path, *lines: str) -> set[str]:
    """What a process has imported after some commands."""
    done = subprocess.run([sys.executable, "-c", CODE, *lines], cwd=folder, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_one_closed_design_is_evaluated_without_heavy_libraries(tmp_path: Path) -> None:
    lines = ("evaluate", "evaluate chip=wse2", "evaluate chip=npu64", "evaluate chip=tile_gh200 workload=attention")
    modules = imported(tmp_path, *lines)
    assert {"dse.evaluators.workloads.batch_inference", "dse.evaluators.accounting.kernel_workloads.tile_attention"} <= modules
    assert not modules & HEAVY


@pytest.mark.parametrize("line", ["--help", "--version"])
def test_help_and_version_need_no_library_at_all(tmp_path: Path, line: str) -> None:
    assert not imported(tmp_path, line) & {*HEAVY, "hydra", "numpy", "rich"}
