"""Number formats of a file, as a note for the user, and checks of its rotary embedding."""

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from dse.huggingface.config_file import MAX_INTEGER, ConfigFile, read_json, shorten
from dse.space.mapping import FormatPlan
from dse.space.number_formats import FORMATS

DTYPES = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
ROTATIONS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope", "su", "proportional", "mrope")
"""Kinds of position scaling: other angles in the same rotation, at the same cost."""

EXTENDING = ("linear", "dynamic", "yarn")
"""Kinds whose factor extends the sequences that a model takes; files of the others say the extended length themselves."""

PACKED = {
    "mxfp4-pack-quantized": "mxfp4",
    "mxfp8-quantized": "mxfp8",
    "nvfp4-pack-quantized": "nvfp4",
    "float-quantized": "fp8",
    "naive-quantized": "fp8",
    "mixed-precision": "several formats",
    "pack-quantized": "int4",
    "int-quantized": "int8",
}
"""Formats of compressed tensors, and what values are in them."""

ALGORITHMS = {
    "FP8": "fp8",
    "NVFP4": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "FP8_PB_WO": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "NVFP4_AWQ": "nvfp4",
    "NVFP4_SVDQUANT": "nvfp4",
    "W4A8_NVFP4_FP8": "nvfp4",
    "INT4_AWQ": "int4",
    "W4A16": "int4",
    "W4A16_AWQ": "int4",
    "W4A8_AWQ": "int4",
    "INT8_SQ": "int8",
    "W8A8_SQ_PER_CHANNEL": "int8",
    "MXFP8": "mxfp8",
    "MIXED_PRECISION": "nvfp4 and fp8",
    "W4A8_MXFP4_FP8": "mxfp4",
}
"""Algorithms of `modelopt`, and what weights are in."""

QUARK = {"fp4": "mxfp4", "mxfp4": "mxfp4", "fp8_e4m3": "fp8", "int8": "int8", "int4": "int4"}
"""Types of weights of `quark`."""

PLAIN = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "mxfp8": "mxfp8"}
"""Methods that say the format themselves."""

INTEGERS = ("awq", "awq_marlin", "gptq", "gptq_marlin", "auto-round", "intel/auto-round")
"""Methods of integers with a scale for some values of a column."""

SPARED = ("ignore", "modules_to_not_convert", "exclude", "exclude_modules")
"""Where methods name what is left as it was."""

MODELOPT = ("modelopt", "modelopt_fp4", "modelopt_mixed", "modelopt_mxfp8")

METHODS = (*PLAIN, *INTEGERS, *MODELOPT, "bitsandbytes", "compressed-tensors", "quark")


KV_TYPES = {("float", 8): "fp8", ("int", 8): "int8", ("float", 4): "nvfp4"}
"""Schemes of caches in compressed tensors, by type and bits, and what values are in."""

KV_ALGORITHMS = {"FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8", "NVFP4_AFFINE": "nvfp4", "FP8_AFFINE": "fp8"}
"""Algorithms of `modelopt` for caches, and what values are in."""


class Formats(NamedTuple):
    """Number formats that one file states.

    Attributes:
        note: for people.
        words: of `mapping.precision` that are the same, by field.
    """

    note: str = ""
    words: dict[str, str] = {}


def describe_published_format(*files: ConfigFile) -> Formats:
    """Formats in which a model is published, and the matching options of a mapping, as text.

    Args:
        files: what stands beside a file, the group of its text model, and those around that; the last that says it counts.
    """
    given = [word for file in reversed(files) for word in [_dtype_name(file)] if word]
    weights, file = next(((word, file) for file in reversed(files) if (word := _quantized_format(file))), ("", files[-1]))
    given_word = next(filter(None, [file.one_of("expert_dtype", ("fp4", "fp8", "bfloat16")) for file in files]), None)
    fp4 = weights if weights in ("mxfp4", "nvfp4") else "mxfp4"
    experts = next(filter(None, [_of_experts(file) for file in reversed(files)]), fp4 if given_word == "fp4" else "")
    kv = next(filter(None, [_of_caches(file) for file in reversed(files)]), "")
    words: dict[str, str] = {}
    if experts and experts != weights:
        text, words["experts"] = f"published in {weights or 'bfloat16'}, experts in {experts}", experts
        words |= {"weights": weights} if weights and not _spares_attention(file) else {}
    elif weights == "mxfp4":
        text, words["experts"] = "published in mxfp4 experts, bfloat16 else", weights
    elif weights:
        text, words["experts" if _spares_attention(file) else "weights"] = f"published in {weights}", weights
    else:
        text = f"published in {given[0]}" if given else ""
    words = {field: word for field, word in words.items() if word in FORMATS and "weights" in FORMATS[word].holds}
    text += _addresses_text(words)
    if not kv:
        return Formats(text, words)
    of_kv = {"kv": kv} if kv in FORMATS and "kv" in FORMATS[kv].holds else {}
    return Formats(", ".join(filter(None, (text, f"KV cache in {kv}{_addresses_text(of_kv)}"))), words | of_kv)


def _addresses_text(words: Mapping[str, str]) -> str:
    """The overrides that say some words, in brackets; "" for none."""
    return f" ({overrides(words)})" if words else ""


OPTIONAL = frozenset(spec.name for spec in fields(FormatPlan) if spec.default is None)
"""Formats that mappings leave out."""


def overrides(words: Mapping[str, str]) -> str:
    """Number formats by field as overrides; those that mappings leave out have a plus sign.

    >>> overrides({"experts": "nvfp4", "kv": "fp8"})
    '+mapping.precision.experts=nvfp4 mapping.precision.kv=fp8'
    """
    return " ".join(f"{'+' * (name in OPTIONAL)}mapping.precision.{name}={word}" for name, word in words.items())


def read_quantization_file(path: Path) -> ConfigFile | None:
    """Format in `hf_quant_config.json` beside a `config.json`, as that file would have it; else None."""
    other = path.parent / "hf_quant_config.json"
    if path.name != "config.json" or not other.is_file():
        return None
    document = read_json(other)
    return ConfigFile({"quantization_config": {"quant_method": "modelopt", **document}}, f"model.from_hf: {other}")


def _dtype_name(file: ConfigFile) -> str | None:
    words = {name: file.one_of(name, DTYPES) for name in ("torch_dtype", "dtype")}
    if words["dtype"] and words["torch_dtype"] and words["dtype"] != words["torch_dtype"]:
        raise file.refuse("dtype", f"{words['dtype']}, but torch_dtype is {words['torch_dtype']}; keep one of them")
    word: str | None = words["dtype"] or words["torch_dtype"]
    return word


def _quantized_format(file: ConfigFile) -> str:
    """The format of weights, in words of `mapping.precision` where it has one."""
    compressed = _compressed_config(file)
    if compressed is None:
        return ""
    group = compressed if isinstance(compressed, dict) else {}
    method = group.get("quant_method") if isinstance(compressed, dict) else compressed
    if not isinstance(method, str) or method not in METHODS:
        raise file.refuse(
            "quantization_config",
            f"quant_method {shorten(method)} is not understood; valid: {', '.join(METHODS)}; "
            "else take the file of the model before it was quantised, and set the format in mapping.precision.weights",
        )
    if method in PLAIN:
        return _blocked_format(PLAIN[method], group.get("weight_block_size"))
    if method in INTEGERS:
        return _integer_format(file, group.get("bits", group.get("w_bit")), group.get("group_size", group.get("q_group_size")))
    if method == "bitsandbytes":
        return "int8" if group.get("load_in_8bit") is True else "4 bits of bitsandbytes"
    if method == "quark":
        weights = _first_group(_first_group(group.get("global_quant_config")).get("weight"))
        word = _one_of(file, weights.get("dtype"), QUARK)
        return _integer_format(file, 4, weights.get("group_size")) if word == "int4" else word
    if method in MODELOPT:
        return _modelopt_format(file, _inner_groups(file)[0])
    word = _one_of(file, group.get("format"), PACKED)
    groups = _first_group(group.get("config_groups")).values()
    weights = next((_first_group(_first_group(group).get("weights")) for group in groups), {})
    if word == "int4":
        return _integer_format(file, weights.get("num_bits", 4), weights.get("group_size"))
    if word == "fp8" and weights.get("num_bits") == 4:
        return {16: "nvfp4", 32: "mxfp4"}.get(weights.get("group_size", 0), "4 bits")
    return _blocked_format(word, weights.get("block_structure"))


def _modelopt_format(file: ConfigFile, group: dict[str, Any]) -> str:
    """The format of weights by an algorithm; "" where caches alone have one."""
    algorithm, kv = group.get("quant_algo"), group.get("kv_cache_quant_algo")
    if algorithm is None and kv is not None:
        return ""
    word = _one_of(file, algorithm, ALGORITHMS)
    if word == "int4":
        return _integer_format(file, 4, group.get("group_size"))
    return _blocked_format(word, [128, 128] if algorithm == "FP8_PB_WO" else None)


def _inner_groups(file: ConfigFile) -> list[dict[str, Any]]:
    """The groups of fields in which methods name formats."""
    compressed = _compressed_config(file)
    inner = compressed.get("quantization") if isinstance(compressed, dict) else None
    return [config for config in (inner, compressed) if isinstance(config, dict)]


def _of_experts(file: ConfigFile) -> str:
    """The format of experts where a file has an algorithm for them, or for most of their layers."""
    for group in _inner_groups(file):
        word = group.get("moe_quant_algo")
        if word is not None:
            return _one_of(file, word, ALGORITHMS)
        layers = group.get("quantized_layers")
        if isinstance(layers, dict):
            algorithms = [_first_group(layer).get("quant_algo") for name, layer in layers.items() if "expert" in name]
            named = [word for word in algorithms if isinstance(word, str) and word in ALGORITHMS]
            if named:
                return ALGORITHMS[max(sorted(set(named)), key=named.count)]
    return ""


def _of_caches(file: ConfigFile) -> str:
    """The format of caches that a file says beside that of weights."""
    for group in _inner_groups(file):
        word, scheme = group.get("kv_cache_quant_algo"), group.get("kv_cache_scheme")
        if isinstance(word, str):
            return KV_ALGORITHMS.get(word, shorten(word))
        if isinstance(scheme, dict):
            kind, bits = scheme.get("type", "float"), scheme.get("num_bits")
            return KV_TYPES.get((kind, bits), f"{bits} bits") if isinstance(kind, str) and isinstance(bits, int) else ""
    return ""


def _compressed_config(file: ConfigFile) -> Any:
    """What a file says of numbers that were quantised, which early compressed tensors have by another name."""
    return file.get(file.stated_name("quantization_config", "compression_config"))


def _blocked_format(word: str, block: Any) -> str:
    """FP8 with the values that share a scale."""
    if word != "fp8" or not isinstance(block, list):
        return word
    name = "fp8_" + "x".join(map(str, block))
    return name if name in FORMATS else f"fp8 with scales of blocks {shorten(block)}"


def _integer_format(file: ConfigFile, bits: Any, size: Any) -> str:
    """Integers with the values that share a scale; -1 and null stand for a whole column."""
    if type(bits) is not int or not 2 <= bits <= 8:
        raise file.refuse("quantization_config", f"bits: {shorten(bits)} is not a whole number from 2 to 8")
    integers = f"int{bits}_g{size}"
    if integers in FORMATS:
        return integers
    if size is None or size == -1:
        return f"int{bits}"
    return f"int{bits} with scales of {shorten(size)} values"


def _first_group(value: Any) -> dict[str, Any]:
    """A group of fields; the first where a list has some, and none where there is no such thing."""
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, dict) else {}


def _one_of(file: ConfigFile, word: Any, known: dict[str, str]) -> str:
    if not isinstance(word, str) or word not in known:
        valid = ", ".join(map(json.dumps, known))
        raise file.refuse("quantization_config", f"format {shorten(word)} is not understood; valid: {valid}")
    return known[word]


def _spares_attention(file: ConfigFile) -> bool:
    """Whether attention is left as it was, so that experts are what a format is said of."""
    left = next((group[key] for group in reversed(_inner_groups(file)) for key in SPARED if group.get(key)), None)
    named = [module for module in left if isinstance(module, str)] if isinstance(left, list) else []
    return any("self_attn" in name and "." in name and not re.search("norm|index", name) for name in named)


def check_rotation(file: ConfigFile, *, partial: bool) -> None:
    """Refuse unknown kinds of rotation, and partial rotation if an architecture rotates whole heads."""
    for name in ("rope_scaling", "rope_parameters"):
        for inner in _rotation_groups(file, name):
            kinds = [word for word in (inner.get("rope_type"), inner.get("type")) if word is not None]
            plain = name == "rope_parameters" and inner.get("rope_theta") is not None  # a kind that is left out is default
            if any(kind not in ROTATIONS for kind in kinds) or not (kinds or plain):
                raise file.refuse(
                    name, f"{shorten(file.get(name))} has no kind that is understood; valid: {', '.join(ROTATIONS)}"
                )
            if not partial:
                inner.one_of("partial_rotary_factor", (1, 1.0))


def read_context(file: ConfigFile, longest: int) -> int:
    """Longest sequence that a model serves: trained length, extended by its rotation. [token]

    Engines take the factor of a linear, dynamic or YaRN scaling times the length before it, which YaRN may say by itself.

    Args:
        longest: that the file says.
    """
    for name in ("rope_scaling", "rope_parameters"):
        for inner in _rotation_groups(file, name):
            kind, factor = inner.get("rope_type") or inner.get("type"), inner.get("factor")
            if kind not in EXTENDING or factor is None:
                continue
            if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor < MAX_INTEGER:
                raise inner.refuse("factor", f"{shorten(factor)} is not a number of at least 1")
            before = longest
            if kind == "yarn":
                before = inner.read_count("original_max_position_embeddings", default=longest)
            return round(before * factor)
    return longest


def rotated_share(file: ConfigFile, kind: str = "", *, default: float = 1.0) -> float:
    """Share of a head that is rotated, in layers of one kind if kinds differ. [-]"""
    outside = file.read_share("partial_rotary_factor", default=default)
    parameters = file.get("rope_parameters")
    inner = file.read_group("rope_parameters")
    if inner is None:
        return outside
    if kind and isinstance(parameters.get(kind), dict):
        inner = inner.read_group(kind) or inner
    return inner.read_share("partial_rotary_factor", default=outside)


def _rotation_groups(file: ConfigFile, name: str) -> list[ConfigFile]:
    """A group of fields, or one for each kind of layers."""
    group, parameters = file.read_group(name), file.get(name)
    if group is None:
        return []
    inners = [
        inner
        for key, entry in parameters.items()
        if isinstance(entry, dict)
        for inner in [group.read_group(key)]
        if inner is not None
    ]
    return inners or [group]
