"""Metrics and CPU time of one evaluation by machine, workload and fidelity, for the reference.

python -m dse.reference.measure      # writes dse/reference/measured.csv in a checkout; some minutes

Costs are CPU seconds of the first evaluation in a process, with compiled code on disk.
"""

import csv
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from dse.terminal.child_python import build_child_environment, build_python_command

FILE = Path(__file__).with_name("measured.csv")

LIMIT_S = 20
"""CPU time after which an evaluation is given up. [s]"""

COMPILING_S = 200
"""CPU time that the evaluation before may take, which compiles what is needed. [s]"""

MODEL, EXPERT_MODEL = "model=llama3_8b", ("model=deepseek_v3", "workload.speculation=none")

LENGTHS = ("workload.prompt=512", "workload.output=32")
STATIC = ("workload=static", "workload.prompt=[512]", "workload.output=[32]")
SMALL, LARGE = "workload.batch=[1]", "workload.batch=[256]"
SERVING = ("workload=serving", *LENGTHS, "workload.requests=64")
RATE = "workload.rate='1 Hz'"
TALKS = "workload.sessions={turns: 5, think: 20 s}"
PREFIXES = (
    *("chip=h200", "model=llama3_8b", "model.max_position=131072", "mapping.both.tp=1", "workload=serving"),
    *("workload.prompt=400", "workload.output=30", "workload.requests=300", "workload.rate='6 Hz'"),
    *("workload.sessions={turns: 8, think: 30 s}", "mapping.serving.prefix_cache=shared", "mapping.serving.kv_blocks=1200"),
    *(
        "mapping.serving.host_kv_capacity='20 GB'",
        "mapping.serving.host_bandwidth='64 GB/s'",
        "+chip.economics.rent='2 USD/hour'",
    ),
)
AT_MOST = ("workload.rate=max", "workload.ttft='2 s'", "workload.tpot='100 ms'")
ALL_TILES = ("workload.group_axis=rectangle", "workload.root=0")

CASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("a shared-cache die", ("chip=h100", MODEL)),
    ("a mesh of cores", ("chip=wse2", MODEL)),
    ("a mesh of tiles", ("chip=npu64", "model=qwen3_1b7")),
    ("dies of tiles", ("chip=wafer64", *EXPERT_MODEL)),
    ("many shared-cache dies", ("chip=h800_ep", *EXPERT_MODEL)),
)
"""Kinds of machines that run models, each with a chip and a model."""

KERNELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    *(
        ("a shared-cache die", ("chip=h100", f"workload={name}"))
        for name in ("gemm", "gemv", "experts", "elementwise", "attention")
    ),
    ("a shared-cache die", ("chip=h100", "workload=collective", "workload.pattern=allreduce", *ALL_TILES)),
    *(("a mesh of cores", ("chip=wse2", f"workload={name}")) for name in ("gemm", "gemv")),
    *(
        ("a mesh of tiles", ("chip=tile32", f"workload={name}"))
        for name in ("gemm", "gemv", "collective", "attention", "stream")
    ),
    ("dies of tiles", ("chip=wafer64", "workload=collective", "workload.pattern=allreduce", *ALL_TILES)),
    ("many shared-cache dies", ("chip=h800_ep", "workload=collective", "workload.pattern=allreduce", *ALL_TILES)),
    ("a memory without cores", ("chip=hbm3", "workload=stream")),
    ("a network without cores", ("chip=mesh8", "workload=traffic")),
    ("a network without cores", ("chip=mesh8", "workload=traffic", "chip.faults=3-4+12")),
)
"""Kernels by themselves, and the machines that run them."""


class Measurement(NamedTuple):
    """One evaluation, with its CPU time and its metrics.

    Attributes:
        machine: as `space.machines` names it.
        workload: its preset.
        overrides: of the design and the workload.
        fidelity: at which it was evaluated.
        seconds: CPU time; None where it was given up.
        metrics: those that have a value.
    """

    machine: str
    workload: str
    overrides: str
    fidelity: str
    seconds: float | None
    metrics: tuple[str, ...]


@cache
def read_measurements() -> tuple[Measurement, ...]:
    """The evaluations that the reference states."""
    with FILE.open(encoding="utf-8", newline="") as stream:
        return tuple(
            Measurement(
                row["machine"],
                row["workload"],
                row["overrides"],
                row["fidelity"],
                float(row["cpu_s"]) if row["cpu_s"] else None,
                tuple(row["metrics"].split()),
            )
            for row in csv.DictReader(stream)
        )


def metrics_by_workload() -> dict[str, dict[str, None]]:
    """Names of workloads by metric, in the order of the evaluations."""
    workloads: dict[str, dict[str, None]] = {}
    for measurement in read_measurements():
        for name in measurement.metrics:
            workloads.setdefault(name, {})[measurement.workload] = None
    return workloads


def list_cases() -> Iterator[tuple[str, str, list[str]]]:
    """Machine, workload and overrides of all evaluations."""
    for machine, words in CASES:
        yield machine, "static", [*words, *STATIC, LARGE if EXPERT_MODEL[0] in words else SMALL]
        yield machine, "serving", [*words, *SERVING, RATE]
        yield machine, "serving", [*words, *SERVING, *AT_MOST]
    yield "a shared-cache die", "serving", [*CASES[0][1], *SERVING, *AT_MOST, "workload.demand='100 Hz'"]
    yield (
        "a shared-cache die",
        "serving",
        [*CASES[0][1], *SERVING, "workload.arrivals=closed_loop", "workload.users=[4]", TALKS],
    )
    yield "a shared-cache die", "serving", list(PREFIXES)
    for machine, words in KERNELS:
        yield machine, next(word.partition("=")[2] for word in words if word.startswith("workload=")), list(words)


def measure(lowest_only: bool = False) -> Iterator[Measurement]:
    """Evaluate all cases at all their fidelities, or at the lowest alone."""
    from dse.evaluators import fidelities

    for machine, workload, words in list_cases():
        question = _question(words)
        for fidelity in fidelities(question.base, question.workload)[: 1 if lowest_only else None]:
            seconds, metrics = _measure_alone(words, fidelity)
            yield Measurement(machine, workload, " ".join(words), fidelity, seconds, metrics)


def _question(words: list[str]) -> Any:
    from dse.config.compose import compose, find_study_folder
    from dse.config.question import build_question

    config = compose(words)
    return build_question(config, find_study_folder(config))


def _measure_alone(words: list[str], fidelity: str) -> tuple[float | None, tuple[str, ...]]:
    """CPU seconds of a first evaluation in a process, with compiled code on disk; and its metrics."""
    for limit in (COMPILING_S, LIMIT_S):
        command = build_python_command("-m", "dse.reference.measure", str(limit), fidelity, *words)
        done = subprocess.run(command, env=build_child_environment(), capture_output=True, text=True)
        if done.returncode:
            return None, ()
    seconds, *metrics = done.stdout.split()
    return float(seconds), tuple(metrics)


def print_evaluation(limit: float, fidelity: str, words: list[str]) -> int:
    """Print CPU seconds and metrics of one evaluation.

    Returns:
        1 if it breaks a limit; a signal ends the process if it takes too long.
    """
    from dse.evaluators import evaluate
    from dse.space.design import stack_designs

    question = _question(words)
    signal.setitimer(signal.ITIMER_PROF, limit)
    start = time.process_time()
    outcomes = evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity)
    seconds = time.process_time() - start
    if outcomes.limit[0] >= 0:
        return 1
    print(seconds, *sorted(name for name, column in outcomes.columns.items() if isfinite(float(column[0]))))
    return 0


def write_measurements() -> None:
    """Write what is measured here."""
    rows = list(measure())
    with FILE.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("machine", "workload", "overrides", "fidelity", "cpu_s", "metrics"))
        for row in rows:
            cost = "" if row.seconds is None else f"{row.seconds:.2g}"
            writer.writerow((row.machine, row.workload, row.overrides, row.fidelity, cost, " ".join(row.metrics)))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(print_evaluation(float(sys.argv[1]), sys.argv[2], sys.argv[3:]))
    write_measurements()
