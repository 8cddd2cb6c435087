"""Files of published models in short: fields that count, as their `config.json` has them, and what is published of their size.

Totals are those of the safetensors files of each repository on the Hugging Face hub, or of the model's card or paper where it
has none (rounded ones); of a model that sees, those of its language model. Falcon's, whose files hold a tied table twice, are
those of the model as its class loads it. Bytes of a token in caches are 2 x layers x KV heads x head dimension x 2.
"""

from typing import Any, NamedTuple


class Published(NamedTuple):
    """A file, the parameters of its language model, and bytes of a token in its caches at 16 bits."""

    name: str
    total: float
    kv: int
    fields: dict[str, Any]


def _file(kind: str, architecture: str, /, **fields: Any) -> dict[str, Any]:
    return {"architectures": [architecture], "model_type": kind, "torch_dtype": "bfloat16"} | fields


def _usual(
    hidden: int, layers: int, heads: int, kv_heads: int, width: int, vocab: int, longest: int, tied: bool, act: str = "silu"
) -> dict[str, Any]:
    return {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "intermediate_size": width, "vocab_size": vocab, "max_position_embeddings": longest, "tie_word_embeddings": tied,
        "hidden_act": act,
    }  # fmt: skip


def _heads_alike(*sizes: Any, **fields: Any) -> dict[str, Any]:
    """Of classes that know no KV heads."""
    hidden, layers, heads, width, vocab, longest, tied, act = sizes
    result = _usual(hidden, layers, heads, heads, width, vocab, longest, tied, act)
    return {name: value for name, value in result.items() if name != "num_key_value_heads"} | fields


def _gpt(hidden: int, layers: int, heads: int, longest: int, vocab: int, **fields: Any) -> dict[str, Any]:
    return {
        "n_embd": hidden, "n_layer": layers, "n_head": heads, "n_positions": longest, "vocab_size": vocab,
        "activation_function": "gelu_new",
    } | fields  # fmt: skip


HYBRID = [*["mamba"] * 5, "attention", *["mamba"] * 9, "attention", *["mamba"] * 9, "attention", *["mamba"] * 9, "attention"]
HYBRID = HYBRID + ["mamba"] * 4

PUBLISHED = [
    Published("Qwen1.5-MoE-A2.7B", 14_315_784_192, 2 * 24 * 16 * 128 * 2, _file(
        "qwen2_moe", "Qwen2MoeForCausalLM", **_usual(2048, 24, 16, 16, 5632, 151936, 8192, False), num_experts=60,
        num_experts_per_tok=4, moe_intermediate_size=1408, shared_expert_intermediate_size=5632, decoder_sparse_step=1,
        use_sliding_window=False, sliding_window=32768, max_window_layers=21, norm_topk_prob=False)),
    Published("Qwen2-57B-A14B", 57_409_228_288, 2 * 28 * 4 * 128 * 2, _file(
        "qwen2_moe", "Qwen2MoeForCausalLM", **_usual(3584, 28, 28, 4, 18944, 151936, 131072, False), num_experts=64,
        num_experts_per_tok=8, moe_intermediate_size=2560, shared_expert_intermediate_size=20480, decoder_sparse_step=1,
        use_sliding_window=False, sliding_window=65536, max_window_layers=28)),
    Published("Qwen2.5-VL-7B", 7_615_616_512, 57344, _file(
        "qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", **_usual(3584, 28, 28, 4, 18944, 152064, 128000, False),
        use_sliding_window=False, sliding_window=32768, max_window_layers=28, image_token_id=151655,
        rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]}, vision_config={"depth": 32, "hidden_size": 1280})),
    Published("Qwen2-VL-2B", 1_543_714_304, 2 * 28 * 2 * 128 * 2, _file(
        "qwen2_vl", "Qwen2VLForConditionalGeneration", **_usual(1536, 28, 12, 2, 8960, 151936, 32768, True),
        use_sliding_window=False, sliding_window=32768, max_window_layers=28, vision_start_token_id=151652,
        rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]}, vision_config={"depth": 32, "embed_dim": 1280})),
    Published("OLMo-7B", 6_888_095_744, 524288, _file(
        "olmo", "OlmoForCausalLM", **_usual(4096, 32, 32, 32, 11008, 50304, 2048, False), attention_bias=False)),
    Published("OLMo-2-7B", 7_298_617_344, 524288, _file(
        "olmo2", "Olmo2ForCausalLM", **_usual(4096, 32, 32, 32, 11008, 100352, 4096, False), attention_bias=False)),
    Published("OLMo-2-32B", 32_234_279_936, 262144, _file(
        "olmo2", "Olmo2ForCausalLM", **_usual(5120, 64, 40, 8, 27648, 100352, 4096, False), attention_bias=False)),
    Published("Olmo-3-7B", 7_298_011_136, 524288, _file(
        "olmo3", "Olmo3ForCausalLM", **_usual(4096, 32, 32, 32, 11008, 100278, 65536, False), attention_bias=False,
        sliding_window=4096, layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 8,
        rope_scaling={"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192})),
    Published("OLMoE-1B-7B", 6_919_161_856, 2 * 16 * 16 * 128 * 2, _file(
        "olmoe", "OlmoeForCausalLM", **_usual(2048, 16, 16, 16, 1024, 50304, 4096, False), attention_bias=False,
        num_experts=64, num_experts_per_tok=8)),
    Published("granite-3.1-8b", 8_170_848_256, 2 * 40 * 8 * 128 * 2, _file(
        "granite", "GraniteForCausalLM", **_usual(4096, 40, 32, 8, 12800, 49155, 131072, True), attention_bias=False,
        mlp_bias=False, embedding_multiplier=12.0, logits_scaling=16.0, residual_multiplier=0.22)),
    Published("granite-3.1-1b-a400m", 1_334_628_352, 2 * 24 * 8 * 64 * 2, _file(
        "granitemoe", "GraniteMoeForCausalLM", **_usual(1024, 24, 16, 8, 512, 49155, 131072, True), attention_bias=False,
        num_local_experts=32, num_experts_per_tok=8)),
    Published("granite-4.0-h-tiny", 6_939_037_248, 2 * 4 * 4 * 128 * 2, _file(
        "granitemoehybrid", "GraniteMoeHybridForCausalLM", **_usual(1536, 40, 12, 4, 512, 100352, 131072, True),
        attention_bias=False, num_local_experts=64, num_experts_per_tok=6, shared_intermediate_size=1024,
        position_embedding_type="nope", mamba_n_heads=48, mamba_d_head=64, mamba_d_state=128, mamba_n_groups=1, mamba_d_conv=4,
        mamba_expand=2, mamba_chunk_size=256, mamba_conv_bias=True, mamba_proj_bias=False, layer_types=HYBRID)),
    Published("granite-4.0-h-micro", 3_191_396_096, 2 * 4 * 8 * 64 * 2, _file(
        "granitemoehybrid", "GraniteMoeHybridForCausalLM", **_usual(2048, 40, 32, 8, 8192, 100352, 131072, True),
        attention_bias=False, num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=8192,
        position_embedding_type="nope", mamba_n_heads=64, mamba_d_head=64, mamba_d_state=128, mamba_n_groups=1, mamba_d_conv=4,
        mamba_expand=2, mamba_chunk_size=256, mamba_conv_bias=True, mamba_proj_bias=False, layer_types=HYBRID)),
    Published("glm-4-9b-hf", 9_399_951_360, 40960, _file(
        "glm", "GlmForCausalLM", **_usual(4096, 40, 32, 2, 13696, 151552, 131072, False), head_dim=128, attention_bias=True,
        partial_rotary_factor=0.5)),
    Published("GLM-4-9B-0414", 9_400_279_040, 40960, _file(
        "glm4", "Glm4ForCausalLM", **_usual(4096, 40, 32, 2, 13696, 151552, 32768, False), head_dim=128, attention_bias=True,
        partial_rotary_factor=0.5)),
    Published("GLM-4-32B-0414", 32_566_177_792, 2 * 61 * 2 * 128 * 2, _file(
        "glm4", "Glm4ForCausalLM", **_usual(6144, 61, 48, 2, 23040, 151552, 32768, False), head_dim=128, attention_bias=False,
        partial_rotary_factor=0.5)),
    Published("SmolLM3-3B", 3_075_098_624, 2 * 36 * 4 * 128 * 2, _file(
        "smollm3", "SmolLM3ForCausalLM", **_usual(2048, 36, 16, 4, 11008, 128256, 65536, True), attention_bias=False,
        mlp_bias=False, no_rope_layers=[1, 1, 1, 0] * 9, no_rope_layer_interval=4, use_sliding_window=False,
        sliding_window=None, layer_types=["full_attention"] * 36, max_window_layers=28)),
    Published("Phi-3.5-MoE", 41_873_153_344, 2 * 32 * 8 * 128 * 2, _file(
        "phimoe", "PhiMoEForCausalLM", **_usual(4096, 32, 32, 8, 6400, 32064, 131072, False), attention_bias=True,
        lm_head_bias=True, num_local_experts=16, num_experts_per_tok=2, sliding_window=131072,
        original_max_position_embeddings=4096)),
    Published("starcoder2-7b", 7_173_923_840, 2 * 32 * 4 * 128 * 2, _file(
        "starcoder2", "Starcoder2ForCausalLM", **_usual(4608, 32, 36, 4, 18432, 49152, 16384, True, "gelu_pytorch_tanh"),
        use_bias=True, sliding_window=4096, mlp_type="default", norm_type="layer_norm")),
    Published("internlm2-7b", 7_737_708_544, 131072, _file(
        "internlm2", "InternLM2ForCausalLM", **_usual(4096, 32, 32, 8, 14336, 92544, 32768, False), bias=False)),
    Published("internlm2-20b", 19_861_149_696, 2 * 48 * 8 * 128 * 2, _file(
        "internlm2", "InternLM2ForCausalLM", **_usual(6144, 48, 48, 8, 16384, 92544, 32768, False), bias=False)),
    Published("internlm-7b", 7_321_899_008, 524288, _file(
        "internlm", "InternLMForCausalLM", **_usual(4096, 32, 32, 32, 11008, 103168, 2048, False), bias=True)),
    Published("internlm3-8b", 8_804_241_408, 2 * 48 * 2 * 128 * 2, _file(
        "internlm3", "InternLM3ForCausalLM", **_usual(4096, 48, 32, 2, 10240, 128512, 32768, False), bias=False, qkv_bias=False,
        head_dim=128)),
    Published("falcon-7b", 6_921_720_704, 2 * 32 * 1 * 64 * 2, _file(
        "falcon", "FalconForCausalLM", hidden_size=4544, num_hidden_layers=32, num_attention_heads=71, vocab_size=65024,
        multi_query=True, new_decoder_architecture=False, parallel_attn=True, alibi=False, bias=False)),
    Published("falcon-40b", 41_303_293_952, 2 * 60 * 8 * 64 * 2, _file(
        "falcon", "FalconForCausalLM", hidden_size=8192, num_hidden_layers=60, num_attention_heads=128, num_kv_heads=8,
        vocab_size=65024, multi_query=True, new_decoder_architecture=True, parallel_attn=True, alibi=False, bias=False)),
    Published("falcon-180B", 178_600_000_000, 2 * 80 * 8 * 64 * 2, _file(
        "falcon", "FalconForCausalLM", hidden_size=14848, num_hidden_layers=80, num_attention_heads=232, num_kv_heads=8,
        vocab_size=65024, multi_query=True, new_decoder_architecture=True, parallel_attn=True, alibi=False, bias=False)),
    Published("falcon-11B", 11_103_109_120, 2 * 60 * 8 * 128 * 2, _file(
        "falcon", "FalconForCausalLM", hidden_size=4096, num_hidden_layers=60, num_attention_heads=32, num_kv_heads=8,
        ffn_hidden_size=16384, vocab_size=65024, multi_query=True, new_decoder_architecture=True, parallel_attn=True,
        num_ln_in_parallel_attn=1, max_position_embeddings=8192, tie_word_embeddings=False, activation="gelu", bias=False)),
    Published("c4ai-command-r-v01", 34_980_831_232, 2 * 40 * 64 * 128 * 2, _file(
        "cohere", "CohereForCausalLM", **_usual(8192, 40, 64, 64, 22528, 256000, 8192, True), model_max_length=131072,
        use_qk_norm=False)),
    Published("c4ai-command-r-plus", 103_810_674_688, 2 * 64 * 8 * 128 * 2, _file(
        "cohere", "CohereForCausalLM", **_usual(12288, 64, 96, 8, 33792, 256000, 8192, True), model_max_length=131072,
        use_qk_norm=True)),
    Published("gpt-neox-20b", 20_554_567_680, 2 * 44 * 64 * 96 * 2, _file(
        "gpt_neox", "GPTNeoXForCausalLM", **_heads_alike(6144, 44, 64, 24576, 50432, 2048, False, "gelu_fast"),
        rotary_pct=0.25, rotary_emb_base=10000, use_parallel_residual=True)),
    Published("pythia-6.9b", 6_857_302_016, 2 * 32 * 32 * 128 * 2, _file(
        "gpt_neox", "GPTNeoXForCausalLM", **_heads_alike(4096, 32, 32, 16384, 50432, 2048, False, "gelu"),
        rotary_pct=0.25, use_parallel_residual=True)),
    Published("bloom", 176_247_271_424, 2 * 70 * 112 * 128 * 2, _file(
        "bloom", "BloomForCausalLM", n_embed=14336, n_layer=70, num_attention_heads=112, vocab_size=250880, seq_length=2048,
        offset_alibi=100, skip_bias_add=True, skip_bias_add_qkv=False, bias_dropout_fusion=True,
        apply_residual_connection_post_layernorm=False, masked_softmax_fusion=True)),
    Published("bloom-7b1", 7_069_016_064, 2 * 30 * 32 * 128 * 2, _file(
        "bloom", "BloomForCausalLM", hidden_size=4096, n_layer=30, num_attention_heads=32, vocab_size=250880)),
    Published("opt-6.7b", 6_658_473_984, 524288, _file(
        "opt", "OPTForCausalLM", hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, ffn_dim=16384,
        vocab_size=50272, max_position_embeddings=2048, word_embed_proj_dim=4096, do_layer_norm_before=True,
        activation_function="relu", tie_word_embeddings=True)),
    Published("opt-125m", 125_239_296, 2 * 12 * 12 * 64 * 2, _file(
        "opt", "OPTForCausalLM", hidden_size=768, num_hidden_layers=12, num_attention_heads=12, ffn_dim=3072,
        vocab_size=50272, max_position_embeddings=2048, word_embed_proj_dim=768, do_layer_norm_before=True)),
    Published("gemma-7b", 8_537_680_896, 2 * 28 * 16 * 256 * 2, _file(
        "gemma", "GemmaForCausalLM", **_usual(3072, 28, 16, 16, 24576, 256000, 8192, True, "gelu"), head_dim=256,
        hidden_activation=None, attention_bias=False)),
    Published("gemma-2b", 2_506_172_416, 2 * 18 * 1 * 256 * 2, _file(
        "gemma", "GemmaForCausalLM", **_usual(2048, 18, 8, 1, 16384, 256000, 8192, True, "gelu"), head_dim=256)),
    Published("gpt2", 124_439_808, 2 * 12 * 12 * 64 * 2, _file("gpt2", "GPT2LMHeadModel", **_gpt(768, 12, 12, 1024, 50257))),
    Published("gpt2-xl", 1_557_611_200, 2 * 48 * 25 * 64 * 2, _file(
        "gpt2", "GPT2LMHeadModel", **_gpt(1600, 48, 25, 1024, 50257), n_ctx=1024)),
    Published("gpt-j-6b", 6_050_882_784, 2 * 28 * 16 * 256 * 2, _file(
        "gptj", "GPTJForCausalLM", **_gpt(4096, 28, 16, 2048, 50400), rotary_dim=64, tie_word_embeddings=False)),
    Published("starcoder", 15_517_456_384, 2 * 40 * 1 * 128 * 2, _file(
        "gpt_bigcode", "GPTBigCodeForCausalLM",
        **_gpt(6144, 40, 48, 8192, 49152, n_inner=24576, activation_function="gelu"), multi_query=True)),
    Published("mpt-7b", 6_649_286_656, 524288, _file(
        "mpt", "MPTForCausalLM", d_model=4096, n_layers=32, n_heads=32, vocab_size=50432, max_seq_len=2048, expansion_ratio=4,
        no_bias=True, learned_pos_emb=True, attn_config={"alibi": True, "attn_type": "multihead_attention", "qk_ln": False})),
    Published("stablelm-3b-4e1t", 2_795_443_200, 2 * 32 * 32 * 80 * 2, _file(
        "stablelm", "StableLmForCausalLM", **_usual(2560, 32, 32, 32, 6912, 50304, 4096, False), partial_rotary_factor=0.25,
        use_qkv_bias=False)),
    Published("stablelm-2-1_6b", 1_644_515_328, 2 * 24 * 32 * 64 * 2, _file(
        "stablelm", "StableLmForCausalLM", **_usual(2048, 24, 32, 32, 5632, 100352, 4096, False), partial_rotary_factor=0.25,
        use_qkv_bias=True)),
    Published("phi-2", 2_779_683_840, 2 * 32 * 32 * 80 * 2, _file(
        "phi", "PhiForCausalLM", **_usual(2560, 32, 32, 32, 10240, 51200, 2048, False, "gelu_new"), partial_rotary_factor=0.4,
        qk_layernorm=False)),
    Published("EXAONE-3.0-7.8B", 7_818_448_896, 131072, _file(
        "exaone", "ExaoneForCausalLM", hidden_size=4096, num_layers=32, num_attention_heads=32, num_key_value_heads=8,
        intermediate_size=14336, vocab_size=102400, max_position_embeddings=4096, activation_function="silu",
        tie_word_embeddings=False)),
    Published("EXAONE-4.0-32B", 32_003_216_384, 262144, _file(
        "exaone4", "Exaone4ForCausalLM", **_usual(5120, 64, 40, 8, 27392, 102400, 131072, False), sliding_window=4096,
        sliding_window_pattern="LLLG")),
    Published("Minitron-4B", 4_190_000_000, 2 * 32 * 8 * 128 * 2, _file(
        "nemotron", "NemotronForCausalLM", **_usual(3072, 32, 24, 8, 9216, 256000, 4096, False, "relu2"), head_dim=128,
        partial_rotary_factor=0.5)),
    Published("dbrx", 131_596_523_520, 2 * 40 * 8 * 128 * 2, _file(
        "dbrx", "DbrxForCausalLM", d_model=6144, n_layers=40, n_heads=48, vocab_size=100352, max_seq_len=32768,
        attn_config={"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 500000},
        ffn_config={"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}, tie_word_embeddings=False)),
    Published("snowflake-arctic", 480_000_000_000, 2 * 35 * 8 * 128 * 2, _file(
        "arctic", "ArcticForCausalLM", **_usual(7168, 35, 56, 8, 4864, 32000, 4096, False), num_local_experts=128,
        num_experts_per_tok=2, moe_layer_frequency=1, parallel_attn_mlp_res=True)),
    Published("Baichuan2-7B", 7_505_973_248, 524288, _file(
        "baichuan", "BaichuanForCausalLM", **_heads_alike(4096, 32, 32, 11008, 125696, 4096, False, "silu"),
        model_max_length=4096, z_loss_weight=0)),
    Published("Baichuan2-13B", 13_896_668_160, 2 * 40 * 40 * 128 * 2, _file(
        "baichuan", "BaichuanForCausalLM", hidden_size=5120, num_hidden_layers=40, num_attention_heads=40,
        intermediate_size=13696, vocab_size=125696, model_max_length=4096, tie_word_embeddings=False, hidden_act="silu")),
    Published("chatglm3-6b", 6_243_584_000, 2 * 28 * 2 * 128 * 2, _file(
        "chatglm", "ChatGLMModel", hidden_size=4096, num_layers=28, num_attention_heads=32, ffn_hidden_size=13696,
        kv_channels=128, multi_query_attention=True, multi_query_group_num=2, padded_vocab_size=65024, vocab_size=65024,
        seq_length=8192, add_bias_linear=False, add_qkv_bias=True, rmsnorm=True, post_layer_norm=True, original_rope=True,
        apply_residual_connection_post_layernorm=False, tie_word_embeddings=False)),
    Published("glm-4-9b-chat", 9_399_951_360, 40960, _file(
        "chatglm", "ChatGLMModel", hidden_size=4096, num_layers=40, num_attention_heads=32, ffn_hidden_size=13696,
        kv_channels=128, multi_query_attention=True, multi_query_group_num=2, padded_vocab_size=151552, vocab_size=151552,
        seq_length=131072, rope_ratio=500, add_bias_linear=False, add_qkv_bias=True, rmsnorm=True, tie_word_embeddings=False)),
    Published("Qwen-7B", 7_721_324_544, 524288, _file(
        "qwen", "QWenLMHeadModel", hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, intermediate_size=22016,
        vocab_size=151936, seq_length=8192, max_position_embeddings=8192, kv_channels=128, no_bias=True,
        tie_word_embeddings=False, use_logn_attn=True, use_dynamic_ntk=True, use_flash_attn="auto")),
    Published("MiniCPM-2B", 2_724_880_896, 2 * 40 * 36 * 64 * 2, _file(
        "minicpm", "MiniCPMForCausalLM", **_usual(2304, 40, 36, 36, 5760, 122753, 4096, True), scale_emb=12, scale_depth=1.4,
        dim_model_base=256)),
    Published("MiniCPM3-4B", 4_074_106_880, 62 * (256 + 32) * 2, _file(
        "minicpm3", "MiniCPM3ForCausalLM", **_usual(2560, 62, 40, 40, 6400, 73448, 32768, True), q_lora_rank=768,
        kv_lora_rank=256, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64, scale_emb=12, scale_depth=1.4)),
    Published("ERNIE-4.5-0.3B", 360_748_032, 2 * 18 * 2 * 128 * 2, _file(
        "ernie4_5", "Ernie4_5_ForCausalLM", **_usual(1024, 18, 16, 2, 3072, 103424, 131072, True), head_dim=128,
        use_bias=False)),
    Published("Seed-OSS-36B", 36_151_104_512, 2 * 64 * 8 * 128 * 2, _file(
        "seed_oss", "SeedOssForCausalLM", **_usual(5120, 64, 80, 8, 27648, 155136, 524288, False), head_dim=128,
        attention_bias=True, attention_out_bias=False, mlp_bias=False)),
    Published("AFM-4.5B", 4_619_000_000, 2 * 36 * 4 * 128 * 2, _file(
        "arcee", "ArceeForCausalLM", **_usual(2560, 36, 20, 4, 18432, 128004, 65536, False, "relu2"), head_dim=128,
        attention_bias=False, mlp_bias=False)),
    Published("Apertus-8B", 8_053_338_176, 131072, _file(
        "apertus", "ApertusForCausalLM", **_usual(4096, 32, 32, 8, 21504, 131072, 65536, False, "xielu"), qk_norm=True,
        post_norm=False, attention_bias=False, mlp_bias=False)),
    Published("Orion-14B", 14_500_000_000, 2 * 40 * 40 * 128 * 2, _file(
        "orion", "OrionForCausalLM", **_usual(5120, 40, 40, 40, 15360, 84608, 4096, False))),
    Published("dots.llm1", 142_774_381_696, 2 * 62 * 32 * 128 * 2, _file(
        "dots1", "Dots1ForCausalLM", **_usual(4096, 62, 32, 32, 10944, 152064, 32768, False), n_routed_experts=128,
        n_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1408, first_k_dense_replace=1, n_group=1,
        topk_group=1, scoring_func="noaux_tc", attention_bias=False)),
    Published("Jamba-v0.1", 51_570_323_328, 2 * 4 * 8 * 128 * 2, _file(
        "jamba", "JambaForCausalLM", **_usual(4096, 32, 32, 8, 14336, 65536, 262144, False), attn_layer_period=8,
        attn_layer_offset=4, expert_layer_period=2, expert_layer_offset=1, num_experts=16, num_experts_per_tok=2,
        mamba_d_state=16, mamba_d_conv=4, mamba_expand=2, mamba_dt_rank=256, mamba_conv_bias=True, mamba_proj_bias=False,
        mamba_inner_layernorms=True, use_mamba_kernels=True, n_ctx=262144, sliding_window=None)),
    Published("AI21-Jamba-1.5-Large", 398_560_000_000, 2 * 9 * 8 * 128 * 2, _file(
        "jamba", "JambaForCausalLM", **_usual(8192, 72, 64, 8, 24576, 65536, 262144, False), attn_layer_period=8,
        attn_layer_offset=4, expert_layer_period=2, expert_layer_offset=1, num_experts=16, num_experts_per_tok=2,
        mamba_d_state=16, mamba_d_conv=4, mamba_expand=2, mamba_dt_rank=512, mamba_conv_bias=True, mamba_proj_bias=False)),
    Published("deepseek-moe-16b", 16_375_728_128, 2 * 28 * 16 * 128 * 2, _file(
        "deepseek", "DeepseekForCausalLM", **_usual(2048, 28, 16, 16, 10944, 102400, 4096, False), attention_bias=False,
        n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1408, first_k_dense_replace=1,
        moe_layer_freq=1, scoring_func="softmax", norm_topk_prob=False)),
    Published("Ling-lite", 16_800_000_000, 2 * 28 * 4 * 128 * 2, _file(
        "bailing_moe", "BailingMoeForCausalLM", **_usual(2048, 28, 16, 4, 5632, 126464, 16384, False), head_dim=128,
        num_experts=64, num_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1408, first_k_dense_replace=0,
        use_bias=False, use_qkv_bias=False, multi_gate=False)),
    Published("Ling-mini-2.0", 16_260_000_000, 2 * 20 * 4 * 128 * 2, _file(
        "bailing_moe_v2", "BailingMoeV2ForCausalLM", **_usual(2048, 20, 16, 4, 5120, 157184, 32768, False), head_dim=128,
        num_experts=256, num_shared_experts=1, num_experts_per_tok=8, moe_intermediate_size=512, first_k_dense_replace=1,
        moe_shared_expert_intermediate_size=512, n_group=8, topk_group=4, moe_router_enable_expert_bias=True, use_qk_norm=True,
        use_bias=False, use_qkv_bias=False, partial_rotary_factor=0.5, num_nextn_predict_layers=0, use_rmsnorm=True)),
    Published("gpt-neo-2.7B", 2_651_307_520, 2 * 32 * 20 * 128 * 2, _file(
        "gpt_neo", "GPTNeoForCausalLM", hidden_size=2560, num_layers=32, num_heads=20, vocab_size=50257,
        max_position_embeddings=2048, window_size=256, activation_function="gelu_new",
        attention_types=[[["global", "local"], 16]], attention_layers=["global", "local"] * 16)),
    Published("helium-1-2b", 2_020_000_000, 2 * 28 * 8 * 128 * 2, _file(
        "helium", "HeliumForCausalLM", **_usual(2048, 28, 16, 8, 8192, 64000, 4096, False), head_dim=128,
        attention_bias=False, mlp_bias=False)),
    Published("persimmon-8b", 9_400_000_000, 2 * 36 * 64 * 64 * 2, _file(
        "persimmon", "PersimmonForCausalLM", **_heads_alike(4096, 36, 64, 16384, 262144, 16384, False, "relu2"),
        partial_rotary_factor=0.5, qk_layernorm=True)),
    Published("Yi-34B", 34_388_917_248, 2 * 60 * 8 * 128 * 2, _file(
        "llama", "LlamaForCausalLM", **_usual(7168, 60, 56, 8, 20480, 64000, 4096, False))),
    Published("deepseek-llm-67b", 67_425_000_000, 2 * 95 * 8 * 128 * 2, _file(
        "llama", "LlamaForCausalLM", **_usual(8192, 95, 64, 8, 22016, 102400, 4096, False))),
    Published("SmolLM2-1.7B", 1_711_376_384, 2 * 24 * 32 * 64 * 2, _file(
        "llama", "LlamaForCausalLM", **_usual(2048, 24, 32, 32, 8192, 49152, 8192, True), attention_bias=False, mlp_bias=False,
        is_llama_config=True, rope_interleaved=False, **{"transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}})),
    Published("Mistral-7B-v0.1", 7_241_732_096, 131072, _file(
        "mistral", "MistralForCausalLM", **_usual(4096, 32, 32, 8, 14336, 32000, 32768, False), sliding_window=4096)),
    Published("llava-1.5-7b", 6_738_939_904, 524288, {
        "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "image_token_index": 32000,
        "projector_hidden_act": "gelu", "vision_feature_layer": -2, "torch_dtype": "float16",
        "vision_config": {"hidden_size": 1024, "model_type": "clip_vision_model", "num_hidden_layers": 24},
        "text_config": {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096, "model_type": "llama",
                        "rms_norm_eps": 1e-05, "torch_dtype": "float16", "vocab_size": 32064}}),
]  # fmt: skip
