"""Findings on memory streams: share of the peak and bottleneck by generation and pattern."""

from typing import Any

from dse.commands.notebook_api import find_study
from dse.commands.python_questions import evaluate
from dse.evaluators import explain
from dse.space.dram import peak_bandwidth, pseudo_channel_count
from dse.space.fields import replace_leaves
from dse.studies.markdown_table import table

GENERATIONS = ("hbm2", "hbm3", "hbm4")
PER_CHANNEL = 16
"""Bursts outstanding for each channel where there is a window."""


REQUESTERS = (1, 32, 256, 1024)
WIDTHS = ("128 B", "512 B")
ON_TILES = (
    "chip=tile32", "workload=stream", "workload.patterns=[random]", "workload.request='256 B'", "workload.requests=1024",
    "chip.hbm.banks.hashed=all", "fidelity=events",
)  # fmt: skip


def finding() -> str:
    """One row per generation and pattern; then one per number of tiles and link width."""
    return f"{stacks()}\n\nTiles that read hbm4 at random across their mesh (`chip=tile32`, rows hashed):\n\n{tiles()}"


def tiles() -> str:
    """Table of the memory bandwidth that links between tiles and channels leave, read and written."""
    rows = []
    for count in REQUESTERS:
        cells = []
        for width in WIDTHS:
            for writes in (0, 1):
                evaluation = evaluate(
                    *ON_TILES, f"mapping.requesters={count}", f"chip.noc.word_bytes='{width}'", f"workload.writes=[{writes}]"
                )
                cells.append(f"{evaluation.metrics['bandwidth_efficiency']:.0%} {evaluation.breakdown.rows[0].bound}")
        rows.append([str(count), *cells])
    return table(["tiles", *(f"{what}, links of {width}" for width in WIDTHS for what in ("reads", "writes"))], rows)


def stacks() -> str:
    """Table with one row per memory generation and pattern."""
    rows = []
    for chip in GENERATIONS:
        question = find_study("hbm_patterns", f"chip={chip}").question
        window = PER_CHANNEL * int(pseudo_channel_count(question.base.chip.memory))  # type: ignore[union-attr]
        reads, mixed = (
            [case for case in question.workload.cases if (case.writes > 0) == writes]  # type: ignore[union-attr]
            for writes in (False, True)
        )
        for alone, mixed_read in zip(reads, mixed, strict=True):
            cells = [share(question.base, alone, "analytical"), share(question.base, alone), share(question.base, mixed_read)]
            cells.append(share(replace_leaves(question.base, {"mapping.window": window}), alone))
            cells.append(share(replace_leaves(question.base, {"chip.memory.hashed": "all"}), alone))
            rows.append([chip, alone.label, *cells])
    head = [
        "memory",
        "pattern",
        "reads, closed",
        "reads",
        "a third writes",
        f"reads, {PER_CHANNEL} outstanding a channel",
        "reads, hashed",
    ]
    return table(head, rows)


def share(design: Any, case: Any, fidelity: str = "events") -> str:
    """Share of the peak bandwidth and bottleneck, as text."""
    row = explain(design, case, fidelity=fidelity).rows[0]
    return f"{row.nbytes / row.seconds / peak_bandwidth(design.chip.memory):.0%} {row.bound}"
