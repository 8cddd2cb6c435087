"""Models from graphs: the totals of a family's import, blocks of no family, and files that are refused in one line."""

import json
import random
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dse.analysis.evaluation import evaluate_config
from dse.config.compose import compose
from dse.config.workloads import read_models
from dse.evaluators.graph.operators import MatMulOp, useful_flop
from dse.evaluators.graph.step_counts import StepCounts, prefill_step
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.layouts.model_weights import model_weight_bytes
from dse.evaluators.layouts.tensor_parallel import device_memory
from dse.huggingface import model_fields
from dse.model_graphs import graph_fields, read_graph_entries
from dse.model_graphs.sizes import Size, parse_size
from dse.space.errors import DesignError
from dse.space.layers import has_described_layers, layers, per_reach
from dse.space.mapping import FormatPlan
from dse.space.model import LayerOperator, Model
from dse.space.parameter_counts import active_parameter_count, kv_values_all_layers, parameter_count
from dse.space.workload import BatchCase
from tests.model_graphs.layer_forms import LATENT, Form, dense, grouped_query, routed

SAMPLES = Path(__file__).parent / "samples"
HALF = FormatPlan(weights="fp16", activations="fp16", kv="fp16")
GROUPED = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 320}
WIDE = {"hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32, "num_key_value_heads": 8}
UNTIED = {"tie_word_embeddings": False, "max_position_embeddings": 512}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"} | UNTIED
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"} | UNTIED
MIXTRAL = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"} | UNTIED
GEMMA2 = {"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2"} | UNTIED | {"tie_word_embeddings": True}
DEEPSEEK = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"} | UNTIED

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": LLAMA | GROUPED | {"intermediate_size": 136, "head_dim": 8},
    "qwen3": QWEN3 | GROUPED | {"intermediate_size": 104, "head_dim": 20, "tie_word_embeddings": True},
    "mixtral": MIXTRAL | GROUPED | {"intermediate_size": 72, "num_local_experts": 8, "num_experts_per_tok": 3},
    "deepseek": DEEPSEEK
    | {
        "hidden_size": 48, "intermediate_size": 112, "moe_intermediate_size": 40, "num_hidden_layers": 3,
        "first_k_dense_replace": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "n_shared_experts": 2, "n_group": 4, "topk_group": 2, "q_lora_rank": 36, "kv_lora_rank": 28,
        "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 16, "vocab_size": 320, "topk_method": "noaux_tc",
    },
    "gemma2": GEMMA2 | GROUPED | {"intermediate_size": 88, "head_dim": 12, "sliding_window": 64},
    "llama3_8b": LLAMA | WIDE | {"intermediate_size": 14336, "vocab_size": 128256},
    "qwen3_8b": QWEN3 | WIDE | {"intermediate_size": 12288, "head_dim": 128, "vocab_size": 151936},
    "mixtral_8x7b": MIXTRAL
    | WIDE
    | {"intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2},
    "deepseek_v3": DEEPSEEK
    | {
        "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 2,
        "first_k_dense_replace": 1, "num_attention_heads": 128, "num_key_value_heads": 128, "n_routed_experts": 256,
        "num_experts_per_tok": 8, "n_shared_experts": 1, "n_group": 8, "topk_group": 4, "q_lora_rank": 1536,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
        "topk_method": "noaux_tc",
    },
}  # fmt: skip
"""What a `config.json` of each exported model says."""

FILES = sorted(path for path in SAMPLES.iterdir() if path.stem.removesuffix("_core") in CONFIGS)


def model_of(entry: dict[str, Any]) -> Model:
    return read_models({"sample": entry})["sample"]


def family_model(tmp_path: Path, config: dict[str, Any]) -> Model:
    path = tmp_path / "sample" / "config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(config))
    return model_of(model_fields(path))


def totals(model: Model) -> dict[str, Any]:
    """Weights, cached values, and multiply-adds of a prompt and of a decode step."""
    prompts = prefill_step(BatchCase("", model, ((3, 100, 1),)))
    seen = per_reach(model, lambda reach: float(3 * reach.seen_positions(120)))
    decode = StepCounts("decode", 3.0, 3.0, seen, seen)
    return {
        "parameters": parameter_count(model),
        "active": active_parameter_count(model),
        "cached values": kv_values_all_layers(model),
        "weight bytes": model_weight_bytes(model, HALF),
        "operations": [
            sum(part.times * useful_flop(operator) for part in transformer_segments(model, step) for operator in part.operators)
            for step in (prompts, decode)
        ],
    }


def described(model: Model) -> tuple[tuple[str, LayerOperator], ...]:
    """Operators of a model whose layers are alike."""
    (mixing,) = layers(model).mixings
    return mixing.of.operators


def write_form(tmp_path: Path, sizes: dict[str, int], operators: Form, **more: Any) -> Path:
    path = tmp_path / "form.yaml"
    path.write_text(yaml.safe_dump({"sizes": sizes, "operators": operators} | more, sort_keys=False))
    return path


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_exported_model_has_the_totals_of_its_family(path: Path, tmp_path: Path) -> None:
    if path.suffix == ".onnx":
        pytest.importorskip("onnx")
    assert totals(model_of(graph_fields(path, {}))) == totals(family_model(tmp_path, CONFIGS[path.stem.removesuffix("_core")]))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_exported_model_has_the_record_of_its_family(path: Path, tmp_path: Path) -> None:
    if path.suffix == ".onnx":
        pytest.importorskip("onnx")
    ours = model_of(graph_fields(path, {"max_position": 512}) | {"name": ""})
    family = family_model(tmp_path, CONFIGS[path.stem.removesuffix("_core")])
    shown = {name for name in Model.__dataclass_fields__ if getattr(ours, name) != getattr(family, name)}
    if family.kinds:  # which name kinds in another way
        assert [replace(each.of, name="") for each in layers(ours).mixings] == [
            replace(each.of, name="", max_position=512) for each in layers(family).mixings
        ]
        return
    # what no model with experts in all layers reads, and a chosen few of experts by groups
    assert shown <= {"name", "max_position", "head_dim", "kv_heads", "ffn_intermediate"}
    assert not {"head_dim", "kv_heads"} & shown or family.latent is not None


def draw_sizes(seed: int) -> dict[str, int]:
    draw = random.Random(seed)
    kv_heads = draw.choice((1, 2, 4, 8))
    return {
        "h": 8 * draw.randint(2, 40), "a": kv_heads * draw.randint(1, 6), "k": kv_heads, "d": 4 * draw.randint(2, 40),
        "f": draw.randint(9, 500), "e": draw.randint(4, 20),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("family", ["llama", "qwen3", "mixtral"])
def test_a_layer_on_paper_has_the_totals_of_its_family(family: str, seed: int, tmp_path: Path) -> None:
    sizes, layers, top_k = draw_sizes(seed), 1 + seed, 1 + seed % 4
    config = {"llama": LLAMA, "qwen3": QWEN3, "mixtral": MIXTRAL}[family] | {
        "hidden_size": sizes["h"], "num_attention_heads": sizes["a"], "num_key_value_heads": sizes["k"], "head_dim": sizes["d"],
        "intermediate_size": sizes["f"], "num_hidden_layers": layers, "vocab_size": 1000,
    }  # fmt: skip
    feeding = dense()
    if family == "mixtral":
        config |= {"num_local_experts": sizes["e"], "num_experts_per_tok": top_k}
        feeding = routed(top_k, shared=False)
    path = write_form(tmp_path, sizes, grouped_query(family == "qwen3") | feeding, layers=layers, vocab=1000)
    assert totals(model_of(graph_fields(path, {}))) == totals(family_model(tmp_path, config))


@pytest.mark.parametrize("seed", range(4))
def test_a_latent_layer_on_paper_has_the_totals_of_its_family(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    latent = {"a": draw.randint(2, 9), "n": draw.randint(5, 40), "p": 2 * draw.randint(1, 9), "v": draw.randint(5, 40)}
    ranks = {"r": draw.randint(41, 99), "l": draw.randint(100, 160)}
    sizes = {"h": 8 * draw.randint(30, 50), "f": draw.randint(9, 60), "e": draw.randint(4, 20), "s1": 0} | latent | ranks
    sizes |= {
        "q": latent["n"] + latent["p"],
        "w": ranks["l"] + latent["p"],
        "u": latent["n"] + latent["v"],
        "s1": 2 * sizes["f"],
    }
    config = CONFIGS["deepseek"] | {
        "hidden_size": sizes["h"], "num_attention_heads": sizes["a"], "num_key_value_heads": sizes["a"], "n_group": 1,
        "topk_group": 1, "first_k_dense_replace": 0, "moe_intermediate_size": sizes["f"], "n_routed_experts": sizes["e"],
        "num_experts_per_tok": 3, "q_lora_rank": sizes["r"], "kv_lora_rank": sizes["l"], "qk_nope_head_dim": sizes["n"],
        "qk_rope_head_dim": sizes["p"], "v_head_dim": sizes["v"], "num_hidden_layers": 5,
    }  # fmt: skip
    path = write_form(tmp_path, sizes, LATENT | routed(3, shared=True), layers=5, vocab=320)
    ours, family = totals(model_of(graph_fields(path, {}))), totals(family_model(tmp_path, config))
    biases = 5 * sizes["e"]  # of the router's scores, which the form leaves out
    for name, scale in (("parameters", 1), ("active", 1), ("weight bytes", 2)):
        ours[name] += scale * biases
    assert ours == family


def test_attention_and_an_ffn_side_by_side_are_a_parallel_layer(tmp_path: Path) -> None:
    sizes = draw_sizes(1)
    operators = grouped_query(False) | dense()
    operators |= {name: operators[name] | {"of": "first"} for name in ("gate", "up")}
    operators["out"] = {"add": ["mid", "down"]}
    del operators["second"]
    model = model_of(graph_fields(write_form(tmp_path, sizes, operators, layers=3), {}))
    after = model_of(graph_fields(write_form(tmp_path, sizes, grouped_query(False) | dense(), layers=3), {}))
    assert model.parallel
    assert not has_described_layers(model)
    assert parameter_count(after) - parameter_count(model) == 3 * sizes["h"]  # of a norm a layer


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["dense", "routed"])
def test_a_described_layer_has_the_totals_of_the_known_one(kind: str, seed: int, tmp_path: Path) -> None:
    """An operator without weights that nobody knows makes the same layer one of no family."""
    sizes = draw_sizes(seed)
    known = grouped_query(True) | (dense() if kind == "dense" else routed(2, shared=False))
    strange = dict(known)
    strange["o"] = known["o"] | {"of": "odd"}
    strange["inner"] = {"elements": "strange", "of": ["act", "up"]}
    names = list(known)
    names.insert(names.index("o"), "odd")
    strange["odd"] = {"elements": "odd", "of": "seen"}
    strange = {name: strange[name] for name in names}
    plain = model_of(graph_fields(write_form(tmp_path, sizes, known, layers=4, vocab=99), {}))
    described = model_of(graph_fields(write_form(tmp_path, sizes, strange, layers=4, vocab=99), {}))
    assert has_described_layers(described)
    assert totals(described) == totals(plain)


EXTRA_ELEMENTS: dict[str, tuple[Form, str]] = {
    "unknown with operations": ({"elements": "sinh", "operations": 10000}, "sinh"),
    "activation": ({"elements": "gelu"}, "gelu"),
    "known with other operations": ({"elements": "mul", "operations": 50}, "mul"),
}


@pytest.mark.parametrize("name", EXTRA_ELEMENTS)
@pytest.mark.parametrize("behind", ["q", "o", "act"])
def test_elements_that_no_known_block_has_are_counted_and_named(name: str, behind: str, tmp_path: Path) -> None:
    fields, word = EXTRA_ELEMENTS[name]
    known = grouped_query(False) | dense()
    plain = graph_fields(write_form(tmp_path, draw_sizes(2), known), {})
    operators: Form = {}
    for key, operator in known.items():
        operators[key] = _with_operand(operator, behind, "extra") if "extra" in operators else operator
        operators |= {"extra": fields | {"of": behind}} if key == behind else {}
    entry = graph_fields(write_form(tmp_path, draw_sizes(2), operators), {})
    assert f"in no known block, counted as elements: {word}" in entry["graph"]
    assert "by operators" not in plain["graph"]
    most = max(each.operations for _, each in described(model_of(entry)) if each.kind == "elements")
    assert most >= fields.get("operations", 8)


def _with_operand(operator: Form, old: str, new: str) -> Form:
    def changed(value: Any) -> Any:
        return [new if each == old else each for each in value] if isinstance(value, list) else new if value == old else value

    return {key: changed(value) if key != "elements" else value for key, value in operator.items()}


def test_scales_of_queries_stay_in_a_known_block(tmp_path: Path) -> None:
    operators: Form = {}
    for key, operator in (grouped_query(False) | dense()).items():
        operators[key] = _with_operand(operator, "q", "scaled") if key == "seen" else operator
        operators |= {"scaled": {"elements": "mul", "of": "q"}} if key == "q" else {}
    assert not has_described_layers(model_of(graph_fields(write_form(tmp_path, draw_sizes(2), operators), {})))


@pytest.mark.parametrize("ending", ["pt2", "onnx"])
def test_a_mixture_of_two_attentions_needs_no_code(ending: str) -> None:
    if ending == "onnx":
        pytest.importorskip("onnx")
    entry = graph_fields(SAMPLES / f"two_attentions.{ending}", {"layers": 3, "vocab": 320})
    assert "sinh" in entry["graph"]
    model = model_of(entry)
    attends = [each for _, each in described(model) if each.kind == "attention"]
    assert [(each.heads, each.kv_heads, each.qk_dim, each.window) for each in attends] == [(4, 4, 12, 64), (4, 1, 12, 0)]
    hidden, rows = 48, 4 * 12
    weights = hidden * (3 * rows + 6 * 12 + 1) + rows * hidden + 2 * hidden * 100 + 100 + hidden + 2 * hidden
    assert parameter_count(model) == 3 * weights + 2 * 320 * hidden + hidden
    assert kv_values_all_layers(model) == 3 * 2 * 12 * (4 + 1)


@pytest.mark.parametrize("ending", ["pt2", "onnx"])
def test_a_softmax_and_norms_in_small_operators_are_a_known_layer(ending: str) -> None:
    if ending == "onnx":
        pytest.importorskip("onnx")
    model = model_of(graph_fields(SAMPLES / f"written_out.{ending}", {}))
    assert not has_described_layers(model)
    assert (model.heads, model.norm, model.qkv_bias, model.ffn_bias, model.gated_ffn) == (4, "layernorm", True, True, False)


@pytest.mark.parametrize("ending", ["pt2", "onnx"])
def test_cached_keys_and_values_are_those_of_new_tokens(ending: str, tmp_path: Path) -> None:
    if ending == "onnx":
        pytest.importorskip("onnx")
    model = model_of(graph_fields(SAMPLES / f"with_cache.{ending}", {"vocab": 320}))
    config = LLAMA | GROUPED | {"intermediate_size": 70, "head_dim": 10, "num_hidden_layers": 1}
    assert not has_described_layers(model)
    assert totals(model) == totals(family_model(tmp_path, config))


def test_products_of_a_described_layer_divide_over_devices() -> None:
    model = model_of(graph_fields(SAMPLES / "two_attentions.pt2", {"layers": 2}))
    parts = transformer_segments(model, StepCounts("decode", 1.0, 1.0, 1.0, 1.0))

    def weights(tp: int) -> float:
        return float(device_memory(parts, model, tp, HALF, cached=1.0, sequences=1.0, tokens=1.0).weights)

    products = [operator for part in parts for operator in part.operators if isinstance(operator, MatMulOp)]
    undivided = {operator.name for operator in products if not (operator.k.split or operator.n.split)}
    assert undivided == {"linear_2", "linear_3"}  # keys of one KV head beside queries, and one column
    assert weights(4) < 0.6 * weights(1)


def question(path: Path, *words: str) -> dict[str, Any]:
    chip = [] if any(word.startswith("chip=") for word in words) else ["chip=h100"]
    return compose([*chip, f"model.from_graph={path}", "workload.batch=[4]", *words])


def test_a_graph_answers_with_time_memory_and_cache(capsys: pytest.CaptureFixture[str]) -> None:
    from dse.commands.evaluate_output import print_evaluation_of

    config = question(SAMPLES / "two_attentions.pt2", "model.layers=8", "model.vocab=320")
    assert print_evaluation_of(config, as_json=False) == 0
    screen = " ".join(capsys.readouterr().out.split())
    assert screen.index("counted as elements: sinh") < 250
    assert "KV cache" in screen
    assert "TPOT" in screen
    assert print_evaluation_of(config, as_json=True) == 0
    assert any("counted as elements: sinh" in remark for remark in json.loads(capsys.readouterr().out)["remarks"])


def test_other_layouts_refuse_described_layers_in_one_line() -> None:
    config = question(SAMPLES / "two_attentions.pt2", "chip=wse2")
    with pytest.raises(DesignError, match="a model on regions of a mesh cannot divide; use devices"):
        evaluate_config(config)


def test_known_blocks_run_on_other_layouts() -> None:
    assert evaluate_config(question(SAMPLES / "qwen3.pt2", "chip=wse2")).metrics["throughput"] > 0


def test_a_step_with_more_layers_takes_longer() -> None:
    def latency(layers: int) -> float:
        config = question(SAMPLES / "two_attentions.pt2", f"model.layers={layers}", "inference_engine=none", "stack=ideal")
        return evaluate_config(config).metrics["latency"]

    assert latency(8) == pytest.approx(2 * latency(4), rel=0.1)


LLAMA_SIZES = {"h": 4096, "a": 32, "k": 8, "d": 128, "r": 64, "f": 14336}


def turned_llama(tmp_path: Path, **part: str) -> Path:
    """Llama-3-8B on paper, with rotations of queries and keys."""
    operators: Form = {}
    for key, operator in (grouped_query(False) | dense()).items():
        if key == "seen":
            operators |= {"q_turned": {"rotary": "q"} | part, "k_turned": {"rotary": "k"} | part}
            operator = {"attention": ["q_turned", "k_turned", "v"]}
        operators[key] = operator
    return write_form(tmp_path, LLAMA_SIZES, operators, layers=32, vocab=128256, max_position=8192)


def test_llama_on_paper_answers_as_llama_by_name(tmp_path: Path) -> None:
    paper = evaluate_config(question(turned_llama(tmp_path)))
    by_name = evaluate_config(compose(["chip=h100", "model=llama3_8b", "workload.batch=[4]"]))
    assert dict(paper.metrics) == dict(by_name.metrics)


def test_a_rotation_among_elements_is_one(tmp_path: Path) -> None:
    operators: Form = {}
    for key, operator in (grouped_query(False) | dense()).items():
        operators |= {"turned": {"elements": "rotary", "of": "q"}} if key == "seen" else {}
        operators[key] = {"attention": ["turned", "k", "v"]} if key == "seen" else operator
    entry = graph_fields(write_form(tmp_path, draw_sizes(1), operators), {})
    assert (entry["rope"], "rotation" in entry["graph"]) == (1.0, False)


def test_a_part_of_a_head_may_rotate(tmp_path: Path) -> None:
    entry = graph_fields(turned_llama(tmp_path, part="r"), {})
    assert (entry["rope"], "rotation" in entry["graph"]) == (0.5, False)
    with pytest.raises(DesignError, match=r"q_turned\.part: 'f' is no dimension of at most the columns of 'd'"):
        graph_fields(turned_llama(tmp_path, part="f"), {})


@pytest.mark.parametrize("kv_heads", [3, 16])
def test_heads_that_kv_heads_do_not_divide_are_refused(kv_heads: int, tmp_path: Path) -> None:
    path = write_form(tmp_path, draw_sizes(1) | {"a": 8, "k": kv_heads}, grouped_query(False) | dense())
    assert f"attention 'seen' has 8 heads, which {kv_heads} KV heads do not divide" in refused(path)


def test_keys_and_values_of_other_heads_are_refused(tmp_path: Path) -> None:
    operators = grouped_query(False) | dense()
    operators["v"] = {"einsum": "b t h, h a d -> b t a d", "of": "first"}
    path = write_form(tmp_path, draw_sizes(1) | {"a": 8, "k": 4}, operators)
    assert "operators.seen: keys of 4 heads, but values of 8" in refused(path)


def test_attention_without_a_rotation_is_named(tmp_path: Path) -> None:
    entry = graph_fields(write_form(tmp_path, draw_sizes(1), grouped_query(False) | dense(), layers=3), {})
    assert "attention without a rotation of positions (RoPE) in the graph: 3 layers" in entry["graph"]


def test_one_of_two_attentions_without_a_rotation_is_named(tmp_path: Path) -> None:
    operators: Form = {}
    for key, operator in (grouped_query(False) | dense()).items():
        if key == "o":
            operators["q_turned"] = {"rotary": "q"}
            operators["near"] = {"attention": ["q_turned", "k", "v"], "window": 64}
            operators["both"] = {"add": ["seen", "near"]}
            operator = operator | {"of": "both"}
        operators[key] = operator
    entry = graph_fields(write_form(tmp_path, draw_sizes(1), operators), {})
    assert entry["graph"].startswith("1 layer by operators")
    assert "attention without a rotation of positions (RoPE) in the graph: 1 layer" in entry["graph"]
    operators["seen"] = {"attention": ["q_turned", "k", "v"]}
    names = [name for name in operators if name != "q_turned"]
    names.insert(names.index("seen"), "q_turned")
    entry = graph_fields(write_form(tmp_path, draw_sizes(1), {name: operators[name] for name in names}), {})
    assert "rotation" not in entry["graph"]


# files that are refused


def refused(path: Path, declared: dict[str, Any] | None = None) -> str:
    with pytest.raises(DesignError) as error:
        model_of(graph_fields(path, declared or {}))
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


def test_shapes_that_depend_on_values_are_refused() -> None:
    assert "depends on values" in refused(SAMPLES / "counted_rows.pt2")


@pytest.mark.parametrize("name", ["llama.pt2", "llama.onnx"])
def test_a_file_cut_anywhere_is_refused(name: str, tmp_path: Path) -> None:
    if name.endswith("onnx"):
        pytest.importorskip("onnx")
    content, path = (SAMPLES / name).read_bytes(), tmp_path / name
    for share in (0.0, 0.001, 0.1, 0.5, 0.9, 0.999):
        path.write_bytes(content[: int(share * len(content))])
        assert str(path) in refused(path)


@pytest.mark.parametrize("name", ["llama.pt2", "llama.onnx"])
def test_a_damaged_file_is_read_or_refused(name: str, tmp_path: Path) -> None:
    if name.endswith("onnx"):
        pytest.importorskip("onnx")
    content, path, draw = (SAMPLES / name).read_bytes(), tmp_path / name, random.Random(0)
    for _ in range(60):
        damaged = bytearray(content)
        for _ in range(draw.choice((1, 3, 20))):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        path.write_bytes(damaged)
        with suppress(DesignError):
            model_of(graph_fields(path, {}))


def changed_program(tmp_path: Path, change: Callable[[dict[str, Any]], None], name: str = "llama.pt2") -> Path:
    path = tmp_path / name
    with zipfile.ZipFile(SAMPLES / name) as archive, zipfile.ZipFile(path, "w") as changed:
        for entry in archive.namelist():
            content = archive.read(entry)
            if "/models/" in entry:
                program = json.loads(content)
                change(program)
                content = json.dumps(program).encode()
            changed.writestr(entry, content)
    return path


def test_another_version_of_the_schema_names_the_versions_that_are_read(tmp_path: Path) -> None:
    def change(program: dict[str, Any]) -> None:
        program["schema_version"] = {"major": 9, "minor": 1}

    assert "schema version 9.1; read are 8.x" in refused(changed_program(tmp_path, change))


def test_a_cycle_is_refused(tmp_path: Path) -> None:
    def change(program: dict[str, Any]) -> None:
        nodes = program["graph_module"]["graph"]["nodes"]
        last = nodes[-1]["outputs"][0]["as_tensor"]["name"]
        first = next(node for node in nodes if node["target"].startswith("torch.ops.aten.linear"))
        first["inputs"][0]["arg"]["as_tensor"]["name"] = last

    assert "form a cycle" in refused(changed_program(tmp_path, change))


def test_a_program_without_symbolic_tokens_is_refused(tmp_path: Path) -> None:
    def change(program: dict[str, Any]) -> None:
        for tensor in program["graph_module"]["graph"]["tensor_values"].values():
            tensor["sizes"] = [{"as_int": 8} if "as_expr" in size else size for size in tensor["sizes"]]

    assert "dynamic_shapes" in refused(changed_program(tmp_path, change))


def test_an_unknown_operator_is_named_and_counted_as_elements(tmp_path: Path) -> None:
    def change(program: dict[str, Any]) -> None:
        for node in program["graph_module"]["graph"]["nodes"]:
            node["target"] = node["target"].replace("torch.ops.aten.silu.default", "torch.ops.mine.bump.default")

    entry = graph_fields(changed_program(tmp_path, change), {})
    assert entry["graph"].endswith("counted as elements: bump")
    model = model_of(entry)
    plain = model_of(graph_fields(SAMPLES / "llama.pt2", {}))
    assert totals(model) == totals(plain)
    assert [each.outputs for name, each in described(model) if name == "bump"] == [136]


def test_scores_without_a_softmax_are_counted_and_named(tmp_path: Path) -> None:
    def change(program: dict[str, Any]) -> None:
        for node in program["graph_module"]["graph"]["nodes"]:
            node["target"] = node["target"].replace("torch.ops.aten.softmax.int", "torch.ops.aten.relu.default")

    entry = graph_fields(changed_program(tmp_path, change, "written_out.pt2"), {})
    assert "no KV cache is counted: product_of_pairs" in entry["graph"]
    model, known = model_of(entry), model_of(graph_fields(SAMPLES / "written_out.pt2", {}))
    assert kv_values_all_layers(model) == 0
    assert totals(model)["operations"] == totals(known)["operations"]


def test_weights_that_the_output_does_not_need_are_named(tmp_path: Path) -> None:
    def change(program: dict[str, Any]) -> None:
        nodes = program["graph_module"]["graph"]["nodes"]
        sums = [node for node in nodes if node["target"] == "torch.ops.aten.add.Tensor"]
        last = sums[-1]["inputs"]  # of the second layer: its FFN is left out, and its residual stream kept
        last[1] = last[0]

    entry = graph_fields(changed_program(tmp_path, change, "written_out.pt2"), {})
    assert "not counted, as the first output does not need it: " in entry["graph"]


def test_an_exported_layer_of_another_width_does_not_repeat(tmp_path: Path) -> None:
    def change(program: dict[str, Any]) -> None:
        graph = program["graph_module"]["graph"]
        product = next(node for node in graph["nodes"] if node["target"].startswith("torch.ops.aten.gelu"))
        graph["outputs"][0]["as_tensor"]["name"] = product["outputs"][0]["as_tensor"]["name"]

    path = changed_program(tmp_path, change, "written_out.pt2")
    assert graph_fields(path, {})["layers"] == 1
    assert "has 128 values a token, but hidden states 32; layers that repeat need the same" in refused(path, {"layers": 2})


def test_an_archive_of_zeros_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("bomb/models/bomb.json", "w") as stream:
        for _ in range(160):
            stream.write(bytes(1 << 20))
    assert "MB of JSON" in refused(path)


def test_values_of_weights_in_an_onnx_file_are_not_read(tmp_path: Path) -> None:
    """Six gigabytes of weights, in a file with a hole."""
    onnx = pytest.importorskip("onnx")
    model = onnx.load(SAMPLES / "llama.onnx")
    tensor = onnx.TensorProto(name="unread", data_type=1, dims=[1, 3 << 29])
    head, values = tensor.SerializeToString(), 6 << 30
    message = head + b"\x4a" + varint(values)
    graph = model.graph.SerializeToString() + b"\x2a" + varint(len(message) + values) + message
    model.ClearField("graph")
    path = tmp_path / "large.onnx"
    with path.open("wb") as stream:
        stream.write(model.SerializeToString() + b"\x3a" + varint(len(graph) + values) + graph)
        stream.truncate(stream.tell() + values)
    tracemalloc.start()
    entry = graph_fields(path, {})
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert entry["layers"] == 2
    assert most < 20e6


def varint(value: int) -> bytes:
    written = b""
    while value > 0x7F:
        written += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return written + bytes((value,))


def test_an_onnx_file_without_end_of_messages_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    path = tmp_path / "deep.onnx"
    path.write_bytes(b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" + struct.pack("q", 1))
    assert "no ONNX file, or a cut one" in refused(path)


def test_an_onnx_file_of_zeros_is_refused_at_its_first_field(tmp_path: Path) -> None:
    """A gigabyte, in a file with a hole."""
    pytest.importorskip("onnx")
    path = tmp_path / "zeros.onnx"
    with path.open("wb") as stream:
        stream.truncate(1 << 30)
    text = refused(path)
    assert "no ONNX file, or a cut one (a field of number 0)" in text
    assert text.count(str(path)) == 1


def test_an_onnx_file_of_very_many_fields_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    monkeypatch.setattr("dse.model_graphs.onnx_file.MAX_FIELDS", 1000)
    path = tmp_path / "fields.onnx"
    path.write_bytes(bytes((9 << 3, 0)) * 2000)
    assert "over 1,000 fields" in refused(path)


FORM = {"sizes": {"h": 8, "f": 16}, "operators": {"up": {"einsum": "b t h, h f -> b t f", "of": "x"}}}

WRONG_FORMS: dict[str, tuple[Any, str]] = {
    "no mapping": ([1, 2], "no operators"),
    "other field": (FORM | {"layer": 3}, "no field 'layer'; did you mean 'layers'"),
    "negative size": (FORM | {"sizes": {"h": -8, "f": 16}}, "sizes.h: '-8' is not a whole number above 0"),
    "not a number": (FORM | {"sizes": {"h": float("nan"), "f": 16}}, "sizes.h: 'nan' is not a whole number"),
    "huge size": (FORM | {"sizes": {"h": 10**30, "f": 16}}, "is not a whole number above 0"),
    "reserved": (FORM | {"sizes": {"b": 8}}, "cannot name a dimension"),
    "no size": (FORM | {"sizes": {"h": 8}}, "dimension 'f' has no size"),
    "no form": (FORM | {"operators": {"up": {"of": "x"}}}, "operators.up: needs one of einsum"),
    "no operator": (FORM | {"operators": {"up": 3}}, "operators.up: needs one of einsum"),
    "later operand": (
        FORM | {"operators": {"a": {"add": ["x", "c"]}, "c": {"norm": "x"}}}, "operators.a: no result 'c' above it",
    ),
    "itself": (FORM | {"operators": {"a": {"add": ["x", "a"]}}}, "no result 'a' above it"),
    "other dimensions": (
        FORM | {"operators": {"up": {"einsum": "b t f, f h -> b t h", "of": "x"}}}, "x has dimensions 'b t h', but einsum says",
    ),
    "no arrow": (FORM | {"operators": {"up": {"einsum": "b t h", "of": "x"}}}, "is none; write as"),
    "not in operands": (
        FORM | {"operators": {"up": {"einsum": "b t h, h h -> b t f", "of": "x"}}}, "'f' is in the result, but in no operand",
    ),
    "routed": (
        FORM | {"operators": {"up": {"einsum": "b t h, h f -> b t f", "of": "x", "routed": 2}}}, "needs a weight whose first",
    ),
    "attention of three dimensions": (
        FORM | {"operators": {"up": {"attention": ["x", "x", "x"]}}}, "queries need dimensions 'b t HEADS DIM'",
    ),
    "unused": (
        FORM | {"operators": FORM["operators"] | {"whole": {"norm": "x"}}}, "operators.up: no operator takes its result",
    ),
    "last result": (FORM, "operators.up: the last result has dimensions 'b t f', but the next layer takes 'b t h'"),
    "sum": (
        FORM | {"operators": FORM["operators"] | {"whole": {"add": ["x", "up"]}}},
        "operators.whole: operands of dimensions 'b t h' and 'b t f'; name results of the same",
    ),
    "product of elements": (
        FORM | {"operators": FORM["operators"] | {"whole": {"elements": "mul", "of": ["x", "up"]}}},
        "operators.whole: operands of dimensions",
    ),
    "too many layers": (FORM | {"layers": 100_000_000}, "layers: '100000000' is not a whole number above 0 and at most 10,000"),
    "tied": (FORM | {"tied": "maybe"}, "tied: 'maybe' is neither true nor false"),
    "bias": (
        FORM | {"operators": {"up": {"einsum": "b t h, h f -> b t f", "of": "x", "bias": "on"}}}, "'on' is neither true",
    ),
    "layers": (FORM | {"layers": "many"}, "layers: 'many' is not a whole number"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_FORMS)
def test_a_wrong_form_is_refused_by_its_operator(name: str, tmp_path: Path) -> None:
    document, text = WRONG_FORMS[name]
    path = tmp_path / "form.yaml"
    path.write_text(yaml.safe_dump(document))
    assert text in refused(path)


def test_a_form_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "form.yaml"
    path.write_bytes("sizes: {hé: 3}".encode("utf-16"))
    assert "no YAML" in refused(path)


def test_an_error_of_yaml_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "form.yaml"
    path.write_text("name: cut\nsizes: {h: 3\noperators: {a: 1}\n")
    text = refused(path)
    assert f"{path}, line 3: no YAML: " in text
    assert "unicode string" not in text
    assert not text.endswith(",")


def test_a_form_with_code_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "form.yaml"
    path.write_text("operators: !!python/object/apply:os.system ['exit 1']")
    assert "no YAML" in refused(path)


def test_layers_in_a_graph_must_divide_those_that_are_declared() -> None:
    assert "model.layers=3 is no multiple of the 2 layers" in refused(SAMPLES / "llama.pt2", {"layers": 3})


def test_a_missing_or_other_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DesignError, match=r"no file 'none\.onnx'"):
        read_graph_entries("none.onnx", tmp_path, {})
    path = tmp_path / "model.bin"
    path.write_bytes(b"")
    assert "valid: .onnx (ONNX), .pt2" in refused(path)


def test_settings_of_graphs_need_a_graph() -> None:
    for words, text in (
        (["model.layers=8"], "model.layers: is of graphs only"),
        (["model.from_graph=null"], "model.from_graph: null names no file"),
        (["model.from_graph=x.onnx", "model=llama3_8b"], "remove one of them"),
        ([f"model.from_graph={SAMPLES / 'llama.pt2'}", "model.layers=-2"], "model.layers: -2 is below the minimum"),
    ):
        with pytest.raises(DesignError, match=text):
            compose(words)


def test_two_graphs_of_one_name_are_two_models(tmp_path: Path) -> None:
    paths = [str(SAMPLES / "llama.pt2")] * 2
    assert list(read_graph_entries(paths, tmp_path, {})) == ["llama", "llama_2"]


def test_sizes_of_both_forms_of_exporters_are_read() -> None:
    tokens, batch = Size.symbol("s27"), Size.symbol("s23")
    text = "Add(Mul(Integer(2), Symbol('s23', positive=True, integer=True), Symbol('s27', positive=True)), Integer(-1))"
    assert parse_size(text) == parse_size("2*s23*s27 - 1") == Size.constant(2) * batch * tokens + Size.constant(-1)
    assert parse_size("s23//2") is None
    assert parse_size("(" * 400) is None
