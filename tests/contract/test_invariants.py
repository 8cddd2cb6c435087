"""Ten thousand random designs from every shipped space: finite, ordered, never above a peak."""

from pathlib import Path

import numpy as np
import pytest

from evaluators import METRICS, evaluate
from space.knobs import Space
from tests.samples import asked, wide

SPACES = sorted(
    path.stem for path in (Path(__file__).resolve().parents[2] / "conf/space").glob("*.yaml") if path.stem != "empty"
)


@pytest.mark.parametrize("name", [*SPACES, "wide"])
def test_random_designs_are_answered(name: str) -> None:
    question = asked(f"space={name}") if name != "wide" else asked()
    space: Space = question.space if name != "wide" else wide(question.base)
    columns = space.sample(np.random.default_rng(1).random((10_000, len(space.knobs))))
    outcomes = evaluate(space.stack(columns), question.workload)
    for metric in METRICS:
        assert np.isfinite(outcomes.columns[metric]).all()
        assert (outcomes.columns[metric] > 0).all()
    assert np.allclose(outcomes.columns["latency"], outcomes.columns["ttft"] + outcomes.columns["tpot"] * 2731)
    assert (outcomes.excess[~outcomes.feasible] > 0).all()
    assert (outcomes.columns["system_mm2"] >= outcomes.columns["die_mm2"]).all()
