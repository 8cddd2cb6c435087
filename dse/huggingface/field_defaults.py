"""Defaults of Transformers classes for fields that a file leaves out; a null field is not left out.

Files that were written by a class leave out what equals its defaults, in `text_config` above all. Shapes and counts alone.

Source:
    Configuration classes of Hugging Face Transformers 5, one an architecture; of DeepSeek-V3, that of its own code.
"""

from typing import Any

Defaults = dict[str, Any]


def _shape_defaults(
    layers: int, hidden: int, heads: int, kv_heads: int, head_dim: int, width: int, vocab: int, longest: int
) -> Defaults:
    """Fields that most classes have; 0 for those that a class makes of others."""
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        **({"num_key_value_heads": kv_heads} if kv_heads else {}),
        **({"head_dim": head_dim} if head_dim else {}),
        **({"intermediate_size": width} if width else {}),
        "vocab_size": vocab,
        "max_position_embeddings": longest,
    }


GEMMA2 = _shape_defaults(26, 2304, 8, 4, 256, 9216, 256000, 8192) | {
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
    "global_head_dim": 512,
    "hidden_size_per_layer_input": 256,
}
LLAMA4 = _shape_defaults(48, 5120, 40, 8, 128, 8192, 202048, 131072) | {
    "intermediate_size_mlp": 16384,
    "attention_chunk_size": 8192,
    "num_experts_per_tok": 1,
    "num_local_experts": 16,
}
COHERE2 = _shape_defaults(40, 8192, 64, 0, 0, 22528, 256000, 8192) | {"sliding_window": 4096, "tie_word_embeddings": True}
MISTRAL = _shape_defaults(32, 4096, 32, 8, 0, 14336, 32000, 131072) | {"sliding_window": 4096}
MINISTRAL3 = _shape_defaults(34, 4096, 32, 8, 128, 14336, 131072, 262144)
MISTRAL4 = _shape_defaults(36, 4096, 32, 32, 0, 12288, 131072, 1048576) | {
    "q_lora_rank": 1024,
    "kv_lora_rank": 256,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 128,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 0,
    "n_shared_experts": 1,
}
DELTA = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}
QWEN3_NEXT = (
    _shape_defaults(48, 2048, 16, 2, 256, 5632, 151936, 32768)
    | DELTA
    | {
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    }
)
QWEN3_5 = _shape_defaults(32, 4096, 16, 4, 256, 12288, 248320, 32768) | DELTA
QWEN3_5_MOE = (
    _shape_defaults(40, 2048, 16, 2, 256, 0, 248320, 32768)
    | DELTA
    | {
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    }
)
GPT_OSS = _shape_defaults(36, 2880, 64, 8, 64, 2880, 201088, 131072) | {
    "sliding_window": 128,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
}
GLM4_MOE = _shape_defaults(46, 4096, 96, 8, 0, 10944, 151552, 131072) | {
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
}
GLM4_LITE = _shape_defaults(47, 2048, 20, 20, 0, 10240, 154880, 202752) | {
    "q_lora_rank": 768,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 256,
    "n_routed_experts": 64,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1536,
    "first_k_dense_replace": 1,
}
GLM_DSA = _shape_defaults(78, 6144, 64, 64, 0, 12288, 154880, 202752) | {
    "q_lora_rank": 2048,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 256,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "index_topk": 2048,
    "index_head_dim": 128,
    "index_n_heads": 32,
}
MINIMAX_M2 = _shape_defaults(62, 3072, 48, 8, 128, 1536, 200064, 196608) | {"num_local_experts": 256, "num_experts_per_tok": 8}
DEEPSEEK_V3 = {"n_group": 8, "topk_group": 4}
DEEPSEEK_V4 = _shape_defaults(43, 4096, 64, 1, 512, 0, 129280, 1048576) | {
    "q_lora_rank": 1024,
    "o_lora_rank": 1024,
    "o_groups": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 2048,
    "index_n_heads": 64,
    "index_head_dim": 128,
    "index_topk": 512,
    "sliding_window": 128,
    "hc_mult": 4,
}
NEMOTRON_H = {
    "vocab_size": 131072,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 4096,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "intermediate_size": 21504,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 7688,
    "moe_shared_expert_intermediate_size": 7688,
}
ERNIE_MOE = _shape_defaults(28, 2560, 20, 4, 0, 12288, 103424, 131072) | {
    "moe_num_experts": 64,
    "moe_k": 6,
    "moe_num_shared_experts": 2,
    "moe_intermediate_size": 1536,
    "tie_word_embeddings": True,
}

TIED = {"tie_word_embeddings": True}
LLAMA = _shape_defaults(32, 4096, 32, 0, 0, 11008, 32000, 2048)
QWEN2 = _shape_defaults(32, 4096, 32, 32, 0, 22016, 151936, 32768) | {"max_window_layers": 28}
MIXTRAL = _shape_defaults(32, 4096, 32, 8, 0, 14336, 32000, 131072) | {"num_local_experts": 8, "num_experts_per_tok": 2}
PHI3 = _shape_defaults(32, 3072, 32, 0, 0, 8192, 32064, 4096)
MINICPM3 = (
    _shape_defaults(62, 2560, 40, 40, 0, 6400, 73448, 32768)
    | TIED
    | {
        "q_lora_rank": 768,
        "kv_lora_rank": 256,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32,
        "v_head_dim": 64,
    }
)
GEMMA = _shape_defaults(28, 3072, 16, 16, 256, 24576, 256000, 8192) | TIED
QWEN2_MOE = _shape_defaults(24, 2048, 16, 16, 0, 0, 151936, 32768) | {
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632,
}
QWEN2_VL = _shape_defaults(80, 8192, 64, 8, 0, 29568, 152064, 32768) | {"max_window_layers": 80}
OLMO = _shape_defaults(32, 4096, 32, 0, 0, 11008, 50304, 2048)
OLMO3 = OLMO | {"sliding_window": 4096}
OLMOE = _shape_defaults(16, 2048, 16, 16, 0, 2048, 50304, 4096) | {"num_experts": 64, "num_experts_per_tok": 8}
GRANITE_MOE = LLAMA | {"num_local_experts": 8, "num_experts_per_tok": 2}
GRANITE_SHARED = GRANITE_MOE | {"shared_intermediate_size": 0}
GRANITE_HYBRID = GRANITE_MOE | {
    "shared_intermediate_size": 1024,
    "mamba_n_heads": 128,
    "mamba_n_groups": 1,
    "mamba_d_state": 256,
    "mamba_d_head": 64,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 256,
}
GLM = _shape_defaults(40, 4096, 32, 2, 128, 13696, 151552, 131072) | {"attention_bias": True}
SMOLLM3 = _shape_defaults(36, 2048, 16, 4, 0, 11008, 128256, 32768) | TIED | {"no_rope_layer_interval": 4}
PHIMOE = _shape_defaults(32, 4096, 32, 8, 0, 6400, 32064, 131072) | {"num_local_experts": 16, "num_experts_per_tok": 2}
STARCODER2 = _shape_defaults(30, 3072, 24, 2, 0, 12288, 49152, 4096) | TIED
FALCON = {
    "num_hidden_layers": 32,
    "hidden_size": 4544,
    "num_attention_heads": 71,
    "vocab_size": 65024,
    "max_position_embeddings": 2048,
} | TIED
COHERE = _shape_defaults(40, 8192, 64, 0, 0, 22528, 256000, 8192) | TIED
NEOX = {
    "num_hidden_layers": 44,
    "hidden_size": 6144,
    "num_attention_heads": 64,
    "intermediate_size": 24576,
    "vocab_size": 50432,
    "max_position_embeddings": 2048,
}
BLOOM = {"vocab_size": 250880, "max_position_embeddings": 2048} | TIED
OPT = {
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "vocab_size": 50272,
    "max_position_embeddings": 2048,
} | TIED
GPT2 = {
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "vocab_size": 50257,
    "max_position_embeddings": 1024,
} | TIED
GPTJ = {
    "num_hidden_layers": 28,
    "hidden_size": 4096,
    "num_attention_heads": 16,
    "vocab_size": 50400,
    "max_position_embeddings": 2048,
    "rotary_dim": 64,
}
MPT = {
    "num_hidden_layers": 24,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "vocab_size": 50368,
    "max_position_embeddings": 2048,
    "expansion_ratio": 4,
} | TIED
DBRX = {
    "num_hidden_layers": 24,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}
STABLELM = _shape_defaults(32, 2560, 32, 32, 0, 6912, 50304, 4096)
PHI = _shape_defaults(24, 2048, 32, 0, 0, 8192, 51200, 2048)
EXAONE4 = _shape_defaults(32, 4096, 32, 32, 0, 16384, 102400, 2048) | {"sliding_window": 4096, "sliding_window_pattern": 4}
NEMOTRON = _shape_defaults(32, 6144, 48, 0, 128, 24576, 256000, 4096)
ERNIE = _shape_defaults(18, 1024, 16, 2, 128, 3072, 103424, 131072) | TIED
SEED = _shape_defaults(64, 4096, 80, 8, 128, 27648, 155136, 524288) | {"attention_bias": True}
ARCEE = _shape_defaults(32, 2560, 32, 0, 0, 18432, 32000, 4096)
APERTUS = _shape_defaults(32, 4096, 32, 0, 0, 14336, 131072, 65536)
JAMBA = _shape_defaults(32, 4096, 32, 8, 0, 14336, 65536, 262144) | {
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "attn_layer_period": 8,
    "attn_layer_offset": 4,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}
GPT_NEO = {
    "num_hidden_layers": 24,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "vocab_size": 50257,
    "max_position_embeddings": 2048,
    "sliding_window": 256,
    "attention_types": [[["global", "local"], 12]],
} | TIED
HELIUM = _shape_defaults(24, 2560, 20, 20, 128, 7040, 48000, 4096)
PERSIMMON = _shape_defaults(36, 4096, 64, 0, 0, 16384, 262144, 16384)
