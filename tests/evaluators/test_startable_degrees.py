"""Which degrees of parallelism inference engines start, and what the layouts pad where they do not divide."""

import pytest

from dse.evaluators.layouts.startable_degrees import divided_widths, padding_text, start_obstacle
from dse.space.mapping import FormatPlan
from dse.space.model import Model
from tests.presets import EVERY
from tests.samples import asked

WIDE = FormatPlan(weights="bf16", activations="bf16", kv="bf16")
BLOCKS = FormatPlan(weights="fp8_128x128", activations="bf16", kv="bf16")
PACKED = FormatPlan(weights="bf16", activations="bf16", kv="bf16", experts="mxfp4")


def shipped(name: str) -> Model:
    model: Model = asked(f"model={name}").workload.cases[0].model  # type: ignore[union-attr]
    return model


@pytest.mark.parametrize("name", EVERY)
def test_every_model_starts_on_one_device_without_padding(name: str) -> None:
    model = shipped(name)
    assert start_obstacle(model, 1, 1, WIDE) == padding_text(model, 1, 1, WIDE) == ""


@pytest.mark.parametrize("name", EVERY)
def test_what_is_padded_is_what_16_bits_refuse(name: str) -> None:
    """Blocks of scales refuse more; KV heads that are copied unevenly are refused and are no padding."""
    model = shipped(name)
    for tp in (2, 3, 4, 8, 16):
        padded, refused = padding_text(model, tp, 1, WIDE), start_obstacle(model, tp, 1, WIDE)
        assert refused if padded else not refused or "KV heads" in refused
        assert not refused or start_obstacle(model, tp, 1, BLOCKS)


@pytest.mark.parametrize(
    ("name", "tp", "ep", "formats", "text"),
    [
        ("qwen2_7b", 4, 1, WIDE, ""),
        ("qwen2_7b", 8, 1, WIDE, "28 heads do not divide over TP 8"),
        ("llama3_8b", 16, 1, WIDE, ""),  # 8 KV heads, two copies each
        ("phi3_medium", 4, 1, WIDE, "10 KV heads do not divide over TP 4"),
        ("minimax_m2", 4, 1, BLOCKS, ""),
        ("minimax_m2", 8, 1, WIDE, ""),
        ("minimax_m2", 8, 1, BLOCKS, "1,536 columns of experts over TP 8 are 192 values a device, no multiple of the 128"),
        ("minimax_m2", 8, 8, BLOCKS, ""),  # whole experts
        ("deepseek_v3", 16, 1, BLOCKS, ""),
        ("gpt_oss_120b", 8, 1, PACKED, ""),  # 360 columns in blocks of 32, which kernels pad
    ],
)
def test_heads_columns_and_blocks_have_to_divide(name: str, tp: int, ep: int, formats: FormatPlan, text: str) -> None:
    obstacle = start_obstacle(shipped(name), tp, ep, formats)
    assert obstacle.startswith(text)
    assert bool(obstacle) == bool(text)


def test_padding_says_what_a_device_has() -> None:
    assert padding_text(shipped("qwen2_7b"), 8, 1, WIDE) == "28 heads as 32, 4 on each of 8 (+14%)"
    assert {divided.degree for divided in divided_widths(shipped("mixtral_8x7b"), 4, 8, WIDE)} == {1, 4}
