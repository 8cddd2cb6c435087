"""The steady state of served loads against the loop, on designs of studies/npu_serving drawn uniformly: ranks and speed.

`python -m tests.speed.steady [DESIGNS] [SEED]`; designs whose load is below 0.95 count.
"""

import sys
import time

import numpy as np
from scipy.stats import kendalltau

from dse.build import question
from dse.compose import compose, folder_of
from dse.evaluators import evaluate

BELOW = 0.95


def compared(count: int, seed: int, *words: str) -> list[tuple[str, str, str]]:
    """Lines of a table: what, the figure, what was asked for."""
    config = compose(["study=npu_serving", *words])
    asked = question(config, folder_of(config))
    rng = np.random.default_rng(seed)
    designs = asked.space.stack(asked.space.sample(rng.random((count, len(asked.space.knobs)))))
    found, spent = {}, {}
    for fidelity in ("steady", "closed"):
        start = time.process_time()
        found[fidelity] = evaluate(designs, asked.workload, fidelity=fidelity)
        spent[fidelity] = time.process_time() - start
    again = time.process_time()
    evaluate(designs, asked.workload, fidelity="steady")
    again = time.process_time() - again
    steady, closed = found["steady"].columns, found["closed"].columns
    counts = np.asarray(found["closed"].feasible) & (closed["offered_load"] < BELOW)
    lines = [("designs, feasible and below 0.95 of saturation", f"{counts.sum()} of {count}", "")]
    for name, least in (("throughput", 0.8), ("tpot", 0.8), ("ttft_p90", 0.7), ("tbt_p99", 0.7)):
        tau = kendalltau(steady[name][counts], closed[name][counts]).statistic
        lines.append((f"{name}: Kendall's tau-b", f"{tau:.3f}", f"{least}"))
    for name, sign in (("throughput", 1.0), ("tpot", -1.0), ("ttft_p90", -1.0), ("tbt_p99", -1.0)):
        mine, theirs = sign * steady[name][counts], sign * closed[name][counts]
        top, best = np.argsort(-mine)[: len(mine) // 5], np.argsort(-theirs)[: len(mine) // 10]
        lines.append((f"{name}: of the loop's top 10 % in the top 20 %", f"{np.isin(best, top).mean():.1%}", "95 %"))
        lines.append(
            (f"{name}: the best by steady against the loop's best", f"{theirs[np.argmax(mine)] / theirs.max() - 1:+.1%}", "3 %")
        )
    lines.append(("steady, new and again", f"{count / spent['steady']:.0f} and {count / again:,.0f} designs/s CPU", "10,000"))
    lines.append(("closed, the loop played", f"{count / spent['closed']:.1f} designs/s CPU", ""))
    return lines


if __name__ == "__main__":
    said = [int(word) for word in sys.argv[1:] if word.isdigit()]
    for line in compared(*(*said, 500, 7)[:2] if len(said) < 2 else said[:2], *[w for w in sys.argv[1:] if not w.isdigit()]):
        print(*line, sep=" | ")
