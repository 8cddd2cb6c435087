"""A request that meets no other takes what a batch of one takes, on every chip that serves, wherever prices jump."""

import numpy as np
import pytest

from tests.samples import metrics

SMALL = ("mapping.serving.max_batch_size=1", "mapping.serving.max_batched_tokens=512")

CHIPS = {
    "h200": ("mapping.both.tp=2",),
    "h800_ep": ("mapping.both.ep=1", "mapping.both.pp=2", "mapping.both.tp=4", "mapping.both.dp=1"),
    "npu64": ("mapping.both.pp=4",),
    "wafer64": ("mapping.both.ep=1", "mapping.both.pp=1", "mapping.both.tp=1", "mapping.both.dp=1"),
    "wse2": ("mapping.prefill.rows=360",),
}
"""With the same plan for both ways to ask."""

FAR = ("workload=serving", "workload.arrivals=constant", "workload.rate=0.01 Hz", "workload.requests=2")

SUMS = "+mapping.both.allreduce.algorithm=overlapped_ring"
"""Of pipelines that serve, as a batch's prompts have them."""

KEPT_FOR_CHUNKS = {"npu64": 0.1}
"""By how much a token takes longer where cores keep room for a chunk that comes, which a batch has for weights."""


@pytest.mark.parametrize("chip", CHIPS)
def test_a_request_alone_takes_what_a_batch_of_one_takes(chip: str) -> None:
    """Lengths that are at no point of a table of even ratios, where tiles and blocks are padded."""
    rng = np.random.default_rng(sum(map(ord, chip)))
    prompt, output = int(rng.integers(33, 500)) | 1, int(rng.integers(2, 30))
    model = str(rng.choice(["qwen3_1b7", "qwen3_4b"]))
    overrides = (f"chip={chip}", f"model={model}", f"workload.prompt={prompt}", f"workload.output={output}", *CHIPS[chip])
    policy = ("mapping.serving.policy=prefill_first", *((SUMS,) if chip == "npu64" else SMALL))
    alone, batch = metrics(*overrides, *FAR, *policy), metrics(*overrides, "workload.batch=[1]")
    assert alone["ttft"] == pytest.approx(batch["ttft"], rel=1e-3 if chip in KEPT_FOR_CHUNKS else 1e-6)
    assert alone["tpot"] == pytest.approx(batch["tpot"], rel=KEPT_FOR_CHUNKS.get(chip, 2e-3))
