"""Draw where cycles go in every layer, one simulation per freed part: python -m dse.studies.flat_fig8."""

from itertools import product
from pathlib import Path

from dse.evaluators import explain
from dse.evaluators.kernels.attention import ATTENTION
from dse.studies.flat_fig8.figure import draw_figure
from dse.studies.flat_fig8.finding import COLUMNS, TOKENS, layer_question
from dse.studies.write import main as write


def cycles_by_cause(name: str, tokens: int, columns: int) -> dict[str, float]:
    """Cycles of a layer by resource."""
    layer = layer_question(name, tokens, columns)
    explanation = explain(layer.base, layer.workload.cases[0], fidelity="events")
    clock = layer.base.chip.clock  # type: ignore[union-attr]
    return {row.operator: row.seconds * clock for row in explanation.rows}


if __name__ == "__main__":
    panels = {
        f"S = {tokens}, D = {columns}": {name: cycles_by_cause(name, tokens, columns) for name in ATTENTION}
        for tokens, columns in product(TOKENS, COLUMNS)
    }
    Path(__file__).with_name("stacks.svg").write_text(draw_figure(panels))
    write(["flat_fig8"])
