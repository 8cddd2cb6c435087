"""Which architectures are read, by the classes and types that files name, and what a class means by fields that are absent."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dse.from_hf import latent, pruned, states, usual, windows
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
    """

    model_type: str
    fields: Callable[[File], Entry]
    others: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = NONE
    acts: tuple[str, ...] = SILU
    partial: bool = False
    own: tuple[str, ...] = ()
    act: str = "hidden_act"


GEMMA2 = {
    "vocab_size": 256000,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "sliding_window": 4096,
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
    "tie_word_embeddings": True,
}
GEMMA3 = GEMMA2 | {
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "final_logit_softcapping": None,
    "attn_logit_softcapping": None,
}
GEMMA4 = GEMMA3 | {
    "vocab_size": 262144,
    "num_hidden_layers": 30,
    "sliding_window": 512,
    "hidden_size_per_layer_input": 256,
}
LLAMA4 = {
    "vocab_size": 202048,
    "hidden_size": 5120,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "num_hidden_layers": 48,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "attention_chunk_size": 8192,
    "num_experts_per_tok": 1,
    "num_local_experts": 16,
}
COHERE2 = {"vocab_size": 256000, "sliding_window": 4096, "tie_word_embeddings": True}
GLM_DSA = {"first_k_dense_replace": 3, "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 32, "n_shared_experts": 1}
MISTRAL4 = {"first_k_dense_replace": 0, "n_shared_experts": 1}
NEMOTRON_H = {
    "num_key_value_heads": 8,
    "head_dim": 128,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "intermediate_size": 21504,
}
DEEPSEEK_V4 = {"hc_mult": 4, "sliding_window": 128, "n_shared_experts": 1, "head_dim": 512, "num_key_value_heads": 1}

ARCHITECTURES: dict[str, Family] = {
    "LlamaForCausalLM": Family("llama", usual.llama),
    "MistralForCausalLM": Family("mistral", usual.mistral),
    "Ministral3ForCausalLM": Family("ministral3", usual.mistral),
    "Mistral4ForCausalLM": Family("mistral4", latent.mistral4, defaults=MISTRAL4, partial=True),
    "MixtralForCausalLM": Family("mixtral", usual.mixtral),
    "Phi3ForCausalLM": Family("phi3", usual.phi3, partial=True),
    "Qwen2ForCausalLM": Family("qwen2", usual.qwen2),
    "MiMoForCausalLM": Family("mimo", usual.mimo),
    "Qwen3ForCausalLM": Family("qwen3", usual.qwen3, ("qwen3_vl_text",)),
    "Qwen3MoeForCausalLM": Family("qwen3_moe", usual.qwen3_moe, ("qwen3_vl_moe_text",)),
    "Qwen3NextForCausalLM": Family("qwen3_next", states.qwen3_next, partial=True, own=("ffn_intermediate",)),
    "Qwen3_5ForCausalLM": Family("qwen3_5_text", states.qwen35, ("qwen3_5",), partial=True),
    "Qwen3_5MoeForCausalLM": Family(
        "qwen3_5_moe_text", states.qwen3_next, ("qwen3_5_moe",), partial=True, own=("ffn_intermediate",)
    ),
    "GptOssForCausalLM": Family("gpt_oss", windows.gpt_oss),
    "Gemma2ForCausalLM": Family("gemma2", windows.gemma2, defaults=GEMMA2, acts=GELU, act="hidden_activation"),
    "Gemma3ForCausalLM": Family(
        "gemma3_text", windows.gemma3, ("gemma3",), defaults=GEMMA3, acts=GELU, act="hidden_activation"
    ),
    "Gemma4ForCausalLM": Family(
        "gemma4_text", windows.gemma4, ("gemma4",), GEMMA4, GELU, partial=True, act="hidden_activation"
    ),
    "Llama4ForCausalLM": Family(
        "llama4_text", windows.llama4, ("llama4",), defaults=LLAMA4, own=("ffn_intermediate",)
    ),
    "Cohere2ForCausalLM": Family("cohere2", windows.cohere2, defaults=COHERE2),
    "Glm4MoeForCausalLM": Family("glm4_moe", usual.glm4_moe, ("glm4v_moe_text",), partial=True),
    "MiniMaxM1ForCausalLM": Family("minimax_m1", states.minimax_m1, ("minimax", "minimax_text_01"), partial=True),
    "MiniMaxM2ForCausalLM": Family("minimax_m2", usual.minimax_m2, ("minimax",), partial=True),
    "MiniMaxM3ForCausalLM": Family(
        "minimax_m3",
        usual.minimax_m3,
        ("minimax_m3_text", "minimax_m3_vl", "minimax_m3_vl_text"),
        acts=(*SILU, "swigluoai"),
        partial=True,
        own=("ffn_intermediate",),
    ),
    "DeepseekV2ForCausalLM": Family("deepseek_v2", latent.deepseek_v2),
    "DeepseekV3ForCausalLM": Family("deepseek_v3", latent.deepseek_v3, ("kimi_k2",)),
    "DeepseekV32ForCausalLM": Family("deepseek_v32", latent.deepseek_v32),
    "DeepseekV4ForCausalLM": Family(
        "deepseek_v4", latent.deepseek_v4, defaults=DEEPSEEK_V4, partial=True, own=("ffn_intermediate",)
    ),
    "GlmMoeDsaForCausalLM": Family("glm_moe_dsa", latent.glm_dsa, defaults=GLM_DSA),
    "KimiLinearForCausalLM": Family("kimi_linear", latent.kimi_linear, ("kimi_k3",), acts=(*SILU, "situ")),
    "NemotronHForCausalLM": Family(
        "nemotron_h", states.nemotron_h, defaults=NEMOTRON_H, acts=("relu2",), own=("layers", "ffn_intermediate"),
        act="mlp_hidden_act",
    ),
    "DeciLMForCausalLM": Family("nemotron-nas", pruned.blocks_of, own=("ffn_intermediate",)),
    "HunYuanDenseV1ForCausalLM": Family("hunyuan_v1_dense", usual.hunyuan),
    "HunYuanMoEV1ForCausalLM": Family("hunyuan_v1_moe", usual.hunyuan_moe, ("hunyuan",)),
    "HYV3ForCausalLM": Family("hy_v3", usual.hy_v3),
    "Ernie4_5_MoeForCausalLM": Family("ernie4_5_moe", usual.ernie_moe, defaults={"tie_word_embeddings": True}),
    "Step3p5ForCausalLM": Family("step3p5", windows.step, ("step3p7",), partial=True),
    "MiMoV2FlashForCausalLM": Family("mimo_v2_flash", windows.mimo_v2, ("mimo_v2",), partial=True),
}  # fmt: skip
"""By class."""

CLASSES = {"Step3p7FlashForCausalLM": "Step3p5ForCausalLM", "HunYuanMoEForCausalLM": "HunYuanMoEV1ForCausalLM"}
CLASSES |= {"MiniMaxM1ForCausalLM": "MiniMaxM1ForCausalLM", "MiniMaxForCausalLM": "MiniMaxM1ForCausalLM"}
CLASSES |= {"MiniMaxText01ForCausalLM": "MiniMaxM1ForCausalLM", "Qwen3VLMoeForCausalLM": "Qwen3MoeForCausalLM"}
CLASSES |= {"MiMoV2ForCausalLM": "MiMoV2FlashForCausalLM", "Step3p7ForCausalLM": "Step3p5ForCausalLM"}
CLASSES |= {"HunYuanV1MoEForCausalLM": "HunYuanMoEV1ForCausalLM", "MiniMaxM3SparseForCausalLM": "MiniMaxM3ForCausalLM"}
"""Other classes of the same layers."""

NOT_MODELLED = {
    "jamba": "states of Mamba-1, of a decay for each of their values, are not modelled",
    "deepseek_v41": "tables of n-grams (Engram) and prompts that run half of the layers are not modelled",
}
"""Types that are known and refused, and why."""
