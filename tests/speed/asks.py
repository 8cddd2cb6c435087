"""What an ask costs on six chips with conditional knobs, beside Optuna's TPE by itself: python -m tests.speed.asks [DESIGNS]

Each sampler searches the mixed grid of `studies/search_quality` for so many designs (300), whose results are looked up.
"""

import sys
import tempfile
import time
from pathlib import Path

from dse.studies.search_quality.replay import grid, search_rows

SAMPLERS = ("tpe", "local", "nsga2")
BASELINE = "optuna tpe"


def of_asks(designs: int) -> list[tuple[str, str, str]]:
    """Lines of the speed table: CPU of an ask in the mean, and of one by the baseline."""
    with tempfile.TemporaryDirectory() as folder:
        whole = grid("mixed", Path(folder))
    rows = whole.rows()

    def spent_by(sampler: str) -> float:
        start = time.process_time()
        order = search_rows(whole, rows, sampler, 0, designs, [])
        return (time.process_time() - start) / len(order)

    spent_by("random")
    baseline = spent_by(BASELINE)
    return [
        (
            f"ask by {sampler}, {designs:,} designs of six chips",
            f"{spent_by(sampler) * 1e3:.1f} ms CPU an ask",
            f"{baseline * 1e3:.1f} ms by {BASELINE}",
        )
        for sampler in SAMPLERS
    ]


if __name__ == "__main__":
    for line in of_asks(int((sys.argv[1:] or ["300"])[0])):
        print(" | ".join(line))
