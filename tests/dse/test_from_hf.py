"""Hugging Face's `config.json`: read whole, or refused by the field that is not understood."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.compose import compose
from dse.evaluators import evaluate
from dse.from_hf import ARCHITECTURES, HARMLESS, entries, fields_of
from dse.space.design import stacked
from dse.space.errors import DesignError
from dse.space.model import Model
from dse.space.parameters import kv_values, parameters
from dse.space.workload import Case, Workload
from dse.workloads import models
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
    values: dict[str, Any] = json.loads((Path(__file__).parent / f"hf/{stem}.json").read_text())
    return values


def read(path: Path) -> Model:
    (model,) = models({"read": fields_of(path)}).values()
    return model


@each_file
def test_a_file_gives_the_model_that_ships(path: Path) -> None:
    entry = yaml.safe_load((CONF / f"{path.stem}.yaml").read_text()) | {"name": path.stem}
    if path.stem == "phi3_medium":
        entry["window"] = 2047  # the shipped one attends to everything
    (shipped,) = models({path.stem: entry}).values()
    assert read(path) == shipped


@each_file
def test_parameters_are_the_published_ones_and_kv_bytes_are_exact(path: Path) -> None:
    model, published = read(path), yaml.safe_load((CONF / f"{path.stem}.yaml").read_text())["published_parameters"]
    assert parameters(model) == pytest.approx(published, rel=5e-4)
    assert model.layers * kv_values(model) * 2 == KV_BYTES[path.stem]


def test_every_architecture_has_a_sample() -> None:
    assert {sample(path.stem)["architectures"][0] for path in FILES} == set(ARCHITECTURES)


@each_file
@pytest.mark.parametrize("junk", ["?", -1, 1.5, [3, "x"], {"a": 1}, 1 << 40], ids=str)
def test_no_field_that_counts_takes_junk(path: Path, junk: Any, written: Write) -> None:
    for name in sample(path.stem).keys() - HARMLESS:
        with pytest.raises(DesignError, match=name):
            fields_of(written(path.stem, **{name: junk}))


@each_file
def test_a_count_that_changes_changes_the_model(path: Path, written: Write) -> None:
    before, idle = read(written(path.stem)), set()
    for name, value in sample(path.stem).items():
        if name in HARMLESS or isinstance(value, bool) or not isinstance(value, int):
            continue
        try:
            after = read(written(path.stem, **{name: 2 * value}))
        except DesignError:
            continue  # it contradicts another one
        if after == before:
            idle.add(name)
    # a window that is off has no size and no layers; modules that draft tokens are left out
    assert idle <= {"max_window_layers", "sliding_window", "num_nextn_predict_layers"}
    assert not idle or not sample(path.stem).get("use_sliding_window", False)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("qwen3_8b", {"architectures": ["Qwen3NextForCausalLM"]}, "no architecture .*valid: DeepseekV2ForCausalLM"),
    ("qwen3_8b", {"architectures": ["LlamaForCausalLM"]}, "model_type: .*contradicts LlamaForCausalLM"),
    ("qwen3_8b", {"architectures": ["Qwen3ForCausalLM", "LlamaForCausalLM"]}, "not one architecture"),
    ("qwen3_8b", {"architectures": ..., "model_type": ...}, "architectures: missing; valid"),
    ("qwen3_8b", {"architectures": ..., "model_type": "qwen4"}, "did you mean 'qwen"),
    ("qwen3_8b", {"hidden_size": ...}, "hidden_size: missing"),
    ("qwen3_8b", {"head_dim": ...}, "head_dim: missing"),
    ("qwen3_8b", {"num_key_value_heads": 5}, "5 KV heads do not divide 32"),
    ("qwen3_8b", {"some_new_gate": 7}, "some_new_gate.*not understood in this architecture"),
    ("qwen3_8b", {"num_experts": 8}, "num_experts.*not understood in this architecture"),
    ("qwen3_8b", {"hidden_act": "gelu"}, 'hidden_act: "gelu" is not understood; valid: "silu'),
    ("qwen3_8b", {"rope_scaling": {"rope_type": "mrope"}}, "rope_scaling: .*valid: default"),
    ("qwen3_8b", {"torch_dtype": "int3"}, 'torch_dtype: "int3"'),
    ("qwen3_8b", {"dtype": "float16"}, "dtype: float16, but torch_dtype is bfloat16"),
    ("qwen3_8b", {"quantization_config": {"quant_method": "awq", "bits": 4}}, 'quant_method "awq"'),
    ("qwen3_8b", {"layer_types": ["linear_attention"] * 36}, "layer_types"),
    ("qwen3_8b", {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 20}, "max_window_layers: 20 of 36"),
    ("qwen3_8b", {"is_encoder_decoder": True}, "is_encoder_decoder: true"),
    ("qwen3_30b_a3b", {"decoder_sparse_step": 2}, "decoder_sparse_step: 2 is not understood; valid: 1"),
    ("qwen3_30b_a3b", {"mlp_only_layers": [3]}, "mlp_only_layers"),
    ("qwen3_30b_a3b", {"mlp_only_layers": list(range(50))}, "dense_layers: 50 of 48"),
    ("qwen3_30b_a3b", {"num_experts_per_tok": 129}, "129 of 128 experts"),
    ("llama3_70b", {"num_attention_heads": 72}, "head_dim: missing, and hidden_size 8192"),
    ("llama3_70b", {"sliding_window": 4096}, "sliding_window.*not understood"),
    ("mixtral_8x7b", {"attention_bias": True}, "attention_bias: true is not understood; valid: false"),
    ("qwen2_7b", {"attention_bias": False}, "attention_bias: false is not understood; valid: true"),
    ("phi3_medium", {"partial_rotary_factor": 0.75}, "partial_rotary_factor: 0.75"),
    ("deepseek_v3", {"num_key_value_heads": 8}, "num_key_value_heads: 8 is not understood; valid: 128"),
    ("deepseek_v3", {"moe_layer_freq": 2}, "moe_layer_freq: 2"),
    ("deepseek_v3", {"q_lora_rank": ...}, "q_lora_rank: missing"),
    ("deepseek_v3", {"topk_method": "greedy"}, 'topk_method: "greedy"'),
    ("deepseek_v3", {"index_topk": 2048}, "index_topk.*not understood"),
]


@pytest.mark.parametrize(("stem", "changes", "said"), REFUSED, ids=[f"{stem} {c!s:.50}" for stem, c, _ in REFUSED])
def test_what_is_not_understood_is_refused_by_name(stem: str, changes: dict[str, Any], said: str, written: Write) -> None:
    with pytest.raises(DesignError, match=said) as error:
        read(written(stem, **changes))
    assert len(str(error.value).splitlines()) == 1


SAME: list[tuple[str, dict[str, Any]]] = [
    ("qwen3_8b", {"architectures": ...}),
    ("qwen3_8b", {"model_type": ...}),
    ("qwen3_8b", {"torch_dtype": ..., "dtype": "bfloat16"}),
    ("qwen3_8b", {"rope_scaling": {"rope_type": "yarn", "type": "yarn", "factor": 4.0}}),
    ("qwen3_8b", {"rope_scaling": ..., "rope_theta": ..., "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    ("qwen3_8b", {"layer_types": ["full_attention"] * 36}),
    ("qwen3_8b", {"quantization_config": {"quant_method": "fp8"}}),
    ("qwen3_8b", {"some_new_gate": None}),
    ("llama2_7b", {"num_key_value_heads": 32, "head_dim": 128}),
    ("deepseek_v3", {"head_dim": 64, "qk_head_dim": 192, "topk_method": ..., "rope_interleave": True}),
]


@pytest.mark.parametrize(("stem", "changes"), SAME, ids=[f"{stem} {c!s:.50}" for stem, c in SAME])
def test_the_same_said_otherwise_is_the_same_model(stem: str, changes: dict[str, Any], written: Write) -> None:
    assert read(written(stem, **changes)) == read(written(stem))


def test_a_window_in_every_layer_is_read(written: Write) -> None:
    given = {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 0}
    assert read(written(**given, layer_types=["sliding_attention"] * 36)).window == 4096
    assert read(written(**given | {"max_window_layers": 36})).window == 0
    with pytest.raises(DesignError, match="layer_types"):
        read(written(**given, layer_types=["full_attention"] * 36))


def test_biases_are_read(written: Write) -> None:
    model = read(written("llama3_70b", attention_bias=True, mlp_bias=True))
    added = 80 * (8192 + 2 * 1024 + 8192 + 2 * 28672 + 8192)
    assert parameters(model) - parameters(read(written("llama3_70b"))) == added


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"# Qwen3-8B", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1, 2]", "not a group of fields"),
        (b'{"hidden_size": 1, "hidden_size": 2}', '"hidden_size": given twice'),
        (b" " * (1 << 20) + b"{}", "larger than any config.json"),
        (b"{}", "architectures: missing"),
    ],
)
def test_what_is_no_config_is_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(DesignError, match=said) as error:
        fields_of(path)
    assert len(str(error.value).splitlines()) == 1


def test_a_folder_names_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = tmp_path / "models--Qwen--Qwen3-8B/snapshots/0123abcd"
    for folder in (tmp_path / "Qwen3 8B [best]", cached):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(sample("qwen3_8b")))
    monkeypatch.chdir(tmp_path)
    found = compose(["model.from_hf=[Qwen3 8B \\[best\\],models--Qwen--Qwen3-8B/snapshots/0123abcd/config.json]"])["model"]
    assert {key: entry["name"] for key, entry in found.items()} == {"qwen3_8b_best": "Qwen3 8B [best]", "qwen3_8b": "Qwen3-8B"}
    assert entries("Qwen3 8B [best]", tmp_path).keys() == {"qwen3_8b_best"}


def test_a_file_evaluates_as_the_model_that_ships() -> None:
    for stem in ("qwen3_30b_a3b", "deepseek_v3"):
        mine = compose([f"model.from_hf={Path(__file__).parent / 'hf' / stem}.json"])["model"]
        ours = compose([f"model={stem}"])["model"]
        assert [asked_of(one) for one in (mine, ours)] == [asked_of(ours)] * 2


def asked_of(config: dict[str, Any]) -> dict[str, float]:
    (model,) = models(config).values()
    outcomes = evaluate(stacked([base()]), Workload("one", (Case("one", model, ((4, 512, 64),)),)))
    return {name: float(column[0]) for name, column in outcomes.columns.items() if column[0] == column[0]}


values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 70) | st.integers(0, 1 << 70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)
names = st.sampled_from(sorted({name for path in FILES for name in sample(path.stem)})) | st.text(max_size=8)


@given(st.sampled_from(FILES), st.dictionaries(names, values, max_size=3), st.sets(names, max_size=1))
@settings(max_examples=300, deadline=None)
def test_any_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, path: Path, changes: dict[str, Any], absent: set[str]
) -> None:
    fields = {name: value for name, value in (sample(path.stem) | changes).items() if name not in absent}
    file = tmp_path_factory.getbasetemp() / "fuzzed.json"
    file.write_text(json.dumps(fields))
    entry, said = outcome(file)
    assert len(said.splitlines()) == 1 if said else asked_of(entry)["latency"] > 0


def outcome(file: Path) -> tuple[dict[str, Any], str]:
    entry = {}
    try:
        entry = {"read": fields_of(file)}
        models(entry)
    except DesignError as error:
        return entry, str(error)
    return entry, ""
