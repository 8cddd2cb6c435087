"""Hugging Face's `config.json`: read whole, or refused by the field that is not understood."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.compose import compose
from dse.config.workloads import read_models
from dse.evaluators import evaluate
from dse.huggingface import ARCHITECTURES, IGNORED_FIELDS, model_fields, read_model_entries
from dse.huggingface.families import CLASSES, Family
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.layers import layers
from dse.space.model import Model
from dse.space.number_formats import FORMATS
from dse.space.parameter_counts import active_parameter_count, kv_values_per_token, parameter_count
from dse.space.workload import BatchCase, Workload
from tests.dse.published_models import PUBLISHED, Published
from tests.dse.said_files import NOTES, REFUSED, SAME
from tests.dse.small_files import SMALL
from tests.samples import base

CONF = Path(__file__).resolve().parents[2] / "conf/model"
FILES = sorted((Path(__file__).parent / "hf").glob("*.json"))
KV_BYTES = {
    "deepseek_v2_lite": 31104,
    "deepseek_v3": 70272,
    "llama2_7b": 524288,
    "llama3_405b": 516096,
    "llama3_70b": 327680,
    "mistral_7b": 131072,
    "mixtral_8x22b": 229376,
    "mixtral_8x7b": 131072,
    "phi3_medium": 204800,
    "qwen2_7b": 57344,
    "qwen3_14b": 163840,
    "qwen3_1b7": 114688,
    "qwen3_30b_a3b": 98304,
    "qwen3_32b": 262144,
    "qwen3_4b": 147456,
    "qwen3_8b": 147456,
}
"""Of a token in all layers, at two bytes a value: 2 x layers x KV heads x head dimension x 2, or layers x (rank + rope) x 2."""

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
SHORT = {
    published.fields["architectures"][0]: published.name
    for published in reversed(PUBLISHED)
    if "text_config" not in published.fields
}
"""A published file of each architecture that a table has."""

STEMS = [*(path.stem for path in FILES), *SMALL, *sorted(SHORT.values())]
Write = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Writes a sample again with some fields changed; a field that is `...` is left out."""

    def write(stem: str = "qwen3_8b", **changes: Any) -> Path:
        values = sample(stem) | changes
        path = tmp_path / "config.json"
        path.write_text(json.dumps({name: value for name, value in values.items() if value is not ...}))
        return path

    return write


def sample(stem: str) -> dict[str, Any]:
    if stem in SMALL:
        return SMALL[stem]
    if stem in SHORT.values():
        return next(published.fields for published in PUBLISHED if published.name == stem)
    values: dict[str, Any] = json.loads((Path(__file__).parent / f"hf/{stem}.json").read_text())
    return values


def defaults_of(stem: str) -> set[str]:
    """Fields that the class of a sample has a default for."""
    return set(family_of(stem).defaults)


def family_of(stem: str) -> Family:
    name = sample(stem)["architectures"][0]
    return ARCHITECTURES[CLASSES.get(name, name)]


def read(path: Path) -> Model:
    (model,) = read_models({"read": model_fields(path)}).values()
    return model


@each_file
def test_a_file_gives_the_model_that_ships(path: Path) -> None:
    entry = yaml.safe_load((CONF / f"{path.stem}.yaml").read_text()) | {"name": path.stem}
    if path.stem == "phi3_medium":
        entry["window"] = 2047  # the shipped one attends to everything
    (shipped,) = read_models({path.stem: entry}).values()
    assert read(path) == shipped


@each_file
def test_parameters_are_the_published_ones_and_kv_bytes_are_exact(path: Path) -> None:
    model, published = read(path), yaml.safe_load((CONF / f"{path.stem}.yaml").read_text())["published_parameters"]
    assert parameter_count(model) == pytest.approx(published, rel=5e-4)
    assert model.layers * kv_values_per_token(model) * 2 == KV_BYTES[path.stem]


def test_every_architecture_has_a_sample() -> None:
    assert {name for name, family in ARCHITECTURES.items() for stem in STEMS if family is family_of(stem)} == set(ARCHITECTURES)


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda published: published.name)
def test_a_published_file_in_short_is_what_is_published_of_it(published: Published, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(published.fields))
    model = read(path)
    assert parameter_count(model) == pytest.approx(published.total, rel=5e-3)
    assert sum(layer.times * kv_values_per_token(layer.of) for layer in layers(model).mixings) * 2 == published.kv


@pytest.mark.sampled
@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("junk", ["?", -1, 1.5, [3, "x"], {"a": 1}, 1 << 40], ids=str)
def test_no_field_that_counts_takes_junk(stem: str, junk: Any, written: Write) -> None:
    for name in (
        sample(stem).keys()
        - IGNORED_FIELDS
        - SILENT
        - ({"final_logit_softcapping", "attn_logit_softcapping"} if junk == 1.5 else set())
    ):
        with pytest.raises(DesignError, match=name):
            model_fields(written(stem, **{name: junk}))


SILENT = {
    "apply_residual_connection_post_layernorm", "bias_dropout_fusion", "dim_model_base", "masked_softmax_fusion",
    "offset_alibi", "original_rope", "rotary_emb_base", "skip_bias_add", "skip_bias_add_qkv",
    "use_dynamic_ntk", "use_flash_attn", "use_logn_attn", "vision_config", "vision_start_token_id", "z_loss_weight",
}  # fmt: skip
"""Fields of published files that say nothing of shapes in their families."""

IDLE = {
    "Olmo-3-7B": {"max_position_embeddings"},  # its rotation says the length that it extends
    "c4ai-command-r-v01": {"max_position_embeddings"},  # model_max_length says it
    "Baichuan2-7B": {"model_max_length"},
    "Qwen1.5-MoE-A2.7B": {"intermediate_size"},  # no layer is dense
    "SmolLM3-3B": {"no_rope_layer_interval"},  # a list says it
    "deepseek_v2_lite": {"max_position_embeddings"},  # its rotation says the length that it extends
    "deepseek_v3": {"max_position_embeddings"},
    "deepseek_v4": {"num_hash_layers"},  # a table in the place of a router costs what it does
    "glm_moe_dsa": {"head_dim"},
    "mistral4": {"intermediate_size"},  # no layer is dense
}
"""Fields that may change alone without a change of the model."""


@pytest.mark.parametrize("stem", STEMS)
def test_a_count_that_changes_changes_the_model(stem: str, written: Write) -> None:
    before, idle = read(written(stem)), set()
    for name, value in sample(stem).items():
        if name in IGNORED_FIELDS | SILENT or isinstance(value, bool) or not isinstance(value, int) or not value:
            continue
        try:
            after = read(written(stem, **{name: 2 * value}))
        except DesignError:
            continue  # it contradicts another one
        if after == before:
            idle.add(name)
    # a window that is off has no size and no layers; modules that draft tokens are left out
    assert idle <= {"max_window_layers", "sliding_window", "num_nextn_predict_layers"} | IDLE.get(stem, set())
    assert not idle or not sample(stem).get("use_sliding_window", False)


@pytest.mark.parametrize(("stem", "changes", "message"), REFUSED, ids=[f"{stem} {c!s:.50}" for stem, c, _ in REFUSED])
def test_what_is_not_understood_is_refused_by_name(stem: str, changes: dict[str, Any], message: str, written: Write) -> None:
    with pytest.raises(DesignError, match=message) as error:
        read(written(stem, **changes))
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(("stem", "changes"), SAME, ids=[f"{stem} {c!s:.50}" for stem, c in SAME])
def test_the_same_said_otherwise_is_the_same_model(stem: str, changes: dict[str, Any], written: Write) -> None:
    assert read(written(stem, **changes)) == read(written(stem))


def nested(stem: str, around: dict[str, Any] | None = None, **inside: Any) -> dict[str, Any]:
    """A file of a model that sees, whose language model is a sample."""
    text = {name: value for name, value in (SMALL[stem] | inside).items() if value is not ...}
    vision = {"model_type": "vision", "hidden_size": 8, "num_hidden_layers": 2}
    return {"architectures": ["SomeForConditionalGeneration"], "model_type": "some", "text_config": text} | {
        "vision_config": vision,
        "image_token_id": 7,
        **(around or {}),
    }


@pytest.mark.parametrize("stem", SMALL)
def test_the_language_model_of_a_file_is_read(stem: str, written: Write, tmp_path: Path) -> None:
    alone = read(written(stem))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(nested(stem, {"dtype": "bfloat16"}, architectures=..., torch_dtype=...)))
    assert read(path) == alone
    tied = {"tie_word_embeddings": alone.tied_embeddings}
    path.write_text(json.dumps(nested(stem, tied, tie_word_embeddings=...)))
    assert read(path) == alone


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (nested("qwen3_5", {"tie_word_embeddings": True}), "tie_word_embeddings: false, but true around text_config"),
        (nested("qwen3_5", {"architectures": ["SomeForSequenceClassification"]}), "architectures: .*generates text"),
        (nested("qwen3_5", {"text_config": [1]}), "text_config: .1. is not a group of fields"),
        (nested("qwen3_5", {"hc_mult": 4}), "hc_mult: 4"),
        (nested("qwen3_5", architectures=..., model_type="qwen3_6_text"), "text_config: model_type: no type .*did you mean"),
        (nested("qwen3_5", some_new_gate=3), "text_config: .some_new_gate.: 3 is not understood"),
    ],
    ids=str,
)
def test_what_is_not_understood_in_a_file_of_a_model_that_sees(values: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    with pytest.raises(DesignError, match=message) as error:
        read(path)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(("stem", "changes", "stated"), NOTES, ids=[stem for stem, _, _ in NOTES])
def test_a_note_says_the_published_format(stem: str, changes: dict[str, Any], stated: str, written: Write) -> None:
    note = model_fields(written(stem, **changes))["note"]
    assert re.search(stated, note)
    for word in re.findall(r"mapping\.precision\.\w+=(\w+)", note):
        assert "weights" in FORMATS[word].holds, "a word that a note says is one of mapping.precision"


def test_what_is_said_around_a_language_model_is_its_published_format(tmp_path: Path) -> None:
    fp8, nvfp4 = (
        {"quant_method": "fp8"},
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["*.self_attn*"]},
    )
    path = tmp_path / "config.json"
    path.write_text(json.dumps(nested("qwen3_5_moe", {"quantization_config": nvfp4}, quantization_config=fp8)))
    assert "published in nvfp4 (+mapping.precision.experts=nvfp4)" in model_fields(path)["note"]
    path.write_text(json.dumps(nested("qwen3_5", {"dtype": "float32"})))
    assert "published in float32" in model_fields(path)["note"]


def test_heads_that_see_everything_are_as_wide_as_others_where_a_file_says_null(written: Write) -> None:
    model = read(written("gemma4", global_head_dim=None))
    assert dict(model.kinds)["full"].head_dim == model.head_dim


def test_lists_may_go_on_over_modules_that_predict_tokens(written: Write) -> None:
    short, longer = [0, 0, 4, 128, 4, 128], [0, 0, 4, 128, 4, 128, 0]
    assert read(written("deepseek_v4", compress_ratios=short)) == read(written("deepseek_v4", compress_ratios=longer))


def test_names_of_the_same_replace_what_a_class_means_by_none(written: Write) -> None:
    other = written("nemotron_h", head_dim=..., attention_head_dim=24, n_groups=..., mamba_n_groups=4)
    assert read(other) == read(written("nemotron_h", head_dim=24, n_groups=4))


@pytest.mark.sampled
@pytest.mark.parametrize("stem", [stem for stem in STEMS if defaults_of(stem)])
def test_a_field_that_is_left_out_is_what_its_class_means_by_none(stem: str, written: Write) -> None:
    defaults = defaults_of(stem) - {"hc_mult"}  # refused unless a file says 1
    own = {usual: own for own, usual in family_of(stem).names.items() if own in sample(stem)}
    draw = random.Random(stem)
    for _ in range(20):
        left_out = draw.sample(sorted(defaults), draw.randint(1, len(defaults)))
        given_defaults = {own.get(name, name): family_of(stem).defaults[name] for name in left_out}
        results = [outcome(written(stem, **fields)) for fields in (given_defaults, dict.fromkeys(given_defaults, ...))]
        for entry, _ in results:  # a note says what was left out
            for read_entry in entry.values():
                read_entry["note"] = ""
        assert results[0][0].keys() == results[1][0].keys()
        assert results[0][1] == results[1][1] or all(error for _, error in results)
        if not results[0][1]:
            assert results[0] == results[1]


SPARE = {
    "mistral": ({}, 7.242e9, 131072),
    "gpt_oss": ({}, 116.83e9, 73728),
    "qwen3_5_moe_text": ({}, 34.66e9, 20480),
    "mistral4": ({}, 118.97e9, 23040),
    "glm4_moe": ({"head_dim": 128}, 106.85e9, 188416),
    "glm4_moe_lite": ({}, 29.94e9, 54144),
    "glm_moe_dsa": ({}, 743.91e9, 89856),
    "minimax_m2": ({}, 228.69e9, 253952),
    "ernie4_5_moe": ({}, 21.83e9, 57344),
    "gemma2": ({"num_hidden_layers": 42, "hidden_size": 3584, "intermediate_size": 14336,
                "num_attention_heads": 16, "num_key_value_heads": 8}, 9.24e9, 344064),
}  # fmt: skip
"""Files that leave out all that they can: parameters of the model that the class is of, and bytes of a token in its cache."""


@pytest.mark.parametrize("kind", SPARE)
def test_a_spare_file_is_the_model_of_its_class(kind: str, tmp_path: Path) -> None:
    fields, total, kv = SPARE[kind]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": kind} | fields))
    model = read(path)
    assert parameter_count(model) == pytest.approx(total, rel=1e-3)
    assert sum(layer.times * kv_values_per_token(layer.of) for layer in layers(model).mixings) * 2 == kv


def test_caches_shared_across_layers_are_those_of_the_first(written: Write) -> None:
    own, shared = read(written("hunyuan")), read(written("hunyuan", use_cla=True, cla_share_factor=3))
    assert shared.order == "2 (own, 2 reused)"
    kv = 2 * own.kv_heads * own.head_dim
    assert parameter_count(own) - parameter_count(shared) == 4 * (own.hidden * kv + own.head_dim)


@pytest.mark.parametrize("group", ["llm_config", "language_config"])
def test_a_language_model_is_found_by_other_names(group: str, written: Write, tmp_path: Path) -> None:
    values = nested("qwen3_5", {"architectures": ["Some_VL_V2"]})
    values[group] = values.pop("text_config")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    assert read(path) == read(written("qwen3_5"))


def test_kinds_are_those_of_the_lists(written: Write) -> None:
    orders = {stem: read(written(stem)).order for stem in SMALL}
    assert orders["gpt_oss"] == "3 (local, full)"
    assert orders["gemma4"] == "2 local, full, local, local_reused, full_reused"
    assert orders["llama4"] == "local_dense, local_experts, full_dense, local_experts, local_dense, full_experts"
    assert orders["deepseek_v4"] == "2 local, 2 (sparse, heavy)"
    assert orders["glm_moe_dsa"] == "2 (2 scored, reused)"
    assert orders["kimi_linear"] == orders["qwen3_next"].replace("delta", "state") == "2 (2 state, full)"
    assert orders["nemotron_h"] == "mamba, experts, attention, mamba, dense, experts"
    assert orders["step3p5"] == "2 (full, 2 local)"


def test_a_window_in_every_layer_is_read(written: Write) -> None:
    given = {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 0}
    assert read(written(**given, layer_types=["sliding_attention"] * 36)).window == 4096
    assert read(written(**given | {"max_window_layers": 36})).window == 0
    late = read(written(**given | {"max_window_layers": 20}, layer_types=["full_attention"] * 20 + ["sliding_attention"] * 16))
    assert late.order == "20 full, 16 local"
    assert [kind.window for _, kind in late.kinds] == [0, 4096]
    with pytest.raises(DesignError, match="layer_types"):
        read(written(**given, layer_types=["full_attention"] * 36))


def test_biases_are_read(written: Write) -> None:
    model = read(written("llama3_70b", attention_bias=True, mlp_bias=True))
    added = 80 * (8192 + 2 * 1024 + 8192 + 2 * 28672 + 8192)
    assert parameter_count(model) - parameter_count(read(written("llama3_70b"))) == added


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"# Qwen3-8B", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1, 2]", "not a group of fields"),
        (b'{"hidden_size": 1, "hidden_size": 2}', '"hidden_size": given twice'),
        (b" " * (1 << 25) + b"{}", "larger than any config.json"),
        (b"{}", "architectures: missing"),
    ],
)
def test_what_is_no_config_is_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(DesignError, match=message) as error:
        model_fields(path)
    assert len(str(error.value).splitlines()) == 1


def test_a_folder_names_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = tmp_path / "models--Qwen--Qwen3-8B/snapshots/0123abcd"
    for folder in (tmp_path / "Qwen3 8B [best]", cached):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(sample("qwen3_8b")))
    monkeypatch.chdir(tmp_path)
    model = compose(["model.from_hf=[Qwen3 8B \\[best\\],models--Qwen--Qwen3-8B/snapshots/0123abcd/config.json]"])["model"]
    assert {key: entry["name"] for key, entry in model.items()} == {"qwen3_8b_best": "Qwen3 8B [best]", "qwen3_8b": "Qwen3-8B"}
    assert read_model_entries("Qwen3 8B [best]", tmp_path).keys() == {"qwen3_8b_best"}


def test_a_file_evaluates_as_the_model_that_ships() -> None:
    for stem in ("qwen3_30b_a3b", "deepseek_v3"):
        mine = compose([f"model.from_hf={Path(__file__).parent / 'hf' / stem}.json"])["model"]
        ours = compose([f"model={stem}"])["model"]
        assert [asked_of(entry_of_model) for entry_of_model in (mine, ours)] == [asked_of(ours)] * 2


def asked_of(config: dict[str, Any]) -> dict[str, float]:
    (model,) = read_models(config).values()
    outcomes = evaluate(stack_designs([base()]), Workload("one", (BatchCase("one", model, ((4, 512, 64),)),)))
    return {name: float(column[0]) for name, column in outcomes.columns.items() if column[0] == column[0]}


values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 70) | st.integers(0, 1 << 70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)
names = st.sampled_from(sorted({name for path in FILES for name in sample(path.stem)})) | st.text(max_size=8)


@pytest.mark.sampled
@given(st.sampled_from(FILES), st.dictionaries(names, values, max_size=3), st.sets(names, max_size=1))
@settings(max_examples=300, deadline=None)
def test_any_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, path: Path, changes: dict[str, Any], absent: set[str]
) -> None:
    fields = {name: value for name, value in (sample(path.stem) | changes).items() if name not in absent}
    file = tmp_path_factory.getbasetemp() / "fuzzed.json"
    file.write_text(json.dumps(fields))
    entry, message = outcome(file)
    assert len(message.splitlines()) == 1 if message else asked_of(entry)["latency"] > 0


small_names = st.sampled_from(sorted({name for values in SMALL.values() for name in values})) | st.text(max_size=8)


@pytest.mark.sampled
@given(st.sampled_from(sorted(SMALL)), st.dictionaries(small_names, values, max_size=3), st.sets(small_names, max_size=1))
@settings(max_examples=300, deadline=None)
def test_any_small_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, stem: str, changes: dict[str, Any], absent: set[str]
) -> None:
    fields = {name: value for name, value in (SMALL[stem] | changes).items() if name not in absent}
    file = tmp_path_factory.getbasetemp() / "fuzzed_small.json"
    file.write_text(json.dumps(fields))
    entry, message = outcome(file)
    if message:
        assert len(message.splitlines()) == 1
    else:
        (model,) = read_models(entry).values()
        assert parameter_count(model) >= active_parameter_count(model) > 0


def outcome(file: Path) -> tuple[dict[str, Any], str]:
    entry = {}
    try:
        entry = {"read": model_fields(file)}
        read_models(entry)
    except DesignError as error:
        return entry, str(error)
    return entry, ""
