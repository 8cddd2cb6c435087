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
    chip: tuple[str, ...] = ("chip=wse2", "workload.batch=[1,4]") if name.startswith("wafer") else ()
    if name.startswith("product"):
        chip = ("chip=wse2", f"workload={'gemm' if name == 'product_gemm' else 'gemv'}")
    question = asked(*chip, f"space={name}") if name != "wide" else asked()
    space: Space = question.space if name != "wide" else wide(question.base)
    columns = space.sample(np.random.default_rng(1).random((10_000, len(space.knobs))))
    outcomes = evaluate(space.stack(columns), question.workload)
    here = [metric for metric in METRICS if not np.isnan(outcomes.columns[metric]).all()]
    phases = {"throughput", "ttft", "tpot"} if not name.startswith("product") else {"cycles", "efficiency", "cores"}
    assert {"latency", "system_mm2", *phases} <= set(here)
    for metric in here:
        assert np.isfinite(outcomes.columns[metric]).all(), metric
        if metric not in ("transition", "kv_capacity"):  # nothing to move, or no room
            assert (outcomes.columns[metric] > 0).all(), metric
    found = outcomes.columns
    if name.startswith("product"):
        assert (found["utilisation"] <= found["efficiency"] + 1e-12).all()
        assert (found["efficiency"] <= 1).all()
    else:
        moved = np.nan_to_num(found["transition"])
        assert np.allclose(found["latency"], found["ttft"] + moved + found["tpot"] * 2731)
    assert (outcomes.excess[~outcomes.feasible] > 0).all()
    assert (outcomes.columns["system_mm2"] >= outcomes.columns["die_mm2"]).all()
