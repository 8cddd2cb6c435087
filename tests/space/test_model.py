from pathlib import Path

import pytest
import yaml

from dse.space.parameters import active_parameters, parameters
from dse.workloads import models

FILES = sorted((Path(__file__).resolve().parent.parent.parent / "conf/model").glob("*.yaml"))
ACTIVE = {"qwen3_30b_a3b": 3.3e9, "phi35_moe": 6.6e9, "mixtral_8x7b": 12.9e9, "mixtral_8x22b": 39.1e9}
"""Active parameters as the models' cards give them."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_fields_add_up_to_the_published_total(path: Path) -> None:
    entry = yaml.safe_load(path.read_text())
    (model,) = models({path.stem: entry}).values()
    assert parameters(model) == pytest.approx(entry["published_parameters"], rel=5e-4)
    assert entry["source"]


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_are_those_of_the_card(name: str) -> None:
    entry = yaml.safe_load((FILES[0].parent / f"{name}.yaml").read_text())
    (model,) = models({name: entry}).values()
    assert active_parameters(model) == pytest.approx(ACTIVE[name], rel=0.02)  # cards round, some leave embeddings out


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_model_file_says_its_own_name(path: Path) -> None:
    assert path.read_text().startswith(f"# @package model.{path.stem}\n")
