"""Models that an architecture search has pruned layer by layer (nemotron-nas)."""

from typing import Any

from dse.huggingface.config_file import ConfigFile, Entry, shorten
from dse.huggingface.layer_order import kinds_and_order


def read_pruned_blocks(file: ConfigFile) -> Entry:
    """Layers that were pruned one by one: some without attention, FFNs of many widths."""
    given, layers, heads, hidden = (
        file.get("block_configs"),
        file.count_layers(),
        file.read_count("num_attention_heads"),
        file.read_count("hidden_size"),
    )
    if not isinstance(given, list) or len(given) != layers:
        raise file.refuse("block_configs", f"{shorten(given)} is not a list with an entry for each of {layers} layers")
    file.one_of("num_key_value_heads", (None,))
    bias, ffn_bias = file.read_flag("attention_bias"), file.read_flag("mlp_bias")
    kinds: dict[str, Entry] = {}
    turns = [_block_kind(file, block, heads, hidden, kinds) for block in given]
    head_dim = file.read_count("head_dim", default=hidden // heads)
    kv_heads = next((kind["kv_heads"] for kind in kinds.values() if "kv_heads" in kind), heads)
    width = max((kind.get("ffn_intermediate", 1) for kind in kinds.values()), default=1)
    own = {"kv_heads": kv_heads, "head_dim": head_dim, "ffn_intermediate": width, "qkv_bias": bias, "out_bias": bias}
    return own | {"ffn_bias": ffn_bias} | kinds_and_order(turns, kinds)


def _block_kind(file: ConfigFile, given: Any, heads: int, hidden: int, kinds: dict[str, Entry]) -> str:
    """The kind of one layer, which joins those that there are."""
    attribute = file.fields_inside("block_configs", given)
    attention, ffn = attribute.read_group("attention"), attribute.read_group("ffn")
    if attention is None or ffn is None:
        raise file.refuse("block_configs", f"{shorten(given)}: attention and ffn are needed")
    for part in (attention, ffn):
        part.one_of("replace_with_linear", (False,))
        part.one_of("sparsify", ())
    for name in ("num_sink_tokens", "window_length"):
        attention.one_of(name, ())
    for name in ("unshifted_sink", "use_prefill_window_in_sink_attention"):
        attention.one_of(name, (False,))
    name, kind = "none", Entry(mixing="none")
    if not attention.read_flag("no_op"):
        each = attention.read_count("n_heads_in_group")
        if heads % each:
            raise file.refuse("block_configs", f"n_heads_in_group: {each} does not divide {heads} heads")
        name, kind = f"kv{heads // each}", {"kv_heads": heads // each}
    if ffn.read_flag("no_op"):
        name, kind = f"{name}_none", {**kind, "ffn": "none"}
    else:
        width = _pruned_width(file, ffn.get("ffn_mult"), hidden)
        name, kind = f"{name}_ffn{width}", {**kind, "ffn_intermediate": width}
    attention.ignore("n_heads_in_group")
    ffn.ignore("ffn_mult")
    for part in (attribute, attention, ffn):
        part.check_rest()
    kinds[name] = kind
    return name


def _pruned_width(file: ConfigFile, share: Any, hidden: int) -> int:
    """Width of an FFN as its class rounds it: of two thirds of so many times the hidden size, up to whole 256."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 64:
        raise file.refuse("block_configs", f"ffn_mult: {shorten(share)} is not a number above 0")
    return -(-int(2 * share * hidden / 3) // 256) * 256
