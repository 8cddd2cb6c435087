"""Findings on memory fidelity in whole models, and on losses of streams that share a channel."""

import numpy as np

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate
from dse.evaluators.machine import memory_system as hbm
from dse.space.design import stack_designs
from dse.space.dram import pseudo_channels_for_bandwidth
from dse.space.fields import replace_leaves
from dse.space.main_memory import main_memory
from dse.studies.hbm_in_models.dies import HEAD, by_dies
from dse.studies.hbm_in_models.tiles import PACES, by_calls, by_layers
from dse.studies.markdown_table import table

MODELS = ("qwen3_4b", "qwen3_30b_a3b", "deepseek_v2_lite")

BATCHES = (1, 64)

LAYOUTS = (
    ("neighbours in other bank groups", ()),
    ("all banks before a row again", ("chip.hbm.banks.order=row_column_bank_group",)),
    ("rows filled one after the other", ("chip.hbm.banks.order=row_group_bank_column",)),
)
"""What interleaving does, and overrides; the first one is the chip's."""

READERS = (("analytical", "chip.hbm.banks=null"), ("analytical",), ("events",), ("cycles",))
"""The rate alone, then each fidelity."""

STREAMS = (1, 2, 4, 8, 16, 32)

BLOCK, WINDOW = 1 << 17, 256
"""Bytes of what each tile reads, one after the other in memory; bursts that a tile has outstanding."""


def finding() -> str:
    """All tables of the study's findings, in Markdown."""
    rows = []
    for model in MODELS:
        for batch in BATCHES:
            for what, layout in LAYOUTS:
                tpots = [
                    _tpot(f"model={model}", f"workload.batch=[{batch}]", *(more or layout), fidelity=fidelity)
                    for fidelity, *more in READERS
                ]
                errors = (f"{seconds / tpots[-1] - 1:+.1%}" for seconds in tpots[:-1])
                rows.append([model, str(batch), what, *(f"{seconds * 1e3:.2f}" for seconds in tpots), *errors])
    head = ["model", "batch", "interleaving"]
    head += [f"{name} [ms]" for name in ("rate", "analytical", "events", "cycles")]
    head += [f"error of {name}" for name in ("the rate", "analytical", "events")]
    gaps = ["calls", "interleaving", "one pace over bursts", "tables over bursts", "bursts over the chip's interleaving"]
    return "\n\n".join((
        table(head, rows),
        table(["bank order", *(f"{count} tiles" for count in STREAMS)], _meeting()),
        table(gaps, by_calls()),
        table(["layer", *(what for what, *_ in PACES)], by_layers()),
        table(HEAD, by_dies()),
    ))  # fmt: skip


def _tpot(*overrides: str, fidelity: str) -> float:
    question = find_study("hbm_in_models", "mapping.sram_kv_share=0", *overrides).question
    return float(evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns["tpot"][0])


def _meeting() -> list[list[str]]:
    """Share of a channel's peak, by interleaving and by the number of tiles whose blocks share it."""
    main = main_memory(find_study("hbm_in_models", "chip=tile32", "mapping=flat").question.base.chip)
    count = round(float(pseudo_channels_for_bandwidth(main.banks, main.channel_bandwidth)))
    rows = []
    for order in ("row_bank_column_group", "row_group_bank_column"):
        for hashed in ("none", "bank"):
            changed = {"stacks": 1, "channels": count, "pseudo": 1, "order": order, "hashed": hashed}
            memory = replace_leaves(main.banks, changed)
            row = [f"{order}, hash {hashed}"]
            for tiles in STREAMS:
                start = np.arange(0, BLOCK, int(memory.granularity))
                address = (np.arange(tiles)[:, None] * BLOCK + start).ravel()
                report = hbm.simulate_memory(
                    memory, address, int(memory.granularity), False, windows=np.full(tiles, WINDOW),
                    requester=np.repeat(np.arange(tiles), len(start)),
                )  # fmt: skip
                row.append(f"{report.share:.1%}")
            rows.append(row)
    return rows
