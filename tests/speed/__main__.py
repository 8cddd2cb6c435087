"""How fast things are, each beside a baseline run in the same process: python -m tests.speed

CPU seconds of one process unless it says wall. Machines are shared and noisy: quote the ratios.
"""

import logging
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from dse.config.compose import compose
from dse.evaluators import evaluate
from dse.execution.ask_tell import run_search
from dse.execution.study import build_study
from dse.search.optuna_samplers import make_sampler
from dse.space.design import Designs, stack_designs
from dse.space.fields import replace_leaves
from dse.space.knobs import ChoiceKnob, IntervalKnob, Space
from dse.store.store import DesignResult, ResultContext, Store
from tests.samples import asked
from tests.speed import chips, dies, hbm, mesh, mixed, noc, serving, tiles
from tests.speed.clock import cpu
from tests.speed.driver_studies import MILLION, TWELVE, Trivial


def roofline(designs: int) -> float:
    """Baseline of the closed form: two roofs for 30 operators in NumPy, nothing else."""
    flop, nbytes = np.random.rand(2, designs)

    def work() -> None:
        for _ in range(30):
            np.maximum(flop * 2.0, nbytes * 3.0)

    def hundred() -> None:
        for _ in range(100):
            work()

    work()
    return 100 * designs / cpu(hundred)


def closed_form() -> list[tuple[str, str, str]]:
    question = asked("model=llama3_8b")
    space = knobs_of(question.base)
    lines = []
    for designs, repeats in ((1, 2000), (8192, 60), (49152, 12)):
        columns = space.sample(np.random.default_rng(0).random((designs, len(space.knobs))))
        many = space.stack(columns) if designs > 1 else stack_designs([space.design_at(space.row(columns, 0))])
        evaluate(many, question.workload)

        def work(many: Any = many, repeats: int = repeats) -> None:
            for _ in range(repeats):
                evaluate(many, question.workload)

        rate = repeats * designs / cpu(work)
        lines.append((f"closed form, {designs:,} at a time", f"{rate:,.0f} designs/s", f"{roofline(designs):,.0f} rooflines/s"))
    return lines


FOUR_KINDS = (
    "model=llama3_8b",
    "+model.llama3_8b.order='8 (delta, local, full, mamba)'",
    "+model.llama3_8b.kinds.delta.recurrence={rule: delta, heads: 32, key_heads: 16, key_dim: 128, value_dim: 128, conv: 4}",
    "+model.llama3_8b.kinds.mamba.recurrence={rule: ssd, heads: 128, key_heads: 8, key_dim: 128, value_dim: 64, conv: 4}",
    "+model.llama3_8b.kinds.local.window=1024",
    "+model.llama3_8b.kinds.full.rope=0",
)
"""A hybrid of two states, a window and full attention."""


def hybrids() -> list[tuple[str, str, str]]:
    """Models whose layers differ, beside one of the same size whose layers are alike."""
    designs, rates = 49152, []
    for words in (("model=llama3_8b",), FOUR_KINDS):
        question = asked(*words)
        space = knobs_of(question.base)
        many = space.stack(space.sample(np.random.default_rng(0).random((designs, len(space.knobs)))))
        evaluate(many, question.workload)
        rates.append(designs / cpu(lambda: evaluate(many, question.workload), 5))  # noqa: B023
    alike, hybrid = (f"{rate:,.0f} designs/s" for rate in rates)
    return [
        (f"closed form, a hybrid of four kinds of layers, {designs:,} at a time", hybrid, f"{alike} of layers that are alike")
    ]


def products() -> list[tuple[str, str, str]]:
    """One kernel a design, with its limits; the efficiency takes a second pricing."""
    designs, repeats, lines = 49152, 20, []
    rng = np.random.default_rng(0)
    for kind, name in (("gemm", "meshgemm"), ("gemv", "ktree")):
        question = asked("chip=wse2", f"workload={kind}")
        columns = {"mapping.rows": rng.integers(100, 751, designs), "chip.core.launch": rng.uniform(50, 200, designs)}
        many = Designs(
            designs, ((np.arange(designs), replace_leaves(question.base, {a: c * 1.0 for a, c in columns.items()})),)
        )
        evaluate(many, question.workload)

        def work(many: Any = many, question: Any = question) -> None:
            for _ in range(repeats):
                evaluate(many, question.workload)

        rate = repeats * designs / cpu(work)
        lines.append((f"closed form, {name}, {designs:,} at a time", f"{rate:,.0f} designs/s", ""))
    return lines


def knobs_of(base: Any) -> Space:
    return Space(
        base,
        (
            ChoiceKnob("chip.cores", tuple(range(100, 600, 20))),
            IntervalKnob("chip.l2.size", 8e6, 256e6),
            IntervalKnob("chip.l2.bandwidth", 4e12, 20e12),
            IntervalKnob("chip.hbm.bandwidth", 1e12, 4e12),
            IntervalKnob("chip.network.bandwidth", 1e10, 2e11),
            ChoiceKnob("mapping.both.tp", (1, 2, 4, 8, 16, 32)),
        ),
    )


SCREEN = """
import resource, sys, time
from pathlib import Path
from dse.config.compose import compose
from dse.execution.screen import run_screen
from dse.execution.study import build_study

asked = build_study(compose([*MILLION, "run_dir=" + sys.argv[1]]), Path("."))
start = time.perf_counter()
found = run_screen(asked, lambda done, total, size: None)
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(found.rows, len(found.front), time.perf_counter() - start, time.process_time(), memory)
"""


def screening() -> list[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", SCREEN, folder]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows, front, wall, process, memory = (float(x) for x in out.split())
    what = f"screen of {rows:,.0f} designs, stored, front of {front:,.0f}"
    return [(what, f"{wall:.1f} s wall, {process:.1f} s CPU", f"{memory:,.0f} MB peak")]


def driver() -> list[tuple[str, str, str]]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger().setLevel(logging.ERROR)
    lines = []
    for name, trials in (("random", 3000), ("nsga2", 1000)):
        ours = max(driven(name, trials) for _ in range(3))
        theirs = max(plain_optuna(name, trials) for _ in range(3))
        lines.append(
            (f"driver, {name}, {trials} trials, durable", f"{ours:,.0f} trials/s wall", f"{theirs:,.0f} Optuna in memory")
        )
    for storage, trials in (("journal", 200), ("sqlite", 60)):
        lines.append((f"Optuna random on its own {storage}", f"{stored_optuna(storage, trials):,.0f} trials/s wall", ""))
    return lines


def driven(name: str, trials: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        config = compose(
            ["name=speed", "+objectives.throughput_per_system_mm2=max", "+objectives.tpot=min", *TWELVE,
             f"search.sampler={name}", f"search.budget={trials}", f"run_dir={folder}"]
        )  # fmt: skip
        question = build_study(config, Path(folder))
        store = Store(question.store)
        source = make_sampler(name, question.question.space, question.directions, seed=0, population=50)
        start = time.perf_counter()
        run_search(question, store, source, Trivial(), trials, [], lambda done, results: None)
        return trials / (time.perf_counter() - start)


def plain_optuna(name: str, trials: int) -> float:
    import optuna

    samplers: dict[str, Any] = {
        "random": lambda: optuna.samplers.RandomSampler(seed=0),
        "nsga2": lambda: optuna.samplers.NSGAIISampler(population_size=50, seed=0),
    }
    opened = optuna.create_study(directions=["maximize", "minimize"], sampler=samplers[name]())
    start = time.perf_counter()
    opened.optimize(objective, n_trials=trials)
    return trials / (time.perf_counter() - start)


def stored_optuna(kind: str, trials: int) -> float:
    import optuna

    with tempfile.TemporaryDirectory() as folder:
        from optuna.storages.journal import JournalFileBackend

        backend = JournalFileBackend(f"{folder}/j.log")
        storage: Any = optuna.storages.JournalStorage(backend) if kind == "journal" else f"sqlite:///{folder}/o.sqlite"
        opened = optuna.create_study(
            directions=["maximize", "minimize"], storage=storage, sampler=optuna.samplers.RandomSampler(seed=0)
        )
        start = time.perf_counter()
        opened.optimize(objective, n_trials=trials)
        return trials / (time.perf_counter() - start)


def objective(trial: Any) -> tuple[float, float]:
    numbers = [trial.suggest_float(f"f{i}", 1, 100, log=i > 1) for i in range(4)]
    numbers += [trial.suggest_int(f"i{i}", 1, 100) for i in range(5)]
    for i in range(3):
        trial.suggest_categorical(f"c{i}", ["none", "whole", "partial"])
    return sum(numbers), sum(x * x for x in numbers)


def loading() -> list[tuple[str, str, str]]:
    import json

    with tempfile.TemporaryDirectory() as folder:
        store, context = Store(f"{folder}/s.sqlite"), ResultContext("w", "analytical", 1)
        rng = np.random.default_rng(0)
        metrics = [f"metric_{i}" for i in range(14)]
        knobs = "abcdefghijkl"

        def named(names: Sequence[str]) -> dict[str, float]:
            return dict(zip(names, rng.random(len(names)).tolist(), strict=True))

        rows = [DesignResult(f"{i:032x}", named(knobs), named(metrics)) for i in range(100_000)]
        for start in range(0, len(rows), 5000):
            store.append("s", context, ("b", "{}"), [], rows[start : start + 5000])
        start_time = time.perf_counter()
        results = Store(f"{folder}/s.sqlite").results(context)
        seconds = time.perf_counter() - start_time
        text = [json.dumps(row.metrics) for row in rows]
        baseline = cpu(lambda: [json.loads(line) for line in text])
    assert len(results) == 100_000
    return [
        ("load and index 100,000 stored results", f"{seconds:.2f} s wall", f"{baseline:.2f} s to parse their metrics alone")
    ]


def start_up() -> list[tuple[str, str, str]]:
    def wall(*command: str) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run(command, capture_output=True, check=True)
            times.append(time.perf_counter() - start)
        return sorted(times)[2]

    ours = wall(sys.executable, "-c", "import sys; sys.argv = ['dse', '--help']; import dse.main; dse.main.main()")
    bare = wall(sys.executable, "-c", "pass")
    return [("dse --help", f"{ours:.3f} s wall", f"{bare:.3f} s for a bare interpreter")]


def reporting() -> list[tuple[str, str, str]]:
    from tests.speed.report import report_page

    return report_page(MILLION)


def main() -> None:
    table = Table(title="speed", title_justify="left")
    for column in ("what", "measured", "baseline, same process"):
        table.add_column(column)
    kernels = (
        products,
        mesh.closed_forms,
        mesh.played,
        noc.routers,
        mesh.computed,
        hbm.transactions,
        hbm.across,
        tiles.priced,
        tiles.attended,
        tiles.flattened,
        mixed.of_all,
        mixed.of_screens,
        dies.priced,
    )
    for part in (
        closed_form,
        hybrids,
        screening,
        chips.screened,
        *kernels,
        serving.loops,
        driver,
        loading,
        reporting,
        start_up,
    ):
        for line in part():
            table.add_row(*line)
    Console(width=140, highlight=False).print(table)
    print(f"peak memory of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB")


if __name__ == "__main__":
    main()
