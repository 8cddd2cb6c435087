"""Declared compositions and the account: metrics follow from the parts of their own evaluation, and areas from none."""

import numpy as np
import pytest

from dse.evaluators import evaluate
from dse.evaluators.accounting.metric_compositions import (
    BATCH_COMPOSITIONS,
    FREE_METRICS,
    KERNEL_COMPOSITIONS,
    free_metrics,
    metric_compositions,
)
from dse.execution.objective_structure import evaluation_parts
from dse.space.array_math import Array
from tests.samples import asked

KINDS = {
    "devices": ("space=npu_cluster", "workload.batch=[1,8]"),
    "prefetching": ("chip=npu64", "model=qwen3_4b", "space=npu_prefetch", "mapping=npu_prefetch"),
    "wafer": ("chip=wse2", "space=wafer_sram", "model=llama3_8b"),
    "pipelines": (
        "chip=npu64",
        "model=qwen3_4b",
        "+space.mapping.both.tp=choice(1,2,4)",
        "+space.mapping.both.partition=choice(k,mn,mn_k)",
    ),
    "tiles": ("chip=tile_gh200", "mapping=flat", "space=tile_model", "model=llama3_8b"),
    "dies": (
        "chip=wafer64",
        "model=deepseek_v3",
        "workload.batch=[4096]",
        "workload.prompt=4096",
        "workload.output=2",
        "+space.mapping.both.ep=choice(1,16,64)",
        "+space.mapping.both.overlap=choice(none,two_batch)",
        "+space.chip.d2d.bandwidth='tag(GB/s, choice(256,1024))'",
    ),
    "experts": (
        "chip=h200",
        "+part@chip=node_nvlink4",
        "model=qwen3_30b_a3b",
        "+space.mapping.both.ep=choice(1,2,4)",
    ),
    "product": ("chip=wse2", "workload=gemm", "space=product_gemm"),
    "attention": ("chip=tile_gh200", "workload=attention", "mapping=attention", "space=tile_attention"),
    "served": (
        "chip=h200",
        "model=llama3_8b",
        "workload=serving",
        "mapping=serving",
        "inference_engine=none",
        "+space.chip.cores=choice(66,132)",
    ),
}
"""Of each kind of chip, overrides with a space of its own."""

WHOLE = ("ttft", "latency", "energy", *FREE_METRICS)
"""Metrics that are the sum of their parts; of others the sum is divided by a number of tokens or steps of the workload."""

SIZE = 8


@pytest.mark.parametrize("kind", KINDS)
def test_metrics_follow_from_their_parts(kind: str) -> None:
    question = asked(*KINDS[kind])
    space, workload = question.space, question.workload
    columns = space.sample(np.random.default_rng(3).random((SIZE, len(space.knobs))))
    designs = space.stack(columns)
    free, outcomes = free_metrics(designs, workload), evaluate(designs, workload, metrics=None)
    made = metric_compositions(workload, [*BATCH_COMPOSITIONS, *KERNEL_COMPOSITIONS, *FREE_METRICS])
    made = {name: composition for name, composition in made.items() if name in outcomes.columns}
    parts = [
        evaluation_parts(space.design_at(space.row(columns, row)), workload, "analytical", made) if kind != "served" else {}
        for row in range(SIZE)
    ]
    compared = set()
    for name, composition in made.items():
        value: Array = np.ones(SIZE)
        for factor, power in composition.factors:
            value = value * free[factor] ** power
        if composition.parts:
            sums = [sum(every[part] for part in composition.select_names(every)) or np.nan for every in parts]
            value = value * np.array(sums) ** composition.power
        ratio = outcomes.columns[name] / value
        if kind == "served" and name not in WHOLE:  # what is left is the rate, which the run's last requests move
            finite = np.isfinite(ratio)
            np.testing.assert_allclose(ratio[finite], outcomes.columns["throughput"][finite], rtol=1e-9, err_msg=name)
            compared |= {name} if finite.any() else set()
            continue
        ratio = ratio[np.isfinite(ratio)]
        if len(ratio) < 2:
            continue
        if name in WHOLE:
            np.testing.assert_allclose(ratio, 1.0, rtol=1e-9, err_msg=name)
        elif len(workload.cases) == 1:  # a mean over cases of a ratio is no ratio of means: what is left of it is learned
            np.testing.assert_allclose(ratio, ratio[0], rtol=1e-9, err_msg=name)
        compared.add(name)
    assert ({"die_mm2", "throughput_per_die_mm2"} if kind == "served" else {"latency", "die_mm2"}) <= compared
