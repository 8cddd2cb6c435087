"""What figures become with other constants: as the studies say, and as with the words typed."""

import pandas as pd
import pytest

from dse.accuracy.validate import compare_file, simulate_metric
from dse.studies.npusim_constants.finding import HERE

FRAME = pd.read_csv(HERE / "moves.csv", keep_default_na=False)


def test_figures_as_they_are_are_those_of_the_studies() -> None:
    rows = {
        row.id: row for name in ("npusim_fig8", "npusim_fig9") for row in compare_file(HERE.parent / name / "published.csv")
    }
    simulated = FRAME[FRAME["constant"] == ""].set_index("row")["simulated"]
    for name, row in rows.items():
        assert simulated[name] == pytest.approx(row.simulated, rel=1e-3), name


def test_a_figure_with_another_constant_is_that_of_the_words_typed() -> None:
    words = ("chip=npu64", "model=qwen3_4b", "workload.batch=[1]", "workload.prompt=256", "workload.output=1")
    words = (*words, "mapping.prefill.tp=4", "chip.tile.vector.lanes=5120 op/cycle")
    both = [simulate_metric((*words, f"mapping.prefill.partition={name}"), "ttft") for name in ("mn", "k")]
    frame_row = FRAME[
        (FRAME["row"] == "n-tp-k-mn") & (FRAME["constant"] == "chip.tile.vector.lanes") & (FRAME["value"] == "x 1.25")
    ]
    assert both[0] is not None
    assert both[1] is not None
    assert frame_row["simulated"].item() == pytest.approx(both[0] / both[1], rel=1e-3)
