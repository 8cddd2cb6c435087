"""Prompts of an iteration in layers that see a window: what they attend to, however they are cut, and what they read again."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.accounting.serving_instances import pipeline_fleet as fleet
from dse.evaluators.accounting.serving_instances import tensor_parallel as devices
from dse.space.layers import AttentionReach, layers
from tests.samples import load_of, metrics

LOADS = {name: load_of("chip=h200", "workload=serving", f"model={name}")[1] for name in ("gemma3_12b", "qwen3_8b")}

NONE = np.zeros((1, 1))


def on_devices(load: Any, tokens: Any, context: Any) -> list[tuple[AttentionReach, float, float]]:
    return [
        (reach, *(float(np.sum(value)) for value in devices._attended_pairs(reach, 0, tokens, context, NONE, NONE)))
        for reach in layers(load.model).reaches
    ]


def on_pipelines(load: Any, tokens: Any, context: Any) -> list[tuple[AttentionReach, float, float]]:
    _, (prompts, _) = fleet._iteration_steps(load.model, "prefill", tokens, context, NONE, NONE)
    reaches = layers(load.model).reaches
    several = len(reaches) > 1
    return [
        (reach, float(np.sum(pairs)), float(np.sum(past)))
        for reach, pairs, past in zip(
            reaches, prompts.pairs if several else [prompts.pairs], prompts.positions if several else [prompts.positions],
            strict=True,
        )
    ]  # fmt: skip


@pytest.mark.parametrize("looked", [on_devices, on_pipelines])
@pytest.mark.parametrize("model", LOADS)
@given(st.integers(1, 9), st.integers(1, 2000), st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_chunks_of_prompts_have_the_pairs_of_these_and_read_what_was_before(
    looked: Any, model: str, chunks: int, chunk: int, prompts: int
) -> None:
    """A token alone goes through its positions one by one; a chunk reads those before it that its first token may see."""
    seen = np.arange(1, chunks * chunk + 1)

    def attended(count: int, own: int, past: int) -> list[tuple[AttentionReach, float, float]]:
        attended_parts: list[tuple[AttentionReach, float, float]] = looked(
            LOADS[model], np.array([[float(count * own)]]), np.array([[past + (own + 1) / 2]])
        )
        return attended_parts

    whole = attended(prompts, chunks * chunk, 0)
    parts = [attended(1, chunk, place * chunk) for place in range(chunks)]
    for place, (reach, pairs, past) in enumerate(whole):
        wanted = float(np.minimum(seen, reach.window or seen[-1]).sum())
        assert (pairs, past) == (pytest.approx(prompts * wanted, rel=1e-9), 0.0)
        assert sum(part[place][1] for part in parts) == pytest.approx(wanted, rel=1e-9)
        read = [part[place][2] for part in parts]
        assert read == pytest.approx([min(before * chunk, reach.window or seen[-1]) for before in range(chunks)])


def test_a_prompt_alone_on_devices_takes_what_it_takes_in_a_batch() -> None:
    overrides = ("chip=h200", "model=gemma3_12b", "mapping.both.tp=1", "workload.prompt=6000", "workload.output=2")
    far = ("workload=serving", "workload.arrivals=constant", "workload.rate=0.01 Hz", "workload.requests=2")
    alone = metrics(*overrides, *far, "mapping.serving.policy=prefill_first")
    assert alone["ttft"] == pytest.approx(metrics(*overrides, "workload.batch=[1]")["ttft"], rel=1e-9)
