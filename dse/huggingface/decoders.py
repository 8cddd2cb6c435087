"""Architectures whose layers are (almost) all equal, as data on what differs from a plain decoder.

Fields by other names are those of `Family.names`; a class's defaults for absent fields are in `absent`. What is counted here
and what is not: an inner norm more or less of some thousand weights (of whole projections in the place of heads, beside a
second branch, of an embedding) is left as `Model` has it, since it is below 0.01 % of any model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dse.huggingface.config_file import ConfigFile, Entry, shorten
from dse.huggingface.gqa_families import dense_layers, expert_fields, grouped_query_fields, mtp_fields, whole_window
from dse.huggingface.layer_order import ATTENTIONS, every_nth_layer, kinds_and_order, read_layer_list, window_layers
from dse.huggingface.quantization import rotated_share


@dataclass(frozen=True)
class Decoder:
    """Layers of one family of architectures.

    Attributes:
        facts: fields of the entry that are so in all of its models.
        flags: fields of the entry by the file's fields that say them, and what these mean where they are absent.
        only: fields of a file, with the values that are understood.
        ignored: fields of a file that say nothing about shapes, though their names would.
        rope: share of a head that is rotated where no field says it.
        window: whether `sliding_window` may say a window of all layers.
        width: of an FFN where no field says it, in hidden sizes; 0 for none.
        rows: of a learned table of positions beside those of the longest sequence; None for no table.
        more: what else a file says, by a function of it.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    flags: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    rope: float = 1.0
    window: bool = False
    width: int = 0
    rows: int | None = None
    more: Callable[[ConfigFile], Entry] | None = None

    def __call__(self, file: ConfigFile) -> Entry:
        """The fields of a model of the family."""
        for name, valid in self.only.items():
            file.one_of(name, valid)
        file.ignore(*self.ignored)
        own = grouped_query_fields(file, kv_heads=file.read_count("num_attention_heads")) | dict(self.facts)
        for ours, (name, default) in self.flags.items():
            for name_in_file in ours.split():
                own[name_in_file] = file.read_flag(name, default=default)
        if self.width:
            own["ffn_intermediate"] = file.read_count("intermediate_size", default=self.width * file.read_count("hidden_size"))
        if self.rows is not None:
            own["learned_positions"] = file.read_count("max_position_embeddings") + self.rows
        if self.window:
            own["window"] = whole_window(file)
        if "rope" not in own:
            own["rope"] = rotated_share(file, default=self.rope)
        return own | (self.more(file) if self.more is not None else {})


LAYERNORM: Entry = {"norm": "layernorm"}
BIASED: Entry = {"qkv_bias": True, "out_bias": True, "ffn_bias": True}
PLAIN: Entry = {"gated_ffn": False}
"""An FFN of two projections."""

ATTENTION_BIAS = {"qkv_bias out_bias": ("attention_bias", False)}
BIASES = ATTENTION_BIAS | {"ffn_bias": ("mlp_bias", False)}


def experts_of(file: ConfigFile, width: str = "intermediate_size") -> Entry:
    """Experts of all layers, without shared experts."""
    return {
        "count": file.agreed_count("num_local_experts", "num_experts"),
        "top_k": file.read_count("num_experts_per_tok"),
        "intermediate": file.read_count(width),
    }


def falcon(file: ConfigFile) -> Entry:
    """Falcon: one KV head, or several in the newer architecture; parallel attention and FFN by default."""
    heads, bias = file.read_count("num_attention_heads"), file.read_flag("bias")
    newer, single = file.read_flag("new_decoder_architecture"), file.read_flag("multi_query", default=True)
    head_count = file.read_count("num_key_value_heads", default=heads)
    kv_heads = head_count if newer else 1 if single else heads
    alibi, side = file.read_flag("alibi"), file.read_flag("parallel_attn", default=True) or newer
    file.one_of("apply_residual_connection_post_layernorm", (False,))
    file.one_of("num_ln_in_parallel_attn", (1, 2))
    own: Entry = {"kv_heads": kv_heads, "parallel": side, "qkv_bias": bias, "out_bias": bias, "ffn_bias": bias}
    own |= {"rope": 0.0} if alibi else {}
    tied = not file.has_value("tie_word_embeddings") and file.read_flag("tie_word_embeddings")
    return own | ({"note": "one table for embedding and head, of which published files hold a copy more"} if tied else {})


def big_code(file: ConfigFile) -> Entry:
    """GPT-BigCode: one KV head if the file sets multi_query."""
    return {"kv_heads": 1 if file.read_flag("multi_query", default=True) else file.read_count("num_attention_heads")}


def opt(file: ConfigFile) -> Entry:
    """OPT: embeddings of the model's own width."""
    file.one_of("word_embed_proj_dim", (file.read_count("hidden_size"),))
    return {}


def partial_rotary_layers(file: ConfigFile) -> Entry:
    """SmolLM3: layers with and without rotation."""
    layers = file.count_layers()
    turns = read_layer_list(file, "no_rope_layers", {1: "turned", 0: "plain"})
    interval = file.read_count("no_rope_layer_interval", default=4)
    turns = turns or every_nth_layer(interval, layers, "turned", "plain")
    file.one_of("use_sliding_window", (False,))
    file.read_count("max_window_layers", low=0, default=0)
    file.read_count("sliding_window", low=0, default=0)
    read_layer_list(file, "layer_types", {"full_attention": "full"})
    return kinds_and_order(turns, {"turned": {}, "plain": {"rope": 0.0}})


def cut_windows(file: ConfigFile) -> Entry:
    """OLMo 3: windows in the layers that a list names, else in three of four."""
    turns = read_layer_list(file, "layer_types", ATTENTIONS) or every_nth_layer(4, file.count_layers(), "local", "full")
    return window_layers(file, turns)


def exaone4(file: ConfigFile) -> Entry:
    """EXAONE 4: windows in some layers, which alone rotate; only full layers without a window.

    A list or a word says which layers have windows.
    """
    layers, pattern = file.count_layers(), file.get("sliding_window_pattern")
    turns = read_layer_list(file, "layer_types", ATTENTIONS)
    if file.get("sliding_window") is None:
        return {}
    if turns is None and isinstance(pattern, str):
        if not pattern or set(pattern) - {"L", "G"}:
            raise file.refuse("sliding_window_pattern", f"{shorten(pattern)} is not a word of L (window) and G (full)")
        turns = tuple("local" if pattern[place % len(pattern)] == "L" else "full" for place in range(layers))
        turns = (*turns[:-1], "full")
    elif turns is None:
        turns = every_nth_layer(file.read_count("sliding_window_pattern", default=4), layers, "local", "full")
    return window_layers(file, turns, full={"rope": 0.0})


def granite_experts(file: ConfigFile) -> Entry:
    """Granite MoE: experts, with a shared FFN if the file has its width."""
    shared = file.read_count("shared_intermediate_size", low=0, default=0)
    more: Entry = {"shared": 1, "shared_intermediate": shared} if shared else {}
    return {"experts": experts_of(file) | more}


def granite_hybrid(file: ConfigFile) -> Entry:
    """Granite hybrid: Mamba-2 in most layers, attention in the others; experts in all if there are any."""
    file.one_of("mamba_proj_bias", (False,))
    file.one_of("position_embedding_type", ("rope", "nope"))
    file.one_of("normalization_function", ("rmsnorm",))
    turns = read_layer_list(file, "layer_types", {"mamba": "mamba", "attention": "full"})
    if turns is None:
        raise file.refuse("layer_types", "missing; give a list with mamba or attention for each layer")
    heads, head_dim = file.read_count("mamba_n_heads"), file.read_count("mamba_d_head")
    file.one_of(
        "mamba_expand", (heads * head_dim / file.read_count("hidden_size"), heads * head_dim // file.read_count("hidden_size"))
    )
    state = {
        "rule": "ssd",
        "heads": heads,
        "key_heads": file.read_count("mamba_n_groups"),
        "key_dim": file.read_count("mamba_d_state"),
        "value_dim": head_dim,
        "conv": file.read_count("mamba_d_conv"),
        "conv_bias": file.read_flag("mamba_conv_bias", default=True),
        "chunk": file.read_count("mamba_chunk_size", default=256),
    }
    own = kinds_and_order(turns, {"mamba": {"recurrence": state}, "full": {}})
    own["rope"] = 0.0 if file.get("position_embedding_type") != "rope" else 1.0
    width = file.read_count("shared_intermediate_size")
    count = file.read_count("num_local_experts", low=0)
    if not count:
        file.read_count("num_experts_per_tok", low=0, default=0)
        file.ignore("intermediate_size")
        return own | {"ffn_intermediate": width}
    return own | granite_experts(file) | {"ffn_intermediate": width}


def chatglm(file: ConfigFile) -> Entry:
    """ChatGLM: grouped heads if the file sets them."""
    heads = file.read_count("num_attention_heads")
    groups = file.read_count("num_key_value_heads", default=heads)
    bias = file.read_flag("add_bias_linear")
    return {
        "kv_heads": groups if file.read_flag("multi_query_attention") else heads,
        "qkv_bias": file.read_flag("add_qkv_bias", default=True) or bias,
        "out_bias": bias,
        "ffn_bias": bias,
        "norm": "rms" if file.read_flag("rmsnorm", default=True) else "layernorm",
    }


def qwen1(file: ConfigFile) -> Entry:
    """Qwen: both halves of the FFN have one width field."""
    width = file.read_count("intermediate_size")
    file.one_of("kv_channels", (file.read_count("hidden_size") // file.read_count("num_attention_heads"),))
    return {"ffn_intermediate": width // 2}


def mpt(file: ConfigFile) -> Entry:
    """MPT: options of attention in a nested group."""
    bias = not file.read_flag("no_bias", default=True)
    group = file.read_group("attn_config")
    alibi, heads, norms = True, file.read_count("num_attention_heads"), False
    if group is not None:
        alibi = group.read_flag("alibi", default=True)
        kind = group.one_of("attn_type", ("multihead_attention", "multiquery_attention", "grouped_query_attention"))
        heads = 1 if kind == "multiquery_attention" else group.read_count("kv_n_heads", default=heads)
        norms = group.read_flag("qk_ln")
        group.one_of("prefix_lm", (False,))
        group.ignore("attn_uses_sequence_id", "alibi_bias_max", "rope", "clip_qkv", "softmax_scale", "attn_pdrop", "attn_impl")
        group.check_rest()
    learned = file.read_flag("learned_pos_emb", default=True) and not alibi
    ratio = file.read_count("expansion_ratio", default=4)
    own: Entry = {"kv_heads": heads, "qk_norm": norms, "qkv_bias": bias, "out_bias": bias, "ffn_bias": bias, "rope": 0.0}
    own |= {"ffn_intermediate": ratio * file.read_count("hidden_size"), "norm": "layernorm" if bias else "rms"}
    return own | ({"learned_positions": file.read_count("max_position_embeddings")} if learned else {})


def dbrx(file: ConfigFile) -> Entry:
    """DBRX: options of attention and of experts in nested groups."""
    attention, ffn = file.read_group("attn_config"), file.read_group("ffn_config")
    if attention is None or ffn is None:
        raise file.refuse("ffn_config", "missing, or attn_config is; groups of fields are needed")
    attention.ignore("clip_qkv", "attn_pdrop", "rope_theta")
    ffn.ignore("ffn_act_fn", "moe_jitter_eps", "moe_loss_weight", "moe_normalize_expert_weights", "uniform_expert_assignment")
    ffn.ignore("hidden_size")
    kv_heads = attention.read_count("kv_n_heads", default=1)
    file.ignore("num_key_value_heads")
    experts = {
        "count": ffn.read_count("moe_num_experts", default=4),
        "top_k": ffn.read_count("moe_top_k", default=1),
        "intermediate": ffn.read_count("ffn_hidden_size", default=3584),
    }
    attention.check_rest()
    ffn.check_rest()
    return {"kv_heads": kv_heads, "experts": experts, "ffn_intermediate": experts["intermediate"]}


def arctic(file: ConfigFile) -> Entry:
    """Arctic: experts beside an FFN that every token goes through."""
    file.one_of("moe_layer_frequency", (1,))
    file.one_of("parallel_attn_mlp_res", (True,))
    width = file.read_count("intermediate_size")
    experts = experts_of(file) | {"shared": 1, "shared_intermediate": file.read_count("hidden_size")}
    return {"experts": experts, "ffn_intermediate": width}


def dots1(file: ConfigFile) -> Entry:
    """dots.llm1: experts like DeepSeek-V3, with grouped heads."""
    file.ignore("sliding_window", "max_window_layers", "layer_types")
    return {"experts": expert_fields(file, score_bias=True) | {"dense_layers": dense_layers(file)}}


def part_turned(file: ConfigFile) -> Entry:
    """Share of a head that is rotated, if a file counts the rotated values. [-]"""
    head_dim = file.read_count("hidden_size") // file.read_count("num_attention_heads")
    turned = file.read_count("rotary_dim")
    if turned > head_dim:
        raise file.refuse("rotary_dim", f"{turned} is more than the {head_dim} of a head")
    return {"rope": turned / head_dim}


def all_experts(file: ConfigFile) -> Entry:
    """Decoder with MoE experts in all layers."""
    return {"experts": experts_of(file)}


def deepseek_moe(file: ConfigFile) -> Entry:
    """DeepSeekMoE: greedy routing, without groups or learned biases."""
    file.one_of("moe_layer_freq", (1,))
    file.one_of("scoring_func", ("softmax",))
    return {
        "experts": expert_fields(file, score_bias=False) | {"dense_layers": file.read_count("first_k_dense_replace", low=0)}
    }


def bailing(file: ConfigFile) -> Entry:
    """Ling: experts with a shared one of its own width; the second version has learned biases."""
    width = file.read_count("moe_intermediate_size")
    shared = file.read_count("num_shared_experts", low=0, default=0)
    wide = file.read_count("moe_shared_expert_intermediate_size", default=width)
    experts = {
        "count": file.read_count("num_experts"),
        "top_k": file.read_count("num_experts_per_tok"),
        "intermediate": width,
        "shared": shared,
        "shared_intermediate": wide if shared else 0,
        "dense_layers": file.read_count("first_k_dense_replace", low=0, default=0),
        "score_bias": file.read_flag("moe_router_enable_expert_bias"),
        "groups": file.read_count("n_group", default=1),
        "groups_kept": file.read_count("topk_group", default=1),
    }
    file.one_of("multi_gate", (False,))
    return {"experts": experts} | mtp_fields(file, "num_nextn_predict_layers")


def gpt_neo(file: ConfigFile) -> Entry:
    """GPT-Neo: windows in the layers that a list of pairs names."""
    given, layers = file.get("attention_types"), file.count_layers()
    turns: list[str] = []
    for entry in given if isinstance(given, list) else []:
        if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list) and type(entry[1]) is int):
            raise file.refuse("attention_types", f"{shorten(entry)} is not a list of kinds and how often they repeat")
        turns += entry[0] * max(min(entry[1], layers), 0)
    known = {"global": "full", "local": "local"}
    if len(turns) != layers or not all(isinstance(turn, str) and turn in known for turn in turns):
        raise file.refuse("attention_types", f"{shorten(given)} does not say global or local of each of {layers} layers")
    read_layer_list(file, "attention_layers", known)
    return window_layers(file, [known[turn] for turn in turns])
