"""Findings on core memory: regions, token rate and throughput per area, for three models."""

import numpy as np

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate
from dse.space.fields import replace_leaves
from dse.space.knobs import Space
from dse.studies.markdown_table import table

MODELS = ("llama3_8b", "llama2_13b", "codellama_34b")
SIZES = (48, 96, 192, 288, 512)


def finding() -> str:
    """Best decode region for each memory size and model."""
    rows = []
    for model in MODELS:
        question = find_study("waferllm_sram", f"model={model}").question
        knobs = tuple(knob for knob in question.space.knobs if knob.address != "chip.core.sram")
        for size in SIZES:
            base = replace_leaves(question.base, {"chip.core.sram": size * 1024.0})
            space = Space(base, knobs)
            total = space.combinations
            assert total is not None
            columns = space.grid(0, total)
            evaluation = evaluate(space.stack(columns), question.workload, cases=True)
            if not evaluation.feasible.any():
                rows.append([model, f"{size} KiB", "-", "does not fit", "-", "-"])
                continue
            rates = np.where(evaluation.feasible, evaluation.cases["tokens_per_s_per_user"][0], 0.0)
            best = int(rates.argmax())
            area = np.where(evaluation.feasible, evaluation.cases["decode_throughput_per_die_mm2"][-1], 0.0)
            side = int(columns["mapping.decode.rows"][best])
            rows.append(
                [
                    model,
                    f"{size} KiB",
                    f"{side} x {side}",
                    f"{rates[best]:.0f}",
                    f"{1e6 * evaluation.cases['tpot'][0][best]:.0f}",
                    f"{area.max():.3f}",
                ]
            )
    head = ["model", "memory of a core", "best region", "token/s, one request", "TPOT [us]", "token/s/mm2, six requests"]
    return table(head, rows)
