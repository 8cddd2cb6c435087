"""The steady state of served loads against the loop, on designs of studies/npu_serving drawn uniformly: ranks and speed.

`python -m tests.speed.steady [DESIGNS] [SEED]`; designs whose load is below 0.95 count.
`python -m tests.speed.steady dies [DESIGNS]` says how fast designs of dies with a cache are screened.
`python -m tests.speed.steady pipelines [DESIGNS]` says it of those of studies/npu_serving.
`python -m tests.speed.steady machines [DESIGNS]` says it of those of studies/mesh_llm, chip by chip, as its screen has them
together (3 ms: 200,000 in 5 minutes on 2 cores).
`python -m tests.speed.steady pruned [DESIGNS]` says it of its screen where bounds leave designs out; new to the process.
"""

import sys
import time
from collections.abc import Iterator
from resource import RUSAGE_SELF, getrusage
from tempfile import TemporaryDirectory

import numpy as np
from scipy.stats import kendalltau

from dse.commands.notebook_api import find_study
from dse.config.compose import compose, find_study_folder
from dse.config.metric_expressions import evaluate_with_derived as defined_evaluate
from dse.config.question import build_question
from dse.evaluators import evaluate
from dse.evaluators.accounting.serving_runs.steady_state_run import LOADED
from dse.execution.screen import run_screen, screen_left_out_text
from dse.execution.screen_block import BATCH_ROWS
from dse.execution.screen_block import requested_metrics as names
from dse.search.samplers import generate_sobol_points
from tests.samples import AT_ONE_RATE

BELOW = 0.95

KEPT = 0.9
"""Of the requests, who must keep their bounds for a design to count as one that does."""


def compared(count: int, seed: int, *words: str) -> list[tuple[str, str, str]]:
    """Lines of a table: what, the figure, what was asked for."""
    config = compose(["study=npu_serving", *words])
    question = build_question(config, find_study_folder(config))
    rng = np.random.default_rng(seed)
    designs = question.space.stack(question.space.sample(rng.random((count, len(question.space.knobs)))))
    outcomes, spent = {}, {}
    for fidelity in ("steady_state", "analytical"):
        start = time.process_time()
        outcomes[fidelity] = evaluate(designs, question.workload, fidelity=fidelity)
        spent[fidelity] = time.process_time() - start
    again = time.process_time()
    evaluate(designs, question.workload, fidelity="steady_state")
    again = time.process_time() - again
    steady, closed = outcomes["steady_state"].columns, outcomes["analytical"].columns
    counts = np.asarray(outcomes["analytical"].feasible) & (closed["offered_load"] < BELOW)
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
    lines += attained(steady["slo_attainment"][counts], closed["slo_attainment"][counts])
    lines.append(
        ("steady, new and again", f"{count / spent['steady_state']:.0f} and {count / again:,.0f} designs/s CPU", "10,000")
    )
    lines.append(("closed, the loop played", f"{count / spent['analytical']:.1f} designs/s CPU", ""))
    return lines


def attained(steady: np.ndarray, loop: np.ndarray) -> list[tuple[str, str, str]]:
    """Lines of a table: how far shares of requests that keep bounds are off, and who keeps them by one and not by the other."""
    off, yes, true = np.abs(steady - loop), steady >= KEPT, loop >= KEPT
    return [
        ("slo_attainment: off the loop's, mean and worst", f"{off.mean():.3f} and {off.max():.3f}", ""),
        (f"slo_attainment: {KEPT} by steady, less by the loop", f"{(yes & ~true).mean():.1%}", ""),
        (f"slo_attainment: less by steady, {KEPT} by the loop", f"{(~yes & true).mean():.1%}", ""),
    ]


DIES = (
    "chip=h200", "model=llama3_8b", "workload=serving", "workload.rate='10 Hz'", "+space.mapping.both.tp=choice(1,2,4,8)",
    "+space.mapping.serving.instances=choice(1,2,4)", "+space.mapping.serving.max_batch_size=choice(8,16,32,64,128,256)",
    "+space.mapping.serving.policy=choice(chunked_prefill,prefill_first)",
    "+space.chip.hbm.bandwidth='tag(B/s,interval(1e12,8e12))'",
)  # fmt: skip


def of_dies(count: int, seed: int) -> list[tuple[str, str, str]]:
    """Lines of a table: designs that differ in splits, batches, policies and a bandwidth of its own each; the second draw."""
    config = compose(list(DIES))
    question = build_question(config, find_study_folder(config))
    rng, lines, known = np.random.default_rng(seed), [], list[str]()
    wanted: dict[str, tuple[str, ...] | None] = {
        "steady, all metrics": None,
        "steady, all but the load": None,
        "steady, throughput, TPOT and TTFT": ("throughput", "tpot", "ttft_p90"),
        "steady, throughput": ("throughput",),
    }
    for place, (what, metrics) in enumerate(wanted.items()):
        if what == "steady, all but the load":
            metrics = tuple(name for name in known if name not in LOADED)
        for _ in range(2 - (place > 0)):
            designs = question.space.stack(question.space.sample(rng.random((count, len(question.space.knobs)))))
            start = time.process_time()
            known = list(evaluate(designs, question.workload, fidelity="steady_state", metrics=metrics).columns)
            spent = time.process_time() - start
        lines.append((f"{count:,} designs of dies: {what}", f"{count / spent:,.0f} designs/s CPU", "10,000"))
    return lines


def of_pipelines(count: int) -> Iterator[tuple[str, str, str]]:
    """Lines of a table: designs of studies/npu_serving, with the load, for which a closed loop is played, and without it."""
    config = compose(["study=npu_serving"])
    question = build_question(config, find_study_folder(config))
    rng, known = np.random.default_rng(5), list[str]()
    for what in ("all metrics", "all but the load"):
        designs = question.space.stack(question.space.sample(rng.random((count, len(question.space.knobs)))))
        wanted = tuple(name for name in known if name not in LOADED) or None
        start = time.process_time()
        evaluation = evaluate(designs, question.workload, fidelity="steady_state", metrics=wanted)
        spent, known = time.process_time() - start, list(evaluation.columns)
        yield f"{count:,} designs of pipelines: steady, {what}", f"{count / spent:,.0f} designs/s CPU", "10,000"


def of_machines(count: int) -> Iterator[tuple[str, str, str]]:
    """Lines of a table: the first designs of the screen of studies/mesh_llm, by chip and altogether."""
    study = find_study("mesh_llm", *AT_ONE_RATE)
    space, total = study.question.space, 0.0
    columns = space.sample(generate_sobol_points(len(space.knobs), 0, count, study.seed))
    for rows in space.parts(columns, BATCH_ROWS):
        start = time.process_time()
        designs = space.stack({address: column[rows] for address, column in columns.items()})
        defined_evaluate(
            designs, study.question.workload, study.question.defined, fidelity="steady_state", metrics=names(study)
        )
        spent = time.process_time() - start
        total += spent
        chip = space.row(columns, int(rows[0]))["chip"]
        yield f"{len(rows):,} designs of {chip}: steady", f"{spent / len(rows) * 1e3:.1f} ms CPU a design", ""
    yield f"{count:,} designs of studies/mesh_llm", f"{total / count * 1e3:.1f} ms CPU a design", "3 ms"


def pruned(count: int) -> Iterator[tuple[str, str, str]]:
    """Lines of a table: a screen of studies/mesh_llm that evaluates what may be on its front."""
    with TemporaryDirectory() as folder:
        words = (f"screen.limit={count}", "screen.keep=front", "screen.prune=true", "workers.kind=serial", f"run_dir={folder}")
        study, start = find_study("mesh_llm", *AT_ONE_RATE, *words), time.process_time()
        screen = run_screen(study, lambda done, total, size: None)
        spent = time.process_time() - start
    peak = getrusage(RUSAGE_SELF).ru_maxrss / 1e3
    yield f"screen of {screen.rows:,} designs of studies/mesh_llm", f"{spent / screen.rows * 1e3:.1f} ms CPU a design", "3 ms"
    yield "the same: designs evaluated", f"{screen.rows - sum(screen.pruned.values()):,}", screen_left_out_text(screen)
    yield "the same: peak", f"{peak:,.0f} MB", "3,000 MB"


if __name__ == "__main__":
    if "pruned" in sys.argv[1:]:
        for line in pruned(int(next((word for word in sys.argv[1:] if word.isdigit()), "16384"))):
            print(*line, sep=" | ", flush=True)
        raise SystemExit
    if "pipelines" in sys.argv[1:]:
        most = int(next((word for word in sys.argv[1:] if word.isdigit()), "4096"))
        for some in (256, most):  # the first ones compile loops
            for line in of_pipelines(some):
                print(*line, sep=" | ", flush=True)
        raise SystemExit
    if "machines" in sys.argv[1:]:
        for line in of_machines(int(next((word for word in sys.argv[1:] if word.isdigit()), "1024"))):
            print(*line, sep=" | ", flush=True)
        raise SystemExit
    if "dies" in sys.argv[1:]:
        for line in of_dies(int(next((word for word in sys.argv[1:] if word.isdigit()), "24000")), 3):
            print(*line, sep=" | ")
        raise SystemExit
    said = [int(word) for word in sys.argv[1:] if word.isdigit()]
    for line in compared(*(*said, 500, 7)[:2] if len(said) < 2 else said[:2], *[w for w in sys.argv[1:] if not w.isdigit()]):
        print(*line, sep=" | ")
