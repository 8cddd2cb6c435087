"""Every declared setting of studies and workloads: what is wrong with it is one line that begins with its address."""

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from math import inf, isfinite
from typing import Any

import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dse.commands.notebook_api import find_study
from dse.config.compose import compose, find_study_folder
from dse.config.record_parser import USUAL_CHOICES, field_types, parse_settings, record_type
from dse.config.untrusted_files import SHIPPED_CONF
from dse.evaluators.serving.traces import SKIP_RULES
from dse.execution.study import build_study
from dse.execution.study_settings import GROUPS, describe_unread_settings
from dse.reference.knobs import USUAL_PRESET
from dse.reference.presets import preset_names, read_preset
from dse.space.compatibility import case_type_of
from dse.space.errors import DesignError
from dse.space.fields import check_leaf, field_at, iterate_leaves, leaf_at
from dse.space.workload_settings import SETTINGS, SKIPPED_ROWS, CombinationSettings, ServingSettings

COMBINATION = {spec.name for spec in fields(CombinationSettings)}
INNER: dict[str, dict[str, Any]] = {
    "speculation": {"tokens": 1, "acceptance": 0.7},
    "sessions": {"turns": 5, "think": "20 s"},
    "slo_classes": {"name": "chat", "share": 0.5},
    "lines": {"x": "chip.cores", "y": "tpot"},
    "bars": {"x": "chip.cores"},
}
"""A valid group of each setting that is a record, or a list of them."""


def study_groups() -> Iterator[tuple[type, str, dict[str, Any]]]:
    root = yaml.safe_load((SHIPPED_CONF / "config.yaml").read_text())
    for name, kind in GROUPS.items():
        own = root.get(name) or read_preset(name, USUAL_PRESET[name]).values
        yield kind, name, own


def workload_groups() -> Iterator[tuple[type, str, dict[str, Any]]]:
    for name in preset_names("workload"):
        spec = {key: value for key, value in read_preset("workload", name).values.items() if key not in USUAL_CHOICES}
        yield CombinationSettings, "workload", {key: value for key, value in spec.items() if key in COMBINATION}
        yield SETTINGS[case_type_of(spec)], "workload", {key: value for key, value in spec.items() if key not in COMBINATION}


def below(kind: type, address: str, config: dict[str, Any]) -> Iterator[tuple[type, str, dict[str, Any]]]:
    """A group, and the groups that its records, and lists of them, are."""
    yield kind, address, config
    for spec in fields(kind):
        if spec.name == "stop":
            yield from below(field_types(kind)["stop"], f"{address}.stop", config["stop"])
        inner = [*spec.metadata.get("parts", ()), *([spec.metadata["list"]] if "list" in spec.metadata else [])]
        for part in inner:
            if is_dataclass(part):
                yield from below(part, f"{address}.{spec.name}", INNER[spec.name])  # type: ignore[arg-type]


PLACES = {place[0]: place for group in (*study_groups(), *workload_groups()) for place in below(*group)}
DECLARED = [
    (kind, address, config, spec)
    for kind, address, config in PLACES.values()
    for spec in fields(kind)
    if "computed" not in spec.metadata and (spec.metadata or record_type(field_types(kind)[spec.name]))
]


def test_every_setting_of_a_preset_is_declared_and_every_declared_one_has_a_meaning() -> None:
    assert len(DECLARED) > 120
    for kind, address, config in (*study_groups(), *workload_groups()):
        assert parse_settings(kind, config, address) is not None
    for kind, address, _, spec in DECLARED:
        assert spec.metadata.get("doc") or record_type(field_types(kind)[spec.name]), f"{address}.{spec.name}"


def test_presets_name_every_setting() -> None:
    """A setting is found by reading its preset, except those of models alone, which all workloads may have."""
    for kind, address, config in (*study_groups(), *workload_groups()):
        if kind is not CombinationSettings:
            missing = {spec.name for spec in fields(kind) if "computed" not in spec.metadata} - set(config)
            assert not missing, f"{address}: {missing}"


def test_words_for_rows_that_are_skipped_are_those_of_traces() -> None:
    assert tuple(SKIP_RULES) == SKIPPED_ROWS


@pytest.mark.parametrize("written", ["7", "7.0", "'7'"])
def test_a_whole_number_is_one_however_it_is_written(written: str) -> None:
    """The draws of a study take its seed as it is."""
    seed = find_study("quickstart", f"seed={written}").seed
    assert (seed, type(seed)) == (7, int)


def test_a_percentile_is_per_cent_and_no_share() -> None:
    load = {"ttft": "1 s", "tpot": "50 ms"}
    assert parse_settings(ServingSettings, load | {"slo_percentile": 99}, "workload").slo_percentile == 99.0
    for written in ("99%", 0.99):
        with pytest.raises(DesignError, match=r"^workload.slo_percentile: 0.99 is below the minimum, 1; or set null$"):
            parse_settings(ServingSettings, load | {"slo_percentile": written}, "workload")


def wrong(spec: Field[Any], rng: random.Random) -> list[Any]:
    """Values that a field must refuse: of other types, and out of its range."""
    limits: Mapping[str, Any] = spec.metadata
    text = "".join(rng.choices("!?;&~", k=rng.randint(1, 8)))
    number = rng.uniform(1.1, 99.0)
    null = [] if "absent" in limits or ("parts" in limits and spec.default is not MISSING) else [None]
    if not limits:  # a record
        return [None, text, number, [number]]
    if "parts" in limits or "group" in limits:
        return [text, number, [number], *([None] if "group" in limits else [])]
    if "list" in limits:
        entries = [[entry] for entry in wrong_entry(limits["list"], rng)]
        bare = [] if "single" in limits else [number, text]
        return [*null, *entries, *bare, *([] if "empty" in limits else [[]]), {text: number}]
    if "flag" in limits:
        return [*null, text, number, rng.randint(0, 1), [True], {text: True}]
    if "options" in limits or "text" in limits:
        texts = [text] if limits.get("options") else []
        texts += ["", *([text] if limits["pattern"] != ".+" else [])] if limits.get("pattern") else []
        return [*null, *texts, number, True, [text, text], {text: text}]
    return [*null, text, f"{text} {number}", True, {text: number}, [[number]], *out_of_range(limits, rng)]


def wrong_entry(inner: Any, rng: random.Random) -> list[Any]:
    return [rng.uniform(1.1, 9.0), "?"] if isinstance(inner, type) else wrong(inner, rng)


def out_of_range(limits: Mapping[str, Any], rng: random.Random) -> list[Any]:
    unit = limits["unit"]
    far = rng.uniform(1.0, 1e6)
    numbers = [inf]
    numbers += [limits["low"] - (int(far) if "whole" in limits else far)] if isfinite(limits["low"]) else []
    numbers += [limits["high"] + far] if isfinite(limits.get("high", inf)) else []
    numbers += [limits[end] for end in ("above", "below") if end in limits]
    numbers += [0.0] if limits.get("positive") else []
    numbers += [max(limits["low"], 0) + 0.5] if "whole" in limits else []
    texts = [f"{number!r} {unit}" for number in numbers if number != inf]
    return [*numbers, "3 kg"] if unit == "1" else [*texts, "3 kg", 1 + far]  # a bare number has no unit


def message(kind: type, address: str, config: dict[str, Any]) -> str:
    with pytest.raises(DesignError) as refusal:
        parse_settings(kind, config, address)
    return str(refusal.value)


@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(st.integers(0, 2**32))
def test_a_wrong_value_of_any_setting_is_one_line_with_its_address(seed: int) -> None:
    rng = random.Random(seed)
    for kind, address, config, spec in DECLARED:
        for value in wrong(spec, rng):
            line = message(kind, address, {**config, spec.name: value})
            own = re.escape(f"{address}.{spec.name}")
            assert re.match(rf"{own}(\.\w+)*: \S", line), (spec.name, value, line)
            assert len(line.splitlines()) == 1


@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(st.integers(0, 2**32))
def test_an_unknown_setting_is_one_line_with_the_nearest_name(seed: int) -> None:
    rng = random.Random(seed)
    for kind, address, config, spec in DECLARED:
        place = rng.randrange(len(spec.name) + 1)
        unknown = f"{spec.name[:place]}{rng.choice('xzqj')}{spec.name[place:]}"
        line = message(kind, address, {**config, unknown: 1})
        assert re.match(rf"{re.escape(address)}: no field '{re.escape(address)}\.{unknown}'; ", line), line
        assert spec.name in line


def test_a_setting_that_is_left_out_is_missing_with_its_meaning() -> None:
    for kind, address, config, spec in DECLARED:
        if spec.default is MISSING and spec.default_factory is MISSING:
            line = message(kind, address, {key: value for key, value in config.items() if key != spec.name})
            assert line.startswith(f"{address}.{spec.name}: missing"), line


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (("search=certify", "search.gap=1%", "search.budget=50"), ["search.budget has no effect with search.sampler=certify"]),
        (("search=random", "search.population=8"), ["search.population has no effect with search.sampler=random"]),
        (("search=nsga2", "search.population=8"), []),
        (("search.stop.growth=0.1",), ["search.stop.growth has no effect with search.stop.stagnation=null"]),
        (("search.stop.growth=0.1", "search.stop.stagnation=40"), []),
        (("verify.fidelity=none", "verify.designs=3"), ["verify.designs has no effect with verify.fidelity=none"]),
        (("workers=serial", "workers.time_limit='3 s'"), ["workers.time_limit has no effect with workers.kind=serial"]),
        (("screen.run=false", "screen.keep=front"), ["screen.keep has no effect with screen.run=false"]),
    ],
)
def test_a_typed_setting_that_nothing_reads_says_so(words: tuple[str, ...], lines: list[str]) -> None:
    config = compose(["study=quickstart", *words])
    study = build_study(config, find_study_folder(config))
    groups = {"screen": study.screen, "search": study.search, "verify": study.verify, "workers": study.crew}
    assert describe_unread_settings(groups, study.overrides) == lines


def test_what_makes_a_setting_idle_is_a_setting_with_such_a_value() -> None:
    """Of each condition of a setting, the other setting exists and takes the value."""
    config = compose(["study=quickstart"])
    study = build_study(config, find_study_folder(config))
    groups = {"screen": study.screen, "search": study.search, "verify": study.verify, "workers": study.crew}
    conditions = [
        (other, word)
        for name, group in groups.items()
        for _, _, spec in iterate_leaves(group, f"{name}.")
        for other, words in spec.metadata.get("unread", {}).items()
        for word in words
    ]
    assert len(conditions) > 30
    for other, word in conditions:
        group, _, name = other.partition(".")
        if word is None:
            assert leaf_at(groups[group], name) is None
        else:
            check_leaf(word, field_at(groups[group], name), other)
