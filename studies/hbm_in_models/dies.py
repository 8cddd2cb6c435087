"""Findings on whole models on shared-cache dies: memory by a rate, by tables and burst by burst."""

from dse.commands.python_questions import evaluate

QUESTIONS = (("h200", "qwen3_4b"), ("h200", "qwen3_30b_a3b"), ("npu_dse", "qwen3_4b"))

STACKS = {"h200": 6, "npu_dse": 4}
"""Of HBM3, which is what a die of [yuzuguler2025] could have for its bandwidth."""

BATCHES = (1, 64)

LAYOUTS = (
    ("neighbours in other bank groups", "row_bank_column_group", "none"),
    ("all banks before a row again", "row_column_bank_group", "none"),
    ("rows filled one after the other", "row_group_bank_column", "none"),
    ("the same, banks hashed", "row_group_bank_column", "bank"),
)
"""What interleaving does, its order and its hash."""

HEAD = [
    *("die", "model", "batch", "interleaving", "rate [ms]", "events [ms]", "cycles [ms]"),
    *("error of the rate", "error of events"),
]


def by_dies() -> list[list[str]]:
    """Time of a token by question, batch, interleaving and fidelity, relative to full bandwidth."""
    rows = []
    for chip, model in QUESTIONS:
        for batch in BATCHES:
            words = (f"chip={chip}", f"model={model}", "stack=ideal", "mapping.both.tp=1", f"workload.batch=[{batch}]")
            rate = _tpot(*words)
            for what, order, hashed in LAYOUTS:
                banks = (
                    "+memory@chip.hbm.banks=hbm3", f"chip.hbm.banks.stacks={STACKS[chip]}", f"chip.hbm.banks.order={order}",
                    f"chip.hbm.banks.hashed={hashed}",
                )  # fmt: skip
                tables, bursts = (_tpot(*words, *banks, f"fidelity={word}") for word in ("events", "cycles"))
                errors = (f"{seconds / bursts - 1:+.1%}" for seconds in (rate, tables))
                times = (f"{seconds * 1e3:.2f}" for seconds in (rate, tables, bursts))
                rows.append([chip, model, str(batch), what, *times, *errors])
    return rows


def _tpot(*words: str) -> float:
    return float(evaluate(*words, "workload.prompt=4096", "workload.output=16").metrics["tpot"])
