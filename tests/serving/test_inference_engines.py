"""Inference engines: one memory rule on all layouts of shared-cache dies, their defaults, and what they refuse."""

from functools import cache

import numpy as np
import pytest

from dse.analysis.engine_arguments import engine_command_lines
from dse.config.compose import compose
from dse.evaluators import evaluate
from dse.evaluators.accounting.outcomes import Outcomes
from dse.evaluators.evaluation import limits
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.limits import Limit
from tests.samples import asked, metrics

LOAD = "workload=serving workload.requests=6 workload.prompt=120 workload.output=6 workload.rate=20Hz"
FEW = "model=qwen3_1b7 model.qwen3_1b7.layers=2"
SERVED = {
    "devices": f"chip=h200 {FEW} mapping.both.tp=2 {LOAD}",
    "devices, prefill apart": f"chip=h200 {FEW} mapping.both.tp=2 mapping.serving.prefill_instances=1 {LOAD}",
    "dies with a cache": "chip=h800_ep chip.dies.rows=2 chip.dies.cols=4 chip.nodes.size=4 model=deepseek_v2_lite "
    "model.deepseek_v2_lite.layers=2 mapping.both.ep=8 mapping.serving.max_batch_size=16 "
    f"mapping.serving.max_batched_tokens=1024 {LOAD}",
}
BATCHES = {
    "devices": f"chip=h200 {FEW} mapping.both.tp=2 workload.batch=[8]",
    "dies with a cache": "chip=h800_ep chip.dies.rows=2 chip.dies.cols=4 chip.nodes.size=4 model=deepseek_v2_lite "
    "model.deepseek_v2_lite.layers=2 mapping.both.ep=8 workload.batch=[64]",
}
ENGINES = ("vllm_v0", "vllm_v1", "trtllm_v0", "trtllm_v1", "sglang")
POOL = ("kv_capacity", "kv_pool_bytes", "kv_pool_requests", "longest_context")


@cache
def outcomes(words: str, fidelity: str = "analytical") -> Outcomes:
    question = asked(*words.split())
    return evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).require_compatible()


def value(words: str, metric: str, fidelity: str = "analytical") -> float:
    return float(outcomes(words, fidelity).columns[metric][0])


@cache
def memory_limit(words: str) -> Limit:
    question = asked(*words.split())
    return next(limit for limit in limits(question.base, question.workload) if limit.address == "chip.hbm.capacity")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("layout", SERVED)
def test_pool_and_contents_are_all_memory_that_the_driver_offers(layout: str, engine: str) -> None:
    words = f"{SERVED[layout]} inference_engine={engine}"
    limit, chip = memory_limit(words), asked(*words.split()).base.chip
    parts = {name: float(np.ravel(nbytes)[0]) for name, nbytes in limit.parts}
    offered = float(np.ravel(limit.have)[0])
    assert offered == pytest.approx(chip.hbm.capacity * chip.hbm.usable_ratio, rel=1e-12)
    assert sum(parts.values()) == pytest.approx(float(np.ravel(limit.need)[0]), rel=1e-12)
    left = offered - sum(nbytes for name, nbytes in parts.items() if name != "KV cache")
    block = 64 * parts["KV cache"] / 125  # of 64 tokens at most
    if "apart" not in layout:  # the limit is of the fuller pool, the metric of the one that decodes
        assert left - block <= value(words, "kv_pool_bytes") <= left * (1 + 1e-12)


@pytest.mark.parametrize("layout", SERVED)
def test_the_steady_state_has_the_pool_of_the_simulation(layout: str) -> None:
    words = f"{SERVED[layout]} inference_engine=vllm_v1"
    for metric in POOL:
        assert value(words, metric, "steady_state") == value(words, metric)


@pytest.mark.parametrize("layout", SERVED)
def test_an_engine_leaves_less_for_caches_than_all_free_memory(layout: str) -> None:
    ratio = "chip.hbm.usable_ratio=1"
    without = value(SERVED[layout], "kv_pool_bytes")
    assert value(f"{SERVED[layout]} {ratio} inference_engine=vllm_v1", "kv_pool_bytes") < without
    whole = "mapping.inference_engine.memory_share=1 mapping.inference_engine.context_memory=0B"
    plain = f"{ratio} inference_engine=sglang {whole}"
    parts = {name: float(np.ravel(nbytes)[0]) for name, nbytes in memory_limit(f"{SERVED[layout]} {plain}").parts}
    assert parts["inference engine"] == parts["activations"] == 0


def test_designs_together_are_as_one_by_one() -> None:
    question = asked(*f"chip=h200 {FEW} {LOAD} inference_engine=vllm_v1".split())
    changes = [
        {"mapping.inference_engine.memory_share": share, "mapping.serving.max_batch_size": batch, "mapping.decode.tp": tp,
         "mapping.prefill.tp": tp}
        for share, batch, tp in ((0.9, 128, 1), (0.5, 1024, 2), (0.95, 256, 4))
    ]  # fmt: skip
    designs = [replace_leaves(question.base, change) for change in changes]
    for fidelity in ("analytical", "steady_state"):
        together = evaluate(stack_designs(designs), question.workload, fidelity=fidelity).columns
        for row, design in enumerate(designs):
            alone = evaluate(stack_designs([design]), question.workload, fidelity=fidelity).columns
            for metric in (*POOL, "throughput", "hbm_used"):
                assert float(together[metric][row]) == pytest.approx(float(alone[metric][0]), rel=1e-12)


@pytest.mark.parametrize("layout", BATCHES)
def test_batches_keep_the_rule_too(layout: str) -> None:
    words = f"{BATCHES[layout]} inference_engine=vllm_v1"
    limit = memory_limit(words)
    assert {"activations", "inference engine"} <= {name for name, _ in limit.parts}
    assert metrics(*words.split())["kv_capacity"] < metrics(*BATCHES[layout].split(), "chip.hbm.capacity=180GB")["kv_capacity"]


def test_no_engine_is_as_if_there_were_none() -> None:
    for words in (
        "chip=ascend910b model=llama3_8b workload.batch=[4] workload.prompt=[256] workload.output=[64]",
        f"chip=ascend910b model=llama3_8b {LOAD}",
    ):
        plain, none = (outcomes(f"{words} {more}").columns for more in ("", "inference_engine=none"))
        assert all(np.array_equal(plain[name], none[name], equal_nan=True) for name in plain)
        assert asked(*words.split()).base.chip.hbm.usable_ratio is None


@pytest.mark.parametrize(
    ("words", "setting", "expected"),
    [
        ("chip=h100 inference_engine=vllm_v1", "max_batch_size", 1024),
        ("chip=rtx4090 inference_engine=vllm_v1", "max_batch_size", 256),
        ("chip=a100 inference_engine=vllm_v1", "max_batched_tokens", 2048),
        ("chip=tpu_v6e inference_engine=vllm_v1", "max_batched_tokens", 1024),
        ("chip=h200 inference_engine=sglang", "max_batched_tokens", 8192),
        ("chip=mi300x inference_engine=sglang", "max_batched_tokens", 16384),
        ("chip=rtx4090 inference_engine=vllm_v1 mapping.serving.max_batch_size=7", "max_batch_size", 7),
        ("chip=h100 inference_engine=trtllm_v1", "policy", "inflight"),
        ("chip=h100 inference_engine=vllm_v1", "prefix_cache", "shared"),
        ("chip=h100 inference_engine=vllm_v1 model=gemma2_9b", "prefix_cache", "reserved"),
        ("chip=h100_ep inference_engine=vllm_v1 model=deepseek_v3", "max_batch_size", 4096),
        ("chip=h100_ep inference_engine=vllm_v1 model=deepseek_v3", "policy", "chunked_prefill"),
    ],
)
def test_an_engine_sets_defaults_that_typed_settings_precede(words: str, setting: str, expected: object) -> None:
    serving = compose([*words.split(), "workload=serving"])["mapping"]["serving"]
    assert serving[setting] == expected


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("chip=mi300x inference_engine=trtllm_v1", "inference_engine: trtllm_v1 runs on chips of nvidia, and mi300x is of amd"),
        (
            "chip=ascend910b inference_engine=vllm_v1",
            "inference_engine: vllm_v1 runs on chips of .*, and ascend910b is of huawei",
        ),
        (
            "chip=wse2 inference_engine=vllm_v1",
            "inference_engine: vllm_v1 runs on shared-cache dies, and wse2 is a mesh of cores",
        ),
        ("chip=h100 inference_engine=vllm_v1 mapping.inference_engine.memory_share=1.5", "memory_share.*1.5"),
        ("chip=h100 inference_engine=none mapping.inference_engine.memory_share=0.5", "memory_share"),
        (
            "chip=h100 inference_engine=none chip.hbm.usable_ratio=0.9",
            "chip.hbm.usable_ratio: has no effect without an inference engine",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(words: str, text: str) -> None:
    with pytest.raises(DesignError, match=text) as refusal:
        asked(*words.split())
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("degree", [3, 5, 6])
def test_degrees_that_do_not_divide_heads_are_refused(degree: int) -> None:
    words = f"chip=h200 model=llama3_8b {LOAD} mapping.both.tp={degree}"
    assert outcomes(f"{words} inference_engine=none").feasible[0]
    assert not outcomes(f"{words} inference_engine=vllm_v1").feasible[0]


@pytest.mark.parametrize("degree", [1, 2, 8, 16])
def test_key_heads_are_divided_or_copied(degree: int) -> None:
    words = f"chip=h200 model=llama3_8b {LOAD} mapping.both.tp={degree} inference_engine=vllm_v1"
    assert outcomes(words).feasible[0]


def test_formats_without_kernels_are_refused() -> None:
    words = f"chip=h200 {FEW} {LOAD} inference_engine=vllm_v0 mapping.precision.weights="
    assert outcomes(f"{words}fp8").feasible[0]
    with pytest.raises(DesignError, match=r"mapping\.precision\.weights: vllm V0 .* has no kernels for mxfp4; valid: bf16, "):
        outcomes(f"{words}mxfp4")


def test_drafted_tokens_need_an_engine_that_checks_them() -> None:
    words = "chip=h200 model=deepseek_v3 mapping.both.tp=8 workload.batch=[8] +workload.speculation={tokens:1,acceptance:0.8}"
    words += " inference_engine=vllm_v1 mapping.inference_engine.speculation="
    assert outcomes(f"{words}true").columns
    with pytest.raises(DesignError, match=r"workload\.speculation: vllm V1 .* checks no drafted tokens; remove it"):
        outcomes(f"{words}false")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("layout", SERVED)
def test_command_lines_name_the_engine_and_what_was_assumed(layout: str, engine: str) -> None:
    question = asked(*SERVED[layout].split(), f"inference_engine={engine}")
    lines = engine_command_lines(question.base, question.workload.cases[0])
    assert len(lines) == (2 if "apart" in layout else 1)
    share = question.base.mapping.inference_engine.memory_share
    assert all(f" {share:g} " in line and " 126 " in line for line in lines)


@pytest.mark.parametrize(
    "layout",
    [
        "chip=h100",
        "chip=h100_ep chip.dies.rows=1 chip.dies.cols=2 chip.nodes.size=2 mapping.both.ep=2 "
        "mapping.serving.max_batch_size=16 mapping.serving.max_batched_tokens=1024",
    ],
)
def test_an_engine_without_window_caches_keeps_all_positions_of_all_layers(layout: str) -> None:
    words = f"{layout} model=gpt_oss_20b inference_engine=trtllm_v1 {LOAD} workload.prompt=4000 workload.output=96"
    whole, windows = (
        value(f"{words} mapping.inference_engine.window_caches={flag}", "kv_pool_requests") for flag in ("false", "true")
    )
    assert whole / windows == pytest.approx((12 * 4096 + 12 * 128) / (24 * 4096), rel=0.03)


def test_all_layers_keep_all_positions_in_a_model_without_windows() -> None:
    words = f"{SERVED['devices']} inference_engine=trtllm_v1 mapping.inference_engine.window_caches="
    assert value(f"{words}false", "kv_capacity") == value(f"{words}true", "kv_capacity")
