"""Supported architectures, by the classes and types that files name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dse.huggingface import decoders
from dse.huggingface import field_defaults as absent
from dse.huggingface import gqa_families as usual
from dse.huggingface import mla_families as latent
from dse.huggingface import nas_pruned as pruned
from dse.huggingface import recurrent_families as states
from dse.huggingface import window_families as windows
from dse.huggingface.config_file import ConfigFile, Entry
from dse.huggingface.decoders import ATTENTION_BIAS, BIASED, BIASES, LAYERNORM, PLAIN, Decoder

SILU = ("silu", "swish")
GELU = ("gelu_pytorch_tanh", "gelu", "gelu_tanh", "gelu_new", "gelu_fast", "gelu_python")
NONE: Mapping[str, Any] = MappingProxyType({})


class Family(NamedTuple):
    """One architecture: its reader, the names of its files' fields, and their defaults.

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
        longest: fields that say the longest sequence; the first that a file has counts.
        extended: whether `max_position_embeddings` says the length after the scaling of positions.
    """

    model_type: str
    fields: Callable[[ConfigFile], Entry]
    others: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = NONE
    acts: tuple[str, ...] = SILU
    partial: bool = False
    own: tuple[str, ...] = ()
    act: str = "hidden_act"
    names: Mapping[str, str] = NONE
    extended: bool = False
    longest: tuple[str, ...] = ("max_position_embeddings", "model_max_length")


GPT = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "activation_function": "hidden_act",
}
LAYERS = {"n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}
DATABRICKS = {
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers",
    "max_seq_len": "max_position_embeddings",
}
CHATGLM = {
    "num_layers": "num_hidden_layers",
    "ffn_hidden_size": "intermediate_size",
    "kv_channels": "head_dim",
    "multi_query_group_num": "num_key_value_heads",
    "padded_vocab_size": "vocab_size",
    "seq_length": "max_position_embeddings",
}
"""Fields by what classes call them, and by their usual names."""

BIAS = {"qkv_bias out_bias": ("bias", False)}
QKV = {"qkv_bias": ("attention_bias", True)}
HEAD_BIAS = {"head_bias": ("lm_head_bias", False)}
OLDER = LAYERNORM | PLAIN | BIASED

ARCHITECTURES: dict[str, Family] = {
    "LlamaForCausalLM": Family("llama", usual.llama, ("aquila", "xverse"), defaults=absent.LLAMA),
    "MistralForCausalLM": Family("mistral", usual.mistral, defaults=absent.MISTRAL),
    "Ministral3ForCausalLM": Family("ministral3", usual.mistral, defaults=absent.MINISTRAL3),
    "Mistral4ForCausalLM": Family("mistral4", latent.mistral4, defaults=absent.MISTRAL4, partial=True),
    "MixtralForCausalLM": Family("mixtral", usual.mixtral, defaults=absent.MIXTRAL),
    "Phi3ForCausalLM": Family("phi3", usual.phi3, ("phi3_v",), absent.PHI3, partial=True),
    "Qwen2ForCausalLM": Family("qwen2", usual.qwen2, defaults=absent.QWEN2),
    "MiMoForCausalLM": Family("mimo", usual.mimo),
    "Qwen3ForCausalLM": Family("qwen3", usual.qwen3, ("qwen3_vl_text",)),
    "Qwen3MoeForCausalLM": Family("qwen3_moe", usual.qwen3_moe, ("qwen3_vl_moe_text",)),
    "Qwen3NextForCausalLM": Family(
        "qwen3_next", states.qwen3_next, defaults=absent.QWEN3_NEXT, partial=True, own=("ffn_intermediate",)
    ),
    "Qwen3_5ForCausalLM": Family("qwen3_5_text", states.qwen35, ("qwen3_5",), defaults=absent.QWEN3_5, partial=True),
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
    "Llama4ForCausalLM": Family("llama4_text", windows.llama4, ("llama4",), defaults=absent.LLAMA4, own=("ffn_intermediate",)),
    "Cohere2ForCausalLM": Family("cohere2", windows.cohere2, defaults=absent.COHERE2),
    "Glm4MoeForCausalLM": Family("glm4_moe", usual.glm4_moe, ("glm4v_moe_text",), defaults=absent.GLM4_MOE, partial=True),
    "MiniMaxM1ForCausalLM": Family("minimax_m1", states.minimax_m1, ("minimax", "minimax_text_01"), partial=True),
    "MiniMaxM2ForCausalLM": Family("minimax_m2", usual.minimax_m2, ("minimax",), defaults=absent.MINIMAX_M2, partial=True),
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
        "nemotron_h",
        states.nemotron_h,
        defaults=absent.NEMOTRON_H,
        acts=("relu2",),
        own=("layers", "ffn_intermediate"),
        act="mlp_hidden_act",
    ),
    "Qwen2MoeForCausalLM": Family("qwen2_moe", usual.qwen2_moe, defaults=absent.QWEN2_MOE, own=("ffn_intermediate",)),
    "Qwen2VLForConditionalGeneration": Family("qwen2_vl", usual.qwen2, ("qwen2_vl_text",), absent.QWEN2_VL),
    "Qwen2_5_VLForConditionalGeneration": Family("qwen2_5_vl", usual.qwen2, ("qwen2_5_vl_text",), absent.QWEN2_VL),
    "OlmoForCausalLM": Family("olmo", Decoder(flags=ATTENTION_BIAS), defaults=absent.OLMO),
    "Olmo2ForCausalLM": Family("olmo2", Decoder({"qk_norm": True}, ATTENTION_BIAS), defaults=absent.OLMO),
    "Olmo3ForCausalLM": Family(
        "olmo3", Decoder({"qk_norm": True}, ATTENTION_BIAS, more=decoders.cut_windows), defaults=absent.OLMO3
    ),
    "OlmoeForCausalLM": Family(
        "olmoe", Decoder({"qk_norm": True}, ATTENTION_BIAS, more=decoders.all_experts), defaults=absent.OLMOE
    ),
    "GraniteForCausalLM": Family("granite", Decoder(flags=BIASES), defaults=absent.LLAMA),
    "GraniteMoeForCausalLM": Family(
        "granitemoe", Decoder(flags=ATTENTION_BIAS, more=decoders.granite_experts), defaults=absent.GRANITE_MOE
    ),
    "GraniteMoeSharedForCausalLM": Family(
        "granitemoeshared", Decoder(flags=ATTENTION_BIAS, more=decoders.granite_experts), defaults=absent.GRANITE_SHARED
    ),
    "GraniteMoeHybridForCausalLM": Family(
        "granitemoehybrid",
        Decoder(flags=ATTENTION_BIAS, more=decoders.granite_hybrid),
        defaults=absent.GRANITE_HYBRID,
        own=("ffn_intermediate",),
    ),
    "GlmForCausalLM": Family("glm", Decoder(flags=QKV, rope=0.5), defaults=absent.GLM, partial=True),
    "Glm4ForCausalLM": Family("glm4", Decoder({"post_norms": True}, QKV, rope=0.5), ("glm4v_text",), absent.GLM, partial=True),
    "SmolLM3ForCausalLM": Family(
        "smollm3", Decoder(flags=BIASES, more=decoders.partial_rotary_layers), defaults=absent.SMOLLM3
    ),
    "PhimoeForCausalLM": Family(
        "phimoe",
        Decoder(LAYERNORM, ATTENTION_BIAS | HEAD_BIAS, window=True, more=decoders.all_experts),
        defaults=absent.PHIMOE,
    ),
    "Starcoder2ForCausalLM": Family(
        "starcoder2",
        Decoder(
            LAYERNORM | PLAIN,
            {"qkv_bias out_bias ffn_bias": ("use_bias", True)},
            window=True,
            only={"mlp_type": ("default",), "norm_type": ("layer_norm",)},
        ),
        defaults=absent.STARCODER2,
        acts=GELU,
    ),
    "InternLMForCausalLM": Family("internlm", Decoder(flags={"qkv_bias out_bias": ("bias", True)})),
    "InternLM2ForCausalLM": Family("internlm2", Decoder(flags=BIAS)),
    "InternLM3ForCausalLM": Family(
        "internlm3", Decoder(flags={"qkv_bias": ("qkv_bias", False), "out_bias ffn_bias": ("bias", False)})
    ),
    "FalconForCausalLM": Family(
        "falcon",
        Decoder(LAYERNORM | PLAIN, width=4, more=decoders.falcon),
        ("RefinedWeb", "RefinedWebModel"),
        absent.FALCON,
        GELU,
        act="activation",
        own=("ffn_intermediate",),
        names=LAYERS
        | {"n_head_kv": "num_key_value_heads", "num_kv_heads": "num_key_value_heads", "ffn_hidden_size": "intermediate_size"},
    ),
    "CohereForCausalLM": Family(
        "cohere",
        Decoder({"parallel": True}, ATTENTION_BIAS | {"qk_norm": ("use_qk_norm", False)}),
        defaults=absent.COHERE,
        longest=("model_max_length", "max_position_embeddings"),
    ),
    "GPTNeoXForCausalLM": Family(
        "gpt_neox",
        Decoder(
            LAYERNORM | PLAIN | {"ffn_bias": True},
            {"qkv_bias out_bias": ("attention_bias", True), "parallel": ("use_parallel_residual", True)},
            rope=0.25,
        ),
        defaults=absent.NEOX,
        acts=GELU,
        partial=True,
        names={"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"},
    ),
    "BloomForCausalLM": Family(
        "bloom",
        Decoder(
            OLDER | {"rope": 0.0},
            width=4,
            only={"apply_residual_connection_post_layernorm": (False,)},
            ignored=("offset_alibi", "skip_bias_add", "skip_bias_add_qkv"),
        ),
        defaults=absent.BLOOM,
        own=("ffn_intermediate",),
        names=LAYERS | {"n_embed": "hidden_size", "seq_length": "max_position_embeddings"},
    ),
    "OPTForCausalLM": Family(
        "opt",
        Decoder(
            OLDER | {"rope": 0.0},
            rows=2,
            more=decoders.opt,
            only={
                "do_layer_norm_before": (True,),
                "_remove_final_layer_norm": (False,),
                "enable_bias": (True,),
                "layer_norm_elementwise_affine": (True,),
            },
        ),
        defaults=absent.OPT,
        acts=("relu", *GELU),
        names={"ffn_dim": "intermediate_size", "activation_function": "hidden_act"},
    ),
    "GemmaForCausalLM": Family(
        "gemma", Decoder(flags=ATTENTION_BIAS), defaults=absent.GEMMA, acts=GELU, act="hidden_activation"
    ),
    "GPT2LMHeadModel": Family(
        "gpt2",
        Decoder(OLDER | {"rope": 0.0}, only={"add_cross_attention": (False,)}, width=4, rows=0),
        defaults=absent.GPT2,
        acts=("relu", *GELU),
        own=("ffn_intermediate",),
        names=GPT,
    ),
    "GPTBigCodeForCausalLM": Family(
        "gpt_bigcode",
        Decoder(OLDER | {"rope": 0.0}, width=4, rows=0, more=decoders.big_code),
        defaults=absent.GPT2,
        acts=GELU,
        own=("ffn_intermediate",),
        names=GPT,
    ),
    "GPTJForCausalLM": Family(
        "gptj",
        Decoder(
            LAYERNORM | PLAIN | {"parallel": True, "ffn_bias": True, "head_bias": True}, width=4, more=decoders.part_turned
        ),
        ("codegen",),
        absent.GPTJ,
        GELU,
        own=("ffn_intermediate",),
        names=GPT,
    ),
    "MPTForCausalLM": Family(
        "mpt",
        Decoder(
            PLAIN,
            more=decoders.mpt,
            only={"embedding_fraction": (1.0, 1), "prefix_lm": (False,)},
            ignored=("norm_type", "fc_type", "ffn_config", "verbose"),
        ),
        defaults=absent.MPT,
        own=("ffn_intermediate",),
        names=DATABRICKS,
    ),
    "DbrxForCausalLM": Family(
        "dbrx", Decoder(more=decoders.dbrx), defaults=absent.DBRX, own=("ffn_intermediate",), names=DATABRICKS
    ),
    "ArcticForCausalLM": Family("arctic", Decoder(more=decoders.arctic), own=("ffn_intermediate",)),
    "StableLmForCausalLM": Family(
        "stablelm",
        Decoder(
            LAYERNORM,
            {
                "qkv_bias": ("use_qkv_bias", False),
                "qk_norm": ("qk_layernorm", False),
                "parallel": ("use_parallel_residual", False),
            },
            rope=0.25,
        ),
        ("stablelm_epoch",),
        absent.STABLELM,
        partial=True,
        names={"rope_pct": "partial_rotary_factor"},
    ),
    "PhiForCausalLM": Family(
        "phi",
        Decoder(OLDER | {"parallel": True, "head_bias": True}, {"qk_norm": ("qk_layernorm", False)}, rope=0.5),
        defaults=absent.PHI,
        acts=GELU,
        partial=True,
    ),
    "ExaoneForCausalLM": Family(
        "exaone",
        Decoder(flags=BIASES),
        names={"num_layers": "num_hidden_layers", "activation_function": "hidden_act"},
    ),
    "Exaone4ForCausalLM": Family("exaone4", Decoder({"qk_norm": True}, more=decoders.exaone4), defaults=absent.EXAONE4),
    "NemotronForCausalLM": Family(
        "nemotron", Decoder(LAYERNORM | PLAIN, BIASES, rope=0.5), defaults=absent.NEMOTRON, acts=("relu2",), partial=True
    ),
    "BaichuanForCausalLM": Family("baichuan", Decoder()),
    "ChatGLMModel": Family(
        "chatglm",
        Decoder(
            rope=0.5,
            more=decoders.chatglm,
            only={"post_layer_norm": (True,), "prefix_projection": (False,)},
            ignored=("apply_residual_connection_post_layernorm", "fp32_residual_connection", "rope_ratio", "interleaved_qkv"),
        ),
        names=CHATGLM,
    ),
    "QWenLMHeadModel": Family(
        "qwen",
        Decoder({"qkv_bias": True}, only={"no_bias": (True,)}, more=decoders.qwen1, ignored=("use_logn_attn",)),
        own=("ffn_intermediate",),
        names={"seq_length": "max_position_embeddings"},
    ),
    "MiniCPMForCausalLM": Family("minicpm", Decoder(only={"num_experts": (0,)}), defaults=absent.TIED),
    "MiniCPM3ForCausalLM": Family("minicpm3", latent.minicpm3, defaults=absent.MINICPM3),
    "Ernie4_5ForCausalLM": Family(
        "ernie4_5", Decoder(flags={"qkv_bias out_bias ffn_bias": ("use_bias", False)}), defaults=absent.ERNIE
    ),
    "SeedOssForCausalLM": Family(
        "seed_oss",
        Decoder(flags=QKV | {"out_bias": ("attention_out_bias", False), "ffn_bias": ("mlp_bias", False)}),
        defaults=absent.SEED,
    ),
    "ArceeForCausalLM": Family("arcee", Decoder(PLAIN, BIASES), defaults=absent.ARCEE, acts=("relu2",)),
    "ApertusForCausalLM": Family(
        "apertus",
        Decoder(PLAIN | {"qk_norm": True}, ATTENTION_BIAS, only={"post_norm": (False,), "qk_norm": (True,)}),
        defaults=absent.APERTUS,
        acts=("xielu",),
    ),
    "OrionForCausalLM": Family("orion", Decoder(LAYERNORM)),
    "Dots1ForCausalLM": Family("dots1", Decoder({"qk_norm": True}, ATTENTION_BIAS, more=decoders.dots1)),
    "JambaForCausalLM": Family("jamba", states.jamba, defaults=absent.JAMBA),
    "DeepseekForCausalLM": Family("deepseek", Decoder(flags=ATTENTION_BIAS, more=decoders.deepseek_moe)),
    "BailingMoeForCausalLM": Family(
        "bailing_moe",
        Decoder(flags={"qkv_bias": ("use_qkv_bias", False), "out_bias": ("use_bias", False)}, more=decoders.bailing),
    ),
    "BailingMoeV2ForCausalLM": Family(
        "bailing_moe_v2",
        Decoder(
            flags={"qkv_bias": ("use_qkv_bias", False), "out_bias": ("use_bias", False), "qk_norm": ("use_qk_norm", True)},
            only={"use_rmsnorm": (True,)},
            more=decoders.bailing,
        ),
        partial=True,
    ),
    "GPTNeoForCausalLM": Family(
        "gpt_neo",
        Decoder(LAYERNORM | PLAIN | {"out_bias": True, "ffn_bias": True, "rope": 0.0}, width=4, rows=0, more=decoders.gpt_neo),
        defaults=absent.GPT_NEO,
        acts=GELU,
        own=("ffn_intermediate",),
        names={
            "num_layers": "num_hidden_layers",
            "num_heads": "num_attention_heads",
            "window_size": "sliding_window",
            "activation_function": "hidden_act",
        },
    ),
    "HeliumForCausalLM": Family("helium", Decoder(flags=BIASES), defaults=absent.HELIUM),
    "PersimmonForCausalLM": Family(
        "persimmon",
        Decoder(OLDER, {"qk_norm": ("qk_layernorm", True)}, rope=0.5),
        defaults=absent.PERSIMMON,
        acts=("relu2",),
        partial=True,
    ),
    "DeciLMForCausalLM": Family("nemotron-nas", pruned.read_pruned_blocks, own=("ffn_intermediate",)),
    "HunYuanDenseV1ForCausalLM": Family("hunyuan_v1_dense", usual.hunyuan_dense),
    "HunYuanMoEV1ForCausalLM": Family("hunyuan_v1_moe", usual.hunyuan_moe, ("hunyuan",)),
    "HYV3ForCausalLM": Family("hy_v3", usual.hy_v3),
    "Ernie4_5_MoeForCausalLM": Family("ernie4_5_moe", usual.ernie_moe, defaults=absent.ERNIE_MOE),
    "Step3p5ForCausalLM": Family("step3p5", windows.step3, ("step3p7",), partial=True),
    "MiMoV2FlashForCausalLM": Family("mimo_v2_flash", windows.mimo_v2, ("mimo_v2",), partial=True),
}
"""By class."""

CLASSES = {"Step3p7FlashForCausalLM": "Step3p5ForCausalLM", "HunYuanMoEForCausalLM": "HunYuanMoEV1ForCausalLM"}
CLASSES |= {"MiniMaxM1ForCausalLM": "MiniMaxM1ForCausalLM", "MiniMaxForCausalLM": "MiniMaxM1ForCausalLM"}
CLASSES |= {"MiniMaxText01ForCausalLM": "MiniMaxM1ForCausalLM", "Qwen3VLMoeForCausalLM": "Qwen3MoeForCausalLM"}
CLASSES |= {"MiMoV2ForCausalLM": "MiMoV2FlashForCausalLM", "Step3p7ForCausalLM": "Step3p5ForCausalLM"}
CLASSES |= {"HunYuanForCausalLM": "HunYuanMoEV1ForCausalLM"}
CLASSES |= {"HunYuanV1MoEForCausalLM": "HunYuanMoEV1ForCausalLM", "MiniMaxM3SparseForCausalLM": "MiniMaxM3ForCausalLM"}
CLASSES |= {
    "LLaMAForCausalLM": "LlamaForCausalLM",
    "AquilaForCausalLM": "LlamaForCausalLM",
    "VLlama3ForCausalLM": "LlamaForCausalLM",
    "Phi3VForCausalLM": "Phi3ForCausalLM",
}
CLASSES |= {
    "XverseForCausalLM": "LlamaForCausalLM",
    "RWForCausalLM": "FalconForCausalLM",
    "PhiMoEForCausalLM": "PhimoeForCausalLM",
}
CLASSES |= {"BaiChuanForCausalLM": "BaichuanForCausalLM", "ChatGLMForConditionalGeneration": "ChatGLMModel"}
CLASSES |= {"CodeGenForCausalLM": "GPTJForCausalLM", "StableLMEpochForCausalLM": "StableLmForCausalLM"}
CLASSES |= {"MptForCausalLM": "MPTForCausalLM", "Ernie4_5_ForCausalLM": "Ernie4_5ForCausalLM"}
"""Other classes of the same layers."""

NOT_MODELLED = {
    "falcon_h1": "attention and a state side by side in each layer are not modelled",
    "gemma3n": "embeddings of each layer are not modelled",
    "gemma3n_text": "embeddings of each layer are not modelled",
    "lfm2": "convolutions in the place of attention are not modelled",
    "lfm2_moe": "convolutions in the place of attention are not modelled",
    "longcat_flash": "experts that do nothing, and two attentions a layer, are not modelled",
    "mllama": "layers that attend to images are not modelled",
    "mllama_text_model": "layers that attend to images are not modelled",
    "recurrent_gemma": "gated linear recurrences are not modelled",
    "rwkv": "states of RWKV are not modelled",
    "zamba2": "layers that share their weights are not modelled",
    "deepseek_v41": "tables of n-grams (Engram) and prompts that run half of the layers are not modelled",
}
"""Types that are known and refused, and why."""
