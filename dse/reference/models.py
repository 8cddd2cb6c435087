"""Facts of models: parameters, what a token uses and caches, published formats, layers and positions."""

from dse.config.published_formats import FLAG, published_text
from dse.config.record_parser import parse_record
from dse.reference.entries import Entry, Fact
from dse.reference.presets import preset_names, read_preset
from dse.space.layers import layers
from dse.space.model import Model
from dse.space.number_formats import BYTES_BY_FORMAT
from dse.space.parameter_counts import active_parameter_count, cache_growth, fixed_bytes_per_sequence, parameter_count

BESIDE = ("source", "published_parameters", "note", FLAG)
"""What files of models say besides the model."""

WIDE = "bf16"
"""Format of what a model is published in, where it is published in no other."""


def model_entries() -> list[Entry]:
    """Entries of all models."""
    return [_model_entry(name) for name in preset_names("model")]


def _model_entry(name: str) -> Entry:
    values = read_preset("model", name).values
    model = parse_record(Model, {key: value for key, value in values.items() if key not in BESIDE}, f"model.{name}", [])
    formats = values.get(FLAG) or {}
    kv = formats.get("kv", WIDE)
    growth = cache_growth(model, BYTES_BY_FORMAT[kv], BYTES_BY_FORMAT[formats.get("index", kv)])
    state = fixed_bytes_per_sequence(model, BYTES_BY_FORMAT[WIDE])
    facts = {
        "parameters": Fact(parameter_count(model), "1"),
        "active": Fact(active_parameter_count(model), "1"),
        "KV/token": Fact(growth.nbytes, "B"),
        "formats": Fact(published_text(formats) or WIDE),
        "positions": Fact(model.max_position, "token"),
        "layers": Fact(model.layers, "1"),
        "experts": Fact(f"{model.experts.top_k} of {model.experts.count}" if model.experts is not None else None),
        "KV grows until": Fact(growth.until, "token"),
        "state of a sequence": Fact(state or None, "B"),
        "KV format": Fact(kv),
        "source": Fact(values.get("source")),
    }
    return Entry(name, f"{model.name}: {_architecture_text(model)}", facts, str(values.get("note") or ""))


def _architecture_text(model: Model) -> str:
    """Layers, mixing of tokens, and FFN of a model, in one line."""
    mixings = layers(model).mixings
    kinds = dict.fromkeys(_mixing_text(group.of) for group in mixings)
    ffn = "dense FFN" if model.experts is None else f"{model.experts.count} experts, {model.experts.top_k} a token"
    return f"{model.layers} layers, {' and '.join(kinds)}, {ffn}"


def _mixing_text(layer: Model) -> str:
    if layer.recurrence is not None:
        return "recurrent states"
    if layer.latent is not None:
        return "latent attention"
    heads = "MQA" if layer.kv_heads == 1 else "GQA" if layer.kv_heads < layer.heads else "MHA"
    if reach := layer.window or layer.chunk:
        return f"{heads} over {reach} positions"
    return f"sparse {heads}" if layer.indexer is not None or layer.compressed is not None else heads
