"""Fields that a family has no use for: those that say nothing of shapes change no model and are named; others are refused.

Names are made of words, so that no list of known fields decides.
"""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from dse.huggingface import model_fields
from dse.space.errors import DesignError
from tests.dse.published_models import PUBLISHED

EACH = pytest.mark.parametrize("published", PUBLISHED, ids=lambda published: published.name)
PARTS = ("router", "attention", "logits", "embedding", "expert", "residual", "mlp", "rope", "indexer", "head")
HARMLESS = [
    *((f"{{}}_{word}", value) for word, value in (("dtype", "float32"), ("dropout", 0.1), ("eps", 1e-6), ("init_std", 0.02))),
    *((f"{{}}_{word}", value) for word, value in (("loss_coef", 0.001), ("jitter_noise", 0.01), ("fused_impl", True))),
    *((f"use_flash_{{}}{word}", value) for word, value in (("", True), ("_version", 2), ("_kernels", [1, 2]))),
    ("{}_in_fp32", True), ("mtp_{}_share", True), ("vision_{}_size", 224), ("{}_multiplier", 12.0), ("scale_{}", True),
    ("num_{}s", 0), ("use_{}_window", False), ("{}_pattern", None), ("{}.js_config", {"kv_cache_dtype": {"q4": "float16"}}),
]  # fmt: skip
"""Fields of training, of kinds of numbers, of software, of other towers, and what is off."""

SHAPES = [
    ("num_{}s", 4), ("{}_size", 128), ("{}_rank", 16), ("{}_window", 4096), ("{}_layers", [0, 3]), ("{}_pattern", "LLG"),
    ("{}_layer_types", ["a", "b"]), ("use_{}_bias", True), ("use_gated_{}", True), ("{}_expansion_ratio", 2.5),
    ("{}_block", {"size": 8}), ("shared_{}_group", 2), ("{}_kinds_of_layers", 3), ("cross_{}", True), ("{}_dim", 64),
]  # fmt: skip
"""Fields of sizes, counts, windows, lists of layers, and mechanisms that are on."""


def with_more(fields: dict[str, Any], more: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What a file is read as where its language model has more fields."""
    inner = fields["text_config"] | more if "text_config" in fields else None
    path = folder / "config.json"
    path.write_text(json.dumps(fields | ({"text_config": inner} if inner else more)))
    return model_fields(path)


@EACH
def test_fields_of_no_shape_change_nothing_and_are_named(published: Any, tmp_path: Path) -> None:
    draw = random.Random(published.name)
    before = with_more(published.fields, {}, tmp_path)
    for _ in range(4):
        more = {f"zz_{name}".format(draw.choice(PARTS)): value for name, value in draw.sample(HARMLESS, 3)}
        after = with_more(published.fields, more, tmp_path)
        assert {key: after[key] for key in after if key != "note"} == {key: before[key] for key in before if key != "note"}
        unread = [name for name, value in more.items() if value is not None]
        assert (
            all(name in after["note"] for name in unread) or f"{len(unread)} more" in after["note"] or " more" in after["note"]
        )


@EACH
def test_fields_that_may_be_of_shapes_are_refused_by_name(published: Any, tmp_path: Path) -> None:
    draw = random.Random(published.name)
    for _ in range(4):
        name, value = draw.choice(SHAPES)
        name = f"zz_{name}".format(draw.choice(PARTS))
        with pytest.raises(DesignError, match=f"{name}.*may change shapes or counts"):
            with_more(published.fields, {name: value}, tmp_path)


LONGEST = [
    ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 40960, 131072),
    ({"type": "yarn", "factor": 2.0}, 40960, 81920),
    ({"type": "linear", "factor": 4.0}, 4096, 16384),
    ({"type": "dynamic", "factor": 2}, 4096, 8192),
    ({"type": "dynamic", "alpha": 1000.0}, 4096, 4096),
    ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 131072, 131072),
    ({"rope_type": "longrope", "factor": 32.0, "original_max_position_embeddings": 4096}, 131072, 131072),
    ({"type": "su", "factor": 32.0}, 131072, 131072),
    ({"rope_type": "default", "rope_theta": 1e6}, 32768, 32768),
    ({"type": "mrope", "mrope_section": [16, 24, 24]}, 32768, 32768),
]
"""Scalings of positions, the longest sequence that a file says, and that with which engines serve it."""


@pytest.mark.parametrize(("scaling", "context_length", "served"), LONGEST, ids=str)
@pytest.mark.parametrize("field", ["rope_scaling", "rope_parameters"])
def test_a_context_is_that_which_engines_serve(
    scaling: dict[str, Any], context_length: int, served: int, field: str, tmp_path: Path
) -> None:
    fields = next(published.fields for published in PUBLISHED if published.name == "Yi-34B")
    more = {"max_position_embeddings": context_length, field: {"rope_theta": 1e6} | scaling}
    assert with_more(fields, more, tmp_path)["max_position"] == served


FORMATS = [
    ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, {"weights": "fp8", "kv": "fp8"}),
    ({"quant_method": "compressed-tensors", "format": "float-quantized", "kv_cache_scheme": {"num_bits": 8, "type": "float"}},
     {"weights": "fp8", "kv": "fp8"}),
    ({"quant_method": "fp8", "weight_block_size": [128, 128], "moe_quant_algo": "NVFP4"},
     {"weights": "fp8_128x128", "experts": "nvfp4"}),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, {"weights": "nvfp4"}),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4"}, {"weights": "nvfp4", "kv": "nvfp4"}),
    ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 128}, {"weights": "int4_g128"}),
]  # fmt: skip
"""What is said of quantised weights and caches, and the words of a mapping."""


@pytest.mark.parametrize(("quantised", "words"), FORMATS, ids=str)
@pytest.mark.parametrize("expert_dtype", [None, "fp4"])
def test_formats_are_those_that_a_file_or_one_beside_it_says(
    quantised: dict[str, Any], words: dict[str, str], expert_dtype: str | None, tmp_path: Path
) -> None:
    fields = next(published.fields for published in PUBLISHED if published.name == "Qwen1.5-MoE-A2.7B")
    more = {"expert_dtype": expert_dtype} if expert_dtype else {}
    entry = with_more(fields, {"quantization_config": quantised} | more, tmp_path)
    published_formats = entry["published_formats"]
    assert all(f"mapping.precision.{name}={word}" in entry["note"] for name, word in published_formats.items())
    if expert_dtype is None or "nvfp4" in words.values():
        assert "mxfp4" not in entry["note"]
    if expert_dtype is None:
        assert published_formats == words
    if quantised["quant_method"] == "modelopt":
        path = tmp_path / "hf_quant_config.json"
        path.write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": quantised}))
        assert with_more(fields, more, tmp_path)["published_formats"] == published_formats
        path.unlink()


def test_a_long_list_of_modules_is_no_reason_to_refuse_a_file(tmp_path: Path) -> None:
    fields = next(published.fields for published in PUBLISHED if published.name == "Yi-34B")
    modules = [f"model.layers.{place % 60}.mlp.experts.{place}.down_proj" for place in range(80_000)]
    quantised = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": modules}
    entry = with_more(fields, {"quantization_config": quantised}, tmp_path)
    assert (tmp_path / "config.json").stat().st_size > 3 << 20
    assert entry["published_formats"] == {"weights": "nvfp4"}


def test_a_hint_names_a_family_only_where_all_of_its_fields_are_there(tmp_path: Path) -> None:
    """The fields of one family under an unknown name: a hint, if any, leads to as many parameters."""
    from dse.config.workloads import read_models
    from dse.huggingface.families import ARCHITECTURES
    from dse.space.parameter_counts import parameter_count

    draw = random.Random(4)
    kinds = sorted(family.model_type for family in ARCHITECTURES.values())
    for published in PUBLISHED:
        if "text_config" in published.fields:
            continue
        for kind in draw.sample(kinds, 6):
            unknown = {"model_type": f"{kind}9", "architectures": ["Unknown9ForCausalLM"]}
            with pytest.raises(DesignError, match="no type") as error:
                with_more(published.fields, unknown, tmp_path)
            if "did you mean" not in str(error.value):
                continue
            hinted = str(error.value).split("did you mean '")[1].split("'")[0]
            entry = with_more(published.fields, {"model_type": hinted, "architectures": None}, tmp_path)
            (model,) = read_models({"read": entry}).values()
            assert parameter_count(model) == pytest.approx(published.total, rel=1e-2)


def test_what_stands_beside_a_file_counts_where_that_says_nothing(tmp_path: Path) -> None:
    fields = next(published.fields for published in PUBLISHED if published.name == "Yi-34B")
    beside = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    own = {"quantization_config": {"quant_method": "fp8"}}
    assert with_more(fields, {}, tmp_path)["published_formats"] == {"weights": "nvfp4", "kv": "fp8"}
    assert with_more(fields, own, tmp_path)["published_formats"] == {"weights": "fp8", "kv": "fp8"}
    (tmp_path / "other.json").write_text(json.dumps(fields))
    assert "published_formats" not in model_fields(tmp_path / "other.json")
    (tmp_path / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "X9"}}')
    with pytest.raises(DesignError, match=r"hf_quant_config.json: quantization_config: format .X9. is not understood"):
        with_more(fields, {}, tmp_path)
