"""What the class of an architecture means by fields that a file leaves out; a field that is null is not left out.

Files that were written by a class leave out what equals its defaults, in `text_config` above all. Shapes and counts alone.

Source:
    Configuration classes of Hugging Face Transformers 5, one an architecture; of DeepSeek-V3, that of its own code.
"""

from typing import Any

Defaults = dict[str, Any]


def _shape(
    layers: int, hidden: int, heads: int, kv_heads: int, head_dim: int, width: int, vocab: int, longest: int
) -> Defaults:
    """Fields that most classes have."""
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        **({"head_dim": head_dim} if head_dim else {}),
        **({"intermediate_size": width} if width else {}),
        "vocab_size": vocab,
        "max_position_embeddings": longest,
    }


GEMMA2 = _shape(26, 2304, 8, 4, 256, 9216, 256000, 8192) | {
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
LLAMA4 = _shape(48, 5120, 40, 8, 128, 8192, 202048, 131072) | {
    "intermediate_size_mlp": 16384,
    "attention_chunk_size": 8192,
    "num_experts_per_tok": 1,
    "num_local_experts": 16,
}
COHERE2 = {"vocab_size": 256000, "sliding_window": 4096, "tie_word_embeddings": True}
MISTRAL = _shape(32, 4096, 32, 8, 0, 14336, 32000, 131072) | {"sliding_window": 4096}
MINISTRAL3 = _shape(34, 4096, 32, 8, 128, 14336, 131072, 262144)
MISTRAL4 = _shape(36, 4096, 32, 32, 0, 12288, 131072, 1048576) | {
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
    _shape(48, 2048, 16, 2, 256, 5632, 151936, 32768)
    | DELTA
    | {
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    }
)
QWEN3_5 = _shape(32, 4096, 16, 4, 256, 12288, 248320, 32768) | DELTA
QWEN3_5_MOE = (
    _shape(40, 2048, 16, 2, 256, 0, 248320, 32768)
    | DELTA
    | {
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    }
)
GPT_OSS = _shape(36, 2880, 64, 8, 64, 2880, 201088, 131072) | {
    "sliding_window": 128,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
}
GLM4_MOE = _shape(46, 4096, 96, 8, 0, 10944, 151552, 131072) | {
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
}
GLM4_LITE = _shape(47, 2048, 20, 20, 0, 10240, 154880, 202752) | {
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
GLM_DSA = _shape(78, 6144, 64, 64, 0, 12288, 154880, 202752) | {
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
MINIMAX_M2 = _shape(62, 3072, 48, 8, 128, 1536, 200064, 196608) | {"num_local_experts": 256, "num_experts_per_tok": 8}
DEEPSEEK_V3 = {"n_group": 8, "topk_group": 4}
DEEPSEEK_V4 = _shape(43, 4096, 64, 1, 512, 0, 129280, 1048576) | {
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
ERNIE_MOE = _shape(28, 2560, 20, 4, 0, 12288, 103424, 131072) | {
    "moe_num_experts": 64,
    "moe_k": 6,
    "moe_num_shared_experts": 2,
    "moe_intermediate_size": 1536,
    "tie_word_embeddings": True,
}
