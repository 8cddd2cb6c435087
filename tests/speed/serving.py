"""The serving loop on public traces; its baseline is the peer's figure on the same load, measured on a machine of this kind.

Run A: rows of Azure's conversation trace shuffled with seed 42, prompt and output together clipped to 4,096, Poisson arrivals
at 2 requests/s, 5,000 requests; chunks of 512, at most 128 requests, blocks of 16 tokens; every iteration takes the same.
Each line is a process of its own, with the compiled loop on disk.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dse.evaluators.serving.iteration_time import constant_time, geometric_axes, tabulate_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.run_statistics import run_statistics
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import InstancePool, ServingRun, simulate_serving
from dse.evaluators.serving.traces import read_trace

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
BLOCKS = 3600
"""Of 16 tokens: what 80 GB leave beside the weights of Llama-2-7B in fp16, at 512 KiB a token."""


def run_a() -> ServingRun:
    many = read_trace(TRACES / "azure_llm_2023_conv.csv").shuffle_order(42).first_requests(5000).clip_lengths(4096)
    many = many.with_arrivals("poisson", rate=2.0, seed=42)
    return simulate_serving(
        many, [InstancePool(constant_time(0.0157), make_policy("chunked_prefill", tokens=512), KvMemory(BLOCKS), batch=128)]
    )


def azure() -> ServingRun:
    """The whole trace as it came, at four instances, priced by a table of a rooflined step."""
    many = read_trace(TRACES / "azure_llm_2023_conv.csv")
    axes = geometric_axes(512, 16384, 128, 16384)
    table = tabulate_time(lambda p, c, d, e, s: 4e-3 + 4e-5 * (p + d) + 2e-10 * p * c + 1.5e-7 * d * e, axes)
    return simulate_serving(
        many, [InstancePool(table, make_policy("chunked_prefill", tokens=512), KvMemory(BLOCKS), instances=4, batch=128)]
    )


def mooncake() -> ServingRun:
    """12,031 requests of 12,000 tokens, at 8 instances in turn with a prefix cache, priced by a table."""
    return simulate_serving(read_trace(TRACES / "mooncake_conversation.jsonl"), [_mooncake()], routing="round_robin")


def _mooncake() -> InstancePool:
    axes = geometric_axes(2048, 131072, 128, 131072)
    table = tabulate_time(lambda p, c, d, e, s: 4e-3 + 2e-5 * (p + d) + 1e-10 * p * c + 2e-8 * d * e, axes)
    return InstancePool(
        table, make_policy("chunked_prefill", tokens=2048), KvMemory(40_000), instances=8, batch=128, prefix=20_000
    )


def pooled() -> ServingRun:
    """The same, with prefixes in the blocks that nobody needs."""
    many = read_trace(TRACES / "mooncake_conversation.jsonl")
    pool = replace(_mooncake(), memory=KvMemory(60_000), prefix=0, pooled=True)
    return simulate_serving(many, [pool], routing="round_robin")


def million() -> ServingRun:
    """A million requests drawn from Azure's lengths, at 16 instances."""
    many = (
        read_trace(TRACES / "azure_llm_2023_conv.csv").draw_requests(1_000_000, 1).with_arrivals("poisson", rate=60.0, seed=1)
    )
    return simulate_serving(
        many,
        [
            InstancePool(
                constant_time(0.0157),
                make_policy("chunked_prefill", tokens=2048),
                KvMemory(BLOCKS * 4),
                instances=16,
                batch=128,
            )
        ],
    )


LOADS = {"run_a": run_a, "azure": azure, "mooncake": mooncake, "pooled": pooled, "million": million}


def timed(name: str) -> None:
    """Prints iterations, CPU seconds of the load (file to metrics) and of the loop alone, and the process's peak memory."""
    start = time.process_time()
    served = LOADS[name]()
    statistics = run_statistics(served)
    whole = time.process_time() - start
    # of this process alone: what `getrusage` says is its parent's where that had more
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    memory = int(peak.split()[1]) / 1024
    start = time.process_time()
    again = served.deployment.serve(served.requests)
    loop = time.process_time() - start
    assert again.total == served.total
    print(served.total["iterations"], whole, loop, memory, statistics["tbt_p99"], len(served.requests))


DESIGNS = 60

SPACES = {
    "64 tiles": ("study=npu_serving",),
    "eight H200": (
        "chip=h200", "model=qwen3_32b", "mapping=serving", "inference_engine=none", "mapping.serving.instances=8",
        "workload=serving", "space=capacity",
        "space.mapping.both.tp='choice(1, 2)'", "workload.arrivals=trace",
    ),
}  # fmt: skip
"""Designs that are served, and where they are drawn from."""


def drawn(words: Sequence[str]) -> float:
    """CPU seconds of designs that serve 1,000 requests of Azure's trace."""
    from dse.config.compose import compose, find_study_folder
    from dse.config.question import build_question
    from dse.evaluators import evaluate

    config = compose([*words, f"workload.trace={TRACES / 'azure_llm_2023_conv.csv'}", "workload.requests=1000"])
    question = build_question(config, find_study_folder(config))
    rng = np.random.default_rng(0)
    warm, designs = (
        question.space.stack(question.space.sample(rng.random((count, len(question.space.knobs))))) for count in (2, DESIGNS)
    )
    evaluate(warm, question.workload)
    start = time.process_time()
    evaluate(designs, question.workload)
    return time.process_time() - start


DEPLOYMENTS = 100


def several(count: int, seed: int) -> tuple[float, float]:
    """CPU seconds of so many deployments of Mooncake's trace, the file once, and iterations a second of the loop.

    They differ in instances, policy, budget, batch, where prefixes are kept and who gets which request.
    """
    rng, start = np.random.default_rng(seed), time.process_time()
    many, usual, iterations = read_trace(TRACES / "mooncake_conversation.jsonl"), _mooncake(), 0.0
    for _ in range(count):
        rule = make_policy(str(rng.choice(["chunked_prefill", "prefill_first"])), tokens=int(rng.choice([1024, 2048, 4096])))
        kept = rng.random() < 0.5
        pool = replace(
            usual, policy=rule, instances=int(rng.integers(4, 17)), batch=int(rng.choice([32, 64, 128])),
            memory=KvMemory(60_000 if kept else 40_000), prefix=0 if kept else 20_000, pooled=kept,
        )  # fmt: skip
        routing = str(rng.choice(["round_robin", "least_loaded", "cache_aware"]))
        served = simulate_serving(many, [pool], routing=routing)
        run_statistics(served)
        iterations += served.total["iterations"]
    spent = time.process_time() - start
    return spent, iterations / spent


def pipelines() -> float:
    """Iterations a second of the loop on 64 tiles: pipelines of Qwen3-4B, 2,000 requests of Azure's trace."""
    from dse.config.compose import compose, find_study_folder
    from dse.config.question import build_question
    from dse.evaluators.workloads.serving import deployment_factory
    from dse.space.workload import ServingLoad

    words = ["chip=npu64", "model=qwen3_4b", "workload=serving", f"workload.trace={TRACES / 'azure_llm_2023_conv.csv'}"]
    config = compose([*words, "workload.requests=2000", "workload.max_length=8192", "workload.rate=4 Hz"])
    question = build_question(config, find_study_folder(config))
    load = question.workload.cases[0]
    assert isinstance(load, ServingLoad)
    factory = deployment_factory(question.base, load, ())(load.requests)
    factory.serve(load.requests)
    start = time.process_time()
    served = factory.serve(load.requests)
    return float(served.total["iterations"]) / (time.process_time() - start)


def loops() -> list[tuple[str, str, str]]:
    if not TRACES.exists():
        return [("serving loop", "the traces are not beside this checkout", "")]
    lines = []
    for name in LOADS:
        peer = "10,777 iterations/s Vidur" if name == "run_a" else ""
        command = [sys.executable, "-c", f"from tests.speed.serving import timed; timed({name!r})"]
        subprocess.run(command, capture_output=True, check=True)
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        iterations, whole, loop, memory, _, requests = (float(x) for x in out.split())
        rate = f"{iterations / loop:,.0f} iterations/s, {whole:.1f} s CPU with the file, {memory:,.0f} MB peak"
        lines.append((f"serving loop, {name}, {requests:,.0f} requests, {iterations:,.0f} iterations", rate, peer))
    for name, words in SPACES.items():
        seconds = drawn(words)
        what = f"designs of {name} on 1,000 requests of Azure's trace, {DESIGNS} drawn"
        minutes = 10_000 * seconds / DESIGNS / 2 / 60
        lines.append((what, f"{DESIGNS / seconds:.0f} designs/s CPU", f"10,000 on two cores: {minutes:.1f} min"))
    several(2, 1)
    seconds, pace = several(DEPLOYMENTS, 0)
    what = f"{DEPLOYMENTS} deployments of Mooncake's trace, {pace:,.0f} iterations/s with metrics"
    lines.append((what, f"{seconds:.0f} s CPU, {seconds / 2:.0f} s on two cores", "120 s"))
    lines.append(("serving loop, pipelines of 64 tiles", f"{pipelines():,.0f} iterations/s", "2,000,000"))
    return lines


if __name__ == "__main__":
    for line in loops():
        print(*line, sep=" | ")
