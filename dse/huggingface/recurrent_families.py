"""Architectures of which some layers keep a recurrent state in the place of a KV cache."""

from math import ceil, gcd

from dse.huggingface.config_file import MAX_LAYERS, ConfigFile, Entry
from dse.huggingface.gqa_families import grouped_query_fields, mtp_fields, rotated_share_stated
from dse.huggingface.layer_order import every_nth_layer, kinds_and_order, read_layer_list
from dse.huggingface.quantization import rotated_share


def qwen3_next(file: ConfigFile) -> Entry:
    """Qwen3-Next: Gated DeltaNet in most layers, gated attention in the others, experts in all."""
    return _delta_fields(file) | {"experts": _shared_experts(file), "ffn_intermediate": _dense_width(file)}


def qwen35(file: ConfigFile) -> Entry:
    """Qwen3.5: Qwen3-Next with one FFN in each layer."""
    return _delta_fields(file) | {"ffn_intermediate": file.read_count("intermediate_size")}


def _delta_fields(file: ConfigFile) -> Entry:
    layers = file.count_layers()
    file.one_of("decoder_sparse_step", (1,))
    file.one_of("mlp_only_layers", ([],))
    file.one_of("mamba_ssm_dtype", ("float32",))
    file.one_of("mtp_use_dedicated_embeddings", (False,))
    file.one_of("output_gate_type", ("swish", "silu", "sigmoid"))
    interval = file.read_count("full_attention_interval", default=4)
    words = {"linear_attention": "delta", "full_attention": "full"}
    turns = read_layer_list(file, "layer_types", words) or every_nth_layer(interval, layers, "delta", "full")
    state = {
        "rule": "delta",
        "heads": file.read_count("linear_num_value_heads"),
        "key_heads": file.read_count("linear_num_key_heads"),
        "key_dim": file.read_count("linear_key_head_dim"),
        "value_dim": file.read_count("linear_value_head_dim"),
        "conv": file.read_count("linear_conv_kernel_dim", default=4),
    }
    bias = file.read_flag("attention_bias")
    own = {
        "qk_norm": True,
        "qkv_bias": bias,
        "out_bias": bias,
        "gate": "element" if file.read_flag("attn_output_gate", default=True) else "none",
        "rope": rotated_share(file, default=0.25),
        **kinds_and_order(turns, {"delta": {"recurrence": state}, "full": {}}),
    }
    name = file.stated_name("mtp_num_hidden_layers", "num_nextn_predict_layers")
    return grouped_query_fields(file) | own | mtp_fields(file, name)


def _shared_experts(file: ConfigFile) -> Entry:
    shared = file.read_count("shared_expert_intermediate_size", low=0, default=0)
    return {
        "count": file.read_count("num_experts"),
        "top_k": file.read_count("num_experts_per_tok"),
        "intermediate": file.read_count("moe_intermediate_size"),
        **({"shared": 1, "shared_intermediate": shared, "shared_gate": True} if shared else {}),
    }


def _dense_width(file: ConfigFile) -> int:
    """Of FFNs that no layer has."""
    return file.read_count("intermediate_size", default=file.read_count("moe_intermediate_size"))


SUBLAYERS = {"M": "mamba", "*": "attention", "-": "dense", "E": "experts"}
NAMED = {
    "mamba": "mamba",
    "linear_attention": "mamba",
    "attention": "attention",
    "full_attention": "attention",
    "mlp": "dense",
    "moe": "experts",
}


def nemotron_h(file: ConfigFile) -> Entry:
    """Nemotron-H: Mamba-2, attention without rotation and FFNs without gate, each a layer."""
    turns = _sublayer_turns(file)
    for name in ("use_bias", "mamba_proj_bias"):
        file.one_of(name, (False,))
    file.one_of("mamba_ssm_cache_dtype", ("float32",))
    file.one_of("mamba_hidden_act", ("silu", "swish"))
    file.one_of("partial_rotary_factor", (1, 1.0))
    file.one_of("sliding_window", ())
    for name in ("expand", "mamba_expand"):
        file.read_count(name, default=2)  # heads and their dimension say the width
    conv_bias = file.read_flag(file.stated_name("mamba_conv_bias", "use_conv_bias"), default=True)
    if file.read_flag("use_conv_bias", default=conv_bias) != conv_bias:
        raise file.refuse("use_conv_bias", "contradicts mamba_conv_bias; keep one of them")
    modules = _prediction_fields(file)
    heads, bias, ffn_bias = file.read_count("num_attention_heads"), file.read_flag("attention_bias"), file.read_flag("mlp_bias")
    head_dim = file.agreed_count("head_dim", "attention_head_dim")
    state = {
        "rule": "ssd",
        "heads": file.read_count("mamba_num_heads"),
        "key_heads": file.agreed_count("n_groups", "mamba_n_groups"),
        "key_dim": file.read_count("ssm_state_size"),
        "value_dim": file.read_count("mamba_head_dim"),
        "conv": file.agreed_count("conv_kernel", "mamba_d_conv"),
        "conv_bias": conv_bias,
        "chunk": file.agreed_count("chunk_size", "mamba_chunk_size", default=128),
    }
    kinds: dict[str, Entry] = {
        "mamba": {"ffn": "none", "recurrence": state},
        "attention": {"ffn": "none"},
        "dense": {"mixing": "none", "ffn": "dense"},
        "experts": {"mixing": "none", "ffn": "experts"},
    }
    own = {
        "layers": len(turns),
        "kv_heads": file.agreed_count("num_key_value_heads", "num_query_groups", default=heads),
        "head_dim": head_dim,
        "ffn_intermediate": file.read_count("intermediate_size"),
        "gated_ffn": False,
        "qkv_bias": bias,
        "out_bias": bias,
        "ffn_bias": ffn_bias,
        "rope": 0.0,
        **({"experts": _nemotron_experts(file)} if "experts" in turns else {}),
        **kinds_and_order(turns, kinds),
    }
    if "experts" not in turns:
        for name in ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "moe_shared_expert_intermediate_size"):
            file.read_count(name, default=1)
        for name in ("n_shared_experts", "moe_latent_size"):
            file.read_count(name, low=0, default=0)
    return own | modules


def _sublayer_turns(file: ConfigFile) -> tuple[str, ...]:
    for name, words in (("layers_block_type", NAMED), ("layer_types", NAMED), ("hybrid_override_pattern", SUBLAYERS)):
        given = file.get(name)
        if isinstance(given, list | str) and 0 < len(given) <= MAX_LAYERS:
            layers = file.read_count("num_hidden_layers", default=len(given))
            turns = read_layer_list(file, name, words, layers=layers)
            for other in ("layers_block_type", "layer_types", "hybrid_override_pattern"):
                again = read_layer_list(file, other, SUBLAYERS if other.endswith("pattern") else NAMED, layers=layers)
                if again not in (None, turns):
                    raise file.refuse(other, f"contradicts {name}; keep one of them")
            assert turns is not None
            return turns
        if given is not None:
            raise file.refuse(name, f"is not a list with an entry a layer, {MAX_LAYERS} at most")
    raise file.refuse("hybrid_override_pattern", "missing; give a word with M, *, - or E for each layer, or layers_block_type")


def _prediction_fields(file: ConfigFile) -> Entry:
    """Modules that predict tokens, each of attention and experts."""
    file.one_of("mtp_hybrid_override_pattern", ("*E", "*-"))
    file.one_of("mtp_layers_block_type", (["attention", "moe"], ["full_attention", "moe"], ["attention", "mlp"]))
    return mtp_fields(file, "num_nextn_predict_layers")


def _nemotron_experts(file: ConfigFile) -> Entry:
    shared = file.read_count("n_shared_experts", low=0, default=1)
    return {
        "count": file.read_count("n_routed_experts"),
        "top_k": file.read_count("num_experts_per_tok"),
        "intermediate": file.read_count("moe_intermediate_size"),
        "shared": shared,
        "shared_intermediate": file.read_count("moe_shared_expert_intermediate_size") if shared else 0,
        "score_bias": True,
        "groups": file.read_count("n_group", default=1),
        "groups_kept": file.read_count("topk_group", default=1),
        "latent": file.read_count("moe_latent_size", low=0, default=0),
    }


def jamba(file: ConfigFile) -> Entry:
    """Jamba: Mamba-1 in most layers, attention without rotation in the others; experts in some of all."""
    file.one_of("mamba_proj_bias", (False,))
    file.one_of("sliding_window", ())
    hidden, layers = file.read_count("hidden_size"), file.count_layers()
    inner = file.read_count("mamba_expand") * hidden
    rank = (
        file.read_count("mamba_dt_rank", default=ceil(hidden / 16))
        if file.get("mamba_dt_rank") != "auto"
        else ceil(hidden / 16)
    )
    wide = gcd(inner, MOST_CHANNELS)
    state = {
        "rule": "selective",
        "heads": inner // wide,
        "key_heads": 1,
        "key_dim": file.read_count("mamba_d_state"),
        "value_dim": wide,
        "conv": file.read_count("mamba_d_conv"),
        "conv_bias": file.read_flag("mamba_conv_bias", default=True),
        "gate_rank": rank,
        "chunk": 1,
    }
    norms = file.read_flag("mamba_inner_layernorms", default=True)
    attends = _periodic_layers(file, "attn_layer_period", "attn_layer_offset", layers)
    read_layer_list(file, "layers_block_type", {"mamba": "mamba", "attention": "full"})
    count = file.read_count("num_experts")
    fed = _periodic_layers(file, "expert_layer_period", "expert_layer_offset", layers)
    fed = [has_experts and count > 1 for has_experts in fed]  # one expert is a dense FFN
    mixes = ["full" if attend else "mamba" for attend in attends]
    names = [f"{mix}_{'experts' if has_experts else 'dense'}" for mix, has_experts in zip(mixes, fed, strict=True)]
    kinds: dict[str, Entry] = {}
    for name in dict.fromkeys(names):
        mix, _, feeds = name.partition("_")
        own = {"recurrence": state, "qk_norm": norms} if mix == "mamba" else {}
        kinds[name] = own | ({"ffn": feeds} if count > 1 else {})
    top, width = file.read_count("num_experts_per_tok"), file.read_count("intermediate_size")
    experts = {"experts": {"count": count, "top_k": top, "intermediate": width}} if count > 1 else {}
    return grouped_query_fields(file) | {"rope": 0.0, **experts, **kinds_and_order(names, kinds)}


MOST_CHANNELS = 64
"""Channels of Mamba-1 that are told as one head of values: each has a state of its own, and devices divide heads."""


def _periodic_layers(file: ConfigFile, period: str, offset: str, layers: int) -> list[bool]:
    """Whether each layer is one of those that come once in a period."""
    every, first = file.read_count(period), file.read_count(offset, low=0)
    if first >= every:
        raise file.refuse(offset, f"{first} is no place within a period of {every} layers ({period})")
    return [place % every == first for place in range(layers)]


def minimax_m1(file: ConfigFile) -> Entry:
    """MiniMax-M1: lightning attention in most layers."""
    layers, heads, head_dim = file.count_layers(), file.read_count("num_attention_heads"), file.read_count("head_dim")
    words = {0: "lightning", 1: "full", "linear_attention": "lightning", "full_attention": "full"}
    turns = read_layer_list(file, "attn_type_list", words) or read_layer_list(file, "layer_types", words)
    read_layer_list(file, "layer_types", words)
    if turns is None:
        raise file.refuse("attn_type_list", "missing; give a list with 0 (lightning) or 1 (full) for each layer")
    file.one_of("postnorm", (True, False))
    file.one_of("sliding_window", ())
    file.one_of("attn_window_size", ())
    file.one_of("shared_intermediate_size", (0,))
    file.one_of("shared_moe_mode", ("sigmoid", "softmax"))
    file.ignore("mlp_intermediate_size", "max_model_len")  # of FFNs that no layer has
    state = {
        "rule": "linear",
        "heads": heads,
        "key_heads": heads,
        "key_dim": head_dim,
        "value_dim": head_dim,
        "chunk": file.read_count("block_size", default=256),
    }
    experts = {
        "count": file.read_count("num_local_experts"),
        "top_k": file.read_count("num_experts_per_tok"),
        "intermediate": file.read_count("intermediate_size"),
    }
    own = {
        "rope": rotated_share_stated(file),
        "experts": experts,
        **kinds_and_order(turns, {"lightning": {"recurrence": state}, "full": {}}),
    }
    assert layers == len(turns)
    return grouped_query_fields(file) | own | mtp_fields(file, "num_mtp_modules")
