"""A golden set of results, with the physics version they belong to.

python -m tests.contract.golden       # writes golden.json again; raise evaluators.evaluation.PHYSICS first
"""

import json
from pathlib import Path

from evaluators import PHYSICS, evaluate
from space.design import stacked
from tests.samples import asked

PATH = Path(__file__).with_name("golden.json")
QUESTIONS = (
    ("chip=npu_dse", "model=llama3_8b"),
    ("chip=npu_dse", "model=llama3_405b", "mapping.prefill.tp=32", "mapping.prefill.prefetch=partial"),
    ("chip=npu_dse", "model=mixtral_8x7b", "mapping.prefill.allreduce=ring", "chip.network.latency_per=hop"),
    ("chip=npu_dse", "model=deepseek_v3", "mapping.prefill.tp=16", "mapping.precision.weights=fp8"),
    ("chip=npu_dse", "model=mistral_7b", "workload.decode_at=last", "mapping.prefill.tp=4"),
    ("chip=ascend910b", "model=qwen2_7b", "mapping.prefill.tp=2", "mapping.prefill.allreduce=full_mesh"),
    ("chip=wse2", "workload.batch=[1]", "workload.prompt=2048", "workload.output=128"),
    ("chip=wse2", "model=mixtral_8x7b", "mapping.resident_layers=4", "mapping.prefill.rows=500", "mapping.prefill.cols=250"),
    ("chip=wse2", "mapping=t10", "workload.batch=[1]"),
    ("chip=wse2", "mapping=ladder", "workload.batch=[1]"),
    ("chip=npu_dse", "technology@chip.technology=n7", "mapping.prefill.tp=1", "mapping.precision.activations=bf16"),
    ("chip=a100", "mapping.prefill.tp=16"),
    ("chip=tile32", "workload=attention", "fidelity=events"),
    ("chip=tile32", "workload=attention", "fidelity=cycles@8"),
    ("chip=tile_gh200", "model=qwen3_1b7", "workload.sequence=[512]", "fidelity=cycles@4"),
    ("chip=wse2", "model=qwen3_1b7", "workload.sequence=[256]", "fidelity=cycles@6"),
    ("chip=npu64", "model=qwen3_4b", "workload.sequence=[512]", "fidelity=events"),
    ("chip=npu64", "model=qwen3_4b", "workload.sequence=[512]", "mapping.both.tp=16", "fidelity=cycles"),
    ("chip=npu64", "model=qwen3_4b", "mapping.both.tp=16", "mapping.both.placement=linear_seq"),
    ("chip=mesh8", "workload=traffic", "workload.rates=[0.1]", "fidelity=cycles"),
)


def results() -> list[dict[str, float]]:
    """The metrics of every question."""
    found = []
    for overrides in QUESTIONS:
        question = asked(*overrides)
        (fidelity,) = [word.partition("=")[2] for word in overrides if word.startswith("fidelity=")] or ["closed"]
        outcomes = evaluate(stacked([question.base]), question.workload, fidelity=fidelity)
        found.append({name: float(column[0]) for name, column in outcomes.columns.items() if column[0] == column[0]})
    return found


if __name__ == "__main__":
    PATH.write_text(json.dumps({"physics": PHYSICS, "results": results()}, indent=1) + "\n")
