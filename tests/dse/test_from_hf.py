"""Hugging Face's `config.json`: read whole, or refused by the field that is not understood."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.compose import compose
from dse.config.workloads import models
from dse.evaluators import evaluate
from dse.from_hf import ARCHITECTURES, HARMLESS, entries, fields_of
from dse.space.design import stacked
from dse.space.errors import DesignError
from dse.space.layers import layers
from dse.space.model import Model
from dse.space.numbers import FORMATS
from dse.space.parameters import active_parameters, kv_values, parameters
from dse.space.workload import Case, Workload
from tests.dse.small_files import SMALL
from tests.samples import base

CONF = Path(__file__).resolve().parents[2] / "conf/model"
FILES = sorted((Path(__file__).parent / "hf").glob("*.json"))
KV_BYTES = {
    "deepseek_v2_lite": 31104,
    "deepseek_v3": 70272,
    "llama2_7b": 524288,
    "llama3_405b": 516096,
    "llama3_70b": 327680,
    "mistral_7b": 131072,
    "mixtral_8x22b": 229376,
    "mixtral_8x7b": 131072,
    "phi3_medium": 204800,
    "qwen2_7b": 57344,
    "qwen3_14b": 163840,
    "qwen3_1b7": 114688,
    "qwen3_30b_a3b": 98304,
    "qwen3_32b": 262144,
    "qwen3_4b": 147456,
    "qwen3_8b": 147456,
}
"""Of a token in all layers, at two bytes a value: 2 x layers x KV heads x head dimension x 2, or layers x (rank + rope) x 2."""

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
STEMS = [*(path.stem for path in FILES), *SMALL]
Write = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Writes a sample again with some fields changed; a field that is `...` is left out."""

    def write(stem: str = "qwen3_8b", **changes: Any) -> Path:
        values = sample(stem) | changes
        path = tmp_path / "config.json"
        path.write_text(json.dumps({name: value for name, value in values.items() if value is not ...}))
        return path

    return write


def sample(stem: str) -> dict[str, Any]:
    if stem in SMALL:
        return SMALL[stem]
    values: dict[str, Any] = json.loads((Path(__file__).parent / f"hf/{stem}.json").read_text())
    return values


def defaults_of(stem: str) -> set[str]:
    """Fields that the class of a sample has a default for."""
    return set(ARCHITECTURES[sample(stem)["architectures"][0]].defaults)


def read(path: Path) -> Model:
    (model,) = models({"read": fields_of(path)}).values()
    return model


@each_file
def test_a_file_gives_the_model_that_ships(path: Path) -> None:
    entry = yaml.safe_load((CONF / f"{path.stem}.yaml").read_text()) | {"name": path.stem}
    if path.stem == "phi3_medium":
        entry["window"] = 2047  # the shipped one attends to everything
    (shipped,) = models({path.stem: entry}).values()
    assert read(path) == shipped


@each_file
def test_parameters_are_the_published_ones_and_kv_bytes_are_exact(path: Path) -> None:
    model, published = read(path), yaml.safe_load((CONF / f"{path.stem}.yaml").read_text())["published_parameters"]
    assert parameters(model) == pytest.approx(published, rel=5e-4)
    assert model.layers * kv_values(model) * 2 == KV_BYTES[path.stem]


def test_every_architecture_has_a_sample() -> None:
    assert {sample(stem)["architectures"][0] for stem in STEMS} == set(ARCHITECTURES)


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("junk", ["?", -1, 1.5, [3, "x"], {"a": 1}, 1 << 40], ids=str)
def test_no_field_that_counts_takes_junk(stem: str, junk: Any, written: Write) -> None:
    for name in (
        sample(stem).keys() - HARMLESS - ({"final_logit_softcapping", "attn_logit_softcapping"} if junk == 1.5 else set())
    ):
        with pytest.raises(DesignError, match=name):
            fields_of(written(stem, **{name: junk}))


IDLE = {
    "deepseek_v4": {"num_hash_layers"},  # a table in the place of a router costs what it does
    "glm_moe_dsa": {"head_dim"},
    "mistral4": {"intermediate_size"},  # no layer is dense
}
"""Fields that may change alone without a change of the model."""


@pytest.mark.parametrize("stem", STEMS)
def test_a_count_that_changes_changes_the_model(stem: str, written: Write) -> None:
    before, idle = read(written(stem)), set()
    for name, value in sample(stem).items():
        if name in HARMLESS or isinstance(value, bool) or not isinstance(value, int) or not value:
            continue
        try:
            after = read(written(stem, **{name: 2 * value}))
        except DesignError:
            continue  # it contradicts another one
        if after == before:
            idle.add(name)
    # a window that is off has no size and no layers; modules that draft tokens are left out
    assert idle <= {"max_window_layers", "sliding_window", "num_nextn_predict_layers"} | IDLE.get(stem, set())
    assert not idle or not sample(stem).get("use_sliding_window", False)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("qwen3_8b", {"architectures": ["Qwen3NextForCausalLM"]}, "model_type: .*contradicts Qwen3NextForCausalLM"),
    ("qwen3_8b", {"architectures": ["Qwen3LongForCausalLM"]}, "no architecture .*did you mean 'Qwen3ForCausalLM"),
    ("qwen3_8b", {"architectures": ["LlamaForCausalLM"]}, "model_type: .*contradicts LlamaForCausalLM"),
    ("qwen3_8b", {"architectures": ["Qwen3ForCausalLM", "LlamaForCausalLM"]}, "not one architecture"),
    ("qwen3_8b", {"architectures": ..., "model_type": ...}, "architectures: missing; valid"),
    ("qwen3_8b", {"architectures": ..., "model_type": "qwen4"}, "did you mean 'qwen"),
    ("qwen3_8b", {"hidden_size": ...}, "hidden_size: missing"),
    ("qwen3_8b", {"head_dim": ...}, "head_dim: missing"),
    ("qwen3_8b", {"num_key_value_heads": 5}, "5 KV heads do not divide 32"),
    ("qwen3_8b", {"some_new_gate": 7}, "some_new_gate.*not understood in this architecture"),
    ("qwen3_8b", {"num_experts": 8}, "num_experts.*not understood in this architecture"),
    ("qwen3_8b", {"hidden_act": "gelu"}, 'hidden_act: "gelu" is not understood; valid: "silu'),
    ("qwen3_8b", {"rope_scaling": {"rope_type": "mrope"}}, "rope_scaling: .*valid: default"),
    ("qwen3_8b", {"torch_dtype": "int3"}, 'torch_dtype: "int3"'),
    ("qwen3_8b", {"dtype": "float16"}, "dtype: float16, but torch_dtype is bfloat16"),
    ("qwen3_8b", {"quantization_config": {"quant_method": "hqq", "bits": 4}}, 'quant_method "hqq" .*valid: fp8'),
    ("qwen3_8b", {"quantization_config": {"quant_method": "gptq"}}, "quantization_config: bits: null is not a whole number"),
    ("qwen3_8b", {"quantization_config": {"quant_method": "quark"}}, "quantization_config: format null is not understood"),
    ("qwen3_8b", {"layer_types": ["linear_attention"] * 36}, "layer_types"),
    (
        "qwen3_8b",
        {
            "use_sliding_window": True,
            "sliding_window": 4096,
            "max_window_layers": 20,
            "layer_types": ["full_attention"] * 36,
        },
        "layer_types: contradicts max_window_layers 20; keep one of them",
    ),
    ("qwen3_8b", {"is_encoder_decoder": True}, "is_encoder_decoder: true"),
    ("qwen3_30b_a3b", {"decoder_sparse_step": 2}, "decoder_sparse_step: 2 is not understood; valid: 1"),
    ("qwen3_30b_a3b", {"mlp_only_layers": [3]}, "mlp_only_layers"),
    ("qwen3_30b_a3b", {"mlp_only_layers": list(range(50))}, "dense_layers: 50 of 48"),
    ("qwen3_30b_a3b", {"num_experts_per_tok": 129}, "129 of 128 experts"),
    ("llama3_70b", {"num_attention_heads": 72}, "head_dim: missing, and hidden_size 8192"),
    ("llama3_70b", {"sliding_window": 4096}, "sliding_window.*not understood"),
    ("mixtral_8x7b", {"attention_bias": True}, "attention_bias: true is not understood; valid: false"),
    ("qwen2_7b", {"attention_bias": False}, "attention_bias: false is not understood; valid: true"),
    ("mixtral_8x7b", {"partial_rotary_factor": 0.75}, "partial_rotary_factor: 0.75"),
    ("deepseek_v3", {"num_key_value_heads": 8}, "num_key_value_heads: 8 is not understood; valid: 128"),
    ("deepseek_v3", {"moe_layer_freq": 2}, "moe_layer_freq: 2"),
    ("deepseek_v3", {"q_lora_rank": ...}, "q_lora_rank: missing"),
    ("deepseek_v3", {"topk_method": "greedy"}, 'topk_method: "greedy"'),
    ("deepseek_v3", {"index_topk": 2048}, "index_topk.*not understood"),
    ("qwen3_8b", {"architectures": ["Qwen4ForCausalLM"], "model_type": "qwen4"}, "no type .qwen4.; did you mean 'qwen3'"),
    ("qwen3_8b", {"architectures": ["JambaForCausalLM"], "model_type": "jamba"}, "model_type: .jamba.: states of Mamba-1"),
    ("qwen3_8b", {"engram_layer_ids": [1, 14]}, "engram_layer_ids: .1, 14.: tables of n-grams"),
    ("kimi_linear", {"attn_res_block_size": 12}, "attn_res_block_size: 12: residuals that attend .* null leaves them out"),
    ("deepseek_v4", {"hc_mult": 4}, "hc_mult: 4: hyper-connections .* 1 leaves them out"),
    ("deepseek_v4", {"hc_mult": ...}, "hc_mult: 4: hyper-connections"),
    ("deepseek_v4", {"compress_ratios": [0, 0, 4, 2, 4, 128, 0]}, "compress_ratios: 2 is no kind of layer .*valid: 0, 4, 128"),
    (
        "deepseek_v4",
        {"compress_ratios": [0, 0, 4]},
        "compress_ratios: 3 entries, for 6 layers and 1 modules .*say one for each",
    ),
    ("deepseek_v4", {"o_groups": 3}, "o_groups: 3 groups do not divide 8 heads"),
    ("deepseek_v4", {"index_topk": 8192}, "indexer.top: picks out 8192 positions, where a cache has 4096 at most"),
    ("deepseek_v32", {"index_topk": 8192}, "indexer.top: picks out 8192 positions, where a cache has 4096 at most"),
    ("glm_moe_dsa", {"indexer_types": ["shared"] * 6}, "indexer_types: the first layer has nothing to reuse"),
    ("glm_moe_dsa", {"indexer_types": ["full"] * 5}, "indexer_types: 5 entries, for 6 layers"),
    ("gpt_oss", {"layer_types": ["sliding_attention"] * 5}, "layer_types: 5 entries, for 6 layers; say one for each"),
    ("gpt_oss", {"layer_types": ["linear_attention"] * 6}, "layer_types: .linear_attention. is no kind of layer .*valid"),
    ("gpt_oss", {"sliding_window": 8192}, "kinds.local.window: 8192 tokens, in a model of at most 4096"),
    ("gpt_oss", {"sliding_window": None}, "sliding_window: missing"),
    ("gpt_oss", {"experts_per_token": 2}, "experts_per_token: 2, but num_experts_per_tok is 4; keep one of them"),
    ("gemma4", {"hidden_size_per_layer_input": 256}, "hidden_size_per_layer_input: 256 is not understood; valid: 0"),
    ("gemma4", {"num_kv_shared_layers": 6}, "num_kv_shared_layers: 6 of 6 layers"),
    ("gemma4", {"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
    ("llama4", {"layer_types": ["full_attention"] * 6}, "layer_types: layers within chunks are not those that no_rope_layers"),
    ("llama4", {"moe_layers": [7]}, "moe_layers: .7. is not a list of layers, from 0 to 5"),
    (
        "kimi_linear",
        {"linear_attn_config": SMALL["kimi_linear"]["linear_attn_config"] | {"kda_layers": [1, 2]}},
        "layer 4 is in",
    ),
    ("kimi_linear", {"linear_attn_config": SMALL["kimi_linear"]["linear_attn_config"] | {"kda_layers": [1, 9]}}, "from 1 to 6"),
    ("nemotron_h", {"hybrid_override_pattern": "ME*M-X"}, "hybrid_override_pattern: .X. is no kind of layer"),
    ("nemotron_h", {"hybrid_override_pattern": "ME*M"}, "hybrid_override_pattern: 4 entries, for 6 layers"),
    (
        "nemotron_h",
        {"mamba_ssm_cache_dtype": "bfloat16"},
        "mamba_ssm_cache_dtype: .bfloat16. is not understood; valid: .float32",
    ),
    ("nemotron_h", {"mlp_hidden_act": "silu"}, "mlp_hidden_act: .silu. is not understood; valid: .relu2"),
    ("minimax_m3", {"moe_layer_freq": [0, 1, 0, 1, 1, 1]}, "moe_layer_freq: .* dense layers are the first ones"),
    ("hunyuan_moe", {"moe_topk": [2, 2, 2, 2, 2, 4]}, "moe_topk: .* say the same whole number of every layer"),
    ("hunyuan", {"use_mla": True}, "use_mla: true is not understood; valid: false"),
    (
        "glm4_moe_lite",
        {"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 3},
        "first_k_dense_replace: 2 contradicts mlp_layer_types",
    ),
    ("nemotron_h", {"mamba_conv_bias": False}, "use_conv_bias: contradicts mamba_conv_bias; keep one of them"),
    ("step3p5", {"moe_layers_enum": "1,3,4,5"}, "moe_layers_enum: .* layers with experts are the last ones"),
    ("mimo_v2_flash", {"hybrid_layer_pattern": [0, 1, 1]}, "hybrid_layer_pattern: 3 entries, for 6 layers"),
    ("nemotron_nas", {"block_configs": [{}] * 6}, "block_configs: .*attention and ffn are needed"),
    ("qwen3_5", {"mlp_only_layers": [0]}, "mlp_only_layers: .0. is not understood"),
    ("qwen3_5", {"num_hidden_layers": 1 << 20}, "num_hidden_layers: 1048576 layers; 1024 at most"),
]


@pytest.mark.parametrize(("stem", "changes", "said"), REFUSED, ids=[f"{stem} {c!s:.50}" for stem, c, _ in REFUSED])
def test_what_is_not_understood_is_refused_by_name(stem: str, changes: dict[str, Any], said: str, written: Write) -> None:
    with pytest.raises(DesignError, match=said) as error:
        read(written(stem, **changes))
    assert len(str(error.value).splitlines()) == 1


SAME: list[tuple[str, dict[str, Any]]] = [
    ("qwen3_8b", {"architectures": ...}),
    ("qwen3_8b", {"model_type": ...}),
    ("qwen3_8b", {"torch_dtype": ..., "dtype": "bfloat16"}),
    ("qwen3_8b", {"rope_scaling": {"rope_type": "yarn", "type": "yarn", "factor": 4.0}}),
    ("qwen3_8b", {"rope_scaling": ..., "rope_theta": ..., "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    ("qwen3_8b", {"layer_types": ["full_attention"] * 36}),
    ("qwen3_8b", {"quantization_config": {"quant_method": "fp8"}}),
    ("qwen3_8b", {"some_new_gate": None}),
    ("llama2_7b", {"num_key_value_heads": 32, "head_dim": 128}),
    ("deepseek_v3", {"head_dim": 64, "qk_head_dim": 192, "topk_method": ..., "rope_interleave": True}),
]


@pytest.mark.parametrize(("stem", "changes"), SAME, ids=[f"{stem} {c!s:.50}" for stem, c in SAME])
def test_the_same_said_otherwise_is_the_same_model(stem: str, changes: dict[str, Any], written: Write) -> None:
    assert read(written(stem, **changes)) == read(written(stem))


def nested(stem: str, around: dict[str, Any] | None = None, **inside: Any) -> dict[str, Any]:
    """A file of a model that sees, whose language model is a sample."""
    text = {name: value for name, value in (SMALL[stem] | inside).items() if value is not ...}
    vision = {"model_type": "vision", "hidden_size": 8, "num_hidden_layers": 2}
    return {"architectures": ["SomeForConditionalGeneration"], "model_type": "some", "text_config": text} | {
        "vision_config": vision,
        "image_token_id": 7,
        **(around or {}),
    }


@pytest.mark.parametrize("stem", SMALL)
def test_the_language_model_of_a_file_is_read(stem: str, written: Write, tmp_path: Path) -> None:
    alone = read(written(stem))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(nested(stem, {"dtype": "bfloat16"}, architectures=..., torch_dtype=...)))
    assert read(path) == alone
    tied = {"tie_word_embeddings": alone.tied_embeddings}
    path.write_text(json.dumps(nested(stem, tied, tie_word_embeddings=...)))
    assert read(path) == alone


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (nested("qwen3_5", {"tie_word_embeddings": True}), "tie_word_embeddings: false, but true around text_config"),
        (nested("qwen3_5", {"architectures": ["SomeForSequenceClassification"]}), "architectures: .*generates text"),
        (nested("qwen3_5", {"text_config": [1]}), "text_config: .1. is not a group of fields"),
        (nested("qwen3_5", {"dtype": "float32"}), "dtype: bfloat16, but around it float32"),
        (nested("qwen3_5", {"hc_mult": 4}), "hc_mult: 4"),
        (nested("qwen3_5", architectures=..., model_type="qwen3_6_text"), "text_config: model_type: no type .*did you mean"),
        (nested("qwen3_5", some_new_gate=3), "text_config: .some_new_gate.: not understood"),
    ],
    ids=str,
)
def test_what_is_not_understood_in_a_file_of_a_model_that_sees(values: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    with pytest.raises(DesignError, match=said) as error:
        read(path)
    assert len(str(error.value).splitlines()) == 1


NOTES: list[tuple[str, dict[str, Any], str]] = [
    ("gpt_oss", {}, "mxfp4 experts, bfloat16 else .mapping.precision.experts=mxfp4"),
    ("deepseek_v4", {"quantization_config": {"quant_method": "fp8"}}, "published in fp8, experts in mxfp4"),
    ("deepseek_v32", {"quantization_config": {"quant_method": "fp8"}}, "published in fp8 .mapping.precision.weights=fp8"),
    ("nemotron_h", {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "weights=nvfp4"),
    (
        "deepseek_v3",
        {
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "ignore": ["re:.*self_attn.*"],
            }
        },
        "published in int4(?! .mapping)",
    ),
    ("deepseek_v3", {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, "weights=fp8_128x128."),
    (
        "deepseek_v3",
        {"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 64]}},
        "fp8 with .*64.*(?! .map)",
    ),
    ("qwen3_8b", {"quantization_config": {"quant_method": "fbgemm_fp8"}}, "published in fp8 .mapping.precision.weights=fp8"),
    ("qwen3_8b", {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, "4 bits of bitsandbytes"),
    *(
        ("qwen3_8b", {"quantization_config": {"quant_method": method, "bits": 4, "group_size": size}}, f"weights=int4_g{size}.")
        for method in ("awq", "gptq", "auto-round")
        for size in (32, 128)
    ),
    (
        "qwen3_8b",
        {"quantization_config": {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}},
        "published in mxfp4 experts",
    ),
    *(
        (
            "deepseek_v3",
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "format": "pack-quantized",
                    "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": size}}},
                }
            },
            said,
        )
        for size, said in ((32, "weights=int4_g32."), (64, "published in int4 with scales of 64 values(?! .mapping)"))
    ),
]


@pytest.mark.parametrize(("stem", "changes", "said"), NOTES, ids=[stem for stem, _, _ in NOTES])
def test_a_note_says_the_published_format(stem: str, changes: dict[str, Any], said: str, written: Write) -> None:
    note = fields_of(written(stem, **changes))["note"]
    assert re.search(said, note)
    for word in re.findall(r"mapping\.precision\.\w+=(\w+)", note):
        assert "weights" in FORMATS[word].holds, "a word that a note says is one of mapping.precision"


def test_lists_may_go_on_over_modules_that_predict_tokens(written: Write) -> None:
    short, longer = [0, 0, 4, 128, 4, 128], [0, 0, 4, 128, 4, 128, 0]
    assert read(written("deepseek_v4", compress_ratios=short)) == read(written("deepseek_v4", compress_ratios=longer))


def test_names_of_the_same_replace_what_a_class_means_by_none(written: Write) -> None:
    other = written("nemotron_h", head_dim=..., attention_head_dim=24, n_groups=..., mamba_n_groups=4)
    assert read(other) == read(written("nemotron_h", head_dim=24, n_groups=4))


@pytest.mark.parametrize("stem", [stem for stem in STEMS if defaults_of(stem)])
def test_a_field_that_is_left_out_is_what_its_class_means_by_none(stem: str, written: Write) -> None:
    defaults = defaults_of(stem) - {"hc_mult"}  # refused unless a file says 1
    draw = random.Random(stem)
    for _ in range(20):
        left_out = draw.sample(sorted(defaults), draw.randint(1, len(defaults)))
        said = {name: ARCHITECTURES[sample(stem)["architectures"][0]].defaults[name] for name in left_out}
        results = [outcome(written(stem, **fields)) for fields in (said, dict.fromkeys(left_out, ...))]
        assert results[0][0].keys() == results[1][0].keys()
        assert results[0][1] == results[1][1] or all(error for _, error in results)
        if not results[0][1]:
            assert results[0] == results[1]


SPARE = {
    "mistral": ({}, 7.242e9, 131072),
    "gpt_oss": ({}, 116.83e9, 73728),
    "qwen3_5_moe_text": ({}, 34.66e9, 20480),
    "mistral4": ({}, 118.97e9, 23040),
    "glm4_moe": ({"head_dim": 128}, 106.85e9, 188416),
    "glm4_moe_lite": ({}, 29.94e9, 54144),
    "glm_moe_dsa": ({}, 743.91e9, 89856),
    "minimax_m2": ({}, 228.69e9, 253952),
    "ernie4_5_moe": ({}, 21.83e9, 57344),
    "gemma2": ({"num_hidden_layers": 42, "hidden_size": 3584, "intermediate_size": 14336,
                "num_attention_heads": 16, "num_key_value_heads": 8}, 9.24e9, 344064),
}  # fmt: skip
"""Files that leave out all that they can: parameters of the model that the class is of, and bytes of a token in its cache."""


@pytest.mark.parametrize("kind", SPARE)
def test_a_spare_file_is_the_model_of_its_class(kind: str, tmp_path: Path) -> None:
    fields, total, kv = SPARE[kind]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": kind} | fields))
    model = read(path)
    assert parameters(model) == pytest.approx(total, rel=1e-3)
    assert sum(one.times * kv_values(one.of) for one in layers(model).mixings) * 2 == kv


def test_caches_shared_across_layers_are_those_of_the_first(written: Write) -> None:
    own, shared = read(written("hunyuan")), read(written("hunyuan", use_cla=True, cla_share_factor=3))
    assert shared.order == "2 (own, 2 reused)"
    kv = 2 * own.kv_heads * own.head_dim
    assert parameters(own) - parameters(shared) == 4 * (own.hidden * kv + own.head_dim)


@pytest.mark.parametrize("group", ["llm_config", "language_config"])
def test_a_language_model_is_found_by_other_names(group: str, written: Write, tmp_path: Path) -> None:
    values = nested("qwen3_5", {"architectures": ["Some_VL_V2"]})
    values[group] = values.pop("text_config")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    assert read(path) == read(written("qwen3_5"))


def test_kinds_are_those_of_the_lists(written: Write) -> None:
    orders = {stem: read(written(stem)).order for stem in SMALL}
    assert orders["gpt_oss"] == "3 (local, full)"
    assert orders["gemma4"] == "2 local, full, local, local_reused, full_reused"
    assert orders["llama4"] == "local_dense, local_experts, full_dense, local_experts, local_dense, full_experts"
    assert orders["deepseek_v4"] == "2 local, 2 (sparse, heavy)"
    assert orders["glm_moe_dsa"] == "2 (2 scored, reused)"
    assert orders["kimi_linear"] == orders["qwen3_next"].replace("delta", "state") == "2 (2 state, full)"
    assert orders["nemotron_h"] == "mamba, experts, attention, mamba, dense, experts"
    assert orders["step3p5"] == "2 (full, 2 local)"


def test_a_window_in_every_layer_is_read(written: Write) -> None:
    given = {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 0}
    assert read(written(**given, layer_types=["sliding_attention"] * 36)).window == 4096
    assert read(written(**given | {"max_window_layers": 36})).window == 0
    late = read(written(**given | {"max_window_layers": 20}, layer_types=["full_attention"] * 20 + ["sliding_attention"] * 16))
    assert late.order == "20 full, 16 local"
    assert [kind.window for _, kind in late.kinds] == [0, 4096]
    with pytest.raises(DesignError, match="layer_types"):
        read(written(**given, layer_types=["full_attention"] * 36))


def test_biases_are_read(written: Write) -> None:
    model = read(written("llama3_70b", attention_bias=True, mlp_bias=True))
    added = 80 * (8192 + 2 * 1024 + 8192 + 2 * 28672 + 8192)
    assert parameters(model) - parameters(read(written("llama3_70b"))) == added


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"# Qwen3-8B", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1, 2]", "not a group of fields"),
        (b'{"hidden_size": 1, "hidden_size": 2}', '"hidden_size": given twice'),
        (b" " * (1 << 20) + b"{}", "larger than any config.json"),
        (b"{}", "architectures: missing"),
    ],
)
def test_what_is_no_config_is_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(DesignError, match=said) as error:
        fields_of(path)
    assert len(str(error.value).splitlines()) == 1


def test_a_folder_names_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = tmp_path / "models--Qwen--Qwen3-8B/snapshots/0123abcd"
    for folder in (tmp_path / "Qwen3 8B [best]", cached):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(sample("qwen3_8b")))
    monkeypatch.chdir(tmp_path)
    found = compose(["model.from_hf=[Qwen3 8B \\[best\\],models--Qwen--Qwen3-8B/snapshots/0123abcd/config.json]"])["model"]
    assert {key: entry["name"] for key, entry in found.items()} == {"qwen3_8b_best": "Qwen3 8B [best]", "qwen3_8b": "Qwen3-8B"}
    assert entries("Qwen3 8B [best]", tmp_path).keys() == {"qwen3_8b_best"}


def test_a_file_evaluates_as_the_model_that_ships() -> None:
    for stem in ("qwen3_30b_a3b", "deepseek_v3"):
        mine = compose([f"model.from_hf={Path(__file__).parent / 'hf' / stem}.json"])["model"]
        ours = compose([f"model={stem}"])["model"]
        assert [asked_of(one) for one in (mine, ours)] == [asked_of(ours)] * 2


def asked_of(config: dict[str, Any]) -> dict[str, float]:
    (model,) = models(config).values()
    outcomes = evaluate(stacked([base()]), Workload("one", (Case("one", model, ((4, 512, 64),)),)))
    return {name: float(column[0]) for name, column in outcomes.columns.items() if column[0] == column[0]}


values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 70) | st.integers(0, 1 << 70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)
names = st.sampled_from(sorted({name for path in FILES for name in sample(path.stem)})) | st.text(max_size=8)


@given(st.sampled_from(FILES), st.dictionaries(names, values, max_size=3), st.sets(names, max_size=1))
@settings(max_examples=300, deadline=None)
def test_any_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, path: Path, changes: dict[str, Any], absent: set[str]
) -> None:
    fields = {name: value for name, value in (sample(path.stem) | changes).items() if name not in absent}
    file = tmp_path_factory.getbasetemp() / "fuzzed.json"
    file.write_text(json.dumps(fields))
    entry, said = outcome(file)
    assert len(said.splitlines()) == 1 if said else asked_of(entry)["latency"] > 0


small_names = st.sampled_from(sorted({name for values in SMALL.values() for name in values})) | st.text(max_size=8)


@given(st.sampled_from(sorted(SMALL)), st.dictionaries(small_names, values, max_size=3), st.sets(small_names, max_size=1))
@settings(max_examples=300, deadline=None)
def test_any_small_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, stem: str, changes: dict[str, Any], absent: set[str]
) -> None:
    fields = {name: value for name, value in (SMALL[stem] | changes).items() if name not in absent}
    file = tmp_path_factory.getbasetemp() / "fuzzed_small.json"
    file.write_text(json.dumps(fields))
    entry, said = outcome(file)
    if said:
        assert len(said.splitlines()) == 1
    else:
        (model,) = models(entry).values()
        assert parameters(model) >= active_parameters(model) > 0


def outcome(file: Path) -> tuple[dict[str, Any], str]:
    entry = {}
    try:
        entry = {"read": fields_of(file)}
        models(entry)
    except DesignError as error:
        return entry, str(error)
    return entry, ""
