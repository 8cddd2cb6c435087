"""What `dse capacity` looks at beside the question as it is: formats, dies that share out experts, and degrees that start."""

from dataclasses import replace

import pytest

from dse.analysis.capacity import CapacityQuery, _list_variants, build_chip_query, find_capacity, parse_query
from dse.analysis.deployments import NOT_STARTED, find_candidates
from dse.space.errors import DesignError

ASKED = ("devices=8", "workload.ttft='1 s'", "workload.tpot='50 ms'", "workload.prompt=1000", "workload.output=100")


def formats(*words: str) -> tuple[str, ...]:
    return tuple(f"mapping.precision.{name}={word}" for name, word in zip(("weights", "activations", "kv"), words, strict=True))


def asked(*words: str) -> CapacityQuery:
    return parse_query([*words, *ASKED])


@pytest.mark.parametrize(
    ("words", "variants"),
    [
        (("chip=h200", "model=llama3_8b"), [()]),
        (
            ("chip=h200", "model=deepseek_v3"),
            [(), ("+part@chip=node_nvlink4", *formats("fp8_128x128", "fp8_1x128", "fp16"))],
        ),
        (
            ("chip=mi300x", "model=mixtral_8x7b", "mapping.precision.kv=fp8"),
            [(), ("+part@chip=node_infinity", *formats("fp16", "fp16", "fp8"))],
        ),
        (
            ("chip=h200", "model=gpt_oss_20b"),
            [(), ("+part@chip=node_nvlink4", *formats("fp16", "fp16", "fp16"), "++mapping.precision.experts=mxfp4")],
        ),
        (("chip=h200", "model=deepseek_v3", "mapping=sglang_serving"), [()]),
        (("chip=h200_ep", "model=deepseek_v3"), [()]),
        (
            ("chip=a100", "model=llama3_8b", "formats=[fp8,fp16]"),  # whose engines have no fp8
            [
                ("mapping.precision.weights=fp8", "mapping.precision.activations=bf16"),
                ("mapping.precision.weights=fp16", "mapping.precision.activations=fp16"),
            ],
        ),
        (
            ("chip=h200", "model=qwen3_30b_a3b", "formats=[fp8_128x128]"),
            [
                ("mapping.precision.weights=fp8_128x128", "mapping.precision.activations=fp8_1x128"),
                (
                    "+part@chip=node_nvlink4",
                    "mapping.precision.weights=fp8_128x128",
                    "mapping.precision.activations=fp8_1x128",
                ),
            ],
        ),
    ],
)
def test_formats_and_dies_that_share_experts_are_looked_at(words: tuple[str, ...], variants: list[tuple[str, ...]]) -> None:
    query = asked(*words)
    kinds, _, _ = build_chip_query(query.chips[0], query, trust=False)
    assert _list_variants(kinds, query) == variants


@pytest.mark.parametrize("model", ["mixtral_8x7b", "gpt_oss_20b", "deepseek_v3"])
def test_dies_that_share_experts_have_the_formats_of_devices(model: str) -> None:
    query = asked("chip=h200", f"model={model}")
    kinds, _, _ = build_chip_query("h200", query, trust=False)
    _, variant = _list_variants(kinds, query)
    others, _, _ = build_chip_query("h200", asked("chip=h200", f"model={model}", *variant), trust=False)
    assert replace(others.usual.base.mapping.precision, combine=None) == kinds.usual.base.mapping.precision


def test_a_format_that_weights_do_not_have_is_refused() -> None:
    with pytest.raises(DesignError, match="formats: no format of weights 'fp8_1x128'; valid: int8, fp8"):
        asked("chip=h200", "model=llama3_8b", "formats=[fp8_1x128]")


def test_degrees_that_no_engine_starts_are_left_out() -> None:
    query = asked("chip=h200", "model=qwen2_7b", "disaggregated=false")  # 28 heads
    kinds, bounds, knobs = build_chip_query("h200", query, trust=False)
    candidates, refused = find_candidates(kinds, bounds, knobs, 8, apart=False)
    assert {int(candidate.design.mapping.prefill.tp) for candidate in candidates} == {1, 2, 4}
    assert refused[NOT_STARTED] > 0
    with pytest.raises(DesignError, match="deployments on 8 devices starts: 28 heads do not divide over TP 8"):
        find_capacity(["chip=h200", "model=qwen2_7b", "mapping.both.tp=8", *ASKED])
