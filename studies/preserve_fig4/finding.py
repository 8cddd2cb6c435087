"""Findings on decode speedup by batch and sequence length on four NPUs; a dash if memory is short."""

import numpy as np

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate
from dse.space.array_math import Array
from dse.studies.markdown_table import table

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SEQUENCES = (1024, 2048, 4096, 8192, 16384, 32768, 65536)


def finding() -> str:
    """One table per model, in Markdown."""
    texts = []
    for model in ("llama3_70b", "qwen2_72b", "phi3_medium"):
        name, grid = speedups(model)
        rows = [
            [str(batch), *("-" if np.isnan(x) else f"{x:.2f}" for x in row)] for batch, row in zip(BATCHES, grid, strict=True)
        ]
        texts.append(f"{name}, speedup:\n\n" + table(["batch", *(f"{s // 1024}k tokens" for s in SEQUENCES)], rows))
    _, capped = speedups("llama3_70b", "mapping.prefill.prefetch_share=0.44")
    row = ", ".join(f"{s // 1024}k {x:.2f}" for s, x in zip(SEQUENCES, capped[BATCHES.index(4)], strict=True))
    texts.append(f"Llama-3-70B at batch 4 with a budget of 0.44 of L2: {row}.")
    return "\n\n".join(texts)


def speedups(model: str, *overrides: str) -> tuple[str, Array]:
    """Name of a model and its speedups, shape (batches, sequences); NaN if the case does not fit."""
    batches, sequences = str(list(BATCHES)).replace(" ", ""), str(list(SEQUENCES)).replace(" ", "")
    workload = (f"workload.batch={batches}", f"workload.sequence={sequences}")
    question = find_study("preserve_fig4", f"model={model}", *workload, *overrides).question
    columns = question.space.grid(0, question.space.combinations or 0)
    cases = evaluate(question.space.stack(columns), question.workload, cases=True).cases
    speedup = np.where(cases["fits"][:, 0] > 0, cases["tpot"][:, 0] / cases["tpot"][:, 1], np.nan)
    return question.workload.cases[0].model.name, speedup.reshape(len(BATCHES), len(SEQUENCES))
