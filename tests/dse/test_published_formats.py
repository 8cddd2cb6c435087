"""A design without room for a model is told the formats in which its file is published, where these would do."""

import json
from pathlib import Path
from typing import Any

import pytest

from dse.analysis.evaluation import Evaluation, evaluate_config
from dse.analysis.published_formats import describe_published_formats
from dse.config.compose import compose
from dse.config.question import build_question
from tests.dse.published_models import PUBLISHED

INT4 = {"config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 128, "type": "int"}}}}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
QUANTISED: dict[str, tuple[str, dict[str, Any]]] = {
    "mapping.precision.weights=int4_g128": (
        "Yi-34B", {"quant_method": "compressed-tensors", "format": "pack-quantized", **INT4}
    ),
    "mapping.precision.weights=fp8": ("Yi-34B", {"quant_method": "modelopt", "quant_algo": "FP8"}),
    "mapping.precision.weights=nvfp4 mapping.precision.kv=fp8": ("Yi-34B", {**MODELOPT, "kv_cache_quant_algo": "FP8"}),
    "+mapping.precision.experts=nvfp4": ("Phi-3.5-MoE", {**MODELOPT, "exclude_modules": ["*.self_attn*"]}),
}  # fmt: skip
"""Overrides, and the model and what its file says that means them."""


def answer(folder: Path, name: str, quantised: dict[str, Any] | None, *overrides: str) -> Evaluation:
    fields = next(published.fields for published in PUBLISHED if published.name == name)
    path = folder / "config.json"
    path.write_text(json.dumps(fields | ({"quantization_config": quantised} if quantised else {})))
    usual = ("chip=h100", "mapping.both.tp=1", "workload.batch=1", "workload.sequence=1024")
    return evaluate_config(compose([f"model.from_hf={path}", *usual, *overrides]))


@pytest.mark.parametrize("words", QUANTISED)
@pytest.mark.parametrize("room", [50, 30, 10])
def test_a_remedy_names_the_published_formats_where_they_would_do(words: str, room: int, tmp_path: Path) -> None:
    memory = f"chip.hbm.capacity='{room} GB'"
    refused = answer(tmp_path, *QUANTISED[words], memory, "mapping.published_formats=false").infeasible
    would = answer(tmp_path, *QUANTISED[words], memory, *words.split()).infeasible is None
    assert refused is not None
    assert (f"which would fit: {words}" in refused.remedy) == would


@pytest.mark.parametrize("words", QUANTISED)
def test_a_model_is_served_in_the_formats_that_its_file_says(words: str, tmp_path: Path) -> None:
    """Unless the user says others; what engines multiply with weights follows from these."""
    name, quantised = QUANTISED[words]
    usual = answer(tmp_path, name, quantised)
    given = dict(word.lstrip("+").removeprefix("mapping.precision.").split("=") for word in words.split())
    assert {field: getattr(usual.design.mapping.precision, field) for field in given} == given
    assert "in its published" in usual.title
    wide = answer(tmp_path, name, quantised, "mapping.precision.weights=fp16", "mapping.precision.kv=fp16")
    plain = answer(tmp_path, name, None, "mapping.precision.weights=fp16", "mapping.precision.kv=fp16")
    assert wide.design.mapping.precision == plain.design.mapping.precision
    assert "published in" in wide.title
    assert "published" not in plain.title
    replaced = answer(tmp_path, name, quantised, "precision={weights: fp16}")
    assert replaced.design.mapping.precision == plain.design.mapping.precision


@pytest.mark.parametrize(("chip", "activations"), [("h100", "fp8_1x128"), ("a100", "fp16"), ("b200", "fp8_1x128")])
def test_activations_have_a_format_that_engines_multiply(chip: str, activations: str) -> None:
    precision = compose([f"chip={chip}", "model=deepseek_v3"])["mapping"]["precision"]
    assert (precision["weights"], precision["activations"]) == ("fp8_128x128", activations)


def test_wafers_and_other_software_keep_their_formats() -> None:
    for chip in ("wse2", "wafer64", "tile_gh200", "npu64", "cm384"):
        config = compose([f"chip={chip}", "model=deepseek_v3"])
        assert config["mapping"]["precision"]["weights"] in ("fp16", "fp8", "int8")
    text = describe_published_formats(build_question(config, Path()).base, config["model"])
    assert text == "published in fp8_128x128, here in int8"


def test_no_format_is_named_of_a_file_that_says_none(tmp_path: Path) -> None:
    refused = answer(tmp_path, "Yi-34B", None, "chip.hbm.capacity='50 GB'").infeasible
    assert refused is not None
    assert "published" not in refused.remedy
