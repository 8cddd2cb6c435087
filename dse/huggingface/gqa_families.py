"""Architectures with grouped-query attention of one kind in all layers."""

from dse.huggingface.config_file import ConfigFile, Entry, shorten
from dse.huggingface.layer_order import ATTENTIONS, kinds_and_order, leading_dense_layers, read_layer_list
from dse.huggingface.quantization import rotated_share


def llama(file: ConfigFile) -> Entry:
    """Llama: grouped heads, with biases if the file sets them."""
    bias, ffn_bias = file.read_flag("attention_bias"), file.read_flag("mlp_bias")
    return grouped_query_fields(file, kv_heads=file.read_count("num_attention_heads")) | {
        "qkv_bias": bias,
        "out_bias": bias,
        "ffn_bias": ffn_bias,
    }


def mistral(file: ConfigFile) -> Entry:
    """Mistral: a window in all layers, if there is one."""
    return grouped_query_fields(file) | {"window": _window_size(file, file.read_count("sliding_window", default=0))}


def whole_window(file: ConfigFile) -> int:
    """Window of all layers; 0 if there is none or it covers the longest sequence. [token]"""
    size = _window_size(file, file.read_count("sliding_window", low=0, default=0))
    return size if size < file.read_count("max_position_embeddings") else 0


def mixtral(file: ConfigFile) -> Entry:
    """Mixtral: Mistral with experts in all layers."""
    experts = {
        "count": file.read_count("num_local_experts"),
        "top_k": file.read_count("num_experts_per_tok"),
        "intermediate": file.read_count("intermediate_size"),
    }
    return mistral(file) | {"experts": experts}


def phi3(file: ConfigFile) -> Entry:
    """Phi-3: a window in all layers, if there is one; a part of each head may be rotated."""
    file.one_of("full_attn_mod", (1,))
    file.one_of("lm_head_bias", (False,))
    heads = file.read_count("num_attention_heads")
    return grouped_query_fields(file, kv_heads=heads) | {"window": whole_window(file), "rope": rotated_share(file)}


def qwen2(file: ConfigFile) -> Entry:
    """Qwen2: biases on queries, keys and values."""
    file.one_of("attention_bias", (True,))
    return grouped_query_fields(file) | {"qkv_bias": True} | _late_window(file)


def mimo(file: ConfigFile) -> Entry:
    """MiMo: Qwen2 with modules that predict further tokens."""
    return qwen2(file) | mtp_fields(file, "num_nextn_predict_layers")


def qwen3(file: ConfigFile) -> Entry:
    """Qwen3: norms on queries and keys."""
    bias = file.read_flag("attention_bias")
    file.read_count("head_dim")  # its classes differ about the default
    return grouped_query_fields(file) | {"qk_norm": True, "qkv_bias": bias, "out_bias": bias} | _late_window(file)


def qwen3_moe(file: ConfigFile) -> Entry:
    """Qwen3 with MoE experts in all but the first layers."""
    file.one_of("decoder_sparse_step", (1,))
    file.one_of("qkv_bias", (False,))
    file.one_of("use_qk_norm", (True,))
    file.one_of("shared_expert_intermediate_size", (0,))
    dense = file.get("mlp_only_layers") or []
    if not isinstance(dense, list) or dense != list(range(len(dense))):
        raise file.refuse(
            "mlp_only_layers", f"{shorten(dense)} is not understood; dense layers are the first ones: [0, 1, ...]"
        )
    experts = {
        "count": file.read_count("num_experts"),
        "top_k": file.read_count("num_experts_per_tok"),
        "intermediate": file.read_count("moe_intermediate_size"),
        "dense_layers": len(dense),
    }
    return qwen3(file) | {"experts": experts}


def qwen2_moe(file: ConfigFile) -> Entry:
    """Qwen2 with experts in all layers and a gated shared expert."""
    file.one_of("decoder_sparse_step", (1,))
    file.one_of("mlp_only_layers", ([],))
    bias = file.read_flag("qkv_bias", default=True)
    shared = file.read_count("shared_expert_intermediate_size", low=0, default=0)
    experts = {
        "count": file.read_count("num_experts"),
        "top_k": file.read_count("num_experts_per_tok"),
        "intermediate": file.read_count("moe_intermediate_size"),
        **({"shared": 1, "shared_intermediate": shared, "shared_gate": True} if shared else {}),
    }
    file.read_count("intermediate_size", default=1)  # of FFNs that no layer has
    own = {"qkv_bias": bias, "experts": experts, "ffn_intermediate": experts["intermediate"]}
    return grouped_query_fields(file) | own | _late_window(file)


def glm4_moe(file: ConfigFile) -> Entry:
    """GLM-4.5 and later: biases on queries, keys and values only, half of a head rotated."""
    bias = file.read_flag("attention_bias")
    file.one_of("topk_method", ("noaux_tc",))
    norms = file.read_flag("use_qk_norm")
    experts = expert_fields(file, score_bias=True) | {"dense_layers": dense_layers(file)}
    own = {"qkv_bias": bias, "qk_norm": norms, "rope": rotated_share(file, default=0.5), "experts": experts}
    return grouped_query_fields(file) | own | mtp_fields(file, "num_nextn_predict_layers")


def hy_v3(file: ConfigFile) -> Entry:
    """Hunyuan 3: experts with shared ones, norms on queries and keys."""
    experts = {
        "count": file.agreed_count("num_experts", "num_local_experts"),
        "top_k": file.read_count("num_experts_per_tok"),
        "intermediate": file.agreed_count("moe_intermediate_size", "expert_hidden_dim"),
        "shared": file.read_count("num_shared_experts", low=0, default=0),
        "dense_layers": dense_layers(file),
        "score_bias": file.read_flag("moe_router_enable_expert_bias", default=True),
    }
    norms = file.read_flag("qk_norm", default=True)
    file.read_count("head_dim")  # not that of hidden_size
    return grouped_query_fields(file) | {"qk_norm": norms, "experts": experts} | mtp_fields(file, "num_nextn_predict_layers")


def minimax_m2(file: ConfigFile) -> Entry:
    """MiniMax-M2: a part of each head rotated, experts in all layers."""
    file.one_of("qk_norm_type", ("per_layer", "per_head"))
    file.one_of("shared_intermediate_size", (0,))
    file.one_of("attn_type_list", ([1] * file.count_layers(),))
    file.one_of("mtp_transformer_layers", (1,))
    file.one_of("shared_moe_mode", ("sigmoid", "softmax"))
    file.one_of("sliding_window", ())
    file.ignore("mlp_intermediate_size", "max_model_len")  # of FFNs that no layer has
    experts = {
        "count": file.read_count("num_local_experts"),
        "top_k": file.read_count("num_experts_per_tok"),
        "intermediate": file.read_count("intermediate_size"),
        "score_bias": file.read_flag("use_routing_bias", default=True),
    }
    modules = file.read_count("num_mtp_modules", low=0, default=0) if file.read_flag("use_mtp", default=True) else 0
    file.get("num_mtp_modules")
    own = {
        "qk_norm": file.read_flag("use_qk_norm", default=True),
        "rope": rotated_share_stated(file),
        "mtp": modules,
        "experts": experts,
    }
    return grouped_query_fields(file) | own | {"note": parameter_note(modules)}


def minimax_m3(file: ConfigFile) -> Entry:
    """MiniMax-M3: attention picks blocks of positions in the layers that the file names.

    Modules that predict further tokens are counted but not published.
    """
    layers = file.count_layers()
    dense = read_layer_list(file, "moe_layer_freq", {0: "dense", 1: "experts"}) or ("experts",) * layers
    dense_layers = leading_dense_layers(file, "moe_layer_freq", dense)
    file.one_of("first_k_dense_replace", (dense_layers,))
    file.one_of("qk_norm_type", ("per_head",))
    file.one_of("attention_output_gate", (False,))
    for name in ("num_mtp_modules", "num_nextn_predict_layers", "mtp_transformer_layers"):
        file.read_count(name, low=0, default=0)
    width, shared = (
        file.agreed_count("moe_intermediate_size", "intermediate_size"),
        file.read_count("n_shared_experts", low=0, default=0),
    )
    experts = {
        "count": file.agreed_count("num_local_experts", "num_experts"),
        "top_k": file.read_count("num_experts_per_tok"),
        "intermediate": width,
        "shared": shared,
        "shared_intermediate": file.read_count("shared_intermediate_size", default=width) if shared else 0,
        "dense_layers": dense_layers,
        "score_bias": file.read_flag("use_routing_bias", default=True),
    }
    own = {
        "ffn_intermediate": file.read_count("dense_intermediate_size"),
        "qk_norm": file.read_flag("use_qk_norm", default=True),
        "rope": rotated_share_stated(file),
        "experts": experts,
    }
    return grouped_query_fields(file) | own | _block_fields(file, layers)


def _block_fields(file: ConfigFile, layers: int) -> Entry:
    group = file.read_group("sparse_attention_config")
    if group is None or not group.read_flag("use_sparse_attention", default=True):
        return {}
    group.one_of("sparse_score_type", ("max",))
    for name in ("sparse_init_block", "sparse_local_block"):
        group.read_count(name, low=0, default=0)
    read_layer_list(group, "sparse_disable_index_value", {0: "full", 1: "sparse"}, layers=layers)
    block = group.read_count("sparse_block_size")
    indexer = {
        "heads": group.read_count("sparse_num_index_heads"),
        "dim": group.read_count("sparse_index_dim"),
        "top": group.read_count("sparse_topk_blocks") * block,
        "block": block,
    }
    turns = read_layer_list(group, "sparse_attention_freq", {0: "full", 1: "sparse"}, layers=layers) or ("sparse",) * layers
    group.check_rest()
    return kinds_and_order(turns, {"full": {}, "sparse": {"indexer": indexer}})


def hunyuan_dense(file: ConfigFile) -> Entry:
    """Hunyuan dense: its files give one expert, if any."""
    file.one_of("num_experts", (1,))
    file.ignore(
        "moe_topk", "num_shared_expert", "moe_intermediate_size", "moe_layer_num_skipped", "use_mixed_mlp_moe"
    )  # no experts
    return hunyuan(file)


def hunyuan(file: ConfigFile) -> Entry:
    """Hunyuan attention; with `use_cla`, layers reuse keys and values of their group's first layer."""
    file.one_of("use_mla", (False,))
    file.one_of("norm_type", ("rms",))
    file.one_of("mlp_bias", (False,))
    file.one_of("add_classification_head", (False,))
    file.one_of("use_rotary_pos_emb", (True,))
    file.ignore("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")  # of no latent attention
    file.ignore(
        "org_vocab_size", "class_num", "dense_list", "group_limited_greedy", "num_media_embeds", "pool_type", "skip_cls_token"
    )
    file.ignore_like("(anyres|vit|video|xdrope)_.*|position_embedding_xdrope|unused_token.*")
    bias = file.read_flag("attention_bias")
    head_dim = file.agreed_count(
        "head_dim", "attention_head_dim", default=file.read_count("hidden_size") // file.read_count("num_attention_heads")
    )
    kv_heads = file.read_count("num_key_value_heads", default=file.read_count("num_attention_heads"))
    norms = file.read_flag("use_qk_norm", default=True)
    own = {"kv_heads": kv_heads, "head_dim": head_dim, "qk_norm": norms, "qkv_bias": bias, "out_bias": bias}
    share = file.read_count("cla_share_factor", default=1)
    if not file.read_flag("use_cla"):
        return own
    turns = ["reused" if place % share else "own" for place in range(file.count_layers())]
    return own | kinds_and_order(turns, {"own": {}, "reused": {"kv_reused": True}})


def hunyuan_moe(file: ConfigFile) -> Entry:
    """Hunyuan with experts, beside an FFN that every token goes through."""
    file.one_of("use_mixed_mlp_moe", (True,))
    width = file.read_count("intermediate_size")
    shared = _common_count(file, "num_shared_expert", default=1)
    experts = {
        "count": _common_count(file, "num_experts"),
        "top_k": _common_count(file, "moe_topk"),
        "intermediate": _common_count(file, "moe_intermediate_size", default=width),
        "shared": shared,
        "shared_intermediate": width if shared else 0,
        "dense_layers": file.read_count("moe_layer_num_skipped", low=0, default=0),
    }
    return hunyuan(file) | {"experts": experts}


def ernie_moe(file: ConfigFile) -> Entry:
    """ERNIE 4.5: text only; other modalities are not read."""
    layers, bias = file.count_layers(), file.read_flag("use_bias")
    first = file.read_count("moe_layer_start_index", low=0, default=1)
    last = file.get("moe_layer_end_index")
    file.one_of("moe_layer_end_index", (-1, layers - 1) if not isinstance(last, list) else ())
    file.one_of("moe_layer_interval", (1,))
    file.one_of("moe_use_aux_free", (True, False))
    file.one_of("compression_ratio", (1, 1.0))
    file.one_of("use_rmsnorm", (True,))
    experts = {
        "count": file.read_count("moe_num_experts"),
        "top_k": file.read_count("moe_k"),
        "intermediate": file.read_count("moe_intermediate_size"),
        "shared": file.read_count("moe_num_shared_experts", low=0, default=0),
        "dense_layers": first,
        "score_bias": file.read_flag("moe_use_aux_free", default=True),
    }
    own = {"qkv_bias": bias, "out_bias": bias, "ffn_bias": bias, "experts": experts}
    return grouped_query_fields(file) | own | mtp_fields(file, "num_nextn_predict_layers")


def _common_count(file: ConfigFile, name: str, *, default: int | None = None) -> int:
    """A count that may be said of each layer; all must say the same."""
    given = file.get(name)
    if not isinstance(given, list):
        return file.read_count(name, default=default)
    if not given or any(type(size) is not int or size != given[0] or size < 1 for size in given):
        raise file.refuse(name, f"{shorten(given)} is not supported; set the same whole number for every layer")
    if len(given) != file.count_layers():
        raise file.refuse(name, f"{len(given)} entries, for {file.count_layers()} layers; list one for each")
    return int(given[0])


def dense_layers(file: ConfigFile) -> int:
    """Number of leading layers without experts, which a list of all layers may give too."""
    more = file.read_count("num_nextn_predict_layers", low=0, default=0)
    turns = read_layer_list(file, "mlp_layer_types", {"dense": "dense", "sparse": "experts"}, more=more)
    if turns is None:
        return file.read_count("first_k_dense_replace", low=0)
    dense = leading_dense_layers(file, "mlp_layer_types", turns)
    if file.has_value("first_k_dense_replace"):
        file.one_of("first_k_dense_replace", (dense,))
    file.ignore("first_k_dense_replace")
    return dense


def expert_fields(file: ConfigFile, *, score_bias: bool) -> Entry:
    """Expert fields as most files have them since DeepSeek-V2."""
    return {
        "count": file.read_count("n_routed_experts"),
        "top_k": file.read_count("num_experts_per_tok"),
        "intermediate": file.read_count("moe_intermediate_size"),
        "shared": file.read_count("n_shared_experts", low=0, default=0 if file.is_null("n_shared_experts") else None),
        "score_bias": score_bias,
        "groups": file.read_count("n_group", default=1),
        "groups_kept": file.read_count("topk_group", default=1),
    }


def mtp_fields(file: ConfigFile, name: str) -> Entry:
    """Number and note of modules that predict tokens beyond the next."""
    modules = file.agreed_count(name, "num_mtp_layers", low=0, default=0)
    return {"mtp": modules, "note": parameter_note(modules)}


def parameter_note(modules: int) -> str:
    """Note on parameters of modules that predict further tokens."""
    return f"parameters without its {modules} multi-token prediction module" + "s" * (modules > 1) if modules else ""


def rotated_share_stated(file: ConfigFile) -> float:
    """Share of a head that is rotated, if the file counts the rotated values. [-]"""
    head_dim = file.read_count("head_dim")
    share = rotated_share(file, default=file.read_count("rotary_dim", default=head_dim) / head_dim)
    if share > 1:
        raise file.refuse("rotary_dim", f"{file.get('rotary_dim')} is more than the {head_dim} of a head (head_dim)")
    return share


def grouped_query_fields(file: ConfigFile, *, kv_heads: int | None = None) -> Entry:
    """Fields of grouped-query heads; `kv_heads` replaces an absent field."""
    heads, hidden = file.read_count("num_attention_heads"), file.read_count("hidden_size")
    head_dim = file.read_count("head_dim", default=hidden // heads)
    if file.get("head_dim") is None and hidden % heads:
        raise file.refuse("head_dim", f"missing, and hidden_size {hidden} is not a multiple of {heads} heads; give head_dim")
    usual = file.get_default("head_dim")
    if file.is_null("head_dim") and usual not in (None, head_dim):
        raise file.refuse("head_dim", f"null, which is {head_dim} of hidden_size or the {usual} of its class; give head_dim")
    alike = heads if file.is_null("num_key_value_heads") else kv_heads
    return {"kv_heads": file.read_count("num_key_value_heads", default=alike), "head_dim": head_dim}


def _late_window(file: ConfigFile) -> Entry:
    """A window that layers from `max_window_layers` on have, or those that a list says."""
    used, size, layers = (
        file.read_flag("use_sliding_window"),
        file.read_count("sliding_window", low=0, default=0),
        file.count_layers(),
    )
    first = file.read_count("max_window_layers", low=0, default=None if used else 0)
    if not used or not size:
        return {"window": _window_size(file, 0)}
    turns = ["local" if place >= first else "full" for place in range(layers)]
    if read_layer_list(file, "layer_types", ATTENTIONS) not in (None, tuple(turns)):
        raise file.refuse("layer_types", f"contradicts max_window_layers {first}; keep one of them")
    return kinds_and_order(turns, {"local": {"window": size}, "full": {"window": 0}})


def _window_size(file: ConfigFile, size: int) -> int:
    """The window, where the list of the layers' kinds, if there is one, says the same."""
    kinds, kind = file.get("layer_types"), "sliding_attention" if size else "full_attention"
    if kinds is not None and kinds != [kind] * file.count_layers():
        raise file.refuse("layer_types", f"{shorten(kinds)} is not understood; the other fields say {kind} in every layer")
    return size
