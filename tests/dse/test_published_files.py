"""Files as they are published, where a folder has them: each is read or refused by name, and presets are what they say.

The folder is `CONFIGS`, or `shared/configs` beside the repository; without it these tests are skipped.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from dse.config.workloads import read_models
from dse.huggingface import model_fields
from dse.space.errors import DesignError
from dse.space.model import Model
from dse.space.parameter_counts import active_parameter_count, parameter_count

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("CONFIGS", ROOT.parent / "shared/configs"))
PUBLISHED = sorted(FOLDER.glob("*.json"))
PRESETS = {
    "deepseek_r1": "deepseek-ai--DeepSeek-R1",
    "deepseek_v3": "deepseek-ai--DeepSeek-V3",
    "deepseek_v32": "deepseek-ai--DeepSeek-V3.2",
    "gemma4_26b_a4b": "google--gemma-4-26B-A4B",
    "glm_5": "zai-org--GLM-5",
    "gpt_oss_120b": "openai--gpt-oss-120b",
    "kimi_k2": "moonshotai--Kimi-K2-Instruct",
    "llama3_405b": "meta-llama--Meta-Llama-3.1-405B",
    "llama4_scout": "meta-llama--Llama-4-Scout-17B-16E-Instruct",
    "mimo_v2_flash": "XiaomiMiMo--MiMo-V2-Flash",
    "minimax_m2": "MiniMaxAI--MiniMax-M2.5",
    "minimax_m3": "MiniMaxAI--MiniMax-M3",
    "nemotron3_nano": "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "nemotron3_super": "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4",
    "nemotron_h_56b": "nvidia--Nemotron-H-56B-Base-8K",
    "qwen35_27b": "Qwen--Qwen3.5-27B",
    "qwen35_35b_a3b": "Qwen--Qwen3.5-35B-A3B",
    "qwen35_397b_a17b": "Qwen--Qwen3.5-397B-A17B",
    "qwen3_235b_a22b": "Qwen--Qwen3-235B-A22B",
    "qwen3_32b": "Qwen--Qwen3-32B",
    "step_37_flash": "stepfun-ai--Step-3.7-Flash",
}
REFUSED = {"deepseek-ai--DeepSeek-V4-Flash": ("hc_mult", 1), "moonshotai--Kimi-K3": ("attn_res_block_size", None)}
"""What files have that no operator stands for, and the value without it."""


def given(stem: str) -> Path:
    path = FOLDER / f"{stem}.json"
    if not path.is_file():
        pytest.skip(f"no published file {path.name}; CONFIGS=FOLDER names a folder of them")
    return path


def read(entry: dict[str, Any]) -> Model:
    (model,) = read_models({"read": entry | {"name": "read"}}).values()
    return model


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_what_its_file_says(preset: str) -> None:
    shipped = yaml.safe_load((ROOT / f"conf/model/{preset}.yaml").read_text())
    assert read(model_fields(given(PRESETS[preset]))) == read(shipped)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_a_published_file_is_read_or_refused_by_its_field(path: Path) -> None:
    if path.stem in REFUSED:
        with pytest.raises(DesignError, match=REFUSED[path.stem][0]) as error:
            model_fields(path)
        assert len(str(error.value).splitlines()) == 1
        return
    model = read(model_fields(path))
    assert parameter_count(model) >= active_parameter_count(model) > 1e9


@pytest.mark.parametrize(
    ("stem", "total", "active"), [("deepseek-ai--DeepSeek-V4-Flash", 284.3, 13.8), ("moonshotai--Kimi-K3", 2779, 105)]
)
def test_without_what_is_not_modelled_it_is_read(stem: str, total: float, active: float, tmp_path: Path) -> None:
    field, value = REFUSED[stem]
    values = json.loads(given(stem).read_text())
    values.get("text_config", values)[field] = value
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    model = read(model_fields(path))
    assert parameter_count(model) / 1e9 == pytest.approx(total, rel=5e-3)
    assert active_parameter_count(model) / 1e9 == pytest.approx(active, rel=5e-3)
    if stem.endswith("V4-Flash"):
        assert model == read(yaml.safe_load((ROOT / "conf/model/deepseek_v4_flash.yaml").read_text()))


def test_layers_pruned_one_by_one_add_up() -> None:
    model = read(model_fields(given("nvidia--Llama-3_3-Nemotron-Super-49B-v1")))
    assert parameter_count(model) / 1e9 == pytest.approx(49.87, rel=1e-3)
