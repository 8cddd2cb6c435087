"""Files of ours are parsed once, and again when they change; constants without a source are told."""

import copy
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import DictConfig

from dse.commands.show import summary
from dse.config import composed
from dse.config.compose import STUDIES, compose
from dse.config.sources import Ours
from dse.running.study import study


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


@pytest.mark.parametrize("seed", range(3))
def test_a_study_says_which_constants_of_its_chip_have_no_source(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    config: dict[str, Any] = copy.deepcopy(dict(compose(["study=quickstart"])))
    rng, told = np.random.default_rng(seed), []

    def visit(of: dict[str, Any], address: str) -> None:
        for name, value in of.items():
            if isinstance(value, dict) and "value" in value and rng.random() < 0.2:
                of[name] = value["value"] if rng.random() < 0.5 else {"value": value["value"]}
                told.append(f"{address}.{name} = {value['value']}")
            elif isinstance(value, dict) and "value" not in value:
                visit(value, f"{address}.{name}")

    visit(config["chip"], "chip")
    summary(study(config, STUDIES / "quickstart"), [])
    out = " ".join(capsys.readouterr().out.split())
    said = out[out.index("no source") :].partition(": said here")[0].removeprefix("no source ").split(", ")
    assert set(said) >= set(told)
    assert not any(one in out.partition("no source")[0] for one in told)
