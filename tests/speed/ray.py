"""How fast workers are, each line beside its baseline: python -m tests.speed.ray [two|overhead|genetic|kill] [processes|ray]

Wall time; machines are shared and noisy: quote the ratios. Evaluations sleep, so that the driver and two workers do not
share two cores; their results are sums of their knobs.
"""

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dse.config.compose import compose
from dse.execution.ask_tell import run_search
from dse.execution.pool.choice import make_worker_kind
from dse.execution.pool.worker_settings import WorkerSettings
from dse.execution.study import build_study
from dse.execution.workers import Batch, SerialWorkers, StudyWorkers, WorkerPool
from dse.search.optuna_samplers import make_sampler
from dse.store.store import DesignResult, Store
from tests.speed.driver_studies import TWELVE


@dataclass(frozen=True)
class Sleeping:
    """An evaluation of a known length; writes down in which process it was made."""

    seconds: float
    folder: str

    def __call__(self, batch: Batch) -> list[DesignResult]:
        (Path(self.folder) / f"{os.getpid()}.pid").touch()
        if self.seconds:
            time.sleep(self.seconds * len(batch))
        results = []
        for key, values, _ in batch:
            numbers = [float(value) for value in values.values() if not isinstance(value, str)]
            metrics = {"throughput_per_system_mm2": sum(numbers), "tpot": sum(x * x for x in numbers)}
            results.append(DesignResult(key, values, metrics, seconds=self.seconds))
        return results


def timed(kind: str, name: str, designs: int, seconds: float, count: int, kill: float = 0.0) -> tuple[float, float]:
    """Wall and CPU of the driver in a search, from its first ask to its last result, with warm workers. [s]

    Args:
        kind: of workers.
        name: of the sampler.
        designs: the budget.
        seconds: of an evaluation.
        count: of workers; 0 evaluates in this process.
        kill: after these seconds, one of them.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = compose(
            ["name=speed", "+objectives.throughput_per_system_mm2=max", "+objectives.tpot=min", *TWELVE,
             f"search={name}", f"search.budget={designs}", f"run_dir={folder}"]
        )  # fmt: skip
        study = build_study(config, Path(folder))
        evaluate = Sleeping(seconds, folder)
        window = study.search.window
        workers: WorkerPool = SerialWorkers(evaluate)
        if count:
            settings = WorkerSettings(kind, count)
            workers = StudyWorkers(make_worker_kind(settings), evaluate, settings, window=window, say=print)
        warm = 0
        while len(processes(folder)) < max(count, 1):
            batch: Batch = [
                (f"warm {warm + place}", {}, study.question.base) for place in range(2 * window)
            ]  # more than one worker takes at once
            workers.submit(batch)
            left = len(batch)
            while left:
                left -= len(workers.collect())
            warm += len(batch)
        source = make_sampler(name, study.question.space, study.directions, seed=0, population=64)
        store = Store(study.store)
        killer = threading.Timer(kill, lambda: os.kill(processes(folder)[0], signal.SIGKILL))
        if kill:
            killer.start()
        start, cpu = time.perf_counter(), time.process_time()
        run_search(study, store, source, workers, designs, [], lambda done, results: None)
        spent = time.perf_counter() - start, time.process_time() - cpu
        workers.close()
        assert len(processes(folder)) == max(count, 1) + bool(kill), "as many processes as there should have been"
        return spent


def processes(folder: str) -> list[int]:
    return [int(path.stem) for path in Path(folder).glob("*.pid")]


def two_against_one(kind: str) -> tuple[str, str, str]:
    one_worker, two = (timed(kind, "random", 400, 0.05, count)[0] for count in (1, 2))
    what = f"two workers of {kind} against one, 400 designs of 50 ms"
    return (
        what,
        f"{one_worker / two:.2f} times as fast ({two:.1f} s)",
        f"{one_worker:.1f} s, {one_worker / 400 * 1e3:.1f} ms a design",
    )


def overhead(kind: str, name: str, designs: int) -> tuple[str, str, str]:
    spent, serial = (timed(kind, name, designs, 0.0, count) for count in (2, 0))
    what = f"driver with {kind}, {name}, {designs:,} designs that cost nothing"
    with_workers, alone = (" and ".join(f"{seconds / designs * 1e3:.2f}" for seconds in each) for each in (spent, serial))
    return what, f"{with_workers} ms wall and CPU a design", f"{alone} ms serial, the sampler's own in both"


def killing(kind: str) -> tuple[str, str, str]:
    whole, broken = (timed(kind, "random", 2000, 0.05, 2, kill)[0] for kill in (0.0, 15.0))
    what = f"one of two workers of {kind} killed, 2,000 designs of 50 ms"
    return what, f"{broken / whole - 1:+.1%} ({broken:.1f} s)", f"{whole:.1f} s undisturbed"


def main() -> None:
    lines: dict[str, Callable[[str], tuple[str, str, str]]] = {
        "two": two_against_one,
        "overhead": lambda kind: overhead(kind, "random", 3_000),
        "genetic": lambda kind: overhead(kind, "nsga2", 2_000),
        "kill": killing,
    }
    said = sys.argv[1:]
    kinds = [word for word in said if word not in lines] or ["processes", "ray"]
    table = Table(title="Workers", title_justify="left")
    for column in ("what", "measured", "baseline"):
        table.add_column(column)
    for name in [word for word in said if word in lines] or lines:
        for kind in kinds:
            table.add_row(*lines[name](kind))
    Console(width=150, highlight=False).print(table)


if __name__ == "__main__":
    from tests.speed import ray  # whose classes other processes find

    ray.main()
