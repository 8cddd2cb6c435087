"""In the steady state of a load that is next to nothing, a request takes what it takes alone."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.space.design import stack_designs
from tests.samples import asked

TILES = ("model=qwen3_1b7", "model.qwen3_1b7.layers=2", "chip.mesh.rows=4", "chip.mesh.cols=4")
POOLED = ("model=deepseek_v2_lite", "chip.dies.rows=1", "mapping.both.ep=8")
CHIPS = {
    "h100": ("model=qwen3_8b",),
    "a100": ("model=deepseek_v2_lite", "mapping.both.tp=1"),
    "h800_ep": POOLED,
    "cm384": POOLED,
    "tile_gh200": (*TILES, "mapping=flat_serving", "chip.hbm.channels=8"),
    "npu64": ("model=qwen3_1b7",),
    "wse2": ("model=qwen3_1b7", "mapping=waferllm_serving"),
}
"""One of each way to serve."""


@pytest.mark.parametrize("chip", CHIPS)
@given(st.integers(20, 4000), st.integers(2, 9))
@example(1030, 2)
@settings(max_examples=3, deadline=None)
def test_a_load_of_next_to_nothing_has_the_times_of_a_request_alone(chip: str, prompt: int, output: int) -> None:
    """Prompts of many dies lie on one copy of attention each, where as many tokens of several are shared out.

    Within 5 %, as prices between points of the table are: 3.5 % of a token on npu64 at 3,400 positions. Tiles cut prompts into
    chunks, of which last ones may be of a token or two.
    """
    load = (f"workload.prompt={prompt}", f"workload.output={output}")
    question = asked(f"chip={chip}", *CHIPS[chip], "workload=serving", "workload.requests=3", "workload.rate='1e-5 Hz'", *load)
    single_question = asked(f"chip={chip}", *CHIPS[chip], "workload=serving", "workload.requests=1", *load)
    alone = evaluate(stack_designs([single_question.base]), single_question.workload).columns
    steady = evaluate(stack_designs([question.base]), question.workload, fidelity="steady_state").columns
    for name in ("ttft", "tpot", "latency"):
        assert float(steady[name][0]) == pytest.approx(float(alone[name][0]), rel=0.05), name


FIRST = {"h100": 0.03, "a100": 0.05, "h800_ep": 0.03, "cm384": 0.03, "tile_gh200": 0.07, "npu64": 0.05, "wse2": 0.05}
"""How far prices of few points are from those of the loop in the mean over prompts; tiles pad what they multiply."""


@pytest.mark.parametrize("chip", CHIPS)
@given(st.integers(0, 1000))
@settings(max_examples=2, deadline=None)
def test_prompts_of_many_lengths_have_their_times_alone(chip: str, tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """None is a point of the steady state's table, and none has a part of what several take that are shorter."""
    lengths = np.rint(np.exp(np.random.default_rng(seed).uniform(np.log(20), np.log(6000), 24))).astype(int)
    trace = tmp_path_factory.mktemp("trace") / "lengths.csv"
    rows = "".join(f"{100.0 * place},{prompt},2\n" for place, prompt in enumerate(lengths.tolist()))
    trace.write_text(f"arrival,prompt,output\n{rows}")
    question = asked(f"chip={chip}", *CHIPS[chip], "workload=serving", f"workload.trace={trace}", "workload.rate='1e-5 Hz'")
    steady, loop = (
        evaluate(stack_designs([question.base]), question.workload, fidelity=word).columns
        for word in ("steady_state", "analytical")
    )
    assert float(steady["ttft"][0]) == pytest.approx(float(loop["ttft"][0]), rel=FIRST[chip])
    for name in ("ttft_p50", "ttft_p90"):
        assert float(steady[name][0]) == pytest.approx(float(loop[name][0]), rel=0.1), name
