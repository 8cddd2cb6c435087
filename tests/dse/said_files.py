"""What files of models say that is refused, that is the same said otherwise, or what notes say of it.

Each is a sample, what is changed in it (`...` leaves a field out), and for the first and the last a pattern of what is said.
"""

from typing import Any

from tests.dse.small_files import SMALL

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
    ("qwen3_8b", {"rope_scaling": {"rope_type": "swirl"}}, "rope_scaling: .*valid: default"),
    ("qwen3_8b", {"rope_parameters": {"rope_type": "swirl"}}, "rope_parameters: .*valid: default"),
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
    ("qwen3_8b", {"is_causal": False}, "is_causal: false is not understood; valid: true"),
    ("glm4_moe", {"layer_types": ["full_attention"] * 5}, "layer_types: .* valid: full_attention for each of 6 layers"),
    (
        "nemotron_nas",
        {
            "block_configs": [
                {**block_config, "ffn": {**block_config["ffn"], "moe": {"top_k": 2}}}
                for block_config in SMALL["nemotron_nas"]["block_configs"]
            ]
        },
        "block_configs: ffn: .moe.: .* is not understood",
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
    (
        "qwen3_8b",
        {"architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1"},
        "model_type: .falcon_h1.: attention and a state",
    ),
    ("qwen3_8b", {"engram_layer_ids": [1, 14]}, "engram_layer_ids: .1, 14.: tables of n-grams"),
    ("kimi_linear", {"attn_res_block_size": 12}, "attn_res_block_size: 12: residuals that attend .* null leaves them out"),
    ("deepseek_v4", {"hc_mult": 4}, "hc_mult: 4: hyper-connections .* 1 leaves them out"),
    ("deepseek_v4", {"hc_mult": ...}, "hc_mult: 4: hyper-connections"),
    ("deepseek_v4", {"compress_ratios": [0, 0, 4, 2, 4, 128, 0]}, "compress_ratios: 2 is no kind of layer .*valid: 0, 4, 128"),
    (
        "deepseek_v4",
        {"compress_ratios": [0, 0, 4]},
        "compress_ratios: 3 entries, for 6 layers and 1 modules .*list one for each",
    ),
    ("deepseek_v4", {"o_groups": 3}, "o_groups: 3 groups do not divide 8 heads"),
    ("deepseek_v4", {"index_topk": 8192}, "indexer.top: picks 8192 positions, but a cache has 4096 at most"),
    ("deepseek_v32", {"index_topk": 8192}, "indexer.top: picks 8192 positions, but a cache has 4096 at most"),
    ("glm_moe_dsa", {"indexer_types": ["shared"] * 6}, "indexer_types: the first layer has nothing to reuse"),
    ("glm_moe_dsa", {"indexer_types": ["full"] * 5}, "indexer_types: 5 entries, for 6 layers"),
    ("gpt_oss", {"layer_types": ["sliding_attention"] * 5}, "layer_types: 5 entries, for 6 layers; list one for each"),
    ("gpt_oss", {"layer_types": ["linear_attention"] * 6}, "layer_types: .linear_attention. is no kind of layer .*valid"),
    ("gpt_oss", {"sliding_window": 8192}, "kinds.local.window: 8192 tokens exceed max_position=4096"),
    ("gpt_oss", {"sliding_window": None}, "sliding_window: missing"),
    ("gpt_oss", {"head_dim": None, "hidden_size": 96}, "head_dim: null, which is 12 of hidden_size or the 64 of its class"),
    ("gemma4", {"sliding_window": None}, "sliding_window: missing"),
    ("mimo_v2_flash", {"moe_layer_freq": ...}, "moe_layer_freq: missing; give a list"),
    ("mimo_v2_flash", {"head_dim": None}, "head_dim: missing"),
    ("hunyuan", {"num_experts": 16}, "num_experts: 16 is not understood; valid: 1"),
    ("ernie4_5_moe", {"use_rmsnorm": False}, "use_rmsnorm: false is not understood"),
    ("qwen3_8b", {"architectures": ..., "model_type": ..., "dim": 64, "n_layers": 2}, "dim: a params.json of Mistral"),
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
    ("hunyuan_moe", {"moe_topk": [2, 2, 2, 2, 2, 4]}, "moe_topk: .* set the same whole number for every layer"),
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


SAME: list[tuple[str, dict[str, Any]]] = [
    ("nemotron_h", {"num_query_groups": 2}),
    ("hunyuan", {"num_experts": 1, "moe_topk": 1, "moe_layer_num_skipped": 0, "use_mixed_mlp_moe": False}),
    ("qwen3_8b", {"architectures": ...}),
    ("qwen3_8b", {"model_type": ...}),
    ("qwen3_8b", {"torch_dtype": ..., "dtype": "bfloat16"}),
    ("qwen3_8b", {"rope_scaling": {"rope_type": "llama3", "type": "llama3", "factor": 4.0}}),
    ("qwen3_8b", {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}),
    ("qwen3_8b", {"rope_scaling": ..., "rope_theta": ..., "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    ("qwen3_8b", {"rope_scaling": ..., "rope_theta": ..., "rope_parameters": {"rope_theta": 1e6}}),
    ("qwen3_8b", {"layer_types": ["full_attention"] * 36}),
    ("qwen3_8b", {"quantization_config": {"quant_method": "fp8"}}),
    ("qwen3_8b", {"some_new_gate": None}),
    ("qwen3_8b", {"is_causal": True, "gradient_checkpointing": False}),
    ("glm4_moe", {"layer_types": ["full_attention"] * 6}),
    ("mistral4", {"llama_4_scaling": {"beta": 0.1, "original_max_position_embeddings": 8192}}),
    ("hunyuan", {"use_mla": False, "kv_lora_rank": 512, "q_lora_rank": 1536, "v_head_dim": 128}),
    ("qwen3_8b", {"image_end_token_id": 5, "boa_token_index": 6}),
    ("hunyuan", {"num_experts": 1, "moe_topk": 1, "num_shared_expert": 1, "moe_drop_tokens": False}),
    ("minimax_m1", {"full_attn_alpha_factor": 3.5, "full_attn_beta_factor": 1}),
    ("ernie4_5_moe", {"use_rmsnorm": True}),
    ("llama2_7b", {"num_key_value_heads": 32, "head_dim": 128}),
    ("deepseek_v3", {"head_dim": 64, "qk_head_dim": 192, "topk_method": ..., "rope_interleave": True}),
]


NOTES: list[tuple[str, dict[str, Any], str]] = [
    ("qwen3_8b", {"compression_config": {"quant_method": "compressed-tensors", "format": "float-quantized"}}, "in fp8"),
    ("gpt_oss", {}, "mxfp4 experts, bfloat16 else ..mapping.precision.experts=mxfp4"),
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
            format_pattern,
        )
        for size, format_pattern in ((32, "weights=int4_g32."), (64, "published in int4 with scales of 64 values(?! .mapping)"))
    ),
]
