"""Fields of a model by its family, and the families that fit a file with an unknown one."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, cast

from dse.huggingface.config_file import ConfigFile, Entry
from dse.huggingface.families import Family
from dse.huggingface.quantization import check_rotation, read_context
from dse.space.errors import DesignError
from dse.space.layers import check_layers
from dse.space.model import CompressedAttention, ExpertLayers, LatentAttention, LayerKind, Model, RecurrentMixing, SparseIndexer
from dse.space.parameter_counts import parameter_count

ALIKE = 5e-3
"""By which share the parameters of families may differ that a hint names one of."""


def read_fields(file: ConfigFile, family: Family, name: str) -> Entry:
    """Fields of a model: those that every model has, and those of its family."""
    entry: Entry = {
        "name": name,
        "layers": 1 if "layers" in family.own else file.read_count("num_hidden_layers"),
        "hidden": file.read_count("hidden_size"),
        "heads": file.read_count("num_attention_heads"),
        "ffn_intermediate": 1 if "ffn_intermediate" in family.own else file.read_count("intermediate_size"),
        "vocab": file.read_count("vocab_size"),
        "max_position": _context_length(file, family),
        "tied_embeddings": file.read_flag("tie_word_embeddings"),
    }
    for act in {family.act, "hidden_act"} if family.act == "hidden_activation" else {family.act}:
        file.one_of(act, family.acts)
    check_rotation(file, partial=family.partial)
    return entry | family.fields(file)


def _context_length(file: ConfigFile, family: Family) -> int:
    """The longest sequence that a model is served with."""
    longest = file.read_count(file.stated_name(*family.longest))
    for name in family.longest:
        file.read_count(name, default=longest)
    return longest if family.extended else read_context(file, longest)


def describe_similar_family(file: ConfigFile, name: str, known: Mapping[str, Family]) -> str:
    """End of the refusal of an unknown family: a similar family that fits, and the list of all.

    Fields fit a family that reads all of them and lacks none: what its class means by an absent field would be a guess about
    another class. A family with names of its own must have one of them. All that fit must agree about the parameters.
    """
    totals = {}
    for other, family in known.items():
        trial = file.read_as(family.defaults, family.names)
        if family.names and not any(file.has_value(own) for own in family.names):
            continue
        try:
            trial.refuse_unmodelled()
            model = _model_of_entry(read_fields(trial, family, "read"))
            check_layers(model)
            trial.check_rest()
        except DesignError:
            continue
        if not trial.supplied:
            totals[other] = parameter_count(model)
    agree = totals and max(totals.values()) <= (1 + ALIKE) * min(totals.values())
    close = get_close_matches(name[:80], sorted(totals), n=1, cutoff=0.5) if agree else []
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}valid: {', '.join(sorted(known))}"


GROUPS: dict[str, Any] = {
    "experts": ExpertLayers,
    "latent": LatentAttention,
    "indexer": SparseIndexer,
    "recurrence": RecurrentMixing,
    "compressed": CompressedAttention,
}
"""Groups of fields of a model, and what they are."""


def _model_of_entry(entry: Entry) -> Model:
    """The model of an entry, whose fields are as their reader made them."""
    kinds = tuple((name, cast(Any, LayerKind)(**_group_fields(kind))) for name, kind in entry.get("kinds", {}).items())
    return cast(Model, cast(Any, Model)(**_group_fields(entry) | {"kinds": kinds}))


def _group_fields(fields: Entry) -> Entry:
    """Fields of a model or of a kind of layers, with groups as values of their own."""
    plain = {name: value for name, value in fields.items() if name not in ("note", "kinds")}
    return plain | {name: record(**plain[name]) for name, record in GROUPS.items() if plain.get(name) is not None}
