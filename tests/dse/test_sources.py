"""Files of ours are parsed once, and again when they change."""

import os
from pathlib import Path

from omegaconf import DictConfig

from dse.sources import Ours


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
