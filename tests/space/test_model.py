"""Models that ship: totals, what a token uses, and what a sequence keeps, against what was published or worked out apart."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from dse.config.workloads import read_models
from dse.space.model import Model
from dse.space.parameter_counts import (
    active_parameter_count,
    cache_growth,
    cached_values_at,
    fixed_bytes_per_sequence,
    growing_values_per_token,
    parameter_count,
    sequence_memory,
    window_values,
)

FILES = sorted((Path(__file__).resolve().parent.parent.parent / "conf/model").glob("*.yaml"))
ACTIVE = {"qwen3_30b_a3b": 3.3e9, "phi35_moe": 6.6e9, "mixtral_8x7b": 12.9e9, "mixtral_8x22b": 39.1e9}
"""Active parameters as the models' cards give them."""


class Fact(NamedTuple):
    """Of a model, worked out from its fields by hand.

    Attributes:
        total, active: parameters, in 1e9, with embedding and head, without modules that predict tokens. [1]
        growing: of caches a token, two bytes a value, keys of indexers apart. [kB]
        indexed: of the keys of indexers a token, at 132 bytes a key of 128 values, or 256 where that is said. [kB]
        fixed: of caches of windows and of states, two bytes and four bytes a value, convolutions apart. [MB]
    """

    total: float
    active: float
    growing: float
    indexed: float = 0.0
    fixed: float = 0.0


FACTS = {
    "gpt_oss_20b": Fact(20.9, 4.2, 24.6, fixed=3),
    "gpt_oss_120b": Fact(116.8, 5.7, 36.9, fixed=5),
    "gemma2_9b": Fact(9.24, 9.24, 172),
    "gemma2_27b": Fact(27.2, 27.2, 188, fixed=772),
    "gemma3_12b": Fact(11.8, 11.8, 66, fixed=336),
    "gemma3_27b": Fact(27.0, 27.0, 82, fixed=436),
    "gemma4_31b": Fact(30.7, 30.7, 82, fixed=839),
    "gemma4_26b_a4b": Fact(25.2, 3.82, 20, fixed=210),
    "llama4_scout": Fact(107.8, 17.2, 49, fixed=1208),
    "llama4_maverick": Fact(400.7, 17.2, 49, fixed=1208),
    "qwen3_next_80b_a3b": Fact(79.7, 3.87, 25, fixed=75),
    "qwen35_397b_a17b": Fact(396.4, 17.4, 31, fixed=189),
    "qwen35_122b_a10b": Fact(122.1, 9.8, 25, fixed=151),
    "qwen35_35b_a3b": Fact(34.7, 3.45, 20, fixed=63),
    "qwen35_27b": Fact(26.9, 26.9, 66, fixed=151),
    "glm_45": Fact(352.8, 33.6, 377),
    "glm_45_air": Fact(106.9, 13.4, 188),
    "glm_5": Fact(743.9, 41.8, 90, 10.3),  # 57 indexers fewer, as in GLM-5.2: 743.4 and 41.3
    "deepseek_v32": Fact(671.9, 38.4, 70, 8.1),
    "deepseek_v4_flash": Fact(284.3, 13.8, 5.5),  # 2.8 k values; formats are in a test of their own
    "deepseek_v4_pro": Fact(1573, 49.8, 7.9),
    "minimax_m2": Fact(228.7, 11.0, 254),
    "minimax_m3": Fact(426, 26, 123, 15),
    "nemotron_h_56b": Fact(56.3, 56.3, 41, fixed=906),
    "nemotron3_nano": Fact(31.6, 3.58, 6.1, fixed=48),
    "nemotron3_super": Fact(120.7, 12.8, 8.2, fixed=168),
    "mistral_small_3": Fact(23.6, 23.6, 164),
    "mistral_small_4": Fact(119.0, 6.63, 23),
    "phi_4": Fact(14.7, 14.7, 205),
    "command_a": Fact(111.1, 111.1, 66, fixed=805),
    "hunyuan_a13b": Fact(80.4, 12.8, 131),
    "ernie_45_21b_a3b": Fact(21.8, 3.35, 57),
    "mimo_v2_flash": Fact(308.8, 15.5, 23, fixed=26),
    "step_37_flash": Fact(197, 12, 49, fixed=69),
}
"""Worked out from the configurations that the files name as their sources, and rounded; within 3 % of the published totals."""


def model_of(path: Path) -> Model:
    (model,) = read_models({path.stem: yaml.safe_load(path.read_text())}).values()
    return model


def shipped(name: str) -> Model:
    return model_of(FILES[0].parent / f"{name}.yaml")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_fields_add_up_to_the_published_total(path: Path) -> None:
    entry = yaml.safe_load(path.read_text())
    published = entry.get("published_parameters")
    assert (published is None) == (path.stem in FACTS)
    if published is not None:
        assert parameter_count(model_of(path)) == pytest.approx(published, rel=5e-4)
    assert entry["source"]


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_are_those_of_the_card(name: str) -> None:
    assert active_parameter_count(shipped(name)) == pytest.approx(
        ACTIVE[name], rel=0.02
    )  # cards round, some leave embeddings out


def test_a_model_trained_further_is_the_model_it_was_made_of() -> None:
    assert replace(shipped("deepseek_r1"), name="") == replace(shipped("deepseek_v3"), name="")


@pytest.mark.parametrize("name", FACTS)
def test_totals_are_those_worked_out_by_hand(name: str) -> None:
    model, fact = shipped(name), FACTS[name]
    assert parameter_count(model) / 1e9 == pytest.approx(fact.total, rel=5e-3)
    assert active_parameter_count(model) / 1e9 == pytest.approx(fact.active, rel=5e-3)


@pytest.mark.parametrize("name", FACTS)
@pytest.mark.parametrize("window", [0, 64, 1000])
def test_caches_grow_by_what_is_said_of_a_token(name: str, window: int) -> None:
    model = shipped(name)
    if window and not model.kinds and model.compressed is None and model.indexer is None:
        model = replace(model, window=window, chunk=0)
    growth = cache_growth(model, 1.0, 1.0)
    start = 0 if growth.until is not None else model.max_position
    tokens = growth.until if growth.until is not None else 1000
    assert tokens
    grown = cached_values_at(model, start + tokens) - cached_values_at(model, start)
    assert growth.nbytes == pytest.approx(grown / tokens)
    assert growth.nbytes > 0 or not any(memory.kv for memory in sequence_memory(model))


@pytest.mark.parametrize("name", FACTS)
def test_caches_are_those_worked_out_by_hand(name: str) -> None:
    model, fact = shipped(name), FACTS[name]
    index = sum(memory.layer.times * memory.scores * memory.indexed.grows for memory in sequence_memory(model))
    assert 2 * (growing_values_per_token(model) - index) / 1e3 == pytest.approx(
        fact.growing, abs=0.05 if fact.growing < 10 else 0.55
    )
    each = 256 if name == "minimax_m3" else 132
    if fact.indexed:
        assert index / 128 * each / 1e3 == pytest.approx(fact.indexed, abs=0.5)
    if fact.fixed:
        assert (2 * window_values(model) + fixed_bytes_per_sequence(model, 0)) / 1e6 == pytest.approx(
            fact.fixed, abs=0.5, rel=5e-3
        )


@pytest.mark.parametrize(("name", "growing", "fixed"), [("deepseek_v4_flash", 3.5, 3.2), ("deepseek_v4_pro", 5.0, 4.5)])
def test_compressed_caches_in_their_formats(name: str, growing: float, fixed: float) -> None:
    """Rows of 512 values have 576 bytes in FP8, keys of indexers 68 in MXFP4."""
    model = shipped(name)
    rows = sum(memory.layer.times * memory.kv / 512 * 576 * memory.reach.grows for memory in sequence_memory(model))
    keys = sum(memory.layer.times * memory.scores / 128 * 68 * memory.indexed.grows for memory in sequence_memory(model))
    assert (rows + keys) / 1e3 == pytest.approx(growing, abs=0.05)
    assert window_values(model) / 512 * 576 / 1e6 == pytest.approx(fixed, abs=0.05)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_model_file_says_its_own_name(path: Path) -> None:
    assert path.read_text().startswith(f"# @package model.{path.stem}\n")
