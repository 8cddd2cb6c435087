"""KV pools of inference engines: the memory that their rule leaves beside weights, as printed and as asked."""

import csv
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.config.record_parser import parse_value
from dse.evaluators.evaluation import limits
from dse.space.limits import Limit
from tests.samples import asked

PUBLISHED = Path(__file__).parents[2] / "studies" / "engines" / "kv_pools.csv"

ROWS = {row["id"]: row for row in csv.DictReader(PUBLISHED.read_text(encoding="utf-8").splitlines())}
"""KV pools that vLLM printed, with the weights that it printed beside them."""

ONE = "workload=serving workload.requests=1 workload.output=8"
EIGHT_BITS = "fp8"

LOAD = "workload=serving workload.requests=4 workload.rate=8Hz workload.prompt=1000 workload.output=24 model=llama3_8b"
DIES = (
    "workload=serving workload.requests=4 workload.rate=8Hz workload.prompt=1000 workload.output=24 chip=h800_ep "
    "chip.dies.rows=2 chip.dies.cols=4 chip.nodes.size=4 model=deepseek_v2_lite model.deepseek_v2_lite.layers=2 "
    "mapping.both.ep=8 mapping.serving.max_batch_size=16 mapping.serving.max_batched_tokens=1024"
)


def question(words: str) -> Any:
    return asked(*words.split())


@cache
def memory_limit(words: str) -> Limit:
    """The first limit of main memory of a question, with its parts."""
    posed = question(words)
    return next(limit for limit in limits(posed.base, posed.workload) if limit.address == "chip.hbm.capacity")


def pool_tokens(row: dict[str, str], weights: float | None = None) -> float:
    """Tokens of a row's pool, by its own weights or by those that were printed."""
    positions = int(row["positions"])
    limit = memory_limit(f"{ONE} workload.prompt={positions - 8} {row['overrides']}")
    parts = dict(limit.parts)
    weights = parts["weights"] if weights is None else weights
    each = parts["KV cache"] / (positions - 1)
    return float(np.ravel(limit.have - weights - parts["activations"] - parts["inference engine"])[0] / np.ravel(each)[0])


@pytest.mark.parametrize("name", ROWS)
def test_a_printed_pool_is_met_within_one_percent_by_printed_weights(name: str) -> None:
    row = ROWS[name]
    weights = parse_value(row["weights"], "B", name)
    assert pool_tokens(row, weights) == pytest.approx(float(row["value"]), rel=0.01)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if EIGHT_BITS not in row["overrides"]])
def test_a_printed_pool_is_met_within_two_percent_by_weights_of_the_model(name: str) -> None:
    assert pool_tokens(ROWS[name]) == pytest.approx(float(ROWS[name]["value"]), rel=0.02)


def test_a_request_that_the_engine_refuses_is_infeasible_and_fits_without_one() -> None:
    row = ROWS["llama31-8b-3090-29000"]
    words = f"{ONE} workload.prompt=28992 {row['overrides']}"
    assert memory_limit(words).need > memory_limit(words).have
    kept = [word for word in words.split() if "usable_ratio" not in word and "inference_engine" not in word]
    without = memory_limit(" ".join(kept))
    assert without.need < without.have
