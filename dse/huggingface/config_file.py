"""Fields of one `config.json`: each is read, known to change nothing, or refused by its name."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dse.huggingface.unread_fields import can_shape
from dse.space.errors import DesignError

Entry = dict[str, Any]

MAX_FILE_BYTES = 1 << 25
"""Of a file that is still taken for a `config.json`; lists of modules that are not quantised come to some megabytes."""

MAX_INTEGER = 1 << 31
"""Of anything that is counted."""

MAX_LAYERS = 1 << 10
"""Of a model that is read layer by layer."""

FIXED: dict[str, Any] = {
    "add_cross_attention": False,
    "attention_bias": False,
    "chunk_size_feed_forward": 0,
    "cross_attention_hidden_size": None,
    "is_causal": True,
    "is_encoder_decoder": False,
    "mlp_bias": False,
    "num_nextn_predict_layers": 0,
    "partial_rotary_factor": 1.0,
    "pruned_heads": {},
    "tie_encoder_decoder": False,
    "use_bias": False,
    "use_sliding_window": False,
}
"""Fields that would change the layers; what they must say in a file of an architecture that has no use for them."""

UNMODELLED: dict[str, tuple[tuple[Any, ...], str]] = {
    "attn_res_block_size": ((None,), "residuals that attend to blocks of layers are not modelled; null leaves them out"),
    "engram_layer_ids": ((None, []), "tables of n-grams (Engram) are not modelled; [] leaves them out"),
    "engram_layers": ((None, []), "tables of n-grams (Engram) are not modelled; [] leaves them out"),
    "hc_mult": ((None, 1), "hyper-connections of several residual streams are not modelled; 1 leaves them out, as presets do"),
    "kv_source_layers": ((None, []), "a prompt that runs half of the layers is not modelled; [] where each has its own cache"),
    "kv_sources": ((None, []), "a prompt that runs half of the layers is not modelled; [] where each has its own cache"),
    "mhc_num_streams": (
        (None, 1),
        "hyper-connections of several residual streams are not modelled; 1 leaves them out, as presets do",
    ),
}
"""Mechanisms that no operator stands for: values without them, and what is said of others."""

IGNORED_FIELDS = frozenset(
    re.findall(
        r"\w+",
        """
    dim_model_base attention_multiplier embedding_multiplier logits_scaling n_ctx residual_multiplier scale_depth scale_emb
    _attn_implementation _attn_implementation_autoset _commit_hash _experts_implementation _name_or_path activation_situ_beta
    activation_situ_linear_beta attention_dropout attention_value_scale attn_implementation attn_scale attn_temperature_tuning
    auto_map aux_loss_alpha bad_words_ids begin_suppress_tokens bos_token_id cache_implementation capacity_factor
    compress_rope_theta decoder_start_token_id diversity_penalty do_sample early_stopping embd_pdrop
    enable_attention_fp32_softmax enable_lm_head_fp32 enable_moe_fp32_combine encoder_no_repeat_ngram_size eod_token_id
    eos_token_id ep_size exponential_decay_length_penalty ffn_dropout finetuning_task floor_scale for_llm_compressor
    forced_bos_token_id forced_eos_token_id full_attn_alpha_factor full_attn_beta_factor fuse_rms_norm gradient_checkpointing
    hc_eps hc_sinkhorn_iters hidden_dropout hidden_dropout_prob id2label ignore_index im_end_id im_newline_id im_start_id
    image_token_id indexer_rope_interleave initial_context_length initializer_range interpolate_factor is_decoder label2id
    layer_norm_eps layer_norm_epsilon layernorm_epsilon layernorm_full_attention_alpha layernorm_full_attention_beta
    layernorm_linear_attention_alpha layernorm_linear_attention_beta layernorm_mlp_alpha layernorm_mlp_beta length_penalty
    linear_attn_alpha_factor linear_attn_beta_factor llama_4_scaling logit_scale mamba_dt_init_floor mamba_dt_limit
    mamba_dt_max mamba_dt_min mask_init_id max_length max_seq_len min_length mlp_alpha_factor mlp_beta_factor moe_capacity
    moe_drop_tokens moe_dropout_prob moe_gate moe_group moe_layer_recompute moe_multimodal_dispatch_use_allgather moe_norm_min
    moe_random_routing_dropped_token moe_renormalize moe_router_activation moe_router_activation_func
    moe_router_scaling_factor moe_router_use_sigmoid moe_shared_expert_overlap mtp_loss_scaling_factor mtp_loss_weight n_group
    need_fp32_gate no_repeat_ngram_size norm_eps norm_expert_weight norm_topk_prob num_beam_groups num_beams num_expert_group
    num_logits_to_keep num_return_sequences original_max_position_embeddings output_attentions output_hidden_states
    output_router_logits output_scores pad_id pad_token_id prefix pretraining_tp problem_type query_pre_attn_scalar
    remove_invalid_values repetition_penalty rescale_prenorm_residual resid_pdrop residual_in_fp32 return_dict
    return_dict_in_generate rms_norm_eps rope_interleave rope_local_base_freq rope_theta rotary_base route_norm
    routed_scaling_factor router_aux_loss_coef router_dtype router_jitter_noise router_scaling_factor scale_fmt scoring_func
    sep_id sep_token_id seq_aux seq_length suppress_tokens swa_rope_theta swiglu_alpha swiglu_limit swiglu_limits
    swiglu_limits_shared task_specific_params temperature text_end_id text_start_id tf_legacy_loss time_step_floor
    time_step_limit time_step_max time_step_min time_step_rank tokenizer_class top_k top_p topk_group torchscript
    transformers_version truncate typical_p unsloth_fixed unsloth_version use_bfloat16 use_cache use_gemma_norm use_grouped_mm
    use_grouped_topk use_mamba_kernels use_mrope use_return_dict video_token_id vision_token_id yarn_only_types z_loss_coeff
    zero_centered
    """,
    )
)
"""Fields that change neither shapes nor counts: tokens, sampling, training, scales, and which experts a router prefers."""

DTYPES = ("torch_dtype", "dtype", "quantization_config", "compression_config", "expert_dtype")
"""Fields of number formats, which are read apart from what layers are."""

TOKENS = re.compile(r"\w+_token_(id|index|ids)")
"""Names of fields that say which tokens stand for something."""


class ConfigFile:
    """Fields of one file, with a record of those that were read.

    Args:
        values: as the file has them.
        where: of the file, for messages.
        defaults: what its class means by fields that are absent.
        names: of its class for fields that others call otherwise, and what these call them.
        unread: names of fields that were found to change nothing, to which those of this file are added.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        where: str,
        defaults: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
        unread: list[str] | None = None,
    ) -> None:
        self._where, self._said = where, values
        self._names: dict[str, str] = {}
        self._given = self._rename_fields(values, names or {})
        self._defaults = defaults or {}
        self._values = {**self._defaults, **self._given}
        self._read: set[str] = set()
        self.unread = [] if unread is None else unread
        self.supplied: dict[str, Any] = {}

    def read_as(self, defaults: Mapping[str, Any], names: Mapping[str, str]) -> "ConfigFile":
        """The same fields with another class's defaults and names, as a new file."""
        file = ConfigFile(self._said, self._where, defaults, names)
        file.ignore("architectures", "model_type", *DTYPES)
        return file

    def _rename_fields(self, values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
        """The fields by their usual names; one that is there by both must say the same."""
        renamed = dict(values)
        for own, usual in names.items():
            if own not in renamed:
                continue
            value, other = renamed.pop(own), renamed.get(usual)
            if value is not None and other is not None and (type(value), value) != (type(other), other):
                raise self.refuse(own, f"{shorten(value)}, but {usual} is {shorten(other)}; keep one of them")
            if value is not None or usual not in renamed:
                renamed[usual] = value
                self._names[usual] = own
        return renamed

    def refuse(self, name: str, what: str) -> DesignError:
        """Error about a field, with the file and the field's name."""
        return DesignError(f"{self._where}: {self._names.get(name, name)}: {what}")

    def get(self, name: str) -> Any:
        """A field's value; None if it is absent or null."""
        self._read.add(name)
        if name not in self._given and type(self._defaults.get(name)) is int:
            self.supplied[name] = self._defaults[name]
        return self._values.get(name)

    def is_null(self, name: str) -> bool:
        """Whether a field is there and null."""
        return name in self._values and self._values[name] is None

    def get_default(self, name: str) -> Any:
        """Default of the class for a field that is left out; None for no default."""
        return self._defaults.get(name)

    def has_value(self, name: str) -> bool:
        """Whether the file itself has a value for the field, whatever the class's default."""
        return self._given.get(name) is not None

    def ignore(self, *names: str) -> None:
        """Mark fields as read that do not matter: of omitted parts, or unused beside others."""
        self._read.update(names)

    def ignore_like(self, pattern: str) -> bool:
        """Mark all fields as read whose names match; returns whether one of them has a value."""
        names = [name for name in self._given if re.fullmatch(pattern, name)]
        self._read.update(names)
        return any(self._given[name] for name in names)

    def stated_name(self, *names: str) -> str:
        """First of several names of one field that the file has, else that its class has, else the first."""
        known = [name for name in names if self.has_value(name)] + [
            name for name in names if self._values.get(name) is not None
        ]
        return known[0] if known else names[0]

    def read_count(self, name: str, *, low: int = 1, default: int | None = None) -> int:
        """Value of a field as a count; `default` replaces an absent or null one."""
        value = self.get(name)
        if value is None:
            if default is None:
                raise self.refuse(name, "missing; a whole number is needed")
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value < MAX_INTEGER:
            raise self.refuse(name, f"{shorten(value)} is not a whole number of at least {low}")
        return value

    def count_layers(self) -> int:
        """Number of layers; refused if it is too large to list."""
        count = self.read_count("num_hidden_layers")
        if count > MAX_LAYERS:
            raise self.refuse("num_hidden_layers", f"{count} layers; {MAX_LAYERS} at most")
        return count

    def agreed_count(self, *names: str, low: int = 1, default: int | None = None) -> int:
        """Count with several names, of which a file may have more than one; they must agree."""
        first = self.stated_name(*names)
        count = self.read_count(first, low=low, default=default)
        self.ignore(*names)
        for name in names:
            if self.has_value(name) and self.read_count(name, low=low) != count:
                raise self.refuse(name, f"{shorten(self.get(name))}, but {first} is {count}; keep one of them")
        return count

    def read_share(self, name: str, *, default: float = 1.0) -> float:
        """Value of a field as a share above 0, up to 1; `default` if absent or null. [-]"""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise self.refuse(name, f"{shorten(value)} is not a share above 0, up to 1")
        return float(value)

    def read_flag(self, name: str, *, default: bool = False) -> bool:
        """Value of a field as true or false; `default` if absent or null."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(name, f"{shorten(value)} is not true or false")
        return value

    def one_of(self, name: str, allowed: Iterable[Any], *, default: Any = None) -> Any:
        """Refuse a field unless it has one of the values that are supported."""
        known, value = list(allowed), self.get(name)
        if value is None:
            return default
        if not any(type(value) is type(value_known) and value == value_known for value_known in known):
            raise self.refuse(name, f"{shorten(value)} is not understood; valid: {', '.join(map(json.dumps, known))}")
        return value

    def read_group(self, name: str) -> "ConfigFile | None":
        """Fields of a nested group; None if it is absent or null."""
        value = self.get(name)
        if value is None:
            return None
        return self.fields_inside(name, value)

    def fields_inside(self, name: str, value: Any) -> "ConfigFile":
        """Fields of a nested group or of an entry of a list."""
        if not isinstance(value, dict):
            raise self.refuse(name, f"{shorten(value)} is not a group of fields")
        return ConfigFile(value, f"{self._where}: {self._names.get(name, name)}", unread=self.unread)

    def refuse_unmodelled(self) -> None:
        """Refuse fields that would change the result of a known architecture."""
        for name, (without, what) in UNMODELLED.items():
            value = self.get(name)
            if not any(type(value) is type(plain_value) and value == plain_value for plain_value in without):
                raise self.refuse(name, f"{shorten(value)}: {what}")

    def check_rest(self) -> None:
        """Refuse unread fields that may change shapes or counts; note the other unread ones.

        Raises:
            DesignError: the first field that is neither understood nor harmless.
        """
        for name in sorted(FIXED.keys() - self._read):
            wanted = FIXED[name]
            if self.get(name) not in (None, wanted):
                raise self.refuse(name, f"{shorten(self._values[name])} is not understood; valid: {json.dumps(wanted)}")
        if "layer_types" not in self._read and self.has_value("num_hidden_layers"):
            full = ["full_attention"] * self.count_layers()
            if self.get("layer_types") not in (None, full):
                given = shorten(self.get("layer_types"))
                raise self.refuse(
                    "layer_types", f"{given} is not understood; valid: full_attention for each of {len(full)} layers"
                )
        for name in sorted(set(self._given) - self._read - IGNORED_FIELDS):
            if self._given[name] is None or TOKENS.fullmatch(name):
                continue
            if can_shape(name, self._given[name]):
                raise self.refuse(
                    shorten(name),
                    f"{shorten(self._given[name])} is not understood in this architecture, and may change shapes or counts; "
                    "where it does not, take it out of the file",
                )
            self.unread.append(name)


def read_json(path: Path) -> Entry:
    """Read a JSON file with a group of fields.

    Raises:
        DesignError: it cannot be read, is no JSON, says a field twice, or is larger than any such file.
    """
    where = f"model.from_hf: {path}"

    def refuse_repeated_names(pairs: list[tuple[str, Any]]) -> Entry:
        values = dict(pairs)
        if len(values) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise DesignError(f"{where}: {shorten(twice)}: given twice; keep one of them")
        return values

    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise DesignError(f"{where}: cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise DesignError(f"{where}: larger than any config.json; give the config.json of a downloaded model")
    try:
        values = json.loads(content.decode("utf-8-sig"), object_pairs_hook=refuse_repeated_names)
    except DesignError:
        raise
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise DesignError(f"{where}: not JSON: {reason}; give the config.json of a downloaded model") from None
    if not isinstance(values, dict):
        kind = "a list" if isinstance(values, list) else "one value"  # what stands in it is nobody's to show
        raise DesignError(f"{where}: {kind}, not a group of fields; give the config.json of a downloaded model")
    return values


def shorten(value: Any) -> str:
    """A value on one line, cut if it is long."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
