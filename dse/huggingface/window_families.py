"""Architectures whose layers attend within a window or a chunk in part, and to everything in part."""

from dse.huggingface.config_file import ConfigFile, Entry, shorten
from dse.huggingface.gqa_families import grouped_query_fields, mtp_fields
from dse.huggingface.layer_order import (
    ATTENTIONS,
    every_nth_layer,
    kinds_and_order,
    leading_dense_layers,
    read_layer_list,
    window_layers,
)
from dse.huggingface.quantization import rotated_share


def gpt_oss(file: ConfigFile) -> Entry:
    """gpt-oss: windows in every second layer, sinks, biases everywhere, experts in all layers."""
    bias = file.read_flag("attention_bias", default=True)
    width = file.read_count("intermediate_size")
    experts = {
        "count": file.agreed_count("num_local_experts", "num_experts"),
        "top_k": file.agreed_count("num_experts_per_tok", "experts_per_token"),
        "intermediate": width,
        "route_bias": True,
    }
    turns = read_layer_list(file, "layer_types", ATTENTIONS) or every_nth_layer(2, file.count_layers(), "local", "full")
    own = {"qkv_bias": bias, "out_bias": bias, "ffn_bias": True, "sinks": True, "experts": experts}
    return grouped_query_fields(file) | own | window_layers(file, turns)


def gemma2(file: ConfigFile) -> Entry:
    """Gemma 2: windows in every second layer, norms before and after, tanh on scores."""
    file.one_of("sliding_window_size", (file.get("sliding_window"),))
    own = _gemma_fields(file) | {"softcap": _is_capped(file, "attn_logit_softcapping")}
    turns = read_layer_list(file, "layer_types", ATTENTIONS) or every_nth_layer(2, file.count_layers(), "local", "full")
    return own | window_layers(file, turns)


def gemma3(file: ConfigFile) -> Entry:
    """Gemma 3: windows in five of six layers, norms on queries and keys."""
    own = _gemma_fields(file) | {"softcap": _is_capped(file, "attn_logit_softcapping"), "qk_norm": True}
    interval = file.agreed_count("sliding_window_pattern", "_sliding_window_pattern", default=6)
    turns = read_layer_list(file, "layer_types", ATTENTIONS) or every_nth_layer(interval, file.count_layers(), "local", "full")
    return own | window_layers(file, turns)


def gemma4(file: ConfigFile) -> Entry:
    """Gemma 4: full layers have heads of their own, whose keys may be values too; the last is full."""
    for name, valid in (("hidden_size_per_layer_input", (0,)), ("use_double_wide_mlp", (False,))):
        file.one_of(name, valid)
    file.get("vocab_size_per_layer_input")  # of tables that are not there
    own = _gemma_fields(file) | {"qk_norm": True}
    layers = file.count_layers()
    turns = read_layer_list(file, "layer_types", ATTENTIONS) or every_nth_layer(6, layers, "local", "full")
    turns = (*turns[:-1], "full")
    same = file.read_flag("attention_k_eq_v")
    wide = file.read_count("num_global_key_value_heads", default=own["kv_heads"])
    full = {
        "kv_heads": wide if same else own["kv_heads"],
        "head_dim": own["head_dim"] if file.is_null("global_head_dim") else file.read_count("global_head_dim"),
        "v_proj": not same,
        "rope": rotated_share(file, "full_attention", default=0.25),
    }
    shared = file.read_count("num_kv_shared_layers", low=0, default=0)
    if shared >= layers:
        raise file.refuse("num_kv_shared_layers", f"{shared} of {layers} layers; some must have keys and values of their own")
    local = {"window": file.read_count("sliding_window"), "rope": rotated_share(file, "sliding_attention")}
    kinds = {"local": local, "full": full}
    kinds |= {f"{name}_reused": kind | {"kv_reused": True} for name, kind in kinds.items()}
    own |= _beside_dense_fields(file) if file.read_flag("enable_moe_block") else {}
    for name in ("num_experts", "top_k_experts", "moe_intermediate_size"):
        file.read_count(name, default=1)  # of experts that are not there
    reused = [f"{name}_reused" for name in turns[layers - shared :]] if shared else []
    return own | kinds_and_order([*turns[: layers - shared], *reused], kinds)


def _beside_dense_fields(file: ConfigFile) -> Entry:
    """Experts beside a dense FFN, which every token goes through as well."""
    experts = {
        "count": file.read_count("num_experts"),
        "top_k": file.read_count("top_k_experts"),
        "intermediate": file.read_count("moe_intermediate_size"),
        "shared": 1,
        "shared_intermediate": file.read_count("intermediate_size"),
    }
    return {"experts": experts}


def _gemma_fields(file: ConfigFile) -> Entry:
    bias = file.read_flag("attention_bias")
    file.one_of("use_bidirectional_attention", (False, "vision"))
    own = {"qkv_bias": bias, "out_bias": bias, "post_norms": True, "head_softcap": _is_capped(file, "final_logit_softcapping")}
    return grouped_query_fields(file) | own


def _is_capped(file: ConfigFile, name: str) -> bool:
    """Whether scores go through a tanh, of which a file says the height."""
    value = file.get(name)
    if isinstance(value, bool) or not (value is None or (isinstance(value, int | float) and 0 <= value < 1e6)):
        raise file.refuse(name, f"{shorten(value)} is not a number above 0; null for none")
    return bool(value)


def llama4(file: ConfigFile) -> Entry:
    """Llama 4: rotated layers within chunks and full layers without rotation; experts in some or all."""
    layers = file.count_layers()
    interval = file.read_count("no_rope_layer_interval", default=4)
    pattern = _rotating_turns(file, layers)
    turned_ones = pattern or every_nth_layer(interval, layers, "local", "full")
    turns = read_layer_list(file, "layer_types", {"chunked_attention": "local", "full_attention": "full"}) or turned_ones
    chunk = file.read_count("attention_chunk_size", default=0)
    kinds: dict[str, Entry] = {
        "local": {"chunk": chunk, "qk_norm": file.read_flag("use_qk_norm", default=True)},
        "full": {"rope": 0.0},
    }
    if turns != turned_ones:
        raise file.refuse(
            "layer_types", "layers within chunks are not those that no_rope_layers rotates; use the same layers in both"
        )
    fed = _expert_turns(file, layers)
    experts = {
        "count": file.read_count("num_local_experts"),
        "top_k": file.read_count("num_experts_per_tok"),
        "intermediate": file.read_count("intermediate_size"),
        "shared": 1,
    }
    own = grouped_query_fields(file) | {"ffn_intermediate": file.read_count("intermediate_size_mlp"), "experts": experts}
    own |= {"qkv_bias": file.read_flag("attention_bias"), "out_bias": file.read_flag("attention_bias")}
    if len(set(fed)) == 1 and fed[0] == "experts":
        return own | kinds_and_order(turns, kinds)
    both = {f"{name}_{feeds}": kind | {"ffn": feeds} for name, kind in kinds.items() for feeds in ("dense", "experts")}
    return own | kinds_and_order([f"{name}_{feeds}" for name, feeds in zip(turns, fed, strict=True)], both)


def _rotating_turns(file: ConfigFile, layers: int) -> tuple[str, ...] | None:
    """Layers by a list that may be longer than they are, in which 1 stands for a rotation."""
    given = file.get("no_rope_layers")
    more = max(len(given) - layers, 0) if isinstance(given, list) else 0
    return None if given == [] else read_layer_list(file, "no_rope_layers", {1: "local", 0: "full"}, more=more)


def _expert_turns(file: ConfigFile, layers: int) -> tuple[str, ...]:
    """Which layers have experts."""
    given, step = file.get("moe_layers"), file.read_count("interleave_moe_layer_step", default=1)
    if given is None:
        return every_nth_layer(step, layers, "dense", "experts")
    if not isinstance(given, list) or not all(type(place) is int and 0 <= place < layers for place in given):
        raise file.refuse("moe_layers", f"{shorten(given)} is not a list of layers, from 0 to {layers - 1}")
    return tuple("experts" if place in set(given) else "dense" for place in range(layers))


def cohere2(file: ConfigFile) -> Entry:
    """Cohere2: parallel attention and FFN; norms have no bias and so the weights of RMS norms."""
    for name, valid in (
        ("use_qk_norm", (False,)),
        ("use_parallel_block", (True,)),
        ("use_gated_activation", (True,)),
        ("position_embedding_type", ("rope_gptj",)),
        ("order_of_interleaved_layers", ("local_attn_first",)),
        ("rotary_pct", (1, 1.0)),
    ):
        file.one_of(name, valid)
    file.one_of("use_parallel_embedding", (True, False))
    file.one_of("use_embedding_sharing", (file.read_flag("tie_word_embeddings", default=True),))
    interval = file.agreed_count("sliding_window_pattern", "_sliding_window_pattern", "layer_switch", default=4)
    bias = file.read_flag("attention_bias")
    turns = read_layer_list(file, "layer_types", ATTENTIONS) or every_nth_layer(interval, file.count_layers(), "local", "full")
    own = grouped_query_fields(file, kv_heads=file.read_count("num_attention_heads")) | {
        "qkv_bias": bias,
        "out_bias": bias,
        "parallel": True,
    }
    return own | window_layers(file, turns, full={"rope": 0.0})


def mimo_v2(file: ConfigFile) -> Entry:
    """MiMo-V2: windows with more KV heads and sinks; values of a head are fewer than keys."""
    modules = mtp_fields(file, "num_nextn_predict_layers")
    words = {0: "full", 1: "local"}
    turns = read_layer_list(file, "hybrid_layer_pattern", words, more=int(modules["mtp"]))
    if turns is None:
        raise file.refuse("hybrid_layer_pattern", "missing; give a list with 0 (full) or 1 (window) for each layer")
    if read_layer_list(file, "layer_types", ATTENTIONS, more=int(modules["mtp"])) not in (None, turns):
        raise file.refuse("layer_types", "contradicts hybrid_layer_pattern; keep one of them")
    size = file.agreed_count("sliding_window", "sliding_window_size", "attention_chunk_size")
    feeds = read_layer_list(file, "moe_layer_freq", {0: "dense", 1: "experts"}, more=int(modules["mtp"]))
    if feeds is None:
        raise file.refuse("moe_layer_freq", "missing; give a list with 0 (dense) or 1 (experts) for each layer")
    file.one_of("topk_method", ("noaux_tc",))
    shared = file.read_count("n_shared_experts", low=0, default=0)
    experts = {
        "count": file.read_count("n_routed_experts"),
        "top_k": file.read_count("num_experts_per_tok"),
        "intermediate": file.read_count("moe_intermediate_size"),
        "shared": shared,
        "dense_layers": leading_dense_layers(file, "moe_layer_freq", feeds),
        "score_bias": True,
        "groups": file.read_count("n_group", default=1),
        "groups_kept": file.read_count("topk_group", default=1),
    }
    file.read_count("head_dim")  # not that of hidden_size
    own = grouped_query_fields(file)
    own |= {"v_dim": file.read_count("v_head_dim", default=own["head_dim"]), "rope": rotated_share(file), "experts": experts}
    bias, sunk = file.read_flag("attention_bias"), file.read_flag("add_full_attention_sink_bias")
    local = {
        "heads": file.read_count("swa_num_attention_heads", default=file.read_count("num_attention_heads")),
        "kv_heads": file.read_count("swa_num_key_value_heads", default=own["kv_heads"]),
        "head_dim": file.read_count("swa_head_dim", default=own["head_dim"]),
        "v_dim": file.read_count("swa_v_head_dim", default=own["v_dim"]),
        "window": size,
        "sinks": file.read_flag("add_swa_attention_sink_bias", default=True),
    }
    own |= {"qkv_bias": bias, "sinks": sunk}
    return own | kinds_and_order(turns, {"full": {}, "local": local}) | modules


STEP_37 = 96
"""Query heads of windows in Step-3.7-Flash, which copies of its file leave out, with the gates of heads."""


def step3(file: ConfigFile) -> Entry:
    """Step3: windows with more query heads, and a gate of each head.

    Lists may go on over modules that predict further tokens.
    """
    modules = mtp_fields(file, "num_nextn_predict_layers")
    more, layers, heads = int(modules["mtp"]), file.count_layers(), file.read_count("num_attention_heads")
    file.one_of("att_impl_type", ("GQA",))
    file.one_of("use_qk_norm", (True, False))  # its layers have them whatever it says
    file.one_of("use_moe", (True,))
    file.one_of("sink", (False,))
    file.one_of("use_mfa", (False,))
    file.one_of("moe_every_n_layer", (1,))
    file.one_of("moe_layer_offset", (0,))
    kv_heads = file.agreed_count("num_attention_groups", "num_key_value_heads")
    head_dim = file.read_count("head_dim")
    turns = read_layer_list(file, "layer_types", ATTENTIONS, more=more) or ("full",) * layers
    other, gated = file.read_group("attention_other_setting"), file.get("use_head_wise_attn_gate")
    local: Entry = {"heads": file.read_count("num_sliding_attention_heads", default=heads)}
    if other is not None:
        other.one_of("attention_type", ("sliding_attention",))
        local = {
            "heads": other.read_count("num_attention_heads"),
            "kv_heads": other.read_count("num_attention_groups", default=kv_heads),
        }
        local["head_dim"] = other.agreed_count("head_dim", "true_head_dim", default=head_dim)
        other.check_rest()
    elif gated is None and file.get("model_type") == "step3p7" and "local" in turns:
        if heads != 64:
            raise file.refuse("attention_other_setting", "missing; give the heads of layers with windows")
        local, gated = {"heads": STEP_37}, True
        modules["note"] = (
            f"{STEP_37} heads in windows and gates of heads as published, which the file leaves out; {modules['note']}"
        )
    if gated is not None and not isinstance(gated, bool):
        raise file.refuse("use_head_wise_attn_gate", f"{shorten(gated)} is not true or false")
    own: Entry = {"kv_heads": kv_heads, "head_dim": head_dim, "qk_norm": True, "gate": "head" if gated else "none"}
    shares = _rotation_shares(file, turns)
    own |= {"qkv_bias": file.read_flag("attention_bias"), "experts": _step_experts(file, layers, more)}
    local["rope"] = shares["local"]
    return own | window_layers(file, turns, local=local, full={"rope": shares["full"]}) | modules


def _rotation_shares(file: ConfigFile, turns: tuple[str, ...]) -> dict[str, float]:
    """The share of a head that each kind of layers rotates; half where attention is full, unless a file says it."""
    given = file.get("partial_rotary_factors")
    shares = {"full": 0.5, "local": 1.0}
    if given is not None:
        if not isinstance(given, list) or len(given) < len(turns):
            raise file.refuse(
                "partial_rotary_factors", f"{shorten(given)} is not a list with an entry for each of {len(turns)} layers"
            )
        for kind in set(turns):
            given_shares = {
                share for share, turn in zip(given, turns, strict=False) if turn == kind and isinstance(share, int | float)
            }
            if len(given_shares) != 1 or not 0 < (share := given_shares.pop()) <= 1:
                raise file.refuse("partial_rotary_factors", f"{shorten(given)} is not one share of all {kind} layers, up to 1")
            shares[kind] = float(share)
    rope = file.get("use_rope_layers")
    if rope and rope != [True] * len(rope if isinstance(rope, list) else ()):
        raise file.refuse("use_rope_layers", f"{shorten(rope)} is not understood; valid: [] or true for every layer")
    return shares


def _step_experts(file: ConfigFile, layers: int, more: int) -> Entry:
    given = file.get("moe_layers_enum")
    words = given.split(",") if isinstance(given, str) else given
    read_layer_list(file, "mlp_layer_types", {"dense": "dense", "sparse": "experts"}, more=more)
    first = file.read_count("first_k_dense_replace", low=0, default=3)
    if words is not None:
        if not isinstance(words, list) or not all(
            isinstance(word, str | int) and str(word).strip().isdigit() for word in words
        ):
            raise file.refuse("moe_layers_enum", f"{shorten(given)} does not name layers")
        places = sorted(int(word) for word in words if int(word) < layers)
        first = layers - len(places)
        if places != list(range(first, layers)):
            raise file.refuse("moe_layers_enum", f"{shorten(given)} is not understood; layers with experts are the last ones")
        file.one_of("first_k_dense_replace", (first,))
    file.one_of("n_shared_experts", (1,))
    return {
        "count": file.agreed_count("moe_num_experts", "num_experts", "n_routed_experts"),
        "top_k": file.agreed_count("moe_top_k", "num_experts_per_tok"),
        "intermediate": file.read_count("moe_intermediate_size"),
        "shared": 1,
        "shared_intermediate": file.agreed_count("share_expert_dim", "share_expert_dims"),
        "dense_layers": first,
        "score_bias": file.read_flag("use_moe_router_bias"),
    }
