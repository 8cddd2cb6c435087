"""A design without room for a model is told the formats in which its file is published, where these would do."""

import json
from pathlib import Path
from typing import Any

import pytest

from dse.analysis.evaluation import Evaluation, evaluate_config
from dse.config.compose import compose
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
    refused = answer(tmp_path, *QUANTISED[words], memory).infeasible
    would = answer(tmp_path, *QUANTISED[words], memory, *words.split()).infeasible is None
    assert refused is not None
    assert (f"which would fit: {words}" in refused.remedy) == would


def test_no_format_is_named_of_a_file_that_says_none(tmp_path: Path) -> None:
    refused = answer(tmp_path, "Yi-34B", None, "chip.hbm.capacity='50 GB'").infeasible
    assert refused is not None
    assert "published" not in refused.remedy
