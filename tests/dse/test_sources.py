"""Files of ours are parsed once, and again when they change; what they make together is what Hydra makes of them; constants
without a source are told."""

import copy
import json
import os
import pickle
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import hydra
import numpy as np
import pandas as pd
import pytest
from hydra.errors import HydraException
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from dse.commands.study_output import print_study
from dse.config import compose_cache as composed
from dse.config import yaml_files
from dse.config.compose import CONF, STUDIES, compose
from dse.config.hydra_sources import ParsedConfig, ParsedConfigSource, ShippedConfigSource, register_sources
from dse.config.merge_defaults import NeedsHydraError, merge_defaults, merge_over
from dse.config.multi_chip import list_study_chips
from dse.config.overrides import CommandLine, parse_command_line
from dse.config.question import build_question
from dse.config.yaml_files import listed_defaults, read_document
from dse.execution.study import build_study


def read(path: Path) -> DictConfig:
    config = ShippedConfigSource("main", "ours://dse.conf").read_file(path).config
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


def test_a_sketch_of_a_file_has_its_list_and_all_it_says() -> None:
    """By another parser than OmegaConf's."""
    for path in Random(3).sample(sorted(CONF.rglob("*.yaml")), 12):
        sketch = ParsedConfigSource("main", "sketched://dse.conf").read_file(path)
        assert isinstance(sketch, ParsedConfig)
        listed, container = OmegaConf.to_container(sketch.config), OmegaConf.to_container(read(path), resolve=False)
        assert isinstance(container, dict)
        assert pickle.loads(sketch.values) == {key: value for key, value in container.items() if key != "defaults"}
        assert listed.get("defaults") == container.get("defaults")  # type: ignore[union-attr]
        assert sketch.header == ShippedConfigSource("main", "ours://dse.conf").read_file(path).header


def cited(*words: str) -> dict[str, tuple[str, str, str]]:
    """Source, page and note of each constant of a chip, by its address."""
    return {
        source.address: (source.source, source.page, source.note)
        for source in build_question(compose(list(words)), Path()).sources
    }


def test_a_constant_with_a_source_of_its_own_has_no_page_of_another(tmp_path: Path) -> None:
    own = "{value: 2.4 TB/s, source: assumed}"
    (tmp_path / "chip").mkdir()
    (tmp_path / "chip/mine.yaml").write_text(f"defaults: [npu_dse, _self_]\nhbm: {{bandwidth: {own}}}\n")
    assert cited("chip=npu_dse")["chip.hbm.bandwidth"][1]
    sources = cited(f"--config-dir={tmp_path}", "chip=mine")
    assert sources["chip.hbm.bandwidth"] == ("assumed", "", "")
    assert sources["chip.hbm.capacity"] == cited("chip=npu_dse")["chip.hbm.capacity"]
    assert cited("chip=ascend910c")["chip.cores"] == ("ohlennart2025", "", "two dies of 24")


def test_groups_of_the_same_fields_have_their_own_values() -> None:
    layers = set()
    for name in ("llama3_8b", "llama3_70b", "llama3_8b"):
        defaults = merge_defaults(choosing([f"model={name}", "chip=a100"]))
        assert defaults is not None
        by_hydra, _ = composed._by_hydra(choosing([f"model={name}", "chip=a100"]))
        assert defaults[0].model == by_hydra.model
        layers.add(str(defaults[0].model))
    assert len(layers) == 2


def test_values_are_put_over_a_copy_of_what_was_chosen() -> None:
    first = compose(["chip=a100"])
    assert compose(["chip=a100", "chip.cores=7"])["chip"]["cores"] == 7
    assert compose(["chip=a100"])["chip"] == first["chip"]


def test_what_was_chosen_is_composed_again_when_a_file_of_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    compose(["chip=a100"])
    entries = {words: kept for words, kept in composed.KEPT.items() if "chip=a100" in words}
    assert entries
    merged_words: list[list[str]] = []
    together = composed.merge_defaults
    monkeypatch.setattr(composed, "merge_defaults", lambda words: merged_words.append(words) or together(words))
    compose(["chip=a100"])
    assert not merged_words
    for content, read in entries.values():
        path = next(path for path in read if path.name == "a100.yaml")
        monkeypatch.setitem(read, path, (1, 1))
        assert content
    compose(["chip=a100"])
    assert merged_words


@pytest.mark.parametrize("seed", range(3))
def test_a_study_says_which_constants_of_its_chip_have_no_source(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    config: dict[str, Any] = copy.deepcopy(dict(compose(["study=quickstart"])))
    rng, stated = np.random.default_rng(seed), []

    def visit(chip: dict[str, Any], address: str) -> None:
        for name, value in chip.items():
            if isinstance(value, dict) and "value" in value and rng.random() < 0.2:
                chip[name] = value["value"] if rng.random() < 0.5 else {"value": value["value"]}
                stated.append(f"{address}.{name} = {value['value']}")
            elif isinstance(value, dict) and "value" not in value:
                visit(value, f"{address}.{name}")

    visit(config["chip"], "chip")
    print_study(build_study(config, STUDIES / "quickstart"), [], None, pd.DataFrame)
    out = " ".join(capsys.readouterr().out.split())
    listed = out[out.index("no source") :].partition(": set on the command line")[0].removeprefix("no source ").split(", ")
    assert set(listed) >= set(stated)
    assert not any(line_of_text in out.partition("no source")[0] for line_of_text in stated)


CHOSEN = {
    group: sorted(path.stem for path in (CONF / group).glob("*.yaml"))
    for group in ("chip", "model", "mapping", "stack", "workload", "search", "verify", "workers", "space")
}
OF_PARTS = [
    f"chip={name}"
    for name in CHOSEN["chip"]
    if "part@_here_" in dict(listed_defaults(read_document(CONF / f"chip/{name}.yaml")))
]
ASKED = ("", "study=preserve_l2", "study=own", "study=near")
OWN = {
    "studies/own/study.yaml": "defaults: [override /chip: mine]\nobjectives: {tpot: min}\nlimit: ${seed}\n",
    "studies/own/chip/mine.yaml": "defaults: [npu64, _self_]\nmapping_static: ???\nhbm: {bandwidth: 2 TB/s}\n",
    "studies/near/study.yaml": "mapping: {both: {tp: 4}, prefill: {tp: 2}}\nchip: {l2: null}\n",
}


def choosing(typed: list[str]) -> list[str]:
    """What of a line chooses files."""
    merged_words: list[list[str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composed, "KEPT", {})
        patch.setattr(composed, "merge_defaults", lambda words: merged_words.append(words))
        composed.compose_cached(parse_command_line(typed, trust=False))
    return merged_words[0]


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(4))
def test_what_files_make_together_is_what_hydra_makes_of_them(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values in their order, and what is chosen; files of a user among them."""
    for path, text in OWN.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.chdir(tmp_path)
    draws = Random(seed)
    typed = [f"{group}={draws.choice(names)}" for group, names in CHOSEN.items() if draws.random() < 0.3]
    more = "" if any(word in typed for word in OF_PARTS) else "+"
    typed += [f"{more}part@chip=l2_256mb"] * (seed % 2) + [ASKED[seed]] * bool(ASKED[seed])
    words = choosing(typed)
    defaults = merge_defaults(words)
    assert defaults is not None
    config, choices = composed._by_hydra(words)
    assert OmegaConf.to_yaml(defaults[0]) == OmegaConf.to_yaml(config)
    assert OmegaConf.is_struct(defaults[0])
    assert OmegaConf.is_struct(config)
    assert list(defaults[1].items()) == [(group, name) for group, name in choices.items() if not group.startswith("hydra/")]


VALUES = ("7", "2.5", "null", "true", "'3 GB'", "word", "[1,2]", "{a: 1}", "[]")


def without_citations(value: Any) -> Any:
    """Values without pages and notes of constants: our files have empty ones where they say none, so that none is another's."""
    if isinstance(value, list):
        return [without_citations(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    constant = "value" in value and "source" in value
    return {key: without_citations(inner) for key, inner in value.items() if not (constant and key in ("page", "note"))}


def addresses_in(value: Any, above: str = "") -> list[str]:
    """Addresses of the values and constants below one."""
    if not isinstance(value, dict) or {"value", "source"} <= value.keys():
        return [above]
    return [address for key, inner in value.items() for address in addresses_in(inner, f"{above}.{key}".lstrip("."))]


@pytest.mark.parametrize("seed", range(4))
def test_a_line_of_random_overrides_is_what_the_public_calls_of_hydra_make_of_it(seed: int) -> None:
    """`hydra.initialize_config_dir` and `hydra.compose` on our files as they are; a refusal has the same text."""
    draws = Random(seed)
    for _ in range(3):
        typed = [f"{group}={draws.choice(names)}" for group, names in CHOSEN.items() if draws.random() < 0.4]
        chosen = OmegaConf.to_container(composed.compose_cached(parse_command_line(typed, trust=False))[0], resolve=False)
        addresses = [address for address in addresses_in(chosen) if "@" not in address]
        for address in draws.sample(addresses, 4):
            how = draws.random()
            value = draws.choice(VALUES)
            typed.append(
                f"{address}={value}"
                if how < 0.6
                else f"++{address}={value}"
                if how < 0.8
                else f"~{address}"
                if how < 0.9
                else f"+{address.rpartition('.')[0]}.new={value}".replace("+.", "+")
            )
        line = parse_command_line(typed, trust=False)
        assert _answer(_composed_by_us, line) == _answer(_composed_by_public_calls, line), typed


def _composed_by_us(line: CommandLine) -> Any:
    return composed.compose_cached(line)[0]


def _composed_by_public_calls(line: CommandLine) -> Any:
    register_sources()  # of the preset `usual`
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose("config", overrides=line.words)


def _answer(compose_line: Callable[[CommandLine], Any], line: CommandLine) -> str:
    """Values of a configuration in their order, or the text of a refusal."""
    try:
        return json.dumps(without_citations(OmegaConf.to_container(compose_line(line), resolve=False)))
    except HydraException as error:
        return str(error)


def test_a_file_is_parsed_once_while_it_is_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "study.yaml"
    parsed: list[str] = []
    monkeypatch.setattr(yaml_files, "parse_yaml", lambda text: parsed.append(text) or {"chips": [text]})
    path.write_text("one")
    os.utime(path, (1e9, 1e9))
    read_document(path)["chips"].append("other")
    assert read_document(path) == {"chips": ["one"]}
    assert parsed == ["one"]
    path.write_text("two!")
    assert read_document(path) == {"chips": ["two!"]}


def test_a_file_that_changes_twice_in_a_moment_is_read_twice(tmp_path: Path) -> None:
    """Clocks of file systems have ticks of some milliseconds: both have one time and one size."""
    path, now = tmp_path / "study.yaml", time.time_ns()
    for text in ("chips: [a100]", "chips: [h100]"):
        path.write_text(text)
        os.utime(path, ns=(now, now))
        assert f"chips: [{list_study_chips(path.parent)[0]}]" == text


NO_FIELDS = ("[1, 2]", "chips: [", "a: 1\na: 2", "[" * 3000, "x: !!python/name:os.system", "\x00", "", "n: !!int word")


@pytest.mark.parametrize("text", NO_FIELDS)
def test_a_file_of_no_fields_says_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(text)
    assert read_document(tmp_path / "study.yaml") == {}
    assert read_document(tmp_path / "none.yaml") == {}


def test_fields_of_a_study_are_read_as_yaml_has_them(tmp_path: Path) -> None:
    """In a flow, quoted, and after a text of many lines that looks like a list of chips."""
    path = tmp_path / "study.yaml"
    path.write_text('note: |\n  chips:\n  - chip: b200\n"chips": ["a100", wse2]\ndefaults: [{override /chip: h100}]\n')
    assert list_study_chips(path.parent) == ["a100", "wse2"]
    assert dict(listed_defaults(read_document(path))) == {"chip": "h100"}


LEAVES = st.sampled_from([1, 2.5, "x", None, True, "???", "${a}", [], [1, {"b": 2}]])
GROUPS = st.recursive(
    st.dictionaries(st.sampled_from("abc"), LEAVES, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), LEAVES | inner, max_size=3),
    max_leaves=8,
)


@given(GROUPS, GROUPS)
def test_values_are_put_over_others_as_hydra_does(below: dict[str, Any], above: dict[str, Any]) -> None:
    ours = deepcopy(below)
    try:
        merge_over(ours, deepcopy(above))
    except NeedsHydraError:
        return
    theirs = OmegaConf.create(below)
    theirs.merge_with(OmegaConf.create(above))
    assert OmegaConf.to_container(theirs, resolve=False) == ours


def test_what_is_more_than_values_over_values_is_hydras() -> None:
    for below, above in (({"a": {}}, {"a": []}), ({"a": "${b}"}, {"a": {"c": 1}}), ({"a": "${b}"}, {"a": "???"})):
        with pytest.raises(NeedsHydraError):
            merge_over(dict(below), above)


def test_what_hydra_refuses_is_left_to_it() -> None:
    assert merge_defaults(["hydra.searchpath=['usual://tensor_parallel::']", "chip=nope"]) is None
