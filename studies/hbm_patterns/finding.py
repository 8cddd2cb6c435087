"""Share of the peak and what binds, by generation and pattern: reads, with writes, within a window, and hashed."""

from typing import Any

from dse.api import study_of
from evaluators import explain
from space.fields import replaced
from space.memory import channels, peak
from studies.write import table

GENERATIONS = ("hbm2", "hbm3", "hbm4")
PER_CHANNEL = 16
"""Bursts outstanding for each channel where there is a window."""


def finding() -> str:
    """One row a generation and pattern."""
    rows = []
    for chip in GENERATIONS:
        asked = study_of("hbm_patterns", f"chip={chip}").question
        window = PER_CHANNEL * int(channels(asked.base.chip.memory))  # type: ignore[union-attr]
        reads, mixed = (
            [case for case in asked.workload.cases if (case.writes > 0) == writes]  # type: ignore[union-attr]
            for writes in (False, True)
        )
        for alone, some in zip(reads, mixed, strict=True):
            cells = [share(asked.base, alone), share(asked.base, some)]
            cells.append(share(replaced(asked.base, {"mapping.window": window}), alone))
            cells.append(share(replaced(asked.base, {"chip.memory.hashed": "all"}), alone))
            rows.append([chip, alone.label, *cells])
    head = ["memory", "pattern", "reads", "a third writes", f"reads, {PER_CHANNEL} outstanding a channel", "reads, hashed"]
    return table(head, rows)


def share(design: Any, case: Any) -> str:
    """Share of the peak, and what binds."""
    row = explain(design, case, fidelity="events").rows[0]
    return f"{row.nbytes / row.seconds / peak(design.chip.memory):.0%} {row.bound}"
