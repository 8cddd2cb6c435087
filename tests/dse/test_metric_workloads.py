"""Metrics that a workload does not have are refused with what to write; those that it has are not."""

import json
from pathlib import Path
from typing import Any

import pytest

from dse.commands.notebook_api import find_study
from dse.config.metric_workloads import BATCH_METRICS, MAX_RATE_METRICS, SERVED_METRICS
from dse.evaluators.accounting.metrics import METRICS
from dse.space.errors import DesignError

GOLDEN = Path(__file__).parents[1] / "contract" / "golden"

SERVED = ("npu_serving", "workload.requests=20")


def known_metrics(document: Any) -> set[str]:
    """Names of metrics among the keys of a golden file."""
    if isinstance(document, dict):
        return {key for key in document if key in METRICS}.union(*map(known_metrics, document.values()))
    return set().union(*map(known_metrics, document)) if isinstance(document, list) else set()


@pytest.fixture(scope="module")
def golden() -> dict[str, set[str]]:
    return {path.stem: known_metrics(json.loads(path.read_text())) for path in GOLDEN.glob("*.json")}


def test_metrics_are_in_the_results_of_their_workload_only(golden: dict[str, set[str]]) -> None:
    served, batches = golden["serving"], golden["models"]
    others = set().union(*(names for name, names in golden.items() if name not in ("serving", "models")))
    assert SERVED_METRICS & (batches | others) == set()
    assert SERVED_METRICS - served == {"prefix_host_hit_rate"}  # of no golden design
    assert served & BATCH_METRICS == set()
    assert batches >= BATCH_METRICS
    assert {*METRICS.names()} >= SERVED_METRICS | BATCH_METRICS | MAX_RATE_METRICS


@pytest.mark.parametrize(
    ("study", "word", "text"),
    [
        (
            ("quickstart",),
            "+objectives.max_rate=max",
            r"objectives\.max_rate: belongs to served requests at their maximum rate, got static batches; "
            r"set workload=serving workload\.rate=max",
        ),
        (("quickstart",), "+constraints.max_rate='>= 3 Hz'", r"constraints\.max_rate: belongs to served requests at"),
        (
            ("quickstart",),
            "+objectives.ttft_p90=min",
            r"objectives\.ttft_p90: belongs to served requests, got static batches; set workload=serving",
        ),
        (
            SERVED,
            "+objectives.max_rate=max",
            r"objectives\.max_rate: needs the maximum rate, got requests at a fixed rate; set workload\.rate_scale=max, or",
        ),
        (
            (*SERVED, "workload.arrivals=poisson", "workload.rate='4 Hz'"),
            "+objectives.max_rate=max",
            r"got requests at a fixed rate; set workload\.rate=max$",
        ),
        (
            SERVED,
            "+objectives.decode_throughput=max",
            r"objectives\.decode_throughput: belongs to static batches, got served requests; set workload=static",
        ),
    ],
)
def test_a_metric_of_another_workload_is_refused(tmp_path: Path, study: tuple[str, ...], word: str, text: str) -> None:
    with pytest.raises(DesignError, match=text):
        find_study(study[0], *study[1:], word, f"run_dir={tmp_path}")


def test_a_metric_that_is_computed_from_such_a_one_is_refused(tmp_path: Path) -> None:
    words = ("+metrics.rate_per_watt='max_rate / power'", "+objectives.rate_per_watt=max")
    with pytest.raises(
        DesignError, match=r"objectives\.rate_per_watt: is computed from max_rate, which needs the maximum rate"
    ):
        find_study(SERVED[0], *SERVED[1:], *words, f"run_dir={tmp_path}")


def test_the_maximum_rate_is_an_objective_of_loads_at_it(tmp_path: Path) -> None:
    words = ("workload.rate_scale=max", "+objectives.max_rate=max")
    assert "max_rate" in find_study(SERVED[0], *SERVED[1:], *words, f"run_dir={tmp_path}").objectives
