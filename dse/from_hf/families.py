"""Which architectures are read, by the classes and types that files name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dse.from_hf import absent, latent, pruned, states, usual, windows
from dse.from_hf.file import Entry, File

SILU = ("silu", "swish")
GELU = ("gelu_pytorch_tanh", "gelu", "gelu_tanh")
NONE: Mapping[str, Any] = MappingProxyType({})


class Family(NamedTuple):
    """An architecture.

    Attributes:
        model_type: what its files call it beside the class.
        fields: the reader of its fields.
        others: types of the same layers.
        defaults: of its class, for absent fields.
        acts: activations of its FFNs.
        partial: whether it may rotate a part of each head.
        own: fields of every model that its reader says instead.
        act: the field of the activation.
        names: of fields that others call otherwise, and what these call them.
        extended: whether `max_position_embeddings` says the length after the scaling of positions.
    """

    model_type: str
    fields: Callable[[File], Entry]
    others: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = NONE
    acts: tuple[str, ...] = SILU
    partial: bool = False
    own: tuple[str, ...] = ()
    act: str = "hidden_act"
    names: Mapping[str, str] = NONE
    extended: bool = False


ARCHITECTURES: dict[str, Family] = {
    "LlamaForCausalLM": Family("llama", usual.llama),
    "MistralForCausalLM": Family("mistral", usual.mistral, defaults=absent.MISTRAL),
    "Ministral3ForCausalLM": Family("ministral3", usual.mistral, defaults=absent.MINISTRAL3),
    "Mistral4ForCausalLM": Family("mistral4", latent.mistral4, defaults=absent.MISTRAL4, partial=True),
    "MixtralForCausalLM": Family("mixtral", usual.mixtral),
    "Phi3ForCausalLM": Family("phi3", usual.phi3, partial=True),
    "Qwen2ForCausalLM": Family("qwen2", usual.qwen2),
    "MiMoForCausalLM": Family("mimo", usual.mimo),
    "Qwen3ForCausalLM": Family("qwen3", usual.qwen3, ("qwen3_vl_text",)),
    "Qwen3MoeForCausalLM": Family("qwen3_moe", usual.qwen3_moe, ("qwen3_vl_moe_text",)),
    "Qwen3NextForCausalLM": Family(
        "qwen3_next", states.qwen3_next, defaults=absent.QWEN3_NEXT, partial=True, own=("ffn_intermediate",)
    ),
    "Qwen3_5ForCausalLM": Family(
        "qwen3_5_text", states.qwen35, ("qwen3_5",), defaults=absent.QWEN3_5, partial=True
    ),
    "Qwen3_5MoeForCausalLM": Family(
        "qwen3_5_moe_text", states.qwen3_next, ("qwen3_5_moe",), absent.QWEN3_5_MOE, partial=True, own=("ffn_intermediate",)
    ),
    "GptOssForCausalLM": Family("gpt_oss", windows.gpt_oss, defaults=absent.GPT_OSS),
    "Gemma2ForCausalLM": Family("gemma2", windows.gemma2, defaults=absent.GEMMA2, acts=GELU, act="hidden_activation"),
    "Gemma3ForCausalLM": Family(
        "gemma3_text", windows.gemma3, ("gemma3",), defaults=absent.GEMMA3, acts=GELU, act="hidden_activation", extended=True
    ),
    "Gemma4ForCausalLM": Family(
        "gemma4_text", windows.gemma4, ("gemma4",), absent.GEMMA4, GELU, partial=True, act="hidden_activation"
    ),
    "Llama4ForCausalLM": Family(
        "llama4_text", windows.llama4, ("llama4",), defaults=absent.LLAMA4, own=("ffn_intermediate",)
    ),
    "Cohere2ForCausalLM": Family("cohere2", windows.cohere2, defaults=absent.COHERE2),
    "Glm4MoeForCausalLM": Family(
        "glm4_moe", usual.glm4_moe, ("glm4v_moe_text",), defaults=absent.GLM4_MOE, partial=True
    ),
    "MiniMaxM1ForCausalLM": Family("minimax_m1", states.minimax_m1, ("minimax", "minimax_text_01"), partial=True),
    "MiniMaxM2ForCausalLM": Family(
        "minimax_m2", usual.minimax_m2, ("minimax",), defaults=absent.MINIMAX_M2, partial=True
    ),
    "MiniMaxM3ForCausalLM": Family(
        "minimax_m3",
        usual.minimax_m3,
        ("minimax_m3_text", "minimax_m3_vl", "minimax_m3_vl_text"),
        acts=(*SILU, "swigluoai"),
        partial=True,
        own=("ffn_intermediate",),
    ),
    "DeepseekV2ForCausalLM": Family("deepseek_v2", latent.deepseek_v2),
    "DeepseekV3ForCausalLM": Family("deepseek_v3", latent.deepseek_v3, ("kimi_k2",), defaults=absent.DEEPSEEK_V3),
    "DeepseekV32ForCausalLM": Family("deepseek_v32", latent.deepseek_v32, defaults=absent.DEEPSEEK_V3),
    "DeepseekV4ForCausalLM": Family(
        "deepseek_v4", latent.deepseek_v4, defaults=absent.DEEPSEEK_V4, partial=True, own=("ffn_intermediate",)
    ),
    "Glm4MoeLiteForCausalLM": Family("glm4_moe_lite", latent.glm4_lite, defaults=absent.GLM4_LITE),
    "GlmMoeDsaForCausalLM": Family("glm_moe_dsa", latent.glm_dsa, defaults=absent.GLM_DSA),
    "KimiLinearForCausalLM": Family("kimi_linear", latent.kimi_linear, ("kimi_k3",), acts=(*SILU, "situ")),
    "NemotronHForCausalLM": Family(
        "nemotron_h", states.nemotron_h, defaults=absent.NEMOTRON_H, acts=("relu2",), own=("layers", "ffn_intermediate"),
        act="mlp_hidden_act",
    ),
    "DeciLMForCausalLM": Family("nemotron-nas", pruned.blocks_of, own=("ffn_intermediate",)),
    "HunYuanDenseV1ForCausalLM": Family("hunyuan_v1_dense", usual.hunyuan_dense),
    "HunYuanMoEV1ForCausalLM": Family("hunyuan_v1_moe", usual.hunyuan_moe, ("hunyuan",)),
    "HYV3ForCausalLM": Family("hy_v3", usual.hy_v3),
    "Ernie4_5_MoeForCausalLM": Family("ernie4_5_moe", usual.ernie_moe, defaults=absent.ERNIE_MOE),
    "Step3p5ForCausalLM": Family("step3p5", windows.step, ("step3p7",), partial=True),
    "MiMoV2FlashForCausalLM": Family("mimo_v2_flash", windows.mimo_v2, ("mimo_v2",), partial=True),
}  # fmt: skip
"""By class."""

CLASSES = {"Step3p7FlashForCausalLM": "Step3p5ForCausalLM", "HunYuanMoEForCausalLM": "HunYuanMoEV1ForCausalLM"}
CLASSES |= {"MiniMaxM1ForCausalLM": "MiniMaxM1ForCausalLM", "MiniMaxForCausalLM": "MiniMaxM1ForCausalLM"}
CLASSES |= {"MiniMaxText01ForCausalLM": "MiniMaxM1ForCausalLM", "Qwen3VLMoeForCausalLM": "Qwen3MoeForCausalLM"}
CLASSES |= {"MiMoV2ForCausalLM": "MiMoV2FlashForCausalLM", "Step3p7ForCausalLM": "Step3p5ForCausalLM"}
CLASSES |= {"HunYuanForCausalLM": "HunYuanMoEV1ForCausalLM"}
CLASSES |= {"HunYuanV1MoEForCausalLM": "HunYuanMoEV1ForCausalLM", "MiniMaxM3SparseForCausalLM": "MiniMaxM3ForCausalLM"}
"""Other classes of the same layers."""

NOT_MODELLED = {
    "jamba": "states of Mamba-1, of a decay for each of their values, are not modelled",
    "deepseek_v41": "tables of n-grams (Engram) and prompts that run half of the layers are not modelled",
}
"""Types that are known and refused, and why."""
