"""What a screen stores: metrics of each row beside its knobs, however rows were evaluated together."""

from pathlib import Path

import pandas as pd
import pytest

from dse.evaluators import evaluate
from dse.screen import CACHE_ROWS, screen
from dse.space.design import stacked
from tests.dse.toy import toy


def test_rows_that_are_evaluated_in_another_order_keep_their_metrics(tmp_path: Path) -> None:
    asked = toy(tmp_path, "screen.run=true", f"screen.limit={2 * CACHE_ROWS}")
    found = screen(asked, lambda done, total, size: None)
    rows = pd.concat([pd.read_parquet(path) for path in found.blocks])
    space, workload = asked.question.space, asked.question.workload
    assert len(rows) == 2 * CACHE_ROWS
    for _, row in rows.iloc[::400].iterrows():
        design = space.at({knob.address: row[knob.address] for knob in space.knobs})
        alone = evaluate(stacked([design]), workload)
        for name in ("latency", "tpot", "throughput_per_system_mm2"):
            assert row[name] == pytest.approx(alone.columns[name][0], rel=1e-12)
