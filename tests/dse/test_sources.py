"""Files of ours are parsed once, and again when they change."""

import os
from pathlib import Path

import pytest
from omegaconf import DictConfig

from dse.config import composed
from dse.config.compose import compose
from dse.config.sources import Ours


def read(path: Path) -> DictConfig:
    config = Ours("main", "ours://dse.conf")._read_config(path).config
    assert isinstance(config, DictConfig)
    return config


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "chip.yaml"
    path.write_text("cores: 1\n")
    assert read(path) == {"cores": 1}
    path.write_text("cores: 2\n")
    os.utime(path, ns=(0, 0))
    assert read(path) == {"cores": 2}


def test_who_changes_what_was_read_changes_it_for_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "chip.yaml"
    path.write_text("cores: 1\n")
    read(path).pop("cores")
    assert read(path) == {"cores": 1}


def test_values_are_put_over_a_copy_of_what_was_chosen() -> None:
    first = compose(["chip=a100"])
    assert compose(["chip=a100", "chip.cores=7"])["chip"]["cores"] == 7
    assert compose(["chip=a100"])["chip"] == first["chip"]


def test_what_was_chosen_is_composed_again_when_a_file_of_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    compose(["chip=a100"])
    found = {words: kept for words, kept in composed.KEPT.items() if "chip=a100" in words}
    assert found
    asked: list[list[str]] = []
    by_hydra = composed._by_hydra
    monkeypatch.setattr(composed, "_by_hydra", lambda words: asked.append(words) or by_hydra(words))
    compose(["chip=a100"])
    assert not asked
    for content, read in found.values():
        path = next(path for path in read if path.name == "a100.yaml")
        monkeypatch.setitem(read, path, (1, 1))
        assert content
    compose(["chip=a100"])
    assert asked
