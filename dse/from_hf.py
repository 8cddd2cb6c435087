"""Models as Hugging Face publishes them: a downloaded `config.json` becomes the fields of a model.

Every field of the file is read, known to change neither shapes nor counts, or refused by its name: nothing is guessed. Number
formats are not the model's here but those of `mapping.precision`. Multi-token prediction modules are left out.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dse.space.errors import DesignError, nearest

Entry = dict[str, Any]

MOST_BYTES = 1 << 20
"""Of a file that is still taken for a `config.json`; those of large models have some kilobytes."""

MOST = 1 << 31
"""Of anything that is counted."""

DTYPES = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
ROTATIONS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope", "su")
"""Kinds of position scaling: other angles in the same rotation, at the same cost."""

FIXED: dict[str, Any] = {
    "add_cross_attention": False,
    "attention_bias": False,
    "chunk_size_feed_forward": 0,
    "cross_attention_hidden_size": None,
    "is_encoder_decoder": False,
    "mlp_bias": False,
    "num_nextn_predict_layers": 0,
    "partial_rotary_factor": 1.0,
    "pruned_heads": {},
    "tie_encoder_decoder": False,
    "use_sliding_window": False,
}
"""Fields that would change the layers; what they must say in a file of an architecture that has no use for them."""

HARMLESS = frozenset(
    re.findall(
        r"\w+",
        """
    _attn_implementation _attn_implementation_autoset _commit_hash _experts_implementation _name_or_path attention_dropout
    attn_implementation auto_map aux_loss_alpha bad_words_ids begin_suppress_tokens bos_token_id decoder_start_token_id
    diversity_penalty do_sample early_stopping embd_pdrop encoder_no_repeat_ngram_size eos_token_id ep_size
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id hidden_dropout
    hidden_dropout_prob id2label initializer_range is_decoder label2id length_penalty max_length min_length n_group
    no_repeat_ngram_size norm_topk_prob num_beam_groups num_beams num_return_sequences original_max_position_embeddings
    output_attentions output_hidden_states output_router_logits output_scores pad_token_id prefix pretraining_tp
    problem_type remove_invalid_values repetition_penalty resid_pdrop return_dict return_dict_in_generate rms_norm_eps
    rope_interleave rope_theta routed_scaling_factor router_aux_loss_coef router_jitter_noise scoring_func sep_token_id
    seq_aux suppress_tokens task_specific_params temperature tf_legacy_loss tokenizer_class top_k top_p topk_group
    torchscript transformers_version typical_p unsloth_fixed unsloth_version use_bfloat16 use_cache
    """,
    )
)
"""Fields that change neither shapes nor counts: tokens, sampling, training, scales, and which experts a router prefers."""


class File:
    """The fields of one file; remembers which were read, so that the rest can be named."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = values
        self._where = where
        self._read: set[str] = set()

    def refuse(self, name: str, what: str) -> DesignError:
        """The error that a field makes."""
        return DesignError(f"{self._where}: {name}: {what}")

    def get(self, name: str) -> Any:
        """A field's value; None where it is absent or null."""
        self._read.add(name)
        return self._values.get(name)

    def null(self, name: str) -> bool:
        """Whether a field is there and says null."""
        return name in self._values and self._values[name] is None

    def whole(self, name: str, *, low: int = 1, default: int | None = None) -> int:
        """A count; `default` stands for an absent or null one."""
        value = self.get(name)
        if value is None:
            if default is None:
                raise self.refuse(name, "missing; a whole number is needed")
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value < MOST:
            raise self.refuse(name, f"{_short(value)} is not a whole number of at least {low}")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A statement."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(name, f"{_short(value)} is not true or false")
        return value

    def only(self, name: str, allowed: Iterable[Any], *, default: Any = None) -> Any:
        """A field that is understood with some values."""
        known, value = list(allowed), self.get(name)
        if value is None:
            return default
        if not any(type(value) is type(one) and value == one for one in known):
            raise self.refuse(name, f"{_short(value)} is not understood; valid: {', '.join(map(json.dumps, known))}")
        return value

    def check_rest(self) -> None:
        """Refuses what nothing has read.

        Raises:
            DesignError: the first field that is neither understood nor harmless.
        """
        for name in sorted(FIXED.keys() - self._read):
            wanted = FIXED[name]
            if self.get(name) not in (None, wanted):
                raise self.refuse(name, f"{_short(self._values[name])} is not understood; valid: {json.dumps(wanted)}")
        for name in sorted(set(self._values) - self._read - HARMLESS):
            if self._values[name] is not None:
                raise self.refuse(
                    _short(name),
                    "not understood in this architecture; where it changes neither shapes nor counts, take it out of the file",
                )


class Family(NamedTuple):
    """An architecture: what its files call it beside the class, the reader of its fields, and types of the same layers."""

    model_type: str
    fields: Callable[[File], Entry]
    others: tuple[str, ...] = ()


def entries(paths: Any, folder: Path) -> dict[str, Entry]:
    """The models of some files, as a configuration would state them, by names made from theirs.

    Args:
        paths: one path or a list, of files or of folders with a `config.json`; relative to here, or to `folder`.
        folder: of the study that asks.

    Raises:
        DesignError: a file is missing, no JSON, of an unknown architecture, or has a field that is not understood.
    """
    found: dict[str, Entry] = {}
    for path in paths if isinstance(paths, list) else [paths]:
        if not isinstance(path, str) or not path:
            raise DesignError(f"model.from_hf: {path!r} is not a path; write model.from_hf=FOLDER/config.json")
        entry = fields_of(_found(path, folder))
        key = base = re.sub(r"\W+", "_", entry["name"]).strip("_").lower() or "model"
        while key in found:
            key = f"{base}_{len(found) + 1}"
        found[key] = entry
    if not found:
        raise DesignError("model.from_hf: an empty list; write model.from_hf=FOLDER/config.json")
    return found


def fields_of(path: Path) -> Entry:
    """The fields of the model in a file, as in `conf/model/*.yaml`.

    Raises:
        DesignError: naming the file, the field, what is there and what is needed.
    """
    values = _json(path)
    file = File(values, f"model.from_hf: {path}")
    name, family = _family(file)
    entry: Entry = {
        "name": _name(path, values),
        "layers": file.whole("num_hidden_layers"),
        "hidden": file.whole("hidden_size"),
        "heads": file.whole("num_attention_heads"),
        "ffn_intermediate": file.whole("intermediate_size"),
        "vocab": file.whole("vocab_size"),
        "max_position": file.whole("max_position_embeddings"),
        "tied_embeddings": file.flag("tie_word_embeddings"),
    }
    file.only("hidden_act", ("silu", "swish"))
    _check_rotation(file)
    formats = _formats(file)
    entry |= family.fields(file)
    file.check_rest()
    return entry | {"source": f"config.json, {name}", "note": "; ".join(filter(None, (formats, entry.get("note"))))}


def _llama(file: File) -> Entry:
    bias, ffn_bias = file.flag("attention_bias"), file.flag("mlp_bias")
    heads = file.whole("num_attention_heads")
    return _grouped(file, kv_heads=heads) | {"qkv_bias": bias, "out_bias": bias, "ffn_bias": ffn_bias}


def _mistral(file: File) -> Entry:
    return _grouped(file) | {"window": _window(file, file.whole("sliding_window", default=0))}


def _mixtral(file: File) -> Entry:
    experts = {
        "count": file.whole("num_local_experts"),
        "top_k": file.whole("num_experts_per_tok"),
        "intermediate": file.whole("intermediate_size"),
    }
    return _mistral(file) | {"experts": experts}


def _phi3(file: File) -> Entry:
    heads = file.whole("num_attention_heads")
    return _grouped(file, kv_heads=heads) | {"window": _window(file, file.whole("sliding_window", default=0))}


def _qwen2(file: File) -> Entry:
    file.only("attention_bias", (True,))
    return _grouped(file) | {"qkv_bias": True, "window": _late_window(file)}


def _qwen3(file: File) -> Entry:
    bias = file.flag("attention_bias")
    file.whole("head_dim")  # its classes differ about the default
    return _grouped(file) | {"qk_norm": True, "qkv_bias": bias, "out_bias": bias, "window": _late_window(file)}


def _qwen3_moe(file: File) -> Entry:
    file.only("decoder_sparse_step", (1,))
    dense = file.get("mlp_only_layers") or []
    if not isinstance(dense, list) or dense != list(range(len(dense))):
        raise file.refuse("mlp_only_layers", f"{_short(dense)} is not understood; dense layers are the first ones: [0, 1, ...]")
    experts = {
        "count": file.whole("num_experts"),
        "top_k": file.whole("num_experts_per_tok"),
        "intermediate": file.whole("moe_intermediate_size"),
        "dense_layers": len(dense),
    }
    return _qwen3(file) | {"experts": experts}


def _deepseek_v2(file: File) -> Entry:
    file.only("topk_method", ("greedy", "group_limited_greedy"))
    return _latent(file, score_bias=False)


def _deepseek_v3(file: File) -> Entry:
    file.only("topk_method", ("noaux_tc",))
    return _latent(file, score_bias=True)


def _latent(file: File, *, score_bias: bool) -> Entry:
    heads, nope, rope = (file.whole(name) for name in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim"))
    # latent attention has no groups, and its files give head_dim, if at all, as the rotated or the whole dimension
    file.only("num_key_value_heads", (heads,))
    file.only("head_dim", (rope, nope + rope))
    file.only("qk_head_dim", (nope + rope,))
    file.only("moe_layer_freq", (1,))
    modules = file.whole("num_nextn_predict_layers", low=0, default=0)
    latent = {
        "q_rank": file.whole("q_lora_rank", default=0 if file.null("q_lora_rank") else None),
        "kv_rank": file.whole("kv_lora_rank"),
        "nope_dim": nope,
        "rope_dim": rope,
        "v_dim": file.whole("v_head_dim"),
    }
    experts = {
        "count": file.whole("n_routed_experts"),
        "top_k": file.whole("num_experts_per_tok"),
        "intermediate": file.whole("moe_intermediate_size"),
        "shared": file.whole("n_shared_experts", low=0, default=0 if file.null("n_shared_experts") else None),
        "dense_layers": file.whole("first_k_dense_replace", low=0),
        "score_bias": score_bias,
        "groups": file.whole("n_group", default=1),
        "groups_kept": file.whole("topk_group", default=1),
    }
    note = f"parameters without its {modules} multi-token prediction module" + "s" * (modules > 1) if modules else ""
    return {"kv_heads": heads, "head_dim": nope + rope, "mtp": modules, "latent": latent, "experts": experts, "note": note}


ARCHITECTURES: dict[str, Family] = {
    "LlamaForCausalLM": Family("llama", _llama),
    "MistralForCausalLM": Family("mistral", _mistral),
    "MixtralForCausalLM": Family("mixtral", _mixtral),
    "Phi3ForCausalLM": Family("phi3", _phi3),
    "Qwen2ForCausalLM": Family("qwen2", _qwen2),
    "Qwen3ForCausalLM": Family("qwen3", _qwen3),
    "Qwen3MoeForCausalLM": Family("qwen3_moe", _qwen3_moe),
    "DeepseekV2ForCausalLM": Family("deepseek_v2", _deepseek_v2),
    "DeepseekV3ForCausalLM": Family("deepseek_v3", _deepseek_v3, ("kimi_k2",)),
}


def _grouped(file: File, *, kv_heads: int | None = None) -> Entry:
    """Heads in groups; `kv_heads` is what an absent field means."""
    heads, hidden = file.whole("num_attention_heads"), file.whole("hidden_size")
    head_dim = file.whole("head_dim", default=hidden // heads)
    if file.get("head_dim") is None and hidden % heads:
        raise file.refuse("head_dim", f"missing, and hidden_size {hidden} is not a multiple of {heads} heads; give head_dim")
    return {"kv_heads": file.whole("num_key_value_heads", default=kv_heads), "head_dim": head_dim}


def _late_window(file: File) -> int:
    """A window that layers from `max_window_layers` on have."""
    used, size = file.flag("use_sliding_window"), file.whole("sliding_window", default=0)
    first = file.whole("max_window_layers", low=0, default=None if used else 0)
    layers = file.whole("num_hidden_layers")
    if not used or not size or first >= layers:
        return _window(file, 0)
    if first:
        raise file.refuse(
            "max_window_layers",
            f"{first} of {layers} layers attend to everything and the others within a window, which is not understood; "
            "say 0 for a window in all layers, or use_sliding_window false for none",
        )
    return _window(file, size)


def _window(file: File, size: int) -> int:
    """The window, where the list of the layers' kinds, if there is one, says the same."""
    kinds, kind = file.get("layer_types"), "sliding_attention" if size else "full_attention"
    if kinds is not None and kinds != [kind] * file.whole("num_hidden_layers"):
        raise file.refuse("layer_types", f"{_short(kinds)} is not understood; the other fields say {kind} in every layer")
    return size


def _check_rotation(file: File) -> None:
    for name in ("rope_scaling", "rope_parameters"):
        given = file.get(name)
        if given is None:
            continue
        if not isinstance(given, dict):
            raise file.refuse(name, f"{_short(given)} is not a group of fields")
        inner = File(given, f"model.from_hf: {name}")
        kinds = [given[key] for key in ("rope_type", "type") if given.get(key) is not None]
        if not kinds or any(kind not in ROTATIONS for kind in kinds):
            raise file.refuse(name, f"{_short(given)} has no kind that is understood; valid: {', '.join(ROTATIONS)}")
        inner.only("partial_rotary_factor", (1, 1.0))


def _formats(file: File) -> str:
    """What the file says about number formats, for people."""
    words = {name: file.only(name, DTYPES) for name in ("torch_dtype", "dtype")}
    given = sorted({word for word in words.values() if word})
    if len(given) > 1:
        raise file.refuse("dtype", f"{words['dtype']}, but torch_dtype is {words['torch_dtype']}; keep one of them")
    quantized = file.get("quantization_config")
    if quantized is not None:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized
        if method != "fp8":
            raise file.refuse(
                "quantization_config",
                f"quant_method {_short(method)} is not understood; valid: fp8; "
                "else take the file of the model before it was quantised, and say the format in mapping.precision.weights",
            )
        given = ["fp8"]
    return f"published in {given[0]}" if given else ""


def _family(file: File) -> tuple[str, Family]:
    """The architecture by its class, or by its type where no class is named; both must agree."""
    classes, kind = file.get("architectures"), file.get("model_type")
    if classes is None and isinstance(kind, str):
        classes = [name for name, family in ARCHITECTURES.items() if family.model_type == kind]
        if not classes:
            types = (family.model_type for family in ARCHITECTURES.values())
            raise file.refuse("model_type", f"no type {_short(kind)}; {nearest(kind, types)}")
    if not isinstance(classes, list) or len(classes) != 1 or not isinstance(classes[0], str):
        what = "missing" if classes is None else f"{_short(classes)} is not one architecture"
        raise file.refuse("architectures", f"{what}; valid: {', '.join(sorted(ARCHITECTURES))}")
    name = classes[0]
    if name not in ARCHITECTURES:
        raise file.refuse("architectures", f"no architecture {_short(name)}; {nearest(name[:80], ARCHITECTURES)}")
    family = ARCHITECTURES[name]
    if kind is not None and kind not in (family.model_type, *family.others):
        raise file.refuse("model_type", f"{_short(kind)} contradicts {name}, whose type is {family.model_type!r}")
    return name, family


def _found(text: str, folder: Path) -> Path:
    given = Path(os.path.expanduser(text))  # which leaves a ~ that stands for nobody
    for path in (given, folder / given):
        if path.is_dir():
            path = path / "config.json"
        if path.is_file():
            return path
    raise DesignError(f"model.from_hf: no file {text!r} here or in {folder}; give the config.json of a downloaded model")


def _json(path: Path) -> dict[str, Any]:
    where = f"model.from_hf: {path}"

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise DesignError(f"{where}: {_short(twice)}: given twice; keep one of them")
        return values

    try:
        with path.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise DesignError(f"{where}: cannot be read: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise DesignError(f"{where}: larger than any config.json; give the config.json of a downloaded model")
    try:
        values = json.loads(content.decode("utf-8-sig"), object_pairs_hook=once)
    except DesignError:
        raise
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise DesignError(f"{where}: not JSON: {reason}; give the config.json of a downloaded model") from None
    if not isinstance(values, dict):
        raise DesignError(f"{where}: {_short(values)} is not a group of fields; give the config.json of a downloaded model")
    return values


def _name(path: Path, values: Mapping[str, Any]) -> str:
    """The name that its folder, its cache or the file itself gives a model."""
    if path.stem != "config":
        return path.stem
    cached = next((part for part in path.resolve().parts if part.startswith("models--")), None)
    if cached:
        return cached.rpartition("--")[2]
    named = values.get("_name_or_path")
    own = Path(named).name if isinstance(named, str) else ""
    return path.resolve().parent.name or own or "model"


def _short(value: Any) -> str:
    """A value on one line, cut where it is long."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
