"""CPU time of designs of two pools on unlike chips in the steady state, beside designs of one kind of chip.

python -m tests.speed.unlike_pools [--designs N] [--seed S]

B200s that prefill and H100s that decode Llama-3-8B, against H100s that do both in pools of their own. Instances, batches,
engines, memory and link are drawn. CPU milliseconds a design of throughput and TTFT, after a first block that loads.
"""

import argparse
import time

import numpy as np

from dse.accuracy.validate import compose_question
from dse.evaluators import evaluate
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves

ONE = (
    *("chip=h100", "model=llama3_8b", "workload=serving", "workload.rate=6 Hz", "workload.requests=60"),
    *("workload.prompt=500", "workload.output=40", "mapping.both.tp=1", "mapping.serving.prefill_instances=1"),
)
TWO = (*ONE, "pools.prefill.chip=b200", "pools.prefill.mapping.both.tp=1", "+part@pools.link=pool_link_400g")

RANGES = {
    "mapping.serving.instances": (1, 8),
    "mapping.serving.prefill_instances": (1, 3),
    "mapping.serving.max_batch_size": (8, 256),
    "chip.hbm.bandwidth": (2e12, 6e12),
    "chip.core.matrix": (4e12, 9e12),
}
OF_POOLS = {"pools.prefill.chip.core.matrix": (4e12, 9e12), "pools.link.bandwidth": (1e9, 1e11)}
"""Leaves that are drawn, with their least and largest values."""


def drawn(base: Design, count: int, rng: np.random.Generator) -> list[Design]:
    """Random designs of a base."""
    ranges = RANGES | (OF_POOLS if base.pools is not None else {})

    def value(address: str, low: float, high: float) -> float:
        return int(rng.integers(int(low), int(high) + 1)) if "serving" in address else float(rng.uniform(low, high))

    return [replace_leaves(base, {name: value(name, *ends) for name, ends in ranges.items()}) for _ in range(count)]


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m tests.speed.unlike_pools", description=__doc__)
    words.add_argument("--designs", type=int, default=3000)
    words.add_argument("--seed", type=int, default=0)
    given = words.parse_args()
    rng = np.random.default_rng(given.seed)
    for name, overrides in (("one kind of chip", ONE), ("pools of unlike chips", TWO)):
        question = compose_question((*overrides, "fidelity=steady_state")).question
        for count in (min(300, given.designs), given.designs):
            designs, start = stack_designs(drawn(question.base, count, rng)), time.process_time()
            outcomes = evaluate(designs, question.workload, fidelity="steady_state", metrics=["throughput", "ttft"])
            each = 1e3 * (time.process_time() - start) / count
        print(f"{name}: {each:.3g} ms CPU a design, {1e3 / each:,.0f} designs/s; {int(outcomes.feasible.sum())} of {count} fit")


if __name__ == "__main__":
    main()
