"""Architectures that cache a latent or compressed entries: DeepSeek and its successors."""

from dse.huggingface.config_file import ConfigFile, Entry, shorten
from dse.huggingface.gqa_families import expert_fields, mtp_fields
from dse.huggingface.layer_order import kinds_and_order, leading_dense_layers, read_layer_list
from dse.huggingface.quantization import rotated_share


def deepseek_v2(file: ConfigFile) -> Entry:
    """DeepSeek-V2: latent attention, routing without learned biases."""
    file.one_of("topk_method", ("greedy", "group_limited_greedy"))
    return _latent_fields(file, score_bias=False)


def deepseek_v3(file: ConfigFile) -> Entry:
    """DeepSeek-V3: latent attention, routing by scores with biases."""
    file.one_of("topk_method", ("noaux_tc",))
    return _latent_fields(file, score_bias=True)


def minicpm3(file: ConfigFile) -> Entry:
    """MiniCPM3: latent attention with a dense FFN in each layer."""
    file.ignore("head_dim")  # of the rotated part
    file.one_of("attention_bias", (False,))
    return _head_fields(file)


def mistral4(file: ConfigFile) -> Entry:
    """Mistral 4: DeepSeek-V2 with experts in all layers by default."""
    biased = file.one_of("topk_method", ("greedy", "group_limited_greedy", "noaux_tc")) == "noaux_tc"
    return _latent_fields(file, score_bias=biased)


def glm4_lite(file: ConfigFile) -> Entry:
    """GLM-4 lite: the same fields as DeepSeek-V3."""
    return deepseek_v3(file)


def deepseek_v32(file: ConfigFile) -> Entry:
    """DeepSeek-V3.2: DeepSeek-V3 with an indexer that picks positions."""
    return deepseek_v3(file) | {"indexer": _indexer_fields(file)}


def glm_dsa(file: ConfigFile) -> Entry:
    """GLM with an indexer as in DeepSeek-V3.2; some layers may reuse the picks of an earlier one."""
    indexer, layers = _indexer_fields(file), file.count_layers()
    modules = file.read_count("num_nextn_predict_layers", low=0, default=0)
    read_layer_list(file, "layer_types", {"deepseek_sparse_attention": "sparse"}, more=modules)
    words = {"full": "scored", "shared": "reused", "F": "scored", "S": "reused"}
    turns = read_layer_list(file, "indexer_types", words, more=modules) or read_layer_list(
        file, "index_topk_pattern", words, more=modules
    )
    every, first = file.read_count("index_topk_freq", default=1), file.read_count("index_skip_topk_offset", low=0, default=2)
    if turns is None:
        turns = tuple("reused" if max(place - first + 1, 0) % every else "scored" for place in range(layers))
    file.get("index_topk_pattern")
    if turns[0] == "reused":
        raise file.refuse(
            file.stated_name("indexer_types", "index_topk_pattern"), "the first layer has nothing to reuse; set full"
        )
    file.read_count("head_dim", default=1)  # of the rotated or of the whole key, as files differ; the other fields say both
    file.one_of("topk_method", ("noaux_tc",))
    return _latent_fields(file, score_bias=True, named=False) | {
        "indexer": indexer,
        **kinds_and_order(turns, {"scored": {}, "reused": {"indexer": indexer | {"reused": True}}}),
    }


def deepseek_v4(file: ConfigFile) -> Entry:
    """DeepSeek-V4: windows in all layers, and compressed entries, which an indexer picks or which are few."""
    heads, head_dim = file.read_count("num_attention_heads"), file.read_count("head_dim")
    file.one_of("num_key_value_heads", (1,))
    file.one_of("topk_method", ("noaux_tc",))
    rope = file.read_count("qk_rope_head_dim", default=64)
    if rope > head_dim:
        raise file.refuse("qk_rope_head_dim", f"{rope} is more than the {head_dim} of a head (head_dim)")
    groups = file.read_count("o_groups")
    if heads % groups:
        raise file.refuse("o_groups", f"{groups} groups do not divide {heads} heads")
    hashed = file.read_count("num_hash_layers", low=0, default=3)
    if hashed > file.count_layers():
        raise file.refuse("num_hash_layers", f"{hashed} of {file.count_layers()} layers")
    modules = mtp_fields(file, "num_nextn_predict_layers")
    low = {"ratio": 0, "q_rank": file.read_count("q_lora_rank"), "o_rank": file.read_count("o_lora_rank"), "groups": groups}
    ratios = _compression_ratios(file)
    kinds = {
        "local": {},
        "sparse": {"compressed": low | {"ratio": ratios["sparse"]}, "indexer": _indexer_fields(file)},
        "heavy": {"compressed": low | {"ratio": ratios["heavy"]}},
    }
    own = {
        "kv_heads": 1,
        "head_dim": head_dim,
        "window": file.read_count("sliding_window"),
        "rope": rotated_share(file, "main", default=rope / head_dim),
        "sinks": True,
        "compressed": low,
        "experts": expert_fields(file, score_bias=True),
        **kinds_and_order(_compressing_turns(file, int(modules["mtp"])), kinds),
    }
    own["ffn_intermediate"] = file.read_count("moe_intermediate_size")
    return own | modules


def _compression_ratios(file: ConfigFile) -> dict[str, int]:
    group = file.read_group("compress_rates")
    names = {"sparse": ("compressed_sparse_attention", "compress_rate_csa", 4)}
    names["heavy"] = ("heavily_compressed_attention", "compress_rate_hca", 128)
    return {
        kind: file.read_count(old, default=usual if group is None else group.read_count(new, default=usual))
        for kind, (new, old, usual) in names.items()
    }


def _compressing_turns(file: ConfigFile, modules: int) -> tuple[str, ...]:
    words = {"sliding_attention": "local", "compressed_sparse_attention": "sparse", "heavily_compressed_attention": "heavy"}
    ratios = read_layer_list(file, "compress_ratios", {0: "local", 4: "sparse", 128: "heavy"}, more=modules)
    turns = read_layer_list(file, "layer_types", words, more=modules) or ratios
    if turns is None:
        raise file.refuse("compress_ratios", "missing; give a list with 0, 4 or 128 for each layer")
    if ratios is not None and turns != ratios:
        raise file.refuse("layer_types", "contradicts compress_ratios; keep one of them")
    read_layer_list(file, "mlp_layer_types", {"hash_moe": "experts", "moe": "experts"}, more=modules)
    return turns


def kimi_linear(file: ConfigFile) -> Entry:
    """Kimi Linear: states with a decay of each channel, and latent attention without rotation.

    Layers are counted from one.
    """
    group = file.read_group("linear_attn_config")
    if group is None:
        raise file.refuse("linear_attn_config", "missing; a group of fields is needed")
    heads, head_dim, layers = group.read_count("num_heads"), group.read_count("head_dim"), file.count_layers()
    state = {
        "rule": "channel_delta",
        "heads": heads,
        "key_heads": heads,
        "key_dim": head_dim,
        "value_dim": head_dim,
        "conv": group.read_count("short_conv_kernel_size", default=4),
        "gate_rank": head_dim,
        "full_gate": group.read_flag("use_full_rank_gate"),
    }
    group.get("gate_lower_bound")
    turns = _layer_turns(group, layers)
    group.check_rest()
    file.one_of("use_nope", (True,))
    file.one_of("mla_use_nope", (True,))
    file.one_of("moe_layer_freq", (1,))
    file.one_of("latent_moe_use_norm", (True, False))
    file.read_count("head_dim", default=1)  # unused beside those of latent attention
    own = _head_fields(file) | {"rope": 0.0, "gate": "element" if file.read_flag("mla_use_output_gate") else "none"}
    experts = {
        "count": file.read_count("num_experts"),
        "top_k": file.agreed_count("num_experts_per_token", "num_experts_per_tok"),
        "intermediate": file.read_count("moe_intermediate_size"),
        "shared": file.read_count("num_shared_experts", low=0, default=0),
        "dense_layers": file.read_count("first_k_dense_replace", low=0),
        "score_bias": file.one_of("topk_method", ("noaux_tc",), default="noaux_tc") == "noaux_tc",
        "groups": file.read_count("num_expert_group", default=1),
        "groups_kept": file.read_count("topk_group", default=1),
        "latent": file.read_count("routed_expert_hidden_size", default=0),
    }
    own |= {"experts": experts, **kinds_and_order(turns, {"state": {"recurrence": state}, "full": {}})}
    return own | mtp_fields(file, "num_nextn_predict_layers")


def _layer_turns(file: ConfigFile, layers: int) -> tuple[str, ...]:
    """Kinds of layers from two lists of their places, from 1 on, that have each once."""
    turns = [""] * layers
    for name, kind in (("kda_layers", "state"), ("full_attn_layers", "full")):
        places = file.get(name)
        if not isinstance(places, list) or not all(type(place) is int and 1 <= place <= layers for place in places):
            raise file.refuse(name, f"{shorten(places)} is not a list of layers, from 1 to {layers}")
        for place in places:
            if turns[place - 1]:
                raise file.refuse(name, f"layer {place} is named twice; list each once in kda_layers or full_attn_layers")
            turns[place - 1] = kind
    if "" in turns:
        raise file.refuse("full_attn_layers", f"layer {turns.index('') + 1} is in neither list; list each once")
    return tuple(turns)


def _indexer_fields(file: ConfigFile) -> Entry:
    return {
        "heads": file.read_count("index_n_heads"),
        "dim": file.read_count("index_head_dim"),
        "top": file.read_count("index_topk"),
    }


def _head_fields(file: ConfigFile) -> Entry:
    """Heads of latent attention, which has no groups."""
    heads, nope, rope = (file.read_count(name) for name in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim"))
    file.one_of("num_key_value_heads", (heads,))
    file.one_of("qk_head_dim", (nope + rope,))
    latent = {
        "q_rank": file.read_count("q_lora_rank", default=0 if file.is_null("q_lora_rank") else None),
        "kv_rank": file.read_count("kv_lora_rank"),
        "nope_dim": nope,
        "rope_dim": rope,
        "v_dim": file.read_count("v_head_dim"),
    }
    return {"kv_heads": heads, "head_dim": nope + rope, "latent": latent}


def _latent_fields(file: ConfigFile, *, score_bias: bool, named: bool = True) -> Entry:
    """Latent attention and experts; `named` where files give head_dim, if at all, as the rotated or the whole dimension."""
    own = _head_fields(file)
    if named:
        file.one_of("head_dim", (own["latent"]["rope_dim"], own["head_dim"]))
    file.one_of("moe_layer_freq", (1,))
    modules = mtp_fields(file, "num_nextn_predict_layers")
    dense = read_layer_list(file, "mlp_layer_types", {"dense": "dense", "sparse": "experts"}, more=int(modules["mtp"]))
    first = file.read_count("first_k_dense_replace", low=0, default=None if dense is None else 0)
    if dense is not None:
        leading, first = first, leading_dense_layers(file, "mlp_layer_types", dense)
        if file.has_value("first_k_dense_replace") and leading != first:
            raise file.refuse("first_k_dense_replace", f"{leading} contradicts mlp_layer_types; keep one of them")
    experts = expert_fields(file, score_bias=score_bias)
    return own | {"experts": experts | {"dense_layers": first}} | modules
