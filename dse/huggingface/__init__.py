"""Models from Hugging Face: a downloaded `config.json` becomes the fields of a model.

Every field of the file is read, known to change neither shapes nor counts, or refused by its name: nothing is guessed. Of a
model that sees or hears, the language model is read. Number formats are not the model's here but those of `mapping.precision`;
a note says which were published. Multi-token prediction modules are counted apart.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dse.huggingface.config_file import IGNORED_FIELDS, ConfigFile, Entry, read_json, shorten
from dse.huggingface.families import ARCHITECTURES, CLASSES, NOT_MODELLED, Family
from dse.huggingface.family_matching import describe_similar_family, read_fields
from dse.huggingface.quantization import describe_published_format, read_quantization_file
from dse.huggingface.unread_fields import describe_unread_fields
from dse.space.errors import DesignError

__all__ = ["ARCHITECTURES", "IGNORED_FIELDS", "model_fields", "read_model_entries"]

GROUPS = ("text_config", "llm_config", "language_config")
"""What files of models that see or hear call the group of their language model."""

TOWERS = r"(vision|visual|audio|speech|image|video|sound|vit|sam)\w*_(config|tower)|(vision|audio)|mm_\w+"
"""Fields of what such models see or hear with."""

TEXT_ALONE = "the language model only, without vision and audio parts"

SIZES = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "vocab_size", "moe_intermediate_size", "num_experts", "num_local_experts", "n_routed_experts",
)  # fmt: skip
"""Fields of which a note says what the class of an architecture means by none."""


def read_model_entries(paths: Any, folder: Path) -> dict[str, Entry]:
    """Read the models of some files into the form of a configuration, named after their files.

    Args:
        paths: one path or a list, of files or of folders with a `config.json`; relative to here, or to `folder`.
        folder: of the study that asks.

    Raises:
        DesignError: a file is missing, no JSON, of an unknown architecture, or has a field that is not understood.
    """
    model_entries: dict[str, Entry] = {}
    for path in paths if isinstance(paths, list) else [paths]:
        if not isinstance(path, str) or not path:
            raise DesignError(f"model.from_hf: {path!r} is not a path; write model.from_hf=FOLDER/config.json")
        entry = model_fields(_find_config(path, folder))
        key = base = re.sub(r"\W+", "_", entry["name"]).strip("_").lower() or "model"
        while key in model_entries:
            key = f"{base}_{len(model_entries) + 1}"
        model_entries[key] = entry
    if not model_entries:
        raise DesignError("model.from_hf: an empty list; write model.from_hf=FOLDER/config.json")
    return model_entries


def model_fields(path: Path) -> Entry:
    """Fields of the model in a file, as in `conf/model/*.yaml`.

    Raises:
        DesignError: naming the file, the field, what is there and what is needed.
    """
    values, where = read_json(path), f"model.from_hf: {path}"
    files = [ConfigFile(values, where)]
    group = next((name for name in GROUPS if values.get(name) is not None), None)
    if group is not None:
        inner = _language_group(files[0], values, group)
        files.insert(0, ConfigFile(inner, f"{where}: {group}"))
        name, family = _inner_family(files[0], files[1])
        inner, where = _shared_fields(files, inner, values, group), f"{where}: {group}"
        files[0] = ConfigFile(inner, where, family.defaults, family.names)
    else:
        name, family = _find_family(files[0])
        files[0] = ConfigFile(values, where, family.defaults, family.names)
    file = files[0]
    for single_file in files[1:]:
        single_file.refuse_unmodelled()
    for known in ("architectures", "model_type"):
        file.get(known)
    file.refuse_unmodelled()
    algorithms = read_quantization_file(path)
    formats = describe_published_format(*([] if algorithms is None else [algorithms]), *files)
    entry = read_fields(file, family, _model_name(path, files[-1]))
    towers = [file for file in files if file.ignore_like(TOWERS)]
    file.check_rest()
    notes = (
        formats.note,
        entry.get("note"),
        TEXT_ALONE if towers else "",
        _supplied_note(file, name),
        describe_unread_fields(file.unread),
    )
    formats_entry = {"published_formats": formats.words} if formats.words else {}
    return entry | formats_entry | {"source": f"config.json, {name}", "note": "; ".join(filter(None, notes))}


def _supplied_note(file: ConfigFile, name: str) -> str:
    """A note on shapes that the file leaves out."""
    left_out = [f"{field} {file.supplied[field]}" for field in SIZES if field in file.supplied]
    return f"left out, so as the class of {name} has it: {', '.join(left_out)}" if left_out else ""


def _language_group(outer: ConfigFile, values: Mapping[str, Any], group: str) -> Mapping[str, Any]:
    """The group of the language model in a file of one that sees or hears."""
    inner = values[group]
    if not isinstance(inner, dict):
        raise outer.refuse(group, f"{shorten(inner)} is not a group of fields")
    classes = values.get("architectures")
    good = re.compile(r"\w+For(ConditionalGeneration|CausalLM)|(?!\w*For[A-Z])\w+")
    if classes is not None and not (
        isinstance(classes, list) and len(classes) == 1 and isinstance(classes[0], str) and good.fullmatch(classes[0])
    ):
        raise outer.refuse("architectures", f"{shorten(classes)} is not one class that generates text, as in [NAMEForCausalLM]")
    return inner


def _shared_fields(files: list[ConfigFile], inner: Mapping[str, Any], outer: Mapping[str, Any], group: str) -> dict[str, Any]:
    """The fields of the language model, with what is said around them; what both say must agree."""
    joined = dict(inner)
    tied = outer.get("tie_word_embeddings")
    if tied is not None:
        own = joined.get("tie_word_embeddings")
        joined["tie_word_embeddings"] = tied
        if own is not None and own != tied:
            raise files[0].refuse(
                "tie_word_embeddings", f"{shorten(own)}, but {shorten(tied)} around {group}; use one value in both"
            )
    return joined


def _inner_family(inner: ConfigFile, outer: ConfigFile) -> tuple[str, Family]:
    """The architecture of a language model by its own class or type, or by the type around it."""
    if inner.get("architectures") is None and inner.get("model_type") is None:
        return _by_type(outer, outer.get("model_type"))
    if inner.get("architectures") is None:
        return _by_type(inner, inner.get("model_type"))
    return _find_family(inner)


def _by_type(file: ConfigFile, kind: Any) -> tuple[str, Family]:
    if not isinstance(kind, str):
        raise file.refuse(
            "model_type", f"missing; valid: {', '.join(sorted(family.model_type for family in ARCHITECTURES.values()))}"
        )
    _refuse_known(file, kind)
    for name, family in ARCHITECTURES.items():
        if kind == family.model_type:
            return name, family
    for name, family in ARCHITECTURES.items():
        if kind in family.others:
            return name, family
    file.refuse_unmodelled()
    types = {kind: family for family in ARCHITECTURES.values() for kind in (family.model_type, *family.others)}
    raise file.refuse("model_type", f"no type {shorten(kind)}; {describe_similar_family(file, kind, types)}")


def _refuse_known(file: ConfigFile, kind: Any) -> None:
    if isinstance(kind, str) and kind in NOT_MODELLED:
        file.refuse_unmodelled()
        raise file.refuse("model_type", f"{shorten(kind)}: {NOT_MODELLED[kind]}; choose another model")


def _find_family(file: ConfigFile) -> tuple[str, Family]:
    """The architecture by its class, or by its type where no class is named; both must agree."""
    classes, kind = file.get("architectures"), file.get("model_type")
    _refuse_known(file, kind)
    if classes is None and isinstance(kind, str):
        return _by_type(file, kind)
    if classes is None and kind is None and file.has_value("n_layers") and file.has_value("dim"):
        raise file.refuse("dim", "a params.json of Mistral, with other names of fields; give the config.json beside it")
    if not isinstance(classes, list) or len(classes) != 1 or not isinstance(classes[0], str):
        what = "missing" if classes is None else f"{shorten(classes)} is not one architecture"
        raise file.refuse("architectures", f"{what}; valid: {', '.join(sorted(ARCHITECTURES))}")
    name = CLASSES.get(classes[0], classes[0])
    if name not in ARCHITECTURES:
        if isinstance(kind, str):
            _by_type(file, kind)  # names the nearest type, where that is unknown too
        raise file.refuse(
            "architectures", f"no architecture {shorten(name)}; {describe_similar_family(file, name, ARCHITECTURES)}"
        )
    family = ARCHITECTURES[name]
    if kind is not None and kind not in (family.model_type, *family.others):
        raise file.refuse("model_type", f"{shorten(kind)} contradicts {name}, whose type is {family.model_type!r}")
    return name, family


def _find_config(text: str, folder: Path) -> Path:
    given = Path(os.path.expanduser(text))  # which leaves a ~ that stands for nobody
    for path in (given, folder / given):
        if path.is_dir():
            path = path / "config.json"
        if path.is_file():
            return path
    raise DesignError(f"model.from_hf: no file {text!r} here or in {folder}; give the config.json of a downloaded model")


def _model_name(path: Path, file: ConfigFile) -> str:
    """The name that its folder, its cache or the file itself gives a model."""
    if path.stem != "config":
        return path.stem
    cached = next((part for part in path.resolve().parts if part.startswith("models--")), None)
    if cached:
        return cached.rpartition("--")[2]
    named = file.get("_name_or_path")
    own = Path(named).name if isinstance(named, str) else ""
    return path.resolve().parent.name or own or "model"
