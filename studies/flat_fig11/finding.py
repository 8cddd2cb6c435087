"""Findings on tilings: engine utilisation and share of local memory."""

from pathlib import Path

from dse.config.compose import compose
from dse.config.question import build_question
from dse.evaluators import evaluate
from dse.studies.markdown_table import table


def finding() -> str:
    """Two tables with queries as rows and keys as columns."""
    question = build_question(compose(["study=flat_fig11"]), Path(__file__).parent)
    (queries, keys), chip = (knob.values for knob in question.space.knobs), question.base.chip
    columns = evaluate(question.space.stack(question.space.grid(0, len(queries) * len(keys))), question.workload).columns
    parts = []
    for title, metric, whole in (("Engine at work", "engine_utilisation", 1.0), ("L1", "sram_used", chip.tile.sram)):
        values = columns[metric].reshape(len(queries), len(keys)) / whole
        rows = [
            [f"{m}", *(f"{value:.0%}" if value <= 1 else f"**{value:.0%}**" for value in row)]
            for m, row in zip(queries, values, strict=True)
        ]
        parts += [f"{title}, queries of a slice down, keys across:", table(["", *map(str, keys)], rows)]
    return "\n\n".join(parts)
